//! Another node, as a process of this one: tasks, calls, objects and actors that cross.
//!
//! What local processes do comes as events of the [`Bridge`], what the other node says as [`Frame`]s, both in order. One
//! thread at a time deals with them: the link's, which has just read frames or looks for more, or the peer's own, which
//! sleeps until a local process wants something. Whoever has heard of something does it, and no other thread is woken.
//!
//! Invariants:
//! 1. Whoever names an object or actor to the other side holds it until the other side has released it as often.
//! 2. A task or call that was sent has one ticket until its last answer, or the end of the link.
//! 3. What a task or call returns that was received is held from when it is named, or given, until the other side has it.
//! 4. Nobody who deals with events or frames waits for anything that the other side has to do, nor for room on the link:
//!    the link's own thread may be the one that would have to wait.

mod actors;
mod attention;
mod cancels;
mod incoming;
mod objects;
mod outgoing;
mod programs;
mod received;
mod unsent;

use actors::ActorsAcross;
use aktis_logic::loans::Loans;
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::Message;
use aktis_protocol::peer::{Frame, Ticket};
use aktis_protocol::{
    ActorId, DeathCause, LeaseId, NodeId, ObjectId, ProcessSlot, ProgramId, Shape, ShapeId, TaskKey,
};
use aktis_runtime::Handle;
use aktis_runtime::bridge::{Bridge, BridgeAnswer, BridgeEvent};
pub(crate) use attention::Attention;
use cancels::Cancels;
use parking_lot::Mutex;
pub(crate) use programs::Programs;
use programs::ProgramsAcross;
use received::ReceivedTasks;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unsent::{About, PATIENCE, Unsent};

/// How long a lease that finds no task is kept.
const IDLE_LEASE: Duration = Duration::from_millis(100);
/// How long the thread sleeps at most: only leases that are idle for too long depend on it.
const SLEEP: Duration = Duration::from_millis(100);

/// How long a task stays that this node has no queue for. Then it goes back, so that it gets another place; it shall not
/// go to and fro all the time.
const FULL: Duration = Duration::from_millis(500);
/// How long it sleeps while a local process, or the link, has no room.
const STUCK: Duration = Duration::from_millis(1);
/// Events that are dealt with between two looks whether the link has room.
const EVENTS_AT_ONCE: usize = 64;

/// The way to the other node.
pub(crate) trait Wire: Send + Sync {
    /// Sends a frame, after those before it, at the next flush or before. One that cannot be sent is lost with the
    /// link, which its owner learns.
    fn send(&self, frame: &Frame);

    /// Has all frames sent that were not yet.
    fn flush(&self);

    /// Whether there is room for much more.
    fn has_room(&self) -> bool;
}

/// What follows when something is known.
type Then = Box<dyn FnOnce() + Send>;

/// Where a peer is found by all who have something for it.
#[derive(Default)]
pub(crate) struct Doorway {
    /// The peer, while it lives. It belongs to whoever has the lock.
    peer: Mutex<Option<Peer>>,
    /// What has arrived while somebody else had it.
    frames: Mutex<VecDeque<Frame>>,
    ended: Mutex<Option<String>>,
    /// Actors of the other node that were found by their names, and what follows when they are known here.
    sought: Mutex<Vec<(ActorId, Then)>>,
    /// Programs that were added to the node, or could not be.
    added: Mutex<Vec<(ProgramId, Result<(), String>)>>,
    /// Objects that the other node may copy.
    pub(crate) lent: Mutex<Loans<Handle>>,
    queue: Mutex<Option<Bridge>>,
}

impl Doorway {
    /// Frames have arrived: they are dealt with at once, unless somebody else has the peer.
    pub(crate) fn receive(&self, frames: Vec<Frame>) {
        let mut present = self.peer.try_lock();
        if let Some(peer) = present.as_deref_mut().and_then(Option::as_mut) {
            peer.turn(frames);
            return;
        }
        self.frames.lock().extend(frames);
        self.wake();
    }

    /// An actor of the other node was found by its name: `then` is called when it is known here, if ever.
    pub(crate) fn seek_actor(&self, actor: ActorId, then: Box<dyn FnOnce() + Send>) {
        self.sought.lock().push((actor, then));
        self.wake();
    }

