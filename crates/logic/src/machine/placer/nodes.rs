//! What each node has reported, and what was assumed of it since.
//!
//! A report is old when it comes. What was placed on its node in the meantime is not in it, so it stays assumed until
//! a report comes that is newer by the time such a task needs to get there, or until the place can be used no longer.
//!
//! Invariant: what counts as free and as queued is what was reported last and what is assumed, and nothing else.

use super::requests::RequestKey;
use crate::Time;
use crate::estimate::{Estimates, Expectation, Sketch};
use crate::machine::node::PATIENCE_MICROSECONDS;
use aktis_protocol::placement::{Demand, NodeInfo, NodeReport, QueueRow};
use aktis_protocol::{FunctionId, GroupId, GroupPlace, NodeId, Resources, Strategy, limits};
use std::collections::{BTreeMap, BTreeSet};

/// How long a task is on its way, from its placement until a report of the node where it went may tell of it.
pub const SETTLE_MICROSECONDS: u64 = 20_000;
/// How fast objects move between nodes that have not moved any, in bytes per second.
pub const BANDWIDTH_DEFAULT: u64 = 1_000_000_000;
/// How long a task runs, while nothing at all is known about run times.
pub const RUN_MICROSECONDS_DEFAULT: u64 = 10_000;
const HOUR_MICROSECONDS: u64 = 3_600_000_000;
/// What it takes two nodes to send a task and its answer, while they could do something else.
const SENDING_MICROSECONDS: u64 = 10;
/// What tasks take on average at most that typically take less than that. Now and then one is kept from running for a
/// while, which counts; but if a few of them do run for long, others may take them.
const SHORT_MEAN_MICROSECONDS: u64 = 3 * SENDING_MICROSECONDS;
/// Assumptions about one node; with so many it gets nothing more until it reports.
const ASSUMPTIONS_MAX: usize = 4096;

/// For whom something is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Tasks of a demand.
    Demand(RequestKey),
    /// Bundles of a group.
    Group(GroupId),
}

/// Something that the node does not tell of yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Assumed {
    owner: Owner,
    /// Since when; nothing while a bundle is not set aside for certain.
    at: Option<Time>,
    /// How long after that it is over, if nothing is heard of it.
    lasts: u64,
    needs: Resources,
    group: Option<GroupPlace>,
    function: FunctionId,
    priority: i32,
    count: u32,
}

/// How long a demand would wait on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// How many could run at once if nothing else did.
    pub(super) slots: u64,
    /// How many could start now.
    pub(super) free: u64,
    /// How long the next one would wait.
    pub(super) wait: Wait,
    /// How many would get the slots that are free next, before what waits there and is less urgent: it must be there by
    /// then.
    pub(super) overtaking: u64,
    /// The tasks are here, and take less to run than to send: they do not go elsewhere because of each other, however
    /// many there are. They would keep two nodes and the link busy for longer than they would keep this node busy.
    pub(super) keeps: bool,
}

/// Time that others take first, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wait {
    /// On average.
    pub(super) mean: u64,
    /// What may be relied on.
    pub(super) cautious: u64,
}

impl Wait {
    /// So many tasks more, of which some run at once.
    pub(super) fn add(&mut self, run: Expectation, count: u64, slots: u64) {
        let share = |microseconds: u64| microseconds.saturating_mul(count).div_ceil(slots.max(1));
        self.mean = self.mean.saturating_add(share(run.mean_microseconds));
        self.cautious = self.cautious.saturating_add(share(run.cautious_microseconds));
    }
}

/// A node as the placer knows it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) info: NodeInfo,
    report: NodeReport,
    assumed: Vec<Assumed>,
    /// What follows from these two.
    view: View,
    /// Tasks that were placed there; old ones count less and less.
    pub(super) recent: u64,
    /// When it was last chosen because it was its turn.
    pub(super) spread_at: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    free: Resources,
    usable: Resources,
    rows: Vec<QueueRow>,
}

impl View {
    fn assume(&mut self, assumed: &Assumed) {
        let Assumed { owner, needs, group, function, priority, count, .. } = assumed;
        if let Owner::Group(_) = owner {
            self.free.take_up_to(needs, 1);
            return self.usable.take_up_to(needs, 1);
        }
        let running = match group {
            Some(_) => 0,
            None => self.free.times(needs).min(u64::from(*count)),
        };
        self.free.take_up_to(needs, if group.is_none() { running } else { 0 });
        let same = |row: &&mut QueueRow| {
            let like = (row.function, row.group, row.priority);
            like == (*function, *group, *priority) && row.needs == *needs
        };
        let row = match self.rows.iter_mut().find(same) {
            Some(row) => row,
            None => {
                let (needs, group, function, priority) = (needs.clone(), *group, *function, *priority);
                self.rows.push(QueueRow { needs, group, function, priority, queued: 0, running: 0 });
                self.rows.last_mut().expect("it was just put there")
            }
        };
        row.running = row.running.saturating_add(running as u32);
        row.queued = row.queued.saturating_add(count - running as u32);
    }
}

