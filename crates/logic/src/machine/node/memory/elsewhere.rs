//! Objects in the stores of other nodes: known here, and copied when somebody wants to read them.

use super::super::copies::CopyState;
use super::super::{EntryState, NodeEffect};
use super::refusals::too_many;
use super::{Memory, SPARED_MICROSECONDS};
use crate::{Effects, Time};
use aktis_protocol::{EntryRef, ExtentPlace, Failure, FailureKind, ObjectId, ProcessSlot};

impl Memory {
    /// Another node has the object: gives its entry here. A copy that is here already is as good. It may be larger than
    /// this node's store, as long as nobody reads it here.
    pub(in super::super) fn on_imported(
        &mut self,
        peer: ProcessSlot,
        object: ObjectId,
        bytes: u64,
        out: &mut Effects<NodeEffect>,
    ) -> Result<EntryRef, Failure> {
        if let Some(entry) = self.copies.readable(object).first() {
            return Ok(*entry);
        }
        let state = CopyState::Elsewhere { peer };
        let entry =
            self.copies.add(object, bytes, state).ok_or_else(|| too_many(self.copies.entries_max()))?;
        out.push(self.copies.order(entry, EntryState::Spilled));
        Ok(entry)
    }

    /// Whether only this peer has a copy.
    pub(in super::super) fn is_with(&self, entry: EntryRef, with: ProcessSlot) -> bool {
        match self.copies.get(entry).state {
            CopyState::Elsewhere { peer } => peer == with,
            CopyState::Fetching { peer, .. } => peer == Some(with),
            _ => false,
        }
    }

    /// The peer that has the object, if there is no copy of it here and none is on its way.
    pub(in super::super) fn is_only_with(&self, object: ObjectId) -> Option<ProcessSlot> {
        let readable = self.copies.readable(object);
        match self.copies.get(*readable.first()?).state {
            CopyState::Elsewhere { peer } if readable.len() == 1 => Some(peer),
            _ => None,
        }
    }

    /// Whether there is a copy of the object here, in memory or on disk.
    pub(in super::super) fn has(&self, object: ObjectId) -> bool {
        self.copies.bytes_here(object).is_some()
    }

    /// The copy of an object that is served to other nodes: one in memory, if there is any, else one on disk, else one
    /// with the node that the second stands for.
    pub(in super::super) fn copy_of(&self, object: ObjectId) -> Option<(EntryRef, Option<ProcessSlot>)> {
        let copies =
            self.copies.readable(object).into_iter().filter_map(|entry| match self.copies.get(entry).state {
                CopyState::Sealed { .. } | CopyState::Mapped { .. } => Some((0, entry, None)),
                CopyState::Spilling { .. } | CopyState::Spilled { .. } | CopyState::Restoring { .. } => {
                    Some((1, entry, None))
                }
                CopyState::Elsewhere { peer } => Some((2, entry, Some(peer))),
                CopyState::Fetching { peer, .. } => peer.map(|peer| (2, entry, Some(peer))),
                CopyState::Reserving { .. } | CopyState::Writing { .. } | CopyState::Retiring { .. } => None,
            });
        copies.min_by_key(|(distance, ..)| *distance).map(|(_, entry, peer)| (entry, peer))
    }

    /// There is room for the object: it is copied, on disk once the disk has set the room aside.
    pub(super) fn fetch(
        &mut self,
        entry: EntryRef,
        peer: ProcessSlot,
        place: ExtentPlace,
        out: &mut Effects<NodeEffect>,
    ) {
        self.copies.set_state(entry, CopyState::Fetching { place, peer: Some(peer), orphaned: false });
        match place {
            ExtentPlace::Arena(_) => self.order_fetch(entry, peer, place, out),
            ExtentPlace::File(file_offset) => {
                let bytes = self.copies.get(entry).bytes;
                out.push(NodeEffect::Reserve { entry, file_offset, bytes });
            }
        }
    }

    pub(super) fn order_fetch(
        &mut self,
        entry: EntryRef,
        peer: ProcessSlot,
        place: ExtentPlace,
        out: &mut Effects<NodeEffect>,
    ) {
        let (object, bytes) = (self.copies.get(entry).object, self.copies.get(entry).bytes);
        out.push(NodeEffect::Fetch { entry, object, peer, bytes, offset: place.to_word() });
    }

    /// The copy from another node is complete, or will not be. Gives the object if that was its last copy.
    pub(super) fn on_fetched(
        &mut self,
        now: Time,
        entry: EntryRef,
        (place, peer, orphaned): (ExtentPlace, Option<ProcessSlot>, bool),
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, Failure)> {
        let mut lost = None;
        let (object, bytes) = (self.copies.get(entry).object, self.copies.get(entry).bytes);
        match (outcome, peer) {
            (Ok(()), _) => {
                // Spared for a moment, so that those who asked for it can pin it.
                self.copies.seal(entry, Time(now.0 + SPARED_MICROSECONDS));
                self.pulled.add(bytes);
                if orphaned {
                    self.retire(entry, out);
                }
                self.serve_waiters(now, object, out);
            }
            (Err(text), peer) => {
                self.release(place, bytes, out);
                self.copies.set_state(entry, CopyState::Elsewhere { peer: peer.unwrap_or_default() });
                self.free(entry, out);
                let text = format!("could not copy object {object} from another node: {text}");
                lost = self.lose(now, object, text, out).filter(|_| !orphaned);
            }
        }
        self.pump(now, out);
        lost
    }

    /// A copy of an object is gone. Without another one, those who wait for it are told, and it is given.
    fn lose(
        &mut self,
        now: Time,
        object: ObjectId,
        text: String,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, Failure)> {
        if !self.copies.readable(object).is_empty() {
            self.serve_waiters(now, object, out);
            return None;
        }
        let failure = Failure::new(FailureKind::Lost, text);
        self.answer(object, Err(failure.clone()), out);
        Some((object, failure))
    }

    /// The node that this process stands for has an object no more. Gives it if there is no other copy.
    pub(in super::super) fn lose_at(
        &mut self,
        now: Time,
        peer: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, Failure)> {
        let is_there = |entry: &EntryRef| self.copies.get(*entry).state == CopyState::Elsewhere { peer };
        let entry = self.copies.readable(object).into_iter().find(is_there)?;
        let text = format!("the node that had object {object} has lost it");
        let lost = self.lose_elsewhere(now, entry, text, out);
        // It may have been the first of those that wait for memory.
        self.new_head(now);
        self.pump(now, out);
        lost
    }

    /// A copy that is with another node is gone there.
    fn lose_elsewhere(
        &mut self,
        now: Time,
        entry: EntryRef,
        text: String,
        out: &mut Effects<NodeEffect>,
    ) -> Option<(ObjectId, Failure)> {
        let object = self.copies.get(entry).object;
        self.unqueue(entry);
        self.free(entry, out);
        self.lose(now, object, text, out)
    }

    /// The node that had these objects is gone, and they with it. Gives those of which there is no other copy.
    pub(super) fn on_peer_died(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) -> Vec<(ObjectId, Failure)> {
        let mut lost = Vec::new();
        for entry in self.copies.of_peer(dead) {
            let object = self.copies.get(entry).object;
            if let CopyState::Fetching { peer, .. } = &mut self.copies.get_mut(entry).state {
                // The copy may still succeed, if all its bytes have arrived.
                *peer = None;
                continue;
            }
            let text = format!("the node that had object {object} is gone");
            lost.extend(self.lose_elsewhere(now, entry, text, out));
        }
        lost
    }
}
