//! Where a node is reached, and from where it reaches others.
//!
//! One thread accepts. Each connection gets a thread that finds out who it is, and then is the thread of the link, or
//! serves parts of objects, or lets somebody join.
//!
//! Invariants:
//! 1. A connection that has not shown who it is costs one thread and a few KiB, for no longer than the deadline; there
//!    are no more of them than the gate lets in.
//! 2. Nobody but a bearer of a certificate of this cluster reaches the events.

mod accept;
mod complaints;
mod gate;
mod servings;
#[cfg(test)]
mod tests;

use crate::bell::Bell;
use crate::bulk::{self, Destination, Pool, PullError, Serve};
use crate::hello::{Hello, LinkId};
use crate::identity::{Identity, IdentityError, Name, Role};
use crate::join::Door;
use crate::link::{self, DialError, Link, LinkEvents, Peer, Shared};
use crate::timing::Timing;
use crate::tls::{Configurations, Current, Service};
use crate::wire::WireError;
use aktis_protocol::{NodeId, ObjectId, limits};
use complaints::Complaints;
use gate::Gate;
use parking_lot::Mutex;
use servings::Servings;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Why an endpoint cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}\nhint: {}", listen_hint(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system refused.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
}

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => "name an address of this machine; `ip address` shows them",
        io::ErrorKind::PermissionDenied => "ports below 1024 are for root; name a higher one",
        _ => "is another node running there? port 0 takes any that is free",
    }
}

/// What happens at an endpoint.
pub trait EndpointEvents: Send + Sync {
    /// Somebody with a certificate of this cluster wants a link. Gives what is to be told about it, or why not.
    /// Called on the link's thread; frames that are sent here arrive first.
    fn on_link(&self, peer: &Peer, greeting: &[u8], link: &Link) -> Result<Box<dyn LinkEvents>, String>;
}

/// Where complaints about refused connections go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What an endpoint may have beside its links.
#[derive(Clone, Default)]
pub struct EndpointOptions {
    /// How long things may take.
    pub timing: Timing,
    /// Where complaints about refused connections go; standard error if nothing is said.
    pub log: Option<Log>,
    /// The objects that others can pull.
    pub objects: Option<Arc<dyn Serve>>,
    /// Where others can join.
    pub door: Option<Door>,
}

