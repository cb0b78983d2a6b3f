//! The programs that this node serves: their shared workers, and when nobody needs them any more.
//!
//! Invariants:
//! 1. A program is known while a process, a lane, a lease or an actor is of it.
//! 2. While it is known, so is its default shape.
//! 3. A program with a driver here is kept ready; the workers of any other end when they have nothing to do.
//! 4. Code is kept for a known program, which has a driver here or something that runs, waits or lives.

use super::leases::{IdleWorker, Lane, StartFailures};
use super::process_table::{Role, Stage};
use super::{Guest, Node, NodeEffect, ProgramConfig, START_FAILURES_FREE, WorkerKind};
use crate::{Effects, Time};
use aktis_protocol::control::FromNode;
use aktis_protocol::{DeathCause, ObjectId, ProcessSlot, ProgramId, Shape, ShapeId, limits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long the shared worker of a program without drivers stays without work.
pub const PROGRAM_IDLE_MICROSECONDS_MAX: u64 = 2_000_000;
/// How long a shared worker may keep leases when the drivers whose tasks it runs are gone: then it is killed.
pub const PROGRAM_STUCK_MICROSECONDS_MAX: u64 = 5_000_000;
/// How long what the workers of a program are forked from stays, and lanes of it, when nothing of it runs.
pub const TEMPLATE_IDLE_MICROSECONDS_MAX: u64 = 5_000_000;
/// How long a program that nothing refers to stays known.
pub const PROGRAM_KEPT_MICROSECONDS: u64 = 60_000_000;
/// How often a program without drivers is looked at.
const LOOK_MICROSECONDS: u64 = 500_000;
/// When a shared worker is tried again for which there is no place.
const NO_PLACE_MICROSECONDS: u64 = 10_000;

/// What is known of a program.
#[derive(Debug)]
pub(super) struct Program {
    /// Whether one worker of it runs tasks and actors on many threads. If not, all are isolated.
    shared_worker: bool,
    /// The shape of its tasks that say nothing about what they need.
    default_shape: ShapeId,
    /// How many drivers of it are here.
    drivers: u32,
    failures: StartFailures,
    /// Whether a shared worker has ever been ready.
    ever_started: bool,
    /// When the next shared worker is to be started, while there is none.
    start_at: Option<Time>,
    /// When it is looked at next; never while a driver of it is here.
    look_at: Option<Time>,
    /// Its code that the node keeps, the oldest first.
    code: VecDeque<ObjectId>,
    /// Since when it has had so little to do, as far as it was looked at.
    needed: (Need, Time),
}

/// Who needs a program without drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Something of it runs, waits to run, lives, or is owed to somebody.
    Somebody,
    /// Tasks run whose submitters are gone, and do not end.
    Nobody,
    /// Nothing runs.
    Nothing,
}

impl Program {
    fn new(shared_worker: bool, default_shape: ShapeId, look_at: Time) -> Self {
        Self {
            shared_worker,
            default_shape,
            drivers: 0,
            failures: StartFailures::default(),
            ever_started: false,
            start_at: None,
            look_at: Some(look_at),
            code: VecDeque::new(),
            needed: (Need::Somebody, look_at),
        }
    }
}

/// All programs that are known.
#[derive(Debug, Default)]
pub(super) struct Programs {
    table: BTreeMap<ProgramId, Program>,
}

impl Programs {
    /// Whether the program has a shared worker; `None` if it is unknown.
    pub(super) fn shares(&self, program: ProgramId) -> Option<bool> {
        self.table.get(&program).map(|known| known.shared_worker)
    }

    /// The default shape of a program; `None` if it is unknown.
    pub(super) fn default_shape(&self, program: ProgramId) -> Option<ShapeId> {
        self.table.get(&program).map(|known| known.default_shape)
    }

    /// Whether this is the default shape of its program.
    pub(super) fn is_default(&self, shape: ShapeId) -> bool {
        self.table.values().any(|known| known.default_shape == shape)
    }

