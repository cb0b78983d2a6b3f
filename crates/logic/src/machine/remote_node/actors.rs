//! Actors that both nodes know: hosted for the other side, or known to it by their handles.

use super::{LocalNode, PlantedBug, RemoteNode, Sent};
use aktis_protocol::actors::{ActorPlace, ActorSpec, Away, Ending};
use aktis_protocol::control::ToNode;
use aktis_protocol::peer::{Frame, PeerArgument};
use aktis_protocol::{ActorId, DeathCause, Failure, FailureKind, Strategy};
use std::collections::BTreeMap;

/// An actor that lives here for the other side.
struct Hosted<A> {
    handle: A,
    incarnation: u32,
    /// Whether the other side knows that it takes calls.
    told: bool,
}

/// An actor that will live here, once the values of its constructor's arguments are known.
struct Expected<A> {
    spec: ActorSpec,
    arguments: A,
    incarnation: u32,
}

/// An actor that this node owns and the other one knows.
struct Exported<A> {
    handle: A,
    /// How often it was exported to the other side, less how often that has released it.
    count: u64,
    view: RemoteView,
    /// How many [`Frame::ActorAway`] there were when one was about this actor.
    away_at: u64,
}

/// An actor that the other side owns and this one knows.
#[derive(Default)]
struct Imported {
    /// How often the other side has exported it, less how often the node has released it.
    count: u64,
    /// Whether the other side has said that it is gone, and not that it takes calls since.
    is_gone: bool,
}

/// What the other side believes of an actor that was exported to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteView {
    /// The actor takes calls.
    Alive,
    /// The actor takes no calls for now, and the other side waits to hear that it does. So it begins with every actor, which
    /// may have to be constructed first, and that on the other side: earlier calls would come back to where they are from.
    Away,
    /// The actor is gone.
    Gone,
}

/// A message to the other side about an actor.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Away(Away),
    Back,
    Gone(Failure),
}

impl RemoteView {
    /// The other side may have forgotten what it was told, and is told again. It may also have calls under way, and must
    /// hear if those are lost.
    fn repeat(&mut self) -> Option<News> {
        if *self == Self::Gone {
            *self = Self::Away;
        }
        (*self == Self::Alive).then_some(News::Back)
    }

    /// The node says how the actor is.
    fn on_place(&mut self, place: ActorPlace) -> Option<News> {
        match (place, *self) {
            (_, Self::Gone)
            | (ActorPlace::Alive { .. }, Self::Alive)
            | (ActorPlace::Pending(_) | ActorPlace::Moved(_), Self::Away) => None,
            (ActorPlace::Pending(reason), Self::Alive) => Some(News::Away(Away { reason, is_moved: false })),
            (ActorPlace::Moved(reason), Self::Alive) => Some(News::Away(Away { reason, is_moved: true })),
            (ActorPlace::Alive { .. }, Self::Away) => {
                *self = Self::Alive;
                Some(News::Back)
            }
            (ActorPlace::Dead(failure), _) => {
                *self = Self::Gone;
                Some(News::Gone(failure))
            }
        }
    }
}

/// See the module.
pub(super) struct Actors<N: LocalNode> {
    /// Which life of each actor that the other node hosts for this one.
    pub(super) hosted_there: BTreeMap<ActorId, u32>,
    hosted_here: BTreeMap<ActorId, Hosted<N::Actor>>,
    expected: Vec<Expected<N::Arguments>>,
    exports: BTreeMap<ActorId, Exported<N::Actor>>,
    /// Actors that the other side has exported. The node alone decides when an import is released: it answers each once.
    imports: BTreeMap<ActorId, Imported>,
    /// How many [`Frame::ActorAway`] were sent.
    aways_sent: u64,
    /// How many [`Frame::ActorAway`] were received.
    pub(super) aways_received: u64,
}

impl<N: LocalNode> Default for Actors<N> {
    fn default() -> Self {
        Self {
            hosted_there: BTreeMap::new(),
            hosted_here: BTreeMap::new(),
            expected: Vec::new(),
            exports: BTreeMap::new(),
            imports: BTreeMap::new(),
            aways_sent: 0,
            aways_received: 0,
        }
    }
}

impl<N: LocalNode> Actors<N> {
    pub(super) fn exported(&self) -> usize {
        self.exports.len()
    }

    pub(super) fn imported(&self) -> usize {
        self.imports.len()
    }

    pub(super) fn hosted(&self) -> usize {
        self.hosted_here.len() + self.expected.len()
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        for (actor, exported) in &self.exports {
            assert!(exported.count > 0, "remote node invariant 1: {actor:?} is held and was released");
            assert!(exported.away_at <= self.aways_sent, "{actor:?} is away later than now");
        }
        for (actor, imported) in &self.imports {
            assert!(imported.count > 0, "remote node invariant 1: {actor:?} is imported no time");
        }
    }
}

