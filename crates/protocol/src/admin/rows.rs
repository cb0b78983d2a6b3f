//! Rows about a whole cluster: those of its nodes with the node's id added, and rows that only a cluster has.

use crate::ids::{ActorId, NodeId, ProgramId, TaskId};
use crate::state::{
    ActorRow, ActorState, DemandRow, GroupRow, ObjectRow, ResourceRow, StoreRow, WorkerRole, WorkerRow,
    WorkerState,
};
use crate::tables::Counts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What every row tells, so that people can select by it.
pub trait Known {
    /// The names of its fields.
    const FIELDS: &'static [&'static str];

    /// The node that it is on.
    fn node(&self) -> NodeId;

    /// How far it is, in one word.
    fn state(&self) -> &'static str;

    /// Its name, if its kind has names.
    fn name(&self) -> Option<&str>;

    /// What it tells under this name, as text; nothing if it has no such field.
    fn field(&self, name: &str) -> Option<String>;
}

/// Rows of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rows {
    /// Tasks and calls of actors.
    Tasks(Vec<OnNode<TaskRow>>),
    /// Actors.
    Actors(Vec<OnNode<ActorRow>>),
    /// Objects in the stores.
    Objects(Vec<OnNode<ObjectRow>>),
    /// Nodes.
    Nodes(Vec<NodeRow>),
    /// Worker processes.
    Workers(Vec<OnNode<WorkerRow>>),
    /// Drivers that use the cluster, or have.
    Jobs(Vec<OnNode<JobRow>>),
    /// Programs whose tasks and actors nodes can run.
    Programs(Vec<OnNode<ProgramRow>>),
    /// Placement groups.
    Groups(Vec<OnNode<GroupRow>>),
}

/// A row that a node gave about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnNode<Row> {
    /// The node.
    pub node: NodeId,
    /// The row.
    pub row: Row,
}

/// How the whole cluster stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The node that answers.
    pub node: NodeId,
    /// Where the head listens, if it does.
    pub address: Option<String>,
    /// Why the head cannot be reached, if it cannot: what follows is then about this node alone.
    pub head_lost: Option<String>,
    /// The nodes, the head first.
    pub nodes: Vec<NodeRow>,
    /// The last nodes that have left or died, the latest last; none if the control process has not said so.
    pub dead: Vec<NodeRow>,
    /// Programs that are attached, to all nodes together.
    pub drivers: u32,
    /// What tasks and actors wait for, and why.
    pub demand: Vec<DemandRow>,
    /// How much the control process keeps; nothing if it has not said so.
    pub kept: Option<Counts>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The node.
    pub node: NodeId,
    /// Whether the head runs there.
    pub is_head: bool,
    /// How far it is.
    pub state: NodeState,
    /// The name of its machine.
    pub host: String,
    /// Where it listens; empty if it does not.
    pub address: String,
    /// The id of its daemon's process.
    pub pid: u32,
    /// The release of its daemon; empty if it does not answer.
    pub version: String,
    /// What users say about it.
    pub labels: BTreeMap<String, String>,
    /// What it has, and what is free of it.
    pub resources: Vec<ResourceRow>,
    /// Its object store.
    pub store: StoreRow,
    /// Its worker processes.
    pub workers: u32,
    /// The processes of the programs that are attached to it.
    pub drivers: Vec<u32>,
    /// When it was gone, if it is dead, in milliseconds since 1970.
    pub died_unix_milliseconds: Option<u64>,
    /// Why it is dead, if it is.
    pub reason: Option<String>,
}

/// How far a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// It is being added.
    #[default]
    Joining,
    /// It works.
    Alive,
    /// There is no contact at the moment.
    Silent,
    /// It is gone.
    Dead,
    /// It works, takes nothing new, and is about to leave.
    Draining,
}

impl NodeState {
    /// Whether it works.
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Alive | Self::Draining)
    }
}

/// A program that uses the cluster, or has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its number: those that began later have higher ones.
    pub job: u64,
    /// What it is.
    pub program: ProgramId,
    /// The command that it was started with.
    pub command: String,
    /// Its process.
    pub pid: u32,
    /// When it attached, in milliseconds since 1970.
    pub began_unix_milliseconds: u64,
    /// When it left, if it has.
    pub ended_unix_milliseconds: Option<u64>,
    /// How far it is.
    pub state: JobState,
}

/// How far a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// It is attached.
    Running,
    /// It has left, or its process has ended.
    Ended,
    /// Its node is gone.
    Lost,
}

/// A program that a node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// Its name: a hash of its content.
    pub program: ProgramId,
    /// What it is written in.
    pub language: Language,
    /// The version of its interpreter, if it has one.
    pub version: Option<String>,
    /// The size of its executable, if it is one.
    pub bytes: Option<u64>,
    /// The processor that it is for.
    pub architecture: String,
    /// When it came to the node, in milliseconds since 1970.
    pub came_unix_milliseconds: u64,
}

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// Rust: the program is its executable.
    Rust,
    /// Python: the program is an interpreter, and what it loads first.
    Python,
}

/// A task or call of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: TaskKind,
    /// How far it is.
    pub state: TaskState,
    /// How often it was started before.
    pub attempt: u32,
    /// The process that runs it.
    pub pid: Option<u32>,
    /// The actor that it creates or is a call of.
    pub actor: Option<ActorId>,
    /// What went wrong.
    pub error: Option<String>,
    /// Whether it was submitted on another node, which tells of it too.
    pub is_foreign: bool,
}

