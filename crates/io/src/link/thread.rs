//! The thread of a link: reads, hands over, writes, and keeps the connection alive or gets another one.

use super::carrier::{Batch, Carrier};
use super::{LinkEnd, LinkEvents, Peer, Shared, Side};
use crate::frame::Kind;
use crate::hello::{Hello, Refusal, Welcome};
use crate::identity::Name;
use crate::tls::{self, Service};
use crate::wire::{Wire, WireError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of the frame that answers a hello.
const ANSWER_BYTES_MAX: usize = 4096;

/// Serves a link until it is over. `forget` is called before the events are told.
pub(crate) fn run(shared: &Arc<Shared>, mut events: Box<dyn LinkEvents>, forget: impl FnOnce()) {
    let ending = Ending { shared, forget: Some(forget) };
    let batch = Batch::default();
    let mut thread =
        Thread { shared, events: &mut *events, batch, readable: true, redial: None, attempts: 0 };
    let end = loop {
        if let ControlFlow::Break(end) = thread.turn() {
            break end;
        }
    };
    drop(ending);
    events.on_closed(&end);
}

/// Ends the link for all others, also when a handler panics.
struct Ending<'a, F: FnOnce()> {
    shared: &'a Shared,
    forget: Option<F>,
}

impl<F: FnOnce()> Drop for Ending<'_, F> {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(forget) = self.forget.take() {
            forget();
        }
    }
}

/// The next attempt to dial.
struct Redial {
    at: Instant,
    wait: Duration,
}

struct Thread<'a> {
    shared: &'a Shared,
    events: &'a mut dyn LinkEvents,
    batch: Batch,
    /// The socket may have something.
    readable: bool,
    /// While there is no connection, and this side dials.
    redial: Option<Redial>,
    /// How often this side has dialled again.
    attempts: u32,
}

