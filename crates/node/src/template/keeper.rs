//! The node's side of a template: starts it, has workers forked, hears how they end, and starts it again when it dies.
//!
//! Invariant: the node's thread never waits for the template. At most [`UNANSWERED_MAX`] requests are with it at a
//! time; others wait here.

use super::{receive, send};
use crate::inbox;
use crate::journal;
use crate::kills::take_first;
use crate::output::{Forwarder, Output, Stream};
use crate::spawn::{Ending, SpawnOrder, WorkerProcess, watch};
use aktis_protocol::control;
use aktis_protocol::limits::TEMPLATE_MESSAGE_BYTES_MAX;
use aktis_protocol::template::{ForkRequest, FromTemplate};
use aktis_protocol::{DeathCause, ProcessSlot, ProgramId, SessionId};
use aktis_store::Hidden;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendFlags, Shutdown, SocketType};
use rustix::pipe::PipeFlags;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests that the template has got and not answered.
const UNANSWERED_MAX: usize = 8;
/// A template that lived for so long was a good one: the next is started at once.
const STABLE: Duration = Duration::from_secs(10);
/// Failures in a row after which tries are spaced out, and those who wait for a worker are told.
const FAILURES_FREE: u32 = 3;
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// How long a template that was left alone may take to end.
const GRACE: Duration = Duration::from_millis(500);

/// How a template is started.
#[derive(Clone, Debug)]
pub(crate) struct TemplateProgram {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// What the template has to say.
pub(crate) enum Tidings {
    /// A worker runs.
    Born(Box<WorkerProcess>),
    /// A worker could not be forked.
    Stillborn(ProcessSlot, io::Error),
    /// A worker has ended.
    Ended(u32, Ending),
    /// The template has ended, and with it all its workers; the lines say how.
    Died(Vec<String>),
}

/// The template of one node.
pub(crate) struct Keeper {
    id: ProgramId,
    program: Arc<TemplateProgram>,
    session: SessionId,
    hidden: Option<Hidden>,
    status: Arc<TemplateStatus>,
    template: Option<Template>,
    /// When the next one is to be started, while there is none.
    due: Instant,
    failures: u32,
    warned: bool,
    /// Nobody needs it for now: it ends, and none is started before a worker is wanted.
    resting: bool,
    /// It is not needed any more, and ends.
    leaving: bool,
    waiting: VecDeque<SpawnOrder>,
    buffer: Vec<u8>,
}

/// A template process.
struct Template {
    child: Child,
    began: Instant,
    socket: OwnedFd,
    pidfd: OwnedFd,
    stdout: Output,
    stderr: Output,
    ready: bool,
    /// It was told to end.
    dismissed: bool,
    unanswered: VecDeque<Unborn>,
}

/// A worker that the template was asked for, and the node's ends of what it will have.
struct Unborn {
    order: SpawnOrder,
    socket: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Keeper {
    pub(crate) fn new(
        id: ProgramId,
        program: Arc<TemplateProgram>,
        session: SessionId,
        hidden: Option<Hidden>,
        status: Arc<TemplateStatus>,
    ) -> Self {
        Self {
            id,
            program,
            session,
            hidden,
            status,
            template: None,
            due: Instant::now(),
            failures: 0,
            warned: false,
            resting: false,
            leaving: false,
            waiting: VecDeque::new(),
            buffer: vec![0; TEMPLATE_MESSAGE_BYTES_MAX],
        }
    }

    /// A worker is wanted.
    pub(crate) fn order(&mut self, order: SpawnOrder) {
        self.waiting.push_back(order);
        self.resting = false;
    }

    /// Starts the template if it is time to, and asks it for as many workers as it may be asked for.
    pub(crate) fn turn(&mut self) -> Vec<Tidings> {
        let mut tidings = Vec::new();
        if self.due().is_some_and(|due| due <= Instant::now()) {
            match Template::start(self.id, &self.program, self.hidden.as_ref()) {
                Ok(template) => self.template = Some(template),
                Err(error) => {
                    let program =
                        self.program.command.first().map(|name| name.to_string_lossy().into_owned());
                    let text = format!("{} could not be started: {error}", program.unwrap_or_default());
                    self.on_failed(Duration::ZERO, &[text], &mut tidings);
                }
            }
        }
        let Some(template) = self.template.as_mut().filter(|template| template.ready && !template.dismissed)
        else {
            return tidings;
        };
        while template.unanswered.len() < UNANSWERED_MAX
            && let Some(order) = self.waiting.pop_front()
        {
            let process = order.process;
            match template.request(order, self.session) {
                Ok(()) => {}
                // There is room again when it has answered, or it is dying, which is found out next.
                Err((order, error)) if is_for_later(&error) => {
                    self.waiting.push_front(order);
                    break;
                }
                Err((_, error)) => tidings.push(Tidings::Stillborn(process, error)),
            }
        }
        tidings
    }

    /// When [`turn`](Self::turn) has something to do though nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.template.is_none() && !self.leaving && !self.resting).then_some(self.due)
    }

