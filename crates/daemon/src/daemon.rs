//! The daemon of one machine: what `aktis start` runs.
//!
//! It is a node to which drivers attach and which has links to the other nodes of its cluster. It joins that over its
//! control process, which is a process of its own; for tests it can be in this one.

mod answers;
mod control_lines;
mod drain;
mod hiding;
mod keys;
mod kills;
mod merge;
mod own;

use crate::admin::{AdminServer, SOCKET_NAME};
use crate::control::{Control, ControlConfig, ControlError, control_directory};
use crate::control_client::ControlClient;
use crate::directory::{Directory, DirectoryError};
use crate::files;
use crate::gpus;
use crate::host::NodeHost;
use crate::inquiries::Inquiries;
use crate::log::Log;
use crate::member::Member;
use crate::neighbours::{Accepting, Asides, Neighbours, Serving};
use crate::printing::Printing;
use crate::renewal::Renewal;
use crate::returning::{self, ReturnError};
use aktis_io::{
    Endpoint, EndpointError, EndpointOptions, Identity, IdentityError, JoinError, Role as Rank, Token,
};
use aktis_node::journal;
use aktis_node::{Host, HostConfig, OutputOptions};
use aktis_protocol::admin::NodeAnswer;
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::{Amount, Epoch, NodeId, Resources, resources};
use answers::Answers;
use drain::Taking;
pub use hiding::HideControl;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long a node may take to join.
const JOIN_PATIENCE: Duration = Duration::from_secs(10);
/// The pause before a control process that does not answer is asked again.
const JOIN_AGAIN: Duration = Duration::from_millis(100);
/// Tries to come back by a certificate over connections that break.
const RETURN_TRIES_MAX: u32 = 5;
/// How long the token is good with which a daemon joins a control process in the same process.
const OWN_TOKEN: Duration = Duration::from_secs(60);
/// Where drivers attach, in the daemon's directory: the longest of the paths there.
const ATTACH_SOCKET: &str = "node/attach.sock";

/// Where the daemon's certificate and key are, in its directory.
const IDENTITY: &str = "identity";

/// How to start a daemon.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Where its sockets and files are; see [`default_directory`](crate::directory::default_directory).
    pub directory: PathBuf,
    /// Whether it begins a cluster or joins one.
    pub role: Role,
    /// Where it listens for other machines. If nothing is said: a head on loopback, a member where it reaches its head.
    pub listen: Option<SocketAddr>,
    /// Amounts that replace those found on this machine, or are added to them. Zero takes a resource away.
    pub resources: BTreeMap<String, Amount>,
    /// What users say about the node.
    pub labels: BTreeMap<String, String>,
    /// Size of the object store; a share of the machine's memory if nothing is said.
    pub store_bytes: Option<u64>,
    /// Where objects go that do not fit; the system's temporary directory if nothing is said.
    pub spill_directory: Option<PathBuf>,
    /// How many bytes of them there may be at most.
    pub spill_bytes_max: Option<u64>,
    /// Whether tasks are kept from the keys of the control process, where that is on this machine.
    pub hide_control: HideControl,
}

