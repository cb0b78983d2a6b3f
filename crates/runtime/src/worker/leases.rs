//! The leases of this worker: how many tasks of each shape may run at a time.

use aktis_protocol::control::{Lease, ToNode};
use aktis_protocol::{LeaseId, ShapeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lease that a thread holds while it runs tasks.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lease: LeaseId,
    pub(crate) shape: ShapeId,
    pub(crate) gpus: Arc<[u32]>,
}

#[derive(Default)]
struct OfShape {
    idle: Vec<Held>,
    revoked: u32,
}

/// All leases that no thread holds, and what the node wants back.
#[derive(Default)]
pub(crate) struct Leases {
    shapes: BTreeMap<ShapeId, OfShape>,
}

impl Leases {
    pub(crate) fn grant(&mut self, lease: Lease) {
        let held = Held { lease: lease.lease, shape: lease.shape, gpus: lease.gpus.into() };
        self.shapes.entry(held.shape).or_default().idle.push(held);
    }

    /// The node wants one lease of this shape back: an idle one goes at once, else the next to be idle.
    pub(crate) fn revoke(&mut self, shape: ShapeId) -> Option<ToNode> {
        let of_shape = self.shapes.entry(shape).or_default();
        match of_shape.idle.pop() {
            Some(held) => Some(ToNode::LeaseReturned { lease: held.lease }),
            None => {
                of_shape.revoked += 1;
                None
            }
        }
    }

    /// Takes all idle leases; what gives each back to the node.
    pub(crate) fn take_all(&mut self) -> Vec<(ShapeId, ToNode)> {
        let of_shapes = self.shapes.iter_mut();
        let idle =
            of_shapes.flat_map(|(&shape, of_shape)| of_shape.idle.drain(..).map(move |held| (shape, held)));
        idle.map(|(shape, held)| (shape, ToNode::LeaseReturned { lease: held.lease })).collect()
    }

    /// Takes an idle lease of this shape.
    pub(crate) fn take(&mut self, shape: ShapeId) -> Option<Held> {
        self.shapes.get_mut(&shape)?.idle.pop()
    }

    /// A lease becomes idle; or goes back to the node, if it wants one.
    pub(crate) fn put(&mut self, held: Held) -> Option<ToNode> {
        let of_shape = self.shapes.entry(held.shape).or_default();
        if of_shape.revoked > 0 {
            of_shape.revoked -= 1;
            return Some(ToNode::LeaseReturned { lease: held.lease });
        }
        of_shape.idle.push(held);
        None
    }

    /// Whether the node waits for a lease of this shape.
    pub(crate) fn is_wanted(&self, shape: ShapeId) -> bool {
        self.shapes.get(&shape).is_some_and(|of_shape| of_shape.revoked > 0)
    }

    /// The shapes that have an idle lease.
    pub(crate) fn idle_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.shapes.iter().filter(|(_, of_shape)| !of_shape.idle.is_empty()).map(|(shape, _)| *shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: u64) -> Lease {
        Lease { lease: LeaseId(id), shape: ShapeId(3), gpus: vec![] }
    }

    #[test]
    fn a_revoked_lease_goes_back_when_it_is_idle() {
        let mut leases = Leases::default();
        leases.grant(lease(1));
        leases.grant(lease(2));
        let held = leases.take(ShapeId(3)).unwrap();
        assert_eq!(leases.revoke(ShapeId(3)), Some(ToNode::LeaseReturned { lease: LeaseId(1) }));
        assert_eq!(leases.revoke(ShapeId(3)), None);
        assert!(leases.is_wanted(ShapeId(3)));
        assert_eq!(leases.put(held), Some(ToNode::LeaseReturned { lease: LeaseId(2) }));
        assert_eq!(leases.idle_shapes().count(), 0);
    }
}
