//! The object store's space: extents to write in, spilling to disk when it gets tight, and restoring.
//!
//! Requests for space wait in one queue, first come, first served, whether they want to write a new
//! object or to bring one back. The queue always moves: its head is granted as soon as anything of its
//! size is free, and until then every object that is not in use is spilled, one after another; what is
//! being written ends by itself; what is pinned is tried again and again. A head that nothing of this helps within
//! [`ROOM_WAIT_MICROSECONDS_MAX`] gets a place in the spill file, where the object is written and read through mappings
//! (`on_disk`): tasks that fit into the store one by one never wait for each other's memory. Only if that place is not to
//! be had either (the disk refuses; `spill_bytes_max` is reached), the head is denied, at once or after
//! [`PINNED_WAIT_MICROSECONDS_MAX`], so that those behind it get their turn. Objects of other nodes come into the
//! queue a few at a time (`pulls`).
//!
//! Invariants:
//! 1. No two copies overlap, in the arena or in the spill file.
//! 2. An entry in use belongs to one copy; its generation differs from that of its last use.
//! 3. Bytes that are being copied to or from disk are not given to anyone else meanwhile.
//! 4. `recency` lists exactly the sealed copies in memory.

mod elsewhere;
mod on_disk;
mod pulls;
mod reclaim;
mod refusals;
mod retiring;
mod spilling;

use pulls::Pulls;
use reclaim::Reclaim;
use refusals::too_many;
use retiring::Retiring;
use spilling::Prospect;

use super::copies::{Copies, Copy, CopyState};
use super::{EntryState, NodeConfig, NodeEffect};
use crate::extents::{Extents, page_bytes};
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::state::StoreRow;
use aktis_protocol::{EntryRef, ExtentPlace, Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::{BTreeMap, VecDeque};

/// How long an object that was found pinned, and how long one that was just restored, is left alone.
pub const SPARED_MICROSECONDS: u64 = 10_000;
/// How long a request waits for memory that others use before it gets a place in the spill file. Later requests do not
/// wait at all until something in memory was freed.
pub const ROOM_WAIT_MICROSECONDS_MAX: u64 = 100_000;
/// How long the first request in the queue waits while everything in memory is pinned and it cannot get a place in the
/// spill file.
pub const PINNED_WAIT_MICROSECONDS_MAX: u64 = 30_000_000;
/// How long objects are not spilled ahead of need after the disk refused one.
const DISK_REST_MICROSECONDS: u64 = 1_000_000;
/// Spilling ahead of need begins above this part of the arena, in percent, unless told otherwise.
pub const SPILL_ABOVE_PERCENT_DEFAULT: u32 = 80;
/// And goes on until this part of it is free besides.
const SPILL_EXTRA_PERCENT: u64 = 10;

/// Somebody wants space.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Write { from: ProcessSlot, request: RequestId, object: ObjectId, bytes: u64 },
    Restore { entry: EntryRef },
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Queued {
    request: Request,
    since: Time,
    /// What the disk said when this was to get a place there.
    disk_refusal: Option<String>,
}

#[derive(Debug)]
pub(super) struct Memory {
    arena: Extents,
    file: Extents,
    pub(super) copies: Copies,
    /// Whether objects may be written and read in the spill file.
    file_is_shared: bool,
    queue: VecDeque<Queued>,
    /// Since when the head of the queue is the head.
    head_since: Time,
    /// What the disk said when space was made for the head.
    head_refusal: Option<String>,
    /// A request has waited in vain, and nothing in memory was freed since.
    waits_in_vain: bool,
    /// When to try again although nothing has happened.
    retry_at: Option<Time>,
    /// Who waits for an object to be in memory.
    waiters: BTreeMap<ObjectId, Vec<(ProcessSlot, RequestId)>>,
    /// Bytes that will be free when the spills in progress succeed.
    spilling_bytes: u64,
    /// Objects are spilled ahead of need above this part of the arena.
    spill_above_percent: u64,
    /// Objects are not spilled ahead of need before.
    disk_rests_until: Time,
    /// Copies that are freed when nobody reads them.
    retiring: BTreeMap<EntryRef, Retiring>,
    /// Objects of other nodes that are wanted.
    pulls: Pulls,
    /// Freed memory that goes back to the system.
    reclaim: Reclaim,
    /// Objects that are being copied back from disk.
    restoring: usize,
    /// What ever went to disk, came back, and came from other nodes.
    spilled: Moved,
    restored: Moved,
    pulled: Moved,
}

/// Objects that were copied, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    objects: u64,
    bytes: u64,
}

