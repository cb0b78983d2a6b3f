//! The proxy for another node: tasks, calls, objects, actors and programs that cross a link.
//!
//! To its own node the proxy is one more process, which claims tasks and hosts actors; to the other node it is all of
//! this one. Local processes reach it by [`LocalEvent`]s, the other node by [`Frame`]s, both in order. What it does here
//! goes through the port [`LocalNode`], what it sends lies in an outbox, which the shell sends after each input.
//!
//! Inputs are methods, as those of the submitter: the port's handles are owned values, and the path of a forwarded task
//! allocates nothing for orders. The machine never waits: not for the other side, nor for room on the link, nor for a
//! local process.
//!
//! Invariants:
//! 1. A node that exports an object or actor holds it until the other side has released it as often.
//! 2. A task or call that was sent has one ticket until its last answer, or the end of the link.
//! 3. A return value of a received task or call is held from when either side exports or stores it until the other side
//!    has it.
//! 4. A lease in use, and a cell in use, belong to exactly one task that was sent.
//! 5. The key of a submitter's task leads to the ticket of its latest attempt, or to none.
//! 6. Each pending message about an actor waits for exactly the queues that have its mark.
//! 7. The node answers each import of an actor once: only then is it released.

mod actors;
mod backlog;
mod cancels;
mod exports;
mod incoming;
mod leases;
mod local_node;
mod objects;
mod outgoing;
mod planted;
mod programs;
mod received;

use crate::Time;
use crate::lease_pool::HeldLease;
use crate::planted::Planted;
use actors::Actors;
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::Message;
use aktis_protocol::peer::{Frame, Ticket};
use aktis_protocol::{ActorId, DeathCause, LeaseId, ObjectId, ProcessSlot, Shape, ShapeId, TaskKey};
pub use backlog::BACKLOG_MICROSECONDS_MAX;
use backlog::{About, Backlog};
use cancels::Cancels;
use exports::Exports;
use foldhash::fast::FixedState;
use leases::Leases;
pub use local_node::{
    Claimed, LocalAnswer, LocalEvent, LocalNode, LocalProcesses, SubmitError, answer_message,
};
pub use planted::PlantedBug;
use programs::Programs;
use received::ReceivedTasks;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// A table in an order that is the same in every run.
type Map<K, V> = std::collections::HashMap<K, V, FixedState>;

/// How long a task stays that this node has no queue for, in microseconds. Then it goes back, so that it gets another
/// place; it shall not go to and fro all the time.
const UNQUEUED_MICROSECONDS_MAX: u64 = 500_000;
/// Events that are dealt with between two looks whether the link has room.
const EVENTS_AT_ONCE: usize = 64;

/// A task or call that was sent.
#[derive(Debug)]
struct Sent {
    /// The process that submitted it; none if that process is dead.
    from: Option<ProcessSlot>,
    key: TaskKey,
    attempt: u32,
    /// The actor, if it is a call.
    actor: Option<ActorId>,
    lease: Option<HeldLease>,
    /// Where others see that it is here.
    cell: Option<usize>,
    returns_left: u32,
    streams: bool,
}

impl Sent {
    /// What is lost if an answer is given up.
    fn about(&self, is_last: bool) -> About {
        match (self.actor, &self.lease) {
            (Some(actor), _) => About::Actor(actor),
            (None, Some(_)) if is_last => About::Task(self.key, self.attempt),
            _ => About::Nothing,
        }
    }
}

/// How much a proxy has to do, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteNodeCounts {
    /// Tasks and calls that were sent and have not got their last answer.
    pub sent: usize,
    /// Tasks and calls that were received and have not given their last answer.
    pub received: usize,
    /// Tasks that were received and found no queue.
    pub unqueued: usize,
    /// Tasks and actors that were received and wait for their programs.
    pub awaiting_programs: usize,
    /// Objects that the other node knows from this one.
    pub exported_objects: usize,
    /// Actors that the other node knows from this one.
    pub exported_actors: usize,
    /// Actors that this node knows from the other one.
    pub imported_actors: usize,
    /// Actors that live here for the other node, or will.
    pub hosted_actors: usize,
    /// Local processes that have no room for a message.
    pub backlogged: usize,
    /// Events of local processes that wait for room on the link.
    pub events: usize,
    /// All tasks and calls that were sent so far.
    pub tickets: u64,
}

