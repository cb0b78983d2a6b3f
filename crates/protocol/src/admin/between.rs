//! What daemons ask each other so that one of them can answer for the whole cluster.

use super::rows::NodeRow;
use super::{IdPrefix, KillTarget, ListQuery, Listing, LogLine, LogQuery};
use crate::ids::{NodeId, ObjectId};
use crate::state::DemandRow;
use serde::{Deserialize, Serialize};

/// What one daemon asks another. The answer is about that node alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeQuestion {
    /// How does your node stand? Answer: [`NodeAnswer::Status`].
    Status,
    /// What is there? Answer: [`NodeAnswer::Listing`].
    List(ListQuery),
    /// What do you know about this? Answer: [`NodeAnswer::Accounts`].
    Explain(IdPrefix),
    /// What have your processes printed? Answer: [`NodeAnswer::Logs`].
    Logs {
        /// Which lines.
        query: LogQuery,
        /// Those from here on; without it, those that the query asks for first.
        position: Option<u64>,
    },
    /// End. Answer: [`NodeAnswer::Stopping`].
    Stop,
    /// End this. Answer: [`NodeAnswer::Killed`].
    Kill(KillTarget),
    /// Take nothing new, hand over what there is, and leave. Answer: [`NodeAnswer::Draining`].
    Drain {
        /// Leave after so long in any case.
        patience_milliseconds: Option<u64>,
    },
    /// My node is about to leave: have copies of these objects, which your node holds. Answer: [`NodeAnswer::Taken`].
    TakeObjects {
        /// The objects.
        objects: Vec<ObjectId>,
    },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAnswer {
    /// How the node stands.
    Status(Box<NodeStatus>),
    /// What there is on it.
    Listing(Listing),
    /// What it knows; nothing, mostly.
    Accounts(Vec<Account>),
    /// Lines that its processes have printed.
    Logs(LogPart),
    /// It ends.
    Stopping,
    /// Whether there was something to end.
    Killed(bool),
    /// It cannot say.
    Refused(String),
    /// It is drained from now on.
    Draining,
    /// Of the objects that were asked for, those that the node has, or that nobody wants there any more.
    Taken {
        /// The objects.
        objects: Vec<ObjectId>,
    },
}

/// How one node stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub row: NodeRow,
    /// Programs that are attached to it.
    pub drivers: u32,
    /// What tasks and actors wait for there.
    pub demand: Vec<DemandRow>,
}

/// What one node knows about something that people have asked for by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// What it is.
    pub kind: AccountKind,
    /// Its whole id.
    pub id: String,
    /// The node that knows it.
    pub node: NodeId,
    /// How it stands, in sentences.
    pub text: String,
}

/// What an account is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AccountKind {
    /// A task, or a call of an actor.
    Task,
    /// An actor.
    Actor,
    /// An object.
    Object,
    /// A node.
    Node,
    /// A placement group.
    Group,
    /// A program that uses the cluster, or has.
    Job,
}

impl AccountKind {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Actor => "actor",
            Self::Object => "object",
            Self::Node => "node",
            Self::Group => "placement group",
            Self::Job => "job",
        }
    }
}

/// Some lines of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Lines before these that are not kept any more.
    pub missed: u64,
    /// Where the next ones begin.
    pub next: u64,
    /// Whether there are no lines beyond these yet.
    pub is_last: bool,
}
