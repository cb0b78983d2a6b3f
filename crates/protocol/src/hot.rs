//! Headers on the hot path: fixed layouts in shared memory between processes of one build.

use crate::ids::{ActorId, EntryRef, FunctionId, ObjectId, TaskId, TaskKey};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A task in a lane; its encoded arguments follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskHeader {
    /// The task.
    pub task: TaskId,
    /// What to run.
    pub function: FunctionId,
    /// Where its submitter keeps it.
    pub key: TaskKey,
    /// How often it was started before.
    pub attempt: u32,
    /// How far a streaming task may be ahead of its consumer; 0 if it does not stream.
    pub stream_ahead: u32,
    /// How many values it returns.
    pub returns: u32,
    /// Which of the things that the function does, if it does several: those of another language.
    pub kind: u32,
}

impl TaskHeader {
    /// What its run time is told by: tasks that have this in common are expected to take as long.
    #[inline]
    pub const fn likeness(&self) -> FunctionId {
        FunctionId(self.function.0.wrapping_add((self.kind as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// What a [`Message`] between two processes says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// Return value `index` of task `key`; the receiver submitted it.
    Returned = 1,
    /// Item `index` of streaming task `key`.
    StreamItem = 2,
    /// Streaming task `key` has given all its `index` items.
    StreamEnded = 3,
    /// Create an actor; a [`CallHeader`] and the constructor's arguments follow.
    ActorCreate = 4,
    /// Call an actor's method; a [`CallHeader`] and the arguments follow.
    ActorCall = 5,
    /// The last handle of the actor is gone: end it after the calls before this. A [`CallHeader`] follows.
    ActorRelease = 6,
    /// End the actor now. A [`CallHeader`] follows.
    ActorKill = 7,
    /// The consumer of the stream with key `key` has taken `index` items.
    StreamCredit = 8,
    /// The consumer of the stream with key `key` is gone.
    StreamClosed = 9,
    /// Cancel task `key`, which the receiver is running or holds in a mailbox. `index` says how: [`CANCEL_RECURSIVE`],
    /// [`CANCEL_FORCE`].
    Cancel = 10,
}

/// What the task has submitted is cancelled, too.
pub const CANCEL_RECURSIVE: u32 = 1;
/// Its process is to be killed. Only one that stands for another node has to see to that; others are killed by theirs.
pub const CANCEL_FORCE: u32 = 2;

impl MessageKind {
    /// The kind with this number.
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Returned,
            2 => Self::StreamItem,
            3 => Self::StreamEnded,
            4 => Self::ActorCreate,
            5 => Self::ActorCall,
            6 => Self::ActorRelease,
            7 => Self::ActorKill,
            8 => Self::StreamCredit,
            9 => Self::StreamClosed,
            10 => Self::Cancel,
            _ => return None,
        })
    }
}

/// How the value in a message is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueForm {
    /// The encoded value itself.
    Inline = 0,
    /// A [`Stored`]: the value is in the object store.
    Stored = 1,
    /// An encoded [`Failure`](crate::Failure).
    Failed = 2,
}

impl ValueForm {
    /// The form with this number.
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Inline,
            1 => Self::Stored,
            2 => Self::Failed,
            _ => return None,
        })
    }
}

/// A message in a channel between two processes; its payload follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Message {
    /// A [`MessageKind`].
    pub kind: u8,
    /// A [`ValueForm`], where the payload is a value.
    pub form: u8,
    /// Whether the value holds references to other objects or actors: 0 or 1.
    pub contains: u8,
    /// Zero.
    pub reserved: u8,
    /// A position: of a return value, of a stream's item.
    pub index: u32,
    /// The task, in its submitter's table.
    pub key: TaskKey,
}

/// The head of the payload of messages to actors.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CallHeader {
    /// The actor.
    pub actor: ActorId,
    /// The call.
    pub task: TaskId,
    /// The constructor or method.
    pub function: FunctionId,
    /// How often it was started before.
    pub attempt: u32,
    /// How far a streaming call may be ahead of its consumer; 0 if it does not stream.
    pub stream_ahead: u32,
    /// How many calls may run at once in the actor (only in [`MessageKind::ActorCreate`]).
    pub concurrency: u32,
    /// The group of calls that it is counted in; 0 is that of all others.
    pub group: u32,
    /// How many values it returns.
    pub returns: u32,
    /// Zero.
    pub reserved: u32,
}

/// A value in the object store of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stored {
    /// The object.
    pub object: ObjectId,
    /// Its entry in the shared index.
    pub entry: EntryRef,
}

impl Stored {
    /// The payload of a message that says where a value is.
    pub fn payload(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    /// Reads such a payload.
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        Self::read_from_bytes(payload).ok()
    }
}

/// The payload of a message with an encoded value that has references inside: the object comes first.
pub fn payload_with_references(object: ObjectId, bytes: &[u8]) -> Vec<u8> {
    [object.as_bytes(), bytes].concat()
}

/// Reads such a payload: the object, and the encoded value.
pub fn split_references(payload: &[u8]) -> Option<(ObjectId, &[u8])> {
    ObjectId::read_from_prefix(payload).ok()
}
