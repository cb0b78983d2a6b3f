//! The memory of large objects, shared by all processes of a node and read without a copy.
//!
//! Two memfds: the index says where each object lies (see [`crate::index`]), the arena holds the bytes.
//! Neither uses `/dev/shm`: its size and presence do not matter. Memory is taken page by page as objects are
//! written; a store that could never fit into the machine's memory is refused at the start.
//!
//! An object for which there is no memory lies in the spill file instead, if the node says so. Whoever writes or reads
//! it maps its part of that file; its entry is like any other, but for its place ([`ExtentPlace`]).
//!
//! Invariants:
//! 1. The node decides where objects lie; extents of live objects never overlap.
//! 2. Objects start at multiples of [`EXTENT_ALIGNMENT`], so that any numeric type may be read in place.
//! 3. While a [`Pin`] lives, its bytes stay where and what they are.
//! 4. While an [`ExtentWriter`] lives, nobody else touches its bytes.

#![allow(unsafe_code)]

use crate::error::{PinError, StoreError};
use crate::index::{EntryState, Extent, Index, create_mapping};
use crate::map::Mapping;
use crate::memory::memory_bytes;
use crate::touched::TouchedPages;
use crate::view::{Access, FileView};
use aktis_protocol::{EntryRef, ExtentPlace, ObjectId, ProcessSlot};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::Advice;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Extents start at multiples of this: a page, so that their memory can be given back.
pub const EXTENT_ALIGNMENT: u64 = 4096;

/// The object store of a node, as one process sees it.
pub struct Arena {
    index: Index,
    map: Arc<Mapping>,
    touched: Arc<TouchedPages>,
    /// The spill file, where objects lie for which there is no memory.
    file: Option<Arc<OwnedFd>>,
    /// Goes with the last that is used of this store, here.
    _anchor: Option<Anchor>,
}

/// Something that is kept for as long as anything of a store is used.
pub type Anchor = Arc<dyn std::any::Any + Send + Sync>;

impl Arena {
    /// Makes an object store for `bytes` bytes in `entries` objects, in the node's process (place 0).
    pub fn create(bytes: u64, entries: u32) -> Result<Self, StoreError> {
        if bytes < EXTENT_ALIGNMENT {
            return Err(StoreError::TooSmall { bytes, least: EXTENT_ALIGNMENT });
        }
        let memory = memory_bytes();
        if bytes > memory {
            return Err(StoreError::LargerThanMemory { bytes, memory });
        }
        let index = Index::create(entries)?;
        let map = Arc::new(create_mapping("aktis-arena", bytes)?);
        Ok(Self { index, touched: Arc::new(TouchedPages::new(pages(bytes))), map, file: None, _anchor: None })
    }

    /// Opens the object store that the node made, in the process in place `me`. The anchor is dropped when nothing of
    /// the store is used here any more.
    pub fn open(
        index_fd: OwnedFd,
        arena_fd: OwnedFd,
        me: ProcessSlot,
        anchor: Option<Anchor>,
    ) -> Result<Self, StoreError> {
        let refused = |source| StoreError::Refused { bytes: 0, source };
        let map = |fd| Mapping::from_fd(fd).map(Arc::new).map_err(refused);
        let index = Index::attach(map(index_fd)?, me)?;
        let map = map(arena_fd)?;
        Ok(Self {
            index,
            touched: Arc::new(TouchedPages::new(pages(map.len() as u64))),
            map,
            file: None,
            _anchor: anchor,
        })
    }

    /// The same store, with a spill file in which objects may lie.
    pub fn with_file(self, file: Option<Arc<OwnedFd>>) -> Self {
        Self { file, ..self }
    }

    /// The same store for another place of this very process, which counts its pins by itself.
    pub fn as_process(&self, me: ProcessSlot, anchor: Anchor) -> Result<Self, StoreError> {
        let index = Index::attach(self.index.shared_map(), me)?;
        let (map, touched, file) = (self.map.clone(), self.touched.clone(), self.file.clone());
        Ok(Self { index, map, touched, file, _anchor: Some(anchor) })
    }

