//! Where things may run in a cluster: strategies, labels, and what a node and the placer say to each other.

use crate::control::RequestId;
use crate::groups::{GroupPlace, GroupSpec, GroupState};
use crate::ids::{Epoch, FunctionId, GroupId, NodeId, ProcessSlot};
use crate::limits;
use crate::resources::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What its operator says about a node, by name.
pub type Labels = BTreeMap<String, String>;

/// The label that every node has, with its id as the value.
pub const NODE_ID_LABEL: &str = "ray.io/node-id";

/// On which nodes a task or an actor may run, and which of them it prefers. One that names a placement group chooses
/// among the nodes of that group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// Wherever it is estimated to be done soonest.
    #[default]
    Default,
    /// On one node after the other.
    Spread,
    /// On this node.
    Node {
        /// Which.
        node: NodeId,
        /// Whether any other will do if that one is not there, is too small, or has no room.
        soft: bool,
    },
    /// On nodes with such labels.
    Labels {
        /// What must hold.
        hard: Vec<LabelRule>,
        /// What holds for the nodes that are preferred while they have room.
        soft: Vec<LabelRule>,
    },
}

/// Where most of what something reads lies, as the processes of one node know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Near {
    /// The process that stands for the node that has it; none if it is here.
    pub peer: Option<ProcessSlot>,
    /// How much it is, rounded: things of about the same size are alike.
    pub bytes: u64,
}

impl Near {
    /// So many bytes, if they are enough to matter.
    pub fn new(peer: Option<ProcessSlot>, bytes: u64) -> Option<Self> {
        let least = match peer {
            Some(_) => limits::NEAR_BYTES_MIN,
            None => limits::NEAR_HERE_BYTES_MIN,
        };
        // In the middle of a power of four: half or twice as much at most.
        let rounded = |bytes: u64| 2 << (bytes.ilog2() & !1);
        (bytes >= least).then(|| Self { peer, bytes: rounded(bytes) })
    }
}

/// A condition on the labels of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelRule {
    /// The name of the label.
    pub name: String,
    /// What its value has to be.
    pub test: LabelTest,
}

/// What is asked of the value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LabelTest {
    /// It is one of these.
    In(Vec<String>),
    /// It is none of these, or there is no such label.
    NotIn(Vec<String>),
    /// There is one.
    Exists,
    /// There is none.
    Absent,
}

impl LabelRule {
    /// Whether it holds for a node with these labels.
    pub fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.name);
        match &self.test {
            LabelTest::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelTest::Exists => value.is_some(),
            LabelTest::Absent => value.is_none(),
        }
    }
}

impl std::fmt::Display for LabelRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.test {
            LabelTest::In(values) => write!(f, "{} in ({})", self.name, values.join(", ")),
            LabelTest::NotIn(values) => write!(f, "{} not in ({})", self.name, values.join(", ")),
            LabelTest::Exists => write!(f, "{} present", self.name),
            LabelTest::Absent => write!(f, "{} absent", self.name),
        }
    }
}

/// Conditions on labels, in words.
pub fn rules_text(rules: &[LabelRule]) -> String {
    let texts: Vec<String> = rules.iter().map(LabelRule::to_string).collect();
    texts.join(" and ")
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The node.
    pub node: NodeId,
    /// Which membership of it.
    pub epoch: Epoch,
    /// Where other nodes reach it.
    pub address: SocketAddr,
    /// What its operator says about it.
    pub labels: Labels,
    /// Everything that it has.
    pub resources: Resources,
}

/// How a node stands. Sent every [`NODE_REPORT_MICROSECONDS`](crate::limits::NODE_REPORT_MICROSECONDS) while something
/// changes, and at once when it runs out of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// What is free now.
    pub available: Resources,
    /// What would be free if no task ran: all but what actors and placement groups have.
    pub usable: Resources,
    /// What is queued to run there, and runs there. Tasks that were submitted there and only others may run are left out:
    /// nobody waits for them.
    pub queues: Vec<QueueRow>,
    /// How long tasks have run there since the report before.
    pub run_times: Vec<RunTimes>,
    /// How fast objects come from other nodes, where that was seen.
    pub links: Vec<LinkRow>,
    /// Members that it has dialled in vain for a while: nothing goes from here to there, nor back.
    pub unreachable: Vec<Unreachable>,
    /// Whether it is drained: it takes nothing new.
    pub is_draining: bool,
}