impl<N: LocalNode> RemoteNode<N> {
    // Actors that this side exports.

    /// The other side is about to learn of an actor, which is held until the other side has released it. Also if it lives on
    /// one side for the other: that may not have begun there yet, or be over.
    pub(super) fn export_actor(&mut self, actor: ActorId) {
        if let Some(exported) = self.actors.exports.get_mut(&actor) {
            exported.count += 1;
            return;
        }
        let handle = self.node.hold_actor(actor);
        self.node.look_at(&handle);
        let exported = Exported { handle, count: 1, view: RemoteView::Away, away_at: 0 };
        self.actors.exports.insert(actor, exported);
    }

    /// The other side wants to know an actor, and expects to be told when it takes calls.
    pub(super) fn on_actor_sought(&mut self, actor: ActorId) {
        self.export_actor(actor);
        self.send(Frame::ActorKnown { actor });
        self.send_again(actor);
    }

    /// This node has taken over an actor, which the other side may know from its owner before.
    pub(super) fn send_inherited(&mut self, actor: ActorId) {
        self.export_actor(actor);
        self.send(Frame::ActorInherited { actor });
        self.send_again(actor);
    }

    pub(super) fn on_actor_released(&mut self, actor: ActorId, count: u64) {
        let Some(exported) = self.actors.exports.get_mut(&actor) else { return };
        exported.count = exported.count.saturating_sub(count);
        match exported.count {
            0 => drop(self.actors.exports.remove(&actor)),
            // It was exported again meanwhile, and is new to the other side.
            _ => self.send_again(actor),
        }
    }

    fn send_again(&mut self, actor: ActorId) {
        let Some(exported) = self.actors.exports.get_mut(&actor) else { return };
        let news = exported.view.repeat();
        self.node.look_at(&exported.handle);
        news.into_iter().for_each(|news| self.send_news(actor, news));
    }

    /// The node says how an actor is.
    pub(super) fn on_actor_changed(&mut self, actor: ActorId, place: ActorPlace) {
        if self.hosts(actor) {
            return self.on_hosted_actor_changed(actor, place);
        }
        let Some(exported) = self.actors.exports.get_mut(&actor) else { return };
        let news = exported.view.on_place(place);
        news.into_iter().for_each(|news| self.send_news(actor, news));
    }

    fn send_news(&mut self, actor: ActorId, news: News) {
        match news {
            News::Away(away) => self.send_away(actor, away),
            News::Back => self.send(Frame::ActorBack { actor }),
            News::Gone(failure) => self.send(Frame::ActorGone { actor, failure }),
        }
    }

    /// A call of the other side ended with its actor. Whether the other side learns that about the actor: then its callers
    /// decide themselves what becomes of their calls.
    pub(super) fn on_call_lost(&mut self, actor: ActorId, failure: &Failure) -> bool {
        if self.hosts(actor) {
            return true;
        }
        let Some(exported) = self.actors.exports.get(&actor) else { return false };
        if exported.view == RemoteView::Alive {
            self.send_away(actor, Away { reason: failure.message.clone(), is_moved: false });
        }
        true
    }

    /// The calls that an actor has here are lost, as the other side is told: none of them may run any more.
    fn send_away(&mut self, actor: ActorId, away: Away) {
        let Some(exported) = self.actors.exports.get_mut(&actor) else { return };
        self.actors.aways_sent += 1;
        (exported.view, exported.away_at) = (RemoteView::Away, self.actors.aways_sent);
        for received in self.received.remove_calls(actor) {
            self.cancel(received.key, false, true);
            self.release_unanswered(&received);
        }
        self.send(Frame::ActorAway { actor, away });
    }

    pub(super) fn on_kill_actor(&mut self, actor: ActorId, restart: bool) {
        self.node.tell(ToNode::ActorKilled { actor, restart, request: None });
    }

    /// The handle by which a call of the other side reaches its actor, if the other side means the actor as it is now.
    pub(super) fn actor_for(&self, actor: ActorId, aways: u64) -> Option<N::Actor> {
        if let Some(hosted) = self.actors.hosted_here.get(&actor) {
            return Some(hosted.handle.clone());
        }
        let exported = self.actors.exports.get(&actor).filter(|exported| exported.away_at <= aways);
        exported.map(|exported| exported.handle.clone())
    }

    // Actors that the other side exports.

    /// The other side has exported an actor: it is reached through this process, unless it lives on one side for the other.
    /// The caller has this process hold it.
    pub(super) fn import_actor(&mut self, actor: ActorId) {
        if self.count_actor_import(actor) {
            self.node.tell(ToNode::ActorEscaped { actor, host: self.node.process() });
        }
    }

