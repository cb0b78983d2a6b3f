//! A background thread of the node that puts memory behind the arena ahead of its use.
//!
//! The first touch of a page costs many times what a copy into it does, so it is done ahead, when a core
//! may be idle, and pages are used again rather than given back.
//!
//! Invariants:
//! 1. Nothing is populated, and no thread started, before the arena is first used.
//! 2. It is ahead by as much as has been used, within [`AHEAD_BYTES_MIN`] and [`AHEAD_BYTES_MAX`].
//! 3. It works at low priority, in small steps, and stops for good at the first refusal.

use crate::arena::Arena;
use crate::index::Extent;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;

/// How far it is ahead at least, once the arena is in use.
pub const AHEAD_BYTES_MIN: u64 = 16 << 20;
/// How far it is ahead at most.
pub const AHEAD_BYTES_MAX: u64 = 256 << 20;
/// What is populated in one step.
const STEP_BYTES: u64 = 4 << 20;

/// Keeps some of the arena's unused pages populated.
pub struct Populator {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    arena: Arc<Arena>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    used_to: u64,
    populated_to: u64,
    closing: bool,
}

impl State {
    /// What to populate next.
    fn next_step(&self, arena_bytes: u64) -> Option<Extent> {
        let ahead = self.used_to.clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let target = (self.used_to + ahead).min(arena_bytes);
        let offset = self.populated_to.max(self.used_to).next_multiple_of(4096);
        (offset < target).then(|| Extent { offset, bytes: STEP_BYTES.min(target - offset) })
    }
}

impl Populator {
    /// Makes the populator of an arena; it does nothing yet.
    pub fn new(arena: Arc<Arena>) -> Self {
        let shared = Shared { arena, state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// The arena is in use up to here now.
    pub fn advance(&self, used_to: u64) {
        let mut state = self.shared.state.lock();
        if used_to <= state.used_to || state.closing {
            return;
        }
        state.used_to = used_to;
        drop(state);
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name("aktis-populate".to_owned());
            // Without the thread the store is slower, and as right.
            *thread = builder.spawn(move || shared.run()).ok();
        }
        self.shared.changed.notify_one();
    }

    /// How far the arena has been populated.
    pub fn populated_to(&self) -> u64 {
        self.shared.state.lock().populated_to
    }

    /// Ends the thread. Idempotent.
    pub fn close(&self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Populator {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        // On Linux this is the priority of this thread alone.
        let _ = rustix::process::nice(10);
        while let Some(step) = self.wait_for_step() {
            if self.arena.populate(step).is_err() {
                return;
            }
            self.state.lock().populated_to = step.offset + step.bytes;
            std::thread::yield_now();
        }
    }

    fn wait_for_step(&self) -> Option<Extent> {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                return None;
            }
            match state.next_step(self.arena.bytes()) {
                Some(step) => return Some(step),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_ahead_within_bounds_and_inside_the_arena() {
        let arena = 1 << 30;
        let mut state = State { used_to: 4096, ..State::default() };
        let mut steps = 0;
        while let Some(step) = state.next_step(arena) {
            assert!(step.offset >= state.used_to && step.bytes <= STEP_BYTES);
            state.populated_to = step.offset + step.bytes;
            steps += 1;
        }
        assert_eq!(state.populated_to, 4096 + AHEAD_BYTES_MIN);
        assert_eq!(steps, AHEAD_BYTES_MIN / STEP_BYTES);
        state.used_to = arena - 8192;
        let last = state.next_step(arena).expect("two pages are left");
        assert_eq!((last.offset, last.bytes), (arena - 8192, 8192));
        state.populated_to = arena;
        assert_eq!(state.next_step(arena), None);
    }

    #[test]
    fn nothing_runs_before_the_first_use() {
        let arena = Arc::new(Arena::create(32 << 20, 8).expect("arena"));
        let populator = Populator::new(arena);
        assert!(populator.thread.lock().is_none());
        populator.advance(10_000);
        assert!(populator.thread.lock().is_some());
        populator.close();
    }
}
