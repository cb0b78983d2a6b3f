//! How long tasks ran: for each process a ring with the last that were measured, which the node reads now and then.
//!
//! Invariant: a slot that is being written has the mark 0; one that was read between two equal marks is whole.

use crate::map::Shared;
use aktis_protocol::FunctionId;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Measurements that are kept of each process.
pub const SAMPLES_KEPT: usize = 256;

/// How long a task ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What its run time is told by.
    pub likeness: FunctionId,
    /// How long.
    pub microseconds: u64,
}

/// How many measurements a process has written, and those before it in its place.
#[repr(C, align(64))]
pub(crate) struct SampleCount(AtomicU64);

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for SampleCount {}

#[repr(C)]
pub(crate) struct SampleSlot {
    /// The number of the measurement, from 1 on; 0 while it is written.
    mark: AtomicU64,
    likeness: AtomicU64,
    microseconds: AtomicU64,
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for SampleSlot {}

impl SampleSlot {
    #[inline]
    fn write(&self, mark: u64, sample: Sample) {
        self.mark.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.likeness.store(sample.likeness.0, Ordering::Relaxed);
        self.microseconds.store(sample.microseconds, Ordering::Relaxed);
        self.mark.store(mark, Ordering::Release);
    }

    /// The measurement with this number, if it is there and whole.
    fn read(&self, mark: u64) -> Option<Sample> {
        let is_it = || self.mark.load(Ordering::Acquire) == mark;
        if !is_it() {
            return None;
        }
        let likeness = FunctionId(self.likeness.load(Ordering::Relaxed));
        let microseconds = self.microseconds.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        is_it().then_some(Sample { likeness, microseconds })
    }
}

/// Adds a measurement; the oldest makes place for it.
#[inline]
pub(crate) fn add(count: &SampleCount, slots: &[SampleSlot], sample: Sample) {
    let number = count.0.fetch_add(1, Ordering::Relaxed);
    slots[number as usize % slots.len()].write(number + 1, sample);
}

/// How many there were.
pub(crate) fn count(count: &SampleCount) -> u64 {
    count.0.load(Ordering::Acquire)
}

/// Those from one number to another that are still there, oldest first.
pub(crate) fn between(slots: &[SampleSlot], seen: u64, now: u64) -> Vec<Sample> {
    let first = seen.max(now.saturating_sub(slots.len() as u64));
    (first..now).filter_map(|number| slots[number as usize % slots.len()].read(number + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Control;
    use aktis_protocol::ProcessSlot;

    #[test]
    fn the_node_reads_each_measurement_once_as_far_as_they_are_kept() {
        let control = Control::create().unwrap();
        let worker = Control::open(control.fd().try_clone_to_owned().unwrap(), ProcessSlot(3)).unwrap();
        let sample = |number| Sample { likeness: FunctionId(number % 3), microseconds: number };
        (0..5).for_each(|number| worker.add_sample(sample(number)));
        let (first, seen) = control.samples_since(ProcessSlot(3), 0);
        assert_eq!((first.len(), first[4], seen), (5, sample(4), 5));
        assert_eq!(control.samples_since(ProcessSlot(3), seen), (Vec::new(), 5));
        let many = SAMPLES_KEPT as u64 + 10;
        (5..5 + many).for_each(|number| worker.add_sample(sample(number)));
        let (next, seen) = control.samples_since(ProcessSlot(3), seen);
        assert_eq!((next.len(), next[0], seen), (SAMPLES_KEPT, sample(15), 5 + many));
        assert_eq!(control.samples_since(ProcessSlot(4), 0), (Vec::new(), 0));
    }
}
