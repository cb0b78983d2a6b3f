//! Messages between a process and its node, off the hot path: small enums, encoded with postcard.
//!
//! All processes of a node send [`ToNode`] through one datagram socket, so that the node sees them in
//! an order that respects cause and effect: what was sent before a completion is read before whatever
//! that completion triggers. The node answers on one socket per process ([`FromNode`]).

mod lease;
mod value;
pub use lease::Lease;
pub use value::{ObjectCancel, SharedValue};

use crate::actors::{ActorPlace, ActorSpec, Away, Ending, FoundActor};
use crate::admin::{IdPrefix, LogLine};
use crate::failure::{DeathCause, Failure};
use crate::groups::{GroupSpec, GroupState};
use crate::ids::{
    ActorId, EntryRef, GroupId, LaneId, LeaseId, ObjectId, ProcessSlot, ProgramId, ShapeId, ShardIndex,
    TaskId, TaskKey,
};
use crate::keys::{KeyAnswer, KeyQuestion};
use crate::lineage::RecordedTask;
use crate::questions::{ProcessAnswer, ProcessQuestion};
use crate::resources::Shape;
use crate::state::{StateKind, StateRows};
use serde::{Deserialize, Serialize};

/// Matches an answer to its question, within one process.
pub type RequestId = u32;