    /// The other side has taken over an actor and exports it; this node may know it from its owner before.
    pub(super) fn on_actor_inherited(&mut self, actor: ActorId) {
        if self.count_actor_import(actor) {
            self.node.tell(ToNode::ActorInherited { actor });
        }
    }

    /// Counts an export of the other side. Gives whether the actor does not live on one side for the other.
    fn count_actor_import(&mut self, actor: ActorId) -> bool {
        let hosted = self.hosts(actor) || self.actors.hosted_there.contains_key(&actor);
        match hosted {
            true => self.send(Frame::ActorReleased { actor, count: 1 }),
            false => self.actors.imports.entry(actor).or_default().count += 1,
        }
        !hosted
    }

    /// A process here has looked up an actor of the other side by its name: the port learns when it is known here.
    pub fn seek_actor(&mut self, actor: ActorId) {
        self.send(Frame::ActorSought { actor });
    }

    /// The other side has exported an actor that was looked for.
    pub(super) fn on_actor_known(&mut self, actor: ActorId) {
        self.import_actor(actor);
        let handle = self.node.hold_actor(actor);
        self.node.on_actor_found(actor);
        // The process that has looked for it holds it by now.
        drop(handle);
    }

    /// The node wants an actor ended whose proxy is this process.
    pub(super) fn end_actor_there(&mut self, actor: ActorId, ending: Ending) {
        if self.actors.hosted_there.contains_key(&actor) {
            return self.send(Frame::EndActor { actor, now: ending == Ending::Now });
        }
        // It lives on where it is, or here; this process is its proxy no more.
        let failure = Failure::new(FailureKind::ActorDied, "nobody held a handle of it");
        self.node.tell(ToNode::ActorEnded { actor, failure });
    }

    /// The node does not need so many imports of an actor. If the other side has exported it again since, the rest stays.
    pub(super) fn release_imports(&mut self, actor: ActorId, count: u64) {
        let releases_all = self.has_bug(PlantedBug::ReleaseAllActorImports);
        let Some(imported) = self.actors.imports.get_mut(&actor) else { return };
        let count = if releases_all { imported.count } else { count.min(imported.count) };
        imported.count -= count;
        if imported.count == 0 {
            self.actors.imports.remove(&actor);
        }
        self.send(Frame::ActorReleased { actor, count });
    }

    pub(super) fn on_actor_away(&mut self, actor: ActorId, away: Away) {
        self.actors.aways_received += 1;
        self.forget_calls(actor);
        if !self.has_bug(PlantedBug::SilentAway) {
            self.tell_of_actor(actor, ToNode::ActorAway { actor, away });
        }
    }

    pub(super) fn on_actor_back(&mut self, actor: ActorId) {
        if let Some(imported) = self.actors.imports.get_mut(&actor) {
            imported.is_gone = false;
        }
        self.tell_of_actor(actor, ToNode::ActorBack { actor });
    }

    pub(super) fn on_actor_gone(&mut self, actor: ActorId, failure: Failure) {
        self.forget_calls(actor);
        if let Some(imported) = self.actors.imports.get_mut(&actor) {
            imported.is_gone = true;
        }
        self.tell_of_actor(actor, ToNode::ActorEnded { actor, failure });
    }

    // Actors that live here for the other side.

    /// Whether the actor lives here for the other side.
    pub(super) fn hosts(&self, actor: ActorId) -> bool {
        self.actors.hosted_here.contains_key(&actor)
    }

    /// The other side wants an actor hosted here; what its arguments refer to was imported.
    pub(super) fn on_host_actor(&mut self, spec: ActorSpec, arguments: &[PeerArgument], incarnation: u32) {
        let arguments = self.node.arguments(arguments);
        self.node.ask_for(&arguments);
        // The other side decides whether, where and under which name it lives again.
        // An actor whose checkpoints are on this node's disk would begin anew elsewhere.
        let is_portable = spec.log.as_ref().is_none_or(|log| !log.directory.is_empty());
        let may_move = spec.restarts_max > 0 && is_portable;
        let (restarts_max, lives) = (0, incarnation);
        let strategy = Strategy::Node { node: self.node.node(), soft: false };
        let spec = ActorSpec {
            restarts_max,
            may_move,
            lives,
            name: None,
            detached: false,
            ends_with_creator: false,
            awaits_arguments: false,
            strategy,
            near: None,
            ..spec
        };
        self.actors.expected.push(Expected { spec, arguments, incarnation });
        self.host_ready_actors();
    }

