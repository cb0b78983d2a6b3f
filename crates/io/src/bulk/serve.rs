//! Answers what is asked on one connection for bulk transfers.

use super::{Answer, Opened, PART_BYTES, Request, Serve, Source};
use crate::frame::{self, Kind};
use crate::hello::printable;
use crate::timing::Timing;
use crate::wire::{Wire, WireError};
use aktis_protocol::{NodeId, ObjectId, limits};
use std::time::Instant;

/// Bytes that are encrypted before they are sent: few enough that the allocator keeps their memory.
const WRITE_BYTES: usize = 64 * 1024;

/// How often an object that moves is opened for one part of it.
const OPENINGS_MAX: u32 = 3;

/// Answers until the other side goes away, breaks the protocol, or is idle for too long.
pub(crate) fn serve(wire: Wire, peer: NodeId, objects: &dyn Serve, timing: &Timing) -> Result<(), WireError> {
    let mut connection = Connection { wire, peer, objects, timing, open: None, room: Vec::new() };
    loop {
        match connection.next_request() {
            Ok(Request::Part { object, offset, length, insists }) => {
                connection.on_part(object, offset, length, insists)?;
            }
            Ok(Request::Done) => connection.close_source(),
            // The source is not kept for somebody who does not come back for it; the connection is, for a while.
            Err(WireError::Late) if connection.open.is_some() => connection.close_source(),
            Err(WireError::Late | WireError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

struct Connection<'a> {
    wire: Wire,
    peer: NodeId,
    objects: &'a dyn Serve,
    timing: &'a Timing,
    /// The object that was asked for last, as long as more of it may be.
    open: Option<(ObjectId, Box<dyn Source>)>,
    /// Where parts are read that do not lie in memory.
    room: Vec<u8>,
}

impl Connection<'_> {
    fn next_request(&mut self) -> Result<Request, WireError> {
        let patience = if self.open.is_some() { self.timing.bulk_stall } else { self.timing.bulk_idle };
        match self.wire.receive_frame(limits::STRANGER_FRAME_BYTES_MAX, Instant::now() + patience)? {
            (Kind::Request, payload) => postcard::from_bytes(&payload).map_err(|_| WireError::Unexpected),
            _ => Err(WireError::Unexpected),
        }
    }

    fn close_source(&mut self) {
        self.open = None;
        self.room = Vec::new();
    }

    fn on_part(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u32,
        insists: bool,
    ) -> Result<(), WireError> {
        if length as usize > PART_BYTES {
            return Err(WireError::Unexpected);
        }
        if self.open.as_ref().is_some_and(|(open, _)| *open != object) {
            self.close_source();
        }
        let mut problem = String::new();
        for _ in 0..OPENINGS_MAX {
            let source = match self.open.take() {
                Some((_, source)) => source,
                None => match self.objects.open(self.peer, object, insists) {
                    Ok(Opened::Here(source)) => source,
                    Ok(Opened::Elsewhere(node)) => return self.answer(&Answer::Elsewhere(node)),
                    Err(why) => return self.answer(&Answer::Unknown(printable(why.as_bytes()))),
                },
            };
            let size = source.size();
            if offset.saturating_add(u64::from(length)) > size {
                self.answer(&Answer::Outside { size })?;
                self.open = Some((object, source));
                return Ok(());
            }
            let mut room = std::mem::take(&mut self.room);
            match source.part(offset, length as usize, &mut room) {
                Ok(part) => {
                    self.answer(&Answer::Part { size })?;
                    self.send(part)?;
                    self.room = room;
                    self.open = Some((object, source));
                    return Ok(());
                }
                Err(why) => problem = why,
            }
        }
        self.answer(&Answer::Unknown(printable(problem.as_bytes())))
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), WireError> {
        let mut bytes = Vec::new();
        let payload = postcard::to_stdvec(answer).expect("an answer can be encoded");
        frame::append(Kind::Answer, &payload, &mut bytes);
        self.wire.write(&bytes)?;
        self.wire.flush_until(Instant::now() + self.timing.bulk_stall)
    }

    fn send(&mut self, part: &[u8]) -> Result<(), WireError> {
        for piece in part.chunks(WRITE_BYTES) {
            self.wire.write(piece)?;
            self.wire.flush_until(Instant::now() + self.timing.bulk_stall)?;
        }
        Ok(())
    }
}
