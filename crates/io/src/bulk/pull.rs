//! Pulls one object: several streams take parts of the destination, until none is left.

use super::destination::{Destination, Part};
use super::pool::{self, Place, Pool, Taken};
use super::{Answer, PullError, Request, STREAMS_MAX};
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

/// What all streams of a pull share.
struct Pull<'p, 'd> {
    place: Place,
    object: ObjectId,
    size: u64,
    insists: bool,
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

/// Fills `destination` with what it lacks of `object`, with so many streams at most.
pub(crate) fn pull(
    place: Place,
    object: ObjectId,
    destination: &mut Destination<'_>,
    streams: usize,
    (configuration, pool, timing): (&Arc<ClientConfig>, &Pool, &Timing),
) -> Result<(), PullError> {
    let (size, insists) = (destination.size, destination.insists);
    let parts = std::mem::take(&mut destination.parts);
    let streams = streams.clamp(1, STREAMS_MAX).min(parts.len());
    let work = Mutex::new(Work { parts, failed: None, failures: 0, progress: Instant::now() });
    let pull = Pull { place, object, size, insists, configuration, pool, timing, work };
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
    let Work { parts, failed, .. } = pull.work.into_inner();
    destination.parts = parts;
    failed.map_or(Ok(()), Err)
}

impl<'d> Pull<'_, 'd> {
    /// Takes parts until there are none, or no use in going on.
    fn stream(&self, is_further: bool) {
        while self.work.lock().goes_on() {
            let Some(taken) = self.pool.take(self.place, is_further) else { return };
            let is_new = matches!(taken, Taken::New);
            let (wire, taken) = self.use_connection(taken);
            self.pool.give(self.place, wire, self.timing);
            match taken {
                Ok(()) => return,
                // One that was kept may have been given up there: that says nothing about the peer.
                Err(PullError::PeerGone(_)) if !is_new => {}
                Err(error) if error.is_answer() => self.work.lock().on_failed(error, self.timing),
                Err(error) => {
                    self.work.lock().on_failed(error, self.timing);
                    thread::sleep(self.timing.redial_first);
                }
            }
        }
    }

    /// Takes parts over one connection, and gives it back if it can be used again. Parts that have not come when it
    /// fails are for others.
    fn use_connection(&self, taken: Taken) -> (Option<Wire>, Result<(), PullError>) {
        let connected = match taken {
            Taken::Kept(wire) => Ok(*wire),
            Taken::New => pool::connect(self.place, self.configuration, self.timing),
        };
        let mut wire = match connected {
            Ok(wire) => wire,
            Err(error) => return (None, Err(error.into())),
        };
        let mut asked = VecDeque::new();
        let result = self.take_parts(&mut wire, &mut asked);
        // Nothing else is to come after the answer to a single question.
        let is_clear = match &result {
            Ok(()) => true,
            Err(error) => error.is_answer() && asked.len() == 1,
        };
        self.work.lock().parts.extend(asked);
        (is_clear.then_some(wire), result)
    }

    /// Takes parts over one connection; `asked` are those that have not come when it fails. The first is asked for
    /// alone: it may turn out that the object is not there.
    fn take_parts(&self, wire: &mut Wire, asked: &mut VecDeque<Part<'d>>) -> Result<(), PullError> {
        self.ask_for_parts(wire, asked, 1)?;
        while !asked.is_empty() {
            self.on_answer(wire)?;
            self.ask_for_parts(wire, asked, ASKED_MAX)?;
            let Some(part) = asked.front_mut() else { break };
            wire.receive_into(part.bytes, self.timing.bulk_stall)?;
            asked.pop_front();
            self.work.lock().on_progress();
            self.ask_for_parts(wire, asked, 1)?;
        }
        Ok(self.ask(wire, Request::Done)?)
    }

    /// Asks for parts until so many are on their way.
    fn ask_for_parts(
        &self,
        wire: &mut Wire,
        asked: &mut VecDeque<Part<'d>>,
        count: usize,
    ) -> Result<(), WireError> {
        while asked.len() < count {
            let Some(part) = self.work.lock().parts.pop_front() else { break };
            let (object, insists, length) = (self.object, self.insists, part.bytes.len() as u32);
            let request = Request::Part { object, offset: part.offset, length, insists };
            asked.push_back(part);
            self.ask(wire, request)?;
        }
        Ok(())
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
            Answer::Elsewhere(node) => Err(PullError::Elsewhere(node)),
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

    /// Connections may fail, but not always. Those that are closed or refused may be too many there at present: that
    /// passes.
    fn on_failed(&mut self, error: PullError, timing: &Timing) {
        self.failures += 1;
        let is_over = match &error {
            PullError::PeerGone(WireError::Closed) | PullError::Refused(Refusal::Busy(_)) => {
                self.progress.elapsed() >= timing.bulk_stall
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_is_asked_again_for_as_long_as_one_who_stalls() {
        let busy = || PullError::Refused(Refusal::decode(&Refusal::Busy("too many".to_owned()).encode()));
        assert!(busy().passes());
        let timing = Timing::default();
        let mut work = Work { parts: VecDeque::new(), failed: None, failures: 0, progress: Instant::now() };
        (0..100).for_each(|_| work.on_failed(busy(), &timing));
        assert!(work.failed.is_none());
        work.on_failed(PullError::Refused(Refusal::Other("no".to_owned())), &timing);
        assert!(work.failed.is_some());
    }
}
