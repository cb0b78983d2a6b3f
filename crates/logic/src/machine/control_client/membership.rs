//! The membership of this node: the link to the control process, and joining over it.

use super::{ControlClient, ControlClientEffect};
use crate::{Effects, LinkId, Time};
use aktis_protocol::limits::{NODE_HEARTBEAT_MICROSECONDS, NODE_REPORT_MICROSECONDS};
use aktis_protocol::member::{FromControl, ToControl};
use aktis_protocol::placement::{NodeInfo, NodeReport, ToPlacer};
use aktis_protocol::{Epoch, NodeId};
use std::collections::BTreeMap;

/// The pause between two attempts to reach the control process.
pub const DIAL_AGAIN_MICROSECONDS: u64 = 100_000;

/// How this node stands with the control process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Connection {
    /// There is no link, and the control process is dialled at the next tick.
    #[default]
    Unlinked,
    /// The control process is being dialled.
    Dialling,
    /// This node has said that it joins.
    Joining(LinkId),
    /// The control process has welcomed this node.
    Member(LinkId),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Membership {
    connection: Connection,
    /// The membership, which outlives its links.
    epoch: Option<Epoch>,
    /// The epoch of the last welcome.
    last_epoch: Option<Epoch>,
    /// The other members, as far as this node was told.
    nodes: BTreeMap<NodeId, NodeInfo>,
    /// When the control process was lost, if it was, and is not back.
    away_since: Option<Time>,
    next_tick: Time,
    next_heartbeat: Time,
    /// What the placer was told last over the present link.
    last_report: Option<NodeReport>,
}

impl Membership {
    fn link(&self) -> Option<LinkId> {
        match self.connection {
            Connection::Unlinked | Connection::Dialling => None,
            Connection::Joining(link) | Connection::Member(link) => Some(link),
        }
    }

    /// The link over which this node was welcomed.
    pub(super) fn member_link(&self) -> Option<LinkId> {
        match self.connection {
            Connection::Member(link) => Some(link),
            Connection::Unlinked | Connection::Dialling | Connection::Joining(_) => None,
        }
    }

    /// The link over which this node was welcomed, and its epoch.
    pub(super) fn present(&self) -> Option<(LinkId, Epoch)> {
        self.member_link().zip(self.epoch)
    }

    pub(super) fn on_dial_failed(&mut self, now: Time) {
        self.connection = Connection::Unlinked;
        self.next_tick = Time(now.0 + DIAL_AGAIN_MICROSECONDS);
    }

    pub(super) fn next_tick(&self) -> Time {
        self.next_tick
    }
}

impl ControlClient {
    /// The epoch of this node, if it has a membership that nobody has ended, with or without a link.
    pub fn epoch(&self) -> Option<Epoch> {
        self.membership.epoch
    }

    /// Whether the control process has welcomed this node over the present link.
    pub fn is_member(&self) -> bool {
        self.membership.member_link().is_some()
    }

