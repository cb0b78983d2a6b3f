//! Who may be in a cluster: join tokens, and nodes that were put out. Also what the command line asks the control process
//! about them.

use crate::admin::{IdPrefix, JoinToken};
use crate::ids::NodeId;
use crate::member::PublicKey;
use crate::tables::Event;
use serde::{Deserialize, Serialize};

/// A join token, by a random number that is in it and is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenId(pub u64);

impl std::fmt::Display for TokenId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What the control process knows of a join token. The token itself is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// Which.
    pub id: TokenId,
    /// When it was made, in seconds since 1970.
    pub made_unix_seconds: u64,
    /// When it ends to be good, in seconds since 1970.
    pub expires_unix_seconds: u64,
    /// How many machines can join with it; any number if nothing is said.
    pub uses_max: Option<u32>,
    /// How many have.
    pub uses: u32,
    /// Whether it was revoked.
    pub is_revoked: bool,
}

/// How far a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenState {
    /// A machine can join with it.
    Good,
    /// As many machines as may have joined with it.
    UsedUp,
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
}

impl TokenRow {
    /// How far it is at this time.
    pub fn state(&self, unix_seconds: u64) -> TokenState {
        let is_used_up = self.uses_max.is_some_and(|most| self.uses >= most);
        match self.is_revoked {
            true => TokenState::Revoked,
            false if unix_seconds >= self.expires_unix_seconds => TokenState::Expired,
            false if is_used_up => TokenState::UsedUp,
            false => TokenState::Good,
        }
    }
}

impl TokenState {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::UsedUp => "used up",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

/// A node that was put out of the cluster: no membership is given to its id, and no certificate for its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutOut {
    /// The node.
    pub node: NodeId,
    /// Its key, if it has ever joined.
    pub key: Option<PublicKey>,
    /// When, in seconds since 1970.
    pub unix_seconds: u64,
    /// Whether that is for good.
    pub kind: PutOutKind,
    /// When all its certificates have expired, so that this need not be known any more; `None` if it is for good.
    pub forgotten_unix_seconds: Option<u64>,
}

/// How a node was put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutOutKind {
    /// Its machine may join again with a token, and has its certificate for nothing until that expires.
    Expelled,
    /// Its key is refused for good, with a token as well.
    Revoked,
}

impl PutOutKind {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expelled => "expelled",
            Self::Revoked => "revoked",
        }
    }
}

/// What the command line asks the control process about who is let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrustRequest {
    /// A new token with which machines may join. Answer: [`TrustReply::Token`].
    MakeToken {
        /// For how long it is to be good.
        lifetime_seconds: u64,
        /// How many machines may join with it; any number if nothing is said.
        uses_max: Option<u32>,
    },
    /// The tokens that are on record. Answer: [`TrustReply::Tokens`].
    Tokens,
    /// That a token is good no more. Answer: [`TrustReply::Revoked`].
    RevokeToken(IdPrefix),
    /// That a node leaves at once. Answer: [`TrustReply::PutOut`].
    PutOut {
        /// Which.
        node: IdPrefix,
        /// Whether it may ever come back.
        kind: PutOutKind,
    },
    /// Another key for tokens: none that was made before is good any more. Answer: [`TrustReply::Rotated`].
    RotateTokens,
    /// What has happened. Answer: [`TrustReply::Events`].
    Audit {
        /// Only what has happened at this time or later, in milliseconds since 1970.
        since_unix_milliseconds: Option<u64>,
        /// How many at most: the last.
        limit: u32,
    },
    /// Another key for the authority, and for tokens: what was signed by the one before is good for nothing afterwards. Asked
    /// again, it goes on where the last one has stopped. Answer: [`TrustReply::AuthorityRotated`].
    RotateAuthority,
}

/// What the control process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrustReply {
    /// A new token.
    Token(JoinToken),
    /// The tokens on record, and the time by the head's clock, in seconds since 1970.
    Tokens {
        /// The oldest first.
        rows: Vec<TokenRow>,
        /// What it is now there.
        unix_seconds: u64,
    },
    /// This token is revoked.
    Revoked(TokenId),
    /// This node is put out.
    PutOut(NodeId),
    /// So many tokens that were good are so no more.
    Rotated(u32),
    /// What has happened, the oldest first.
    Events(Vec<Event>),
    /// So many nodes have certificates of another authority now.
    AuthorityRotated(u32),
}
