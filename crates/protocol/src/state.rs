//! What can be asked of a node about its state, and the rows that it answers with.

use crate::control;
use crate::groups::{GroupState, GroupStrategy};
use crate::ids::{ActorId, EntryRef, GroupId, NodeId, ObjectId, ProcessSlot, ProgramId};
use crate::limits;
use crate::placement::Labels;
use crate::resources::{Amount, Resources};
use serde::{Deserialize, Serialize};

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateKind {
    /// Worker processes.
    Workers,
    /// Actors that somebody can still reach.
    Actors,
    /// Objects in the store.
    Objects,
    /// Resources of the node.
    Resources,
    /// Placement groups.
    Groups,
    /// The store as a whole.
    Store,
    /// What tasks and actors wait for.
    Demand,
    /// Programs that are attached.
    Drivers,
    /// What the operator says about the node.
    Labels,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateRows {
    /// Worker processes.
    Workers(Vec<WorkerRow>),
    /// Actors.
    Actors(Vec<ActorRow>),
    /// Objects in the store.
    Objects(Vec<ObjectRow>),
    /// Resources of the node.
    Resources(Vec<ResourceRow>),
    /// Placement groups.
    Groups(Vec<GroupRow>),
    /// The store as a whole.
    Store(StoreRow),
    /// What tasks and actors wait for.
    Demand(Vec<DemandRow>),
    /// Programs that are attached.
    Drivers(Vec<DriverRow>),
    /// What the operator says about the node.
    Labels(Labels),
}

/// What a worker process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerRole {
    /// Tasks and actors on many threads.
    Shared,
    /// One task at a time.
    Tasks,
    /// One actor.
    Actor(ActorId),
}

/// How far a worker process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerState {
    /// It is being started.
    Starting,
    /// It has nothing to do.
    Idle,
    /// It has a lease, or an actor.
    Busy,
    /// It was told to end.
    Leaving,
}

/// A worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Its place.
    pub process: ProcessSlot,
    /// Its process id; 0 if it does not run yet.
    pub pid: u32,
    /// What it is for.
    pub role: WorkerRole,
    /// How far it is.
    pub state: WorkerState,
    /// What its leases hold, or its actor does.
    pub resources: Resources,
}

/// How far an actor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorState {
    /// It waits for a place, or is being constructed.
    Pending,
    /// It takes calls.
    Alive,
    /// It is being started again.
    Restarting,
    /// It is gone.
    Dead,
}

/// An actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorRow {
    /// The actor.
    pub actor: ActorId,
    /// The name of its type; empty for an actor that was known to its creator alone.
    pub type_name: String,
    /// Its name.
    pub name: Option<String>,
    /// How far it is.
    pub state: ActorState,
    /// What it waits for, or why it is dead.
    pub reason: String,
    /// The process that it lives in.
    pub process: Option<ProcessSlot>,
    /// The id of that process; 0 if there is none.
    pub pid: u32,
    /// How often it was started again.
    pub restarts: u32,
    /// What it holds.
    pub resources: Resources,
    /// Whether it lives without handles.
    pub detached: bool,
}

/// An object in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// The object.
    pub object: ObjectId,
    /// Its entry in the shared index.
    pub entry: EntryRef,
    /// Its size.
    pub bytes: u64,
    /// The processes that hold references.
    pub holders: Vec<ProcessSlot>,
    /// Whether it is all there: its writer has finished.
    pub sealed: bool,
    /// Whether somebody reads it right now.
    pub pinned: bool,
    /// Whether it is on disk and not in memory.
    pub spilled: bool,
    /// Whether another node has it, and this one not yet.
    pub elsewhere: bool,
}

/// One resource of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRow {
    /// Its name.
    pub name: String,
    /// How much there is in all.
    pub total: Amount,
    /// How much is free.
    pub available: Amount,
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// The group.
    pub group: GroupId,
    /// Its name.
    pub name: Option<String>,
    /// How its bundles are spread.
    pub strategy: GroupStrategy,
    /// How far it is.
    pub state: GroupState,
    /// What each bundle holds.
    pub bundles: Vec<Resources>,
    /// What is free of each bundle that is on this node, while the group is ready.
    pub available: Vec<Resources>,
    /// The node of each bundle; none unless the group is ready.
    pub nodes: Vec<NodeId>,
}

/// The store as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRow {
    /// Bytes of memory that it has.
    pub capacity: u64,
    /// Bytes of these that are in use.
    pub used: u64,
    /// Objects, in memory and on disk.
    pub objects: u64,
    /// Those of them that are in memory.
    pub objects_in_memory: u64,
    /// Bytes that are on disk now.
    pub on_disk: u64,
    /// Objects that were ever written to disk, and their bytes.
    pub spilled_objects: u64,
    /// See `spilled_objects`.
    pub spilled_bytes: u64,
    /// Objects that were ever brought back, and their bytes.
    pub restored_objects: u64,
    /// See `restored_objects`.
    pub restored_bytes: u64,
    /// Objects that were ever copied from other nodes, and their bytes.
    pub pulled_objects: u64,
    /// See `pulled_objects`.
    pub pulled_bytes: u64,
}

/// Something that is asked for and not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandRow {
    /// What one of them needs.
    pub resources: Resources,
    /// How many tasks and actors need it.
    pub waiting: u64,
    /// Whether no node could ever give it.
    pub infeasible: bool,
    /// Why it waits.
    pub reason: String,
}

/// A program that is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverRow {
    /// Its place.
    pub process: ProcessSlot,
    /// Its process id.
    pub pid: u32,
    /// What it is.
    pub program: ProgramId,
}

/// What an answer takes besides its rows, at most.
const HEAD_BYTES: usize = 64;

/// As many rows as one message holds, in order, and how many are left out; those are not made.
pub fn page<Item, Row: Serialize>(
    items: impl Iterator<Item = Item>,
    row: impl Fn(Item) -> Row,
) -> (Vec<Row>, u64) {
    let (mut rows, mut bytes, mut left_out) = (Vec::new(), HEAD_BYTES, 0);
    for item in items {
        if left_out > 0 {
            left_out += 1;
            continue;
        }
        let row = row(item);
        bytes += control::encode(&row).len();
        match bytes <= limits::CONTROL_MESSAGE_BYTES_MAX {
            true => rows.push(row),
            false => left_out = 1,
        }
    }
    (rows, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_into_a_message_and_counts_the_rest() {
        let row = |number: u64| ResourceRow {
            name: format!("{number:1000}"),
            total: Amount(number),
            available: Amount::ZERO,
        };
        let (rows, left_out) = page(0..1000, row);
        assert_eq!(rows.len() as u64 + left_out, 1000);
        assert!(left_out > 0 && rows.last().is_some_and(|last| last.total == Amount(rows.len() as u64 - 1)));
        let answer =
            control::FromNode::StateTold { request: u32::MAX, rows: StateRows::Resources(rows), left_out };
        let bytes = control::encode(&answer).len();
        assert!(
            (limits::CONTROL_MESSAGE_BYTES_MAX - 1100..=limits::CONTROL_MESSAGE_BYTES_MAX).contains(&bytes)
        );
        assert_eq!(page(0..3, row).1, 0);
    }
}
