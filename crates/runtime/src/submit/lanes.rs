//! Lanes: one for each shape, asked for at first use, given up when there are many, and wanted again for what went through.

use super::{DEFAULT_LANE, Lane, Shell};
use crate::entry::Later;
use crate::error::Error;
use crate::node::LaneWish;
use crate::payload::Payload;
use crate::runtime::Inner;
use crate::shards::Shard;
use aktis_logic::machine::submitter::{LaneIndex, Record, Route};
use aktis_protocol::control::{FromNode, RequestId, ToNode};
use aktis_protocol::{Failure, LaneId, ProgramId, Shape, limits};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What there is for a task that went through a lane, and runs again.
pub(crate) enum Reopen {
    /// A lane of its shape.
    Open(LaneIndex),
    /// None, but the node may have one for this shape.
    Wanted(Arc<Shape>),
    /// None, and there will be none.
    Gone,
}

impl Shell {
    /// The lane of a shape, for a submission: it stays until that is on record.
    pub(super) fn choose_lane(&mut self, shape: &Arc<Shape>) -> Option<LaneIndex> {
        let lane = *self.by_shape.get(shape)?;
        self.lanes[lane.place()].choices += u32::from(!self.is_default(lane));
        Some(lane)
    }

    fn is_default(&self, lane: LaneIndex) -> bool {
        lane == DEFAULT_LANE && self.has_default
    }

    /// A submission that has chosen a lane is on record.
    #[inline]
    pub(super) fn on_chosen(&mut self, lane: LaneIndex) {
        // The first one stays in any case, and nobody asks for it.
        if !self.is_default(lane) && self.machine.lane_in(lane.place()) == Some(lane) {
            self.lanes[lane.place()].choices -= 1;
        }
    }

    /// Gives up those of these lanes that have nothing to do, but for the default one.
    fn give_up_lanes(&mut self, which: impl Fn(&Shape) -> bool) -> impl Iterator<Item = LaneId> {
        let places = usize::from(self.has_default)..self.lanes.len();
        let unchosen = places.filter(|&place| {
            let lane = &self.lanes[place];
            lane.choices == 0 && which(&lane.definition)
        });
        let idle = self.machine.close_idle_lanes(unchosen);
        self.by_shape.retain(|_, lane| !idle.contains(lane));
        idle.iter().for_each(|&lane| self.note_given_up(lane));
        self.forget_given_up();
        idle.into_iter().map(|lane| {
            let lane = &mut self.lanes[lane.place()];
            lane.removed = true;
            lane.id
        })
    }

    /// Tasks that went through this lane and run again want another of its shape.
    fn note_given_up(&mut self, lane: LaneIndex) {
        let shape = &self.lanes[lane.place()].definition;
        // Where inputs were says nothing about where they will be.
        self.given_up.insert(lane, Arc::new(Shape { near: None, ..(**shape).clone() }));
    }

    /// Forgets the lanes that no task on record went through, if there are many.
    fn forget_given_up(&mut self) {
        if self.given_up.len() <= self.given_up_max {
            return;
        }
        let lane = |record: &Record<Payload>| match record.route() {
            Route::Lane(lane) => Some(lane),
            Route::Actor(_) => None,
        };
        let used: BTreeSet<_> = self.machine.records().filter_map(|(_, record)| lane(record)).collect();
        self.given_up.retain(|lane, _| used.contains(lane));
        self.given_up_max = limits::LANES_KEPT.max(2 * self.given_up.len());
    }

    /// The lane for a task that went through this one, and runs again.
    pub(crate) fn reopen(&self, lane: LaneIndex) -> Reopen {
        if self.machine.lane_failure(lane).is_none() {
            return Reopen::Open(lane);
        }
        let Some(shape) = self.given_up.get(&lane) else { return Reopen::Gone };
        match self.by_shape.get(shape) {
            Some(lane) => Reopen::Open(*lane),
            None => Reopen::Wanted(shape.clone()),
        }
    }
}

impl Inner {
    /// The lane of a shape, asking the node for one at first use.
    pub(crate) fn lane_of(self: &Arc<Self>, shard: &Shard, shape: &Arc<Shape>) -> Result<LaneIndex, Error> {
        if let Some(lane) = shard.lock().choose_lane(shape) {
            return Ok(lane);
        }
        // The lane of the default shape is the first of each shard, but where all tasks are those of others.
        if self.bridge.get().is_none()
            && *shape != self.default_shape
            && !shard.has_default_lane.load(Ordering::Acquire)
        {
            self.lane_of(shard, &self.default_shape)?;
        }
        self.give_up_lanes(shard);
        let question = |request| {
            self.replies.lanes.lock().insert(request, LaneWish::Asked(shard.index, shape.clone()));
            ToNode::LaneWanted { request, shape: self.of_this_program(shape), shard: shard.index }
        };
        match crate::hooks::blocking(|| self.request(question))? {
            FromNode::LaneOpened { request, lane } => {
                let wish = self.replies.lanes.lock().remove(&request);
                match (lane, wish) {
                    (Ok(_), Some(LaneWish::Open(index))) => Ok(index),
                    (Err(failure), _) => Err(failure.into()),
                    (Ok(lane), _) => Err(Error::System(format!("{lane} was opened, and not asked for"))),
                }
            }
            other => Err(Error::System(format!("the node answered {other:?} to a question about a lane"))),
        }
    }

