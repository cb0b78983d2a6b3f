//! Links between nodes: who dials whom, what is under way, and how links end.
//!
//! The node with the lower id dials. Frames of a link keep their order; a link may be held up in one direction, or break,
//! which its two ends learn at different times.

use super::{Doing, Machines};
use crate::head::{Cluster, Event};
use crate::world::Fetch;
use aktis_logic::Time;
use aktis_logic::machine::control_client::{ControlClientEffect, ControlClientInput};
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::control::ToNode;
use aktis_protocol::peer::Frame;
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::{Epoch, NodeId};
use std::collections::VecDeque;

/// The pause between two attempts to reach another node.
const DIAL_AGAIN_MICROSECONDS: u64 = 100_000;
/// How long a value takes to be copied at most.
const FETCH_MICROSECONDS_MAX: u64 = 20_000;

/// A link of this simulation. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerLinkId(pub(super) u64);

/// What a node knows of another one, beside the proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbour {
    epoch: Epoch,
    is_member: bool,
    is_dialling: bool,
    linked: Option<(PeerLinkId, Epoch)>,
    /// The membership in which there was a link that ended, until the node has heard what became of it.
    parted: Option<Epoch>,
}

impl Neighbour {
    /// Whether the node is no member any more, or in another membership, since there was a link.
    fn has_left(&mut self, now: Option<Epoch>) -> bool {
        self.parted.take_if(|parted| now.is_none_or(|now| now > *parted)).is_some()
    }

    pub(super) fn is_linked(&self) -> bool {
        self.linked.is_some()
    }
}

/// A link between two nodes, in both directions.
pub(super) struct PeerLink {
    /// The numbers of the nodes at its ends.
    ends: [usize; 2],
    frames: [VecDeque<Frame>; 2],
    /// When the last frame arrives, in each direction.
    at: [Time; 2],
    /// Until when frames of a direction are held up.
    held_up: [Time; 2],
    is_broken: bool,
}

impl PeerLink {
    /// How many frames are under way to an end.
    fn under_way(&self, to: usize) -> usize {
        self.frames[to].len()
    }
}

fn number_of(node: NodeId) -> usize {
    node.to_words()[0] as usize - 1
}

impl Cluster<Machines> {
    /// Carries out what a client orders about other nodes.
    pub(super) fn on_members_order(&mut self, number: usize, effect: ControlClientEffect) {
        match effect {
            ControlClientEffect::ResetNeighbours => self.reset_links(number),
            ControlClientEffect::SetMembers { epoch, nodes } => {
                if let Some(host) = &mut self.nodes[number] {
                    (host.epoch, host.is_expelled) = (epoch, false);
                }
                self.on_members(number, &nodes);
            }
            ControlClientEffect::AddMember { info } => self.on_joined(number, &info),
            ControlClientEffect::RemoveMember { node, epoch } => self.on_left(number, node, epoch),
            other => unreachable!("{other:?}"),
        }
    }

    fn on_joined(&mut self, number: usize, info: &NodeInfo) {
        let Some(host) = &mut self.nodes[number] else { return };
        let neighbour = host.neighbours.entry(info.node).or_default();
        (neighbour.epoch, neighbour.is_member) = (info.epoch, true);
        let has_left = neighbour.has_left(Some(info.epoch));
        let dials = info.node > host.id
            && neighbour.linked.is_none()
            && !std::mem::replace(&mut neighbour.is_dialling, true);
        if has_left {
            host.world().input(NodeInput::NodeLeft { node: info.node });
        }
        if dials {
            let pause = self.random.below(5_000);
            self.after(pause, Event::Of(Doing::Dialled(number, info.node)));
        }
    }

