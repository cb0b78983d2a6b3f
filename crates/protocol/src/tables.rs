//! The tables of the control store: what can change in them, what can be asked, and what is published.
//!
//! Rows of nodes, jobs, programs, actors, groups and keys are bytes here: what is in them is between those who
//! write and those who read. Objects are what the store itself decides about.

use crate::ids::{ActorId, GroupId, NodeId, ObjectId, TaskId};
use crate::slots::SlotIndex;
use serde::{Deserialize, Serialize};

/// A table of rows under keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Table {
    /// The members of the cluster.
    Nodes,
    /// Drivers, and what they are about.
    Jobs,
    /// What is known of programs; their bytes are elsewhere.
    Programs,
    /// Actors that the cluster knows, and their names.
    Actors,
    /// Placement groups.
    Groups,
    /// Small values of users under names.
    Keys,
}

impl Table {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Nodes, Self::Jobs, Self::Programs, Self::Actors, Self::Groups, Self::Keys];
}

/// The key of a row: any bytes. Those of ids are in the order of the ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(pub Vec<u8>);

impl From<[u64; 2]> for Key {
    fn from(words: [u64; 2]) -> Self {
        Self(words.iter().flat_map(|word| word.to_be_bytes()).collect())
    }
}

impl From<NodeId> for Key {
    fn from(node: NodeId) -> Self {
        node.to_words().into()
    }
}

impl From<ActorId> for Key {
    fn from(actor: ActorId) -> Self {
        actor.to_words().into()
    }
}

impl From<GroupId> for Key {
    fn from(group: GroupId) -> Self {
        group.to_words().into()
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// Who writes: one life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sender {
    /// The node.
    pub node: NodeId,
    /// Which of its lives: it has a higher one each time it joins.
    pub epoch: u64,
}

/// Changes of one sender that are made together.
///
/// In each shard they are made all or not at all. A batch that was not answered is sent again as it was; a
/// repeated one is answered again and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Who.
    pub sender: Sender,
    /// Higher than that of the batch before, of the same sender.
    pub sequence: u64,
    /// What.
    pub changes: Vec<Change>,
}

/// One change. Those of objects and tasks are about the sender's own node: nobody speaks for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A row has this value.
    RowPut {
        /// In which table.
        table: Table,
        /// Under which key.
        key: Key,
        /// The value.
        value: Vec<u8>,
        /// If not, the change is refused when there is a row already.
        overwrite: bool,
    },
    /// There is no such row any more.
    RowDeleted {
        /// In which table.
        table: Table,
        /// Under which key.
        key: Key,
    },
    /// The sender's node has a copy of the object. If nobody holds the object when the batch is done, that node is
    /// told to free it.
    CopyMade {
        /// The object.
        object: ObjectId,
        /// Its size.
        bytes: u64,
    },
    /// The sender's node has no copy any more.
    CopyDropped {
        /// The object.
        object: ObjectId,
    },
    /// Somebody at the sender's node holds a reference. Who gave it has to hold one until this is answered.
    Held {
        /// The object.
        object: ObjectId,
    },
    /// Nobody at the sender's node holds a reference any more.
    Released {
        /// The object.
        object: ObjectId,
    },
    /// How the objects of a task are made. It stays until the sender forgets it, or its node has left, and then until none
    /// of those objects is known. The last sender of it counts.
    TaskRecorded {
        /// The task.
        task: TaskId,
        /// How many objects it makes.
        returns: u32,
        /// What those need who run it again.
        record: Vec<u8>,
    },
    /// The sender's node does not need the record any more. That of another sender stays.
    TaskForgotten {
        /// The task.
        task: TaskId,
    },
    /// Something worth telling has happened.
    EventNoted(Event),
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EventKind {
    /// A control process has started.
    Started,
    /// A node has become a member.
    Joined,
    /// A membership is over.
    Left,
    /// A machine has got an id by the certificate that it had.
    Returned,
    /// Somebody was not let in.
    Refused,
    /// A driver has attached to a node.
    Attached,
    /// A driver has left its node.
    Detached,
    /// A join token was made.
    TokenMade,
    /// A machine has got a certificate for a join token.
    TokenUsed,
    /// A join token was revoked.
    TokenRevoked,
    /// A node was put out, and may join again with a token.
    Expelled,
    /// A node was put out for good.
    Revoked,
    /// The cluster has other keys.
    Rotated,
}

