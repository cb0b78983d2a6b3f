//! Objects that nobody can ask for any more: freed at once, or when those who may be reading them have ended.

use super::super::NodeEffect;
use super::super::copies::CopyState;
use super::{Memory, Request, SPARED_MICROSECONDS};
use crate::{Effects, Time};
use aktis_protocol::{EntryRef, Failure, FailureKind, ObjectId};

/// A copy that is nobody's, and is freed when nobody reads it.
#[derive(Debug)]
pub(super) enum Retiring {
    /// The order to see whether somebody does is under way.
    LookedAt {
        /// How long to wait if so.
        delay_microseconds: u64,
    },
    /// Somebody does: it is looked at again then.
    Read {
        /// When.
        again_at: Time,
        /// How long that was.
        delay_microseconds: u64,
    },
}

/// How long a value may be in use before it is looked at less than once in this time.
const LOOK_MICROSECONDS_MAX: u64 = 1_000_000;

impl Memory {
    /// Nobody can ask for the object any more. A copy that is still being written stays until its
    /// writer is done with it.
    pub(in super::super) fn forget(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        for entry in self.copies.readable(object) {
            if self.queue.front().is_some_and(|head| head.request == Request::Restore { entry }) {
                self.new_head(now);
            }
            self.unqueue(entry);
            match &mut self.copies.get_mut(entry).state {
                CopyState::Spilling { orphaned, .. }
                | CopyState::Restoring { orphaned, .. }
                | CopyState::Fetching { orphaned, .. } => *orphaned = true,
                _ => self.retire(entry, out),
            }
        }
        let failure = Failure::new(FailureKind::Lost, format!("the object {object} has been released"));
        self.answer(object, Err(failure), out);
        self.pump(now, out);
    }

    /// Frees a copy that is nobody's, but not before those who read it have ended: a value may be in use
    /// for longer than its reference, and a process may die after it passed a reference on.
    pub(super) fn retire(&mut self, entry: EntryRef, out: &mut Effects<NodeEffect>) {
        match self.copies.get(entry).state {
            CopyState::Sealed { .. } | CopyState::Mapped { .. } => {
                let place = self.copies.get(entry).place().expect("a sealed copy has a place");
                self.copies.set_state(entry, CopyState::Retiring { place });
                self.look_at(entry, SPARED_MICROSECONDS, out);
            }
            _ => self.free(entry, out),
        }
    }

    /// Asks whether anybody reads the copy: a spill of no bytes takes it out of reach, unless somebody does.
    fn look_at(&mut self, entry: EntryRef, delay_microseconds: u64, out: &mut Effects<NodeEffect>) {
        let offset = self.copies.get(entry).arena_offset().unwrap_or_default();
        self.retiring.insert(entry, Retiring::LookedAt { delay_microseconds });
        out.push(NodeEffect::Spill { entry, offset, bytes: 0, file_offset: 0 });
    }

    pub(super) fn on_looked_at(
        &mut self,
        now: Time,
        entry: EntryRef,
        unread: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(Retiring::LookedAt { delay_microseconds }) = self.retiring.remove(&entry) else { return };
        if unread {
            self.free(entry, out);
        } else {
            let again_at = Time(now.0 + delay_microseconds);
            let delay_microseconds = (delay_microseconds * 2).min(LOOK_MICROSECONDS_MAX);
            self.retiring.insert(entry, Retiring::Read { again_at, delay_microseconds });
        }
        self.pump(now, out);
    }

    /// Looks again at what was in use; at everything, if somebody waits for memory.
    pub(super) fn on_look_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let urgent = self.retry_at.is_some_and(|at| at <= now);
        let due = self.retiring.iter().filter_map(|(&entry, retiring)| match retiring {
            Retiring::Read { again_at, delay_microseconds } if urgent || *again_at <= now => {
                Some((entry, *delay_microseconds))
            }
            _ => None,
        });
        for (entry, delay_microseconds) in due.collect::<Vec<_>>() {
            self.look_at(entry, delay_microseconds, out);
        }
    }

    pub(super) fn look_deadlines(&self) -> impl Iterator<Item = Time> {
        self.retiring.values().filter_map(|retiring| match retiring {
            Retiring::Read { again_at, .. } => Some(*again_at),
            Retiring::LookedAt { .. } => None,
        })
    }

    /// Whether a copy may be free in a moment.
    pub(super) fn is_looking(&self) -> bool {
        self.retiring.values().any(|retiring| matches!(retiring, Retiring::LookedAt { .. }))
    }
}
