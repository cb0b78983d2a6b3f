//! A bounded queue of tasks from one submitter, from which workers pull: late binding, one claim each.
//!
//! Invariants:
//! 1. One process appends (one thread at a time); threads of many processes claim.
//! 2. A claim is one compare-and-swap in the slot that names the claimant: whatever instant it is killed
//!    at, the slot or its running cell tells which task it had. The head is a hint that anybody may move on.
//! 3. A claimant copies the task out, writes its running cell, and only then gives the slot back.
//! 4. The head of a task is written as atomic words, so that anybody may look at what waits, and then whether it still does.

use crate::control::Running;
use crate::map::{Mapping, Shared};
use aktis_protocol::hot::TaskHeader;
use aktis_protocol::limits::TASK_PAYLOAD_BYTES_MAX;
use aktis_protocol::{FunctionId, ProcessSlot, ShapeId, TaskKey};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use zerocopy::{FromBytes, IntoBytes};

/// Tasks that fit into a lane; the submitter keeps the rest.
pub const LANE_SLOTS: usize = 4096;
/// Bytes for payloads that do not fit into their slot.
pub const LANE_PAYLOAD_BYTES: usize = 1024 * 1024;

const _: () = assert!(TASK_PAYLOAD_BYTES_MAX <= LANE_PAYLOAD_BYTES / 4);

const SLOT_BYTES: usize = 128;
const SLOT_HEADER: usize = 8;
const SLOT_LENGTHS: usize = SLOT_HEADER + size_of::<TaskHeader>();
const HEADER_WORDS: usize = size_of::<TaskHeader>() / 8;
const SLOT_INLINE: usize = SLOT_LENGTHS + 8;
const INLINE_BYTES: usize = SLOT_BYTES - SLOT_INLINE;

/// Bytes of shared memory that a lane's slots and payloads take.
pub(crate) const RING_BYTES: usize = LANE_SLOTS * SLOT_BYTES + LANE_PAYLOAD_BYTES;

const EMPTY: u64 = 0;
const READY: u64 = 1;
const CANCELLED: u64 = 2;
const DONE: u64 = 3;
const CLAIMED: u64 = 0x8000;
const STATUS_BITS: u32 = 16;
const STATUS_MASK: u64 = (1 << STATUS_BITS) - 1;

const fn state(position: u64, status: u64) -> u64 {
    position << STATUS_BITS | status
}

/// The head of a lane in the lane table.
#[repr(C)]
pub(crate) struct LaneHead {
    pub(crate) open: AtomicU32,
    pub(crate) submitter: AtomicU32,
    pub(crate) shape: AtomicU32,
    pub(crate) active: AtomicU32,
    pub(crate) ring: AtomicU64,
    /// Behind the last task that was taken back: from there on, all positions hold tasks.
    pub(crate) cancelled_end: AtomicU64,
    _line: [AtomicU64; 12],
    pub(crate) head: AtomicU64,
    _line_of_head: [AtomicU64; 15],
    pub(crate) tail: AtomicU64,
    _line_of_tail: [AtomicU64; 15],
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for LaneHead {}

impl LaneHead {
    #[inline]
    pub(crate) fn queued(&self) -> u64 {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).saturating_sub(head)
    }
}

/// Where a lane lies.
#[derive(Clone)]
struct Place {
    mapping: Arc<Mapping>,
    head: usize,
    ring: usize,
}

impl Place {
    #[inline]
    fn head(&self) -> &LaneHead {
        self.mapping.at(self.head)
    }

    #[inline]
    fn slot(&self, position: u64) -> usize {
        self.ring + (position as usize % LANE_SLOTS) * SLOT_BYTES
    }

    #[inline]
    fn state(&self, slot: usize) -> &AtomicU64 {
        self.mapping.at(slot)
    }

    #[inline]
    fn payloads(&self) -> usize {
        self.ring + LANE_SLOTS * SLOT_BYTES
    }

    #[inline]
    fn header(&self, slot: usize) -> TaskHeader {
        let bytes = self.mapping.bytes(slot + SLOT_HEADER, size_of::<TaskHeader>());
        TaskHeader::read_from_bytes(bytes).expect("the slot holds a header")
    }

