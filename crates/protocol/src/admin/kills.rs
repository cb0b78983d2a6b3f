//! Orders of a command line to end a task, an actor or a job, and what became of them.

use super::between::AccountKind;
use super::prefix::IdPrefix;
use crate::ids::{ActorId, NodeId, ProgramId, TaskId};
use serde::{Deserialize, Serialize};

/// What is to end, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillOrder {
    /// A task, an actor or a job.
    pub id: IdPrefix,
    /// An actor may start again, if it has restarts left.
    pub restart: bool,
    /// A running task ends with its worker process, a job by `SIGKILL`.
    pub force: bool,
}

/// What one node is to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillTarget {
    /// A task or call that a process of the node has submitted.
    Task {
        /// The task.
        task: TaskId,
        /// Its worker process ends too, if it runs.
        force: bool,
    },
    /// An actor that the node knows.
    Actor {
        /// The actor.
        actor: ActorId,
        /// It may start again.
        restart: bool,
    },
    /// A driver that is attached to the node.
    Job {
        /// Its process.
        pid: u32,
        /// What it runs: another process may have the same number by now.
        program: ProgramId,
        /// By `SIGKILL`, not `SIGTERM`.
        force: bool,
    },
}

/// What was told to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    /// What it is.
    pub kind: AccountKind,
    /// Its whole id.
    pub id: String,
    /// The node that has carried the order out.
    pub node: NodeId,
}
