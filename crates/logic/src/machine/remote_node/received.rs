//! Tasks and calls that were received, until their last answers.

use super::{LocalNode, Map, PlantedBug, RemoteNode};
use aktis_protocol::peer::{PeerCall, Ticket};
use aktis_protocol::{ActorId, ObjectId, ProcessSlot, TaskId, TaskKey};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// A task or call that was received.
pub(super) struct Received<O> {
    pub(super) key: TaskKey,
    pub(super) task: TaskId,
    /// The actor, if it is a call.
    pub(super) actor: Option<ActorId>,
    returns: u32,
    /// Which return values were given, as long as some were not.
    answered: Vec<u32>,
    pub(super) streams: bool,
    /// The worker that gives the items of a stream.
    pub(super) producer: Option<ProcessSlot>,
    known: KnownReturns<O>,
}

/// Return values, by index, that either side has exported before the other had them.
///
/// The node counts this process as a holder once. If a worker has stored such a value for the proxy, and the proxy
/// released an earlier reference before it heard of that, the value would be freed. So the proxy keeps a reference.
pub(super) type KnownReturns<O> = BTreeMap<u32, O>;

impl<O> Received<O> {
    /// A return value was given; whether it was the last.
    pub(super) fn on_returned(&mut self, index: u32) -> bool {
        let is_last = self.answered.len() as u32 + 1 >= self.returns;
        if !is_last {
            self.answered.push(index);
        }
        is_last
    }

    /// The return values that were not given.
    pub(super) fn unanswered(&self) -> Vec<ObjectId> {
        let answered: BTreeSet<u32> = self.answered.iter().copied().collect();
        let missing = (0..self.returns).filter(|index| !answered.contains(index));
        missing.map(|index| self.task.returns(index)).collect()
    }
}

/// All that were received.
pub(super) struct ReceivedTasks<O> {
    by_ticket: Map<Ticket, Received<O>>,
    by_task: Map<TaskId, Ticket>,
}

impl<O> Default for ReceivedTasks<O> {
    fn default() -> Self {
        Self { by_ticket: Map::default(), by_task: Map::default() }
    }
}

impl<O> ReceivedTasks<O> {
    pub(super) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    /// Panics if a task leads to no ticket, or to one of another task.
    pub(super) fn check(&self) {
        for (task, ticket) in &self.by_task {
            let received = self.by_ticket.get(ticket).map(|received| received.task);
            assert_eq!(received, Some(*task), "remote node invariant 2: {ticket:?}");
        }
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Received<O>> {
        self.by_ticket.get(&ticket)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Received<O>> {
        self.by_ticket.get_mut(&ticket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &Received<O>)> {
        self.by_ticket.iter().map(|(ticket, received)| (*ticket, received))
    }

    /// The one that returns this object.
    fn maker_of(&mut self, object: ObjectId) -> Option<&mut Received<O>> {
        let ticket = self.by_task.get(&object.task())?;
        self.by_ticket
            .get_mut(ticket)
            .filter(|received| !received.streams && object.index() < received.returns)
    }

    fn insert(&mut self, ticket: Ticket, received: Received<O>) {
        self.by_task.insert(received.task, ticket);
        self.by_ticket.insert(ticket, received);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Received<O>> {
        let received = self.by_ticket.remove(&ticket)?;
        // It may have been received again.
        if self.by_task.get(&received.task) == Some(&ticket) {
            self.by_task.remove(&received.task);
        }
        Some(received)
    }

    /// Takes all calls of an actor.
    pub(super) fn remove_calls(&mut self, actor: ActorId) -> Vec<Received<O>> {
        let calls = self.iter().filter(|(_, received)| received.actor == Some(actor));
        let tickets: Vec<Ticket> = calls.map(|(ticket, _)| ticket).collect();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }
}

impl<N: LocalNode> RemoteNode<N> {
    /// The return values of a task or call that were exported already. To be asked before it can run. Items of a stream are
    /// not exported before they are given.
    pub(super) fn known_returns(&self, call: &PeerCall) -> KnownReturns<N::Object> {
        if call.stream_ahead > 0 || self.has_bug(PlantedBug::UnheldReturns) {
            return KnownReturns::new();
        }
        let known = |index| Some((index, self.node.held(call.task.returns(index))?));
        (0..call.returns).filter_map(known).collect()
    }

    pub(super) fn add_received(
        &mut self,
        ticket: Ticket,
        key: TaskKey,
        actor: Option<ActorId>,
        call: &PeerCall,
        known: KnownReturns<N::Object>,
    ) {
        let (task, returns, streams) = (call.task, call.returns.max(1), call.stream_ahead > 0);
        let (answered, producer) = (Vec::new(), None);
        let received = Received { key, task, actor, returns, answered, streams, producer, known };
        self.received.insert(ticket, received);
    }

    /// An object was exported by either side: if a received task returns it, this process holds it until then.
    pub(super) fn keep_exported_return(&mut self, object: ObjectId) {
        if self.has_bug(PlantedBug::UnheldReturns) {
            return;
        }
        if let Some(received) = self.received.maker_of(object) {
            received.known.entry(object.index()).or_insert_with(|| self.node.hold(object));
        }
    }
}
