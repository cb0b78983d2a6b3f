//! What a node's daemon asks the processes of its node about what they have submitted: nobody else knows of it.

use crate::admin::{IdPrefix, TaskRow};
use crate::ids::{LaneId, TaskId};
use serde::{Deserialize, Serialize};

/// What all processes are asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessQuestion {
    /// Which tasks and calls of yours are on record?
    Tasks {
        /// How many rows are wanted at most.
        limit: u32,
        /// Only those in this state, by its word.
        state: Option<String>,
        /// Only those with this name.
        name: Option<String>,
    },
    /// What do you know about the task with this id, or the one that makes the object with it?
    Explain(IdPrefix),
    /// End this task or call, and what it has submitted, if you have submitted it and it has not ended.
    Cancel {
        /// The task.
        task: TaskId,
        /// Its worker process ends too, if it runs.
        force: bool,
    },
}

/// What one process answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessAnswer {
    /// Tasks and calls, as many as a message holds.
    pub tasks: Vec<TaskRow>,
    /// How many there are besides.
    pub left_out: u64,
    /// What is known about tasks that were asked for by their ids.
    pub accounts: Vec<TaskAccount>,
    /// Whether it has begun to end the task that was to be cancelled.
    pub cancelled: bool,
}

/// What a process knows about a task that it has submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAccount {
    /// The task.
    pub task: TaskId,
    /// How it stands, in a sentence.
    pub text: String,
    /// The queue that it waits in, if it does: the node knows why.
    pub lane: Option<LaneId>,
}
