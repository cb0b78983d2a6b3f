//! Positions of references in the order in which their objects get outcomes, at a constant cost each.
//!
//! Invariants:
//! 1. Each position that was added is given once.
//! 2. The queue is the innermost lock: nothing is called or dropped while a thread holds it, except moves into `Later`.

use crate::entry::{Later, WaitGroup};
use crate::error::Error;
use crate::handle::Handle;
use crate::runtime::Inner;
use crate::worker::context::TaskContext;
use aktis_protocol::{Failure, FailureKind};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The end of a [`Completions`] that objects report to.
#[derive(Default)]
pub(crate) struct CompletionQueue(Mutex<State>);

#[derive(Default)]
struct State {
    finished: VecDeque<usize>,
    /// The consumer, while it sleeps.
    group: Option<Arc<WaitGroup>>,
    /// The consumer, while it is suspended.
    waker: Option<Waker>,
    /// The consumer is gone: objects need not report any more.
    is_abandoned: bool,
}

impl CompletionQueue {
    /// The object at this position has an outcome.
    pub(crate) fn push(&self, position: usize, later: &mut Later) {
        let mut state = self.0.lock();
        state.finished.push_back(position);
        later.groups.extend(state.group.take());
        later.wakers.extend(state.waker.take());
    }

    /// Whether nobody takes positions any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.lock().is_abandoned
    }

    fn is_empty(&self) -> bool {
        self.0.lock().finished.is_empty()
    }

    fn add_group(&self, group: &Arc<WaitGroup>) {
        let mut state = self.0.lock();
        if state.finished.is_empty() {
            let before = state.group.replace(group.clone());
            drop(state);
            drop(before);
        } else {
            drop(state);
            group.count_down();
        }
    }

    /// Keeps a waker; false if there is a position to take.
    fn add_waker(&self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.0.lock();
        if !state.finished.is_empty() {
            drop(state);
            return false;
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
        true
    }
}

/// Waits for many objects, and gives their positions one by one as they finish.
#[derive(Default)]
pub struct Completions {
    queue: Arc<CompletionQueue>,
    /// Positions that this process has taken out of the queue together.
    taken: VecDeque<usize>,
    /// How many were added and not given yet.
    unfinished: usize,
    /// The sessions of the objects: nearly always one.
    runtimes: Vec<Arc<Inner>>,
}

impl Drop for Completions {
    fn drop(&mut self) {
        let mut state = self.queue.0.lock();
        state.is_abandoned = true;
        // A waker may be the last owner of user code, which must not be dropped while a lock is held.
        let consumer = (state.group.take(), state.waker.take());
        drop(state);
        drop(consumer);
    }
}

impl Completions {
    /// Without any object.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also waits for this object, which the caller calls `position`. The caller keeps the handle.
    pub fn add(&mut self, handle: &Handle, position: usize) {
        self.unfinished += 1;
        let entry = &handle.entry;
        if let (None, Some(runtime)) = (entry.outcome(), entry.runtime()) {
            if !self.runtimes.iter().any(|other| Arc::ptr_eq(other, runtime)) {
                self.runtimes.push(runtime.clone());
            }
            runtime.announce(entry);
            if entry.add_completion(&self.queue, position) {
                return;
            }
        }
        self.queue.0.lock().finished.push_back(position);
    }

    /// How many were added and not given yet.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// The position of the next object that has an outcome; `None` if all were given. Blocks until there is one.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<usize>, Error> {
        if self.unfinished == 0 {
            return Ok(None);
        }
        if let Some(position) = self.take() {
            return Ok(Some(position));
        }
        let runtime = self.usable()?;
        // The caller takes in the completions of one session; those of others are left to their pumps.
        let others = self.runtimes.iter().filter(|other| !Arc::ptr_eq(other, &runtime));
        others.for_each(|other| other.pump.want_now());
        let queue = &self.queue;
        let done = runtime.block(timeout, 1, || !queue.is_empty(), |group| queue.add_group(group))?;
        match self.take() {
            Some(position) => Ok(Some(position)),
            None if !done && TaskContext::is_cancelled() => {
                Err(Failure::new(FailureKind::Cancelled, "the task that waits was cancelled").into())
            }
            None => Err(Error::TimedOut(timeout.unwrap_or_default())),
        }
    }

    /// For async streams.
    pub fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<usize>, Error>> {
        if self.unfinished == 0 {
            return Poll::Ready(Ok(None));
        }
        loop {
            if let Some(position) = self.take() {
                return Poll::Ready(Ok(Some(position)));
            }
            if let Err(error) = self.usable() {
                return Poll::Ready(Err(error));
            }
            self.runtimes.iter().for_each(|runtime| {
                runtime.drain();
            });
            if self.queue.add_waker(waker) {
                for runtime in &self.runtimes {
                    runtime.pay();
                    runtime.pump.want_now();
                }
                return Poll::Pending;
            }
        }
    }

    /// A session that objects can still come from.
    fn usable(&self) -> Result<Arc<Inner>, Error> {
        let mut error = Error::Closed;
        for runtime in &self.runtimes {
            match runtime.check_usable() {
                Ok(()) => return Ok(runtime.clone()),
                Err(reason) => error = reason,
            }
        }
        Err(error)
    }

    fn take(&mut self) -> Option<usize> {
        if self.taken.is_empty() {
            std::mem::swap(&mut self.taken, &mut self.queue.0.lock().finished);
        }
        let position = self.taken.pop_front()?;
        self.unfinished -= 1;
        Some(position)
    }
}

impl std::fmt::Debug for Completions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Completions({} unfinished)", self.unfinished)
    }
}
