//! The links between nodes and the control process.

use super::{Cluster, Event, MESSAGES_MAX};
use aktis_logic::machine::control_client::ControlClientInput;
use aktis_logic::machine::head::{HeadEffect, HeadInput};
use aktis_logic::{LinkId, Machine, Time};
use aktis_protocol::NodeId;
use aktis_protocol::member::{FromControl, PublicKey, ToControl};
use std::collections::VecDeque;

/// Messages that each wire keeps, to come late.
const GHOSTS_MAX: usize = 8;

/// One link. Each end may believe in it after the other has given it up.
pub(super) struct Wire {
    pub(super) node: usize,
    /// The life of the control process that it leads to.
    life: u64,
    to_head: VecDeque<ToControl>,
    to_node: VecDeque<FromControl>,
    /// When the last message arrives, in each direction.
    head_at: Time,
    node_at: Time,
    /// Nothing that is under way arrives any more.
    is_broken: bool,
    /// Until when messages of a direction are held up.
    pub(super) clogged_to_head: Time,
    pub(super) clogged_to_node: Time,
    old_to_head: VecDeque<ToControl>,
    old_to_node: VecDeque<FromControl>,
}

impl Cluster {
    fn delay(&mut self) -> u64 {
        50 + self.random.below(self.swarm.delay_max)
    }

    pub(super) fn on_dialled(&mut self, number: usize) {
        let is_there = self.process.is_some() && !self.random.chance(if self.is_over { 0 } else { 5 });
        let Some(node) = &mut self.nodes[number] else { return };
        if !is_there {
            return self.step_node(number, ControlClientInput::DialFailed);
        }
        self.links += 1;
        let link = LinkId(self.links);
        node.link = Some(link);
        let wire = Wire {
            node: number,
            life: self.lives,
            to_head: VecDeque::new(),
            to_node: VecDeque::new(),
            head_at: self.now,
            node_at: self.now,
            is_broken: false,
            clogged_to_head: Time(0),
            clogged_to_node: Time(0),
            old_to_head: VecDeque::new(),
            old_to_node: VecDeque::new(),
        };
        self.wires.insert(link, wire);
        self.step_node(number, ControlClientInput::Linked { link });
    }

