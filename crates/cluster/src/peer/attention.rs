//! The link's thread, while it looks for more by itself instead of sleeping.
//!
//! After frames have come, more is often to be expected soon: what a worker answers, or the next call of whoever has got an
//! answer. To look for it takes less time than to be woken for it. This goes on for [`ATTENTION`] after the last that
//! happened. Where other threads want the core it ends at once, and is not tried again for a while: who gives a core away
//! gets it back later than who was asleep.

use super::{Doorway, Frame, Peer};
use aktis_runtime::bridge::Bridge;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it looks for more: a few round trips between machines that are near each other.
const ATTENTION: Duration = Duration::from_micros(50);
/// Who gives the core away and does not have it back by then has lost it to somebody who works.
const KEPT: Duration = Duration::from_micros(100);

/// How long it does not look after it was kept from looking; twice as long each time, until it was worth while again.
const REST: Duration = Duration::from_millis(5);
/// The longest such time.
const REST_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Attention {
    doorway: Arc<Doorway>,
    bridge: Bridge,
    /// When something happened last, while it looks.
    busy: Option<Instant>,
    /// How long it rests when it is kept from looking the next time, and until when it rests.
    rest: Duration,
    rests_until: Instant,
}

impl Attention {
    pub(crate) fn new(doorway: Arc<Doorway>, bridge: Bridge) -> Self {
        Self { doorway, bridge, busy: None, rest: REST, rests_until: Instant::now() }
    }

    /// Frames have arrived.
    pub(crate) fn on_frames(&mut self, frames: Vec<Frame>) {
        self.doorway.receive(frames);
        let now = Instant::now();
        let looks = self.busy.is_some()
            || (now >= self.rests_until
                && self.with_peer(|peer| peer.bridge.watch(&peer.idle_shapes())).is_some());
        self.busy = looks.then_some(now);
    }

    /// There are no frames at present. Deals with what else has happened; gives whether to look again.
    pub(crate) fn on_quiet(&mut self) -> bool {
        let Some(busy) = self.busy else { return false };
        // If the peer's own thread has it, that sees to everything.
        let progress = self.with_peer(|peer| peer.turn(Vec::new()));
        let now = Instant::now();
        match progress {
            Some(true) => {
                self.busy = Some(now);
                self.rest = REST;
                return true;
            }
            Some(false) if now.duration_since(busy) < ATTENTION => {
                std::thread::yield_now();
                if now.elapsed() < KEPT {
                    return true;
                }
                self.rests_until = now + self.rest;
                self.rest = (self.rest * 2).min(REST_MAX);
            }
            Some(false) | None => {}
        }
        self.end();
        false
    }

    fn with_peer<T>(&self, work: impl FnOnce(&mut Peer) -> T) -> Option<T> {
        self.doorway.peer.try_lock().as_deref_mut().and_then(Option::as_mut).map(work)
    }

    /// Leaves all that happens to the peer's own thread.
    fn end(&mut self) {
        if self.busy.take().is_none() {
            return;
        }
        let shapes = self.with_peer(|peer| peer.idle_shapes()).unwrap_or_default();
        if self.bridge.unwatch(&shapes) {
            // Nobody was woken for it.
            self.bridge.queue().wake();
        }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        self.end();
    }
}
