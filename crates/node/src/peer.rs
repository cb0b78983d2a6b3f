//! A worker or driver process as the node speaks to it: messages go out at once, or wait for room.
//!
//! Invariant: the node never waits for a process. What one does not read is kept, up to
//! [`WAITING_MESSAGES_MAX`]; a worker that reads nothing for so long is stuck, and is killed. A driver is left.

use crate::journal;
use aktis_protocol::control::{self, FromNode};
use aktis_protocol::limits;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages that wait for one worker.
const WAITING_MESSAGES_MAX: usize = 100_000;
/// Bytes of one message from the node: what a process may send, and what the node adds.
pub(crate) const MESSAGE_BYTES_MAX: usize = limits::CONTROL_MESSAGE_BYTES_MAX + 4096;

/// What reaches a running process.
pub(crate) struct PeerLink {
    pub(crate) pid: u32,
    pub(crate) socket: Arc<OwnedFd>,
    /// What it can be killed by. A driver is not killed, but left: it is its user's.
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
}

/// A worker process, ordered or running.
#[derive(Default)]
pub(crate) struct Peer {
    waiting: VecDeque<Vec<u8>>,
    link: Option<PeerLink>,
    killed: bool,
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Peer {
    /// The process runs.
    pub(crate) fn on_started(&mut self, link: PeerLink) {
        self.link = Some(link);
        if self.killed {
            self.kill();
        }
        self.flush();
    }

    /// Its process id, if it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.pid)
    }

    /// Sends a message, now or when there is room.
    pub(crate) fn send(&mut self, message: &FromNode) -> Result<(), TooLarge> {
        let encoded = control::encode(message);
        if encoded.len() > MESSAGE_BYTES_MAX {
            return Err(TooLarge);
        }
        self.waiting.push_back(encoded);
        self.flush();
        if self.waiting.len() > WAITING_MESSAGES_MAX && !self.killed {
            journal::warn(format_args!("process {:?} reads no messages; giving it up", self.pid()));
            self.kill();
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&mut self) {
        let Some(link) = &self.link else { return };
        while let Some(message) = self.waiting.front() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&link.socket, message, flags) {
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // Sent; or the process is dying, and its death is reported elsewhere.
                Ok(_) | Err(_) => drop(self.waiting.pop_front()),
            }
        }
    }

    /// The socket to wait on for room, if messages wait.
    pub(crate) fn blocked_on(&self) -> Option<&Arc<OwnedFd>> {
        self.link.as_ref().map(|link| &link.socket).filter(|_| !self.waiting.is_empty())
    }

    /// Kills the process, now or as soon as it runs.
    pub(crate) fn kill(&mut self) {
        self.killed = true;
        if let Some(link) = &self.link {
            match &link.pidfd {
                Some(pidfd) => kill(pidfd.as_fd()),
                None => drop(rustix::net::shutdown(&link.socket, Shutdown::Both)),
            }
        }
    }
}

/// Kills a process; if it is dead already, that is as good.
pub(crate) fn kill(pidfd: BorrowedFd<'_>) {
    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
}