/// Tasks of one function with the same needs, on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// What each needs.
    pub needs: Resources,
    /// The placement group whose resources they use.
    pub group: Option<GroupPlace>,
    /// The function; the default id if the node does not know.
    pub function: FunctionId,
    /// How urgent they are.
    pub priority: i32,
    /// How many wait.
    pub queued: u32,
    /// How many run.
    pub running: u32,
}

/// How long tasks of one function have run: how many fell into which bucket of `aktis_logic::estimate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimes {
    /// The function.
    pub function: FunctionId,
    /// Bucket and count, for buckets with something in them.
    pub buckets: Vec<(u8, u32)>,
}

/// How fast objects come from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    /// The other node.
    pub from: NodeId,
    /// The speed that was seen.
    pub bytes_per_second: u64,
}

/// A node that another one cannot reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreachable {
    /// Which.
    pub node: NodeId,
    /// Where it was dialled, and what came of it.
    pub reason: String,
}

/// Tasks, all alike, that want a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// What each needs.
    pub needs: Resources,
    /// The placement group whose resources they use.
    pub group: Option<GroupPlace>,
    /// Where they may run.
    pub strategy: Strategy,
    /// How many they are.
    pub count: u32,
    /// How urgent they are: higher ones come first.
    pub priority: i32,
    /// What they run; the default id if that is not known.
    pub function: FunctionId,
    /// The large objects that each of them reads.
    pub inputs: Vec<Input>,
}

/// A large object that a task reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its size.
    pub bytes: u64,
    /// The nodes that have it.
    pub holders: Vec<NodeId>,
}

/// From a node to the placer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPlacer {
    /// How the sender stands.
    Reported {
        /// All of it.
        report: NodeReport,
    },
    /// The sender has tasks that it cannot run, or that others would run sooner. A second demand with the same
    /// request replaces the first. Answer: [`FromPlacer::Placed`], once or several times, until all have a place;
    /// [`FromPlacer::Waiting`] before, if no node could take them; [`FromPlacer::Impossible`] if none ever can;
    /// [`FromPlacer::Refused`] if there are too many demands.
    PlaceWanted {
        /// Matches the answers.
        request: RequestId,
        /// What wants a place.
        demand: Demand,
    },
    /// What has no place yet wants none any more.
    PlaceWithdrawn {
        /// The demand.
        request: RequestId,
    },
    /// Of the tasks that [`FromPlacer::Placed`] allowed, so many are not on `node` any more, or were not sent there.
    PlaceUnused {
        /// The demand.
        request: RequestId,
        /// Where they had a place.
        node: NodeId,
        /// How many.
        count: u32,
    },
    /// Set resources aside, on one or several nodes. Answer: [`FromPlacer::GroupChanged`], now and later.
    GroupWanted {
        /// What to make.
        spec: GroupSpec,
    },
    /// Tell the sender how far a group is. Answer: [`FromPlacer::GroupChanged`], now and later.
    GroupWatched {
        /// The group.
        group: GroupId,
    },
    /// Give the resources of a group back, everywhere.
    GroupRemoved {
        /// The group.
        group: GroupId,
    },
    /// The sender has these bundles of a group since before it joined: they stay with it, or it is asked to return them.
    GroupKept {
        /// The group.
        group: GroupId,
        /// Index of each bundle.
        bundles: Vec<u32>,
    },
    /// The answer to [`FromPlacer::Reserve`]: the resources are set aside, or cannot be.
    Reserved {
        /// The group.
        group: GroupId,
        /// Which attempt.
        attempt: u32,
        /// Why not, if not.
        outcome: Result<(), String>,
    },
    /// The answer to [`FromPlacer::Return`]: nothing of those bundles is left on the sender.
    Returned {
        /// The group.
        group: GroupId,
    },
}

