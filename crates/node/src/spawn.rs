//! Starts worker processes: a program's own binary again, with one argument and a socket as its standard input.
//!
//! Being its standard input, the socket needs no descriptor that a user's own child processes could inherit; the worker
//! moves it away first of all. The first message on it carries everything else as descriptors.

use crate::arguments::WorkerArguments;
use crate::inbox;
use crate::kills::take_first;
use crate::output::{Output, Stream};
use crate::peer::PeerLink;
use crate::programs::{Launch, NODE_VARIABLE};
use crate::template::wait_for_end;
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::{DeathCause, ProcessSlot, ProgramId, SessionId};
use aktis_store::Hidden;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bytes of the first message; a worker of another version would not know them.
pub(crate) const GREETING: &[u8] = b"aktis 1";
/// The descriptors that come with it: the inbox's sender, the control segment, the index, the arena, and the spill file,
/// if there is one.
pub(crate) const GREETING_DESCRIPTORS_MAX: usize = 5;

/// How long the template's report of a worker's end is waited for.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a killed process is waited for when the session closes.
const LAST_WAIT: Duration = Duration::from_millis(500);

const GPU_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// A worker process to be started.
pub(crate) struct SpawnOrder {
    pub(crate) process: ProcessSlot,
    pub(crate) kind: WorkerKind,
    pub(crate) program: ProgramId,
    pub(crate) launch: Launch,
    pub(crate) gpus: Vec<u32>,
    /// How it is to be set up; only a forked worker is told.
    pub(crate) environment: String,
}

impl SpawnOrder {
    /// What the worker is told when it is started by this process.
    pub(crate) fn arguments(&self, session: SessionId, parent: u32) -> WorkerArguments {
        let (slot, kind, program) = (self.process, self.kind, self.program);
        WorkerArguments { slot, session, kind, parent, program }
    }

    /// Environment variables that are different in the worker.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        if self.gpus.is_empty() {
            return Vec::new();
        }
        let visible = visible_gpus(&self.gpus, std::env::var(GPU_VARIABLE).ok().as_deref());
        vec![(GPU_VARIABLE.to_owned(), visible)]
    }
}

/// How a process ended; neither is known if somebody else has reaped it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) signal: Option<i32>,
    pub(crate) exit_code: Option<i32>,
}

impl Ending {
    pub(crate) fn of(status: Option<ExitStatus>) -> Self {
        Self {
            signal: status.and_then(|status| status.signal()),
            exit_code: status.and_then(|status| status.code()),
        }
    }
}

/// Who a worker is a child of, and so who learns how it ended.
enum Parent {
    /// The node's thread.
    Node(Child),
    /// The template, which has to report it.
    Template {
        /// When it was seen that the worker has ended.
        ended_at: Option<Instant>,
        report: Option<Ending>,
    },
    /// A template that has ended, as these lines say.
    DeadTemplate { ended: bool, how: Vec<String> },
}

/// A worker process that runs, as the node's thread sees it.
pub(crate) struct WorkerProcess {
    pub(crate) process: ProcessSlot,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pid: u32,
    pidfd: Arc<OwnedFd>,
    socket: Arc<OwnedFd>,
    parent: Parent,
    isolated: bool,
}

