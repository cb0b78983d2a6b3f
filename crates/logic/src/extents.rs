//! Space by address: extents of whole pages, in the arena and in the spill file.
//!
//! Space that was in use before is preferred to space that never was: its pages are there already, and
//! touching fresh ones is many times slower.
//!
//! Invariants:
//! 1. Free extents lie below the high-water mark, and no two of them touch.
//! 2. used + free below the mark = mark ≤ size.

use std::collections::{BTreeMap, BTreeSet};

/// Extents begin and end at multiples of this, so that freed ones can be handed back page by page.
pub const PAGE_BYTES: u64 = 4096;

/// The bytes that an extent of `bytes` takes.
pub fn page_bytes(bytes: u64) -> u64 {
    bytes.max(1).div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
}

/// An allocator of extents.
#[derive(Clone, Debug)]
pub struct Extents {
    size: u64,
    used: u64,
    high_water: u64,
    free: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
}

impl Extents {
    /// `size` bytes, all free; a last part of a page is left out.
    pub fn new(size: u64) -> Self {
        let size = size / PAGE_BYTES * PAGE_BYTES;
        Self { size, used: 0, high_water: 0, free: BTreeMap::new(), by_length: BTreeSet::new() }
    }

    /// All bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that are free, if not in one piece.
    pub fn available(&self) -> u64 {
        self.size - self.used
    }

