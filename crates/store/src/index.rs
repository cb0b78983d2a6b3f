//! The shared index of stored objects: where each one lies, its state, and who reads it.
//!
//! One memfd: a header, the entries, and for each process a table of pin counters. The tables are
//! sparse: a page of counters takes memory only once a process pins an object of that page.
//!
//! Invariants:
//! 1. Generation and state of an entry are one word: nobody sees the state of another generation.
//! 2. Only the node writes entries, with one exception: the process that was granted an extent turns
//!    its own entry from `Writing` to `Sealed`.
//! 3. A reader counts itself *before* it looks at the state; the node changes the state *before* it
//!    looks at the counters. Both are sequentially consistent, so at least one side sees the other.
//! 4. An object that is sealed and pinned keeps its place and its bytes.
//! 5. Each process counts its pins in its own table, so a dead process's pins go all at once.

#![allow(unsafe_code)]

use crate::error::{PinError, StoreError};
use crate::map::{Mapping, Shared};
use aktis_protocol::{EntryRef, ObjectId, ProcessSlot, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

const MAGIC: u64 = 0x616b_7469_7369_6401;
const PAGE: usize = 4096;
const HEADER_BYTES: usize = 2 * PAGE;

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EntryState {
    /// Nobody's.
    Free = 0,
    /// Being written by one process.
    Writing = 1,
    /// Immutable and in memory.
    Sealed = 2,
    /// Immutable and in memory, but the node is about to take the memory away: no new readers.
    Spilling = 3,
    /// On disk only.
    Spilled = 4,
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    entries: AtomicU32,
    clock: AtomicU32,
    /// How often memory behind the arena was given back.
    give_backs: AtomicU64,
    /// Whether the process in this place has opened the index; the tables of others are not looked at.
    attached: [AtomicU32; limits::PROCESSES_MAX],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

#[repr(C)]
struct Entry {
    /// Generation in the high half, state in the low half.
    word: AtomicU64,
    offset: AtomicU64,
    bytes: AtomicU64,
    object: [AtomicU64; 2],
    last_used: AtomicU32,
    /// Whether the process that may write it has begun: there is one writer for each grant.
    written: AtomicU32,
    /// One more than the place of the process that stands for the node that alone has the bytes; 0 if this one has them.
    elsewhere: AtomicU64,
    _rest: AtomicU64,
}

const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: all fields are atomics.
unsafe impl Shared for Header {}
// SAFETY: all fields are atomics.
unsafe impl Shared for Entry {}

/// Where an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its first byte: an offset in the arena, or the word of another [`ExtentPlace`](aktis_protocol::ExtentPlace).
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) bytes: u64,
}

/// The index, as one process sees it.
pub(crate) struct Index {
    map: Arc<Mapping>,
    me: usize,
    entries: usize,
}

fn word(entry: EntryRef, state: EntryState) -> u64 {
    u64::from(entry.generation) << 32 | u64::from(state as u32)
}

fn tables_at(entries: usize) -> usize {
    (HEADER_BYTES + entries * size_of::<Entry>()).next_multiple_of(PAGE)
}

fn table_bytes(entries: usize) -> usize {
    (entries * size_of::<AtomicU32>()).next_multiple_of(PAGE)
}

/// Maps a new memfd, unless a limit on the size of files forbids it: the system would not refuse then but kill
/// this process, by SIGXFSZ.
pub(crate) fn create_mapping(name: &str, bytes: u64) -> Result<Mapping, StoreError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if let Some(limit) = limit.filter(|limit| bytes > *limit) {
        return Err(StoreError::FileLimit { bytes, limit });
    }
    Mapping::create(name, bytes).map_err(|source| StoreError::Refused { bytes, source })
}

impl Index {
    /// Makes an index in the node's process, which is the one in place 0.
    pub(crate) fn create(entries: u32) -> Result<Self, StoreError> {
        let count = entries as usize;
        let bytes = (tables_at(count) + limits::PROCESSES_MAX * table_bytes(count)) as u64;
        let map = create_mapping("aktis-index", bytes)?;
        let header: &Header = map.at(0);
        header.entries.store(entries, Relaxed);
        header.magic.store(MAGIC, SeqCst);
        Self::attach(Arc::new(map), ProcessSlot(0))
    }

