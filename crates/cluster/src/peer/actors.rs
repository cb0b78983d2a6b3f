//! Actors that both nodes know: hosted for the other side, or known to it by their handles.

use super::Peer;
use aktis_protocol::control::{ActorPlace, ActorSpec, ToNode};
use aktis_protocol::peer::{Frame, PeerArgument};
use aktis_protocol::{ActorId, DeathCause, Failure, FailureKind};
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

/// See the module.
#[derive(Default)]
pub(super) struct ActorsAcross {
    /// Which life of each actor that the other node hosts for this one.
    pub(super) hosted_there: HashMap<ActorId, u32>,
    hosted_here: HashMap<ActorId, Hosted>,
    expected: Vec<Expected>,
    /// Actors that were named to the other side, and how often.
    lent: HashMap<ActorId, (ActorHandle, u64)>,
    /// Actors that the other side has named, and how often.
    imports: HashMap<ActorId, u64>,
    /// Actors of the other side that were found by their names, and what follows.
    sought: HashMap<ActorId, Vec<Box<dyn FnOnce() + Send>>>,
}

impl Peer {
    pub(super) fn name_actor(&mut self, actor: ActorId) {
        if self.is_between_us(actor) {
            return;
        }
        let bridge = &self.bridge;
        self.actors.lent.entry(actor).or_insert_with(|| (bridge.adopt_actor(actor), 0)).1 += 1;
    }

    pub(super) fn on_actor_released(&mut self, actor: ActorId, count: u64) {
        if let Some((_, named)) = self.actors.lent.get_mut(&actor) {
            *named = named.saturating_sub(count);
            if *named == 0 {
                self.actors.lent.remove(&actor);
            }
        }
    }

    /// Whether the actor lives here for the other side.
    pub(super) fn hosts(&self, actor: ActorId) -> bool {
        self.actors.hosted_here.contains_key(&actor)
    }

    /// Whether one side hosts the actor for the other: then both know it anyway, and neither holds it for the other.
    fn is_between_us(&self, actor: ActorId) -> bool {
        self.actors.hosted_there.contains_key(&actor)
            || self.actors.hosted_here.contains_key(&actor)
            || self.actors.expected.iter().any(|expected| expected.spec.actor == actor)
    }

    /// The other side has named an actor: it is reached through this process. The caller has this process hold it.
    pub(super) fn note_actor(&mut self, actor: ActorId) {
        if self.is_between_us(actor) {
            return;
        }
        *self.actors.imports.entry(actor).or_default() += 1;
        self.bridge.send(ToNode::ActorEscaped { actor, host: self.me() });
    }

    /// Somebody here has found an actor of the other side by its name: `then` is called when it is known here.
    pub(super) fn seek_actor(&mut self, actor: ActorId, then: Box<dyn FnOnce() + Send>) {
        self.actors.sought.entry(actor).or_default().push(then);
        self.wire.send(&Frame::ActorSought { actor });
    }

    pub(super) fn on_actor_known(&mut self, actor: ActorId) {
        self.note_actor(actor);
        let held = self.bridge.adopt_actor(actor);
        self.actors.sought.remove(&actor).into_iter().flatten().for_each(|then| then());
        // Whoever has found it holds it by now.
        drop(held);
    }

    /// The handle by which the other side's calls reach an actor.
    pub(super) fn actor_for(&self, actor: ActorId) -> ActorHandle {
        let hosted = self.actors.hosted_here.get(&actor).map(|hosted| &hosted.handle);
        let known = hosted.or_else(|| self.actors.lent.get(&actor).map(|(handle, _)| handle));
        known.cloned().unwrap_or_else(|| self.bridge.adopt_actor(actor))
    }

    /// The node wants an actor ended, which this process stands for.
    pub(super) fn end_actor_there(&mut self, actor: ActorId, now: bool) {
        self.release_actor(actor);
        if self.actors.hosted_there.contains_key(&actor) {
            return self.wire.send(&Frame::EndActor { actor, now });
        }
        // It lives on where it is; here nobody knows it any more.
        let failure = Failure::new(FailureKind::ActorDied, "nobody held a handle of it");
        self.bridge.send(ToNode::ActorEnded { actor, failure });
    }

    /// The other side need not keep an actor for this one.
    pub(super) fn release_actor(&mut self, actor: ActorId) {
        if let Some(count) = self.actors.imports.remove(&actor) {
            self.wire.send(&Frame::ActorReleased { actor, count });
        }
    }

    // Actors that live here for the other side.

    pub(super) fn on_host_actor(&mut self, spec: ActorSpec, arguments: &[PeerArgument], incarnation: u32) {
        // So far it was known here by its handles: from now on it lives here.
        if let Some(count) = self.actors.imports.remove(&spec.actor) {
            self.wire.send(&Frame::ActorReleased { actor: spec.actor, count });
        }
        self.note_arguments(arguments);
        let arguments = self.bridge.arguments(arguments);
        arguments.handles().iter().for_each(|handle| {
            self.bridge.value_of(handle);
        });
        // Whether, where and under which name it lives again is the other side's business.
        let spec = ActorSpec { restarts_max: 0, name: None, detached: false, group: None, ..spec };
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
                    self.actors.hosted_here.insert(actor, Hosted { handle, incarnation, told: false });
                }
                Err(error) => {
                    let failure = Failure::new(FailureKind::ActorDied, error.to_string());
                    self.wire.send(&Frame::ActorEnded { actor, incarnation, failure });
                }
            }
        }
    }

    /// The node says how an actor is that lives here for the other side.
    pub(super) fn on_hosted_actor_changed(&mut self, actor: ActorId, place: ActorPlace) {
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
                // Its process died, and not by its own will: the other side decides whether it lives again.
                let frame = match failure.retriable {
                    true => {
                        let stderr_tail = vec![failure.message];
                        let cause = DeathCause { pid: 0, signal: None, exit_code: None, stderr_tail };
                        Frame::ActorLost { actor, incarnation, cause }
                    }
                    false => Frame::ActorEnded { actor, incarnation, failure },
                };
                self.wire.send(&frame);
            }
        }
    }

    pub(super) fn on_end_actor(&mut self, actor: ActorId, now: bool) {
        let expected = self.actors.expected.extract_if(.., |expected| expected.spec.actor == actor).last();
        let hosted = self.actors.hosted_here.remove(&actor);
        let incarnation = match (&hosted, &expected) {
            (Some(hosted), _) => hosted.incarnation,
            (None, Some(expected)) => expected.incarnation,
            // It has ended by itself, and that was said.
            (None, None) => return,
        };
        if now && hosted.is_some() {
            self.bridge.send(ToNode::ActorKilled { actor, restart: false });
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
            self.bridge.send(ToNode::ActorEnded { actor, failure });
        }
    }

    pub(super) fn on_actor_lost(&mut self, actor: ActorId, incarnation: u32, cause: DeathCause) {
        if self.forget_hosted_there(actor, incarnation) {
            self.bridge.send(ToNode::ActorLost { actor, incarnation, cause });
        }
    }

    /// A life of an actor there is over, unless it was before. What becomes of its calls, their callers decide when
    /// the node tells them.
    fn forget_hosted_there(&mut self, actor: ActorId, incarnation: u32) -> bool {
        if self.actors.hosted_there.get(&actor) != Some(&incarnation) {
            return false;
        }
        self.actors.hosted_there.remove(&actor);
        let ended = self.sent.extract_if(|_, sent| sent.actor == Some(actor));
        for (ticket, sent) in ended.collect::<Vec<_>>() {
            self.forget_key(&sent, ticket);
        }
        true
    }
}