impl TaskRow {
    /// Whether another node has it, which knows more about it.
    pub fn is_away(&self) -> bool {
        self.state == TaskState::Running && self.pid.is_none()
    }
}

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskKind {
    /// A remote call of a function.
    Function,
    /// The making of an actor.
    Constructor,
    /// A call of an actor.
    Method,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// Its inputs are not there yet.
    Waiting,
    /// It waits for its turn.
    Queued,
    /// Its actor has it: it runs, or waits there for its turn.
    Sent,
    /// It runs.
    Running,
    /// It has its results.
    Finished,
    /// It has failed.
    Failed,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectPlace {
    /// Nowhere yet: it is being written.
    Writing,
    /// In memory.
    Memory,
    /// On disk only.
    Disk,
    /// On another node only.
    Elsewhere,
}

impl WorkerRole {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Tasks => "tasks",
            Self::Actor(_) => "actor",
        }
    }

    /// The actor that it is for, if it is for one.
    pub const fn actor(self) -> Option<ActorId> {
        match self {
            Self::Actor(actor) => Some(actor),
            Self::Shared | Self::Tasks => None,
        }
    }
}

impl ObjectRow {
    /// Where it is.
    pub fn place(&self) -> ObjectPlace {
        match (self.elsewhere, self.sealed, self.spilled) {
            (true, ..) => ObjectPlace::Elsewhere,
            (false, false, _) => ObjectPlace::Writing,
            (false, true, false) => ObjectPlace::Memory,
            (false, true, true) => ObjectPlace::Disk,
        }
    }
}

/// One word for each variant: what tables show, programs read, and people select by.
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $name {
            /// The words for all of them.
            pub const WORDS: &[&str] = &[$($word),*];

            /// The word for it.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    };
}

words!(NodeState {
    Joining = "joining",
    Alive = "alive",
    Silent = "silent",
    Dead = "dead",
    Draining = "draining",
});
words!(JobState { Running = "running", Ended = "ended", Lost = "lost" });
words!(Language { Rust = "rust", Python = "python" });
words!(TaskKind { Function = "function", Constructor = "constructor", Method = "method" });
words!(TaskState {
    Waiting = "waiting",
    Queued = "queued",
    Sent = "sent",
    Running = "running",
    Finished = "finished",
    Failed = "failed",
});
words!(ObjectPlace { Writing = "writing", Memory = "memory", Disk = "disk", Elsewhere = "elsewhere" });
words!(ActorState { Pending = "pending", Alive = "alive", Restarting = "restarting", Dead = "dead" });
words!(WorkerState { Starting = "starting", Idle = "idle", Busy = "busy", Leaving = "leaving" });

impl Known for NodeRow {
    const FIELDS: &'static [&'static str] = &["id", "state", "role", "host", "address", "pid", "version"];

    fn node(&self) -> NodeId {
        self.node
    }

    fn state(&self) -> &'static str {
        self.state.word()
    }

    fn name(&self) -> Option<&str> {
        Some(&self.host)
    }

    fn field(&self, name: &str) -> Option<String> {
        Some(match name {
            "id" => self.node.to_string(),
            "state" => self.state.word().to_owned(),
            "role" => if self.is_head { "head" } else { "member" }.to_owned(),
            "host" => self.host.clone(),
            "address" => self.address.clone(),
            "pid" => self.pid.to_string(),
            "version" => self.version.clone(),
            _ => return None,
        })
    }
}

/// How rows on a node tell their state, their name and their fields.
macro_rules! known {
    ($row:ty, |$this:ident| $state:expr, $name:expr, { $($field:literal = $value:expr),* $(,)? }) => {
        impl Known for OnNode<$row> {
            const FIELDS: &'static [&'static str] = &["node", "state", $($field),*];

            fn node(&self) -> NodeId {
                self.node
            }

            fn state(&self) -> &'static str {
                let $this = &self.row;
                let _ = $this;
                $state
            }

            fn name(&self) -> Option<&str> {
                let $this = &self.row;
                let _ = $this;
                $name
            }

            fn field(&self, name: &str) -> Option<String> {
                let $this = &self.row;
                match name {
                    "node" => Some(self.node.to_string()),
                    "state" => Some(self.state().to_owned()),
                    $($field => $value,)*
                    _ => None,
                }
            }
        }
    };
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

known!(TaskRow, |row| row.state.word(), Some(&row.name), {
    "id" = text(row.task),
    "name" = text(&row.name),
    "kind" = text(row.kind.word()),
    "attempt" = text(row.attempt),
    "pid" = row.pid.and_then(text),
    "actor" = row.actor.and_then(text),
});
known!(ActorRow, |row| row.state.word(), row.name.as_deref(), {
    "id" = text(row.actor),
    "type" = text(&row.type_name),
    "name" = row.name.clone(),
    "pid" = text(row.pid),
    "restarts" = text(row.restarts),
    "detached" = text(row.detached),
});
known!(ObjectRow, |row| row.place().word(), None, {
    "id" = text(row.object),
    "bytes" = text(row.bytes),
    "pinned" = text(row.pinned),
});
known!(JobRow, |row| row.state.word(), Some(&row.command), {
    "id" = text(format!("{:016x}", row.job)),
    "command" = text(&row.command),
    "program" = text(row.program),
    "pid" = text(row.pid),
});
known!(ProgramRow, |row| "served", None, {
    "id" = text(row.program),
    "language" = text(row.language.word()),
    "version" = row.version.clone(),
    "architecture" = text(&row.architecture),
});
known!(GroupRow, |row| row.state.word(), row.name.as_deref(), {
    "id" = text(row.group),
    "name" = row.name.clone(),
    "strategy" = text(row.strategy.word()),
});
known!(WorkerRow, |row| row.state.word(), None, {
    "process" = text(row.process.0),
    "pid" = text(row.pid),
    "role" = text(row.role.word()),
    "actor" = row.role.actor().and_then(text),
});
