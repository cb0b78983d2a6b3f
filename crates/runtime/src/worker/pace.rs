//! The pace of an actor: how long its calls take, from samples.
//!
//! Only time in user code counts. A call may first have to wait for something that other threads of the worker hold, such
//! as an interpreter's lock; were that counted, threads that only stand in each other's way would look like long calls.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One of so many calls is timed: a prime, as calls often come in a pattern of two, four or ten.
const SAMPLE_EVERY: u32 = 7;
/// A call counts as no longer than this: one that was unlucky is forgotten soon.
const SAMPLE_MAX: Duration = Duration::from_millis(1);
/// Below this average, waking another thread costs more than running the call oneself.
const BRIEF: Duration = Duration::from_micros(2);

thread_local! {
    /// When the call began that this thread runs, if it is timed.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// How long the calls of an actor take.
#[derive(Default)]
pub(super) struct Pace {
    /// A running average of nanoseconds. Calls are taken for brief until they are seen not to be.
    average: AtomicU32,
    calls: AtomicU32,
}

impl Pace {
    /// A call begins.
    pub(super) fn begin(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE_EVERY) {
            BEGAN.set(Some(Instant::now()));
        }
    }

    /// The call is over that this thread began last.
    pub(super) fn end(&self) {
        if let Some(began) = BEGAN.take() {
            self.note(began.elapsed());
        }
    }

    /// A call was found to block: that is known before it is over.
    pub(super) fn note_blocked(&self) {
        self.note(SAMPLE_MAX);
    }

    fn note(&self, time: Duration) {
        let average = self.average.load(Ordering::Relaxed);
        let sample = time.min(SAMPLE_MAX).as_nanos() as u32;
        self.average.store(average - average / 8 + sample / 8, Ordering::Relaxed);
    }

    /// Whether calls are too short for another thread to be worth waking.
    pub(super) fn is_brief(&self) -> bool {
        let brief = crate::hooks::get().map_or(BRIEF, |hooks| hooks.brief);
        Duration::from_nanos(self.average.load(Ordering::Relaxed).into()) < brief
    }
}

/// User code begins only now: what this thread has waited for since the call began does not count.
pub(crate) fn user_code_begins() {
    if BEGAN.get().is_some() {
        BEGAN.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_call_among_many_is_forgotten() {
        let pace = Pace::default();
        assert!(pace.is_brief(), "nothing is known yet");
        pace.note_blocked();
        assert!(!pace.is_brief(), "one that blocks is heeded at once");
        let again = (0..1000).find(|_| {
            pace.note(Duration::from_nanos(700));
            pace.is_brief()
        });
        assert!(again.is_some_and(|samples| samples < 50), "forgotten after {again:?} samples");
    }

    #[test]
    fn calls_that_block_now_and_then_are_not_brief() {
        let pace = Pace::default();
        for call in 0..1000 {
            pace.note(Duration::from_micros(if call % 10 == 0 { 500 } else { 1 }));
        }
        assert!(!pace.is_brief());
    }
}
