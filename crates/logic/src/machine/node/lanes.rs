//! Lanes and channels opened, demand reported, leases returned.

use super::granting::Claim;
use super::leases::Held;
use super::places::Stance;
use super::process_table::{Role, Stage};
use super::{Node, NodeEffect};
use crate::ledger::Allocation;
use crate::planted::NodeBug;
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, Lease, RequestId};
use aktis_protocol::{
    Amount, Failure, FailureKind, LaneId, LeaseId, ProcessSlot, Shape, ShapeId, ShardIndex, limits, resources,
};
use std::collections::BTreeMap;

/// How long a holder may take to claim a task with a lease that it has just got.
const CLAIM_MICROSECONDS: u64 = 5_000;

impl Node {
    pub(super) fn on_lane_wanted(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        shape: &Shape,
        shard: ShardIndex,
        out: &mut Effects<NodeEffect>,
    ) {
        if let Some(place) = shape.group {
            self.look_for_group(place.group, out);
        }
        let refusal = shape.group.and_then(|place| self.group_refusal(place));
        let lane = match refusal.or_else(|| self.place_refusal(&shape.strategy)) {
            Some(failure) => Err(failure),
            None => self
                .open_lane(from, shape, shard, out)
                .map_err(|text| Failure::new(FailureKind::Refused, text)),
        };
        self.send(from, FromNode::LaneOpened { request, lane }, out);
    }

    fn open_lane(
        &mut self,
        submitter: ProcessSlot,
        shape: &Shape,
        shard: ShardIndex,
        out: &mut Effects<NodeEffect>,
    ) -> Result<LaneId, String> {
        if shape.environment.len() > limits::ENVIRONMENT_BYTES_MAX {
            return Err(environment_too_large(shape.environment.len()));
        }
        let Some(shares) = self.programs.shares(shape.program) else {
            return Err(super::programs::unknown(shape.program));
        };
        let isolated = shape.isolated || !shares;
        let Some(shape) = self.leases.intern(&Shape { isolated, ..shape.clone() }) else {
            return Err(format!(
                "this session uses {} different combinations of resources at a time, which is the limit\n\
                 hint: round the amounts that tasks ask for, so that more of them are alike",
                limits::SHAPES_MAX
            ));
        };
        let Some((lane, new)) = self.leases.open_lane(submitter, shape, shard) else {
            return Err(format!(
                "this node has {} queues of tasks, which is the limit\n\
                 hint: submit from fewer processes, or with fewer different combinations of resources",
                limits::LANES_MAX
            ));
        };
        if new {
            out.push(NodeEffect::OpenLane { lane, submitter, shape });
        }
        Ok(lane)
    }

    pub(super) fn on_channel_wanted(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        to: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        let open = self.process_table.is_live(to);
        if open && self.channels.insert((from, to)) {
            out.push(NodeEffect::OpenChannel { from, to });
        }
        self.send(from, FromNode::ChannelOpened { request, to, open }, out);
    }

    /// Callers that can look into the lane report its length instead; this alone says "at least one".
    pub(super) fn on_lane_active(&mut self, now: Time, lane: LaneId, out: &mut Effects<NodeEffect>) {
        let queued = self.leases.lanes.get(&lane).map_or(0, |lane| lane.queued.max(1));
        self.on_lane_demand(now, lane, queued, out);
    }

    pub(super) fn on_lane_demand(
        &mut self,
        now: Time,
        id: LaneId,
        queued: u32,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(lane) = self.leases.lanes.get(&id) else { return };
        // A dead submitter's lane stays until its death has been dealt with, but nobody wants its results.
        let served = self.process_table.is_live(lane.submitter) && lane.removal.is_none();
        let queued = if served { queued } else { 0 };
        let shape = lane.shape;
        let unclaimed = self.unclaimed(now, shape);
        let lane = self.leases.lanes.get_mut(&id).expect("it was just there");
        lane.queued = queued;
        lane.wanted = queued.saturating_sub(unclaimed);
        self.revoke_outdated(now, shape, out);
        let claim = Claim::Shape(shape);
        if queued > 0 && !self.claims.contains(&claim) {
            self.claims.push_back(claim);
        }
        self.serve(now, out);
    }

    /// Leases for one task that were granted a moment ago: their tasks may still be in the lane.
    fn unclaimed(&self, now: Time, shape: ShapeId) -> u32 {
        if !self.is_leased_once(shape) {
            return 0;
        }
        let is_new = |lease: &&Held| lease.shape == shape && now.0 < lease.granted_at.0 + CLAIM_MICROSECONDS;
        self.leases.leases.values().filter(is_new).count() as u32
    }

    /// Records a lease; tells its holder, unless that is still starting.
    pub(super) fn grant(
        &mut self,
        now: Time,
        shape: ShapeId,
        holder: ProcessSlot,
        allocation: Allocation,
        out: &mut Effects<NodeEffect>,
    ) {
        let (gpus, once) = (allocation.gpu_indices(), self.is_leased_once(shape));
        let lease = self.leases.add(shape, holder, allocation, now);
        if !self.is_peer(holder) {
            self.places.spend(now, shape);
        }
        if self.process_table.is_live(holder) {
            self.leases.satisfy(shape);
            let cpus_only = self.leases.is_cpus_only(shape);
            let lease = Lease { lease, shape, gpus, cpus_only, once };
            self.send(holder, FromNode::LeaseGranted { lease }, out);
        }
    }

