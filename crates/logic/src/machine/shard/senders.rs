//! Who has written, and how far: by this a repeated batch and one of a life that is over are recognised.
//!
//! 1. Of each node only the last life is known.
//! 2. What was refused is remembered for the last [`limits::BATCHES_UNANSWERED_MAX`] batches of a sender.

use aktis_protocol::records::SavedSender;
use aktis_protocol::tables::{Refusal, Sender};
use aktis_protocol::{NodeId, limits};
use std::collections::BTreeMap;
use std::collections::VecDeque;

/// All senders of a shard.
#[derive(Debug, Default)]
pub(super) struct Senders {
    lives: BTreeMap<NodeId, Life>,
}

#[derive(Debug, Default)]
struct Life {
    epoch: u64,
    left: bool,
    /// Numbers below this have been made.
    next: u64,
    refused: VecDeque<(u64, Vec<Refusal>)>,
}

/// What a batch is, by its sender and its number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its turn.
    New,
    /// The first of a new life, while the one before has not left.
    NewLife { before: Sender },
    /// It was made before, but for these.
    Repeated { refused: Vec<Refusal> },
    /// Its life is over.
    Stale { epoch: u64 },
    /// There is no room for another sender.
    TooMany,
}

impl Senders {
    /// Judges a batch.
    pub(super) fn judge(&self, sender: Sender, sequence: u64) -> Verdict {
        let Some(life) = self.lives.get(&sender.node) else {
            return if self.has_room() { Verdict::New } else { Verdict::TooMany };
        };
        if sender.epoch < life.epoch || sender.epoch == life.epoch && life.left {
            return Verdict::Stale { epoch: life.epoch };
        }
        if sender.epoch > life.epoch {
            let before = Sender { epoch: life.epoch, ..sender };
            return if life.left { Verdict::New } else { Verdict::NewLife { before } };
        }
        if sequence >= life.next {
            return Verdict::New;
        }
        let refused = life.refused.iter().find(|(number, _)| *number == sequence);
        Verdict::Repeated { refused: refused.map_or_else(Vec::new, |(_, refused)| refused.clone()) }
    }

    /// A batch was made. What is older than is known changes nothing.
    pub(super) fn record(&mut self, sender: Sender, sequence: u64, refused: &[Refusal]) {
        let life = self.life(sender);
        if sender.epoch < life.epoch || sender.epoch == life.epoch && sequence < life.next {
            return;
        }
        if sender.epoch > life.epoch {
            *life = Life { epoch: sender.epoch, ..Life::default() };
        }
        life.next = sequence.saturating_add(1);
        if !refused.is_empty() {
            life.refused.push_back((sequence, refused.to_vec()));
        }
        let oldest = sequence.saturating_sub(limits::BATCHES_UNANSWERED_MAX);
        while life.refused.front().is_some_and(|(number, _)| *number <= oldest) {
            life.refused.pop_front();
        }
    }

    /// A life is over, and all before it.
    pub(super) fn leave(&mut self, sender: Sender) {
        let life = self.life(sender);
        if sender.epoch >= life.epoch {
            *life = Life { epoch: sender.epoch, left: true, ..Life::default() };
        }
    }

    /// The last life of a node, and whether it is over.
    pub(super) fn last_life(&self, node: NodeId) -> Option<(u64, bool)> {
        self.lives.get(&node).map(|life| (life.epoch, life.left))
    }

    fn has_room(&self) -> bool {
        self.lives.len() < limits::STORE_NODES_MAX || self.lives.values().any(|life| life.left)
    }

    fn life(&mut self, sender: Sender) -> &mut Life {
        if self.lives.len() >= limits::STORE_NODES_MAX && !self.lives.contains_key(&sender.node) {
            // One that has left is forgotten: what it still sends would be of a life that nobody knows.
            let left = self.lives.iter().find(|(_, life)| life.left).map(|(node, _)| *node);
            left.map(|node| self.lives.remove(&node));
        }
        let fresh = || Life { epoch: sender.epoch, ..Life::default() };
        self.lives.entry(sender.node).or_insert_with(fresh)
    }

