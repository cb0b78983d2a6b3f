//! Names of actors: claimed and sought at the control process.

use super::Elsewhere;
use super::questions::Asker;
use crate::host::NodeHost;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::member::{NamedActor, Question, ToControl};
use aktis_protocol::{ActorId, NodeId, ProcessSlot};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an actor is sought whose node is out of reach: by then that is reached, or has left the cluster, and another node
/// has the actor in its care or its name is free.
pub(super) const NAME_PATIENCE: Duration = Duration::from_secs(5);

/// Names that one answer holds at most.
const NAMES_MAX: usize = 10_000;

/// The actors in this node's care that have names, as the control process is told of them: all when this node joins, and
/// each change after that. What could not be said in between is said when it is welcome.
#[derive(Default)]
pub(super) struct Names {
    held: BTreeMap<String, FoundActor>,
    /// What has changed since all were told, and was not said; `None` while there is no link: all are told with the next.
    unsaid: Option<Vec<ToControl>>,
}

impl Names {
    /// All that there are, for a node that joins.
    fn tell_all(&mut self) -> Vec<NamedActor> {
        self.unsaid = Some(Vec::new());
        let named =
            |(name, found): (&String, &FoundActor)| NamedActor { name: name.clone(), found: found.clone() };
        self.held.iter().map(named).collect()
    }

    /// An actor is to have a name. `say` gives whether the control process is told.
    fn claim(&mut self, name: String, found: FoundActor, say: impl FnOnce(&ToControl) -> bool) {
        self.held.insert(name.clone(), found.clone());
        self.say(ToControl::NameClaimed { actor: NamedActor { name, found } }, say);
    }

    /// An actor has no name any more.
    fn free(&mut self, name: String, actor: ActorId, say: impl FnOnce(&ToControl) -> bool) {
        self.forget(&name, actor);
        self.say(ToControl::NameFreed { name, actor }, say);
    }

    fn forget(&mut self, name: &str, actor: ActorId) {
        if self.held.get(name).is_some_and(|found| found.actor == actor) {
            self.held.remove(name);
        }
    }

    fn say(&mut self, message: ToControl, say: impl FnOnce(&ToControl) -> bool) {
        if !say(&message) {
            self.unsaid.iter_mut().for_each(|unsaid| unsaid.push(message.clone()));
        }
    }

    /// The control process listens: says what it was not told.
    fn say_unsaid(&mut self, mut say: impl FnMut(&ToControl) -> bool) {
        self.unsaid.iter_mut().for_each(|unsaid| unsaid.retain(|message| !say(message)));
    }
}

/// Questions for actors whose nodes were out of reach. They are asked again after a while.
#[derive(Default)]
pub(super) struct Unreached(Mutex<Vec<(Asker, Question)>>);

/// Somebody who asked for a name, and gets an answer in any case: when this goes, or after he has asked again.
struct Seeker {
    host: NodeHost,
    unreached: Arc<Unreached>,
    asker: Asker,
    /// If some actor has the name.
    question: Option<Question>,
    found: Option<(ProcessSlot, FoundActor)>,
}

impl Seeker {
    fn answer(mut self, peer: ProcessSlot, found: FoundActor) {
        self.found = Some((peer, found));
    }
}

impl Drop for Seeker {
    fn drop(&mut self) {
        let (to, request, found) = (self.asker.to, self.asker.request, self.found.take());
        if let Some(question) = self.question.take()
            && found.is_none()
            && self.asker.is_patient(Instant::now())
        {
            return self.unreached.0.lock().push((self.asker, question));
        }
        self.host.feed(NodeInput::NameFound { to, request, found });
    }
}

impl Elsewhere {
    /// The actors with names that live in this node's care: it is about to say them all.
    pub(crate) fn named(&self) -> Vec<NamedActor> {
        self.names.lock().tell_all()
    }

    /// The link is over over which all were told.
    pub(crate) fn forget_unsaid_names(&self) {
        self.names.lock().unsaid = None;
    }

