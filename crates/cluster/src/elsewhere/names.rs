//! Names of actors: claimed and sought at the control process.

use super::Elsewhere;
use crate::host::NodeHost;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::control::{FoundActor, RequestId};
use aktis_protocol::member::{NamedActor, ToControl};
use aktis_protocol::{ActorId, NodeId, ProcessSlot};
use std::collections::{BTreeMap, HashMap};

/// Names that one answer holds at most.
const NAMES_MAX: usize = 10_000;

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    /// The actors in this node's care that have names.
    own: BTreeMap<String, FoundActor>,
    /// Who asked what, by the number under which the control process was asked.
    asked: HashMap<RequestId, (ProcessSlot, RequestId)>,
    next: RequestId,
}

/// Somebody who asked for a name, and gets an answer in any case: when this goes.
struct Asker {
    host: NodeHost,
    to: ProcessSlot,
    request: RequestId,
    found: Option<(ProcessSlot, FoundActor)>,
}

impl Asker {
    fn answer(mut self, peer: ProcessSlot, found: FoundActor) {
        self.found = Some((peer, found));
    }
}

impl Drop for Asker {
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
        self.names.lock().own.iter().map(named).collect()
    }

    pub(super) fn claim_name(&self, name: String, found: FoundActor) {
        let actor = found.actor;
        self.names.lock().own.insert(name.clone(), found.clone());
        let claim = ToControl::NameClaimed { actor: NamedActor { name: name.clone(), found } };
        if !self.say(&claim) {
            // It is claimed again when the control process is back; until then nobody else can have it either.
            self.host.feed(NodeInput::NameClaimed { name, actor, granted: true });
        }
    }

    pub(super) fn free_name(&self, name: String, actor: ActorId) {
        let mut names = self.names.lock();
        if names.own.get(&name).is_some_and(|found| found.actor == actor) {
            names.own.remove(&name);
        }
        drop(names);
        self.say(&ToControl::NameFreed { name, actor });
    }

    pub(super) fn seek_name(&self, to: ProcessSlot, request: RequestId, name: String) {
        let number = self.note_question(to, request);
        if !self.say(&ToControl::NameWanted { request: number, name }) {
            self.on_name_found(number, None);
        }
    }

    pub(super) fn seek_names(&self, to: ProcessSlot, request: RequestId) {
        let number = self.note_question(to, request);
        if !self.say(&ToControl::NamesWanted { request: number }) {
            let own = self.names.lock().own.keys().cloned().collect();
            self.on_names(number, own);
        }
    }

    fn note_question(&self, to: ProcessSlot, request: RequestId) -> RequestId {
        let mut names = self.names.lock();
        names.next = names.next.wrapping_add(1);
        let number = names.next;
        names.asked.insert(number, (to, request));
        number
    }

    pub(crate) fn on_name_claimed(&self, name: String, actor: ActorId, granted: bool) {
        if !granted {
            self.names.lock().own.remove(&name);
        }
        self.host.feed(NodeInput::NameClaimed { name, actor, granted });
    }

    pub(crate) fn on_name_found(&self, number: RequestId, found: Option<(NodeId, FoundActor)>) {
        let Some((to, request)) = self.names.lock().asked.remove(&number) else { return };
        let asker = Asker { host: self.host.clone(), to, request, found: None };
        let Some((node, found)) = found.filter(|(node, _)| *node != self.me) else { return };
        let Some(peer) = self.neighbours.slot_of(node) else { return };
        let actor = found.actor;
        let then = move || asker.answer(peer, found);
        self.neighbours.seek_actor(node, actor, Box::new(then));
    }

    pub(crate) fn on_names(&self, number: RequestId, mut names: Vec<String>) {
        let Some((to, request)) = self.names.lock().asked.remove(&number) else { return };
        let left_out = names.len().saturating_sub(NAMES_MAX) as u32;
        names.truncate(NAMES_MAX);
        self.host.feed(NodeInput::NamesFound { to, request, names, left_out });
    }

    /// The control process is away: nobody will answer.
    pub(super) fn forget_questions(&self) {
        let asked: Vec<_> = self.names.lock().asked.drain().map(|(_, asked)| asked).collect();
        for (to, request) in asked {
            self.host.feed(NodeInput::NameFound { to, request, found: None });
        }
    }
}
