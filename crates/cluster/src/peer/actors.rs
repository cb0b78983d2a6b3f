//! Actors that both nodes know: hosted for the other side, or known to it by their handles.

use super::{Peer, Sent};
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::ToNode;
use aktis_protocol::peer::{Frame, PeerArgument};
use aktis_protocol::{ActorId, DeathCause, Failure, FailureKind, Strategy};
use aktis_runtime::{ActorHandle, Arguments};
use std::collections::HashMap;

/// An actor that lives here for the other side.
struct Hosted {
    handle: ActorHandle,
    incarnation: u32,
    /// Whether the other side knows that it takes calls.
    told: bool,
}

/// An actor that will live here, once the values of its constructor's arguments are known.
struct Expected {
    spec: ActorSpec,
    arguments: Arguments,
    incarnation: u32,
}

/// An actor in the care of this node that the other one knows.
pub(super) struct Lent {
    handle: ActorHandle,
    /// How often it was named to the other side.
    named: u64,
    said: Said,
    /// How many [`Frame::ActorAway`] there were when one was about this actor.
    away_at: u64,
}

/// What the other side thinks of an actor that was named to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// That it takes calls.
    Alive,
    /// That it takes none for now: it waits to hear that it does. So it is with every one that is new to it, which may
    /// have to be constructed first, and that there: what was called before would come back to where it is from.
    Away,
    /// That it is gone.
    Gone,
}

/// What the other side has to be told of an actor.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Away(String),
    Back,
    Gone(Failure),
}

impl Said {
    /// The other side may have forgotten what it was told: it is told again. It may also have calls there, and must hear
    /// it if those are lost.
    fn again(&mut self) -> Option<Word> {
        if *self == Self::Gone {
            *self = Self::Away;
        }
        (*self == Self::Alive).then_some(Word::Back)
    }

