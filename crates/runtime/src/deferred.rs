//! What a thread leaves to whoever holds the submitter's lock, instead of waiting for it.
//!
//! In a worker many threads submit tasks, answer them and drop references at once. An answer or a dropped
//! reference needs nothing back: if the lock is taken, it is left here.
//!
//! Invariant: whoever gives the lock back looks here afterwards, so nothing stays. (Leaving an item and
//! then finding the lock taken, against giving the lock back and then looking: one of the two sees the other.)

use crate::codec::ShortBytes;
use crate::entry::Later;
use crate::inbound::Arrived;
use crate::runtime::Inner;
use aktis_protocol::hot::{MessageKind, ValueForm};
use aktis_protocol::{ProcessSlot, TaskKey};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Things left for whoever holds the submitter's lock.
#[derive(Default)]
pub(crate) struct Deferred {
    count: AtomicUsize,
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
    HandleDropped(TaskKey),
}

impl Deferred {
    fn push(&self, item: Item) {
        self.items.lock().push(item);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn take(&self) -> Vec<Item> {
        let items = std::mem::take(&mut *self.items.lock());
        self.count.fetch_sub(items.len(), Ordering::SeqCst);
        items
    }
}

impl Inner {
    /// An answer for a task of this very process.
    pub(crate) fn answer_locally(self: &Arc<Self>, arrived: &Arrived<'_>) {
        match self.submitter.try_lock() {
            // What was left before comes before: the items of a stream stay in order.
            Some(mut shell) if self.deferred.count.load(Ordering::SeqCst) == 0 => {
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
                self.deferred.push(Item::Answer { from, kind, key, index, form, contains, payload });
                self.run_deferred();
            }
        }
    }

    /// Leaves the end of a reference for whoever holds the lock.
    pub(crate) fn defer_drop(self: &Arc<Self>, key: TaskKey) {
        self.deferred.push(Item::HandleDropped(key));
        self.run_deferred();
    }

    /// Does what others have left, unless somebody else holds the lock and will. The caller holds no lock.
    #[inline]
    pub(crate) fn run_deferred(self: &Arc<Self>) {
        // Giving a lock back is a full barrier on x86; elsewhere the look must not come before it.
        if cfg!(not(target_arch = "x86_64")) {
            fence(Ordering::SeqCst);
        }
        if self.deferred.count.load(Ordering::SeqCst) > 0 {
            self.run_what_was_left();
        }
    }

    #[cold]
    fn run_what_was_left(self: &Arc<Self>) {
        while self.deferred.count.load(Ordering::SeqCst) > 0 {
            let Some(mut shell) = self.submitter.try_lock() else { return };
            let mut later = Later::default();
            for item in self.deferred.take() {
                match item {
                    Item::Answer { from, kind, key, index, form, contains, payload } => {
                        let payload = payload.as_slice();
                        let arrived = Arrived { from, kind, key, index, form, contains, payload };
                        self.on_answer(&mut shell, &arrived, &mut later);
                    }
                    Item::HandleDropped(key) => {
                        shell.step(self, &mut later, |machine, out| machine.on_handle_dropped(key, out));
                    }
                }
            }
            shell.flush(self, &mut later);
            drop(shell);
            later.run_once(self);
            fence(Ordering::SeqCst);
        }
    }
}
