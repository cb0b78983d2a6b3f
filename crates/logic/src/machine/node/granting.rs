//! Who gets what is free, and who is asked to give something back.
//!
//! Claims (of a shape for leases, of an actor for a place to live, of a group for resources) wait in one queue. Those of the
//! highest priority come first, of these those who have the least, and of those the oldest. A claim takes nothing that a claim
//! of a higher priority lacks. Of its own priority, it leaves what another claim lacks and will have soon, because the leases that
//! it lacks come back, or because it has starved for long. So a wide task is not overtaken for ever by small ones, and small ones do
//! not wait for a wide task that waits for a long one. A shape with endless work starves nobody of its own priority, but those of
//! lower ones: that is what priorities are for.
//! What is given out is asked back, when that helps: first from shapes that have nothing to do, then from those of a lower
//! priority, then from those that have the most; and never from a shape of a higher priority that has work. The node does not know which holder is idle: if one does not return its lease
//! at once, it is left to do so in its own time, and the next one is asked as well.

use super::leases::{ANSWER_MICROSECONDS_MAX, IdleWorker, LONG_TASK_MICROSECONDS_MIN};
use super::process_table::{Role, Stage};
use super::resources::{Lack, Prospect, Want};
use super::{Node, NodeEffect, WorkerKind};
use crate::ledger::GpuShare;
use crate::{Effects, Time};
use aktis_protocol::control::FromNode;
use aktis_protocol::resources::GPU;
use aktis_protocol::{ActorId, Amount, GroupId, LeaseId, ProcessSlot, ProgramId, Resources, Shape, ShapeId};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A lease for which there is work is left with its shape for so long before another shape may want it,
/// so that shapes that share a CPU take turns by the time and not by the task.
pub const TENURE_MICROSECONDS_MIN: u64 = 10_000;

/// A claim that others have overtaken for so long is overtaken no longer.
const STARVED_MICROSECONDS_MIN: u64 = 2_000_000;

/// Somebody who waits for resources or for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// Tasks of this shape are queued.
    Shape(ShapeId),
    /// This actor has no place to live.
    Actor(ActorId),
    /// Resources are to be set aside for this placement group.
    Group(GroupId),
}

/// What a shape loses with a lease, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// No task of it waits, and the lease may be idle.
    Idle,
    /// Tasks wait that are less urgent than those who ask.
    LessUrgent,
    /// Tasks wait that are as urgent, but it is the turn of others.
    Turn,
}

/// A lease that may be asked for.
type Victim = (Loss, LeaseId);

/// What came of a claim.
pub(super) enum Served {
    /// It got one thing, and may want more.
    Granted,
    /// It wants nothing (any more).
    Satisfied,
    /// It waits for something else than resources, or leaves what is free to others.
    Waits,
    /// It lacks some of what it wants.
    Lacks(Want),
}

/// What is left to claims that come first.
#[derive(Debug, Default)]
pub(super) struct KeptBack {
    /// What nobody else may take.
    from_all: BTreeSet<Lack>,
    /// What claims of the same priority may take.
    from_less_urgent: Vec<Lack>,
    /// Since when claims lack something; of those that got nothing meanwhile.
    starving_since: BTreeMap<Claim, Time>,
}

impl KeptBack {
    /// Whether this wants something that is left to others.
    pub(super) fn forbids(&self, want: &Want) -> bool {
        want.takes_any(&self.from_all)
    }

    /// Claims of a lower priority are next.
    fn on_lower_priority(&mut self) {
        self.from_all.extend(self.from_less_urgent.drain(..));
    }
}

