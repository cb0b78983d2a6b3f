//! The control store on disk: shards that survive `kill -9` at any instant.
//!
//! [`ControlStore`] is what others use. Each of its shards is a [`Shard`](aktis_logic::machine::shard::Shard) on a thread
//! of its own (`shard_thread`), with a `log` that a second thread writes, and now and then a `snapshot` that a third one
//! does. `frames` is how records lie in files, `lock` keeps a second process out.
//!
//! ```text
//! DIRECTORY/lock                          the process that has the store
//! DIRECTORY/slots                         which shard has which slot
//! DIRECTORY/shard-0000/log-NUMBER         records, from that one on
//! DIRECTORY/shard-0000/snapshot-NUMBER    all up to that record, and of some parts more
//! ```
//!
//! 1. What was answered is on disk.
//! 2. A file that is not the last of its log is whole; whatever else is found in it is an error and not a guess.

mod completion;
mod control_store;
mod files;
mod frames;
mod lock;
mod log;
mod merge;
mod queue;
mod shard_thread;
mod snapshot;

pub use control_store::{ControlStore, StoreConfig, StoreEvents, StoreWriter, Subscription};

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why a store on disk cannot be opened, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// Another process has it.
    #[error(
        "process {pid} has the control store in {} open\n\
         hint: stop that one first, or give this one another directory", .directory.display()
    )]
    Locked {
        /// Where.
        directory: PathBuf,
        /// Who, as far as it is known.
        pid: String,
    },
    /// The disk refused something.
    #[error("cannot {doing} {}: {error}", .path.display())]
    Disk {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file has something in it that was never written there.
    #[error(
        "{} is damaged at byte {at}: {what}\n\
         hint: restore the directory from a copy; nothing was changed", .path.display()
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        at: u64,
        /// In what way.
        what: String,
    },
    /// Files of the log are not there.
    #[error(
        "the log in {} begins with record {first}, and record {wanted} is needed\n\
         hint: restore the directory from a copy; nothing was changed", .directory.display()
    )]
    Missing {
        /// Where.
        directory: PathBuf,
        /// The first record that is there.
        first: u64,
        /// The first that is needed.
        wanted: u64,
    },
}

impl DurableError {
    /// What `map_err` wants, for something that is done with `path`.
    fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Disk { doing, path, error }
    }

    /// Whether it is for lack of room, which may be made.
    fn is_full_disk(&self) -> bool {
        let Self::Disk { error, .. } = self else { return false };
        matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store was closed, or its disk failed: it is not known whether the batch was made.
    #[error("the control store has stopped")]
    Stopped,
    /// More subscriptions than there may be.
    #[error("there are too many subscriptions")]
    TooManySubscriptions,
}
