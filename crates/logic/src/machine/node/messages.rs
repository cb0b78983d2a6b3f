//! What the node is told, what it orders, and what it starts with.

use super::{EntryState, SpillRefusal};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::control::{FromNode, RequestId, ToNode};
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::placement::{FromPlacer, ToPlacer};
use aktis_protocol::tables::Change;
use aktis_protocol::{
    ActorId, DeathCause, EntryRef, Failure, FunctionId, GroupPlace, Labels, LaneId, Near, NodeId, ObjectId,
    ProcessSlot, ProgramId, Resources, Shape, ShapeId, Strategy,
};

/// What the node is told.
#[derive(Clone, Debug)]
pub enum NodeInput {
    /// A process sent a message.
    Received {
        /// Who.
        from: ProcessSlot,
        /// What.
        message: ToNode,
    },
    /// There is a program that workers may run. Nothing if it is known, or there is no room for another.
    ProgramAdded(ProgramConfig),
    /// Somebody who was not started by this node wants a place in it. Answer: [`NodeEffect::Admit`] or
    /// [`NodeEffect::TurnAway`], before all other effects.
    Attached {
        /// Who.
        guest: Guest,
        /// Its process id.
        pid: u32,
    },
    /// The process ordered by `StartWorker` runs (it has not said `Started` yet).
    WorkerSpawned {
        /// Which.
        process: ProcessSlot,
        /// Its process id.
        pid: u32,
    },
    /// A process (ordered by `StartWorker`, or admitted) ended, or could not be started (pid 0, reason in `stderr_tail`).
    ProcessDied {
        /// Which.
        process: ProcessSlot,
        /// How.
        cause: DeathCause,
    },
    /// A guest has left, and has not let go of shared memory: `ProcessDied` comes when it has.
    ProcessLeft {
        /// Which.
        process: ProcessSlot,
        /// Why.
        cause: DeathCause,
    },
    /// So many tasks are queued in a lane now; reported when a lane becomes active, and while it is, at each tick.
    LaneDemand {
        /// The lane.
        lane: LaneId,
        /// How many.
        queued: u32,
    },
    /// `Spill` is done: the bytes are on disk and nobody had the object pinned (its memory may be reused),
    /// or it was refused.
    Spilled {
        /// The object's entry.
        entry: EntryRef,
        /// Whether it worked.
        outcome: Result<(), SpillRefusal>,
    },
    /// `Reserve` is done.
    Reserved {
        /// The object's entry.
        entry: EntryRef,
        /// A message if it failed.
        outcome: Result<(), String>,
    },
    /// `Restore` is done.
    Restored {
        /// The object's entry.
        entry: EntryRef,
        /// A message if it failed.
        outcome: Result<(), String>,
    },
    /// The answer to `Place`: where so many tasks of this shape may run.
    Placed {
        /// The shape.
        shape: ShapeId,
        /// Where.
        verdict: Verdict,
        /// How many tasks.
        count: u32,
        /// How many of them that node can run at a time, if they go to another one.
        slots: u32,
    },
    /// The answer to `PlaceActor`.
    ActorPlaced {
        /// The actor.
        actor: ActorId,
        /// Where it shall live.
        verdict: Verdict,
    },
    /// The placer has said something about a placement group.
    GroupTold {
        /// What.
        message: FromPlacer,
    },
    /// The placer is there, for the first time or again, and knows nothing that this node does not tell it.
    PlacerCame,
    /// The answer to `ClaimName`.
    NameClaimed {
        /// The name.
        name: String,
        /// The actor that was to have it.
        actor: ActorId,
        /// Whether it has.
        granted: bool,
    },
    /// The answer to `SeekName`. The process that stands for the actor's node holds it.
    NameFound {
        /// Who wanted to know.
        to: ProcessSlot,
        /// His question.
        request: RequestId,
        /// The process that stands for its node, which may be this one's own, and what is said about it.
        found: Option<(ProcessSlot, FoundActor)>,
    },
    /// The answer to `SeekNames`.
    NamesFound {
        /// Who wanted to know.
        to: ProcessSlot,
        /// His question.
        request: RequestId,
        /// In order, as many as a message holds.
        names: Vec<String>,
        /// How many there are besides.
        left_out: u32,
    },
    /// The answer to `AskKey`.
    KeyAnswered {
        /// Who wanted to know.
        to: ProcessSlot,
        /// His question.
        request: RequestId,
        /// The answer, or why there is none.
        answer: Result<KeyAnswer, Failure>,
    },
    /// Nobody will answer the `Place` and `PlaceActor` that have no answer yet.
    PlacesLost,
    /// What the cluster knows of this object, which is sought.
    RecordFound {
        /// The object.
        object: ObjectId,
        /// What.
        found: OnRecord,
    },
    /// A membership of another node is over, and so are the links that there were to it in that.
    NodeLeft {
        /// Which.
        node: NodeId,
    },
    /// There is a link to another node again, in the same membership as before.
    NodeBack {
        /// Which.
        node: NodeId,
    },
    /// The cluster has given this node up. All links to other nodes are about to end.
    Expelled,
    /// The node is to be drained: it takes nothing new from now on. `Node::drain_progress` says how far it is.
    Drain {
        /// When it is over in any case, counted from now.
        patience_microseconds: Option<u64>,
    },
    /// The node that this process stands for has these objects itself now; see `Node::objects_to_hand_over`.
    ObjectsHandedOver {
        /// The process.
        peer: ProcessSlot,
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// The cluster has given this node up meanwhile, and it has joined anew.
    MembershipLost,
    /// Time has passed.
    Ticked,
}

/// Where something that was handed up may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs here.
    Here,
    /// To the node that this process stands for.
    There(ProcessSlot),
    /// Nowhere as things are; another verdict follows when that changes.
    Later {
        /// Why.
        reason: String,
        /// Whether nothing but other nodes can change that.
        lasting: bool,
    },
    /// Nowhere, for this reason.
    Never(String),
    /// To a node that there is no link to yet.
    Unlinked,
    /// Nobody can say.
    Unknown,
}