    /// What to wait on: its messages, its end, and what it prints, unless there is no room for that.
    pub(crate) fn descriptors(&self, full: bool) -> impl Iterator<Item = BorrowedFd<'_>> {
        let running = self.template.as_ref().map(move |template| {
            let outputs = [template.stdout.pipe(), template.stderr.pipe()].into_iter().flatten();
            let outputs = outputs.filter(move |_| !full);
            // The socket of one that was told to end says so until it has.
            let socket = (!template.dismissed).then(|| template.socket.as_fd());
            socket.into_iter().chain([template.pidfd.as_fd()]).chain(outputs)
        });
        running.into_iter().flatten()
    }

    /// Takes in all that the template has said and printed, and its end.
    pub(crate) fn listen(&mut self, forwarder: Option<&Forwarder>) -> Vec<Tidings> {
        let mut tidings = Vec::new();
        let Some(template) = &mut self.template else { return tidings };
        // Looked at first: what it said before its end is read after this.
        let ended = template.has_ended();
        if !forwarder.is_some_and(Forwarder::is_full) {
            template.stdout.read_some(forwarder);
            template.stderr.read_some(forwarder);
        }
        while let Ok((length, descriptors)) = receive(&template.socket, &mut self.buffer)
            && let Ok(message) = control::decode(&self.buffer[..length])
        {
            if message == FromTemplate::Ready {
                template.ready = true;
                self.status.set(State::Ready(template.child.id()));
                continue;
            }
            tidings.extend(template.on_message(message, descriptors));
        }
        if ended {
            self.on_died(forwarder, &mut tidings);
        }
        tidings
    }

    /// No workers are wanted for now: the template ends by itself, and is not waited for.
    pub(crate) fn rest(&mut self) {
        if self.waiting.is_empty() {
            self.resting = true;
            self.dismiss();
        }
    }

    /// No more workers are wanted.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.waiting.clear();
        self.dismiss();
    }

    fn dismiss(&mut self) {
        if let Some(template) = &mut self.template {
            template.dismissed = true;
            let _ = rustix::net::shutdown(&template.socket, Shutdown::Both);
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether it has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.leaving && self.template.is_none()
    }

    fn on_died(&mut self, forwarder: Option<&Forwarder>, tidings: &mut Vec<Tidings>) {
        let Some(mut template) = self.template.take() else { return };
        template.stdout.finish(forwarder);
        template.stderr.finish(forwarder);
        if template.dismissed {
            let _ = template.child.wait();
            self.status.set(State::Starting);
            return;
        }
        // Their descriptors are gone with it; they are asked for again.
        for unborn in template.unanswered.drain(..).rev() {
            self.waiting.push_front(unborn.order);
        }
        let cause = Ending::of(template.child.wait().ok());
        let (pid, tail) = (template.child.id(), template.stderr.tail());
        let (signal, exit_code) = (cause.signal, cause.exit_code);
        let cause = DeathCause { pid, signal, exit_code, stderr_tail: tail, ..DeathCause::default() };
        let text = cause.to_string().replacen("worker process", "the template process", 1);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        self.on_failed(template.began.elapsed(), &lines, tidings);
        tidings.push(Tidings::Died(lines));
    }

    /// It is tried again, but not without a word, and not for ever at once.
    fn on_failed(&mut self, lived: Duration, how: &[String], tidings: &mut Vec<Tidings>) {
        self.failures = if lived < STABLE { self.failures + 1 } else { 1 };
        let doublings = self.failures.saturating_sub(FAILURES_FREE);
        let delay = match doublings {
            0 => Duration::ZERO,
            doublings => (DELAY_MIN * 2_u32.pow((doublings - 1).min(10))).min(DELAY_MAX),
        };
        self.due = Instant::now() + delay;
        let text = how.join("\n");
        let hopeless = self.failures >= FAILURES_FREE;
        self.status.set(State::Failing { text: text.clone(), hopeless });
        if !std::mem::replace(&mut self.warned, true) {
            journal::warn(format_args!("{text}\naktis: it is started again"));
        }
        if hopeless {
            for order in self.waiting.drain(..) {
                tidings.push(Tidings::Stillborn(order.process, io::Error::other(text.clone())));
            }
        }
    }

    /// Ends the template: without the node it ends by itself, and takes its workers with it.
    pub(crate) fn close(&mut self, forwarder: Option<&Forwarder>) {
        self.status.set(State::Closed);
        let Some(mut template) = self.template.take() else { return };
        drop(template.socket);
        drop(template.unanswered);
        if !template.ready || !wait_for_end(&template.pidfd, GRACE) {
            crate::peer::kill(template.pidfd.as_fd());
        }
        let _ = template.child.wait();
        template.stdout.finish(forwarder);
        template.stderr.finish(forwarder);
    }
}