    /// Failures in a row to start its shared worker, and the last of them.
    pub(super) fn failures(&self, program: ProgramId) -> Option<(u32, &str)> {
        let failures = &self.table.get(&program)?.failures;
        (failures.count > 0).then_some((failures.count, failures.last.as_str()))
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// A shared worker is ready.
    pub(super) fn on_shared_started(&mut self, program: ProgramId) {
        if let Some(known) = self.table.get_mut(&program) {
            known.ever_started = true;
            known.failures = StartFailures::default();
        }
    }

    fn deadlines(&self) -> impl Iterator<Item = Time> {
        self.table.values().flat_map(|known| known.start_at.into_iter().chain(known.look_at))
    }
}

/// Why nothing of a program is started that the node does not know.
pub(super) fn unknown(program: ProgramId) -> String {
    format!(
        "this node does not know the program {program}, or serves {} others already\n\
         hint: attach a driver of it here, or end drivers of other programs and actors that they have left (`aktis kill`)",
        limits::PROGRAMS_MAX
    )
}

impl Node {
    pub(super) fn on_program_added(
        &mut self,
        now: Time,
        added: ProgramConfig,
        out: &mut Effects<NodeEffect>,
    ) {
        let ProgramConfig { program, shared_worker, shares } = added;
        if self.programs.table.contains_key(&program) {
            return self.open_job(program, shares);
        }
        if self.programs.table.len() >= limits::PROGRAMS_MAX {
            self.forget_unneeded(now, out);
        }
        if self.programs.table.len() >= limits::PROGRAMS_MAX {
            return;
        }
        let shape = Shape { isolated: !shared_worker, program, ..Shape::default() };
        let Some(default_shape) = self.leases.intern(&shape) else { return };
        let look_at = Time(now.0 + LOOK_MICROSECONDS);
        self.programs.table.insert(program, Program::new(shared_worker, default_shape, look_at));
        self.open_job(program, shares);
        if self.places.is_clustered() {
            out.push(NodeEffect::ProgramCame { program });
        }
        if self.process_table.drivers(program) > 0 {
            self.on_driver_added(now, program, out);
        }
    }

    /// Somebody who was not started by this node wants a place.
    pub(super) fn on_attached(&mut self, now: Time, guest: Guest, pid: u32, out: &mut Effects<NodeEffect>) {
        let role = match guest {
            Guest::Driver(program) if self.programs.shares(program).is_none() => {
                return out.push(NodeEffect::TurnAway { reason: unknown(program) });
            }
            Guest::Driver(program) => Role::Driver(program),
            Guest::Peer(node) => Role::Peer(node),
        };
        let Some(process) = self.process_table.add(role) else {
            let reason = format!(
                "this node has {} processes, which is the limit\n\
                 hint: end drivers that are not needed any more",
                limits::PROCESSES_MAX
            );
            return out.push(NodeEffect::TurnAway { reason });
        };
        self.on_worker_spawned(process, pid);
        out.push(NodeEffect::Admit { process });
        if let Guest::Driver(program) = guest {
            if self.places.is_clustered() {
                out.push(NodeEffect::JobBegan { process, pid, program });
            }
            self.on_driver_added(now, program, out);
        }
    }

    /// A driver of the program is here: its first tasks are to run at once.
    fn on_driver_added(&mut self, now: Time, program: ProgramId, out: &mut Effects<NodeEffect>) {
        if let Some(known) = self.programs.table.get_mut(&program) {
            known.drivers += 1;
            (known.look_at, known.needed) = (None, (Need::Somebody, now));
        }
        self.ensure_shared(now, program, out);
        self.prestart(out);
        self.warm_due = true;
    }

    /// The program that a process belongs to; a peer, and a daemon, belong to none.
    pub(super) fn program_of(&self, process: ProcessSlot) -> Option<ProgramId> {
        match self.process_table.get(process)?.role {
            Role::Driver(program) | Role::Shared(program) => Some(program),
            Role::TaskRunner(shape) => Some(self.leases.shape(shape).program),
            Role::ActorHost(actor) => self.actors.table.get(&actor).map(|known| known.spec.program),
            Role::Daemon | Role::Peer(_) | Role::Retired => None,
        }
    }

    /// Whether a driver of the program is here.
    fn has_driver(&self, program: ProgramId) -> bool {
        self.programs.table.get(&program).is_some_and(|known| known.drivers > 0)
    }

    /// Orders the shared worker of a program, unless there is one or it has none.
    pub(super) fn ensure_shared(&mut self, now: Time, program: ProgramId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.programs.table.get_mut(&program) else { return };
        if !known.shared_worker || known.start_at.is_some_and(|due| now < due) {
            return;
        }
        known.start_at = None;
        let role = Role::Shared(program);
        if self.process_table.iter().any(|(_, process)| process.role == role && process.is_not_dead()) {
            return;
        }
        match self.process_table.add(role) {
            Some(process) => out.push(NodeEffect::StartWorker {
                process,
                kind: WorkerKind::Shared,
                program,
                gpus: Vec::new(),
                environment: String::new(),
            }),
            // All places are taken by processes whose death is still being dealt with.
            None => known.start_at = Some(Time(now.0 + NO_PLACE_MICROSECONDS)),
        }
    }

