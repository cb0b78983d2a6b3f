//! Placement groups: resources that are set aside together, in bundles, for those who name the group.

use crate::ids::{GroupId, NodeId};
use crate::placement::{LabelRule, Labels};
use crate::resources::Resources;
use serde::{Deserialize, Serialize};

/// Where in a group a task or an actor is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupPlace {
    /// The group.
    pub group: GroupId,
    /// Which of its bundles; any if none is named.
    pub bundle: Option<u32>,
}

/// How the bundles of a group are spread over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupStrategy {
    /// Together as far as possible.
    #[default]
    Pack,
    /// On different nodes as far as possible.
    Spread,
    /// On one node.
    StrictPack,
    /// Each on a node of its own.
    StrictSpread,
}

impl GroupStrategy {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Spread => "spread",
            Self::StrictPack => "strict-pack",
            Self::StrictSpread => "strict-spread",
        }
    }
}

/// A group to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// The group.
    pub group: GroupId,
    /// What each bundle holds.
    pub bundles: Vec<Resources>,
    /// What must hold for the labels of each bundle's node; nothing of bundles that are not mentioned.
    pub labels: Vec<Vec<LabelRule>>,
    /// How they are spread.
    pub strategy: GroupStrategy,
    /// A name under which others find it.
    pub name: Option<String>,
    /// Whether it stays when the process that made it has died.
    pub detached: bool,
}

impl GroupSpec {
    /// What must hold for the labels of a bundle's node.
    pub fn rules(&self, bundle: u32) -> &[LabelRule] {
        self.labels.get(bundle as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a bundle may be on a node with these labels.
    pub fn suits(&self, bundle: u32, labels: &Labels) -> bool {
        self.rules(bundle).iter().all(|rule| rule.holds(labels))
    }
}

/// A group as the control process writes it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// What is to be made.
    pub spec: GroupSpec,
    /// The node on which it was asked for.
    pub creator: NodeId,
    /// The node of each bundle, which has set it aside or is asked to; none of bundles that wait for one.
    pub nodes: Vec<Option<NodeId>>,
}

/// How far a group is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupState {
    /// Its resources are not there yet; the text says why.
    Pending(String),
    /// Its resources are set aside.
    Ready,
    /// It is gone, or was never made; the text says why.
    Removed(String),
}

impl GroupState {
    /// The words for all of them.
    pub const WORDS: &[&str] = &["pending", "ready", "removed"];

    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pending(_) => "pending",
            Self::Ready => "ready",
            Self::Removed(_) => "removed",
        }
    }

    /// Why it is not ready.
    pub fn reason(&self) -> &str {
        match self {
            Self::Pending(reason) | Self::Removed(reason) => reason,
            Self::Ready => "",
        }
    }
}