impl Template {
    fn start(id: ProgramId, program: &TemplateProgram, hidden: Option<&Hidden>) -> io::Result<Self> {
        let (ours, theirs) = inbox::socket_pair(SocketType::SEQPACKET)?;
        let (name, arguments) =
            program.command.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        hidden.into_iter().for_each(|hidden| hidden.hide_from(&mut command));
        let mut child = command.spawn()?;
        // Its workers inherit that.
        take_first(child.id());
        match watch(&mut child, "template", id) {
            Ok((stdout, stderr, pidfd)) => Ok(Self {
                child,
                began: Instant::now(),
                socket: ours,
                pidfd,
                stdout,
                stderr,
                ready: false,
                dismissed: false,
                unanswered: VecDeque::new(),
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Asks for a worker; the order comes back if that does not work.
    fn request(&mut self, order: SpawnOrder, session: SessionId) -> Result<(), (SpawnOrder, io::Error)> {
        match self.try_request(&order, session) {
            Ok((socket, stdout, stderr)) => {
                self.unanswered.push_back(Unborn { order, socket, stdout, stderr });
                Ok(())
            }
            Err(error) => Err((order, error)),
        }
    }

    fn try_request(&self, order: &SpawnOrder, session: SessionId) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
        let (ours, theirs) = inbox::socket_pair(SocketType::SEQPACKET)?;
        let (stdout, their_stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let arguments = order.arguments(session, self.child.id());
        let request = ForkRequest {
            process: order.process,
            arguments: arguments.to_string(),
            environment: order.environment.clone(),
            variables: order.variables(),
        };
        let descriptors = [theirs.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
        send(&self.socket, &control::encode(&request), &descriptors, SendFlags::DONTWAIT)?;
        Ok((ours, stdout, stderr))
    }

    fn on_message(&mut self, message: FromTemplate, descriptors: Vec<OwnedFd>) -> Option<Tidings> {
        match message {
            FromTemplate::Ready => None,
            FromTemplate::Forked { process, pid } => {
                let unborn = self.take_unborn(process)?;
                let pidfd = descriptors.into_iter().next().ok_or_else(|| {
                    // It ends by itself: its socket is closed.
                    io::Error::other("the system has no descriptors left for another worker")
                });
                let born = pidfd.and_then(|pidfd| unborn.on_born(pid, pidfd));
                Some(match born {
                    Ok(worker) => Tidings::Born(Box::new(worker)),
                    Err(error) => Tidings::Stillborn(process, error),
                })
            }
            FromTemplate::Refused { process, error } => {
                self.take_unborn(process)?;
                Some(Tidings::Stillborn(process, io::Error::other(error)))
            }
            FromTemplate::Ended { pid, signal, exit_code } => {
                Some(Tidings::Ended(pid, Ending { signal, exit_code }))
            }
        }
    }

    fn take_unborn(&mut self, process: ProcessSlot) -> Option<Unborn> {
        let position = self.unanswered.iter().position(|unborn| unborn.order.process == process)?;
        self.unanswered.remove(position)
    }

    fn has_ended(&self) -> bool {
        wait_for_end(&self.pidfd, Duration::ZERO)
    }
}

impl Unborn {
    fn on_born(self, pid: u32, pidfd: OwnedFd) -> io::Result<WorkerProcess> {
        let stdout = Output::new(self.stdout, Stream::Stdout, "worker", self.order.program, pid)?;
        let stderr = Output::new(self.stderr, Stream::Stderr, "worker", self.order.program, pid)?;
        Ok(WorkerProcess::forked(self.order.process, pid, pidfd, self.socket, stdout, stderr))
    }
}

fn is_for_later(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, WouldBlock};
    matches!(error.kind(), WouldBlock | BrokenPipe | ConnectionReset | NotConnected)
}

/// Whether a process ends within some time.
pub(crate) fn wait_for_end(pidfd: &OwnedFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) if ready > 0 => return true,
            _ if left.is_zero() => return false,
            _ => {}
        }
    }
}

/// What others may know of the template.
#[derive(Default)]
pub(crate) struct TemplateStatus {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Starting,
    Ready(u32),
    /// It has ended, and is started again; there is little hope if it has ended often.
    Failing {
        text: String,
        hopeless: bool,
    },
    /// The session is over.
    Closed,
}

impl TemplateStatus {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Its process id, while it is ready.
    pub(crate) fn pid(&self) -> Option<u32> {
        match *self.state.lock() {
            State::Ready(pid) => Some(pid),
            _ => None,
        }
    }

    /// Waits until it is ready; the error says why it is not.
    pub(crate) fn wait_until_ready(&self, patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Ready(_) => return Ok(()),
                State::Closed => return Err("the session is over".to_owned()),
                State::Failing { text, hopeless: true } => return Err(text.clone()),
                State::Starting | State::Failing { .. } => {}
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return match &*state {
                    State::Ready(_) => Ok(()),
                    State::Failing { text, .. } => Err(text.clone()),
                    _ => Err(format!("the template process is not ready after {patience:?}")),
                };
            }
        }
    }
}
