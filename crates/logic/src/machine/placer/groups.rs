//! Placement groups across nodes, from the wish to the return of the last bundle.
//!
//! A group gets its bundles in two phases: each node is asked to set its part aside (`Reserve`); when all have, all are
//! told that it may be used (`Commit`). If one refuses, dies or takes too long, all give back what they were asked for.
//! A group that loses a node keeps what it has on others, and gets the rest again in the same way. What of that outlives
//! the control process is in `rows`.
//!
//! Invariants:
//! 1. A group is ready exactly while each of its bundles has a node that was told to commit it.
//! 2. A bundle that a node was asked to set aside is committed, or the node is asked to return it, or has left.
//! 3. At most one group is patient: it holds what it has got while it waits for more.
//! 4. Nobody is told of a group that has no row on disk, and no bundle of it is committed by a node that is not in that row.
//!    Nobody is told that a group is gone while it has one.

mod exchange;
mod rows;

use super::explain::infeasible_text;
use super::nodes::Known;
use super::packing::{self, Room, Wanted};
use super::requests::Change;
use super::{Placer, PlacerEffect};
use crate::{Effects, Time};
use aktis_protocol::placement::{FromPlacer, rules_text};
use aktis_protocol::{
    Amount, GroupId, GroupPlace, GroupSpec, GroupState, GroupStrategy, NodeId, Resources, limits,
};
use rows::Record;
use std::collections::{BTreeMap, BTreeSet};

/// How long nodes may take to set bundles aside that were free as far as the placer knew.
pub const PREPARE_MICROSECONDS_MAX: u64 = 1_000_000;
/// How long a group waits for bundles to be free all at once; then it waits for them where they are.
pub const GROUP_PATIENCE_MICROSECONDS: u64 = 1_000_000;
/// How long it does that before others get a chance.
pub const PATIENT_MICROSECONDS_MAX: u64 = 10_000_000;

/// How long nodes may take to say which bundles they have kept, when they or the placer were away.
pub(super) const KEPT_MICROSECONDS_MAX: u64 = limits::NODE_LEASE_MICROSECONDS;

#[derive(Debug)]
enum Stage {
    /// Not all of its bundles have a node, as those who watch it were told.
    Waiting { told: String },
    /// These bundles are to be set aside; some nodes have not answered yet.
    Preparing { plan: BTreeMap<u32, NodeId>, unanswered: BTreeSet<NodeId>, fails_at: Time, patient: bool },
    /// All bundles may be used.
    Ready,
    /// All bundles are asked back, once there is no row of it any more: these, then.
    Removing { why: String, bundles: BTreeMap<u32, NodeId> },
}

#[derive(Debug)]
struct Group {
    spec: GroupSpec,
    creator: NodeId,
    watchers: BTreeSet<NodeId>,
    /// The nodes of the bundles that are committed.
    places: BTreeMap<u32, NodeId>,
    stage: Stage,
    /// Since when it waits, attempts that failed included.
    since: Time,
    attempt: u32,
    turn: u64,
    /// Nodes that had these bundles before they or the placer were away, and have yet to say so. While there are any, the
    /// group gets no others.
    awaited: BTreeMap<u32, NodeId>,
    /// How long those that have joined may take to say so.
    held_until: Time,
    /// How often nodes have refused it.
    refusals: BTreeMap<NodeId, u32>,
    /// From whom so many answers to `Return` are still to come.
    returning: BTreeMap<NodeId, u32>,
    record: Record,
}

impl Group {
    fn state(&self) -> GroupState {
        match &self.stage {
            Stage::Waiting { told } => GroupState::Pending(told.clone()),
            Stage::Preparing { .. } => GroupState::Pending("its resources are being set aside".into()),
            Stage::Ready => GroupState::Ready,
            Stage::Removing { why, .. } => GroupState::Removed(why.clone()),
        }
    }

    fn is_removed(&self) -> bool {
        matches!(self.stage, Stage::Removing { .. })
    }

