//! The control process: who is in the cluster, where things run, and who has which name. There is one in a cluster.
//!
//! It lies in a directory of its own, and takes up what it finds there:
//!
//! ```text
//! control/lock         the process that has the directory
//! control/aktis.sock   where it is asked to end, and for tokens
//! control/address      where it listens for nodes: they look for it there for as long as they live
//! control/authority    the keys of the cluster's authority
//! control/identity     who it is itself
//! control/store        its tables
//! ```
//!
//! Nodes keep a link to it. While it is away, they go on with what they have; when it is back, they say which membership
//! they held, and keep it.
//!
//! Invariants:
//! 1. A node is welcomed, a name is granted, a value is kept, and a placement group is there or gone only when that is on disk.
//! 2. A node that has lost its link, but not its lease, has the same membership as before; so has one that joins again in
//!    time after the control process was started anew.
//! 3. Nothing that nodes have between them depends on it.
//! 4. A node's id is chosen here, and never given out twice. What a member says counts only on the link over which it has
//!    joined last.

mod answers;
mod clock;
mod files;
pub(crate) mod last_words;
mod renewal;
mod rotation;
mod shell;
mod tables;
mod trust;

use crate::admin::{AdminServer, SOCKET_NAME};
use crate::directory::{Directory, DirectoryError};
use crate::log::Log;
use aktis_io::durable::DurableError;
use aktis_io::{
    Authority, Door, Endpoint, EndpointError, EndpointEvents, EndpointOptions, Frames, IdentityError, Link,
    LinkEnd, LinkEvents, Peer, Role, SendError, Token, random_node_id,
};
use aktis_logic::machine::head::{Head, HeadEffect, HeadInput, Returning};
use aktis_logic::{LinkId, Time};
use aktis_node::journal;
use aktis_protocol::NodeId;
use aktis_protocol::control::{decode, encode};
use aktis_protocol::member::{FromControl, PublicKey, ToControl};
use answers::Answers;
use clock::Clock;
use files::Files;
use parking_lot::Mutex;
use renewal::{OwnCertificate, Renewal};
use shell::HeadShell;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use trust::Doorkeeper;

pub use files::control_directory;
pub(crate) use renewal::renewed_after;

/// The greeting of a link from a node.
pub(crate) const MEMBER_GREETING: &[u8] = b"member";

/// The greeting of a link from a machine that was a node before, and wants to be another one; its public key follows,
/// which is that of the certificate that it shows.
/// Answer: [`FromControl::Certified`], with a certificate for an id that is chosen here.
pub(crate) const RETURN_GREETING: &[u8] = b"return";

/// Why a node closes its link when it leaves the cluster. If it closes it for another reason, it comes back.
pub(crate) const LEAVING: &str = "the node ends";

/// How often [`Control::wait_until_left`] looks.
const DEPARTURE_AGAIN: Duration = Duration::from_millis(2);

/// How to start a control process.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// The directory of the machine's daemon; that of the control process is in it.
    pub directory: PathBuf,
    /// Where it listens for nodes; where it did before, or else on loopback, if nothing is said.
    pub listen: Option<SocketAddr>,
    /// How long the certificates of nodes are good, and its own; they are renewed when a third of that has passed.
    pub certificate_lifetime: Option<Duration>,
    /// After how long without a sign of life a node is dead; [`limits::NODE_LEASE_MICROSECONDS`] if nothing is said.
    ///
    /// [`limits::NODE_LEASE_MICROSECONDS`]: aktis_protocol::limits::NODE_LEASE_MICROSECONDS
    pub node_timeout: Option<Duration>,
}

