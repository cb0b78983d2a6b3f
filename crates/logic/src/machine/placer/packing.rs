//! Which bundles of a placement group go to which nodes.
//!
//! What is strict is exact: one node for all, or a matching of bundles and nodes. The others are packed greedily, the
//! largest bundle first, in two ways, of which one has to succeed.

use aktis_protocol::{GroupStrategy, NodeId, Resources};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A bundle that wants a node: its index in the group, and what it holds.
pub(super) type Wanted = (u32, Resources);

/// A node, and what may be taken of it.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) node: NodeId,
    pub(super) free: Resources,
    /// How many bundles of the group it has already.
    pub(super) bundles: usize,
}

/// The node for each of the bundles; all, or none. Rooms that come first are preferred where it does not matter.
pub(super) fn plan(
    wanted: &[Wanted],
    strategy: GroupStrategy,
    rooms: &[Room],
) -> Option<BTreeMap<u32, NodeId>> {
    let mut largest_first: Vec<&Wanted> = wanted.iter().collect();
    largest_first.sort_by_key(|(index, bundle)| (Reverse(weight(bundle)), *index));
    match strategy {
        GroupStrategy::StrictPack => on_one(&largest_first, rooms),
        GroupStrategy::StrictSpread => matched(wanted, rooms),
        GroupStrategy::Pack => on_one(&largest_first, rooms)
            .or_else(|| on_few(&largest_first, rooms))
            .or_else(|| on_many(&largest_first, rooms)),
        GroupStrategy::Spread => on_many(&largest_first, rooms).or_else(|| on_few(&largest_first, rooms)),
    }
}

/// How hard a bundle is to place: how many kinds of resources it wants, and how much in all.
fn weight(bundle: &Resources) -> (usize, u64) {
    (bundle.iter().count(), bundle.iter().map(|(_, amount)| amount.0).fold(0, u64::saturating_add))
}

/// All on the same node; on the one that has some already, if any does.
fn on_one(wanted: &[&Wanted], rooms: &[Room]) -> Option<BTreeMap<u32, NodeId>> {
    let elsewhere = |room: &Room| rooms.iter().any(|other| other.node != room.node && other.bundles > 0);
    let fits = |room: &&Room| !elsewhere(room) && taken(wanted, room).len() == wanted.len();
    let room = rooms.iter().find(fits)?;
    Some(wanted.iter().map(|(index, _)| (*index, room.node)).collect())
}

/// Those of the bundles that fit into the room together, taken in their order.
fn taken<'a>(wanted: &[&'a Wanted], room: &Room) -> Vec<&'a Wanted> {
    let mut free = room.free.clone();
    let mut takes = |bundle: &Resources| {
        let fits = free.covers(bundle);
        if fits {
            free.take(bundle);
        }
        fits
    };
    wanted.iter().copied().filter(|(_, bundle)| takes(bundle)).collect()
}

/// On as few nodes as possible: whoever has some already, then whoever takes most, as long as bundles are left.
fn on_few(wanted: &[&Wanted], rooms: &[Room]) -> Option<BTreeMap<u32, NodeId>> {
    let mut left: Vec<&Wanted> = wanted.to_vec();
    let mut open: Vec<&Room> = rooms.iter().collect();
    let mut plan = BTreeMap::new();
    while !left.is_empty() {
        let takes = open.iter().zip(0..).map(|(room, index)| (taken(&left, room), room.bundles, index));
        let best = takes.max_by_key(|(taken, bundles, index)| (*bundles > 0, taken.len(), Reverse(*index)));
        let (taken, _, index) = best?;
        let room = open.remove(index);
        left.retain(|bundle| !taken.iter().any(|one| one.0 == bundle.0));
        plan.extend(taken.iter().map(|(bundle, _)| (*bundle, room.node)));
    }
    Some(plan)
}

/// On as many nodes as possible: each goes to the node with the fewest.
fn on_many(wanted: &[&Wanted], rooms: &[Room]) -> Option<BTreeMap<u32, NodeId>> {
    let mut open = rooms.to_vec();
    let mut plan = BTreeMap::new();
    for (index, bundle) in wanted {
        let room = open.iter_mut().filter(|room| room.free.covers(bundle)).min_by_key(|room| room.bundles)?;
        room.free.take(bundle);
        room.bundles += 1;
        plan.insert(*index, room.node);
    }
    Some(plan)
}

/// Each on a node of its own: augmenting paths, so that it is found if there is a way.
fn matched(wanted: &[Wanted], rooms: &[Room]) -> Option<BTreeMap<u32, NodeId>> {
    let rooms: Vec<&Room> = rooms.iter().filter(|room| room.bundles == 0).collect();
    if rooms.len() < wanted.len() {
        return None;
    }
    let mut holder: Vec<Option<usize>> = vec![None; rooms.len()];
    for bundle in 0..wanted.len() {
        let path = augment(bundle, wanted, &rooms, &holder)?;
        for (bundle, room) in path {
            holder[room] = Some(bundle);
        }
    }
    let pairs = rooms.iter().zip(&holder);
    Some(pairs.filter_map(|(room, bundle)| Some((wanted[(*bundle)?].0, room.node))).collect())
}

/// Who moves where, so that `bundle` gets a room: a search in breadth, from room to room.
fn augment(
    bundle: usize,
    wanted: &[Wanted],
    rooms: &[&Room],
    holder: &[Option<usize>],
) -> Option<Vec<(usize, usize)>> {
    let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; rooms.len()];
    let mut open = std::collections::VecDeque::from([(bundle, None)]);
    while let Some((bundle, by)) = open.pop_front() {
        for room in 0..rooms.len() {
            if reached[room].is_some() || !rooms[room].free.covers(&wanted[bundle].1) {
                continue;
            }
            reached[room] = Some((bundle, by));
            let Some(other) = holder[room] else { return Some(path_to(room, &reached)) };
            open.push_back((other, Some(room)));
        }
    }
    None
}

