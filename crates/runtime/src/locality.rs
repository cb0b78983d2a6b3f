//! Where most of what a task reads lies: tasks go there, if moving the bytes would take longer than waiting.

use crate::entry::Outcome;
use crate::error::Error;
use crate::handle::Handle;
use crate::runtime::Inner;
use crate::shards::Shard;
use aktis_logic::machine::submitter::LaneIndex;
use aktis_protocol::{Near, ProcessSlot, ProgramId, Shape, Strategy};
use std::collections::BTreeMap;
use std::sync::Arc;

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
            if let Some(Outcome::Stored { entry, .. }) = handle.entry.outcome() {
                let bytes = self.arena.size_of(*entry).unwrap_or(0);
                *places.entry(self.arena.elsewhere(*entry)).or_default() += bytes;
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
        if shape.strategy != Strategy::Default || shape.group.is_some() {
            return self.lane_of(shard, shape);
        }
        self.lane_of(shard, &Arc::new(Shape { near, ..(**shape).clone() }))
    }
}
