//! Links: streams of frames between two nodes, in order, each exactly once, across failures of connections.
//!
//! A link has one thread, which reads, hands over what has arrived, and writes what is queued. Whoever sends only
//! queues, or writes himself if nobody else does at that moment ([`Link::flush`]).
//!
//! Invariants:
//! 1. `on_frames`, `on_drained` and `on_closed` are called on the link's thread, one at a time; `on_closed` once, last.
//! 2. Whatever was sent before `close` arrives before `on_closed` there, unless the link dies first.
//! 3. A link that ends at one side ends at the other: by its last words, by a refused reconnect, or by silence.

mod carrier;
mod outbox;
mod thread;

pub use outbox::SendError;
pub use thread::DialError;
pub(crate) use thread::{run, say_hello};

use crate::authority::PUBLIC_KEY_BYTES;
use crate::bell::Bell;
use crate::frame::{self, Kind};
use crate::hello::{LinkId, Refusal, Welcome};
use crate::identity::{Name, Role};
use crate::timing::Timing;
use crate::tls::Current;
use crate::wire::Wire;
use aktis_protocol::{NodeId, limits};
use carrier::Carrier;
use outbox::Outbox;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id, from its certificate.
    pub node: NodeId,
    /// Its role, from its certificate.
    pub role: Role,
    /// Where it was dialled, or where it has dialled from.
    pub address: SocketAddr,
    /// The key of its certificate, if it has dialled.
    pub public_key: Option<[u8; PUBLIC_KEY_BYTES]>,
}

/// Why a link is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkEnd {
    /// This side has closed it.
    #[error("closed here: {0}")]
    ClosedHere(String),
    /// The other side has closed it.
    #[error("closed by the peer: {0}")]
    ClosedByPeer(String),
    /// Nothing was heard for longer than the grace time.
    #[error("no contact for {} ms", .0.as_millis())]
    Silent(Duration),
    /// The other side does not know the link any more: it was restarted, or has given up.
    #[error("the peer has given the link up: {0}")]
    Forgotten(Refusal),
    /// The other side has broken the protocol.
    #[error("the peer breaks the protocol: {0}")]
    Violation(String),
}

/// What happens on a link. All of it on the link's thread, which also says that this side lives: nothing here may take
/// longer than a small part of the grace time.
pub trait LinkEvents: Send {
    /// Frames have arrived: all that were there, at once.
    fn on_frames(&mut self, frames: Frames<'_>);

    /// The queue was full, and has room again.
    fn on_drained(&mut self) {}

    /// Nothing more is there, and the thread is about to sleep. Gives whether it shall look again at once instead: for
    /// whoever expects something soon, that takes less time than to wake up.
    fn on_quiet(&mut self) -> bool {
        false
    }

    /// The link is over. Nothing more is called.
    fn on_closed(&mut self, end: &LinkEnd);
}

/// Frames that have arrived, in order.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.left > 0 {
            let frame = frame::parse(self.rest, limits::FRAME_BYTES_MAX).ok()??;
            self.rest = &self.rest[frame.bytes()..];
            if frame.kind == Kind::Data {
                self.left -= 1;
                return Some(frame.payload);
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Frames<'_> {}

/// One end of a link. Clones are the same end; it stays open when all are dropped.
#[derive(Clone)]
pub struct Link(pub(crate) Arc<Shared>);

impl Link {
    /// Whether this is an end of the same link, on the same side.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.0.peer
    }

    /// Sends a frame: queues it, and has the link's thread write it with all else that is queued. Never blocks.
    pub fn send(&self, frame: Vec<u8>) -> Result<(), SendError> {
        self.queue(frame)?;
        self.0.wake();
        Ok(())
    }

    /// Queues a frame that need not be written before the next [`flush`](Self::flush) or [`send`](Self::send).
    pub fn queue(&self, frame: Vec<u8>) -> Result<(), SendError> {
        self.0.outbox.lock().push(frame)
    }

    /// Writes what is queued, on this thread, if nobody else uses the connection; else the link's thread does.
    /// Never blocks. It saves the switch to the link's thread.
    pub fn flush(&self) {
        let Some(mut carrier) = self.0.carrier.try_lock() else { return self.0.wake() };
        carrier.send(&self.0.outbox, Instant::now());
        let is_stuck = carrier.is_stuck();
        drop(carrier);
        if is_stuck {
            self.0.wake();
        }
    }

    /// Whether there is room for much more: at least for half of what a link keeps.
    pub fn has_room(&self) -> bool {
        self.0.outbox.lock().has_room()
    }

    /// Bytes that wait to be written to the present connection.
    pub fn queued_bytes(&self) -> usize {
        self.0.outbox.lock().unsent_bytes()
    }

    /// Closes the link when all that is queued is written. `on_closed` follows, at both ends.
    pub fn close(&self, reason: &str) {
        self.0.outbox.lock().close(reason.to_owned());
        self.0.bell.ring();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({:?}, {:?})", self.0.id, self.0.peer)
    }
}

/// How a link whose connection has failed gets another one.
enum Side {
    /// It dials.
    Dialled(Arc<Current>),
    /// It waits to be dialled.
    Accepted,
}

/// What the link's thread and all others share.
pub(crate) struct Shared {
    pub(crate) id: LinkId,
    pub(crate) peer: Peer,
    side: Side,
    timing: Timing,
    // Whoever needs both locks takes the carrier's first.
    carrier: Mutex<Carrier>,
    outbox: Mutex<Outbox>,
    bell: Bell,
    /// The link's thread waits, or is about to: it wants to be woken.
    asleep: AtomicBool,
}

impl Shared {
    /// A link that was dialled.
    pub(crate) fn dialled(
        id: LinkId,
        peer: Peer,
        configurations: Arc<Current>,
        wire: Wire,
        timing: Timing,
    ) -> io::Result<Arc<Self>> {
        Self::new(id, peer, Side::Dialled(configurations), Some(wire), timing)
    }

