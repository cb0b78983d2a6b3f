//! The nodes of the cluster, as the head knows them.
//!
//! A node that joins is written down. Once its row is on disk, the head welcomes it and tells the others; in the same way
//! they hear that it is gone. So all nodes are told the same, in the same order, and what they are told outlives the control
//! process.

use super::rows::HeadWrite;
use super::{Head, HeadEffect, records_go};
use crate::LinkId;
use crate::machine::placer::PlacerInput;
use crate::{Effects, Time};
use aktis_protocol::member::{Departure, FromControl, NamedActor, PublicKey};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::tables::Sender;
use aktis_protocol::{Epoch, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// A node with a link.
#[derive(Clone, Copy, Debug)]
struct LinkedMember {
    epoch: Epoch,
    link: LinkId,
    is_welcome: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Members {
    linked: BTreeMap<NodeId, LinkedMember>,
    /// The members that are on disk, with or without a link: what all nodes know.
    published: BTreeMap<NodeId, NodeInfo>,
    /// Nodes that have left, how often each while its programs were not ended.
    ending: BTreeMap<NodeId, u32>,
}

impl Members {
    /// The members that are on disk at the beginning, and the nodes whose programs are being ended.
    pub(super) fn new(nodes: Vec<NodeInfo>, left: BTreeSet<NodeId>) -> Self {
        let published = nodes.into_iter().map(|info| (info.node, info)).collect();
        let ending = left.into_iter().map(|node| (node, 1)).collect();
        Self { linked: BTreeMap::new(), published, ending }
    }

    /// Whether a node has joined over this link, and not left since.
    pub(super) fn has_joined(&self, node: NodeId, link: LinkId) -> bool {
        self.linked.get(&node).is_some_and(|member| member.link == link)
    }

    /// The nodes that have joined, and are not on disk yet.
    pub(super) fn unwelcome(&self) -> Vec<(NodeId, Epoch)> {
        let waiting = self.linked.iter().filter(|(_, member)| !member.is_welcome);
        waiting.map(|(node, member)| (*node, member.epoch)).collect()
    }

    /// The link over which a node has joined.
    pub(super) fn link_of(&self, node: NodeId) -> Option<LinkId> {
        self.linked.get(&node).map(|member| member.link)
    }

    /// The link of a node that was welcomed over it.
    pub(super) fn welcome_link(&self, node: NodeId) -> Option<LinkId> {
        self.linked.get(&node).filter(|member| member.is_welcome).map(|member| member.link)
    }

    /// The links over which members were welcomed.
    pub(super) fn links(&self) -> impl Iterator<Item = (NodeId, LinkId)> {
        let welcome = self.linked.iter().filter(|(_, member)| member.is_welcome);
        welcome.map(|(node, member)| (*node, member.link))
    }

    /// The members on disk, and those that will be.
    pub(super) fn nodes(&self) -> BTreeSet<NodeId> {
        self.linked.keys().chain(self.published.keys()).copied().collect()
    }

    pub(super) fn linked(&self) -> impl Iterator<Item = (NodeId, Epoch)> {
        self.linked.iter().map(|(node, member)| (*node, member.epoch))
    }

    pub(super) fn published(&self) -> impl Iterator<Item = &NodeInfo> {
        self.published.values()
    }

    fn tell_others(&self, about: NodeId, message: &FromControl, out: &mut Effects<HeadEffect>) {
        let others = self.linked.iter().filter(|(node, member)| **node != about && member.is_welcome);
        let send = |(_, member): (_, &LinkedMember)| HeadEffect::Send {
            link: member.link,
            message: message.clone(),
        };
        out.extend(others.map(send));
    }
}

impl Head {
    pub(super) fn on_joined(
        &mut self,
        now: Time,
        (node, key, link): (NodeId, PublicKey, LinkId),
        held: Option<Epoch>,
        info_with: impl FnOnce(Epoch) -> NodeInfo,
        names: Vec<NamedActor>,
        out: &mut Effects<HeadEffect>,
    ) {
        if self.is_dismissed(now, (node, key), link, out) {
            return;
        }
        let epoch = match held.filter(|held| self.membership.on_heartbeat(now, node, *held).is_ok()) {
            Some(held) => held,
            None => match self.membership.on_joined(now, node) {
                Ok(joined) => joined.epoch,
                Err(error) => return out.push(HeadEffect::Close { link, why: error.to_string() }),
            },
        };
        let info = info_with(epoch);
        let is_published = self.members.published.get(&node) == Some(&info);
        if !is_published {
            let next_epoch = self.membership.next_epoch();
            let is_member = |node| self.membership.epoch(node).is_some();
            let key_forgotten = self.trust.on_joined((node, key, epoch), is_member);
            out.push(HeadEffect::Write(HeadWrite::NodeJoined { info, next_epoch, key, key_forgotten }));
        }
        self.members.linked.insert(node, LinkedMember { epoch, link, is_welcome: false });
        self.on_names_told(node, link, names, out);
        if is_published {
            self.welcome(now, node, out);
        }
    }

    /// The row of a node is on disk, or has gone from there.
    pub(super) fn on_node_written(
        &mut self,
        now: Time,
        node: NodeId,
        info: Option<NodeInfo>,
        out: &mut Effects<HeadEffect>,
    ) {
        let before = match &info {
            Some(info) => self.members.published.insert(node, info.clone()),
            None => self.members.published.remove(&node),
        };
        if let Some(NodeInfo { epoch, .. }) =
            before.filter(|before| info.as_ref().is_none_or(|now| now.epoch != before.epoch))
        {
            self.members.tell_others(node, &FromControl::NodeLeft { node, epoch }, out);
        }
        let Some(info) = info else { return };
        let epoch = info.epoch;
        self.members.tell_others(node, &FromControl::NodeJoined { info }, out);
        if self.members.linked.get(&node).is_some_and(|member| member.epoch == epoch && !member.is_welcome) {
            self.welcome(now, node, out);
        }
    }

    /// A node with a link is on disk.
    fn welcome(&mut self, now: Time, node: NodeId, out: &mut Effects<HeadEffect>) {
        let Members { linked, published, ending } = &mut self.members;
        if ending.contains_key(&node) {
            // When they are ended.
            return;
        }
        let (Some(member), Some(info)) = (linked.get_mut(&node), published.get(&node).cloned()) else {
            return;
        };
        member.is_welcome = true;
        // Its heartbeats begin now.
        let _ = self.membership.on_heartbeat(now, node, info.epoch);
        let nodes = published.values().filter(|other| other.node != node).cloned().collect();
        let (message, link) = (FromControl::Welcome { epoch: info.epoch, nodes }, member.link);
        out.push(HeadEffect::Send { link, message });
        self.tell_authorities(node, link, out);
        self.place(now, PlacerInput::NodeJoined { info }, out);
    }

    /// The programs of nodes that have left are ended: those that have joined again are welcomed.
    pub(super) fn on_programs_ended(
        &mut self,
        now: Time,
        left: &BTreeSet<NodeId>,
        out: &mut Effects<HeadEffect>,
    ) {
        for node in left {
            let Some(count) = self.members.ending.get_mut(node) else { continue };
            *count -= 1;
            if *count > 0 {
                continue;
            }
            self.members.ending.remove(node);
            let Members { linked, published, .. } = &self.members;
            let epoch = published.get(node).map(|info| info.epoch);
            if linked.get(node).is_some_and(|member| !member.is_welcome && Some(member.epoch) == epoch) {
                self.welcome(now, *node, out);
            }
        }
    }

    /// A membership is over: the node has left, or its lease has lapsed.
    pub(super) fn on_left(
        &mut self,
        now: Time,
        node: NodeId,
        epoch: Epoch,
        why: Departure,
        out: &mut Effects<HeadEffect>,
    ) {
        if let Some(LinkedMember { link, .. }) = self.members.linked.remove(&node) {
            out.push(HeadEffect::Send { link, message: FromControl::Expelled { epoch } });
        }
        // Before all else: a node without a row never leaves the table, and would keep its names.
        self.on_names_left(now, node, out);
        if let Some(info) = self.members.published.get(&node) {
            out.push(HeadEffect::Write(HeadWrite::NodeDied { info: info.clone(), why }));
        }
        let sender = Sender { node, epoch: epoch.0 };
        out.push(HeadEffect::Write(HeadWrite::NodeLeft { sender, why }));
        let members = self.membership.members().map(|(node, _)| node).collect();
        *self.members.ending.entry(node).or_default() += 1;
        out.push(HeadEffect::EndPrograms { left: [node].into(), members });
        self.departed.push_back((records_go(now), sender));
        self.place(now, PlacerInput::NodeLeft { node }, out);
    }

    /// A link is over. A node that has not said that it leaves stays a member until its lease lapses.
    pub(super) fn on_link_ended(
        &mut self,
        now: Time,
        node: NodeId,
        link: LinkId,
        leaves: bool,
        out: &mut Effects<HeadEffect>,
    ) {
        // Unless it has joined again over another link.
        let current = self.members.linked.get(&node).filter(|member| member.link == link);
        let Some(epoch) = current.map(|member| member.epoch) else { return };
        self.members.linked.remove(&node);
        if leaves && self.membership.on_left(node, epoch) {
            self.on_left(now, node, epoch, Departure::Left, out);
        }
    }
}