/// What the cluster knows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnRecord {
    /// How its task can be run again.
    Task(RecordedTask),
    /// Nothing of its task, but where its copies were.
    Copies {
        /// The nodes that had them.
        nodes: Vec<NodeId>,
        /// Whether all of these nodes have left the cluster.
        gone: bool,
    },
    /// Nothing.
    Nothing,
}

/// Who may attach to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A driver of this program, which must be known.
    Driver(ProgramId),
    /// What stands for this other node here.
    Peer(NodeId),
}

/// A program, as far as the node has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramConfig {
    /// Its name.
    pub program: ProgramId,
    /// Whether one worker of it runs tasks and actors on many threads. If not, all its workers are isolated, and some
    /// are started ahead of demand.
    pub shared_worker: bool,
    /// Whether other jobs may use its actors and objects.
    pub shares: bool,
}

/// What kind of worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// Runs tasks and actors on many threads.
    Shared,
    /// Runs one thing at a time.
    Isolated,
}

/// What the node orders.
#[derive(Clone, Debug)]
pub enum NodeEffect {
    /// Send a message to a process.
    Send {
        /// To whom.
        to: ProcessSlot,
        /// What.
        message: FromNode,
    },
    /// Start a worker process in this place.
    StartWorker {
        /// The place.
        process: ProcessSlot,
        /// What kind.
        kind: WorkerKind,
        /// What it runs.
        program: ProgramId,
        /// GPUs it may see (isolated workers).
        gpus: Vec<u32>,
        /// How it is to be set up (isolated workers).
        environment: String,
    },
    /// Give the one who has just attached this place. It says `Started` when it is ready.
    Admit {
        /// The place.
        process: ProcessSlot,
    },
    /// There is no place for the one who has just attached.
    TurnAway {
        /// Why.
        reason: String,
    },
    /// The guest has left: nobody reads from it any more. Ordered before others are told.
    SeeOff {
        /// The place.
        process: ProcessSlot,
    },
    /// Nothing of the program runs: end what its workers are forked from, until another is to be started.
    EndTemplate {
        /// The program.
        program: ProgramId,
    },
    /// Nothing refers to the program any more: end what its workers are forked from.
    ForgetProgram {
        /// The program.
        program: ProgramId,
    },
    /// Kill a worker process (`kill -9`); its death is reported as usual.
    KillWorker {
        /// Which.
        process: ProcessSlot,
    },
    /// Everybody has dealt with the death of this process: wipe its shared memory; the place may be reused.
    FreeProcess {
        /// The place.
        process: ProcessSlot,
    },
    /// Make a queue in shared memory.
    OpenLane {
        /// Its place.
        lane: LaneId,
        /// Who submits to it.
        submitter: ProcessSlot,
        /// For which shape.
        shape: ShapeId,
    },
    /// Free the queue.
    CloseLane {
        /// Its place.
        lane: LaneId,
    },
    /// The number of the shape is used for another from now on: nobody is idle for it.
    FreeShape {
        /// The number.
        shape: ShapeId,
    },
    /// Make a channel in shared memory.
    OpenChannel {
        /// Who writes.
        from: ProcessSlot,
        /// Who reads.
        to: ProcessSlot,
    },
    /// Write an entry of the shared index. Ordered before any message that mentions the entry.
    WriteEntry {
        /// The entry.
        entry: EntryRef,
        /// Whose it is.
        object: ObjectId,
        /// Its state from now on.
        state: EntryState,
        /// The word of its [`ExtentPlace`](aktis_protocol::ExtentPlace); of one that another node has, one more than
        /// the place of the process that stands for it.
        offset: u64,
        /// How long.
        bytes: u64,
    },
    /// Copy a sealed object to disk and, if nobody has it pinned, mark its entry as spilled. With no `bytes`,
    /// only the latter: the object is about to be freed, and somebody may still read it.
    Spill {
        /// The entry.
        entry: EntryRef,
        /// Where in the arena.
        offset: u64,
        /// How long.
        bytes: u64,
        /// Where in the spill file.
        file_offset: u64,
    },
    /// Set room aside in the spill file, for an object that is written there through a mapping; answered by `Reserved`.
    Reserve {
        /// The entry.
        entry: EntryRef,
        /// Where in the spill file.
        file_offset: u64,
        /// How long.
        bytes: u64,
    },
    /// Copy a spilled object from disk to this place in the arena and mark its entry as sealed there.
    Restore {
        /// The entry.
        entry: EntryRef,
        /// Where in the spill file.
        file_offset: u64,
        /// How long.
        bytes: u64,
        /// Where in the arena.
        offset: u64,
    },
    /// Copy an object from another node to this place and mark its entry as sealed there; answered
    /// by `Restored`.
    Fetch {
        /// The entry.
        entry: EntryRef,
        /// The object.
        object: ObjectId,
        /// The process that stands for that node.
        peer: ProcessSlot,
        /// How long.
        bytes: u64,
        /// The word of its [`ExtentPlace`](aktis_protocol::ExtentPlace).
        offset: u64,
    },
    /// Ask where tasks of this shape, for which this node has nothing free, can run; answered by `Placed`.
    Place {
        /// The shape's number.
        shape: ShapeId,
        /// The shape.
        definition: Shape,
        /// How many tasks wait.
        count: u32,
        /// What most of them run, for the caller to fill in: the machine does not see tasks.
        function: FunctionId,
    },
    /// Tell the placer that tasks of this shape are done which it had sent to the node of this proxy, or to this node.
    PlacesDone {
        /// The shape's number.
        shape: ShapeId,
        /// The proxy of another node.
        peer: Option<ProcessSlot>,
        /// How many tasks.
        count: u32,
    },
    /// Claim a name for an actor of this node, in the whole cluster; answered by `NameClaimed`.
    ClaimName {
        /// The name.
        name: String,
        /// What those learn who find it.
        found: FoundActor,
    },
    /// An actor of this node has no name any more.
    FreeName {
        /// The name.
        name: String,
        /// The actor that had it.
        actor: ActorId,
    },
    /// Ask which actor of the cluster has a name; answered by `NameFound`.
    SeekName {
        /// Who wants to know.
        to: ProcessSlot,
        /// His question.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// Ask which names there are in the cluster; answered by `NamesFound`.
    SeekNames {
        /// Who wants to know.
        to: ProcessSlot,
        /// His question.
        request: RequestId,
    },
    /// A driver has attached: the cluster keeps that.
    JobBegan {
        /// Its place.
        process: ProcessSlot,
        /// Its process id.
        pid: u32,
        /// What it is.
        program: ProgramId,
    },
    /// A driver has left.
    JobEnded {
        /// Its place.
        process: ProcessSlot,
    },
    /// The node serves a program from now on: the cluster keeps that.
    ProgramCame {
        /// The program.
        program: ProgramId,
    },
    /// The node serves a program no more.
    ProgramWent {
        /// The program.
        program: ProgramId,
    },
    /// Have the cluster keep or forget something about tasks and objects. Nobody waits for it.
    ChangeTables {
        /// What.
        change: Change,
    },
    /// Ask the cluster how the task of this object can be run again, or where its copies are; answered by `RecordFound`.
    SeekRecord {
        /// The object.
        object: ObjectId,
    },
    /// Ask the cluster about a key; answered by `KeyAnswered`.
    AskKey {
        /// Who wants to know.
        to: ProcessSlot,
        /// His question's number.
        request: RequestId,
        /// The question.
        question: KeyQuestion,
    },
    /// Ask where this actor, for which this node has nothing free, can live; answered by `ActorPlaced`.
    PlaceActor {
        /// The actor.
        actor: ActorId,
        /// What must be free there.
        needs: Resources,
        /// The placement group whose resources it uses.
        group: Option<GroupPlace>,
        /// Where it may live.
        strategy: Strategy,
        /// Where most of what its constructor reads lies.
        near: Option<Near>,
        /// How urgent it is.
        priority: i32,
    },
    /// Tasks of this shape want no place any more.
    Withdraw {
        /// The shape's number.
        shape: ShapeId,
    },
    /// This actor wants no place any more.
    WithdrawActor {
        /// The actor.
        actor: ActorId,
    },
    /// Tell the placer something about a placement group.
    TellPlacer {
        /// What.
        message: ToPlacer,
    },
    /// Remove the checkpoint of an actor that has ended for good.
    ForgetCheckpoint {
        /// The actor.
        actor: ActorId,
        /// The directory that holds the actor's own; empty for the one of this node.
        directory: String,
    },
    /// Give the memory behind a free part of the arena back to the system.
    GiveBack {
        /// The first byte.
        offset: u64,
        /// How many, a whole number of pages.
        bytes: u64,
    },
    /// The spill file's bytes there are not needed any more.
    FreeSpilled {
        /// Where in the spill file.
        file_offset: u64,
        /// How long.
        bytes: u64,
    },
}

/// What the node starts with.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Which it is.
    pub node: NodeId,
    /// What its operator says about it.
    pub labels: Labels,
    /// What it offers.
    pub resources: Resources,
    /// Size of the arena.
    pub store_bytes: u64,
    /// Entries of the shared index.
    pub entries_max: u32,
    /// Bytes that may be on disk.
    pub spill_bytes_max: u64,
    /// Whether all processes have the spill file, and can write and read objects there.
    pub spill_file_is_shared: bool,
    /// Part of the arena, in percent, above which objects are spilled ahead of need.
    pub spill_above_percent: u32,
    /// The program of the driver that the node lives in; none if it lives in a daemon.
    pub driver: Option<ProgramConfig>,
}