/// From a process to its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// A worker process is ready to take work.
    Started,
    /// The sender, which was not started by the node, leaves it: what it held and owed goes. Its place stays taken until
    /// it has let go of all shared memory, or has ended. Answer: [`FromNode::Shutdown`].
    Detached,
    /// The sender wants a queue for tasks of this shape. Answer: [`FromNode::LaneOpened`].
    LaneWanted {
        /// Matches the answer.
        request: RequestId,
        /// The shape.
        shape: Shape,
        /// Which of the sender's submitters wants it: each has queues of its own.
        shard: ShardIndex,
    },
    /// The sender wants to send messages to `to`. Answer: [`FromNode::ChannelOpened`].
    ChannelWanted {
        /// Matches the answer.
        request: RequestId,
        /// The receiving process.
        to: ProcessSlot,
    },
    /// The sender will not use a lane again: it has failed all tasks of one that [`FromNode::LaneRemoved`] named, or has
    /// nothing to do in this one. It says so once of each lane.
    LaneForgotten {
        /// The lane.
        lane: LaneId,
    },
    /// A lane that the node took for idle has tasks again.
    LaneActive {
        /// The lane.
        lane: LaneId,
    },
    /// The sender gives a lease back, idle or because the node asked.
    LeaseReturned {
        /// The lease.
        lease: LeaseId,
    },
    /// A lease's holder waits inside `get` and needs no CPU meanwhile (isolated workers; a shared worker
    /// hands its leases on by itself and returns them when asked).
    LeaseBlocked {
        /// The lease.
        lease: LeaseId,
        /// Whether it blocks (true) or goes on (false).
        blocked: bool,
    },

    /// The sender wants `bytes` of the store for `object`. Answer: [`FromNode::ExtentGranted`] or
    /// [`FromNode::ExtentDenied`]; it may take a while when others must be spilled first. If no room can
    /// be made, it is in the spill file.
    ExtentWanted {
        /// Matches the answer.
        request: RequestId,
        /// The object to be written there.
        object: ObjectId,
        /// Its size.
        bytes: u64,
    },
    /// `object` is written and immutable from now on; `holder` holds it.
    Sealed {
        /// The object.
        object: ObjectId,
        /// The process that holds it from now on.
        holder: ProcessSlot,
    },
    /// `object` was not written after all.
    Abandoned {
        /// The object.
        object: ObjectId,
    },
    /// The object is not in memory, or not where it was; bring it back. Answer: [`FromNode::Restored`].
    RestoreWanted {
        /// Matches the answer.
        request: RequestId,
        /// The object.
        object: ObjectId,
    },

    /// A reference to `object`, held by the sender, has been written into a value: others may ask for it.
    /// `value` is there if it is known already. The sender holds it.
    Escaped {
        /// The object.
        object: ObjectId,
        /// Its value, if known.
        value: Option<SharedValue>,
    },
    /// The value of an escaped object is known now (for a [`SharedValue::Stored`], after `Sealed`).
    Resolved {
        /// The object.
        object: ObjectId,
        /// Its value.
        value: SharedValue,
    },
    /// The sender holds a reference to `object`, found inside a value.
    Held {
        /// The object.
        object: ObjectId,
    },
    /// The sender holds no reference to `object` any more.
    Released {
        /// The object.
        object: ObjectId,
    },
    /// The maker drops its last reference, and can make `object` again until [`FromNode::Freed`] says that it is gone.
    LeftToOthers {
        /// The object.
        object: ObjectId,
    },
    /// The value of `object` is code of the sender's program: the node keeps it while anything of the program runs or
    /// waits here, whether or not a process holds a reference.
    CodeKept {
        /// The object.
        object: ObjectId,
    },
    /// The value of `container` holds these: they live as long as it does.
    Contains {
        /// The object whose value holds references; the node learns of it by this if it did not know it.
        container: ObjectId,
        /// The process that holds `container`.
        holder: ProcessSlot,
        /// The objects inside.
        objects: Vec<ObjectId>,
        /// The actors inside.
        actors: Vec<ActorId>,
    },
    /// Tasks of the sender whose results others may ask for from now on: how they can be run again without the sender.
    Recorded {
        /// The tasks.
        tasks: Vec<RecordedTask>,
    },
    /// Tell the sender when `object` has a value. Answer: [`FromNode::ObjectResolved`].
    Subscribed {
        /// The object.
        object: ObjectId,
    },
    /// The sender, a borrower, cancels the task that makes an object: its owner is told by [`FromNode::CancelWanted`].
    CancelWanted(ObjectCancel),

    /// The sender, a proxy, can say the value of `object` when [`FromNode::ValueWanted`] asks for it.
    /// [`FromNode::Freed`] tells it when nobody here can ask any more.
    Promised {
        /// The object.
        object: ObjectId,
        /// The process that holds it from now on.
        holder: ProcessSlot,
        /// Whether it answers [`FromNode::Sought`]: then that node has the value itself, or makes it.
        found: bool,
    },
    /// `object` is in the store of the node that the sender stands for. Answer: [`FromNode::ImportedAs`].
    Imported {
        /// Matches the answer.
        request: RequestId,
        /// The object.
        object: ObjectId,
        /// Its size.
        bytes: u64,
        /// The process that holds it from now on.
        holder: ProcessSlot,
        /// Whether it was named by this; else it had been before.
        named: bool,
    },
    /// The node that the sender stands for is gone: the sender lets go of all that it holds for it, and then ends.
    NodeGone,
    /// The node that the sender stands for does not know an object that [`FromNode::Sought`] asked for.
    NotKnown {
        /// The object.
        object: ObjectId,
    },
    /// Is there such an object here? If so, the sender holds it from now on. Answer: [`FromNode::LookedUp`].
    LookupWanted {
        /// Matches the answer.
        request: RequestId,
        /// The object.
        object: ObjectId,
    },
    /// Which references are inside the value of `object`? Answer: [`FromNode::Contents`].
    ContentsWanted {
        /// Matches the answer.
        request: RequestId,
        /// The object.
        object: ObjectId,
    },
    /// Which node is to say the value of `object`, or has it? Answer: [`FromNode::Origin`].
    OriginWanted {
        /// Matches the answer.
        request: RequestId,
        /// The object.
        object: ObjectId,
    },

    /// Start an actor. The sender holds a handle. Answer: [`FromNode::ActorChanged`], now and later.
    ActorWanted {
        /// What to start.
        spec: Box<ActorSpec>,
    },
    /// The arguments of the constructor are ready, of an actor that the sender created to wait for them.
    ActorArgumentsReady(ActorId),
    /// The sender has constructed the actor that [`FromNode::HostActor`] asked for.
    ActorStarted {
        /// The actor.
        actor: ActorId,
        /// Which life.
        incarnation: u32,
    },
    /// The actor in the sender has ended by itself: it exited, or its constructor failed.
    ActorEnded {
        /// The actor.
        actor: ActorId,
        /// Why.
        failure: Failure,
    },
    /// The process of the actor died, on the node that the sender stands for, or that node hands it back.
    ActorLost {
        /// The actor.
        actor: ActorId,
        /// Which life.
        incarnation: u32,
        /// How; nothing if that life has not begun.
        cause: Option<DeathCause>,
    },
    /// The process of a task died, which the sender has forwarded to the node that it stands for, or that hands it back.
    TaskLost {
        /// Who submitted it.
        submitter: ProcessSlot,
        /// The task, in the submitter's table.
        key: TaskKey,
        /// How often it was sent before.
        attempt: u32,
        /// How the process died; nothing if the task has not begun.
        cause: Option<DeathCause>,
    },
    /// An actor owned by the node that the sender stands for takes no calls for now: those that it had are lost.
    ActorAway {
        /// The actor.
        actor: ActorId,
        /// Why, and what that means for calls.
        away: Away,
    },
    /// It takes calls again.
    ActorBack {
        /// The actor.
        actor: ActorId,
    },
    /// A handle of an actor that only its creator knew has been written into a value; it lives in `host`.
    ActorEscaped {
        /// The actor.
        actor: ActorId,
        /// The process it lives in.
        host: ProcessSlot,
    },
    /// The node that the sender stands for owns an actor that was owned by another one.
    ActorInherited {
        /// The actor.
        actor: ActorId,
    },
    /// The creator of a light actor in the sender has died. Answer: [`FromNode::EndActor`], unless others may call it.
    ActorOrphaned {
        /// The actor.
        actor: ActorId,
    },
    /// The sender has found a handle of the actor. Answer: [`FromNode::ActorChanged`], now and later.
    ActorHeld {
        /// The actor.
        actor: ActorId,
    },
    /// The sender holds no handle of the actor any more.
    ActorReleased {
        /// The actor.
        actor: ActorId,
    },
    /// End the actor now. Answer: [`FromNode::KillTaken`], if it is asked for.
    ActorKilled {
        /// The actor.
        actor: ActorId,
        /// Whether it may be started again.
        restart: bool,
        /// Matches the answer.
        request: Option<RequestId>,
    },
    /// Which actor has this name? Answer: [`FromNode::ActorFound`].
    NameWanted {
        /// Matches the answer.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// Which names are there? Answer: [`FromNode::Names`].
    NamesWanted {
        /// Matches the answer.
        request: RequestId,
        /// The sender's. To know a [private](crate::actors::is_private) one is the right to its names.
        namespace: String,
    },

    /// Set resources aside. Answer: [`FromNode::GroupChanged`], now and later.
    GroupWanted {
        /// What to make.
        spec: GroupSpec,
    },
    /// Tell the sender how far a group is. Answer: [`FromNode::GroupChanged`], now and later.
    GroupWatched {
        /// The group.
        group: GroupId,
    },
    /// Give the resources of a group back, and end all that uses them.
    GroupRemoved {
        /// The group.
        group: GroupId,
    },

    /// Something about the small values that all processes share. Answer: [`FromNode::KeyAnswered`].
    KeyAsked {
        /// Matches the answer.
        request: RequestId,
        /// The question.
        question: KeyQuestion,
    },

    /// Kill the process that runs `task` in isolation (a forced cancel).
    WorkerKilled {
        /// The process.
        process: ProcessSlot,
        /// The task that is to end.
        task: TaskId,
    },
    /// The sender has dealt with the death of `process`: its place may be used again.
    DeathHandled {
        /// The dead process.
        process: ProcessSlot,
    },
    /// How do things stand? Answer: [`FromNode::StateTold`].
    StateWanted {
        /// Matches the answer.
        request: RequestId,
        /// What is asked about.
        what: StateKind,
    },
    /// The answer to [`FromNode::Asked`].
    Answered {
        /// Matches the question.
        question: u64,
        /// What the sender knows.
        answer: ProcessAnswer,
    },
    /// The sender, a driver, wants to be told what workers of its program print: [`FromNode::Printed`].
    OutputWanted,
    /// What do other nodes know about this? Answer: [`FromNode::ShapeExplained`].
    ExplainWanted {
        /// Matches the answer.
        request: RequestId,
        /// What it is about.
        id: IdPrefix,
    },
    /// What does the node know about waiting tasks of this shape? Answer: [`FromNode::ShapeExplained`].
    ShapeQuestion {
        /// Matches the answer.
        request: RequestId,
        /// The lane they wait in.
        lane: LaneId,
    },
}

