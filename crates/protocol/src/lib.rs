//! Every byte that Aktis puts on a wire, into shared memory or on disk: ids, specs, messages, limits.
//!
//! Nothing here does I/O or decides anything; all other crates speak in these words.

pub mod actor_log;
pub mod actors;
pub mod admin;
pub mod control;
pub mod extent;
pub mod failure;
pub mod fuzz;
pub mod groups;
pub mod hot;
pub mod ids;
pub mod keys;
pub mod limits;
pub mod lineage;
pub mod member;
pub mod output;
pub mod peer;
pub mod placement;
pub mod program;
pub mod questions;
pub mod records;
pub mod resources;
pub mod slots;
pub mod state;
pub mod tables;
pub mod template;
pub mod text;
pub mod trust;

pub use extent::ExtentPlace;
pub use failure::{DeathCause, Failure, FailureKind, NotRebuilt};
pub use groups::{GroupPlace, GroupRow, GroupSpec, GroupState, GroupStrategy};
pub use ids::{
    ActorId, ClusterId, EntryRef, Epoch, FunctionId, GroupId, LaneId, LeaseId, NodeId, ObjectId, ProcessSlot,
    ProgramId, SessionId, ShapeId, ShardIndex, TaskId, TaskKey,
};
pub use placement::{LabelRule, LabelTest, Labels, Near, Strategy};
pub use program::{LAYOUT, ProgramKind, ProgramSpec};
pub use resources::{Amount, Resources, Shape};
