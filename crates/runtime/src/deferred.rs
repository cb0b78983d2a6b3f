//! What a thread leaves to whoever holds a shard's lock, instead of waiting for it.
//!
//! In a worker many threads submit tasks, answer them and drop references at once. An answer or a dropped
//! reference needs nothing back: if the lock is taken, it is left here.
//!
//! Invariant: whoever gives the lock of a shard back looks here afterwards, so nothing stays. (Leaving an item
//! and then finding the lock taken, against giving the lock back and then looking: one of the two sees the
//! other.)

use crate::codec::{ShortBytes, Value};
use crate::entry::{Entry, Later, Outcome};
use crate::inbound::Arrived;
use crate::runtime::Inner;
use crate::shards::Shard;
use crate::submit::Shell;
use aktis_protocol::hot::{MessageKind, ValueForm};
use aktis_protocol::{ProcessSlot, ShardIndex, TaskKey};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Things left for whoever holds the lock of one shard.
#[derive(Default)]
pub(crate) struct Deferred {
    items: Mutex<Vec<Item>>,
}

enum Item {
    Answer {
        from: ProcessSlot,
        kind: MessageKind,
        key: TaskKey,
        index: u32,
        form: ValueForm,
        contains: bool,
        payload: ShortBytes,
    },
    /// A task is done, and its value is where it belongs.
    Returned(TaskKey),
    HandleDropped(TaskKey),
}

impl Deferred {
    fn push(&self, item: Item, bit: u32, left: &AtomicU32) {
        let mut items = self.items.lock();
        items.push(item);
        if items.len() == 1 {
            left.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Takes what there is; `empty` comes into its place, for its memory.
    fn take(&self, empty: Vec<Item>, bit: u32, left: &AtomicU32) -> Vec<Item> {
        let mut items = self.items.lock();
        left.fetch_and(!bit, Ordering::SeqCst);
        std::mem::replace(&mut items, empty)
    }
}

fn bit(shard: &Shard) -> u32 {
    1 << shard.index.0
}

impl Inner {
    fn leave(self: &Arc<Self>, shard: &Shard, item: Item) {
        shard.deferred.push(item, bit(shard), &self.submitter.left);
        self.run_deferred();
    }

    fn is_something_left(&self, shard: &Shard) -> bool {
        self.submitter.left.load(Ordering::SeqCst) & bit(shard) != 0
    }

    /// An answer for a task of this very process.
    pub(crate) fn answer_locally(self: &Arc<Self>, arrived: &Arrived<'_>) {
        let shard = self.submitter.of(arrived.key);
        match shard.try_lock() {
            // What was left before comes before: the items of a stream stay in order.
            Some(mut shell) if !self.is_something_left(shard) => {
                let mut later = Later::default();
                self.on_answer(&mut shell, arrived, &mut later);
                shell.flush(self, &mut later);
                drop(shell);
                later.run(self);
            }
            taken => {
                drop(taken);
                let &Arrived { from, kind, key, index, form, contains, payload } = arrived;
                let payload = payload.into();
                self.leave(shard, Item::Answer { from, kind, key, index, form, contains, payload });
            }
        }
    }

    /// A thread has run the task that it waits for: it has the value at once, the machine learns of it.
    pub(crate) fn return_here(self: &Arc<Self>, entry: &Entry, key: TaskKey, value: Value) {
        let mut later = Later::default();
        entry.resolve(Outcome::Inline(value), &mut later);
        let shard = self.submitter.of(key);
        match shard.try_lock() {
            Some(mut shell) => {
                shell.on_returned(self, key, false, &mut later);
                shell.flush(self, &mut later);
            }
            None => self.leave(shard, Item::Returned(key)),
        }
        later.run(self);
    }

    /// Leaves the end of a reference for whoever holds the lock.
    pub(crate) fn defer_drop(self: &Arc<Self>, key: TaskKey) {
        self.leave(self.submitter.of(key), Item::HandleDropped(key));
    }

    /// Does what others have left, unless somebody else holds the lock and will. The caller holds no lock.
    #[inline]
    pub(crate) fn run_deferred(self: &Arc<Self>) {
        // Giving a lock back is a full barrier on x86; elsewhere the look must not come before it.
        if cfg!(not(target_arch = "x86_64")) {
            fence(Ordering::SeqCst);
        }
        if self.submitter.left.load(Ordering::SeqCst) != 0 {
            self.run_what_was_left();
        }
    }

    #[cold]
    fn run_what_was_left(self: &Arc<Self>) {
        let mut later = Later::default();
        let mut items = Vec::new();
        // Those whose lock is taken: whoever has it will look.
        let mut taken = 0;
        loop {
            let left = self.submitter.left.load(Ordering::SeqCst) & !taken;
            if left == 0 {
                return;
            }
            let shard = self.submitter.get(ShardIndex(left.trailing_zeros()));
            let Some(mut shell) = shard.try_lock() else {
                taken |= bit(shard);
                continue;
            };
            items = shard.deferred.take(items, bit(shard), &self.submitter.left);
            for item in items.drain(..) {
                self.on_left(&mut shell, item, &mut later);
            }
            shell.flush(self, &mut later);
            drop(shell);
            later.run_once(self);
            fence(Ordering::SeqCst);
        }
    }

    fn on_left(self: &Arc<Self>, shell: &mut Shell, item: Item, later: &mut Later) {
        match item {
            Item::Answer { from, kind, key, index, form, contains, payload } => {
                let payload = payload.as_slice();
                let arrived = Arrived { from, kind, key, index, form, contains, payload };
                self.on_answer(shell, &arrived, later);
            }
            Item::Returned(key) => shell.on_returned(self, key, false, later),
            Item::HandleDropped(key) => {
                shell.step(self, later, |machine, out| machine.on_handle_dropped(key, out));
            }
        }
    }
}