    pub(super) fn save(&self) -> Vec<SavedSender> {
        let save = |(node, life): (&NodeId, &Life)| SavedSender {
            sender: Sender { node: *node, epoch: life.epoch },
            left: life.left,
            next: life.next,
            refused: life.refused.iter().cloned().collect(),
        };
        self.lives.iter().map(save).collect()
    }

    pub(super) fn load(saved: Vec<SavedSender>) -> Self {
        let load = |saved: SavedSender| {
            let SavedSender { sender, left, next, refused } = saved;
            (sender.node, Life { epoch: sender.epoch, left, next, refused: refused.into() })
        };
        Self { lives: saved.into_iter().map(load).collect() }
    }

    pub(super) fn check(&self) {
        assert!(self.lives.len() <= limits::STORE_NODES_MAX, "senders are bounded");
        for life in self.lives.values() {
            assert!(life.refused.len() as u64 <= limits::BATCHES_UNANSWERED_MAX, "senders invariant 2");
            assert!(life.refused.iter().all(|(number, _)| *number < life.next), "senders invariant 2");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::tables::RefusalKind;

    fn sender(epoch: u64) -> Sender {
        Sender { node: NodeId::from_words([1, 2]), epoch }
    }

    #[test]
    fn a_batch_is_new_once() {
        let mut senders = Senders::default();
        let refused = vec![Refusal { change: 3, why: RefusalKind::Exists }];
        assert_eq!(senders.judge(sender(1), 5), Verdict::New);
        senders.record(sender(1), 5, &refused);
        assert_eq!(senders.judge(sender(1), 5), Verdict::Repeated { refused });
        assert_eq!(senders.judge(sender(1), 4), Verdict::Repeated { refused: vec![] });
        assert_eq!(senders.judge(sender(1), 6), Verdict::New);
    }

    #[test]
    fn only_the_last_life_counts() {
        let mut senders = Senders::default();
        senders.record(sender(2), 9, &[]);
        assert_eq!(senders.judge(sender(1), 100), Verdict::Stale { epoch: 2 });
        assert_eq!(senders.judge(sender(3), 1), Verdict::NewLife { before: sender(2) }, "invariant 1");
        senders.leave(sender(2));
        assert_eq!(senders.judge(sender(2), 10), Verdict::Stale { epoch: 2 });
        assert_eq!(senders.judge(sender(3), 1), Verdict::New);
        senders.record(sender(3), 1, &[]);
        senders.leave(sender(2));
        assert_eq!(senders.last_life(sender(3).node), Some((3, false)), "an old life ends only once");
    }

    #[test]
    fn what_was_refused_is_remembered_for_a_while() {
        let mut senders = Senders::default();
        let refused = [Refusal { change: 0, why: RefusalKind::Full }];
        let last = limits::BATCHES_UNANSWERED_MAX + 10;
        for number in 1..=last {
            senders.record(sender(1), number, &refused);
            senders.check();
        }
        assert_eq!(senders.judge(sender(1), 10), Verdict::Repeated { refused: vec![] });
        assert_eq!(senders.judge(sender(1), 11), Verdict::Repeated { refused: refused.to_vec() });
    }

    #[test]
    fn there_is_room_while_some_have_left() {
        let mut senders = Senders::default();
        let one = |number| Sender { node: NodeId::from_words([number, 0]), epoch: 1 };
        for number in 0..limits::STORE_NODES_MAX as u64 {
            senders.record(one(number), 1, &[]);
        }
        assert_eq!(senders.judge(one(u64::MAX), 1), Verdict::TooMany);
        senders.leave(one(5));
        assert_eq!(senders.judge(one(u64::MAX), 1), Verdict::New);
        senders.record(one(u64::MAX), 1, &[]);
        senders.check();
        assert_eq!(senders.last_life(one(5).node), None);
    }
}
