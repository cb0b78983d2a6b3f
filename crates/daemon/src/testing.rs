//! Clusters on this machine, for tests of programs that will run on real ones.
//!
//! Every node is a process of its own, with a directory, workers and an object store of its own. It is the test's own
//! program, started again, as workers are: nothing has to be installed, and the test needs no `main`.
//!
//! ```
//! use aktis::prelude::*;
//! use aktis_daemon::testing::{Cluster, NodeOptions};
//! use std::time::Duration;
//!
//! #[remote]
//! fn parent() -> u32 {
//!     std::os::unix::process::parent_id()
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A head that runs nothing itself, and a node with two CPUs and something that only it has.
//!     let mut cluster = Cluster::start(NodeOptions::new().cpus(0))?;
//!     let node = cluster.add_node(NodeOptions::new().cpus(2).resource("licence", 1))?;
//!     cluster.wait_for_nodes(Duration::from_secs(30))?;
//!
//!     let session = Session::connect(cluster.address())?;
//!     let _entered = session.enter();
//!     let pid = parent::options().resource("licence", 1.0).remote().get()?;
//!     assert_eq!(Some(pid), cluster.pid_of(node));
//!     session.shutdown();
//!
//!     cluster.kill_node(node)?;
//!     cluster.wait_for_nodes(Duration::from_secs(30))?;
//!     Ok(())
//! }
//! ```
//!
//! Invariants:
//! 1. All processes end with the [`Cluster`], and with the process that made it, also by `kill -9`: each node ends when
//!    the pipe to it does.
//! 2. What they have written is removed with them; a node that is killed leaves its directory until the end.

mod node;

use crate::admin::{Client, ClientError};
use aktis_protocol::admin::{ListKind, ListQuery, NodeState, Rows, StopScope};
use aktis_protocol::{Amount, NodeId};
use node::{Given, Node};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a node may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks.
const AGAIN: Duration = Duration::from_millis(5);
/// For how long the tokens are good with which nodes join.
const TOKEN: Duration = Duration::from_secs(300);
/// Size of a node's object store, unless something else is said: several nodes share the memory of one machine.
const STORE_BYTES: u64 = 256 << 20;

/// Numbers the clusters of this process.
static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// What a node of a [`Cluster`] has. Without a word, it has one CPU.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    resources: BTreeMap<String, Amount>,
    labels: BTreeMap<String, String>,
    store_bytes: u64,
}

impl Default for NodeOptions {
    fn default() -> Self {
        let resources = BTreeMap::from([(aktis_protocol::resources::CPU.to_owned(), Amount::ONE)]);
        Self { resources, labels: BTreeMap::new(), store_bytes: STORE_BYTES }
    }
}

impl NodeOptions {
    /// A node with one CPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many CPUs it has; none means that it runs nothing that wants one.
    pub fn cpus(self, count: u64) -> Self {
        self.resource(aktis_protocol::resources::CPU, count)
    }

    /// How many GPUs it says that it has.
    pub fn gpus(self, count: u64) -> Self {
        self.resource(aktis_protocol::resources::GPU, count)
    }

    /// How much of something it has.
    pub fn resource(mut self, name: &str, count: u64) -> Self {
        self.resources.insert(name.to_owned(), Amount::units(count));
        self
    }

    /// Something to know it by.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The size of its object store.
    pub fn store_bytes(mut self, bytes: u64) -> Self {
        self.store_bytes = bytes;
        self
    }
}

/// Why something was not done to a cluster of a test.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The system refused.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A node has not started.
    #[error("the node did not start: {0}")]
    NotStarted(String),
    /// A node does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no such node.
    #[error("{0} is no node of this cluster, or not any more\nhint: `nodes` tells which there are")]
    NoSuchNode(NodeId),
    /// It takes too long.
    #[error("{wanted} nodes did not find each other within {timeout:?}; one of them sees {seen}")]
    Timeout {
        /// How many there are.
        wanted: usize,
        /// How many one of them knows to be alive.
        seen: usize,
        /// How long was waited.
        timeout: Duration,
    },
}

/// Nodes on this machine. See the module.
#[derive(Debug)]
pub struct Cluster {
    base: PathBuf,
    nodes: Vec<Node>,
    made: u32,
}