/// What a daemon is in its cluster.
#[derive(Clone)]
pub enum Role {
    /// It joins a control process that is in this process too: for tests, in which nothing has to outlive anything.
    Head,
    /// It joins one of which this machine was a node before, by the certificate in its directory.
    Returning {
        /// Where the head listens: `host:port`.
        address: String,
    },
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
            Self::Returning { address } => write!(f, "Returning {{ address: {address:?} }}"),
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
    /// Too few files may be open.
    #[error(
        "this process may have {limit} files open, and {workers} workers take about {wanted}\n\
         hint: raise the limit (ulimit -n {wanted}), or start the node with fewer CPUs (--cpus)"
    )]
    OpenFiles {
        /// How many may be open.
        limit: u64,
        /// How many there will be.
        wanted: u64,
        /// How many workers there may be.
        workers: u64,
    },
    /// Who it is in its cluster cannot be read, written or made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Tasks cannot be kept from the keys of the cluster.
    #[error(
        "tasks cannot be kept from {}: {source}\n\
         hint: the system must allow this user mount namespaces; else start with --hide-control auto and --cpus 0",
        place.display()
    )]
    HideControl {
        /// Where the keys are.
        place: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot listen for other machines.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The token is none.
    #[error(
        "the token is not one that a head has printed\nhint: copy it whole; `aktis token` on the head prints a new one"
    )]
    Token,
    /// The address of the head is none.
    #[error(
        "{address:?} is not the address of a head: {problem}\nhint: an address is host:port, as the head has printed it"
    )]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The head does not let it in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Its certificate does not let it in again.
    #[error(
        "the certificate in {} does not let this node join again: {problem}\n\
         hint: it may have expired, or be of another cluster; `aktis token` on the head prints a token to join with",
        place.display()
    )]
    Return {
        /// Where the certificate is.
        place: PathBuf,
        /// What is in the way.
        problem: String,
    },
    /// It is let in, and then not welcomed.
    #[error(
        "the control process at {address} has not welcomed this node within {} seconds: {problem}",
        JOIN_PATIENCE.as_secs()
    )]
    NoWelcome {
        /// Where the control process listens.
        address: SocketAddr,
        /// What is in the way, as far as is known.
        problem: String,
    },
    /// The control process in this process did not start.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The node itself did not start.
    #[error(transparent)]
    Node(#[from] aktis_node::StartError),
    /// The daemon has no place in its own node.
    #[error("the node did not start: {0}")]
    Runtime(#[from] aktis_runtime::Error),
}

/// A daemon that runs in this process.
pub struct Daemon {
    parts: Arc<Parts>,
    /// Dropped before the directory: who waits for the end of a daemon waits for the end of its connection.
    server: Mutex<Option<AdminServer>>,
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    control: Mutex<Option<Control>>,
    directory: Directory,
}

/// What the daemon consists of, for those who answer questions about it.
pub(crate) struct Parts {
    pub(crate) node: NodeId,
    pub(crate) host: NodeHost,
    pub(crate) member: Arc<Member>,
    pub(crate) neighbours: Arc<Neighbours>,
    pub(crate) client: Arc<ControlClient>,
    pub(crate) inquiries: Arc<Inquiries>,
    pub(crate) printing: Arc<Printing>,
    pub(crate) log: Arc<Log>,
    /// This node, without its epoch.
    pub(crate) about: NodeInfo,
    /// Where the head listens.
    pub(crate) head: SocketAddr,
    /// Whether the control process is on this machine, and has its directory in that of the daemon.
    pub(crate) is_head: bool,
    pub(crate) directory: PathBuf,
    /// Objects of nodes that are about to leave.
    taking: Taking,
    is_draining: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Who a daemon is, and where its head is.
struct Belonging {
    identity: Identity,
    head: (NodeId, SocketAddr),
    /// The address of this machine from which the head is reached.
    from: IpAddr,
    control: Option<Control>,
}

impl Daemon {
    /// Starts a daemon. When this returns, it is ready.
    pub fn start(config: DaemonConfig) -> Result<Self, DaemonError> {
        Self::start_with(config, |words| journal::warn(words))
    }

    /// The same; `notice` is told what it waits for, if that may take long.
    pub fn start_with(config: DaemonConfig, notice: impl Fn(&str)) -> Result<Self, DaemonError> {
        let system = |what| move |source| DaemonError::System { what, source };
        files::raise_limit_for(&offered(&config))?;
        let directory = Directory::claim(&config.directory)?;
        directory.socket(ATTACH_SOCKET)?;
        let Belonging { identity, head, from, control } = belong(&config, directory.path(), notice)?;
        // Whoever knows a process's session knows on which node it is.
        let session = identity.node().session();
        let host = Host::start(HostConfig {
            session: Some(session),
            directory: directory.path().join("node"),
            labels: config.labels.clone(),
            resources: offered(&config),
            store_bytes: config.store_bytes.unwrap_or_else(|| aktis_runtime::Config::default().store_bytes),
            spill_directory: config.spill_directory.clone().unwrap_or_else(std::env::temp_dir),
            spill_bytes_max: config.spill_bytes_max.unwrap_or(u64::MAX),
            output: OutputOptions::default(),
            hidden: hiding::hidden(&config)?,
        })?;
        let host = NodeHost::new(host)?;
        let node = identity.node();
        let log = Arc::new(Log::new(node, "daemon"));
        let printing = Printing::start(&host, log.clone()).map_err(system("a thread"))?;
        let inquiries = Arc::<Inquiries>::default();
        let asides = Asides { inquiries: inquiries.clone(), printing: printing.clone() };
        let neighbours = Neighbours::new(host.clone(), node, asides);
        printing.set_neighbours(&neighbours);
        // Known when the node has an address, and with it this endpoint.
        let noting = Arc::new(OnceLock::<Weak<ControlClient>>::new());
        let options = EndpointOptions {
            objects: Some(Arc::new(Serving(neighbours.clone()))),
            log: Some({
                let (log, noting) = (log.clone(), noting.clone());
                Arc::new(move |line: &str| {
                    log.warn(line);
                    let client = noting.get().and_then(Weak::upgrade);
                    client.iter().for_each(|client| client.note_refusal(line));
                })
            }),
            ..EndpointOptions::default()
        };
        let accepting = Arc::new(Accepting(neighbours.clone()));
        let endpoint =
            Arc::new(Endpoint::bind(own_address(&config, from), identity.clone(), accepting, options)?);
        let renewal = Renewal::new(identity, directory.path().join(IDENTITY), endpoint.renewer());
        neighbours.set_endpoint(&endpoint);
        let address = reached_at(endpoint.address(), from);
        let labels = aktis_node::host::with_own_label(config.labels.clone(), node);
        let resources = offered(&config);
        let about = NodeInfo { node, epoch: Epoch::default(), address, labels, resources };
        let client = ControlClient::start(host.clone(), about.clone(), neighbours.clone(), &endpoint);
        let _ = noting.set(Arc::downgrade(&client));
        let member = Member::join(head, &endpoint, client.clone(), renewal);
        let parts = Arc::new(Parts {
            node,
            host,
            member,
            neighbours,
            client,
            inquiries,
            printing,
            log,
            about,
            head: head.1,
            is_head: control_directory(directory.path()).exists(),
            directory: directory.path().to_owned(),
            taking: Taking::default(),
            is_draining: AtomicBool::new(false),
            stopped: Mutex::default(),
            changed: Condvar::new(),
        });
        let stopper = Stopper(Arc::downgrade(&parts));
        parts.member.set_end(move || stopper.stop());
        parts.serve_others().map_err(system("a thread"))?;
        let (server, endpoint, control) = (Mutex::default(), Mutex::new(Some(endpoint)), Mutex::new(control));
        let daemon = Self { parts, server, endpoint, control, directory };
        let welcome = daemon.parts.member.wait_welcome(JOIN_PATIENCE);
        welcome.map_err(|problem| DaemonError::NoWelcome { address: head.1, problem })?;
        // By this, drivers find the node of their machine that belongs to a cluster.
        let known_as = match &config.role {
            Role::Head => format!("{}\n", head.1),
            Role::Member { address, .. } | Role::Returning { address } => format!("{}\n{address}\n", head.1),
        };
        let address = daemon.attach_directory().join(aktis_node::ADDRESS_FILE);
        std::fs::write(address, known_as).map_err(system("a file in its directory"))?;
        let listener = daemon.directory.listen(SOCKET_NAME)?;
        let answers = Arc::new(Answers(daemon.parts.clone()));
        *daemon.server.lock() = Some(AdminServer::start(listener, answers).map_err(system("a thread"))?);
        Ok(daemon)
    }

    /// The id of its node.
    pub fn node(&self) -> NodeId {
        self.parts.node
    }

    /// Where it listens for other machines.
    pub fn address(&self) -> Option<SocketAddr> {
        Some(self.parts.about.address)
    }

    /// Where the head of its cluster listens.
    pub fn head(&self) -> SocketAddr {
        self.parts.head
    }

    /// A token with which other machines join, if the control process is in this process.
    pub fn token(&self, lifetime: Duration) -> Option<String> {
        let control = self.control.lock();
        control.as_ref()?.token(lifetime, None).ok().map(|token| token.to_string())
    }

    /// Keeps what this process says about itself for `aktis logs`: for a process that has this daemon alone.
    pub fn keep_journal(&self) {
        self.parts.log.keep_journal();
    }

    /// How many other nodes it has links to.
    pub fn linked_nodes(&self) -> usize {
        self.parts.neighbours.linked()
    }

    /// Where drivers attach.
    pub fn attach_directory(&self) -> PathBuf {
        self.directory.path().join("node")
    }

    /// Waits until somebody has it stopped: [`Self::stop`], or a command.
    pub fn wait(&self) {
        let mut stopped = self.parts.stopped.lock();
        while !*stopped {
            self.parts.changed.wait(&mut stopped);
        }
    }

    /// Has it stopped: [`Self::wait`] returns. All is over when the daemon is dropped.
    pub fn stop(&self) {
        self.parts.stop();
    }

    /// What other threads can stop it with, without keeping it alive.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.parts))
    }
}

/// Stops a daemon; see [`Daemon::stopper`].
#[derive(Clone)]
pub struct Stopper(Weak<Parts>);

impl Stopper {
    /// As [`Daemon::stop`].
    pub fn stop(&self) {
        if let Some(parts) = self.0.upgrade() {
            parts.stop();
        }
    }
}

impl Parts {
    /// Answers other nodes, and processes of this one that ask about other nodes.
    fn serve_others(self: &Arc<Self>) -> io::Result<()> {
        let weak = Arc::downgrade(self);
        self.inquiries.serve(move |question| match weak.upgrade() {
            Some(parts) => parts.answer(question),
            None => NodeAnswer::Refused("the node ends".to_owned()),
        })?;
        let (questions, asked) = channel();
        let weak = Arc::downgrade(self);
        let run = move || {
            for (process, request, id) in asked {
                let Some(parts) = weak.upgrade() else { return };
                let text = parts.explain_elsewhere(&id);
                parts.host.host().tell_explanation(process, request, text);
            }
        };
        std::thread::Builder::new().name("aktis-explain".into()).spawn(run)?;
        if self.is_head {
            control_lines::follow(self)?;
        }
        self.host.host().set_explainer(Box::new(move |process, request, id| {
            let _ = questions.send((process, request, id));
        }));
        Ok(())
    }

    /// Whether it was stopped, at the latest when `patience` is over.
    fn wait_for_stop(&self, patience: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, patience);
        }
        *stopped
    }

    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        // Who finds the socket gone knows that nobody is there; one that is left behind does no harm.
        let _ = self.directory.remove(SOCKET_NAME);
        self.parts.member.close();
        self.parts.inquiries.close();
        self.parts.printing.close();
        self.parts.neighbours.close();
        self.parts.client.close();
        self.parts.host.own().shutdown();
        self.parts.host.host().shutdown();
        drop(self.endpoint.lock().take());
        drop(self.control.lock().take());
        drop(self.server.lock().take());
    }
}

