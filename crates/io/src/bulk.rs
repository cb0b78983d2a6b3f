//! Bulk transfers: objects between two nodes, beside the links, over several connections at once.
//!
//! Whoever needs an object pulls it: asks for parts of it, over as many connections as are worth while, and puts each
//! part where it belongs. Connections are kept for a while, for the next pull.
//!
//! Invariants:
//! 1. Bytes in memory go from the source into TLS, and from TLS into the destination; there is no other copy.
//! 2. A pull that succeeds has written every byte of the destination.
//! 3. Whoever serves needs no memory for more than a part, unless the other side insists.

mod destination;
mod pool;
mod pull;
mod serve;

pub use destination::Destination;
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

/// The bytes of an object, which stay what they are while this exists.
pub trait Source: Send {
    /// How many there are.
    fn size(&self) -> u64;

    /// Some of them, if there are so many: straight from where they lie, or read into `room`. If it fails, the object may
    /// lie elsewhere by now, and is opened again.
    fn part<'a>(&'a self, offset: u64, length: usize, room: &'a mut Vec<u8>) -> Result<&'a [u8], String>;
}

impl<T: AsRef<[u8]> + Send> Source for T {
    fn size(&self) -> u64 {
        self.as_ref().len() as u64
    }

    fn part<'a>(&'a self, offset: u64, length: usize, _room: &'a mut Vec<u8>) -> Result<&'a [u8], String> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.as_ref().get(offset..));
        rest.and_then(|rest| rest.get(..length)).ok_or_else(|| "there are not so many bytes".to_owned())
    }
}

/// What is found where an object is asked for.
pub enum Opened {
    /// Its bytes.
    Here(Box<dyn Source>),
    /// Another node has them.
    Elsewhere(NodeId),
}

/// Has objects that others pull.
pub trait Serve: Send + Sync {
    /// Whether a bearer of a certificate may ask for objects at all; if not, why. It is asked once for each connection,
    /// before anything else.
    fn admit(&self, peer: NodeId) -> Result<(), String>;

    /// An object for a node of the cluster, or why there is none. Called on the connection's thread. It waits for nothing,
    /// unless the other side `insists`: then it is to be here, from wherever it has to be brought.
    fn open(&self, peer: NodeId, object: ObjectId, insists: bool) -> Result<Opened, String>;
}

impl PullError {
    /// Whether this is an answer, and not a failure of the connection on which it came.
    fn is_answer(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Elsewhere(_) | Self::SizeDiffers { .. })
    }

    /// Whether it may be otherwise in a moment.
    pub fn passes(&self) -> bool {
        matches!(self, Self::PeerGone(_) | Self::Refused(Refusal::Busy(_)))
    }
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
    /// The other side does not have it, but knows who does.
    #[error("the object is on node {0}")]
    Elsewhere(NodeId),
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
    /// Some bytes of an object. Who insists wants them from here, and not from whoever has it.
    Part { object: ObjectId, offset: u64, length: u32, insists: bool },
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
    /// This node has it.
    Elsewhere(NodeId),
}
