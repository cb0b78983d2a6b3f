//! Values that the processes of a node tell each other of.

use crate::failure::Failure;
use crate::ids::{EntryRef, ObjectId};
use serde::{Deserialize, Serialize};

/// The value of an object that several processes may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedValue {
    /// The encoded value; `contains` tells whether references are inside.
    Inline {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether references are inside.
        contains: bool,
    },
    /// In the object store.
    Stored {
        /// Its entry in the shared index.
        entry: EntryRef,
        /// Whether references are inside.
        contains: bool,
    },
    /// There is no value.
    Failed(Failure),
}

/// A cancel of the task that makes an object, by a borrower of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCancel {
    /// The object.
    pub object: ObjectId,
    /// Whether to kill the process that runs the task.
    pub force: bool,
    /// Whether what the task has submitted is cancelled too.
    pub recursive: bool,
}
