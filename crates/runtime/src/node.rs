//! Talking to the node: messages in order, questions and answers.
//!
//! Invariants:
//! 1. Messages reach the node in the order in which they were put into the outbox.
//! 2. When [`Inner::flush_outbox`] returns, what was in the outbox before is with the node: what happens
//!    after (a completion, say) is seen by others only after it.
//! 3. Sending may deliver answers on the same thread: nobody flushes while holding a lock of the runtime.

use crate::entry::{Later, Outcome};
use crate::error::Error;
use crate::runtime::Inner;
use crate::wait::LOOK_UP;
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_logic::machine::submitter::LaneIndex;
use aktis_node::{DriverLink, EmbeddedNode, LinkError, LocalLink, WorkerLink};
use aktis_protocol::control::{FromNode, RequestId, ToNode};
use aktis_protocol::{ObjectId, ProcessSlot, Shape, ShardIndex};
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The way to the node.
pub(crate) enum Link {
    /// The node is in this process.
    Embedded(Arc<EmbeddedNode>),
    /// The node is in the process that started this one.
    Worker(Arc<WorkerLink>),
    /// The node is in a process that this one has attached to.
    Attached(Arc<DriverLink>),
    /// The node is in this process, and this is one of several places in it.
    Local(Arc<LocalLink>),
}

/// Messages on their way to the node.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: AtomicBool,
    queue: Mutex<VecDeque<ToNode>>,
    flushing: Mutex<()>,
}

impl Outbox {
    pub(crate) fn push(&self, message: ToNode) {
        self.extend([message]);
    }

    pub(crate) fn extend(&self, messages: impl IntoIterator<Item = ToNode>) {
        let mut queue = self.queue.lock();
        queue.extend(messages);
        self.waiting.store(true, Ordering::Release);
    }

    fn pop(&self) -> Option<ToNode> {
        let mut queue = self.queue.lock();
        let message = queue.pop_front();
        if message.is_none() {
            self.waiting.store(false, Ordering::Release);
        }
        message
    }
}

