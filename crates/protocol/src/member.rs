//! What a node and the control process of its cluster say to each other, over a link that keeps the order.

use crate::actors::FoundActor;
use crate::failure::Failure;
use crate::ids::{ActorId, Epoch, NodeId};
use crate::keys::{KeyAnswer, KeyQuestion};
use crate::placement::{FromPlacer, Labels, NodeInfo, ToPlacer};
use crate::resources::Resources;
use crate::tables::{Answer, Change, Query};
use crate::trust::PutOutKind;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A node that is no member any more, as it is kept in the control store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadNode {
    /// What it was.
    pub info: NodeInfo,
    /// When its membership ended, in milliseconds since 1970.
    pub unix_milliseconds: u64,
    /// Why.
    pub why: Departure,
}

/// Why a membership is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Departure {
    /// The node has said that it ends.
    Left,
    /// It has not been heard of for too long.
    Lapsed,
    /// It was put out by a command.
    PutOut(PutOutKind),
}

impl std::fmt::Display for Departure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Left => "it was stopped",
            Self::Lapsed => "its lease has lapsed: it was killed, or could not be reached",
            Self::PutOut(PutOutKind::Expelled) => "it was expelled",
            Self::PutOut(PutOutKind::Revoked) => "it was revoked",
        })
    }
}

/// The keys of [`DeadNode`]s in the table of nodes: this, the time and the epoch.
pub const DEAD_PREFIX: &str = "dead/";

/// From a node to the control process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToControl {
    /// The sender joins, for the first time or again. Answer: [`FromControl::Welcome`].
    Joined {
        /// The membership that it had when it lost its link, if nobody has told it that this is over.
        held: Option<Epoch>,
        /// Where other nodes reach it.
        address: SocketAddr,
        /// What its operator says about it.
        labels: Labels,
        /// Everything that it has.
        resources: Resources,
        /// All actors with names that it owns.
        names: Vec<NamedActor>,
    },
    /// The sender is alive.
    Heartbeat {
        /// Its epoch.
        epoch: Epoch,
    },
    /// Something for the placer.
    Placer {
        /// The sender's epoch.
        epoch: Epoch,
        /// What.
        message: ToPlacer,
    },
    /// An actor with a name is to be owned by the sender. Answer: [`FromControl::NameClaimed`].
    NameClaimed {
        /// The actor.
        actor: NamedActor,
    },
    /// The actor's name is free again.
    NameFreed {
        /// The name.
        name: String,
        /// The actor that had it.
        actor: ActorId,
    },
    /// The sender, a member, wants another certificate before its own expires. Answer: [`FromControl::Certified`].
    CertificateWanted {
        /// The public half of its key, which is that of the certificate that it has.
        public_key: PublicKey,
    },
    /// The sender uses the certificate and the authorities of a [`FromControl::Certified`].
    CertificateUsed {
        /// Its serial number.
        serial: u64,
    },
    /// A question; it is asked again after the link was lost, with the same number. Answer: [`FromControl::Answered`].
    Asked {
        /// Higher than those of all questions before it, of the same node.
        number: u64,
        /// The question.
        question: Question,
    },
}

/// The public half of a node's key (Ed25519).
pub type PublicKey = [u8; 32];

/// What a node asks the control process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Which actor has this name? Answer: [`Reply::NameFound`].
    Name(String),
    /// Which names are there? Answer: [`Reply::Names`].
    Names,
    /// Something about a key. Answer: [`Reply::Key`].
    Key(KeyQuestion),
    /// Changes to be made together, and kept. Answer: [`Reply::Table`].
    Change(Vec<Change>),
    /// What do the tables say? Answer: [`Reply::Table`].
    Query(Query),
}

/// What the control process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The node that owns the actor, and what is said about it.
    NameFound(Option<(NodeId, FoundActor)>),
    /// All names, in order.
    Names(Vec<String>),
    /// About a key.
    Key(Result<KeyAnswer, Failure>),
    /// From the tables.
    Table(Answer),
}

/// An actor with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedActor {
    /// Its name.
    pub name: String,
    /// What those learn who find it.
    pub found: FoundActor,
}

/// From the control process to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromControl {
    /// The receiver is a member.
    Welcome {
        /// Its epoch. If it is not the one that the receiver held, that membership is over, and all others know it.
        epoch: Epoch,
        /// The other members.
        nodes: Vec<NodeInfo>,
    },
    /// The receiver is no member any more: its heartbeats came too late. It has to join again, if it has not done so since.
    Expelled {
        /// Which membership of it is over.
        epoch: Epoch,
    },
    /// The receiver was put out of the cluster: it ends.
    Dismissed {
        /// Why.
        why: String,
    },
    /// Another node has joined.
    NodeJoined {
        /// The node.
        info: NodeInfo,
    },
    /// Another node has left, or its heartbeats came too late.
    NodeLeft {
        /// The node.
        node: NodeId,
        /// Which membership of it.
        epoch: Epoch,
    },
    /// Something from the placer.
    Placer {
        /// What.
        message: FromPlacer,
    },
    /// The answer to [`ToControl::NameClaimed`].
    NameClaimed {
        /// The name.
        name: String,
        /// The actor that was to have it.
        actor: ActorId,
        /// Whether it has.
        granted: bool,
    },
    /// The answer to [`ToControl::CertificateWanted`].
    Certified {
        /// The certificate.
        certificate: Vec<u8>,
        /// How long it is good from now on.
        lifetime_milliseconds: u64,
        /// The certificates of the authorities to trust, in place of those before; first the one that has signed.
        authorities: Vec<Vec<u8>>,
        /// How often these have changed. The receiver says [`ToControl::CertificateUsed`] when it has taken them over.
        serial: u64,
    },
    /// The authorities of the cluster have changed: the receiver asks for a certificate now.
    CertificateChanged,
    /// The answer to [`ToControl::Asked`].
    Answered {
        /// The question's number.
        number: u64,
        /// The answer.
        reply: Reply,
    },
}
