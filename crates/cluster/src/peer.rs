//! Another node, as a process of this one: tasks, calls, objects and actors that cross.
//!
//! One thread owns all of it. What local processes do comes as events of the [`Bridge`], what the other node says as
//! [`Frame`]s, both in order.
//!
//! Invariants:
//! 1. Whoever names an object or actor to the other side holds it until the other side has released it as often.
//! 2. A task or call that was sent has one ticket until its last answer, or the end of the link.
//! 3. The thread waits for nothing that the other side has to do: that would be said to this very thread.

mod actors;
mod cancels;
mod incoming;
mod objects;
mod outgoing;
mod programs;

use actors::ActorsAcross;
use aktis_logic::loans::Loans;
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::Message;
use aktis_protocol::peer::{Frame, Ticket};
use aktis_protocol::{ActorId, DeathCause, LeaseId, NodeId, ProcessSlot, Shape, ShapeId, TaskId, TaskKey};
use aktis_runtime::Handle;
use aktis_runtime::bridge::Bridge;
use cancels::Cancels;
use parking_lot::Mutex;
pub(crate) use programs::Programs;
use programs::ProgramsAcross;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a lease that finds no task is kept.
const IDLE_LEASE: Duration = Duration::from_millis(100);
/// How long the thread sleeps at most: only leases that are idle for too long depend on it.
const SLEEP: Duration = Duration::from_millis(100);

/// How long local processes may take to read the last answers when the link is gone.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The way to the other node.
pub(crate) trait Wire: Send + Sync {
    /// Sends a frame, after those before it, at the next flush or before. One that cannot be sent is lost with the
    /// link, which its owner learns.
    fn send(&self, frame: &Frame);

    /// Has all frames sent that were not yet.
    fn flush(&self);
}

/// What follows when something is known.
type Then = Box<dyn FnOnce() + Send>;

/// What other threads share with the one that owns the peer.
#[derive(Default)]
pub(crate) struct Doorway {
    frames: Mutex<VecDeque<Frame>>,
    ended: Mutex<Option<String>>,
    /// Actors of the other node that were found by their names, and what follows when they are known here.
    sought: Mutex<Vec<(ActorId, Then)>>,
    /// Objects that the other node may copy.
    pub(crate) lent: Mutex<Loans<Handle>>,
    queue: Mutex<Option<Bridge>>,
}

impl Doorway {
    /// Frames have arrived.
    pub(crate) fn receive(&self, frames: impl IntoIterator<Item = Frame>) {
        self.frames.lock().extend(frames);
        self.wake();
    }

    /// An actor of the other node was found by its name: `then` is called when it is known here, if ever.
    pub(crate) fn seek_actor(&self, actor: ActorId, then: Box<dyn FnOnce() + Send>) {
        self.sought.lock().push((actor, then));
        self.wake();
    }

    /// The link is gone.
    pub(crate) fn end(&self, why: &str) {
        self.ended.lock().get_or_insert_with(|| why.to_owned());
        self.wake();
    }

    fn wake(&self) {
        if let Some(bridge) = &*self.queue.lock() {
            bridge.queue().wake();
        }
    }
}

/// A task or call that was sent.
struct Sent {
    /// Who submitted it; nobody if that process is dead.
    from: Option<ProcessSlot>,
    key: TaskKey,
    attempt: u32,
    /// Whose call it is, if it is one.
    actor: Option<ActorId>,
    lease: Option<(ShapeId, LeaseId)>,
    /// Where others see that it is here.
    cell: Option<usize>,
    returns_left: u32,
    streams: bool,
}

/// A task or call that was received.
struct Received {
    key: TaskKey,
    task: TaskId,
    /// Whose call it is, if it is one.
    actor: Option<ActorId>,
    returns_left: u32,
    streams: bool,
    /// Who gives the items of a stream.
    producer: Option<ProcessSlot>,
}

/// What has to wait, since there was no room for it or for something before it.
enum Unsent {
    /// A message to a local process.
    Message { to: ProcessSlot, message: Message, payload: Vec<u8> },
    /// Something about an actor: those who hear of it must have had its answers.
    ToNode(ToNode),
}