/// See the module.
pub struct RemoteNode<N: LocalNode> {
    node: N,
    now: Time,
    outbox: Vec<Frame>,
    next_ticket: u64,
    sent: Map<Ticket, Sent>,
    by_key: Map<(ProcessSlot, TaskKey), Ticket>,
    received: ReceivedTasks<N::Object>,
    /// Tasks that were received when this node had no queue left for them, in order.
    unqueued: VecDeque<(Time, Ticket)>,
    leases: Leases,
    /// What the other node means by its numbers of shapes.
    shapes: BTreeMap<ShapeId, Arc<Shape>>,
    exports: Exports<N::Object>,
    actors: Actors<N>,
    programs: Programs<N>,
    cancels: Cancels,
    backlog: Backlog,
    /// Objects whose values the other side wants, and that were not sent yet.
    values_wanted: VecDeque<ObjectId>,
    /// What local processes want, as far as it was not dealt with yet.
    events: VecDeque<LocalEvent>,
    /// Cells that say nothing.
    cells: Vec<usize>,
    /// Whether the node has said that it ends.
    node_ends: bool,
    planted: Planted<PlantedBug>,
}

impl<N: LocalNode> RemoteNode<N> {
    /// The proxy at the begin of a link. It shows its tasks in so many cells.
    pub fn new(node: N, cells: usize) -> Self {
        Self {
            node,
            now: Time::default(),
            outbox: Vec::new(),
            next_ticket: 0,
            sent: Map::default(),
            by_key: Map::default(),
            received: ReceivedTasks::default(),
            unqueued: VecDeque::new(),
            leases: Leases::default(),
            shapes: BTreeMap::new(),
            exports: Exports::default(),
            actors: Actors::default(),
            programs: Programs::default(),
            cancels: Cancels::default(),
            backlog: Backlog::default(),
            values_wanted: VecDeque::new(),
            events: VecDeque::new(),
            cells: (0..cells).collect(),
            node_ends: false,
            planted: Planted::default(),
        }
    }

    /// From now on the proxy has this bug, in builds with debug assertions.
    pub fn plant(&mut self, bug: PlantedBug) {
        self.planted.plant(Some(bug));
    }

    fn has_bug(&self, bug: PlantedBug) -> bool {
        self.planted.has(bug)
    }

    /// The port.
    pub fn local(&self) -> &N {
        &self.node
    }

    /// The frames to be sent, in order. The shell takes them after each input.
    pub fn outbox(&mut self) -> &mut Vec<Frame> {
        &mut self.outbox
    }

    /// Local processes want something; it is dealt with when the link has room.
    pub fn add_events(&mut self, events: impl IntoIterator<Item = LocalEvent>) {
        self.events.extend(events);
    }

    /// The link has room: does a part of what waits for it. Gives whether there was any.
    pub fn on_room(&mut self, now: Time) -> bool {
        self.now = now;
        self.send_next_value() || self.send_some()
    }

    /// Does what is due by now; gives whether there was any.
    pub fn on_time(&mut self, now: Time) -> bool {
        self.now = now;
        let mut progress = self.backlog.flush(&self.node, now);
        progress |= self.return_unqueued();
        for held in self.leases.take_expired(now) {
            self.node.tell(ToNode::LeaseReturned { lease: held.lease });
        }
        progress
    }

    /// When [`on_time`](Self::on_time) has something to do, if nothing else happens before. A local process that has no room
    /// for a message does not say when it has: the shell looks again soon while [`has_backlog`](Self::has_backlog).
    pub fn next_wakeup(&self) -> Option<Time> {
        let unqueued = self.unqueued.front().map(|(since, _)| Time(since.0 + UNQUEUED_MICROSECONDS_MAX));
        [unqueued, self.leases.next_wakeup(), self.backlog.next_wakeup()].into_iter().flatten().min()
    }

    /// Whether a local process had no room for a message.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether the node has said that it ends.
    pub fn node_ends(&self) -> bool {
        self.node_ends
    }

    /// Shapes of which another task could be sent.
    pub fn idle_shapes(&self) -> Vec<ShapeId> {
        self.leases.idle_shapes().collect()
    }

    /// What keeps an object that the other node knows.
    pub fn exported(&self, object: ObjectId) -> Option<&N::Object> {
        self.exports.get(object)
    }

    /// How much there is to do, and held.
    pub fn counts(&self) -> RemoteNodeCounts {
        RemoteNodeCounts {
            sent: self.sent.len(),
            received: self.received.len(),
            unqueued: self.unqueued.len(),
            awaiting_programs: self.programs.waiting(),
            exported_objects: self.exports.len(),
            exported_actors: self.actors.exported(),
            imported_actors: self.actors.imported(),
            hosted_actors: self.actors.hosted(),
            backlogged: self.backlog.processes(),
            events: self.events.len() + self.values_wanted.len(),
            tickets: self.next_ticket,
        }
    }

