//! What the control store keeps on disk: records of its log, and pieces of its snapshots.
//!
//! A shard's state is its slots and what they have in common. Each of these parts is saved by itself, with the log's
//! position at that moment: whoever starts again takes the parts, and for each only the records after it.

use crate::ids::{NodeId, ObjectId, TaskId};
use crate::slots::SlotIndex;
use crate::tables::{Change, Event, Refusal, Sender, Table};
use serde::{Deserialize, Serialize};

/// One record of a shard's log: decided already, so that reading it decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Changes that were made together.
    Batch {
        /// Whose.
        sender: Sender,
        /// The number that the sender gave them.
        sequence: u64,
        /// What was made.
        changes: Vec<Change>,
        /// What was not: a repeated batch is answered in the same way.
        refused: Vec<Refusal>,
    },
    /// A node's life is over: its copies and holdings are gone.
    NodeLeft {
        /// Which life.
        sender: Sender,
    },
}

/// A part of a shard that is saved by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// One slot, as a [`SlotPiece`].
    Slot(SlotIndex),
    /// What the slots have in common, as a [`CommonPiece`].
    Common,
}

/// A saved part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Which.
    pub part: Part,
    /// The last record of the log that is in it.
    pub position: u64,
    /// The part.
    pub bytes: Vec<u8>,
}

/// The tables of one slot. Nodes are numbers here: places in `nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotPiece {
    /// The nodes that are mentioned.
    pub nodes: Vec<NodeId>,
    /// Rows.
    pub rows: Vec<(Table, Vec<u8>, Vec<u8>)>,
    /// Objects.
    pub objects: Vec<SavedObject>,
    /// Records of tasks.
    pub tasks: Vec<SavedTask>,
}

/// An object in a [`SlotPiece`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedObject {
    /// Its id.
    pub object: ObjectId,
    /// Its size, if known.
    pub bytes: Option<u64>,
    /// Who has copies.
    pub copies: Vec<u16>,
    /// Who holds references.
    pub holders: Vec<u16>,
}

/// A task in a [`SlotPiece`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTask {
    /// Its id.
    pub task: TaskId,
    /// Who recorded it, if that node has not left.
    pub recorder: Option<u16>,
    /// How many objects it makes.
    pub returns: u32,
    /// The record.
    pub record: Vec<u8>,
}

/// What the slots of a shard have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonPiece {
    /// Who has written.
    pub senders: Vec<SavedSender>,
    /// Events, the oldest first.
    pub events: Vec<Event>,
}

/// A sender in a [`CommonPiece`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSender {
    /// Its last life.
    pub sender: Sender,
    /// Whether that is over.
    pub left: bool,
    /// The numbers of its batches are below this.
    pub next: u64,
    /// What was refused of its last batches.
    pub refused: Vec<(u64, Vec<Refusal>)>,
}

/// These bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not those of a {what}")]
pub struct Undecodable {
    /// What was expected.
    pub what: &'static str,
}

/// The bytes of something that is kept.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain data in memory can always be encoded")
}

/// What the bytes stand for; `what` names it in the error.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &'static str) -> Result<T, Undecodable> {
    postcard::from_bytes(bytes).map_err(|_| Undecodable { what })
}
