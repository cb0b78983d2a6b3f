//! The queues of a submitter, one for each shape: tasks that could be sent wait here for room.

use super::{Out, Record, Route, Stage, Submitter};
use aktis_protocol::{Failure, FailureKind, TaskKey};
use std::collections::{BTreeSet, VecDeque};

/// A queue of tasks of one shape: its place in the table, and how often that was used before. Whoever kept the index
/// of a queue that is gone does not find another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneIndex(pub u32);

const PLACE_BITS: u32 = 16;

impl LaneIndex {
    /// Its place in the table, for tables beside the machine's.
    #[inline]
    pub const fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }

    /// What comes after it in the same place.
    const fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << PLACE_BITS))
    }
}

pub(super) struct Lane {
    index: LaneIndex,
    open: bool,
    /// Why it was removed, if it was.
    failure: Option<Failure>,
    pub(super) queue: VecDeque<TaskKey>,
}

#[derive(Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    free: Vec<LaneIndex>,
}

impl Lanes {
    /// The queue of a lane that is open.
    #[inline]
    pub(super) fn queue(&mut self, lane: LaneIndex) -> &mut VecDeque<TaskKey> {
        &mut self.lanes[lane.place()].queue
    }

    fn is_open(&self, lane: LaneIndex) -> bool {
        self.lanes.get(lane.place()).is_some_and(|found| found.open && found.index == lane)
    }
}

impl<P> Submitter<P> {
    /// Adds a queue.
    pub fn open_lane(&mut self) -> LaneIndex {
        let index = self.lanes.free.pop().unwrap_or(LaneIndex(self.lanes.lanes.len() as u32));
        let lane = Lane { index, open: true, failure: None, queue: VecDeque::new() };
        match self.lanes.lanes.get_mut(index.place()) {
            Some(place) => *place = lane,
            None => self.lanes.lanes.push(lane),
        }
        index
    }

    /// All queues that are open.
    pub fn open_lanes(&self) -> impl Iterator<Item = LaneIndex> {
        self.lanes.lanes.iter().filter(|lane| lane.open).map(|lane| lane.index)
    }

    /// The queue in this place, if it is open.
    pub fn lane_in(&self, place: usize) -> Option<LaneIndex> {
        self.lanes.lanes.get(place).filter(|lane| lane.open).map(|lane| lane.index)
    }

    /// Why nothing can be submitted to a queue, if so: somebody removed it meanwhile. Ask before submitting, and fail
    /// what was submitted all the same.
    #[inline]
    pub fn lane_failure(&self, lane: LaneIndex) -> Option<Failure> {
        if self.lanes.is_open(lane) {
            return None;
        }
        let removed = self.lanes.lanes.get(lane.place()).filter(|found| found.index == lane);
        Some(removed.and_then(|found| found.failure.clone()).unwrap_or_else(|| {
            Failure::new(FailureKind::GroupRemoved, "the placement group that it was to run in was removed")
        }))
    }

    /// The queue goes: all its tasks that are not finished fail.
    pub fn on_lane_removed(&mut self, lane: LaneIndex, failure: &Failure, out: &mut Out<P>) {
        if !self.lanes.is_open(lane) {
            return;
        }
        let of_lane =
            |record: &Record<P>| record.route == Route::Lane(lane) && record.stage != Stage::Finished;
        let keys: Vec<TaskKey> =
            self.tasks.iter().filter(|(_, record)| of_lane(record)).map(|(key, _)| key).collect();
        for key in keys {
            self.fail(key, failure.clone(), out);
        }
        self.close_lane(lane);
        self.lanes.lanes[lane.place()].failure = Some(failure.clone());
    }

    /// Removes queues that have nothing to do, of those in these places; tells which.
    pub fn close_idle_lanes(&mut self, places: impl Iterator<Item = usize>) -> Vec<LaneIndex> {
        let unfinished = self.tasks.iter().filter(|(_, record)| record.stage != Stage::Finished);
        let busy: BTreeSet<LaneIndex> = unfinished
            .filter_map(|(_, record)| match record.route {
                Route::Lane(lane) => Some(lane),
                Route::Actor(_) => None,
            })
            .collect();
        let idle: Vec<LaneIndex> =
            places.filter_map(|place| self.lane_in(place)).filter(|lane| !busy.contains(lane)).collect();
        idle.iter().for_each(|&lane| self.close_lane(lane));
        idle
    }

    fn close_lane(&mut self, lane: LaneIndex) {
        let place = &mut self.lanes.lanes[lane.place()];
        (place.open, place.queue) = (false, VecDeque::new());
        self.lanes.free.push(lane.next());
    }

    /// A task that is next in one queue waits in another from now on.
    pub fn on_moved(&mut self, key: TaskKey, from: LaneIndex, to: LaneIndex) {
        let front = self.lanes.queue(from).pop_front();
        debug_assert_eq!(front, Some(key));
        if let Some(record) = self.tasks.get_mut(key) {
            record.route = Route::Lane(to);
            self.lanes.queue(to).push_back(key);
        }
    }

    /// The next task of a lane to be sent, without taking it.
    pub fn next_in_lane(&mut self, lane: LaneIndex) -> Option<TaskKey> {
        let queue = self.lanes.queue(lane);
        while let Some(&key) = queue.front() {
            if self.tasks.get(key).is_some_and(|record| record.stage == Stage::Queued) {
                return Some(key);
            }
            queue.pop_front();
        }
        None
    }

    /// How many tasks wait in this process for room in a lane.
    pub fn lane_backlog(&self, lane: LaneIndex) -> usize {
        self.lanes.lanes[lane.place()].queue.len()
    }

    /// How many tasks of this process are before this one in its lane's backlog.
    pub fn lane_position(&self, lane: LaneIndex, key: TaskKey) -> Option<usize> {
        self.lanes.lanes[lane.place()].queue.iter().position(|&queued| queued == key)
    }
}
