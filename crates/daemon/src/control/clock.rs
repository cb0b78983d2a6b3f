//! The time of the control process, and what its thread waits for.
//!
//! Invariant: while the process was stopped, no time has passed. A lease lapses because a node is silent, and not because
//! nobody was there to listen.

use super::ControlError;
use aktis_logic::Time;
use aktis_logic::machine::head::HeadInput;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the thread sleeps at most.
const TICK_MAX: Duration = Duration::from_millis(500);
/// A thread that wakes up so much too late was stopped.
const LATE_MIN: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Clock {
    began: Instant,
    /// Microseconds in which the process was stopped.
    stood_still: AtomicU64,
    news: Mutex<News>,
    changed: Condvar,
    ending: Mutex<Ending>,
    ended: Condvar,
}

#[derive(Default)]
struct News {
    /// What the tables have told the head, for the thread to pass on.
    from_tables: Vec<HeadInput>,
    /// Something may be due earlier.
    rung: bool,
    closed: bool,
}

#[derive(Default)]
struct Ending {
    stopped: bool,
    failed: Option<String>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            stood_still: AtomicU64::new(0),
            news: Mutex::default(),
            changed: Condvar::new(),
            ending: Mutex::default(),
            ended: Condvar::new(),
        }
    }
}

impl Clock {
    pub(super) fn now(&self) -> Time {
        let passed = self.began.elapsed().as_micros() as u64;
        Time(passed.saturating_sub(self.stood_still.load(Ordering::Relaxed)))
    }

    /// Something may be due earlier.
    pub(super) fn ring(&self) {
        self.news.lock().rung = true;
        self.changed.notify_one();
    }

    /// The tables have said something.
    pub(super) fn tell(&self, said: HeadInput) {
        self.news.lock().from_tables.push(said);
        self.changed.notify_one();
    }

    pub(super) fn close(&self) {
        self.news.lock().closed = true;
        self.changed.notify_one();
    }

    /// Waits until something is due or has happened; gives what the tables have said, or `None` at the end.
    pub(super) fn wait(&self, due: Option<Time>) -> Option<Vec<HeadInput>> {
        let pause = due.map_or(TICK_MAX, |due| Duration::from_micros(due.0.saturating_sub(self.now().0)));
        let pause = pause.clamp(Duration::from_millis(1), TICK_MAX);
        let began = Instant::now();
        let mut news = self.news.lock();
        while !news.rung && !news.closed && news.from_tables.is_empty() && began.elapsed() < pause {
            self.changed.wait_until(&mut news, began + pause);
        }
        let late = began.elapsed().saturating_sub(pause);
        if late > LATE_MIN {
            self.stood_still.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
        }
        let News { from_tables, closed, .. } = std::mem::take(&mut *news);
        news.closed = closed;
        (!closed).then_some(from_tables)
    }

    /// Has the control process stopped.
    pub(super) fn stop(&self) {
        self.ending.lock().stopped = true;
        self.ended.notify_all();
    }

    /// What is promised cannot be kept any more.
    pub(super) fn fail(&self, why: String) {
        self.ending.lock().failed.get_or_insert(why);
        self.ended.notify_all();
    }

    pub(super) fn wait_for_end(&self) -> Result<(), ControlError> {
        let mut ending = self.ending.lock();
        while !ending.stopped && ending.failed.is_none() {
            self.ended.wait(&mut ending);
        }
        ending.failed.take().map_or(Ok(()), |why| Err(ControlError::Halted(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_before_the_wait_is_not_missed() {
        let clock = Clock::default();
        let node = aktis_protocol::NodeId::from_words([1, 0]);
        clock.tell(HeadInput::NodeWritten { node, info: None });
        assert_eq!(clock.wait(None).map(|inputs| inputs.len()), Some(1));
        clock.ring();
        assert_eq!(clock.wait(None).map(|inputs| inputs.len()), Some(0));
        clock.close();
        assert!(clock.wait(None).is_none() && clock.wait(None).is_none());
    }
}
