//! An actor that is to live elsewhere ends here after the calls that it has.
//!
//! Invariant: a call that such an actor has not begun gets no answer from here. Its caller sends the call again to the place
//! where the actor lives next.

use crate::registry::ActorState;
use crate::runtime::Inner;
use crate::worker::executor::{Executor, Runnable};
use crate::worker::groups::State;
use crate::worker::mailbox::{Item, Life, Mailbox};
use aktis_protocol::control::ToNode;
use aktis_protocol::{Failure, FailureKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Mailbox {
    /// The actor ends before the next call. One whose calls overlap ends when it has none: a call may wait for a later one.
    pub(super) fn begin_move(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) {
        if self.moves.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.inner.lock();
        if state.overlaps() {
            self.leave_if_idle(&mut state);
        } else {
            state.main.queue.push_front(Item::release());
        }
        let schedule = state.schedule();
        drop(state);
        if schedule {
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
    }

    /// A call is over: an actor whose calls overlap ends if that was its last one.
    pub(super) fn leave_if_idle(&self, state: &mut State) {
        if self.moves.load(Ordering::Acquire) && state.is_idle() && !matches!(state.life, Life::Ended(_)) {
            state.main.queue.push_back(Item::release());
        }
    }

    /// No call runs, and none is to run here any more.
    pub(super) fn move_out(self: &Arc<Self>, runtime: &Arc<Inner>) {
        let Some(incarnation) = self.incarnation else { return };
        let failure = Failure::new(FailureKind::ActorDied, "its actor lives elsewhere now");
        let before = std::mem::replace(&mut self.inner.lock().life, Life::Ended(Box::new(failure)));
        let state: Option<ActorState> = match before {
            Life::Ended(_) => return,
            before => before.into_state(),
        };
        if let Some(hooks) = crate::hooks::get() {
            (hooks.exits)();
        }
        self.drop_state(state);
        if let Some(memory) = &self.memory {
            // The next life takes the lock of its files.
            memory.lock().close();
        }
        runtime.send_to_node(ToNode::ActorLost { actor: self.actor, incarnation, cause: None });
    }
}

impl State {
    /// Whether no call runs or waits.
    fn is_idle(&mut self) -> bool {
        self.running() == 0 && self.all_groups().all(|group| group.queue.is_empty())
    }
}
