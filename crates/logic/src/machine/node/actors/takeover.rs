//! Detached actors outlive the node that owns them: the node that they live on is their successor.
//!
//! When the link between the two ends, the successor keeps the actor, and the owner counts it as lost. Which of them decides
//! about it from then on is a matter of the membership that the owner had: if that is over, the successor; if there is a link
//! again before, the owner. Both learn the same, in whichever order they learn it.

use super::super::{Node, NodeEffect};
use super::lifecycle::{found, name_taken};
use super::record::{Actor, Life, Ownership};
use crate::{Effects, Time};
use aktis_protocol::actors::{FoundActor, Takeover};
use aktis_protocol::control::FromNode;
use aktis_protocol::{ActorId, Failure, FailureKind, NodeId, ProcessSlot};

impl Actor {
    /// What another node needs to own the actor one day, if that is to be.
    pub(super) fn takeover(&self) -> Option<Takeover> {
        self.spec.detached.then(|| Takeover {
            name: self.spec.name.clone(),
            restarts_max: self.spec.restarts_max,
            restarts_left: self.restarts_left,
            strategy: self.spec.strategy.clone(),
        })
    }
}

impl Node {
    /// There is no link any more to the node that a process stands for, if it does. Detached actors that live here for it go
    /// on, and so may those that live there.
    pub(in super::super) fn part_actors(&mut self, peer: ProcessSlot) {
        let Some(node) = self.process_table.node_of(peer) else { return };
        let detached = |known: &&mut Actor| known.ownership == Ownership::Own && known.spec.detached;
        for known in self.actors.table.values_mut().filter(detached) {
            if known.host() == Some(peer) {
                known.successor = Some(node);
            }
        }
        for actor in self.actors.hosted_for(peer) {
            let known = self.actors.table.get_mut(&actor).expect("the actor is known");
            let ends = matches!(known.life, Life::Ending { .. } | Life::Dead(_));
            let Some(takeover) = known.spec.takeover.as_ref().filter(|_| !ends) else { continue };
            known.restarts_left = takeover.restarts_left;
            known.spec.restarts_max = takeover.restarts_max;
            known.spec.detached = true;
            known.ownership = Ownership::Orphaned(node);
        }
    }

    // On the node that the actor lives on.

    pub(in super::super) fn on_node_left(&mut self, now: Time, node: NodeId, out: &mut Effects<NodeEffect>) {
        for actor in self.actors.orphans_of(node) {
            self.inherit(now, actor, out);
        }
        self.forget_successor(node);
        self.serve(now, out);
    }

    /// The actor is owned by this node from now on.
    fn inherit(&mut self, now: Time, actor: ActorId, out: &mut Effects<NodeEffect>) {
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        known.ownership = Ownership::Own;
        let Some(takeover) = known.spec.takeover.take().filter(|_| !known.is_gone()) else { return };
        (known.spec.strategy, known.inherited) = (takeover.strategy, true);
        if let Some(name) = takeover.name {
            if !self.has_yielded(now, &name, out) {
                return self.kill_actor(now, actor, false, name_taken(&name), out);
            }
            let known = self.actors.table.get_mut(&actor).expect("the actor is known");
            known.spec.name = Some(name.clone());
            let found = found(&known.spec);
            self.claim_name(&name, found, out);
            self.actors.names.insert(name, actor);
        }
        // Others may know it from the node that has left.
        for peer in self.process_table.live().filter(|&process| self.is_peer(process)).collect::<Vec<_>>() {
            self.send(peer, FromNode::ActorInherited { actor }, out);
        }
    }

    /// There is a link to another node. It may know actors from a node that has left, or have had them as their owner before
    /// it was cut off.
    pub(in super::super) fn tell_inherited(&mut self, peer: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let is_own = |known: &Actor| known.inherited && known.ownership == Ownership::Own && !known.is_gone();
        let inherited = self.actors.table.iter().filter(|(_, known)| is_own(known)).map(|(actor, _)| *actor);
        for actor in inherited.collect::<Vec<_>>() {
            self.send(peer, FromNode::ActorInherited { actor }, out);
        }
    }