    /// The memfd of the index, to be sent to another process.
    pub fn index_fd(&self) -> BorrowedFd<'_> {
        self.index.map().fd()
    }

    /// The memfd of the objects' bytes, to be sent to another process.
    pub fn arena_fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// The spill file, to be sent to another process; none if it could not be made.
    pub fn file_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// The memory of the objects.
    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    /// The room for objects.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Writes an entry of the index. Only the node does so; it never moves or frees what is pinned. Of an object that
    /// is neither in memory nor on disk here, the offset is one more than the place of the process that stands for the node that has it.
    /// Else it is the word of an [`ExtentPlace`].
    pub fn write_entry(&self, entry: EntryRef, object: ObjectId, state: EntryState, offset: u64, bytes: u64) {
        let elsewhere = state == EntryState::Spilled;
        debug_assert!(elsewhere || offset.is_multiple_of(EXTENT_ALIGNMENT), "extents are aligned");
        self.index.write(entry, object, state, Extent { offset, bytes });
    }

    /// Marks a sealed object as about to lose its memory, so that no new reader comes. False, and the object stays
    /// as it is, if somebody has it pinned or it is not sealed. Only the node calls this.
    pub fn begin_spill(&self, entry: EntryRef) -> bool {
        self.index.begin_spill(entry)
    }

    /// The object is on disk only: its memory may be used for others. Only the node calls this.
    pub fn finish_spill(&self, entry: EntryRef) {
        self.index.finish_spill(entry);
    }

    /// Forgets all pins of a process that is dead. Only the node calls this.
    pub fn clear_pins(&self, process: ProcessSlot) {
        self.index.clear_pins(process);
    }

    /// Gives the memory behind a part of the arena back to the system, in which no object lies. Only the node calls this, and
    /// before it grants that part to anybody.
    pub fn give_back(&self, offset: u64, bytes: u64) {
        assert!(self.contains(Extent { offset, bytes }), "inside the arena");
        self.map.punch(offset as usize, bytes as usize);
        self.index.count_give_back();
    }

    /// The size of an object that was written, in memory or not; `None` if it is gone.
    pub fn size_of(&self, entry: EntryRef) -> Option<u64> {
        self.index.bytes_of(entry)
    }

    /// The process that stands for the node that alone has the object; none if this node has it.
    pub fn elsewhere(&self, entry: EntryRef) -> Option<ProcessSlot> {
        self.index.elsewhere(entry)
    }

    /// Whether any process has the object pinned, as of now.
    pub fn is_pinned(&self, entry: EntryRef) -> bool {
        self.index.is_pinned(entry)
    }

    /// When the object was last pinned or written, on the coarse clock that [`Self::tick`] moves.
    pub fn last_used(&self, entry: EntryRef) -> u32 {
        self.index.last_used(entry)
    }

    /// Moves the coarse clock on. Only the node calls this.
    pub fn tick(&self) {
        self.index.tick();
    }

    /// Opens the granted memory of an object for writing: once, and only until it is sealed.
    pub fn write(self: &Arc<Self>, entry: EntryRef) -> Result<ExtentWriter, StoreError> {
        let extent = self.index.begin_write(entry)?;
        let view = if self.contains(extent) {
            self.touch(extent)?;
            None
        } else {
            Some(self.view_for_writing(entry, extent)?)
        };
        Ok(ExtentWriter { arena: self.clone(), entry, extent, view })
    }

    /// Holds on to a sealed object for reading.
    pub fn pin(self: &Arc<Self>, entry: EntryRef) -> Result<Pin, PinError> {
        let extent = self.index.pin(entry)?;
        let mut pin = Pin { arena: self.clone(), entry, extent, view: None };
        if !self.contains(extent) {
            // If that fails, dropping the pin counts this reader out.
            pin.view = Some(self.view(extent, Access::Read).map_err(unreadable)?);
        }
        Ok(pin)
    }

    /// Maps an object that lies in the spill file.
    fn view(&self, extent: Extent, access: Access) -> Result<FileView, Errno> {
        let (ExtentPlace::File(offset), Some(file)) = (ExtentPlace::from_word(extent.offset), &self.file)
        else {
            return Err(Errno::BADF);
        };
        let view = FileView::map(file, offset, extent.bytes, access)?;
        // The pages of an object that is larger than the arena may not all fit into memory at once.
        if extent.bytes <= self.bytes() {
            view.populate(access)?;
        }
        Ok(view)
    }

    fn view_for_writing(&self, entry: EntryRef, extent: Extent) -> Result<FileView, StoreError> {
        self.view(extent, Access::Write).map_err(|errno| match errno {
            Errno::BADF => StoreError::NotWritable { index: entry.index },
            _ => StoreError::File { bytes: extent.bytes, source: errno.into() },
        })
    }

    /// Prepares a range for writing: a fault for each page costs about as much again as writing the page, and a
    /// fault for which there is no memory kills the process.
    fn touch(&self, extent: Extent) -> Result<(), StoreError> {
        match self.populate(extent) {
            Err(Errno::NOMEM | Errno::FAULT) => Err(StoreError::OutOfMemory { bytes: extent.bytes }),
            // An old kernel cannot; then there is a fault for each page.
            _ => Ok(()),
        }
    }

    /// Puts memory behind those pages of a range that this process has not touched, without changing what they hold.
    pub(crate) fn populate(&self, extent: Extent) -> Result<(), Errno> {
        assert!(self.contains(extent), "inside the arena");
        self.touched.renew(self.index.give_backs());
        let mut next = extent.offset / EXTENT_ALIGNMENT;
        let end = pages(extent.offset + extent.bytes);
        while let Some(run) = self.touched.first_untouched(next..end) {
            let offset = run.start * EXTENT_ALIGNMENT;
            let bytes = (run.end * EXTENT_ALIGNMENT).min(self.bytes()) - offset;
            // SAFETY: inside the mapping; this advice leaves the contents as they are.
            unsafe {
                let start = self.map.base().add(offset as usize);
                rustix::mm::madvise(start.cast(), bytes as usize, Advice::LinuxPopulateWrite)?;
            }
            next = run.end;
            self.touched.mark(run);
        }
        Ok(())
    }

    /// Fills a place that the node has set aside for an object that is not in memory, and marks the object as sealed
    /// there. `offset` is the word of an [`ExtentPlace`].
    pub fn refill(
        &self,
        entry: EntryRef,
        offset: u64,
        fill: impl FnOnce(&mut [u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let not_spilled = StoreError::NotWritable { index: entry.index };
        let Some(Extent { bytes, .. }) = self.index.extent(entry, EntryState::Spilled) else {
            return Err(not_spilled);
        };
        let extent = Extent { offset, bytes };
        if !self.contains(extent) {
            fill(self.view_for_writing(entry, extent)?.bytes_mut())?;
            return if self.index.finish_restore(entry, offset) { Ok(()) } else { Err(not_spilled) };
        }
        self.touch(extent)?;
        // SAFETY: in bounds; the node has set this range aside for this object, which nobody can pin
        // or write while it is spilled.
        let place =
            unsafe { std::slice::from_raw_parts_mut(self.map.base().add(offset as usize), bytes as usize) };
        fill(place)?;
        if self.index.finish_restore(entry, offset) { Ok(()) } else { Err(not_spilled) }
    }

    fn contains(&self, extent: Extent) -> bool {
        extent.offset.checked_add(extent.bytes).is_some_and(|end| end <= self.map.len() as u64)
    }
}

/// The memory of one object while it is written. Dropped without [`Self::seal`], the object stays unwritten: tell the
/// node that it is abandoned.
pub struct ExtentWriter {
    arena: Arc<Arena>,
    entry: EntryRef,
    extent: Extent,
    /// The object's part of the spill file, if it lies there.
    view: Option<FileView>,
}

impl ExtentWriter {
    /// The object's entry.
    pub fn entry(&self) -> EntryRef {
        self.entry
    }

    /// Publishes the object: from now on it can be pinned, and never changes. The node must be told too.
    pub fn seal(self) -> EntryRef {
        self.arena.index.seal(self.entry);
        self.entry
    }
}

impl Deref for ExtentWriter {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.view {
            None => self.arena.map.bytes(self.extent.offset as usize, self.extent.bytes as usize),
            Some(view) => view.bytes(),
        }
    }
}

