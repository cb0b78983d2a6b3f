//! The present connection of a link, and what both sides know to have arrived.
//!
//! Invariants:
//! 1. A data frame counts as arrived when it is taken from a connection; from then on it will be handed over. What a
//!    failed connection had begun of a frame is forgotten with it, and comes again.
//! 2. A connection is replaced by later ones only.

use super::outbox::Outbox;
use super::{Frames, LinkEnd};
use crate::frame::{self, Kind};
use crate::hello::printable;
use crate::timing::Timing;
use crate::wire::{Received, Wire, WireError};
use aktis_protocol::limits;
use parking_lot::Mutex;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are encrypted at once.
const WRITE_BYTES: usize = 64 * 1024;
/// Frames that may have arrived before they are acknowledged without delay.
const UNACKNOWLEDGED_MAX: u64 = 256;
/// Bytes of a buffer that are kept when it is empty.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Whole frames that have arrived and wait to be handed over.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    frames: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    pub(super) fn frames(&self) -> Frames<'_> {
        Frames { rest: &self.bytes, left: self.frames }
    }

    pub(super) fn clear(&mut self) {
        self.frames = 0;
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_BYTES_KEPT);
    }
}

/// What came of reading.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// The socket may have more.
    pub(super) more: bool,
    /// Somebody who was told that the queue is full can send again.
    pub(super) drained: bool,
    /// The link ends, after what has arrived is handed over.
    pub(super) end: Option<LinkEnd>,
}

/// The present connection of a link, behind its lock.
pub(super) struct Carrier {
    wire: Option<Wire>,
    /// The connection is new: what came with the answer to the hello has not been looked at.
    fresh: bool,
    /// The number of the latest connection.
    attempt: u32,
    /// Data frames that have arrived, over all connections.
    received: u64,
    /// How many of them the other side has been told of.
    acknowledged: u64,
    /// When the first of the others arrived.
    unacknowledged_since: Instant,
    /// When the other side was heard last.
    contact: Instant,
    /// When something was written last.
    spoken: Instant,
    staging: Vec<u8>,
    timing: Timing,
    ended: bool,
}

