//! One machine per role that speaks to others.

pub mod control_client;
pub mod head;
pub mod node;
pub mod placer;
pub mod remote_node;
pub mod shard;
pub mod submitter;