/// From the placer to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromPlacer {
    /// Up to `count` tasks of the demand may be sent to `node` (the receiver itself, perhaps), within
    /// `lives_microseconds` from now.
    Placed {
        /// The demand.
        request: RequestId,
        /// Where.
        node: NodeId,
        /// Which membership of that node.
        epoch: Epoch,
        /// How many.
        count: u32,
        /// How many such tasks that node can run at a time.
        slots: u32,
        /// For how long this holds.
        lives_microseconds: u64,
    },
    /// No node can take these tasks as things are. Said once for each reason; they are placed when that changes.
    Waiting {
        /// The demand.
        request: RequestId,
        /// Why, in words.
        reason: String,
        /// Whether nothing but other nodes can change that.
        lasting: bool,
    },
    /// These tasks may go to one node only, and that is no member: they get no place.
    Impossible {
        /// The demand.
        request: RequestId,
        /// Why, in words.
        reason: String,
    },
    /// There are too many demands; ask again later.
    Refused {
        /// The demand.
        request: RequestId,
        /// Why, in words.
        reason: String,
    },
    /// The group is ready, waits, or is gone.
    GroupChanged {
        /// The group.
        group: GroupId,
        /// What was to be made; none if the placer does not know.
        spec: Option<GroupSpec>,
        /// How far it is.
        state: GroupState,
        /// The node of each bundle; none unless the group is ready.
        nodes: Vec<NodeId>,
    },
    /// Set these bundles aside as soon as they are free, for nobody to use yet. Answer: [`ToPlacer::Reserved`].
    Reserve {
        /// The group.
        group: GroupId,
        /// What is to be made.
        spec: GroupSpec,
        /// Which attempt; the answer names it.
        attempt: u32,
        /// Index and contents of each bundle that goes there.
        bundles: Vec<(u32, Resources)>,
    },
    /// All bundles of the group are set aside: the receiver's may be used.
    Commit {
        /// The group.
        group: GroupId,
        /// The attempt that succeeded.
        attempt: u32,
    },
    /// Give these bundles back, set aside or about to be, and end what uses them. Answer: [`ToPlacer::Returned`],
    /// once that is done.
    Return {
        /// The group.
        group: GroupId,
        /// Index of each bundle.
        bundles: Vec<u32>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_inputs_are_near_something_and_those_of_about_a_size_are_alike() {
        let peer = Some(ProcessSlot(3));
        assert_eq!(Near::new(peer, limits::NEAR_BYTES_MIN - 1), None);
        assert_eq!(Near::new(None, limits::NEAR_HERE_BYTES_MIN - 1), None);
        assert!(Near::new(None, limits::NEAR_HERE_BYTES_MIN).is_some());
        assert_eq!(Near::new(peer, 5 << 20), Some(Near { peer, bytes: 8 << 20 }));
        assert_eq!(Near::new(peer, 4 << 20), Near::new(peer, 15 << 20));
        assert_ne!(Near::new(peer, 15 << 20), Near::new(peer, 16 << 20));
    }

    #[test]
    fn label_rules_say_what_they_test() {
        let labels = Labels::from([("zone".into(), "a".into())]);
        let rule = |name: &str, test| LabelRule { name: name.into(), test };
        let values = || vec!["a".to_owned(), "b".to_owned()];
        let all = [
            (rule("zone", LabelTest::In(values())), true, "zone in (a, b)"),
            (rule("zone", LabelTest::NotIn(values())), false, "zone not in (a, b)"),
            (rule("disk", LabelTest::NotIn(values())), true, "disk not in (a, b)"),
            (rule("disk", LabelTest::Exists), false, "disk present"),
            (rule("disk", LabelTest::Absent), true, "disk absent"),
        ];
        for (rule, holds, text) in all {
            assert_eq!((rule.holds(&labels), rule.to_string().as_str()), (holds, text));
        }
    }
}
