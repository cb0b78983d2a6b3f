//! Rights between jobs: which process may say what, and whose actors and objects it may name.
//!
//! A job is what runs of one program: its drivers, their workers, and what those submit. The owner of an actor or an
//! object is the job whose process made it. Jobs that know each other by a name form a *circle* and may use what is
//! each other's. See `docs/internals/rights.md`.
//!
//! Invariants:
//! 1. Circles, open jobs and namespaces are those of programs that are known here.
//! 2. A process that stands for another node, and the daemon, may say everything; the nodes of a cluster trust each other.
//! 3. What another node brought here, or has been given, has no owner here: to know its id is enough.

mod refusals;

use super::actors::{Actor, Ownership};
use super::process_table::Role;
use super::programs::Programs;
use super::{Node, NodeEffect};
use crate::directory::Value;
use crate::{Effects, Time};
use aktis_protocol::actors::is_private;
use aktis_protocol::control::ToNode;
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::{ActorId, GroupId, ObjectId, ProcessSlot, ProgramId, limits};
use std::collections::{BTreeMap, BTreeSet};

/// Which jobs share, with each other or with all.
#[derive(Debug, Default)]
pub(super) struct Rights {
    /// Jobs that know each other have the same number; a job that knows no other has none.
    circles: BTreeMap<ProgramId, u64>,
    last_circle: u64,
    /// Jobs that share with all others.
    open: BTreeSet<ProgramId>,
    /// The private namespaces of jobs, as far as they have named them.
    namespaces: BTreeMap<ProgramId, String>,
}

impl Rights {
    /// Whether a job may use what is an owner's.
    fn may(&self, job: ProgramId, owner: ProgramId) -> bool {
        let circle = |job| self.circles.get(&job);
        job == owner || self.open.contains(&owner) || (circle(job).is_some() && circle(job) == circle(owner))
    }

    /// The two know each other from now on, and whom the other knows.
    fn join(&mut self, one: ProgramId, other: ProgramId) {
        if one == other {
            return;
        }
        self.last_circle += 1;
        let of_both = [one, other].map(|job| self.circles.insert(job, self.last_circle));
        for circle in self.circles.values_mut().filter(|circle| of_both.contains(&Some(**circle))) {
            *circle = self.last_circle;
        }
    }

    /// The job is forgotten. Gives another one of its circle.
    fn forget(&mut self, job: ProgramId) -> Option<ProgramId> {
        self.open.remove(&job);
        self.namespaces.remove(&job);
        let circle = self.circles.remove(&job)?;
        self.circles.iter().find(|(_, other)| **other == circle).map(|(successor, _)| *successor)
    }

    pub(super) fn check(&self, programs: &Programs) {
        for job in self.circles.keys().chain(&self.open).chain(self.namespaces.keys()) {
            assert!(programs.shares(*job).is_some(), "rights invariant 1: {job}");
        }
    }
}

/// For whom a process speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    /// For this node or another one.
    Node,
    /// For a job; for none if it was started for an actor that is gone.
    Job(Option<ProgramId>),
}

impl Node {
    fn speaker(&self, process: ProcessSlot) -> Speaker {
        match self.process_table.get(process) {
            Some(known) if matches!(known.role, Role::Daemon | Role::Peer(_)) => Speaker::Node,
            Some(known) => Speaker::Job(known.job.or_else(|| self.program_of(process))),
            None => Speaker::Job(None),
        }
    }

    /// Whether what speaks for `job` may use what is this owner's.
    fn may(&self, job: Option<ProgramId>, owner: ProgramId) -> bool {
        job.is_some_and(|job| self.rights.may(job, owner))
    }

    /// Whether the two may send each other messages: of jobs of which one may use what is the other's.
    fn may_meet(&self, job: Option<ProgramId>, other: ProcessSlot) -> bool {
        match (job, self.speaker(other)) {
            (_, Speaker::Node) => true,
            (Some(job), Speaker::Job(Some(other))) => {
                self.rights.may(job, other) || self.rights.may(other, job)
            }
            // It is gone, and takes nothing.
            (_, Speaker::Job(None)) => self.process_table.get(other).is_none(),
            (None, _) => false,
        }
    }

