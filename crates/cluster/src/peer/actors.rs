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
}

impl Peer {
    pub(super) fn name_actor(&mut self, actor: ActorId) {
        let bridge = &self.bridge;
        self.actors.lent.entry(actor).or_insert_with(|| (bridge.adopt_actor(actor), 0)).1 += 1;
    }

    pub(super) fn on_actor_released(&mut self, actor: ActorId, count: u64) {
        if self.actors.lent.get(&actor).is_some_and(|(_, named)| *named == count) {
            self.actors.lent.remove(&actor);
        }
    }

    /// The other side has named an actor: it is reached through this process. The caller has this process hold it.
    pub(super) fn note_actor(&mut self, actor: ActorId) {
        *self.actors.imports.entry(actor).or_default() += 1;
        self.bridge.send(ToNode::ActorEscaped { actor, host: self.me() });
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
        self.note_arguments(arguments);
        let arguments = self.bridge.arguments(arguments);
        // Whether, where and under which name it lives again is the other side's business.
        let spec = ActorSpec { restarts_max: 0, name: None, detached: false, group: None, ..spec };
        self.actors.expected.push(Expected { spec, arguments, incarnation });
        self.host_what_is_ready();
    }

    /// Starts the actors whose arguments are known by now.
    pub(super) fn host_what_is_ready(&mut self) {
        for expected in std::mem::take(&mut self.actors.expected) {
            let missing = |handle: &aktis_runtime::Handle| self.bridge.value_of(handle).is_none();
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
        self.actors.expected.retain(|expected| expected.spec.actor != actor);
        let hosted = self.actors.hosted_here.remove(&actor);
        if now {
            self.bridge.send(ToNode::ActorKilled { actor, restart: false });
        }
        let incarnation = hosted.as_ref().map_or(0, |hosted| hosted.incarnation);
        let failure = Failure::new(FailureKind::ActorDied, "the actor was ended");
        self.wire.send(&Frame::ActorEnded { actor, incarnation, failure });
        // It ends after the calls that it has.
        drop(hosted);
    }

    // Actors that live there for this side.

    pub(super) fn on_actor_started(&mut self, actor: ActorId, incarnation: u32) {
        self.bridge.send(ToNode::ActorStarted { actor, incarnation });
    }

    pub(super) fn on_actor_ended(&mut self, actor: ActorId, failure: Failure) {
        self.actors.hosted_there.remove(&actor);
        self.bridge.send(ToNode::ActorEnded { actor, failure });
    }

    pub(super) fn on_actor_lost(&mut self, actor: ActorId, incarnation: u32, cause: DeathCause) {
        self.actors.hosted_there.remove(&actor);
        self.bridge.send(ToNode::ActorLost { actor, incarnation, cause });
    }
}
