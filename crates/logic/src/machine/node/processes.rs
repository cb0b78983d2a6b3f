//! Starting workers, ending them, and what follows when one dies.

use super::leases::{IdleWorker, Lane};
use super::process_table::{HOST, Process, Role, Stage};
use super::{Node, NodeEffect};
use crate::ledger::GpuShare;
use crate::{Effects, Time};
use aktis_protocol::control::FromNode;
use aktis_protocol::{DeathCause, ProcessSlot, ShapeId};
use std::collections::BTreeSet;

/// How long a worker for one shape stays without work.
pub const IDLE_MICROSECONDS_MAX: u64 = 2_000_000;
/// How long a worker that was told to end may take.
pub const LEAVING_MICROSECONDS_MAX: u64 = 5_000_000;

impl Node {
    pub(super) fn on_worker_spawned(&mut self, process: ProcessSlot, pid: u32) {
        if let Some(process) = self.process_table.get_mut(process) {
            process.pid = pid;
        }
    }

    pub(super) fn on_started(&mut self, now: Time, from: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let job = self.program_of(from);
        let Some(process) = self.process_table.get_mut(from) else { return };
        if process.stage != Stage::Starting {
            return;
        }
        (process.stage, process.job) = (Stage::Alive, job);
        match process.role {
            Role::Daemon | Role::Driver(_) => {}
            Role::Peer(_) => self.tell_inherited(from, out),
            Role::Shared(program) => {
                self.programs.on_shared_started(program);
                self.warm_due = true;
                let kin = self.process_table.live().filter(|&slot| self.program_of(slot) == Some(program));
                for to in kin.collect::<Vec<_>>() {
                    self.send(to, FromNode::SharedWorker { process: from }, out);
                }
            }
            Role::TaskRunner(shape) => {
                self.leases.start_failures.remove(&shape);
                match self.leases.is_holder(from) {
                    true => self.announce_leases(from, out),
                    false => self.set_idle(now, from, shape, Vec::new()),
                }
            }
            Role::ActorHost(actor) => self.host_on(actor, from, out),
            Role::Retired => self.end_process(now, from, out),
        }
        let shared = self.program_of(from).and_then(|program| self.process_table.shared(program));
        if let Some(shared) = shared.filter(|&shared| shared != from) {
            self.send(from, FromNode::SharedWorker { process: shared }, out);
        }
        self.serve(now, out);
    }

    /// The process is told to end, and is not waited for.
    pub(super) fn end_process(&mut self, now: Time, slot: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let Some(process) = self.process_table.get_mut(slot) else { return };
        match process.stage {
            Stage::Alive => {
                process.stage = Stage::Leaving { kill_at: Time(now.0 + LEAVING_MICROSECONDS_MAX) };
                self.send(slot, FromNode::Shutdown, out);
            }
            Stage::Starting => out.push(NodeEffect::KillWorker { process: slot }),
            Stage::Leaving { .. } | Stage::Dead { .. } => {}
        }
        self.leases.idle.remove(&slot);
    }

    /// Only workers that run one task after another: a shared one runs other people's work, too, and with the process of
    /// an actor, the actor would go.
    pub(super) fn on_worker_killed(&mut self, process: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let runs_tasks = |role: Role| matches!(role, Role::TaskRunner(_) | Role::Retired);
        if self.process_table.get(process).is_some_and(|worker| worker.is_live() && runs_tasks(worker.role)) {
            out.push(NodeEffect::KillWorker { process });
        }
    }

    pub(super) fn on_process_died(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(process) = self.process_table.get(dead).filter(|_| dead != HOST) else { return };
        match process.stage {
            // It had left before.
            Stage::Dead { .. } => self.settle_death(dead, dead, out),
            _ => self.bury(now, dead, cause, false, out),
        }
    }

    pub(super) fn on_detached(&mut self, now: Time, from: ProcessSlot, out: &mut Effects<NodeEffect>) {
        if self.is_guest(from) {
            self.send(from, FromNode::Shutdown, out);
            let pid = self.process_table.get(from).map_or(0, |process| process.pid);
            self.on_process_left(now, from, &DeathCause { pid, ..DeathCause::default() }, out);
        }
    }

    pub(super) fn on_process_left(
        &mut self,
        now: Time,
        process: ProcessSlot,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.is_guest(process) {
            out.push(NodeEffect::SeeOff { process });
            self.bury(now, process, cause, true, out);
        }
    }

    /// Whether the process came by itself, and may leave.
    fn is_guest(&self, slot: ProcessSlot) -> bool {
        let guest = |process: &Process| matches!(process.role, Role::Driver(_) | Role::Peer(_));
        slot != HOST
            && self.process_table.get(slot).is_some_and(|process| guest(process) && process.is_not_dead())
    }

