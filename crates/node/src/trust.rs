//! Whom a driver may attach to: a node of its own user, in a directory that only this user controls.
//!
//! A node's workers send values that a driver unpickles, so a node of another user could run code as the driver's user.
//! `/tmp` lets any user create the directory in which a driver looks for its node.
//!
//! Invariants:
//! 1. A driver sends nothing to a socket whose listener has another user id.
//! 2. A driver reads nothing in a directory that another user owns or can replace.

use crate::attach::SOCKET;
use rustix::fd::AsFd;
use rustix::process::Uid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links on the way to a directory; the system follows as many.
const LINKS_MAX: usize = 40;
const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;
const OPEN_TO_OTHERS: u32 = 0o077;

/// Why a driver does not attach to what it has found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The listener belongs to another user.
    #[error(
        "the node in {} is a process of user {uid} (pid {pid}), not of user {own}\n\
         hint: this is not your node, and may be a trap; set AKTIS_DIRECTORY to a directory of your own",
        directory.display()
    )]
    ForeignNode {
        /// Where it listens.
        directory: PathBuf,
        /// The user of the listener.
        uid: u32,
        /// The process of the listener.
        pid: i32,
        /// The user of this process.
        own: u32,
    },
    /// A directory belongs to another user.
    #[error(
        "{} belongs to user {uid}, not to user {own}: no node there is trusted\n\
         hint: this may be a trap; set AKTIS_DIRECTORY to a directory of your own",
        path.display()
    )]
    ForeignDirectory {
        /// The directory, or a link on the way to it.
        path: PathBuf,
        /// The user that it belongs to.
        uid: u32,
        /// The user of this process.
        own: u32,
    },
    /// Other users can enter or change a directory.
    #[error(
        "other users can {} {} (its mode is {mode:o}): no node there is trusted\n\
         hint: `chmod {}` it, or name another directory",
        if *is_node { "enter" } else { "change" }, path.display(), if *is_node { "700" } else { "o-w" }
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Whether it is the node's own, and not one above it.
        is_node: bool,
    },
}

/// A file on the way to a node, as the system describes it.
#[derive(Clone, Copy, Debug)]
struct Found {
    uid: u32,
    mode: u32,
    is_link: bool,
}

/// Users whose files a driver trusts: its own, and root. In a user namespace, root's files can have an owner without a
/// number there, which the system shows as the overflow id.
#[derive(Clone, Copy, Debug)]
struct Trusted {
    own: u32,
    unmapped: Option<u32>,
}

impl Trusted {
    fn here() -> Self {
        Self { own: rustix::process::geteuid().as_raw(), unmapped: unmapped_owner() }
    }

    fn owns(self, uid: u32) -> bool {
        uid == self.own || uid == ROOT || Some(uid) == self.unmapped
    }

    /// Judges a file above the node's directory, or a link to it.
    fn check_above(self, path: &Path, found: Found) -> Result<(), TrustError> {
        if !self.owns(found.uid) {
            return Err(TrustError::ForeignDirectory {
                path: path.to_owned(),
                uid: found.uid,
                own: self.own,
            });
        }
        // In a sticky directory, only the owner of an entry can replace it, and the owner is judged by itself.
        let can_change = found.mode & WRITABLE_BY_ALL != 0 && found.mode & STICKY == 0;
        if can_change && !found.is_link {
            let mode = found.mode & 0o7777;
            return Err(TrustError::Open { path: path.to_owned(), mode, is_node: false });
        }
        Ok(())
    }

    /// Judges the node's directory.
    fn check_node(self, path: &Path, found: Found) -> Result<(), TrustError> {
        if found.uid != self.own {
            return Err(TrustError::ForeignDirectory {
                path: path.to_owned(),
                uid: found.uid,
                own: self.own,
            });
        }
        if found.mode & OPEN_TO_OTHERS != 0 {
            let mode = found.mode & 0o7777;
            return Err(TrustError::Open { path: path.to_owned(), mode, is_node: true });
        }
        Ok(())
    }
}

/// Checks a directory and all above it. A path that does not exist passes: nobody listens there.
pub(crate) fn check_way(path: &Path) -> Result<(), TrustError> {
    walk(path, Trusted::here()).map(|_| ())
}

/// Checks the directory of a node and all above it. A directory without a socket passes: nobody listens there.
pub(crate) fn check_node(path: &Path) -> Result<(), TrustError> {
    let trusted = Trusted::here();
    let Some(end) = walk(path, trusted)? else { return Ok(()) };
    match std::fs::symlink_metadata(&end) {
        Ok(about) if end.join(SOCKET).exists() => trusted.check_node(path, Found::of(&about)),
        _ => Ok(()),
    }
}

/// Checks that the process that listens at the other end of a socket belongs to this user.
pub(crate) fn check_listener(socket: impl AsFd, directory: &Path) -> io::Result<Result<(), TrustError>> {
    let listener = rustix::net::sockopt::socket_peercred(socket)?;
    let own = rustix::process::geteuid();
    Ok(match is_own(listener.uid, own) {
        true => Ok(()),
        false => Err(TrustError::ForeignNode {
            directory: directory.to_owned(),
            uid: listener.uid.as_raw(),
            pid: listener.pid.as_raw_pid(),
            own: own.as_raw(),
        }),
    })
}

/// Root's nodes are not for others: a node takes drivers of its own user only.
fn is_own(listener: Uid, own: Uid) -> bool {
    listener == own
}