/// Why a control process did not start, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Who it is cannot be read, written or made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot listen for nodes.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// It cannot listen where the nodes of its cluster look for it.
    #[error(
        "cannot listen on {address}, where the nodes of this cluster look for their control process: {source}\n\
         hint: end what listens there; or name another address with --listen, and start all nodes anew"
    )]
    Moved {
        /// Where it has listened before.
        address: SocketAddr,
        /// What happened.
        source: EndpointError,
    },
    /// What it keeps cannot be read or written.
    #[error(transparent)]
    Tables(#[from] DurableError),
    /// What it keeps is not of this release.
    #[error("a row in {} cannot be read: {what}\nhint: use the `aktis` of the release that has written it", path.display())]
    Row {
        /// Where.
        path: PathBuf,
        /// Which.
        what: &'static str,
    },
    /// It cannot write any more.
    #[error(
        "the control process cannot go on: {0}\nhint: start it again in the same directory; nodes go on meanwhile"
    )]
    Halted(String),
    /// A join token could not be made.
    #[error("no token was made: {0}")]
    Token(String),
    /// Too few files may be open.
    #[error(
        "this process may have {limit} files open, and a control process takes about {wanted}\n\
         hint: raise the limit (ulimit -n {wanted})"
    )]
    OpenFiles {
        /// How many may be open.
        limit: u64,
        /// How many there will be.
        wanted: u64,
    },
    /// The system is out of threads.
    #[error("the system refused {what}: {source}\nhint: raise the limit on processes (ulimit -u)")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// A control process, or rather its threads. It ends when this is dropped.
pub struct Control {
    shared: Arc<Shared>,
    endpoint: Option<Endpoint>,
    clock: Option<JoinHandle<()>>,
    authority: Arc<Authority>,
    log: Arc<Log>,
    /// Dropped before the directory: who waits for its end waits for the end of its connection.
    server: Option<AdminServer>,
    directory: Directory,
}

struct Shared {
    /// The head; nothing else is locked while it decides.
    shell: Mutex<HeadShell>,
    clock: Arc<Clock>,
}

impl Control {
    /// Takes up what is in the directory, or begins a cluster, and listens for nodes.
    pub fn start(config: &ControlConfig) -> Result<Self, ControlError> {
        let system = |what| move |source| ControlError::System { what, source };
        // One for each node, and its connections for strangers.
        crate::files::raise_limit_of_control()?;
        let files = Files::claim(&config.directory)?;
        last_words::prepare(&control_directory(&config.directory))?;
        let mut authority = files.authority()?;
        if let Some(lifetime) = config.certificate_lifetime {
            authority = authority.with_lifetime(lifetime);
        }
        let authority = Arc::new(authority);
        let identity = files.identity(&authority)?;
        let clock = Arc::new(Clock::default());
        let shell = HeadShell::load(&files, &authority, identity.node(), &clock, config.node_timeout)?;
        let shared = Arc::new(Shared { shell: Mutex::new(shell), clock });
        let events = Arc::new(Events(Arc::downgrade(&shared)));
        let log = Arc::new(Log::new(identity.node(), "control"));
        let doorkeeper = Arc::<Doorkeeper>::default();
        doorkeeper.set(&shared);
        let bind = |listen| {
            let warn = {
                let (log, shared, own) = (log.clone(), Arc::downgrade(&shared), identity.node());
                Arc::new(move |line: &str| {
                    log.warn(line);
                    if let Some(shared) = shared.upgrade() {
                        shared.shell.lock().note_refusal(own, line.to_owned());
                    }
                })
            };
            let door = Door { authority: authority.clone(), admission: doorkeeper.clone() };
            let options = EndpointOptions { door: Some(door), log: Some(warn), ..EndpointOptions::default() };
            Ok(Endpoint::bind(listen, identity.clone(), events.clone(), options)?)
        };
        let endpoint = files.listen(config.listen, bind)?;
        let own = Arc::new(OwnCertificate {
            authority: authority.clone(),
            node: identity.node(),
            place: files.identity_directory(),
            endpoint: endpoint.renewer(),
            renewing: Mutex::default(),
            rotating: Mutex::default(),
        });
        let thread = {
            let (shared, renewal) = (shared.clone(), Renewal::new(own.clone()));
            std::thread::Builder::new().name("aktis-control".into()).spawn(move || shared.run(renewal))
        };
        let clock = Some(thread.map_err(system("a thread"))?);
        let address = endpoint.address();
        let authority_directory = files.authority_directory();
        let directory = files.into_directory();
        let listener = directory.listen(SOCKET_NAME)?;
        let mut control =
            Self { shared, endpoint: Some(endpoint), clock, authority, log, server: None, directory };
        let answers = Answers {
            clock: control.shared.clock.clone(),
            shared: Arc::downgrade(&control.shared),
            own,
            authority_directory,
            address,
            log: control.log.clone(),
        };
        control.server = Some(AdminServer::start(listener, Arc::new(answers)).map_err(system("a thread"))?);
        Ok(control)
    }

