//! The control segment of a node: its processes, their doorbells and running cells, lanes and channels.
//!
//! One memfd, laid out by constants, sparse: memory stands only behind what is used. The node makes and
//! frees lanes and channels; every process of the node maps all of it.

mod idle;

pub use idle::WakeUp;

use crate::channel::{self, Receiver, Sender};
use crate::doorbell::Doorbell;
use crate::lane::{self, LaneConsumer, LaneHead, LaneProducer};
use crate::map::{Mapping, Shared};
use crate::samples::{self, SAMPLES_KEPT, Sample, SampleCount, SampleSlot};
use crate::timeline::{self, RUNS_KEPT, Run, RunCount, RunSlot};
use aktis_protocol::limits::{LANES_MAX, PROCESSES_MAX, SHAPES_MAX, THREADS_MAX};
use aktis_protocol::{FunctionId, LaneId, ProcessSlot, ShapeId, TaskKey};
use parking_lot::Mutex;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const PAGE: usize = 4096;
const WORDS: usize = PROCESSES_MAX / 64;

const HEADER: usize = 0;
const PROCESSES: usize = HEADER + PAGE;
const CELLS: usize = PROCESSES + PROCESSES_MAX * size_of::<ProcessPage>();
const SHAPES: usize = CELLS + PROCESSES_MAX * THREADS_MAX * size_of::<Cell>();
const LANES: usize = SHAPES + SHAPES_MAX * size_of::<ShapePage>();
const CHANNELS: usize = LANES + LANES_MAX * size_of::<LaneHead>();
const RUN_COUNTS: usize = (CHANNELS + PROCESSES_MAX * PROCESSES_MAX * 8).next_multiple_of(PAGE);
const RUNS: usize = RUN_COUNTS + PROCESSES_MAX * size_of::<RunCount>();
const SAMPLE_COUNTS: usize = (RUNS + PROCESSES_MAX * RUNS_KEPT * size_of::<RunSlot>()).next_multiple_of(PAGE);
const SAMPLES: usize = SAMPLE_COUNTS + PROCESSES_MAX * size_of::<SampleCount>();
const HEAP: usize = (SAMPLES + PROCESSES_MAX * SAMPLES_KEPT * size_of::<SampleSlot>()).next_multiple_of(PAGE);
const SEGMENT_BYTES: usize = 4 << 30;

const LANE_BYTES: usize = lane::RING_BYTES.next_multiple_of(PAGE);
const _: () = assert!(HEAP < SEGMENT_BYTES / 4, "most of the segment is for lanes and channels");

const CHANNEL_BYTES: usize = channel::TOTAL_BYTES.next_multiple_of(PAGE);

#[repr(C)]
struct Header {
    lanes_version: AtomicU32,
    lanes_end: AtomicU32,
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for Header {}

#[repr(C, align(256))]
struct ProcessPage {
    doorbell: Doorbell,
    state: AtomicU32,
    pid: AtomicU32,
    /// Whether it stands for another node.
    elsewhere: AtomicU64,
    _line: [AtomicU64; 12],
    /// One bit for each process that has written into its channel to this one.
    inbound: [AtomicU64; WORDS],
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for ProcessPage {}

/// Which processes have a thread that sleeps though it may run tasks of this shape.
#[repr(C, align(256))]
struct ShapePage {
    /// One bit for each word of `idle` that may be non-zero.
    summary: AtomicU64,
    _line: [AtomicU64; 15],
    idle: [AtomicU64; WORDS],
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for ShapePage {}

/// What a thread of a worker is running: read by others only after the worker died, or as a hint.
#[repr(C)]
pub struct Cell {
    /// The submitter's slot plus one; zero when idle.
    submitter: AtomicU32,
    attempt: AtomicU32,
    key: AtomicU64,
    /// What its run time is told by.
    likeness: AtomicU64,
    shape: AtomicU32,
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for Cell {}

/// What a running cell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Whose task it is.
    pub submitter: ProcessSlot,
    /// The task.
    pub key: TaskKey,
    /// How often it was started before.
    pub attempt: u32,
    /// What it needs.
    pub shape: ShapeId,
    /// What its run time is told by.
    pub likeness: FunctionId,
}

impl Cell {
    /// Says what the thread runs.
    #[inline]
    pub fn set(&self, running: Running) {
        let Running { submitter, key, attempt, shape, likeness } = running;
        let word = u64::from(key.index) << 32 | u64::from(key.generation);
        self.key.store(word, Ordering::Relaxed);
        self.attempt.store(attempt, Ordering::Relaxed);
        self.likeness.store(likeness.0, Ordering::Relaxed);
        self.shape.store(shape.0, Ordering::Relaxed);
        self.submitter.store(submitter.0 + 1, Ordering::Release);
    }

