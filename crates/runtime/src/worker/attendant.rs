//! The second thread of a worker whose user code runs on the first one alone.
//!
//! It takes in messages while the first thread is stuck in user code or blocked, and is retired otherwise: asleep on
//! the doorbell, it might be woken in place of the first.

use parking_lot::{Condvar, Mutex};

/// Whether the second thread is retired.
#[derive(Default)]
pub(crate) struct Attendant {
    retired: Mutex<bool>,
    wake: Condvar,
}

impl Attendant {
    /// Sleeps until it is recalled, unless `needed`.
    pub(crate) fn retire(&self, needed: impl Fn() -> bool) {
        let mut retired = self.retired.lock();
        *retired = true;
        // Who needs it looks whether it is retired after saying so: one of the two sees the other.
        while *retired && !needed() {
            self.wake.wait(&mut retired);
        }
        *retired = false;
    }

    /// Wakes it; false if it was not retired.
    pub(crate) fn recall(&self) -> bool {
        let mut retired = self.retired.lock();
        if *retired {
            *retired = false;
            self.wake.notify_one();
            return true;
        }
        false
    }
}
