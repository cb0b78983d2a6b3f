//! What runs on a virtual cluster: tasks, and the objects that they read.

use aktis_logic::Time;
use aktis_protocol::placement::Strategy;
use aktis_protocol::{FunctionId, GroupPlace, NodeId, Resources};
use std::collections::BTreeSet;

/// A task, by its place in the table of all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskIndex(pub usize);

/// An object, by its place in the table of all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectIndex(pub usize);

/// What makes tasks alike: they share a lane at home, and a demand.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// What it runs.
    pub function: FunctionId,
    /// What it needs.
    pub needs: Resources,
    /// The placement group whose resources it uses.
    pub group: Option<GroupPlace>,
    /// Where it may run.
    pub strategy: Strategy,
    /// What it reads.
    pub inputs: Vec<ObjectIndex>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in a lane at home.
    Queued,
    /// It is on its way to a node, waits there or runs.
    Sent(NodeId),
    /// It has run.
    Done(Time),
    /// Its home died, and nobody asks for it any more.
    Lost,
    /// It had to run on a node that is no member, and its home was told.
    Impossible,
}

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// What it is.
    pub kind: Kind,
    /// How long it runs, in microseconds. Only the node where it runs finds out.
    pub run: u64,
    /// The node that it is submitted on.
    pub home: NodeId,
    /// When.
    pub submitted: Time,
    /// How far it is.
    pub fate: Fate,
    /// How often it was sent: an end of an earlier attempt does not count.
    pub attempt: u32,
}

impl Task {
    /// How long it took from its submission until its end, if it has ended.
    pub fn latency(&self) -> Option<u64> {
        match self.fate {
            Fate::Done(at) => Some(at.0 - self.submitted.0),
            _ => None,
        }
    }
}

/// An object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its size.
    pub bytes: u64,
    /// Who has it.
    pub holders: BTreeSet<NodeId>,
}