    /// Says that the thread runs nothing. The task's completion was published before.
    #[inline]
    pub fn clear(&self) {
        self.submitter.store(0, Ordering::Release);
    }

    /// What the thread runs.
    #[inline]
    pub fn get(&self) -> Option<Running> {
        let submitter = ProcessSlot(self.submitter.load(Ordering::Acquire).checked_sub(1)?);
        let word = self.key.load(Ordering::Relaxed);
        let key = TaskKey { index: (word >> 32) as u32, generation: word as u32 };
        let attempt = self.attempt.load(Ordering::Relaxed);
        let shape = ShapeId(self.shape.load(Ordering::Relaxed));
        let likeness = FunctionId(self.likeness.load(Ordering::Relaxed));
        Some(Running { submitter, key, attempt, shape, likeness })
    }
}

#[derive(Default)]
struct Heap {
    next: usize,
    free_lanes: VecDeque<usize>,
    free_channels: Vec<usize>,
}

/// The control segment, mapped.
pub struct Control {
    mapping: Arc<Mapping>,
    me: ProcessSlot,
    heap: Mutex<Heap>,
}

const STATE_ALIVE: u32 = 1;
const STATE_DEAD: u32 = 2;

impl Control {
    /// Makes the segment; the caller's process becomes slot 0 and holds the node.
    pub fn create() -> io::Result<Self> {
        let mapping = Arc::new(Mapping::create("aktis-control", SEGMENT_BYTES as u64)?);
        let heap = Mutex::new(Heap { next: HEAP, ..Heap::default() });
        let control = Self { mapping, me: ProcessSlot(0), heap };
        control.start_process(ProcessSlot(0), std::process::id());
        Ok(control)
    }

    /// Maps the segment that the node made, as the process with this slot.
    pub fn open(fd: OwnedFd, me: ProcessSlot) -> io::Result<Self> {
        let mapping = Arc::new(Mapping::from_fd(fd)?);
        if mapping.len() != SEGMENT_BYTES {
            return Err(io::Error::other("the control segment is of another version"));
        }
        Ok(Self { mapping, me, heap: Mutex::default() })
    }

    /// The same segment for another place of this very process.
    pub fn as_process(&self, me: ProcessSlot) -> Self {
        Self { mapping: self.mapping.clone(), me, heap: Mutex::default() }
    }

    /// The memfd.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// The slot of this process.
    pub fn me(&self) -> ProcessSlot {
        self.me
    }

    #[inline]
    fn header(&self) -> &Header {
        self.mapping.at(HEADER)
    }

    #[inline]
    fn page(&self, process: ProcessSlot) -> &ProcessPage {
        assert!((process.0 as usize) < PROCESSES_MAX);
        self.mapping.at(PROCESSES + process.0 as usize * size_of::<ProcessPage>())
    }

    // Processes.

    /// Marks a process as alive (node only).
    pub fn start_process(&self, process: ProcessSlot, pid: u32) {
        let page = self.page(process);
        page.pid.store(pid, Ordering::Relaxed);
        page.state.store(STATE_ALIVE, Ordering::Release);
    }