    /// Whether no other actor of this node has the name. One that waits for it came later, and will not get it.
    fn has_yielded(&mut self, now: Time, name: &str, out: &mut Effects<NodeEffect>) -> bool {
        let Some(&other) = self.actors.names.get(name) else { return true };
        if !self.names.is_unanswered(name) {
            return false;
        }
        self.kill_actor(now, other, false, name_taken(name), out);
        self.free_names(out);
        true
    }

    /// The other node has counted as lost what lived here for it.
    pub(in super::super) fn on_node_back(&mut self, now: Time, node: NodeId, out: &mut Effects<NodeEffect>) {
        for actor in self.actors.orphans_of(node) {
            let why = "the node that had it started could not reach it, and has given it up";
            self.on_owner_lost(now, actor, why, out);
        }
        self.forget_successor(node);
        self.serve(now, out);
    }

    // On the node that owns the actor.

    /// The cluster keeps the name of a detached actor for the node that it lives on.
    pub(super) fn tell_abroad(&mut self, actor: ActorId, host: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let abroad = self.is_peer(host);
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        let Some(name) = known.spec.name.clone().filter(|_| known.spec.detached) else { return };
        if std::mem::replace(&mut known.abroad, abroad) != abroad
            && self.actors.names.get(&name) == Some(&actor)
        {
            let found = FoundActor { abroad, ..found(&known.spec) };
            out.push(NodeEffect::ClaimName { name, found });
        }
    }

    /// What was lost with a node does not live there any more, or that has left the cluster itself.
    fn forget_successor(&mut self, node: NodeId) {
        for known in self.actors.table.values_mut().filter(|known| known.successor == Some(node)) {
            known.successor = None;
        }
    }

    /// This node has left the cluster without knowing it: its detached actors that live on other nodes are theirs.
    pub(in super::super) fn on_expelled(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let may_be_taken_over = |known: &Actor| {
            let elsewhere = known.host().is_some_and(|host| self.is_peer(host));
            known.ownership == Ownership::Own
                && known.spec.detached
                && (elsewhere || known.successor.is_some())
        };
        let theirs =
            self.actors.table.iter().filter(|(_, known)| may_be_taken_over(known)).map(|(&actor, _)| actor);
        for actor in theirs.collect::<Vec<_>>() {
            let known = self.actors.table.get_mut(&actor).expect("the actor is known");
            (known.ownership, known.successor) = (Ownership::Lost, None);
            let elsewhere = known.host().is_some_and(|host| self.process_table.is_peer(host));
            let text = "this node was taken for dead: the actor is owned by the node that it lived on";
            let failure = Failure::new(FailureKind::ActorDied, text);
            match elsewhere {
                true => {
                    self.vacate(actor);
                    self.on_gone(now, actor, failure, out);
                }
                false => self.kill_actor(now, actor, false, failure, out),
            }
        }
        self.serve(now, out);
    }

    // On others that know it.

    /// Another node owns an actor that was owned by one that has left.
    pub(in super::super) fn on_actor_inherited(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.proxy_for(actor).is_some_and(|peer| peer != from) {
            self.release_imports(actor, out);
        }
        let known = self.actors.table.get_mut(&actor).filter(|known| match known.ownership {
            Ownership::AtPeer(_) => true,
            Ownership::Lost => matches!(known.life, Life::Dead(_)),
            Ownership::Own | Ownership::ForPeer(_) | Ownership::Orphaned(_) => false,
        });
        match known {
            Some(known) => {
                known.live_at(from);
                known.named += 1;
                self.tell(actor, out);
            }
            None => self.send(from, FromNode::ActorKnown { actor }, out),
        }
    }
}
