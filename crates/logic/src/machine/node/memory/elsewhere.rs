//! Objects in the stores of other nodes: known here, and copied when somebody wants to read them.

use super::super::copies::CopyState;
use super::super::{EntryState, NodeEffect};
use super::refusals::too_many;
use super::{Memory, Request, SPARED_MICROSECONDS};
use crate::{Effects, Time};
use aktis_protocol::{EntryRef, Failure, FailureKind, ObjectId, ProcessSlot};

impl Memory {
    /// Another node has the object: gives its entry here. A copy that is here already is as good.
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

    /// There is room for the object: it is copied.
    pub(super) fn fetch(
        &mut self,
        entry: EntryRef,
        peer: ProcessSlot,
        offset: u64,
        out: &mut Effects<NodeEffect>,
    ) {
        let (object, bytes) = (self.copies.get(entry).object, self.copies.get(entry).bytes);
        self.copies.set_state(entry, CopyState::Fetching { offset, peer: Some(peer), orphaned: false });
        out.push(NodeEffect::Fetch { entry, object, peer, bytes, offset });
    }

    /// The copy from another node is complete, or will not be.
    pub(super) fn on_fetched(
        &mut self,
        now: Time,
        entry: EntryRef,
        (offset, peer, orphaned): (u64, Option<ProcessSlot>, bool),
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) {
        let (object, bytes) = (self.copies.get(entry).object, self.copies.get(entry).bytes);
        match (outcome, peer) {
            (Ok(()), _) => {
                // Spared for a moment, so that those who asked for it can pin it.
                self.copies.seal_at(entry, offset, Time(now.0 + SPARED_MICROSECONDS));
                match orphaned {
                    true => self.retire(entry, out),
                    false => self.answer_if_resident(object, out),
                }
            }
            (Err(text), peer) => {
                self.arena.release(offset, bytes);
                let text = format!("could not copy object {object} from another node: {text}");
                self.answer(object, Err(Failure::new(FailureKind::Lost, text)), out);
                // Whoever stands for the node that it came from takes no part in it any more.
                self.copies.set_state(entry, CopyState::Elsewhere { peer: peer.unwrap_or_default() });
                if orphaned || peer.is_none() {
                    self.free(entry, out);
                }
            }
        }
        self.pump(now, out);
    }

    /// The node that had these objects is gone, and they with it.
    pub(super) fn on_peer_died(&mut self, dead: ProcessSlot, out: &mut Effects<NodeEffect>) {
        for entry in self.copies.of_peer(dead) {
            let object = self.copies.get(entry).object;
            if let CopyState::Fetching { peer, .. } = &mut self.copies.get_mut(entry).state {
                // The copy may still succeed, if all its bytes have arrived.
                *peer = None;
                continue;
            }
            self.queue.retain(|request| *request != Request::Restore { entry });
            self.free(entry, out);
            let text = format!("the node that had object {object} is gone");
            self.answer(object, Err(Failure::new(FailureKind::Lost, text)), out);
        }
    }
}