    /// Opens the index in the process in place `me`.
    pub(crate) fn attach(map: Arc<Mapping>, me: ProcessSlot) -> Result<Self, StoreError> {
        if map.len() < HEADER_BYTES {
            return Err(StoreError::NotAnIndex);
        }
        let header: &Header = map.at(0);
        let entries = header.entries.load(Relaxed) as usize;
        let bytes = tables_at(entries) + limits::PROCESSES_MAX * table_bytes(entries);
        let me = me.0 as usize;
        if header.magic.load(SeqCst) != MAGIC || map.len() < bytes || me >= limits::PROCESSES_MAX {
            return Err(StoreError::NotAnIndex);
        }
        header.attached[me].store(1, SeqCst);
        Ok(Self { map, me, entries })
    }

    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    pub(crate) fn shared_map(&self) -> Arc<Mapping> {
        self.map.clone()
    }

    fn header(&self) -> &Header {
        self.map.at(0)
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        let index = index as usize;
        (index < self.entries).then(|| self.map.at(HEADER_BYTES + index * size_of::<Entry>()))
    }

    /// The counter of one process for one entry, which exists.
    fn pins(&self, process: usize, index: u32) -> &AtomicU32 {
        let table = tables_at(self.entries) + process * table_bytes(self.entries);
        self.map.at(table + index as usize * size_of::<AtomicU32>())
    }

    /// Writes an entry (node only). Panics if it does not exist: the node decides within its own limits.
    pub(crate) fn write(&self, at: EntryRef, object: ObjectId, state: EntryState, extent: Extent) {
        let entry = self.entry(at.index).expect("the node names entries that exist");
        let begins = matches!(state, EntryState::Free | EntryState::Writing);
        if begins || entry.word.load(SeqCst) >> 32 != u64::from(at.generation) {
            // Readers of the previous life must not take the new place for theirs.
            entry.word.store(word(at, EntryState::Free), SeqCst);
            entry.written.store(0, SeqCst);
        }
        entry.offset.store(extent.offset, SeqCst);
        entry.bytes.store(extent.bytes, SeqCst);
        // What begins its life on disk is on another node's.
        entry.elsewhere.store(if state == EntryState::Spilled { extent.offset } else { 0 }, SeqCst);
        let [high, low] = object.to_words();
        entry.object[0].store(high, Relaxed);
        entry.object[1].store(low, Relaxed);
        entry.last_used.store(self.header().clock.load(Relaxed), Relaxed);
        entry.word.store(word(at, state), SeqCst);
    }

    /// Takes the right to write the extent; there is one writer for each grant.
    pub(crate) fn begin_write(&self, at: EntryRef) -> Result<Extent, StoreError> {
        let refused = StoreError::NotWritable { index: at.index };
        let Some(entry) = self.entry(at.index) else { return Err(refused) };
        let writing = word(at, EntryState::Writing);
        if entry.word.load(SeqCst) != writing
            || entry.written.swap(1, SeqCst) != 0
            || entry.word.load(SeqCst) != writing
        {
            return Err(refused);
        }
        Ok(entry.extent())
    }

    /// Publishes what was written; false if the node has taken the entry away meanwhile.
    pub(crate) fn seal(&self, at: EntryRef) -> bool {
        self.change(at, EntryState::Writing, EntryState::Sealed)
    }

    /// Counts a reader in; gives the place of the object, which it keeps until [`Self::unpin`].
    pub(crate) fn pin(&self, at: EntryRef) -> Result<Extent, PinError> {
        let entry = self.entry(at.index).ok_or(PinError::Gone)?;
        let pins = self.pins(self.me, at.index);
        pins.fetch_add(1, SeqCst);
        let seen = entry.word.load(SeqCst);
        if seen == word(at, EntryState::Sealed) {
            entry.last_used.store(self.header().clock.load(Relaxed), Relaxed);
            return Ok(entry.extent());
        }
        pins.fetch_sub(1, SeqCst);
        let gone = seen >> 32 != u64::from(at.generation) || seen == word(at, EntryState::Free);
        Err(if gone { PinError::Gone } else { PinError::NotResident })
    }

