//! A worker process: threads that pull tasks and run actors.

mod async_call;
mod attendant;
pub(crate) mod context;
mod entry;
mod executor;
mod groups;
mod leases;
mod mailbox;
mod nested;
mod orphans;
mod reply;
pub(crate) mod run;
mod runner;
mod watch;

pub use entry::serve;
pub(crate) use entry::{end, is_linked};
pub(crate) use executor::Executor;
pub(crate) use runner::{TaskBytes, turn};
