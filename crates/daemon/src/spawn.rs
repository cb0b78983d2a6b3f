//! Starts worker processes: the program's own binary again, with one argument and a socket as its standard input.
//!
//! Being its standard input, the socket needs no descriptor that a user's own child processes could inherit; the worker
//! moves it away first of all. The first message on it carries everything else as descriptors.

use crate::arguments::WorkerArguments;
use crate::inbox;
use crate::output::{Output, Stream};
use crate::peer::PeerLink;
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::{DeathCause, ProcessSlot, SessionId};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The bytes of the first message; a worker of another version would not know them.
pub(crate) const GREETING: &[u8] = b"aktis 1";
/// The descriptors that come with it: the inbox's sender, the control segment, the index, the arena.
pub(crate) const GREETING_DESCRIPTORS: usize = 4;

const GPU_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// A worker process to be started.
pub(crate) struct SpawnOrder {
    pub(crate) process: ProcessSlot,
    pub(crate) kind: WorkerKind,
    pub(crate) gpus: Vec<u32>,
}

/// A worker process that runs, as the node's thread sees it.
pub(crate) struct WorkerProcess {
    pub(crate) process: ProcessSlot,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) pidfd: Arc<OwnedFd>,
    socket: Arc<OwnedFd>,
    child: Child,
}

impl WorkerProcess {
    /// Starts a worker process. It must be called by a thread that lives as long as the session: the process dies
    /// with the thread.
    pub(crate) fn spawn(order: &SpawnOrder, session: SessionId) -> io::Result<Self> {
        let (ours, theirs) = inbox::socket_pair(SocketType::SEQPACKET)?;
        let arguments =
            WorkerArguments { slot: order.process, session, kind: order.kind, parent: std::process::id() };
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("aktis-worker")
            .arg(arguments.to_string())
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !order.gpus.is_empty() {
            command.env(GPU_VARIABLE, visible_gpus(&order.gpus, std::env::var(GPU_VARIABLE).ok().as_deref()));
        }
        let mut child = command.spawn()?;
        match watch(&mut child) {
            Ok((stdout, stderr, pidfd)) => {
                let (pidfd, socket) = (Arc::new(pidfd), Arc::new(ours));
                Ok(Self { process: order.process, stdout, stderr, pidfd, socket, child })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the first message, which lets the worker begin.
    pub(crate) fn greet(&self, descriptors: [BorrowedFd<'_>; GREETING_DESCRIPTORS]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GREETING_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for them");
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(GREETING)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// What reaches the process.
    pub(crate) fn link(&self) -> PeerLink {
        PeerLink { pid: self.pid(), socket: self.socket.clone(), pidfd: self.pidfd.clone() }
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        crate::peer::kill(self.pidfd.as_fd());
    }

    /// How the process ended, once it has. Its outputs have been read to the end.
    pub(crate) fn reap(&mut self) -> DeathCause {
        // A failure means that the user's code has reaped all children of this process.
        let status = self.child.wait().ok();
        DeathCause {
            pid: self.pid(),
            signal: status.and_then(|status| status.signal()),
            exit_code: status.and_then(|status| status.code()),
            stderr_tail: self.stderr.tail(),
        }
    }
}

/// What tells of a child's words and its end.
fn watch(child: &mut Child) -> io::Result<(Output, Output, OwnedFd)> {
    let missing = || io::Error::other("its output is not a pipe");
    let (stdout, stderr) =
        (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
    Ok((
        Output::new(stdout.into(), Stream::Stdout, child.id())?,
        Output::new(stderr.into(), Stream::Stderr, child.id())?,
        rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?,
    ))
}

/// The cause of death of a process that could not be started.
pub(crate) fn stillborn(error: &io::Error) -> DeathCause {
    let reason = format!("it could not be started: {error}");
    DeathCause { pid: 0, signal: None, exit_code: None, stderr_tail: vec![reason] }
}

/// The GPUs with these indices, named as the driver's own environment names them.
fn visible_gpus(indices: &[u32], visible_here: Option<&str>) -> String {
    let here: Vec<&str> = visible_here.unwrap_or_default().split(',').map(str::trim).collect();
    let name = |index: &u32| match here.get(*index as usize) {
        Some(name) if !name.is_empty() => (*name).to_owned(),
        _ => index.to_string(),
    };
    indices.iter().map(name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_as_the_driver_sees_them() {
        assert_eq!(visible_gpus(&[0, 2], None), "0,2");
        assert_eq!(visible_gpus(&[1], Some("4, GPU-7f")), "GPU-7f");
        assert_eq!(visible_gpus(&[0, 1], Some("")), "0,1");
    }
}