/// From the node to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromNode {
    /// The queue is there.
    LaneOpened {
        /// Matches the question.
        request: RequestId,
        /// The lane, or why there is none.
        lane: Result<LaneId, Failure>,
    },
    /// The lane will not be served any more: its tasks fail. Answer: [`ToNode::LaneForgotten`].
    LaneRemoved {
        /// The lane.
        lane: LaneId,
        /// Why.
        failure: Failure,
    },
    /// Nothing of this program runs: give up its lanes that have nothing to do ([`ToNode::LaneForgotten`]).
    LanesUnwanted(ProgramId),
    /// The channel is there, or the receiver is dead.
    ChannelOpened {
        /// Matches the question.
        request: RequestId,
        /// The receiving process.
        to: ProcessSlot,
        /// Whether it is open.
        open: bool,
    },
    /// The receiver may run one more task of this shape at a time, or one task in all.
    LeaseGranted {
        /// The grant.
        lease: Lease,
    },
    /// Give back one lease of this shape as soon as one is idle.
    LeaseRevoked {
        /// The shape.
        shape: ShapeId,
    },
    /// The space is the receiver's to write; the entry in the index says where.
    ExtentGranted {
        /// Matches the question.
        request: RequestId,
        /// Its entry in the shared index.
        entry: EntryRef,
    },
    /// There is no space, and there will not be.
    ExtentDenied {
        /// Matches the question.
        request: RequestId,
        /// Why.
        failure: Failure,
    },
    /// The object is in memory again (try to pin it there), or cannot be.
    Restored {
        /// Matches the question.
        request: RequestId,
        /// Its entry, which may be another than before; or why there is none.
        outcome: Result<EntryRef, Failure>,
    },
    /// The object has a value.
    ObjectResolved {
        /// The object.
        object: ObjectId,
        /// Its value.
        value: SharedValue,
    },
    /// The value of this object, which a task of yours has made, is lost, and somebody wants it: run that task again, and
    /// say with [`ToNode::Resolved`] what comes of it.
    Rebuild {
        /// The object.
        object: ObjectId,
    },
    /// The value of this object, which you wait for, is lost, and so is the process that submitted its task: run the task
    /// as your own, and say with [`ToNode::Resolved`] what comes of it.
    Adopt {
        /// The object.
        object: ObjectId,
        /// How: a [`Lineage`](crate::lineage::Lineage), encoded.
        lineage: Vec<u8>,
    },
    /// A borrower cancels the task that makes an object which you own.
    CancelWanted(ObjectCancel),
    /// Say the value of this object: you have promised to.
    ValueWanted {
        /// The object.
        object: ObjectId,
    },
    /// Nobody here can ask for this object any more, or somebody else says its value. To a process that stands for another
    /// node, or has left the object to others.
    Freed {
        /// The object.
        object: ObjectId,
        /// How often you have named it so far, as far as this is about.
        count: u64,
    },
    /// Somebody here asks for an object that nobody knows: does the node that you stand for?
    Sought {
        /// The object.
        object: ObjectId,
    },
    /// The process of a task died, on another node. What it had answered before has been sent.
    TaskLost {
        /// Who had the task.
        process: ProcessSlot,
        /// The task.
        key: TaskKey,
        /// How often it was sent before.
        attempt: u32,
        /// How the process died; nothing if the task has not begun.
        cause: Option<DeathCause>,
    },
    /// Tasks of this shape wait here for too long: those that the node you stand for has sent, and that nobody has begun,
    /// are to be handed back to it.
    HandBack {
        /// The shape.
        shape: ShapeId,
    },
    /// The process of an actor died, which lived here for the node that you stand for, or which was to and is handed back.
    ActorLost {
        /// The actor.
        actor: ActorId,
        /// How; nothing if that life has not begun.
        cause: Option<DeathCause>,
    },
    /// An actor lived here for the node that you stand for, and is held here still: that has to keep it for this one.
    ActorWanted {
        /// The actor.
        actor: ActorId,
    },
    /// Somebody here wants an actor ended now, which the node that you stand for owns.
    KillActor {
        /// The actor.
        actor: ActorId,
        /// Whether it may be started again.
        restart: bool,
    },
    /// This actor lived here for another node, and is owned by this one now. Yours may know it.
    ActorInherited {
        /// The actor.
        actor: ActorId,
    },
    /// This actor, which the node behind you has named once, is known here without that node: release it once. It may have
    /// been named again since.
    ActorKnown {
        /// The actor.
        actor: ActorId,
    },
    /// No process of this node holds an actor any more that the node behind you has named `count` times: release it as
    /// often. It may have been named again since.
    ActorReleased {
        /// The actor.
        actor: ActorId,
        /// How often the node has heard of it from you.
        count: u64,
    },
    /// The answer to [`ToNode::LookupWanted`].
    LookedUp {
        /// Matches the question.
        request: RequestId,
        /// Whether there is such an object.
        known: bool,
    },
    /// The answer to [`ToNode::Imported`].
    ImportedAs {
        /// Matches the question.
        request: RequestId,
        /// Its entry in the shared index, or why there is none.
        entry: Result<EntryRef, Failure>,
    },
    /// The answer to [`ToNode::ContentsWanted`].
    Contents {
        /// Matches the question.
        request: RequestId,
        /// The objects inside.
        objects: Vec<ObjectId>,
        /// The actors inside.
        actors: Vec<ActorId>,
    },
    /// The answer to [`ToNode::OriginWanted`].
    Origin {
        /// Matches the question.
        request: RequestId,
        /// The process that stands for that node; none if the value is here, or is to be made here.
        peer: Option<ProcessSlot>,
    },
    /// What this number of a shape, which leases name, stands for.
    ShapeTold {
        /// The number.
        shape: ShapeId,
        /// The shape.
        definition: Shape,
    },
    /// Construct this actor and answer [`ToNode::ActorStarted`] or [`ToNode::ActorEnded`].
    HostActor {
        /// What to construct.
        spec: Box<ActorSpec>,
        /// Which life.
        incarnation: u32,
        /// Indices of the GPUs it holds.
        gpus: Vec<u32>,
    },
    /// End this actor.
    EndActor {
        /// The actor.
        actor: ActorId,
        /// What becomes of the calls it has.
        ending: Ending,
    },
    /// The actor has moved, is pending, or died.
    ActorChanged {
        /// The actor.
        actor: ActorId,
        /// Where it is.
        place: ActorPlace,
    },
    /// The answer to [`ToNode::ActorKilled`]: the receiver has been told that the actor takes no calls of its former life.
    KillTaken(RequestId),
    /// The answer to [`ToNode::NameWanted`].
    ActorFound {
        /// Matches the question.
        request: RequestId,
        /// The actor, if there is one.
        found: Option<FoundActor>,
    },
    /// The answer to [`ToNode::NamesWanted`]: the names of all actors that are not dead.
    Names {
        /// Matches the question.
        request: RequestId,
        /// In order, as many as a message holds.
        names: Vec<String>,
        /// How many there are besides.
        left_out: u32,
    },
    /// The group is ready, waits, or is gone.
    GroupChanged {
        /// The group.
        group: GroupId,
        /// How far it is.
        state: GroupState,
    },
    /// The answer to [`ToNode::KeyAsked`].
    KeyAnswered {
        /// Matches the question.
        request: RequestId,
        /// The answer, or why there is none.
        answer: Result<KeyAnswer, Failure>,
    },
    /// A process of this node died. Answer: [`ToNode::DeathHandled`].
    ProcessDied {
        /// Which.
        process: ProcessSlot,
        /// How.
        cause: DeathCause,
    },
    /// The worker process that runs tasks and light actors from now on.
    SharedWorker {
        /// Which.
        process: ProcessSlot,
    },
    /// The answer to [`ToNode::ShapeQuestion`] or [`ToNode::ExplainWanted`]: sentences for people.
    ShapeExplained {
        /// Matches the question.
        request: RequestId,
        /// What the tasks wait for.
        text: String,
    },
    /// The daemon asks all processes something. Answer: [`ToNode::Answered`].
    Asked {
        /// Matches the answer.
        question: u64,
        /// What.
        what: ProcessQuestion,
    },
    /// Workers of the receiver's program, on any node, have printed this.
    Printed {
        /// The lines, oldest first.
        lines: Vec<LogLine>,
        /// Lines that came before these and were not sent: the receiver was too slow.
        missed: u64,
    },
    /// Something of the receiver's waits for more than time: it tells people. Said once for each reason.
    Warned {
        /// What waits, and why.
        text: String,
    },
    /// The answer to [`ToNode::StateWanted`].
    StateTold {
        /// Matches the question.
        request: RequestId,
        /// As many rows as a message holds.
        rows: StateRows,
        /// How many there are besides.
        left_out: u64,
    },
    /// End now: the session closes.
    Shutdown,
}

/// Encodes a control message.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("control messages encode")
}

/// Decodes a control message.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, postcard::Error> {
    postcard::from_bytes(bytes)
}