    /// The control process has welcomed this node.
    pub(super) fn say_unsaid_names(&self) {
        self.names.lock().say_unsaid(|message| self.say(message));
    }

    /// Claims a name. If the control process is away, it is claimed when that is back; until then nobody knows whose it is.
    pub(super) fn claim_name(&self, name: String, found: FoundActor) {
        self.names.lock().claim(name, found, |message| self.say(message));
    }

    pub(super) fn free_name(&self, name: String, actor: ActorId) {
        self.names.lock().free(name, actor, |message| self.say(message));
    }

    pub(crate) fn on_name_claimed(&self, name: String, actor: ActorId, granted: bool) {
        if !granted {
            self.names.lock().forget(&name, actor);
        }
        self.host.feed(NodeInput::NameClaimed { name, actor, granted });
    }

    /// The control process has said which actor has a name, or nobody has.
    pub(super) fn on_name_found(
        &self,
        asker: Asker,
        question: Option<Question>,
        found: Option<(NodeId, FoundActor)>,
    ) {
        let (host, unreached) = (self.host.clone(), self.unreached.clone());
        let question = question.filter(|_| found.is_some());
        let seeker = Seeker { host, unreached, asker, question, found: None };
        let Some((node, found)) = found else { return };
        if node == self.me {
            return seeker.answer(self.host.own().process(), found);
        }
        let Some(peer) = self.neighbours.slot_of(node) else { return };
        let actor = found.actor;
        let then = move || seeker.answer(peer, found);
        self.neighbours.seek_actor(node, actor, Box::new(then));
    }

    /// Time has passed: actors that were out of reach may be found by now.
    pub(super) fn seek_names_again(&self) {
        let again = std::mem::take(&mut *self.unreached.0.lock());
        again.into_iter().for_each(|(asker, question)| self.ask_control(asker, question));
    }

    pub(super) fn on_names(&self, asker: &Asker, mut names: Vec<String>) {
        let left_out = names.len().saturating_sub(NAMES_MAX) as u32;
        names.truncate(NAMES_MAX);
        self.host.feed(NodeInput::NamesFound { to: asker.to, request: asker.request, names, left_out });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{SessionId, TaskId};

    fn found(number: u64) -> FoundActor {
        let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(number));
        FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false }
    }

    #[test]
    fn what_changes_between_joining_and_the_welcome_is_said_then() {
        let mut names = Names::default();
        names.claim("kept".to_owned(), found(1), |_| true);
        names.claim("gone".to_owned(), found(2), |_| true);
        assert_eq!(names.tell_all().len(), 2);
        // Nobody listens yet.
        names.claim("new".to_owned(), found(3), |_| false);
        names.free("gone".to_owned(), found(2).actor, |_| false);
        let mut said = Vec::new();
        names.say_unsaid(|message| {
            said.push(message.clone());
            true
        });
        let claimed = NamedActor { name: "new".to_owned(), found: found(3) };
        let freed = ToControl::NameFreed { name: "gone".to_owned(), actor: found(2).actor };
        assert_eq!(said, [ToControl::NameClaimed { actor: claimed }, freed]);
        names.say_unsaid(|message| panic!("{message:?} was said before"));
    }

    #[test]
    fn all_are_told_at_once_by_who_joins() {
        let mut names = Names::default();
        names.claim("a".to_owned(), found(1), |_| false);
        names.free("b".to_owned(), found(2).actor, |_| false);
        assert_eq!(names.tell_all(), [NamedActor { name: "a".to_owned(), found: found(1) }]);
        names.say_unsaid(|message| panic!("{message:?} was said with all others"));
    }

    #[test]
    fn nothing_is_collected_while_there_is_no_link() {
        let mut names = Names::default();
        for number in 0..100 {
            names.claim(number.to_string(), found(number), |_| false);
            names.free(number.to_string(), found(number).actor, |_| false);
        }
        assert!(names.unsaid.is_none() && names.tell_all().is_empty());
    }
}
