//! The threads that copy objects from other nodes: one for each copy that is under way.
//!
//! How many that are is the node's decision (`PULLS_PER_PEER_MAX` from each node), so that no copy waits for another's
//! source. A thread that has nothing to do for a while ends.

use aktis_protocol::{EntryRef, ObjectId, ProcessSlot};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread waits for the next order.
const IDLE: Duration = Duration::from_secs(10);

/// An object to be copied from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) entry: EntryRef,
    pub(super) object: ObjectId,
    pub(super) peer: ProcessSlot,
    pub(super) offset: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Fetchers {
    crew: Mutex<Crew>,
    ordered: Condvar,
}

#[derive(Default)]
struct Crew {
    orders: VecDeque<Fetch>,
    /// Threads that wait for one.
    idle: usize,
    threads: usize,
    closed: bool,
}

impl Fetchers {
    /// Has an object copied by `carry_out`, on a thread that there is or on a new one. Gives it back if nobody can.
    pub(super) fn order(
        self: &Arc<Self>,
        fetch: Fetch,
        carry_out: impl Fn(Fetch) + Send + 'static,
    ) -> Result<(), Fetch> {
        let mut crew = self.crew.lock();
        if crew.closed {
            return Err(fetch);
        }
        crew.orders.push_back(fetch);
        if crew.orders.len() <= crew.idle {
            self.ordered.notify_one();
            return Ok(());
        }
        let fetchers = self.clone();
        let run = move || fetchers.run(&carry_out);
        match std::thread::Builder::new().name("aktis-fetch".into()).spawn(run) {
            Ok(_) => crew.threads += 1,
            // One that is busy does it later.
            Err(_) if crew.threads > 0 => {}
            Err(_) => return crew.orders.pop_back().map_or(Ok(()), Err),
        }
        Ok(())
    }

    /// Nothing is begun any more.
    pub(super) fn close(&self) {
        let mut crew = self.crew.lock();
        crew.closed = true;
        crew.orders.clear();
        self.ordered.notify_all();
    }

    fn run(&self, carry_out: &impl Fn(Fetch)) {
        let mut crew = self.crew.lock();
        loop {
            if let Some(fetch) = crew.orders.pop_front() {
                drop(crew);
                carry_out(fetch);
                crew = self.crew.lock();
                continue;
            }
            crew.idle += 1;
            let late = self.ordered.wait_for(&mut crew, IDLE).timed_out();
            crew.idle -= 1;
            if crew.closed || (late && crew.orders.is_empty()) {
                crew.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    fn fetch(offset: u64) -> Fetch {
        let entry = EntryRef { index: 0, generation: 0 };
        Fetch { entry, object: ObjectId::default(), peer: ProcessSlot(1), offset }
    }

    #[test]
    fn no_copy_waits_for_another() {
        let fetchers = Arc::new(Fetchers::default());
        // A thread that goes on with another order does what it did before.
        let (all, (done, dones)) = (Arc::new(Barrier::new(9)), channel());
        for _ in 0..3 {
            for offset in 0..8 {
                let (all, done) = (all.clone(), done.clone());
                let carry_out = move |fetch: Fetch| {
                    all.wait();
                    done.send(fetch.offset).unwrap();
                };
                assert_eq!(fetchers.order(fetch(offset), carry_out), Ok(()));
            }
            all.wait();
            let mut offsets: Vec<_> = dones.iter().take(8).collect();
            offsets.sort_unstable();
            assert!(offsets.iter().copied().eq(0..8), "{offsets:?}");
        }
        fetchers.close();
        assert_eq!(fetchers.order(fetch(1), |_| ()), Err(fetch(1)));
    }
}
