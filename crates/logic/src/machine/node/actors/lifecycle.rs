//! What happens to an actor, from `ActorWanted` to its end.

use super::super::explain::start_text;
use super::super::granting::{Claim, KeptBack, Served};
use super::super::lanes::environment_too_large;
use super::super::leases::StartFailures;
use super::super::process_table::Role;
use super::super::programs::unknown;
use super::super::resources::Want;
use super::super::{Node, NodeEffect};
use super::record::{Actor, Life, Ownership, Then, forgotten};
use crate::{Effects, Time};
use aktis_protocol::actors::{ActorPlace, ActorSpec, FoundActor};
use aktis_protocol::control::FromNode;
use aktis_protocol::{ActorId, DeathCause, Failure, FailureKind, ProcessSlot, ProgramId, limits};

/// What an actor waits for that is not placed yet.
const AWAITS_ARGUMENTS: &str = "it waits for the arguments of its constructor";
/// Why an actor lives elsewhere, though its process is well.
pub(in super::super) const MOVED: &str = "moving, since its node is drained";
/// Why an actor ends that was to live as long as its creator.
const CREATOR_DIED: &str = "the process that created the actor is gone";

impl Node {
    pub(in super::super) fn on_actor_wanted(
        &mut self,
        now: Time,
        from: ProcessSlot,
        mut spec: ActorSpec,
        out: &mut Effects<NodeEffect>,
    ) {
        let actor = spec.actor;
        if let Some(place) = spec.group {
            self.look_for_group(place.group, out);
        }
        spec.isolated |= self.programs.shares(spec.program) == Some(false);
        let proxy = self.proxy_for(actor).filter(|_| self.is_peer(from));
        if proxy.is_some() {
            // It was known here by its handles only, and is to live here now.
            self.release_imports(actor, out);
        } else if let Some(known) = self.actors.table.get_mut(&actor)
            && !matches!(known.life, Life::Dead(_))
        {
            // The task that creates it runs again, and names it again.
            known.holders.insert(from);
            if let Life::Ending { then: then @ (Then::Forgotten | Then::HandBack(_)), .. } = &mut known.life {
                *then = Then::Restart("it is created again".into());
                known.spec = ActorSpec { awaits_arguments: false, ..spec };
            }
            return self.tell_one(actor, from, out);
        }
        let told = if spec.awaits_arguments { AWAITS_ARGUMENTS } else { "" };
        let life = match self.refusal(&spec) {
            Some(failure) => Life::Dead(failure),
            None => Life::Waiting { after: None, told: told.to_owned() },
        };
        let mut fresh = Actor::new(spec, life);
        fresh.incarnation = fresh.spec.lives;
        if self.is_peer(from) {
            fresh.ownership = Ownership::ForPeer(from);
        } else {
            fresh.creator = Some(from);
        }
        if let Some(old) = self.actors.table.remove(&actor) {
            fresh.holders = old.holders;
            fresh.containers = old.containers;
            let was_elsewhere = matches!(old.ownership, Ownership::AtPeer(_) | Ownership::Lost);
            if !(was_elsewhere && self.is_peer(from)) {
                // Of one owned by another node, that one knows which life it is.
                fresh.incarnation = fresh.incarnation.max(old.incarnation + 1);
            }
        }
        fresh.holders.insert(from);
        let (waits, may_start) = (!fresh.is_gone(), !fresh.spec.awaits_arguments);
        if let Some(name) = fresh.spec.name.clone().filter(|_| waits) {
            self.claim_name(&name, found(&fresh.spec), out);
            self.actors.names.insert(name, actor);
        }
        self.actors.table.insert(actor, fresh);
        match waits && may_start {
            true => self.claims.push_back(Claim::Actor(actor)),
            false => self.tell(actor, out),
        }
        self.serve(now, out);
    }

    /// The actor may be placed. Until then it holds nothing that the tasks may need that make its arguments.
    pub(in super::super) fn on_actor_arguments_ready(
        &mut self,
        now: Time,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        self.let_be_placed(actor);
        self.serve(now, out);
    }

