//! Which threads run the calls of an actor: one that keeps the actor to itself, or as many as may.
//!
//! Calls that may run at the same time are still run by one thread, one after another, while they are brief: a second
//! thread would cost more than the call, and in an interpreter with one lock it would only get in the way.
//!
//! Invariants:
//! 1. While a thread keeps a mailbox, it is `scheduled`, and nobody else starts calls of it.
//! 2. A thread that is stuck in a call, or blocked, does not keep: the watch, or the thread before it blocks, lets the
//!    mailbox go to others. So calls may wait for each other.
//! 3. A thread that does not keep offers the mailbox to others with each call that it takes.

use crate::registry::ActorState;
use crate::runtime::Inner;
use crate::worker::executor::{Executor, MORE_CALLS, Runnable};
use crate::worker::mailbox::{Item, Mailbox};
use crate::worker::runner::RunnerState;
use std::sync::Arc;

/// Calls that one thread runs of one actor before it looks at other work.
const BATCH: usize = 64;

impl Mailbox {
    /// Runs calls, as many as may run now, up to a batch. Wake-ups for the answers may be delayed until the thread has
    /// run them: see `owed`.
    pub(crate) fn run(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, runner: &RunnerState) {
        let overlaps = self.begin(executor, runner);
        for _ in 0..BATCH {
            let Some((item, state, exclusive)) = self.next(runtime, executor, runner) else {
                return runner.stop_keeping();
            };
            if overlaps {
                self.pace.begin();
            }
            self.run_item(runtime, executor, runner, item, state, exclusive);
            if overlaps {
                self.pace.end();
                runner.count_kept();
            }
            MORE_CALLS.set(false);
            runner.pay_due(runtime);
        }
        runner.stop_keeping();
        self.share(runtime, executor, runner.index);
    }

    /// A thread begins with a batch, and keeps the mailbox if that is better. Whether calls may run at the same time.
    fn begin(self: &Arc<Self>, executor: &Executor, runner: &RunnerState) -> bool {
        let mut state = self.inner.lock();
        let overlaps = state.overlaps();
        if overlaps && runner.can_keep() && self.pace.is_brief() {
            state.keeper = Some(runner.index as u32);
            drop(state);
            runner.keep(self);
            // It looks after who keeps.
            executor.watch.wake();
        } else {
            state.scheduled = false;
        }
        overlaps
    }

    /// The next item that may start now on this thread.
    fn next(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
        runner: &RunnerState,
    ) -> Option<(Item, Option<ActorState>, bool)> {
        let mut guard = self.inner.lock();
        let state = &mut *guard;
        let keeps = match state.keeper {
            Some(keeper) if keeper == runner.index as u32 => true,
            // Another thread keeps it, and will look.
            Some(_) => return None,
            None => false,
        };
        let Some((item, exclusive)) = state.take() else {
            if keeps {
                state.keeper = None;
                state.scheduled = false;
            }
            return None;
        };
        let actor = state.life.actor();
        MORE_CALLS.set(state.has_queued());
        let more = !keeps && state.schedule();
        drop(guard);
        if more {
            // Another thread may take the next call meanwhile; this one comes back to the mailbox, too.
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
            if !executor.is_main_only() && !self.pace.is_brief() {
                executor.add_hand(runtime);
            }
        }
        Some((item, actor, exclusive))
    }

    /// Offers the mailbox to all threads; the one with this index, if it kept it, does not any more. True if it did.
    fn share(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, index: usize) -> bool {
        let mut state = self.inner.lock();
        let kept = state.keeper == Some(index as u32);
        if kept {
            state.keeper = None;
            state.scheduled = false;
        }
        if state.schedule() {
            drop(state);
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
        kept
    }

    /// The thread with this index is stuck in a call, or about to block.
    pub(super) fn let_go(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, index: usize) {
        if self.share(runtime, executor, index) {
            self.pace.note_blocked();
        }
    }
}