    /// Counts a reader out.
    pub(crate) fn unpin(&self, at: EntryRef) {
        self.pins(self.me, at.index).fetch_sub(1, SeqCst);
    }

    /// Whether any process reads the entry, as of now.
    pub(crate) fn is_pinned(&self, at: EntryRef) -> bool {
        let attached = self.header().attached.iter().enumerate();
        attached
            .filter(|(_, attached)| attached.load(SeqCst) != 0)
            .any(|(process, _)| self.pins(process, at.index).load(SeqCst) != 0)
    }

    /// Keeps new readers out; false, and nothing changed, if there are readers or it is not sealed.
    pub(crate) fn begin_spill(&self, at: EntryRef) -> bool {
        if !self.change(at, EntryState::Sealed, EntryState::Spilling) {
            return false;
        }
        let pinned = self.is_pinned(at);
        if pinned {
            self.change(at, EntryState::Spilling, EntryState::Sealed);
        }
        !pinned
    }

    pub(crate) fn finish_spill(&self, at: EntryRef) -> bool {
        self.change(at, EntryState::Spilling, EntryState::Spilled)
    }

    /// The object is in memory again, at another place.
    pub(crate) fn finish_restore(&self, at: EntryRef, offset: u64) -> bool {
        let Some(entry) = self.entry(at.index) else { return false };
        entry.offset.store(offset, SeqCst);
        let restored = self.change(at, EntryState::Spilled, EntryState::Sealed);
        if restored {
            entry.elsewhere.store(0, SeqCst);
        }
        restored
    }

    /// The process that stands for the node that alone has the bytes of an entry.
    pub(crate) fn elsewhere(&self, at: EntryRef) -> Option<ProcessSlot> {
        let entry = self.entry(at.index)?;
        let place = entry.elsewhere.load(SeqCst).checked_sub(1)?;
        (entry.word.load(SeqCst) == word(at, EntryState::Spilled)).then_some(ProcessSlot(place as u32))
    }

    /// The extent of an entry that is in this state; for the node.
    pub(crate) fn extent(&self, at: EntryRef, state: EntryState) -> Option<Extent> {
        let entry = self.entry(at.index)?;
        (entry.word.load(SeqCst) == word(at, state)).then(|| entry.extent())
    }

    /// The size of an object that was written; `None` if it is gone.
    pub(crate) fn bytes_of(&self, at: EntryRef) -> Option<u64> {
        let entry = self.entry(at.index)?;
        let bytes = entry.extent().bytes;
        let now = entry.word.load(SeqCst);
        let written = [EntryState::Sealed, EntryState::Spilling, EntryState::Spilled];
        written.iter().any(|state| now == word(at, *state)).then_some(bytes)
    }

    fn change(&self, at: EntryRef, from: EntryState, to: EntryState) -> bool {
        let Some(entry) = self.entry(at.index) else { return false };
        entry.word.compare_exchange(word(at, from), word(at, to), SeqCst, SeqCst).is_ok()
    }

    /// Forgets all pins of a process that is dead.
    pub(crate) fn clear_pins(&self, process: ProcessSlot) {
        let process = process.0 as usize;
        self.header().attached[process].store(0, SeqCst);
        let bytes = table_bytes(self.entries);
        self.map.punch(tables_at(self.entries) + process * bytes, bytes);
    }

    /// When the entry was last pinned, on the coarse clock.
    pub(crate) fn last_used(&self, at: EntryRef) -> u32 {
        self.entry(at.index).map_or(0, |entry| entry.last_used.load(Relaxed))
    }

    /// How often memory behind the arena was given back.
    pub(crate) fn give_backs(&self) -> u64 {
        self.header().give_backs.load(SeqCst)
    }

    /// Memory behind the arena was given back.
    pub(crate) fn count_give_back(&self) {
        self.header().give_backs.fetch_add(1, SeqCst);
    }

    /// Moves the coarse clock on.
    pub(crate) fn tick(&self) {
        self.header().clock.fetch_add(1, Relaxed);
    }
}

impl Entry {
    fn extent(&self) -> Extent {
        Extent { offset: self.offset.load(SeqCst), bytes: self.bytes.load(SeqCst) }
    }
}
