//! One machine per role that speaks to others.

pub mod node;
pub mod placer;
pub mod shard;
pub mod submitter;
