//! Actors that two nodes know: one owns each, and decides about it; to the other it is known by its handles,
//! or lives there for the first.
//!
//! Invariant: whoever holds an actor that is owned by another node is told by that node what becomes of it.

use super::super::{Node, NodeEffect};
use super::handles::KILLED;
use super::record::{Life, Ownership, light_spec};
use crate::ledger::Allocation;
use crate::{Effects, Time};
use aktis_protocol::actors::{ActorPlace, Away};
use aktis_protocol::control::FromNode;
use aktis_protocol::{ActorId, Failure, FailureKind, ProcessSlot, ProgramId};

impl Node {
    /// The process through which an actor is reached that is owned by another node, and does not live here.
    pub(super) fn proxy_for(&self, actor: ActorId) -> Option<ProcessSlot> {
        match self.actors.table.get(&actor)?.ownership {
            Ownership::AtPeer(peer) => Some(peer),
            Ownership::Own | Ownership::ForPeer(_) | Ownership::Orphaned(_) | Ownership::Lost => None,
        }
    }

    /// An actor that lived here for another node is known by its handles only, until that node says more. Calls without an
    /// answer may have begun, unless the actor has moved.
    pub(in super::super) fn hand_back(
        &mut self,
        now: Time,
        actor: ActorId,
        why: String,
        is_moved: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        self.actors.free_name(actor);
        self.forget_place(actor);
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        let Ownership::ForPeer(peer) = known.ownership else {
            let failure = Failure::new(FailureKind::ActorDied, why);
            return self.on_gone(now, actor, failure, out);
        };
        (known.ownership, known.named) = (Ownership::AtPeer(peer), 0);
        known.life = Life::Alive { host: peer, allocation: Allocation::default() };
        known.spec = light_spec(actor, ProgramId::default());
        known.away = Some(why.clone());
        let others: Vec<_> = known.holders.iter().copied().filter(|&holder| holder != peer).collect();
        if !others.is_empty() || known.containers > 0 {
            self.send(peer, FromNode::ActorWanted { actor }, out);
        }
        let place = if is_moved { ActorPlace::Moved(why) } else { ActorPlace::Pending(why) };
        for holder in others {
            self.send(holder, FromNode::ActorChanged { actor, place: place.clone() }, out);
        }
        self.end_if_unreachable(now, actor, out);
    }

    /// The node that owned an actor which lives here is gone; if it is not, it starts it again elsewhere.
    pub(super) fn on_owner_lost(
        &mut self,
        now: Time,
        actor: ActorId,
        why: &str,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        known.ownership = Ownership::Lost;
        let failure = Failure::new(FailureKind::ActorDied, why);
        self.kill_actor(now, actor, false, failure, out);
    }

    /// A process that stood for another node is dead: its actors now have no owner.
    pub(super) fn lose_owner(&mut self, dead: ProcessSlot) {
        for known in self.actors.table.values_mut().filter(|known| known.ownership == Ownership::AtPeer(dead))
        {
            known.ownership = Ownership::Lost;
        }
    }

    pub(in super::super) fn on_actor_away(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        away: Away,
        out: &mut Effects<NodeEffect>,
    ) {
        self.set_away(from, actor, Some(away), out);
    }

    pub(in super::super) fn on_actor_back(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        self.set_away(from, actor, None, out);
    }

    /// An actor owned by another node was killed from here, and may live again: what is called after that is not for
    /// the life that ends, and waits until that node says more.
    pub(super) fn suspend(&mut self, actor: ActorId, owner: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        if let Life::Alive { .. } = known.life {
            known.away = Some(KILLED.into());
            let others = known.holders.iter().copied().filter(|&holder| holder != owner);
            others.collect::<Vec<_>>().into_iter().for_each(|holder| self.tell_one(actor, holder, out));
        }
    }

    fn set_away(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        away: Option<Away>,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.proxy_for(actor) == Some(from)
            && let Some(known) = self.actors.table.get_mut(&actor)
        {
            let is_moved = away.as_ref().is_some_and(|away| away.is_moved);
            known.away = away.map(|away| away.reason);
            match is_moved {
                true => self.tell_moved(actor, out),
                false => self.tell(actor, out),
            }
        }
    }
}
