//! The copies of objects in the store, each with its entry in the shared index.
//!
//! An object usually has one copy. It has more when a task that runs again writes the same object again
//! while the first is still being read: the ids are the same, the entries are not.

use super::NodeEffect;
use crate::Time;
use aktis_protocol::control::RequestId;
use aktis_protocol::{EntryRef, ExtentPlace, ObjectId, ProcessSlot};
use std::collections::BTreeMap;

/// Why an object was not spilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpillRefusal {
    /// Somebody reads it.
    Pinned,
    /// The disk did not take it.
    Disk(String),
}

/// The state of an entry of the shared index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Nobody's.
    Free,
    /// Being written by one process.
    Writing,
    /// Immutable, and read where it is: in memory, or in the spill file.
    Sealed,
    /// On disk only.
    Spilled,
}

/// Where a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// The disk sets room aside for a process that wants to write it there; if `orphaned`, it is freed afterwards.
    Reserving { file_offset: u64, writer: ProcessSlot, request: RequestId, orphaned: bool },
    /// Its bytes are not all there.
    Writing { place: ExtentPlace, writer: ProcessSlot },
    /// In memory. Older ones have a lower `recency`; it is not spilled before `spared_until`.
    Sealed { offset: u64, recency: u64, spared_until: Time },
    /// Being copied to disk; if `orphaned`, it is freed afterwards.
    Spilling { offset: u64, file_offset: u64, orphaned: bool },
    /// On disk.
    Spilled { file_offset: u64 },
    /// On disk, and read there.
    Mapped { file_offset: u64 },
    /// Being copied back; if `orphaned`, it is freed afterwards.
    Restoring { offset: u64, file_offset: u64, orphaned: bool },
    /// In the store of another node, which this process stands for.
    Elsewhere { peer: ProcessSlot },
    /// Being copied from another node, if that is still there; if `orphaned`, it is freed afterwards.
    Fetching { place: ExtentPlace, peer: Option<ProcessSlot>, orphaned: bool },
    /// Nobody's, but somebody may still read it; it is freed when nobody does.
    Retiring { place: ExtentPlace },
}

impl CopyState {
    /// Whether all bytes are in the memory or on the disk of this node, and stay there.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Sealed { .. }
            | Self::Spilling { .. }
            | Self::Spilled { .. }
            | Self::Mapped { .. }
            | Self::Restoring { .. } => true,
            Self::Reserving { .. }
            | Self::Writing { .. }
            | Self::Elsewhere { .. }
            | Self::Fetching { .. }
            | Self::Retiring { .. } => false,
        }
    }

    /// Whether it can be pinned.
    pub(super) fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed { .. } | Self::Mapped { .. })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) entry: EntryRef,
    pub(super) object: ObjectId,
    pub(super) bytes: u64,
    pub(super) state: CopyState,
}

impl Copy {
    /// Where it is read or written, or will be.
    pub(super) fn place(&self) -> Option<ExtentPlace> {
        match self.state {
            CopyState::Writing { place, .. }
            | CopyState::Fetching { place, .. }
            | CopyState::Retiring { place } => Some(place),
            CopyState::Sealed { offset, .. }
            | CopyState::Spilling { offset, .. }
            | CopyState::Restoring { offset, .. } => Some(ExtentPlace::Arena(offset)),
            CopyState::Mapped { file_offset } => Some(ExtentPlace::File(file_offset)),
            CopyState::Reserving { .. } | CopyState::Spilled { .. } | CopyState::Elsewhere { .. } => None,
        }
    }

    pub(super) fn arena_offset(&self) -> Option<u64> {
        match self.place() {
            Some(ExtentPlace::Arena(offset)) => Some(offset),
            _ => None,
        }
    }

    pub(super) fn file_offset(&self) -> Option<u64> {
        match self.state {
            CopyState::Reserving { file_offset, .. }
            | CopyState::Spilling { file_offset, .. }
            | CopyState::Spilled { file_offset }
            | CopyState::Restoring { file_offset, .. } => Some(file_offset),
            _ => match self.place() {
                Some(ExtentPlace::File(file_offset)) => Some(file_offset),
                _ => None,
            },
        }
    }
}