impl Known {
    fn new(info: NodeInfo) -> Self {
        let (available, usable) = (info.resources.clone(), info.resources.clone());
        let report = NodeReport { available, usable, ..NodeReport::default() };
        let mut known =
            Self { info, report, assumed: Vec::new(), view: View::default(), recent: 0, spread_at: 0 };
        known.view = known.viewed();
        known
    }

    fn viewed(&self) -> View {
        let NodeReport { available, usable, queues, .. } = &self.report;
        let mut view = View { free: available.clone(), usable: usable.clone(), rows: queues.clone() };
        self.assumed.iter().for_each(|assumed| view.assume(assumed));
        view
    }

    /// Whether it takes nothing new.
    pub(super) fn is_draining(&self) -> bool {
        self.report.is_draining
    }

    /// What is free now.
    pub(super) fn free(&self) -> &Resources {
        &self.view.free
    }

    /// What tasks could have if none ran.
    pub(super) fn usable(&self) -> &Resources {
        &self.view.usable
    }

    fn assume(&mut self, assumed: Assumed) {
        self.view.assume(&assumed);
        let same = |last: &&mut Assumed| {
            let like = |one: &Assumed| (one.owner, one.at, one.group, one.function, one.priority);
            matches!(last.owner, Owner::Demand(_))
                && like(last) == like(&assumed)
                && last.needs == assumed.needs
        };
        match self.assumed.last_mut().filter(same) {
            Some(last) => {
                last.count += assumed.count;
                last.lasts = last.lasts.max(assumed.lasts);
            }
            None => self.assumed.push(assumed),
        }
    }

    /// Whether more may be assumed of it.
    pub(super) fn takes_more(&self) -> bool {
        self.assumed.len() < ASSUMPTIONS_MAX
    }

    /// How long a demand would wait here, where it may use these `parts` of the group that it names, or what the node
    /// itself has. At home, the demand's own tasks are in the report, and are not ahead of themselves.
    pub(super) fn outlook(
        &self,
        demand: &Demand,
        parts: Option<&[Resources]>,
        estimates: &Estimates,
        home: bool,
    ) -> Outlook {
        let parts = parts.unwrap_or(std::slice::from_ref(&self.view.usable));
        let slots_of =
            |needs: &Resources| parts.iter().map(|part| part.times(needs)).fold(0, u64::saturating_add);
        let slots = slots_of(&demand.needs);
        let group = demand.group.map(|place| place.group);
        let (mut wait, mut ahead, mut behind, mut running, mut ends_per_hour) = (Wait::default(), 0, 0, 0, 0);
        let competing = |row: &&QueueRow| {
            row.group.map(|place| place.group) == group && row.needs.shares_any(&demand.needs)
        };
        let is_short = |function| known_expectation(estimates, function).is_some_and(is_short);
        let stays = home && group.is_none() && demand.strategy != Strategy::Spread;
        let keeps = stays && is_short(demand.function);
        // What a demand is of is known in part; all that is like it at home is its own, unless the placer has sent that home.
        let is_counted = home && demand.strategy != Strategy::Spread;
        let mut own = if is_counted { demand.count } else { 0 };
        for row in self.view.rows.iter().filter(competing) {
            let row_slots = slots_of(&row.needs);
            if row_slots == 0 {
                continue;
            }
            // Nodes run the most urgent of what waits there first.
            let is_behind = row.priority < demand.priority;
            behind += u64::from(if is_behind { row.queued } else { 0 });
            let is_own = row.needs == demand.needs && row.priority == demand.priority;
            let mine = match keeps && is_short(row.function) {
                true => row.queued,
                false if is_own => own.min(row.queued),
                false => 0,
            };
            if is_own {
                own = own.saturating_sub(mine);
            }
            let queued = if is_behind { 0 } else { row.queued - mine };
            let run = expectation(estimates, row.function);
            wait.add(run, u64::from(queued), row_slots);
            ahead += u64::from(queued);
            running += u64::from(row.running);
            let ends = HOUR_MICROSECONDS * u64::from(row.running) / run.mean_microseconds.max(1);
            ends_per_hour = ends.saturating_add(ends_per_hour);
        }
        let free = match group {
            // Who asks has found no room here: what is in no queue, such as an actor, has the bundles.
            Some(_) if home && demand.strategy == Strategy::Default => {
                wait.mean = wait.mean.saturating_add(PATIENCE_MICROSECONDS);
                wait.cautious = wait.cautious.saturating_add(PATIENCE_MICROSECONDS);
                0
            }
            Some(_) => slots.saturating_sub(ahead + running),
            None => self.view.free.times(&demand.needs).min(slots),
        };
        if free == 0 && slots > 0 {
            // Among long tasks, a short one ends soon.
            let next = match HOUR_MICROSECONDS.checked_div(ends_per_hour) {
                Some(next) => next,
                None => expectation(estimates, demand.function).mean_microseconds / slots,
            };
            wait.mean = wait.mean.saturating_add(next);
            wait.cautious = wait.cautious.saturating_add(next);
        }
        let overtaking = if behind > 0 { slots.saturating_sub(ahead) } else { 0 };
        Outlook { slots, free, wait, overtaking, keeps }
    }

