//! What waits for more than time: whoever has submitted it is told, once for each reason.

use super::groups::Stage;
use super::places::Stance;
use super::{Node, NodeEffect};
use crate::Effects;
use aktis_protocol::control::FromNode;
use aktis_protocol::{ActorId, GroupPlace, ProcessSlot, ShapeId};
use std::collections::{BTreeMap, BTreeSet};

/// Reasons that one process is told; after so many it is told no more.
const REASONS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Warnings(BTreeMap<ProcessSlot, BTreeSet<String>>);

impl Warnings {
    pub(super) fn forget_process(&mut self, dead: ProcessSlot) {
        self.0.remove(&dead);
    }

    /// Whether this is news for a process.
    fn note(&mut self, process: ProcessSlot, reason: &str) -> bool {
        let told = self.0.entry(process).or_default();
        told.len() < REASONS_MAX && told.insert(reason.to_owned())
    }
}

impl Node {
    /// No other node could run tasks of this shape, since there is none, and neither can this one.
    pub(super) fn warn_if_alone(&mut self, shape: ShapeId, out: &mut Effects<NodeEffect>) {
        let want = self.leases.want(shape);
        let never = self.stance_of_shape(shape) == Stance::Never || !self.resources.is_feasible(&want);
        if never && !self.places.is_clustered() && !self.waits_for_group(want.group) {
            self.warn_submitters(shape, &self.shape_reason(shape), out);
        }
    }

    /// The same for an actor that waits for this reason.
    pub(super) fn warn_creator_if_alone(
        &mut self,
        actor: ActorId,
        reason: &str,
        out: &mut Effects<NodeEffect>,
    ) {
        let group = self.actors.table.get(&actor).and_then(|known| known.spec.group);
        if !self.places.is_clustered() && !self.waits_for_group(group) {
            self.warn_creator(actor, reason, out);
        }
    }

    /// Whether the group that something is to be in has no place itself.
    fn waits_for_group(&self, place: Option<GroupPlace>) -> bool {
        let known = place.and_then(|place| self.groups.table.get(&place.group));
        known.is_some_and(|known| !matches!(known.stage, Stage::Ready))
    }

    /// Tasks of a shape wait for this reason.
    pub(super) fn warn_submitters(&mut self, shape: ShapeId, reason: &str, out: &mut Effects<NodeEffect>) {
        let waiting = self.leases.lanes.values().filter(|lane| lane.shape == shape && lane.queued > 0);
        let submitters: BTreeSet<ProcessSlot> = waiting.map(|lane| lane.submitter).collect();
        for submitter in submitters {
            self.warn(submitter, "a task", reason, out);
        }
    }

    /// An actor waits for this reason.
    pub(super) fn warn_creator(&mut self, actor: ActorId, reason: &str, out: &mut Effects<NodeEffect>) {
        let holders = self.actors.table.get(&actor).map(|known| known.holders.clone()).unwrap_or_default();
        for holder in holders {
            self.warn(holder, "an actor", reason, out);
        }
    }

    fn warn(&mut self, process: ProcessSlot, what: &str, reason: &str, out: &mut Effects<NodeEffect>) {
        if self.process_table.is_live(process)
            && !self.is_peer(process)
            && self.warnings.note(process, reason)
        {
            let text = format!("{what} waits for a node that can run it: {reason}");
            self.send(process, FromNode::Warned { text }, out);
        }
    }
}
