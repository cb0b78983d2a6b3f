//! The link's thread, while it polls instead of sleeping.
//!
//! After frames have come, more is often to be expected soon: a worker's answer, or the next call of a process that has
//! got an answer. A look takes less time than a wake-up. Polling goes on for [`POLL`] after the last event. Where other
//! threads want the core it ends at once, and backs off: a thread that gives a core away gets it back later than a thread
//! that was asleep.

use super::{Frame, Proxy};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread polls after the last event: a few round trips between machines that are near each other.
const POLL: Duration = Duration::from_micros(50);
/// A thread that yields and does not have the core back by then has lost it to one that works.
const YIELD_MAX: Duration = Duration::from_micros(100);

/// How long the thread does not poll after it has lost the core; twice as long each time, until polling was worth while.
const BACK_OFF: Duration = Duration::from_millis(5);
/// The longest such time.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct LinkPoller {
    proxy: Arc<Proxy>,
    /// When something happened last, while the thread polls.
    busy: Option<Instant>,
    /// How long the thread backs off the next time, and until when it does now.
    back_off: Duration,
    backs_off_until: Instant,
}

impl LinkPoller {
    pub(crate) fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy, busy: None, back_off: BACK_OFF, backs_off_until: Instant::now() }
    }

    /// Frames have arrived.
    pub(crate) fn on_frames(&mut self, frames: Vec<Frame>) {
        self.proxy.receive(frames);
        let now = Instant::now();
        let watch = || self.proxy.with_machine(|machine| self.proxy.bridge.watch(&machine.idle_shapes()));
        let polls = self.busy.is_some() || (now >= self.backs_off_until && watch().is_some());
        self.busy = polls.then_some(now);
    }

    /// There are no frames at present. Deals with what else has happened; gives whether to look again.
    pub(crate) fn on_quiet(&mut self) -> bool {
        let Some(busy) = self.busy else { return false };
        // If the proxy's own thread has the machine, that sees to everything.
        let progress = self.proxy.with_machine(|machine| self.proxy.turn(machine, Vec::new()));
        let now = Instant::now();
        match progress {
            Some(true) => {
                self.busy = Some(now);
                self.back_off = BACK_OFF;
                return true;
            }
            Some(false) if now.duration_since(busy) < POLL => {
                std::thread::yield_now();
                if now.elapsed() < YIELD_MAX {
                    return true;
                }
                self.backs_off_until = now + self.back_off;
                self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
            }
            Some(false) | None => {}
        }
        self.end();
        false
    }

    /// Leaves all that happens to the proxy's own thread.
    fn end(&mut self) {
        if self.busy.take().is_none() {
            return;
        }
        let shapes = self.proxy.idle_shapes();
        if self.proxy.bridge.unwatch(&shapes) {
            // No other thread was woken for it.
            self.proxy.bridge.queue().wake();
        }
    }
}

impl Drop for LinkPoller {
    fn drop(&mut self) {
        self.end();
    }
}
