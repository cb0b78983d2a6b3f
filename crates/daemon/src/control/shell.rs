//! The shell of the [`Head`]: it gives the head what nodes and the tables say, and carries out what the head orders.

use super::clock::Clock;
use super::files::Files;
use super::tables::Tables;
use super::{ControlError, send};
use aktis_io::{Authority, Certified, Link, Role};
use aktis_logic::machine::head::{Head, HeadEffect, HeadInput, HeadWrite};
use aktis_logic::{LinkId, Machine, Time};
use aktis_node::journal;
use aktis_protocol::NodeId;
use aktis_protocol::member::{FromControl, PublicKey};
use aktis_protocol::tables::{Event, EventKind};
use aktis_protocol::trust::TokenRow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The invariants of the head are checked after one of so many steps; in debug builds after each.
const CHECKED_STEPS: u64 = 4096;

/// See the module.
pub(super) struct HeadShell {
    head: Head,
    steps: u64,
    links_by_id: BTreeMap<LinkId, Link>,
    links_opened: u64,
    /// `None` at the end.
    tables: Option<Tables>,
    /// Signs the certificates of members.
    authority: Arc<Authority>,
}

impl HeadShell {
    /// The head as it was left on disk.
    pub(super) fn load(
        files: &Files,
        authority: &Arc<Authority>,
        own: NodeId,
        clock: &Arc<Clock>,
        node_timeout: Option<Duration>,
    ) -> Result<Self, ControlError> {
        let (tables, restored) = Tables::open(files, own, clock)?;
        let mut effects = Vec::new();
        let mut head = Head::new(clock.now(), restored, &mut effects);
        if let Some(timeout) = node_timeout {
            head.set_node_timeout(timeout.as_micros() as u64);
        }
        let shell = Self {
            head,
            steps: 0,
            links_by_id: BTreeMap::new(),
            links_opened: 0,
            tables: Some(tables),
            authority: authority.clone(),
        };
        effects.into_iter().for_each(|effect| shell.carry_out(effect));
        Ok(shell)
    }

    /// Has everything written that was changed; nothing is changed any more.
    pub(super) fn close(&mut self) {
        if let Some(tables) = self.tables.take() {
            tables.close();
        }
    }

    /// A node, or a machine that was one, has opened a link.
    pub(super) fn open_link(&mut self, link: &Link) -> LinkId {
        self.links_opened += 1;
        let id = LinkId(self.links_opened);
        self.links_by_id.insert(id, link.clone());
        id
    }

    /// Nothing more comes or goes over a link.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.links_by_id.remove(&link);
    }

    /// Has the head decide something. What follows from that is on disk when the receiver is told.
    pub(super) fn decide<Outcome>(
        &mut self,
        now: Time,
        decide: impl FnOnce(&mut Head, Time, &mut Vec<HeadEffect>) -> Outcome,
    ) -> (Outcome, Receiver<()>) {
        let mut effects = Vec::new();
        let outcome = decide(&mut self.head, now, &mut effects);
        self.head.check();
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        let (sender, receiver) = channel();
        self.tables.iter().for_each(|tables| tables.after_writes(sender.clone()));
        (outcome, receiver)
    }

    /// The members that have not taken the cluster's present authorities over, and how many have.
    pub(super) fn authorities_unused(&self) -> (Vec<NodeId>, u32) {
        self.head.authorities_unused()
    }

    /// The join tokens on record.
    pub(super) fn tokens(&self) -> Vec<TokenRow> {
        self.head.tokens()
    }

    /// The last events, the oldest first.
    pub(super) fn ask_events(&self, limit: u32) -> Receiver<Vec<Event>> {
        let (sender, receiver) = channel();
        self.tables.iter().for_each(|tables| tables.ask_events(limit, sender.clone()));
        receiver
    }

    /// A connection was refused, as is said once a minute.
    pub(super) fn note_refusal(&self, own: NodeId, text: String) {
        let refused = HeadWrite::Noted { subject: own.into(), kind: EventKind::Refused, text };
        self.tables.iter().for_each(|tables| tables.write(&refused));
    }

    pub(super) fn step(&mut self, now: Time, input: HeadInput) {
        let mut effects = Vec::new();
        self.head.step(now, input, &mut effects);
        self.steps += 1;
        if cfg!(debug_assertions) || self.steps.is_multiple_of(CHECKED_STEPS) {
            self.head.check();
        }
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    pub(super) fn is_member(&self, node: NodeId) -> bool {
        self.head.membership().epoch(node).is_some()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.head.next_wakeup()
    }

    #[cfg(test)]
    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    #[cfg(test)]
    pub(super) fn tables(&self) -> &Tables {
        self.tables.as_ref().expect("open until closed")
    }

    fn carry_out(&self, effect: HeadEffect) {
        match effect {
            HeadEffect::Send { link, message } => self.with_link(link, |link| send(link, &message)),
            HeadEffect::Close { link, why } => self.with_link(link, |link| link.close(&why)),
            HeadEffect::Certify { link, node, public_key } => {
                self.with_link(link, |link| self.certify(link, node, public_key));
            }
            HeadEffect::Write(write) => self.tables.iter().for_each(|tables| tables.write(&write)),
            HeadEffect::AskTables { link, number, request } => {
                let (Some(tables), Some(link)) = (&self.tables, self.links_by_id.get(&link)) else { return };
                let link = link.clone();
                // On the thread of the store: a reply decides nothing, and waits for nothing here.
                let reply = move |reply| send(&link, &FromControl::Answered { number, reply });
                tables.ask(request, reply);
            }
            HeadEffect::EndPrograms { left, members } => {
                self.tables.iter().for_each(|tables| tables.end_programs(&left, members.clone()));
            }
            HeadEffect::ForgetRecords { sender } => {
                self.tables.iter().for_each(|tables| tables.forget_records(sender));
            }
        }
    }

    fn with_link(&self, link: LinkId, act: impl FnOnce(&Link)) {
        // A link that is over takes nothing any more; its node dials again.
        if let Some(link) = self.links_by_id.get(&link) {
            act(link);
        }
    }

    pub(super) fn certify(&self, link: &Link, node: NodeId, public_key: PublicKey) {
        match self.authority.certify(node, Role::Node, public_key) {
            Ok(Certified { certificate, authorities, serial }) => {
                let lifetime_milliseconds = self.authority.lifetime().as_millis() as u64;
                let message =
                    FromControl::Certified { certificate, lifetime_milliseconds, authorities, serial };
                send(link, &message);
            }
            Err(error) => {
                journal::warn(format_args!("the certificate of node {node} was not renewed: {error}"))
            }
        }
    }
}
