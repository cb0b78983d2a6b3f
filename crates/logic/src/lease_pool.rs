//! The leases of one worker process: which of them are idle, and how many the node wants back.
//!
//! Invariants:
//! 1. A shape whose leases the node wants back has no idle lease: a lease that becomes idle, or is granted, goes back at
//!    once. Leases of one shape are alike, so any of them serves.
//! 2. The node never wants back more leases of a shape than threads use.

use aktis_protocol::control::Lease;
use aktis_protocol::{LeaseId, ShapeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lease that a thread uses while it runs tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its name.
    pub lease: LeaseId,
    /// The shape of the tasks that it is for.
    pub shape: ShapeId,
    /// The GPUs that come with it.
    pub gpus: Arc<[u32]>,
    /// Whether it is for CPUs alone.
    pub cpus_only: bool,
    /// Whether it is for one task only.
    pub once: bool,
}

/// What becomes of a lease whose task waits inside `get`, or for the consumer of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Other threads use it meanwhile. The task goes on with another one if that is idle then, else without.
    PutBack,
    /// It was for this task only, and goes back to the node. The task goes on without.
    UseUp,
    /// It stays with the task, and the node gets the CPU alone: another task must not get the resources that this one
    /// goes on to use.
    LendCpu,
}

impl HeldLease {
    /// What becomes of it while its task waits, in a worker that runs one task at a time (`isolated`) or many.
    pub fn while_waiting(&self, isolated: bool) -> Waiting {
        match self.cpus_only && !isolated {
            true if self.once => Waiting::UseUp,
            true => Waiting::PutBack,
            false => Waiting::LendCpu,
        }
    }
}

#[derive(Debug, Default)]
struct OfShape {
    idle: Vec<HeldLease>,
    in_use: u32,
    revoked: u32,
}

impl OfShape {
    /// A lease that no thread uses: it serves a revocation, or becomes idle.
    fn settle(&mut self, held: HeldLease) -> Option<LeaseId> {
        if self.revoked > 0 {
            self.revoked -= 1;
            return Some(held.lease);
        }
        self.idle.push(held);
        None
    }
}

/// The leases of one worker process. Methods that may give a lease back to the node return which one.
///
/// ```
/// use aktis_logic::lease_pool::LeasePool;
/// use aktis_protocol::control::Lease;
/// use aktis_protocol::{LeaseId, ShapeId};
///
/// let (mut pool, shape) = (LeasePool::default(), ShapeId(3));
/// pool.grant(Lease { lease: LeaseId(1), shape, gpus: vec![], cpus_only: true, once: false });
/// let held = pool.take(shape).unwrap();
/// assert_eq!(pool.revoke(shape), None, "a thread uses the only lease");
/// assert_eq!(pool.put(held), Some(LeaseId(1)));
/// ```
#[derive(Debug, Default)]
pub struct LeasePool {
    shapes: BTreeMap<ShapeId, OfShape>,
}

impl LeasePool {
    /// The node grants a lease.
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub fn grant(&mut self, lease: Lease) -> Option<LeaseId> {
        let Lease { lease, shape, gpus, cpus_only, once } = lease;
        let held = HeldLease { lease, shape, gpus: gpus.into(), cpus_only, once };
        self.shapes.entry(held.shape).or_default().settle(held)
    }

    /// The node wants one lease of this shape back: an idle one goes at once, else the next that a thread puts back, or
    /// that is granted. If threads use none either, the lease that the node means is on its way back already.
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub fn revoke(&mut self, shape: ShapeId) -> Option<LeaseId> {
        let of_shape = self.shapes.entry(shape).or_default();
        let idle = of_shape.idle.pop();
        if idle.is_none() && of_shape.in_use > of_shape.revoked {
            of_shape.revoked += 1;
        }
        idle.map(|held| held.lease)
    }

    /// Takes all idle leases, to be given back to the node.
    pub fn take_all(&mut self) -> Vec<HeldLease> {
        self.shapes.values_mut().flat_map(|of_shape| of_shape.idle.drain(..)).collect()
    }

    /// Takes the idle leases of one shape, to be given back to the node.
    pub fn take_idle(&mut self, shape: ShapeId) -> Vec<HeldLease> {
        self.shapes.get_mut(&shape).map(|of_shape| std::mem::take(&mut of_shape.idle)).unwrap_or_default()
    }

    /// How many leases are in use.
    pub fn in_use(&self) -> usize {
        self.shapes.values().map(|of_shape| of_shape.in_use as usize).sum()
    }

    /// A thread takes an idle lease of this shape.
    pub fn take(&mut self, shape: ShapeId) -> Option<HeldLease> {
        let of_shape = self.shapes.get_mut(&shape)?;
        let held = of_shape.idle.pop()?;
        of_shape.in_use += 1;
        Some(held)
    }

