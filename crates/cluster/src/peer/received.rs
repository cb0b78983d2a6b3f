//! Tasks and calls that were received, until their last answers.

use super::Peer;
use aktis_protocol::peer::{PeerCall, Ticket};
use aktis_protocol::{ActorId, ObjectId, ProcessSlot, TaskId, TaskKey};
use aktis_runtime::Handle;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A task or call that was received.
pub(super) struct Received {
    pub(super) key: TaskKey,
    pub(super) task: TaskId,
    /// Whose call it is, if it is one.
    pub(super) actor: Option<ActorId>,
    returns: u32,
    /// Which return values were given, as long as some were not.
    answered: Vec<u32>,
    pub(super) streams: bool,
    /// Who gives the items of a stream.
    pub(super) producer: Option<ProcessSlot>,
    named: NamedReturns,
}

/// Return values, by index, that either side has named before the other had them.
///
/// The node counts this process as a holder once. When a worker has stored such a value for it, and it lets go of the
/// value by the other name before it hears of that, the value is gone. So it does not let go of it.
pub(super) type NamedReturns = BTreeMap<u32, Handle>;

impl Received {
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
        let answered: HashSet<u32> = self.answered.iter().copied().collect();
        let missing = (0..self.returns).filter(|index| !answered.contains(index));
        missing.map(|index| self.task.returns(index)).collect()
    }
}

/// All that were received.
#[derive(Default)]
pub(super) struct ReceivedTasks {
    by_ticket: HashMap<Ticket, Received>,
    by_task: HashMap<TaskId, Ticket>,
}

impl ReceivedTasks {
    pub(super) fn get(&self, ticket: Ticket) -> Option<&Received> {
        self.by_ticket.get(&ticket)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Received> {
        self.by_ticket.get_mut(&ticket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &Received)> {
        self.by_ticket.iter().map(|(ticket, received)| (*ticket, received))
    }

    /// The one that returns this object.
    fn maker_of(&mut self, object: ObjectId) -> Option<&mut Received> {
        let ticket = self.by_task.get(&object.task())?;
        self.by_ticket
            .get_mut(ticket)
            .filter(|received| !received.streams && object.index() < received.returns)
    }

    fn insert(&mut self, ticket: Ticket, received: Received) {
        self.by_task.insert(received.task, ticket);
        self.by_ticket.insert(ticket, received);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Received> {
        let received = self.by_ticket.remove(&ticket)?;
        // It may have been received again.
        if self.by_task.get(&received.task) == Some(&ticket) {
            self.by_task.remove(&received.task);
        }
        Some(received)
    }

    /// Takes all calls of an actor.
    pub(super) fn remove_calls(&mut self, actor: ActorId) -> Vec<Received> {
        let calls = self.iter().filter(|(_, received)| received.actor == Some(actor));
        let tickets: Vec<Ticket> = calls.map(|(ticket, _)| ticket).collect();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }
}

impl Peer {
    /// What a task or call returns that was named already. To be asked before it can run. Items of a stream are not named
    /// before they are given.
    pub(super) fn named_returns(&self, call: &PeerCall) -> NamedReturns {
        if call.stream_ahead > 0 {
            return NamedReturns::new();
        }
        let named = |index| Some((index, self.bridge.handle_of(call.task.returns(index))?));
        (0..call.returns).filter_map(named).collect()
    }

    pub(super) fn note_received(
        &mut self,
        ticket: Ticket,
        key: TaskKey,
        actor: Option<ActorId>,
        call: &PeerCall,
        named: NamedReturns,
    ) {
        let (task, returns, streams) = (call.task, call.returns.max(1), call.stream_ahead > 0);
        let (answered, producer) = (Vec::new(), None);
        let received = Received { key, task, actor, returns, answered, streams, producer, named };
        self.received.insert(ticket, received);
    }

    /// An object was named: if something that was received returns it, this process holds it until then.
    pub(super) fn keep_named_return(&mut self, object: ObjectId) {
        if let Some(received) = self.received.maker_of(object) {
            received.named.entry(object.index()).or_insert_with(|| self.bridge.hold(object));
        }
    }
}
