//! How bundles are set aside and given back: the exchange between the placer and the nodes of a group.

use super::super::packing::Wanted;
use super::super::requests::Change;
use super::super::{Placer, PlacerEffect};
use super::{Group, Stage};
use crate::{Effects, Time};
use aktis_protocol::placement::FromPlacer;
use aktis_protocol::{GroupId, GroupStrategy, NodeId};
use std::collections::{BTreeMap, BTreeSet};

impl Group {
    /// The places of its bundles if a node has these; none if it cannot have them all.
    fn places_with(&self, node: NodeId, bundles: &[u32]) -> Option<BTreeMap<u32, NodeId>> {
        // What a node was asked to return is on its way, though it may have said before that it has it.
        let is_open = matches!(self.stage, Stage::Waiting { .. }) && !self.returning.contains_key(&node);
        let mut places = self.places.clone();
        for &bundle in bundles {
            if places.get(&bundle) == Some(&node) {
                continue;
            }
            let suits = match self.spec.strategy {
                GroupStrategy::StrictPack => places.values().all(|place| *place == node),
                GroupStrategy::StrictSpread => places.values().all(|place| *place != node),
                GroupStrategy::Pack | GroupStrategy::Spread => true,
            };
            let is_another = self.awaited.get(&bundle).is_some_and(|place| *place != node);
            let exists = (bundle as usize) < self.spec.bundles.len();
            if !is_open || !suits || is_another || !exists || places.contains_key(&bundle) {
                return None;
            }
            places.insert(bundle, node);
        }
        Some(places)
    }
}

impl Placer {
    /// First phase: every node is asked to set its part aside.
    pub(super) fn prepare(
        &mut self,
        fails_at: Time,
        group: GroupId,
        plan: BTreeMap<u32, NodeId>,
        patient: bool,
        out: &mut Effects<PlacerEffect>,
    ) {
        let known = self.groups.table.get_mut(&group).expect("the group is known");
        known.attempt += 1;
        let attempt = known.attempt;
        let mut parts: BTreeMap<NodeId, Vec<Wanted>> = BTreeMap::new();
        for (&index, &node) in &plan {
            let bundle = known.spec.bundles[index as usize].clone();
            self.nodes.assume_bundle(node, group, &bundle);
            parts.entry(node).or_default().push((index, bundle));
        }
        let spec = known.spec.clone();
        let unanswered = parts.keys().copied().collect();
        known.stage = Stage::Preparing { plan, unanswered, fails_at, patient };
        self.groups.waiting.remove(&known.turn);
        self.groups.preparing.insert((fails_at, group));
        self.groups.touched.insert(group);
        for (node, bundles) in parts {
            let spec = spec.clone();
            self.send(node, FromPlacer::Reserve { group, spec, attempt, bundles }, out);
        }
    }

    /// A node that has joined has bundles of a group from before. It keeps them if none of them has another node by now; if
    /// one has, it returns all: what uses a group there goes with the whole of it. It may say this more than once.
    pub(in super::super) fn on_group_kept(
        &mut self,
        now: Time,
        from: NodeId,
        group: GroupId,
        bundles: Vec<u32>,
        out: &mut Effects<PlacerEffect>,
    ) {
        let Some(known) = self.groups.table.get_mut(&group) else {
            // It was removed while the node was away.
            return self.send(from, FromPlacer::Return { group, bundles }, out);
        };
        if let Some(places) = known.places_with(from, &bundles) {
            known.awaited.retain(|bundle, _| !places.contains_key(bundle));
            known.places = places;
        } else {
            known.awaited.retain(|_, place| *place != from);
            self.strike(now, from, "was away for too long", group, out);
            let unwanted = bundles.into_iter().map(|bundle| (bundle, from)).collect();
            return self.ask_back(group, &unwanted, out);
        }
        self.groups.touched.insert(group);
        if known.places.len() == known.spec.bundles.len() && matches!(known.stage, Stage::Waiting { .. }) {
            known.stage = Stage::Ready;
            self.groups.waiting.remove(&known.turn);
            self.tell_group(group, out);
        }
        self.requests.note_change(Change::Members);
    }

