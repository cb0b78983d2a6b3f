//! A distributed execution framework for AI applications: tasks, actors and shared objects.
//!
//! ```
//! use aktis::prelude::*;
//!
//! #[remote]
//! fn square(x: u64) -> u64 {
//!     x * x
//! }
//!
//! struct Counter {
//!     total: u64,
//! }
//!
//! #[actor]
//! impl Counter {
//!     fn new(start: u64) -> Self {
//!         Counter { total: start }
//!     }
//!     fn add(&mut self, n: u64) -> u64 {
//!         self.total += n;
//!         self.total
//!     }
//! }
//!
//! fn main() -> aktis::Result<()> {
//!     let _session = aktis::init()?;
//!     let nine = square::remote(3); // an ObjectRef<u64>, at once
//!     let more = square::remote(&nine); // a reference where a value is expected
//!     assert_eq!(more.get()?, 81);
//!
//!     let counter = Counter::remote(10);
//!     assert_eq!(counter.add(nine).get()?, 19);
//!     Ok(())
//! }
//! ```
//!
//! - A **task** is a remote call of a function with [`#[remote]`](macro@remote); it gives an [`ObjectRef`] at once.
//! - An **actor** is a value in another process with methods, from an impl with [`#[actor]`](macro@actor).
//! - An **object** is an immutable value that references share; [`Array`]s are read without a copy.
//! - A [`Session`] is the engine: [`init`] starts one, with worker processes, and ends it when dropped.
//! - [`as_completed`] gives references as they finish; `map` of a remote function runs it over an iterator: see [`Map`].
//! - A function with [`#[on_worker_start]`](macro@on_worker_start) runs in each worker process before its first task.
//!
//! # Features
//!
//! - `log`, `tracing` (both on by default): lines of these crates in workers reach the driver, unless the program sets up a
//!   logger there itself.
//! - `tokio`: asynchronous methods of actors run inside a Tokio runtime.

mod actor;
mod argument;
mod array;
mod awaiting;
mod completed;
mod current;
mod error;
mod generated;
mod map;
mod nodes;
mod object_ref;
mod options;
mod placement;
mod remote_error;
mod session;
mod stream;

pub use actor::{ActorRef, kill};
/// All options have pages: [`ActorOptions`].
///
pub use aktis_macros::actor;
pub use aktis_macros::on_worker_start;
/// All options have pages: [`TaskOptions`].
///
pub use aktis_macros::remote;
pub use aktis_protocol::{
    ActorId, Amount, DeathCause, GroupPlace, GroupStrategy, LabelRule, LabelTest, NodeId, ObjectId,
    Resources, Strategy, TaskId,
};
pub use aktis_runtime::runtime::Context;
pub use aktis_runtime::runtime::Statistics;
pub use argument::IntoArg;
pub use array::{Array, Element};
pub use awaiting::{get_all_async, wait_async};
pub use completed::{AsCompleted, as_completed};
pub use current::{
    cancel, checkpoint, exit_actor, explain, get, get_all, get_timeout, is_cancelled, node, nodes, put,
    resources, runtime_context, wait,
};
pub use error::{Error, Result, TaskError};
pub use map::Map;
pub use nodes::Node;
pub use object_ref::{Explain, ObjectRef};
pub use options::Quantity;
pub use options::actor::{ActorOptions, RemoteActor};
pub use options::task::{RemoteFunction, TaskOptions};
pub use placement::PlacementGroup;
pub use session::{Entered, ReadyAndRest, Session, SessionBuilder, init};
pub use stream::{NextItem, ObjectStream};

/// The guide and the first page, so that their programs are compiled and run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/rust.md")]
    struct Guide;

    #[doc = include_str!("../../../README.md")]
    struct FirstPage;
}

#[doc(hidden)]
pub mod __private {
    pub use crate::generated::*;
}

/// What most programs use, with one `use`.
pub mod prelude {
    pub use crate::{ActorRef, Array, ObjectRef, ObjectStream, Session, actor, remote};
    pub use std::time::Duration;
}
