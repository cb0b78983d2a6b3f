//! The directory of a machine's daemon: where it is, that nobody else can look into it, and that one daemon has it.
//!
//! Invariants:
//! 1. What is in it can be reached by its owner alone.
//! 2. One daemon at a time has claimed it. The claim ends with the process that made it, whatever way that ends.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the daemon's log in it.
pub const LOG_NAME: &str = "daemon.log";
/// The name of the file whose lock is the claim.
const LOCK_NAME: &str = "lock";
/// How often to look whether a directory is free.
const FREE_AGAIN: Duration = Duration::from_millis(1);
/// Bytes of the path of a Unix socket, with the zero at its end.
const SOCKET_PATH_BYTES_MAX: usize = 108;
/// A log that is longer than this is put aside.
const LOG_BYTES_MAX: u64 = 16 << 20;
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Why a directory cannot be a daemon's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Others can enter it.
    #[error(
        "others can enter {} (its mode is {mode:o})\n\
         hint: `chmod 700` it if nothing in there is meant for others, or name a directory that does not exist yet",
        path.display()
    )]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// Who may do what there.
        mode: u32,
    },
    /// It is somebody else's.
    #[error("{} belongs to user {uid}, not to you\nhint: name another one with --directory", path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It is something else.
    #[error("{} is not a directory\nhint: name another one with --directory", path.display())]
    NotADirectory {
        /// What is there.
        path: PathBuf,
    },
    /// Another process has it.
    #[error(
        "{tenant} runs in {} already{}\n\
         hint: end it with `aktis stop`, or name another directory with --directory",
        path.display(), pid.map_or(String::new(), |pid| format!(", as process {pid}"))
    )]
    Claimed {
        /// Who has it.
        tenant: Tenant,
        /// The directory.
        path: PathBuf,
        /// The other's process, if it is known.
        pid: Option<u32>,
    },
    /// No socket can have a path that long.
    #[error("the path {} is too long for a socket\nhint: name a shorter one with --directory", path.display())]
    TooLong {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("cannot {what} {}: {source}\nhint: {}", path.display(), system_hint(source))]
    System {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn system_hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "make room on its disk",
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit on open files (ulimit -n)",
        _ => "name another directory with --directory",
    }
}

/// Where this machine's daemon is, unless a user says otherwise.
pub use aktis_node::default_directory;

/// What a directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenant {
    /// A daemon.
    Node,
    /// A control process.
    Control,
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "a node of aktis",
            Self::Control => "the control process of a cluster",
        })
    }
}

/// Waits until nobody has claimed the directory; false if somebody still has after `patience`. What a process that ends has
/// open is closed in some order: its connections may go before its claim does.
pub fn wait_until_free(path: &Path, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let Ok(lock) = File::open(path.join(LOCK_NAME)) else { return true };
    while let Err(TryLockError::WouldBlock) = lock.try_lock_shared() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(FREE_AGAIN);
    }
    true
}

/// The process that has claimed a directory.
#[derive(Debug)]
pub struct Holder {
    pid: Pid,
    process: OwnedFd,
}

impl Holder {
    /// Who has claimed the directory, if somebody has: the process whose id is in the lock, and that has it open. Nothing is
    /// locked for that, which could be in the way of somebody who is about to claim it.
    pub fn find(path: &Path) -> Option<Self> {
        let lock_path = path.join(LOCK_NAME);
        let text = std::fs::read_to_string(&lock_path).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        // First: from now on, no other process is taken for this one.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let lock = std::fs::metadata(&lock_path).ok()?;
        let is_lock = |file: Metadata| (file.dev(), file.ino()) == (lock.dev(), lock.ino());
        let mut open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        open.any(|file| std::fs::metadata(file.path()).is_ok_and(is_lock)).then_some(Self { pid, process })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Asks it to end.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.process, Signal::TERM)?)
    }
}

/// A directory that this process has claimed.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Locked for as long as it is open.
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The number of a process that has ended may be another's soon. If that fails, the lock is free all the same.
        let _ = self.lock.set_len(0);
    }
}

impl Directory {
    /// Makes the directory if there is none, checks that it is private, and claims it for a daemon.
    pub fn claim(path: &Path) -> Result<Self, DirectoryError> {
        Self::claim_for(path, Tenant::Node)
    }

