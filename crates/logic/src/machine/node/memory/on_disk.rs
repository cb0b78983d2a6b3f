//! The last resort of a request for room: an object that is written and read in the spill file, through mappings.
//!
//! A new object, or one that comes from another node, gets its place once the disk has set the room aside, so that a full
//! disk is an error and not the death of the writer. A spilled object is read where it is.

use super::super::NodeEffect;
use super::super::copies::{CopyState, EntryState};
use super::refusals::{refused, too_large};
use super::spilling::Prospect;
use super::{Memory, Queued, ROOM_WAIT_MICROSECONDS_MAX, Request};
use crate::{Effects, Time};
use aktis_protocol::{EntryRef, ExtentPlace, Failure, ObjectId, ProcessSlot};

impl Memory {
    /// Why an object of this size can be neither in memory nor in the spill file, however empty they are.
    pub(super) fn never_fits(&self, bytes: u64) -> Option<Failure> {
        let file = self.has_file().then(|| self.file.size());
        let fits = bytes <= self.arena.size() || file.is_some_and(|file| bytes <= file);
        (!fits).then(|| too_large(bytes, self.arena.size(), file))
    }

    /// Whether objects may be written and read in the spill file, as far as its bound allows.
    pub(super) fn has_file(&self) -> bool {
        self.file_is_shared || self.file.size() == 0
    }

    pub(super) fn all_spilled(&self) -> String {
        format!("the {} bytes that may be spilled are in use", self.file.size())
    }

    /// What can be done for a head that is larger than the arena.
    pub(super) fn only_on_disk(&mut self, bytes: u64) -> Prospect {
        let head = self.queue.front().expect("the queue has a head");
        let text = head.disk_refusal.clone().unwrap_or_else(|| self.all_spilled());
        self.on_disk_or(|| refused(bytes, &text))
    }

    /// A place in the file for the head, or this failure.
    pub(super) fn on_disk_or(&mut self, failure: impl FnOnce() -> Failure) -> Prospect {
        match self.file_place() {
            Some(file_offset) => Prospect::OnDisk(file_offset),
            None => Prospect::Hopeless(failure()),
        }
    }

    /// A place in the file for the head, if waiting for memory has not helped, and would not.
    pub(super) fn place_after_waiting(&mut self, now: Time) -> Option<u64> {
        let head = self.queue.front().expect("the queue has a head");
        let has_waited = now.0 >= head.since.0 + ROOM_WAIT_MICROSECONDS_MAX;
        // What comes back from disk is there in a moment, and may leave again.
        if self.restoring > 0 || !(has_waited || self.waits_in_vain) {
            return None;
        }
        let file_offset = self.file_place()?;
        self.waits_in_vain = true;
        Some(file_offset)
    }

    /// A place in the file for the head: where it is, if it is there.
    fn file_place(&mut self) -> Option<u64> {
        let head = self.queue.front().expect("the queue has a head");
        if !self.file_is_shared || head.disk_refusal.is_some() {
            return None;
        }
        match head.request {
            Request::Write { bytes, .. } => self.file.allocate(bytes),
            Request::Restore { entry } => {
                let copy = self.copies.get(entry);
                copy.file_offset().or_else(|| self.file.allocate(copy.bytes))
            }
        }
    }

    /// A spilled object is read where it is.
    pub(super) fn map_where_it_is(
        &mut self,
        entry: EntryRef,
        file_offset: u64,
        out: &mut Effects<NodeEffect>,
    ) {
        self.copies.set_state(entry, CopyState::Mapped { file_offset });
        out.push(self.copies.order(entry, EntryState::Sealed));
        self.answer(self.copies.get(entry).object, Ok(entry), out);
    }

    /// The disk has set room aside, or has not. Gives the object if it was to come from another node, and has no copy any
    /// more.
    pub(in super::super) fn on_reserved(
        &mut self,
        now: Time,
        entry: EntryRef,
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, Failure)> {
        let copy = self.copies.find(entry)?;
        let (object, bytes) = (copy.object, copy.bytes);
        match (copy.state.clone(), outcome) {
            (CopyState::Reserving { orphaned: true, .. }, _) => self.free(entry, out),
            (CopyState::Reserving { file_offset, writer, request, .. }, Ok(())) => {
                let place = ExtentPlace::File(file_offset);
                self.copies.set_state(entry, CopyState::Writing { place, writer });
                self.spilled.add(bytes);
                self.grant(entry, writer, request, out);
            }
            (CopyState::Reserving { writer, request, .. }, Err(text)) => {
                self.free(entry, out);
                self.queue_again(now, Request::Write { from: writer, request, object, bytes }, text);
            }
            (CopyState::Fetching { place, peer: Some(peer), orphaned: false }, Ok(())) => {
                self.order_fetch(entry, peer, place, out);
            }
            (CopyState::Fetching { place, peer: Some(peer), orphaned: false }, Err(text)) => {
                self.release(place, bytes, out);
                self.copies.set_state(entry, CopyState::Elsewhere { peer });
                self.queue_again(now, Request::Restore { entry }, text);
            }
            (CopyState::Fetching { place, peer, orphaned }, _) => {
                let gone = Err("nobody wants it, or has it, any more".to_owned());
                return self.on_fetched(now, entry, (place, peer, orphaned), gone, out);
            }
            _ => {}
        }
        self.pump(now, out);
        None
    }

    /// A request for which the disk has no room is the first to get memory.
    fn queue_again(&mut self, now: Time, request: Request, text: String) {
        self.queue.push_front(Queued { request, since: now, disk_refusal: Some(text) });
        self.new_head(now);
    }

    /// A process is dead: what the disk sets aside for it is freed afterwards.
    pub(super) fn forget_reserved_for(&mut self, dead: ProcessSlot) {
        for entry in self.copies.reserved_for(dead) {
            if let CopyState::Reserving { orphaned, .. } = &mut self.copies.get_mut(entry).state {
                *orphaned = true;
            }
        }
    }
}