#[derive(Debug)]
pub(super) struct Copies {
    by_index: BTreeMap<u32, Copy>,
    by_object: BTreeMap<ObjectId, Vec<EntryRef>>,
    /// Sealed copies, the least recently used first.
    recency: BTreeMap<u64, EntryRef>,
    next_recency: u64,
    /// The last generation of each entry that was ever used.
    generations: Vec<u32>,
    free_entries: Vec<u32>,
    entries_max: u32,
    /// Objects of which this node has got or lost a copy, since they were taken.
    changed: Vec<ObjectId>,
}

impl Copies {
    pub(super) fn new(entries_max: u32) -> Self {
        Self {
            by_index: BTreeMap::new(),
            by_object: BTreeMap::new(),
            recency: BTreeMap::new(),
            next_recency: 0,
            generations: Vec::new(),
            free_entries: Vec::new(),
            entries_max,
            changed: Vec::new(),
        }
    }

    pub(super) fn entries_max(&self) -> u32 {
        self.entries_max
    }

    pub(super) fn len(&self) -> usize {
        self.by_index.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Copy> {
        self.by_index.values()
    }

    /// The copy with this entry, unless it is gone.
    pub(super) fn find(&self, entry: EntryRef) -> Option<&Copy> {
        self.by_index.get(&entry.index).filter(|copy| copy.entry == entry)
    }

    pub(super) fn get(&self, entry: EntryRef) -> &Copy {
        self.find(entry).expect("the entry is in use")
    }

    pub(super) fn get_mut(&mut self, entry: EntryRef) -> &mut Copy {
        self.by_index.get_mut(&entry.index).filter(|copy| copy.entry == entry).expect("the entry is in use")
    }

    /// A new copy, to be written or in the store of another node; `None` if all entries are in use.
    pub(super) fn add(&mut self, object: ObjectId, bytes: u64, state: CopyState) -> Option<EntryRef> {
        let index = match self.free_entries.pop() {
            Some(index) => index,
            None if (self.generations.len() as u32) < self.entries_max => {
                self.generations.push(0);
                self.generations.len() as u32 - 1
            }
            None => return None,
        };
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        let entry = EntryRef { index, generation: *generation };
        self.by_index.insert(index, Copy { entry, object, bytes, state });
        self.by_object.entry(object).or_default().push(entry);
        Some(entry)
    }

    pub(super) fn remove(&mut self, entry: EntryRef) -> Copy {
        let copy = self.by_index.remove(&entry.index).expect("the entry is in use");
        self.drop_recency(&copy.state);
        if copy.state.is_here() {
            self.changed.push(copy.object);
        }
        let copies = self.by_object.get_mut(&copy.object).expect("the object has copies");
        copies.retain(|other| *other != entry);
        if copies.is_empty() {
            self.by_object.remove(&copy.object);
        }
        self.free_entries.push(entry.index);
        copy
    }

    /// The order that publishes the state of an entry.
    pub(super) fn order(&self, entry: EntryRef, state: EntryState) -> NodeEffect {
        let copy = self.get(entry);
        let offset = match copy.state {
            // Whoever finds it learns where it is; whoever frees it does not.
            CopyState::Elsewhere { peer } if state == EntryState::Spilled => u64::from(peer.0) + 1,
            _ => copy.place().map_or(0, ExtentPlace::to_word),
        };
        NodeEffect::WriteEntry { entry, object: copy.object, state, offset, bytes: copy.bytes }
    }

    /// What a process is writing: one object, or all.
    pub(super) fn written_by(&self, process: ProcessSlot, object: Option<ObjectId>) -> Vec<EntryRef> {
        let written =
            |copy: &&Copy| matches!(copy.state, CopyState::Writing { writer, .. } if writer == process);
        match object {
            Some(object) => {
                let entries = self.by_object.get(&object).into_iter().flatten();
                entries.map(|entry| self.get(*entry)).filter(written).map(|copy| copy.entry).collect()
            }
            None => self.iter().filter(written).map(|copy| copy.entry).collect(),
        }
    }

    /// What the disk sets room aside for, for a process that wants to write there.
    pub(super) fn reserved_for(&self, process: ProcessSlot) -> Vec<EntryRef> {
        let reserved =
            |copy: &&Copy| matches!(copy.state, CopyState::Reserving { writer, .. } if writer == process);
        self.iter().filter(reserved).map(|copy| copy.entry).collect()
    }

    /// The copies that only another node has, or that are on their way from it.
    pub(super) fn of_peer(&self, process: ProcessSlot) -> Vec<EntryRef> {
        let from_there = |copy: &&Copy| match copy.state {
            CopyState::Elsewhere { peer } => peer == process,
            CopyState::Fetching { peer, .. } => peer == Some(process),
            _ => false,
        };
        self.iter().filter(from_there).map(|copy| copy.entry).collect()
    }

    /// The copies of an object that have been written and can be read, if not at once.
    pub(super) fn readable(&self, object: ObjectId) -> Vec<EntryRef> {
        let hidden = |state: &CopyState| {
            matches!(
                state,
                CopyState::Reserving { .. } | CopyState::Writing { .. } | CopyState::Retiring { .. }
            )
        };
        let entries = self.by_object.get(&object).into_iter().flatten().copied();
        entries.filter(|entry| !hidden(&self.get(*entry).state)).collect()
    }

    /// The objects of which this node has got or lost a copy, since they were last taken.
    pub(super) fn take_changed(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.changed)
    }

