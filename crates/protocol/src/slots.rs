//! Slots: every id of the control store maps to one of 1024, and a map that is data says which shard has each.
//!
//! 1. A task and all objects that it makes are in the same slot.
//! 2. Every slot has exactly one shard.
//! 3. All rows of nodes are in one slot: what a batch says of members and epochs is on disk together, or not at all.

use crate::ids::{ObjectId, TaskId};
use crate::limits;
use crate::tables::Table;
use serde::{Deserialize, Serialize};

/// One of the [`SLOTS`](limits::SLOTS) parts that all ids are divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotIndex(pub u16);

impl SlotIndex {
    /// The slot of a task.
    #[inline]
    pub const fn of_task(task: TaskId) -> Self {
        let [high, low] = task.to_words();
        Self::of_hash(high ^ low.rotate_left(23))
    }

    /// The slot of an object, which is that of its task.
    #[inline]
    pub const fn of_object(object: ObjectId) -> Self {
        Self::of_task(object.task())
    }

    /// The slot of a row.
    pub fn of_row(table: Table, key: &[u8]) -> Self {
        match table {
            Table::Nodes => Self::of_key(b"nodes"),
            _ => Self::of_key(key),
        }
    }

    /// The slot of a key, whatever the table: rows of several tables about one thing are neighbours.
    pub fn of_key(key: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self::of_hash(key.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }

    /// All slots.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..limits::SLOTS as u16).map(Self)
    }

    const fn of_hash(mut hash: u64) -> Self {
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Self((hash >> (u64::BITS - limits::SLOTS.ilog2())) as u16)
    }
}

/// Which shard has which slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotMap {
    shards: u16,
    owners: Vec<u16>,
}

/// These bytes are not a map of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a map of {} slots", limits::SLOTS)]
pub struct NotASlotMap;

impl SlotMap {
    /// As many slots to each shard as to any other, give or take one. There is at least one shard, and at most
    /// as many as slots.
    pub fn even(shards: u16) -> Self {
        let shards = shards.clamp(1, limits::SLOTS as u16);
        let owners = SlotIndex::all().map(|slot| slot.0 % shards).collect();
        Self { shards, owners }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The shard that has `slot`.
    #[inline]
    pub fn shard_of(&self, slot: SlotIndex) -> u16 {
        self.owners[usize::from(slot.0)]
    }

    /// The slots of a shard, in order.
    pub fn slots_of(&self, shard: u16) -> impl Iterator<Item = SlotIndex> + '_ {
        SlotIndex::all().filter(move |slot| self.shard_of(*slot) == shard)
    }

    /// As it is kept on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::records::encode(self)
    }

    /// From what was kept on disk.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotASlotMap> {
        let map: Self = postcard::from_bytes(bytes).map_err(|_| NotASlotMap)?;
        let whole = map.owners.len() == limits::SLOTS && map.owners.iter().all(|owner| *owner < map.shards);
        whole.then_some(map).ok_or(NotASlotMap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    #[test]
    fn a_task_and_its_objects_share_a_slot() {
        let task = TaskId::root(SessionId(3)).child(5);
        for index in [0, 1, 7, u32::MAX] {
            assert_eq!(SlotIndex::of_object(task.returns(index)), SlotIndex::of_task(task), "invariant 1");
        }
    }

    #[test]
    fn all_rows_of_nodes_share_a_slot() {
        let slot_of = |table, key: u64| SlotIndex::of_row(table, &key.to_be_bytes());
        assert!((0..100).all(|key| slot_of(Table::Nodes, key) == slot_of(Table::Nodes, 0)), "invariant 3");
        assert!((0..100).any(|key| slot_of(Table::Jobs, key) != slot_of(Table::Jobs, 0)));
    }

    #[test]
    fn ids_and_keys_are_spread_evenly() {
        let root = TaskId::root(SessionId(3));
        let mut by_task = vec![0; limits::SLOTS];
        let mut by_key = vec![0; limits::SLOTS];
        for number in 0..100 * limits::SLOTS as u64 {
            by_task[usize::from(SlotIndex::of_task(root.child(number)).0)] += 1;
            by_key[usize::from(SlotIndex::of_key(format!("actor/{number}").as_bytes()).0)] += 1;
        }
        for count in by_task.into_iter().chain(by_key) {
            assert!((40..200).contains(&count), "{count} of 100 in one slot");
        }
    }

    #[test]
    fn every_slot_has_one_shard_and_the_map_survives_its_bytes() {
        for shards in [0, 1, 3, 16, u16::MAX] {
            let map = SlotMap::even(shards);
            let owned: usize = (0..map.shards()).map(|shard| map.slots_of(shard).count()).sum();
            assert_eq!(owned, limits::SLOTS, "invariant 2");
            assert_eq!(SlotMap::from_bytes(&map.to_bytes()), Ok(map));
        }
        let wrong = SlotMap { shards: 2, owners: vec![2; limits::SLOTS] };
        assert_eq!(SlotMap::from_bytes(&wrong.to_bytes()), Err(NotASlotMap));
        assert_eq!(SlotMap::from_bytes(&[1, 2, 3]), Err(NotASlotMap));
    }
}