    fn on_members(&mut self, number: usize, members: &[NodeInfo]) {
        let Some(host) = &mut self.nodes[number] else { return };
        host.neighbours.values_mut().for_each(|neighbour| neighbour.is_member = false);
        let is_gone = |node: &NodeId, neighbour: &mut Neighbour| {
            neighbour.linked.is_none() && members.iter().all(|info| info.node != *node)
        };
        let gone: Vec<_> = host.neighbours.extract_if(.., is_gone).collect();
        for (node, mut neighbour) in gone {
            if neighbour.has_left(None) {
                host.world().input(NodeInput::NodeLeft { node });
            }
        }
        members.iter().for_each(|info| self.on_joined(number, info));
    }

    fn on_left(&mut self, number: usize, node: NodeId, epoch: Epoch) {
        let Some(host) = &mut self.nodes[number] else { return };
        let Some(neighbour) = host.neighbours.get_mut(&node) else { return };
        neighbour.is_member = false;
        if neighbour.linked.is_some_and(|(_, linked)| linked > epoch) {
            return;
        }
        let (link, has_left) = (neighbour.linked, neighbour.has_left(None));
        if link.is_none() {
            host.neighbours.remove(&node);
        }
        if has_left {
            host.world().input(NodeInput::NodeLeft { node });
        }
        if let Some((link, _)) = link {
            self.break_peer_link(link);
        }
    }

    /// The cluster has given this node up.
    fn reset_links(&mut self, number: usize) {
        let Some(host) = &mut self.nodes[number] else { return };
        host.world().input(NodeInput::Expelled);
        host.is_expelled = true;
        host.memberships_lost += 1;
        let links: Vec<_> = host.neighbours.values().filter_map(|neighbour| neighbour.linked).collect();
        links.into_iter().for_each(|(link, _)| self.break_peer_link(link));
    }

    /// A node dials another one.
    pub(super) fn on_peer_dialled(&mut self, number: usize, node: NodeId) {
        let Some(host) = &mut self.nodes[number] else { return };
        let (own, expelled) = (host.epoch, host.is_expelled);
        let Some(neighbour) = host.neighbours.get_mut(&node) else { return };
        let is_wanted = neighbour.is_member && neighbour.linked.is_none() && !expelled;
        neighbour.is_dialling = is_wanted;
        if !is_wanted {
            return;
        }
        let (meant, other) = (neighbour.epoch, number_of(node));
        let dialler = host.id;
        let is_reached = self.is_over || !self.random.chance(10);
        let accepts = is_reached
            && self.paused.get(&other).is_none_or(|until| *until <= self.now)
            && self.nodes.get(other).and_then(Option::as_ref).is_some_and(|other| {
                let is_meant = if other.is_expelled { meant > other.epoch } else { meant >= other.epoch };
                let known = other.neighbours.get(&dialler);
                let is_published = known.is_some_and(|known| known.is_member && known.epoch == own);
                is_meant && is_published && known.is_none_or(|known| known.linked.is_none())
            });
        if !accepts {
            return self.after(DIAL_AGAIN_MICROSECONDS, Event::Of(Doing::Dialled(number, node)));
        }
        self.members.last_link += 1;
        let link = PeerLinkId(self.members.last_link);
        self.note(format_args!("{link:?} between {number} and {other}"));
        let frames = [VecDeque::new(), VecDeque::new()];
        let (at, held_up) = ([self.now; 2], [Time(0); 2]);
        let ends = [number, other];
        self.members.links.insert(link, PeerLink { ends, frames, at, held_up, is_broken: false });
        self.begin_link(number, node, meant, link);
        self.begin_link(other, dialler, own, link);
    }

    fn begin_link(&mut self, number: usize, node: NodeId, epoch: Epoch, link: PeerLinkId) {
        let host = self.nodes[number].as_mut().expect("it has a link");
        host.advance(self.now);
        host.add_proxy(node);
        let neighbour = host.neighbours.entry(node).or_default();
        neighbour.is_dialling = false;
        neighbour.linked = Some((link, epoch));
        let has_left = neighbour.has_left(Some(epoch));
        let is_back = neighbour.parted.take().is_some();
        if has_left {
            host.world().input(NodeInput::NodeLeft { node });
        } else if is_back {
            host.world().input(NodeInput::NodeBack { node });
        }
        self.wake(number, self.now);
    }

