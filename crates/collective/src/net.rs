//! Streams between the machines of a group: encrypted, made when they are first needed.
//!
//! Each stream carries data one way, between two members, for one purpose. On each machine one member, the leader, talks
//! to the other leaders; only `send` and `receive` connect other members.
//!
//! Invariants:
//! 1. A stream is between two members of this group: both ends know the fingerprint of the other's certificate.
//! 2. Every frame begins with the operation it belongs to; a member takes no data of another operation.
//! 3. A leader that learns of a failure tells all other leaders of it.

use crate::error::{CollectiveError, Result};
use crate::guard::Guard;
use crate::local::{Local, mismatch};
use crate::operation::Operation;
use crate::seat::Card;
use crate::watch::Watch;
use aktis_io::{PinnedIdentity, PinnedStream, WireError};
use aktis_store::Alarm;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// How long a dialler may take to show its certificate.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at a time; more diallers wait.
const HANDSHAKES_MAX: usize = 64;
/// How long a member waits for the reason when a stream breaks: another leader may know it.
const REASON: Duration = Duration::from_millis(400);
/// How often a member that waits for a stream looks whether to go on.
const SLICE: Duration = Duration::from_millis(20);

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Failures and farewells between leaders.
    Control = 0,
    /// Small arrays between leaders.
    Tree = 1,
    /// Large arrays between leaders: one of several.
    Ring = 2,
    /// `send` and `receive`.
    Pair = 3,
}

impl Purpose {
    fn from_code(code: u8) -> Option<Self> {
        [Self::Control, Self::Tree, Self::Ring, Self::Pair].into_iter().find(|purpose| *purpose as u8 == code)
    }
}

/// Which stream: the other member, what for, and the how many-th.
pub(crate) type Key = (usize, Purpose, u8);

/// Streams that others have dialled, and nobody uses yet.
pub(crate) struct Incoming {
    streams: Mutex<HashMap<Key, PinnedStream>>,
    changed: Condvar,
    closing: AtomicBool,
    handshakes: AtomicUsize,
}

/// One member's connections.
pub(crate) struct Net {
    identity: Arc<PinnedIdentity>,
    cards: Vec<Card>,
    rank: usize,
    /// The rank of each leader, and which of them this machine's is.
    pub(crate) leaders: Vec<usize>,
    pub(crate) position: usize,
    incoming: Arc<Incoming>,
    outgoing: Mutex<HashMap<Key, PinnedStream>>,
    taken: Mutex<HashMap<Key, PinnedStream>>,
    alarm: Alarm,
    watch: Option<Watch>,
    listener: Arc<TcpListener>,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

/// The head of each frame.
const HEAD_WORDS: usize = 5;

impl Net {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn start(
        identity: PinnedIdentity,
        listener: TcpListener,
        rank: usize,
        cards: &[Card],
        leaders: &[usize],
        position: usize,
        local: &Local,
        deadline: Instant,
    ) -> Result<Self> {
        let incoming = Arc::new(Incoming {
            streams: Mutex::default(),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            handshakes: AtomicUsize::new(0),
        });
        let identity = Arc::new(identity);
        let listener = Arc::new(listener);
        let acceptor = {
            let (identity, incoming, cards) = (identity.clone(), incoming.clone(), cards.to_vec());
            let listener = listener.clone();
            let builder = std::thread::Builder::new().name("aktis-accept".to_owned());
            let run = move || accept_all(&listener, &identity, &incoming, &Arc::new(cards));
            builder.spawn(run).map_err(|error| CollectiveError::Setup(format!("no thread: {error}")))?
        };
        let mut net = Self {
            identity,
            cards: cards.to_vec(),
            rank,
            leaders: leaders.to_vec(),
            position,
            incoming,
            outgoing: Mutex::default(),
            taken: Mutex::default(),
            alarm: local.alarm().clone(),
            watch: None,
            listener,
            acceptor: Some(acceptor),
        };
        if leaders[position] == rank {
            net.meet_leaders(local, deadline)?;
        }
        Ok(net)
    }