    /// A shared worker has died. A crash loop must not burn the machine, nor let everybody wait without a word.
    pub(super) fn on_shared_died(
        &mut self,
        now: Time,
        program: ProgramId,
        starting: bool,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(known) = self.programs.table.get_mut(&program) else { return };
        if starting {
            known.failures.add(now, cause.to_string());
        }
        known.start_at = known.failures.not_before;
        if !known.ever_started && known.failures.count >= START_FAILURES_FREE {
            self.fail_waiting_actors(now, program, cause, out);
        }
        if self.has_driver(program) {
            self.ensure_shared(now, program, out);
        }
    }

    /// A driver has died. If it was the last of its program, nothing of that is kept ready.
    pub(super) fn on_driver_died(&mut self, now: Time, program: ProgramId) {
        let Some(known) = self.programs.table.get_mut(&program) else { return };
        known.drivers -= 1;
        if known.drivers > 0 {
            return;
        }
        known.look_at = Some(Time(now.0 + LOOK_MICROSECONDS));
        let kept = |idle: &&mut IdleWorker| idle.shape == known.default_shape && idle.until.is_none();
        for idle in self.leases.idle.values_mut().filter(kept) {
            idle.until = Some(Time(now.0 + super::IDLE_MICROSECONDS_MAX));
        }
    }

    /// Programs whose tasks are to run at once, and their default shapes.
    fn ready_programs(&self, shared_worker: bool) -> Vec<(ProgramId, ShapeId)> {
        let alike = self.programs.table.iter().filter(|(_, known)| known.shared_worker == shared_worker);
        let ready = alike.filter(|(program, _)| self.has_driver(**program));
        ready.map(|(&program, known)| (program, known.default_shape)).collect()
    }

    /// Orders workers of default shapes ahead of demand, so that the first tasks run at once. They have no lease
    /// until there is a task for them.
    pub(super) fn prestart(&mut self, out: &mut Effects<NodeEffect>) {
        for (program, shape) in self.ready_programs(false) {
            let failures = self.leases.start_failures.get(&shape);
            if failures.is_some_and(|failures| failures.not_before.is_some()) {
                continue;
            }
            for _ in self.process_table.runners(shape).count()..self.prestarted {
                let Some(process) = self.process_table.add(Role::TaskRunner(shape)) else { return };
                let (gpus, environment) = (Vec::new(), String::new());
                let kind = WorkerKind::Isolated;
                out.push(NodeEffect::StartWorker { process, kind, program, gpus, environment });
            }
        }
    }

    /// How many idle workers of a shape stay however long they are idle.
    pub(super) fn kept_of(&self, shape: ShapeId) -> usize {
        let program = self.leases.shape(shape).program;
        let prestarted = self.programs.is_default(shape) && self.programs.shares(program) == Some(false);
        if prestarted && self.has_driver(program) { self.prestarted } else { 0 }
    }

    /// Leases of default shapes are given out ahead of demand, so that the first tasks run at once.
    pub(super) fn warm_up(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        self.warm_due = false;
        let ready = self.ready_programs(true).into_iter();
        let mut hosts: Vec<_> =
            ready.filter_map(|(program, shape)| Some((shape, self.process_table.shared(program)?))).collect();
        // One each in turn: what is free is shared by all programs.
        while !hosts.is_empty() {
            hosts.retain(|&(shape, shared)| self.warm_one(now, shape, shared, out));
        }
    }

    fn warm_one(
        &mut self,
        now: Time,
        shape: ShapeId,
        shared: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) -> bool {
        // A lease for a worker that owes one would come back at once.
        if !self.leases.has_room(shape, &self.process_table) || self.leases.asked(shared, shape) > 0 {
            return false;
        }
        let Some(allocation) = self.resources.allocate(&self.leases.want(shape)) else { return false };
        self.grant(now, shape, shared, allocation, out);
        true
    }

    pub(super) fn program_deadlines(&self) -> impl Iterator<Item = Time> {
        let failures = self.ready_programs(false).into_iter();
        let failures = failures.filter_map(|(_, shape)| self.leases.start_failures.get(&shape)?.not_before);
        self.programs.deadlines().chain(failures)
    }

