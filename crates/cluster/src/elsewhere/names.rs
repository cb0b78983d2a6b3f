//! Names of actors: claimed and sought at the control process.

use super::Elsewhere;
use super::questions::Asker;
use crate::host::NodeHost;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::control::RequestId;
use aktis_protocol::member::{NamedActor, ToControl};
use aktis_protocol::{ActorId, NodeId, ProcessSlot};
use std::collections::BTreeMap;

/// Names that one answer holds at most.
const NAMES_MAX: usize = 10_000;

/// The actors in this node's care that have names.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, FoundActor>);

/// Somebody who asked for a name, and gets an answer in any case: when this goes.
struct Seeker {
    host: NodeHost,
    to: ProcessSlot,
    request: RequestId,
    found: Option<(ProcessSlot, FoundActor)>,
}

impl Seeker {
    fn answer(mut self, peer: ProcessSlot, found: FoundActor) {
        self.found = Some((peer, found));
    }
}

impl Drop for Seeker {
    fn drop(&mut self) {
        let (to, request, found) = (self.to, self.request, self.found.take());
        self.host.feed(NodeInput::NameFound { to, request, found });
    }
}

impl Elsewhere {
    /// The actors with names that live in this node's care.
    pub(crate) fn named(&self) -> Vec<NamedActor> {
        let named =
            |(name, found): (&String, &FoundActor)| NamedActor { name: name.clone(), found: found.clone() };
        self.names.lock().0.iter().map(named).collect()
    }

    /// Claims a name. If the control process is away, it is claimed when that is back; until then nobody knows whose it is.
    pub(super) fn claim_name(&self, name: String, found: FoundActor) {
        self.names.lock().0.insert(name.clone(), found.clone());
        self.say(&ToControl::NameClaimed { actor: NamedActor { name, found } });
    }

    pub(super) fn free_name(&self, name: String, actor: ActorId) {
        let mut names = self.names.lock();
        if names.0.get(&name).is_some_and(|found| found.actor == actor) {
            names.0.remove(&name);
        }
        drop(names);
        self.say(&ToControl::NameFreed { name, actor });
    }

    pub(crate) fn on_name_claimed(&self, name: String, actor: ActorId, granted: bool) {
        let mut names = self.names.lock();
        if !granted && names.0.get(&name).is_some_and(|found| found.actor == actor) {
            names.0.remove(&name);
        }
        drop(names);
        self.host.feed(NodeInput::NameClaimed { name, actor, granted });
    }

    /// The control process has said which actor has a name, or nobody has.
    pub(super) fn on_name_found(&self, asker: &Asker, found: Option<(NodeId, FoundActor)>) {
        let seeker = Seeker { host: self.host.clone(), to: asker.to, request: asker.request, found: None };
        let Some((node, found)) = found.filter(|(node, _)| *node != self.me) else { return };
        let Some(peer) = self.neighbours.slot_of(node) else { return };
        let actor = found.actor;
        let then = move || seeker.answer(peer, found);
        self.neighbours.seek_actor(node, actor, Box::new(then));
    }

    pub(super) fn on_names(&self, asker: &Asker, mut names: Vec<String>) {
        let left_out = names.len().saturating_sub(NAMES_MAX) as u32;
        names.truncate(NAMES_MAX);
        self.host.feed(NodeInput::NamesFound { to: asker.to, request: asker.request, names, left_out });
    }
}
