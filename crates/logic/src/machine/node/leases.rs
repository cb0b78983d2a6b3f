//! Shapes, the lanes that tasks of a shape wait in, and the leases to run them.
//!
//! Invariants:
//! 1. A shape's number does not change while anything refers to it.
//! 2. One lane per submitter, shard of it, and shape, besides those that were given up.
//! 3. A holder is never asked for more leases of a shape than it has.

use super::process_table::ProcessTable;
use super::resources::Want;
use crate::Time;
use crate::ledger::{Allocation, GpuShare};
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{
    Amount, GroupId, LaneId, LeaseId, ProcessSlot, ProgramId, Shape, ShapeId, ShardIndex, limits,
};
use std::collections::{BTreeMap, BTreeSet};

/// Leases at a time for a shape that needs no resources, which would otherwise set the bound.
pub const FREE_SHAPE_LEASES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) submitter: ProcessSlot,
    pub(super) shape: ShapeId,
    shard: ShardIndex,
    /// Tasks in it at the last report.
    pub(super) queued: u32,
    /// Of these, the ones for which no lease has been granted since.
    pub(super) wanted: u32,
    /// Set once it is not served any more.
    pub(super) removal: Option<Removal>,
}

/// How far a lane is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Its submitter has been told.
    Told,
    /// Its submitter does not use it any more.
    Forgotten,
    /// Its submitter did not need it any more, and gave it up by itself.
    GivenUp,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) shape: ShapeId,
    pub(super) holder: ProcessSlot,
    pub(super) allocation: Allocation,
    pub(super) granted_at: Time,
    /// CPU given back while the holder waits.
    pub(super) lent: Option<Amount>,
    /// Whether the node has asked for it because no task of its shape was queued.
    pub(super) asked_as_idle: bool,
}

/// Leases of a shape that a holder was asked for and has not returned.
#[derive(Debug)]
struct Asked {
    count: u32,
    /// When the oldest of them was asked for.
    since: Time,
    /// The youngest lease when the holder was last asked: younger ones may be idle, though the holder does not answer.
    youngest: LeaseId,
    /// When claims are worth another look because the answer has not come by then.
    next_look: Option<Time>,
}

/// A holder that has an idle lease returns it at once; one that has not done so by then has something to do.
pub const ANSWER_MICROSECONDS_MAX: u64 = 2_000;

/// After so long, a lease that was asked for is not counted on any more, even if that means to ask a shape that
/// has work for another one, or to let others take what is free meanwhile.
pub(super) const LONG_TASK_MICROSECONDS_MIN: u64 = 50_000;

/// A worker for one shape that has no lease at the moment.
#[derive(Debug)]
pub(super) struct IdleWorker {
    pub(super) shape: ShapeId,
    /// The GPUs it was started with: it cannot see others.
    pub(super) gpus: Vec<GpuShare>,
    /// It is ended then; one that was started ahead of demand, never.
    pub(super) until: Option<Time>,
}

/// Repeated failures to start workers: at first tried again at once, then less and less often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StartFailures {
    pub(super) count: u32,
    /// No new try before this.
    pub(super) not_before: Option<Time>,
    pub(super) last: String,
}

/// Failures in a row after which tries are spaced out.
pub const START_FAILURES_FREE: u32 = 5;
const START_DELAY_MICROSECONDS_MIN: u64 = 100_000;
const START_DELAY_MICROSECONDS_MAX: u64 = 5_000_000;

impl StartFailures {
    pub(super) fn add(&mut self, now: Time, cause: String) {
        self.count += 1;
        self.last = cause;
        let doublings = self.count.saturating_sub(START_FAILURES_FREE);
        let delay = |doublings: u32| {
            (START_DELAY_MICROSECONDS_MIN << (doublings - 1).min(10)).min(START_DELAY_MICROSECONDS_MAX)
        };
        self.not_before = (doublings > 0).then(|| Time(now.0 + delay(doublings)));
    }
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Shapes by number; numbers of those that are gone are used again.
    shapes: Vec<Option<Shape>>,
    by_shape: BTreeMap<Shape, ShapeId>,
    pub(super) lanes: BTreeMap<LaneId, Lane>,
    pub(super) leases: BTreeMap<LeaseId, Held>,
    /// Leases asked back and not yet returned.
    asked_back: BTreeMap<(ProcessSlot, ShapeId), Asked>,
    pub(super) idle: BTreeMap<ProcessSlot, IdleWorker>,
    pub(super) start_failures: BTreeMap<ShapeId, StartFailures>,
    /// Shapes that may be unused: see `shapes`.
    pub(super) spare: BTreeSet<ShapeId>,
    /// Whether something has changed since these were looked at.
    pub(super) tidy_due: bool,
    next_lease: u64,
}

