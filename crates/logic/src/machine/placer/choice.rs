//! Which nodes may take a demand, and which of them is best: where it is estimated to be done soonest.
//!
//! What it costs to run a task on a node is the time that others take there first, and the time that its inputs take
//! to come there. Among equals the one with the fewest tasks of late is next, then the lower id.

use super::nodes::{Known, Outlook, expectation, known_expectation};
use super::requests::RequestKey;
use super::{HORIZON_MICROSECONDS, Placer};
use crate::Time;
use crate::estimate::Expectation;
use aktis_protocol::placement::Demand;
use aktis_protocol::{NodeId, Resources, Strategy};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What it costs to send a task elsewhere, besides its inputs: about a round trip.
const FORWARD_MICROSECONDS: u64 = 500;

/// Why a demand gets no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// The only node that may take it is none.
    Missing(String),
    /// Nobody is large enough.
    TooLarge(String),
    /// Nobody can take it as long as others keep what they have.
    Occupied(String),
    /// Those who could take it cannot be reached from the node that asks.
    Unreachable(String),
    /// All who could take it have too much to do.
    NoRoom,
}

/// A node that may take tasks of a demand.
#[derive(Clone, Debug)]
struct Candidate {
    node: NodeId,
    outlook: Outlook,
    /// What moving there costs.
    moving: u64,
    preferred: bool,
    recent: u64,
    spread_at: u64,
}

/// Lower is better.
type Rank = (bool, u64, u64, u64, NodeId);

impl Candidate {
    fn rank(&self, spread: bool) -> Rank {
        let cost = self.outlook.wait.mean.saturating_add(self.moving);
        let turn = if spread { self.spread_at } else { 0 };
        (!self.preferred, turn, cost, self.recent, self.node)
    }

    /// One more task goes there, or so many, if they do not wait for each other; gives how many.
    fn take(&mut self, count_max: u32, run: Expectation) -> u32 {
        let outlook = &mut self.outlook;
        let count = if outlook.keeps { count_max } else { 1 };
        self.recent = self.recent.saturating_add(u64::from(count));
        outlook.free = outlook.free.saturating_sub(u64::from(count));
        outlook.overtaking = outlook.overtaking.saturating_sub(u64::from(count));
        if outlook.free == 0 && !outlook.keeps {
            outlook.wait.add(run, 1, outlook.slots);
        }
        count
    }
}

impl Placer {
    /// Finds places for as many tasks of the demand as may be bound now, and books them. Gives for each node how many go
    /// there, and how many it can run at a time.
    pub(super) fn choose(
        &mut self,
        now: Time,
        key: RequestKey,
        demand: &Demand,
        waited_microseconds: u64,
    ) -> Result<BTreeMap<NodeId, (u32, u32)>, NoPlace> {
        let mut candidates = self.candidates(key.0, demand)?;
        let spread = demand.strategy == Strategy::Spread;
        let run = expectation(&self.estimates, demand.function);
        let bound_max = HORIZON_MICROSECONDS.saturating_add(waited_microseconds);
        let ranked = candidates.iter().zip(0..).map(|(one, index)| Reverse((one.rank(spread), index)));
        let mut heap: BinaryHeap<Reverse<(Rank, usize)>> = ranked.collect();
        let mut chosen = BTreeMap::new();
        let mut left = demand.count;
        while left > 0
            && let Some(Reverse((_, index))) = heap.pop()
        {
            let candidate = &mut candidates[index];
            let is_full = candidate.outlook.wait.cautious > bound_max;
            if is_full && candidate.outlook.overtaking == 0 {
                match spread || candidate.preferred {
                    // Others may have room: that they are not the best was known.
                    true => continue,
                    // To wait for the best is better than to go elsewhere.
                    false => break,
                }
            }
            let room = if is_full { candidate.outlook.overtaking } else { u64::from(left) };
            let taken = candidate.take(room.min(u64::from(left)) as u32, run);
            if spread {
                candidate.spread_at = self.nodes.take_turn(candidate.node);
            }
            let slots = candidate.outlook.slots.min(u64::from(u32::MAX)) as u32;
            chosen.entry(candidate.node).or_insert((0, slots)).0 += taken;
            left -= taken;
            heap.push(Reverse((candidate.rank(spread), index)));
        }
        let known = known_expectation(&self.estimates, demand.function);
        for candidate in &candidates {
            if let Some(&(count, _)) = chosen.get(&candidate.node) {
                let wait = candidate.outlook.wait.cautious;
                let takes = known.map(|run| wait.saturating_add(run.cautious_microseconds));
                self.nodes.on_placed(now, key, candidate.node, demand, (count, takes));
            }
        }
        if chosen.is_empty() { Err(NoPlace::NoRoom) } else { Ok(chosen) }
    }

