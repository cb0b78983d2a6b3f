//! The submitter machines of a process, behind a lock each: its shards.
//!
//! A shared worker has several, so that threads which submit tasks do not wait for each other and work in
//! memory of their own: each of its threads submits to one of them. Every other process has one.
//!
//! Invariants:
//! 1. A task belongs to the shard of the thread that submitted it; its key says which. Calls of actors, whose
//!    order counts, all belong to the first.
//! 2. No thread holds the locks of two shards. A task that waits for one of another shard is told like one
//!    that waits for an object of another process: when the object's entry is resolved.

use crate::deferred::Deferred;
use crate::kept_arguments::KeptArguments;
use crate::options::Tuning;
use crate::submit::Shell;
use aktis_protocol::{ShardIndex, TaskKey};
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32};

thread_local! {
    static MINE: Cell<u32> = const { Cell::new(0) };
}

/// The thread belongs to this shard (of those that there are) from now on.
pub(crate) fn choose_shard(number: usize) {
    MINE.set(number as u32);
}

/// One submitter machine, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Shard {
    pub(crate) index: ShardIndex,
    shell: Mutex<Shell>,
    /// Whether its lane of the default shape is open.
    pub(crate) has_default_lane: AtomicBool,
    pub(crate) deferred: Deferred,
}

impl Shard {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shell> {
        self.shell.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Shell>> {
        self.shell.try_lock()
    }
}

/// All shards of a process.
pub(crate) struct Shards {
    shards: Box<[Shard]>,
    /// A bit for each shard for which something was left.
    pub(crate) left: AtomicU32,
}

impl Shards {
    pub(crate) fn new(count: usize, tuning: &Tuning) -> Self {
        let kept_arguments = KeptArguments::default();
        let shard = |index: u32| Shard {
            index: ShardIndex(index),
            shell: Mutex::new(Shell::new(
                ShardIndex(index),
                tuning,
                count,
                kept_arguments.of_another_shard(),
            )),
            has_default_lane: AtomicBool::new(false),
            deferred: Deferred::default(),
        };
        Self { shards: (0..count as u32).map(shard).collect(), left: AtomicU32::new(0) }
    }

    /// Locks the first shard: that of actors.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shell> {
        self.first().lock()
    }

    pub(crate) fn first(&self) -> &Shard {
        &self.shards[0]
    }

    pub(crate) fn all(&self) -> &[Shard] {
        &self.shards
    }

    /// The shard of the calling thread.
    pub(crate) fn mine(&self) -> &Shard {
        &self.shards[MINE.get() as usize % self.shards.len()]
    }

    pub(crate) fn get(&self, index: ShardIndex) -> &Shard {
        // An unknown one can only come with a key that no shard knows.
        self.shards.get(index.0 as usize).unwrap_or(self.first())
    }

    /// The shard of a task.
    pub(crate) fn of(&self, key: TaskKey) -> &Shard {
        self.get(key.shard())
    }
}
