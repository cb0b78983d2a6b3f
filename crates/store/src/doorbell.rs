//! Wakes a sleeping process: a futex word in shared memory, and a count of who sleeps on it.
//!
//! Invariants:
//! 1. Who wants to sleep announces it, looks for work once more, and only then sleeps: a ring between
//!    the look and the sleep changes the word, and the sleep returns at once.
//! 2. Ringing costs two loads when nobody sleeps, or somebody is awake who will look by itself.
//! 3. Who watches stops watching before it announces its sleep: so either it sees the work, or the ringer
//!    sees that nobody watches.

use crate::map::Shared;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// A doorbell in shared memory.
#[repr(C)]
#[derive(Default)]
pub struct Doorbell {
    sequence: AtomicU32,
    sleepers: AtomicU32,
    watchers: AtomicU32,
    _reserved: AtomicU32,
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for Doorbell {}

/// Announced before sleeping; see [`Doorbell::prepare`].
#[must_use]
pub struct Ticket(u32);

impl Doorbell {
    /// Announces that the caller is about to sleep. Look for work after this, then [`sleep`](Self::sleep)
    /// or [`stay`](Self::stay).
    #[inline]
    pub fn prepare(&self) -> Ticket {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let ticket = Ticket(self.sequence.load(Ordering::SeqCst));
        fence(Ordering::SeqCst);
        ticket
    }

    /// Takes back the announcement: there is work.
    #[inline]
    pub fn stay(&self, _ticket: Ticket) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps until the bell rings (or has rung since `prepare`), or the time is over.
    pub fn sleep(&self, ticket: Ticket, timeout: Option<Duration>) {
        let timeout = timeout.map(|duration| futex::Timespec {
            tv_sec: duration.as_secs().min(1 << 40) as i64,
            tv_nsec: i64::from(duration.subsec_nanos()),
        });
        // Every outcome (woken, changed, timed out, interrupted) means the same: look again.
        let _ = futex::wait(&self.sequence, futex::Flags::empty(), ticket.0, timeout.as_ref());
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// The caller is awake and looks for work again and again until it says otherwise.
    #[inline]
    pub fn watch(&self) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
    }

    /// The caller does not look any more.
    #[inline]
    pub fn unwatch(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody watches.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::SeqCst) != 0
    }

    /// Wakes one sleeper, if there is one and nobody watches. What was published before is visible to it.
    #[inline]
    pub fn ring(&self) {
        self.ring_unless(|| false);
    }

    /// The same, unless the caller, asked only if somebody would be woken, says that it rings later.
    #[inline]
    pub fn ring_unless(&self, later: impl FnOnce() -> bool) {
        fence(Ordering::SeqCst);
        let is_wanted =
            self.watchers.load(Ordering::Relaxed) == 0 && self.sleepers.load(Ordering::Relaxed) != 0;
        if is_wanted && !later() {
            self.wake(1);
        }
    }

    /// Wakes one sleeper, if there is one, though others may watch: one more hand is wanted.
    #[inline]
    pub fn call(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake(1);
        }
    }

    /// Wakes all sleepers: what has happened concerns one of them, whichever it is.
    #[inline]
    pub fn call_all(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake(i32::MAX as u32);
        }
    }

    /// Forgets who slept and watched: they have died.
    pub(crate) fn reset(&self) {
        self.sleepers.store(0, Ordering::SeqCst);
        self.watchers.store(0, Ordering::SeqCst);
    }

    fn wake(&self, count: u32) {
        self.sequence.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.sequence, futex::Flags::empty(), count);
    }
}