fn path_to(room: usize, reached: &[Option<(usize, Option<usize>)>]) -> Vec<(usize, usize)> {
    let mut path = Vec::new();
    let mut at = Some(room);
    while let Some(room) = at {
        let (bundle, by) = reached[room].expect("the search came through here");
        path.push((bundle, room));
        at = by;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::Amount;
    use aktis_protocol::resources::{CPU, GPU};

    fn amounts(cpus: u64, gpus: u64) -> Resources {
        Resources::none().with(CPU, Amount::units(cpus)).with(GPU, Amount::units(gpus))
    }

    fn rooms(all: &[(u64, u64)]) -> Vec<Room> {
        let room = |(index, (cpus, gpus)): (usize, &(u64, u64))| Room {
            node: NodeId::from_words([0, index as u64]),
            free: amounts(*cpus, *gpus),
            bundles: 0,
        };
        all.iter().enumerate().map(room).collect()
    }

    fn places(strategy: GroupStrategy, bundles: &[(u64, u64)], all: &[Room]) -> Option<Vec<u64>> {
        let wanted: Vec<Wanted> =
            bundles.iter().zip(0..).map(|((cpus, gpus), index)| (index, amounts(*cpus, *gpus))).collect();
        let plan = plan(&wanted, strategy, all)?;
        assert_eq!(plan.len(), wanted.len(), "all or none");
        Some(plan.values().map(|node| node.to_words()[1]).collect())
    }

    #[test]
    fn packing_takes_one_node_or_as_few_as_possible() {
        let all = rooms(&[(2, 0), (4, 0), (3, 0)]);
        assert_eq!(places(GroupStrategy::Pack, &[(2, 0), (2, 0)], &all), Some(vec![1, 1]));
        assert_eq!(places(GroupStrategy::Pack, &[(2, 0), (2, 0), (2, 0)], &all), Some(vec![1, 1, 0]));
        assert_eq!(places(GroupStrategy::StrictPack, &[(2, 0), (3, 0)], &all), None);
        assert_eq!(places(GroupStrategy::StrictPack, &[(1, 0), (3, 0)], &all), Some(vec![1, 1]));
        assert_eq!(places(GroupStrategy::Pack, &[(5, 0)], &all), None);
    }

    #[test]
    fn spreading_takes_many_nodes_and_strictly_one_each() {
        let all = rooms(&[(4, 0), (4, 0), (1, 0)]);
        assert_eq!(places(GroupStrategy::Spread, &[(1, 0); 4], &all), Some(vec![0, 1, 2, 0]));
        assert_eq!(places(GroupStrategy::StrictSpread, &[(1, 0); 4], &all), None);
        assert_eq!(places(GroupStrategy::StrictSpread, &[(1, 0), (2, 0), (2, 0)], &all), Some(vec![2, 1, 0]));
    }

    #[test]
    fn strict_spreading_finds_the_only_way() {
        let all = rooms(&[(4, 4), (4, 1), (1, 1)]);
        let only = Some(vec![2, 1, 0]);
        assert_eq!(places(GroupStrategy::StrictSpread, &[(1, 1), (4, 1), (1, 4)], &all), only);
        assert_eq!(places(GroupStrategy::StrictSpread, &[(4, 1), (1, 4), (2, 1)], &all), None);
    }

    #[test]
    fn a_repair_knows_who_has_bundles_already() {
        let mut all = rooms(&[(4, 0), (4, 0), (4, 0)]);
        all[2].bundles = 1;
        assert_eq!(places(GroupStrategy::Pack, &[(1, 0)], &all), Some(vec![2]));
        assert_eq!(places(GroupStrategy::Spread, &[(1, 0)], &all), Some(vec![0]));
        assert_eq!(places(GroupStrategy::StrictSpread, &[(1, 0); 3], &all), None);
        assert_eq!(places(GroupStrategy::StrictPack, &[(1, 0)], &all), Some(vec![2]));
    }

    /// Whether there is a way at all, by trying all.
    fn exists(bundles: &[(u64, u64)], free: &mut Vec<(u64, u64)>) -> bool {
        let Some((&(cpus, gpus), rest)) = bundles.split_first() else { return true };
        (0..free.len()).any(|index| {
            let room = free[index];
            if room.0 < cpus || room.1 < gpus {
                return false;
            }
            free.remove(index);
            let found = exists(rest, free);
            free.insert(index, room);
            found
        })
    }

    #[test]
    fn strict_spreading_succeeds_exactly_if_there_is_a_way() {
        let mut state = 1_u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut found = 0;
        for _ in 0..2_000 {
            let mut pairs = |count| (0..count).map(|_| (1 + below(4), below(4))).collect::<Vec<_>>();
            let (mut free, bundles) = (pairs(5), pairs(4));
            let places = places(GroupStrategy::StrictSpread, &bundles, &rooms(&free));
            assert_eq!(places.is_some(), exists(&bundles, &mut free), "{bundles:?} into {free:?}");
            found += usize::from(places.is_some());
            for (node, (cpus, gpus)) in places.iter().flatten().zip(&bundles) {
                let room = free[*node as usize];
                assert!(room.0 >= *cpus && room.1 >= *gpus, "{bundles:?} into {free:?}");
            }
        }
        assert!(
            (200..1_800).contains(&found),
            "{found} of 2000 could be placed: the cases are too easy or too hard"
        );
    }
}