impl Cluster {
    /// Starts a cluster of one node, its head.
    pub fn start(head: NodeOptions) -> Result<Self, ClusterError> {
        node::is_linked();
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        // The paths of sockets are short.
        let base = std::env::temp_dir().join(format!("aktis-{}-{number}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&base);
        made.map_err(|source| ClusterError::System { what: "a directory", source })?;
        let mut cluster = Self { base, nodes: Vec::new(), made: 0 };
        cluster.start_node(head, None)?;
        Ok(cluster)
    }

    /// Adds a node, and says which it is. Others learn of it soon: see [`Self::wait_for_nodes`].
    pub fn add_node(&mut self, options: NodeOptions) -> Result<NodeId, ClusterError> {
        let token = Client::connect_to_control(self.head().directory())?.token(TOKEN, None)?;
        self.start_node(options, Some((token.address, token.token)))
    }

    fn start_node(
        &mut self,
        options: NodeOptions,
        join: Option<(String, String)>,
    ) -> Result<NodeId, ClusterError> {
        let NodeOptions { resources, labels, store_bytes } = options;
        let directory = self.base.join(self.made.to_string());
        self.made += 1;
        let node = Node::start(Given { directory, join, resources, labels, store_bytes })?;
        let id = node.id();
        self.nodes.push(node);
        Ok(id)
    }

    /// Ends a node as `aktis stop` does, and waits until it is gone. What runs there runs again elsewhere if it may.
    pub fn remove_node(&mut self, node: NodeId) -> Result<(), ClusterError> {
        let node = self.take(node)?;
        Client::connect(node.directory())?.stop(StopScope::Node, PATIENCE)?;
        Ok(())
    }

    /// Ends a node as a machine dies: its processes can say nothing any more.
    pub fn kill_node(&mut self, node: NodeId) -> Result<(), ClusterError> {
        self.take(node)?.kill();
        Ok(())
    }

    fn take(&mut self, node: NodeId) -> Result<Node, ClusterError> {
        let position = self.nodes.iter().position(|known| known.id() == node);
        position.map(|position| self.nodes.remove(position)).ok_or(ClusterError::NoSuchNode(node))
    }

    /// Waits until all nodes know each other, and no others.
    pub fn wait_for_nodes(&self, timeout: Duration) -> Result<(), ClusterError> {
        let (until, wanted) = (Instant::now() + timeout, self.nodes.len());
        for node in &self.nodes {
            loop {
                let seen = alive(node.directory())?;
                if seen == wanted {
                    break;
                }
                if Instant::now() >= until {
                    return Err(ClusterError::Timeout { wanted, seen, timeout });
                }
                std::thread::sleep(AGAIN);
            }
        }
        Ok(())
    }

    /// The nodes, the head first.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.iter().map(Node::id).collect()
    }

    /// For `Session::connect`, or `init`: this process becomes a driver on the head's node.
    pub fn address(&self) -> String {
        self.head().directory().display().to_string()
    }

    /// The same for another node.
    pub fn address_of(&self, node: NodeId) -> Option<String> {
        self.find(node).map(|node| node.directory().display().to_string())
    }

    /// The process of a node, whose children are its workers.
    pub fn pid_of(&self, node: NodeId) -> Option<u32> {
        self.find(node).map(Node::pid)
    }

    fn find(&self, node: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|known| known.id() == node)
    }

    fn head(&self) -> &Node {
        self.nodes.first().expect("a cluster begins with its head")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The head last: the others leave it in order.
        while let Some(node) = self.nodes.pop() {
            node.end();
        }
        // Nodes that were killed have left theirs.
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// How many nodes one knows to be alive, itself among them.
fn alive(directory: &Path) -> Result<usize, ClusterError> {
    let query = ListQuery {
        what: ListKind::Nodes,
        limit: u32::MAX,
        node: None,
        state: Some(NodeState::Alive.word().to_owned()),
        name: None,
        filters: Vec::new(),
    };
    match Client::connect(directory)?.list(query)?.rows {
        Rows::Nodes(rows) => Ok(rows.len()),
        _ => Ok(0),
    }
}
