//! Pulls one object: several streams take parts of the destination, until none is left.

use super::pool::{self, Place, Pool, Taken};
use super::{Answer, PART_BYTES, PullError, Request, STREAMS_MAX};
use crate::frame::{self, Kind};
use crate::hello::Refusal;
use crate::timing::Timing;
use crate::wire::{Wire, WireError};
use aktis_protocol::{ObjectId, limits};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// Parts that one stream has asked for and not got yet: while one is on its way, the next is known there.
const ASKED_MAX: usize = 2;
/// Connections that may fail, one after the other, before the peer counts as gone.
const FAILURES_MAX: u32 = 3;

/// A part of the destination.
struct Part<'d> {
    offset: u64,
    bytes: &'d mut [u8],
}

/// What all streams of a pull share.
struct Pull<'p, 'd> {
    place: Place,
    object: ObjectId,
    size: u64,
    configuration: &'p Arc<ClientConfig>,
    pool: &'p Pool,
    timing: &'p Timing,
    work: Mutex<Work<'d>>,
}

struct Work<'d> {
    /// Parts that nobody has asked for, or that did not come.
    parts: VecDeque<Part<'d>>,
    /// Why there is no use in going on.
    failed: Option<PullError>,
    /// Connections that have failed since something came.
    failures: u32,
    /// When something came last.
    progress: Instant,
}

/// Fills `destination` with the bytes of `object`, with so many streams at most.
pub(crate) fn pull(
    place: Place,
    object: ObjectId,
    destination: &mut [u8],
    streams: usize,
    (configuration, pool, timing): (&Arc<ClientConfig>, &Pool, &Timing),
) -> Result<(), PullError> {
    let size = destination.len() as u64;
    let mut parts: VecDeque<_> = destination
        .chunks_mut(PART_BYTES)
        .enumerate()
        .map(|(index, bytes)| Part { offset: (index * PART_BYTES) as u64, bytes })
        .collect();
    if parts.is_empty() {
        // Even an object without bytes has to be there.
        parts.push_back(Part { offset: 0, bytes: &mut [] });
    }
    let streams = streams.clamp(1, STREAMS_MAX).min(parts.len());
    let work = Mutex::new(Work { parts, failed: None, failures: 0, progress: Instant::now() });
    let pull = Pull { place, object, size, configuration, pool, timing, work };
    thread::scope(|scope| {
        for _ in 1..streams {
            // If the system has no thread to spare, there are fewer streams.
            let _ = thread::Builder::new()
                .name("aktis-pull".to_owned())
                .spawn_scoped(scope, || pull.stream(true));
        }
        pull.stream(false);
    });
    // A stream that fails gives its parts back: others may have been done by then.
    pull.stream(false);
    pull.work.into_inner().failed.map_or(Ok(()), Err)
}

impl<'d> Pull<'_, 'd> {
    /// Takes parts until there are none, or no use in going on.
    fn stream(&self, is_further: bool) {
        while self.work.lock().goes_on() {
            let Some(taken) = self.pool.take(self.place, is_further) else { return };
            let is_new = matches!(taken, Taken::New);
            match self.use_connection(taken) {
                Ok(wire) => return self.pool.give(self.place, Some(wire), self.timing),
                // One that was kept may have been given up there: that says nothing about the peer.
                Err(PullError::PeerGone(_)) if !is_new => self.pool.give(self.place, None, self.timing),
                Err(error) => {
                    self.pool.give(self.place, None, self.timing);
                    self.work.lock().on_failed(error, self.timing);
                    thread::sleep(self.timing.redial_first);
                }
            }
        }
    }

    /// Takes parts over one connection. Those that have not come when it fails are for others.
    fn use_connection(&self, taken: Taken) -> Result<Wire, PullError> {
        let wire = match taken {
            Taken::Kept(wire) => *wire,
            Taken::New => pool::connect(self.place, self.configuration, self.timing)?,
        };
        let mut asked = VecDeque::new();
        let result = self.take_parts(wire, &mut asked);
        self.work.lock().parts.extend(asked);
        result
    }

    /// Takes parts over one connection; `asked` are those that have not come when it fails.
    fn take_parts(&self, mut wire: Wire, asked: &mut VecDeque<Part<'d>>) -> Result<Wire, PullError> {
        loop {
            while asked.len() < ASKED_MAX {
                let Some(part) = self.work.lock().parts.pop_front() else { break };
                let request = Request::Part {
                    object: self.object,
                    offset: part.offset,
                    length: part.bytes.len() as u32,
                };
                asked.push_back(part);
                self.ask(&mut wire, request)?;
            }
            let Some(part) = asked.front_mut() else {
                self.ask(&mut wire, Request::Done)?;
                return Ok(wire);
            };
            self.on_answer(&mut wire)?;
            wire.receive_into(part.bytes, self.timing.bulk_stall)?;
            asked.pop_front();
            self.work.lock().on_progress();
        }
    }

    fn ask(&self, wire: &mut Wire, request: Request) -> Result<(), WireError> {
        let mut bytes = Vec::new();
        let payload = postcard::to_stdvec(&request).expect("a request can be encoded");
        frame::append(Kind::Request, &payload, &mut bytes);
        wire.write(&bytes)?;
        wire.flush_until(Instant::now() + self.timing.bulk_stall)
    }

    /// Waits for an answer, whose bytes follow it.
    fn on_answer(&self, wire: &mut Wire) -> Result<(), PullError> {
        let deadline = Instant::now() + self.timing.bulk_stall;
        let answer = match wire.receive_frame(limits::STRANGER_FRAME_BYTES_MAX, deadline)? {
            (Kind::Answer, payload) => postcard::from_bytes(&payload).map_err(|_| WireError::Unexpected)?,
            (Kind::Refused, payload) => return Err(PullError::Refused(Refusal::decode(&payload))),
            _ => return Err(WireError::Unexpected.into()),
        };
        match answer {
            Answer::Part { size } if size == self.size => Ok(()),
            Answer::Part { size } | Answer::Outside { size } => {
                Err(PullError::SizeDiffers { expected: self.size, found: size })
            }
            Answer::Unknown(why) => Err(PullError::Unknown(crate::hello::printable(why.as_bytes()))),
        }
    }
}

impl Work<'_> {
    fn goes_on(&self) -> bool {
        self.failed.is_none() && !self.parts.is_empty()
    }

    fn on_progress(&mut self) {
        self.failures = 0;
        self.progress = Instant::now();
    }

    /// Connections may fail, but not always. Those that are closed may be too many there at present: that passes.
    fn on_failed(&mut self, error: PullError, timing: &Timing) {
        self.failures += 1;
        let is_over = match &error {
            PullError::PeerGone(WireError::Closed) => self.progress.elapsed() >= timing.bulk_stall,
            PullError::PeerGone(WireError::System(error))
                if error.kind() == io::ErrorKind::ConnectionReset =>
            {
                self.progress.elapsed() >= timing.bulk_stall
            }
            PullError::PeerGone(_) => self.failures >= FAILURES_MAX,
            _ => true,
        };
        if is_over {
            self.failed.get_or_insert(error);
        }
    }
}
