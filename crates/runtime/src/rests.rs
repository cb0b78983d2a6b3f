//! Tasks that wait a while before they are tried again, where the session wants that.
//!
//! All wait equally long, so those that came first are due first. A thread counts the time while there are some.

use crate::entry::Later;
use crate::runtime::Inner;
use aktis_protocol::TaskKey;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The tasks that wait. There are no more of them than tasks that are not finished.
pub(crate) struct Rests {
    delay: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Instant, TaskKey)>,
    is_counted: bool,
}

impl Rests {
    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay, state: Mutex::default() }
    }

    /// The task is to be tried again in a while. The caller may hold the lock of a shard.
    pub(crate) fn add(&self, runtime: &Arc<Inner>, key: TaskKey) {
        let mut state = self.state.lock();
        state.queue.push_back((Instant::now() + self.delay, key));
        if !state.is_counted {
            let weak = Arc::downgrade(runtime);
            let started = std::thread::Builder::new().name("aktis-rests".into()).spawn(move || count(&weak));
            // Without a thread, the next one that comes tries again.
            state.is_counted = started.is_ok();
        }
    }

    /// What is due first; nothing if nothing waits, and then the caller is to end.
    fn first(&self) -> Option<(Instant, TaskKey)> {
        let mut state = self.state.lock();
        state.is_counted = !state.queue.is_empty();
        state.queue.front().copied()
    }
}

fn count(runtime: &Weak<Inner>) {
    while let Some(runtime) = runtime.upgrade()
        && let Some((due, key)) = runtime.rests.first()
        && !runtime.is_closed()
    {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            runtime.rests.state.lock().queue.pop_front();
            runtime.on_rested(key);
        } else {
            drop(runtime);
            std::thread::sleep(left.min(LOOK_UP));
        }
    }
}

/// How long the end of a session can go unnoticed.
const LOOK_UP: Duration = Duration::from_millis(100);

impl Inner {
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
