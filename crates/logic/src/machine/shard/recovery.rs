//! How a shard is saved, piece by piece while it works, and made again from the pieces and the log.
//!
//! 1. Each part (a slot, or what they have in common) depends on itself and the log alone. So parts may be saved at
//!    different moments, and each takes only the records after its own.
//! 2. Nothing is decided again: what the log says was made is made.

use super::nodes::NodeIndex;
use super::senders::Senders;
use super::slot::Slot;
use super::tables::{Mode, Tables, Touched};
use super::{Shard, Subscriptions};
use crate::Time;
use crate::planted::Planted;
use aktis_protocol::records::{CommonPiece, Part, Piece, Record, SlotPiece, Undecodable, decode, encode};
use aktis_protocol::slots::SlotIndex;
use aktis_protocol::{ObjectId, limits};
use std::collections::VecDeque;

/// A shard that is being made again.
#[derive(Debug)]
pub struct Recovery {
    tables: Tables,
    senders: Senders,
    /// The last record that is in each slot.
    slots: Vec<u64>,
    /// The last record that is in what they have in common.
    common: u64,
    last: u64,
}

impl Recovery {
    /// Nothing yet: a shard with these slots, all empty.
    pub fn new(slots: impl IntoIterator<Item = SlotIndex>) -> Self {
        Self {
            tables: Tables::new(slots),
            senders: Senders::default(),
            slots: vec![0; limits::SLOTS],
            common: 0,
            last: 0,
        }
    }

    /// Takes a piece of a snapshot.
    pub fn restore(&mut self, piece: &Piece) -> Result<(), Undecodable> {
        match piece.part {
            Part::Common => {
                let common: CommonPiece = decode(&piece.bytes, "shard's common part")?;
                self.senders = Senders::load(common.senders);
                common.events.into_iter().for_each(|event| self.tables.note(event));
                self.common = piece.position;
            }
            Part::Slot(index) => {
                let wrong = Undecodable { what: "slot" };
                let place = self.slots.get_mut(usize::from(index.0)).ok_or(wrong)?;
                *place = piece.position;
                let saved: SlotPiece = decode(&piece.bytes, "slot")?;
                let nodes: Option<Vec<_>> =
                    saved.nodes.iter().map(|node| self.tables.nodes.intern(*node)).collect();
                let slot = Slot::load(saved, &nodes.ok_or(wrong)?, &mut self.tables.counts);
                self.tables.set_slot(index, slot.ok_or(wrong)?);
            }
        }
        self.last = self.last.max(piece.position);
        Ok(())
    }

    /// Takes a record of the log; they come in order.
    pub fn replay(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Undecodable> {
        let mut touched = Vec::new();
        match decode(bytes, "record")? {
            Record::Batch { sender, sequence: number, changes, refused } => {
                let node = self.tables.nodes.intern(sender.node).ok_or(Undecodable { what: "record" })?;
                for change in &changes {
                    let part = match change {
                        aktis_protocol::tables::Change::EventNoted(_) => self.common,
                        _ => self.slots[usize::from(change.slot().0)],
                    };
                    if sequence <= part {
                        continue;
                    }
                    if let Ok(Touched::Object { object, suspect: true }) =
                        self.tables.make(node, change, Mode::Forced)
                    {
                        touched.push(object);
                    }
                }
                if sequence > self.common {
                    self.senders.record(sender, number, &refused);
                }
            }
            Record::NodeLeft { sender } => {
                if sequence > self.common {
                    self.senders.leave(sender);
                }
                if let Some(node) = self.tables.nodes.find(sender.node) {
                    let slots = &self.slots;
                    touched = self.tables.forget_node(node, |slot| sequence > slots[usize::from(slot.0)]);
                }
            }
        }
        for object in touched {
            self.tables.settle(object);
        }
        self.last = self.last.max(sequence);
        Ok(())
    }

    /// All pieces and records are there: the shard goes on. What nobody holds is ordered to be freed again.
    pub fn finish<T>(self, now: Time) -> Shard<T> {
        let objects = self.tables.slots().flat_map(|(_, slot)| slot.objects());
        let unheld = objects.filter(|(_, known)| known.holders.is_empty());
        let freeing: VecDeque<_> = unheld.map(|(object, _)| (now, object)).collect();
        Shard {
            planted: Planted::default(),
            tables: self.tables,
            senders: self.senders,
            subscriptions: Subscriptions::default(),
            made: self.last,
            persisted: self.last,
            outbox: VecDeque::new(),
            freeing,
            touched: Vec::new(),
        }
    }
}

impl<T> Shard<T> {
    /// The parts that have to be saved, in any order.
    pub fn parts(&self) -> Vec<Part> {
        let slots = self.tables.slots().map(|(index, _)| Part::Slot(index));
        slots.chain([Part::Common]).collect()
    }

    /// One part as it is now. It may be used once the log is on disk up to the piece's position.
    pub fn save(&self, part: Part) -> Piece {
        let bytes = match part {
            Part::Common => {
                let events = self.tables.events.iter().cloned().collect();
                encode(&CommonPiece { senders: self.senders.save(), events })
            }
            Part::Slot(index) => {
                let slot = self.tables.slot(index);
                encode(&slot.map(|slot| slot.save(&self.tables.nodes)).unwrap_or_default())
            }
        };
        Piece { part, position: self.made, bytes }
    }
}

impl Tables {
    /// A node has and holds nothing any more in the slots that `concerns` names; gives the objects that it had or
    /// held, in order.
    pub(super) fn forget_node(
        &mut self,
        node: NodeIndex,
        concerns: impl Fn(SlotIndex) -> bool,
    ) -> Vec<ObjectId> {
        let mut touched = Vec::new();
        for index in SlotIndex::all().filter(|index| concerns(*index)) {
            if let Some((slot, counts)) = self.slot_mut(index) {
                slot.forget_node(node, &mut touched, counts);
            }
        }
        touched.sort_unstable();
        touched
    }
}
