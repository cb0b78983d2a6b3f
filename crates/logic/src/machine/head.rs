//! The head: which nodes are members of the cluster, which actor has which name, and what is written down of both.
//!
//! It is the decisions of the control process. It owns the [`Membership`] and the [`Placer`] and steps them. Its parts,
//! each in a file of its own:
//!
//! - `members`: nodes with links, and the members that are on disk;
//! - `names`: names of actors;
//! - `questions`: what members ask of the tables, and how the tables' answers become replies;
//! - `trust`: join tokens, and nodes that were put out;
//! - `authorities`: which members have taken over the present authorities of the cluster;
//! - `rows`: the rows in which members, names and groups are written down;
//! - `jobs`: what becomes of the jobs of nodes that have left.
//!
//! What the caller guarantees:
//! 1. A [`LinkId`] names one link of one node, and is never used again. Messages of one link come in their order, and
//!    [`HeadInput::LinkEnded`] is the last word about it.
//! 2. Writes are made in the order of the effects. Each write that names an answer is answered once, after it is on disk.
//! 3. The node and the key in [`HeadInput::Received`] are those whose certificate opened the link.
//!
//! Invariants:
//! 1. The head welcomes a member and tells the others of it only after its row is on disk.
//! 2. A message counts only on the link over which its sender has joined last, and within the sender's present membership.
//! 3. A name has one actor, owned by one node, and the names of each node are indexed.
//! 4. Each linked member is in the membership, with the epoch that it was given.
//! 5. A node that joins again is welcomed only after the programs of its last membership are ended: what it tells of its
//!    jobs and programs then is not overwritten.
//! 6. A departed node appears once among the nodes whose names are kept for a takeover.

mod authorities;
mod jobs;
mod members;
mod names;
mod questions;
mod rows;
#[cfg(test)]
mod tests;
mod trust;

use crate::LinkId;
use crate::machine::placer::{Placer, PlacerEffect, PlacerInput};
use crate::membership::Membership;
use crate::planted::{HeadBug, Planted};
use crate::{Effects, Machine, Time};
use aktis_protocol::member::{Departure, FromControl, PublicKey, ToControl};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::tables::Sender;
use aktis_protocol::{ActorId, Epoch, GroupId, NodeId};
use authorities::Authorities;
use members::Members;
use names::Names;
use std::collections::{BTreeSet, VecDeque};
use trust::Trust;

pub use jobs::{Job, NodesLeft, job_key};
pub use names::ActorHome;
pub use questions::{QueryReply, TableRequest, reply_to_key_change};
pub use rows::{HeadWrite, Restored, RowError, keep_epoch, node_in, programs_of, started};
pub use trust::{NotLetIn, Returning, TokenShown, TrustError};

/// How long the records of objects and tasks of a node stay after its membership has ended: long enough for the nodes
/// that still hold its objects to say so.
pub const RECORDS_KEPT_MICROSECONDS: u64 = 10_000_000;

/// Why a node gets no certificate: an id would stand for two keys, or a key that nobody has shown would be certified.
const OTHER_KEY: &str = "a certificate is renewed for the key that it was made for, and this is another one";

/// What the head is told.
#[derive(Clone, Debug)]
pub enum HeadInput {
    /// A node sent a message.
    Received {
        /// The node, by the certificate of its link.
        from: NodeId,
        /// The key of that certificate.
        key: PublicKey,
        /// Over which link.
        link: LinkId,
        /// What.
        message: ToControl,
    },
    /// A link is over.
    LinkEnded {
        /// The node at its other end.
        node: NodeId,
        /// Which.
        link: LinkId,
        /// Whether the node has said that it leaves the cluster.
        leaves: bool,
    },
    /// The row of a node is on disk, or is gone from there.
    NodeWritten {
        /// The node.
        node: NodeId,
        /// Its row.
        info: Option<NodeInfo>,
    },
    /// A [`HeadWrite::Name`] is on disk, or was refused.
    NameWritten {
        /// The claim, from that write.
        claim: NameClaim,
        /// Whether it is on disk.
        is_kept: bool,
    },
    /// A [`HeadWrite::Group`] is on disk, or was refused.
    GroupWritten {
        /// The group.
        group: GroupId,
        /// Which write.
        write: u64,
        /// Why it was refused, if it was.
        outcome: Result<(), String>,
    },
    /// A [`HeadEffect::EndPrograms`] is done: its changes come before all that are made from now on.
    ProgramsEnded {
        /// The nodes that had left.
        left: BTreeSet<NodeId>,
    },
    /// Time has passed.
    Ticked,
}

/// One claim of a name, while its row is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameClaim {
    /// The name.
    pub name: String,
    /// The node that claims it.
    pub node: NodeId,
    /// The actor that is to have it.
    pub actor: ActorId,
    /// The link over which it was claimed.
    pub link: LinkId,
    /// Higher than that of any claim before.
    pub number: u64,
}

