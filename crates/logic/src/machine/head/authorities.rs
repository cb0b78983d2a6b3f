//! Which members have taken over the present authorities of the cluster, which a rotation of the authority's key waits for.
//!
//! Invariant: a linked member that has not is told that there are others, when they change and at each welcome.

use super::{Head, HeadEffect};
use crate::{Effects, LinkId};
use aktis_protocol::NodeId;
use aktis_protocol::member::FromControl;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Authorities {
    /// How often they have changed.
    serial: u64,
    /// What each member uses, as far as it has said so.
    serials_used: BTreeMap<NodeId, u64>,
}

impl Head {
    /// The authorities of the cluster have changed.
    pub fn on_authorities_changed(&mut self, serial: u64, out: &mut Effects<HeadEffect>) {
        self.authorities.serial = serial;
        let links: Vec<(NodeId, LinkId)> = self.members.links().collect();
        links.into_iter().for_each(|(node, link)| self.tell_authorities(node, link, out));
    }

    /// Tells a member that it has to ask for a certificate, if it has to.
    pub(super) fn tell_authorities(&self, node: NodeId, link: LinkId, out: &mut Effects<HeadEffect>) {
        if !self.authorities.is_used_by(node) {
            out.push(HeadEffect::Send { link, message: FromControl::CertificateChanged });
        }
    }

    pub(super) fn on_certificate_used(&mut self, from: NodeId, serial: u64) {
        let Self { authorities, membership, .. } = self;
        authorities.serials_used.insert(from, serial);
        authorities.serials_used.retain(|node, _| membership.epoch(*node).is_some());
    }

    /// The members that have not taken the present authorities over, and how many have.
    pub fn authorities_unused(&self) -> (Vec<NodeId>, u32) {
        let (used, unused): (Vec<NodeId>, Vec<NodeId>) =
            self.members.nodes().into_iter().partition(|node| self.authorities.is_used_by(*node));
        (unused, used.len() as u32)
    }
}

impl Authorities {
    fn is_used_by(&self, node: NodeId) -> bool {
        self.serial == 0 || self.serials_used.get(&node) == Some(&self.serial)
    }
}