    /// The nodes that could run such a task, or why there are none.
    fn candidates(&self, from: NodeId, demand: &Demand) -> Result<Vec<Candidate>, NoPlace> {
        let parts =
            demand.group.map(|place| self.group_parts(place)).transpose().map_err(NoPlace::TooLarge)?;
        let part = |known: &Known| match &parts {
            None => Some(None),
            Some(parts) => parts.get(&known.info.node).map(|bundles| Some(bundles.as_slice())),
        };
        let eligible = self.nodes.iter().filter(|known| is_eligible(known, &demand.strategy));
        let (eligible, draining): (Vec<&Known>, Vec<&Known>) =
            eligible.partition(|known| !known.is_draining());
        let eligible: Vec<(&Known, Option<&[Resources]>)> =
            eligible.into_iter().filter_map(|known| Some((known, part(known)?))).collect();
        let candidate = |(known, bundles): &(&Known, Option<&[Resources]>)| {
            let node = known.info.node;
            let outlook = known.outlook(demand, *bundles, &self.estimates, node == from);
            let forward = if node == from { 0 } else { FORWARD_MICROSECONDS };
            (outlook.slots > 0).then(|| Candidate {
                node,
                outlook,
                moving: known.moving_microseconds(demand, &self.nodes).saturating_add(forward),
                preferred: is_preferred(known, &demand.strategy),
                recent: known.recent,
                spread_at: known.spread_at,
            })
        };
        let mut candidates: Vec<Candidate> = eligible.iter().filter_map(candidate).collect();
        if candidates.is_empty() {
            let nodes: Vec<&Known> = eligible.iter().map(|(known, _)| *known).collect();
            return Err(match draining.iter().find(|known| known.info.resources.covers(&demand.needs)) {
                Some(known) => {
                    let node = known.info.node;
                    NoPlace::Occupied(format!(
                        "node {node}, which could take it, is drained and takes nothing new"
                    ))
                }
                None => self.no_place(demand, &nodes),
            });
        }
        let obstacle = |one: &Candidate| self.nodes.obstacle(from, one.node).filter(|_| one.node != from);
        if let Some(first) = candidates.first()
            && let Some(reason) = obstacle(first)
            && candidates.iter().all(|one| obstacle(one).is_some())
        {
            let text = format!("node {} could take it, but {reason}", first.node);
            return Err(NoPlace::Unreachable(text));
        }
        candidates.retain(|one| obstacle(one).is_none());
        candidates.retain(|one| self.nodes.get(one.node).is_some_and(Known::takes_more));
        Ok(candidates)
    }
}

fn is_eligible(known: &Known, strategy: &Strategy) -> bool {
    match strategy {
        Strategy::Default | Strategy::Spread | Strategy::Node { soft: true, .. } => true,
        Strategy::Node { node, soft: false } => known.info.node == *node,
        Strategy::Labels { hard, .. } => hard.iter().all(|rule| rule.holds(&known.info.labels)),
    }
}

/// Whether it comes before others as long as it has room.
fn is_preferred(known: &Known, strategy: &Strategy) -> bool {
    match strategy {
        Strategy::Default | Strategy::Spread | Strategy::Node { soft: false, .. } => false,
        Strategy::Node { node, soft: true } => known.info.node == *node,
        Strategy::Labels { soft, .. } => {
            !soft.is_empty() && soft.iter().all(|rule| rule.holds(&known.info.labels))
        }
    }
}
