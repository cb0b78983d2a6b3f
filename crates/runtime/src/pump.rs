//! The helper thread of a driver: takes in completions when nobody who waits does so.
//!
//! A thread inside `get` drains completions itself, first spinning, then asleep: the first that sleeps *leads*, and is the
//! one that the doorbell wakes. The pump is awake only while something depends on completions that nobody drains: other
//! sleeping getters after the one that led has left, wakers, tasks that wait for inputs, a backlog.

use crate::error::Error;
use crate::runtime::Inner;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// While others drain, the pump looks this often whether they still do.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The longest time to spin has so many parts; see [`Pump::spin_part`].
pub(crate) const SPIN_PARTS: u32 = 8;

/// The state of the helper thread.
#[derive(Default)]
pub(crate) struct Pump {
    wanted: AtomicBool,
    /// Somebody sleeps: do not leave the draining to others.
    now: AtomicBool,
    /// Somebody has slept since it is wanted, and may still do so: who leaves is to be followed at once.
    urgent: AtomicBool,
    stopped: AtomicBool,
    /// Threads that are draining completions themselves.
    drainers: AtomicU32,
    /// A thread that waits drains completions, and sleeps on the doorbell meanwhile.
    led: AtomicBool,
    /// How long it was worth while to spin of late, in parts of [`SPIN_PARTS`].
    spin: AtomicU32,
    /// How often anybody has drained.
    drained: AtomicU64,
    /// How often anybody has taken a value that was there.
    passed: AtomicU64,
    parked: Mutex<Parked>,
    wake: Condvar,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// Whether the helper thread rests, and for how long.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Parked {
    #[default]
    No,
    /// It looks again by itself.
    Briefly,
    /// Until it is told.
    Long,
}

/// What others have done so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    drained: u64,
    passed: u64,
}

impl Pump {
    /// Something depends on completions: if nobody drains them, the pump must.
    pub(crate) fn want(&self) {
        if !self.wanted.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// A thread goes to sleep until something is resolved: the pump takes over at once.
    pub(crate) fn want_now(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        self.urgent.store(true, Ordering::SeqCst);
        self.follow_now();
    }

    fn follow_now(&self) {
        self.now.store(true, Ordering::SeqCst);
        self.unpark();
    }

    /// The caller drains by itself from now on.
    pub(crate) fn enter(&self) {
        self.drainers.fetch_add(1, Ordering::SeqCst);
    }

    /// The caller does not drain any more.
    pub(crate) fn leave(&self) {
        self.drainers.fetch_sub(1, Ordering::SeqCst);
    }

    /// The caller drains, and sleeps on the doorbell in between, until it drops what it gets here; nothing if another one
    /// does so already.
    pub(crate) fn lead(&self) -> Option<Leading<'_>> {
        let is_first = !self.led.swap(true, Ordering::SeqCst);
        is_first.then(|| Leading(self))
    }

    /// Which part of the longest time to spin.
    pub(crate) fn spin_part(&self) -> u32 {
        SPIN_PARTS >> self.spin.load(Ordering::Relaxed)
    }

    /// Whether what somebody waited for came while it was spinning.
    pub(crate) fn on_spun(&self, came: bool) {
        let halvings = if came { 0 } else { (self.spin.load(Ordering::Relaxed) + 1).min(SPIN_PARTS.ilog2()) };
        self.spin.store(halvings, Ordering::Relaxed);
    }

