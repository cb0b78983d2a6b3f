//! How stories about one node begin and go on.

use aktis_logic::machine::node::{
    Guest, Node, NodeConfig, NodeEffect, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT,
};
use aktis_logic::{Machine, Time};
use aktis_protocol::control::ToNode;
use aktis_protocol::{Labels, NodeId, ProcessSlot, ProgramId, Resources, SessionId};

/// The node of all stories.
pub(crate) const ME: NodeId = NodeId::of_session(SessionId(1));

/// The other node that comes.
#[allow(dead_code, reason = "not every story has another node")]
pub(crate) const OTHER: NodeId = NodeId::of_session(SessionId(2));

/// A node with a driver, and its time.
pub(crate) struct Scene {
    pub node: Node,
    pub now: u64,
}

impl Scene {
    /// With these resources. Programs have one worker for many things, or one for each.
    #[allow(dead_code, reason = "not every story has a driver from the start")]
    pub(crate) fn new(resources: Resources, shared_worker: bool, is_clustered: bool) -> Self {
        let driver = ProgramConfig { program: ProgramId::default(), shared_worker, shares: false };
        let mut node = Node::new(config(resources, Some(driver)));
        if is_clustered {
            node.join_cluster();
        }
        node.start(Time(0), &mut Vec::new());
        Self { node, now: 0 }
    }

    /// Of a daemon, to which drivers come, with these resources and without other nodes.
    #[allow(dead_code, reason = "not every story is about drivers that come")]
    pub(crate) fn of_daemon(resources: Resources) -> Self {
        Self { node: Node::new(config(resources, None)), now: 0 }
    }

    /// Something happens; all that follows.
    pub(crate) fn step(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        let mut out = Vec::new();
        self.node.step(Time(self.now), input, &mut out);
        self.node.check();
        out
    }

    /// A process says something; all that follows.
    pub(crate) fn hear(&mut self, from: ProcessSlot, message: ToNode) -> Vec<NodeEffect> {
        self.step(NodeInput::Received { from, message })
    }

    /// Another node comes: the process that stands for it.
    #[allow(dead_code, reason = "not every story has another node")]
    pub(crate) fn link(&mut self) -> ProcessSlot {
        self.link_to(OTHER)
    }

    /// This one comes.
    #[allow(dead_code, reason = "not every story has another node")]
    pub(crate) fn link_to(&mut self, node: NodeId) -> ProcessSlot {
        let admitted = self.step(NodeInput::Attached { guest: Guest::Peer(node), pid: 8 });
        let place = admitted.iter().find_map(|effect| match effect {
            NodeEffect::Admit { process } => Some(*process),
            _ => None,
        });
        let peer = place.expect("there is a place");
        self.hear(peer, ToNode::Started);
        peer
    }
}

fn config(resources: Resources, driver: Option<ProgramConfig>) -> NodeConfig {
    NodeConfig {
        node: ME,
        labels: Labels::new(),
        resources,
        store_bytes: 1 << 20,
        entries_max: 16,
        spill_bytes_max: 0,
        spill_file_is_shared: true,
        spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
        driver,
    }
}
