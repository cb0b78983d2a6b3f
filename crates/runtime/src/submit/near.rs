//! Where most of what a task reads lies: tasks go there, if moving the bytes would take longer than waiting.

use super::Shell;
use crate::entry::{Later, Outcome};
use crate::error::Error;
use crate::handle::Handle;
use crate::node::LaneWish;
use crate::runtime::Inner;
use crate::shards::Shard;
use aktis_logic::machine::submitter::LaneIndex;
use aktis_protocol::control::{RequestId, ToNode};
use aktis_protocol::{Failure, LaneId, Near, ProcessSlot, ProgramId, Shape, ShardIndex, Strategy, TaskKey};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Shell {
    /// Whether tasks of this lane may go where their inputs are.
    pub(super) fn may_move(&self, lane: LaneIndex) -> bool {
        let definition = &self.lanes[lane.place()].definition;
        !self.near_refused && definition.near.is_none() && is_free(definition)
    }

    /// The inputs of a task that is next in its lane have values now: it waits in the lane of where those are, or for that
    /// lane.
    pub(super) fn move_near(
        &mut self,
        from: LaneIndex,
        key: TaskKey,
        near: Near,
        later: &mut Later,
    ) -> Option<LaneIndex> {
        let definition = &self.lanes[from.place()].definition;
        let shape = Arc::new(Shape { near: Some(near), ..(**definition).clone() });
        let Some(&lane) = self.by_shape.get(&shape) else {
            later.lanes.push((key.shard(), shape));
            return None;
        };
        self.machine.on_moved(key, from, lane);
        Some(lane)
    }
}

/// Whether tasks of this shape may run wherever it is best.
fn is_free(shape: &Shape) -> bool {
    shape.strategy == Strategy::Default && shape.group.is_none()
}

impl Inner {
    /// Where most of these objects are, by their bytes, if that is known and they are large.
    #[inline]
    pub(crate) fn near(&self, handles: &[Handle]) -> Option<Near> {
        // A node inside a driver is the only one.
        if handles.is_empty() || !self.tuning.locality || self.program == ProgramId::default() {
            return None;
        }
        self.nearest(handles)
    }

    fn nearest(&self, handles: &[Handle]) -> Option<Near> {
        let mut places: BTreeMap<Option<ProcessSlot>, u64> = BTreeMap::new();
        for handle in handles {
            if let Some(Outcome::Stored { place, .. }) = handle.entry.outcome() {
                let entry = place.get();
                let bytes = self.arena.size_of(entry).unwrap_or(0);
                *places.entry(self.arena.elsewhere(entry)).or_default() += bytes;
            }
        }
        let (peer, bytes) = places.into_iter().max_by_key(|(peer, bytes)| (*bytes, peer.is_none()))?;
        Near::new(peer, bytes)
    }

    /// The lane for tasks of a shape whose inputs are there. What says where it runs goes where it says.
    pub(crate) fn lane_near(
        self: &Arc<Self>,
        shard: &Shard,
        shape: Option<&Arc<Shape>>,
        near: Option<Near>,
    ) -> Result<LaneIndex, Error> {
        let shape = shape.unwrap_or(&self.default_shape);
        if !is_free(shape) {
            return self.lane_of(shard, shape);
        }
        self.lane_of(shard, &Arc::new(Shape { near, ..(**shape).clone() }))
    }

    /// Asks for a lane that nobody waits for: what shall go into it is looked at again when it is there.
    pub(crate) fn foresee_lane(&self, shard: ShardIndex, shape: Arc<Shape>) {
        let mut wishes = self.replies.lanes.lock();
        let same = |wish: &LaneWish| matches!(wish, LaneWish::Foreseen(of, wanted) if *of == shard && *wanted == shape);
        if wishes.values().any(same) {
            return;
        }
        let request = self.replies.next_request();
        let message = ToNode::LaneWanted { request, shape: self.of_this_program(&shape), shard };
        wishes.insert(request, LaneWish::Foreseen(shard, shape));
        drop(wishes);
        self.outbox.push(message);
    }

    pub(super) fn take_foreseen(&self, request: RequestId) -> Option<(ShardIndex, Arc<Shape>)> {
        let mut wishes = self.replies.lanes.lock();
        match wishes.remove(&request)? {
            LaneWish::Foreseen(shard, shape) => Some((shard, shape)),
            other => {
                wishes.insert(request, other);
                None
            }
        }
    }

    pub(super) fn on_lane_foreseen(
        self: &Arc<Self>,
        shard: ShardIndex,
        shape: &Arc<Shape>,
        lane: Result<LaneId, Failure>,
    ) {
        let shard = self.submitter.get(shard);
        let opened = lane.map(|id| self.add_lane(shard, shape, id));
        let mut later = Later::default();
        let mut shell = shard.lock();
        match &opened {
            Ok(lane) => shell.on_chosen(*lane),
            Err(_) => shell.near_refused |= shape.near.is_some(),
        }
        shell.flush(self, &mut later);
        drop(shell);
        later.run(self);
        self.on_lane_for_rebuilds(shard.index, shape, opened.err().as_ref());
    }
}