impl Moved {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

impl Memory {
    pub(super) fn new(config: &NodeConfig) -> Self {
        Self {
            arena: Extents::new(config.store_bytes),
            file: Extents::new(config.spill_bytes_max),
            copies: Copies::new(config.entries_max),
            file_is_shared: config.spill_file_is_shared,
            queue: VecDeque::new(),
            head_since: Time(0),
            head_refusal: None,
            waits_in_vain: false,
            retry_at: None,
            waiters: BTreeMap::new(),
            spilling_bytes: 0,
            spill_above_percent: u64::from(config.spill_above_percent),
            disk_rests_until: Time(0),
            retiring: BTreeMap::new(),
            pulls: Pulls::default(),
            reclaim: Reclaim::default(),
            restoring: 0,
            spilled: Moved::default(),
            restored: Moved::default(),
            pulled: Moved::default(),
        }
    }

    /// How things stand.
    pub(super) fn row(&self) -> StoreRow {
        StoreRow {
            capacity: self.arena.size(),
            used: self.arena.used(),
            objects: self.copies.len() as u64,
            objects_in_memory: self.copies.iter().filter(|copy| copy.arena_offset().is_some()).count() as u64,
            on_disk: self.spilled_bytes(),
            spilled_objects: self.spilled.objects,
            spilled_bytes: self.spilled.bytes,
            restored_objects: self.restored.objects,
            restored_bytes: self.restored.bytes,
            pulled_objects: self.pulled.objects,
            pulled_bytes: self.pulled.bytes,
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
        self.retry_at.into_iter().chain(self.look_deadlines()).chain(self.reclaim.next_wakeup()).min()
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
        if let Some(failure) = self.never_fits(bytes) {
            let message = FromNode::ExtentDenied { request, failure };
            return out.push(NodeEffect::Send { to: from, message });
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
        self.serve_waiters(now, object, out);
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
        let bytes = entries.iter().map(|entry| self.copies.get(*entry).bytes).max().unwrap_or(0);
        if let Some(failure) = self.never_fits(bytes) {
            // It is known here, and others may read it where it is.
            let message = FromNode::Restored { request, outcome: Err(failure) };
            return out.push(NodeEffect::Send { to: from, message });
        }
        // An object that is being spilled comes back once that has ended, one way or the other.
        let waiting = self.waiters.entry(object).or_default();
        waiting.push((from, request));
        self.serve_waiters(now, object, out);
        self.pump(now, out);
    }

    /// The object has been used: it is among the last to be spilled.
    pub(super) fn touch(&mut self, object: ObjectId) {
        self.copies.touch(object);
    }

    /// Gives the objects whose last copy was with the dead.
    pub(super) fn on_process_died(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) -> Vec<(ObjectId, Failure)> {
        self.queue.retain(|queued| !matches!(queued.request, Request::Write { from, .. } if from == dead));
        for waiting in self.waiters.values_mut() {
            waiting.retain(|(from, _)| *from != dead);
        }
        self.waiters.retain(|_, waiting| !waiting.is_empty());
        let copies = &self.copies;
        let waiters = &self.waiters;
        self.queue.retain(|queued| match queued.request {
            Request::Restore { entry } => waiters.contains_key(&copies.get(entry).object),
            Request::Write { .. } => true,
        });
        for entry in self.copies.written_by(dead, None) {
            self.free(entry, out);
        }
        self.forget_reserved_for(dead);
        let lost = self.on_peer_died(now, dead, out);
        self.new_head(now);
        self.pump(now, out);
        lost
    }

    pub(super) fn on_ticked(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        self.on_look_due(now, out);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.pump(now, out);
        }
        self.reclaim(now, out);
    }

    fn enqueue(&mut self, now: Time, request: Request) {
        if self.queue.is_empty() {
            self.new_head(now);
        }
        self.queue.push_back(Queued { request, since: now, disk_refusal: None });
    }

    fn is_queued(&self, entry: EntryRef) -> bool {
        self.queue.iter().any(|queued| queued.request == Request::Restore { entry })
    }

    fn unqueue(&mut self, entry: EntryRef) {
        self.queue.retain(|queued| queued.request != Request::Restore { entry });
    }

    fn new_head(&mut self, now: Time) {
        self.head_since = now;
        self.head_refusal = None;
    }

    /// One restore per object, however many wait for it.
    fn want_restored(&mut self, now: Time, entry: EntryRef) {
        if !self.is_queued(entry) {
            self.enqueue(now, Request::Restore { entry });
        }
    }

    /// Grants what fits, from the head of the queue, and makes room for what does not.
    fn pump(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        self.retry_at = None;
        loop {
            self.admit_pulls(now);
            let Some(head) = self.queue.front() else { break };
            let bytes = match head.request {
                Request::Write { bytes, .. } => bytes,
                Request::Restore { entry } => self.copies.get(entry).bytes,
            };
            let outcome = match self.arena.allocate(bytes) {
                Some(offset) => Ok(ExtentPlace::Arena(offset)),
                None => match self.make_room(now, bytes, out) {
                    Prospect::Wait => break,
                    Prospect::OnDisk(file_offset) => Ok(ExtentPlace::File(file_offset)),
                    Prospect::Hopeless(failure) => Err(failure),
                },
            };
            let head = self.queue.pop_front().expect("the queue has a head");
            self.new_head(now);
            self.settle(head.request, outcome, out);
        }
        self.spill_ahead(now, out);
        self.watch_freed(now);
    }

    fn settle(
        &mut self,
        request: Request,
        outcome: Result<ExtentPlace, Failure>,
        out: &mut Effects<NodeEffect>,
    ) {
        match (request, outcome) {
            (Request::Write { from, request, object, bytes }, Ok(place)) => {
                let state = match place {
                    ExtentPlace::Arena(_) => CopyState::Writing { place, writer: from },
                    ExtentPlace::File(file_offset) => {
                        CopyState::Reserving { file_offset, writer: from, request, orphaned: false }
                    }
                };
                let Some(entry) = self.copies.add(object, bytes, state) else {
                    self.release(place, bytes, out);
                    let failure = too_many(self.copies.entries_max());
                    let message = FromNode::ExtentDenied { request, failure };
                    return out.push(NodeEffect::Send { to: from, message });
                };
                match place {
                    ExtentPlace::Arena(_) => self.grant(entry, from, request, out),
                    ExtentPlace::File(file_offset) => {
                        out.push(NodeEffect::Reserve { entry, file_offset, bytes });
                    }
                }
            }
            (Request::Write { from, request, .. }, Err(failure)) => {
                let message = FromNode::ExtentDenied { request, failure };
                out.push(NodeEffect::Send { to: from, message });
            }
            (Request::Restore { entry }, Ok(place)) => {
                let bytes = self.copies.get(entry).bytes;
                match (self.copies.get(entry).state.clone(), place) {
                    (CopyState::Spilled { file_offset }, ExtentPlace::Arena(offset)) => {
                        let state = CopyState::Restoring { offset, file_offset, orphaned: false };
                        self.copies.set_state(entry, state);
                        self.restoring += 1;
                        out.push(NodeEffect::Restore { entry, file_offset, bytes, offset });
                    }
                    (CopyState::Spilled { .. }, ExtentPlace::File(file_offset)) => {
                        self.map_where_it_is(entry, file_offset, out);
                    }
                    (CopyState::Elsewhere { peer }, place) => self.fetch(entry, peer, place, out),
                    _ => unreachable!("only copies that are not in memory are queued to be restored"),
                }
            }
            (Request::Restore { entry }, Err(failure)) => {
                let object = self.copies.get(entry).object;
                self.answer(object, Err(failure), out);
            }
        }
    }

    /// The process may write the object.
    fn grant(&mut self, entry: EntryRef, to: ProcessSlot, request: RequestId, out: &mut Effects<NodeEffect>) {
        out.push(self.copies.order(entry, EntryState::Writing));
        out.push(NodeEffect::Send { to, message: FromNode::ExtentGranted { request, entry } });
    }

    /// Gives back what was allocated for a copy.
    fn release(&mut self, place: ExtentPlace, bytes: u64, out: &mut Effects<NodeEffect>) {
        match place {
            ExtentPlace::Arena(offset) => {
                self.reclaim.on_freed(self.arena.used());
                self.arena.release(offset, bytes);
                self.waits_in_vain = false;
            }
            ExtentPlace::File(file_offset) => {
                self.file.release(file_offset, bytes);
                out.push(NodeEffect::FreeSpilled { file_offset, bytes });
            }
        }
    }

    /// Frees a copy that nobody copies to or from disk.
    fn free(&mut self, entry: EntryRef, out: &mut Effects<NodeEffect>) {
        // An entry for which room is set aside is not published yet.
        let is_published = !matches!(self.copies.get(entry).state, CopyState::Reserving { .. });
        let order = is_published.then(|| self.copies.order(entry, EntryState::Free));
        let copy = self.copies.remove(entry);
        match copy.state {
            CopyState::Writing { place, .. } | CopyState::Retiring { place } => {
                self.release(place, copy.bytes, out);
            }
            CopyState::Sealed { offset, .. } => self.release(ExtentPlace::Arena(offset), copy.bytes, out),
            CopyState::Reserving { file_offset, .. }
            | CopyState::Spilled { file_offset }
            | CopyState::Mapped { file_offset } => {
                self.release(ExtentPlace::File(file_offset), copy.bytes, out);
            }
            CopyState::Elsewhere { .. } => {}
            CopyState::Spilling { .. } | CopyState::Restoring { .. } | CopyState::Fetching { .. } => {
                unreachable!("memory invariant 3: {entry:?} is being copied")
            }
        }
        out.extend(order);
    }

    /// Answers the processes that wait for an object once a copy is resident, or none is left. Else every copy comes.
    ///
    /// Called whenever a copy comes or goes. An object may have several: one is on its way from a node that has died,
    /// while a task that runs again makes another one here.
    fn serve_waiters(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        if !self.waiters.contains_key(&object) {
            return;
        }
        let readable = self.copies.readable(object);
        if readable.is_empty() {
            let text = format!("the object {object} is not in the store any more");
            return self.answer(object, Err(Failure::new(FailureKind::Lost, text)), out);
        }
        if let Some(&entry) = readable.iter().find(|entry| self.copies.get(**entry).state.is_sealed()) {
            self.copies.touch(object);
            return self.answer(object, Ok(entry), out);
        }
        for entry in readable {
            match self.copies.get(entry).state {
                CopyState::Spilled { .. } => self.want_restored(now, entry),
                CopyState::Elsewhere { peer } => self.want_pulled(entry, peer),
                _ => {}
            }
        }
    }

    fn answer(
        &mut self,
        object: ObjectId,
        outcome: Result<EntryRef, Failure>,
        out: &mut Effects<NodeEffect>,
    ) {
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
        let restoring = |copy: &&Copy| matches!(copy.state, CopyState::Restoring { .. });
        assert_eq!(self.copies.iter().filter(restoring).count(), self.restoring);
        for copy in self.copies.iter() {
            let retiring = matches!(copy.state, CopyState::Retiring { .. });
            assert_eq!(retiring, self.retiring.contains_key(&copy.entry), "{} retires", copy.object);
            if let CopyState::Writing { writer, .. } | CopyState::Reserving { writer, orphaned: false, .. } =
                copy.state
            {
                assert!(is_live(writer), "{} is written by the dead process {writer}", copy.object);
            }
        }
        let waiting = self.waiters.values().flatten().map(|(from, _)| *from);
        let writing = self.queue.iter().filter_map(|queued| match queued.request {
            Request::Write { from, .. } => Some(from),
            Request::Restore { .. } => None,
        });
        assert!(waiting.chain(writing).all(&is_live), "a dead process waits for memory");
        for copy in self.copies.iter() {
            if let CopyState::Elsewhere { peer } | CopyState::Fetching { peer: Some(peer), .. } = copy.state {
                assert!(is_live(peer), "{} is with the dead process {peer}", copy.object);
            }
        }
        let under_way = self.spilling_bytes > 0 || self.is_looking() || self.retry_at.is_some();
        let moves = self.queue.is_empty() || under_way;
        assert!(moves, "requests wait for memory and nothing is under way");
        self.check_pulls();
        self.copies.check();
    }
}

#[cfg(test)]
mod tests;