    /// Marks a place as alive that stands for another node (node only).
    pub fn start_elsewhere(&self, process: ProcessSlot, pid: u32) {
        self.page(process).elsewhere.store(1, Ordering::Relaxed);
        self.start_process(process, pid);
    }

    /// Whether a process stands for another node.
    pub fn is_elsewhere(&self, process: ProcessSlot) -> bool {
        self.page(process).elsewhere.load(Ordering::Relaxed) != 0
    }

    /// Marks a process as dead (node only).
    pub fn mark_dead(&self, process: ProcessSlot) {
        self.page(process).state.store(STATE_DEAD, Ordering::Release);
    }

    /// Whether a process is alive, as far as the node knows.
    pub fn is_alive(&self, process: ProcessSlot) -> bool {
        self.page(process).state.load(Ordering::Acquire) == STATE_ALIVE
    }

    /// The process id in a slot.
    pub fn pid(&self, process: ProcessSlot) -> u32 {
        self.page(process).pid.load(Ordering::Relaxed)
    }

    /// Frees all that a dead process shared with others, once they all know (node only).
    pub fn wipe_process(&self, process: ProcessSlot) {
        for other in 0..PROCESSES_MAX as u32 {
            self.close_channel(process, ProcessSlot(other));
            self.close_channel(ProcessSlot(other), process);
        }
        for cell in self.cells(process) {
            cell.clear();
        }
        let page = self.page(process);
        for word in &page.inbound {
            word.store(0, Ordering::Relaxed);
        }
        page.doorbell.reset();
        page.elsewhere.store(0, Ordering::Relaxed);
        page.state.store(0, Ordering::Release);
    }

    /// The doorbell of this process.
    #[inline]
    pub fn doorbell(&self) -> &Doorbell {
        &self.page(self.me).doorbell
    }

    /// Wakes one sleeping thread of a process, if one sleeps.
    pub fn wake_process(&self, process: ProcessSlot) {
        self.page(process).doorbell.call();
    }

    /// The running cells of a process, one for each of its threads.
    #[inline]
    pub fn cells(&self, process: ProcessSlot) -> &[Cell] {
        assert!((process.0 as usize) < PROCESSES_MAX);
        let offset = CELLS + process.0 as usize * THREADS_MAX * size_of::<Cell>();
        self.mapping.slice(offset, THREADS_MAX)
    }

    // What ran when.

    fn run_ring(&self, process: ProcessSlot) -> (&RunCount, usize) {
        let place = process.0 as usize;
        let slots = RUNS + place * RUNS_KEPT * size_of::<RunSlot>();
        (self.mapping.at(RUN_COUNTS + place * size_of::<RunCount>()), slots)
    }

    /// Records that this process runs something, or has; gives the number of that run.
    pub fn add_run(&self, run: &Run<&str>) -> u64 {
        let (count, slots) = self.run_ring(self.me);
        timeline::add(count, self.mapping.slice(slots, RUNS_KEPT), run)
    }

    /// Records that a run of this process has ended.
    pub fn end_run(&self, number: u64, end: u64, failed: bool) {
        let (_, slots) = self.run_ring(self.me);
        timeline::end(self.mapping.slice(slots, RUNS_KEPT), number, end, failed);
    }

    /// What the processes of the node have run, as far as it is kept, process by process.
    pub fn runs(&self) -> Vec<Run> {
        let rings = (0..PROCESSES_MAX as u32).map(|place| self.run_ring(ProcessSlot(place)));
        let used = rings.filter(|(count, _)| !timeline::is_empty(count));
        used.flat_map(|(_, slots)| timeline::all(self.mapping.slice(slots, RUNS_KEPT))).collect()
    }

    // How long things ran.

    fn sample_ring(&self, process: ProcessSlot) -> (&SampleCount, usize) {
        let place = process.0 as usize;
        let slots = SAMPLES + place * SAMPLES_KEPT * size_of::<SampleSlot>();
        (self.mapping.at(SAMPLE_COUNTS + place * size_of::<SampleCount>()), slots)
    }

