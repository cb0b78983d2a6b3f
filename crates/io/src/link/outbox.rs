//! What a link still has to say: frames that are not yet sent, and those that are not yet acknowledged.
//!
//! Invariants:
//! 1. A frame is kept until the other side has said that it has it, and leaves in the order in which it came.
//! 2. Frames are numbered by counting. After a reconnect, the next frame is the first that the other side lacks.
//! 3. No more than `LINK_QUEUE_BYTES_MAX` are kept.
//! 4. Nothing follows the frame that closes the link.

use crate::frame::{self, HEADER_BYTES, Kind};
use aktis_protocol::limits;
use std::collections::VecDeque;

/// What a frame costs beside its bytes.
const FRAME_OVERHEAD_BYTES: usize = 32;

/// The other side acknowledges what it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it says that it has {received} frames, which cannot be")]
pub(crate) struct WrongCount {
    received: u64,
}

/// Why a frame was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is over, or about to be.
    #[error("the link is closed")]
    Closed,
    /// Too much is queued. `on_drained` says when there is room again. The frame comes back.
    #[error("more than {max} bytes wait on the link", max = limits::LINK_QUEUE_BYTES_MAX)]
    Full(Vec<u8>),
    /// The frame is longer than any may be.
    #[error("a frame of {0} bytes is longer than the limit of {max} bytes", max = limits::FRAME_BYTES_MAX)]
    TooLong(usize),
}

#[derive(Debug)]
enum Phase {
    Open,
    /// All that is queued goes out, then the reason.
    Closing(String),
    /// The reason has been given to the present connection.
    Closed(String),
    Ended,
}

/// The queue of one link, in one direction.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Not acknowledged, oldest first.
    frames: VecDeque<Vec<u8>>,
    /// The number of the first of them.
    first: u64,
    /// How many of them the present connection has got whole.
    sent: usize,
    /// How many bytes it has got of the one after them.
    begun_bytes: usize,
    /// What all frames cost.
    bytes: usize,
    /// What those cost that the present connection has not got whole.
    unsent_bytes: usize,
    /// Somebody was told that there is no room.
    was_full: bool,
    phase: Phase,
    bytes_max: usize,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self::with_limit(limits::LINK_QUEUE_BYTES_MAX)
    }

    fn with_limit(bytes_max: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            first: 0,
            sent: 0,
            begun_bytes: 0,
            bytes: 0,
            unsent_bytes: 0,
            was_full: false,
            phase: Phase::Open,
            bytes_max,
        }
    }

    /// Queues a frame.
    pub(crate) fn push(&mut self, frame: Vec<u8>) -> Result<(), SendError> {
        if !matches!(self.phase, Phase::Open) {
            return Err(SendError::Closed);
        }
        if frame.len() > limits::FRAME_BYTES_MAX {
            return Err(SendError::TooLong(frame.len()));
        }
        let cost = cost(&frame);
        if self.bytes + cost > self.bytes_max {
            self.was_full = true;
            return Err(SendError::Full(frame));
        }
        self.bytes += cost;
        self.unsent_bytes += cost;
        self.frames.push_back(frame);
        Ok(())
    }

    /// Whether less than a half of what may be kept is kept.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes <= self.bytes_max / 2
    }

    /// Has the link closed once all that is queued is sent. Later reasons do not count.
    pub(crate) fn close(&mut self, reason: String) {
        if matches!(self.phase, Phase::Open) {
            self.phase = Phase::Closing(reason);
        }
    }

    /// Whether the link is being closed from this side.
    pub(crate) fn closing(&self) -> Option<&str> {
        match &self.phase {
            Phase::Closing(reason) | Phase::Closed(reason) => Some(reason),
            Phase::Open | Phase::Ended => None,
        }
    }

    /// Forgets everything: the link is over.
    pub(crate) fn end(&mut self) {
        *self = Self { phase: Phase::Ended, ..Self::with_limit(self.bytes_max) };
    }

    /// Whether there is something for the present connection.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.frames.len() || matches!(self.phase, Phase::Closing(_))
    }

    /// What waits to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Appends what comes next to `bytes`, until there are about `limit` of them.
    pub(crate) fn gather(&mut self, bytes: &mut Vec<u8>, limit: usize) {
        while bytes.len() < limit {
            let Some(frame) = self.frames.get(self.sent) else {
                return self.gather_end(bytes);
            };
            if self.begun_bytes == 0 {
                bytes.extend_from_slice(&frame::header(Kind::Data, frame.len()));
                self.begun_bytes = HEADER_BYTES;
            }
            let rest = &frame[self.begun_bytes - HEADER_BYTES..];
            let part = &rest[..rest.len().min(limit.saturating_sub(bytes.len()))];
            bytes.extend_from_slice(part);
            self.begun_bytes += part.len();
            if part.len() == rest.len() {
                self.unsent_bytes -= cost(frame);
                self.sent += 1;
                self.begun_bytes = 0;
            }
        }
    }

    fn gather_end(&mut self, bytes: &mut Vec<u8>) {
        if let Phase::Closing(reason) = &mut self.phase {
            frame::append(Kind::Closed, reason.as_bytes(), bytes);
            self.phase = Phase::Closed(std::mem::take(reason));
        }
    }

    /// The other side has so many frames. Gives whether there is room again for somebody who was told that there is none.
    pub(crate) fn on_acknowledged(&mut self, received: u64) -> Result<bool, WrongCount> {
        if received > self.first + self.sent as u64 {
            return Err(WrongCount { received });
        }
        // An older count says nothing new.
        for _ in self.first..received {
            self.sent -= 1;
            self.forget_first();
        }
        let has_room = self.was_full && self.has_room();
        self.was_full &= !has_room;
        Ok(has_room)
    }

    /// There is a new connection, and the other side has so many frames.
    pub(crate) fn on_connected(&mut self, received: u64) -> Result<(), WrongCount> {
        if received < self.first || received > self.first + self.frames.len() as u64 {
            return Err(WrongCount { received });
        }
        for _ in self.first..received {
            self.forget_first();
        }
        self.sent = 0;
        self.begun_bytes = 0;
        self.unsent_bytes = self.bytes;
        if let Phase::Closed(reason) = &mut self.phase {
            self.phase = Phase::Closing(std::mem::take(reason));
        }
        Ok(())
    }

    fn forget_first(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes -= cost(&frame);
            self.first += 1;
        }
    }
}