    /// The job whose process made the object, if a strange job may not use it.
    fn owner_of(&self, object: ObjectId) -> Option<ProgramId> {
        let owner = self.directory.job(object)?;
        let is_abroad = self.directory.holders(object).any(|holder| self.is_peer(holder));
        (!is_abroad).then_some(owner)
    }

    /// The job that an actor belongs to, if a strange job may not use it.
    fn owner_of_actor(&self, actor: ActorId) -> Option<ProgramId> {
        let known = self.actors.table.get(&actor)?;
        let is_abroad = known.inherited || known.holders.iter().any(|&holder| self.is_peer(holder));
        (known.ownership == Ownership::Own && !is_abroad).then_some(known.spec.program)
    }

    fn may_use(&self, job: Option<ProgramId>, object: ObjectId) -> bool {
        self.directory.job(object).is_none_or(|owner| self.may(job, owner)) || self.owner_of(object).is_none()
    }

    fn may_call(&self, job: Option<ProgramId>, actor: ActorId) -> bool {
        self.owner_of_actor(actor).is_none_or(|owner| self.may(job, owner))
    }

    /// Gives what of a message counts; nothing if its sender may not say that. The sender is told if it waits for an answer.
    pub(super) fn admit(
        &mut self,
        from: ProcessSlot,
        message: ToNode,
        out: &mut Effects<NodeEffect>,
    ) -> Option<ToNode> {
        let Speaker::Job(job) = self.speaker(from) else { return Some(message) };
        self.meet_through_actor(from, job, &message);
        if !self.allows(job, &message) {
            self.refuse(from, &message, out);
            return None;
        }
        Some(self.narrowed(job, message))
    }

    /// Whether a process of a job may say this. Every message is listed, so that a new one is thought about.
    fn allows(&self, job: Option<ProgramId>, message: &ToNode) -> bool {
        match message {
            // What only another node can know.
            ToNode::Promised { .. }
            | ToNode::Imported { .. }
            | ToNode::NodeGone
            | ToNode::NotKnown { .. }
            | ToNode::LookupWanted { .. }
            | ToNode::OriginWanted { .. }
            | ToNode::ContentsWanted { .. }
            | ToNode::ActorLost { cause: Some(_), .. }
            | ToNode::TaskLost { .. }
            | ToNode::ActorAway { .. }
            | ToNode::ActorBack { .. }
            | ToNode::ActorInherited { .. } => false,

            ToNode::Held { object }
            | ToNode::Subscribed { object }
            | ToNode::Escaped { object, .. }
            | ToNode::Resolved { object, .. }
            | ToNode::LeftToOthers { object }
            | ToNode::CodeKept { object }
            | ToNode::ExtentWanted { object, .. }
            | ToNode::RestoreWanted { object, .. } => self.may_use(job, *object),
            ToNode::CancelWanted(cancel) => self.may_use(job, cancel.object),
            ToNode::Sealed { object, holder } => self.may_use(job, *object) && self.may_meet(job, *holder),
            ToNode::Contains { container, holder, .. } => {
                self.may_use(job, *container) && self.may_meet(job, *holder)
            }

            ToNode::ActorHeld { actor } | ToNode::ActorKilled { actor, .. } | ToNode::ActorArgumentsReady(actor) => {
                self.may_call(job, *actor)
            }
            ToNode::ActorEscaped { actor, host } => {
                // No job makes actors in the process that stands for a node.
                self.speaker(*host) != Speaker::Node
                    && self.may_call(job, *actor)
                    && (self.actors.table.contains_key(actor) || self.may_meet(job, *host))
            }
            ToNode::ActorWanted { spec } => Some(spec.program) == job && self.may_call(job, spec.actor),

            ToNode::LaneWanted { shape, .. } => Some(shape.program) == job,
            ToNode::ChannelWanted { to, .. } => self.may_meet(job, *to),
            ToNode::WorkerKilled { process, .. } => self.may_meet(job, *process),
            ToNode::GroupRemoved { group } => self.may_remove(job, *group),

            // About the sender itself, or what only its sender can mean: the part of the node that takes it looks at that.
            ToNode::Started
            | ToNode::Detached
            | ToNode::LaneForgotten { .. }
            | ToNode::LaneActive { .. }
            | ToNode::LeaseReturned { .. }
            | ToNode::LeaseBlocked { .. }
            | ToNode::Abandoned { .. }
            | ToNode::Released { .. }
            | ToNode::ActorStarted { .. }
            | ToNode::ActorEnded { .. }
            | ToNode::ActorLost { cause: None, .. }
            | ToNode::ActorOrphaned { .. }
            | ToNode::ActorReleased { .. }
            | ToNode::DeathHandled { .. }
            | ToNode::Answered { .. }
            | ToNode::OutputWanted
            // Cut down to what the sender may name, here or where the answer is made.
            | ToNode::Recorded { .. }
            | ToNode::NameWanted { .. }
            | ToNode::NamesWanted { .. }
            | ToNode::StateWanted { .. }
            // Shared by all jobs.
            | ToNode::GroupWanted { .. }
            | ToNode::GroupWatched { .. }
            | ToNode::KeyAsked { .. }
            | ToNode::ExplainWanted { .. }
            | ToNode::ShapeQuestion { .. } => true,
        }
    }