    /// A process is no more: whatever it had or owed goes, and everybody is told.
    fn bury(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        cause: &DeathCause,
        lingers: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(process) = self.process_table.get(dead) else { return };
        let (role, starting) = (process.role, process.stage == Stage::Starting);
        self.part_actors(dead);
        for to in self.process_table.bury(dead, lingers) {
            self.send(to, FromNode::ProcessDied { process: dead, cause: cause.clone() }, out);
        }
        for other in self.process_table.dead().into_iter().filter(|&other| other != dead) {
            self.settle_death(other, dead, out);
        }
        for lease in self.leases.remove_holder(dead) {
            self.resources.release(lease.allocation);
        }
        self.leases.silence(dead);
        let orphaned_groups = self.groups.forget_process(dead);
        let named = self.peers.named_by(dead);
        if let Role::Peer(_) = role {
            self.linger(now, dead);
        }
        let lost = self.memory.on_process_died(now, dead, out);
        self.on_holder_died(now, dead, cause, out);
        for (object, failure) in lost {
            self.on_value_lost(now, object, failure, out);
        }
        if let Role::Peer(node) = role {
            self.on_namer_died(now, node, named, out);
        }
        self.on_host_died(now, dead, cause, out);
        self.on_creator_died(now, dead, role, cause, out);
        self.remove_orphaned_groups(now, orphaned_groups, cause, out);
        match role {
            Role::Shared(program) => self.on_shared_died(now, program, starting, cause, out),
            Role::Driver(program) => {
                if self.places.is_clustered() {
                    out.push(NodeEffect::JobEnded { process: dead });
                }
                self.on_driver_died(now, program);
            }
            Role::TaskRunner(shape) if starting => {
                self.leases.start_failures.entry(shape).or_default().add(now, cause.to_string());
            }
            Role::Daemon | Role::Peer(_) | Role::TaskRunner(_) | Role::ActorHost(_) | Role::Retired => {}
        }
        self.warm_due = true;
        self.serve(now, out);
    }

    pub(super) fn on_death_handled(
        &mut self,
        from: ProcessSlot,
        dead: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        self.settle_death(dead, from, out);
    }

    fn settle_death(&mut self, dead: ProcessSlot, by: ProcessSlot, out: &mut Effects<NodeEffect>) {
        if !self.process_table.settle(dead, by) {
            return;
        }
        for lane in self.leases.close_lanes(dead) {
            out.push(NodeEffect::CloseLane { lane });
        }
        self.channels.retain(|(from, to)| *from != dead && *to != dead);
        self.process_table.remove(dead);
        out.push(NodeEffect::FreeProcess { process: dead });
    }

    pub(super) fn process_deadlines(&self) -> impl Iterator<Item = Time> {
        let leaving = self.process_table.iter().filter_map(|(_, process)| match process.stage {
            Stage::Leaving { kill_at } => Some(kill_at),
            _ => None,
        });
        let idle = self.leases.idle.values().filter_map(|idle| idle.until);
        let claims = self.claim_deadlines().chain(self.leases.answer_deadlines());
        leaving.chain(idle).chain(claims)
    }

    pub(super) fn on_processes_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        for failures in self.leases.start_failures.values_mut() {
            failures.not_before = failures.not_before.filter(|due| now < *due);
        }
        self.leases.on_answers_due(now);
        let over = |idle: &IdleWorker| idle.until.is_some_and(|until| until <= now);
        let idle = self.leases.idle.iter().filter(|(_, idle)| over(idle)).map(|(&slot, _)| slot);
        let idle: Vec<_> = idle.collect();
        let needed = if idle.is_empty() { BTreeSet::new() } else { self.needed_by_others() };
        for slot in idle {
            match needed.contains(&slot) {
                true => self.leases.keep_idle(slot, Time(now.0 + IDLE_MICROSECONDS_MAX)),
                false => self.end_process(now, slot, out),
            }
        }
        let overdue = |stage: &Stage| matches!(stage, Stage::Leaving { kill_at } if *kill_at <= now);
        let slots =
            self.process_table.iter().filter(|(_, process)| overdue(&process.stage)).map(|(slot, _)| slot);
        for slot in slots.collect::<Vec<_>>() {
            out.push(NodeEffect::KillWorker { process: slot });
            if let Some(process) = self.process_table.get_mut(slot) {
                process.stage = Stage::Leaving { kill_at: Time(now.0 + LEAVING_MICROSECONDS_MAX) };
            }
        }
        self.serve(now, out);
    }

    /// The processes that have submitted tasks which are not done: other processes wait for their values, or they wait to run.
    pub(super) fn needed_by_others(&self) -> BTreeSet<ProcessSlot> {
        let waits = |lane: &&Lane| lane.removal.is_none() && lane.queued > 0;
        let submitters = self.leases.lanes.values().filter(waits).map(|lane| lane.submitter);
        submitters.chain(self.directory.owing()).collect()
    }

    /// The worker has nothing to do. It is ended after a while, unless it is one of those that are kept.
    pub(super) fn set_idle(&mut self, now: Time, slot: ProcessSlot, shape: ShapeId, gpus: Vec<GpuShare>) {
        let kept = self.leases.kept(shape) < self.kept_of(shape);
        let until = (!kept).then_some(Time(now.0 + IDLE_MICROSECONDS_MAX));
        self.leases.idle.insert(slot, IdleWorker { shape, gpus, until });
    }
}
