//! One process at a time has a directory.

use super::DurableError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The directory is ours until this is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the directory, or says who has it.
    pub(super) fn take(directory: &Path) -> Result<Self, DurableError> {
        let path = directory.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(true).mode(0o600).truncate(false).open(&path);
        let mut file = opened.map_err(DurableError::disk("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = if pid.trim().is_empty() {
                    "of an unknown number".to_owned()
                } else {
                    pid.trim().to_owned()
                };
                return Err(DurableError::Locked { directory: directory.to_owned(), pid });
            }
            Err(error) => return Err(DurableError::disk("lock", &path)(error.into())),
        }
        // The number is for people; it is the lock that counts.
        let mut write = || {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(std::process::id().to_string().as_bytes())
        };
        write().map_err(DurableError::disk("write", &path))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_learns_who_was_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let lock = Lock::take(directory.path()).expect("it is free");
        let refused = Lock::take(directory.path()).expect_err("it is taken").to_string();
        assert!(refused.starts_with(&format!("process {} has", std::process::id())), "{refused}");
        assert!(refused.contains("hint:"), "{refused}");
        drop(lock);
        Lock::take(directory.path()).expect("it is free again");
    }
}