    /// Where it listens for nodes.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.as_ref().expect("open until dropped").address()
    }

    /// Keeps what this process says about itself for `aktis logs`: for a process that has this control process alone.
    pub fn keep_journal(&self) {
        self.log.keep_journal();
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A token with which so many machines can join for a while; any number if nothing is said.
    pub fn token(&self, lifetime: Duration, uses_max: Option<u32>) -> Result<Token, ControlError> {
        let made = trust::make_token(&self.shared, &self.authority, lifetime, uses_max);
        made.map_err(|failure| ControlError::Token(failure.to_string()))
    }

    /// Waits until somebody has it stopped ([`Self::stopper`], or a command), or it cannot go on.
    pub fn wait(&self) -> Result<(), ControlError> {
        let ended = self.shared.clock.wait_for_end();
        if let Err(error) = &ended
            && let Err(unkept) = last_words::keep(self.directory.path(), &error.to_string())
        {
            journal::warn(format_args!("the reason of the end cannot be kept: {unkept}"));
        }
        ended
    }

    /// Waits until a node is no member any more, at most for `patience`: its farewell may still be on its way when its
    /// process has ended.
    pub fn wait_until_left(&self, node: NodeId, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.shared.shell.lock().is_member(node) && Instant::now() < deadline {
            std::thread::sleep(DEPARTURE_AGAIN);
        }
    }

    /// How long tasks run that have this in common, as the placer believes.
    #[cfg(test)]
    pub(crate) fn expectation(&self, likeness: aktis_protocol::FunctionId) -> Option<u64> {
        let shell = self.shared.shell.lock();
        let sketch = shell.head().placer().estimates().sketch(likeness)?;
        sketch.expectation().map(|expected| expected.mean_microseconds)
    }

    /// What other threads can stop it with, without keeping it alive.
    pub fn stopper(&self) -> ControlStopper {
        ControlStopper(self.shared.clock.clone())
    }
}

/// Stops a control process; see [`Control::stopper`].
#[derive(Clone)]
pub struct ControlStopper(Arc<Clock>);

impl ControlStopper {
    /// Has it stopped: [`Control::wait`] returns. All is over when it is dropped.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Who finds the socket gone knows that nobody is there; one that is left behind does no harm.
        let _ = self.directory.remove(SOCKET_NAME);
        self.shared.clock.close();
        drop(self.endpoint.take());
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
        // What is still to be written is written before anybody is told of the end.
        self.shared.shell.lock().close();
        drop(self.server.take());
    }
}

struct Events(Weak<Shared>);

impl EndpointEvents for Events {
    fn on_link(&self, peer: &Peer, greeting: &[u8], link: &Link) -> Result<Box<dyn LinkEvents>, String> {
        let is_known = greeting == MEMBER_GREETING || greeting.starts_with(RETURN_GREETING);
        if !is_known || peer.role != Role::Node {
            return Err("the control process talks to nodes only".to_owned());
        }
        let shared = self.0.upgrade().ok_or("the control process ends")?;
        let key = peer.public_key.ok_or("its certificate is not for an Ed25519 key")?;
        if let Some(wanted) = greeting.strip_prefix(RETURN_GREETING) {
            let wanted = wanted.try_into().map_err(|_| "this is no public key")?;
            shared.let_return(link, (peer, key), wanted)?;
            return Ok(Box::new(Answered));
        }
        let id = shared.shell.lock().open_link(link);
        Ok(Box::new(FromNodes { shared, node: peer.node, key, link: link.clone(), id }))
    }
}

