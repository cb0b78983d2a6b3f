//! The nodes of the cluster, as the control process knows them.
//!
//! A node that joins is written down. When the tables publish that it is on disk, it is welcomed, and the others are told;
//! in the same way they hear that it is gone. So all are told the same, in the same order, and what they are told outlives
//! the control process.

use super::send;
use super::state::{State, records_go};
use super::tables::node_in;
use aktis_io::{Link, PUBLIC_KEY_BYTES, Role};
use aktis_logic::Time;
use aktis_logic::machine::placer::PlacerInput;
use aktis_protocol::control::decode;
use aktis_protocol::member::{Departure, FromControl, NamedActor};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::tables::{Notice, Sender, Table};
use aktis_protocol::{Epoch, Labels, NodeId, Resources};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A node with a link.
struct Member {
    epoch: Epoch,
    link: Link,
    is_welcome: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Members {
    linked: BTreeMap<NodeId, Member>,
    /// Those that are on disk, with or without a link: what all nodes know.
    published: BTreeMap<NodeId, NodeInfo>,
}

impl Members {
    /// Those that are on disk at the beginning.
    pub(super) fn new(nodes: Vec<NodeInfo>) -> Self {
        let published = nodes.into_iter().map(|info| (info.node, info)).collect();
        Self { linked: BTreeMap::new(), published }
    }

    /// Whether a node has joined over this link, and not left since.
    pub(super) fn has_joined(&self, node: NodeId, link: &Link) -> bool {
        self.linked.get(&node).is_some_and(|member| member.link.is_same(link))
    }

    /// Those that have joined, and are not on disk yet.
    pub(super) fn unwelcome(&self) -> Vec<(NodeId, Epoch)> {
        let waiting = self.linked.iter().filter(|(_, member)| !member.is_welcome);
        waiting.map(|(node, member)| (*node, member.epoch)).collect()
    }

    /// Sends a message to a member.
    pub(super) fn send(&self, to: NodeId, message: &FromControl) {
        if let Some(member) = self.linked.get(&to) {
            send(&member.link, message);
        }
    }

    fn tell_others(&self, about: NodeId, message: &FromControl) {
        let others = self.linked.iter().filter(|(node, member)| **node != about && member.is_welcome);
        others.for_each(|(_, member)| send(&member.link, message));
    }
}

impl State {
    pub(super) fn on_joined(
        &mut self,
        now: Time,
        node: NodeId,
        link: &Link,
        held: Option<Epoch>,
        (address, labels, resources): (SocketAddr, Labels, Resources),
        names: Vec<NamedActor>,
    ) {
        let Some(tables) = &self.tables else { return };
        let epoch = match held.filter(|held| self.membership.on_heartbeat(now, node, *held).is_ok()) {
            Some(held) => held,
            None => match self.membership.on_joined(now, node) {
                Ok(joined) => joined.epoch,
                Err(error) => return link.close(&error.to_string()),
            },
        };
        let info = NodeInfo { node, epoch, address, labels, resources };
        let is_published = self.members.published.get(&node) == Some(&info);
        if !is_published {
            tables.keep_node(&info, self.membership.next_epoch());
        }
        self.members.linked.insert(node, Member { epoch, link: link.clone(), is_welcome: false });
        self.on_names_told(node, link, names);
        if is_published {
            self.welcome(now, node);
        }
    }

    /// A row of nodes is on disk, or has gone from there.
    pub(super) fn on_published(&mut self, now: Time, notice: &Notice) {
        let Notice::Row { table: Table::Nodes, key, value } = notice else { return };
        let Some(node) = node_in(key) else { return };
        let info = value.as_ref().and_then(|value| decode::<NodeInfo>(value).ok());
        let before = match &info {
            Some(info) => self.members.published.insert(node, info.clone()),
            None => self.members.published.remove(&node),
        };
        if let Some(before) =
            before.filter(|before| info.as_ref().is_none_or(|now| now.epoch != before.epoch))
        {
            self.members.tell_others(node, &FromControl::NodeLeft { node, epoch: before.epoch });
        }
        let Some(info) = info else { return };
        let epoch = info.epoch;
        self.members.tell_others(node, &FromControl::NodeJoined { info });
        if self.members.linked.get(&node).is_some_and(|member| member.epoch == epoch && !member.is_welcome) {
            self.welcome(now, node);
        }
    }

    /// A node with a link is on disk.
    fn welcome(&mut self, now: Time, node: NodeId) {
        let Members { linked, published } = &mut self.members;
        let (Some(member), Some(info)) = (linked.get_mut(&node), published.get(&node).cloned()) else {
            return;
        };
        member.is_welcome = true;
        // Its heartbeats begin now.
        let _ = self.membership.on_heartbeat(now, node, info.epoch);
        let others = published.values().filter(|other| other.node != node).cloned().collect();
        send(&member.link, &FromControl::Welcome { epoch: info.epoch, nodes: others });
        self.step(now, PlacerInput::NodeJoined { info });
    }

    /// A membership is over: the node has left, or its lease has lapsed.
    pub(super) fn on_left(&mut self, now: Time, node: NodeId, epoch: Epoch, why: Departure) {
        self.members.send(node, &FromControl::Expelled { epoch });
        self.members.linked.remove(&node);
        // First: who is in no table never leaves it, and would keep its names.
        self.on_names_left(now, node);
        if let Some(tables) = &self.tables {
            if let Some(info) = self.members.published.get(&node) {
                tables.keep_dead_node(info, why);
            }
            let sender = Sender { node, epoch: epoch.0 };
            tables.forget_node(sender);
            let members = self.membership.members().map(|(node, _)| node);
            tables.end_programs([node].into(), members.collect());
            self.left.push_back((records_go(now), sender));
        }
        self.step(now, PlacerInput::NodeLeft { node });
    }

    /// A member renews its certificate, or a machine returns that was one, and gets one for another id. Who it is was
    /// verified when its link began.
    pub(super) fn on_certificate_wanted(
        &self,
        node: NodeId,
        link: &Link,
        public_key: [u8; PUBLIC_KEY_BYTES],
    ) {
        match self.authority.certify(node, Role::Node, public_key) {
            Ok(certificate) => {
                let lifetime_milliseconds = self.authority.lifetime().as_millis() as u64;
                send(link, &FromControl::Certified { certificate, lifetime_milliseconds });
            }
            Err(error) => eprintln!("aktis: the certificate of node {node} was not renewed: {error}"),
        }
    }

    /// A link is over. A node that has not said that it leaves stays a member until its lease lapses.
    pub(super) fn on_link_closed(&mut self, now: Time, node: NodeId, link: &Link, leaves: bool) {
        // Unless it has joined again over another link.
        let current = self.members.linked.get(&node).filter(|member| member.link.is_same(link));
        let Some(epoch) = current.map(|member| member.epoch) else { return };
        self.members.linked.remove(&node);
        if leaves && self.membership.on_left(node, epoch) {
            self.on_left(now, node, epoch, Departure::Left);
        }
    }
}
