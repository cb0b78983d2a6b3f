//! Objects that go to disk and come back: making room, ahead of need or for the head of the queue.

use super::super::copies::CopyState;
use super::super::{NodeEffect, SpillRefusal};
use super::refusals::{all_in_use, refused};
use super::{
    DISK_REST_MICROSECONDS, Memory, PINNED_WAIT_MICROSECONDS_MAX, SPARED_MICROSECONDS, SPILL_EXTRA_PERCENT,
};
use crate::extents::page_bytes;
use crate::{Effects, Time};
use aktis_protocol::{EntryRef, ExtentPlace, Failure, FailureKind, ObjectId};

/// What can be done for a request that does not fit.
pub(super) enum Prospect {
    /// Something will be free, or may be.
    Wait,
    /// There is a place for it in the spill file.
    OnDisk(u64),
    /// Nothing will.
    Hopeless(Failure),
}

/// What came of trying to spill one object.
pub(super) enum Spill {
    Ordered,
    FileFull,
    NoCandidate,
}

impl Memory {
    pub(in super::super) fn on_spilled(
        &mut self,
        now: Time,
        entry: EntryRef,
        outcome: Result<(), SpillRefusal>,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(copy) = self.copies.find(entry) else { return };
        if let CopyState::Retiring { .. } = copy.state {
            return self.on_looked_at(now, entry, outcome.is_ok(), out);
        }
        let CopyState::Spilling { offset, file_offset, orphaned } = copy.state else { return };
        let (object, bytes) = (copy.object, copy.bytes);
        self.spilling_bytes -= page_bytes(bytes);
        match outcome {
            Ok(()) => {
                self.release(ExtentPlace::Arena(offset), bytes, out);
                self.copies.set_state(entry, CopyState::Spilled { file_offset });
                self.spilled.add(bytes);
            }
            Err(refusal) => {
                if let SpillRefusal::Disk(text) = refusal {
                    out.push(NodeEffect::FreeSpilled { file_offset, bytes });
                    self.head_refusal = Some(text);
                    self.disk_rests_until = Time(now.0 + DISK_REST_MICROSECONDS);
                }
                self.file.release(file_offset, bytes);
                self.copies.seal_at(entry, offset, Time(now.0 + SPARED_MICROSECONDS));
            }
        }
        if orphaned {
            self.retire(entry, out);
        }
        self.serve_waiters(now, object, out);
        self.pump(now, out);
    }

    /// Gives the object if it was to come from another node, and has no copy any more.
    pub(in super::super) fn on_restored(
        &mut self,
        now: Time,
        entry: EntryRef,
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, Failure)> {
        let copy = self.copies.find(entry)?;
        if let CopyState::Fetching { place, peer, orphaned } = copy.state {
            return self.on_fetched(now, entry, (place, peer, orphaned), outcome, out);
        }
        let CopyState::Restoring { offset, file_offset, orphaned } = copy.state else { return None };
        let (object, bytes) = (copy.object, copy.bytes);
        self.restoring -= 1;
        match outcome {
            Ok(()) => {
                self.file.release(file_offset, bytes);
                out.push(NodeEffect::FreeSpilled { file_offset, bytes });
                self.restored.add(bytes);
                // Spared for a moment, so that those who asked for it can pin it.
                self.copies.seal_at(entry, offset, Time(now.0 + SPARED_MICROSECONDS));
            }
            Err(text) => {
                self.release(ExtentPlace::Arena(offset), bytes, out);
                self.copies.set_state(entry, CopyState::Spilled { file_offset });
                let text = format!("could not read object {object} back from disk: {text}");
                self.answer(object, Err(Failure::new(FailureKind::Store, text)), out);
            }
        }
        if orphaned {
            self.retire(entry, out);
        }
        self.serve_waiters(now, object, out);
        self.pump(now, out);
        None
    }

    /// Orders spills until, if they all succeed, `bytes` may fit. There may be enough in all and yet not
    /// in one piece: then one more is spilled whenever none is in progress.
    pub(super) fn make_room(&mut self, now: Time, bytes: u64, out: &mut Effects<NodeEffect>) -> Prospect {
        if bytes > self.arena.size() {
            return self.only_on_disk(bytes);
        }
        let mut file_full = false;
        while self.head_refusal.is_none()
            && (self.spilling_bytes == 0 || self.arena.available() + self.spilling_bytes < page_bytes(bytes))
        {
            match self.spill_oldest(now, out) {
                Spill::Ordered => {}
                Spill::FileFull => {
                    file_full = true;
                    break;
                }
                Spill::NoCandidate => break,
            }
        }
        if self.spilling_bytes > 0 || self.is_looking() {
            return Prospect::Wait;
        }
        if let Some(text) = self.head_refusal.clone() {
            return self.on_disk_or(|| refused(bytes, &text));
        }
        if file_full {
            let text = self.all_spilled();
            return self.on_disk_or(|| refused(bytes, &text));
        }
        if self.is_filling() {
            // What comes into memory can leave it afterwards.
            self.head_since = now;
        }
        if let Some(file_offset) = self.place_after_waiting(now) {
            return Prospect::OnDisk(file_offset);
        }
        if now.0 >= self.head_since.0 + PINNED_WAIT_MICROSECONDS_MAX {
            let head = self.queue.front().expect("the queue has a head");
            return Prospect::Hopeless(match &head.disk_refusal {
                Some(text) => refused(bytes, text),
                None => all_in_use(bytes, self.has_file()),
            });
        }
        self.retry_at = Some(Time(now.0 + SPARED_MICROSECONDS));
        Prospect::Wait
    }

    /// Spills before it is urgent, so that writers seldom wait for the disk.
    pub(super) fn spill_ahead(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let staying = |memory: &Self| (memory.arena.used() - memory.spilling_bytes) * 100;
        if now < self.disk_rests_until || staying(self) <= self.arena.size() * self.spill_above_percent {
            return;
        }
        let down_to_percent = self.spill_above_percent.saturating_sub(SPILL_EXTRA_PERCENT);
        while staying(self) > self.arena.size() * down_to_percent {
            if !matches!(self.spill_oldest(now, out), Spill::Ordered) {
                return;
            }
        }
    }

    pub(super) fn spill_oldest(&mut self, now: Time, out: &mut Effects<NodeEffect>) -> Spill {
        let mut outcome = Spill::NoCandidate;
        let mut chosen = None;
        for entry in self.copies.least_recent(now) {
            let bytes = self.copies.get(entry).bytes;
            if let Some(file_offset) = self.file.allocate(bytes) {
                chosen = Some((entry, bytes, file_offset));
                break;
            }
            // A smaller one may still fit.
            outcome = Spill::FileFull;
        }
        let Some((entry, bytes, file_offset)) = chosen else { return outcome };
        let offset = self.copies.begin_spill(entry, file_offset);
        self.spilling_bytes += page_bytes(bytes);
        out.push(NodeEffect::Spill { entry, offset, bytes, file_offset });
        Spill::Ordered
    }
}
