//! Workers that could run a task of a shape and sleep: they announce themselves, and whoever queues such a task wakes one.

use super::{Control, SHAPES, ShapePage};
use aktis_protocol::limits::SHAPES_MAX;
use aktis_protocol::{ProcessSlot, ShapeId};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// When to wake a worker that has run dry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// Now, by whoever has something for it.
    Now,
    /// A little later, by whoever says so.
    Later,
    /// The same; but that was put off before, for something else. This may be for others.
    StillLater,
}

impl Control {
    #[inline]
    fn shape(&self, shape: ShapeId) -> &ShapePage {
        assert!((shape.0 as usize) < SHAPES_MAX);
        self.mapping.at(SHAPES + shape.0 as usize * size_of::<ShapePage>())
    }

    /// Says that this process has a thread that could run a task of this shape and is about to sleep.
    pub fn announce_idle(&self, shape: ShapeId) {
        let page = self.shape(shape);
        let (index, bit) = (self.me.0 as usize / 64, 1_u64 << (self.me.0 % 64));
        page.idle[index].fetch_or(bit, Ordering::SeqCst);
        page.summary.fetch_or(1 << index, Ordering::SeqCst);
    }

    /// Takes the announcement back: a thread is awake and looks by itself.
    pub fn retract_idle(&self, shape: ShapeId) {
        let (index, bit) = (self.me.0 as usize / 64, 1_u64 << (self.me.0 % 64));
        let word = &self.shape(shape).idle[index];
        if word.load(Ordering::Relaxed) & bit != 0 {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Takes all announcements back: the number of the shape is used for another from now on (node only).
    pub fn forget_shape(&self, shape: ShapeId) {
        let page = self.shape(shape);
        for word in &page.idle {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Wakes one process that announced itself idle for this shape and that may take tasks of this submitter, if there is
    /// one. What was sent here by another node stays here. Call after a push.
    #[inline]
    pub fn wake_idle(&self, shape: ShapeId, submitter: ProcessSlot) {
        self.wake_idle_when(shape, submitter, |_| WakeUp::Now);
    }

    /// The same, if the caller does not say that it wakes that process [later](Self::wake_if_idle). It is asked about workers of
    /// which no thread watches.
    #[inline]
    pub fn wake_idle_when(
        &self,
        shape: ShapeId,
        submitter: ProcessSlot,
        mut when: impl FnMut(ProcessSlot) -> WakeUp,
    ) {
        fence(Ordering::SeqCst);
        let page = self.shape(shape);
        let mut summary = page.summary.load(Ordering::Relaxed);
        while summary != 0 {
            let index = summary.trailing_zeros() as usize;
            let word = &page.idle[index];
            if word.load(Ordering::SeqCst) == 0 {
                page.summary.fetch_and(!(1 << index), Ordering::SeqCst);
                if word.load(Ordering::SeqCst) != 0 {
                    // Who has pushed meanwhile saw nobody, so whoever has just announced itself is woken from here.
                    page.summary.fetch_or(1 << index, Ordering::SeqCst);
                    continue;
                }
            } else if self.wake_one(index, word, self.is_elsewhere(submitter), &mut when) {
                return;
            }
            summary &= summary - 1;
        }
    }

    /// Wakes one of the processes of which a word says that they are idle, now or later; false if there is none to be woken.
    fn wake_one(
        &self,
        index: usize,
        word: &AtomicU64,
        stays: bool,
        when: &mut impl FnMut(ProcessSlot) -> WakeUp,
    ) -> bool {
        let mut bits = word.load(Ordering::SeqCst);
        while bits != 0 {
            let process = ProcessSlot((index * 64) as u32 + bits.trailing_zeros());
            bits &= bits - 1;
            let is_elsewhere = self.is_elsewhere(process);
            if stays && is_elsewhere {
                continue;
            }
            let is_dry = !is_elsewhere && !self.page(process).doorbell.is_watched();
            let is_found = match is_dry && self.is_alive(process) {
                true => match when(process) {
                    WakeUp::Now => self.wake_announced(word, process),
                    WakeUp::Later => true,
                    WakeUp::StillLater => false,
                },
                false => self.wake_announced(word, process),
            };
            if is_found {
                return true;
            }
        }
        false
    }

    /// Wakes a process that was to be woken later. False if somebody has woken it meanwhile, for something else perhaps.
    pub fn wake_if_idle(&self, shape: ShapeId, process: ProcessSlot) -> bool {
        self.wake_announced(&self.shape(shape).idle[process.0 as usize / 64], process)
    }

    /// Takes the announcement of a process back and wakes it. False if there was none, or the process died in its sleep and
    /// has left it behind: then another one is to be woken.
    fn wake_announced(&self, word: &AtomicU64, process: ProcessSlot) -> bool {
        let bit = 1_u64 << (process.0 % 64);
        let is_woken = word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 && self.is_alive(process);
        if is_woken {
            self.page(process).doorbell.call();
        }
        is_woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_process_is_woken() {
        let control = Control::create().unwrap();
        control.wake_idle(ShapeId(0), ProcessSlot(0));
        control.announce_idle(ShapeId(0));
        assert_eq!(control.shape(ShapeId(0)).idle[0].load(Ordering::Relaxed), 1);
        control.wake_idle(ShapeId(0), ProcessSlot(0));
        assert_eq!(control.shape(ShapeId(0)).idle[0].load(Ordering::Relaxed), 0);
        control.wake_idle(ShapeId(0), ProcessSlot(0));
        assert_eq!(control.shape(ShapeId(0)).summary.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_dead_process_does_not_take_a_wake_up_from_the_living() {
        let control = Control::create().unwrap();
        let idle = |slot| {
            let process = ProcessSlot(slot);
            control.start_process(process, 1);
            let other = Control::open(control.fd().try_clone_to_owned().unwrap(), process).unwrap();
            other.announce_idle(ShapeId(0));
        };
        idle(1);
        idle(2);
        control.mark_dead(ProcessSlot(1));
        control.wake_idle(ShapeId(0), ProcessSlot(0));
        assert_eq!(control.shape(ShapeId(0)).idle[0].load(Ordering::Relaxed), 0, "both bits are gone");
    }

    #[test]
    fn what_another_node_has_sent_wakes_nobody_who_stands_for_a_node() {
        let control = Control::create().unwrap();
        let (sender, other, worker) = (ProcessSlot(1), ProcessSlot(2), ProcessSlot(3));
        control.start_elsewhere(sender, 1);
        control.start_elsewhere(other, 1);
        control.start_process(worker, 1);
        for process in [other, worker] {
            let own = Control::open(control.fd().try_clone_to_owned().unwrap(), process).unwrap();
            own.announce_idle(ShapeId(0));
        }
        let idle = || control.shape(ShapeId(0)).idle[0].load(Ordering::Relaxed);
        control.wake_idle(ShapeId(0), sender);
        assert_eq!(idle(), 1 << other.0, "the worker is woken");
        control.wake_idle(ShapeId(0), sender);
        assert_eq!(idle(), 1 << other.0, "and nobody else");
        control.wake_idle(ShapeId(0), worker);
        assert_eq!(idle(), 0);
    }

    #[test]
    fn a_worker_that_has_run_dry_may_be_woken_later() {
        let control = Control::create().unwrap();
        let (worker, other) = (ProcessSlot(1), ProcessSlot(2));
        control.start_process(worker, 1);
        control.start_elsewhere(other, 1);
        let [worker_own, other_own] = [worker, other]
            .map(|process| Control::open(control.fd().try_clone_to_owned().unwrap(), process).unwrap());
        let idle = || control.shape(ShapeId(0)).idle[0].load(Ordering::Relaxed);
        let wake = |when| {
            let mut asked = Vec::new();
            control.wake_idle_when(ShapeId(0), ProcessSlot(0), |process| {
                asked.push(process);
                when
            });
            asked
        };
        worker_own.announce_idle(ShapeId(0));
        let asked = wake(WakeUp::Later);
        assert_eq!((asked, idle()), (vec![worker], 1 << worker.0), "it stays announced until it is woken");
        assert!(control.wake_if_idle(ShapeId(0), worker));
        assert!(!control.wake_if_idle(ShapeId(0), worker), "it has been woken");
        assert_eq!(idle(), 0);
        worker_own.announce_idle(ShapeId(0));
        other_own.announce_idle(ShapeId(0));
        assert_eq!(wake(WakeUp::StillLater), [worker]);
        assert_eq!(idle(), 1 << worker.0, "the other one is woken for what is more than one can do");
        assert!(control.wake_if_idle(ShapeId(0), worker));
        worker_own.announce_idle(ShapeId(0));
        worker_own.doorbell().watch();
        assert_eq!((wake(WakeUp::Later), idle()), (vec![], 0), "a thread is awake, and wants another one");
        other_own.announce_idle(ShapeId(0));
        let asked = wake(WakeUp::Later);
        assert_eq!((asked, idle()), (vec![], 0), "nobody would find out that another node was not woken");
    }
}
