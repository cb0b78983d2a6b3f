//! Large arguments that were passed by value: they stay in the store while their finished task is on record, within a bound,
//! so that the task can run again.
//!
//! Nobody else refers to such a value, and the session cannot compute it again. Beyond the bound the oldest go first.

use crate::codec::Released;
use crate::payload::Payload;
use aktis_logic::machine::submitter::Submitter;
use aktis_protocol::{TaskKey, limits};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kept arguments take at most one part of so many of the store.
const STORE_PARTS: u64 = 8;
/// Places of tasks that are gone, beyond one for each that is kept, before they are swept.
const GONE_MAX: usize = 256;

/// The bytes of one task's kept arguments, counted while they are kept.
pub(crate) struct Charge {
    bytes: u64,
    total: Arc<AtomicU64>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The kept arguments of the tasks of one shard.
#[derive(Default)]
pub(crate) struct KeptArguments {
    /// Of all shards of the process.
    total: Arc<AtomicU64>,
    /// The tasks, oldest first, with the attempt that finished. Tasks that went off the record stay until they are swept.
    oldest: VecDeque<(TaskKey, u32)>,
    live_at_sweep: usize,
}

impl KeptArguments {
    /// Those of one more shard of the process.
    pub(crate) fn of_another_shard(&self) -> Self {
        Self { total: self.total.clone(), ..Self::default() }
    }

    /// How many bytes one process keeps, beside a store of this size.
    pub(crate) fn bytes_max(store_bytes: u64) -> u64 {
        limits::KEPT_ARGUMENTS_BYTES_MAX.min(store_bytes / STORE_PARTS)
    }

    /// Counts so many bytes as kept.
    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        Charge { bytes, total: self.total.clone() }
    }

    /// A finished task keeps arguments. Gives what the oldest tasks have to release for that.
    pub(crate) fn add(
        &mut self,
        machine: &mut Submitter<Payload>,
        key: TaskKey,
        bytes_max: u64,
    ) -> Vec<Released> {
        let attempt = |machine: &Submitter<Payload>, key| machine.record(key).map(|record| record.attempt());
        if self.oldest.len() >= 2 * self.live_at_sweep + GONE_MAX {
            self.oldest.retain(|&(key, kept_at)| attempt(machine, key) == Some(kept_at));
            self.live_at_sweep = self.oldest.len();
        }
        self.oldest.extend(attempt(machine, key).map(|attempt| (key, attempt)));
        let mut released = Vec::new();
        while self.total.load(Ordering::Relaxed) > bytes_max
            && let Some((oldest, kept_at)) = self.oldest.pop_front()
        {
            if attempt(machine, oldest) == Some(kept_at)
                && let Some(payload) = machine.kept_payload_mut(oldest)
            {
                released.extend(payload.arguments.release_own());
            }
        }
        released
    }
}