    /// The node says how the actor is.
    fn on_place(&mut self, place: ActorPlace) -> Option<Word> {
        match (place, *self) {
            (_, Self::Gone)
            | (ActorPlace::Alive { .. }, Self::Alive)
            | (ActorPlace::Pending(_), Self::Away) => None,
            (ActorPlace::Pending(reason), Self::Alive) => Some(Word::Away(reason)),
            (ActorPlace::Alive { .. }, Self::Away) => {
                *self = Self::Alive;
                Some(Word::Back)
            }
            (ActorPlace::Dead(failure), _) => {
                *self = Self::Gone;
                Some(Word::Gone(failure))
            }
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct ActorsAcross {
    /// Which life of each actor that the other node hosts for this one.
    pub(super) hosted_there: HashMap<ActorId, u32>,
    hosted_here: HashMap<ActorId, Hosted>,
    expected: Vec<Expected>,
    pub(super) lent: HashMap<ActorId, Lent>,
    /// Actors that the other side has named, and how often.
    pub(super) imports: HashMap<ActorId, u64>,
    /// Actors of the other side that were found by their names, and what follows.
    sought: HashMap<ActorId, Vec<Box<dyn FnOnce() + Send>>>,
    /// How often something was said to be away.
    aways_said: u64,
    /// How often the other side has said so.
    pub(super) aways_heard: u64,
}

impl Peer {
    // Actors in the care of this side.

    /// The other side is about to learn of an actor, which is kept until that has let go of it. Also if it lives on one side
    /// for the other: that may not have begun there yet, or be over.
    pub(super) fn name_actor(&mut self, actor: ActorId) {
        if let Some(lent) = self.actors.lent.get_mut(&actor) {
            lent.named += 1;
            return;
        }
        let handle = self.bridge.adopt_actor(actor);
        self.bridge.look_at(&handle);
        self.actors.lent.insert(actor, Lent { handle, named: 1, said: Said::Away, away_at: 0 });
    }

    /// The other side wants to know an actor, and expects to be told when it takes calls.
    pub(super) fn on_actor_sought(&mut self, actor: ActorId) {
        self.name_actor(actor);
        self.wire.send(&Frame::ActorKnown { actor });
        self.say_again(actor);
    }

    /// An actor is in the care of this node that was in the care of another one, from which the other side may know it.
    pub(super) fn say_inherited(&mut self, actor: ActorId) {
        self.name_actor(actor);
        self.wire.send(&Frame::ActorInherited { actor });
        self.say_again(actor);
    }

    pub(super) fn on_actor_released(&mut self, actor: ActorId, count: u64) {
        let Some(lent) = self.actors.lent.get_mut(&actor) else { return };
        lent.named = lent.named.saturating_sub(count);
        match lent.named {
            0 => drop(self.actors.lent.remove(&actor)),
            // It was named again meanwhile, and is new to the other side.
            _ => self.say_again(actor),
        }
    }

    fn say_again(&mut self, actor: ActorId) {
        let Some(lent) = self.actors.lent.get_mut(&actor) else { return };
        let word = lent.said.again();
        self.bridge.look_at(&lent.handle);
        word.into_iter().for_each(|word| self.say_word(actor, word));
    }

    /// The node says how an actor is.
    pub(super) fn on_actor_changed(&mut self, actor: ActorId, place: ActorPlace) {
        if self.hosts(actor) {
            return self.on_hosted_actor_changed(actor, place);
        }
        let Some(lent) = self.actors.lent.get_mut(&actor) else { return };
        let word = lent.said.on_place(place);
        word.into_iter().for_each(|word| self.say_word(actor, word));
    }

    fn say_word(&mut self, actor: ActorId, word: Word) {
        match word {
            Word::Away(reason) => self.say_away(actor, reason),
            Word::Back => self.wire.send(&Frame::ActorBack { actor }),
            Word::Gone(failure) => self.wire.send(&Frame::ActorGone { actor, failure }),
        }
    }

    /// A call of the other side ended with its actor. Whether the other side learns that about the actor: then its callers
    /// decide themselves what becomes of their calls.
    pub(super) fn on_call_lost(&mut self, actor: ActorId, failure: &Failure) -> bool {
        if self.hosts(actor) {
            return true;
        }
        let Some(lent) = self.actors.lent.get(&actor) else { return false };
        if lent.said == Said::Alive {
            self.say_away(actor, failure.message.clone());
        }
        true
    }

    /// The calls that an actor has here are lost, as the other side is told: none of them may run any more.
    fn say_away(&mut self, actor: ActorId, reason: String) {
        let Some(lent) = self.actors.lent.get_mut(&actor) else { return };
        self.actors.aways_said += 1;
        (lent.said, lent.away_at) = (Said::Away, self.actors.aways_said);
        for received in self.received.remove_calls(actor) {
            self.cancel(received.key, false, true);
            self.release_unanswered(&received);
        }
        self.wire.send(&Frame::ActorAway { actor, reason });
    }

    pub(super) fn on_kill_actor(&mut self, actor: ActorId, restart: bool) {
        self.bridge.send(ToNode::ActorKilled { actor, restart, request: None });
    }

    /// The handle by which a call of the other side reaches its actor, if the other side means the actor as it is now.
    pub(super) fn actor_for(&self, actor: ActorId, aways: u64) -> Option<ActorHandle> {
        if let Some(hosted) = self.actors.hosted_here.get(&actor) {
            return Some(hosted.handle.clone());
        }
        self.actors.lent.get(&actor).filter(|lent| lent.away_at <= aways).map(|lent| lent.handle.clone())
    }

    // Actors in the care of the other side, known here by their handles.

    /// The other side has named an actor: it is reached through this process, unless it lives on one side for the other. The
    /// caller has this process hold it.
    pub(super) fn note_actor(&mut self, actor: ActorId) {
        if self.import_actor(actor) {
            self.bridge.send(ToNode::ActorEscaped { actor, host: self.me() });
        }
    }

    /// The other side has an actor in its care, and names it, which this node may know from elsewhere.
    pub(super) fn on_actor_inherited(&mut self, actor: ActorId) {
        if self.import_actor(actor) {
            self.bridge.send(ToNode::ActorInherited { actor });
        }
    }

    /// Whether an actor that the other side has named does not live on one side for the other.
    fn import_actor(&mut self, actor: ActorId) -> bool {
        let hosted = self.hosts(actor) || self.actors.hosted_there.contains_key(&actor);
        match hosted {
            true => self.wire.send(&Frame::ActorReleased { actor, count: 1 }),
            false => *self.actors.imports.entry(actor).or_default() += 1,
        }
        !hosted
    }

    /// Somebody here has found an actor of the other side by its name: `then` is called when it is known here.
    pub(super) fn seek_actor(&mut self, actor: ActorId, then: Box<dyn FnOnce() + Send>) {
        self.actors.sought.entry(actor).or_default().push(then);
        self.wire.send(&Frame::ActorSought { actor });
    }

    /// The other side has named an actor that was sought.
    pub(super) fn on_actor_known(&mut self, actor: ActorId) {
        self.note_actor(actor);
        let adopted = self.bridge.adopt_actor(actor);
        self.actors.sought.remove(&actor).into_iter().flatten().for_each(|then| then());
        // Whoever has found it holds it by now.
        drop(adopted);
    }

    /// The node wants an actor ended, which this process stands for.
    pub(super) fn end_actor_there(&mut self, actor: ActorId, now: bool) {
        self.release_actor(actor);
        if self.actors.hosted_there.contains_key(&actor) {
            return self.wire.send(&Frame::EndActor { actor, now });
        }
        // It lives on where it is, or here; this process does not stand for it any more.
        let failure = Failure::new(FailureKind::ActorDied, "nobody held a handle of it");
        self.bridge.send(ToNode::ActorEnded { actor, failure });
    }

    /// Nobody here holds an actor that the other side had named so often when the node decided that. If it has named it
    /// again since, the rest stays.
    pub(super) fn release_named(&mut self, actor: ActorId, count: u64) {
        let Some(imports) = self.actors.imports.get_mut(&actor) else { return };
        let count = count.min(*imports);
        *imports -= count;
        if *imports == 0 {
            self.actors.imports.remove(&actor);
        }
        self.wire.send(&Frame::ActorReleased { actor, count });
    }

    /// The other side need not keep an actor for this one.
    pub(super) fn release_actor(&mut self, actor: ActorId) {
        if let Some(count) = self.actors.imports.remove(&actor) {
            self.wire.send(&Frame::ActorReleased { actor, count });
        }
    }

    pub(super) fn on_actor_away(&mut self, actor: ActorId, reason: String) {
        self.actors.aways_heard += 1;
        self.forget_calls(actor);
        self.tell_of_actor(actor, ToNode::ActorAway { actor, reason });
    }

    pub(super) fn on_actor_back(&mut self, actor: ActorId) {
        self.tell_of_actor(actor, ToNode::ActorBack { actor });
    }

    pub(super) fn on_actor_gone(&mut self, actor: ActorId, failure: Failure) {
        self.forget_calls(actor);
        self.release_actor(actor);
        self.tell_of_actor(actor, ToNode::ActorEnded { actor, failure });
    }

    // Actors that live here for the other side.

    /// Whether the actor lives here for the other side.
    pub(super) fn hosts(&self, actor: ActorId) -> bool {
        self.actors.hosted_here.contains_key(&actor)
    }

    /// The other side wants an actor hosted here; what its arguments refer to was noted.
    pub(super) fn on_host_actor(&mut self, spec: ActorSpec, arguments: &[PeerArgument], incarnation: u32) {
        let arguments = self.bridge.arguments(arguments);
        arguments.handles().iter().for_each(|handle| {
            self.bridge.value_of(handle);
        });
        // Whether, where and under which name it lives again is the other side's business.
        let (restarts_max, lives) = (0, incarnation);
        let strategy = Strategy::Node { node: self.node(), soft: false };
        let spec =
            ActorSpec { restarts_max, lives, name: None, detached: false, strategy, near: None, ..spec };
        self.actors.expected.push(Expected { spec, arguments, incarnation });
        self.host_what_is_ready();
    }

    /// Starts the actors whose arguments are known by now.
    pub(super) fn host_what_is_ready(&mut self) {
        for expected in std::mem::take(&mut self.actors.expected) {
            let missing = |handle: &aktis_runtime::Handle| !handle.has_outcome();
            if expected.arguments.handles().iter().any(missing) {
                self.actors.expected.push(expected);
                continue;
            }
            let Expected { spec, arguments, incarnation } = expected;
            let actor = spec.actor;
            match self.bridge.host_actor(spec, arguments) {
                Ok(handle) => {
                    // So far it was known here by its handles: from now on it lives here.
                    self.release_actor(actor);
                    self.actors.hosted_here.insert(actor, Hosted { handle, incarnation, told: false });
                }
                Err(error) => {
                    let failure = Failure::new(FailureKind::ActorDied, error.to_string());
                    self.wire.send(&Frame::ActorEnded { actor, incarnation, failure });
                }
            }
        }
    }

    fn on_hosted_actor_changed(&mut self, actor: ActorId, place: ActorPlace) {
        let Some(hosted) = self.actors.hosted_here.get_mut(&actor) else { return };
        let incarnation = hosted.incarnation;
        match place {
            ActorPlace::Pending(_) => {}
            ActorPlace::Alive { .. } => {
                if !std::mem::replace(&mut hosted.told, true) {
                    self.wire.send(&Frame::ActorStarted { actor, incarnation });
                }
            }
            ActorPlace::Dead(failure) => {
                self.actors.hosted_here.remove(&actor);
                self.wire.send(&Frame::ActorEnded { actor, incarnation, failure });
            }
        }
    }

    /// The process of an actor that lived here for the other side died: that decides whether it lives again. Or the actor
    /// is handed back.
    pub(super) fn lose_hosted_actor(&mut self, actor: ActorId, cause: Option<DeathCause>) {
        if let Some(Hosted { incarnation, .. }) = self.actors.hosted_here.remove(&actor) {
            self.wire.send(&Frame::ActorLost { actor, incarnation, cause });
        }
    }

    /// The other side, in whose care the actor is, wants it ended.
    pub(super) fn on_end_actor(&mut self, actor: ActorId, now: bool) {
        let expected = self.actors.expected.extract_if(.., |expected| expected.spec.actor == actor).last();
        let hosted = self.actors.hosted_here.remove(&actor);
        let incarnation = match (&hosted, &expected) {
            (Some(hosted), _) => hosted.incarnation,
            (None, Some(expected)) => expected.incarnation,
            // It is not here yet, or has ended by itself, and that was said.
            (None, None) => match self.take_put_off_actor(actor) {
                Some(incarnation) => incarnation,
                None => return,
            },
        };
        if now && hosted.is_some() {
            // Whether it lives again, those who hold it here learn from the other side.
            self.bridge.send(ToNode::ActorKilled { actor, restart: true, request: None });
        }
        let failure = Failure::new(FailureKind::ActorDied, "the actor was ended");
        self.wire.send(&Frame::ActorEnded { actor, incarnation, failure });
        // It ends after the calls that it has.
        drop(hosted);
    }

    // Actors that live there for this side.

    pub(super) fn on_actor_started(&mut self, actor: ActorId, incarnation: u32) {
        self.bridge.send(ToNode::ActorStarted { actor, incarnation });
    }

    pub(super) fn on_actor_ended(&mut self, actor: ActorId, incarnation: u32, failure: Failure) {
        if self.forget_hosted_there(actor, incarnation) {
            self.tell_of_actor(actor, ToNode::ActorEnded { actor, failure });
        }
    }

    pub(super) fn on_actor_lost(&mut self, actor: ActorId, incarnation: u32, cause: Option<DeathCause>) {
        if self.forget_hosted_there(actor, incarnation) {
            self.tell_of_actor(actor, ToNode::ActorLost { actor, incarnation, cause });
        }
    }

    /// A life of an actor there is over, unless it was before.
    fn forget_hosted_there(&mut self, actor: ActorId, incarnation: u32) -> bool {
        if self.actors.hosted_there.get(&actor) != Some(&incarnation) {
            return false;
        }
        self.actors.hosted_there.remove(&actor);
        self.forget_calls(actor);
        true
    }

    /// The calls of an actor that were sent have no answer. What becomes of them, their callers decide when the node tells
    /// them of the actor.
    fn forget_calls(&mut self, actor: ActorId) {
        let ended = self.sent.extract_if(|_, sent| sent.actor == Some(actor));
        for (ticket, Sent { from, key, .. }) in ended.collect::<Vec<_>>() {
            self.forget_key(from, key, ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::ProcessSlot;

    fn alive() -> ActorPlace {
        ActorPlace::Alive { process: ProcessSlot(1), incarnation: 0 }
    }

    #[test]
    fn who_seeks_an_actor_that_it_has_called_hears_that_the_calls_are_lost() {
        let mut said = Said::Away;
        assert_eq!(said.on_place(alive()), Some(Word::Back));
        assert_eq!(said.again(), Some(Word::Back));
        let pending = || ActorPlace::Pending("restarting".to_owned());
        assert_eq!(said.on_place(pending()), Some(Word::Away("restarting".to_owned())));
    }

    #[test]
    fn who_learns_of_an_actor_hears_when_it_takes_calls() {
        let mut said = Said::Away;
        assert_eq!(said.on_place(ActorPlace::Pending(String::new())), None);
        assert_eq!(said.again(), None);
        assert_eq!((said.on_place(alive()), said.on_place(alive())), (Some(Word::Back), None));
        let failure = Failure::new(FailureKind::ActorDied, "killed");
        assert_eq!(said.on_place(ActorPlace::Dead(failure.clone())), Some(Word::Gone(failure.clone())));
        assert_eq!(said.again(), None);
        assert_eq!(said.on_place(ActorPlace::Dead(failure.clone())), Some(Word::Gone(failure)), "again");
    }
}