    /// The same, for whoever it is.
    pub(crate) fn claim_for(path: &Path, tenant: Tenant) -> Result<Self, DirectoryError> {
        prepare(path)?;
        let lock_path = path.join(LOCK_NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let mut lock = options.open(&lock_path).map_err(system("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = io::read_to_string(lock).ok().and_then(|text| text.trim().parse().ok());
                return Err(DirectoryError::Claimed { tenant, path: path.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(system("lock", &lock_path)(error)),
        }
        let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(system("write to", &lock_path))?;
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a socket in it, if it can have one there.
    pub fn socket(&self, name: &str) -> Result<PathBuf, DirectoryError> {
        let path = self.path.join(name);
        match path.as_os_str().len() < SOCKET_PATH_BYTES_MAX {
            true => Ok(path),
            false => Err(DirectoryError::TooLong { path }),
        }
    }

    /// A socket in it, in the place of one that an earlier daemon has left behind.
    pub fn listen(&self, name: &str) -> Result<UnixListener, DirectoryError> {
        let path = self.socket(name)?;
        self.remove(name)?;
        UnixListener::bind(&path).map_err(system("listen on", &path))
    }

    /// Removes a file in it, if there is one.
    pub fn remove(&self, name: &str) -> Result<(), DirectoryError> {
        let path = self.path.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

/// Makes the directory if there is none, and checks that it is private.
pub fn prepare(path: &Path) -> Result<(), DirectoryError> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(DirectoryError::NotADirectory { path: path.to_owned() });
        }
        made => made.map_err(system("make", path))?,
    }
    // In a directory that anybody can write to, a link could be somebody else's and lead elsewhere tomorrow.
    let link = std::fs::symlink_metadata(path).map_err(system("look at", path))?;
    let directory = std::fs::metadata(path).map_err(system("look at", path))?;
    check_owner(path, &link)?;
    check_owner(path, &directory)?;
    let mode = directory.mode() & 0o777;
    if mode & !PRIVATE_DIRECTORY != 0 {
        return Err(DirectoryError::NotPrivate { path: path.to_owned(), mode });
    }
    Ok(())
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), DirectoryError> {
    if metadata.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(DirectoryError::NotOurs { path: path.to_owned(), uid: metadata.uid() })
}

/// Opens the daemon's log in the directory, at its end.
pub fn open_log(directory: &Path) -> Result<File, DirectoryError> {
    bound_log(directory)?;
    let path = directory.join(LOG_NAME);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(PRIVATE_FILE).open(&path).map_err(system("open", &path))
}

/// Puts the end of a log that is too long aside, and has the log begin anew. Those who have it open go on with it: they
/// write at its end, wherever that is. What they write at this very moment may be lost.
pub fn bound_log(directory: &Path) -> Result<(), DirectoryError> {
    let (path, old) = (directory.join(LOG_NAME), directory.join(format!("{LOG_NAME}.old")));
    let too_long = |log: Metadata| log.len() > LOG_BYTES_MAX;
    if !std::fs::metadata(&path).is_ok_and(too_long) {
        return Ok(());
    }
    let put_aside = || {
        let mut log = OpenOptions::new().read(true).write(true).open(&path)?;
        // The control process and the node of a head have the same one; the first of them does it.
        if log.try_lock().is_err() || !log.metadata().is_ok_and(too_long) {
            return Ok(());
        }
        log.seek(SeekFrom::End(-(LOG_BYTES_MAX as i64)))?;
        let mut options = OpenOptions::new();
        let aside = options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&old);
        let copied = aside.and_then(|mut aside| io::copy(&mut (&log).take(LOG_BYTES_MAX), &mut aside));
        // Also if there is no room for it: that must not become less.
        log.set_len(0).and(copied.map(|_| ()))
    };
    put_aside().map_err(system("put aside", &path))
}

pub(crate) fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::System { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_daemon_at_a_time_has_a_directory() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("a/b");
        let claimed = Directory::claim(&path).expect("free");
        assert_eq!(std::fs::metadata(&path).expect("made").mode() & 0o777, PRIVATE_DIRECTORY);
        let error = Directory::claim(&path).expect_err("claimed");
        assert!(matches!(error, DirectoryError::Claimed { pid: Some(pid), .. } if pid == std::process::id()));
        assert_eq!(Holder::find(&path).map(|holder| holder.pid()), Some(std::process::id()));
        drop(claimed);
        assert!(Holder::find(&path).is_none(), "its id is still there, but it has not claimed it");
        Directory::claim(&path).expect("free again");
    }

    #[test]
    fn what_others_can_enter_or_is_no_directory_is_refused() {
        let parent = tempfile::tempdir().expect("a directory");
        let open = parent.path().join("open");
        std::fs::create_dir(&open).expect("made");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o750)).expect("changed");
        let error = Directory::claim(&open).expect_err("not private");
        assert!(error.to_string().starts_with("others can enter "), "{error}");
        assert!(error.to_string().contains("(its mode is 750)"), "{error}");
        let file = parent.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert!(matches!(Directory::claim(&file), Err(DirectoryError::NotADirectory { .. })));
        assert!(matches!(Directory::claim(&file.join("below")), Err(DirectoryError::System { .. })));
    }

    #[test]
    fn another_directory_is_no_help_on_a_full_disk() {
        for (error, hint) in [
            (Errno::NOSPC, "make room on its disk"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::ACCESS, "another directory"),
        ] {
            let told = system("write to", Path::new("/d/lock"))(error.into()).to_string();
            assert!(told.contains(hint), "{told}");
        }
    }

    #[test]
    fn a_socket_takes_the_place_of_an_old_one_and_has_a_short_path() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = Directory::claim(&parent.path().join("d")).expect("free");
        drop(directory.listen("s").expect("free"));
        directory.listen("s").expect("only a file was left");
        let error = directory.listen(&"s".repeat(SOCKET_PATH_BYTES_MAX)).expect_err("too long");
        assert!(matches!(error, DirectoryError::TooLong { .. }));
    }

    #[test]
    fn a_log_that_is_too_long_is_put_aside_while_it_is_written() {
        let parent = tempfile::tempdir().expect("a directory");
        let mut log = open_log(parent.path()).expect("opened");
        let length = |name: &str| std::fs::metadata(parent.path().join(name)).map(|file| file.len()).ok();
        writeln!(log, "one").expect("written");
        bound_log(parent.path()).expect("looked at");
        assert_eq!((length(LOG_NAME), length("daemon.log.old")), (Some(4), None));
        log.set_len(2 * LOG_BYTES_MAX).expect("lengthened");
        writeln!(log, "the end").expect("written");
        bound_log(parent.path()).expect("put aside");
        assert_eq!((length(LOG_NAME), length("daemon.log.old")), (Some(0), Some(LOG_BYTES_MAX)));
        let old = std::fs::read(parent.path().join("daemon.log.old")).expect("read");
        assert!(old.ends_with(b"\0the end\n"));
        writeln!(log, "more").expect("written");
        assert_eq!(std::fs::read_to_string(parent.path().join(LOG_NAME)).expect("read"), "more\n");
    }
}