impl Node {
    /// Gives out what is free. Each claim gets one thing at a time, so that all of a priority get something.
    pub(super) fn serve(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let mut kept_back = KeptBack::default();
        let claims = std::mem::take(&mut self.claims);
        let mut round: VecDeque<_> = claims.into_iter().map(|claim| (self.priority(claim), claim)).collect();
        // Stable: equals stay in the order of their age.
        round.make_contiguous().sort_by_cached_key(|&(priority, claim)| match claim {
            Claim::Shape(shape) => (Reverse(priority), self.share_of_shape(shape)),
            Claim::Actor(_) | Claim::Group(_) => (Reverse(priority), 0),
        });
        let mut last_priority = i32::MAX;
        while let Some((priority, claim)) = round.pop_front() {
            if priority < last_priority {
                kept_back.on_lower_priority();
            }
            last_priority = priority;
            let served = match claim {
                Claim::Shape(shape) => self.serve_shape(now, shape, &kept_back, out),
                Claim::Actor(actor) => self.serve_actor(now, actor, &kept_back, out),
                Claim::Group(group) => self.serve_group(now, group, &kept_back, out),
            };
            match served {
                Served::Granted => {
                    self.starving_since.remove(&claim);
                    let behind_equals = round.partition_point(|&(other, _)| other >= priority);
                    round.insert(behind_equals, (priority, claim));
                }
                Served::Satisfied => {}
                Served::Waits => self.claims.push_back(claim),
                Served::Lacks(want) => {
                    self.keep_back_for(now, claim, &want, &mut kept_back);
                    self.claims.push_back(claim);
                }
            }
        }
        kept_back.on_lower_priority();
        self.starving_since = std::mem::take(&mut kept_back.starving_since);
        let is_draining = self.is_draining();
        if self.warm_due && !is_draining && !kept_back.forbids(&Want::of_node(Shape::default().resources)) {
            self.warm_up(now, out);
        }
        if !is_draining {
            self.prestart(out);
        }
        self.hand_up(now, out);
    }

    /// What a claim lacks is left to it: by all if it will fit soon, or if it has been overtaken for long and leases that come
    /// back will do. What waits for the end of an actor or a group holds up nobody.
    fn keep_back_for(&mut self, now: Time, claim: Claim, want: &Want, kept_back: &mut KeptBack) {
        let lacking = self.resources.lacking(want);
        let since = *self.starving_since.get(&claim).unwrap_or(&now);
        kept_back.starving_since.insert(claim, since);
        let is_starved =
            now.0 >= since.0 + STARVED_MICROSECONDS_MIN && self.after_all_leases(want).fits(&want.resources);
        let fits_soon = is_starved || self.fits_soon(now, claim, want, &lacking);
        let lacks = want.lacks(lacking);
        match fits_soon {
            true => kept_back.from_all.extend(lacks),
            false => kept_back.from_less_urgent.extend(lacks),
        }
    }

    /// Whether it will fit when those leases are back that were asked for, or will be soon, unless their tasks turn out to be
    /// long.
    fn fits_soon(&self, now: Time, claim: Claim, want: &Want, lacking: &[String]) -> bool {
        let prompt = |holder, shape| !self.leases.owes(now, holder, shape, LONG_TASK_MICROSECONDS_MIN);
        let mut after = self.after_asked_back(want, prompt);
        let tenured = Time(now.0 + TENURE_MICROSECONDS_MIN);
        for (_, lease) in self.lease_victims(tenured, claim, want, lacking) {
            after.credit(&self.leases.leases[&lease].allocation);
        }
        after.fits(&want.resources)
    }

    /// The resources that may be used, as they would be without any leases.
    fn after_all_leases(&self, want: &Want) -> Prospect {
        let mut after = self.resources.prospect(want);
        self.leases.leases.values().for_each(|lease| after.credit(&lease.allocation));
        after
    }

