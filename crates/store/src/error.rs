//! What the object store can refuse, each variant saying what the caller can do.

use std::io;
use std::path::PathBuf;

/// Why the object store refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store would be larger than the memory there is.
    #[error(
        "an object store of {bytes} bytes does not fit into this machine's memory of {memory} bytes\n\
         hint: lower store_bytes (--store-bytes of `aktis start`); objects that do not fit are spilled to disk"
    )]
    LargerThanMemory {
        /// What was asked for.
        bytes: u64,
        /// What there is: the machine's memory, or the limit of this process's control group.
        memory: u64,
    },
    /// The store would have no room at all.
    #[error("an object store of {bytes} bytes is too small\nhint: store_bytes is at least {least}")]
    TooSmall {
        /// What was asked for.
        bytes: u64,
        /// The least that makes sense.
        least: u64,
    },
    /// The system gave no shared memory.
    #[error(
        "the system refused {bytes} bytes of address space for the object store: {source}\n\
         hint: lower store_bytes, or raise the limit on address space (ulimit -v)"
    )]
    Refused {
        /// What was asked for.
        bytes: u64,
        /// What it said.
        source: io::Error,
    },
    /// Shared memory counts as a file, and files may not be that large.
    #[error(
        "shared memory of {bytes} bytes is more than the limit on the size of files allows, {limit} bytes\n\
         hint: raise the limit (ulimit -f)"
    )]
    FileLimit {
        /// What was asked for.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The memory of an object could not be had.
    #[error(
        "there is no memory left for an object of {bytes} bytes\n\
         hint: lower store_bytes so that objects are spilled to disk earlier"
    )]
    OutOfMemory {
        /// The object's size.
        bytes: u64,
    },
    /// What another process sent is not the index of an object store.
    #[error(
        "the shared index of the object store is not valid\nhint: all processes must run the same program"
    )]
    NotAnIndex,
    /// The entry is not the caller's to write: it is sealed, freed, or being written already.
    #[error("the object's memory is not open for writing (entry {index})")]
    NotWritable {
        /// The entry's place.
        index: u32,
    },
    /// The disk is full.
    #[error(
        "the disk is full: {bytes} bytes could not be spilled to {}\n\
         hint: free some space there, or choose another spill_directory",
        directory.display()
    )]
    DiskFull {
        /// Where spilled objects go.
        directory: PathBuf,
        /// What was to be written.
        bytes: u64,
    },
    /// The disk refused.
    #[error(
        "cannot {action} spilled objects in {}: {source}\n\
         hint: spill_directory must be a directory that this process may write to",
        directory.display()
    )]
    Disk {
        /// What was tried: `keep`, `write` or `read`.
        action: &'static str,
        /// Where spilled objects go.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The spill file could not be mapped.
    #[error(
        "{bytes} bytes of the spill file cannot be used: {source}\n\
         hint: see that the disk of spill_directory works and has room, or raise store_bytes"
    )]
    File {
        /// The object's size.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes did not come from where they were to come.
    #[error("{0}")]
    Elsewhere(String),
    /// The session closes, and the work was given up half-way.
    #[error("the session is closing")]
    Closing,
}

/// Why an object cannot be read right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// It exists but is not in memory (spilled, or its writer is not done): ask the node, then try again.
    #[error("the object is not in memory right now")]
    NotResident,
    /// It was freed.
    #[error("the object was freed")]
    Gone,
    /// It lies on disk, and cannot be read there.
    #[error(
        "the object cannot be read from the spill file: {0}\n\
         hint: see that the disk of spill_directory works"
    )]
    Unreadable(io::ErrorKind),
}
