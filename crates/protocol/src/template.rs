//! Messages between a node and the template process that its workers are forked from, encoded with postcard.

use crate::ids::ProcessSlot;
use serde::{Deserialize, Serialize};

/// From the node to the template: fork a worker. With it come three descriptors: the worker's end of its socket, and
/// the writing ends of its standard output and standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkRequest {
    /// The place of the worker.
    pub process: ProcessSlot,
    /// The argument that a worker would be started with.
    pub arguments: String,
    /// How the worker is to be set up before it runs anything; only the worker understands it.
    pub environment: String,
    /// Environment variables that are different in the worker.
    pub variables: Vec<(String, String)>,
}

/// From the template to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromTemplate {
    /// It is ready to fork.
    Ready,
    /// The worker runs. With it comes a descriptor of the process.
    Forked {
        /// The place of the worker.
        process: ProcessSlot,
        /// Its process id.
        pid: u32,
    },
    /// The worker could not be forked.
    Refused {
        /// The place of the worker.
        process: ProcessSlot,
        /// Why.
        error: String,
    },
    /// A worker has ended.
    Ended {
        /// Its process id.
        pid: u32,
        /// The signal that killed it, if one did.
        signal: Option<i32>,
        /// Its exit code, if it exited.
        exit_code: Option<i32>,
    },
}
