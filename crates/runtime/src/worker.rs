//! A worker process: threads that pull tasks and run actors.

mod async_call;
mod attendant;
mod batch;
pub(crate) mod context;
mod entry;
mod executor;
mod frames;
mod groups;
#[cfg(any(feature = "log", feature = "tracing"))]
mod logging;
mod mailbox;
mod moving;
mod nested;
mod orphans;
mod pace;
mod remembering;
mod reply;
pub(crate) mod run;
mod runner;
mod start;
#[cfg(feature = "tokio")]
mod tokio;
mod watch;
mod watching;

pub use entry::serve;
pub(crate) use entry::{end, is_linked};
pub(crate) use executor::{Executor, FETCHING, keeping_lease};
pub(crate) use pace::user_code_begins;
pub(crate) use runner::{TaskBytes, turn};
