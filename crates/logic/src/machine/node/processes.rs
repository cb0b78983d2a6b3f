//! Starting workers, ending them, and what follows when one dies.

use super::leases::{DEFAULT_SHAPE, IdleWorker};
use super::roster::{DRIVER, Role, Stage};
use super::{Node, NodeEffect, START_FAILURES_FREE, WorkerKind};
use crate::ledger::GpuShare;
use crate::{Effects, Time};
use aktis_protocol::control::FromNode;
use aktis_protocol::{DeathCause, ProcessSlot, ShapeId};

/// How long a worker for one shape stays without work.
pub const IDLE_MICROSECONDS_MAX: u64 = 2_000_000;
/// How long a worker that was told to end may take.
pub const LEAVING_MICROSECONDS_MAX: u64 = 5_000_000;

impl Node {
    pub(super) fn start_shared(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        self.shared_due = None;
        match self.roster.add(Role::Shared) {
            Some(process) => {
                let (gpus, environment) = (Vec::new(), String::new());
                out.push(NodeEffect::StartWorker { process, kind: WorkerKind::Shared, gpus, environment });
            }
            // All places are taken by processes whose death is still being dealt with.
            None => self.shared_due = Some(Time(now.0 + 10_000)),
        }
    }

    pub(super) fn on_worker_spawned(&mut self, process: ProcessSlot, pid: u32) {
        if let Some(process) = self.roster.get_mut(process) {
            process.pid = pid;
        }
    }

