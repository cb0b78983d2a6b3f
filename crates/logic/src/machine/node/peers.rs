//! Other nodes. Each that this node talks to is a process here: it takes leases and runs tasks, hosts actors, holds
//! objects, and promises the values of others.
//!
//! Invariants:
//! 1. An import belongs to a live process that stands for another node, and its object is known.
//! 2. No node promises an object that is in the store here: if both kept it for the other, neither would let go.

use super::{Node, NodeEffect};
use crate::directory::Value;
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{ActorId, DeathCause, Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::BTreeMap;

/// An object whose value another node can say.
#[derive(Clone, Copy, Debug)]
struct Import {
    peer: ProcessSlot,
    /// Whether its value was asked for.
    asked: bool,
    /// How often it was named.
    named: u64,
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

    pub(super) fn forget_process(&mut self, dead: ProcessSlot) {
        self.imports.retain(|_, import| import.peer != dead);
    }
}

impl Node {
    pub(super) fn is_peer(&self, process: ProcessSlot) -> bool {
        self.roster.is_peer(process)
    }

    pub(super) fn on_promised(
        &mut self,
        from: ProcessSlot,
        object: ObjectId,
        holder: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.roster.is_live(holder) {
            self.directory.hold(object, holder);
        }
        if let Some(import) = self.peers.imports.get_mut(&object).filter(|import| import.peer == from) {
            import.named += 1;
            return;
        }
        // An object of this node that comes back must not be kept by the other: each would wait for the other to let go.
        self.note_stored_value(object, out);
        if !self.directory.knows(object) || !self.directory.promise(object, from) {
            // Somebody else says its value, or nobody wants it.
            return self.send(from, FromNode::Freed { object, count: 1 }, out);
        }
        self.orphans.remove(&object);
        let asked = self.directory.is_awaited(object);
        self.peers.imports.insert(object, Import { peer: from, asked, named: 1 });
        if asked {
            self.send(from, FromNode::ValueWanted { object }, out);
        }
    }

    pub(super) fn on_imported(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        object: ObjectId,
        bytes: u64,
        holder: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.roster.is_live(holder) {
            // The one who wanted it died meanwhile.
            let failure = Failure::new(FailureKind::Lost, "nobody wants it any more");
            self.send(from, FromNode::ImportedAs { request, entry: Err(failure) }, out);
            return self.send(from, FromNode::Freed { object, count: 1 }, out);
        }
        let entry = self.memory.on_imported(from, object, bytes, out);
        let mut refused = entry.is_err();
        if !refused {
            self.directory.hold(object, holder);
            let new = Import { peer: from, asked: true, named: 0 };
            let import = self.peers.imports.entry(object).or_insert(new);
            import.named += u64::from(import.peer == from);
            refused = import.peer != from;
        }
        self.send(from, FromNode::ImportedAs { request, entry }, out);
        if refused {
            self.send(from, FromNode::Freed { object, count: 1 }, out);
        }
    }

    pub(super) fn on_lookup_wanted(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        self.note_stored_value(object, out);
        let known = match self.directory.value(object) {
            Some(Value::Pending { owner }) => owner.is_some_and(|owner| owner != from),
            Some(Value::Known(_)) => true,
            None => !self.memory.copies.readable(object).is_empty(),
        };
        if known {
            self.directory.hold(object, from);
        }
        self.send(from, FromNode::LookedUp { request, known }, out);
    }

    /// Somebody waits for a value: another node is asked for it, if it can say it, or all are, if nobody here knows who
    /// can. Gives whether somebody was asked.
    pub(super) fn ask_peers(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) -> bool {
        if let Some(import) = self.peers.imports.get_mut(&object) {
            let (peer, asked) = (import.peer, std::mem::replace(&mut import.asked, true));
            if !asked {
                self.send(peer, FromNode::ValueWanted { object }, out);
            }
            return true;
        }
        if self.directory.value(object) != Some(&Value::Pending { owner: None }) {
            return false;
        }
        let peers: Vec<_> = self.roster.live().filter(|&process| self.is_peer(process)).collect();
        for &peer in &peers {
            self.send(peer, FromNode::Sought { object }, out);
        }
        !peers.is_empty()
    }

    pub(super) fn on_actor_lost(
        &mut self,
        now: Time,
        from: ProcessSlot,
        actor: ActorId,
        incarnation: u32,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        let known = self.actors.table.get(&actor);
        if known.is_some_and(|known| known.host() == Some(from) && known.incarnation == incarnation) {
            self.on_life_lost(now, actor, cause, out);
            self.serve(now, out);
        }
    }

    pub(super) fn check_peers(&self) {
        for (object, import) in &self.peers.imports {
            assert!(self.roster.is_live(import.peer), "peers invariant 1: {object} of {}", import.peer);
            assert!(self.directory.knows(*object), "peers invariant 1: {object} is unknown");
        }
    }
}
