//! The object store's space: extents to write in, spilling to disk when it gets tight, and restoring.
//!
//! Requests for space wait in one queue, first come, first served, whether they want to write a new
//! object or to bring one back. The queue always moves: its head is granted as soon as anything of its
//! size is free, and until then every object that is not in use is spilled, one after another; what is
//! being written ends by itself; what is pinned is tried again and again. A head that nothing of this
//! can help (the disk refuses; everything stays pinned for [`PINNED_WAIT_MICROSECONDS_MAX`]) is denied,
//! so that those behind it get their turn.
//!
//! Invariants:
//! 1. No two copies overlap, in the arena or in the spill file.
//! 2. An entry in use belongs to one copy; its generation differs from that of its last use.
//! 3. Bytes that are being copied to or from disk are not given to anyone else meanwhile.
//! 4. `recency` lists exactly the sealed copies.

use super::copies::{Copies, Copy, CopyState};
use super::{EntryState, NodeConfig, NodeEffect, SpillRefusal};
use crate::extents::{Extents, page_bytes};
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{EntryRef, Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::{BTreeMap, VecDeque};

/// How long an object that was found pinned, and how long one that was just restored, is left alone.
pub const SPARED_MICROSECONDS: u64 = 10_000;
/// How long the first request in the queue waits while everything in memory is pinned.
pub const PINNED_WAIT_MICROSECONDS_MAX: u64 = 30_000_000;
/// How long objects are not spilled ahead of need after the disk refused one.
const DISK_REST_MICROSECONDS: u64 = 1_000_000;
/// Spilling ahead of need begins above this part of the arena, in percent.
const SPILL_ABOVE_PERCENT: u64 = 80;
/// And goes on down to this part.
const SPILL_DOWN_TO_PERCENT: u64 = 70;

/// Somebody wants space.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Write { from: ProcessSlot, request: RequestId, object: ObjectId, bytes: u64 },
    Restore { entry: EntryRef },
}

/// What can be done for a request that does not fit.
enum Prospect {
    /// Something will be free, or may be.
    Wait,
    /// Nothing will.
    Hopeless(Failure),
}

#[derive(Debug)]
pub(super) struct Memory {
    arena: Extents,
    file: Extents,
    pub(super) copies: Copies,
    queue: VecDeque<Request>,
    /// Since when the head of the queue is the head.
    head_since: Time,
    /// What the disk said when space was made for the head.
    head_refusal: Option<String>,
    /// When to try again although nothing has happened.
    retry_at: Option<Time>,
    /// Who waits for an object to be in memory.
    waiters: BTreeMap<ObjectId, Vec<(ProcessSlot, RequestId)>>,
    /// Bytes that will be free when the spills in progress succeed.
    spilling_bytes: u64,
    /// Objects are not spilled ahead of need before.
    disk_rests_until: Time,
    /// Copies that are freed when nobody reads them, and when to look again (`None`: being looked at).
    retiring: BTreeMap<EntryRef, Option<Time>>,
}

/// How sure it is that nobody reads an object that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// Its holders said that they are done with it.
    Released,
    /// A holder died: somebody to whom it passed the object may be reading it.
    AfterDeath,
}

impl Memory {
    pub(super) fn new(config: &NodeConfig) -> Self {
        Self {
            arena: Extents::new(config.store_bytes),
            file: Extents::new(config.spill_bytes_max),
            copies: Copies::new(config.entries_max),
            queue: VecDeque::new(),
            head_since: Time(0),
            head_refusal: None,
            retry_at: None,
            waiters: BTreeMap::new(),
            spilling_bytes: 0,
            disk_rests_until: Time(0),
            retiring: BTreeMap::new(),
        }
    }

    /// Bytes of the arena that are free.
    pub(super) fn available_bytes(&self) -> u64 {
        self.arena.available()
    }

