//! What runs in a template process, and the first steps of the workers that are forked from it.

use super::{receive, send};
use crate::link::{self, LinkError, WorkerLink};
use aktis_protocol::control;
use aktis_protocol::limits::TEMPLATE_MESSAGE_BYTES_MAX;
use aktis_protocol::template::{ForkRequest, FromTemplate};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::SendFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::io;

/// How long nothing has to be asked for until there is time for other things.
const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Which of the two processes returned from a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkOutcome {
    /// The new one.
    Child,
    /// The one that forked; this is the process id of the new one.
    Parent(u32),
}

/// A worker that was just forked from its template.
pub struct ForkedWorker {
    /// Its end of the node.
    pub link: WorkerLink,
    /// How it is to be set up, as whoever wanted it said.
    pub environment: String,
    /// Environment variables that are to be set.
    pub variables: Vec<(String, String)>,
}

/// Makes this process a template: forks it by `fork` whenever the node asks for a worker, and returns in each of these.
/// In the template itself it returns only if the process was not started as one.
///
/// The process must have one thread, and nothing in the buffers of its outputs when it forks. Whoever gets an error
/// ends the process.
///
/// `prepare` is called once, after the node was told that the template runs and before the first fork: for what every worker
/// needs. The node's start does not wait for that. `idle` is called once, when nothing has been asked for a while: for what
/// workers need later, if at all.
pub fn serve_template(
    prepare: impl FnOnce(),
    mut fork: impl FnMut() -> io::Result<ForkOutcome>,
    idle: impl FnOnce(),
) -> Result<ForkedWorker, LinkError> {
    let mut idle = Some(idle);
    // When the node is gone the socket is closed, which is noticed at once. To be killed with it would leave no time to
    // end what the workers have started.
    let mut template = Template { socket: link::take_stdin()?, children: Vec::new() };
    template.say(&FromTemplate::Ready);
    prepare();
    let mut buffer = vec![0; TEMPLATE_MESSAGE_BYTES_MAX];
    loop {
        let patience = idle.is_some().then_some(&IDLE);
        if !template.wait(patience) {
            idle.take().into_iter().for_each(|idle| idle());
            continue;
        }
        let (length, descriptors) = match receive(&template.socket, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            received => received.unwrap_or_default(),
        };
        // Without a request, nobody is there whom a worker could serve.
        let Ok(request) = control::decode::<ForkRequest>(&buffer[..length]) else { template.end() };
        let template_pid = std::process::id();
        match fork_for(&request, &descriptors, &mut fork) {
            Ok(ForkOutcome::Child) => {
                drop(template);
                return become_worker(request, descriptors, template_pid);
            }
            Ok(ForkOutcome::Parent(pid)) => template.on_forked(&request, pid),
            Err(error) => template.refuse(&request, &error),
        }
    }
}

fn fork_for(
    request: &ForkRequest,
    descriptors: &[OwnedFd],
    fork: &mut impl FnMut() -> io::Result<ForkOutcome>,
) -> io::Result<ForkOutcome> {
    if descriptors.len() != super::DESCRIPTORS_MAX {
        let text = format!("worker {} came with {} descriptors", request.process, descriptors.len());
        return Err(io::Error::other(text));
    }
    fork()
}

fn become_worker(
    request: ForkRequest,
    descriptors: Vec<OwnedFd>,
    template: u32,
) -> Result<ForkedWorker, LinkError> {
    link::die_with(template)?;
    rustix::process::setpgid(None, None).map_err(io::Error::from)?;
    let [socket, stdout, stderr] = descriptors.try_into().map_err(|_| LinkError::Greeting)?;
    rustix::stdio::dup2_stdout(&stdout).map_err(io::Error::from)?;
    rustix::stdio::dup2_stderr(&stderr).map_err(io::Error::from)?;
    drop((stdout, stderr));
    let ForkRequest { arguments, environment, variables, .. } = request;
    Ok(ForkedWorker { link: WorkerLink::forked(&arguments, socket)?, environment, variables })
}

/// A worker, as its template sees it.
struct Forked {
    pid: u32,
    pidfd: OwnedFd,
}

struct Template {
    socket: OwnedFd,
    children: Vec<Forked>,
}

impl Template {
    /// Waits until the node says something, and tells it of the workers that end meanwhile. False if nothing has
    /// happened for so long.
    fn wait(&mut self, patience: Option<&Timespec>) -> bool {
        loop {
            let pidfds = self.children.iter().map(|child| PollFd::new(&child.pidfd, PollFlags::IN));
            let mut polled: Vec<_> =
                std::iter::once(PollFd::new(&self.socket, PollFlags::IN)).chain(pidfds).collect();
            // Interrupted by a signal: as if nothing had happened.
            if rustix::event::poll(&mut polled, patience) == Ok(0) {
                return false;
            }
            let ready: Vec<bool> = polled.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
            for position in (1..ready.len()).rev().filter(|position| ready[*position]) {
                let child = self.children.swap_remove(position - 1);
                self.report(&child);
            }
            if ready[0] {
                return true;
            }
        }
    }

    /// Reaps a worker that has ended, and tells the node how.
    fn report(&self, child: &Forked) {
        crate::spawn::end_group(child.pid);
        let status = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
        let status = status.ok().flatten();
        let signal = status.as_ref().and_then(|status| status.terminating_signal());
        let exit_code = status.as_ref().and_then(|status| status.exit_status());
        self.say(&FromTemplate::Ended { pid: child.pid, signal, exit_code });
    }

    fn on_forked(&mut self, request: &ForkRequest, pid: u32) {
        let child = Pid::from_raw(pid as i32).ok_or(rustix::io::Errno::SRCH);
        match child.and_then(|child| rustix::process::pidfd_open(child, PidfdFlags::empty())) {
            Ok(pidfd) => {
                let answer = FromTemplate::Forked { process: request.process, pid };
                // If nobody listens, the socket is closed, which is found out next.
                let _ = send(&self.socket, &control::encode(&answer), &[pidfd.as_fd()], SendFlags::empty());
                self.children.push(Forked { pid, pidfd });
            }
            Err(error) => {
                if let Some(child) = Pid::from_raw(pid as i32) {
                    let _ = rustix::process::kill_process(child, Signal::KILL);
                    let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
                }
                self.refuse(request, &error.into());
            }
        }
    }

    fn refuse(&self, request: &ForkRequest, error: &io::Error) {
        self.say(&FromTemplate::Refused { process: request.process, error: error.to_string() });
    }

    fn say(&self, message: &FromTemplate) {
        let _ = send(&self.socket, &control::encode(message), &[], SendFlags::empty());
    }

    /// Ends this process and all workers that were forked from it.
    fn end(&self) -> ! {
        for child in &self.children {
            crate::spawn::end_group(child.pid);
        }
        for child in &self.children {
            let _ = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
        }
        // At once: what the program has registered for its exit could take any time.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        std::process::exit(0)
    }
}
