//! What happens to tasks at a certain time: those that rested are tried again, those past their deadline are cancelled.
//!
//! A thread counts the time, from the first alarm until the session ends. A process in which no task rests or has a deadline
//! has none.
//!
//! Invariant: of the alarms, no more than half, or `SWEEP_MIN`, belong to tasks that were finished when they were last looked at.

use crate::entry::Later;
use crate::options::Tuning;
use crate::runtime::{IdMap, Inner};
use aktis_protocol::TaskKey;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// So many alarms there may be before anybody looks for those of finished tasks.
const SWEEP_MIN: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// The task is to be tried again.
    Rested(TaskKey),
    /// The task had so much time.
    Deadline(TaskKey, Duration),
}

/// The longest pause of a task that rests longer each time.
const REST_MAX: Duration = Duration::from_secs(1);
/// Tasks whose number of rests is known; when there are more, all are forgotten.
const RESTS_MAX: usize = 1 << 16;

/// The alarms of a process. There are at most twice as many as tasks that are not finished, and a few.
pub(crate) struct Alarms {
    /// How long a task rests, at first.
    rest: Duration,
    /// How often tasks have rested, if each rest is twice as long as the one before.
    rests: Option<Mutex<IdMap<TaskKey, u32>>>,
    clock: Arc<Clock>,
}

#[derive(Default)]
struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: BinaryHeap<Reverse<(Instant, Alarm)>>,
    /// How many there are when those of finished tasks are looked for again.
    sweep_at: usize,
    is_counted: bool,
    is_stopped: bool,
}

impl Alarms {
    pub(crate) fn new(tuning: &Tuning) -> Self {
        let rests = tuning.retry_doubles.then(Mutex::default);
        Self { rest: tuning.retry_delay, rests, clock: Arc::default() }
    }

    fn rest_of(&self, key: TaskKey) -> Duration {
        let Some(rests) = &self.rests else { return self.rest };
        let mut rests = rests.lock();
        if rests.len() >= RESTS_MAX {
            rests.clear();
        }
        let count = rests.entry(key).or_default();
        *count += 1;
        self.rest.saturating_mul(1 << (*count - 1).min(16)).min(REST_MAX)
    }

    /// The task is to be tried again in a while. The caller may hold the lock of a shard.
    pub(crate) fn add_rest(&self, runtime: &Arc<Inner>, key: TaskKey) {
        self.add(runtime, Instant::now() + self.rest_of(key), Alarm::Rested(key));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.clock.state.lock().queue.len()
    }

    /// The session is over.
    pub(crate) fn stop(&self) {
        self.clock.state.lock().is_stopped = true;
        self.clock.changed.notify_one();
    }

    /// Adds an alarm; true if it is time to look for those of finished tasks.
    fn add(&self, runtime: &Arc<Inner>, at: Instant, alarm: Alarm) -> bool {
        let mut state = self.clock.state.lock();
        let is_first = state.queue.peek().is_none_or(|Reverse((first, _))| at < *first);
        state.queue.push(Reverse((at, alarm)));
        if !state.is_counted {
            let (weak, clock) = (Arc::downgrade(runtime), self.clock.clone());
            let started =
                std::thread::Builder::new().name("aktis-alarms".into()).spawn(move || count(&weak, &clock));
            // Without a thread, the next one that comes tries again.
            state.is_counted = started.is_ok();
        } else if is_first {
            self.clock.changed.notify_one();
        }
        state.queue.len() > state.sweep_at.max(SWEEP_MIN)
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The life of the thread.
fn count(runtime: &Weak<Inner>, clock: &Clock) {
    let mut state = clock.state.lock();
    while !state.is_stopped {
        let now = Instant::now();
        match state.queue.peek().map(|Reverse((due, _))| *due) {
            None => clock.changed.wait(&mut state),
            Some(due) if due > now => drop(clock.changed.wait_until(&mut state, due)),
            Some(_) => {
                let due = state.take_due(now);
                MutexGuard::unlocked(&mut state, || {
                    if let Some(runtime) = runtime.upgrade() {
                        runtime.on_alarms(due);
                    }
                });
            }
        }
    }
}

impl State {
    fn take_due(&mut self, now: Instant) -> Vec<Alarm> {
        let mut due = Vec::new();
        while self.queue.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            due.extend(self.queue.pop().map(|Reverse((_, alarm))| alarm));
        }
        due
    }
}

impl Inner {
    /// The task has so much time from now on. The caller holds no lock.
    #[cold]
    pub(crate) fn set_deadline(self: &Arc<Self>, key: TaskKey, allowed: Duration) {
        // A time that no clock will ever show is no deadline.
        let Some(at) = Instant::now().checked_add(allowed) else { return };
        if self.alarms.add(self, at, Alarm::Deadline(key, allowed)) {
            self.sweep_alarms();
        }
    }

    /// Forgets the deadlines of tasks that are finished.
    fn sweep_alarms(self: &Arc<Self>) {
        self.drain();
        let mut queue = std::mem::take(&mut self.alarms.clock.state.lock().queue);
        queue.retain(|Reverse((_, alarm))| match alarm {
            Alarm::Rested(_) => true,
            Alarm::Deadline(key, _) => self.submitter.of(*key).lock().machine.is_unfinished(*key),
        });
        let mut state = self.alarms.clock.state.lock();
        state.queue.append(&mut queue);
        state.sweep_at = 2 * state.queue.len();
        self.alarms.clock.changed.notify_one();
        drop(state);
        self.run_deferred();
    }

    fn on_alarms(self: &Arc<Self>, due: Vec<Alarm>) {
        if self.is_closed() {
            return;
        }
        // What was answered in time counts, though nobody may have looked.
        self.drain_fully();
        for alarm in due {
            match alarm {
                Alarm::Rested(key) => self.on_rested(key),
                Alarm::Deadline(key, allowed) => self.on_deadline_passed(key, allowed),
            }
        }
    }

    /// A task has waited long enough.
    fn on_rested(self: &Arc<Self>, key: TaskKey) {
        let mut later = Later::default();
        let mut shell = self.submitter.of(key).lock();
        shell.machine.on_rested(key);
        shell.flush(self, &mut later);
        drop(shell);
        later.run(self);
        self.pump.want();
    }
}