    /// Records how long this process has run something.
    #[inline]
    pub fn add_sample(&self, sample: Sample) {
        let (count, slots) = self.sample_ring(self.me);
        samples::add(count, self.mapping.slice(slots, SAMPLES_KEPT), sample);
    }

    /// How long a process, and those before it in its place, have run things since so many were recorded; and how many are
    /// recorded now.
    pub fn samples_since(&self, process: ProcessSlot, seen: u64) -> (Vec<Sample>, u64) {
        let (count, slots) = self.sample_ring(process);
        match samples::count(count) {
            now if now == seen => (Vec::new(), now),
            now => (samples::between(self.mapping.slice(slots, SAMPLES_KEPT), seen, now), now),
        }
    }

    // Channels.

    fn channel_entry(&self, from: ProcessSlot, to: ProcessSlot) -> &AtomicU64 {
        assert!((from.0 as usize) < PROCESSES_MAX && (to.0 as usize) < PROCESSES_MAX);
        self.mapping.at(CHANNELS + (to.0 as usize * PROCESSES_MAX + from.0 as usize) * 8)
    }

    /// Makes the channel from one process to another, if it is not there (node only).
    pub fn open_channel(&self, from: ProcessSlot, to: ProcessSlot) -> io::Result<()> {
        let entry = self.channel_entry(from, to);
        if entry.load(Ordering::Acquire) == 0 {
            let mut heap = self.heap.lock();
            let offset = match heap.free_channels.pop() {
                Some(offset) => offset,
                None => heap.extend(CHANNEL_BYTES)?,
            };
            entry.store(offset as u64, Ordering::Release);
        }
        Ok(())
    }

    fn close_channel(&self, from: ProcessSlot, to: ProcessSlot) {
        let offset = self.channel_entry(from, to).swap(0, Ordering::AcqRel) as usize;
        if offset != 0 {
            self.mapping.punch(offset, CHANNEL_BYTES);
            self.heap.lock().free_channels.push(offset);
        }
    }

    /// The writing end of the channel to another process, if the node has made it. Make one, and keep it.
    pub fn sender(&self, to: ProcessSlot) -> Option<Sender> {
        match self.channel_entry(self.me, to).load(Ordering::Acquire) {
            0 => None,
            offset => Some(Sender::new(self.mapping.clone(), offset as usize)),
        }
    }

    /// The reading end of the channel from another process. Make one, and keep it.
    pub fn receiver(&self, from: ProcessSlot) -> Option<Receiver> {
        match self.channel_entry(from, self.me).load(Ordering::Acquire) {
            0 => None,
            offset => Some(Receiver::new(self.mapping.clone(), offset as usize)),
        }
    }

    /// Tells a process that its channel from this one has messages, and wakes it if it sleeps.
    #[inline]
    pub fn notify(&self, to: ProcessSlot) {
        self.notify_unless(to, || false);
    }

    /// The same, unless the caller, asked only if somebody would be woken, says that it does so [later](Self::remind).
    #[inline]
    pub fn notify_unless(&self, to: ProcessSlot, later: impl FnOnce() -> bool) {
        fence(Ordering::SeqCst);
        let page = self.page(to);
        let (word, bit) = (&page.inbound[self.me.0 as usize / 64], 1_u64 << (self.me.0 % 64));
        // If the bit is set, whoever set it has rung, or will, and nobody has looked since.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
            page.doorbell.ring_unless(later);
        }
    }

    /// Wakes a process, if it sleeps and has not looked since it was told that its channel from this one has messages.
    pub fn remind(&self, to: ProcessSlot) {
        let page = self.page(to);
        let (word, bit) = (&page.inbound[self.me.0 as usize / 64], 1_u64 << (self.me.0 % 64));
        if word.load(Ordering::SeqCst) & bit != 0 {
            page.doorbell.ring();
        }
    }