    pub(super) fn on_started(&mut self, now: Time, from: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let Some(process) = self.roster.get_mut(from) else { return };
        if process.stage != Stage::Starting {
            return;
        }
        process.stage = Stage::Alive;
        match process.role {
            Role::Driver | Role::Peer => {}
            Role::Shared => {
                self.shared_ever_started = true;
                self.shared_failures = Default::default();
                self.warm_due = true;
                let everybody: Vec<_> = self.roster.live().collect();
                for to in everybody {
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
        if let Some(shared) = self.roster.shared().filter(|&shared| shared != from) {
            self.send(from, FromNode::SharedWorker { process: shared }, out);
        }
        self.serve(now, out);
    }

    /// The process is told to end, and is not waited for.
    pub(super) fn end_process(&mut self, now: Time, slot: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let Some(process) = self.roster.get_mut(slot) else { return };
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

    /// Only isolated workers: the shared one runs other people's work, too.
    pub(super) fn on_worker_killed(&mut self, process: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let isolated = |role| matches!(role, Role::TaskRunner(_) | Role::ActorHost(_) | Role::Retired);
        if self.roster.get(process).is_some_and(|worker| worker.is_live() && isolated(worker.role)) {
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
        let Some(process) = self.roster.get(dead) else { return };
        if dead == DRIVER || matches!(process.stage, Stage::Dead { .. }) {
            return;
        }
        let (role, starting) = (process.role, process.stage == Stage::Starting);
        for to in self.roster.bury(dead) {
            self.send(to, FromNode::ProcessDied { process: dead, cause: cause.clone() }, out);
        }
        for other in self.roster.dead() {
            self.settle_death(other, dead, out);
        }
        for lease in self.leases.remove_holder(dead) {
            self.stock.release(lease.allocation);
        }
        self.leases.silence(dead);
        let orphaned_groups = self.groups.forget_process(dead);
        self.memory.on_process_died(now, dead, out);
        self.on_holder_died(now, dead, cause, out);
        self.on_host_died(now, dead, cause, out);
        self.remove_orphaned_groups(now, orphaned_groups, cause, out);
        match role {
            Role::Shared => self.replace_shared(now, starting, cause, out),
            Role::TaskRunner(shape) if starting => {
                self.leases.start_failures.entry(shape).or_default().add(now, cause.to_string());
            }
            Role::Driver | Role::Peer | Role::TaskRunner(_) | Role::ActorHost(_) | Role::Retired => {}
        }
        self.warm_due = true;
        self.serve(now, out);
    }

    /// A crash loop must not burn the machine, nor let everybody wait without a word.
    fn replace_shared(
        &mut self,
        now: Time,
        starting: bool,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        if starting {
            self.shared_failures.add(now, cause.to_string());
        }
        if !self.shared_ever_started && self.shared_failures.count >= START_FAILURES_FREE {
            self.fail_waiting_actors(now, cause, out);
        }
        match self.shared_failures.not_before {
            None => self.start_shared(now, out),
            due => self.shared_due = due,
        }
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
        if !self.roster.settle(dead, by) {
            return;
        }
        for lane in self.leases.close_lanes(dead) {
            out.push(NodeEffect::CloseLane { lane });
        }
        self.channels.retain(|(from, to)| *from != dead && *to != dead);
        self.roster.remove(dead);
        out.push(NodeEffect::FreeProcess { process: dead });
    }

    pub(super) fn process_deadlines(&self) -> impl Iterator<Item = Time> {
        let leaving = self.roster.iter().filter_map(|(_, process)| match process.stage {
            Stage::Leaving { kill_at } => Some(kill_at),
            _ => None,
        });
        let idle = self.leases.idle.values().filter_map(|idle| idle.until);
        let failures = self.leases.start_failures.get(&DEFAULT_SHAPE).filter(|_| self.prestarted > 0);
        let prestart = failures.and_then(|failures| failures.not_before);
        let claims = self.claim_deadlines().chain(self.leases.answer_deadlines());
        leaving.chain(idle).chain(self.shared_due).chain(prestart).chain(claims)
    }

    pub(super) fn on_processes_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        if self.shared_due.is_some_and(|due| due <= now) {
            self.start_shared(now, out);
        }
        for failures in self.leases.start_failures.values_mut() {
            failures.not_before = failures.not_before.filter(|due| now < *due);
        }
        self.leases.on_answers_due(now);
        let over = |idle: &IdleWorker| idle.until.is_some_and(|until| until <= now);
        let idle = self.leases.idle.iter().filter(|(_, idle)| over(idle)).map(|(&slot, _)| slot);
        for slot in idle.collect::<Vec<_>>() {
            self.end_process(now, slot, out);
        }
        let overdue = |stage: &Stage| matches!(stage, Stage::Leaving { kill_at } if *kill_at <= now);
        let slots = self.roster.iter().filter(|(_, process)| overdue(&process.stage)).map(|(slot, _)| slot);
        for slot in slots.collect::<Vec<_>>() {
            out.push(NodeEffect::KillWorker { process: slot });
            if let Some(process) = self.roster.get_mut(slot) {
                process.stage = Stage::Leaving { kill_at: Time(now.0 + LEAVING_MICROSECONDS_MAX) };
            }
        }
        self.serve(now, out);
    }

    /// Orders workers of the default shape ahead of demand, so that the first tasks run at once. They have no lease
    /// until there is a task for them.
    pub(super) fn prestart(&mut self, out: &mut Effects<NodeEffect>) {
        let failures = self.leases.start_failures.get(&DEFAULT_SHAPE);
        if failures.is_some_and(|failures| failures.not_before.is_some()) {
            return;
        }
        for _ in self.roster.runners(DEFAULT_SHAPE).count()..self.prestarted {
            let Some(process) = self.roster.add(Role::TaskRunner(DEFAULT_SHAPE)) else { return };
            let (gpus, environment) = (Vec::new(), String::new());
            out.push(NodeEffect::StartWorker { process, kind: WorkerKind::Isolated, gpus, environment });
        }
    }

    /// The worker has nothing to do. It is ended after a while, unless it is one of those that are kept.
    pub(super) fn set_idle(&mut self, now: Time, slot: ProcessSlot, shape: ShapeId, gpus: Vec<GpuShare>) {
        let kept = shape == DEFAULT_SHAPE && self.leases.kept() < self.prestarted;
        let until = (!kept).then_some(Time(now.0 + IDLE_MICROSECONDS_MAX));
        self.leases.idle.insert(slot, IdleWorker { shape, gpus, until });
    }

    /// Leases of the default shape are given out ahead of demand, so that the first tasks run at once.
    pub(super) fn warm_up(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let Some(shared) = self.roster.shared() else { return };
        self.warm_due = false;
        let want = self.leases.want(DEFAULT_SHAPE);
        while self.leases.has_room(DEFAULT_SHAPE) {
            let Some(allocation) = self.stock.allocate(&want) else { return };
            self.grant(now, DEFAULT_SHAPE, shared, allocation, out);
        }
    }
}
