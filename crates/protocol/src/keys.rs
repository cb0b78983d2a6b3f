//! Small values under keys: what can be asked about them, and the answers.

use crate::limits;
use serde::{Deserialize, Serialize};

/// A question about a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyQuestion {
    /// Keep a value. Answer: [`KeyAnswer::Existed`].
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Whether it replaces one that is there.
        overwrite: bool,
    },
    /// What is under this key? Answer: [`KeyAnswer::Value`].
    Get {
        /// The key.
        key: Vec<u8>,
    },
    /// Forget what is under this key. Answer: [`KeyAnswer::Existed`].
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Which keys begin like this? Answer: [`KeyAnswer::Keys`].
    List {
        /// How they begin.
        prefix: Vec<u8>,
    },
}

/// An answer about a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyAnswer {
    /// Whether there was a value before.
    Existed(bool),
    /// The value, if there is one.
    Value(Option<Vec<u8>>),
    /// Keys.
    Keys {
        /// In order, as many as a message holds.
        keys: Vec<Vec<u8>>,
        /// How many there are besides.
        left_out: u32,
    },
}

/// What a key takes in a message besides itself, at most.
const KEY_BYTES: usize = 8;

impl KeyAnswer {
    /// As many of the keys as a message holds.
    pub fn listing(keys: impl Iterator<Item = Vec<u8>>) -> Self {
        let (mut listed, mut left_out, mut bytes) = (Vec::new(), 0, 0);
        for key in keys {
            bytes += key.len() + KEY_BYTES;
            match bytes <= limits::CONTROL_MESSAGE_BYTES_MAX {
                true => listed.push(key),
                false => left_out += 1,
            }
        }
        Self::Keys { keys: listed, left_out }
    }
}
