//! Memory of the arena that nobody needs goes back to the system.
//!
//! Pages that were used before are cheaper than fresh ones, so memory stays for a while after it was freed: as much as was in
//! use at once since the last look, and [`KEPT_BYTES`] more. What lies beyond goes in steps, since each takes its time.
//!
//! Invariant: only free extents are given back, by an effect that comes before any that grants them.

use super::{Memory, NodeEffect};
use crate::{Effects, Time};

/// How long freed memory stays.
pub(super) const KEPT_MICROSECONDS: u64 = 60_000_000;
/// How much of it stays for good: what small programs use again and again.
pub(super) const KEPT_BYTES: u64 = 64 << 20;
/// What goes in one step, and the pause between two.
const STEP_BYTES: u64 = 16 << 20;
const STEP_MICROSECONDS: u64 = 2_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reclaim {
    /// The most bytes in use at once since the last look.
    peak_bytes: u64,
    /// Whether something was freed since then.
    has_freed: bool,
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    /// Nothing was freed.
    #[default]
    Idle,
    /// It is looked at then.
    Watching { look_at: Time },
    /// What is free from this offset on goes.
    Giving { offset: u64, next_at: Time },
}

impl Reclaim {
    /// An extent is about to be freed.
    pub(super) fn on_freed(&mut self, used_before: u64) {
        self.peak_bytes = self.peak_bytes.max(used_before);
        self.has_freed = true;
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle => None,
            Phase::Watching { look_at } => Some(look_at),
            Phase::Giving { next_at, .. } => Some(next_at),
        }
    }
}

impl Memory {
    /// Something may have been freed or granted.
    pub(super) fn watch_freed(&mut self, now: Time) {
        let reclaim = &mut self.reclaim;
        reclaim.peak_bytes = reclaim.peak_bytes.max(self.arena.used());
        if matches!(reclaim.phase, Phase::Idle) && reclaim.has_freed {
            reclaim.phase = Phase::Watching { look_at: Time(now.0 + KEPT_MICROSECONDS) };
        }
    }

    pub(super) fn reclaim(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        if self.reclaim.next_wakeup().is_none_or(|at| at > now) {
            return;
        }
        if let Phase::Watching { .. } = self.reclaim.phase {
            let (used, peak) = (self.arena.used(), self.reclaim.peak_bytes);
            let kept = peak.saturating_sub(used) + KEPT_BYTES;
            // What stays because it was in use meanwhile is looked at once more.
            self.reclaim.has_freed = peak > used;
            self.reclaim.peak_bytes = used;
            self.reclaim.phase = match self.arena.free_beyond(kept) {
                Some(offset) => Phase::Giving { offset, next_at: now },
                None => Phase::Idle,
            };
        }
        let Phase::Giving { offset, .. } = self.reclaim.phase else { return self.watch_freed(now) };
        self.reclaim.phase = match self.arena.free_from(offset) {
            Some((offset, free)) => {
                let bytes = free.min(STEP_BYTES);
                out.push(NodeEffect::GiveBack { offset, bytes });
                Phase::Giving { offset: offset + bytes, next_at: Time(now.0 + STEP_MICROSECONDS) }
            }
            None => Phase::Idle,
        };
        self.watch_freed(now);
    }
}
