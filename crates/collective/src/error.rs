//! Why a collective operation did not succeed, and what the member can do.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why an operation did not succeed.
///
/// After every error but [`Invalid`](Self::Invalid) the group is broken: each later operation gives the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A member has died or left.
    #[error("rank {rank} is gone: {reason}\nhint: `regroup` makes a group of the members that are left")]
    MemberDied {
        /// Which one.
        rank: usize,
        /// What is known of its end.
        reason: String,
    },
    /// Members did not come in time.
    #[error(
        "{operation} timed out after {seconds} s at rank {rank}: no sign of {late}\n\
         hint: these members are late, busy or hang; give the group a longer timeout, or `regroup` without them"
    )]
    TimedOut {
        /// What was waited for.
        operation: String,
        /// The member that waited.
        rank: usize,
        /// How long, as it is shown.
        seconds: String,
        /// The members that were missing, as they are shown.
        late: String,
    },
    /// Members did different things.
    #[error(
        "members disagree in operation {number}: rank {rank} has {theirs}, rank {own_rank} has {own}\n\
         hint: all members make the same calls in the same order, with equal sizes and types"
    )]
    Mismatch {
        /// The how many-th operation of the group it is.
        number: u64,
        /// One of the two.
        own_rank: usize,
        /// What it does.
        own: String,
        /// The other.
        rank: usize,
        /// What that does.
        theirs: String,
    },
    /// A member was interrupted in the middle of an operation.
    #[error("rank {rank} was interrupted\nhint: `regroup` makes a new group")]
    Interrupted {
        /// Which one.
        rank: usize,
    },
    /// The arguments make no sense. The group is as it was.
    #[error("{0}")]
    Invalid(String),
    /// The group could not be made.
    #[error("{0}")]
    Setup(String),
}

impl CollectiveError {
    pub(crate) fn timed_out(operation: String, rank: usize, waited: Duration, late: &[usize]) -> Self {
        Self::TimedOut { operation, rank, seconds: format!("{:.1}", waited.as_secs_f64()), late: ranks(late) }
    }

    /// The rank of the member that is the reason, where it is one.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::MemberDied { rank, .. } | Self::Mismatch { rank, .. } | Self::Interrupted { rank } => {
                Some(*rank)
            }
            _ => None,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut short = self.clone();
        // The board has room for so much.
        if let Self::MemberDied { reason, .. } = &mut short {
            let end = reason.floor_char_boundary(400);
            reason.truncate(end);
        }
        postcard::to_stdvec(&short).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let unknown = || Self::Setup("the group failed for a reason that cannot be read".to_owned());
        postcard::from_bytes(bytes).unwrap_or_else(|_| unknown())
    }
}

/// `rank 3`, or `ranks 1, 2`.
pub(crate) fn ranks(ranks: &[usize]) -> String {
    let all: Vec<_> = ranks.iter().map(usize::to_string).collect();
    format!("{} {}", if all.len() == 1 { "rank" } else { "ranks" }, all.join(", "))
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, CollectiveError>;