    /// Connects with all other leaders, and watches them.
    fn meet_leaders(&mut self, local: &Local, deadline: Instant) -> Result<()> {
        let others: Vec<usize> = self.leaders.iter().copied().filter(|leader| *leader != self.rank).collect();
        let mut out = Vec::new();
        for leader in &others {
            let stream = self.dial((*leader, Purpose::Control, 0), deadline);
            out.push(stream.map_err(|error| self.unreachable(*leader, &error))?);
        }
        let mut watched = Vec::new();
        for leader in others {
            let late = || {
                CollectiveError::Setup(format!(
                    "rank {} waited in vain for rank {leader} to connect\nhint: can its machine reach {:?}?",
                    self.rank,
                    self.listener.local_addr()
                ))
            };
            watched.push((
                leader,
                self.incoming.take((leader, Purpose::Control, 0), deadline).ok_or_else(late)?,
            ));
        }
        self.watch = Some(Watch::start(watched, out, local, self.alarm.clone())?);
        Ok(())
    }

    fn unreachable(&self, rank: usize, error: &WireError) -> CollectiveError {
        let address = self.cards[rank].address().map_or("nowhere".to_owned(), |address| address.to_string());
        CollectiveError::MemberDied { rank, reason: format!("it cannot be reached at {address}: {error}") }
    }

    fn dial(&self, key: Key, deadline: Instant) -> std::result::Result<PinnedStream, WireError> {
        let card = &self.cards[key.0];
        let address = card.address().ok_or(WireError::Closed)?;
        let mut stream = self.identity.connect(address, card.fingerprint(), deadline)?;
        stream.send(&[key.1 as u8, key.2], || Instant::now() < deadline)?;
        Ok(stream)
    }

    /// Whether a member that waits for `peer` goes on.
    fn goes_on(&self, peer: usize, guard: &Guard<'_>) -> bool {
        !self.alarm.has_failed() && !guard.is_late() && !(guard.interrupted)() && !self.has_left(peer)
    }

