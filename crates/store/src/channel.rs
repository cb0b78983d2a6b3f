//! A one-way queue of messages from one process to another: a ring of bytes in shared memory.
//!
//! Invariants:
//! 1. One process writes and one reads; inside each, a lock lets one thread at a time do so.
//! 2. A message becomes visible by the store of the tail, whole; if the writer is killed before that, it
//!    never was.
//! 3. The reader gives space back by the store of the head; the writer never touches unread bytes.

use crate::map::{Mapping, Shared};
use aktis_protocol::hot::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a channel's ring.
pub const CHANNEL_BYTES: usize = 1024 * 1024;
/// The largest payload of one message. Larger ones travel through the object store.
pub const PAYLOAD_BYTES_MAX: usize = CHANNEL_BYTES / 4;

const HEADER_BYTES: usize = 256;
const RECORD_BYTES: usize = 8 + size_of::<Message>();
const SKIP: u32 = u32::MAX;

/// Bytes of shared memory that a channel takes.
pub(crate) const TOTAL_BYTES: usize = HEADER_BYTES + CHANNEL_BYTES;

#[repr(C)]
struct Ends {
    head: AtomicU64,
    _line: [AtomicU64; 15],
    tail: AtomicU64,
}

// SAFETY: made of atomics alone.
#[allow(unsafe_code)]
unsafe impl Shared for Ends {}

/// The writing end.
pub struct Sender {
    mapping: Arc<Mapping>,
    offset: usize,
    head: u64,
    tail: u64,
}

impl Sender {
    pub(crate) fn new(mapping: Arc<Mapping>, offset: usize) -> Self {
        let ends: &Ends = mapping.at(offset);
        let (head, tail) = (ends.head.load(Ordering::Acquire), ends.tail.load(Ordering::Acquire));
        Self { mapping, offset, head, tail }
    }

    /// Appends a message with the concatenation of `parts` as payload; false if there is no room now.
    /// The receiver sees it at once, but sleeps on unless its doorbell is rung.
    #[inline]
    pub fn push(&mut self, message: &Message, parts: &[&[u8]]) -> bool {
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        debug_assert!(payload <= PAYLOAD_BYTES_MAX);
        let needed = (RECORD_BYTES + payload).next_multiple_of(8);
        let position = self.tail as usize % CHANNEL_BYTES;
        let contiguous = CHANNEL_BYTES - position;
        let skipped = if needed > contiguous { contiguous } else { 0 };
        if !self.has_room(skipped + needed) {
            return false;
        }
        let data = self.offset + HEADER_BYTES;
        if skipped > 0 {
            self.mapping.write(data + position, SKIP.as_bytes());
        }
        let mut at = data + (position + skipped) % CHANNEL_BYTES;
        self.mapping.write(at, (payload as u32).as_bytes());
        at += 8;
        self.mapping.write(at, message.as_bytes());
        at += size_of::<Message>();
        for part in parts {
            self.mapping.write(at, part);
            at += part.len();
        }
        self.tail += (skipped + needed) as u64;
        self.ends().tail.store(self.tail, Ordering::Release);
        true
    }

    #[inline]
    fn has_room(&mut self, bytes: usize) -> bool {
        let fits = |head: u64, tail: u64| (tail - head) as usize + bytes <= CHANNEL_BYTES;
        if fits(self.head, self.tail) {
            return true;
        }
        self.head = self.ends().head.load(Ordering::Acquire);
        fits(self.head, self.tail)
    }

    #[inline]
    fn ends(&self) -> &Ends {
        self.mapping.at(self.offset)
    }
}

/// The reading end.
pub struct Receiver {
    mapping: Arc<Mapping>,
    offset: usize,
    head: u64,
    tail: u64,
}

impl Receiver {
    pub(crate) fn new(mapping: Arc<Mapping>, offset: usize) -> Self {
        let ends: &Ends = mapping.at(offset);
        let (head, tail) = (ends.head.load(Ordering::Acquire), ends.tail.load(Ordering::Acquire));
        Self { mapping, offset, head, tail }
    }

    /// Takes the next message, if there is one. Its space is given back when `take` returns.
    #[inline]
    pub fn pop<R>(&mut self, take: impl FnOnce(&Message, &[u8]) -> R) -> Option<R> {
        loop {
            if self.head == self.tail {
                self.tail = self.ends().tail.load(Ordering::Acquire);
                if self.head == self.tail {
                    return None;
                }
            }
            let position = self.head as usize % CHANNEL_BYTES;
            let at = self.offset + HEADER_BYTES + position;
            let length = u32::read_from_bytes(self.mapping.bytes(at, 4)).expect("four bytes");
            if length == SKIP {
                self.advance(CHANNEL_BYTES - position);
                continue;
            }
            let payload = length as usize;
            let record = self.mapping.bytes(at + 8, size_of::<Message>() + payload);
            let (message, payload_bytes) =
                Message::read_from_prefix(record).expect("the record holds a message");
            let result = take(&message, payload_bytes);
            self.advance((RECORD_BYTES + payload).next_multiple_of(8));
            return Some(result);
        }
    }

    /// Whether a message is there.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.ends().tail.load(Ordering::Acquire)
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.head += bytes as u64;
        self.ends().head.store(self.head, Ordering::Release);
    }

    #[inline]
    fn ends(&self) -> &Ends {
        self.mapping.at(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::TaskKey;

    fn pair() -> (Sender, Receiver) {
        let mapping = Arc::new(Mapping::create("channel-test", TOTAL_BYTES as u64).unwrap());
        (Sender::new(mapping.clone(), 0), Receiver::new(mapping, 0))
    }

    fn message(index: u32) -> Message {
        let key = TaskKey { index, generation: 7 };
        Message { kind: 1, form: 0, contains: 0, reserved: 0, index, key }
    }

    #[test]
    fn messages_of_all_sizes_arrive_whole_and_in_order() {
        let (mut sender, mut receiver) = pair();
        let payload: Vec<u8> = (0..PAYLOAD_BYTES_MAX).map(|i| i as u8).collect();
        let mut sizes = (0..20_000_u32).map(|i| (i as usize * 7919) % 3000);
        let (mut sent, mut got) = (Vec::new(), 0);
        let mut next = sizes.next();
        while next.is_some() || got < sent.len() {
            while let Some(size) = next {
                let (a, b) = payload[..size].split_at(size / 3);
                if !sender.push(&message(sent.len() as u32), &[a, b]) {
                    break;
                }
                sent.push(size);
                next = sizes.next();
            }
            receiver.pop(|message, bytes| {
                assert_eq!(message.index as usize, got);
                assert_eq!(bytes, &payload[..sent[got]]);
                got += 1;
            });
        }
        assert_eq!(got, 20_000);
    }

    #[test]
    fn a_full_channel_refuses_and_takes_again_after_a_pop() {
        let (mut sender, mut receiver) = pair();
        let payload = vec![1; PAYLOAD_BYTES_MAX];
        let mut count = 0;
        while sender.push(&message(0), &[&payload]) {
            count += 1;
        }
        assert_eq!(count, 3);
        assert!(receiver.pop(|_, _| ()).is_some());
        assert!(sender.push(&message(0), &[&payload]));
    }
}
