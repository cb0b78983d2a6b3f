//! Leases as the node grants them.

use crate::ids::{LeaseId, ShapeId};
use serde::{Deserialize, Serialize};

/// A grant to run one task of a shape at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its name.
    pub lease: LeaseId,
    /// The shape it is for.
    pub shape: ShapeId,
    /// Indices of the GPUs that come with it.
    pub gpus: Vec<u32>,
    /// Whether it is for CPUs alone. Anything else stays with a task that waits.
    pub cpus_only: bool,
    /// Whether it is for one task only: the holder returns it after that.
    pub once: bool,
}