    /// Whether some channel to this process may have messages.
    #[inline]
    pub fn has_inbound(&self) -> bool {
        self.page(self.me).inbound.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes the set of processes whose channels to this one may have messages.
    #[inline]
    pub fn take_inbound(&self, mut visit: impl FnMut(ProcessSlot)) {
        for (index, word) in self.page(self.me).inbound.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                visit(ProcessSlot((index * 64) as u32 + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
    }

    // Lanes.

    fn lane_offset(lane: LaneId) -> usize {
        assert!((lane.0 as usize) < LANES_MAX);
        LANES + lane.0 as usize * size_of::<LaneHead>()
    }

    fn lane(&self, lane: LaneId) -> &LaneHead {
        self.mapping.at(Self::lane_offset(lane))
    }

    /// Makes a lane (node only).
    pub fn open_lane(&self, lane: LaneId, submitter: ProcessSlot, shape: ShapeId) -> io::Result<()> {
        let mut heap = self.heap.lock();
        let ring = heap.take_lane()?;
        let head = self.lane(lane);
        head.submitter.store(submitter.0, Ordering::Relaxed);
        head.shape.store(shape.0, Ordering::Relaxed);
        head.active.store(0, Ordering::Relaxed);
        head.head.store(0, Ordering::Relaxed);
        head.tail.store(0, Ordering::Relaxed);
        head.cancelled_end.store(0, Ordering::Relaxed);
        head.ring.store(ring as u64, Ordering::Relaxed);
        head.open.store(1, Ordering::Release);
        self.header().lanes_end.fetch_max(lane.0 + 1, Ordering::AcqRel);
        self.header().lanes_version.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Frees a lane (node only).
    pub fn close_lane(&self, lane: LaneId) {
        let head = self.lane(lane);
        if head.open.swap(0, Ordering::AcqRel) == 1 {
            let ring = head.ring.load(Ordering::Relaxed) as usize;
            self.mapping.punch(ring, LANE_BYTES);
            self.heap.lock().free_lanes.push_back(ring);
            self.header().lanes_version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many tasks wait in a lane.
    pub fn lane_queued(&self, lane: LaneId) -> u32 {
        let ring = self.lane(lane).ring.load(Ordering::Acquire) as usize;
        let queued = lane::queued(self.mapping.clone(), Self::lane_offset(lane), ring);
        u32::try_from(queued).unwrap_or(u32::MAX)
    }

    /// Takes the lane for idle: its submitter will say when it has tasks again (node only).
    pub fn lane_set_idle(&self, lane: LaneId) {
        self.lane(lane).active.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// What the tasks of a lane need.
    pub fn lane_shape(&self, lane: LaneId) -> ShapeId {
        ShapeId(self.lane(lane).shape.load(Ordering::Acquire))
    }

    /// The submitter's end of a lane. Make one, and keep it.
    pub fn lane_producer(&self, lane: LaneId) -> LaneProducer {
        let ring = self.lane(lane).ring.load(Ordering::Acquire) as usize;
        LaneProducer::new(self.mapping.clone(), Self::lane_offset(lane), ring)
    }

    /// Changes whenever a lane is opened or closed.
    #[inline]
    pub fn lanes_version(&self) -> u32 {
        self.header().lanes_version.load(Ordering::Acquire)
    }

    /// The workers' ends of all lanes.
    pub fn lane_consumers(&self) -> Vec<LaneConsumer> {
        (0..self.header().lanes_end.load(Ordering::Acquire))
            .map(LaneId)
            .filter(|&lane| self.lane(lane).open.load(Ordering::Acquire) == 1)
            .map(|lane| {
                let head = self.lane(lane);
                LaneConsumer::new(
                    self.mapping.clone(),
                    Self::lane_offset(lane),
                    head.ring.load(Ordering::Relaxed) as usize,
                    ProcessSlot(head.submitter.load(Ordering::Relaxed)),
                    ShapeId(head.shape.load(Ordering::Relaxed)),
                )
            })
            .collect()
    }
}

/// So many closed lanes rest before their memory is used again: a thread that was looking into one sees it
/// empty, and not another one's tasks.
const LANES_RESTING: usize = 32;

impl Heap {
    fn take_lane(&mut self) -> io::Result<usize> {
        match self.free_lanes.len() > LANES_RESTING {
            true => Ok(self.free_lanes.pop_front().expect("there are some")),
            false => self.extend(LANE_BYTES),
        }
    }

    fn extend(&mut self, bytes: usize) -> io::Result<usize> {
        let offset = self.next;
        if offset == 0 || offset + bytes > SEGMENT_BYTES {
            return Err(io::Error::other("the control segment is full: too many lanes and channels"));
        }
        self.next += bytes;
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_connects_two_processes_and_its_memory_is_used_again() {
        let control = Control::create().unwrap();
        let (a, b) = (ProcessSlot(0), ProcessSlot(3));
        assert!(control.sender(b).is_none());
        control.open_channel(a, b).unwrap();
        let first = control.channel_entry(a, b).load(Ordering::Relaxed);
        let other = Control::open(control.fd().try_clone_to_owned().unwrap(), b).unwrap();
        control.notify(b);
        let mut from = Vec::new();
        other.take_inbound(|process| from.push(process));
        assert_eq!(from, [a]);
        assert!(other.receiver(a).is_some() && !other.has_inbound());
        control.wipe_process(b);
        assert!(control.sender(b).is_none());
        control.open_channel(a, ProcessSlot(9)).unwrap();
        assert_eq!(control.channel_entry(a, ProcessSlot(9)).load(Ordering::Relaxed), first);
    }

    #[test]
    fn lanes_are_listed_while_they_are_open() {
        let control = Control::create().unwrap();
        let version = control.lanes_version();
        control.open_lane(LaneId(2), ProcessSlot(0), ShapeId(7)).unwrap();
        assert_ne!(control.lanes_version(), version);
        let lanes = control.lane_consumers();
        assert_eq!(lanes.len(), 1);
        assert_eq!((lanes[0].submitter(), lanes[0].shape()), (ProcessSlot(0), ShapeId(7)));
        control.close_lane(LaneId(2));
        assert!(control.lane_consumers().is_empty());
    }

    #[test]
    fn a_closed_lane_rests_before_its_memory_is_used_again() {
        let control = Control::create().unwrap();
        let ring = |lane: LaneId| control.lane(lane).ring.load(Ordering::Relaxed);
        control.open_lane(LaneId(0), ProcessSlot(0), ShapeId(0)).unwrap();
        let first = ring(LaneId(0));
        let mut again = 0;
        loop {
            control.close_lane(LaneId(0));
            control.open_lane(LaneId(0), ProcessSlot(0), ShapeId(0)).unwrap();
            again += 1;
            if ring(LaneId(0)) == first {
                break;
            }
        }
        assert!(again > LANES_RESTING, "used again after {again}");
    }

    #[test]
    fn who_watched_before_dying_does_not_keep_the_next_process_asleep() {
        let control = Control::create().unwrap();
        let process = ProcessSlot(1);
        control.start_process(process, 1);
        let dead = Control::open(control.fd().try_clone_to_owned().unwrap(), process).unwrap();
        dead.doorbell().watch();
        control.mark_dead(process);
        control.wipe_process(process);
        assert!(!control.page(process).doorbell.is_watched());
    }

    #[test]
    fn only_who_sleeps_is_asked_about_before_it_is_notified() {
        let control = Control::create().unwrap();
        let (a, b) = (ProcessSlot(0), ProcessSlot(3));
        control.open_channel(a, b).unwrap();
        let other = Control::open(control.fd().try_clone_to_owned().unwrap(), b).unwrap();
        let notify = || {
            let mut asked = false;
            control.notify_unless(b, || {
                asked = true;
                true
            });
            asked
        };
        assert!(!notify(), "it is awake");
        other.take_inbound(|_| {});
        let _ticket = other.doorbell().prepare();
        assert!(notify());
        assert!(other.has_inbound(), "it is told all the same");
        assert!(!notify(), "one wake-up is enough");
    }
}
