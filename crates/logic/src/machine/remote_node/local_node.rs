//! What the proxy for another node does as a process of its own node.
//!
//! A port, and not effects: most of these are questions whose answer the next line needs, such as the entry of an
//! imported object, and a forwarded task must not cost an allocation per order. The machine is deterministic if its
//! port is. Production implements the port over shared memory, the virtual cluster over a virtual node.

use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::hot::{CallHeader, Message, MessageKind, Stored, TaskHeader, ValueForm};
use aktis_protocol::peer::{Inside, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{
    ActorId, EntryRef, Failure, NodeId, ObjectId, ProcessSlot, ProgramId, ProgramSpec, Shape, ShapeId,
    TaskId, TaskKey,
};
use std::sync::Arc;

/// Something that the local node, or one of its processes, wants of the proxy or tells it.
#[derive(Debug)]
pub enum LocalEvent {
    /// A local process sends something to an actor that lives on the other node.
    Call {
        /// The caller.
        from: ProcessSlot,
        /// What for.
        kind: MessageKind,
        /// The call, in the caller's table.
        key: TaskKey,
        /// What is called.
        header: CallHeader,
        /// The encoded arguments.
        arguments: Vec<u8>,
    },
    /// A local process says something about a task or call that was forwarded.
    TaskMessage {
        /// The submitter.
        from: ProcessSlot,
        /// What.
        kind: MessageKind,
        /// The task, in the submitter's table.
        key: TaskKey,
        /// A number that belongs to it.
        index: u32,
    },
    /// An answer for a task or call that the other node has sent.
    Answer {
        /// The task.
        ticket: Ticket,
        /// The worker that ran it.
        from: ProcessSlot,
        /// What the answer is.
        kind: MessageKind,
        /// Which return value or item.
        index: u32,
        /// The value.
        answer: LocalAnswer,
    },
    /// A task or call that the other node has sent ended without an answer.
    Failed {
        /// The task.
        ticket: Ticket,
        /// Why.
        failure: Failure,
    },
    /// Something that the node wants, or says.
    Order(FromNode),
    /// An actor that is known here has moved, is pending, or died.
    ActorChanged {
        /// The actor.
        actor: ActorId,
        /// Where it is.
        place: ActorPlace,
    },
    /// An object that the other node asked for has an outcome.
    Ready {
        /// The object.
        object: ObjectId,
    },
    /// A process of this node died.
    ProcessDied(ProcessSlot),
}

/// A value as a worker gives it.
#[derive(Debug)]
pub enum LocalAnswer {
    /// The encoded value, and the object if the node counts this process as its holder.
    Inline(Vec<u8>, Option<ObjectId>),
    /// In the object store; this process is counted as its holder. Whether references are inside.
    Stored(Stored, bool),
    /// There is none.
    Failed(Failure),
}

/// A task that was claimed in order to be forwarded.
#[derive(Debug)]
pub struct Claimed {
    /// The process that submitted it.
    pub submitter: ProcessSlot,
    /// What it is.
    pub header: TaskHeader,
    /// Its encoded arguments.
    pub arguments: Vec<u8>,
}

/// Why a task of the other node was not submitted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// All queues of this node are in use.
    NoQueue,
    /// Anything else.
    Failed(String),
}

/// The local processes, and the node, as receivers of messages.
pub trait LocalProcesses {
    /// Whether the process is alive.
    fn is_alive(&self, process: ProcessSlot) -> bool;

    /// Sends a message to a process; false if there is no room.
    fn push(&self, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool;

    /// Tells the node something.
    fn tell(&self, message: ToNode);
}

/// The local node, as the proxy uses it. See the module.
pub trait LocalNode: LocalProcesses {
    /// A reference to an object that this process holds. The last clone that is dropped releases the object.
    type Object: Clone;
    /// A handle of an actor, likewise.
    type Actor: Clone;
    /// Arguments of a task or call, with references to all that they refer to.
    type Arguments;
    /// The executable of a program, to be read or written in parts.
    type Executable;

    /// The process that the proxy is to its node.
    fn process(&self) -> ProcessSlot;

    /// The local node.
    fn node(&self) -> NodeId;

    /// Claims a task of this shape that a process of this node has submitted, and says in a cell, if there is one, that
    /// this process has it.
    fn claim(&self, shape: ShapeId, cell: Option<usize>) -> Option<Claimed>;

    /// Says that this process does not have the task of a cell any more.
    fn clear_cell(&self, cell: usize);

    /// The encoded arguments of a task or call as another node understands them.
    fn arguments_in(&self, bytes: &[u8]) -> Result<Vec<PeerArgument>, String>;

    /// The references inside an encoded value.
    fn references_in(&self, bytes: &[u8]) -> Result<Inside, String>;

    /// Submits a task that the other node has sent.
    fn submit(&self, ticket: Ticket, call: &PeerCall, shape: &Arc<Shape>) -> Result<TaskKey, SubmitError>;

