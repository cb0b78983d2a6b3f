//! What ran when: for each process a ring with the last things that it has run, which others may read at any time.
//!
//! Invariant: a slot that is being written has the mark 0; one that was read between two equal marks is whole.

use crate::map::Shared;
use aktis_protocol::TaskId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Things that are kept of each process.
pub const RUNS_KEPT: usize = 2048;
/// Bytes of a name that are kept.
pub const RUN_NAME_BYTES_MAX: usize = NAME_WORDS * 8;

const NAME_WORDS: usize = 10;

/// What kind of thing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RunKind {
    /// A task.
    Task = 0,
    /// A constructor of an actor.
    Creation = 1,
    /// A method of an actor.
    Call = 2,
}

/// Something that a process has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<Name = String> {
    /// What kind of thing.
    pub kind: RunKind,
    /// The task or call.
    pub task: TaskId,
    /// What people call it; cut if it is long.
    pub name: Name,
    /// The process.
    pub pid: u32,
    /// When it began, in nanoseconds of the machine's monotonic clock.
    pub begin: u64,
    /// When it ended; 0 while it runs.
    pub end: u64,
    /// Whether it ended with a failure.
    pub failed: bool,
}

/// The bit of a slot's shape that tells of a failure.
const FAILED: u32 = 1 << 31;

/// How many runs a process has written, and those after it in its place.
#[repr(C, align(64))]
pub(crate) struct RunCount(AtomicU64);

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for RunCount {}

#[repr(C, align(128))]
pub(crate) struct RunSlot {
    /// The number of the run, from 1 on; 0 while it is written.
    mark: AtomicU64,
    task: [AtomicU64; 2],
    begin: AtomicU64,
    end: AtomicU64,
    pid: AtomicU32,
    /// The kind, and the length of the name.
    shape: AtomicU32,
    name: [AtomicU64; NAME_WORDS],
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for RunSlot {}

impl RunSlot {
    fn write(&self, mark: u64, run: &Run<&str>) {
        self.mark.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.task.iter().zip(run.task.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.begin.store(run.begin, Ordering::Relaxed);
        self.end.store(run.end, Ordering::Relaxed);
        self.pid.store(run.pid, Ordering::Relaxed);
        let name = &run.name[..run.name.floor_char_boundary(RUN_NAME_BYTES_MAX)];
        self.shape.store((run.kind as u32) << 16 | name.len() as u32, Ordering::Relaxed);
        for (word, bytes) in self.name.iter().zip(name.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        self.mark.store(mark, Ordering::Release);
    }

    /// What is in the slot, and its number; nothing if somebody is writing it.
    fn read(&self) -> Option<(u64, Run)> {
        let mark = self.mark.load(Ordering::Acquire);
        let shape = self.shape.load(Ordering::Relaxed);
        let name: Vec<u8> =
            self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let name = &name[..(shape as usize & 0xffff).min(RUN_NAME_BYTES_MAX)];
        let run = Run {
            failed: shape & FAILED != 0,
            kind: match (shape & !FAILED) >> 16 {
                0 => RunKind::Task,
                1 => RunKind::Creation,
                _ => RunKind::Call,
            },
            task: TaskId::from_words([0, 1].map(|index: usize| self.task[index].load(Ordering::Relaxed))),
            name: String::from_utf8_lossy(name).into_owned(),
            pid: self.pid.load(Ordering::Relaxed),
            begin: self.begin.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (mark != 0 && self.mark.load(Ordering::Relaxed) == mark).then_some((mark, run))
    }
}

/// Adds a run; the oldest makes place for it. Gives its number.
pub(crate) fn add(count: &RunCount, slots: &[RunSlot], run: &Run<&str>) -> u64 {
    let number = count.0.fetch_add(1, Ordering::Relaxed);
    slots[number as usize % slots.len()].write(number + 1, run);
    number + 1
}

/// The run with this number has ended, unless it had to make place for another.
pub(crate) fn end(slots: &[RunSlot], number: u64, end: u64, failed: bool) {
    let slot = &slots[(number - 1) as usize % slots.len()];
    // Another thread of the process may be writing a later run there: then both times are its own, or nearly so.
    if slot.mark.load(Ordering::Acquire) == number {
        if failed {
            slot.shape.fetch_or(FAILED, Ordering::Relaxed);
        }
        slot.end.store(end, Ordering::Release);
    }
}

/// Whether there are any: memory that nobody has written to need not be looked at.
pub(crate) fn is_empty(count: &RunCount) -> bool {
    count.0.load(Ordering::Relaxed) == 0
}

/// The runs that are kept, in the order in which they ended.
pub(crate) fn all(slots: &[RunSlot]) -> Vec<Run> {
    let mut found: Vec<(u64, Run)> = slots.iter().filter_map(RunSlot::read).collect();
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, run)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Control;
    use aktis_protocol::{ProcessSlot, SessionId};

    fn run<Name>(number: u64, name: Name) -> Run<Name> {
        let task = TaskId::root(SessionId(1)).child(number);
        Run { kind: RunKind::Call, task, name, pid: 7, begin: number, end: number + 1, failed: false }
    }

    #[test]
    fn others_read_what_a_process_has_run() {
        let control = Control::create().unwrap();
        let other = Control::open(control.fd().try_clone_to_owned().unwrap(), ProcessSlot(3)).unwrap();
        assert_eq!(control.runs(), []);
        other.add_run(&run(1, "Class.method"));
        control.add_run(&run(2, ""));
        assert_eq!(control.runs(), [run(2, String::new()), run(1, "Class.method".to_owned())]);
    }

    #[test]
    fn a_run_is_seen_while_it_runs_and_tells_how_it_ended() {
        let control = Control::create().unwrap();
        let number = control.add_run(&Run { end: 0, ..run(1, "f") });
        assert_eq!(control.runs()[0].end, 0);
        control.end_run(number, 9, true);
        assert_eq!(control.runs(), [Run { end: 9, failed: true, ..run(1, "f".to_owned()) }]);
        for other in 0..RUNS_KEPT as u64 {
            control.add_run(&run(other, "g"));
        }
        control.end_run(number, 10, true);
        assert!(control.runs().iter().all(|run| !run.failed));
    }

    #[test]
    fn the_oldest_make_place_and_long_names_are_cut() {
        let control = Control::create().unwrap();
        let long = "ä".repeat(RUN_NAME_BYTES_MAX);
        for number in 0..RUNS_KEPT as u64 + 10 {
            control.add_run(&run(number, &long));
        }
        let runs = control.runs();
        assert_eq!((runs.len(), runs[0].begin), (RUNS_KEPT, 10));
        assert_eq!(runs[0].name, "ä".repeat(RUN_NAME_BYTES_MAX / 2));
    }
}