    fn serve_shape(
        &mut self,
        now: Time,
        shape: ShapeId,
        kept_back: &KeptBack,
        out: &mut Effects<NodeEffect>,
    ) -> Served {
        let starting = self.leases.starting(shape, &self.process_table);
        if self.leases.queued(shape) == 0 {
            self.places.expire(shape);
            return Served::Satisfied;
        }
        let (isolated, program) = (self.leases.shape(shape).isolated, self.leases.shape(shape).program);
        let want = self.leases.want(shape);
        let held_up =
            self.leases.start_failures.get(&shape).is_some_and(|failures| failures.not_before.is_some());
        if !self.resources.is_feasible(&want) || !self.may_run_here(shape) {
            self.warn_if_alone(shape, out);
            return Served::Waits;
        }
        if self.leases.wanted(shape) <= starting
            || held_up
            || !self.leases.has_room(shape, &self.process_table)
            || kept_back.forbids(&want)
        {
            return Served::Waits;
        }
        if !isolated && self.process_table.shared(program).is_none() {
            self.ensure_shared(now, program, out);
            return Served::Waits;
        }
        if !self.resources.fits(&want) {
            let lacking = self.resources.lacking(&want);
            self.ask_back_for(now, Claim::Shape(shape), &want, &lacking, out);
            return Served::Lacks(want);
        }
        match isolated {
            false => self.lease_to_shared(now, shape, &want, out),
            true => self.lease_to_isolated(now, shape, &want, out),
        }
    }

    fn lease_to_shared(
        &mut self,
        now: Time,
        shape: ShapeId,
        want: &Want,
        out: &mut Effects<NodeEffect>,
    ) -> Served {
        let Some(shared) = self.process_table.shared(self.leases.shape(shape).program) else {
            return Served::Waits;
        };
        let Some(allocation) = self.resources.allocate(want) else { return Served::Waits };
        self.grant(now, shape, shared, allocation, out);
        Served::Granted
    }

    /// An idle worker, if the GPUs that it sees are free; else one that is on its way without a lease; else a new one.
    fn lease_to_isolated(
        &mut self,
        now: Time,
        shape: ShapeId,
        want: &Want,
        out: &mut Effects<NodeEffect>,
    ) -> Served {
        for (slot, gpus) in self.idle_for(shape) {
            if let Some(allocation) = self.resources.allocate_on(want, &gpus) {
                self.leases.idle.remove(&slot);
                self.grant(now, shape, slot, allocation, out);
                return Served::Granted;
            }
        }
        let unbound = self.process_table.starting_runners().find(|&(slot, of)| {
            let suits = self.leases.is_interchangeable(of, shape) && want.resources.get(GPU) == Amount::ZERO;
            suits && !self.leases.is_holder(slot)
        });
        let started = match unbound {
            Some((slot, _)) => self.resources.allocate(want).map(|allocation| (slot, allocation)),
            None => {
                let Shape { program, environment, .. } = self.leases.shape(shape).clone();
                self.start_isolated(now, Role::TaskRunner(shape), want, (program, environment), out)
            }
        };
        match started {
            Some((slot, allocation)) => {
                self.grant(now, shape, slot, allocation, out);
                Served::Granted
            }
            None => Served::Waits,
        }
    }

    /// Idle workers that may run tasks of this shape, those of the same shape first, and the GPUs that they see.
    fn idle_for(&self, shape: ShapeId) -> Vec<(ProcessSlot, Vec<GpuShare>)> {
        let idle = self.leases.idle.iter();
        let mut suitable: Vec<_> =
            idle.filter(|(_, idle)| self.leases.is_interchangeable(idle.shape, shape)).collect();
        suitable.sort_by_key(|(_, idle)| idle.shape != shape);
        suitable.into_iter().map(|(&slot, idle)| (slot, idle.gpus.clone())).collect()
    }

    /// Orders an isolated worker; `None` if no place or no resources are free.
    pub(super) fn start_isolated(
        &mut self,
        now: Time,
        role: Role,
        want: &Want,
        (program, environment): (ProgramId, String),
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ProcessSlot, crate::ledger::Allocation)> {
        if !self.resources.fits(want) {
            return None;
        }
        let Some(process) = self.process_table.add(role) else {
            // An idle worker of another shape makes place.
            let needed = self.needed_by_others();
            let until = |idle: &IdleWorker| idle.until.unwrap_or(Time(u64::MAX));
            let idle = self.leases.idle.iter().filter(|(slot, _)| !needed.contains(slot));
            let longest = idle.min_by_key(|(_, idle)| until(idle)).map(|(&slot, _)| slot);
            if let Some(slot) = longest {
                self.end_process(now, slot, out);
            }
            return None;
        };
        let allocation = self.resources.allocate(want).expect("it fits");
        let gpus = allocation.gpu_indices();
        let kind = WorkerKind::Isolated;
        out.push(NodeEffect::StartWorker { process, kind, program, gpus, environment });
        Some((process, allocation))
    }