    /// The message without what its sender may not name.
    fn narrowed(&mut self, job: Option<ProgramId>, message: ToNode) -> ToNode {
        match message {
            ToNode::Contains { container, holder, mut objects, mut actors } => {
                objects.retain(|object| self.may_use(job, *object));
                actors.retain(|actor| self.may_call(job, *actor));
                ToNode::Contains { container, holder, objects, actors }
            }
            ToNode::Recorded { mut tasks } => {
                let results = |task: &RecordedTask| {
                    let (id, returns) = (task.task, task.returns.min(limits::TASK_RETURNS_MAX));
                    (0..returns).map(move |index| id.returns(index))
                };
                let may_make = |task: &RecordedTask| results(task).all(|object| self.may_use(job, object));
                tasks.retain(|task| Some(task.program) == job && may_make(task));
                ToNode::Recorded { tasks }
            }
            ToNode::ActorHeld { actor } => {
                self.meet_owner(job, actor);
                ToNode::ActorHeld { actor }
            }
            message => message,
        }
    }

    /// A job has got a handle of an actor: what it passes to the actor is the actor's to use, and what it gets from there is
    /// the job's.
    fn meet_owner(&mut self, job: Option<ProgramId>, actor: ActorId) {
        let owner = self.actors.table.get(&actor).map(|known| known.spec.program);
        self.join(job, owner);
    }

    /// One process of the two holds an actor that lives in the other: an actor of another node, which has come to live here
    /// since its handle was passed on.
    fn meet_through_actor(&mut self, from: ProcessSlot, job: Option<ProgramId>, message: &ToNode) {
        let (ToNode::ChannelWanted { to: other, .. }
        | ToNode::Sealed { holder: other, .. }
        | ToNode::Contains { holder: other, .. }) = *message
        else {
            return;
        };
        if self.may_meet(job, other) {
            return;
        }
        let links = |known: &Actor, host, holder| {
            known.host() == Some(host) && !known.is_gone() && known.holders.contains(&holder)
        };
        let mut actors = self.actors.table.values();
        if actors.any(|known| links(known, from, other) || links(known, other, from)) {
            self.join(job, self.job_of(other));
        }
    }

    /// Two jobs know each other from now on, unless one of them is of no program that is known here.
    fn join(&mut self, one: Option<ProgramId>, other: Option<ProgramId>) {
        if let (Some(one), Some(other)) = (one, other)
            && self.programs.shares(one).is_some()
            && self.programs.shares(other).is_some()
        {
            self.rights.join(one, other);
        }
    }

