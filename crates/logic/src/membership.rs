//! Which nodes are in the cluster: each has a lease, which its heartbeats renew, and an epoch.
//!
//! Invariants:
//! 1. An epoch is higher than all that were given before it, to whichever node. So a node that comes back has another
//!    one, and what it said or was told before is recognised, though nothing is remembered about nodes that left.
//! 2. A node is a member from its joining until it leaves, its lease lapses, or it joins again. Each end is told once.
//! 3. No lease lasts longer than the cluster's node timeout from the last sign of life; or `NODE_REJOIN_MICROSECONDS` from
//!    the beginning, for members of an earlier life of the control process that have given none since.

use crate::Time;
use aktis_protocol::limits::{NODE_LEASE_MICROSECONDS, NODE_REJOIN_MICROSECONDS, NODES_MAX};
use aktis_protocol::{Epoch, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Why a node did not become a member, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// There are too many.
    #[error("this cluster has {NODES_MAX} nodes, which is the limit")]
    Full,
    /// Somebody speaks for a membership that has ended.
    #[error("node {node} is not a member with epoch {epoch}\nhint: it has to join again")]
    Ended {
        /// The node.
        node: NodeId,
        /// The epoch that it named.
        epoch: Epoch,
    },
}

/// A node that has joined, and the membership that this ended, if it was a member already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its epoch from now on.
    pub epoch: Epoch,
    /// The one before, which nobody has been told the end of.
    pub replaced: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    epoch: Epoch,
    lapses_at: Time,
}

/// The members.
#[derive(Debug)]
pub struct Membership {
    members: BTreeMap<NodeId, Member>,
    /// The same, by when their leases lapse.
    lapses: BTreeSet<(Time, NodeId)>,
    next_epoch: Epoch,
    lease_microseconds: u64,
}

impl Membership {
    /// Nobody is a member. `first_epoch` is higher than all that an earlier life of the control process gave.
    pub fn new(first_epoch: Epoch) -> Self {
        let lease_microseconds = NODE_LEASE_MICROSECONDS;
        Self {
            members: BTreeMap::new(),
            lapses: BTreeSet::new(),
            next_epoch: first_epoch,
            lease_microseconds,
        }
    }

    /// A node is dead after so long without a sign of life, instead of [`NODE_LEASE_MICROSECONDS`].
    pub fn set_lease(&mut self, microseconds: u64) {
        self.lease_microseconds = microseconds;
    }

    /// A node was a member in an earlier life of the control process, and has some time to give a sign of life.
    pub fn restore(&mut self, now: Time, node: NodeId, epoch: Epoch) {
        assert!(epoch < self.next_epoch, "membership invariant 1: {node}");
        self.remove(node);
        self.insert(Time(now.0 + NODE_REJOIN_MICROSECONDS), node, epoch);
    }

    /// A node joins, for the first time or again.
    pub fn on_joined(&mut self, now: Time, node: NodeId) -> Result<Joined, MembershipError> {
        let replaced = self.remove(node).map(|member| member.epoch);
        if self.members.len() >= NODES_MAX {
            return Err(MembershipError::Full);
        }
        let epoch = self.next_epoch;
        self.next_epoch = Epoch(epoch.0 + 1);
        self.renew(now, node, epoch);
        Ok(Joined { epoch, replaced })
    }

    /// A member has given a sign of life.
    pub fn on_heartbeat(&mut self, now: Time, node: NodeId, epoch: Epoch) -> Result<(), MembershipError> {
        if !self.is_current(node, epoch) {
            return Err(MembershipError::Ended { node, epoch });
        }
        self.remove(node);
        self.renew(now, node, epoch);
        Ok(())
    }

    /// A member leaves; false if it was none with that epoch.
    pub fn on_left(&mut self, node: NodeId, epoch: Epoch) -> bool {
        self.is_current(node, epoch) && self.remove(node).is_some()
    }

    /// Takes out those whose leases have lapsed by now.
    pub fn lapse(&mut self, now: Time) -> Vec<(NodeId, Epoch)> {
        let mut lapsed = Vec::new();
        while let Some(&(at, node)) = self.lapses.first()
            && at <= now
        {
            lapsed.extend(self.remove(node).map(|member| (node, member.epoch)));
        }
        lapsed
    }

