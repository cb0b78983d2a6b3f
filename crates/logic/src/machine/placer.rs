//! The placer: on which node of the cluster tasks, actors and placement groups get their places.
//!
//! Nodes decide for themselves first, and ask for what they cannot run, or what others would run sooner. What they get
//! are credits: so many tasks may go to that node, for a short while. Nothing is bound further ahead than the placer
//! can see, so that old news corrects itself. Its parts, each in a file of its own:
//!
//! - `nodes`: what each node has reported, and what was assumed of it since;
//! - `requests`: demands that wait, and who is next;
//! - `choice`: which nodes may take a demand, and which of them is best;
//! - `groups`: placement groups, from the wish to the return of the last bundle, and what is written down of them;
//! - `packing`: which bundles go to which nodes;
//! - `explain`: why something has no place, in words.
//!
//! What the caller guarantees:
//! 1. `NodeJoined` and `NodeLeft` are what `membership` says, and come in its order.
//! 2. Messages between one node and the placer come in the order in which they were sent, in both directions.
//!
//! Invariants:
//! 1. A node that has left, or that was not heard of, is sent nothing and gets nothing.
//! 2. What a node of an earlier epoch says changes nothing.
//! 3. A demand waits only while each node that could take it has more ahead of it than may be bound, and what may be
//!    bound grows while it waits.

mod choice;
mod explain;
mod groups;
mod nodes;
mod packing;
mod requests;
#[cfg(test)]
mod tests;

use crate::estimate::Estimates;
use crate::planted::{PlacerBug, Planted};
use crate::{Effects, Machine, Time};
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{FromPlacer, NodeInfo, ToPlacer};
use aktis_protocol::{Epoch, GroupId, GroupRow, GroupState, NodeId, Resources, limits};
use requests::Change;
use std::collections::BTreeSet;

pub use groups::{GROUP_PATIENCE_MICROSECONDS, PATIENT_MICROSECONDS_MAX, PREPARE_MICROSECONDS_MAX};
pub use nodes::{BANDWIDTH_DEFAULT, RUN_MICROSECONDS_DEFAULT, SETTLE_MICROSECONDS};
pub use requests::{CREDIT_MICROSECONDS, HORIZON_MICROSECONDS, SWEEP_MICROSECONDS};

/// What the placer is told.
#[derive(Clone, Debug)]
pub enum PlacerInput {
    /// A node has joined. If it was there already, that membership has ended.
    NodeJoined {
        /// The node.
        info: NodeInfo,
    },
    /// A node was a member in an earlier life of the control process. It joins again, or is said to have left.
    NodeAwaited {
        /// The node.
        node: NodeId,
    },
    /// A node has left, or its lease has lapsed.
    NodeLeft {
        /// The node.
        node: NodeId,
    },
    /// A node sent a message.
    Received {
        /// Who.
        from: NodeId,
        /// The epoch in which it was sent.
        epoch: Epoch,
        /// What.
        message: ToPlacer,
    },
    /// A group was written down in an earlier life of the control process. Comes after all `NodeAwaited`.
    GroupRestored {
        /// The group.
        row: GroupRow,
    },
    /// A [`PlacerEffect::WriteGroup`] is on disk, or cannot be.
    GroupWritten {
        /// The group.
        group: GroupId,
        /// Which of them.
        write: u64,
        /// Why not, if not.
        outcome: Result<(), String>,
    },
    /// Time has passed.
    Ticked,
}

/// What the placer orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacerEffect {
    /// Send a message to a node.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: FromPlacer,
    },
    /// Write down how a group is, and say when it is on disk. Those of one group are done in order.
    WriteGroup {
        /// The group.
        group: GroupId,
        /// Its row; if none, it has none any more.
        row: Option<GroupRow>,
        /// Higher than any before.
        write: u64,
    },
}

/// The machine.
#[derive(Debug, Default)]
pub struct Placer {
    nodes: nodes::Nodes,
    estimates: Estimates,
    requests: requests::Requests,
    groups: groups::Groups,
    /// Nodes that may join again.
    awaited: BTreeSet<NodeId>,
    /// The bug that a test has planted, if any.
    pub planted: Planted<PlacerBug>,
}