    /// The size of an object of which there is a copy here.
    pub(super) fn bytes_here(&self, object: ObjectId) -> Option<u64> {
        let entries = self.by_object.get(&object).into_iter().flatten();
        entries.map(|entry| self.get(*entry)).find(|copy| copy.state.is_here()).map(|copy| copy.bytes)
    }

    /// The copy's bytes are there. In memory it is left until `spared_until`.
    pub(super) fn seal(&mut self, entry: EntryRef, spared_until: Time) {
        match self.get(entry).place().expect("a written copy has a place") {
            ExtentPlace::Arena(offset) => self.seal_at(entry, offset, spared_until),
            ExtentPlace::File(file_offset) => self.set_state(entry, CopyState::Mapped { file_offset }),
        }
    }

    /// The copy is in memory, was just used, and is left there until `spared_until`.
    pub(super) fn seal_at(&mut self, entry: EntryRef, offset: u64, spared_until: Time) {
        self.next_recency += 1;
        let recency = self.next_recency;
        self.set_state(entry, CopyState::Sealed { offset, recency, spared_until });
        self.recency.insert(recency, entry);
    }

    pub(super) fn begin_spill(&mut self, entry: EntryRef, file_offset: u64) -> u64 {
        let offset = self.get(entry).arena_offset().expect("a sealed copy is in memory");
        self.set_state(entry, CopyState::Spilling { offset, file_offset, orphaned: false });
        offset
    }

    pub(super) fn set_state(&mut self, entry: EntryRef, state: CopyState) {
        let copy = self.get_mut(entry);
        let (object, is_here) = (copy.object, state.is_here());
        let old = std::mem::replace(&mut copy.state, state);
        if old.is_here() != is_here {
            self.changed.push(object);
        }
        self.drop_recency(&old);
    }

    /// All copies of the object were used just now.
    pub(super) fn touch(&mut self, object: ObjectId) {
        for entry in self.readable(object) {
            if let CopyState::Sealed { offset, spared_until, .. } = self.get(entry).state {
                self.seal_at(entry, offset, spared_until);
            }
        }
    }

    /// Copies that may be spilled now, the least recently used first.
    pub(super) fn least_recent(&self, now: Time) -> impl Iterator<Item = EntryRef> {
        let may_go = move |entry: &EntryRef| matches!(self.get(*entry).state, CopyState::Sealed { spared_until, .. } if spared_until <= now);
        self.recency.values().copied().filter(may_go)
    }

    fn drop_recency(&mut self, state: &CopyState) {
        if let CopyState::Sealed { recency, .. } = state {
            self.recency.remove(recency);
        }
    }

    pub(super) fn check(&self) {
        let mut sealed = 0;
        for (index, copy) in &self.by_index {
            assert_eq!(*index, copy.entry.index);
            assert_eq!(self.generations[*index as usize], copy.entry.generation, "memory invariant 2");
            assert!(self.by_object[&copy.object].contains(&copy.entry));
            if let CopyState::Sealed { recency, .. } = copy.state {
                assert_eq!(self.recency.get(&recency), Some(&copy.entry), "memory invariant 4");
                sealed += 1;
            }
        }
        assert_eq!(sealed, self.recency.len(), "memory invariant 4");
        assert_eq!(self.by_object.values().map(Vec::len).sum::<usize>(), self.by_index.len());
        let all = self.by_index.len() + self.free_entries.len();
        assert_eq!(all, self.generations.len(), "memory invariant 2");
    }
}
