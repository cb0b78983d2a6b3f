//! Other nodes. Each that this node talks to is a process here: it takes leases and runs tasks, hosts actors, holds
//! objects, and promises the values of others.
//!
//! Invariants:
//! 1. An import belongs to a live process that stands for another node, and its object is known.
//! 2. No node promises an object that is in the store here, or that it knows from here, by whatever way: if two kept it
//!    for each other, neither would let go, and if they asked each other, neither would answer.

use super::{Node, NodeEffect};
use crate::directory::Value;
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, RequestId, SharedValue};
use aktis_protocol::{ActorId, DeathCause, Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::{BTreeMap, BTreeSet};

/// An object whose value another node can say.
#[derive(Clone, Copy, Debug)]
struct Import {
    peer: ProcessSlot,
    /// Whether its value was asked for.
    asked: bool,
    /// How often it was named.
    named: u64,
}

/// What a process that stands for another node says of an object in the store there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Imported {
    pub(super) object: ObjectId,
    pub(super) bytes: u64,
    pub(super) holder: ProcessSlot,
    pub(super) named: bool,
}

/// What is known of other nodes.
#[derive(Debug, Default)]
pub(super) struct Peers {
    imports: BTreeMap<ObjectId, Import>,
}

impl Peers {
    /// Nobody here can ask for the object any more: gives the process that promised it, and how often it was named.
    pub(super) fn forget_object(&mut self, object: ObjectId) -> Option<(ProcessSlot, u64)> {
        self.imports.remove(&object).map(|import| (import.peer, import.named))
    }

    /// The process that has named the object, if one has.
    pub(super) fn namer(&self, object: ObjectId) -> Option<ProcessSlot> {
        self.imports.get(&object).map(|import| import.peer)
    }

    /// The objects that a process has named.
    pub(super) fn named_by(&self, peer: ProcessSlot) -> Vec<ObjectId> {
        let named = self.imports.iter().filter(|(_, import)| import.peer == peer);
        named.map(|(object, _)| *object).collect()
    }

    /// The one who has named the object is asked for its value, perhaps once more.
    pub(super) fn ask_again(&mut self, object: ObjectId) {
        if let Some(import) = self.imports.get_mut(&object) {
            import.asked = true;
        }
    }

    pub(super) fn forget_process(&mut self, dead: ProcessSlot) {
        self.imports.retain(|_, import| import.peer != dead);
    }
}

impl Node {
    pub(super) fn is_peer(&self, process: ProcessSlot) -> bool {
        self.process_table.is_peer(process)
    }

    pub(super) fn on_promised(
        &mut self,
        from: ProcessSlot,
        object: ObjectId,
        holder: ProcessSlot,
        found: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        let is_news = self.is_news(from, object);
        if self.process_table.is_live(holder) {
            self.directory.hold(object, holder);
        }
        if let Some(import) = self.peers.imports.get_mut(&object).filter(|import| import.peer == from) {
            import.named += 1;
            return;
        }
        // An object of this node that comes back must not be kept by the other: each would wait for the other to let go.
        self.note_stored_value(object, out);
        let is_wanted = self.directory.knows(object) && (is_news || found);
        if !is_wanted || !self.directory.promise(object, from) {
            // Somebody else says its value, or nobody wants it.
            return self.send(from, FromNode::Freed { object, count: 1 }, out);
        }
        self.orphans.remove(&object);
        self.losses.end_search(object);
        let asked = self.directory.is_awaited(object);
        self.peers.imports.insert(object, Import { peer: from, asked, named: 1 });
        if asked {
            self.send(from, FromNode::ValueWanted { object }, out);
        }
    }

    /// Whether nobody here has known the object before, so that its namer is a source for it. For who has known it, and
    /// lost its source, a namer may depend on this very node, by whatever way: that is asked who has the value itself.
    fn is_news(&self, from: ProcessSlot, object: ObjectId) -> bool {
        let unsaid = match self.directory.value(object) {
            Some(value) => *value == Value::Pending { owner: None },
            None => true,
        };
        let knew_it = self.directory.holders(object).any(|holder| holder == from);
        unsaid && !knew_it && !self.orphans.contains_key(&object)
    }

    pub(super) fn on_imported(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        import: Imported,
        out: &mut Effects<NodeEffect>,
    ) {
        let Imported { object, bytes, holder, named } = import;
        let turn_down = |node: &Self, out: &mut Effects<NodeEffect>| {
            if named {
                node.send(from, FromNode::Freed { object, count: 1 }, out);
            }
        };
        if !self.process_table.is_live(holder) {
            // The one who wanted it died meanwhile.
            let failure = Failure::new(FailureKind::Lost, "nobody wants it any more");
            self.send(from, FromNode::ImportedAs { request, entry: Err(failure) }, out);
            return turn_down(self, out);
        }
        let entry = self.memory.on_imported(from, object, bytes, out);
        self.send(from, FromNode::ImportedAs { request, entry: entry.clone() }, out);
        let Ok(entry) = entry else { return turn_down(self, out) };
        match holder == from {
            true => self.directory.hold(object, holder),
            false => self.directory.hold_as_maker(object, holder),
        }
        self.orphans.remove(&object);
        self.losses.end_search(object);
        if self.memory.is_with(entry, from) {
            self.note_import(from, object, named, out);
        } else {
            // Its value is here, or with somebody else.
            turn_down(self, out);
        }
    }