/// A link on which all is said.
struct Answered;

impl LinkEvents for Answered {
    fn on_frames(&mut self, _frames: Frames<'_>) {}

    fn on_closed(&mut self, _end: &LinkEnd) {}
}

struct FromNodes {
    shared: Arc<Shared>,
    node: NodeId,
    /// The key of its certificate.
    key: PublicKey,
    link: Link,
    id: LinkId,
}

impl LinkEvents for FromNodes {
    fn on_frames(&mut self, frames: Frames<'_>) {
        let now = self.shared.clock.now();
        let mut shell = self.shared.shell.lock();
        for frame in frames {
            match decode::<ToControl>(frame) {
                Ok(message) => {
                    let (from, key, link) = (self.node, self.key, self.id);
                    shell.step(now, HeadInput::Received { from, key, link, message });
                }
                Err(error) => self.link.close(&format!("a message could not be decoded: {error}")),
            }
        }
        drop(shell);
        self.shared.clock.ring();
    }

    fn on_closed(&mut self, end: &LinkEnd) {
        let now = self.shared.clock.now();
        // A node that says so leaves. All others have their leases: the fault may be the network's, or this process's own.
        let leaves = matches!(end, LinkEnd::ClosedByPeer(why) if why == LEAVING);
        let mut shell = self.shared.shell.lock();
        shell.forget_link(self.id);
        shell.step(now, HeadInput::LinkEnded { node: self.node, link: self.id, leaves });
        drop(shell);
        self.shared.clock.ring();
    }
}

impl Shared {
    /// Has the head decide something. What follows from that is on disk when the receiver is told.
    fn decide<Outcome>(
        &self,
        decide: impl FnOnce(&mut Head, Time, &mut Vec<HeadEffect>) -> Outcome,
    ) -> (Outcome, Receiver<()>) {
        let decided = self.shell.lock().decide(self.clock.now(), decide);
        self.clock.ring();
        decided
    }

    /// A machine that was a node before shows a certificate, and gets one for another id if it wants that for the same key.
    fn let_return(
        &self,
        link: &Link,
        (peer, shown): (&Peer, PublicKey),
        wanted: PublicKey,
    ) -> Result<(), String> {
        let (before, node) = (peer.node, random_node_id());
        let returning = Returning { before, shown, wanted, node, address: peer.address.to_string() };
        self.decide(|head, _, out| head.on_returned(returning, out)).0?;
        self.shell.lock().certify(link, node, wanted);
        Ok(())
    }

    fn run(&self, mut renewal: Renewal) {
        let mut due = None;
        while let Some(said) = self.clock.wait(due) {
            renewal.on_time(SystemTime::now());
            let now = self.clock.now();
            let mut shell = self.shell.lock();
            said.into_iter().for_each(|input| shell.step(now, input));
            shell.step(now, HeadInput::Ticked);
            due = shell.next_wakeup();
        }
    }
}

/// Sends a message. A link that is full is closed: the node dials again, and is told all anew. If it is gone, the node
/// learns of that by itself.
fn send(link: &Link, message: &FromControl) {
    match link.send(encode(message)) {
        Ok(()) | Err(SendError::Closed) => {}
        Err(SendError::Full(_)) => link.close("a message had no room"),
        // Who waits for it gives up after a while.
        Err(error) => journal::warn(format_args!("a message to a node was not sent: {error}")),
    }
}

#[cfg(test)]
mod tests;
