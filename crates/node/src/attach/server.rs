//! The node's end: a socket in a private directory, and a thread that takes in those who come.
//!
//! They are taken in one after the other; one who does not say at once who he is, is left.

use super::{SOCKET, Welcome, decode_request, encode_reply, receive, send};
use crate::bell::Bell;
use crate::inbox::SOCKET_BYTES;
use crate::journal;
use crate::node_thread::Shared;
use crate::programs::{ProgramError, ProgramSource, launch_of};
use crate::shell::Arrival;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FlockOperation;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a driver may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// Drivers that wait to be taken in.
const BACKLOG: i32 = 64;
/// Tries to copy a program that is forgotten at the same time.
const TRIES_MAX: usize = 3;

const PROGRAMS: &str = "programs";
const LOCK: &str = "lock";

/// The directory of a node, its own for as long as this lives.
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory if it is not there, and takes it.
    pub(crate) fn take(path: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let about = std::fs::metadata(path)?;
        let ours = about.uid() == rustix::process::geteuid().as_raw();
        if !ours || about.mode() & 0o077 != 0 {
            let text = format!(
                "{} belongs to another user, or others may enter it\nhint: make it private: chmod 700",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let text = format!(
                "another node runs in {}\nhint: attach to that one, or choose another directory",
                path.display()
            );
            io::Error::new(io::ErrorKind::AddrInUse, text)
        })?;
        // Of a node that was killed.
        let _ = std::fs::remove_dir_all(path.join(PROGRAMS));
        std::fs::DirBuilder::new().mode(0o700).create(path.join(PROGRAMS))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where copies of programs are kept.
    pub(crate) fn programs(&self) -> PathBuf {
        self.path.join(PROGRAMS)
    }

    fn listen(&self) -> io::Result<OwnedFd> {
        let path = self.path.join(SOCKET);
        let _ = std::fs::remove_file(&path);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path.join(SOCKET));
        let _ = std::fs::remove_dir_all(self.programs());
    }
}

/// The thread that takes drivers in.
pub(crate) struct Server {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(directory: Arc<Directory>, shared: Arc<Shared>) -> io::Result<Self> {
        let listener = directory.listen()?;
        let bell = Arc::new(Bell::new()?);
        let door = Door { listener, bell: bell.clone(), directory, shared };
        let thread = std::thread::Builder::new().name("aktis-attach".to_owned()).spawn(move || door.run())?;
        Ok(Self { bell, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Door {
    listener: OwnedFd,
    bell: Arc<Bell>,
    directory: Arc<Directory>,
    shared: Arc<Shared>,
}

impl Door {
    fn run(&self) {
        loop {
            let mut polled =
                [PollFd::new(&*self.bell, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, None);
            if !polled[0].revents().is_empty() || self.shared.closing.load(Ordering::Acquire) {
                return;
            }
            if let Ok(socket) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC)
                && let Err(reason) = self.take_in(&Arc::new(socket))
            {
                journal::warn(format_args!("a driver was turned away: {reason}"));
            }
        }
    }

    fn take_in(&self, socket: &Arc<OwnedFd>) -> Result<(), String> {
        let outcome = self.try_take_in(socket);
        if let Err(reason) = &outcome {
            let _ = send(socket, &encode_reply(&Err(reason.clone())), &[]);
        }
        outcome
    }

    fn try_take_in(&self, socket: &Arc<OwnedFd>) -> Result<(), String> {
        let system = |error: io::Error| error.to_string();
        let errno = |error: rustix::io::Errno| io::Error::from(error).to_string();
        let peer = rustix::net::sockopt::socket_peercred(socket).map_err(errno)?;
        if peer.uid != rustix::process::geteuid() {
            return Err("it is another user's".into());
        }
        for which in [Timeout::Recv, Timeout::Send] {
            rustix::net::sockopt::set_socket_timeout(socket, which, Some(PATIENCE)).map_err(errno)?;
        }
        rustix::net::sockopt::set_socket_send_buffer_size(socket, SOCKET_BYTES).map_err(errno)?;
        let (request, descriptors) = receive(socket).map_err(system)?;
        let spec = decode_request(&request)?;
        let executable = descriptors.into_iter().next().map(File::from);
        let source = ProgramSource { spec, executable };
        let pidfd = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).map_err(errno)?;
        let pidfd = Arc::new(pidfd);
        for _ in 0..TRIES_MAX {
            let launch = launch_of(&source, &self.directory.programs())
                .map_err(|error: ProgramError| error.to_string())?;
            let arrival = Arrival {
                pid: Pid::as_raw(Some(peer.pid)) as u32,
                socket: socket.clone(),
                pidfd: pidfd.clone(),
            };
            let admitted = self.shared.with_shell(|shell| {
                // It may have been forgotten since, and its copy with it.
                shell.add_program(&source.spec, launch).then(|| shell.attach(source.spec.id, arrival))
            });
            if let Some(admitted) = admitted {
                return admitted;
            }
        }
        Err("its program is forgotten again and again".into())
    }
}

/// Sends what lets a driver begin.
pub(crate) fn welcome(
    socket: impl AsFd,
    welcome: Welcome,
    descriptors: &[rustix::fd::BorrowedFd<'_>],
) -> io::Result<()> {
    send(socket, &encode_reply(&Ok(welcome)), descriptors)
}