thread_local! {
    /// The outboxes that this thread is flushing, by their addresses: what it puts into one is sent by its flush.
    static FLUSHING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

struct Reply {
    answer: Mutex<Option<FromNode>>,
    arrived: Condvar,
}

/// Questions that have no answer yet.
#[derive(Default)]
pub(crate) struct Replies {
    next: AtomicU32,
    waiting: Mutex<(bool, HashMap<RequestId, Arc<Reply>>)>,
    channels: Mutex<BTreeSet<ProcessSlot>>,
    /// Lanes that were asked for.
    pub(crate) lanes: Mutex<HashMap<RequestId, LaneWish>>,
    /// When questions of the program have to have answers, and how long that was from the moment when it was said.
    limit: Mutex<Option<(Instant, Duration)>>,
}

/// A lane that was asked for. It is in use from the moment when the node's answer arrives, so that what the node says
/// of it next finds it there, and not only when the one who asked wakes up.
pub(crate) enum LaneWish {
    Asked(ShardIndex, Arc<Shape>),
    /// Nobody waits for it.
    Foreseen(ShardIndex, Arc<Shape>),
    Open(LaneIndex),
}

impl Replies {
    pub(crate) fn next_request(&self) -> RequestId {
        self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }

    /// From now on questions of the program have answers within this time in all, or fail.
    pub(crate) fn answer_within(&self, patience: Option<Duration>) {
        let limit = patience.and_then(|patience| Some((Instant::now().checked_add(patience)?, patience)));
        *self.limit.lock() = limit;
    }

    pub(crate) fn complete(&self, request: RequestId, answer: FromNode) {
        if let Some(reply) = self.waiting.lock().1.remove(&request) {
            *reply.answer.lock() = Some(answer);
            reply.arrived.notify_all();
        }
    }

    /// The session is over: nobody will answer.
    pub(crate) fn fail_all(&self) {
        let mut waiting = self.waiting.lock();
        waiting.0 = true;
        for (_, reply) in waiting.1.drain() {
            *reply.answer.lock() = Some(FromNode::Shutdown);
            reply.arrived.notify_all();
        }
    }
}

/// The number of the questions about channels, which nobody waits for.
const CHANNEL_REQUEST: RequestId = 0;

impl Inner {
    /// Sends everything in the outbox, in order.
    pub(crate) fn flush_outbox(&self) {
        let this = &raw const self.outbox as usize;
        if !self.outbox.waiting.load(Ordering::Acquire) || FLUSHING.with_borrow(|all| all.contains(&this)) {
            return;
        }
        let Some(link) = self.link.get() else { return };
        let guard = self.outbox.flushing.lock();
        FLUSHING.with_borrow_mut(|all| all.push(this));
        loop {
            match (self.outbox.pop(), link) {
                (None, _) => break,
                (Some(message), Link::Embedded(node)) => node.send(message),
                (Some(message), Link::Local(link)) => link.send(message),
                (Some(message), Link::Attached(link)) => match link.send(&message) {
                    // That the node is gone is found out by the thread that listens to it.
                    Ok(()) | Err(LinkError::DriverGone) => {}
                    Err(error) => eprintln!("aktis: a message to the node was not sent: {error}"),
                },
                (Some(message), Link::Worker(worker)) => {
                    if let Err(error) = worker.send(&message) {
                        eprintln!("aktis: a message to the node was not sent: {error}");
                        if matches!(error, LinkError::DriverGone) {
                            // Or user code has closed the descriptor. Without the node nothing can be done here.
                            crate::worker::end(0);
                        }
                    }
                }
            }
        }
        FLUSHING.with_borrow_mut(Vec::pop);
        drop(guard);
    }

    /// Sends one message, after those before it.
    pub(crate) fn send_to_node(&self, message: ToNode) {
        self.outbox.push(message);
        self.flush_outbox();
    }

    /// Asks the node something that the program wants to know. The program may give up ([`Error::Interrupted`]), and the
    /// wait ends when [`Replies::answer_within`] says so. An answer that comes later is nobody's.
    pub(crate) fn ask(&self, question: impl FnOnce(RequestId) -> ToNode) -> Result<FromNode, Error> {
        let limit = *self.replies.limit.lock();
        let look = || match limit {
            _ if crate::hooks::interrupted() => Err(Error::Interrupted),
            Some((deadline, patience)) if Instant::now() >= deadline => Err(Error::TimedOut(patience)),
            _ => Ok(()),
        };
        self.request_unless(question, limit.map(|(deadline, _)| deadline), look)
    }

    /// Asks the node something and waits for the answer. The caller holds no lock.
    pub(crate) fn request(&self, question: impl FnOnce(RequestId) -> ToNode) -> Result<FromNode, Error> {
        self.request_unless(question, None, || Ok(()))
    }

    /// The same, with a look now and then at whether to give up: at the latest at `deadline`, if there is one.
    pub(crate) fn request_unless(
        &self,
        question: impl FnOnce(RequestId) -> ToNode,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Result<(), Error>,
    ) -> Result<FromNode, Error> {
        let request = self.replies.next_request();
        let reply = Arc::new(Reply { answer: Mutex::new(None), arrived: Condvar::new() });
        {
            let mut waiting = self.replies.waiting.lock();
            if waiting.0 {
                return Err(Error::Closed);
            }
            waiting.1.insert(request, reply.clone());
        }
        self.send_to_node(question(request));
        loop {
            let mut answer = reply.answer.lock();
            if answer.is_none() {
                let next_look = Instant::now() + LOOK_UP;
                let next_look = deadline.map_or(next_look, |deadline| deadline.min(next_look));
                reply.arrived.wait_until(&mut answer, next_look);
            }
            match answer.take() {
                Some(FromNode::Shutdown) => return Err(Error::Closed),
                Some(answer) => return Ok(answer),
                None => {}
            }
            drop(answer);
            if let Err(error) = look() {
                // An answer that comes later is nobody's.
                self.replies.waiting.lock().1.remove(&request);
                return Err(error);
            }
        }
    }

    /// Asks for a channel without waiting: who needs it tries again when it is there.
    pub(crate) fn want_channel(&self, to: ProcessSlot) {
        if self.replies.channels.lock().insert(to) {
            self.outbox.push(ToNode::ChannelWanted { request: CHANNEL_REQUEST, to });
        }
        self.flush_outbox();
    }

    /// The same, for callers that hold a lock: the message leaves at the next flush.
    pub(crate) fn want_channel_later(&self, to: ProcessSlot, later: &mut Vec<ToNode>) {
        if self.replies.channels.lock().insert(to) {
            later.push(ToNode::ChannelWanted { request: CHANNEL_REQUEST, to });
        }
    }

    /// The node says something.
    pub(crate) fn on_node_message(self: &Arc<Self>, message: FromNode) {
        match message {
            FromNode::LaneOpened { request, lane } => self.on_lane_opened(request, lane),
            FromNode::ExtentGranted { request, .. }
            | FromNode::ExtentDenied { request, .. }
            | FromNode::Restored { request, .. }
            | FromNode::KillTaken(request)
            | FromNode::ActorFound { request, .. }
            | FromNode::Names { request, .. }
            | FromNode::KeyAnswered { request, .. }
            | FromNode::StateTold { request, .. }
            | FromNode::LookedUp { request, .. }
            | FromNode::ImportedAs { request, .. }
            | FromNode::Contents { request, .. }
            | FromNode::Origin { request, .. }
            | FromNode::ShapeExplained { request, .. } => self.replies.complete(request, message),
            FromNode::LaneRemoved { lane, failure } => self.on_lane_removed(lane, &failure),
            FromNode::LanesUnwanted(program) => self.on_lanes_unwanted(program),
            FromNode::GroupChanged { group, state } => self.on_group_changed(group, state),
            FromNode::ChannelOpened { to, open, .. } => self.on_channel_opened(to, open),
            FromNode::ObjectResolved { object, value } => {
                self.on_object_resolved(object, Outcome::from_shared(value));
            }
            FromNode::Rebuild { object } => self.on_rebuild(object),
            FromNode::Adopt { object, lineage } => self.on_adopt(object, lineage),
            FromNode::ActorChanged { actor, place } => self.on_actor_changed(actor, place),
            FromNode::ProcessDied { process, cause } => self.on_process_died(process, &cause),
            FromNode::TaskLost { process, key, attempt, cause } => {
                self.on_task_lost(process, key, attempt, cause.as_ref());
            }
            FromNode::SharedWorker { process } => self.on_shared_worker(process),
            FromNode::Asked { question, what } => {
                let answer = self.answer(&what);
                self.send_to_node(ToNode::Answered { question, answer });
            }
            FromNode::Printed { lines, missed } => {
                if let Some(printer) = self.printer.get() {
                    printer.print(lines, missed);
                }
            }
            FromNode::Warned { text } => warn(text),
            FromNode::Freed { object, .. } if self.bridge.get().is_none() => {
                self.on_left_object_freed(object);
            }
            FromNode::CancelWanted(cancel) if self.bridge.get().is_none() => self.cancel_maker_of(cancel),
            FromNode::LeaseGranted { .. }
            | FromNode::LeaseRevoked { .. }
            | FromNode::HandBack { .. }
            | FromNode::HostActor { .. }
            | FromNode::EndActor { .. }
            | FromNode::CancelWanted(_)
            | FromNode::ValueWanted { .. }
            | FromNode::Freed { .. }
            | FromNode::Sought { .. }
            | FromNode::ActorInherited { .. }
            | FromNode::ActorKnown { .. }
            | FromNode::ActorReleased { .. }
            | FromNode::ActorLost { .. }
            | FromNode::ActorWanted { .. }
            | FromNode::KillActor { .. }
            | FromNode::ShapeTold { .. }
            | FromNode::Shutdown => match self.bridge.get() {
                Some(queue) => {
                    if let FromNode::ActorLost { actor, .. } = &message {
                        // The other node forgets the calls that have no answer when it hears of this.
                        self.take_answers_of(*actor);
                    }
                    queue.push(LocalEvent::Order(message));
                    queue.wake();
                }
                None => self.on_worker_order(message),
            },
        }
    }

    fn on_channel_opened(self: &Arc<Self>, to: ProcessSlot, open: bool) {
        self.replies.channels.lock().remove(&to);
        // A process that has not started yet says so when it has; one that is dead is reported as dead.
        if open {
            self.flush_everything();
        }
    }

    /// Light actors live in this process from now on.
    fn on_shared_worker(self: &Arc<Self>, process: ProcessSlot) {
        self.shared_worker.store(process.0, Ordering::Release);
        if process != self.me {
            self.want_channel(process);
        }
        let mut later = Later::default();
        let mut shell = self.submitter.lock();
        for actor in std::mem::take(&mut shell.homeless) {
            let slot = &shell.actors[actor.0 as usize];
            if slot.managed {
                later.messages.push(ToNode::ActorEscaped { actor: slot.id, host: process });
            }
            shell.step(self, &mut later, |machine, out| machine.on_actor_alive(actor, process, out));
        }
        drop(shell);
        later.run(self);
    }

    /// An object made elsewhere has an outcome.
    fn on_object_resolved(self: &Arc<Self>, object: ObjectId, outcome: Outcome) {
        let mut later = Later::default();
        let entry = self.known.lock().get(&object).and_then(std::sync::Weak::upgrade);
        if let Some(entry) = entry {
            // It may have had a value, which was lost.
            match entry.renewal() {
                Some(renewal) => {
                    renewal.resolve(outcome, &mut later);
                    later.entries.push(renewal);
                }
                None if entry.outcome().is_none() => entry.resolve(outcome, &mut later),
                None => {}
            }
            later.entries.push(entry);
        }
        later.run(self);
    }

    /// Sends whatever can be sent now.
    pub(crate) fn flush_everything(self: &Arc<Self>) {
        let mut later = Later::default();
        let mut shell = self.submitter.lock();
        shell.flush(self, &mut later);
        drop(shell);
        later.run(self);
    }
}

/// Tells people something. Nobody waits for whoever reads it.
fn warn(text: String) {
    let tell = move || drop(writeln!(std::io::stderr(), "aktis: {text}"));
    // Without a thread it is not told; `explain` still tells it.
    let _ = std::thread::Builder::new().name("aktis-warn".into()).spawn(tell);
}