    /// The shape as the node is told: who names no program means this one.
    pub(super) fn of_this_program(&self, shape: &Shape) -> Shape {
        let program = if shape.program == ProgramId::default() { self.program } else { shape.program };
        Shape { program, ..shape.clone() }
    }

    /// The node has made a lane that a thread waits for, or refused to.
    pub(crate) fn on_lane_opened(self: &Arc<Self>, request: RequestId, lane: Result<LaneId, Failure>) {
        if let Some((shard, shape)) = self.take_foreseen(request) {
            return self.on_lane_foreseen(shard, &shape, lane);
        }
        if let Ok(id) = lane
            && let Some(wish) = self.replies.lanes.lock().get_mut(&request)
            && let LaneWish::Asked(shard, shape) = wish
        {
            *wish = LaneWish::Open(self.add_lane(self.submitter.get(*shard), shape, id));
        }
        self.run_deferred();
        self.replies.complete(request, FromNode::LaneOpened { request, lane });
    }

    /// Takes a new lane into use.
    pub(super) fn add_lane(&self, shard: &Shard, shape: &Arc<Shape>, id: LaneId) -> LaneIndex {
        let mut shell = shard.lock();
        if let Some(lane) = shell.choose_lane(shape) {
            return lane;
        }
        let (lane_shape, producer) = (self.control.lane_shape(id), self.control.lane_producer(id));
        let definition = shape.clone();
        let lane = Lane { id, shape: lane_shape, definition, producer, removed: false, choices: 1 };
        let index = shell.machine.open_lane();
        match shell.lanes.get_mut(index.place()) {
            Some(place) => *place = lane,
            None => shell.lanes.push(lane),
        }
        shell.by_shape.insert(shape.clone(), index);
        shard.has_default_lane.store(true, Ordering::Release);
        index
    }

    /// The node does not serve a lane any more: its tasks fail.
    pub(crate) fn on_lane_removed(self: &Arc<Self>, id: LaneId, failure: &Failure) {
        let mut later = Later::default();
        for shard in self.submitter.all() {
            let mut shell = shard.lock();
            let place = shell.lanes.iter().position(|lane| lane.id == id && !lane.removed);
            if let Some(lane) = place.and_then(|place| shell.machine.lane_in(place)) {
                shell.lanes[lane.place()].removed = true;
                shell.by_shape.retain(|_, index| *index != lane);
                shell.step(self, &mut later, |machine, out| machine.on_lane_removed(lane, failure, out));
                // A group is gone for good. Nodes come and go: a task that runs again is tried in another lane.
                if shell.lanes[lane.place()].definition.group.is_none() {
                    shell.note_given_up(lane);
                    shell.forget_given_up();
                }
                // Of one that was given up, the node has been told.
                later.messages.push(ToNode::LaneForgotten { lane: id });
                break;
            }
        }
        later.run(self);
    }

    /// Another lane is wanted: if there are many, those that have nothing to do go, so that their number is not the
    /// limit of how many different things a program can ask for.
    fn give_up_lanes(self: &Arc<Self>, shard: &Shard) {
        if shard.lock().by_shape.len() >= limits::LANES_KEPT {
            self.give_up_idle(shard, |_| true);
        }
        self.run_deferred();
    }

    /// The node has no use for a program any more: nor is there for its lanes, but for those that have something to do.
    pub(crate) fn on_lanes_unwanted(self: &Arc<Self>, program: ProgramId) {
        for shard in self.submitter.all() {
            self.give_up_idle(shard, |shape| shape.program == program);
        }
        self.run_deferred();
        self.flush_outbox();
    }

    fn give_up_idle(&self, shard: &Shard, which: impl Fn(&Shape) -> bool) {
        // An answer that is on its way may name a lane that is open now. Who asks from now on asks after it was given up.
        let wishes = self.replies.lanes.lock();
        let mut shell = shard.lock();
        let is_asked = |wish: &LaneWish| !matches!(wish, LaneWish::Open(_));
        if !wishes.values().any(is_asked) {
            self.outbox.extend(shell.give_up_lanes(which).map(|lane| ToNode::LaneForgotten { lane }));
        }
    }
}