    fn nodes(&self) -> Vec<NodeId> {
        match self.stage {
            Stage::Ready => self.places.values().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// What those learn who watch it.
    fn changed(&self) -> FromPlacer {
        let (spec, state, nodes) = (Some(self.spec.clone()), self.state(), self.nodes());
        FromPlacer::GroupChanged { group: self.spec.group, spec, state, nodes }
    }

    fn missing(&self) -> Vec<Wanted> {
        let all = self.spec.bundles.iter().zip(0..).filter(|(_, index)| !self.places.contains_key(index));
        all.map(|(bundle, index)| (index, bundle.clone())).collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct Groups {
    table: BTreeMap<GroupId, Group>,
    /// Those that wait, in order of turn.
    waiting: BTreeMap<u64, GroupId>,
    /// When those that are being prepared fail.
    preparing: BTreeSet<(Time, GroupId)>,
    turns: u64,
    /// Those whose rows may be out of date.
    touched: BTreeSet<GroupId>,
    writes: u64,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn state(&self, group: GroupId) -> Option<(GroupState, Vec<NodeId>)> {
        self.table.get(&group).map(|known| (known.state(), known.nodes()))
    }

    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn deadlines(&self) -> Option<Time> {
        self.preparing.first().map(|(at, _)| *at)
    }

    fn is_one_patient(&self) -> bool {
        let patient = |group: &Group| matches!(group.stage, Stage::Preparing { patient: true, .. });
        self.preparing.iter().any(|(_, group)| self.table.get(group).is_some_and(patient))
    }
}

impl Placer {
    pub(super) fn on_group_wanted(
        &mut self,
        now: Time,
        from: NodeId,
        spec: GroupSpec,
        out: &mut Effects<PlacerEffect>,
    ) {
        let group = spec.group;
        if self.groups.table.contains_key(&group) {
            // The task that makes it runs again, and names it again.
            return self.on_group_watched(from, group, out);
        }
        if let Some(why) = self.refusal(&spec) {
            let state = GroupState::Removed(why);
            let spec = Some(spec);
            return self.send(from, FromPlacer::GroupChanged { group, spec, state, nodes: Vec::new() }, out);
        }
        // Those with names are found from everywhere.
        let watchers = match spec.name {
            Some(_) => self.nodes.iter().map(|known| known.info.node).collect(),
            None => BTreeSet::from([from]),
        };
        self.insert_group(now, spec, from, watchers);
        self.groups.touched.insert(group);
        self.requests.note_change(Change::Members);
    }

    fn refusal(&self, spec: &GroupSpec) -> Option<String> {
        let is_taken = |name: &String| {
            let same = |known: &Group| known.spec.name.as_ref() == Some(name);
            self.groups.table.values().any(|known| same(known) && !known.is_removed())
        };
        match spec.name.as_ref().filter(|name| is_taken(name)) {
            Some(name) => Some(format!("the name {name:?} is taken by another placement group")),
            None if spec.bundles.is_empty() => Some("a placement group has at least one bundle".to_owned()),
            None if spec.bundles.len() > limits::BUNDLES_MAX => {
                Some(format!("a placement group has at most {} bundles", limits::BUNDLES_MAX))
            }
            None if self.groups.table.len() >= limits::GROUPS_MAX => Some(format!(
                "this cluster has {} placement groups, which is the limit\nhint: remove those that are not needed",
                limits::GROUPS_MAX
            )),
            None => None,
        }
    }

    fn insert_group(
        &mut self,
        now: Time,
        spec: GroupSpec,
        creator: NodeId,
        watchers: BTreeSet<NodeId>,
    ) -> &mut Group {
        let groups = &mut self.groups;
        groups.turns += 1;
        let (id, turn) = (spec.group, groups.turns);
        groups.waiting.insert(turn, id);
        let group = Group {
            spec,
            creator,
            watchers,
            places: BTreeMap::new(),
            stage: Stage::Waiting { told: String::new() },
            since: now,
            attempt: 0,
            turn,
            awaited: BTreeMap::new(),
            held_until: Time(0),
            refusals: BTreeMap::new(),
            returning: BTreeMap::new(),
            record: Record::default(),
        };
        groups.table.entry(id).insert_entry(group).into_mut()
    }

    pub(super) fn on_group_watched(&mut self, from: NodeId, group: GroupId, out: &mut Effects<PlacerEffect>) {
        let message = match self.groups.table.get_mut(&group) {
            // Who has been told that it is removed has stopped watching.
            Some(known) if known.is_gone() => removed(group, known.state()),
            Some(known) => {
                known.watchers.insert(from);
                if !known.is_told() {
                    return;
                }
                known.changed()
            }
            None => removed(group, GroupState::Removed("it was removed".into())),
        };
        self.send(from, message, out);
    }

    /// A node that has joined knows the groups that have names: those are found from everywhere.
    pub(super) fn tell_named_groups(&mut self, to: NodeId, out: &mut Effects<PlacerEffect>) {
        let named = |known: &Group| known.spec.name.is_some() && !known.is_removed();
        let groups = self.groups.table.iter().filter(|(_, known)| named(known)).map(|(group, _)| *group);
        for group in groups.collect::<Vec<_>>() {
            self.on_group_watched(to, group, out);
        }
    }

    fn tell_group(&self, group: GroupId, out: &mut Effects<PlacerEffect>) {
        let Some(known) = self.groups.table.get(&group).filter(|known| known.is_told()) else { return };
        for &watcher in &known.watchers {
            self.send(watcher, known.changed(), out);
        }
    }

    /// Looks at all groups that wait, the oldest first.
    pub(super) fn serve_groups(&mut self, now: Time, out: &mut Effects<PlacerEffect>) {
        for group in self.groups.waiting.values().copied().collect::<Vec<_>>() {
            if self.is_held(now, group) {
                continue;
            }
            let known = &self.groups.table[&group];
            let since = known.since;
            let free = |known: &Known| known.free().clone();
            if let Some(plan) = self.plan(known, free) {
                self.prepare(Time(now.0 + PREPARE_MICROSECONDS_MAX), group, plan, false, out);
                continue;
            }
            if now.0 >= since.0 + GROUP_PATIENCE_MICROSECONDS
                && !self.groups.is_one_patient()
                && let Some(plan) = self.plan(known, |known| known.usable().clone())
            {
                self.prepare(Time(now.0 + PATIENT_MICROSECONDS_MAX), group, plan, true, out);
                continue;
            }
            let text = self.waiting_text(known);
            if let Some(known) = self.groups.table.get_mut(&group)
                && let Stage::Waiting { told } = &mut known.stage
                && *told != text
            {
                *told = text;
                self.tell_group(group, out);
            }
        }
    }

    /// Nodes for the bundles that have none, where so much may be taken of each node.
    fn plan(&self, group: &Group, offered: impl Fn(&Known) -> Resources) -> Option<BTreeMap<u32, NodeId>> {
        let bundles = |node| group.places.values().filter(|place| **place == node).count();
        let mut rooms: Vec<Room> = Vec::new();
        let mut missing = group.missing();
        let ruled: Vec<u32> = missing.iter().map(|(index, _)| *index).collect();
        let ruled: Vec<u32> =
            ruled.into_iter().filter(|index| !group.spec.rules(*index).is_empty()).collect();
        for known in self.nodes.iter().filter(|known| !known.is_draining()) {
            let node = known.info.node;
            let mut free = offered(known);
            let suited = ruled.iter().filter(|index| group.spec.suits(**index, &known.info.labels));
            suited.for_each(|index| free.set(&pass_for(*index), Amount::ONE));
            rooms.push(Room { node, free, bundles: bundles(node) });
        }
        let wanted = missing.iter_mut().filter(|(index, _)| ruled.contains(index));
        wanted.for_each(|(index, bundle)| bundle.set(&pass_for(*index), Amount::ONE));
        rooms.sort_by_key(|room| (group.refusals.get(&room.node).copied().unwrap_or(0), room.node));
        packing::plan(&missing, group.spec.strategy, &rooms)
    }

    /// The group goes, everywhere: all are told when its row is gone.
    pub(super) fn remove_group(&mut self, group: GroupId, why: &str) {
        let known = self.groups.table.get_mut(&group).filter(|known| !known.is_removed());
        let Some(known) = known else { return };
        let mut bundles = std::mem::take(&mut known.places);
        known.awaited.clear();
        match &known.stage {
            Stage::Removing { .. } | Stage::Ready => {}
            Stage::Waiting { .. } => drop(self.groups.waiting.remove(&known.turn)),
            Stage::Preparing { plan, fails_at, .. } => {
                self.groups.preparing.remove(&(*fails_at, group));
                bundles.extend(plan);
            }
        }
        known.stage = Stage::Removing { why: why.to_owned(), bundles };
        self.groups.touched.insert(group);
    }

    /// What a node that has left had set aside is lost; what it had made goes, unless it is to stay. One that joins again
    /// has yet to say what it has kept.
    pub(super) fn on_group_node_left(
        &mut self,
        now: Time,
        node: NodeId,
        rejoins: bool,
        out: &mut Effects<PlacerEffect>,
    ) {
        let mut orphaned = Vec::new();
        let mut struck = Vec::new();
        for (&group, known) in &mut self.groups.table {
            known.watchers.remove(&node);
            known.returning.remove(&node);
            match rejoins {
                true => known.awaited.extend(known.places.iter().filter(|(_, place)| **place == node)),
                false => known.awaited.retain(|_, place| *place != node),
            }
            if known.creator == node && !known.spec.detached && !rejoins {
                orphaned.push(group);
            } else {
                struck.push(group);
            }
        }
        for group in orphaned {
            self.remove_group(group, "the node that made it has left");
        }
        for group in struck {
            self.strike(now, node, "has left", group, out);
            self.forget_if_returned(group);
        }
    }

    /// Whatever a node had of this group is lost, since that has done this.
    fn strike(
        &mut self,
        now: Time,
        node: NodeId,
        deed: &str,
        group: GroupId,
        out: &mut Effects<PlacerEffect>,
    ) {
        let known = self.groups.table.get_mut(&group).expect("the group is known");
        let before = known.places.len();
        known.places.retain(|_, place| *place != node);
        let lost = before - known.places.len();
        self.groups.touched.insert(group);
        let why = format!("node {node} {deed}, with {lost} of its bundles");
        match &known.stage {
            Stage::Preparing { plan, .. } if lost > 0 || plan.values().any(|place| *place == node) => {
                self.give_up(now, group, why, out);
            }
            Stage::Ready if lost > 0 => {
                (known.stage, known.since) = (Stage::Waiting { told: why }, now);
                self.groups.waiting.insert(known.turn, group);
                self.tell_group(group, out);
            }
            _ => {}
        }
    }

    /// The bundles that something in this place of a group may use, by node; or why it may use none.
    pub(super) fn group_parts(&self, place: GroupPlace) -> Result<BTreeMap<NodeId, Vec<Resources>>, String> {
        let GroupPlace { group, bundle } = place;
        let known = self.groups.table.get(&group).filter(|known| !known.is_removed());
        let Some(known) = known else { return Err(format!("placement group {group} was removed")) };
        if let GroupState::Pending(why) = known.state() {
            return Err(format!("placement group {group} is not ready: {why}"));
        }
        let mut parts: BTreeMap<NodeId, Vec<Resources>> = BTreeMap::new();
        for (&index, &node) in
            known.places.iter().filter(|(index, _)| bundle.is_none_or(|one| one == **index))
        {
            parts.entry(node).or_default().push(known.spec.bundles[index as usize].clone());
        }
        Ok(parts)
    }

    /// Why no bundle of a ready group can take something.
    pub(super) fn group_place_text(&self, place: GroupPlace, needs: &Resources, which: &str) -> String {
        let GroupPlace { group, bundle } = place;
        let count = self.groups.table.get(&group).map_or(0, |known| known.spec.bundles.len());
        let on = if which.is_empty() { String::new() } else { format!(" on a node{which}") };
        match bundle {
            Some(bundle) if bundle as usize >= count => {
                format!("placement group {group} has {count} bundles, and none is number {bundle}")
            }
            Some(bundle) => format!("bundle {bundle} of placement group {group} has not {needs} in all{on}"),
            None => format!("no bundle of placement group {group} has {needs} in all{on}"),
        }
    }

    /// What a group waits for.
    fn waiting_text(&self, group: &Group) -> String {
        let totals: Vec<&Resources> = self.nodes.iter().map(|known| &known.info.resources).collect();
        let missing = group.missing();
        let labels_text = |index: u32| {
            let suited = self.nodes.iter().any(|known| group.spec.suits(index, &known.info.labels));
            (!suited).then(|| format!("the cluster has no node with {}", rules_text(group.spec.rules(index))))
        };
        let texts = missing.iter().filter_map(|(index, bundle)| {
            let text = infeasible_text(bundle, &totals, "").or_else(|| labels_text(*index));
            text.map(|text| format!("bundle {index}: {text}"))
        });
        if let Some(text) = texts.into_iter().next() {
            return text;
        }
        if self.plan(group, |known| known.info.resources.clone()).is_some() {
            return "its resources are in use".to_owned();
        }
        let (count, nodes) = (group.spec.bundles.len(), totals.len());
        match group.spec.strategy {
            GroupStrategy::StrictSpread => {
                let takes_any = |known: &&Known| {
                    (0..).zip(&group.spec.bundles).any(|(index, bundle)| {
                        known.info.resources.covers(bundle) && group.spec.suits(index, &known.info.labels)
                    })
                };
                let unfit = match nodes - self.nodes.iter().filter(takes_any).count() {
                    0 => String::new(),
                    unfit => format!(", {unfit} of which have not what any bundle needs"),
                };
                format!("its {count} bundles want {count} different nodes, of {nodes} that there are{unfit}")
            }
            GroupStrategy::StrictPack => "its bundles do not fit on one node together".to_owned(),
            _ => format!("its bundles do not fit on the {nodes} nodes together"),
        }
    }

    pub(super) fn check_groups(&self) {
        let mut patient_groups = 0;
        for (&group, known) in &self.groups.table {
            let (placed, bundles) = (known.places.len(), known.spec.bundles.len());
            let uncertain = self.nodes.uncertain_bundles(group);
            assert_eq!(
                self.groups.waiting.contains_key(&known.turn),
                matches!(known.stage, Stage::Waiting { .. })
            );
            match &known.stage {
                Stage::Waiting { .. } => {
                    assert!(placed < bundles && uncertain == 0, "groups invariants 1 and 2: {group}");
                }
                Stage::Preparing { plan, unanswered, fails_at, patient } => {
                    assert_eq!(placed + plan.len(), bundles, "groups invariant 2: {group}");
                    assert_eq!(uncertain, plan.len(), "groups invariant 2: {group}");
                    assert!(plan.values().all(|node| self.nodes.knows(*node)), "groups invariant 2: {group}");
                    assert!(
                        !unanswered.is_empty() || !known.record.is_current(),
                        "groups invariant 4: {group}"
                    );
                    assert!(self.groups.preparing.contains(&(*fails_at, group)));
                    patient_groups += usize::from(*patient);
                }
                Stage::Ready => assert!(placed == bundles && uncertain == 0, "groups invariant 1: {group}"),
                Stage::Removing { .. } if !known.is_gone() => assert_eq!(placed, 0),
                Stage::Removing { .. } => {
                    assert!(placed == 0 && uncertain == 0 && !known.returning.is_empty());
                }
            }
            assert!(known.returning.keys().chain(&known.watchers).all(|node| self.nodes.knows(*node)));
            let distinct: BTreeSet<NodeId> = known.places.values().copied().collect();
            match known.spec.strategy {
                GroupStrategy::StrictSpread => assert_eq!(distinct.len(), placed, "{group} is not spread"),
                GroupStrategy::StrictPack => assert!(distinct.len() <= 1, "{group} is not packed"),
                GroupStrategy::Pack | GroupStrategy::Spread => {}
            }
        }
        assert!(patient_groups <= 1, "groups invariant 3");
    }
}

/// What those learn who ask about a group that is gone.
fn removed(group: GroupId, state: GroupState) -> FromPlacer {
    FromPlacer::GroupChanged { group, spec: None, state, nodes: Vec::new() }
}

/// A resource that those nodes have, as far as packing goes, whose labels suit a bundle.
fn pass_for(bundle: u32) -> String {
    format!("labels of bundle {bundle}")
}
