//! Demands that wait for a place, and who is next: whoever has waited for longest.
//!
//! Invariants:
//! 1. Every demand on the table waits for a place for at least one task, has a turn, and is of a known node.
//! 2. No node has more than `DEMANDS_MAX` of them.

use super::choice::NoPlace;
use super::{Placer, PlacerEffect};
use crate::{Effects, Time};
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{Demand, FromPlacer};
use aktis_protocol::{GroupPlace, NodeId, Resources, Strategy, limits};
use std::collections::{BTreeMap, BTreeSet};

/// A node may be given this much work beyond what runs there: enough until its next report. A demand that has waited
/// may be bound so much further ahead.
pub const HORIZON_MICROSECONDS: u64 = 2 * limits::NODE_REPORT_MICROSECONDS;
/// How long a place that was given may be used.
pub const CREDIT_MICROSECONDS: u64 = 500_000;
/// How often, at most, all who wait are looked at again.
pub const SWEEP_MICROSECONDS: u64 = 1_000;

/// Who asked, and by which name.
pub(super) type RequestKey = (NodeId, RequestId);

#[derive(Debug)]
struct Request {
    demand: Demand,
    since: Time,
    turn: u64,
    /// What its node was told about why it waits, if that is not just for room.
    told: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    table: BTreeMap<RequestKey, Request>,
    /// In order of turn.
    turns: BTreeMap<u64, RequestKey>,
    turns_given: u64,
    /// How many wait just for room.
    roomless: usize,
    /// Whether something has happened since the last sweep that may help somebody.
    changed: bool,
    swept_at: Option<Time>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Something has happened that may help somebody.
    pub(super) fn note_change(&mut self) {
        self.changed = true;
    }

    pub(super) fn is_sweep_due(&self, now: Time, others_wait: bool) -> bool {
        self.next_wakeup(others_wait).is_some_and(|due| due <= now)
    }

    /// When to look again. Those who wait for room may be bound further ahead as time passes.
    pub(super) fn next_wakeup(&self, others_wait: bool) -> Option<Time> {
        let swept_at = self.swept_at.unwrap_or_default();
        let after = |microseconds| Some(Time(swept_at.0 + microseconds));
        match (self.changed, self.roomless > 0 || others_wait) {
            (true, _) if self.swept_at.is_none() => Some(Time(0)),
            (true, _) => after(SWEEP_MICROSECONDS),
            (false, true) => after(limits::NODE_REPORT_MICROSECONDS),
            (false, false) => None,
        }
    }

    pub(super) fn remove(&mut self, key: RequestKey) {
        let Some(request) = self.table.remove(&key) else { return };
        self.turns.remove(&request.turn);
        self.roomless -= usize::from(request.told.is_none());
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        let gone: Vec<RequestKey> = self.of_node(node).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    fn of_node(&self, node: NodeId) -> impl Iterator<Item = RequestKey> {
        self.table.range((node, 0)..=(node, RequestId::MAX)).map(|(key, _)| *key)
    }

    fn insert(&mut self, now: Time, key: RequestKey, demand: Demand) {
        if let Some(request) = self.table.get_mut(&key) {
            request.demand = demand;
            return;
        }
        self.turns_given += 1;
        self.turns.insert(self.turns_given, key);
        self.table.insert(key, Request { demand, since: now, turn: self.turns_given, told: None });
        self.roomless += 1;
    }

    /// Notes why it waits; true if that is news for its node.
    fn note_reason(&mut self, key: RequestKey, reason: Option<&str>) -> bool {
        let Some(request) = self.table.get_mut(&key).filter(|request| request.told.as_deref() != reason)
        else {
            return false;
        };
        self.roomless -= usize::from(request.told.is_none());
        request.told = reason.map(str::to_owned);
        self.roomless += usize::from(request.told.is_none());
        reason.is_some()
    }

    pub(super) fn check(&self, is_known: impl Fn(NodeId) -> bool) {
        assert_eq!(self.table.len(), self.turns.len(), "requests invariant 1");
        let mut by_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (key, request) in &self.table {
            assert!(request.demand.count > 0, "requests invariant 1: {key:?} is for nothing");
            assert_eq!(self.turns.get(&request.turn), Some(key), "requests invariant 1");
            assert!(is_known(key.0), "requests invariant 1: {key:?}");
            *by_node.entry(key.0).or_default() += 1;
        }
        assert!(by_node.values().all(|count| *count <= limits::DEMANDS_MAX), "requests invariant 2");
        let roomless = self.table.values().filter(|request| request.told.is_none()).count();
        assert_eq!(roomless, self.roomless);
    }
}

impl Placer {
    pub(super) fn on_place_wanted(
        &mut self,
        now: Time,
        from: NodeId,
        request: RequestId,
        mut demand: Demand,
        out: &mut Effects<PlacerEffect>,
    ) {
        let key = (from, request);
        if demand.count == 0 {
            return self.requests.remove(key);
        }
        let is_new = !self.requests.table.contains_key(&key);
        if is_new && self.requests.of_node(from).count() >= limits::DEMANDS_MAX {
            let reason =
                format!("{} demands of this node wait already, which is the limit", limits::DEMANDS_MAX);
            return self.send(from, FromPlacer::Refused { request, reason }, out);
        }
        demand.count = demand.count.min(limits::DEMAND_TASKS_MAX);
        if demand.inputs.len() > limits::DEMAND_INPUTS_MAX {
            demand.inputs.sort_by_key(|input| std::cmp::Reverse(input.bytes));
            demand.inputs.truncate(limits::DEMAND_INPUTS_MAX);
        }
        let others_wait = self.requests.roomless > 0;
        self.requests.insert(now, key, demand);
        match others_wait {
            // They are looked at first.
            true => self.requests.note_change(),
            false => drop(self.try_place(now, key, out)),
        }
    }