/// A node's or driver's place in the network.
pub struct Endpoint {
    inner: Arc<Inner>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

/// What all threads of an endpoint share.
struct Inner {
    identity: Identity,
    address: SocketAddr,
    configurations: Arc<Current>,
    events: Arc<dyn EndpointEvents>,
    timing: Timing,
    links: Mutex<HashMap<LinkId, Arc<Shared>>>,
    objects: Option<Arc<dyn Serve>>,
    door: Option<Door>,
    pool: Pool,
    servings: Servings,
    gate: Arc<Gate>,
    complaints: Complaints,
    bell: Bell,
    closed: AtomicBool,
}

impl Endpoint {
    /// Listens on `address`; port 0 takes any that is free.
    pub fn bind(
        address: SocketAddr,
        identity: Identity,
        events: Arc<dyn EndpointEvents>,
        options: EndpointOptions,
    ) -> Result<Self, EndpointError> {
        let refused = |error| EndpointError::Listen { address, error };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true)?;
        let inner = Arc::new(Inner {
            configurations: Arc::new(Current::new(configurations(&identity, options.door.as_ref())?)),
            identity,
            address: listener.local_addr()?,
            events,
            timing: options.timing,
            links: Mutex::default(),
            objects: options.objects,
            door: options.door,
            pool: Pool::default(),
            servings: Servings::default(),
            gate: Gate::new(),
            complaints: Complaints::new(options.log),
            bell: Bell::new()?,
            closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&inner);
        let acceptor = thread::Builder::new()
            .name("aktis-accept".to_owned())
            .spawn(move || accept::run(&shared, &listener))?;
        Ok(Self { inner, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Whose it is.
    pub fn node(&self) -> NodeId {
        self.inner.identity.node()
    }

    /// Dials a node, and waits until it has agreed to a link. `events` makes what is told about the link.
    pub fn dial(
        &self,
        node: NodeId,
        address: SocketAddr,
        greeting: Vec<u8>,
        events: impl FnOnce(&Link) -> Box<dyn LinkEvents>,
    ) -> Result<Link, DialError> {
        if greeting.len() > limits::GREETING_BYTES_MAX {
            return Err(DialError::Greeting(greeting.len()));
        }
        let inner = &self.inner;
        let (id, name) = (LinkId::random(), Name { node, role: Role::Node });
        let configurations = inner.configurations.get();
        let configuration = configurations.client(Service::Link);
        let deadline = Instant::now() + inner.timing.handshake;
        let hello = Hello::Open { link: id, greeting };
        let (wire, _) = link::say_hello(address, configuration, name, &hello, deadline)?;
        let peer = Peer { node, role: Role::Node, address, public_key: None };
        let shared = Shared::dialled(id, peer, Arc::clone(&inner.configurations), wire, inner.timing);
        let shared = shared.map_err(WireError::from)?;
        inner.admit(&shared)?;
        let link = Link(Arc::clone(&shared));
        let events = events(&link);
        let of_thread = Arc::clone(inner);
        let run = move || link::run(&shared, events, || of_thread.forget(id));
        let spawned = thread::Builder::new().name("aktis-link".to_owned()).spawn(run);
        if let Err(error) = spawned {
            // There is nobody else who would end it.
            link.close("a thread for it could not be started");
            link.flush();
            link.0.end();
            inner.forget(id);
            return Err(WireError::from(error).into());
        }
        Ok(link)
    }

    /// Fills `destination` with the bytes of an object that `node` has, over so many connections at most. Blocks until
    /// it is all there, or has failed.
    pub fn pull(
        &self,
        node: NodeId,
        address: SocketAddr,
        object: ObjectId,
        destination: &mut [u8],
        streams: usize,
    ) -> Result<(), PullError> {
        self.pull_rest(node, address, object, &mut Destination::new(destination), streams)
    }

    /// The same, for what has not come before.
    pub fn pull_rest(
        &self,
        node: NodeId,
        address: SocketAddr,
        object: ObjectId,
        destination: &mut Destination<'_>,
        streams: usize,
    ) -> Result<(), PullError> {
        let Inner { configurations, pool, timing, .. } = &*self.inner;
        let configurations = configurations.get();
        let means = (configurations.client(Service::Bulk), pool, timing);
        bulk::pull((node, address), object, destination, streams, means)
    }

    /// Renews its certificate, without keeping it alive.
    pub fn renewer(&self) -> Renewer {
        Renewer(Arc::downgrade(&self.inner))
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.inner.links.lock().len()
    }

    /// Stops listening, and closes all links. Their events are told on their threads, soon.
    pub fn close(&self, reason: &str) {
        self.inner.closed.store(true, Ordering::SeqCst);
        self.inner.bell.ring();
        for link in self.inner.links.lock().values() {
            Link(Arc::clone(link)).close(reason);
        }
        self.inner.servings.close();
        self.inner.pool.clear();
        let acceptor = self.acceptor.lock().take();
        if let Some(acceptor) = acceptor {
            // It panics only if something here is wrong, and then has said so.
            let _ = acceptor.join();
        }
    }
}

/// The configurations of an identity; others can join if there is a door.
fn configurations(identity: &Identity, door: Option<&Door>) -> Result<Configurations, IdentityError> {
    Configurations::new(identity, door.map(|door| &*door.authority))
}

/// Renews the certificate of an endpoint; see [`Endpoint::renewer`].
#[derive(Clone)]
pub struct Renewer(Weak<Inner>);

impl Renewer {
    /// Has the endpoint use another certificate, and another one for those who join, from the next connection on.
    pub fn renew(&self, identity: &Identity) -> Result<(), EndpointError> {
        let Some(inner) = self.0.upgrade() else { return Ok(()) };
        inner.configurations.set(configurations(identity, inner.door.as_ref())?);
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close("the endpoint is closed");
    }
}

impl Inner {
    /// Puts a link on the list.
    fn admit(&self, link: &Arc<Shared>) -> Result<(), DialError> {
        let mut links = self.links.lock();
        if self.closed.load(Ordering::SeqCst) {
            return Err(DialError::Closed);
        }
        if links.len() >= limits::LINKS_MAX || links.contains_key(&link.id) {
            return Err(DialError::TooMany(links.len()));
        }
        links.insert(link.id, Arc::clone(link));
        Ok(())
    }

    fn forget(&self, link: LinkId) {
        self.links.lock().remove(&link);
    }
}
