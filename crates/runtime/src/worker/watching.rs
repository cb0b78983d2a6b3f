//! Whether a thread of a worker counts among those who watch the doorbell of their process.
//!
//! Invariant: who has stopped it is not counted any more. A thread that is about to sleep relies on that: if it took its own
//! watch for another's, it would leave it to that one to be woken, and nobody would be.

use aktis_store::Doorbell;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module. The thread itself starts and stops it, and the watch of the worker stops it, too.
#[derive(Default)]
pub(crate) struct Watching {
    is_on: AtomicBool,
    /// Held while that changes, until the doorbell has been told.
    change: Mutex<()>,
}

impl Watching {
    /// The thread looks for messages between any two things that it runs.
    #[inline]
    pub(crate) fn start(&self, bell: &Doorbell) {
        if self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let _change = self.change.lock();
        if !self.is_on.swap(true, Ordering::SeqCst) {
            bell.watch();
        }
    }

    /// The thread is asleep, blocked, or stuck in something long.
    pub(crate) fn stop(&self, bell: &Doorbell) {
        let _change = self.change.lock();
        if self.is_on.swap(false, Ordering::SeqCst) {
            bell.unwatch();
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_to_watch_is_not_counted_though_another_stops_it_at_the_same_time() {
        let (watching, bell, over) = (Watching::default(), Doorbell::default(), AtomicBool::new(false));
        let counted = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    watching.stop(&bell);
                }
            });
            let mut counted = 0;
            for _ in 0..300_000 {
                watching.start(&bell);
                watching.stop(&bell);
                counted += u32::from(bell.is_watched());
            }
            over.store(true, Ordering::Relaxed);
            counted
        });
        assert_eq!(counted, 0);
    }
}