    /// Bytes in use on disk.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.file.used()
    }

    /// The end of the arena that has ever been in use.
    pub(super) fn high_water(&self) -> u64 {
        self.arena.high_water()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.retry_at.into_iter().chain(self.retiring.values().flatten().copied()).min()
    }

    pub(super) fn on_extent_wanted(
        &mut self,
        now: Time,
        from: ProcessSlot,
        request: RequestId,
        object: ObjectId,
        bytes: u64,
        out: &mut Effects<NodeEffect>,
    ) {
        if bytes > self.arena.size() {
            let failure = too_large(bytes, self.arena.size());
            out.push(NodeEffect::Send { to: from, message: FromNode::ExtentDenied { request, failure } });
            return;
        }
        self.enqueue(now, Request::Write { from, request, object, bytes });
        self.pump(now, out);
    }

    /// Returns whether the sender was writing the object.
    pub(super) fn on_sealed(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) -> bool {
        let written = self.copies.written_by(from, Some(object));
        for &entry in &written {
            self.copies.seal(entry, now);
            out.push(self.copies.order(entry, EntryState::Sealed));
        }
        self.pump(now, out);
        !written.is_empty()
    }

    pub(super) fn on_abandoned(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        for entry in self.copies.written_by(from, Some(object)) {
            self.free(entry, out);
        }
        self.pump(now, out);
    }

    pub(super) fn on_restore_wanted(
        &mut self,
        now: Time,
        from: ProcessSlot,
        request: RequestId,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        let entries = self.copies.readable(object);
        if entries.is_empty() {
            let text = format!("the object {object} is not in the store any more");
            let failure = Failure::new(FailureKind::Lost, text);
            let message = FromNode::Restored { request, outcome: Err(failure) };
            out.push(NodeEffect::Send { to: from, message });
            return;
        }
        // An object that is being spilled comes back once that has ended, one way or the other.
        let waiting = self.waiters.entry(object).or_default();
        waiting.push((from, request));
        for entry in entries {
            if let CopyState::Spilled { .. } = self.copies.get(entry).state {
                self.want_restored(now, entry);
            }
        }
        self.answer_if_resident(object, out);
        self.pump(now, out);
    }

    pub(super) fn on_spilled(
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
                self.arena.release(offset, bytes);
                self.copies.set_state(entry, CopyState::Spilled { file_offset });
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
        } else if self.waiters.contains_key(&object) {
            if let CopyState::Spilled { .. } = self.copies.get(entry).state {
                self.want_restored(now, entry);
            }
            self.answer_if_resident(object, out);
        }
        self.pump(now, out);
    }

    pub(super) fn on_restored(
        &mut self,
        now: Time,
        entry: EntryRef,
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(copy) = self.copies.find(entry) else { return };
        let CopyState::Restoring { offset, file_offset, orphaned } = copy.state else { return };
        let (object, bytes) = (copy.object, copy.bytes);
        match outcome {
            Ok(()) => {
                self.file.release(file_offset, bytes);
                out.push(NodeEffect::FreeSpilled { file_offset, bytes });
                // Spared for a moment, so that those who asked for it can pin it.
                self.copies.seal_at(entry, offset, Time(now.0 + SPARED_MICROSECONDS));
            }
            Err(text) => {
                self.arena.release(offset, bytes);
                self.copies.set_state(entry, CopyState::Spilled { file_offset });
                let text = format!("could not read object {object} back from disk: {text}");
                self.answer(object, Err(Failure::new(FailureKind::Store, text)), out);
            }
        }
        if orphaned {
            self.retire(entry, out);
        } else {
            self.answer_if_resident(object, out);
        }
        self.pump(now, out);
    }

    /// The object has been used: it is among the last to be spilled.
    pub(super) fn touch(&mut self, object: ObjectId) {
        self.copies.touch(object);
    }

    /// Nobody can ask for the object any more. A copy that is still being written stays until its
    /// writer is done with it.
    pub(super) fn forget(
        &mut self,
        now: Time,
        object: ObjectId,
        farewell: Farewell,
        out: &mut Effects<NodeEffect>,
    ) {
        for entry in self.copies.readable(object) {
            if self.queue.front() == Some(&(Request::Restore { entry })) {
                self.new_head(now);
            }
            self.queue.retain(|request| *request != Request::Restore { entry });
            match &mut self.copies.get_mut(entry).state {
                CopyState::Spilling { orphaned, .. } | CopyState::Restoring { orphaned, .. } => *orphaned = true,
                _ if farewell == Farewell::AfterDeath => self.retire(entry, out),
                _ => self.free(entry, out),
            }
        }
        let failure = Failure::new(FailureKind::Lost, format!("the object {object} has been released"));
        self.answer(object, Err(failure), out);
        self.pump(now, out);
    }

    /// Frees a copy that is nobody's, but not before those who may be reading it have ended.
    fn retire(&mut self, entry: EntryRef, out: &mut Effects<NodeEffect>) {
        match self.copies.get(entry).state {
            _ => self.free(entry, out),
        }
    }

    /// Asks whether anybody reads a copy that is nobody's: a spill of no bytes takes it out of reach,
    /// unless somebody does.
    fn look_at(&mut self, entry: EntryRef, out: &mut Effects<NodeEffect>) {
        let offset = self.copies.get(entry).arena_offset().expect("it is in memory");
        self.retiring.insert(entry, None);
        out.push(NodeEffect::Spill { entry, offset, bytes: 0, file_offset: 0 });
    }

    fn on_looked_at(&mut self, now: Time, entry: EntryRef, unread: bool, out: &mut Effects<NodeEffect>) {
        if unread {
            self.retiring.remove(&entry);
            self.free(entry, out);
            self.pump(now, out);
        } else {
            self.retiring.insert(entry, Some(Time(now.0 + SPARED_MICROSECONDS)));
        }
    }

    pub(super) fn on_process_died(&mut self, now: Time, dead: ProcessSlot, out: &mut Effects<NodeEffect>) {
        self.queue.retain(|request| !matches!(request, Request::Write { from, .. } if *from == dead));
        for waiting in self.waiters.values_mut() {
            waiting.retain(|(from, _)| *from != dead);
        }
        self.waiters.retain(|_, waiting| !waiting.is_empty());
        let copies = &self.copies;
        let waiters = &self.waiters;
        self.queue.retain(|request| match request {
            Request::Restore { entry } => waiters.contains_key(&copies.get(*entry).object),
            Request::Write { .. } => true,
        });
        for entry in self.copies.written_by(dead, None) {
            self.free(entry, out);
        }
        self.new_head(now);
        self.pump(now, out);
    }

    pub(super) fn on_ticked(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let due = |again: &Option<Time>| again.is_some_and(|at| at <= now);
        let again = self.retiring.iter().filter(|(_, again)| due(again)).map(|(&entry, _)| entry);
        for entry in again.collect::<Vec<_>>() {
            self.look_at(entry, out);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.pump(now, out);
        }
    }

    fn enqueue(&mut self, now: Time, request: Request) {
        if self.queue.is_empty() {
            self.new_head(now);
        }
        self.queue.push_back(request);
    }

    fn new_head(&mut self, now: Time) {
        self.head_since = now;
        self.head_refusal = None;
    }

    /// One restore per object, however many wait for it.
    fn want_restored(&mut self, now: Time, entry: EntryRef) {
        if !self.queue.contains(&Request::Restore { entry }) {
            self.enqueue(now, Request::Restore { entry });
        }
    }

    /// Grants what fits, from the head of the queue, and makes room for what does not.
    fn pump(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        self.retry_at = None;
        while let Some(head) = self.queue.front() {
            let bytes = match head {
                Request::Write { bytes, .. } => *bytes,
                Request::Restore { entry } => self.copies.get(*entry).bytes,
            };
            let outcome = match self.arena.allocate(bytes) {
                Some(offset) => Ok(offset),
                None => match self.make_room(now, bytes, out) {
                    Prospect::Wait => break,
                    Prospect::Hopeless(failure) => Err(failure),
                },
            };
            let request = self.queue.pop_front().expect("the queue has a head");
            self.new_head(now);
            self.settle(request, outcome, out);
        }
        self.spill_ahead(now, out);
    }

    fn settle(&mut self, request: Request, outcome: Result<u64, Failure>, out: &mut Effects<NodeEffect>) {
        match (request, outcome) {
            (Request::Write { from, request, object, bytes }, Ok(offset)) => {
                let Some(entry) = self.copies.add(object, bytes, offset, from) else {
                    self.arena.release(offset, bytes);
                    let failure = too_many(self.copies.entries_max());
                    let message = FromNode::ExtentDenied { request, failure };
                    return out.push(NodeEffect::Send { to: from, message });
                };
                out.push(self.copies.order(entry, EntryState::Writing));
                let message = FromNode::ExtentGranted { request, entry };
                out.push(NodeEffect::Send { to: from, message });
            }
            (Request::Write { from, request, .. }, Err(failure)) => {
                let message = FromNode::ExtentDenied { request, failure };
                out.push(NodeEffect::Send { to: from, message });
            }
            (Request::Restore { entry }, Ok(offset)) => {
                let bytes = self.copies.get(entry).bytes;
                let CopyState::Spilled { file_offset } = self.copies.get(entry).state else {
                    unreachable!("only spilled copies are queued to be restored")
                };
                let state = CopyState::Restoring { offset, file_offset, orphaned: false };
                self.copies.set_state(entry, state);
                out.push(NodeEffect::Restore { entry, file_offset, bytes, offset });
            }
            (Request::Restore { entry }, Err(failure)) => {
                let object = self.copies.get(entry).object;
                self.answer(object, Err(failure), out);
            }
        }
    }

    /// Orders spills until, if they all succeed, `bytes` may fit. There may be enough in all and yet not
    /// in one piece: then one more is spilled whenever none is in progress.
    fn make_room(&mut self, now: Time, bytes: u64, out: &mut Effects<NodeEffect>) -> Prospect {
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
        if self.spilling_bytes > 0 {
            return Prospect::Wait;
        }
        let patient = now.0 < self.head_since.0 + PINNED_WAIT_MICROSECONDS_MAX;
        if patient && !self.retiring.is_empty() {
            self.retry_at = Some(Time(now.0 + SPARED_MICROSECONDS));
            return Prospect::Wait;
        }
        if let Some(text) = &self.head_refusal {
            return Prospect::Hopeless(refused(bytes, text));
        }
        if file_full {
            let text = format!("the {} bytes that may be spilled are in use", self.file.size());
            return Prospect::Hopeless(refused(bytes, &text));
        }
        if !patient {
            return Prospect::Hopeless(all_in_use(bytes));
        }
        self.retry_at = Some(Time(now.0 + SPARED_MICROSECONDS));
        Prospect::Wait
    }

    /// Spills before it is urgent, so that writers seldom wait for the disk.
    fn spill_ahead(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let staying = |memory: &Self| (memory.arena.used() - memory.spilling_bytes) * 100;
        if now < self.disk_rests_until || staying(self) <= self.arena.size() * SPILL_ABOVE_PERCENT {
            return;
        }
        while staying(self) > self.arena.size() * SPILL_DOWN_TO_PERCENT {
            if !matches!(self.spill_oldest(now, out), Spill::Ordered) {
                return;
            }
        }
    }

    fn spill_oldest(&mut self, now: Time, out: &mut Effects<NodeEffect>) -> Spill {
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

    /// Frees a copy that nobody copies to or from disk.
    fn free(&mut self, entry: EntryRef, out: &mut Effects<NodeEffect>) {
        let order = self.copies.order(entry, EntryState::Free);
        let copy = self.copies.remove(entry);
        match copy.state {
            CopyState::Writing { offset, .. }
            | CopyState::Sealed { offset, .. }
            | CopyState::Retiring { offset } => {
                self.arena.release(offset, copy.bytes);
            }
            CopyState::Spilled { file_offset } => {
                self.file.release(file_offset, copy.bytes);
                out.push(NodeEffect::FreeSpilled { file_offset, bytes: copy.bytes });
            }
            CopyState::Spilling { .. } | CopyState::Restoring { .. } => {
                unreachable!("memory invariant 3: {entry:?} is being copied")
            }
        }
        out.push(order);
    }

    fn answer_if_resident(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let sealed = |entry: &EntryRef| matches!(self.copies.get(*entry).state, CopyState::Sealed { .. });
        if self.copies.readable(object).iter().all(sealed) {
            self.copies.touch(object);
            self.answer(object, Ok(()), out);
        }
    }

    fn answer(&mut self, object: ObjectId, outcome: Result<(), Failure>, out: &mut Effects<NodeEffect>) {
        for (to, request) in self.waiters.remove(&object).unwrap_or_default() {
            let message = FromNode::Restored { request, outcome: outcome.clone() };
            out.push(NodeEffect::Send { to, message });
        }
    }

    pub(super) fn check(&self, is_live: impl Fn(ProcessSlot) -> bool) {
        let in_arena = |copy: &Copy| copy.arena_offset().map(|offset| (offset, copy.bytes));
        let on_disk = |copy: &Copy| copy.file_offset().map(|offset| (offset, copy.bytes));
        self.arena.check(self.copies.iter().filter_map(in_arena));
        self.file.check(self.copies.iter().filter_map(on_disk));
        let spilling = |copy: &&Copy| matches!(copy.state, CopyState::Spilling { .. });
        let spilling_bytes: u64 =
            self.copies.iter().filter(spilling).map(|copy| page_bytes(copy.bytes)).sum();
        assert_eq!(spilling_bytes, self.spilling_bytes);
        for copy in self.copies.iter() {
            let retiring = matches!(copy.state, CopyState::Retiring { .. });
            assert_eq!(retiring, self.retiring.contains_key(&copy.entry), "{} retires", copy.object);
            if let CopyState::Writing { writer, .. } = copy.state {
                assert!(is_live(writer), "{} is written by the dead process {writer}", copy.object);
            }
        }
        let waiting = self.waiters.values().flatten().map(|(from, _)| *from);
        let writing = self.queue.iter().filter_map(|request| match request {
            Request::Write { from, .. } => Some(*from),
            Request::Restore { .. } => None,
        });
        assert!(waiting.chain(writing).all(is_live), "a dead process waits for memory");
        let moves = self.queue.is_empty() || self.spilling_bytes > 0 || self.retry_at.is_some();
        assert!(moves, "requests wait for memory and nothing is under way");
        self.copies.check();
    }
}

/// What came of trying to spill one object.
enum Spill {
    Ordered,
    FileFull,
    NoCandidate,
}

fn too_large(bytes: u64, size: u64) -> Failure {
    Failure::new(
        FailureKind::Store,
        format!(
            "an object of {bytes} bytes is larger than the object store of {size} bytes\n\
             hint: start the session with a larger store_bytes, or split the object"
        ),
    )
}

fn too_many(entries: u32) -> Failure {
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store holds {entries} objects, which is its limit\n\
             hint: drop references that are not needed, or put several values into one object"
        ),
    )
}

fn refused(bytes: u64, text: &str) -> Failure {
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store is full, and {bytes} bytes could not be freed by spilling: {text}\n\
             hint: drop references that are not needed, raise store_bytes or spill_bytes_max, \
             or choose a spill_directory with more space"
        ),
    )
}

fn all_in_use(bytes: u64) -> Failure {
    let seconds = PINNED_WAIT_MICROSECONDS_MAX / 1_000_000;
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store is full of values in use; {bytes} bytes did not get free within {seconds} s\n\
             hint: drop arrays that were read from the store before making new ones, or raise store_bytes"
        ),
    )
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