impl EventKind {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Joined => "joined",
            Self::Left => "left",
            Self::Returned => "returned",
            Self::Refused => "refused",
            Self::Attached => "attached",
            Self::Detached => "detached",
            Self::TokenMade => "token made",
            Self::TokenUsed => "token used",
            Self::TokenRevoked => "token revoked",
            Self::Expelled => "expelled",
            Self::Revoked => "revoked",
            Self::Rotated => "rotated",
        }
    }

    /// Whether a node may tell of it: it is about what happens at that node.
    pub const fn is_of_nodes(self) -> bool {
        matches!(self, Self::Attached | Self::Detached | Self::Refused)
    }
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in microseconds since 1970 by the clock of who says it.
    pub at_microseconds: u64,
    /// What it is about: an id, or a name.
    pub subject: Key,
    /// What kind of thing has happened.
    pub kind: EventKind,
    /// What happened.
    pub text: String,
}

impl Change {
    /// Which slot it belongs to.
    #[inline]
    pub fn slot(&self) -> SlotIndex {
        match self {
            Self::RowPut { table, key, .. } | Self::RowDeleted { table, key } => {
                SlotIndex::of_row(*table, &key.0)
            }
            Self::CopyMade { object, .. }
            | Self::CopyDropped { object }
            | Self::Held { object }
            | Self::Released { object } => SlotIndex::of_object(*object),
            Self::TaskRecorded { task, .. } | Self::TaskForgotten { task } => SlotIndex::of_task(*task),
            Self::EventNoted(event) => SlotIndex::of_key(&event.subject.0),
        }
    }

    /// About how many bytes it takes in a message.
    #[inline]
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 32;
        FIXED
            + match self {
                Self::RowPut { key, value, .. } => key.0.len() + value.len(),
                Self::RowDeleted { key, .. } => key.0.len(),
                Self::TaskRecorded { record, .. } => record.len(),
                Self::EventNoted(event) => event.subject.0.len() + event.text.len(),
                _ => 0,
            }
    }
}

/// A change that was not made, though the rest of its batch was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its place in the batch.
    pub change: u32,
    /// Why.
    pub why: RefusalKind,
}

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RefusalKind {
    /// There is a row, and it was not to be overwritten.
    #[error("there is such a row already")]
    Exists,
    /// A key, a value, a record or an event is larger than its limit.
    #[error("the key or value is too large")]
    TooLarge,
    /// The table is full.
    #[error("the table is full")]
    Full,
    /// The slot is with another shard.
    #[error("the slot belongs to another shard")]
    Elsewhere,
}

/// A batch of which nothing was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// The node has left since, or has begun another life.
    #[error("the sender's epoch is over: the node is at {epoch} now, or has left it")]
    Stale {
        /// The last life of the node that the store knows.
        epoch: u64,
    },
    /// More changes or bytes than a batch may have.
    #[error("the batch is too large")]
    TooLarge,
    /// More nodes write than the store can tell apart.
    #[error("too many nodes")]
    TooManyNodes,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// One row. Answer: [`Answer::Row`].
    Row {
        /// In which table.
        table: Table,
        /// Under which key.
        key: Key,
    },
    /// Rows in the order of their keys. Answer: [`Answer::Rows`].
    Rows {
        /// In which table.
        table: Table,
        /// What their keys begin with.
        prefix: Key,
        /// Only those with keys after this one.
        after: Option<Key>,
        /// At most so many.
        limit: u32,
        /// Whether their values are wanted; else they are empty.
        values: bool,
    },
    /// One object. Answer: [`Answer::Object`].
    Object(ObjectId),
    /// Some objects. Answer: [`Answer::Objects`].
    Objects {
        /// Only those that this node has a copy of, or holds.
        node: Option<NodeId>,
        /// At most so many.
        limit: u32,
    },
    /// How a task can be run again. Answer: [`Answer::Task`].
    Task(TaskId),
    /// The latest events, the oldest of them first. Answer: [`Answer::Events`].
    Events {
        /// At most so many.
        limit: u32,
    },
    /// How much there is. Answer: [`Answer::Counts`].
    Counts,
}