    fn let_be_placed(&mut self, actor: ActorId) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        let awaited = std::mem::take(&mut known.spec.awaits_arguments);
        if awaited && let Life::Waiting { told, .. } = &mut known.life {
            told.clear();
            self.claims.push_back(Claim::Actor(actor));
        }
    }

    /// Why there cannot be such an actor, if so.
    fn refusal(&self, spec: &ActorSpec) -> Option<Failure> {
        if self.programs.shares(spec.program).is_none() {
            return Some(Failure::new(FailureKind::ActorDied, unknown(spec.program)));
        }
        if spec.environment.len() > limits::ENVIRONMENT_BYTES_MAX {
            let text = environment_too_large(spec.environment.len());
            return Some(Failure::new(FailureKind::ActorDied, text));
        }
        if let Some(failure) = self.place_refusal(&spec.strategy) {
            return Some(Failure { kind: FailureKind::ActorUnschedulable, ..failure });
        }
        if let Some(failure) = spec.group.and_then(|place| self.group_refusal(place)) {
            return Some(Failure { kind: FailureKind::ActorGroupRemoved, ..failure });
        }
        spec.name.as_ref().filter(|&name| self.actors.names.contains_key(name)).map(|name| name_taken(name))
    }

    /// Finds the actor a place to live, if there is one now.
    pub(in super::super) fn serve_actor(
        &mut self,
        now: Time,
        actor: ActorId,
        kept_back: &KeptBack,
        out: &mut Effects<NodeEffect>,
    ) -> Served {
        let Some(known) = self.actors.table.get_mut(&actor) else { return Served::Satisfied };
        if !matches!(known.life, Life::Waiting { .. }) {
            return Served::Satisfied;
        }
        let (want, isolated, program) = (needed(&known.spec), known.spec.isolated, known.spec.program);
        known.start_failures.not_before = known.start_failures.not_before.filter(|due| now < *due);
        if known.start_failures.not_before.is_some() {
            let text = start_text(known.start_failures.count, &known.start_failures.last);
            return self.put_off(actor, text, out);
        }
        if !self.may_live_here(actor) || !self.resources.is_feasible(&want) {
            let strategy = &self.actors.table[&actor].spec.strategy;
            let text = self.actor_place_text(actor);
            let text = text.unwrap_or_else(|| self.infeasible_text(&want, strategy));
            self.warn_creator_if_alone(actor, &text, out);
            return self.put_off(actor, text, out);
        }
        if !isolated && self.process_table.shared(program).is_none() {
            self.ensure_shared(now, program, out);
            return self.put_off(actor, self.shared_text(program), out);
        }
        if kept_back.forbids(&want) || !self.resources.fits(&want) {
            let lacking = self.resources.lacking(&want);
            self.ask_back_for(now, Claim::Actor(actor), &want, &lacking, out);
            let text = self.lacking_text(&want) + self.behind_text(Claim::Actor(actor), &want);
            let _ = self.put_off(actor, text, out);
            return Served::Lacks(want);
        }
        match isolated {
            true => self.place_isolated(now, actor, out),
            false => self.place_shared(actor, out),
        }
    }

    fn place_shared(&mut self, actor: ActorId, out: &mut Effects<NodeEffect>) -> Served {
        let spec = &self.actors.table[&actor].spec;
        let Some(host) = self.process_table.shared(spec.program) else { return Served::Waits };
        let allocation = self.resources.allocate(&held(spec)).expect("it fits");
        self.set_life(actor, Life::Starting { host, allocation, asked: false });
        self.host_on(actor, host, out);
        Served::Satisfied
    }

    fn place_isolated(&mut self, now: Time, actor: ActorId, out: &mut Effects<NodeEffect>) -> Served {
        let spec = &self.actors.table[&actor].spec;
        let (want, set_up) = (held(spec), (spec.program, spec.environment.clone()));
        match self.start_isolated(now, Role::ActorHost(actor), &want, set_up, out) {
            Some((host, allocation)) => {
                self.set_life(actor, Life::Starting { host, allocation, asked: false });
                Served::Satisfied
            }
            None => self.put_off(actor, "all places for processes are taken".into(), out),
        }
    }

    /// What an actor needs to be placed.
    pub(in super::super) fn wanted_by_actor(&self, actor: ActorId) -> Option<Want> {
        self.actors.table.get(&actor).map(|known| needed(&known.spec))
    }

    /// What an actor without a host needs.
    pub(in super::super) fn waiting_actor(&self, actor: ActorId) -> Option<Want> {
        let known = self.actors.table.get(&actor)?;
        matches!(known.life, Life::Waiting { .. }).then(|| needed(&known.spec))
    }

    /// The actor shall live on another node.
    pub(in super::super) fn place_on_peer(
        &mut self,
        actor: ActorId,
        peer: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.actors.is_waiting(actor) {
            return;
        }
        self.claims.retain(|claim| *claim != Claim::Actor(actor));
        self.set_life(actor, Life::Starting { host: peer, allocation: Default::default(), asked: false });
        self.host_on(actor, peer, out);
    }

    /// The actor waits; its holders learn for what, if that is news.
    fn put_off(&mut self, actor: ActorId, text: String, out: &mut Effects<NodeEffect>) -> Served {
        let known = self.actors.table.get_mut(&actor).map(|known| &mut known.life);
        if let Some(Life::Waiting { told, .. }) = known
            && *told != text
        {
            *told = text;
            self.tell(actor, out);
        }
        Served::Waits
    }

    /// Its host takes messages: it is asked to construct the actor.
    pub(in super::super) fn host_on(
        &mut self,
        actor: ActorId,
        host: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        let Life::Starting { host: chosen, allocation, asked } = &mut known.life else { return };
        if *chosen != host || *asked {
            return;
        }
        *asked = true;
        let gpus = allocation.gpu_indices();
        let mut spec = Box::new(known.spec.clone());
        spec.takeover = known.takeover().filter(|_| self.process_table.is_peer(host)).map(Box::new);
        let message = FromNode::HostActor { spec, incarnation: known.incarnation, gpus };
        self.send(host, message, out);
        self.tell_abroad(actor, host, out);
    }

    pub(in super::super) fn on_actor_started(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        incarnation: u32,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        let Life::Starting { host, allocation, .. } = &mut known.life else { return };
        if *host != from || known.incarnation != incarnation {
            return;
        }
        let allocation = std::mem::take(allocation);
        known.life = Life::Alive { host: from, allocation };
        known.away = None;
        known.start_failures = StartFailures::default();
        if let Some(log) = &mut known.spec.log {
            log.started = true;
        }
        self.tell(actor, out);
    }

    pub(in super::super) fn on_actor_ended(
        &mut self,
        now: Time,
        from: ProcessSlot,
        actor: ActorId,
        failure: Failure,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.actors.table.get(&actor).and_then(Actor::host) != Some(from) {
            return;
        }
        if self.process_table.get(from).is_some_and(|process| process.role == Role::ActorHost(actor)) {
            self.end_process(now, from, out);
        }
        self.release_imports(actor, out);
        match self.vacate(actor) {
            // It has ended by itself before it could be moved.
            Some(Then::Move(_)) | None => self.on_gone(now, actor, failure, out),
            Some(then) => self.finish(now, actor, then, out),
        }
        self.serve(now, out);
    }

    pub(in super::super) fn on_host_died(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        for actor in self.actors.hosted_by(dead) {
            self.on_life_lost(now, actor, cause, out);
        }
        for actor in self.actors.hosted_for(dead) {
            self.on_owner_lost(now, actor, "the node that had it started is gone", out);
        }
        self.lose_owner(dead);
    }

    /// Ends the actors that were to live as long as their creator. A worker that the node ends for lack of work, or that has
    /// run as often as it may, creates nothing any more, but what it has created goes on.
    pub(in super::super) fn on_creator_died(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        role: Role,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        for actor in self.actors.held_back_by(dead) {
            self.let_be_placed(actor);
        }
        let ending = self.actors.ending_with(dead);
        self.actors.forget_creator(dead);
        let ended_well = cause.signal.is_none() && cause.exit_code.unwrap_or(0) == 0;
        if ended_well && matches!(role, Role::TaskRunner(_) | Role::Retired) {
            return;
        }
        for actor in ending {
            let text = format!("{CREATOR_DIED}: {cause}");
            self.kill_actor(now, actor, false, Failure::new(FailureKind::ActorDied, text), out);
        }
    }

    /// The process in which the actor lived, or was to, is dead.
    pub(in super::super) fn on_life_lost(
        &mut self,
        now: Time,
        actor: ActorId,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        if let Life::Starting { .. } = known.life {
            known.start_failures.add(now, cause.to_string());
        }
        // An actor that dies on its way out has died like any other: calls may have begun.
        known.cancel_move();
        if let Some(then) = self.vacate(actor) {
            return self.finish(now, actor, then, out);
        }
        if let Ownership::ForPeer(peer) = self.actors.table[&actor].ownership {
            self.send(peer, FromNode::ActorLost { actor, cause: Some(cause.clone()) }, out);
            return self.hand_back(now, actor, format!("it died with its process: {cause}"), false, out);
        }
        match self.after_death(actor, cause) {
            Then::Dead(failure) => self.on_gone(now, actor, failure, out),
            then => self.finish(now, actor, then, out),
        }
    }

    /// The node that was to construct the actor hands it back: it waits for another place, and that was no life. Or that node
    /// is drained: it has ended the actor after the calls that it had.
    pub(in super::super) fn on_handed_back(
        &mut self,
        now: Time,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        let has_lived = self.actors.table.get(&actor).is_some_and(|known| known.is_alive());
        match self.vacate(actor) {
            Some(then) => self.finish(now, actor, then, out),
            None if has_lived => self.finish(now, actor, Then::Move(MOVED.to_owned()), out),
            None => {
                self.claims.push_back(Claim::Actor(actor));
                self.tell(actor, out);
            }
        }
    }

    /// What a death means for an actor that was not to end.
    fn after_death(&mut self, actor: ActorId, cause: &DeathCause) -> Then {
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        if known.take_restart() {
            return Then::Restart(format!("restarting after {cause}"));
        }
        let restarts = known.spec.restarts_max;
        let text = match restarts {
            0 => format!("the actor died with its process: {cause}"),
            restarts => format!("the actor died after {restarts} restarts: {cause}"),
        };
        Then::Dead(Failure::new(FailureKind::ActorCrashed(Some(restarts)), text))
    }

    /// Takes the actor out of its host, and its resources back. Returns what was to become of it, if it
    /// was being ended.
    pub(super) fn vacate(&mut self, actor: ActorId) -> Option<Then> {
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        let vacant = Life::Waiting { after: None, told: String::new() };
        let (allocation, then) = match std::mem::replace(&mut known.life, vacant) {
            Life::Starting { allocation, .. } | Life::Alive { allocation, .. } => (allocation, None),
            Life::Ending { allocation, then, .. } => (allocation, Some(then)),
            life @ (Life::Waiting { .. } | Life::Dead(_)) => {
                known.life = life;
                return None;
            }
        };
        self.warm_due |= !allocation.resources().is_empty();
        self.resources.release(allocation);
        then
    }

    fn finish(&mut self, now: Time, actor: ActorId, then: Then, out: &mut Effects<NodeEffect>) {
        match then {
            Then::Dead(failure) => {
                // Its holders were told when it was ordered to end.
                self.set_life(actor, Life::Dead(failure));
                self.forget_checkpoint(actor, out);
                self.end_if_unreachable(now, actor, out);
            }
            Then::HandBack(why) => self.hand_back(now, actor, why, false, out),
            Then::Move(why) => self.on_moved(now, actor, why, out),
            Then::Forgotten => self.on_gone(now, actor, forgotten(), out),
            Then::Restart(after) => {
                let known = self.actors.table.get_mut(&actor).expect("the actor is known");
                known.begin_next_life(after);
                self.claims.push_back(Claim::Actor(actor));
                self.tell(actor, out);
            }
        }
    }

    /// The actor has ended here after the calls that it had, to live elsewhere. That uses up no restart.
    fn on_moved(&mut self, now: Time, actor: ActorId, why: String, out: &mut Effects<NodeEffect>) {
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        if let Ownership::ForPeer(peer) = known.ownership {
            self.send(peer, FromNode::ActorLost { actor, cause: None }, out);
            return self.hand_back(now, actor, why, true, out);
        }
        known.begin_next_life(why);
        self.claims.push_back(Claim::Actor(actor));
        self.tell_moved(actor, out);
    }

    pub(super) fn on_gone(
        &mut self,
        now: Time,
        actor: ActorId,
        failure: Failure,
        out: &mut Effects<NodeEffect>,
    ) {
        self.actors.free_name(actor);
        self.set_life(actor, Life::Dead(failure));
        self.forget_checkpoint(actor, out);
        self.tell(actor, out);
        self.end_if_unreachable(now, actor, out);
    }

    /// The actor ended for good, and no other node will start it again.
    fn forget_checkpoint(&mut self, actor: ActorId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.actors.table.get_mut(&actor).filter(|known| known.ownership == Ownership::Own)
        else {
            return;
        };
        if let Some(log) = known.spec.log.take() {
            out.push(NodeEffect::ForgetCheckpoint { actor, directory: log.directory });
        }
    }

    /// The program cannot run as a worker at all: better a clear end than waiting for ever.
    pub(in super::super) fn fail_waiting_actors(
        &mut self,
        now: Time,
        program: ProgramId,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        for actor in self.actors.waiting_for_shared(program) {
            let text = format!("no worker process could be started for the actor: {cause}");
            self.claims.retain(|claim| *claim != Claim::Actor(actor));
            self.on_gone(now, actor, Failure::new(FailureKind::ActorDied, text), out);
        }
    }

    fn set_life(&mut self, actor: ActorId, life: Life) {
        self.forget_place(actor);
        if let Some(known) = self.actors.table.get_mut(&actor) {
            known.life = life;
        }
    }

    pub(in super::super) fn tell(&mut self, actor: ActorId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.actors.table.get(&actor) else { return };
        for &holder in &known.holders {
            self.tell_one(actor, holder, out);
        }
    }

    /// Tells the holders of an actor that it is about to live elsewhere: no call without an answer has begun.
    pub(super) fn tell_moved(&self, actor: ActorId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.actors.table.get(&actor) else { return };
        let ActorPlace::Pending(reason) = known.place() else { return };
        for &holder in &known.holders {
            let place = ActorPlace::Moved(reason.clone());
            self.send(holder, FromNode::ActorChanged { actor, place }, out);
        }
    }

    pub(super) fn tell_one(&self, actor: ActorId, holder: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.actors.table.get(&actor) else { return };
        self.send(holder, FromNode::ActorChanged { actor, place: known.place() }, out);
    }

    pub(in super::super) fn check_actors(&self) {
        let contained = self.directory.contained_actors();
        for (actor, known) in &self.actors.table {
            for holder in &known.holders {
                assert!(self.process_table.is_live(*holder), "{actor} is held by the dead process {holder}");
            }
            assert_eq!(known.containers, contained.get(actor).copied().unwrap_or(0), "containers of {actor}");
            let ending = matches!(known.life, Life::Ending { .. });
            assert!(ending || !known.is_unreachable(), "actors invariant 1: {actor}");
            if let Life::Waiting { .. } = known.life {
                let claims = self.claims.contains(&Claim::Actor(*actor));
                assert!(
                    claims != known.spec.awaits_arguments,
                    "{actor} waits and claims nothing, or too early"
                );
            }
            if let Some(host) = known.host() {
                let host = self.process_table.get(host).expect("a host has a place");
                assert!(
                    !matches!(host.stage, super::super::process_table::Stage::Dead { .. }),
                    "{actor} lives on"
                );
            }
        }
        for (name, actor) in &self.actors.names {
            let known = self.actors.table.get(actor).expect("a name belongs to a known actor");
            assert!(!known.is_gone() && known.spec.name.as_ref() == Some(name), "actors invariant 2: {name}");
        }
    }
}

/// What the actor holds while it lives.
fn held(spec: &ActorSpec) -> Want {
    Want { resources: spec.resources.clone(), group: spec.group }
}

/// What must be free for the actor to be placed.
fn needed(spec: &ActorSpec) -> Want {
    let mut needed = held(spec);
    for (name, amount) in spec.placement.iter() {
        needed.resources.set(name, amount.max(needed.resources.get(name)));
    }
    needed
}

/// What those learn who find the actor by its name.
pub(super) fn found(spec: &ActorSpec) -> FoundActor {
    FoundActor {
        actor: spec.actor,
        type_name: spec.type_name.clone(),
        details: spec.details.clone(),
        abroad: false,
    }
}

pub(in super::super) fn name_taken(name: &str) -> Failure {
    Failure::new(
        FailureKind::ActorDied,
        format!(
            "the name {name:?} is taken by another actor\n\
             hint: find that actor by its name, or choose another name"
        ),
    )
}