    #[inline]
    fn words(&self, slot: usize) -> &[AtomicU64] {
        self.mapping.slice(slot + SLOT_HEADER, HEADER_WORDS)
    }

    /// How many tasks wait before `end`. Those that were taken back stay in the lane until the head has passed them, and do
    /// not count.
    fn waiting_before(&self, end: u64) -> u64 {
        let head = self.head();
        let first = head.head.load(Ordering::Acquire);
        let cancelled_end = head.cancelled_end.load(Ordering::Acquire).min(end);
        let is_cancelled = |position: &u64| {
            self.state(self.slot(*position)).load(Ordering::Acquire) == state(*position, CANCELLED)
        };
        let cancelled = (first..cancelled_end).filter(is_cancelled).count() as u64;
        end.saturating_sub(first).saturating_sub(cancelled)
    }

    /// What waits at this position, unless it was claimed meanwhile.
    fn look(&self, position: u64) -> Option<FunctionId> {
        let slot = self.slot(position);
        let waits = || self.state(slot).load(Ordering::Acquire) == state(position, READY);
        if !waits() {
            return None;
        }
        let mut words = [0; HEADER_WORDS];
        for (value, word) in words.iter_mut().zip(self.words(slot)) {
            *value = word.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let header: TaskHeader = zerocopy::transmute!(words);
        waits().then(|| header.likeness())
    }
}

/// The submitter's end.
pub struct LaneProducer {
    place: Place,
    tail: u64,
    /// Payloads outside their slots, oldest first: the position of the task, the end of its bytes.
    payloads: VecDeque<(u64, u64)>,
    payload_head: u64,
    payload_tail: u64,
}

impl LaneProducer {
    pub(crate) fn new(mapping: Arc<Mapping>, head: usize, ring: usize) -> Self {
        let place = Place { mapping, head, ring };
        let tail = place.head().tail.load(Ordering::Acquire);
        Self { place, tail, payloads: VecDeque::new(), payload_head: 0, payload_tail: 0 }
    }

    /// Whether there are places for this many tasks now; for their payloads there may be none.
    ///
    /// Claims go from slot to slot, so the last of these places tells of those before it; looking only there keeps
    /// a submitter that waits for room away from the slots that workers are writing.
    #[inline]
    pub fn has_room_for(&self, count: u64) -> bool {
        let last = self.tail + count - 1;
        self.is_free(self.place.slot(last), last)
    }

    /// Appends a task; gives its position, or `None` if there is no room now.
    #[inline]
    pub fn push(&mut self, header: &TaskHeader, payload: &[u8]) -> Option<u64> {
        debug_assert!(payload.len() <= TASK_PAYLOAD_BYTES_MAX);
        let position = self.tail;
        let slot = self.place.slot(position);
        if !self.is_free(slot, position) {
            return None;
        }
        let (at, lengths) = if payload.len() <= INLINE_BYTES {
            (slot + SLOT_INLINE, [payload.len() as u32, u32::MAX])
        } else {
            let start = self.reserve(position, payload.len())?;
            (self.place.payloads() + start, [payload.len() as u32, start as u32])
        };
        let mapping = &self.place.mapping;
        let words: [u64; HEADER_WORDS] = zerocopy::transmute!(*header);
        for (word, value) in self.place.words(slot).iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        mapping.write(slot + SLOT_LENGTHS, lengths.as_bytes());
        mapping.write(at, payload);
        self.place.state(slot).store(state(position, READY), Ordering::Release);
        self.tail += 1;
        self.place.head().tail.store(self.tail, Ordering::Release);
        Some(position)
    }

    /// Takes back a task that nobody has claimed yet; false if somebody has.
    pub fn cancel(&mut self, position: u64) -> bool {
        let (from, to) = (state(position, READY), state(position, CANCELLED));
        self.place.head().cancelled_end.fetch_max(position + 1, Ordering::AcqRel);
        let slot = self.place.state(self.place.slot(position));
        let taken_back = slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken_back {
            // Nobody may come to claim it, and it is not to be counted as queued for long.
            let head = &self.place.head().head;
            let _ = head.compare_exchange(position, position + 1, Ordering::AcqRel, Ordering::Relaxed);
        }
        taken_back
    }

