//! Shapes that nobody uses any more: their numbers are used again.
//!
//! A submitter gives a lane up when it has too many. While somebody has a lease of the lane's shape, he may be looking
//! into the lane; so it is closed when there is no lease, and the shape goes when it has no lane and no worker, and
//! nobody has yet to say where its tasks can run. Other nodes have leases like any process.
//!
//! Invariant: a shape that may have become unused is in `Leases::spare` until it is gone or used again.

use super::granting::Claim;
use super::leases::{Lane, Removal};
use super::process_table::Role;
use super::{Node, NodeEffect};
use crate::Effects;
use aktis_protocol::{LaneId, ProcessSlot, ShapeId};
use std::collections::BTreeSet;

impl Node {
    /// The submitter does not use the lane any more: because it was removed, or because there is nothing to do in it.
    pub(super) fn on_lane_forgotten(&mut self, from: ProcessSlot, lane: LaneId) {
        let of_sender = |lane: &&Lane| lane.submitter == from;
        let Some(shape) = self.leases.lanes.get(&lane).filter(of_sender).map(|lane| lane.shape) else {
            return;
        };
        let in_group = self.leases.shape(shape).group.is_some();
        let lane = self.leases.lanes.get_mut(&lane).expect("it was just there");
        if lane.removal.is_some() && in_group {
            // It goes with its group.
            lane.removal = Some(Removal::Forgotten);
            return;
        }
        (lane.queued, lane.wanted, lane.removal) = (0, 0, Some(Removal::GivenUp));
        self.leases.note_spare(shape);
    }

    /// Closes lanes that were given up, and frees shapes, as soon as nobody uses them.
    pub(super) fn tidy_shapes(&mut self, out: &mut Effects<NodeEffect>) {
        if !std::mem::take(&mut self.leases.tidy_due) {
            return;
        }
        let leased: BTreeSet<ShapeId> = self.leases.leases.values().map(|lease| lease.shape).collect();
        let spare = self.leases.spare.iter().filter(|shape| !leased.contains(shape));
        for shape in spare.copied().collect::<Vec<_>>() {
            for lane in self.leases.close_given_up(shape) {
                out.push(NodeEffect::CloseLane { lane });
            }
            // Those of placement groups go with their groups, and the default ones with their programs.
            let stays = self.programs.is_default(shape) || self.leases.shape(shape).group.is_some();
            if stays || self.leases.has_lane(shape) {
                self.leases.spare.remove(&shape);
            } else if !self.places.is_asked_for(shape) && !self.has_runner(shape) {
                self.free_shape(shape, out);
            }
        }
    }

    /// The number of a shape that nobody uses any more may be used for another.
    pub(super) fn free_shape(&mut self, shape: ShapeId, out: &mut Effects<NodeEffect>) {
        self.claims.retain(|claim| *claim != Claim::Shape(shape));
        self.leases.forget_shape(shape);
        self.places.forget_shape(shape);
        out.push(NodeEffect::FreeShape { shape });
    }

    /// Whether a worker is there for this shape alone. One that could as well serve the default shape of its program does
    /// from now on.
    fn has_runner(&mut self, shape: ShapeId) -> bool {
        let runners: Vec<ProcessSlot> = self.process_table.runners(shape).collect();
        let default = self.programs.default_shape(self.leases.shape(shape).program);
        let Some(default) = default.filter(|&default| self.leases.is_interchangeable(shape, default)) else {
            return !runners.is_empty();
        };
        for runner in runners {
            self.process_table.get_mut(runner).expect("a runner has a place").role =
                Role::TaskRunner(default);
            if let Some(idle) = self.leases.idle.get_mut(&runner) {
                idle.shape = default;
            }
        }
        false
    }
}