    /// Asks for as many leases as are needed for something to fit, and for none if that would not help. If holders
    /// that were asked do not answer, others are asked in their place: at first only those of shapes that have no
    /// work queued, as these may be idle, or less urgent work. What is returned beyond need goes to whoever wants it.
    pub(super) fn ask_back_for(
        &mut self,
        now: Time,
        claimant: Claim,
        want: &Want,
        lacking: &[String],
        out: &mut Effects<NodeEffect>,
    ) {
        let victims = |node: &Self| node.lease_victims(now, claimant, want, lacking);
        let after = self.after_asked_back(want, |_, _| true);
        if !after.fits(&want.resources) {
            let victims = victims(self);
            let chosen = self.enough_of(&victims, after, want).unwrap_or_default();
            return self.ask_back(now, chosen, out);
        }
        for (patience, loss_max) in
            [(ANSWER_MICROSECONDS_MAX, Loss::LessUrgent), (LONG_TASK_MICROSECONDS_MIN, Loss::Turn)]
        {
            let prompt = |holder, shape| !self.leases.owes(now, holder, shape, patience);
            let after = self.after_asked_back(want, prompt);
            if after.fits(&want.resources) {
                return;
            }
            let mut others = victims(self);
            others.retain(|(loss, id)| !self.leases.is_in_use(now, *id, patience) && *loss <= loss_max);
            if !others.is_empty() {
                return self.ask_back(now, self.enough_of(&others, after, want).unwrap_or(&others), out);
            }
        }
    }