impl Unsent {
    fn is_to(&self, process: ProcessSlot) -> bool {
        matches!(self, Self::Message { to, .. } if *to == process)
    }
}

/// Leases for tasks of one shape.
#[derive(Default)]
struct Idle {
    leases: Vec<LeaseId>,
    since: Option<Instant>,
}

/// The thread's state. See the module.
pub(crate) struct Peer {
    bridge: Bridge,
    wire: Arc<dyn Wire>,
    doorway: Arc<Doorway>,
    next_ticket: u64,
    sent: HashMap<Ticket, Sent>,
    by_key: HashMap<(ProcessSlot, TaskKey), Ticket>,
    received: HashMap<Ticket, Received>,
    idle: HashMap<ShapeId, Idle>,
    /// What the other node means by its numbers of shapes.
    shapes: HashMap<ShapeId, Arc<Shape>>,
    actors: ActorsAcross,
    programs: Arc<dyn Programs>,
    programs_across: ProgramsAcross,
    cancels: Cancels,
    unsent: VecDeque<Unsent>,
    /// Cells that say nothing.
    cells: Vec<usize>,
}

impl Peer {
    pub(crate) fn new(
        bridge: Bridge,
        wire: Arc<dyn Wire>,
        doorway: Arc<Doorway>,
        programs: Arc<dyn Programs>,
    ) -> Self {
        *doorway.queue.lock() = Some(bridge.clone());
        Self {
            cells: (0..bridge.cells()).collect(),
            bridge,
            wire,
            doorway,
            next_ticket: 0,
            sent: HashMap::new(),
            by_key: HashMap::new(),
            received: HashMap::new(),
            idle: HashMap::new(),
            shapes: HashMap::new(),
            actors: ActorsAcross::default(),
            programs,
            programs_across: ProgramsAcross::default(),
            cancels: Cancels::default(),
            unsent: VecDeque::new(),
        }
    }

    /// The life of the thread, until the link or the node ends; says why.
    pub(crate) fn run(mut self) -> String {
        loop {
            let ended = self.doorway.ended.lock().clone();
            let frames = std::mem::take(&mut *self.doorway.frames.lock());
            let mut progress = !frames.is_empty();
            self.programs_across.begin_turn();
            for frame in frames {
                self.on_frame(frame);
            }
            let sought = std::mem::take(&mut *self.doorway.sought.lock());
            for (actor, then) in sought {
                progress = true;
                self.seek_actor(actor, then);
            }
            for event in self.bridge.take() {
                progress = true;
                self.on_event(event);
            }
            progress |= self.flush_unsent();
            progress |= self.claim_tasks();
            self.return_idle_leases();
            if progress {
                self.wire.flush();
            }
            if let Some(why) =
                ended.or_else(|| self.bridge.runtime().is_closed().then(|| "the node ends".into()))
            {
                self.on_end(&why);
                return why;
            }
            if !progress {
                let shapes: Vec<ShapeId> = self
                    .idle
                    .iter()
                    .filter(|(_, idle)| !idle.leases.is_empty())
                    .map(|(shape, _)| *shape)
                    .collect();
                let timeout = if self.unsent.is_empty() { SLEEP } else { Duration::from_millis(1) };
                self.bridge.sleep(&shapes, timeout);
            }
        }
    }

    fn me(&self) -> ProcessSlot {
        self.bridge.runtime().process()
    }