impl Placer {
    /// A placer that knows of no node.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is known about the run times of functions.
    pub fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    /// All nodes, and what is free there as far as that is known.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeInfo, &Resources)> {
        self.nodes.iter().map(|known| (&known.info, known.free()))
    }

    /// Why a demand waits, in words; `None` if there is no such demand.
    pub fn explain_demand(&self, from: NodeId, request: RequestId) -> Option<String> {
        self.requests.text((from, request))
    }

    /// How far a group is, and the nodes of its bundles if it is ready; `None` if there is no such group.
    pub fn group(&self, group: GroupId) -> Option<(GroupState, Vec<NodeId>)> {
        self.groups.state(group)
    }

    /// How many demands wait for a place.
    pub fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// How many groups there are, with those of which something has not been returned yet.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    fn on_node_joined(&mut self, now: Time, info: NodeInfo, out: &mut Effects<PlacerEffect>) {
        let node = info.node;
        self.awaited.remove(&node);
        if self.nodes.knows(node) {
            self.forget_node(now, node, true, out);
        }
        self.nodes.join(info);
        self.await_bundles(now, node);
        self.tell_named_groups(node, out);
        self.requests.note_change(Change::Members);
    }

    fn forget_node(&mut self, now: Time, node: NodeId, rejoins: bool, out: &mut Effects<PlacerEffect>) {
        self.nodes.leave(node);
        self.awaited.remove(&node);
        self.requests.forget_node(node);
        self.on_group_node_left(now, node, rejoins, out);
        self.requests.note_change(Change::Members);
    }

    fn on_received(
        &mut self,
        now: Time,
        from: NodeId,
        epoch: Epoch,
        message: ToPlacer,
        out: &mut Effects<PlacerEffect>,
    ) {
        let takes_all = self.planted.has(PlacerBug::StaleEpoch);
        if self.nodes.get(from).is_none_or(|known| known.info.epoch != epoch && !takes_all) {
            return;
        }
        match message {
            ToPlacer::Reported { report } => {
                let run_times = report.run_times.iter().take(limits::REPORT_FUNCTIONS_MAX);
                run_times.for_each(|run_times| self.estimates.on_run(run_times));
                self.nodes.on_reported(now, from, report);
                self.requests.note_change(Change::Load);
            }
            ToPlacer::PlaceWanted { request, demand } => {
                self.on_place_wanted(now, from, request, demand, out);
            }
            ToPlacer::PlaceWithdrawn { request } => self.requests.remove((from, request)),
            ToPlacer::PlaceUnused { request, node, count } => {
                self.nodes.on_unused((from, request), node, count);
                self.requests.note_change(Change::Load);
            }
            ToPlacer::GroupWanted { spec } => self.on_group_wanted(now, from, spec, out),
            ToPlacer::GroupWatched { group } => self.on_group_watched(from, group, out),
            ToPlacer::GroupKept { group, bundles } => self.on_group_kept(now, from, group, bundles, out),
            ToPlacer::GroupRemoved { group } => {
                self.remove_group(group, "it was removed");
                // Who removes it is told that it is gone, also if another was first.
                self.on_group_watched(from, group, out);
            }
            ToPlacer::Reserved { group, attempt, outcome } => {
                self.on_reserved(now, from, group, attempt, outcome, out);
            }
            ToPlacer::Returned { .. } if self.planted.has(PlacerBug::LostReturn) => {}
            ToPlacer::Returned { group } => self.on_returned(from, group),
        }
    }

    fn send(&self, to: NodeId, message: FromPlacer, out: &mut Effects<PlacerEffect>) {
        debug_assert!(self.nodes.knows(to), "placer invariant 1: {to} is sent {message:?}");
        out.push(PlacerEffect::Send { to, message });
    }
}

impl Machine for Placer {
    type Input = PlacerInput;
    type Effect = PlacerEffect;

    fn step(&mut self, now: Time, input: PlacerInput, out: &mut Effects<PlacerEffect>) {
        match input {
            PlacerInput::NodeJoined { info } => self.on_node_joined(now, info, out),
            PlacerInput::NodeAwaited { node } => drop(self.awaited.insert(node)),
            PlacerInput::NodeLeft { node } => self.forget_node(now, node, false, out),
            PlacerInput::Received { from, epoch, message } => {
                self.on_received(now, from, epoch, message, out);
            }
            PlacerInput::GroupRestored { row } => self.on_group_restored(now, row),
            PlacerInput::GroupWritten { group, write, outcome } => {
                self.on_group_written(now, group, write, outcome, out);
            }
            PlacerInput::Ticked => {}
        }
        self.on_groups_due(now, out);
        if self.requests.is_sweep_due(now, self.groups.are_waiting(), self.nodes.len()) {
            self.serve_groups(now, out);
            self.sweep(now, out);
        }
        self.write_groups(out);
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.requests
            .next_wakeup(self.groups.are_waiting(), self.nodes.len())
            .into_iter()
            .chain(self.groups.deadlines())
            .min()
    }

    fn check(&self) {
        self.nodes.check();
        self.estimates.check();
        self.requests.check(|node| self.nodes.knows(node));
        self.check_groups();
    }
}