impl DerefMut for ExtentWriter {
    fn deref_mut(&mut self) -> &mut [u8] {
        if let Some(view) = &mut self.view {
            return view.bytes_mut();
        }
        let start = self.extent.offset as usize;
        // SAFETY: in bounds (checked when it was opened). The index admits one writer for each grant, readers only
        // after the seal, which consumes the writer; and the node gives an extent to one object at a time.
        unsafe {
            std::slice::from_raw_parts_mut(self.arena.map.base().add(start), self.extent.bytes as usize)
        }
    }
}

/// A hold on a sealed object: its bytes can be read in place for as long as this lives.
pub struct Pin {
    arena: Arc<Arena>,
    entry: EntryRef,
    extent: Extent,
    /// The object's part of the spill file, if it lies there.
    view: Option<FileView>,
}

impl Pin {
    /// The object's entry.
    pub fn entry(&self) -> EntryRef {
        self.entry
    }
}

impl Deref for Pin {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.view {
            None => self.arena.map.bytes(self.extent.offset as usize, self.extent.bytes as usize),
            Some(view) => view.bytes(),
        }
    }
}

impl AsRef<[u8]> for Pin {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.arena.index.unpin(self.entry);
    }
}

/// What a reader is told when its object cannot be mapped.
fn unreadable(errno: Errno) -> PinError {
    match errno {
        // Neither in the arena nor in a file that this process has.
        Errno::BADF => PinError::Gone,
        _ => PinError::Unreadable(std::io::Error::from(errno).kind()),
    }
}

/// How many pages `bytes` bytes lie on.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(EXTENT_ALIGNMENT)
}
