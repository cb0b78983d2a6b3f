//! Demands that wait for a place, and who is next: the most urgent, and of those whoever has waited for longest.
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
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A node may be given this much work beyond what runs there: enough until its next report. A demand that has waited
/// may be bound so much further ahead.
pub const HORIZON_MICROSECONDS: u64 = 2 * limits::NODE_REPORT_MICROSECONDS;
/// How long a place that was given may be used.
pub const CREDIT_MICROSECONDS: u64 = 500_000;
/// How long, at least, between two looks at all who wait.
pub const SWEEP_MICROSECONDS: u64 = 1_000;
/// And so much longer for each node there is, since each is looked at.
const SWEEP_NODE_MICROSECONDS: u64 = 20;

/// What is the same for demands that find room, or none, together.
type Alike = (Resources, Option<GroupPlace>, Strategy);

/// Lower comes first.
type Turn = (Reverse<i32>, u64);

/// Who asked, and by which name.
pub(super) type RequestKey = (NodeId, RequestId);

/// What has happened that may help somebody who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Somebody has more or less to do.
    Load,
    /// Nodes or groups have come or gone.
    Members,
}

/// Why a demand waits that others could take.
const BUSY: &str = "all nodes that could take more have enough to do";

/// What a demand waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// That those who could take it have less to do.
    Room,
    /// That actors or groups go, or that nodes can be reached.
    Ends,
    /// Other nodes or groups.
    Members,
}

#[derive(Debug)]
struct Request {
    demand: Demand,
    since: Time,
    turn: Turn,
    awaited: Awaited,
    /// What its node was told last about why it waits.
    told: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    table: BTreeMap<RequestKey, Request>,
    /// In order of turn.
    turns: BTreeMap<Turn, RequestKey>,
    turns_given: u64,
    /// How many wait just for room, of those that are alike.
    roomless: BTreeMap<Alike, usize>,
    /// How many wait for [`Awaited::Ends`].
    endless: usize,
    /// What has happened since the last sweep, at most.
    change: Option<Change>,
    swept_at: Option<Time>,
    /// When those were looked at.
    ends_swept_at: Time,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Why a demand waits.
    pub(super) fn text(&self, key: RequestKey) -> Option<String> {
        let Request { demand, awaited, told, .. } = self.table.get(&key)?;
        let what = match demand.count {
            1 => format!("1 task waits for {}", demand.needs),
            count => format!("{count} tasks wait for {}", demand.needs),
        };
        let why = match (awaited, told) {
            (Awaited::Ends | Awaited::Members, Some(told)) => told,
            _ => BUSY,
        };
        Some(format!("{what}; {why}"))
    }

    /// Something has happened that may help somebody.
    pub(super) fn note_change(&mut self, change: Change) {
        self.change = self.change.max(Some(change));
    }

    pub(super) fn is_sweep_due(&self, now: Time, groups_wait: bool, nodes: usize) -> bool {
        self.next_wakeup(groups_wait, nodes).is_some_and(|due| due <= now)
    }

