//! Connections that come in: who they are, and what becomes of them.

use super::Inner;
use super::complaints::Kind as Complaint;
use super::gate::Pass;
use crate::bulk;
use crate::frame::{FrameError, Kind};
use crate::hello::{Hello, HelloError, JoinRequest, LinkId, Refusal, Welcome};
use crate::identity::Name;
use crate::link::{self, Link, Peer, Shared};
use crate::tls::Service;
use crate::wire::{Wire, WireError};
use aktis_protocol::limits;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// How long nothing is accepted after the system refused to: it lacks descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the endpoint is closed.
pub(super) fn run(inner: &Arc<Inner>, listener: &TcpListener) {
    while !inner.closed.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((socket, address)) => admit(inner, socket, address),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(inner, Some(listener), None),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                inner.complaints.say(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Complaint::System, &error);
                wait(inner, None, Some(PAUSE));
            }
        }
    }
}

/// The connection was gone before it was accepted; the next one may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

fn wait(inner: &Inner, listener: Option<&TcpListener>, timeout: Option<Duration>) {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut polled = vec![PollFd::new(&inner.bell, PollFlags::IN)];
    polled.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
    // An interrupted wait is a short one. The bell rings once, for the end: it stays rung.
    let _ = rustix::event::poll(&mut polled, timeout.as_ref());
}

fn admit(inner: &Arc<Inner>, socket: TcpStream, address: SocketAddr) {
    let Some(pass) = inner.gate.enter(address.ip()) else {
        return inner.complaints.say(
            address.ip(),
            Complaint::Crowd,
            &"too many that have not said who they are",
        );
    };
    let guest = Guest { inner: Arc::clone(inner), address, pass };
    let spawned = thread::Builder::new().name("aktis-link".to_owned()).spawn(move || guest.serve(socket));
    if let Err(error) = spawned {
        inner.complaints.say(address.ip(), Complaint::System, &error);
    }
}

/// Why a connection is refused.
enum Refused {
    /// It cannot be told, or has been told by TLS.
    Silently(WireError),
    /// It is told.
    Told(Box<Wire>, Complaint, Refusal),
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        Self::Silently(error)
    }
}

/// Somebody who has connected.
struct Guest {
    inner: Arc<Inner>,
    address: SocketAddr,
    pass: Pass,
}

impl Guest {
    fn serve(self, socket: TcpStream) {
        let (inner, address) = (Arc::clone(&self.inner), self.address);
        let deadline = Instant::now() + inner.timing.handshake;
        match self.shake_hands(socket, deadline) {
            Ok(()) => {}
            Err(Refused::Silently(error)) => inner.complaints.say(address.ip(), kind_of(&error), &error),
            Err(Refused::Told(mut wire, kind, refusal)) => {
                inner.complaints.say(address.ip(), kind, &refusal);
                // Whether it hears that is its own affair.
                let _ = wire.send_frame(Kind::Refused, &refusal.encode(), deadline);
                wire.close();
            }
        }
    }

    fn shake_hands(self, socket: TcpStream, deadline: Instant) -> Result<(), Refused> {
        let (mut wire, service) = Wire::accept(socket, &self.inner.configurations.get(), deadline)?;
        // Whoever joins has no name yet, and gets no further than that.
        let peer = if service == Service::Join { None } else { Some(wire.peer()?) };
        let limit =
            limits::STRANGER_FRAME_BYTES_MAX + if peer.is_some() { limits::GREETING_BYTES_MAX } else { 0 };
        let (kind, payload) = wire.receive_frame(limit, deadline)?;
        if kind != Kind::Hello {
            return Err(WireError::Unexpected.into());
        }
        let hello = match Hello::decode(&payload) {
            Ok(hello) => hello,
            Err(error @ HelloError::Version { .. }) => {
                return Err(Refused::Told(wire.into(), Complaint::Version, error.into()));
            }
            Err(error) => return Err(Refused::Told(wire.into(), Complaint::Hello, error.into())),
        };
        match (service, peer, hello) {
            (Service::Link, Some(peer), Hello::Open { link, greeting }) => {
                self.open(peer, link, &greeting, wire, deadline)
            }
            (Service::Link, Some(peer), Hello::Resume { link, attempt, received }) => {
                self.resume(peer, link, attempt, received, wire)
            }
            (Service::Bulk, Some(peer), Hello::Bulk) => self.serve_objects(peer, wire),
            (Service::Join, None, Hello::Join(request)) => self.let_join(&request, wire, deadline),
            _ => Err(WireError::Unexpected.into()),
        }
    }