    pub(in super::super) fn on_reserved(
        &mut self,
        now: Time,
        from: NodeId,
        group: GroupId,
        attempt: u32,
        outcome: Result<(), String>,
        out: &mut Effects<PlacerEffect>,
    ) {
        let known = self.groups.table.get_mut(&group).filter(|known| known.attempt == attempt);
        let Some(known) = known else { return };
        let Stage::Preparing { unanswered, .. } = &mut known.stage else { return };
        if let Err(why) = outcome {
            *known.refusals.entry(from).or_default() += 1;
            return self.give_up(now, group, format!("node {from} could not set its part aside: {why}"), out);
        }
        unanswered.remove(&from);
        self.commit_if_prepared(now, group, out);
    }

    /// Second phase: all have set their parts aside, and that they may have them is on disk.
    pub(super) fn commit_if_prepared(&mut self, now: Time, group: GroupId, out: &mut Effects<PlacerEffect>) {
        let known = self.groups.table.get_mut(&group).expect("the group is known");
        let answered = matches!(&known.stage, Stage::Preparing { unanswered, .. } if unanswered.is_empty());
        if !answered || !known.record.is_current() {
            return;
        }
        let Stage::Preparing { plan, fails_at, .. } = std::mem::replace(&mut known.stage, Stage::Ready)
        else {
            return;
        };
        self.groups.preparing.remove(&(fails_at, group));
        known.refusals.clear();
        let attempt = known.attempt;
        let nodes: BTreeSet<NodeId> = plan.values().copied().collect();
        known.places.extend(plan);
        for node in nodes {
            self.nodes.settle_group(now, node, group);
            self.send(node, FromPlacer::Commit { group, attempt }, out);
        }
        self.tell_group(group, out);
        self.requests.note_change(Change::Members);
    }

    /// Not all could be set aside: all give back what they were asked for in this attempt.
    pub(super) fn give_up(
        &mut self,
        now: Time,
        group: GroupId,
        why: String,
        out: &mut Effects<PlacerEffect>,
    ) {
        let Some(known) = self.groups.table.get_mut(&group) else { return };
        let waiting = Stage::Waiting { told: why };
        let Stage::Preparing { plan, fails_at, patient, .. } = std::mem::replace(&mut known.stage, waiting)
        else {
            return;
        };
        if patient {
            // Others get a chance to be patient.
            known.since = now;
        }
        self.groups.preparing.remove(&(fails_at, group));
        self.groups.waiting.insert(known.turn, group);
        self.groups.touched.insert(group);
        self.ask_back(group, &plan, out);
        self.tell_group(group, out);
    }

    /// Nodes that are still there are asked to return these bundles.
    pub(super) fn ask_back(
        &mut self,
        group: GroupId,
        bundles: &BTreeMap<u32, NodeId>,
        out: &mut Effects<PlacerEffect>,
    ) {
        let mut parts: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for (&index, &node) in bundles.iter().filter(|(_, node)| self.nodes.knows(**node)) {
            parts.entry(node).or_default().push(index);
        }
        for (node, bundles) in parts {
            self.nodes.forget_bundles(node, group);
            let known = self.groups.table.get_mut(&group).expect("the group is known");
            *known.returning.entry(node).or_default() += 1;
            self.send(node, FromPlacer::Return { group, bundles }, out);
        }
        self.requests.note_change(Change::Members);
    }

    pub(in super::super) fn on_returned(&mut self, from: NodeId, group: GroupId) {
        let Some(known) = self.groups.table.get_mut(&group) else { return };
        if let Some(count) = known.returning.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                known.returning.remove(&from);
            }
        }
        self.forget_if_returned(group);
    }

    pub(super) fn forget_if_returned(&mut self, group: GroupId) {
        let over = |known: &Group| known.is_gone() && known.returning.is_empty();
        if self.groups.table.get(&group).is_some_and(over) {
            self.groups.table.remove(&group);
        }
    }

    /// Groups whose nodes take too long.
    pub(in super::super) fn on_groups_due(&mut self, now: Time, out: &mut Effects<PlacerEffect>) {
        while let Some(&(at, group)) = self.groups.preparing.first()
            && at <= now
        {
            self.give_up(now, group, "its resources could not be set aside in time".into(), out);
        }
    }
}