impl Leases {
    /// The number of a shape; `None` if there are too many different ones.
    pub(super) fn intern(&mut self, shape: &Shape) -> Option<ShapeId> {
        if let Some(&id) = self.by_shape.get(shape) {
            return Some(id);
        }
        let place = match self.shapes.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.shapes.len() >= limits::SHAPES_MAX => return None,
            None => {
                self.shapes.push(None);
                self.shapes.len() - 1
            }
        };
        let id = ShapeId(place as u32);
        self.shapes[place] = Some(shape.clone());
        self.by_shape.insert(shape.clone(), id);
        Some(id)
    }

    pub(super) fn shape(&self, id: ShapeId) -> &Shape {
        self.shapes[id.0 as usize].as_ref().expect("a shape that is referred to is known")
    }

    /// The shape with this number, unless it is gone.
    pub(super) fn find_shape(&self, id: ShapeId) -> Option<&Shape> {
        self.shapes.get(id.0 as usize)?.as_ref()
    }

    /// The numbers of all shapes.
    pub(super) fn known_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.by_shape.values().copied()
    }

    /// How many shapes are known.
    pub(super) fn shapes(&self) -> usize {
        self.by_shape.len()
    }

    /// What tasks of a shape need.
    pub(super) fn want(&self, id: ShapeId) -> Want {
        let shape = self.shape(id);
        Want { resources: shape.resources.clone(), group: shape.group }
    }

    /// Whether tasks of a shape need CPUs and nothing else.
    pub(super) fn is_cpus_only(&self, id: ShapeId) -> bool {
        self.shape(id).resources.iter().all(|(name, _)| name == CPU)
    }

    /// The shapes of a placement group.
    pub(super) fn shapes_of(&self, group: GroupId) -> Vec<ShapeId> {
        let inside = |shape: &Option<Shape>| {
            shape.as_ref().and_then(|shape| shape.group).is_some_and(|place| place.group == group)
        };
        (0..).map(ShapeId).zip(&self.shapes).filter(|(_, shape)| inside(shape)).map(|(id, _)| id).collect()
    }

    /// The shapes of a program.
    pub(super) fn shapes_for(&self, program: ProgramId) -> impl Iterator<Item = ShapeId> {
        let of_it = move |shape: &Option<Shape>| shape.as_ref().is_some_and(|shape| shape.program == program);
        (0..).map(ShapeId).zip(&self.shapes).filter(move |(_, shape)| of_it(shape)).map(|(id, _)| id)
    }

    /// The number of a shape that nothing refers to may be used for another.
    pub(super) fn forget_shape(&mut self, id: ShapeId) {
        self.start_failures.remove(&id);
        self.spare.remove(&id);
        if let Some(shape) = self.shapes[id.0 as usize].take() {
            self.by_shape.remove(&shape);
        }
    }

    /// Whether a worker that was started for one shape may run tasks of the other: it runs their program, it was set up
    /// as they want it, and no GPUs were chosen for it, or as many as they want.
    pub(super) fn is_interchangeable(&self, one: ShapeId, other: ShapeId) -> bool {
        let (a, b) = (self.shape(one), self.shape(other));
        let without_gpus = |shape: &Shape| shape.resources.get(GPU) == Amount::ZERO;
        let alike = a.program == b.program && a.environment == b.environment;
        let same_gpus = a.resources == b.resources && a.group == b.group;
        one == other || (alike && (same_gpus || (without_gpus(a) && without_gpus(b))))
    }

    /// The lane of one of a process's submitters for a shape, and whether it is new; `None` if there are too
    /// many.
    pub(super) fn open_lane(
        &mut self,
        submitter: ProcessSlot,
        shape: ShapeId,
        shard: ShardIndex,
    ) -> Option<(LaneId, bool)> {
        let same = |lane: &Lane| {
            (lane.submitter, lane.shape, lane.shard) == (submitter, shape, shard) && lane.removal.is_none()
        };
        if let Some((&id, _)) = self.lanes.iter().find(|(_, lane)| same(lane)) {
            return Some((id, false));
        }
        let free = (0..limits::LANES_MAX as u32).map(LaneId).find(|id| !self.lanes.contains_key(id))?;
        self.lanes.insert(free, Lane { submitter, shape, shard, queued: 0, wanted: 0, removal: None });
        Some((free, true))
    }

    /// Nobody waits in the lanes of a dead submitter.
    pub(super) fn silence(&mut self, submitter: ProcessSlot) {
        for lane in self.lanes.values_mut().filter(|lane| lane.submitter == submitter) {
            lane.queued = 0;
            lane.wanted = 0;
        }
    }

    /// Removes the lanes of a submitter.
    pub(super) fn close_lanes(&mut self, submitter: ProcessSlot) -> Vec<LaneId> {
        let closed = self.lanes.extract_if(.., |_, lane| lane.submitter == submitter);
        let (lanes, shapes): (Vec<LaneId>, Vec<ShapeId>) = closed.map(|(id, lane)| (id, lane.shape)).unzip();
        shapes.into_iter().for_each(|shape| self.note_spare(shape));
        lanes
    }

    /// The shape may be unused now.
    pub(super) fn note_spare(&mut self, shape: ShapeId) {
        self.spare.insert(shape);
        self.tidy_due = true;
    }

    /// Removes the lanes of a shape that were given up.
    pub(super) fn close_given_up(&mut self, shape: ShapeId) -> Vec<LaneId> {
        let given_up = |lane: &Lane| lane.shape == shape && lane.removal == Some(Removal::GivenUp);
        self.lanes.extract_if(.., |_, lane| given_up(lane)).map(|(id, _)| id).collect()
    }

    /// Whether somebody submits tasks of this shape.
    pub(super) fn has_lane(&self, shape: ShapeId) -> bool {
        self.of_shape(shape).next().is_some()
    }

    /// Removes the lanes of a shape.
    pub(super) fn close_lanes_of_shape(&mut self, shape: ShapeId) -> Vec<LaneId> {
        self.lanes.extract_if(.., |_, lane| lane.shape == shape).map(|(id, _)| id).collect()
    }

    /// Tasks of the shape that wait, over all lanes.
    pub(super) fn queued(&self, shape: ShapeId) -> u64 {
        self.of_shape(shape).map(|lane| u64::from(lane.queued)).sum()
    }

    /// Leases of the shape that would be put to use at once.
    pub(super) fn wanted(&self, shape: ShapeId) -> u64 {
        self.of_shape(shape).map(|lane| u64::from(lane.wanted)).sum()
    }

    /// The same, over the lanes that count.
    pub(super) fn wanted_in(&self, shape: ShapeId, counts: impl Fn(&Lane) -> bool) -> u64 {
        self.of_shape(shape).filter(|lane| counts(lane)).map(|lane| u64::from(lane.wanted)).sum()
    }

    /// The lanes of a shape.
    pub(super) fn lanes_of(&self, shape: ShapeId) -> impl Iterator<Item = (LaneId, &Lane)> {
        self.lanes.iter().filter(move |(_, lane)| lane.shape == shape).map(|(id, lane)| (*id, lane))
    }

    fn of_shape(&self, shape: ShapeId) -> impl Iterator<Item = &Lane> {
        self.lanes.values().filter(move |lane| lane.shape == shape)
    }

    /// How many leases of a shape are held.
    pub(super) fn count(&self, shape: ShapeId) -> usize {
        self.leases.values().filter(|lease| lease.shape == shape).count()
    }

    /// How many leases of a shape wait for their worker to start.
    pub(super) fn starting(&self, shape: ShapeId, process_table: &ProcessTable) -> u64 {
        let leases = self.leases.values().filter(|lease| lease.shape == shape);
        leases.filter(|lease| process_table.is_starting(lease.holder)).count() as u64
    }

    /// Whether a process has a lease.
    pub(super) fn is_holder(&self, process: ProcessSlot) -> bool {
        self.leases.values().any(|lease| lease.holder == process)
    }

    /// An idle worker stays until then.
    pub(super) fn keep_idle(&mut self, worker: ProcessSlot, until: Time) {
        if let Some(idle) = self.idle.get_mut(&worker) {
            idle.until = Some(until);
        }
    }

    /// How many idle workers of a shape stay however long they are idle.
    pub(super) fn kept(&self, shape: ShapeId) -> usize {
        self.idle.values().filter(|idle| idle.shape == shape && idle.until.is_none()).count()
    }

    /// Whether the shape may have another lease here, as far as bounds other than resources go. What other nodes may run
    /// is bounded there.
    pub(super) fn has_room(&self, shape: ShapeId, process_table: &ProcessTable) -> bool {
        let bound = match self.shape(shape).resources.is_empty() {
            true => FREE_SHAPE_LEASES_MAX,
            false => limits::THREADS_MAX,
        };
        let leases = self.leases.values().filter(|lease| lease.shape == shape);
        leases.filter(|lease| !process_table.is_peer(lease.holder)).count() < bound
    }

    /// Records a lease, and that one task less waits for one.
    pub(super) fn add(
        &mut self,
        shape: ShapeId,
        holder: ProcessSlot,
        allocation: Allocation,
        granted_at: Time,
    ) -> LeaseId {
        self.next_lease += 1;
        let id = LeaseId(self.next_lease);
        let held = Held { shape, holder, allocation, granted_at, lent: None, asked_as_idle: false };
        self.leases.insert(id, held);
        id
    }

    /// A lease has been granted: somebody wants one less.
    pub(super) fn satisfy(&mut self, shape: ShapeId) {
        let mut lanes = self.lanes.values_mut();
        if let Some(lane) = lanes.find(|lane| lane.shape == shape && lane.wanted > 0) {
            lane.wanted -= 1;
        }
    }

    /// A lease came back unused. Returns whether a task still waits for one.
    fn unsatisfy(&mut self, shape: ShapeId) -> bool {
        let mut lanes = self.lanes.values_mut();
        let lane = lanes.find(|lane| lane.shape == shape && lane.wanted < lane.queued);
        lane.map(|lane| lane.wanted += 1).is_some()
    }

    /// Takes a lease out, if `holder` has it, and says whether the holder returns it unused while its task still waits.
    pub(super) fn remove(&mut self, lease: LeaseId, holder: ProcessSlot) -> Option<(Held, bool)> {
        if self.leases.get(&lease)?.holder != holder {
            return None;
        }
        let held = self.leases.remove(&lease)?;
        self.tidy_due |= !self.spare.is_empty();
        let mut task_waits = false;
        if let Some(asked) = self.asked_back.get_mut(&(holder, held.shape)) {
            asked.count -= 1;
            // The holder owed a lease when it got this one.
            let unused = lease > asked.youngest;
            if asked.count == 0 {
                self.asked_back.remove(&(holder, held.shape));
            }
            if unused {
                task_waits = self.unsatisfy(held.shape);
            }
        }
        Some((held, task_waits))
    }

    /// Takes all leases of a dead holder out.
    pub(super) fn remove_holder(&mut self, holder: ProcessSlot) -> Vec<Held> {
        self.asked_back.retain(|(asked, _), _| *asked != holder);
        self.idle.remove(&holder);
        self.tidy_due |= !self.spare.is_empty();
        self.leases.extract_if(.., |_, lease| lease.holder == holder).map(|(_, held)| held).collect()
    }

    /// How many leases of the shape this holder has been asked for.
    pub(super) fn asked(&self, holder: ProcessSlot, shape: ShapeId) -> u32 {
        self.asked_back.get(&(holder, shape)).map_or(0, |asked| asked.count)
    }

    pub(super) fn ask_back(&mut self, now: Time, holder: ProcessSlot, shape: ShapeId) {
        let youngest = LeaseId(self.next_lease);
        let next_look = Some(Time(now.0 + ANSWER_MICROSECONDS_MAX));
        let new = Asked { count: 0, since: now, youngest, next_look };
        let asked = self.asked_back.entry((holder, shape)).or_insert(new);
        asked.count += 1;
        asked.youngest = youngest;
    }

    /// Whether a lease that the holder could give back at once would have come back by now. A lease that was granted
    /// after the holder was asked may be idle: the holder's silence says nothing of that one.
    pub(super) fn is_in_use(&self, now: Time, id: LeaseId, microseconds: u64) -> bool {
        let lease = &self.leases[&id];
        let asked = self.asked_back.get(&(lease.holder, lease.shape));
        asked.is_some_and(|asked| now.0 >= asked.since.0 + microseconds && id <= asked.youngest)
    }

    /// Whether the holder has owed leases of this shape for so long.
    pub(super) fn owes(&self, now: Time, holder: ProcessSlot, shape: ShapeId, microseconds: u64) -> bool {
        let asked = self.asked_back.get(&(holder, shape));
        asked.is_some_and(|asked| now.0 >= asked.since.0 + microseconds)
    }

    /// When holders that were asked should have answered, first if they had nothing to do, then if their tasks were short.
    pub(super) fn answer_deadlines(&self) -> impl Iterator<Item = Time> {
        self.asked_back.values().filter_map(|asked| asked.next_look)
    }

    /// Answers that are due by now are waited for longer, or not any more.
    pub(super) fn on_answers_due(&mut self, now: Time) {
        for asked in self.asked_back.values_mut() {
            let long = Time(asked.since.0 + LONG_TASK_MICROSECONDS_MIN);
            if asked.next_look.is_some_and(|due| due <= now) {
                asked.next_look = (now < long).then_some(long);
            }
        }
    }

    pub(super) fn check(&self, process_table: &ProcessTable) {
        let mut per_holder = BTreeMap::<_, u32>::new();
        for (id, lease) in &self.leases {
            let holder = process_table.get(lease.holder).unwrap_or_else(|| panic!("{id} has no holder"));
            self.shape(lease.shape);
            let dead = matches!(holder.stage, super::process_table::Stage::Dead { .. });
            assert!(!dead, "lease {id} is held by the dead process {}", lease.holder);
            *per_holder.entry((lease.holder, lease.shape)).or_default() += 1;
        }
        for (key, asked) in &self.asked_back {
            let held = per_holder.get(key).copied().unwrap_or(0);
            assert!(asked.count > 0 && asked.count <= held, "leases invariant 3: {key:?}");
        }
        let mut seen = std::collections::BTreeSet::new();
        for (id, lane) in &self.lanes {
            let given_up = lane.removal == Some(Removal::GivenUp);
            let key = (lane.submitter, lane.shard, lane.shape);
            assert!(given_up || seen.insert(key), "leases invariant 2: {id}");
            assert!(process_table.get(lane.submitter).is_some(), "lane {id} has no submitter");
            assert!(lane.removal.is_none() || lane.queued + lane.wanted == 0, "lane {id} is not served");
            self.shape(lane.shape);
        }
        for (slot, idle) in &self.idle {
            self.shape(idle.shape);
            assert!(process_table.is_live(*slot), "idle worker {slot} is not alive");
            assert!(self.leases.values().all(|lease| lease.holder != *slot), "{slot} is not idle");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_start_are_retried_at_once_and_then_ever_later() {
        let mut failures = StartFailures::default();
        let delays: Vec<u64> = (0..15)
            .map(|_| {
                failures.add(Time(0), String::new());
                failures.not_before.map_or(0, |time| time.0 / 1000)
            })
            .collect();
        assert_eq!(delays[..8], [0, 0, 0, 0, 0, 100, 200, 400]);
        assert_eq!(delays[14], 5000);
    }

    #[test]
    fn a_shard_of_a_submitter_has_one_lane_per_shape() {
        let mut leases = Leases::default();
        let shape = leases.intern(&Shape::default()).unwrap();
        assert_eq!(leases.open_lane(ProcessSlot(0), shape, ShardIndex(0)), Some((LaneId(0), true)));
        assert_eq!(leases.open_lane(ProcessSlot(1), shape, ShardIndex(0)), Some((LaneId(1), true)));
        assert_eq!(leases.open_lane(ProcessSlot(0), shape, ShardIndex(0)), Some((LaneId(0), false)));
        assert_eq!(leases.open_lane(ProcessSlot(0), shape, ShardIndex(1)), Some((LaneId(2), true)));
        assert_eq!(leases.close_lanes(ProcessSlot(0)), [LaneId(0), LaneId(2)]);
        assert_eq!(leases.open_lane(ProcessSlot(2), shape, ShardIndex(0)), Some((LaneId(0), true)));
    }

    #[test]
    fn shapes_are_bounded() {
        let mut leases = Leases::default();
        for number in 0..=limits::SHAPES_MAX as u64 {
            let resources = aktis_protocol::Resources::none().with("x", Amount(number + 1));
            let id = leases.intern(&Shape { resources, ..Shape::default() });
            assert_eq!(id.is_some(), number < limits::SHAPES_MAX as u64);
        }
    }
}