    pub(super) fn on_programs_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        for program in self.programs.table.keys().copied().collect::<Vec<_>>() {
            let known = &self.programs.table[&program];
            let (start, look) = (due(known.start_at), due(known.look_at));
            if start && self.has_driver(program) {
                self.ensure_shared(now, program, out);
            } else if start && let Some(known) = self.programs.table.get_mut(&program) {
                // Claims, if there are some, are looked at next, and order it.
                known.start_at = None;
            }
            if look {
                self.look_at_program(now, program, out);
            }
        }
    }

    /// No driver of the program is here: its workers end when they have had nothing to do for a while, and it is
    /// forgotten when nothing has referred to it for longer.
    fn look_at_program(&mut self, now: Time, program: ProgramId, out: &mut Effects<NodeEffect>) {
        let shared = self.process_table.shared(program);
        let need = self.need_of(program, shared);
        let Some(known) = self.programs.table.get_mut(&program) else { return };
        known.look_at = Some(Time(now.0 + LOOK_MICROSECONDS));
        if known.needed.0 != need {
            known.needed = (need, now);
        }
        let so_for = now.0 - known.needed.1.0;
        if let Some(shared) = shared {
            self.revoke_idle(now, shared, out);
            match need {
                Need::Nothing if so_for >= PROGRAM_IDLE_MICROSECONDS_MAX => {
                    self.end_process(now, shared, out)
                }
                Need::Nobody if so_for >= PROGRAM_STUCK_MICROSECONDS_MAX => {
                    out.push(NodeEffect::KillWorker { process: shared });
                }
                Need::Somebody | Need::Nobody | Need::Nothing => {}
            }
        }
        if need == Need::Nothing {
            self.release_code(now, program, out);
        }
        let unneeded_for = |microseconds: u64| need == Need::Nothing && so_for >= microseconds;
        if unneeded_for(PROGRAM_KEPT_MICROSECONDS) && !self.is_referred_to(program) {
            self.forget_program(now, program, out);
        } else if unneeded_for(TEMPLATE_IDLE_MICROSECONDS_MAX) {
            self.rest_program(program, out);
        }
    }

    /// A process has exported or fetched code of its program: calls name it by its id alone, so that no other process
    /// need hold it.
    pub(super) fn on_code_kept(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(program) = self.program_of(from) else { return };
        let Some(known) = self.programs.table.get_mut(&program) else { return };
        if !self.directory.keep(object) {
            return;
        }
        known.code.push_back(object);
        if known.code.len() > limits::CODE_OBJECTS_MAX
            && let Some(oldest) = known.code.pop_front()
        {
            let freed = self.directory.stop_keeping(oldest);
            self.free(now, freed, out);
        }
    }

    fn release_code(&mut self, now: Time, program: ProgramId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.programs.table.get_mut(&program) else { return };
        for object in std::mem::take(&mut known.code) {
            let freed = self.directory.stop_keeping(object);
            self.free(now, freed, out);
        }
    }

    /// Nothing of the program runs: what was kept for the next of its tasks goes.
    fn rest_program(&self, program: ProgramId, out: &mut Effects<NodeEffect>) {
        if self.programs.shares(program) == Some(false) {
            out.push(NodeEffect::EndTemplate { program });
        }
        let of_it = |shape: ShapeId| self.leases.shape(shape).program == program;
        // The lanes of a dead submitter stay open until all processes have handled its death.
        let is_told = |lane: &&Lane| of_it(lane.shape) && self.process_table.is_live(lane.submitter);
        let lanes = self.leases.lanes.values().filter(is_told);
        // Those of other nodes, whose driver may be gone; given up, they do not keep the program known.
        for submitter in lanes.map(|lane| lane.submitter).collect::<BTreeSet<_>>() {
            self.send(submitter, FromNode::LanesUnwanted(program), out);
        }
    }

    fn need_of(&self, program: ProgramId, shared: Option<ProcessSlot>) -> Need {
        let of_it = |shape: ShapeId| self.leases.shape(shape).program == program;
        // The shared worker's own tasks are part of those that it runs.
        let submits = |slot: ProcessSlot| Some(slot) != shared && self.process_table.is_live(slot);
        let mut lanes = self.leases.lanes.values();
        match shared.is_some_and(|shared| self.leases.is_holder(shared)) {
            _ if self.is_in_use(program, shared) => Need::Somebody,
            false => Need::Nothing,
            true if lanes.any(|lane| of_it(lane.shape) && submits(lane.submitter)) => Need::Somebody,
            true => Need::Nobody,
        }
    }

