//! A table whose places are reused, in chunks that never move: stable cost per entry, no large copies.

use aktis_protocol::{ShardIndex, TaskKey};

const CHUNK: usize = 1024;

enum Place<T> {
    Free { next: u32 },
    Taken(T),
}

struct Slot<T> {
    generation: u32,
    place: Place<T>,
}

/// A table with keys that carry a generation: a key of a removed entry finds nothing.
pub struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: u32,
    len: usize,
    /// What the indices of its keys begin with: a key of another table finds nothing.
    tag: u32,
}

const NONE: u32 = u32::MAX;

impl<T> Slab<T> {
    /// An empty table for one shard.
    pub fn new(shard: ShardIndex) -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0, tag: shard.tag() }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry.
    #[inline]
    pub fn insert(&mut self, value: T) -> TaskKey {
        self.len += 1;
        if self.free != NONE {
            let index = self.free;
            let slot = self.slot_mut(index);
            let Place::Free { next } = slot.place else { unreachable!("a free place is free") };
            slot.place = Place::Taken(value);
            let generation = slot.generation;
            self.free = next;
            return TaskKey { index: index | self.tag, generation };
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        let slots = &mut self.chunks[chunk];
        slots.push(Slot { generation: 0, place: Place::Taken(value) });
        let index = (chunk * CHUNK + slots.len() - 1) as u32;
        TaskKey { index: index | self.tag, generation: 0 }
    }

    /// Takes an entry out.
    #[inline]
    pub fn remove(&mut self, key: TaskKey) -> Option<T> {
        self.get(key)?;
        let (free, index) = (self.free, key.index ^ self.tag);
        let slot = self.slot_mut(index);
        slot.generation = slot.generation.wrapping_add(1);
        let place = std::mem::replace(&mut slot.place, Place::Free { next: free });
        self.free = index;
        self.len -= 1;
        match place {
            Place::Taken(value) => Some(value),
            Place::Free { .. } => unreachable!("the key was found"),
        }
    }

    /// The entry of this key.
    #[inline]
    pub fn get(&self, key: TaskKey) -> Option<&T> {
        let index = (key.index ^ self.tag) as usize;
        match self.chunks.get(index / CHUNK)?.get(index % CHUNK)? {
            Slot { generation, place: Place::Taken(value) } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The entry of this key, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: TaskKey) -> Option<&mut T> {
        let index = (key.index ^ self.tag) as usize;
        match self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)? {
            Slot { generation, place: Place::Taken(value) } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// All entries with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (TaskKey, &T)> {
        self.chunks.iter().flatten().enumerate().filter_map(|(index, slot)| match &slot.place {
            Place::Taken(value) => {
                Some((TaskKey { index: index as u32 | self.tag, generation: slot.generation }, value))
            }
            Place::Free { .. } => None,
        })
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_reused_and_old_keys_find_nothing() {
        let mut slab = Slab::new(ShardIndex(3));
        let keys: Vec<_> = (0..3000).map(|i| slab.insert(i)).collect();
        assert_eq!(slab.remove(keys[1500]), Some(1500));
        assert_eq!(slab.remove(keys[1500]), None);
        let again = slab.insert(7);
        assert_eq!(again.index, keys[1500].index);
        assert_eq!(slab.get(keys[1500]), None);
        assert_eq!((slab.get(again), slab.len()), (Some(&7), 3000));
        assert_eq!(slab.iter().count(), 3000);
    }

    #[test]
    fn a_key_of_another_table_finds_nothing() {
        let (mut a, mut b) = (Slab::new(ShardIndex(0)), Slab::new(ShardIndex(15)));
        let (of_a, of_b) = (a.insert('a'), b.insert('b'));
        assert_eq!((of_a.shard(), of_b.shard()), (ShardIndex(0), ShardIndex(15)));
        assert_eq!((a.get(of_b), b.get(of_a)), (None, None));
        assert_eq!(b.remove(of_a), None);
        assert_eq!(b.iter().collect::<Vec<_>>(), [(of_b, &'b')]);
        assert_eq!((b.remove(of_b), b.insert('c').shard()), (Some('b'), ShardIndex(15)));
    }
}