    /// Does a part of what local processes want sent; gives whether there was any.
    fn send_some(&mut self) -> bool {
        let count = self.events.len().min(EVENTS_AT_ONCE);
        for _ in 0..count {
            let Some(event) = self.events.pop_front() else { break };
            let may_be_long = match &event {
                LocalEvent::Ready { .. } => true,
                LocalEvent::Answer { answer, .. } => matches!(answer, LocalAnswer::Stored(_, true)),
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

    fn send(&mut self, frame: Frame) {
        self.outbox.push(frame);
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Sends a message to a local process, after those before it.
    fn post(&mut self, to: ProcessSlot, message: Message, payload: Vec<u8>, about: About) {
        self.backlog.post(&self.node, to, message, payload, about);
    }

    /// Tells the node of an actor, after all that it has answered.
    fn tell_of_actor(&mut self, actor: ActorId, message: ToNode) {
        self.backlog.tell_of_actor(&self.node, self.now, actor, message);
    }

    /// Ends a task or call of the other side.
    fn cancel(&mut self, key: TaskKey, force: bool, recursive: bool) {
        if let Some((to, message)) = self.node.cancel(key, force, recursive) {
            self.post(to, message, Vec::new(), About::Nothing);
        }
    }

    /// Forgets a task or call that was sent; its lease is free for another, unless the node wants it back.
    fn settle_sent(&mut self, ticket: Ticket) -> Option<Sent> {
        let sent = self.sent.remove(&ticket)?;
        self.forget_key(sent.from, sent.key, ticket);
        if let Some(cell) = sent.cell {
            self.node.clear_cell(cell);
            self.cells.push(cell);
        }
        if let Some(held) = &sent.lease {
            let returned = self.leases.put_used(self.now, held.clone());
            self.return_lease(returned);
        }
        Some(sent)
    }

    fn return_lease(&self, returned: Option<LeaseId>) {
        if let Some(lease) = returned {
            self.node.tell(ToNode::LeaseReturned { lease });
        }
    }

    /// The process of a task died there, and its submitter decides whether it is run again; or the task was returned.
    fn lose(&mut self, sent: &Sent, cause: Option<DeathCause>) {
        if let Some(submitter) = sent.from {
            let (key, attempt) = (sent.key, sent.attempt);
            let lost = ToNode::TaskLost { submitter, key, attempt, cause };
            self.backlog.tell_of_task(&self.node, submitter, lost);
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

    /// The other node is gone, or counts as gone: its tasks end, and what was sent there may be run again elsewhere. The
    /// shell then calls [`on_time`](Self::on_time) while there is a backlog, but not for longer than
    /// [`BACKLOG_MICROSECONDS_MAX`], and at last [`end`](Self::end).
    pub fn on_link_ended(&mut self, now: Time, cause: &DeathCause) {
        self.now = now;
        // Submitters find those with a cell by themselves when they hear of the death, as with any process.
        let is_told = !self.has_bug(PlantedBug::UnseenTasks);
        let unseen = |sent: &Sent| sent.lease.is_some() && sent.cell.is_none() && is_told;
        for sent in std::mem::take(&mut self.sent).into_values().filter(unseen) {
            self.lose(&sent, Some(cause.clone()));
        }
        self.by_key.clear();
        self.leases = Leases::default();
        // The other side has given up what it had sent, too. What is held for it stays until the node knows of the end.
        for key in self.received.iter().map(|(_, received)| received.key).collect::<Vec<_>>() {
            self.cancel(key, true, true);
        }
    }

    /// A process that has not read its answers by now learns that they are lost.
    pub fn end(&mut self, cause: &DeathCause) {
        if !self.has_bug(PlantedBug::LostBacklog) {
            self.backlog.end(&self.node, cause);
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        let leased = self.sent.values().filter(|sent| sent.lease.is_some()).count();
        self.leases.check(leased);
        let cells = self.cells.iter().copied().chain(self.sent.values().filter_map(|sent| sent.cell));
        let distinct: BTreeSet<usize> = cells.clone().collect();
        assert_eq!(distinct.len(), cells.count(), "remote node invariant 4: a cell is used once");
        for ((from, key), ticket) in &self.by_key {
            let sent = self.sent.get(ticket).expect("remote node invariant 5: a key leads to a ticket");
            assert_eq!((sent.from, sent.key), (Some(*from), *key), "remote node invariant 5: {ticket:?}");
        }
        self.received.check();
        self.exports.check();
        self.actors.check();
        self.backlog.check();
    }
}
