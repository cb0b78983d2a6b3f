//! Names of actors: claimed and looked up at the control process.

use super::questions::{Asker, QUESTIONS_MAX};
use super::{ControlClient, ControlClientEffect};
use crate::machine::node::NodeInput;
use crate::{Effects, Time};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::member::{NamedActor, Question, ToControl};
use aktis_protocol::{ActorId, NodeId, ProcessSlot};
use std::collections::BTreeMap;

/// How long a lookup goes on for an actor whose node is out of reach: by then that node is reached, or has left the cluster,
/// and another node has taken the actor over or the name is free.
pub(super) const NAME_PATIENCE_MICROSECONDS: u64 = 5_000_000;

/// Names that one answer holds at most.
const NAMES_MAX: usize = 10_000;

/// A lookup that has found an actor on another node, which is asked to tell this one of the actor.
#[derive(Debug)]
struct Search {
    asker: Asker,
    question: Option<Question>,
}

/// The actors owned by this node that have names. This node tells the control process all of them when it joins, and each
/// change after that. A change in between is said when this node is welcomed.
#[derive(Debug, Default)]
pub(super) struct Names {
    found_by_name: BTreeMap<String, FoundActor>,
    /// Changes since all names were told, which were not said yet; `None` while there is no link: the next one begins with
    /// all names.
    unsaid: Option<Vec<ToControl>>,
    searches: BTreeMap<u64, Search>,
    last_search: u64,
    /// Lookups of actors whose nodes were out of reach. They are asked again at the next tick.
    unreached: Vec<(Asker, Question)>,
}

impl Names {
    /// All that there are, for a node that joins.
    pub(super) fn tell_all(&mut self) -> Vec<NamedActor> {
        self.unsaid = Some(Vec::new());
        let named =
            |(name, found): (&String, &FoundActor)| NamedActor { name: name.clone(), found: found.clone() };
        self.found_by_name.iter().map(named).collect()
    }

    /// The link is over over which all were told.
    pub(super) fn on_link_ended(&mut self) {
        self.unsaid = None;
    }

    fn forget(&mut self, name: &str, actor: ActorId) {
        if self.found_by_name.get(name).is_some_and(|found| found.actor == actor) {
            self.found_by_name.remove(name);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.searches.is_empty() && self.unreached.is_empty()
    }

    pub(super) fn check(&self) {
        assert!(self.searches.len() <= QUESTIONS_MAX && self.unreached.len() <= QUESTIONS_MAX);
        assert!(self.searches.keys().all(|search| *search <= self.last_search));
    }
}

impl ControlClient {
    /// The names owned by this node, and their actors.
    pub fn held_names(&self) -> impl Iterator<Item = (&String, ActorId)> {
        self.names.found_by_name.iter().map(|(name, found)| (name, found.actor))
    }

    /// The control process has welcomed this node.
    pub(super) fn say_unsaid_names(&mut self, out: &mut Effects<ControlClientEffect>) {
        let unsaid = self.names.unsaid.as_mut().map(std::mem::take).unwrap_or_default();
        unsaid.into_iter().for_each(|message| {
            self.say(message, out);
        });
    }

    /// Says a change of a name now, with the welcome, or with all names in the next joining.
    fn say_name(&mut self, message: ToControl, out: &mut Effects<ControlClientEffect>) {
        match (self.is_member(), &mut self.names.unsaid) {
            (true, _) => {
                self.say(message, out);
            }
            (false, Some(unsaid)) => unsaid.push(message),
            (false, None) => {}
        }
    }

    /// Claims a name. If the control process is away, it is claimed when that is back; until then nobody knows whose it is.
    pub(super) fn on_name_wanted(
        &mut self,
        name: String,
        found: FoundActor,
        out: &mut Effects<ControlClientEffect>,
    ) {
        self.names.found_by_name.insert(name.clone(), found.clone());
        self.say_name(ToControl::NameClaimed { actor: NamedActor { name, found } }, out);
    }

    pub(super) fn on_name_freed(
        &mut self,
        name: String,
        actor: ActorId,
        out: &mut Effects<ControlClientEffect>,
    ) {
        self.names.forget(&name, actor);
        self.say_name(ToControl::NameFreed { name, actor }, out);
    }

    pub(super) fn on_name_claimed(
        &mut self,
        name: String,
        actor: ActorId,
        granted: bool,
        out: &mut Effects<ControlClientEffect>,
    ) {
        if !granted {
            self.names.forget(&name, actor);
        }
        out.push(ControlClientEffect::ToNode(NodeInput::NameClaimed { name, actor, granted }));
    }

    /// The control process has said which actor has a name, or that none has.
    pub(super) fn on_name_found(
        &mut self,
        now: Time,
        asker: Asker,
        question: Option<Question>,
        found: Option<(NodeId, FoundActor)>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let Some((node, found)) = found else { return answer_lookup(&asker, None, out) };
        if node == self.me() {
            return answer_lookup(&asker, Some((self.own_process, found)), out);
        }
        if self.names.searches.len() >= QUESTIONS_MAX {
            return self.look_up_later(now, asker, question, out);
        }
        self.names.last_search += 1;
        let search = self.names.last_search;
        let Asker { to, request, .. } = asker;
        self.names.searches.insert(search, Search { asker, question });
        out.push(ControlClientEffect::ReachActor { search, node, to, request, found });
    }

    pub(super) fn on_actor_reached(
        &mut self,
        now: Time,
        search: u64,
        is_reached: bool,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let Some(Search { asker, question }) = self.names.searches.remove(&search) else { return };
        if !is_reached {
            self.look_up_later(now, asker, question, out);
        }
    }

    /// The node of an actor is out of reach: the name is looked up again, if it was not for too long.
    fn look_up_later(
        &mut self,
        now: Time,
        asker: Asker,
        question: Option<Question>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        match question.filter(|_| asker.is_patient(now) && self.names.unreached.len() < QUESTIONS_MAX) {
            Some(question) => self.names.unreached.push((asker, question)),
            None => answer_lookup(&asker, None, out),
        }
    }

    /// Time has passed: actors that were out of reach may be found by now.
    pub(super) fn look_up_again(&mut self, now: Time, out: &mut Effects<ControlClientEffect>) {
        let again = std::mem::take(&mut self.names.unreached);
        again.into_iter().for_each(|(asker, question)| self.ask(now, asker, question, out));
    }

    pub(super) fn on_names(
        &mut self,
        asker: &Asker,
        mut names: Vec<String>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let left_out = names.len().saturating_sub(NAMES_MAX) as u32;
        names.truncate(NAMES_MAX);
        let input = NodeInput::NamesFound { to: asker.to, request: asker.request, names, left_out };
        out.push(ControlClientEffect::ToNode(input));
    }
}

fn answer_lookup(
    asker: &Asker,
    found: Option<(ProcessSlot, FoundActor)>,
    out: &mut Effects<ControlClientEffect>,
) {
    let input = NodeInput::NameFound { to: asker.to, request: asker.request, found };
    out.push(ControlClientEffect::ToNode(input));
}
