//! The node of Aktis as it runs: the shell around its machine, its worker processes, their sockets and
//! their end.
//!
//! [`EmbeddedNode`] is the node inside a driver; [`WorkerLink`] is a worker process's end of it. What the
//! node decides is in `aktis_logic`; here is only what carries it out.
//!
//! Invariants:
//! 1. Messages of all processes reach the machine in an order that respects cause and effect.
//! 2. Every worker process is a child of the node's thread, or of a template process that is, and dies with it,
//!    also by `kill -9`.
//! 3. Nothing that a user's code can block (its output, its locks, its disk) blocks the node's thread.
//! 4. No descriptor of the node is inherited by processes that users start.

mod arguments;
mod bell;
mod delivery;
mod demand;
mod disk;
pub mod embedded;
mod inbox;
pub mod link;
mod node_thread;
mod output;
mod peer;
mod shell;
mod spawn;
pub mod template;

pub use aktis_logic::machine::node::SPILL_ABOVE_PERCENT_DEFAULT;
pub use embedded::{EmbeddedNode, NodeOptions, OutputOptions, StartError, WorkerProgram};
pub use link::{LinkError, WorkerLink};
pub use output::{Stream, WriteOutput, write_directly};
pub use template::{ForkOutcome, ForkedWorker, serve_template};
