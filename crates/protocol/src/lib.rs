//! Every byte that Aktis puts on a wire, into shared memory or on disk: ids, specs, messages, limits.
//!
//! Nothing here does I/O or decides anything; all other crates speak in these words.

pub mod control;
pub mod failure;
pub mod groups;
pub mod hot;
pub mod ids;
pub mod limits;
pub mod output;
pub mod records;
pub mod resources;
pub mod slots;
pub mod state;
pub mod tables;
pub mod template;

pub use failure::{DeathCause, Failure, FailureKind};
pub use groups::{GroupPlace, GroupSpec, GroupState, GroupStrategy};
pub use ids::{
    ActorId, EntryRef, FunctionId, GroupId, LaneId, LeaseId, NodeId, ObjectId, ProcessSlot, SessionId,
    ShapeId, ShardIndex, TaskId, TaskKey,
};
pub use resources::{Amount, Resources, Shape};