    /// Whether something of a program without drivers waits to run, lives, or is owed to somebody, or another worker
    /// of it runs.
    fn is_in_use(&self, program: ProgramId, shared: Option<ProcessSlot>) -> bool {
        let others = self.process_table.iter().filter(|(slot, _)| Some(*slot) != shared);
        let mut of_program = others.filter(|(slot, _)| self.program_of(*slot) == Some(program));
        let mut actors = self.actors.table.values().filter(|actor| !actor.is_gone());
        let queued = |shape: ShapeId| {
            let lanes = self.leases.lanes.values().filter(|lane| lane.shape == shape);
            lanes.filter(|lane| Some(lane.submitter) != shared).any(|lane| lane.queued > 0)
        };
        of_program.any(|(_, process)| process.is_not_dead())
            || self.leases.shapes_for(program).any(queued)
            || actors
                .any(|actor| actor.spec.program == program || (actor.host() == shared && shared.is_some()))
            || shared.is_some_and(|shared| !self.directory.owed_by(shared).is_empty())
    }

    /// Whether anything is left that names the program or one of its shapes.
    fn is_referred_to(&self, program: ProgramId) -> bool {
        let of_it = |shape: ShapeId| self.leases.shape(shape).program == program;
        self.process_table.iter().any(|(slot, _)| self.program_of(slot) == Some(program))
            || self.leases.lanes.values().any(|lane| of_it(lane.shape))
            || self.leases.leases.values().any(|lease| of_it(lease.shape))
            || self.actors.table.values().any(|actor| actor.spec.program == program)
    }

    /// A shape without tasks needs no leases, if nobody is here whose tasks are to run at once.
    fn revoke_idle(&mut self, now: Time, shared: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let held = self.leases.leases.values().filter(|lease| lease.holder == shared);
        let shapes: BTreeSet<_> = held.map(|lease| lease.shape).collect();
        for shape in shapes.into_iter().filter(|shape| self.leases.queued(*shape) == 0).collect::<Vec<_>>() {
            self.revoke_all(now, shared, shape, out);
        }
    }

    /// Makes room for a program: the one goes that nothing was needed of for longest.
    fn forget_unneeded(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let unneeded = |(&program, known): (&ProgramId, &Program)| {
            let idle = known.drivers == 0
                && self.need_of(program, self.process_table.shared(program)) == Need::Nothing;
            (idle && !self.is_referred_to(program)).then_some((known.needed.1, program))
        };
        if let Some((_, program)) = self.programs.table.iter().filter_map(unneeded).min() {
            self.forget_program(now, program, out);
        }
    }

    fn forget_program(&mut self, now: Time, program: ProgramId, out: &mut Effects<NodeEffect>) {
        self.release_code(now, program, out);
        for shape in self.leases.shapes_for(program).collect::<Vec<_>>() {
            self.free_shape(shape, out);
        }
        self.programs.table.remove(&program);
        self.forget_rights(program);
        out.push(NodeEffect::ForgetProgram { program });
        if self.places.is_clustered() {
            out.push(NodeEffect::ProgramWent { program });
        }
    }

    pub(super) fn check_programs(&self) {
        assert!(self.programs.table.len() <= limits::PROGRAMS_MAX);
        for (program, known) in &self.programs.table {
            assert_eq!(self.leases.shape(known.default_shape).program, *program, "programs invariant 2");
            assert_eq!(known.drivers as usize, self.process_table.drivers(*program), "drivers of {program}");
            assert_eq!(known.look_at.is_none(), known.drivers > 0, "programs invariant 3: {program}");
            assert!(known.code.len() <= limits::CODE_OBJECTS_MAX);
            assert!(known.code.iter().all(|object| self.directory.knows(*object)), "kept code of {program}");
        }
        let known =
            |program| assert!(self.programs.shares(program).is_some(), "programs invariant 1: {program}");
        for (slot, process) in
            self.process_table.iter().filter(|(_, process)| process.stage != Stage::Starting)
        {
            if process.is_not_dead() {
                self.program_of(slot).into_iter().for_each(known);
            }
        }
        self.leases.lanes.values().for_each(|lane| known(self.leases.shape(lane.shape).program));
    }
}
