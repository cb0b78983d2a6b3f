//! Which objects of other nodes are copied at present, and which wait.
//!
//! Memory that waits for bytes from another node cannot be used for anything else until they have come, and how fast they
//! come is not this node's affair. So few pulls at a time are let into the queue for memory: some from each node, so that
//! one that does not answer is in nobody's way, and together no more than half of the arena, unless it is a single one.
//! Whoever is asked for an object needs no memory to serve it: each of them ends.
//!
//! Invariants:
//! 1. An object that is copied was admitted, and counts until it is there or given up.
//! 2. While something waits, something is admitted.

use super::super::copies::CopyState;
use super::{Memory, Request};
use crate::Time;
use aktis_protocol::{EntryRef, ProcessSlot};
use std::collections::{BTreeMap, VecDeque};

/// Objects that are copied from one node at the same time.
pub(super) const PULLS_PER_PEER_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Pulls {
    /// What is wanted from each node, the oldest first; some may be wanted no more.
    waiting: BTreeMap<ProcessSlot, VecDeque<EntryRef>>,
    /// What has memory, or waits for it in the queue, with the node that it comes from and its bytes.
    admitted: BTreeMap<EntryRef, (ProcessSlot, u64)>,
    /// The node from which something was admitted last.
    last: ProcessSlot,
}

impl Pulls {
    fn has_room_for(&self, peer: ProcessSlot) -> bool {
        self.admitted.values().filter(|(from, _)| *from == peer).count() < PULLS_PER_PEER_MAX
    }

    fn admitted_bytes(&self) -> u64 {
        self.admitted.values().map(|(_, bytes)| bytes).sum()
    }

    /// The node whose turn it is.
    fn next_peer(&self) -> Option<ProcessSlot> {
        let after = (std::ops::Bound::Excluded(self.last), std::ops::Bound::Unbounded);
        let peers = self.waiting.range(after).chain(self.waiting.range(..=self.last));
        peers.map(|(peer, _)| *peer).find(|peer| self.has_room_for(*peer))
    }
}

impl Memory {
    /// One pull per object, however many wait for it.
    pub(super) fn want_pulled(&mut self, entry: EntryRef, peer: ProcessSlot) {
        self.forget_ended_pulls();
        let waiting = self.pulls.waiting.entry(peer).or_default();
        if !self.pulls.admitted.contains_key(&entry) && !waiting.contains(&entry) {
            waiting.push_back(entry);
        }
        self.pulls.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// Lets pulls into the queue for memory, as many as there may be.
    pub(super) fn admit_pulls(&mut self, now: Time) {
        if self.pulls.waiting.is_empty() {
            return;
        }
        self.forget_ended_pulls();
        while let Some(peer) = self.pulls.next_peer() {
            let waiting = self.pulls.waiting.get_mut(&peer).expect("it has something waiting");
            let entry = *waiting.front().expect("it has something waiting");
            let bytes = self.copies.find(entry).map_or(0, |copy| copy.bytes);
            let is_wanted = self.is_wanted_from(entry, peer);
            let (others, half) = (self.pulls.admitted_bytes(), self.arena.size() / 2);
            if is_wanted && others > 0 && others + bytes > half {
                return;
            }
            let waiting = self.pulls.waiting.get_mut(&peer).expect("it has something waiting");
            waiting.pop_front();
            if waiting.is_empty() {
                self.pulls.waiting.remove(&peer);
            }
            if is_wanted {
                self.pulls.last = peer;
                self.pulls.admitted.insert(entry, (peer, bytes));
                self.enqueue(now, Request::Restore { entry });
            }
        }
    }

    /// Whether somebody waits for an object that only this node has.
    fn is_wanted_from(&self, entry: EntryRef, with: ProcessSlot) -> bool {
        self.copies.find(entry).is_some_and(|copy| {
            matches!(copy.state, CopyState::Elsewhere { peer } if peer == with)
                && self.waiters.contains_key(&copy.object)
        })
    }

    /// Forgets those that have come, or were given up.
    fn forget_ended_pulls(&mut self) {
        let (copies, queue) = (&self.copies, &self.queue);
        let is_queued = |entry| queue.iter().any(|queued| queued.request == Request::Restore { entry });
        self.pulls.admitted.retain(|&entry, _| {
            copies.find(entry).is_some_and(|copy| match copy.state {
                CopyState::Fetching { .. } => true,
                CopyState::Elsewhere { .. } => is_queued(entry),
                _ => false,
            })
        });
    }

    /// Whether bytes are on their way into memory.
    pub(super) fn is_filling(&self) -> bool {
        let is_fetching = |entry: &EntryRef| {
            self.copies.find(*entry).is_some_and(|copy| matches!(copy.state, CopyState::Fetching { .. }))
        };
        self.restoring > 0 || self.pulls.admitted.keys().any(is_fetching)
    }

    pub(super) fn check_pulls(&self) {
        let of_peer = |peer| self.pulls.admitted.values().filter(|(from, _)| *from == peer).count();
        for copy in self.copies.iter() {
            if let CopyState::Fetching { .. } = copy.state {
                assert!(self.pulls.admitted.contains_key(&copy.entry), "pulls invariant 1: {}", copy.object);
            }
        }
        for (&peer, waiting) in &self.pulls.waiting {
            assert!(of_peer(peer) <= PULLS_PER_PEER_MAX, "too many pulls from {peer}");
            if waiting.iter().any(|entry| self.is_wanted_from(*entry, peer)) {
                let is_under_way = self.is_filling() || !self.queue.is_empty();
                assert!(is_under_way, "pulls invariant 2: objects of {peer} wait, and nothing is under way");
            }
        }
    }
}
