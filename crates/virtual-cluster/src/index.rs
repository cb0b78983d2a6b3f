//! The shared index and the pins of a virtual node, as its processes see them.
//!
//! It follows the node's orders and objects to the wrong ones: memory that is freed or spilled while
//! somebody reads it, an entry that comes back with an old generation.

use aktis_logic::machine::node::EntryState;
use aktis_protocol::{EntryRef, ObjectId, ProcessSlot};
use std::collections::BTreeMap;

/// One entry of the index.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The entry, with its generation.
    pub entry: EntryRef,
    /// The object in it.
    pub object: ObjectId,
    /// Its state.
    pub state: EntryState,
    /// Where it is, as a word.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// All entries, and who has which of them pinned.
#[derive(Clone, Debug, Default)]
pub struct Index {
    entries: BTreeMap<u32, Entry>,
    pins: BTreeMap<(u32, ProcessSlot), u32>,
}

impl Index {
    /// The node writes an entry.
    pub fn write(&mut self, new: Entry) {
        let index = new.entry.index;
        let old = self.entries.get(&index);
        match (old.map(|old| old.state), new.state) {
            // Written here, or known from another node.
            (None | Some(EntryState::Free), EntryState::Writing | EntryState::Spilled) => {
                let fresh = old.is_none_or(|old| old.entry.generation != new.entry.generation);
                assert!(fresh, "{:?} is used again under the same generation", new.entry);
            }
            // One that is spilled is read where it is.
            (Some(EntryState::Writing), EntryState::Sealed | EntryState::Free)
            | (Some(EntryState::Spilled), EntryState::Sealed)
            | (Some(EntryState::Sealed | EntryState::Spilled), EntryState::Free) => {
                assert_eq!(old.map(|old| old.entry), Some(new.entry), "the generation stays while in use");
            }
            (old, new) => panic!("an entry cannot go from {old:?} to {new:?}"),
        }
        if new.state == EntryState::Free {
            assert!(!self.is_pinned(index), "{} is freed while somebody reads it", new.object);
        }
        self.entries.insert(index, new);
    }

    /// The entry, if it is still that of the same object.
    pub fn get(&self, entry: EntryRef) -> Option<&Entry> {
        self.entries.get(&entry.index).filter(|found| found.entry == entry && found.state != EntryState::Free)
    }

    /// Starts to read: false if the object is not in memory.
    pub fn pin(&mut self, entry: EntryRef, process: ProcessSlot) -> bool {
        let readable = self.get(entry).is_some_and(|found| found.state == EntryState::Sealed);
        if readable {
            *self.pins.entry((entry.index, process)).or_default() += 1;
        }
        readable
    }

    /// Ends reading.
    pub fn unpin(&mut self, entry: EntryRef, process: ProcessSlot) {
        let count = self.pins.get_mut(&(entry.index, process)).expect("only what was pinned is unpinned");
        *count -= 1;
        self.pins.retain(|_, count| *count > 0);
    }

    /// The pins of a dead process do not count.
    pub fn clear_pins(&mut self, process: ProcessSlot) {
        self.pins.retain(|(_, owner), _| *owner != process);
    }

    /// Whether somebody reads the entry.
    pub fn is_pinned(&self, index: u32) -> bool {
        self.pins.keys().any(|(pinned, _)| *pinned == index)
    }

    /// The object has gone to disk, unless somebody reads it.
    pub fn spill(&mut self, entry: EntryRef) -> bool {
        if self.is_pinned(entry.index) {
            return false;
        }
        self.set_state(entry, EntryState::Sealed, EntryState::Spilled, None);
        true
    }

    /// The object is back in memory, at `offset`.
    pub fn restore(&mut self, entry: EntryRef, offset: u64) {
        self.set_state(entry, EntryState::Spilled, EntryState::Sealed, Some(offset));
    }

    fn set_state(&mut self, entry: EntryRef, from: EntryState, to: EntryState, offset: Option<u64>) {
        let found = self.entries.get_mut(&entry.index).expect("the entry is in use");
        assert_eq!((found.entry, found.state), (entry, from), "the entry is what the node takes it for");
        found.state = to;
        found.offset = offset.unwrap_or(found.offset);
    }
}