    /// A program was added to the node, or could not be.
    fn on_added(&self, program: ProgramId, outcome: Result<(), String>) {
        self.added.lock().push((program, outcome));
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

impl Sent {
    /// What goes if an answer is given up.
    fn about(&self, is_last: bool) -> About {
        match (self.actor, self.lease) {
            (Some(actor), _) => About::Actor(actor),
            (None, Some(_)) if is_last => About::Task(self.key, self.attempt),
            _ => About::Nothing,
        }
    }
}

/// Leases for tasks of one shape.
#[derive(Default)]
struct Idle {
    leases: Vec<LeaseId>,
    since: Option<Instant>,
    /// How many leases that are in use the node wants back.
    revoked: usize,
    /// Whether each is for one task only.
    once: bool,
}

/// What is between this node and another. See the module.
pub(crate) struct Peer {
    bridge: Bridge,
    wire: Arc<dyn Wire>,
    doorway: Arc<Doorway>,
    next_ticket: u64,
    sent: HashMap<Ticket, Sent>,
    by_key: HashMap<(ProcessSlot, TaskKey), Ticket>,
    received: ReceivedTasks,
    /// Tasks that were received when this node had no queue left for them, in order.
    full: VecDeque<(Instant, Ticket)>,
    idle: HashMap<ShapeId, Idle>,
    /// What the other node means by its numbers of shapes.
    shapes: HashMap<ShapeId, Arc<Shape>>,
    actors: ActorsAcross,
    programs: Arc<dyn Programs>,
    programs_across: ProgramsAcross,
    cancels: Cancels,
    unsent: Unsent,
    /// Objects whose values the other side wants, and the link had no room for.
    values_wanted: VecDeque<ObjectId>,
    /// What has happened and was not dealt with yet.
    events: VecDeque<BridgeEvent>,
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
            received: ReceivedTasks::default(),
            full: VecDeque::new(),
            idle: HashMap::new(),
            shapes: HashMap::new(),
            actors: ActorsAcross::default(),
            programs,
            programs_across: ProgramsAcross::default(),
            cancels: Cancels::default(),
            unsent: Unsent::default(),
            values_wanted: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The life of the peer, until the link or the node ends; says why. This thread does what no other does.
    pub(crate) fn run(self) -> String {
        let (doorway, bridge) = (self.doorway.clone(), self.bridge.clone());
        *doorway.peer.lock() = Some(self);
        let _leaving = Leaving(&doorway);
        loop {
            // What came before the end is dealt with before it.
            let ended = doorway.ended.lock().clone();
            let mut present = doorway.peer.lock();
            let peer = present.as_mut().expect("nobody else takes it away");
            let progress = peer.turn(Vec::new());
            if let Some(why) = ended.or_else(|| bridge.runtime().is_closed().then(|| "the node ends".into()))
            {
                let peer = present.take();
                drop(present);
                peer.into_iter().for_each(|mut peer| peer.on_end(&why));
                return why;
            }
            if progress {
                continue;
            }
            if !peer.wire.has_room() {
                drop(present);
                bridge.pass_on(&[]);
                std::thread::sleep(STUCK);
                continue;
            }
            let timeout = if peer.unsent.is_empty() { SLEEP } else { STUCK };
            let idle = peer.idle_shapes();
            bridge.pass_on(&idle);
            bridge.sleep(&idle, timeout, || drop(present));
        }
    }

    /// Deals with all that has happened, these frames first unless others have come before them; gives whether something
    /// has.
    fn turn(&mut self, frames: Vec<Frame>) -> bool {
        // First, so that whatever is left for the peer after this look is noticed before anybody sleeps. As long as there
        // is no room, local processes are left to wait.
        if self.wire.has_room() {
            self.events.extend(self.bridge.take());
        }
        let earlier = std::mem::take(&mut *self.doorway.frames.lock());
        let mut progress = !earlier.is_empty() || !frames.is_empty();
        self.programs_across.begin_turn();
        for frame in earlier.into_iter().chain(frames) {
            self.on_frame(frame);
        }
        let sought = std::mem::take(&mut *self.doorway.sought.lock());
        for (actor, then) in sought {
            progress = true;
            self.seek_actor(actor, then);
        }
        let added = std::mem::take(&mut *self.doorway.added.lock());
        for (program, outcome) in added {
            progress = true;
            self.on_program_added(program, outcome);
        }
        progress |= self.unsent.flush(&self.bridge);
        progress |= self.hand_back_unqueued();
        while self.wire.has_room() && (self.say_next_value() || self.send_some()) {
            progress = true;
        }
        progress |= self.wire.has_room() && self.send_program_part();
        self.return_idle_leases();
        if progress {
            self.wire.flush();
        }
        progress
    }

    /// Sends a part of what local processes want sent, which the link has room for; gives whether there was any.
    fn send_some(&mut self) -> bool {
        let count = self.events.len().min(EVENTS_AT_ONCE);
        for _ in 0..count {
            let Some(event) = self.events.pop_front() else { break };
            let may_be_long = match &event {
                BridgeEvent::Ready { .. } => true,
                BridgeEvent::Answer { answer, .. } => matches!(answer, BridgeAnswer::Stored(_, true)),
                _ => false,
            };
            self.on_event(event);
            if may_be_long {
                // With very many references: the next one waits until there is room for it, too.
                break;
            }
        }
        self.claim_tasks() || count > 0
    }

    /// Shapes of which another task could be sent.
    fn idle_shapes(&self) -> Vec<ShapeId> {
        let has_leases = |(shape, idle): (&ShapeId, &Idle)| (!idle.leases.is_empty()).then_some(*shape);
        self.idle.iter().filter_map(has_leases).collect()
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
    fn post(&mut self, to: ProcessSlot, message: Message, payload: Vec<u8>, about: About) {
        self.unsent.post(&self.bridge, to, message, payload, about);
    }

    /// Tells the node of an actor, after all that it has answered.
    fn tell_of_actor(&mut self, actor: ActorId, message: ToNode) {
        self.unsent.tell_of_actor(&self.bridge, actor, message);
    }

    /// Ends a task or call of the other side.
    fn cancel(&mut self, key: TaskKey, force: bool, recursive: bool) {
        if let Some((to, message)) = self.bridge.cancel(key, force, recursive) {
            self.post(to, message, Vec::new(), About::Nothing);
        }
    }

    /// Forgets a task or call that was sent; its lease is free for another, unless the node wants it back.
    fn settle_sent(&mut self, ticket: Ticket) -> Option<Sent> {
        let sent = self.sent.remove(&ticket)?;
        self.forget_key(sent.from, sent.key, ticket);
        if let Some(cell) = sent.cell {
            self.bridge.clear_cell(cell);
            self.cells.push(cell);
        }
        if let Some((shape, lease)) = sent.lease {
            let idle = self.idle.entry(shape).or_default();
            if idle.once || idle.revoked > 0 {
                idle.revoked = idle.revoked.saturating_sub(1);
                self.bridge.return_lease(lease);
            } else {
                idle.leases.push(lease);
                idle.since = Some(Instant::now());
            }
        }
        Some(sent)
    }

    /// The process of a task died there: its submitter decides whether it is run again. Or it was handed back.
    fn lose(&mut self, sent: &Sent, cause: Option<DeathCause>) {
        if let Some(submitter) = sent.from {
            let (key, attempt) = (sent.key, sent.attempt);
            let lost = ToNode::TaskLost { submitter, key, attempt, cause };
            self.unsent.tell_of_task(&self.bridge, submitter, lost);
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

    /// There is no room for tasks of this shape over there.
    fn return_leases(&mut self, shape: ShapeId) {
        let leases = self.idle.get_mut(&shape).map(|idle| std::mem::take(&mut idle.leases));
        leases.into_iter().flatten().for_each(|lease| self.bridge.return_lease(lease));
    }

    fn return_idle_leases(&mut self) {
        let over = |idle: &Idle| idle.since.is_some_and(|since| since.elapsed() >= IDLE_LEASE);
        for idle in self.idle.values_mut().filter(|idle| over(idle)) {
            idle.since = None;
            for lease in idle.leases.drain(..) {
                self.bridge.return_lease(lease);
            }
        }
    }

    /// The other node is gone, or counts as gone: what was sent there may be run again elsewhere.
    fn on_end(&mut self, why: &str) {
        // Submitters find those with a cell by themselves when they hear of the death, as with any process.
        let unseen = |sent: &Sent| sent.lease.is_some() && sent.cell.is_none();
        for sent in std::mem::take(&mut self.sent).into_values().filter(unseen) {
            self.lose(&sent, Some(gone(why)));
        }
        // The other side has given up what it had sent, too. What is held for it stays until the node knows of the end.
        for key in self.received.iter().map(|(_, received)| received.key).collect::<Vec<_>>() {
            self.cancel(key, true, true);
        }
        // Whoever does not read at all must not keep the others from hearing of the death.
        let deadline = Instant::now() + PATIENCE;
        let in_time = || Instant::now() < deadline;
        while !self.unsent.is_empty() && in_time() && !self.bridge.runtime().is_closed() {
            self.bridge.take();
            if !self.unsent.flush(&self.bridge) {
                std::thread::sleep(STUCK);
            }
        }
        self.unsent.end(&self.bridge, &gone(why));
    }
}

/// How a process ends that stood for another node.
pub(crate) fn gone(why: &str) -> DeathCause {
    let text = format!("the node is gone: {why}");
    DeathCause { stderr_tail: vec![text], ..DeathCause::default() }
}

/// Takes the peer out of its doorway, also if its thread panicked.
struct Leaving<'a>(&'a Doorway);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let peer = self.0.peer.lock().take();
        drop(peer);
    }
}

impl Drop for Peer {
    /// Also if the thread panicked: nobody waits for what it would have done, and nothing is kept for the other side.
    fn drop(&mut self) {
        self.doorway.queue.lock().take();
        // Before anything is let go of: others may look for it.
        self.bridge.send(ToNode::NodeGone);
        let sought = std::mem::take(&mut *self.doorway.sought.lock());
        let lent = self.doorway.lent.lock().end();
        drop((sought, lent));
    }
}

#[cfg(test)]
mod tests;
