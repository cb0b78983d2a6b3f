//! The node: processes, leases, actors and shared objects of one machine.

use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{DeathCause, EntryRef, LaneId, ObjectId, ProcessSlot, Resources, ShapeId};

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
    /// The process ordered by `StartWorker` runs (it has not said `Started` yet).
    WorkerSpawned {
        /// Which.
        process: ProcessSlot,
        /// Its process id.
        pid: u32,
    },
    /// A process (ordered by `StartWorker`) ended, or could not be started (pid 0, reason in `stderr_tail`).
    ProcessDied {
        /// Which.
        process: ProcessSlot,
        /// How.
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
    /// `Restore` is done.
    Restored {
        /// The object's entry.
        entry: EntryRef,
        /// A message if it failed.
        outcome: Result<(), String>,
    },
    /// Time has passed.
    Ticked,
}

/// Why an object was not spilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpillRefusal {
    /// Somebody reads it.
    Pinned,
    /// The disk did not take it.
    Disk(String),
}

/// The state of an entry of the shared index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Nobody's.
    Free,
    /// Being written by one process.
    Writing,
    /// Immutable and in memory.
    Sealed,
    /// On disk only.
    Spilled,
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
        /// GPUs it may see (isolated workers).
        gpus: Vec<u32>,
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
        /// Where in the arena.
        offset: u64,
        /// How long.
        bytes: u64,
    },
    /// Copy a sealed object to disk and, if nobody has it pinned, mark its entry as spilled.
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
    /// What it offers.
    pub resources: Resources,
    /// Size of the arena.
    pub store_bytes: u64,
    /// Entries of the shared index.
    pub entries_max: u32,
    /// Bytes that may be on disk.
    pub spill_bytes_max: u64,
}
