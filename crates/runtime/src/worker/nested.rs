//! A thread that would wait for a task which nobody has begun runs it itself.
//!
//! Else another thread would have to run it, with its core's caches to be filled, and this one would be
//! switched out and in again.
//!
//! Invariants:
//! 1. A thread runs nothing but the very task that it waits for, and only if it would wait without end: it
//!    could do nothing before that task is done, so no new way to get stuck comes from this.
//! 2. It holds a lease of the task's shape while it does. The task shares CPUs with what waits, and nothing else: both
//!    would use what one of them holds. A lease for one task is not shared at all.
//! 3. The task has as much stack as at the bottom of a thread.
//! 4. Whoever cancels what waits cancels the task, too, if it was submitted by what waits (see `frames`). Else the wait
//!    ends with the task, and not with the cancel.
//! 5. The running cell goes on naming what waits. If this process dies, nobody is left to ask for the other.

use crate::entry::Entry;
use crate::runtime::Inner;
use crate::worker::context::TaskContext;
use crate::worker::executor::{Executor, RUNNER};
use crate::worker::run::{self, Asker, Outcome};
use crate::worker::runner::RunnerState;
use aktis_logic::lease_pool::HeldLease;
use aktis_protocol::hot::MessageKind;
use aktis_protocol::{ShapeId, TaskKey};
use std::cell::Cell;
use std::sync::{Arc, LazyLock};

/// Bytes of stack that a task can count on: as much as on a thread of its own.
static TASK_STACK_BYTES: LazyLock<usize> = LazyLock::new(|| {
    let wanted = std::env::var("RUST_MIN_STACK").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(2 << 20).max(2 << 20)
});
/// A thread's stack has room for so many such tasks above each other; for more, if they use less.
const TASKS_PER_STACK: usize = 4;

thread_local! {
    static STACK_BOTTOM: Cell<usize> = const { Cell::new(0) };
}

/// Bytes of stack for a thread that runs tasks.
pub(super) fn stack_bytes() -> usize {
    TASK_STACK_BYTES.saturating_mul(TASKS_PER_STACK)
}

/// Notes that the stack of this thread begins here.
pub(super) fn note_stack() {
    STACK_BOTTOM.set(stack_pointer());
}

fn has_stack() -> bool {
    let used = STACK_BOTTOM.get().abs_diff(stack_pointer());
    used <= *TASK_STACK_BYTES * (TASKS_PER_STACK - 1)
}

#[inline(never)]
fn stack_pointer() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// Whether a task that waits may share its lease with the one that it waits for.
fn is_shareable(held: &HeldLease) -> bool {
    held.cpus_only && !held.once
}

impl Inner {
    /// The thread is about to wait for this object without end: if nobody has begun its task, and the thread
    /// may, it runs that.
    pub(crate) fn run_instead_of_waiting(self: &Arc<Self>, entry: &Entry) {
        let may = |executor: &&Executor| executor.is_shared() && !executor.is_main_only();
        let Some(executor) = self.executor.as_ref().filter(may) else { return };
        let Some(key) = entry.key() else { return };
        let runner = RUNNER.with_borrow(|runner| runner.as_ref().map(|(state, _)| state.clone()));
        let Some(runner) = runner.filter(|_| has_stack() && !TaskContext::is_cancelled()) else { return };
        if let Some(shape) = self.lease_for(executor, key)
            && !executor.is_lease_wanted(shape)
        {
            self.run_here(&runner, entry, key, shape);
        }
    }

    /// The shape of the lease that the thread has, or gets for this task.
    fn lease_for(self: &Arc<Self>, executor: &Executor, key: TaskKey) -> Option<ShapeId> {
        let held = RUNNER.with_borrow(|runner| {
            let (_, held) = runner.as_ref()?;
            held.as_ref().map(|held| (held.shape, is_shareable(held)))
        });
        if let Some((shape, may_serve)) = held {
            return may_serve.then_some(shape);
        }
        let shape = self.submitter.of(key).lock().shape_of(key);
        self.run_deferred();
        let held = executor.take_lease(shape?)?;
        // What waits here would keep it afterwards.
        if !is_shareable(&held) {
            executor.put_lease(self, held);
            return None;
        }
        RUNNER.with_borrow_mut(|runner| runner.as_mut().expect("set").1 = Some(held));
        shape
    }

    fn run_here(self: &Arc<Self>, runner: &RunnerState, entry: &Entry, key: TaskKey, shape: ShapeId) {
        let taken = self.submitter.of(key).lock().take(key, shape);
        self.run_deferred();
        let Some((function, header, bytes)) = taken else { return };
        let cancelled = runner.suspend(self.me, key, header.task);
        let (before, outcome) = run::call(self, runner, &header, &bytes, Arc::default(), function, cancelled);
        let Outcome::One(result) = outcome else {
            unreachable!("only tasks that return one value are taken")
        };
        let (answer, _) = Asker::of_task(self.me, &header).seal(self, function.name, before, result);
        let unwanted = runner.end().then(TaskContext::last_children);
        runner.resume();
        if unwanted.is_some() {
            // It may have been cancelled by way of what waits for it: then its value is not what it was to be.
            self.cancel(key, false, true);
        }
        match answer.as_plain() {
            Some(value) => self.return_here(entry, key, value),
            None => answer.send(self, self.me, MessageKind::Returned, key, 0),
        }
        if let Some(children) = unwanted {
            self.cancel_children(header.task, children);
        }
    }
}