    pub(super) fn send_to_head(&mut self, link: LinkId, message: ToControl) {
        let delay = self.delay();
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.is_broken) else { return };
        wire.head_at = Time((self.now.0 + delay).max(wire.head_at.0).max(wire.clogged_to_head.0));
        wire.to_head.push_back(message);
        assert!(wire.to_head.len() < MESSAGES_MAX, "{link:?} has too many messages");
        let at = wire.head_at;
        self.at(at, Event::ToHead(link));
    }

    pub(super) fn send_to_node(&mut self, link: LinkId, message: FromControl) {
        let delay = self.delay();
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.is_broken) else { return };
        wire.node_at = Time((self.now.0 + delay).max(wire.node_at.0).max(wire.clogged_to_node.0));
        wire.to_node.push_back(message);
        assert!(wire.to_node.len() < MESSAGES_MAX, "{link:?} has too many messages");
        let at = wire.node_at;
        self.at(at, Event::ToNode(link));
    }

    pub(super) fn deliver_to_head(&mut self, link: LinkId) {
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.is_broken) else { return };
        let Some(message) = wire.to_head.pop_front() else { return };
        wire.old_to_head.push_back(message.clone());
        wire.old_to_head.truncate(GHOSTS_MAX);
        let from = self.nodes[wire.node].as_ref().map(|node| node.id);
        if let Some(from) = from {
            self.step_head(HeadInput::Received { from, key: key_of(from), link, message });
        }
    }

    pub(super) fn deliver_to_node(&mut self, link: LinkId) {
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.is_broken) else { return };
        let Some(message) = wire.to_node.pop_front() else { return };
        wire.old_to_node.push_back(message.clone());
        wire.old_to_node.truncate(GHOSTS_MAX);
        let number = wire.node;
        self.step_node(number, ControlClientInput::Received { link, message });
    }

    /// A link breaks. Both ends learn of it, one perhaps much later than the other.
    pub(super) fn break_link(&mut self, link: LinkId, leaves: bool) {
        let slow = if leaves || self.is_over { 1_000 } else { 3_000_000 };
        let (head, node) = (self.random.below(slow), self.random.below(slow));
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.is_broken) else { return };
        wire.is_broken = true;
        let number = wire.node;
        self.note(format_args!("{link:?} of node {number} breaks"));
        self.after(head, Event::HeadLinkEnded(link, leaves));
        self.after(node, Event::NodeLinkEnded(number, link));
    }

    pub(super) fn on_head_link_ended(&mut self, link: LinkId, leaves: bool) {
        let Some(wire) = self.wires.get(&link).filter(|wire| wire.life == self.lives) else { return };
        let node = aktis_protocol::NodeId::from_words([wire.node as u64 + 1, 0]);
        self.step_head(HeadInput::LinkEnded { node, link, leaves });
    }

    pub(super) fn on_node_link_ended(&mut self, number: usize, link: LinkId) {
        if let Some(node) = self.nodes[number].as_mut() {
            node.link.take_if(|own| *own == link);
            self.step_node(number, ControlClientInput::LinkEnded { link });
        }
    }

    /// The links that are not broken.
    pub(super) fn live_links(&self) -> Vec<LinkId> {
        self.wires.iter().filter(|(_, wire)| !wire.is_broken).map(|(link, _)| *link).collect()
    }

    /// The life of the control process is over, and all links with it.
    pub(super) fn break_all_links(&mut self) {
        for link in self.live_links() {
            self.break_link(link, false);
        }
    }

    /// A message comes late, over a link that its node has replaced. Nothing may come of it.
    pub(super) fn haunt(&mut self) {
        let old: Vec<LinkId> =
            self.wires.iter().filter(|(_, wire)| wire.is_broken).map(|(link, _)| *link).collect();
        let Some(link) = self.random.pick(&old) else { return };
        let wire = &self.wires[&link];
        let (number, is_of_this_life) = (wire.node, wire.life == self.lives);
        let to_head = wire.old_to_head.front().cloned();
        let to_node = wire.old_to_node.front().cloned();
        let Some(node) = &mut self.nodes[number] else { return };
        if node.link.is_none_or(|own| own <= link) {
            return;
        }
        if let Some(message) = to_node {
            let mut effects = Vec::new();
            node.client.step(self.now, ControlClientInput::Received { link, message }, &mut effects);
            assert!(effects.is_empty(), "node {number} listens to an old link: {effects:?}");
            self.summary.ghosts += 1;
        }
        let from = node.id;
        let Some(process) = self.process.as_mut().filter(|_| is_of_this_life) else { return };
        // A node that joins over a link says so itself: this one cannot be told from the node.
        if let Some(message) = to_head.filter(|message| !matches!(message, ToControl::Joined { .. }))
            && process.has_ended(link)
        {
            let mut effects = Vec::new();
            let before = (process.head.names(), process.head.membership().next_wakeup());
            process.head.step(
                self.now,
                HeadInput::Received { from, key: key_of(from), link, message },
                &mut effects,
            );
            let expelled = |effect: &HeadEffect| {
                matches!(effect, HeadEffect::Send { message: FromControl::Expelled { .. }, .. })
            };
            assert!(effects.iter().all(expelled), "the head listens to an old link: {effects:?}");
            assert_eq!(before, (process.head.names(), process.head.membership().next_wakeup()));
            self.summary.ghosts += 1;
        }
    }
}

/// The key of a node's certificate. Each node has one of its own.
fn key_of(node: NodeId) -> PublicKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&node.to_words()[0].to_le_bytes());
    key
}