    /// Whether a process may have an actor that it has asked for by its name. By that the two jobs know each other.
    pub(super) fn may_find(&mut self, process: ProcessSlot, actor: ActorId) -> bool {
        let Speaker::Job(job) = self.speaker(process) else { return true };
        let name = self.actors.table.get(&actor).and_then(|known| known.spec.name.as_deref());
        let may = !name.is_some_and(is_private) || self.may_call(job, actor);
        if may {
            self.meet_owner(job, actor);
        }
        may
    }

    /// A process has named its namespace. If that is private, it is the job's.
    pub(super) fn note_namespace(&mut self, process: ProcessSlot, namespace: String) {
        if let Some(job) = self.job_of(process).filter(|job| self.programs.shares(*job).is_some())
            && is_private(&format!("{namespace}/"))
        {
            self.rights.namespaces.insert(job, namespace);
        }
    }

    /// Whether a process may learn that there is such a name.
    pub(super) fn may_list(&self, process: ProcessSlot, name: &str) -> bool {
        let Speaker::Job(job) = self.speaker(process) else { return true };
        let namespace = job.and_then(|job| self.rights.namespaces.get(&job));
        let is_in = |namespace: &String| name.split_once('/').is_some_and(|(of, _)| of == namespace);
        let owner = self.actors.names.get(name).and_then(|&actor| self.owner_of_actor(actor));
        !is_private(name) || namespace.is_some_and(is_in) || owner.is_some_and(|owner| self.may(job, owner))
    }

    fn may_remove(&self, job: Option<ProgramId>, group: GroupId) -> bool {
        let known = self.groups.table.get(&group);
        // Whoever knows the name of a group was meant to.
        let owner = known.filter(|known| known.spec.name.is_none()).and_then(|known| known.job);
        owner.is_none_or(|owner| self.may(job, owner))
    }

    /// A driver of the job may share its actors and objects with all; they stay shared.
    pub(super) fn open_job(&mut self, job: ProgramId, shares: bool) {
        if shares {
            self.rights.open.insert(job);
        }
    }

    /// The job of a process that makes something.
    pub(super) fn job_of(&self, process: ProcessSlot) -> Option<ProgramId> {
        match self.speaker(process) {
            Speaker::Node => None,
            Speaker::Job(job) => job,
        }
    }

    /// The object that this message makes known here, and the job that made it. Jobs that guessed its id before get nothing.
    pub(super) fn newly_made(
        &mut self,
        now: Time,
        from: ProcessSlot,
        message: &ToNode,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, ProgramId)> {
        let (ToNode::Escaped { object, .. }
        | ToNode::Sealed { object, .. }
        | ToNode::Contains { container: object, .. }) = message
        else {
            return None;
        };
        let (object, job) = (*object, self.job_of(from)?);
        let unsaid = match self.directory.value(object) {
            None => true,
            Some(value) => {
                *value == Value::Pending { owner: None }
                    && self.directory.job(object).is_none()
                    && self.peers.namer(object).is_none()
                    && self.memory.copies.readable(object).is_empty()
            }
        };
        if !unsaid {
            return None;
        }
        self.turn_out(now, object, job, out);
        Some((object, job))
    }

    /// Processes of strange jobs do not hold the object any more, nor wait for it.
    fn turn_out(&mut self, now: Time, object: ObjectId, owner: ProgramId, out: &mut Effects<NodeEffect>) {
        let is_strange = |process: &ProcessSlot| match self.speaker(*process) {
            Speaker::Node => false,
            Speaker::Job(job) => !self.may(job, owner),
        };
        let subscribers: BTreeSet<_> = self.directory.subscribers(object).filter(is_strange).collect();
        let holders: BTreeSet<_> = self.directory.holders(object).filter(is_strange).collect();
        for &subscriber in &subscribers {
            self.refuse(subscriber, &ToNode::Subscribed { object }, out);
        }
        for process in holders.union(&subscribers) {
            let freed = self.directory.release(object, *process);
            self.free(now, freed, out);
        }
    }

    /// What was a program's is that of another one of its circle, or of none.
    pub(super) fn forget_rights(&mut self, program: ProgramId) {
        let successor = self.rights.forget(program);
        self.directory.pass_on(program, successor);
    }
}