    /// A link whose other end has dialled; what is sent on it waits until it [begins](Self::begin).
    pub(crate) fn accepted(id: LinkId, peer: Peer, timing: Timing) -> io::Result<Arc<Self>> {
        Self::new(id, peer, Side::Accepted, None, timing)
    }

    fn new(id: LinkId, peer: Peer, side: Side, wire: Option<Wire>, timing: Timing) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            id,
            peer,
            side,
            timing,
            carrier: Mutex::new(Carrier::new(wire, timing, Instant::now())),
            outbox: Mutex::new(Outbox::new()),
            bell: Bell::new()?,
            asleep: AtomicBool::new(false),
        }))
    }

    /// Gives an accepted link its first connection, before its thread runs.
    pub(crate) fn begin(&self, wire: Wire) {
        self.carrier.lock().begin(wire);
    }

    /// The link is over.
    pub(crate) fn end(&self) {
        self.carrier.lock().end();
        self.outbox.lock().end();
    }

    /// Wakes the link's thread, if it does not look at the queue anyway before it sleeps.
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// The other side has dialled again. If the new connection is not taken, it comes back with the reason.
    pub(crate) fn resume(
        &self,
        from: Name,
        mut wire: Wire,
        attempt: u32,
        received: u64,
    ) -> Result<(), (Wire, Refusal)> {
        let mut carrier = self.carrier.lock();
        let is_theirs =
            matches!(self.side, Side::Accepted) && self.peer.node == from.node && self.peer.role == from.role;
        if !is_theirs || carrier.has_ended() {
            return Err((wire, Refusal::UnknownLink));
        }
        if attempt <= carrier.attempt() {
            return Err((wire, Refusal::Other("there is a later connection of this link".to_owned())));
        }
        if let Err(error) = self.outbox.lock().on_connected(received) {
            return Err((wire, Refusal::Other(error.to_string())));
        }
        // The old connection, if it is still there, is closed under the same lock: nothing of it arrives after this.
        let mut welcome = Vec::new();
        frame::append(Kind::Welcome, &Welcome { received: carrier.received() }.encode(), &mut welcome);
        // It fails only if TLS does; the link's thread will notice that too.
        let _ = wire.write(&welcome);
        carrier.connect(wire, attempt, Instant::now());
        drop(carrier);
        self.bell.ring();
        Ok(())
    }
}