    /// Starts the actors whose arguments are known by now.
    pub(super) fn host_ready_actors(&mut self) {
        for expected in std::mem::take(&mut self.actors.expected) {
            if !self.node.are_known(&expected.arguments) {
                self.actors.expected.push(expected);
                continue;
            }
            let Expected { spec, arguments, incarnation } = expected;
            let actor = spec.actor;
            match self.node.host_actor(spec, arguments) {
                Ok(handle) => {
                    self.actors.hosted_here.insert(actor, Hosted { handle, incarnation, told: false });
                }
                Err(error) => {
                    let failure = Failure::new(FailureKind::ActorDied, error);
                    self.send(Frame::ActorEnded { actor, incarnation, failure });
                }
            }
        }
    }

    fn on_hosted_actor_changed(&mut self, actor: ActorId, place: ActorPlace) {
        let Some(hosted) = self.actors.hosted_here.get_mut(&actor) else { return };
        let incarnation = hosted.incarnation;
        match place {
            ActorPlace::Pending(_) | ActorPlace::Moved(_) => {}
            ActorPlace::Alive { .. } => {
                if !std::mem::replace(&mut hosted.told, true) {
                    self.send(Frame::ActorStarted { actor, incarnation });
                }
            }
            ActorPlace::Dead(failure) => {
                self.actors.hosted_here.remove(&actor);
                self.send(Frame::ActorEnded { actor, incarnation, failure });
            }
        }
    }

    /// The process of an actor that lived here for the other side died, and that side decides whether it lives again; or the
    /// actor is returned.
    pub(super) fn lose_hosted_actor(&mut self, actor: ActorId, cause: Option<DeathCause>) {
        if let Some(Hosted { incarnation, .. }) = self.actors.hosted_here.remove(&actor) {
            self.send(Frame::ActorLost { actor, incarnation, cause });
        }
    }

    /// The other side, which owns the actor, wants it ended.
    pub(super) fn on_end_actor(&mut self, actor: ActorId, now: bool) {
        let expected = self.actors.expected.extract_if(.., |expected| expected.spec.actor == actor).last();
        let hosted = self.actors.hosted_here.remove(&actor);
        let incarnation = match (&hosted, &expected) {
            (Some(hosted), _) => hosted.incarnation,
            (None, Some(expected)) => expected.incarnation,
            // It is not here yet, or has ended by itself, and that was said.
            (None, None) => match self.take_waiting_actor(actor) {
                Some(incarnation) => incarnation,
                None => return,
            },
        };
        if now && hosted.is_some() {
            // Processes that hold it here learn from the other side whether it lives again.
            self.node.tell(ToNode::ActorKilled { actor, restart: true, request: None });
        }
        let failure = Failure::new(FailureKind::ActorDied, "the actor was ended");
        self.send(Frame::ActorEnded { actor, incarnation, failure });
        // It ends after the calls that it has.
        drop(hosted);
    }

    // Actors that live there for this side.

    /// Whether the other node takes calls of an actor from this one: it has exported the actor, or hosts the actor for this
    /// node, and this side has heard of no end since.
    pub(super) fn reaches_actor(&self, actor: ActorId) -> bool {
        let is_imported = self.actors.imports.get(&actor).is_some_and(|imported| !imported.is_gone);
        is_imported || self.actors.hosted_there.contains_key(&actor)
    }

    pub(super) fn on_actor_started(&mut self, actor: ActorId, incarnation: u32) {
        self.node.tell(ToNode::ActorStarted { actor, incarnation });
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
        ActorPlace::Alive { process: ProcessSlot(1), incarnation: 0, remembers: false }
    }

    #[test]
    fn who_seeks_an_actor_that_it_has_called_hears_that_the_calls_are_lost() {
        let mut view = RemoteView::Away;
        assert_eq!(view.on_place(alive()), Some(News::Back));
        assert_eq!(view.repeat(), Some(News::Back));
        let pending = || ActorPlace::Pending("restarting".to_owned());
        assert_eq!(
            view.on_place(pending()),
            Some(News::Away(Away { reason: "restarting".to_owned(), is_moved: false }))
        );
    }

    #[test]
    fn who_learns_of_an_actor_hears_when_it_takes_calls() {
        let mut view = RemoteView::Away;
        assert_eq!(view.on_place(ActorPlace::Pending(String::new())), None);
        assert_eq!(view.repeat(), None);
        assert_eq!((view.on_place(alive()), view.on_place(alive())), (Some(News::Back), None));
        let failure = Failure::new(FailureKind::ActorDied, "killed");
        assert_eq!(view.on_place(ActorPlace::Dead(failure.clone())), Some(News::Gone(failure.clone())));
        assert_eq!(view.repeat(), None);
        assert_eq!(view.on_place(ActorPlace::Dead(failure.clone())), Some(News::Gone(failure)), "again");
    }
}
