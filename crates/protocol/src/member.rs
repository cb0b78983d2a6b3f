//! What a node and the control process of its cluster say to each other, over a link that keeps the order.

use crate::control::{FoundActor, RequestId};
use crate::ids::{ActorId, Epoch, NodeId};
use crate::placement::{FromPlacer, Labels, NodeInfo, ToPlacer};
use crate::resources::Resources;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// From a node to the control process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToControl {
    /// The sender joins, for the first time or again. Answer: [`FromControl::Welcome`].
    Joined {
        /// Where other nodes reach it.
        address: SocketAddr,
        /// What its operator says about it.
        labels: Labels,
        /// Everything that it has.
        resources: Resources,
        /// The actors with names that live in its care.
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
    /// An actor with a name is to live in the sender's care. Answer: [`FromControl::NameClaimed`].
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
    /// Which actor has this name? Answer: [`FromControl::NameFound`].
    NameWanted {
        /// Matches the answer.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// Which names are there? Answer: [`FromControl::Names`].
    NamesWanted {
        /// Matches the answer.
        request: RequestId,
    },
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
        /// Its epoch.
        epoch: Epoch,
        /// The other members.
        nodes: Vec<NodeInfo>,
    },
    /// The receiver is no member any more: its heartbeats came too late. It has to join again.
    Expelled,
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
    /// The answer to [`ToControl::NameWanted`].
    NameFound {
        /// Matches the question.
        request: RequestId,
        /// The node in whose care it lives, and what is said about it.
        found: Option<(NodeId, FoundActor)>,
    },
    /// The answer to [`ToControl::NamesWanted`].
    Names {
        /// Matches the question.
        request: RequestId,
        /// In order.
        names: Vec<String>,
    },
}