/// What the head orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// Send a message. If the link has no room, close it: its node dials again, and is told everything anew.
    Send {
        /// Over which link.
        link: LinkId,
        /// What.
        message: FromControl,
    },
    /// Close a link.
    Close {
        /// Which.
        link: LinkId,
        /// Why, as the other end is told.
        why: String,
    },
    /// Sign a certificate, and send it.
    Certify {
        /// Over which link.
        link: LinkId,
        /// For which node.
        node: NodeId,
        /// The public half of its key.
        public_key: PublicKey,
    },
    /// Write rows.
    Write(HeadWrite),
    /// Ask the tables on behalf of a node, and send it the reply.
    AskTables {
        /// Over which link.
        link: LinkId,
        /// The number of the node's question.
        number: u64,
        /// What to ask.
        request: TableRequest,
    },
    /// Mark the running jobs of nodes that have left as lost, and delete the rows of their programs. Then say
    /// `ProgramsEnded`.
    EndPrograms {
        /// The nodes that have left.
        left: BTreeSet<NodeId>,
        /// The nodes that are members.
        members: BTreeSet<NodeId>,
    },
    /// Drop the records of objects and tasks of a membership that is over, then its row among the departed nodes.
    ForgetRecords {
        /// The membership.
        sender: Sender,
    },
}

/// The machine.
#[derive(Debug)]
pub struct Head {
    membership: Membership,
    placer: Placer,
    members: Members,
    names: Names,
    trust: Trust,
    authorities: Authorities,
    /// Memberships that are over, and when their records go.
    departed: VecDeque<(Time, Sender)>,
    /// The bug that a test has planted, if any.
    pub planted: Planted<HeadBug>,
}

impl Head {
    /// The head as its last life left it on disk.
    pub fn new(now: Time, restored: Restored, out: &mut Effects<HeadEffect>) -> Self {
        let Restored { nodes, names, groups, next_epoch, departed, tokens, put_out, keys } = restored;
        let mut membership = Membership::new(next_epoch);
        nodes.iter().for_each(|info| membership.restore(now, info.node, info.epoch));
        let members: BTreeSet<NodeId> = nodes.iter().map(|info| info.node).collect();
        let (names, free) = Names::new(names, &members);
        if !free.is_empty() {
            out.push(HeadEffect::Write(HeadWrite::NamesFreed { names: free }));
        }
        // The last life may have ended before it had done this. A node that is a member again has told its programs anew.
        let left: BTreeSet<NodeId> = departed.iter().map(|sender| sender.node).collect();
        let left: BTreeSet<NodeId> = left.difference(&members).copied().collect();
        out.push(HeadEffect::EndPrograms { left: left.clone(), members: members.clone() });
        let mut head = Self {
            membership,
            placer: Placer::new(),
            members: Members::new(nodes, left),
            names,
            trust: Trust::new(tokens, put_out, keys),
            authorities: Authorities::default(),
            departed: departed.into_iter().map(|sender| (records_go(now), sender)).collect(),
            planted: Planted::default(),
        };
        members.into_iter().for_each(|node| head.place(now, PlacerInput::NodeAwaited { node }, out));
        groups.into_iter().for_each(|row| head.place(now, PlacerInput::GroupRestored { row }, out));
        head
    }

    /// A node is dead after so long without a sign of life.
    pub fn set_node_timeout(&mut self, microseconds: u64) {
        self.membership.set_lease(microseconds);
    }

    /// The members.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The placer.
    pub fn placer(&self) -> &Placer {
        &self.placer
    }