    /// Marks the lane as having tasks; true if the node took it for idle and must be told.
    #[inline]
    pub fn activate(&self) -> bool {
        let active = &self.place.head().active;
        active.load(Ordering::Relaxed) == 0 && active.swap(1, Ordering::SeqCst) == 0
    }

    /// How many tasks are before this position.
    pub fn ahead_of(&self, position: u64) -> u64 {
        self.place.waiting_before(position)
    }

    /// Frees the slots that a dead process had claimed and not given back; tells which tasks they held, and how often
    /// each of these was started before.
    pub fn reclaim(&mut self, dead: ProcessSlot) -> Vec<(TaskKey, u32)> {
        let claimed = CLAIMED | u64::from(dead.0);
        let mut lost = Vec::new();
        for index in 0..LANE_SLOTS as u64 {
            let slot = self.place.slot(index);
            let now = self.place.state(slot).load(Ordering::Acquire);
            if now & STATUS_MASK == claimed {
                let header = self.place.header(slot);
                lost.push((header.key, header.attempt));
                self.place.state(slot).store(state(now >> STATUS_BITS, DONE), Ordering::Release);
            }
        }
        lost
    }

    #[inline]
    fn is_free(&self, slot: usize, position: u64) -> bool {
        let now = self.place.state(slot).load(Ordering::Acquire);
        match position.checked_sub(LANE_SLOTS as u64) {
            None => now == EMPTY,
            Some(before) => now == state(before, DONE) || now == state(before, CANCELLED),
        }
    }

    /// Reserves contiguous payload bytes for the task at `position`.
    fn reserve(&mut self, position: u64, len: usize) -> Option<usize> {
        let needed = len.next_multiple_of(8) as u64;
        let capacity = LANE_PAYLOAD_BYTES as u64;
        let offset = self.payload_tail % capacity;
        let skipped = if offset + needed > capacity { capacity - offset } else { 0 };
        while self.payload_tail + skipped + needed - self.payload_head > capacity {
            let &(oldest, end) = self.payloads.front()?;
            let now = self.place.state(self.place.slot(oldest)).load(Ordering::Acquire);
            if now != state(oldest, DONE) && now != state(oldest, CANCELLED) && now >> STATUS_BITS == oldest {
                return None;
            }
            self.payload_head = end;
            self.payloads.pop_front();
        }
        let start = self.payload_tail + skipped;
        self.payload_tail = start + needed;
        self.payloads.push_back((position, self.payload_tail));
        Some((start % capacity) as usize)
    }
}

/// How many tasks wait in the lane with this head and ring.
pub(crate) fn queued(mapping: Arc<Mapping>, head: usize, ring: usize) -> u64 {
    let place = Place { mapping, head, ring };
    place.waiting_before(place.head().tail.load(Ordering::Acquire))
}

/// A worker's end; all its threads may use it at once.
#[derive(Clone)]
pub struct LaneConsumer {
    place: Place,
    submitter: ProcessSlot,
    shape: ShapeId,
}

impl LaneConsumer {
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        head: usize,
        ring: usize,
        submitter: ProcessSlot,
        shape: ShapeId,
    ) -> Self {
        Self { place: Place { mapping, head, ring }, submitter, shape }
    }

    /// Who submits here.
    #[inline]
    pub fn submitter(&self) -> ProcessSlot {
        self.submitter
    }

    /// What the tasks need.
    #[inline]
    pub fn shape(&self) -> ShapeId {
        self.shape
    }

    /// What a thread runs that has claimed this task here.
    #[inline]
    pub fn running(&self, header: &TaskHeader) -> Running {
        let TaskHeader { key, attempt, .. } = *header;
        let (submitter, shape, likeness) = (self.submitter, self.shape, header.likeness());
        Running { submitter, key, attempt, shape, likeness }
    }

