//! The leases by which the proxy sends tasks: the pool that workers use, with an end for leases that find no task.

use crate::Time;
use crate::lease_pool::{HeldLease, LeasePool};
use aktis_protocol::control::Lease;
use aktis_protocol::{LeaseId, ShapeId};
use std::collections::BTreeMap;

/// How long a lease that finds no task is kept, in microseconds.
const IDLE_MICROSECONDS_MAX: u64 = 100_000;

/// See the module. Methods that may give a lease back to the node return which one.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pool: LeasePool,
    /// When a lease of each shape became idle last.
    idle_since: BTreeMap<ShapeId, Time>,
}

impl Leases {
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub(super) fn grant(&mut self, now: Time, lease: Lease) -> Option<LeaseId> {
        self.idle_since.insert(lease.shape, now);
        self.pool.grant(lease)
    }

    #[must_use = "a lease that is not sent back is lost to the node"]
    pub(super) fn revoke(&mut self, shape: ShapeId) -> Option<LeaseId> {
        self.pool.revoke(shape)
    }

    /// Takes an idle lease of this shape for a task.
    pub(super) fn take(&mut self, shape: ShapeId) -> Option<HeldLease> {
        self.pool.take(shape)
    }

    /// There was no task for a lease that was taken: it is as idle as before.
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub(super) fn put_unused(&mut self, held: HeldLease) -> Option<LeaseId> {
        self.pool.put(held)
    }

    /// The task of a lease is over.
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub(super) fn put_used(&mut self, now: Time, held: HeldLease) -> Option<LeaseId> {
        if held.once {
            return Some(self.pool.use_up(&held));
        }
        self.idle_since.insert(held.shape, now);
        self.pool.put(held)
    }

    /// The shapes of which another task could be sent.
    pub(super) fn idle_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.pool.idle_shapes()
    }

    /// The other node has no room for tasks of this shape: all idle leases go back.
    pub(super) fn take_idle(&mut self, shape: ShapeId) -> Vec<HeldLease> {
        self.idle_since.remove(&shape);
        self.pool.take_idle(shape)
    }

    /// Takes the leases that were idle for too long.
    pub(super) fn take_expired(&mut self, now: Time) -> Vec<HeldLease> {
        let is_due = |_: &ShapeId, since: &mut Time| is_due(*since, now);
        let due: Vec<ShapeId> = self.idle_since.extract_if(.., is_due).map(|(shape, _)| shape).collect();
        due.into_iter().flat_map(|shape| self.pool.take_idle(shape)).collect()
    }

    /// When leases have been idle for too long.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.idle_since.values().min().map(|since| Time(since.0 + IDLE_MICROSECONDS_MAX))
    }

    /// Panics if an invariant of the pool is broken, or other leases are in use than these many.
    pub(super) fn check(&self, in_use: usize) {
        self.pool.check();
        assert_eq!(self.pool.in_use(), in_use, "remote node invariant 4: a lease in use has a task");
    }
}

fn is_due(since: Time, now: Time) -> bool {
    now.0.saturating_sub(since.0) >= IDLE_MICROSECONDS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_without_a_task_go_back_after_a_while() {
        let (mut leases, shape) = (Leases::default(), ShapeId(3));
        let lease = |id| Lease { lease: LeaseId(id), shape, gpus: vec![], cpus_only: true, once: false };
        assert_eq!([leases.grant(Time(0), lease(1)), leases.grant(Time(10), lease(2))], [None, None]);
        let held = leases.take(shape).expect("idle");
        assert!(leases.take_expired(Time(IDLE_MICROSECONDS_MAX)).is_empty());
        assert_eq!(leases.next_wakeup(), Some(Time(10 + IDLE_MICROSECONDS_MAX)));
        assert_eq!(leases.take_expired(Time(10 + IDLE_MICROSECONDS_MAX)).len(), 1);
        leases.check(1);
        assert_eq!(leases.put_used(Time(20), held), None);
        assert_eq!((leases.take_expired(Time(30)).len(), leases.idle_shapes().count()), (0, 1));
        leases.check(0);
    }
}