    fn has_left(&self, peer: usize) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.has_left(peer))
    }

    /// Why a stream with `peer` failed.
    fn reason(&self, peer: usize, error: &WireError, guard: &Guard<'_>) -> CollectiveError {
        let began = Instant::now();
        let is_lost = !matches!(error, WireError::Late);
        while is_lost && !self.alarm.has_failed() && began.elapsed() < REASON {
            std::thread::sleep(SLICE);
        }
        let known = self.alarm.failure().map(|bytes| CollectiveError::decode(&bytes));
        let found = known.unwrap_or_else(|| {
            if self.has_left(peer) {
                CollectiveError::MemberDied { rank: peer, reason: "it has left the group".to_owned() }
            } else if is_lost {
                CollectiveError::MemberDied {
                    rank: peer,
                    reason: format!("the connection to it was lost: {error}"),
                }
            } else if (guard.interrupted)() {
                CollectiveError::Interrupted { rank: self.rank }
            } else {
                let operation = guard.operation.to_string();
                CollectiveError::timed_out(operation, self.rank, guard.began.elapsed(), &[peer])
            }
        });
        self.fail(found)
    }

    fn fail(&self, error: CollectiveError) -> CollectiveError {
        self.alarm.fail(&error.encode());
        if let Some(watch) = &self.watch {
            watch.wake();
        }
        self.alarm.failure().map_or(error, |bytes| CollectiveError::decode(&bytes))
    }

    /// Takes the stream to another member out of the table, or makes it.
    pub(crate) fn outgoing(&self, key: Key, guard: &Guard<'_>) -> Result<PinnedStream> {
        if let Some(stream) = self.outgoing.lock().remove(&key) {
            return Ok(stream);
        }
        let deadline = guard.began + guard.timeout;
        self.dial(key, deadline).map_err(|error| match error {
            WireError::Late => self.reason(key.0, &error, guard),
            _ => {
                let lost = self.unreachable(key.0, &error);
                let began = Instant::now();
                while !self.alarm.has_failed() && began.elapsed() < REASON {
                    std::thread::sleep(SLICE);
                }
                self.fail(lost)
            }
        })
    }

    /// Takes the stream from another member, once it is there.
    pub(crate) fn incoming(&self, key: Key, guard: &Guard<'_>) -> Result<PinnedStream> {
        if let Some(stream) = self.taken.lock().remove(&key) {
            return Ok(stream);
        }
        loop {
            if let Some(stream) = self.incoming.take(key, Instant::now() + SLICE) {
                return Ok(stream);
            }
            if !self.goes_on(key.0, guard) {
                return Err(self.reason(key.0, &WireError::Late, guard));
            }
        }
    }

    /// Keeps a stream for its next use.
    pub(crate) fn keep_outgoing(&self, key: Key, stream: PinnedStream) {
        self.outgoing.lock().insert(key, stream);
    }

    /// Keeps a stream for its next use.
    pub(crate) fn keep_incoming(&self, key: Key, stream: PinnedStream) {
        self.taken.lock().insert(key, stream);
    }

    /// Sends a frame.
    pub(crate) fn send(
        &self,
        stream: &mut PinnedStream,
        to: usize,
        bytes: &[u8],
        guard: &Guard<'_>,
    ) -> Result<()> {
        let [a, b, c, d] = guard.operation.to_words();
        let head: [u64; HEAD_WORDS] = [a, b, c, d, bytes.len() as u64];
        let sent = stream.send(head.as_bytes(), || self.goes_on(to, guard));
        let sent = sent.and_then(|()| stream.send(bytes, || self.goes_on(to, guard)));
        sent.map_err(|error| self.reason(to, &error, guard))
    }

    /// Receives a frame into `bytes`, which has its length.
    pub(crate) fn receive(
        &self,
        stream: &mut PinnedStream,
        from: usize,
        bytes: &mut [u8],
        guard: &Guard<'_>,
    ) -> Result<()> {
        let mut head = [0_u64; HEAD_WORDS];
        let received = stream.receive(head.as_mut_bytes(), || self.goes_on(from, guard));
        received.map_err(|error| self.reason(from, &error, guard))?;
        let [a, b, c, d, length] = head;
        let theirs = Operation::from_words([a, b, c, d]);
        if theirs != Some(guard.operation) || length != bytes.len() as u64 {
            return Err(self.fail(mismatch(self.rank, Some(guard.operation), from, theirs)));
        }
        let received = stream.receive(bytes, || self.goes_on(from, guard));
        received.map_err(|error| self.reason(from, &error, guard))
    }

    /// Sends one frame to a member.
    pub(crate) fn send_to(&self, to: usize, purpose: Purpose, bytes: &[u8], guard: &Guard<'_>) -> Result<()> {
        let key = (to, purpose, 0);
        let mut stream = self.outgoing(key, guard)?;
        self.send(&mut stream, to, bytes, guard)?;
        self.keep_outgoing(key, stream);
        Ok(())
    }

    /// Receives one frame from a member.
    pub(crate) fn receive_from(
        &self,
        from: usize,
        purpose: Purpose,
        bytes: &mut [u8],
        guard: &Guard<'_>,
    ) -> Result<()> {
        let key = (from, purpose, 0);
        let mut stream = self.incoming(key, guard)?;
        self.receive(&mut stream, from, bytes, guard)?;
        self.keep_incoming(key, stream);
        Ok(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.watch = None;
        self.incoming.closing.store(true, Ordering::SeqCst);
        // The acceptor waits for a dialler, and gets an error.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Incoming {
    fn take(&self, key: Key, deadline: Instant) -> Option<PinnedStream> {
        let mut streams = self.streams.lock();
        loop {
            if let Some(stream) = streams.remove(&key) {
                return Some(stream);
            }
            if self.changed.wait_until(&mut streams, deadline).timed_out() {
                return streams.remove(&key);
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    identity: &Arc<PinnedIdentity>,
    incoming: &Arc<Incoming>,
    cards: &Arc<Vec<Card>>,
) {
    loop {
        let accepted = listener.accept();
        if incoming.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok((socket, _)) = accepted else {
            // The process may have too many files open for a moment.
            std::thread::sleep(SLICE);
            continue;
        };
        // A stranger that says nothing holds nobody else up, and many of them are refused.
        if incoming.handshakes.fetch_add(1, Ordering::SeqCst) >= HANDSHAKES_MAX {
            incoming.handshakes.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (identity, incoming, cards) = (identity.clone(), incoming.clone(), cards.clone());
        let builder = std::thread::Builder::new().name("aktis-handshake".to_owned());
        let _ = builder.spawn(move || {
            if let Some((key, stream)) = welcome(socket, &identity, &cards) {
                incoming.streams.lock().insert(key, stream);
                incoming.changed.notify_all();
            }
            incoming.handshakes.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// The stream of a member that has dialled.
fn welcome(socket: TcpStream, identity: &PinnedIdentity, cards: &[Card]) -> Option<(Key, PinnedStream)> {
    let deadline = Instant::now() + HANDSHAKE;
    let fingerprints: Vec<[u8; 32]> = cards.iter().map(Card::fingerprint).collect();
    let (mut stream, peer) = identity.accept(socket, &fingerprints, deadline).ok()?;
    let mut purpose = [0; 2];
    stream.receive(&mut purpose, || Instant::now() < deadline).ok()?;
    let rank = fingerprints.iter().position(|fingerprint| *fingerprint == peer)?;
    Some(((rank, Purpose::from_code(purpose[0])?, purpose[1]), stream))
}