    /// The actor that has a name, and the node that owns it.
    pub fn find_name(&self, name: &str) -> Option<ActorHome> {
        self.names.find(name)
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<String> {
        self.names.all()
    }

    fn on_received(
        &mut self,
        now: Time,
        (from, key): (NodeId, PublicKey),
        link: LinkId,
        message: ToControl,
        out: &mut Effects<HeadEffect>,
    ) {
        if let ToControl::Joined { held, address, labels, resources, names } = message {
            let info = |epoch| NodeInfo { node: from, epoch, address, labels, resources };
            return self.on_joined(now, (from, key, link), held, info, names, out);
        }
        let is_fenced = !self.planted.has(HeadBug::StaleLink);
        if is_fenced && !self.members.has_joined(from, link) {
            return self.on_message_of_no_member(from, link, &message, out);
        }
        match message {
            ToControl::Joined { .. } => unreachable!("handled above"),
            ToControl::Heartbeat { epoch } => {
                if self.membership.on_heartbeat(now, from, epoch).is_err() {
                    out.push(HeadEffect::Send { link, message: FromControl::Expelled { epoch } });
                }
            }
            ToControl::Placer { epoch, message } => {
                self.place(now, PlacerInput::Received { from, epoch, message }, out);
            }
            ToControl::CertificateWanted { public_key } if public_key != key => {
                out.push(HeadEffect::Close { link, why: OTHER_KEY.to_owned() });
            }
            ToControl::CertificateWanted { public_key } => {
                out.push(HeadEffect::Certify { link, node: from, public_key });
            }
            ToControl::CertificateUsed { serial } => self.on_certificate_used(from, serial),
            ToControl::NameClaimed { actor } => self.claim_name(from, link, actor, true, out),
            ToControl::NameFreed { name, actor } => self.on_name_freed(name, from, actor, out),
            ToControl::Asked { number, question } => self.on_asked(from, link, number, question, out),
        }
    }

    /// The sender has not joined over this link, has left since, or has joined over another link. Nothing is done or
    /// answered, but for one thing: a node whose lease has lapsed learns that it has to join again.
    fn on_message_of_no_member(
        &self,
        from: NodeId,
        link: LinkId,
        message: &ToControl,
        out: &mut Effects<HeadEffect>,
    ) {
        if let ToControl::Heartbeat { epoch } = message
            && !self.membership.is_current(from, *epoch)
        {
            out.push(HeadEffect::Send { link, message: FromControl::Expelled { epoch: *epoch } });
        }
    }

    fn on_time(&mut self, now: Time, out: &mut Effects<HeadEffect>) {
        // A node that waits for the disk sends no heartbeats yet; its link says whether it lives.
        for (node, epoch) in self.members.unwelcome() {
            let _ = self.membership.on_heartbeat(now, node, epoch);
        }
        for (node, epoch) in self.membership.lapse(now) {
            self.on_left(now, node, epoch, Departure::Lapsed, out);
        }
        self.free_kept_names(now, out);
        while let Some((_, sender)) = self.departed.pop_front_if(|(due, _)| *due <= now) {
            out.push(HeadEffect::ForgetRecords { sender });
        }
        if self.placer.next_wakeup().is_some_and(|due| due <= now) {
            self.place(now, PlacerInput::Ticked, out);
        }
    }

    /// Steps the placer. Its messages go to members that were welcomed: the placer knows the others of an earlier link
    /// only, and begins anew with them when they are welcomed.
    fn place(&mut self, now: Time, input: PlacerInput, out: &mut Effects<HeadEffect>) {
        let mut effects = Vec::new();
        self.placer.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                PlacerEffect::Send { to, message } => {
                    let link = self.members.welcome_link(to);
                    let send = |link| HeadEffect::Send { link, message: FromControl::Placer { message } };
                    out.extend(link.map(send));
                }
                PlacerEffect::WriteGroup { group, row, write } => {
                    out.push(HeadEffect::Write(HeadWrite::Group { group, row, write }));
                }
            }
        }
    }
}

/// When the records of a membership go that ends now.
fn records_go(now: Time) -> Time {
    Time(now.0 + RECORDS_KEPT_MICROSECONDS)
}

impl Machine for Head {
    type Input = HeadInput;
    type Effect = HeadEffect;

    fn step(&mut self, now: Time, input: HeadInput, out: &mut Effects<HeadEffect>) {
        match input {
            HeadInput::Received { from, key, link, message } => {
                self.on_received(now, (from, key), link, message, out);
            }
            HeadInput::LinkEnded { node, link, leaves } => self.on_link_ended(now, node, link, leaves, out),
            HeadInput::NodeWritten { node, info } => self.on_node_written(now, node, info, out),
            HeadInput::ProgramsEnded { left } => self.on_programs_ended(now, &left, out),
            HeadInput::NameWritten { claim, is_kept } => self.on_name_written(&claim, is_kept, out),
            HeadInput::GroupWritten { group, write, outcome } => {
                self.place(now, PlacerInput::GroupWritten { group, write, outcome }, out);
            }
            HeadInput::Ticked => self.on_time(now, out),
        }
    }

    fn next_wakeup(&self) -> Option<Time> {
        let departed = self.departed.front().map(|(due, _)| *due);
        let wakeups =
            [self.membership.next_wakeup(), self.placer.next_wakeup(), departed, self.names.next_wakeup()];
        wakeups.into_iter().flatten().min()
    }

    fn check(&self) {
        self.membership.check();
        self.placer.check();
        self.names.check();
        self.trust.check();
        for (node, epoch) in self.members.linked() {
            assert!(self.membership.is_current(node, epoch), "head invariant 4: {node} with {epoch}");
        }
        let knows_epoch = |epoch: Epoch| epoch < self.membership.next_epoch();
        assert!(self.members.published().all(|info| knows_epoch(info.epoch)), "head invariant 4");
    }
}
