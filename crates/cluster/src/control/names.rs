//! Names of actors, for the whole cluster.

use aktis_protocol::control::FoundActor;
use aktis_protocol::member::NamedActor;
use aktis_protocol::{ActorId, NodeId};
use std::collections::BTreeMap;

/// Which actor has which name, and in whose care it lives.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, (NodeId, FoundActor)>);

impl Names {
    /// An actor is to have a name; false if another has it.
    pub(super) fn claim(&mut self, node: NodeId, actor: NamedActor) -> bool {
        let (_, found) = self.0.entry(actor.name).or_insert_with(|| (node, actor.found.clone()));
        found.actor == actor.found.actor
    }

    pub(super) fn free(&mut self, name: &str, actor: ActorId) {
        if self.0.get(name).is_some_and(|(_, found)| found.actor == actor) {
            self.0.remove(name);
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<(NodeId, FoundActor)> {
        self.0.get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// A node is gone, and the actors in its care with it.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.0.retain(|_, (home, _)| *home != node);
    }
}