impl Thread<'_> {
    fn turn(&mut self) -> ControlFlow<LinkEnd> {
        let now = Instant::now();
        if self.readable {
            self.receive(now)?;
        }
        self.shared.carrier.lock().send(&self.shared.outbox, now);
        self.look_at_the_clock(now)?;
        if !self.readable && self.events.on_quiet() {
            self.readable = true;
        } else if !self.readable {
            self.sleep();
        }
        ControlFlow::Continue(())
    }

    fn receive(&mut self, now: Instant) -> ControlFlow<LinkEnd> {
        let intake = self.shared.carrier.lock().receive(&self.shared.outbox, &mut self.batch, now);
        self.readable = intake.more;
        if !self.batch.is_empty() {
            self.events.on_frames(self.batch.frames());
            self.batch.clear();
        }
        if intake.drained {
            self.events.on_drained();
        }
        intake.end.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    /// What is to be done because time has passed, or because there is no connection.
    fn look_at_the_clock(&mut self, now: Instant) -> ControlFlow<LinkEnd> {
        let mut carrier = self.shared.carrier.lock();
        let is_dead = now >= carrier.dead_at();
        if self.dials() && now >= carrier.doubtful_at() {
            carrier.disconnect();
        }
        if carrier.is_connected() && !is_dead {
            self.redial = None;
            return ControlFlow::Continue(());
        }
        drop(carrier);
        if let Some(reason) = self.shared.outbox.lock().closing() {
            return ControlFlow::Break(LinkEnd::ClosedHere(reason.to_owned()));
        }
        if is_dead {
            return ControlFlow::Break(LinkEnd::Silent(self.shared.timing.grace));
        }
        match &self.shared.side {
            Side::Accepted => ControlFlow::Continue(()),
            Side::Dialled(configurations) => {
                let configurations = configurations.get();
                self.redial(configurations.client(Service::Link), now)
            }
        }
    }

    fn dials(&self) -> bool {
        matches!(self.shared.side, Side::Dialled(_))
    }

    fn redial(&mut self, configuration: &Arc<ClientConfig>, now: Instant) -> ControlFlow<LinkEnd> {
        let timing = &self.shared.timing;
        let redial = self.redial.get_or_insert(Redial { at: now, wait: timing.redial_first });
        if now < redial.at {
            return ControlFlow::Continue(());
        }
        self.attempts += 1;
        let (received, dead_at) = {
            let carrier = self.shared.carrier.lock();
            (carrier.received(), carrier.dead_at())
        };
        let hello = Hello::Resume { link: self.shared.id, attempt: self.attempts, received };
        let deadline = dead_at.min(now + timing.redial_attempt);
        let Peer { node, role, address, .. } = self.shared.peer;
        match say_hello(address, configuration, Name { node, role }, &hello, deadline) {
            Ok((wire, welcome)) => return self.on_redialled(wire, welcome),
            Err(DialError::Refused(refusal @ (Refusal::UnknownLink | Refusal::Version(_)))) => {
                return ControlFlow::Break(LinkEnd::Forgotten(refusal));
            }
            Err(_) => {}
        }
        redial.at = Instant::now() + redial.wait;
        redial.wait = (redial.wait * 2).min(timing.redial_max);
        ControlFlow::Continue(())
    }

    fn on_redialled(&mut self, wire: Wire, welcome: Welcome) -> ControlFlow<LinkEnd> {
        let mut carrier = self.shared.carrier.lock();
        if let Err(error) = self.shared.outbox.lock().on_connected(welcome.received) {
            return ControlFlow::Break(LinkEnd::Violation(error.to_string()));
        }
        carrier.connect(wire, self.attempts, Instant::now());
        self.redial = None;
        // Frames may have come together with the answer.
        self.readable = true;
        ControlFlow::Continue(())
    }

    /// Waits until something comes, is queued, or is due.
    fn sleep(&mut self) {
        let shared = self.shared;
        // Whoever queues something from here on rings; what was queued before is found by looking.
        shared.asleep.store(true, Ordering::SeqCst);
        let (awaited, until) = {
            let carrier = shared.carrier.lock();
            let can_send = !carrier.is_stuck() && shared.outbox.lock().has_unsent();
            let until = if can_send { Instant::now() } else { self.due_at(&carrier) };
            (carrier.awaited(), until)
        };
        let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut polled = vec![PollFd::new(&shared.bell, PollFlags::IN)];
        if let Some((socket, wants_write)) = &awaited {
            let flags = if *wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            polled.push(PollFd::new(socket, flags));
        }
        // An interrupted wait is a short one.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        shared.asleep.store(false, Ordering::SeqCst);
        let heard = |index: usize| polled.get(index).is_some_and(|polled| !polled.revents().is_empty());
        self.readable = heard(1);
        if heard(0) {
            shared.bell.hear();
        }
    }

    /// When there is something to do, if nothing happens before.
    fn due_at(&self, carrier: &Carrier) -> Instant {
        let mut until = carrier.dead_at();
        if let Some(speaks_at) = carrier.speaks_at() {
            until = until.min(speaks_at);
        }
        if self.dials() {
            // Without a connection it dials at once, except between two attempts.
            let dials_at = if carrier.is_connected() { Some(carrier.doubtful_at()) } else { None };
            let redials_at = self.redial.as_ref().map(|redial| redial.at);
            until = until.min(dials_at.or(redials_at).unwrap_or_else(Instant::now));
        }
        until
    }
}

/// Why a node could not be dialled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// There is no connection, or it has failed.
    #[error("no connection: {0}")]
    Wire(#[from] WireError),
    /// The other side said no.
    #[error(transparent)]
    Refused(Refusal),
    /// There are too many links here.
    #[error("there are {0} links, which is the limit")]
    TooMany(usize),
    /// The greeting is too long.
    #[error("a greeting of {0} bytes is too long")]
    Greeting(usize),
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Dials, says hello, and waits for the answer.
pub(crate) fn say_hello(
    address: SocketAddr,
    configuration: &Arc<ClientConfig>,
    name: Name,
    hello: &Hello,
    deadline: Instant,
) -> Result<(Wire, Welcome), DialError> {
    let mut wire = Wire::connect(address, configuration, tls::server_name(name), deadline)?;
    wire.send_frame(Kind::Hello, &hello.encode(), deadline)?;
    match wire.receive_frame(ANSWER_BYTES_MAX, deadline)? {
        (Kind::Welcome, payload) => {
            let welcome = Welcome::decode(&payload).ok_or(WireError::Unexpected)?;
            Ok((wire, welcome))
        }
        (Kind::Refused, payload) => Err(DialError::Refused(Refusal::decode(&payload))),
        _ => Err(WireError::Unexpected.into()),
    }
}
