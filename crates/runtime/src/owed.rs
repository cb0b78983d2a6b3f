//! Wake-ups that are put off for a moment.
//!
//! Whoever sleeps until there is something for it is woken when there is. If things come one after the other, each of them
//! short, and it is woken for each, then it and who wakes it take turns on a core, and to switch takes many times what such
//! a thing takes. So one that was woken just now, and sleeps again, is owed the next wake-up until a little time has
//! passed, or who owes it has nothing else to do.
//!
//! A thread of a worker owes wake-ups to those who wait for the answers of its tasks and calls. It pays now and then between
//! two of them, and before it runs anything else, blocks, or sleeps; if it does not come to that, the watch pays at its next
//! look.
//! What other threads of the process have for the same receiver waits, too. A driver owes wake-ups to workers for tasks that
//! it has queued. It pays while it queues more, and before it waits; if it does neither, the watch of the worker finds the
//! tasks at its next look.

use aktis_store::WakeUp;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long, at least, between two wake-ups of one that has nothing to do meanwhile but what it is woken for.
const APART: Duration = Duration::from_micros(100);
/// Of so many it is known when they were woken; others are woken at once.
const WOKEN_MAX: usize = 8;

/// What is owed, and to whom.
pub(crate) struct OwedWakeUps<T> {
    /// Whether there is something.
    some: AtomicBool,
    woken: Mutex<Vec<Woken<T>>>,
}

struct Woken<T> {
    whom: T,
    at: Instant,
    owed: bool,
}

impl<T> Default for OwedWakeUps<T> {
    fn default() -> Self {
        Self { some: AtomicBool::new(false), woken: Mutex::default() }
    }
}

impl<T: Copy + PartialEq> OwedWakeUps<T> {
    /// Whether one that is to be woken was woken so recently that it is owed that. If not, the caller wakes it now.
    pub(crate) fn owe(&self, whom: T) -> WakeUp {
        let mut woken = self.woken.lock();
        if let Some(one) = woken.iter_mut().find(|one| one.whom == whom) {
            let now = Instant::now();
            // What has been owed for too long, because nobody has paid, is due.
            let is_recent = now.duration_since(one.at) < APART;
            let was_owed = std::mem::replace(&mut one.owed, is_recent);
            return match (is_recent, was_owed) {
                (true, true) => WakeUp::StillLater,
                (true, false) => {
                    self.some.store(true, Ordering::SeqCst);
                    WakeUp::Later
                }
                (false, _) => {
                    one.at = now;
                    WakeUp::Now
                }
            };
        }
        if woken.len() == WOKEN_MAX {
            woken.retain(|one| one.owed);
        }
        if woken.len() < WOKEN_MAX {
            woken.push(Woken { whom, at: Instant::now(), owed: false });
        }
        WakeUp::Now
    }

    /// Whether something is owed.
    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.some.load(Ordering::SeqCst)
    }

    /// Pays all that is owed.
    #[inline]
    pub(crate) fn pay(&self, wake: impl FnMut(T)) {
        if self.is_some() {
            self.pay_after(Duration::ZERO, wake);
        }
    }

    /// Pays what has been owed for long enough.
    #[inline]
    pub(crate) fn pay_due(&self, wake: impl FnMut(T)) {
        if self.is_some() {
            self.pay_after(APART, wake);
        }
    }

    #[cold]
    fn pay_after(&self, apart: Duration, wake: impl FnMut(T)) {
        let now = Instant::now();
        let mut due = Vec::new();
        {
            let mut woken = self.woken.lock();
            let is_due = |one: &&mut Woken<T>| one.owed && now.duration_since(one.at) >= apart;
            for one in woken.iter_mut().filter(is_due) {
                (one.at, one.owed) = (now, false);
                due.push(one.whom);
            }
            self.some.store(woken.iter().any(|one| one.owed), Ordering::SeqCst);
        }
        due.into_iter().for_each(wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(owed: &OwedWakeUps<u32>, apart: Duration) -> Vec<u32> {
        let mut paid = Vec::new();
        owed.pay_after(apart, |whom| paid.push(whom));
        paid
    }

    /// It is woken, perhaps more than once, if much time passes between two rounds; then it is owed the next wake-up.
    fn put_off(owed: &OwedWakeUps<u32>, whom: u32) {
        while owed.owe(whom) == WakeUp::Now {}
    }

    #[test]
    fn who_was_woken_just_now_is_woken_again_later_and_once() {
        let owed = OwedWakeUps::default();
        for whom in [1, 2] {
            put_off(&owed, whom);
        }
        assert!(owed.is_some());
        assert_eq!(paid(&owed, Duration::from_secs(3600)), [0; 0], "not yet");
        assert!(owed.is_some());
        assert_eq!(paid(&owed, Duration::ZERO), [1, 2]);
        assert!(!owed.is_some());
        assert_eq!(paid(&owed, Duration::ZERO), [0; 0]);
    }

    #[test]
    fn what_nobody_has_paid_in_time_is_due() {
        let owed = OwedWakeUps::default();
        put_off(&owed, 1);
        while owed.owe(1) == WakeUp::StillLater {}
        assert_eq!(paid(&owed, Duration::ZERO), [0; 0], "it was woken by the caller");
    }

    #[test]
    fn nobody_is_forgotten_to_whom_something_is_owed() {
        let owed = OwedWakeUps::default();
        for whom in 0..WOKEN_MAX as u32 {
            put_off(&owed, whom);
        }
        assert_eq!([owed.owe(99), owed.owe(99)], [WakeUp::Now; 2], "there is no room");
        assert_eq!(paid(&owed, Duration::ZERO).len(), WOKEN_MAX);
        put_off(&owed, 99);
    }
}