    /// How long the inputs of a demand would take to come here, from whichever of their holders is nearest.
    pub(super) fn moving_microseconds(&self, demand: &Demand, nodes: &Nodes) -> u64 {
        let here = self.info.node;
        let away = demand.inputs.iter().filter(|input| !input.holders.contains(&here));
        let time = |input: &aktis_protocol::placement::Input| {
            let holders = input.holders.iter().filter(|holder| nodes.knows(**holder));
            let speed = holders.map(|holder| self.bytes_per_second(*holder)).max();
            speed.map_or(0, |speed| input.bytes.saturating_mul(1_000_000) / speed)
        };
        away.map(time).fold(0, u64::saturating_add)
    }

    fn bytes_per_second(&self, from: NodeId) -> u64 {
        let seen = self.report.links.iter().find(|link| link.from == from);
        seen.map_or(BANDWIDTH_DEFAULT, |link| link.bytes_per_second.max(1))
    }
}

/// How long a task is expected to run; of one that is not known at all, one for each slot is enough.
pub(super) fn expectation(estimates: &Estimates, function: FunctionId) -> Expectation {
    estimates.expectation(function).unwrap_or(Expectation {
        mean_microseconds: RUN_MICROSECONDS_DEFAULT,
        median_microseconds: RUN_MICROSECONDS_DEFAULT,
        cautious_microseconds: super::HORIZON_MICROSECONDS,
    })
}

/// The same, if it is known which function runs, and that has been seen to run.
pub(super) fn known_expectation(estimates: &Estimates, function: FunctionId) -> Option<Expectation> {
    estimates.sketch(function).filter(|_| function != FunctionId::default()).and_then(Sketch::expectation)
}

/// Whether it takes less to run such a task than to send it.
fn is_short(run: Expectation) -> bool {
    run.median_microseconds < SENDING_MICROSECONDS && run.mean_microseconds < SHORT_MEAN_MICROSECONDS
}

/// All nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    table: BTreeMap<NodeId, Known>,
    /// Turns that nodes have got because of `Strategy::Spread`.
    turns: u64,
}

impl Nodes {
    pub(super) fn join(&mut self, info: NodeInfo) {
        self.table.insert(info.node, Known::new(info));
    }

    pub(super) fn leave(&mut self, node: NodeId) {
        self.table.remove(&node);
    }

    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.table.contains_key(&node)
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Known> {
        self.table.get(&node)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whatever could have come by now has come, or will not.
    pub(super) fn expire(&mut self, now: Time) {
        let is_over = |assumed: &Assumed| {
            let expires = assumed.at.map(|at| at.0 + assumed.lasts + SETTLE_MICROSECONDS);
            expires.is_some_and(|at| at <= now.0)
        };
        for known in self.table.values_mut().filter(|known| known.assumed.iter().any(is_over)) {
            known.assumed.retain(|assumed| !is_over(assumed));
            known.view = known.viewed();
        }
    }

    /// Why nothing can go from one node to the other, if so: either may have dialled the other in vain.
    pub(super) fn obstacle(&self, from: NodeId, to: NodeId) -> Option<String> {
        let between = |(dialler, dialled): (NodeId, NodeId)| {
            let rows = &self.table.get(&dialler)?.report.unreachable;
            let row = rows.iter().find(|row| row.node == dialled)?;
            Some(format!("node {dialler} cannot reach node {dialled} {}", row.reason))
        };
        [(from, to), (to, from)].into_iter().find_map(between)
    }

    /// The nodes that others cannot reach, or that cannot reach others.
    pub(super) fn apart(&self) -> BTreeSet<NodeId> {
        let apart = |(node, known): (&NodeId, &Known)| {
            let rows = known.report.unreachable.iter();
            rows.flat_map(|row| [*node, row.node]).collect::<Vec<_>>()
        };
        self.table.iter().flat_map(apart).collect()
    }

    /// All, in order of id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.table.values()
    }