    pub(crate) fn drained(&self) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody took a value that was there, and drains by itself when it comes to one that is not.
    #[inline]
    pub(crate) fn passed(&self) {
        // A count that is lost to another thread's does not matter: what counts is that it moves.
        self.passed.store(self.passed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn seen(&self) -> Seen {
        Seen { drained: self.drained.load(Ordering::Relaxed), passed: self.passed.load(Ordering::Relaxed) }
    }

    /// Whether others have drained since, or may be expected to do so soon. Nobody is to sleep because of the latter.
    fn is_done_by_others(&self, before: Seen, now: Seen) -> bool {
        before.drained != now.drained || (before.passed != now.passed && !self.urgent.load(Ordering::SeqCst))
    }

    fn unpark(&self) {
        self.unpark_if(|parked| parked != Parked::No);
    }

    fn unpark_if(&self, condition: impl FnOnce(Parked) -> bool) {
        let mut parked = self.parked.lock();
        if condition(*parked) {
            *parked = Parked::No;
            self.wake.notify_one();
        }
    }

    fn park(&self, timeout: Option<Duration>, unless: impl Fn() -> bool) {
        let mut parked = self.parked.lock();
        if unless() || self.stopped.load(Ordering::SeqCst) {
            return;
        }
        match timeout {
            Some(timeout) => {
                *parked = Parked::Briefly;
                self.wake.wait_for(&mut parked, timeout);
            }
            None => {
                *parked = Parked::Long;
                self.wake.wait(&mut parked);
            }
        }
        *parked = Parked::No;
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.unpark();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// See [`Pump::lead`].
pub(crate) struct Leading<'a>(&'a Pump);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.led.store(false, Ordering::SeqCst);
        if !self.0.wanted.load(Ordering::SeqCst) {
            return;
        }
        match self.0.urgent.load(Ordering::SeqCst) {
            // Others may have left the draining to this thread.
            true => self.0.follow_now(),
            // Who comes back for the next value soon needs no help in between.
            false => self.0.unpark_if(|parked| parked == Parked::Long),
        }
    }
}

/// Starts the helper thread of a driver.
pub(crate) fn spawn(runtime: &Arc<Inner>) -> Result<(), Error> {
    let weak = Arc::downgrade(runtime);
    let thread = std::thread::Builder::new()
        .name("aktis-pump".into())
        .stack_size(256 * 1024)
        .spawn(move || run(&weak))
        .map_err(|error| Error::System(format!("cannot start a thread: {error}")))?;
    *runtime.pump.thread.lock() = Some(thread);
    Ok(())
}

fn run(runtime: &Weak<Inner>) {
    let mut seen = Seen::default();
    while let Some(runtime) = runtime.upgrade() {
        let pump = &runtime.pump;
        if pump.stopped.load(Ordering::SeqCst) {
            return;
        }
        if !pump.wanted.load(Ordering::SeqCst) {
            pump.park(None, || pump.wanted.load(Ordering::SeqCst));
            continue;
        }
        if pump.led.load(Ordering::SeqCst) {
            // If the doorbell has woken this thread, it was meant for the one that leads.
            runtime.control.doorbell().call();
            pump.park(None, || !pump.led.load(Ordering::SeqCst));
            continue;
        }
        let before = std::mem::replace(&mut seen, pump.seen());
        let now = pump.now.swap(false, Ordering::SeqCst);
        if pump.drainers.load(Ordering::SeqCst) > 0 || (!now && pump.is_done_by_others(before, seen)) {
            // Others drain: they do it better, being the ones who wait.
            pump.park(Some(LOOK_AGAIN), || pump.now.load(Ordering::SeqCst));
            continue;
        }
        let progress = runtime.drain();
        seen = pump.seen();
        if !progress {
            rest(&runtime);
        }
    }
}

/// Sleeps on the doorbell while something is unfinished; else lets the pump park.
fn rest(runtime: &Arc<Inner>) {
    let pump = &runtime.pump;
    runtime.pay();
    let unfinished = || runtime.unfinished() > 0;
    if !unfinished() {
        let urgent = pump.urgent.swap(false, Ordering::SeqCst);
        pump.wanted.store(false, Ordering::SeqCst);
        if !unfinished() {
            return;
        }
        pump.urgent.fetch_or(urgent, Ordering::SeqCst);
        pump.wanted.store(true, Ordering::SeqCst);
    }
    let bell = runtime.control.doorbell();
    let ticket = bell.prepare();
    if runtime.control.has_inbound() || pump.led.load(Ordering::SeqCst) || pump.stopped.load(Ordering::SeqCst)
    {
        bell.stay(ticket);
    } else {
        bell.sleep(ticket, Some(Duration::from_millis(50)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_values_that_are_there_keeps_nobody_asleep() {
        let pump = Pump::default();
        let before = pump.seen();
        assert!(!pump.is_done_by_others(before, pump.seen()));
        pump.passed();
        assert!(pump.is_done_by_others(before, pump.seen()), "it drains when it comes to one that is not");
        pump.want_now();
        assert!(!pump.is_done_by_others(before, pump.seen()), "somebody sleeps meanwhile");
        pump.drained();
        assert!(pump.is_done_by_others(before, pump.seen()));
    }
}