    /// The holder has started: it learns of the leases it was started for.
    pub(super) fn announce_leases(&mut self, holder: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let held = self.leases.leases.iter().filter(|(_, lease)| lease.holder == holder);
        let granted = held.map(|(&lease, held)| {
            let (shape, gpus) = (held.shape, held.allocation.gpu_indices());
            let (cpus_only, once) = (self.leases.is_cpus_only(shape), self.is_leased_once(shape));
            Lease { lease, shape, gpus, cpus_only, once }
        });
        let granted: Vec<_> = granted.collect();
        for lease in granted {
            self.leases.satisfy(lease.shape);
            self.send(holder, FromNode::LeaseGranted { lease }, out);
        }
    }

    pub(super) fn on_lease_returned(
        &mut self,
        now: Time,
        from: ProcessSlot,
        lease: LeaseId,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some((held, task_waits)) = self.leases.remove(lease, from) else { return };
        let peer = Some(from).filter(|from| self.is_peer(*from));
        if task_waits && peer.is_none() && self.stance_of_shape(held.shape) == Stance::Ask {
            self.places.refund(now, held.shape);
        } else if self.is_leased_once(held.shape) {
            self.places.note_done(held.shape, peer, 1);
        }
        let gpus = held.allocation.gpus().to_vec();
        if !self.planted.has(NodeBug::LeakedLease) {
            self.resources.release(held.allocation);
        }
        let runner = self.process_table.get(from).filter(|process| process.stage == Stage::Alive);
        match runner.map(|process| process.role) {
            Some(Role::TaskRunner(shape)) => self.set_idle(now, from, shape, gpus),
            Some(Role::Retired) => self.end_process(now, from, out),
            _ => {}
        }
        // A default lease that comes back by itself is not needed now: handing it out again would only
        // send it to and fro.
        self.warm_due |= !self.programs.is_default(held.shape);
        self.serve(now, out);
    }

    /// No task of the shape waits, and its leases are for one task each. The node asks once for each lease: an idle lease
    /// comes back at once, and a lease in use comes back after its task anyway. A second request for a lease in use
    /// would cost the next task its lease.
    pub(super) fn revoke_unused(&mut self, now: Time, shape: ShapeId, out: &mut Effects<NodeEffect>) {
        let mut held = BTreeMap::<ProcessSlot, (u32, u32)>::new();
        for lease in self.leases.leases.values_mut().filter(|lease| lease.shape == shape) {
            if self.process_table.is_live(lease.holder) {
                let (all, new) = held.entry(lease.holder).or_default();
                *all += 1;
                *new += u32::from(!std::mem::replace(&mut lease.asked_as_idle, true));
            }
        }
        for (holder, (all, new)) in held {
            for _ in 0..new.min(all - self.leases.asked(holder, shape)) {
                self.leases.ask_back(now, holder, shape);
                self.send(holder, FromNode::LeaseRevoked { shape }, out);
            }
        }
    }

    /// The last lease with a CPU that is in use, apart from this one.
    fn last_granted(&self, apart_from: LeaseId) -> Option<(LeaseId, ProcessSlot, ShapeId)> {
        let has_cpu = |lease: &Held| lease.allocation.resources().get(resources::CPU) != Amount::ZERO;
        // Who is started with GPUs keeps those that were chosen for it.
        let gives = |lease: &Held| match self.process_table.is_starting(lease.holder) {
            true => lease.allocation.gpus().is_empty(),
            false => self.process_table.is_live(lease.holder),
        };
        let in_use = |lease: &Held| lease.lent.is_none() && has_cpu(lease) && gives(lease);
        let others = self.leases.leases.iter().filter(|(id, _)| **id != apart_from);
        let leases = others.filter(|(_, lease)| in_use(lease));
        leases.max_by_key(|(_, lease)| lease.granted_at).map(|(&id, lease)| (id, lease.holder, lease.shape))
    }

    /// Less CPUs exist than are in use, since the holder of this lease has taken its CPU back. What runs goes on, but
    /// nothing more is to run on CPUs that do not exist. Which task ends first, that of this lease or the one that has
    /// got the CPU meanwhile, is not known: the node asks for the leases of both.
    fn ask_for_debt(&mut self, now: Time, blocked: LeaseId, out: &mut Effects<NodeEffect>) {
        let own = &self.leases.leases[&blocked];
        let mut asked = vec![(own.holder, own.shape)];
        if let Some((lease, holder, shape)) = self.last_granted(blocked) {
            if !self.process_table.is_starting(holder) {
                asked.push((holder, shape));
            } else if let Some((held, _)) = self.leases.remove(lease, holder) {
                // It does not know of it yet, and gets another when it has started and there is a CPU for it.
                self.resources.release(held.allocation);
                return;
            }
        }
        for (holder, shape) in asked {
            if self.leases.asked(holder, shape) == 0 {
                self.leases.ask_back(now, holder, shape);
                self.send(holder, FromNode::LeaseRevoked { shape }, out);
            }
        }
    }

    pub(super) fn on_lease_blocked(
        &mut self,
        now: Time,
        from: ProcessSlot,
        lease: LeaseId,
        blocked: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(held) = self.leases.leases.get_mut(&lease).filter(|held| held.holder == from) else {
            return;
        };
        match (blocked, held.lent) {
            (true, None) => held.lent = Some(self.resources.lend_cpu(&mut held.allocation)),
            (false, Some(lent)) => {
                let in_debt = self.resources.reclaim_cpu(&mut held.allocation, lent);
                held.lent = None;
                if in_debt {
                    self.ask_for_debt(now, lease, out);
                }
            }
            _ => return,
        }
        self.serve(now, out);
    }
}

/// Why nothing is started that must be set up like this.
pub(super) fn environment_too_large(bytes: usize) -> String {
    format!(
        "the description of a worker's environment takes {bytes} bytes, more than {}\n\
         hint: set fewer or shorter environment variables",
        limits::ENVIRONMENT_BYTES_MAX
    )
}