impl Carrier {
    pub(super) fn new(wire: Option<Wire>, timing: Timing, now: Instant) -> Self {
        Self {
            wire,
            fresh: true,
            attempt: 0,
            received: 0,
            acknowledged: 0,
            unacknowledged_since: now,
            contact: now,
            spoken: now,
            staging: Vec::new(),
            timing,
            ended: false,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.wire.is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// What to wait for: the socket, and whether for room in it too.
    pub(super) fn awaited(&self) -> Option<(Arc<TcpStream>, bool)> {
        self.wire.as_ref().map(|wire| (Arc::clone(wire.socket()), wire.wants_write()))
    }

    /// Whether somebody has to wait, for room or for a connection, before more can be sent.
    pub(super) fn is_stuck(&self) -> bool {
        self.wire.as_ref().is_none_or(Wire::wants_write)
    }

    /// Uses the first connection, if it was not there from the beginning.
    pub(super) fn begin(&mut self, wire: Wire) {
        debug_assert!(self.attempt == 0 && self.wire.is_none(), "invariant 2");
        self.wire = Some(wire);
    }

    /// Uses a new connection, which tells the other side what has arrived here.
    pub(super) fn connect(&mut self, wire: Wire, attempt: u32, now: Instant) {
        debug_assert!(attempt > self.attempt, "invariant 2");
        self.wire = Some(wire);
        self.fresh = true;
        self.attempt = attempt;
        self.acknowledged = self.received;
        self.contact = now;
        self.spoken = now;
    }

    /// Gives up the connection, but not the link.
    pub(super) fn disconnect(&mut self) {
        self.wire = None;
    }

    /// Gives up the link.
    pub(super) fn end(&mut self) {
        if let Some(mut wire) = self.wire.take() {
            wire.close();
        }
        self.ended = true;
    }

    /// Takes in what has come. A connection that has failed is given up.
    pub(super) fn receive(&mut self, outbox: &Mutex<Outbox>, batch: &mut Batch, now: Instant) -> Intake {
        let Some(wire) = &mut self.wire else { return Intake::default() };
        let more = match wire.receive() {
            Ok(Received::Bytes { more }) => more,
            Ok(Received::Nothing) if self.fresh => false,
            Ok(Received::Nothing) => return Intake::default(),
            Err(_) => {
                self.wire = None;
                return Intake::default();
            }
        };
        self.fresh = false;
        self.contact = now;
        let taken = self.take_frames(outbox, batch, now);
        taken.map_or_else(
            |end| Intake { end: Some(end), ..Intake::default() },
            |intake| Intake { more, ..intake },
        )
    }

    /// Takes the whole frames out of what was read.
    fn take_frames(
        &mut self,
        outbox: &Mutex<Outbox>,
        batch: &mut Batch,
        now: Instant,
    ) -> Result<Intake, LinkEnd> {
        let Some(wire) = &mut self.wire else { return Ok(Intake::default()) };
        let mut intake = Intake::default();
        let mut taken = 0;
        let violation = |error: &dyn std::fmt::Display| LinkEnd::Violation(error.to_string());
        while intake.end.is_none() {
            let frame = frame::parse(&wire.plaintext[taken..], limits::FRAME_BYTES_MAX);
            let Some(frame) = frame.map_err(|error| violation(&error))? else { break };
            match frame.kind {
                Kind::Data => batch.frames += 1,
                Kind::Acknowledged => {
                    let count = frame.payload.try_into().map(u64::from_le_bytes);
                    let count = count.map_err(|_| violation(&"an unreadable acknowledgement"))?;
                    let drained = outbox.lock().on_acknowledged(count).map_err(|error| violation(&error))?;
                    intake.drained |= drained;
                }
                Kind::Closed => intake.end = Some(LinkEnd::ClosedByPeer(printable(frame.payload))),
                other => return Err(violation(&format_args!("an unexpected frame of the kind {other:?}"))),
            }
            taken += frame.bytes();
        }
        if batch.frames > 0 {
            if self.received == self.acknowledged {
                self.unacknowledged_since = now;
            }
            self.received += batch.frames as u64;
            // The frames are handed over where they lie; what has begun after them moves, once per batch.
            std::mem::swap(&mut batch.bytes, &mut wire.plaintext);
            wire.plaintext.extend_from_slice(&batch.bytes[taken..]);
        } else {
            wire.plaintext.drain(..taken);
        }
        Ok(intake)
    }

    /// Sends what is queued and what is due, as far as the socket takes it. A connection that has failed is given up.
    pub(super) fn send(&mut self, outbox: &Mutex<Outbox>, now: Instant) {
        if self.try_send(outbox, now).is_err() {
            self.wire = None;
        }
    }

    fn try_send(&mut self, outbox: &Mutex<Outbox>, now: Instant) -> Result<(), WireError> {
        let mut due = self.is_due(now);
        let Some(wire) = &mut self.wire else { return Ok(()) };
        while wire.flush()? {
            self.staging.clear();
            let mut outbox = outbox.lock();
            if due || (self.received > self.acknowledged && outbox.has_unsent()) {
                frame::append(Kind::Acknowledged, &self.received.to_le_bytes(), &mut self.staging);
                self.acknowledged = self.received;
                due = false;
            }
            outbox.gather(&mut self.staging, WRITE_BYTES);
            drop(outbox);
            if self.staging.is_empty() {
                return Ok(());
            }
            wire.write(&self.staging)?;
            self.spoken = now;
        }
        Ok(())
    }

    /// Whether something has to be said, even if nothing is queued.
    fn is_due(&self, now: Instant) -> bool {
        let waiting = self.received - self.acknowledged;
        waiting >= UNACKNOWLEDGED_MAX
            || (waiting > 0 && now >= self.unacknowledged_since + self.timing.acknowledgement)
            || now >= self.spoken + self.timing.heartbeat
    }

    /// When the link is dead, if nothing is heard before.
    pub(super) fn dead_at(&self) -> Instant {
        self.contact + self.timing.grace
    }

    /// When the connection is doubtful, if nothing is heard before: there should have been several heartbeats.
    pub(super) fn doubtful_at(&self) -> Instant {
        self.contact + self.timing.grace / 2
    }

    /// When something is due that has not been said, if there is a connection.
    pub(super) fn speaks_at(&self) -> Option<Instant> {
        self.wire.as_ref()?;
        let heartbeat = self.spoken + self.timing.heartbeat;
        let acknowledgement = self.unacknowledged_since + self.timing.acknowledgement;
        Some(if self.received == self.acknowledged { heartbeat } else { heartbeat.min(acknowledgement) })
    }
}
