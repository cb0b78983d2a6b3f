//! Actors that the node knows: where they live, whether they live again, and when they end.
//!
//! Handles name the logical actor; each life of it is an *incarnation*, in a process of its own or in
//! the shared worker.
//!
//! Invariants:
//! 1. An actor is known while a process or an object holds a handle, while it is detached, and until its
//!    process has said that it is gone.
//! 2. A name belongs to one actor that is not dead.
//! 3. Resources are held from the choice of a host until that host has said that the actor is gone.

mod handles;
mod lifecycle;
mod ownership;
mod record;
mod takeover;

pub(super) use lifecycle::{MOVED, name_taken};
pub(super) use record::{Actor, Actors, Ownership, Then};
