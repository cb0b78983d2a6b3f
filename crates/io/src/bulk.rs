//! Bulk transfers: objects between two nodes, beside the links, over several connections at once.
//!
//! Whoever needs an object pulls it: asks for parts of it, over as many connections as are worth while, and puts each
//! part where it belongs. Connections are kept for a while, for the next pull.
//!
//! Invariants:
//! 1. Bytes go from the source into TLS, and from TLS into the destination; there is no other copy.
//! 2. A pull that succeeds has written every byte of the destination.

mod pool;
mod pull;
mod serve;

pub(crate) use pool::Pool;
pub(crate) use pull::pull;
pub(crate) use serve::serve;

use crate::hello::Refusal;
use crate::wire::WireError;
use aktis_protocol::{NodeId, ObjectId};
use serde::{Deserialize, Serialize};

/// Bytes that are asked for at once. Whoever is done with one part takes the next.
pub(crate) const PART_BYTES: usize = 4 << 20;
/// Connections of one pull.
pub const STREAMS_MAX: usize = 8;

/// The bytes of an object: straight from where they lie, which stay there while this exists.
pub trait Source: AsRef<[u8]> + Send {}

impl<T: AsRef<[u8]> + Send> Source for T {}

/// Has objects that others pull.
pub trait Serve: Send + Sync {
    /// The bytes of an object for a node or driver of the cluster, or why not. Called on the connection's thread.
    fn open(&self, peer: NodeId, object: ObjectId) -> Result<Box<dyn Source>, String>;
}

/// Why an object could not be pulled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// The other side does not have it.
    #[error("the peer does not have the object: {0}")]
    Unknown(String),
    /// The other side has another number of bytes than there is room for.
    #[error("the object has {found} bytes instead of {expected}")]
    SizeDiffers {
        /// Room for so many.
        expected: u64,
        /// There are so many.
        found: u64,
    },
    /// The other side cannot be reached, or went away.
    #[error("the peer is gone: {0}")]
    PeerGone(#[from] WireError),
    /// The other side said no.
    #[error(transparent)]
    Refused(Refusal),
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Some bytes of an object.
    Part { object: ObjectId, offset: u64, length: u32 },
    /// Nothing more of it: the source can go.
    Done,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The bytes follow.
    Part {
        /// Bytes of the whole object.
        size: u64,
    },
    /// There are not so many bytes in the object.
    Outside {
        /// There are so many.
        size: u64,
    },
    /// There is no such object.
    Unknown(String),
}