    /// A thread puts back a lease that it took.
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub fn put(&mut self, held: HeldLease) -> Option<LeaseId> {
        let of_shape = self.shapes.entry(held.shape).or_default();
        debug_assert!(of_shape.in_use > 0, "{} was not taken", held.lease);
        of_shape.in_use = of_shape.in_use.saturating_sub(1);
        of_shape.settle(held)
    }

    /// A thread has used a lease that was for one task: it goes back to the node, which may have asked for it.
    #[must_use = "a lease that is not sent back is lost to the node"]
    pub fn use_up(&mut self, held: &HeldLease) -> LeaseId {
        let of_shape = self.shapes.entry(held.shape).or_default();
        debug_assert!(of_shape.in_use > 0, "{} was not taken", held.lease);
        of_shape.in_use = of_shape.in_use.saturating_sub(1);
        of_shape.revoked = of_shape.revoked.saturating_sub(1);
        held.lease
    }

    /// Whether the node waits for a lease of this shape.
    pub fn is_wanted(&self, shape: ShapeId) -> bool {
        self.shapes.get(&shape).is_some_and(|of_shape| of_shape.revoked > 0)
    }

    /// The shapes that have an idle lease.
    pub fn idle_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.shapes.iter().filter(|(_, of_shape)| !of_shape.idle.is_empty()).map(|(shape, _)| *shape)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        for (shape, OfShape { idle, in_use, revoked }) in &self.shapes {
            assert!(*revoked == 0 || idle.is_empty(), "lease pool invariant 1: {shape}");
            assert!(revoked <= in_use, "lease pool invariant 2: {shape}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ShapeId = ShapeId(3);

    fn lease(id: u64) -> Lease {
        Lease { lease: LeaseId(id), shape: SHAPE, gpus: vec![], cpus_only: true, once: false }
    }

    #[test]
    fn a_revoked_lease_goes_back_when_it_is_idle() {
        let mut pool = LeasePool::default();
        assert_eq!([pool.grant(lease(1)), pool.grant(lease(2))], [None, None]);
        let held = pool.take(SHAPE).unwrap();
        assert_eq!(pool.revoke(SHAPE), Some(LeaseId(1)));
        assert_eq!(pool.revoke(SHAPE), None);
        assert!(pool.is_wanted(SHAPE));
        pool.check();
        assert_eq!(pool.put(held), Some(LeaseId(2)));
        assert_eq!(pool.idle_shapes().count(), 0);
    }

    #[test]
    fn a_granted_lease_serves_a_pending_revocation() {
        let mut pool = LeasePool::default();
        assert_eq!(pool.grant(lease(1)), None);
        let long = pool.take(SHAPE).unwrap();
        assert_eq!(pool.revoke(SHAPE), None);
        assert_eq!(pool.grant(lease(2)), Some(LeaseId(2)));
        assert!(!pool.is_wanted(SHAPE));
        pool.check();
        assert_eq!(pool.put(long), None, "the node has got what it wanted");
    }

    #[test]
    fn only_leases_for_cpus_alone_serve_others_while_their_task_waits() {
        let mut pool = LeasePool::default();
        assert_eq!(pool.grant(lease(1)), None);
        let held = pool.take(SHAPE).unwrap();
        assert_eq!(held.while_waiting(false), Waiting::PutBack);
        assert_eq!(held.while_waiting(true), Waiting::LendCpu);
        let once = HeldLease { once: true, ..held.clone() };
        assert_eq!(once.while_waiting(false), Waiting::UseUp);
        let licence = HeldLease { cpus_only: false, ..held };
        assert_eq!(licence.while_waiting(false), Waiting::LendCpu);
    }

    #[test]
    fn a_lease_for_one_task_goes_back_after_it_and_serves_a_revocation() {
        let mut pool = LeasePool::default();
        assert_eq!(pool.grant(Lease { once: true, ..lease(1) }), None);
        let held = pool.take(SHAPE).unwrap();
        assert_eq!(pool.revoke(SHAPE), None);
        assert_eq!(pool.use_up(&held), LeaseId(1));
        assert!(!pool.is_wanted(SHAPE));
        pool.check();
    }

    #[test]
    fn a_revocation_that_crosses_a_returned_lease_asks_for_no_other() {
        let mut pool = LeasePool::default();
        assert_eq!(pool.grant(lease(1)), None);
        assert_eq!(pool.take_all().len(), 1);
        assert_eq!(pool.revoke(SHAPE), None);
        assert_eq!(pool.grant(lease(2)), None);
        pool.check();
    }
}