    /// The other members, as far as this node was told.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.membership.nodes.values()
    }

    /// How long the control process has been away, if it is.
    pub fn away_microseconds(&self, now: Time) -> Option<u64> {
        let since = self.membership.away_since;
        (!self.is_member()).then(|| since.map_or(0, |since| now.0.saturating_sub(since.0)))
    }

    pub(super) fn on_linked(&mut self, now: Time, link: LinkId, out: &mut Effects<ControlClientEffect>) {
        self.membership.next_tick = Time(now.0 + NODE_REPORT_MICROSECONDS);
        self.join(link, out);
    }

    /// Says over a link that this node joins, and tells all its names.
    fn join(&mut self, link: LinkId, out: &mut Effects<ControlClientEffect>) {
        self.membership.connection = Connection::Joining(link);
        let (held, names) = (self.membership.epoch, self.names.tell_all());
        let NodeInfo { address, labels, resources, .. } = self.own.clone();
        let message = ToControl::Joined { held, address, labels, resources, names };
        out.push(ControlClientEffect::Send { link, message });
    }

    pub(super) fn on_link_ended(&mut self, now: Time, link: LinkId, out: &mut Effects<ControlClientEffect>) {
        if self.membership.link() != Some(link) {
            return;
        }
        if self.membership.member_link().is_some() {
            self.membership.away_since = Some(now);
        }
        self.membership.connection = Connection::Unlinked;
        self.membership.next_tick = Time(now.0 + DIAL_AGAIN_MICROSECONDS);
        self.names.on_link_ended();
        // The stand-in places nothing on nodes without links.
        out.push(ControlClientEffect::LookAtLinks);
        self.on_control_away(out);
    }

    pub(super) fn on_received(
        &mut self,
        now: Time,
        link: LinkId,
        message: FromControl,
        out: &mut Effects<ControlClientEffect>,
    ) {
        if self.membership.link() != Some(link) {
            return;
        }
        let is_member = self.is_member();
        match message {
            FromControl::Welcome { epoch, nodes } => self.on_welcome(now, link, epoch, nodes, out),
            FromControl::Expelled { epoch } => self.on_expelled(link, epoch, out),
            FromControl::Dismissed { why } => out.push(ControlClientEffect::End { why }),
            FromControl::NameClaimed { name, actor, granted } => {
                self.on_name_claimed(name, actor, granted, out);
            }
            FromControl::Certified { certificate, lifetime_milliseconds, authorities, serial } => {
                out.push(ControlClientEffect::Renew {
                    certificate,
                    lifetime_milliseconds,
                    authorities,
                    serial,
                });
            }
            FromControl::CertificateChanged => out.push(ControlClientEffect::RenewNow),
            FromControl::Answered { number, reply } => self.on_answered(now, number, reply, out),
            FromControl::NodeJoined { info } if is_member => {
                self.membership.nodes.insert(info.node, info.clone());
                out.push(ControlClientEffect::AddMember { info });
            }
            FromControl::NodeLeft { node, epoch } if is_member => self.on_node_left(node, epoch, out),
            FromControl::Placer { message } if is_member => self.on_placer(now, message, out),
            // Of a membership that is over: the welcome to the next one tells everything anew.
            FromControl::NodeJoined { .. } | FromControl::NodeLeft { .. } | FromControl::Placer { .. } => {}
        }
    }

    fn on_node_left(&mut self, node: NodeId, epoch: Epoch, out: &mut Effects<ControlClientEffect>) {
        if self.membership.nodes.get(&node).is_some_and(|info| info.epoch <= epoch) {
            self.membership.nodes.remove(&node);
            out.push(ControlClientEffect::RemoveMember { node, epoch });
        }
    }

    fn on_welcome(
        &mut self,
        now: Time,
        link: LinkId,
        epoch: Epoch,
        nodes: Vec<NodeInfo>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let membership = &mut self.membership;
        let held = membership.epoch.replace(epoch);
        let is_new = membership.last_epoch.replace(epoch).is_some_and(|last| last != epoch);
        membership.connection = Connection::Member(link);
        membership.away_since = None;
        membership.nodes = nodes.iter().map(|info| (info.node, info.clone())).collect();
        membership.last_report = None;
        membership.next_heartbeat = Time(now.0 + NODE_HEARTBEAT_MICROSECONDS);
        if held.is_some_and(|held| held != epoch) {
            // As if it had been expelled, which nobody could tell it.
            out.push(ControlClientEffect::ResetNeighbours);
        }
        out.push(ControlClientEffect::SetMembers { epoch, nodes });
        self.on_control_back(out);
        if is_new {
            self.on_membership_lost(now, out);
        }
    }

    /// A membership is over. Each heartbeat that came too late is answered so: only the present membership counts.
    fn on_expelled(&mut self, link: LinkId, epoch: Epoch, out: &mut Effects<ControlClientEffect>) {
        if self.membership.epoch != Some(epoch) {
            return;
        }
        self.membership.epoch = None;
        // The others have given this node up: nothing of what is between them and it counts any more.
        self.on_control_away(out);
        out.push(ControlClientEffect::ResetNeighbours);
        self.join(link, out);
    }

    pub(super) fn on_time(&mut self, now: Time, out: &mut Effects<ControlClientEffect>) {
        if now < self.membership.next_tick {
            return;
        }
        self.give_up_waiting(now, out);
        self.look_up_again(now, out);
        match self.membership.connection {
            Connection::Unlinked => {
                self.membership.connection = Connection::Dialling;
                out.push(ControlClientEffect::Dial);
            }
            Connection::Member(link) => {
                if now >= self.membership.next_heartbeat
                    && let Some(epoch) = self.membership.epoch
                {
                    self.membership.next_heartbeat = Time(now.0 + NODE_HEARTBEAT_MICROSECONDS);
                    out.push(ControlClientEffect::Send { link, message: ToControl::Heartbeat { epoch } });
                }
                out.push(ControlClientEffect::LookAtNode);
            }
            Connection::Dialling | Connection::Joining(_) => {}
        }
        let pause = match self.membership.link() {
            Some(_) => NODE_REPORT_MICROSECONDS,
            None => {
                out.push(ControlClientEffect::LookAtLinks);
                DIAL_AGAIN_MICROSECONDS
            }
        };
        self.membership.next_tick = Time(now.0 + pause);
    }

    /// Tells the placer how this node stands, if that is news.
    pub(super) fn on_node_seen(&mut self, report: NodeReport, out: &mut Effects<ControlClientEffect>) {
        let Some((link, epoch)) = self.membership.present() else { return };
        if report.run_times.is_empty() && self.membership.last_report.as_ref() == Some(&report) {
            return;
        }
        let message = ToPlacer::Reported { report: report.clone() };
        out.push(ControlClientEffect::Send { link, message: ToControl::Placer { epoch, message } });
        self.membership.last_report = Some(report);
    }
}