    /// Calls an actor for the other node.
    fn call(&self, ticket: Ticket, actor: &Self::Actor, group: u16, call: &PeerCall) -> TaskKey;

    /// Ends a task or call that was submitted here. Gives a message that has to be pushed, if there was no room for it.
    fn cancel(&self, key: TaskKey, force: bool, recursive: bool) -> Option<(ProcessSlot, Message)>;

    /// Ends those of these tasks that have this shape and that no worker has begun; gives which.
    fn withdraw(&self, shape: ShapeId, keys: &[TaskKey]) -> Vec<TaskKey>;

    /// Kills the worker that runs a task which was submitted here and cancelled, if one still does.
    fn kill_worker_of(&self, task: TaskId, key: TaskKey);

    /// Arguments as they came from the other node, which has exported all that they refer to.
    fn arguments(&self, items: &[PeerArgument]) -> Self::Arguments;

    /// Asks for the values of all objects among these arguments. Each gives a [`LocalEvent::Ready`] when it is known.
    fn ask_for(&self, arguments: &Self::Arguments);

    /// Whether the values of all objects among these arguments are known.
    fn are_known(&self, arguments: &Self::Arguments) -> bool;

    /// Holds an object that this node knows.
    fn hold(&self, object: ObjectId) -> Self::Object;

    /// A reference to the object, if this process has one already.
    fn held(&self, object: ObjectId) -> Option<Self::Object>;

    /// A reference to the object, if this node knows it.
    fn look_up(&self, object: ObjectId) -> Option<Self::Object>;

    /// The object is in the other node's store: gives its entry in the index here. `holder` holds it from now on.
    /// `exported` says whether the other node has exported it by this, or had before.
    fn import(
        &self,
        object: ObjectId,
        bytes: u64,
        holder: ProcessSlot,
        exported: bool,
    ) -> Result<EntryRef, String>;

    /// The result of a task, which a worker has given to this process to hold.
    fn take_result(&self, object: ObjectId, answer: &LocalAnswer) -> Self::Object;

    /// The value of an object, if it has one; else there will be a [`LocalEvent::Ready`].
    fn value_of(&self, object: &Self::Object) -> Option<SharedValue>;

    /// A reference by which the value of an object is waited for that was lost; nothing if it was not.
    fn renew(&self, object: &Self::Object) -> Option<Self::Object>;

    /// The proxy of the node that is to say the value of an object, or has it; none if it is this node.
    fn origin_of(&self, object: ObjectId) -> Option<ProcessSlot>;

    /// The references inside the value of an object, as far as the node knows them.
    fn contents_of(&self, object: ObjectId) -> Result<Inside, String>;

    /// How large a stored value is, and whether references are inside.
    fn size_of(&self, object: &Self::Object) -> Result<(u64, bool), String>;

    /// Constructs an actor for the other node. The values of all its arguments are known.
    fn host_actor(&self, spec: ActorSpec, arguments: Self::Arguments) -> Result<Self::Actor, String>;

    /// A handle of an actor that this node knows.
    fn hold_actor(&self, actor: ActorId) -> Self::Actor;

    /// Has it said, by [`LocalEvent::ActorChanged`], that an actor is alive or dead; each change is said anyway. Nothing is
    /// said while it is pending: a proxy takes every actor for that until it hears otherwise, and a handle may be new.
    fn look_at(&self, actor: &Self::Actor);

    /// An actor that was looked up by its name is known here now.
    fn on_actor_found(&self, actor: ActorId);

    /// Whether the node can run a program.
    fn knows_program(&self, program: ProgramId) -> bool;

    /// What a program is, with its executable if it has one.
    fn find_program(&self, program: ProgramId) -> Result<(ProgramSpec, Option<Self::Executable>), String>;

    /// The next bytes of an executable, at most so many; less if there are no more.
    fn read_part(&self, executable: &mut Self::Executable, bytes_max: usize) -> Vec<u8>;

    /// An executable without bytes.
    fn new_executable(&self) -> Result<Self::Executable, String>;

    /// Adds bytes to an executable.
    fn append(&self, executable: &mut Self::Executable, bytes: &[u8]) -> Result<(), String>;

    /// Has the node serve a program from now on. The outcome is given to the machine by
    /// [`on_program_added`](super::RemoteNode::on_program_added), since an executable takes long to copy.
    fn add_program(&self, program: ProgramId, spec: ProgramSpec, executable: Option<Self::Executable>);
}

/// The message that says how a forwarded task or call came out.
pub fn answer_message(
    kind: MessageKind,
    form: ValueForm,
    contains: bool,
    index: u32,
    key: TaskKey,
) -> Message {
    Message { kind: kind as u8, form: form as u8, contains: u8::from(contains), reserved: 0, index, key }
}