    /// This node.
    fn node(&self) -> NodeId {
        NodeId::of_session(self.bridge.runtime().session())
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Sends a message to a local process, after those before it.
    fn post(&mut self, to: ProcessSlot, message: Message, payload: Vec<u8>) {
        let waits = self.unsent.iter().any(|unsent| unsent.is_to(to));
        if waits || !self.bridge.push(to, &message, &[&payload]) {
            self.unsent.push_back(Unsent::Message { to, message, payload });
        }
    }

    /// Says something to the node, after all that was sent to local processes before.
    fn tell_node(&mut self, message: ToNode) {
        match self.unsent.is_empty() {
            true => self.bridge.send(message),
            false => self.unsent.push_back(Unsent::ToNode(message)),
        }
    }

    /// Ends a task or call of the other side.
    fn cancel(&mut self, key: TaskKey, force: bool, recursive: bool) {
        if let Some((to, message)) = self.bridge.cancel(key, force, recursive) {
            self.post(to, message, Vec::new());
        }
    }

    fn flush_unsent(&mut self) -> bool {
        let (mut progress, mut full) = (false, Vec::new());
        for unsent in std::mem::take(&mut self.unsent) {
            match unsent {
                Unsent::Message { to, message, payload } => {
                    if !self.bridge.is_alive(to) {
                        continue;
                    }
                    if full.contains(&to) || !self.bridge.push(to, &message, &[&payload]) {
                        full.push(to);
                        self.unsent.push_back(Unsent::Message { to, message, payload });
                        continue;
                    }
                }
                Unsent::ToNode(message) if full.is_empty() => self.bridge.send(message),
                Unsent::ToNode(_) => {
                    self.unsent.push_back(unsent);
                    continue;
                }
            }
            progress = true;
        }
        progress
    }

    /// Forgets a task or call that was sent; its lease is free for another.
    fn settle_sent(&mut self, ticket: Ticket) -> Option<Sent> {
        let sent = self.sent.remove(&ticket)?;
        self.forget_key(sent.from, sent.key, ticket);
        if let Some(cell) = sent.cell {
            self.bridge.clear_cell(cell);
            self.cells.push(cell);
        }
        if let Some((shape, lease)) = sent.lease {
            let idle = self.idle.entry(shape).or_default();
            idle.leases.push(lease);
            idle.since = Some(Instant::now());
        }
        Some(sent)
    }

    /// The process of a task died there: its submitter decides whether it is run again.
    fn lose(&mut self, sent: &Sent, cause: DeathCause) {
        if let Some(submitter) = sent.from {
            let (key, attempt) = (sent.key, sent.attempt);
            self.tell_node(ToNode::TaskLost { submitter, key, attempt, cause });
        }
    }

    /// What its submitter says about a task concerns this ticket no more; it may have sent the task again.
    fn forget_key(&mut self, from: Option<ProcessSlot>, key: TaskKey, ticket: Ticket) {
        if let Some(from) = from
            && self.by_key.get(&(from, key)) == Some(&ticket)
        {
            self.by_key.remove(&(from, key));
        }
    }

    fn return_idle_leases(&mut self) {
        let over = |idle: &Idle| idle.since.is_some_and(|since| since.elapsed() >= IDLE_LEASE);
        for idle in self.idle.values_mut().filter(|idle| over(idle)) {
            idle.since = None;
            for lease in idle.leases.drain(..) {
                self.bridge.return_lease(lease);
            }
        }
        self.idle.retain(|_, idle| !idle.leases.is_empty());
    }

    /// The other node is gone, or counts as gone: what was sent there may be run again elsewhere.
    fn on_end(&mut self, why: &str) {
        // Submitters find those with a cell by themselves when they hear of the death, as with any process.
        let unseen = |sent: &Sent| sent.lease.is_some() && sent.cell.is_none();
        for sent in std::mem::take(&mut self.sent).into_values().filter(unseen) {
            self.lose(&sent, gone(why));
        }
        // The other side has given up what it had sent, too.
        for received in std::mem::take(&mut self.received).into_values() {
            self.cancel(received.key, true, true);
        }
        // Whoever does not read at all must not keep the others from hearing of the death.
        let deadline = Instant::now() + LAST_ANSWERS;
        let in_time = || Instant::now() < deadline;
        while !self.unsent.is_empty() && in_time() && !self.bridge.runtime().is_closed() {
            self.bridge.take();
            if !self.flush_unsent() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// How a process ends that stood for another node.
pub(crate) fn gone(why: &str) -> DeathCause {
    let text = format!("the node is gone: {why}");
    DeathCause { pid: 0, signal: None, exit_code: None, stderr_tail: vec![text] }
}

impl Drop for Peer {
    /// Also if the thread panicked: nobody waits for what it would have done, and nothing is kept for the other side.
    fn drop(&mut self) {
        self.doorway.queue.lock().take();
        let sought = std::mem::take(&mut *self.doorway.sought.lock());
        let lent = self.doorway.lent.lock().end();
        drop((sought, lent));
    }
}

#[cfg(test)]
mod tests;