    /// What the proxies of a node want sent is on its way.
    pub(super) fn send_frames(&mut self, number: usize) {
        let Some(host) = &mut self.nodes[number] else { return };
        let mut sent = Vec::new();
        for (node, proxy) in &mut host.proxies {
            let Some((link, _)) = host.neighbours.get(node).and_then(|neighbour| neighbour.linked) else {
                continue;
            };
            sent.extend(proxy.machine.outbox().drain(..).map(|frame| (link, frame)));
        }
        for (id, frame) in sent {
            let delay = 20 + self.random.below(self.swarm.delay_max);
            let now = self.now;
            let Some(link) = self.members.links.get_mut(&id).filter(|link| !link.is_broken) else { continue };
            let to = usize::from(link.ends[0] == number);
            let at = Time((now.0 + delay).max(link.at[to].0).max(link.held_up[to].0));
            link.at[to] = at;
            link.frames[to].push_back(frame);
            assert!(link.under_way(to) < super::FRAMES_MAX, "{id:?} has too many frames");
            self.at(at, Event::Of(Doing::FrameCame(id, to)));
        }
    }

    /// The next frame of a link arrives.
    pub(super) fn on_frame_came(&mut self, id: PeerLinkId, to: usize) {
        let Some(link) = self.members.links.get_mut(&id).filter(|link| !link.is_broken) else { return };
        let Some(frame) = link.frames[to].pop_front() else { return };
        let (from, number) = (link.ends[1 - to], link.ends[to]);
        let Some(from) = self.nodes[from].as_ref().map(|host| host.id) else { return };
        self.note(format_args!("{id:?} to {number}: {frame:?}"));
        self.members.frames += 1;
        let now = self.now;
        let Some(host) = &mut self.nodes[number] else { return };
        host.advance(now);
        if let Some(proxy) = host.proxies.get_mut(&from) {
            proxy.machine.begin_turn();
            proxy.machine.on_frame(now, frame);
            proxy.settle();
        }
        self.wake(number, now);
    }

    /// A link breaks: nothing more arrives, and its ends learn of it.
    pub(super) fn break_peer_link(&mut self, id: PeerLinkId) {
        let slow = if self.is_over { 1_000 } else { 1_000_000 };
        let pauses = [self.random.below(slow), self.random.below(slow)];
        let Some(link) = self.members.links.get_mut(&id).filter(|link| !link.is_broken) else { return };
        link.is_broken = true;
        let ends = link.ends;
        self.note(format_args!("{id:?} breaks"));
        for (number, pause) in ends.into_iter().zip(pauses) {
            self.after(pause, Event::Of(Doing::LinkEnded(number, id)));
        }
    }

    /// Holds up one direction of a link.
    pub(super) fn hold_up(&mut self, id: PeerLinkId, to: usize, until: Time) {
        if let Some(link) = self.members.links.get_mut(&id) {
            link.held_up[to] = until;
        }
    }

    pub(super) fn live_peer_links(&self) -> Vec<PeerLinkId> {
        self.members.links.iter().filter(|(_, link)| !link.is_broken).map(|(id, _)| *id).collect()
    }

    /// The links of a node that are not broken.
    pub(super) fn links_of(&self, number: usize) -> Vec<PeerLinkId> {
        let links = self.members.links.iter();
        let its = links.filter(|(_, link)| !link.is_broken && link.ends.contains(&number));
        its.map(|(id, _)| *id).collect()
    }