impl Found {
    fn of(about: &std::fs::Metadata) -> Self {
        Self { uid: about.uid(), mode: about.mode(), is_link: about.is_symlink() }
    }
}

/// Checks each step of a path, links included; gives the path without links, or `None` if it ends before.
fn walk(path: &Path, trusted: Trusted) -> Result<Option<PathBuf>, TrustError> {
    let Ok(absolute) = std::path::absolute(path) else { return Ok(None) };
    let mut at = PathBuf::from("/");
    let mut rest = steps_reversed(&absolute);
    let mut links = 0;
    while let Some(step) = rest.pop() {
        if step == OsStr::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let Ok(about) = std::fs::symlink_metadata(&next) else { return Ok(None) };
        trusted.check_above(&next, Found::of(&about))?;
        if !about.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        let Ok(target) = std::fs::read_link(&next) else { return Ok(None) };
        if links > LINKS_MAX {
            return Ok(None);
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        rest.append(&mut steps_reversed(&target));
    }
    Ok(Some(at))
}

/// The names in a path, the last one first.
fn steps_reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

/// The id that stands for owners without a number in this user namespace; `None` if a user can have it.
fn unmapped_owner() -> Option<u32> {
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    unmapped(overflow.trim().parse().ok()?, &map)
}

fn unmapped(overflow: u32, map: &str) -> Option<u32> {
    let is_mapped = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(first)), _, Some(Ok(count))) => {
                (first..first.saturating_add(count)).contains(&u64::from(overflow))
            }
            _ => true,
        }
    });
    (!is_mapped).then_some(overflow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ME: Trusted = Trusted { own: 1000, unmapped: None };

    fn found(uid: u32, mode: u32) -> Found {
        Found { uid, mode, is_link: false }
    }

    #[test]
    fn only_own_and_private_directories_are_a_nodes() {
        let path = Path::new("/d");
        assert_eq!(ME.check_node(path, found(1000, 0o40700)), Ok(()));
        for (uid, mode) in [(1001, 0o40700), (ROOT, 0o40700), (1001, 0o40777)] {
            let error = ME.check_node(path, found(uid, mode)).expect_err("another user's");
            assert_eq!(error, TrustError::ForeignDirectory { path: path.into(), uid, own: 1000 });
        }
        for mode in [0o40701, 0o40710, 0o40755, 0o41777] {
            let error = ME.check_node(path, found(1000, mode)).expect_err("open to others");
            assert!(error.to_string().starts_with("other users can enter /d (its mode is "), "{error}");
        }
    }

    #[test]
    fn directories_above_belong_to_root_or_the_user() {
        let path = Path::new("/d");
        for (uid, mode) in [(ROOT, 0o40755), (ROOT, 0o41777), (1000, 0o40755), (1000, 0o40775)] {
            assert_eq!(ME.check_above(path, found(uid, mode)), Ok(()), "{uid} {mode:o}");
        }
        assert!(ME.check_above(path, found(1001, 0o40700)).is_err());
        assert!(ME.check_above(path, found(ROOT, 0o40777)).is_err(), "anybody can replace entries");
        let link = Found { uid: ROOT, mode: 0o120777, is_link: true };
        assert_eq!(ME.check_above(path, link), Ok(()), "the mode of a link means nothing");
        assert!(ME.check_above(path, Found { uid: 1001, ..link }).is_err());
        assert!(ME.check_above(path, found(65534, 0o40755)).is_err());
        let in_namespace = Trusted { unmapped: Some(65534), ..ME };
        assert_eq!(in_namespace.check_above(path, found(65534, 0o40755)), Ok(()));
    }

    #[test]
    fn the_overflow_id_is_trusted_only_where_no_user_has_it() {
        assert_eq!(unmapped(65534, "         0          0 4294967295\n"), None);
        assert_eq!(unmapped(65534, "         0       1000          1\n"), Some(65534));
        assert_eq!(unmapped(65534, "0 1000 1\n65534 100000 1\n"), None);
        assert_eq!(unmapped(65534, "nonsense\n"), None);
    }

    #[test]
    fn a_way_is_checked_through_links_and_dots() {
        let base = tempfile::tempdir().expect("a directory");
        let at = |name: &str| base.path().join(name);
        let change = |name: &str, mode| {
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).expect("changed");
        };
        for name in ["open", "open/node", "closed"] {
            std::fs::create_dir(at(name)).expect("made");
            change(name, 0o700);
        }
        std::os::unix::fs::symlink("../closed/../open/node", at("closed/link")).expect("linked");
        assert_eq!(check_node(&at("closed/link")), Ok(()));
        assert_eq!(check_way(&at("nothing/there")), Ok(()));
        change("open", 0o757);
        let end = base.path().canonicalize().expect("there").join("open");
        let open = Err(TrustError::Open { path: end, mode: 0o757, is_node: false });
        assert_eq!(check_node(&at("closed/link")), open);
        assert_eq!(check_way(&at("open")), open);
        change("open", 0o700);
        change("open/node", 0o750);
        assert_eq!(check_node(&at("open/node")), Ok(()), "nobody listens there");
        std::fs::write(at("open/node").join(SOCKET), "").expect("written");
        assert!(matches!(check_node(&at("open/node")), Err(TrustError::Open { is_node: true, .. })));
        std::os::unix::fs::symlink("loop", at("loop")).expect("linked");
        assert_eq!(check_node(&at("loop")), Ok(()), "nobody listens there");
    }
}