    /// Whether there is something to claim.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.place.head().queued() == 0
    }

    /// What waits, by what its run time is told by: of the tasks in the lane this many at most, spread evenly.
    pub fn look(&self, count: u64) -> Vec<FunctionId> {
        let head = self.place.head();
        let (first, end) = (head.head.load(Ordering::Acquire), head.tail.load(Ordering::Acquire));
        let step = end.saturating_sub(first).div_ceil(count.max(1)).max(1);
        (first..end).step_by(step as usize).filter_map(|position| self.place.look(position)).collect()
    }

    /// Claims the oldest task for `worker`, if there is one. `take` copies it out and writes the running
    /// cell; the slot is given back when it returns.
    #[inline]
    pub fn claim<R>(&self, worker: ProcessSlot, take: impl FnOnce(&TaskHeader, &[u8]) -> R) -> Option<R> {
        let head = &self.place.head().head;
        let mut position = head.load(Ordering::Acquire);
        loop {
            let slot = self.place.slot(position);
            let now = self.place.state(slot).load(Ordering::Acquire);
            let (owner, status) = (now >> STATUS_BITS, now & STATUS_MASK);
            if status == EMPTY || owner < position {
                return None;
            }
            if owner == position && status == READY {
                let claimed = state(position, CLAIMED | u64::from(worker.0));
                let slot_state = self.place.state(slot);
                if slot_state.compare_exchange(now, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    let _ =
                        head.compare_exchange(position, position + 1, Ordering::AcqRel, Ordering::Relaxed);
                    let result = take(&self.place.header(slot), self.payload(slot));
                    slot_state.store(state(position, DONE), Ordering::Release);
                    return Some(result);
                }
                continue;
            }
            // Somebody took the task at this position and has not moved the head on: help.
            position =
                match head.compare_exchange(position, position + 1, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => position + 1,
                    Err(newer) => newer,
                };
        }
    }

    #[inline]
    fn payload(&self, slot: usize) -> &[u8] {
        let mapping = &self.place.mapping;
        let bytes = mapping.bytes(slot + SLOT_LENGTHS, 8);
        let [len, start] = <[u32; 2]>::read_from_bytes(bytes).expect("eight bytes");
        let at = if start == u32::MAX { slot + SLOT_INLINE } else { self.place.payloads() + start as usize };
        mapping.bytes(at, len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{FunctionId, TaskId};

    const HEAD_BYTES: usize = 4096;

    fn lane() -> (LaneProducer, LaneConsumer) {
        let mapping = Arc::new(Mapping::create("lane-test", (HEAD_BYTES + RING_BYTES) as u64).unwrap());
        let consumer = LaneConsumer::new(mapping.clone(), 0, HEAD_BYTES, ProcessSlot(0), ShapeId(0));
        (LaneProducer::new(mapping, 0, HEAD_BYTES), consumer)
    }

    #[inline]
    fn header(index: u32) -> TaskHeader {
        TaskHeader {
            task: TaskId::default(),
            function: FunctionId(1),
            key: TaskKey { index, generation: 0 },
            attempt: 0,
            stream_ahead: 0,
            returns: 1,
            kind: 0,
        }
    }

    #[test]
    fn tasks_that_were_taken_back_are_not_counted_wherever_they_are() {
        let (mut producer, consumer) = lane();
        let queued = |consumer: &LaneConsumer| {
            let Place { mapping, head, ring } = consumer.place.clone();
            super::queued(mapping, head, ring)
        };
        let push = |producer: &mut LaneProducer| producer.push(&header(0), &[]).expect("there is room");
        push(&mut producer);
        // One waits; others come and are taken back, in no order, and come again.
        for _ in 0..100 {
            let [one, two, three] = [0; 3].map(|_| push(&mut producer));
            assert_eq!((queued(&consumer), producer.ahead_of(three)), (4, 3));
            assert!(producer.cancel(two) && producer.cancel(three));
            assert_eq!(queued(&consumer), 2);
            assert!(producer.cancel(one) && !producer.cancel(one));
            assert_eq!(queued(&consumer), 1);
        }
        assert!(consumer.claim(ProcessSlot(1), |_, _| ()).is_some());
        assert_eq!(queued(&consumer), 0);
        assert!(consumer.claim(ProcessSlot(1), |_, _| ()).is_none());
        assert_eq!((queued(&consumer), consumer.is_empty()), (0, true));
    }

    #[test]
    fn each_task_is_claimed_exactly_once_by_many_threads() {
        const TASKS: u32 = 200_000;
        let (mut producer, consumer) = lane();
        let seen: Vec<AtomicU32> = (0..TASKS).map(|_| AtomicU32::new(0)).collect();
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for worker in 1..4 {
                let (consumer, seen, taken) = (consumer.clone(), &seen, &taken);
                scope.spawn(move || {
                    while taken.load(Ordering::Relaxed) < TASKS {
                        let claimed = consumer.claim(ProcessSlot(worker), |header, payload| {
                            let length = (header.key.index % 200) as usize;
                            assert!(payload.len() == length && payload.iter().all(|&b| b == length as u8));
                            header.key.index
                        });
                        match claimed {
                            Some(index) => {
                                seen[index as usize].fetch_add(1, Ordering::Relaxed);
                                taken.fetch_add(1, Ordering::Relaxed);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
            for index in 0..TASKS {
                let length = (index % 200) as usize;
                while producer.push(&header(index), &vec![length as u8; length]).is_none() {
                    std::thread::yield_now();
                }
            }
        });
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn there_is_room_for_as_many_as_were_claimed() {
        let (mut producer, consumer) = lane();
        assert!(producer.has_room_for(LANE_SLOTS as u64));
        for index in 0..LANE_SLOTS as u32 {
            producer.push(&header(index), b"x").unwrap();
        }
        assert!(!producer.has_room_for(1));
        for _ in 0..5 {
            consumer.claim(ProcessSlot(1), |_, _| ()).unwrap();
        }
        assert!(producer.has_room_for(5) && !producer.has_room_for(6));
    }

    #[test]
    fn a_cancelled_task_is_skipped_and_a_claimed_one_cannot_be_cancelled() {
        let (mut producer, consumer) = lane();
        let positions: Vec<u64> = (0..3).map(|i| producer.push(&header(i), b"").unwrap()).collect();
        assert_eq!(consumer.claim(ProcessSlot(1), |header, _| header.key.index), Some(0));
        assert!(!producer.cancel(positions[0]));
        assert!(producer.cancel(positions[1]));
        assert_eq!(consumer.claim(ProcessSlot(1), |header, _| header.key.index), Some(2));
        assert_eq!(consumer.claim(ProcessSlot(1), |header, _| header.key.index), None);
    }

    #[test]
    fn a_lane_whose_tasks_were_all_taken_back_is_empty_and_goes_round() {
        let (mut producer, consumer) = lane();
        for index in 0..3 * LANE_SLOTS as u32 {
            let position = producer.push(&header(index), b"x").unwrap();
            assert!(!consumer.is_empty());
            assert!(producer.cancel(position) && !producer.cancel(position));
            assert!(consumer.is_empty());
        }
        producer.push(&header(7), b"x").unwrap();
        assert_eq!(consumer.claim(ProcessSlot(1), |header, _| header.key.index), Some(7));
    }

    #[test]
    fn what_a_dead_claimant_had_is_found_and_its_slot_used_again() {
        let (mut producer, consumer) = lane();
        for index in 0..LANE_SLOTS as u32 {
            producer.push(&header(index), b"x").unwrap();
        }
        assert_eq!(producer.push(&header(0), b"x"), None);
        // The claimant dies inside `take`, before the slot is given back.
        let dies = || {
            consumer.claim(ProcessSlot(5), |_, _| -> () { panic!("killed here") });
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(dies)).is_err());
        assert_eq!(producer.push(&header(0), b"x"), None);
        assert_eq!(producer.reclaim(ProcessSlot(5)), [(TaskKey { index: 0, generation: 0 }, 0)]);
        assert!(producer.push(&header(0), b"x").is_some());
        assert_eq!(consumer.claim(ProcessSlot(6), |header, _| header.key.index), Some(1));
    }

    #[test]
    fn whoever_looks_sees_what_waits_and_nothing_else() {
        let (mut producer, consumer) = lane();
        assert_eq!(consumer.look(8), []);
        for index in 0..100 {
            let function = FunctionId(u64::from(index < 50));
            producer.push(&TaskHeader { function, kind: index / 50, ..header(index) }, b"").unwrap();
        }
        let likeness = |index: u32| {
            let function = FunctionId(u64::from(index < 50));
            TaskHeader { function, kind: index / 50, ..header(index) }.likeness()
        };
        assert_eq!(consumer.look(4), [0, 25, 50, 75].map(likeness));
        assert_ne!(likeness(0), likeness(99));
        for _ in 0..98 {
            consumer.claim(ProcessSlot(1), |_, _| ()).unwrap();
        }
        producer.cancel(99);
        assert_eq!(consumer.look(8), [likeness(98)]);
    }
}