    /// A node learns that a link is over.
    pub(super) fn on_link_ended(&mut self, number: usize, id: PeerLinkId) {
        let now = self.now;
        let Some(link) = self.members.links.get(&id) else { return };
        let other = link.ends[usize::from(link.ends[0] == number)];
        let node = crate::head::node_id(other);
        let Some(host) = &mut self.nodes[number] else { return };
        let Some(neighbour) = host.neighbours.get_mut(&node) else { return };
        let Some((_, epoch)) = neighbour.linked.take_if(|(linked, _)| *linked == id) else { return };
        neighbour.parted = Some(epoch);
        let (is_member, current) = (neighbour.is_member, neighbour.epoch);
        host.advance(now);
        host.end_proxy(now, node);
        let neighbour = host.neighbours.get_mut(&node).expect("just found");
        let has_left = neighbour.has_left(is_member.then_some(current));
        let dials = is_member && node > host.id && !std::mem::replace(&mut neighbour.is_dialling, true);
        if !is_member {
            host.neighbours.remove(&node);
        }
        if has_left {
            host.world().input(NodeInput::NodeLeft { node });
        }
        if dials {
            self.after(1_000, Event::Of(Doing::Dialled(number, node)));
        }
        self.wake(number, now);
    }

    /// Copies that a node wants from others are under way.
    pub(super) fn start_fetches(&mut self, number: usize) {
        let Some(host) = &mut self.nodes[number] else { return };
        let fetches: Vec<Fetch> = host.world().fetches.iter().copied().collect();
        let new: Vec<Fetch> =
            fetches.into_iter().filter(|fetch| !self.members.fetches.contains(&(number, *fetch))).collect();
        for fetch in new {
            self.members.fetches.insert((number, fetch));
            let pause = 50 + self.random.below(FETCH_MICROSECONDS_MAX);
            self.after(pause, Event::Of(Doing::Fetched(number, fetch)));
        }
    }

    /// A copy has come, as far as the other node can serve it.
    pub(super) fn on_fetched(&mut self, number: usize, fetch: Fetch) {
        self.members.fetches.remove(&(number, fetch));
        let now = self.now;
        let Some(host) = &mut self.nodes[number] else { return };
        host.advance(now);
        let is_wanted = host.world().fetches.contains(&fetch);
        if !is_wanted {
            return;
        }
        let (me, from) = (host.id, host.node_of(fetch.peer).expect("fetches end with their link"));
        let outcome = match self.serve(number_of(from), me, fetch) {
            // It is not there yet.
            None => return self.wake(number, Time(now.0 + 5_000)),
            Some(outcome) => outcome,
        };
        let host = self.nodes[number].as_mut().expect("it wants it");
        host.world().fetches.retain(|other| *other != fetch);
        host.world().finish_fetch(fetch, outcome);
        self.wake(number, now);
    }

    /// Whether a node can serve an object to another one; nothing if it has to get the object first.
    fn serve(&mut self, number: usize, to: NodeId, fetch: Fetch) -> Option<Result<(), String>> {
        let object = fetch.object;
        let now = self.now;
        let Some(host) = self.nodes[number].as_mut() else { return Some(Err("the node is gone".to_owned())) };
        host.advance(now);
        let Some(proxy) = host.proxies.get(&to).filter(|proxy| proxy.machine.exported(object).is_some())
        else {
            return Some(Err(format!("{object} is not exported")));
        };
        let slot = proxy.port.slot;
        let copy = {
            let mut world = host.world();
            while world.arrive() {}
            world.node.copy_of(object)
        };
        match copy {
            Some((_, None)) => Some(Ok(())),
            Some((_, Some(_))) => {
                // It fetches the object, or finds out that it is lost.
                host.world().send(slot, ToNode::RestoreWanted { request: 4, object });
                self.wake(number, now);
                None
            }
            None => Some(Err(format!("{object} is gone there"))),
        }
    }

    /// Gives what a node's client is told of its links.
    pub(super) fn links_seen(&self, number: usize) -> ControlClientInput {
        let host = self.nodes[number].as_ref().expect("its client has asked");
        ControlClientInput::LinksSeen { nodes: host.proxies.keys().copied().collect() }
    }
}
