//! Which nodes this one serves: members, as the control process has published them.
//!
//! A certificate alone opens nothing: its bearer may never have joined, or have left since. A new member may dial this
//! node, or ask it for an object, before the control process has told this node of it. So a node that is not known waits
//! for a moment, and is refused if nothing is heard of it; who dials tries again.

use super::{Neighbours, Table};
use aktis_protocol::{Epoch, NodeId};
use std::time::{Duration, Instant};

/// How long a node waits that is not known as a member: less than who dials waits for an answer.
const PUBLICATION_PATIENCE: Duration = Duration::from_secs(2);

impl Table {
    /// Whether a node is a member with this epoch. A higher one that it claims is not believed: its link would outlive the
    /// membership that is known here.
    fn is_published(&self, node: NodeId, epoch: Epoch) -> bool {
        self.nodes.get(&node).is_some_and(|neighbour| neighbour.is_member && neighbour.epoch == epoch)
    }

    /// Whether a node is a member. A node that has a link was one when that began, and has not left since.
    fn is_served(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|neighbour| neighbour.is_member || neighbour.linked.is_some())
    }
}

impl Neighbours {
    /// Lets a node have a link in its membership, or says why not.
    pub(super) fn admit_to_link(&self, node: NodeId, epoch: Epoch) -> Result<(), String> {
        self.wait_until(node, |table| table.is_published(node, epoch))
    }

    /// Lets a node pull objects, or says why not.
    pub(super) fn admit_to_objects(&self, node: NodeId) -> Result<(), String> {
        self.wait_until(node, |table| table.is_served(node))
    }

    fn wait_until(&self, node: NodeId, is_admitted: impl Fn(&Table) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PUBLICATION_PATIENCE;
        let mut table = self.table.lock();
        loop {
            if is_admitted(&table) {
                return Ok(());
            }
            if table.closing || self.changed.wait_until(&mut table, deadline).timed_out() {
                return Err(format!("node {node} is not a member of the cluster, or not any more"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Neighbour;
    use super::*;

    #[test]
    fn links_and_objects_are_for_members_in_their_present_membership() {
        let node = NodeId::from_words([0, 2]);
        let mut table = Table::default();
        assert!(!table.is_published(node, Epoch(0)) && !table.is_served(node), "nobody has spoken of it");
        let member = Neighbour { is_member: true, epoch: Epoch(3), ..Neighbour::default() };
        table.nodes.insert(node, member);
        assert!(table.is_published(node, Epoch(3)) && table.is_served(node));
        for claimed in [Epoch(2), Epoch(4), Epoch(u64::MAX)] {
            assert!(!table.is_published(node, claimed), "{claimed:?}");
        }
        table.nodes.get_mut(&node).expect("known").is_member = false;
        assert!(!table.is_published(node, Epoch(3)) && !table.is_served(node), "it has left");
    }
}