    /// The value of an object is with this node, and nowhere nearer. One that had named it before has lost it.
    fn note_import(
        &mut self,
        from: ProcessSlot,
        object: ObjectId,
        named: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        if let Some(other) = self.peers.imports.get(&object).filter(|import| import.peer != from) {
            let (peer, count) = (other.peer, other.named);
            self.peers.imports.remove(&object);
            self.send(peer, FromNode::Freed { object, count }, out);
        }
        let new = Import { peer: from, asked: true, named: 0 };
        self.peers.imports.entry(object).or_insert(new).named += u64::from(named);
    }

    /// The value of an object is made here: the node that had named it need not keep it for this one. It may be the one
    /// for which it is made, and each would keep it for the other.
    pub(super) fn let_go_of_namer(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let Some((peer, count)) = self.peers.forget_object(object) else { return };
        self.send(peer, FromNode::Freed { object, count }, out);
        if self.directory.value(object) == Some(&Value::Pending { owner: Some(peer) }) {
            self.directory.disown(object);
            self.note_stored_value(object, out);
        }
    }

    pub(super) fn on_lookup_wanted(
        &mut self,
        now: Time,
        from: ProcessSlot,
        request: RequestId,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        // It seeks it: so it has it no more.
        if let Some((object, failure)) = self.memory.lose_at(now, from, object, out) {
            self.on_value_lost(now, object, failure, out);
        }
        self.note_stored_value(object, out);
        // A process of this node can have it made again.
        let is_made_here = self.directory.maker(object).is_some_and(|maker| !self.is_peer(maker));
        let known = match self.directory.value(object) {
            // Who would have to ask yet another node might ask in a circle.
            Some(Value::Pending { owner }) => owner.is_some_and(|owner| !self.is_peer(owner)),
            Some(Value::Known(SharedValue::Stored { .. })) => is_made_here || self.memory.has(object),
            Some(Value::Known(_)) => is_made_here || !self.directory.is_lost(object),
            None => false,
        };
        if known {
            self.directory.hold(object, from);
            self.note_abroad(object, from, out);
            // It gets it from here: if it had named it, this node does not get it from there any more.
            if self.peers.namer(object) == Some(from) {
                self.let_go_of_namer(object, out);
            }
        }
        self.send(from, FromNode::LookedUp { request, known }, out);
    }

    /// The process that stands for the node which is to say the value of an object, or has it.
    pub(super) fn origin_of(&self, object: ObjectId) -> Option<ProcessSlot> {
        match self.directory.value(object) {
            Some(Value::Pending { owner: Some(owner) }) => Some(*owner).filter(|owner| self.is_peer(*owner)),
            Some(_) if self.directory.is_lost(object) && self.directory.maker(object).is_none() => {
                self.peers.namer(object)
            }
            Some(_) => self.memory.is_only_with(object),
            None => None,
        }
    }

    /// Somebody waits for a value: the node that has promised it is asked for it, once.
    pub(super) fn ask_namer(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let Some(import) = self.peers.imports.get_mut(&object) else { return };
        if self.directory.value(object) == Some(&Value::Pending { owner: Some(import.peer) }) {
            let (peer, asked) = (import.peer, std::mem::replace(&mut import.asked, true));
            if !asked {
                self.send(peer, FromNode::ValueWanted { object }, out);
            }
        }
    }

    /// Nobody here knows who can say a value: all other nodes are asked. Gives them.
    pub(super) fn ask_others(
        &self,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) -> BTreeSet<ProcessSlot> {
        let peers: BTreeSet<_> = self.process_table.live().filter(|&process| self.is_peer(process)).collect();
        for &peer in &peers {
            self.send(peer, FromNode::Sought { object }, out);
        }
        peers
    }

    /// A process that stands for another node is about to end, and lets go of all that it held here.
    pub(super) fn on_node_gone(&mut self, now: Time, peer: ProcessSlot) {
        self.linger(now, peer);
        self.part_actors(peer);
    }

    pub(super) fn on_actor_lost(
        &mut self,
        now: Time,
        from: ProcessSlot,
        actor: ActorId,
        incarnation: u32,
        cause: Option<&DeathCause>,
        out: &mut Effects<NodeEffect>,
    ) {
        let known = self.actors.table.get(&actor);
        if known.is_some_and(|known| known.host() == Some(from) && known.incarnation == incarnation) {
            if !self.is_peer(from) {
                return self.on_moved_out(now, from, actor, out);
            }
            match cause {
                Some(cause) => self.on_life_lost(now, actor, cause, out),
                None => self.on_handed_back(now, actor, out),
            }
            self.serve(now, out);
        }
    }

    pub(super) fn check_peers(&self) {
        for (object, import) in &self.peers.imports {
            assert!(
                self.process_table.is_live(import.peer),
                "peers invariant 1: {object} of {}",
                import.peer
            );
            assert!(self.directory.knows(*object), "peers invariant 1: {object} is unknown");
        }
    }
}
