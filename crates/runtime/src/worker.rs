//! A worker process: threads that pull tasks and run actors.

pub(crate) mod context;
mod entry;
mod executor;
mod leases;
mod mailbox;
mod nested;
mod reply;
pub(crate) mod run;
mod runner;
mod watch;

pub(crate) use entry::is_linked;
pub(crate) use executor::Executor;
pub(crate) use runner::TaskBytes;
