//! The node of Aktis as it runs: the shell around its machine, its worker processes, their sockets and
//! their end.
//!
//! [`Host`] is the node inside a daemon, [`EmbeddedNode`] the one inside a driver; [`WorkerLink`] is a worker process's
//! end of it, [`DriverLink`] that of a driver which has attached, [`LocalLink`] that of a place in the node's own
//! process. What the node decides is in `aktis_logic`; here is only what carries it out.
//!
//! Invariants:
//! 1. Messages of all processes reach the machine in an order that respects cause and effect.
//! 2. Every worker process is a child of the node's thread, or of a template process that is, and dies with it,
//!    also by `kill -9`.
//! 3. Nothing that a user's code can block (its output, its locks, its disk) blocks the node's thread.
//! 4. No descriptor of the node is inherited by processes that users start.

pub mod admin_wire;
mod arguments;
pub mod attach;
mod bell;
mod checkpoints;
mod delivery;
mod demand;
pub mod directory;
mod disk;
pub mod embedded;
pub mod host;
mod inbox;
pub mod journal;
mod kills;
pub mod link;
mod node_thread;
mod output;
mod peer;
pub mod programs;
mod questions;
mod run_times;
mod shell;
mod spawn;
pub mod template;
mod trust;

pub use aktis_logic::machine::node::SPILL_ABOVE_PERCENT_DEFAULT;
pub use attach::{AttachError, DriverLink};
pub use delivery::Deliver;
pub use directory::{ADDRESS_FILE, AddressError, default_directory, find_local};
pub use embedded::{EmbeddedNode, NodeOptions, OutputOptions, WorkerProgram};
pub use host::{Host, HostConfig, LocalError, LocalLink, LocalRole, OpenedCopy, StartError};
pub use link::{LinkError, WorkerLink};
pub use output::{OutputEvents, PrintedLine, Printer, Stream, WriteOutput, write_directly};
pub use programs::{NODE_VARIABLE, ProgramError, ProgramSource};
pub use questions::{QuestionId, Questions};
pub use shell::{Elsewhere, Explainer};
pub use template::{ForkOutcome, ForkedWorker, serve_template};
pub use trust::TrustError;