    /// When the next lease lapses, if nobody gives a sign of life.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.lapses.first().map(|&(at, _)| at)
    }

    /// Whether this membership goes on: what comes from another one is to be ignored.
    pub fn is_current(&self, node: NodeId, epoch: Epoch) -> bool {
        self.epoch(node) == Some(epoch)
    }

    /// The epoch of a member.
    pub fn epoch(&self, node: NodeId) -> Option<Epoch> {
        self.members.get(&node).map(|member| member.epoch)
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, Epoch)> {
        self.members.iter().map(|(&node, member)| (node, member.epoch))
    }

    /// The epoch that the next node gets: to be kept where it outlives this process.
    pub fn next_epoch(&self) -> Epoch {
        self.next_epoch
    }

    fn renew(&mut self, now: Time, node: NodeId, epoch: Epoch) {
        self.insert(Time(now.0 + self.lease_microseconds), node, epoch);
    }

    fn insert(&mut self, lapses_at: Time, node: NodeId, epoch: Epoch) {
        self.members.insert(node, Member { epoch, lapses_at });
        self.lapses.insert((lapses_at, node));
    }

    fn remove(&mut self, node: NodeId) -> Option<Member> {
        let member = self.members.remove(&node)?;
        self.lapses.remove(&(member.lapses_at, node));
        Some(member)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert_eq!(self.members.len(), self.lapses.len(), "each member has one lease");
        for (node, member) in &self.members {
            assert!(member.epoch < self.next_epoch, "membership invariant 1: {node}");
            assert!(self.lapses.contains(&(member.lapses_at, *node)), "{node} has a lease");
        }
        let epochs: BTreeSet<Epoch> = self.members.values().map(|member| member.epoch).collect();
        assert_eq!(epochs.len(), self.members.len(), "membership invariant 1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = NODE_LEASE_MICROSECONDS;

    fn node(number: u64) -> NodeId {
        NodeId::from_words([0, number])
    }

    #[test]
    fn a_silent_node_lapses_and_comes_back_with_a_higher_epoch() {
        let mut membership = Membership::new(Epoch(7));
        let first = membership.on_joined(Time(0), node(1)).unwrap();
        assert_eq!(first, Joined { epoch: Epoch(7), replaced: None });
        let other = membership.on_joined(Time(10), node(2)).unwrap().epoch;
        membership.on_heartbeat(Time(LEASE / 2), node(2), other).unwrap();
        assert_eq!(membership.next_wakeup(), Some(Time(LEASE)));
        assert_eq!(membership.lapse(Time(LEASE - 1)), []);
        assert_eq!(membership.lapse(Time(LEASE)), [(node(1), Epoch(7))]);
        assert_eq!(membership.lapse(Time(LEASE)), [], "invariant 2: told once");
        membership.check();

        let late = membership.on_heartbeat(Time(LEASE + 1), node(1), Epoch(7));
        assert_eq!(late, Err(MembershipError::Ended { node: node(1), epoch: Epoch(7) }));
        let again = membership.on_joined(Time(LEASE + 2), node(1)).unwrap();
        assert_eq!(again, Joined { epoch: Epoch(9), replaced: None }, "invariant 1");
        assert!(!membership.is_current(node(1), Epoch(7)) && membership.is_current(node(1), Epoch(9)));
        assert!(!membership.on_left(node(1), Epoch(7)), "an old message changes nothing");
        assert!(membership.on_left(node(1), Epoch(9)));
        membership.check();
    }

    #[test]
    fn a_member_that_joins_again_ends_its_membership() {
        let mut membership = Membership::new(Epoch(0));
        let first = membership.on_joined(Time(0), node(1)).unwrap().epoch;
        let second = membership.on_joined(Time(1), node(1)).unwrap();
        assert_eq!(second.replaced, Some(first));
        assert_eq!(membership.members().collect::<Vec<_>>(), [(node(1), second.epoch)]);
        assert_eq!(membership.lapse(Time(LEASE)), [], "the lease is that of the second");
        membership.check();
    }

    #[test]
    fn members_of_an_earlier_life_keep_their_epochs_if_they_come_in_time() {
        let mut membership = Membership::new(Epoch(9));
        membership.restore(Time(0), node(1), Epoch(3));
        membership.restore(Time(0), node(2), Epoch(8));
        membership.on_heartbeat(Time(10), node(1), Epoch(3)).unwrap();
        assert_eq!(membership.on_joined(Time(20), node(3)).unwrap().epoch, Epoch(9), "invariant 1");
        membership.on_heartbeat(Time(LEASE), node(1), Epoch(3)).unwrap();
        membership.on_heartbeat(Time(LEASE), node(3), Epoch(9)).unwrap();
        assert_eq!(membership.lapse(Time(2 * LEASE - 1)), []);
        membership.check();
        let lapsed = membership.lapse(Time(NODE_REJOIN_MICROSECONDS));
        assert!(lapsed.contains(&(node(2), Epoch(8))), "invariant 3");
        membership.check();
    }

    #[test]
    fn a_full_cluster_takes_nobody_until_somebody_leaves() {
        let mut membership = Membership::new(Epoch(0));
        for number in 0..NODES_MAX as u64 {
            membership.on_joined(Time(number), node(number)).unwrap();
        }
        let late = node(NODES_MAX as u64);
        assert_eq!(membership.on_joined(Time(0), late), Err(MembershipError::Full));
        assert!(membership.on_joined(Time(5), node(3)).is_ok(), "a member may join again");
        assert_eq!(membership.lapse(Time(LEASE)).len(), 1);
        assert!(membership.on_joined(Time(LEASE), late).is_ok());
        membership.check();
    }

    #[test]
    fn a_node_lives_as_long_as_the_timeout_of_its_cluster_says() {
        let mut membership = Membership::new(Epoch(0));
        membership.set_lease(10 * LEASE);
        membership.on_joined(Time(0), node(1)).unwrap();
        assert!(membership.lapse(Time(10 * LEASE - 1)).is_empty());
        assert_eq!(membership.lapse(Time(10 * LEASE)).len(), 1);
    }
}
