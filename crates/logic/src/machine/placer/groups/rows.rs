//! What is written down of groups, what waits until it is on disk, and how they are taken up again from there.
//!
//! A row says which group there is, and every node that may have a bundle of it. It is written when the group is asked for,
//! when nodes are asked to set bundles aside, and when it loses some; a group that goes has no row any more. So a placer that
//! begins anew knows all groups, and of whom to wait to hear what they have kept; what nodes have of others is returned.

use super::super::requests::Change;
use super::super::{Placer, PlacerEffect};
use super::{Group, KEPT_MICROSECONDS_MAX, Stage, removed};
use crate::{Effects, Time};
use aktis_protocol::{GroupId, GroupRow, NodeId};
use std::collections::BTreeSet;

/// How far the row of a group is.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The nodes in the row as it was written last; none if there is no row.
    nodes: Option<Vec<Option<NodeId>>>,
    /// The last write.
    wanted: u64,
    /// The last that is on disk.
    done: u64,
    /// Whether there is a row on disk.
    is_kept: bool,
}

impl Record {
    /// Whether what was written last is on disk.
    pub(super) fn is_current(&self) -> bool {
        self.done == self.wanted
    }
}

impl Group {
    /// Whether those who watch it are told how far it is.
    pub(super) fn is_told(&self) -> bool {
        self.record.is_kept && !self.is_removed()
    }

    /// Whether it is removed, and has no row on disk.
    pub(super) fn is_gone(&self) -> bool {
        self.is_removed() && self.record.nodes.is_none() && self.record.is_current()
    }

    /// The nodes for its row; none if it is to have no row.
    fn recorded(&self) -> Option<Vec<Option<NodeId>>> {
        let planned = match &self.stage {
            Stage::Removing { .. } => return None,
            Stage::Preparing { plan, .. } => Some(plan),
            Stage::Waiting { .. } | Stage::Ready => None,
        };
        let node = |bundle: u32| {
            let place = self.places.get(&bundle).or_else(|| self.awaited.get(&bundle));
            place.or_else(|| planned?.get(&bundle)).copied()
        };
        Some((0..self.spec.bundles.len() as u32).map(node).collect())
    }
}

impl Placer {
    /// Has written down what has changed.
    pub(in super::super) fn write_groups(&mut self, out: &mut Effects<PlacerEffect>) {
        for group in std::mem::take(&mut self.groups.touched) {
            let Some(known) = self.groups.table.get_mut(&group) else { continue };
            let nodes = known.recorded();
            if nodes == known.record.nodes {
                continue;
            }
            self.groups.writes += 1;
            let write = self.groups.writes;
            (known.record.nodes, known.record.wanted) = (nodes.clone(), write);
            let (spec, creator) = (&known.spec, known.creator);
            let row = nodes.map(|nodes| GroupRow { spec: spec.clone(), creator, nodes });
            out.push(PlacerEffect::WriteGroup { group, row, write });
        }
    }

    /// The row of a group is on disk, or cannot be.
    pub(in super::super) fn on_group_written(
        &mut self,
        now: Time,
        group: GroupId,
        write: u64,
        outcome: Result<(), String>,
        out: &mut Effects<PlacerEffect>,
    ) {
        let Some(known) = self.groups.table.get_mut(&group) else { return };
        if let Err(why) = outcome {
            // The row before it, if there is one, goes with the group.
            return self.remove_group(group, &format!("the control process cannot keep it: {why}"));
        }
        known.record.done = write;
        if known.is_removed() {
            return self.on_removal_written(group, out);
        }
        let is_news = !std::mem::replace(&mut known.record.is_kept, true);
        // What is being set aside is told of when that is over.
        let is_looked_at = matches!(&known.stage, Stage::Waiting { told } if !told.is_empty());
        if is_news && is_looked_at {
            self.tell_group(group, out);
        }
        self.commit_if_prepared(now, group, out);
    }

    /// If there is no row of the group any more, all are told that it is gone.
    fn on_removal_written(&mut self, group: GroupId, out: &mut Effects<PlacerEffect>) {
        let Some(known) = self.groups.table.get_mut(&group).filter(|known| known.is_gone()) else {
            return;
        };
        let (watchers, state) = (std::mem::take(&mut known.watchers), known.state());
        let Stage::Removing { bundles, .. } = &mut known.stage else { return };
        let bundles = std::mem::take(bundles);
        for watcher in watchers {
            self.send(watcher, removed(group, state.clone()), out);
        }
        self.ask_back(group, &bundles, out);
        self.forget_if_returned(group);
    }

    /// A group from an earlier life of the control process waits for what its nodes have kept, if those may join again.
    pub(in super::super) fn on_group_restored(&mut self, now: Time, row: GroupRow) {
        let GroupRow { spec, creator, nodes } = row;
        let group = spec.group;
        let comes_back = |node: &NodeId| self.awaited.contains(node);
        let awaited = (0..).zip(&nodes).filter_map(|(bundle, node)| Some((bundle, (*node)?)));
        let awaited = awaited.filter(|(_, node)| comes_back(node)).collect();
        let is_orphan = !spec.detached && !comes_back(&creator);
        let known = self.insert_group(now, spec, creator, BTreeSet::new());
        known.stage = Stage::Waiting { told: "its nodes have yet to say what they have kept of it".into() };
        (known.awaited, known.record.nodes, known.record.is_kept) = (awaited, Some(nodes), true);
        self.groups.touched.insert(group);
        if is_orphan {
            self.remove_group(group, "the node that made it has left");
        }
        self.requests.note_change(Change::Members);
    }

    /// A node has joined: it says soon which bundles it has kept.
    pub(in super::super) fn await_bundles(&mut self, now: Time, node: NodeId) {
        let awaits = |known: &&mut Group| known.awaited.values().any(|place| *place == node);
        for known in self.groups.table.values_mut().filter(awaits) {
            known.held_until = Time(now.0 + KEPT_MICROSECONDS_MAX);
        }
    }

    /// Whether nodes may still say that they have bundles of this group. Those that had the time have none.
    pub(super) fn is_held(&mut self, now: Time, group: GroupId) -> bool {
        let known = self.groups.table.get_mut(&group).expect("the group is known");
        let held = now < known.held_until;
        let before = known.awaited.len();
        known.awaited.retain(|_, node| held || self.awaited.contains(node));
        if known.awaited.len() < before {
            self.groups.touched.insert(group);
        }
        !known.awaited.is_empty()
    }
}
