//! The daemon of one machine: what `aktis start` runs.
//!
//! So far it claims its directory and answers the command line about itself. It has no workers and no peers, and refuses
//! what needs them.

use crate::admin::{Admin, AdminServer, LogPage, LogPosition, Refusal, SOCKET_NAME};
use crate::directory::{Directory, DirectoryError};
use aktis_protocol::admin::{
    ClusterStatus, IdPrefix, JoinToken, ListKind, ListQuery, Listing, LogQuery, NodeRow, NodeState, Rows,
    StopScope,
};
use aktis_protocol::state::ResourceRow;
use aktis_protocol::{Amount, NodeId, Resources, resources};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to start a daemon.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Where its sockets and files are; see [`default_directory`](crate::directory::default_directory).
    pub directory: PathBuf,
    /// Whether it begins a cluster or joins one.
    pub role: Role,
    /// Where it listens for other machines; loopback if nothing is said.
    pub listen: Option<SocketAddr>,
    /// Amounts that replace those found on this machine, or are added to them. Zero takes a resource away.
    pub resources: BTreeMap<String, Amount>,
    /// What users say about the node.
    pub labels: BTreeMap<String, String>,
    /// Size of the object store; a share of the machine's memory if nothing is said.
    pub store_bytes: Option<u64>,
}

/// What a daemon is in its cluster.
#[derive(Clone)]
pub enum Role {
    /// It begins the cluster.
    Head,
    /// It joins one.
    Member {
        /// Where the head listens: `host:port`.
        address: String,
        /// The token that the head has given out.
        token: String,
    },
}

/// Without the token: what is printed for debugging is no place for secrets.
impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Head => f.write_str("Head"),
            Self::Member { address, .. } => write!(f, "Member {{ address: {address:?} }}"),
        }
    }
}

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The system is out of descriptors or threads.
    #[error(
        "the system refused {what}: {source}\n\
         hint: raise the limits on open files (ulimit -n) and on processes (ulimit -u)"
    )]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// This build cannot do that.
    #[error("this build of aktis cannot {what} yet")]
    Absent {
        /// What it was to do.
        what: &'static str,
    },
}

/// A daemon that runs in this process.
pub struct Daemon {
    state: Arc<State>,
    /// Dropped before the directory: who waits for the end of a daemon waits for the end of its connection.
    server: Mutex<Option<AdminServer>>,
    directory: Directory,
}

struct State {
    row: NodeRow,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Daemon {
    /// Starts a daemon. When this returns, it is ready.
    pub fn start(config: DaemonConfig) -> Result<Self, DaemonError> {
        if let Role::Member { .. } = config.role {
            return Err(DaemonError::Absent { what: "join a cluster" });
        }
        if config.listen.is_some() {
            return Err(DaemonError::Absent { what: "listen for other machines" });
        }
        let system = |what| move |source| DaemonError::System { what, source };
        let directory = Directory::claim(&config.directory)?;
        let row = own_row(&config).map_err(system("random bytes"))?;
        let state = Arc::new(State { row, stopped: Mutex::default(), changed: Condvar::new() });
        let listener = directory.listen(SOCKET_NAME)?;
        let server = AdminServer::start(listener, state.clone()).map_err(system("a thread"))?;
        Ok(Self { state, server: Mutex::new(Some(server)), directory })
    }

    /// The id of its node.
    pub fn node(&self) -> NodeId {
        self.state.row.node
    }

    /// Where it listens for other machines.
    pub fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// The exact command that makes another machine join, if this daemon is the head.
    pub fn join_command(&self) -> Option<String> {
        None
    }

    /// Waits until somebody has it stopped: [`Self::stop`], or a command.
    pub fn wait(&self) {
        let mut stopped = self.state.stopped.lock();
        while !*stopped {
            self.state.changed.wait(&mut stopped);
        }
    }

    /// Has it stopped: [`Self::wait`] returns. All is over when the daemon is dropped.
    pub fn stop(&self) {
        self.state.stop();
    }

    /// What other threads can stop it with, without keeping it alive.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.state.clone())
    }
}

/// Stops a daemon; see [`Daemon::stopper`].
#[derive(Clone)]
pub struct Stopper(Arc<State>);

impl Stopper {
    /// As [`Daemon::stop`].
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        // Who finds the socket gone knows that nobody is there; one that is left behind does no harm.
        let _ = self.directory.remove(SOCKET_NAME);
        drop(self.server.lock().take());
    }
}

fn own_row(config: &DaemonConfig) -> io::Result<NodeRow> {
    let mut words = [0; 16];
    rustix::rand::getrandom(&mut words, rustix::rand::GetRandomFlags::empty())?;
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut all = Resources::none().with(resources::CPU, Amount::units(cpus));
    for (name, amount) in &config.resources {
        all.set(name, *amount);
    }
    let row = |(name, total): (&str, Amount)| ResourceRow { name: name.to_owned(), total, available: total };
    Ok(NodeRow {
        node: NodeId::from_words([word(&words[..8]), word(&words[8..])]),
        is_head: true,
        state: NodeState::Alive,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        address: String::new(),
        pid: std::process::id(),
        labels: config.labels.clone(),
        resources: all.iter().map(row).collect(),
        ..NodeRow::default()
    })
}

impl State {
    fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }
}

impl Admin for State {
    fn status(&self) -> Result<ClusterStatus, Refusal> {
        Ok(ClusterStatus { node: self.row.node, nodes: vec![self.row.clone()], ..ClusterStatus::default() })
    }

    fn stop(&self, _: StopScope) -> Result<(), Refusal> {
        self.stop();
        Ok(())
    }

    fn list(&self, query: &ListQuery) -> Result<Listing, Refusal> {
        if query.what != ListKind::Nodes {
            return Err(absent("list what runs on a node"));
        }
        let (rows, left_out) = query.select([self.row.clone()]);
        Ok(Listing { rows: Rows::Nodes(rows), left_out, silent: Vec::new() })
    }

    fn explain(&self, _: &IdPrefix) -> Result<String, Refusal> {
        Err(absent("explain what runs on a node"))
    }

    fn logs(&self, _: &LogQuery, _: Option<LogPosition>, _: Duration) -> Result<LogPage, Refusal> {
        Err(absent("keep what processes print"))
    }

    fn token(&self, _: Duration) -> Result<JoinToken, Refusal> {
        Err(absent("let other machines join"))
    }
}

fn absent(what: &'static str) -> Refusal {
    Refusal::new(DaemonError::Absent { what }.to_string())
}
