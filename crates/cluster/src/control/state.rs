//! All that the control process knows, and what it does with what nodes say.

use super::clock::{Clock, FromTables};
use super::files::Files;
use super::members::Members;
use super::names::Names;
use super::tables::Tables;
use super::{ControlError, send};
use aktis_io::{Authority, Link};
use aktis_logic::machine::placer::{Placer, PlacerEffect, PlacerInput};
use aktis_logic::membership::Membership;
use aktis_logic::{Machine, Time};
use aktis_protocol::NodeId;
use aktis_protocol::member::{Departure, FromControl, ToControl};
use aktis_protocol::tables::Sender;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// See the module.
pub(super) struct State {
    pub(super) membership: Membership,
    pub(super) placer: Placer,
    pub(super) members: Members,
    pub(super) names: Names,
    /// Nodes whose memberships are over, and when the names go that nobody else has claimed.
    pub(super) estates: VecDeque<(Time, NodeId)>,
    /// Nodes whose memberships are over, and when their records go.
    pub(super) left: VecDeque<(Time, Sender)>,
    /// `None` at the end.
    pub(super) tables: Option<Tables>,
    /// Signs the certificates of members.
    pub(super) authority: Arc<Authority>,
}

/// How long what a node has told of objects and tasks stays after its membership: until those have said so who still hold
/// what it made.
const RECORDS_KEPT_MICROSECONDS: u64 = 10_000_000;

/// When the records of a node go whose membership ends now.
pub(super) fn records_go(now: Time) -> Time {
    Time(now.0 + RECORDS_KEPT_MICROSECONDS)
}

impl State {
    /// As it was left on disk.
    pub(super) fn load(
        files: &Files,
        authority: &Arc<Authority>,
        own: NodeId,
        clock: &Arc<Clock>,
    ) -> Result<Self, ControlError> {
        let (tables, found) = Tables::open(files, own, clock)?;
        let now = clock.now();
        let mut membership = Membership::new(found.next_epoch);
        let nodes: BTreeSet<NodeId> = found.nodes.iter().map(|info| info.node).collect();
        found.nodes.iter().for_each(|info| membership.restore(now, info.node, info.epoch));
        let (names, left) = Names::new(found.names, &found.nodes);
        tables.free_names(left.iter().map(String::as_str));
        // The last life may have ended before it had done that. Who is a member again has told anew what it runs.
        let left = found.left.iter().map(|sender| sender.node).filter(|node| !nodes.contains(node));
        tables.end_programs(left.collect(), nodes.clone());
        let mut state = Self {
            membership,
            placer: Placer::new(),
            members: Members::new(found.nodes),
            names,
            estates: VecDeque::new(),
            left: found.left.into_iter().map(|sender| (records_go(now), sender)).collect(),
            tables: Some(tables),
            authority: authority.clone(),
        };
        nodes.into_iter().for_each(|node| state.step(now, PlacerInput::NodeAwaited { node }));
        found.groups.into_iter().for_each(|row| state.step(now, PlacerInput::GroupRestored { row }));
        Ok(state)
    }

    /// Has all written that was changed; nothing is changed any more.
    pub(super) fn close(&mut self) {
        self.tables.take();
    }

    pub(super) fn on_message(&mut self, now: Time, from: NodeId, link: &Link, message: ToControl) {
        if let ToControl::Joined { held, address, labels, resources, names } = message {
            return self.on_joined(now, from, link, held, (address, labels, resources), names);
        }
        if !self.members.has_joined(from, link) {
            return self.on_message_of_no_member(from, link, &message);
        }
        match message {
            ToControl::Joined { .. } => unreachable!("handled above"),
            ToControl::Heartbeat { epoch } => {
                if self.membership.on_heartbeat(now, from, epoch).is_err() {
                    send(link, &FromControl::Expelled { epoch });
                }
            }
            ToControl::Placer { epoch, message } => {
                self.step(now, PlacerInput::Received { from, epoch, message });
            }
            ToControl::CertificateWanted { public_key } => {
                self.on_certificate_wanted(from, link, public_key);
            }
            ToControl::NameClaimed { actor } => self.on_name_claimed(from, link, actor),
            ToControl::NameFreed { name, actor } => self.on_name_freed(&name, from, actor),
            ToControl::Asked { number, question } => self.on_asked(from, link, number, question),
        }
    }

    /// A node has not joined over this link, has left since, or has joined over another link. A member speaks over the link
    /// over which it joined last; nothing else is done or answered.
    fn on_message_of_no_member(&self, from: NodeId, link: &Link, message: &ToControl) {
        // A node whose lease has lapsed learns so, and joins again: that makes it ask all questions anew.
        if let ToControl::Heartbeat { epoch } = message
            && !self.membership.is_current(from, *epoch)
        {
            send(link, &FromControl::Expelled { epoch: *epoch });
        }
    }

    pub(super) fn on_time(&mut self, now: Time) {
        // Who waits for the disk has no heartbeats yet; its link says whether it lives.
        for (node, epoch) in self.members.unwelcome() {
            let _ = self.membership.on_heartbeat(now, node, epoch);
        }
        for (node, epoch) in self.membership.lapse(now) {
            self.on_left(now, node, epoch, Departure::Lapsed);
        }
        self.free_estates(now);
        while let Some((_, sender)) = self.left.pop_front_if(|(due, _)| *due <= now) {
            self.tables.iter().for_each(|tables| tables.forget_records(sender));
        }
        if self.placer.next_wakeup().is_some_and(|due| due <= now) {
            self.step(now, PlacerInput::Ticked);
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let left = self.left.front().map(|(due, _)| *due);
        let estates = self.estates.front().map(|(due, _)| *due);
        [self.membership.next_wakeup(), self.placer.next_wakeup(), left, estates].into_iter().flatten().min()
    }

    pub(super) fn step(&mut self, now: Time, input: PlacerInput) {
        let mut effects = Vec::new();
        self.placer.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                PlacerEffect::Send { to, message } => self.members.send(to, &FromControl::Placer { message }),
                PlacerEffect::WriteGroup { group, row, write } => {
                    self.tables.iter().for_each(|tables| tables.write_group(group, row.as_ref(), write));
                }
            }
        }
    }

    /// The tables have said something.
    pub(super) fn on_tables(&mut self, now: Time, said: FromTables) {
        match said {
            FromTables::Published(notice) => self.on_published(now, &notice),
            FromTables::GroupWritten { group, write, outcome } => {
                self.step(now, PlacerInput::GroupWritten { group, write, outcome });
            }
        }
    }
}