    /// Looks at all who wait, the oldest first.
    pub(super) fn sweep(&mut self, now: Time, out: &mut Effects<PlacerEffect>) {
        (self.requests.changed, self.requests.swept_at) = (false, Some(now));
        // What is like one that found no room, and younger, finds none either.
        let mut full: BTreeSet<(Resources, Option<GroupPlace>, Strategy)> = BTreeSet::new();
        let keys: Vec<RequestKey> = self.requests.turns.values().copied().collect();
        for key in keys {
            let Demand { needs, group, strategy, inputs, .. } = &self.requests.table[&key].demand;
            let alike = inputs.is_empty().then(|| (needs.clone(), *group, strategy.clone()));
            if alike.as_ref().is_some_and(|alike| full.contains(alike)) {
                continue;
            }
            if let Err(NoPlace::NoRoom) = self.try_place(now, key, out) {
                full.extend(alike);
            }
        }
    }

    /// Places what can be placed now of a demand, which goes when all of it has a place.
    fn try_place(
        &mut self,
        now: Time,
        key: RequestKey,
        out: &mut Effects<PlacerEffect>,
    ) -> Result<(), NoPlace> {
        let (from, request) = key;
        let waiting = &self.requests.table[&key];
        let mut demand = waiting.demand.clone();
        let waited = now.0.saturating_sub(waiting.since.0);
        let chosen = self.choose(now, key, &demand, waited);
        match &chosen {
            Ok(places) => {
                for (&node, &count) in places {
                    demand.count -= count;
                    let epoch = self.nodes.get(node).expect("the chosen are known").info.epoch;
                    let lives_microseconds = CREDIT_MICROSECONDS;
                    self.send(
                        from,
                        FromPlacer::Placed { request, node, epoch, count, lives_microseconds },
                        out,
                    );
                }
                self.requests.remove(key);
                if demand.count > 0 {
                    // It has had its turn; the rest of it begins to wait now.
                    self.requests.insert(now, key, demand);
                }
            }
            Err(NoPlace::NoRoom) => {
                self.requests.note_reason(key, None);
            }
            Err(NoPlace::Infeasible(reason)) => {
                if self.requests.note_reason(key, Some(reason)) {
                    self.send(from, FromPlacer::Waiting { request, reason: reason.clone() }, out);
                }
            }
        }
        // Part of it without a place means that there is no more room for its like.
        match self.requests.table.contains_key(&key) && chosen.is_ok() {
            true => Err(NoPlace::NoRoom),
            false => chosen.map(drop),
        }
    }
}
