//! What waits for a shard's thread: taken all at once, and bounded in bytes.

use super::DurableError;
use super::completion::Completion;
use aktis_logic::machine::shard::{ShardInput, SubscriptionId};
use aktis_protocol::limits;
use aktis_protocol::tables::{Change, Filter, Notice};
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// What a subscriber is called with.
pub(super) type Subscriber = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Something for the thread to do.
pub(super) enum Errand {
    /// For the machine.
    Input(ShardInput<Completion>),
    /// For the machine, with whom to call.
    Subscribe { subscription: SubscriptionId, filter: Filter, subscriber: Subscriber },
}

/// What came from the threads that write.
#[derive(Debug, Default)]
pub(super) struct News {
    /// How far the log is on disk, if further than before.
    pub(super) persisted: Option<u64>,
    /// The log has failed.
    pub(super) failed: Option<DurableError>,
    /// The snapshot has ended.
    pub(super) snapshot: Option<Result<u64, DurableError>>,
    /// The store is to be closed.
    pub(super) closed: bool,
}

#[derive(Default)]
struct State {
    errands: Vec<Errand>,
    bytes: usize,
    news: News,
    /// The store is to be closed.
    is_closing: bool,
    /// Its thread has ended: nothing is taken any more.
    ended: bool,
}

/// The queue of one shard.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
}

thread_local! {
    /// Whether this thread is a shard's, which must not wait for itself.
    static IS_SHARD: Cell<bool> = const { Cell::new(false) };
}

impl Queue {
    /// Waits while too much waits; not on threads of the store, which would wait for themselves.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.state.lock();
        while state.bytes > limits::SHARD_QUEUE_BYTES_MAX && !state.ended && !IS_SHARD.get() {
            self.room.wait(&mut state);
        }
    }

    /// Adds an errand. After the end of the thread it is dropped, and its completion says so.
    pub(super) fn push(&self, errand: Errand) {
        let bytes = weight(&errand);
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            return drop(errand);
        }
        state.bytes += bytes;
        state.errands.push(errand);
        let was_empty = state.errands.len() == 1;
        drop(state);
        if was_empty {
            self.work.notify_one();
        }
    }

    /// Adds news.
    pub(super) fn tell(&self, add: impl FnOnce(&mut News)) {
        let mut state = self.state.lock();
        add(&mut state.news);
        state.is_closing |= state.news.closed;
        drop(state);
        self.work.notify_one();
    }

    /// Whether the store is to be closed.
    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// The thread has ended. What still waits is dropped, and nobody waits for room.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.bytes = 0;
        let errands = std::mem::take(&mut state.errands);
        self.room.notify_all();
        drop(state);
        // Not under the lock: completions call back, and may push.
        drop(errands);
    }

    /// From now on the calling thread is the one that takes.
    pub(super) fn adopt() {
        IS_SHARD.set(true);
    }

    /// Takes all there is, after waiting for something until `deadline`; for ever, if there is none.
    pub(super) fn take(&self, errands: &mut Vec<Errand>, deadline: Option<Instant>) -> News {
        let mut state = self.state.lock();
        while state.errands.is_empty() && !state.news.is_any() {
            match deadline {
                None => self.work.wait(&mut state),
                Some(deadline) => {
                    if self.work.wait_until(&mut state, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        std::mem::swap(&mut state.errands, errands);
        state.bytes = 0;
        self.room.notify_all();
        std::mem::take(&mut state.news)
    }
}

impl News {
    fn is_any(&self) -> bool {
        self.persisted.is_some() || self.failed.is_some() || self.snapshot.is_some() || self.closed
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("errands", &self.state.lock().errands.len()).finish_non_exhaustive()
    }
}

fn weight(errand: &Errand) -> usize {
    const FIXED: usize = 64;
    match errand {
        Errand::Input(ShardInput::Received { batch, .. }) => {
            FIXED + batch.changes.iter().map(Change::bytes).sum::<usize>()
        }
        _ => FIXED,
    }
}