/// Joins a cluster, which is begun before if it is in this process.
fn belong(config: &DaemonConfig, directory: &Path, notice: impl Fn(&str)) -> Result<Belonging, DaemonError> {
    let (head, token, control) = match &config.role {
        Role::Head => {
            let config = ControlConfig {
                directory: directory.to_owned(),
                listen: config.listen,
                certificate_lifetime: None,
                node_timeout: None,
            };
            let control = Control::start(&config)?;
            (control.address(), control.token(OWN_TOKEN, None)?, Some(control))
        }
        Role::Returning { address } => return come_back(resolve(address)?, directory, notice),
        Role::Member { address, token } => {
            (resolve(address)?, token.parse().map_err(|_| DaemonError::Token)?, None)
        }
    };
    let joined = join(head, &token, notice)?;
    let place = directory.join(IDENTITY);
    joined.identity.save(&place)?;
    let kept = returning::keep_control(&place, joined.head);
    kept.map_err(|source| DaemonError::System { what: "a file in its directory", source })?;
    Ok(Belonging { identity: joined.identity, head: (joined.head, head), from: joined.from, control })
}

/// Joins again by the certificate of the node that was here before, as soon as the control process answers.
fn come_back(head: SocketAddr, directory: &Path, notice: impl Fn(&str)) -> Result<Belonging, DaemonError> {
    let place = directory.join(IDENTITY);
    let old = Identity::load(&place)?;
    let refused = |problem: String| DaemonError::Return { place: place.clone(), problem };
    let control =
        returning::control_in(&place).ok_or_else(|| refused("its cluster is not known".to_owned()))?;
    let system = |source| DaemonError::System { what: "a way to the head", source };
    let (mut waits, mut tries) = (false, 0);
    loop {
        let from = returning::address_towards(head).map_err(system)?;
        match returning::come_back(&old, (control, head), from, JOIN_PATIENCE) {
            Ok(identity) => {
                identity.save(&place)?;
                return Ok(Belonging { identity, head: (control, head), from, control: None });
            }
            Err(ReturnError::Refused(problem)) => return Err(refused(problem)),
            Err(ReturnError::Broken(problem)) if tries >= RETURN_TRIES_MAX => return Err(refused(problem)),
            Err(ReturnError::Broken(_)) => {
                tries += 1;
                std::thread::sleep(JOIN_AGAIN);
            }
            Err(ReturnError::Away(problem)) => {
                if !std::mem::replace(&mut waits, true) {
                    notice(&awaited(head, &problem));
                }
                std::thread::sleep(JOIN_AGAIN);
            }
        }
    }
}

