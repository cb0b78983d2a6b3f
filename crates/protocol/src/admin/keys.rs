//! What the command line asks about the key-value space of a cluster.

use serde::{Deserialize, Serialize};

/// A request about keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyRequest {
    /// Which keys begin like this? Answer: [`KeyReply::Keys`].
    List {
        /// How they begin.
        prefix: Vec<u8>,
        /// How many at most; not more than [`LISTED_ROWS_MAX`](crate::limits::LISTED_ROWS_MAX).
        limit: u32,
    },
    /// What is under this key? Answer: [`KeyReply::Value`].
    Get {
        /// The key.
        key: Vec<u8>,
    },
    /// Forget what is under this key. Answer: [`KeyReply::Deleted`].
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

/// The answer to a request about keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyReply {
    /// Keys.
    Keys {
        /// In order.
        keys: Vec<KeyRow>,
        /// Whether there are more.
        more: bool,
    },
    /// The value, if there is one.
    Value(Option<Vec<u8>>),
    /// Whether there was a value.
    Deleted(bool),
}

/// A key of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// The whole key.
    pub key: Vec<u8>,
    /// The size of its value.
    pub bytes: u64,
}