    /// The first of these leases that suffice, together with what there will be anyway. Which holder of a less urgent
    /// one is done first is not known: where one is needed, all are asked.
    fn enough_of<'a>(&self, leases: &'a [Victim], mut after: Prospect, want: &Want) -> Option<&'a [Victim]> {
        let last = leases.iter().position(|(_, lease)| {
            after.credit(&self.leases.leases[lease].allocation);
            after.fits(&want.resources)
        })?;
        let end = match leases[last].0 {
            Loss::LessUrgent => leases.partition_point(|(loss, _)| *loss <= Loss::LessUrgent),
            Loss::Idle | Loss::Turn => last + 1,
        };
        Some(&leases[..end])
    }

    fn ask_back(&mut self, now: Time, leases: &[Victim], out: &mut Effects<NodeEffect>) {
        for (_, lease) in leases {
            let (holder, shape) = (self.leases.leases[lease].holder, self.leases.leases[lease].shape);
            self.leases.ask_back(now, holder, shape);
            self.send(holder, FromNode::LeaseRevoked { shape }, out);
        }
    }

    /// The resources that may be used, as they will be when the leases that were asked for are back, as far as
    /// these holders are counted on.
    fn after_asked_back(&self, want: &Want, counted_on: impl Fn(ProcessSlot, ShapeId) -> bool) -> Prospect {
        let mut counted = BTreeMap::new();
        let coming = self.leases.leases.values().filter(|lease| {
            let count: &mut u32 = counted.entry((lease.holder, lease.shape)).or_default();
            *count += 1;
            *count <= self.leases.asked(lease.holder, lease.shape) && counted_on(lease.holder, lease.shape)
        });
        let mut after = self.resources.prospect(want);
        coming.for_each(|lease| after.credit(&lease.allocation));
        after
    }

    /// Leases that may be asked for, those that hurt least first.
    fn lease_victims(&self, now: Time, claimant: Claim, want: &Want, lacking: &[String]) -> Vec<Victim> {
        let priority = self.priority(claimant);
        let claimed = match claimant {
            Claim::Shape(shape) => self.share_of_shape(shape),
            Claim::Actor(_) | Claim::Group(_) => 0,
        };
        let claimed_then = claimed + self.share(&want.resources);
        let mut counted = BTreeMap::new();
        let mut victims = Vec::new();
        for (&id, lease) in &self.leases.leases {
            // Leases of one shape in one process are alike: as many as were asked for are left out.
            let count: &mut u32 = counted.entry((lease.holder, lease.shape)).or_default();
            *count += 1;
            let asked = *count <= self.leases.asked(lease.holder, lease.shape);
            let useful = want.may_use(lease.allocation.source())
                && lacking.iter().any(|name| lease.allocation.resources().get(name).0 > 0);
            let alive =
                self.process_table.get(lease.holder).is_some_and(|holder| holder.stage == Stage::Alive);
            if asked || !useful || !alive || Claim::Shape(lease.shape) == claimant {
                continue;
            }
            let busy = self.leases.queued(lease.shape) > 0;
            let urgency = self.leases.shape(lease.shape).priority.cmp(&priority);
            let held = self.share_of_shape(lease.shape);
            let tenured = now.0 >= lease.granted_at.0 + TENURE_MICROSECONDS_MIN;
            // Between shapes that both have work, nobody is asked to go below the one that asks, but
            // one that has nothing at all gets its turn.
            let fair = claimed == 0 || held - self.share(lease.allocation.resources()) >= claimed_then;
            let loss = match urgency {
                _ if !busy => Loss::Idle,
                Ordering::Less => Loss::LessUrgent,
                Ordering::Equal if tenured && fair => Loss::Turn,
                Ordering::Equal | Ordering::Greater => continue,
            };
            let owes = self.leases.owes(now, lease.holder, lease.shape, ANSWER_MICROSECONDS_MAX);
            victims.push((loss, owes, u64::MAX - held, id));
        }
        victims.sort_unstable();
        victims.into_iter().map(|(loss, _, _, id)| (loss, id)).collect()
    }

    /// How urgent it is.
    pub(super) fn priority(&self, claim: Claim) -> i32 {
        match claim {
            Claim::Shape(shape) => self.leases.shape(shape).priority,
            Claim::Actor(actor) => self.actors.table.get(&actor).map_or(0, |known| known.spec.priority),
            Claim::Group(_) => 0,
        }
    }

    /// The part of the node that one lot of resources is, in millionths, by its scarcest resource.
    fn share(&self, resources: &Resources) -> u64 {
        let total = self.resources.node().total();
        let part = |name, amount: u64| u128::from(amount) * 1_000_000 / u128::from(total.get(name).0.max(1));
        resources.iter().map(|(name, amount)| part(name, amount.0) as u64).max().unwrap_or(0)
    }

    fn share_of_shape(&self, shape: ShapeId) -> u64 {
        let leases = self.leases.leases.values().filter(|lease| lease.shape == shape);
        leases.map(|lease| self.share(lease.allocation.resources())).sum()
    }

    /// When claims are worth another look although nothing happens.
    pub(super) fn claim_deadlines(&self) -> impl Iterator<Item = Time> {
        self.claims.iter().filter_map(|claim| match claim {
            Claim::Shape(shape) => self.leases.start_failures.get(shape)?.not_before,
            Claim::Actor(actor) => self.actors.table.get(actor)?.start_failures.not_before,
            Claim::Group(_) => None,
        })
    }

    pub(super) fn check_claims(&self) {
        for (position, claim) in self.claims.iter().enumerate() {
            assert!(
                !self.claims.iter().skip(position + 1).any(|other| other == claim),
                "{claim:?} waits twice"
            );
            match claim {
                Claim::Shape(shape) => drop(self.leases.want(*shape)),
                Claim::Actor(actor) => {
                    assert!(
                        self.actors.is_waiting(*actor),
                        "{actor} claims a place and does not wait for one"
                    );
                }
                Claim::Group(group) => assert!(self.groups.is_claiming(*group), "{group} does not wait"),
            }
        }
    }
}
