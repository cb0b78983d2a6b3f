//! The nodes of the cluster, as the control process knows them.

use super::{State, send};
use aktis_io::Link;
use aktis_logic::Time;
use aktis_logic::machine::placer::PlacerInput;
use aktis_protocol::member::{FromControl, NamedActor};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::{Epoch, Labels, NodeId, Resources};
use std::collections::BTreeMap;
use std::net::SocketAddr;

struct Member {
    info: NodeInfo,
    link: Link,
}

/// See the module.
#[derive(Default)]
pub(super) struct Members(BTreeMap<NodeId, Member>);

impl Members {
    /// Sends a message to a member.
    pub(super) fn send(&self, to: NodeId, message: &FromControl) {
        if let Some(member) = self.0.get(&to) {
            send(&member.link, message);
        }
    }

    fn tell_others(&self, about: NodeId, message: &FromControl) {
        self.0.iter().filter(|(node, _)| **node != about).for_each(|(_, member)| send(&member.link, message));
    }
}

impl State {
    pub(super) fn on_joined(
        &mut self,
        now: Time,
        node: NodeId,
        link: &Link,
        (address, labels, resources): (SocketAddr, Labels, Resources),
        names: Vec<NamedActor>,
    ) {
        let joined = match self.membership.on_joined(now, node) {
            Ok(joined) => joined,
            Err(error) => return link.close(&error.to_string()),
        };
        if let Some(epoch) = joined.replaced {
            self.forget(now, node, epoch);
        }
        let info = NodeInfo { node, epoch: joined.epoch, address, labels, resources };
        let nodes = self.members.0.values().map(|member| member.info.clone()).collect();
        send(link, &FromControl::Welcome { epoch: joined.epoch, nodes });
        self.members.0.insert(node, Member { info: info.clone(), link: link.clone() });
        self.members.tell_others(node, &FromControl::NodeJoined { info: info.clone() });
        for actor in names {
            let (name, id) = (actor.name.clone(), actor.found.actor);
            let granted = self.names.claim(node, actor);
            send(link, &FromControl::NameClaimed { name, actor: id, granted });
        }
        self.step(now, PlacerInput::NodeJoined { info });
    }

    /// A membership is over: the node has left, or its lease has lapsed.
    pub(super) fn on_left(&mut self, now: Time, node: NodeId, epoch: Epoch) {
        self.members.send(node, &FromControl::Expelled);
        self.forget(now, node, epoch);
    }

    fn forget(&mut self, now: Time, node: NodeId, epoch: Epoch) {
        if self.members.0.remove(&node).is_some() {
            self.members.tell_others(node, &FromControl::NodeLeft { node, epoch });
            self.names.forget_node(node);
            self.step(now, PlacerInput::NodeLeft { node });
        }
    }

    pub(super) fn on_link_closed(&mut self, now: Time, node: NodeId, link: &Link) {
        // Unless it has joined again over another link.
        let current = self.members.0.get(&node).filter(|member| member.link.is_same(link));
        let Some(epoch) = current.map(|member| member.info.epoch) else { return };
        if self.membership.on_left(node, epoch) {
            self.forget(now, node, epoch);
        }
    }
}