fn cost(frame: &[u8]) -> usize {
    frame.len() + FRAME_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a receiver makes of the bytes of one connection.
    fn frames_in(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(frame) = frame::parse(bytes, limits::FRAME_BYTES_MAX).expect("frames") {
            frames.push(frame.payload.to_vec());
            bytes = &bytes[frame.bytes()..];
        }
        frames
    }

    proptest! {
        /// Invariants 1 and 2: cut anywhere, as often as you like.
        #[test]
        fn every_frame_arrives_once_and_in_order(
            lengths in proptest::collection::vec(0_usize..300, 1..60),
            steps in proptest::collection::vec((0_usize..6, 1_usize..400, any::<proptest::sample::Index>()), 0..80),
        ) {
            let mut outbox = Outbox::new();
            let mut frames = lengths.iter().enumerate().map(|(index, length)| vec![index as u8; *length]);
            let sent: Vec<_> = frames.clone().collect();
            let (mut arrived, mut connection) = (Vec::new(), Vec::new());
            for (action, limit, cut) in steps {
                match action {
                    0..=2 => frames.by_ref().take(action).for_each(|frame| outbox.push(frame).expect("room")),
                    3..=4 => {
                        let limit = connection.len() + limit;
                        outbox.gather(&mut connection, limit);
                    }
                    _ => {
                        // The connection breaks somewhere; sometimes an acknowledgement came before that.
                        connection.truncate(cut.index(connection.len() + 1));
                        let whole = frames_in(&connection);
                        if limit % 2 == 0 {
                            let some = arrived.len() + cut.index(whole.len() + 1);
                            outbox.on_acknowledged(some as u64).expect("it was sent");
                        }
                        arrived.extend(whole);
                        connection.clear();
                        outbox.on_connected(arrived.len() as u64).expect("it was sent");
                    }
                }
            }
            frames.for_each(|frame| outbox.push(frame).expect("room"));
            outbox.gather(&mut connection, usize::MAX);
            arrived.extend(frames_in(&connection));
            prop_assert_eq!(&arrived, &sent);
            outbox.on_acknowledged(arrived.len() as u64).expect("it was sent");
            prop_assert_eq!((outbox.bytes, outbox.unsent_bytes, outbox.frames.len()), (0, 0, 0));
        }
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let mut outbox = Outbox::new();
        for _ in 0..3 {
            outbox.push(vec![1]).expect("room");
        }
        assert_eq!(outbox.on_acknowledged(1), Err(WrongCount { received: 1 }), "nothing is sent yet");
        outbox.gather(&mut Vec::new(), 6);
        assert_eq!(outbox.on_acknowledged(1), Ok(false));
        assert_eq!(outbox.on_acknowledged(0), Ok(false), "an old one");
        assert_eq!(outbox.on_connected(0), Err(WrongCount { received: 0 }), "it is forgotten");
        assert_eq!(outbox.on_connected(4), Err(WrongCount { received: 4 }), "there are three");
        assert_eq!(outbox.on_connected(3), Ok(()));
    }

    #[test]
    fn a_full_queue_gives_the_frame_back_and_says_when_there_is_room() {
        let mut outbox = Outbox::with_limit(4 * (100 + FRAME_OVERHEAD_BYTES));
        for _ in 0..4 {
            outbox.push(vec![0; 100]).expect("room");
        }
        assert_eq!(outbox.push(vec![7]), Err(SendError::Full(vec![7])));
        outbox.gather(&mut Vec::new(), usize::MAX);
        assert_eq!(outbox.unsent_bytes(), 0);
        assert_eq!(outbox.push(vec![7]), Err(SendError::Full(vec![7])), "what is sent is still kept");
        assert_eq!(outbox.on_acknowledged(1), Ok(false));
        assert_eq!(outbox.on_acknowledged(2), Ok(true));
        assert_eq!(outbox.on_acknowledged(3), Ok(false), "said once");
        assert!(matches!(outbox.push(vec![0; limits::FRAME_BYTES_MAX + 1]), Err(SendError::TooLong(_))));
    }

    #[test]
    fn the_reason_of_a_close_is_last_and_said_again_after_a_reconnect() {
        let mut outbox = Outbox::new();
        outbox.push(vec![1]).expect("room");
        outbox.close("done".to_owned());
        outbox.close("again".to_owned());
        assert_eq!(outbox.push(vec![2]), Err(SendError::Closed));
        for received in [0, 1] {
            outbox.on_connected(received).expect("it can be");
            let mut bytes = Vec::new();
            outbox.gather(&mut bytes, usize::MAX);
            assert!(!outbox.has_unsent());
            assert_eq!(frames_in(&bytes)[1 - received as usize..], [b"done".to_vec()]);
        }
        outbox.end();
        assert_eq!((outbox.push(vec![3]), outbox.closing()), (Err(SendError::Closed), None));
    }
}