    /// The end of the space that has ever been in use.
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    /// The offset of an extent for `bytes`; `None` if there is none in one piece.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let length = page_bytes(bytes);
        let best = self.by_length.range((length, 0)..).next().copied();
        let offset = match best {
            Some((free, offset)) => {
                self.remove_free(offset, free);
                if free > length {
                    self.insert_free(offset + length, free - length);
                }
                offset
            }
            None => self.extend(length)?,
        };
        self.used += length;
        Some(offset)
    }

    /// Gives back what [`allocate`](Self::allocate) gave for the same number of bytes.
    pub fn release(&mut self, offset: u64, bytes: u64) {
        let mut offset = offset;
        let mut length = page_bytes(bytes);
        self.used -= length;
        if let Some((&before, &free)) = self.free.range(..offset).next_back() {
            assert!(before + free <= offset, "extent {offset} is free already");
            if before + free == offset {
                self.remove_free(before, free);
                offset = before;
                length += free;
            }
        }
        if let Some(&free) = self.free.get(&(offset + length)) {
            self.remove_free(offset + length, free);
            length += free;
        }
        self.insert_free(offset, length);
    }

    /// Where the free space begins, in the order of addresses, that is beyond so many free bytes; `None` if there are no more.
    pub fn free_beyond(&self, bytes: u64) -> Option<u64> {
        let mut left = bytes / PAGE_BYTES * PAGE_BYTES;
        for (&offset, &free) in &self.free {
            if free > left {
                return Some(offset + left);
            }
            left -= free;
        }
        None
    }

    /// The first free extent at this offset or behind it, or what is behind the offset of one that is around it.
    pub fn free_from(&self, offset: u64) -> Option<(u64, u64)> {
        let around = self.free.range(..=offset).next_back().map(|(&start, &free)| start + free);
        match around.filter(|end| *end > offset) {
            Some(end) => Some((offset, end - offset)),
            None => self.free.range(offset..).next().map(|(&start, &free)| (start, free)),
        }
    }

    /// Raises the mark, starting with the free extent that touches it, if one does.
    fn extend(&mut self, length: u64) -> Option<u64> {
        let last = self.free.last_key_value().map(|(&offset, &free)| (offset, free));
        let touching = last.filter(|(offset, free)| offset + free == self.high_water);
        let offset = touching.map_or(self.high_water, |(offset, _)| offset);
        if length > self.size - offset {
            return None;
        }
        if let Some((offset, free)) = touching {
            self.remove_free(offset, free);
        }
        self.high_water = offset + length;
        Some(offset)
    }

    fn insert_free(&mut self, offset: u64, length: u64) {
        self.free.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn remove_free(&mut self, offset: u64, length: u64) {
        self.free.remove(&offset);
        self.by_length.remove(&(length, offset));
    }

    /// Panics unless these extents (offset and bytes), and nothing else, are in use.
    pub fn check(&self, in_use: impl IntoIterator<Item = (u64, u64)>) {
        let in_use = in_use.into_iter().map(|(offset, bytes)| (offset, page_bytes(bytes), true));
        let mut all: Vec<_> = in_use.collect();
        let used: u64 = all.iter().map(|&(_, length, _)| length).sum();
        assert_eq!(used, self.used, "bytes in use");
        all.extend(self.free.iter().map(|(&offset, &length)| (offset, length, false)));
        all.sort_unstable();
        let mut end = 0;
        let mut last_used = true;
        for (offset, length, used) in all {
            assert_eq!(offset, end, "extents neither overlap nor leave gaps");
            assert!(used || last_used, "extents invariant 1: free ones do not touch");
            end = offset + length;
            last_used = used;
        }
        assert_eq!(end, self.high_water, "extents invariant 2");
        assert!(end <= self.size, "extents invariant 2");
        assert_eq!(self.free.len(), self.by_length.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_space_is_preferred_to_fresh_space() {
        let mut extents = Extents::new(10 * PAGE_BYTES);
        let first = extents.allocate(2 * PAGE_BYTES).unwrap();
        let second = extents.allocate(1).unwrap();
        extents.release(first, 2 * PAGE_BYTES);
        assert_eq!(extents.allocate(PAGE_BYTES), Some(0));
        assert_eq!(extents.high_water(), 3 * PAGE_BYTES);
        extents.check([(0, 1), (second, 1)]);
    }

    #[test]
    fn the_best_fit_wins_and_neighbours_merge() {
        let mut extents = Extents::new(10 * PAGE_BYTES);
        let offsets: Vec<u64> = (0..6).map(|_| extents.allocate(PAGE_BYTES).unwrap()).collect();
        for hole in [0, 1, 3] {
            extents.release(offsets[hole], PAGE_BYTES);
        }
        assert_eq!(extents.allocate(PAGE_BYTES), Some(offsets[3]), "the hole of one page fits best");
        extents.release(offsets[2], PAGE_BYTES);
        assert_eq!(extents.allocate(3 * PAGE_BYTES), Some(0), "three holes have become one");
        extents.check([(0, 3 * PAGE_BYTES), (offsets[3], 1), (offsets[4], 1), (offsets[5], 1)]);
    }

    #[test]
    fn the_free_end_joins_fresh_space() {
        let mut extents = Extents::new(4 * PAGE_BYTES);
        let first = extents.allocate(2 * PAGE_BYTES).unwrap();
        let second = extents.allocate(PAGE_BYTES).unwrap();
        extents.release(second, PAGE_BYTES);
        assert_eq!(extents.allocate(2 * PAGE_BYTES), Some(second));
        assert_eq!(extents.allocate(1), None);
        extents.check([(first, 2 * PAGE_BYTES), (second, 2 * PAGE_BYTES)]);
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn releasing_twice_is_caught() {
        let mut extents = Extents::new(4 * PAGE_BYTES);
        let _first = extents.allocate(2 * PAGE_BYTES).unwrap();
        let second = extents.allocate(PAGE_BYTES).unwrap();
        extents.release(second, PAGE_BYTES);
        extents.release(second + 1, 1);
    }

    #[test]
    fn free_space_is_found_by_address() {
        let page = PAGE_BYTES;
        let mut extents = Extents::new(10 * page);
        let offsets: Vec<u64> = (0..8).map(|_| extents.allocate(page).unwrap()).collect();
        for hole in [1, 2, 5, 7] {
            extents.release(offsets[hole], page);
        }
        assert_eq!(
            [0, 1, 2, 3, 4].map(|free| extents.free_beyond(free * page)),
            [Some(page), Some(2 * page), Some(5 * page), Some(7 * page), None]
        );
        assert_eq!(
            [0, 1, 2, 3, 6, 8].map(|at| extents.free_from(at * page)),
            [
                Some((page, 2 * page)),
                Some((page, 2 * page)),
                Some((2 * page, page)),
                Some((5 * page, page)),
                Some((7 * page, page)),
                None
            ]
        );
    }
}
