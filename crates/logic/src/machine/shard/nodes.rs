//! Nodes as small numbers, and short lists of them: an object costs a few bytes for each node that it mentions.
//!
//! 1. A number stands for one node, and a node has at most one number.
//! 2. A list has no node twice.

use aktis_protocol::{NodeId, limits};
use std::collections::BTreeMap;

/// A node, by its place in [`Nodes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeIndex(pub(super) u16);

/// The nodes that one shard mentions.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    ids: Vec<Option<NodeId>>,
    indices: BTreeMap<NodeId, NodeIndex>,
    free: Vec<NodeIndex>,
}

impl Nodes {
    /// The number of a node; `None` if there are too many.
    pub(super) fn intern(&mut self, node: NodeId) -> Option<NodeIndex> {
        if let Some(index) = self.indices.get(&node) {
            return Some(*index);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.ids.len() < limits::STORE_NODES_MAX => {
                self.ids.push(None);
                NodeIndex((self.ids.len() - 1) as u16)
            }
            None => return None,
        };
        self.ids[usize::from(index.0)] = Some(node);
        self.indices.insert(node, index);
        Some(index)
    }

    /// The number of a node that has one.
    pub(super) fn find(&self, node: NodeId) -> Option<NodeIndex> {
        self.indices.get(&node).copied()
    }

    /// The node of a number.
    pub(super) fn id(&self, index: NodeIndex) -> NodeId {
        self.ids[usize::from(index.0)].expect("a number that is mentioned has a node")
    }

    /// The nodes of a list, in the order of their ids.
    pub(super) fn ids(&self, list: &NodeList) -> Vec<NodeId> {
        let mut ids: Vec<_> = list.as_slice().iter().map(|index| self.id(*index)).collect();
        ids.sort_unstable();
        ids
    }

    /// Nothing mentions the node any more: its number may be used for another.
    pub(super) fn free(&mut self, index: NodeIndex) {
        if let Some(node) = self.ids[usize::from(index.0)].take() {
            self.indices.remove(&node);
            self.free.push(index);
        }
    }

    /// Whether the number has a node.
    pub(super) fn is_known(&self, index: NodeIndex) -> bool {
        self.ids.get(usize::from(index.0)).is_some_and(Option::is_some)
    }

    pub(super) fn check(&self) {
        let known = self.ids.iter().flatten().count();
        assert_eq!(known, self.indices.len(), "nodes invariant 1");
        assert_eq!(known + self.free.len(), self.ids.len(), "nodes invariant 1");
        for (node, index) in &self.indices {
            assert_eq!(self.ids[usize::from(index.0)], Some(*node), "nodes invariant 1");
        }
    }
}

/// Nodes that a list has without memory of its own.
const FEW: usize = 6;

/// Some nodes: mostly one or two, seldom all of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeList {
    Few {
        len: u8,
        nodes: [NodeIndex; FEW],
    },
    /// A box around the vector keeps the list itself at two words.
    #[expect(clippy::box_collection)]
    Many(Box<Vec<NodeIndex>>),
}

const _: () = assert!(size_of::<NodeList>() == 16);

impl Default for NodeList {
    fn default() -> Self {
        Self::Few { len: 0, nodes: [NodeIndex(0); FEW] }
    }
}

impl NodeList {
    #[inline]
    pub(super) fn as_slice(&self) -> &[NodeIndex] {
        match self {
            Self::Few { len, nodes } => &nodes[..usize::from(*len)],
            Self::Many(nodes) => nodes,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    #[inline]
    pub(super) fn contains(&self, node: NodeIndex) -> bool {
        self.as_slice().contains(&node)
    }

    /// Adds a node that may be there already; tells whether it was not.
    #[inline]
    pub(super) fn insert(&mut self, node: NodeIndex) -> bool {
        if self.contains(node) {
            return false;
        }
        match self {
            Self::Few { len, nodes } if usize::from(*len) < FEW => {
                nodes[usize::from(*len)] = node;
                *len += 1;
            }
            Self::Few { nodes, .. } => {
                let mut many = Vec::with_capacity(2 * FEW);
                many.extend_from_slice(nodes);
                many.push(node);
                *self = Self::Many(Box::new(many));
            }
            Self::Many(nodes) => nodes.push(node),
        }
        true
    }

    /// Takes a node out; tells whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, node: NodeIndex) -> bool {
        let Some(place) = self.as_slice().iter().position(|other| *other == node) else { return false };
        match self {
            Self::Few { len, nodes } => {
                *len -= 1;
                nodes[place] = nodes[usize::from(*len)];
            }
            Self::Many(many) => {
                many.swap_remove(place);
                if many.len() <= FEW / 2 {
                    let mut nodes = [NodeIndex(0); FEW];
                    nodes[..many.len()].copy_from_slice(many);
                    *self = Self::Few { len: many.len() as u8, nodes };
                }
            }
        }
        true
    }

    pub(super) fn check(&self, nodes: &Nodes) {
        let mut sorted = self.as_slice().to_vec();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "nodes invariant 2");
        assert!(sorted.iter().all(|index| nodes.is_known(*index)), "a list mentions a node that has left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn node(number: u64) -> NodeId {
        NodeId::from_words([number, 1])
    }

    #[test]
    fn a_list_is_a_set_however_long_it_gets() {
        let (mut list, mut set) = (NodeList::default(), BTreeSet::new());
        let mut state = 1_u32;
        for round in 0..10_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Long phases of growing and of shrinking, so that it passes its small form often.
            let (number, grows) = (NodeIndex((state >> 24) as u16 % 20), (round / 50).is_multiple_of(2));
            match grows {
                true => assert_eq!(list.insert(number), set.insert(number)),
                false => assert_eq!(list.remove(number), set.remove(&number)),
            }
            let listed: BTreeSet<_> = list.as_slice().iter().copied().collect();
            assert_eq!((listed, list.as_slice().len()), (set.clone(), set.len()), "invariant 2");
        }
    }

    #[test]
    fn numbers_are_used_again_and_bounded() {
        let mut nodes = Nodes::default();
        for number in 0..limits::STORE_NODES_MAX as u64 {
            assert!(nodes.intern(node(number)).is_some());
        }
        assert_eq!(nodes.intern(node(u64::MAX)), None, "full");
        let index = nodes.find(node(7)).expect("known");
        assert_eq!(nodes.intern(node(7)), Some(index));
        nodes.free(index);
        assert_eq!(nodes.find(node(7)), None);
        assert_eq!(nodes.intern(node(u64::MAX)), Some(index));
        assert_eq!(nodes.id(index), node(u64::MAX));
        nodes.check();
    }
}
