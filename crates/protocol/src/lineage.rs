//! How tasks can be run again by others than those who submitted them.

use crate::ids::{FunctionId, ProgramId, TaskId};
use crate::resources::Shape;
use serde::{Deserialize, Serialize};

/// A task whose results others may ask for, as its submitter tells it to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTask {
    /// The task.
    pub task: TaskId,
    /// How many values it returns.
    pub returns: u32,
    /// The program that can run it.
    pub program: ProgramId,
    /// How: a [`Lineage`], encoded.
    pub lineage: Vec<u8>,
}

/// How the results of a task are made: the task itself first, then those that have made what it needs and what nobody
/// else may have, as far as they are on record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
}

/// One task, as it is run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task. Its results keep their ids.
    pub task: TaskId,
    /// The program that can run it.
    pub program: ProgramId,
    /// What runs.
    pub function: FunctionId,
    /// Its name, if it has one of its own.
    pub name: Option<String>,
    /// What it needs; without its program, which is the submitter's.
    pub shape: Shape,
    /// How many values it returns.
    pub returns: u32,
    /// How often it may be run again.
    pub retries: u32,
    /// How often it was sent before.
    pub attempt: u32,
    /// Its arguments, as they lie in lanes, with objects by their ids.
    pub arguments: Vec<u8>,
}