impl Query {
    /// The slot that has the answer; if none, all shards have a part of it.
    pub fn slot(&self) -> Option<SlotIndex> {
        match self {
            Self::Row { table, key } => Some(SlotIndex::of_row(*table, &key.0)),
            Self::Object(object) => Some(SlotIndex::of_object(*object)),
            Self::Task(task) => Some(SlotIndex::of_task(*task)),
            Self::Rows { .. } | Self::Objects { .. } | Self::Events { .. } | Self::Counts => None,
        }
    }
}

/// An answer to a batch or a question. It says nothing that is not on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The batch is made, but for these changes.
    Applied {
        /// Those that were not made.
        refused: Vec<Refusal>,
    },
    /// Nothing of the batch is made.
    Rejected(Rejection),
    /// The row's value.
    Row(Option<Vec<u8>>),
    /// Rows, in the order of their keys.
    Rows {
        /// Keys and values.
        rows: Vec<(Key, Vec<u8>)>,
        /// Whether there are more.
        more: bool,
    },
    /// The object, if it is known.
    Object(Option<ObjectRow>),
    /// Objects, in the order of their ids.
    Objects(Vec<(ObjectId, ObjectRow)>),
    /// The task's record.
    Task(Option<Vec<u8>>),
    /// Events, the oldest first.
    Events(Vec<Event>),
    /// How much there is.
    Counts(Counts),
}

/// What the store knows of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// Its size, once there has been a copy. With a size and without copies, it is lost.
    pub bytes: Option<u64>,
    /// The nodes that have it.
    pub copies: Vec<NodeId>,
    /// The nodes at which somebody holds a reference.
    pub holders: Vec<NodeId>,
}

/// How much there is in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows, of all tables.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub row_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// Records of tasks.
    pub tasks: u64,
    /// Bytes of those.
    pub task_bytes: u64,
    /// Events.
    pub events: u64,
}

/// What somebody wants to be told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    /// One row. It begins with how the row is, if there is one.
    Row {
        /// In which table.
        table: Table,
        /// Under which key.
        key: Key,
    },
    /// Rows whose keys begin so; all of a table, if with nothing. It begins with how they are.
    Rows {
        /// In which table.
        table: Table,
        /// What the keys begin with.
        prefix: Key,
    },
    /// One object. It begins with how the object is, if it is known.
    Object(ObjectId),
    /// Events from now on.
    Events,
}

impl Filter {
    /// The slot that publishes it; if none, all shards do.
    pub fn slot(&self) -> Option<SlotIndex> {
        match self {
            Self::Row { table, key } => Some(SlotIndex::of_row(*table, &key.0)),
            Self::Object(object) => Some(SlotIndex::of_object(*object)),
            Self::Rows { .. } | Self::Events => None,
        }
    }
}

/// What is published: how something is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A row.
    Row {
        /// In which table.
        table: Table,
        /// Under which key.
        key: Key,
        /// Its value; none if there is no such row any more.
        value: Option<Vec<u8>>,
    },
    /// An object.
    Object {
        /// Which.
        object: ObjectId,
        /// How it is; none if nobody has or holds it any more.
        row: Option<ObjectRow>,
    },
    /// An event.
    Event(Event),
}