impl WorkerProcess {
    /// Starts a worker process of the node in this directory, if it has one, out of whose sight is what is `hidden`. It must
    /// be called by a thread that lives as long as the session: the process dies with the thread.
    pub(crate) fn spawn(
        order: &SpawnOrder,
        session: SessionId,
        program: &Path,
        node: Option<&Path>,
        hidden: Option<&Hidden>,
    ) -> io::Result<Self> {
        let (ours, theirs) = inbox::socket_pair(SocketType::SEQPACKET)?;
        let arguments = order.arguments(session, std::process::id());
        let mut command = Command::new(program);
        command
            .arg0("aktis-worker")
            .arg(arguments.to_string())
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.envs(order.variables());
        match node {
            Some(node) => command.env(NODE_VARIABLE, node),
            None => command.env_remove(NODE_VARIABLE),
        };
        hidden.into_iter().for_each(|hidden| hidden.hide_from(&mut command));
        let mut child = command.spawn()?;
        take_first(child.id());
        match watch(&mut child, "worker", order.program) {
            Ok((stdout, stderr, pidfd)) => {
                let (pid, pidfd, socket) = (child.id(), Arc::new(pidfd), Arc::new(ours));
                let parent = Parent::Node(child);
                let isolated = order.kind != WorkerKind::Shared;
                Ok(Self { process: order.process, stdout, stderr, pid, pidfd, socket, parent, isolated })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// A worker that the template has forked.
    pub(crate) fn forked(
        process: ProcessSlot,
        pid: u32,
        pidfd: OwnedFd,
        socket: OwnedFd,
        stdout: Output,
        stderr: Output,
    ) -> Self {
        let (pidfd, socket) = (Arc::new(pidfd), Arc::new(socket));
        let parent = Parent::Template { ended_at: None, report: None };
        Self { process, stdout, stderr, pid, pidfd, socket, parent, isolated: true }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What tells of its end, unless that is known.
    pub(crate) fn unended(&self) -> Option<BorrowedFd<'_>> {
        let known = matches!(self.parent, Parent::Template { ended_at: Some(_), .. });
        (!known).then_some(self.pidfd.as_fd())
    }

    /// The process has ended.
    pub(crate) fn on_ended(&mut self, now: Instant) {
        match &mut self.parent {
            Parent::Node(_) => {}
            Parent::Template { ended_at, .. } => *ended_at = Some(now),
            Parent::DeadTemplate { ended, .. } => *ended = true,
        }
    }

    /// The template says how a process ended; false if it was not this one.
    pub(crate) fn on_reported(&mut self, pid: u32, ending: Ending) -> bool {
        match &mut self.parent {
            Parent::Template { report: report @ None, .. } if self.pid == pid => {
                *report = Some(ending);
                true
            }
            _ => false,
        }
    }

    /// The template has ended: so will the worker, and nobody will report how.
    pub(crate) fn on_orphaned(&mut self, how: &[String]) {
        if let Parent::Template { ended_at, report: None } = self.parent {
            self.parent = Parent::DeadTemplate { ended: ended_at.is_some(), how: how.to_vec() };
            self.kill();
        }
    }

    /// Whether it has ended, and all is known about it that can be.
    pub(crate) fn is_over(&self, ended: bool, now: Instant) -> bool {
        match &self.parent {
            Parent::Node(_) => ended,
            Parent::Template { report: Some(_), .. } => true,
            Parent::Template { ended_at, .. } => ended_at.is_some_and(|at| at + REPORT_PATIENCE <= now),
            Parent::DeadTemplate { ended, .. } => *ended,
        }
    }

    /// When the template's report is not waited for any longer.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.parent {
            Parent::Template { ended_at, report: None } => ended_at.map(|at| at + REPORT_PATIENCE),
            _ => None,
        }
    }

    /// Sends the first message, which lets the worker begin.
    pub(crate) fn greet(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GREETING_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is space for them");
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(GREETING)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// What reaches the process.
    pub(crate) fn link(&self) -> PeerLink {
        PeerLink { pid: self.pid(), socket: self.socket.clone(), pidfd: Some(self.pidfd.clone()) }
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        crate::peer::kill(self.pidfd.as_fd());
    }

    /// How the process ended, once it has. Its outputs have been read to the end.
    pub(crate) fn reap(&mut self) -> DeathCause {
        let mut stderr_tail = self.stderr.tail();
        let ending = match &mut self.parent {
            // A failure means that the user's code has reaped all children of this process.
            Parent::Node(child) => {
                end_group(child.id());
                Ending::of(child.wait().ok())
            }
            Parent::Template { report: Some(report), .. } => *report,
            Parent::Template { .. } => {
                wait_for_end(&self.pidfd, LAST_WAIT);
                Ending::default()
            }
            Parent::DeadTemplate { how, .. } => {
                stderr_tail.append(how);
                Ending::default()
            }
        };
        let Ending { signal, exit_code } = ending;
        let Self { pid, isolated, .. } = *self;
        DeathCause { pid, signal, exit_code, stderr_tail, isolated, ..DeathCause::default() }
    }
}

/// Ends what a worker has started and left behind, and the worker itself. Each is the leader of a group; until it has
/// been waited for, no other process can have its number.
pub(crate) fn end_group(leader: u32) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    }
}

/// What tells of a child's words and its end.
pub(crate) fn watch(
    child: &mut Child,
    kind: &'static str,
    program: ProgramId,
) -> io::Result<(Output, Output, OwnedFd)> {
    let pid = child.id();
    let missing = || io::Error::other("its output is not a pipe");
    let (stdout, stderr) =
        (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
    Ok((
        Output::new(stdout.into(), Stream::Stdout, kind, program, pid)?,
        Output::new(stderr.into(), Stream::Stderr, kind, program, pid)?,
        rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?,
    ))
}

/// The cause of death of a process that could not be started.
pub(crate) fn stillborn(error: &io::Error) -> DeathCause {
    let reason = format!("it could not be started: {error}");
    DeathCause { stderr_tail: vec![reason], ..DeathCause::default() }
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