/// Whether a node was in a daemon's directory before, which can come back without a token.
pub fn can_return(directory: &Path) -> bool {
    returning::control_in(&directory.join(IDENTITY)).is_some()
}

fn awaited(head: SocketAddr, problem: &str) -> String {
    format!(
        "aktis: the control process at {head} does not answer ({problem}); this node waits for it\n\
         hint: is it running, and can this machine reach that address?"
    )
}

/// Joins, as soon as the control process answers.
fn join(head: SocketAddr, token: &Token, notice: impl Fn(&str)) -> Result<aktis_io::Joined, JoinError> {
    let mut waits = false;
    loop {
        match aktis_io::join(head, token, Rank::Node, JOIN_PATIENCE) {
            Err(JoinError::Wire { error, .. }) => {
                if !std::mem::replace(&mut waits, true) {
                    notice(&awaited(head, &error.to_string()));
                }
                std::thread::sleep(JOIN_AGAIN);
            }
            joined => {
                if waits && joined.is_ok() {
                    notice(&format!("aktis: the control process at {head} is there"));
                }
                return joined;
            }
        }
    }
}

fn resolve(address: &str) -> Result<SocketAddr, DaemonError> {
    let wrong = |problem: String| DaemonError::Address { address: address.to_owned(), problem };
    let mut found = address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("it has no address".to_owned()))
}

/// Where the node listens, at any port that is free if nothing is said: where the control process does if that is in this
/// process, and else on the address from which this machine reaches the head, so that whoever reaches that reaches it.
fn own_address(config: &DaemonConfig, from: IpAddr) -> SocketAddr {
    match (&config.role, config.listen) {
        (Role::Head, Some(listen)) => SocketAddr::new(listen.ip(), 0),
        (Role::Member { .. } | Role::Returning { .. }, Some(listen)) => listen,
        (Role::Head | Role::Member { .. } | Role::Returning { .. }, None) => SocketAddr::new(from, 0),
    }
}

/// Where others reach a node that listens there: on all addresses is no place to be found at.
fn reached_at(mut listen: SocketAddr, from: IpAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(from);
    }
    listen
}

/// What the node offers: what this machine has, unless something else is said.
fn offered(config: &DaemonConfig) -> Resources {
    let mut all = aktis_runtime::Config::default().resources;
    all.set(resources::GPU, Amount::units(gpus::count()));
    for (name, amount) in &config.resources {
        all.set(name, *amount);
    }
    all
}

#[cfg(test)]
mod tests;