    /// When to look again. Those who wait for room may be bound further ahead as time passes.
    pub(super) fn next_wakeup(&self, groups_wait: bool, nodes: usize) -> Option<Time> {
        let Some(swept_at) = self.swept_at else { return self.change.map(|_| Time(0)) };
        let somebody_waits = groups_wait || !self.table.is_empty();
        let soon = swept_at.0 + SWEEP_MICROSECONDS + SWEEP_NODE_MICROSECONDS * nodes as u64;
        match self.change {
            Some(_) if somebody_waits => Some(Time(soon)),
            None if groups_wait || !self.roomless.is_empty() || self.endless > 0 => {
                Some(Time(swept_at.0 + limits::NODE_REPORT_MICROSECONDS))
            }
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, key: RequestKey) {
        let Some(request) = self.table.remove(&key) else { return };
        self.turns.remove(&request.turn);
        self.note_awaited(&alike(&request.demand), request.awaited, -1);
    }

    /// So many more wait for this.
    fn note_awaited(&mut self, alike: &Alike, awaited: Awaited, more: isize) {
        let add = |count: usize| count.checked_add_signed(more).expect("as many cease to wait as have begun");
        match awaited {
            Awaited::Members => {}
            Awaited::Ends => self.endless = add(self.endless),
            Awaited::Room => {
                let count = self.roomless.entry(alike.clone()).or_default();
                *count = add(*count);
                if *count == 0 {
                    self.roomless.remove(alike);
                }
            }
        }
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        let gone: Vec<RequestKey> = self.of_node(node).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    fn of_node(&self, node: NodeId) -> impl Iterator<Item = RequestKey> {
        self.table.range((node, 0)..=(node, RequestId::MAX)).map(|(key, _)| *key)
    }

    fn insert(&mut self, now: Time, key: RequestKey, demand: Demand) {
        let (turn, since, told) = match self.table.remove(&key) {
            Some(before) => {
                self.note_awaited(&alike(&before.demand), before.awaited, -1);
                self.turns.remove(&before.turn);
                ((Reverse(demand.priority), before.turn.1), before.since, before.told)
            }
            None => {
                self.turns_given += 1;
                ((Reverse(demand.priority), self.turns_given), now, None)
            }
        };
        self.turns.insert(turn, key);
        // Until it was looked at, room is all that it waits for.
        self.note_awaited(&alike(&demand), Awaited::Room, 1);
        self.table.insert(key, Request { demand, since, turn, awaited: Awaited::Room, told });
    }

    /// Notes what it waits for, and why; gives the reason if that is news for its node.
    fn note_wait(&mut self, key: RequestKey, no_place: &NoPlace) -> Option<String> {
        let request = self.table.get_mut(&key)?;
        let (awaited, reason) = match no_place {
            NoPlace::NoRoom => (Awaited::Room, None),
            NoPlace::Occupied(reason) | NoPlace::Unreachable(reason) => (Awaited::Ends, Some(reason)),
            NoPlace::TooLarge(reason) | NoPlace::Missing(reason) => (Awaited::Members, Some(reason)),
        };
        let before = std::mem::replace(&mut request.awaited, awaited);
        let news = match reason {
            Some(reason) if request.told.as_ref() == Some(reason) => None,
            Some(reason) => {
                request.told = Some(reason.clone());
                Some(reason.clone())
            }
            // What it was told before is over.
            None => request.told.take().map(|_| BUSY.to_owned()),
        };
        let alike = alike(&request.demand);
        self.note_awaited(&alike, before, -1);
        self.note_awaited(&alike, awaited, 1);
        news
    }

    /// Whom to look at, in order, now that so much has happened.
    fn begin_sweep(&mut self, now: Time) -> Vec<RequestKey> {
        let change = self.change.take();
        self.swept_at = Some(now);
        let ends_due = now.0 >= self.ends_swept_at.0 + limits::NODE_REPORT_MICROSECONDS;
        if ends_due {
            self.ends_swept_at = now;
        }
        let is_due = |key: &&RequestKey| match self.table[key].awaited {
            Awaited::Room => true,
            Awaited::Ends => ends_due || change == Some(Change::Members),
            Awaited::Members => change == Some(Change::Members),
        };
        self.turns.values().filter(is_due).copied().collect()
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
        let mut roomless: BTreeMap<Alike, usize> = BTreeMap::new();
        for request in self.table.values().filter(|request| request.awaited == Awaited::Room) {
            *roomless.entry(alike(&request.demand)).or_default() += 1;
        }
        assert_eq!(roomless, self.roomless, "who waits for room is counted");
        let endless = self.table.values().filter(|request| request.awaited == Awaited::Ends).count();
        assert_eq!(endless, self.endless, "who waits for an end is counted");
    }
}

fn alike(demand: &Demand) -> Alike {
    (demand.needs.clone(), demand.group, demand.strategy.clone())
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
            demand.inputs.sort_by_key(|input| Reverse(input.bytes));
            demand.inputs.truncate(limits::DEMAND_INPUTS_MAX);
        }
        // Who has no like among them may be next at once.
        let others_wait = self.requests.roomless.contains_key(&alike(&demand));
        self.requests.insert(now, key, demand);
        if others_wait {
            // They are looked at first.
            return self.requests.note_change(Change::Load);
        }
        self.nodes.expire(now);
        let _ = self.try_place(now, key, out);
    }

    /// Looks at all who wait, the most urgent and oldest first.
    pub(super) fn sweep(&mut self, now: Time, out: &mut Effects<PlacerEffect>) {
        // What is like one that found no room, and younger, finds none either.
        let mut full: BTreeSet<Alike> = BTreeSet::new();
        self.nodes.expire(now);
        let apart = self.nodes.apart();
        for key in self.requests.begin_sweep(now) {
            let demand = &self.requests.table[&key].demand;
            let alike = demand.inputs.is_empty().then(|| alike(demand));
            if alike.as_ref().is_some_and(|alike| full.contains(alike)) {
                // Whatever it has waited for before, it waits for room now.
                self.note_no_place(key, &NoPlace::NoRoom, out);
                continue;
            }
            if let Err(NoPlace::NoRoom) = self.try_place(now, key, out) {
                // Others may reach nodes that this one cannot.
                full.extend(alike.filter(|_| !apart.contains(&key.0)));
            }
        }
    }

    /// A demand waits; its node is told why, if that is news.
    fn note_no_place(&mut self, key: RequestKey, no_place: &NoPlace, out: &mut Effects<PlacerEffect>) {
        if let Some(reason) = self.requests.note_wait(key, no_place) {
            let in_group = self.requests.table[&key].demand.group.is_some();
            let lasting = matches!(no_place, NoPlace::TooLarge(_)) && !in_group;
            let (from, request) = key;
            self.send(from, FromPlacer::Waiting { request, reason, lasting }, out);
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
                for (&node, &(count, slots)) in places {
                    demand.count -= count;
                    let epoch = self.nodes.get(node).expect("the chosen are known").info.epoch;
                    let lives_microseconds = CREDIT_MICROSECONDS;
                    self.send(
                        from,
                        FromPlacer::Placed { request, node, epoch, count, slots, lives_microseconds },
                        out,
                    );
                }
                self.requests.remove(key);
                if demand.count > 0 {
                    // It has had its turn; the rest of it begins to wait now.
                    self.requests.insert(now, key, demand);
                }
            }
            Err(NoPlace::Missing(reason)) => {
                self.requests.remove(key);
                self.send(from, FromPlacer::Impossible { request, reason: reason.clone() }, out);
            }
            Err(no_place) => self.note_no_place(key, no_place, out),
        }
        // Part of it without a place means that there is no more room for its like.
        match self.requests.table.contains_key(&key) && chosen.is_ok() {
            true => Err(NoPlace::NoRoom),
            false => chosen.map(drop),
        }
    }
}
