//! The directory of a node for the checkpoints of its actors. It ends with the node.

use aktis_protocol::ActorId;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How the names of such directories begin.
const PREFIX: &str = "aktis-actors-";
/// The file in each that its node keeps locked.
const LOCK: &str = "lock";

/// The directory, once an actor needs it.
pub(crate) struct CheckpointSpace {
    parent: PathBuf,
    name: String,
    /// Locked while the node lives, so that other nodes can tell directories that were left behind.
    lock: Option<File>,
}

impl CheckpointSpace {
    /// A directory in `parent` that is named after the node's session.
    pub(crate) fn new(parent: PathBuf, session: &str) -> Self {
        Self { parent, name: format!("{PREFIX}{session}"), lock: None }
    }

    /// The directory. An actor that cannot use it says why.
    pub(crate) fn directory(&mut self) -> PathBuf {
        let _ = self.make();
        self.path()
    }

    fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// The first call makes the directory, and removes those of nodes that were killed.
    fn make(&mut self) -> io::Result<()> {
        let directory = self.path();
        if self.lock.is_none() {
            remove_stale(&self.parent);
            DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
            let lock = File::create(directory.join(LOCK))?;
            lock.try_lock().map_err(io::Error::from)?;
            // Another node may have taken the directory for one that was left behind, before it was locked.
            if !directory.join(LOCK).exists() {
                return self.make();
            }
            self.lock = Some(lock);
        }
        Ok(())
    }

    /// The node ends: so does the directory, with those of nodes that were killed.
    pub(crate) fn close(&mut self) {
        if self.lock.take().is_some() {
            let _ = std::fs::remove_dir_all(self.path());
        }
        remove_stale(&self.parent);
    }

    /// An actor ended for good: its files go.
    pub(crate) fn forget(&self, actor: ActorId, named: &str) {
        let directory = if named.is_empty() { self.path() } else { PathBuf::from(named) };
        // An actor that never ran has none.
        let _ = std::fs::remove_dir_all(directory.join(actor.to_string()));
    }
}

fn remove_stale(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_ours && File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_killed_nodes_are_removed_and_others_stay() {
        let parent = std::env::temp_dir().join(format!("aktis-test-checkpoints-{}", std::process::id()));
        let stale = parent.join("aktis-actors-killed");
        std::fs::create_dir_all(&stale).unwrap();
        File::create(stale.join(LOCK)).unwrap();
        let (mut one, mut two) =
            (CheckpointSpace::new(parent.clone(), "1"), CheckpointSpace::new(parent.clone(), "2"));
        let (first, second) = (one.directory(), two.directory());
        assert!(first.exists() && second.exists() && !stale.exists());
        std::fs::create_dir_all(&stale).unwrap();
        File::create(stale.join(LOCK)).unwrap();
        one.close();
        assert!(!first.exists() && second.exists() && !stale.exists());
        two.close();
        std::fs::remove_dir(&parent).unwrap();
    }
}