    /// A new link, whose thread this is from now on.
    fn open(
        self,
        Name { node, role }: Name,
        id: LinkId,
        greeting: &[u8],
        mut wire: Wire,
        deadline: Instant,
    ) -> Result<(), Refused> {
        let Self { inner, address, pass } = self;
        let peer = Peer { node, role, address, public_key: wire.peer_public_key() };
        // The answer goes first on the wire, and frames that are sent from the events go after it.
        let shared = Shared::accepted(id, peer, inner.timing).map_err(WireError::from)?;
        let told =
            |wire: Wire, why: String| Refused::Told(wire.into(), Complaint::Unwanted, Refusal::Other(why));
        if let Err(error) = inner.admit(&shared) {
            return Err(told(wire, error.to_string()));
        }
        let forget = || inner.forget(id);
        let events = match inner.events.on_link(&peer, greeting, &Link(Arc::clone(&shared))) {
            Ok(events) => events,
            Err(why) => {
                forget();
                return Err(told(wire, why));
            }
        };
        // If the answer cannot be given, the link ends by silence, as any other does.
        if wire.send_frame(Kind::Welcome, &Welcome { received: 0 }.encode(), deadline).is_ok() {
            shared.begin(wire);
        }
        drop(pass);
        link::run(&shared, events, forget);
        Ok(())
    }

    /// Another connection for a link that has a thread already.
    fn resume(self, peer: Name, id: LinkId, attempt: u32, received: u64, wire: Wire) -> Result<(), Refused> {
        let link = self.inner.links.lock().get(&id).cloned();
        let told = |wire: Wire, refusal| Refused::Told(wire.into(), Complaint::Unwanted, refusal);
        let Some(link) = link else { return Err(told(wire, Refusal::UnknownLink)) };
        link.resume(peer, wire, attempt, received).map_err(|(wire, refusal)| told(wire, refusal))
    }

    /// Parts of objects, which this thread serves from now on.
    fn serve_objects(self, peer: Name, wire: Wire) -> Result<(), Refused> {
        let Self { inner, pass, .. } = self;
        let told = |wire: Wire, refusal| Refused::Told(wire.into(), Complaint::Unwanted, refusal);
        let Some(objects) = &inner.objects else {
            return Err(told(wire, Refusal::Other("there are no objects here".into())));
        };
        if let Err(why) = objects.admit(peer.node) {
            return Err(told(wire, Refusal::Other(why)));
        }
        let socket = Arc::clone(wire.socket());
        let Some(_serving) = inner.servings.begin(&socket) else {
            return Err(told(wire, Refusal::Busy("too many connections for objects".into())));
        };
        drop(pass);
        // However it ends, whoever pulls knows, and pulls again if he likes.
        let _ = bulk::serve(wire, peer.node, &**objects, &inner.timing);
        Ok(())
    }

    /// A certificate for somebody who has a token.
    fn let_join(self, request: &JoinRequest, mut wire: Wire, deadline: Instant) -> Result<(), Refused> {
        let Some(door) = &self.inner.door else { return Err(WireError::Protocol.into()) };
        match door.answer(request, self.address, self.inner.identity.node()) {
            Ok(answer) => Ok(wire.send_frame(Kind::Welcome, &answer, deadline)?),
            Err(refusal) => {
                let is_token = matches!(refusal, Refusal::Token(_));
                let kind = if is_token { Complaint::Token } else { Complaint::Unwanted };
                Err(Refused::Told(wire.into(), kind, refusal))
            }
        }
    }
}

fn kind_of(error: &WireError) -> Complaint {
    match error {
        WireError::Late => Complaint::Late,
        WireError::Closed | WireError::System(_) => Complaint::Gone,
        WireError::Protocol => Complaint::Protocol,
        WireError::Name => Complaint::Name,
        WireError::Tls(_) => Complaint::Tls,
        WireError::Unexpected | WireError::Frame(FrameError::Kind(_) | FrameError::TooLong { .. }) => {
            Complaint::Hello
        }
    }
}