    pub(super) fn on_reported(&mut self, now: Time, node: NodeId, mut report: NodeReport) {
        let Some(known) = self.table.get_mut(&node) else { return };
        report.queues.truncate(limits::REPORT_QUEUES_MAX);
        report.links.truncate(limits::REPORT_LINKS_MAX);
        report.unreachable.truncate(limits::REPORT_UNREACHABLE_MAX);
        report.run_times.clear();
        known.report = report;
        known.assumed.retain(|assumed| assumed.at.is_none_or(|at| now.0 < at.0 + SETTLE_MICROSECONDS));
        known.view = known.viewed();
        known.recent /= 2;
    }

    /// Tasks of a demand have got a place there, and are expected to take so long, if that is known.
    pub(super) fn on_placed(
        &mut self,
        now: Time,
        key: RequestKey,
        node: NodeId,
        demand: &Demand,
        (count, takes): (u32, Option<u64>),
    ) {
        let known = self.table.get_mut(&node).expect("places are on known nodes");
        known.recent = known.recent.saturating_add(u64::from(count));
        let Demand { needs, group, function, priority, .. } = demand;
        // What waits where it is counts among what that node reports, unless the placer has just sent it there.
        let is_reported = node == key.0 && demand.strategy != Strategy::Spread;
        let begins = match (is_reported, group) {
            (true, None) => known.free().times(needs).min(u64::from(count)) as u32,
            _ => count,
        };
        if begins == 0 {
            return;
        }
        let (owner, at, needs) = (Owner::Demand(key), Some(now), needs.clone());
        let (group, function, priority) = (*group, *function, *priority);
        let lasts = takes.unwrap_or(u64::MAX).min(super::CREDIT_MICROSECONDS);
        known.assume(Assumed { owner, at, lasts, needs, group, function, priority, count: begins });
    }

    /// It was that node's turn.
    pub(super) fn take_turn(&mut self, node: NodeId) -> u64 {
        self.turns += 1;
        self.table.get_mut(&node).expect("turns are of known nodes").spread_at = self.turns;
        self.turns
    }

    /// Tasks that had got a place there do not come, or are done.
    pub(super) fn on_unused(&mut self, key: RequestKey, node: NodeId, mut count: u32) {
        let Some(known) = self.table.get_mut(&node) else { return };
        for assumed in known.assumed.iter_mut().rev().filter(|assumed| assumed.owner == Owner::Demand(key)) {
            let less = assumed.count.min(count);
            assumed.count -= less;
            count -= less;
        }
        known.assumed.retain(|assumed| assumed.count > 0);
        known.view = known.viewed();
    }

    /// A bundle is to be set aside there.
    pub(super) fn assume_bundle(&mut self, node: NodeId, group: GroupId, bundle: &Resources) {
        let known = self.table.get_mut(&node).expect("bundles are on known nodes");
        let (owner, needs) = (Owner::Group(group), bundle.clone());
        let (function, lasts) = (FunctionId::default(), super::CREDIT_MICROSECONDS);
        known.assume(Assumed { owner, at: None, lasts, needs, group: None, function, priority: 0, count: 1 });
    }

    /// The bundles of a group are set aside there: the node will tell of it.
    pub(super) fn settle_group(&mut self, now: Time, node: NodeId, group: GroupId) {
        let Some(known) = self.table.get_mut(&node) else { return };
        let bundles = known.assumed.iter_mut().filter(|assumed| assumed.owner == Owner::Group(group));
        bundles.for_each(|bundle| bundle.at = bundle.at.or(Some(now)));
    }

    /// Bundles of a group that are not set aside for certain will not be.
    pub(super) fn forget_bundles(&mut self, node: NodeId, group: GroupId) {
        let Some(known) = self.table.get_mut(&node) else { return };
        known.assumed.retain(|assumed| assumed.owner != Owner::Group(group) || assumed.at.is_some());
        known.view = known.viewed();
    }

    /// For how many bundles it is not certain whether they are set aside.
    pub(super) fn uncertain_bundles(&self, group: GroupId) -> usize {
        let all = self.table.values().flat_map(|known| &known.assumed);
        all.filter(|assumed| assumed.owner == Owner::Group(group) && assumed.at.is_none()).count()
    }

    pub(super) fn check(&self) {
        for (node, known) in &self.table {
            assert_eq!(known.info.node, *node);
            assert_eq!(known.view, known.viewed(), "nodes invariant: {node}");
            assert!(
                known.assumed.len() <= ASSUMPTIONS_MAX + limits::BUNDLES_MAX,
                "{node} is assumed too much of"
            );
            assert!(known.assumed.iter().all(|assumed| assumed.count > 0));
        }
    }
}
