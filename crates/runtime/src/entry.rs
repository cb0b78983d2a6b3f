//! An object as one process sees it: its value once there is one, and who waits for it.
//!
//! Invariants:
//! 1. An outcome is set once and never changes, but for the place of a value that was lost and made again.
//! 2. `known` says that the node counts this process as a holder: exactly then `Released` or `LeftToOthers` is sent when
//!    the last reference goes.
//! 3. An entry is never dropped while a lock of the runtime is held: dropping takes those locks.
//! 4. A renewal, by which a lost value is waited for, keeps the entry that it renews.

use crate::codec::Value;
use crate::completions::CompletionQueue;
use crate::error::Error;
use crate::handle::Handle;
use crate::runtime::Inner;
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::{
    EntryRef, Failure, FailureKind, ObjectId, ProcessSlot, Shape, ShapeId, ShardIndex, TaskKey,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::thread::Thread;

/// Where in the object store a value is.
#[derive(Debug)]
pub(crate) struct StoredAt(AtomicU64);

impl StoredAt {
    pub(crate) fn new(entry: EntryRef) -> Self {
        Self(AtomicU64::new(u64::from(entry.index) << 32 | u64::from(entry.generation)))
    }

    pub(crate) fn get(&self) -> EntryRef {
        let word = self.0.load(Ordering::Relaxed);
        EntryRef { index: (word >> 32) as u32, generation: word as u32 }
    }

    /// The value is somewhere else by now.
    pub(crate) fn set(&self, entry: EntryRef) {
        self.0.store(Self::new(entry).0.into_inner(), Ordering::Relaxed);
    }
}

impl Clone for StoredAt {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

/// What became of an object.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Its value, in this process.
    Inline(Value),
    /// Its value is in the node's object store.
    Stored {
        /// Where.
        place: StoredAt,
        /// Whether references are inside.
        contains: bool,
    },
    /// There is none.
    Failed(Arc<Failure>),
    /// There never will be: it could not even be submitted.
    Refused(Box<Error>),
}

impl Outcome {
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Refused(_))
    }

    pub(crate) fn to_shared(&self) -> SharedValue {
        match self {
            Self::Inline(value) => {
                SharedValue::Inline { bytes: value.bytes().to_vec(), contains: value.contains() }
            }
            Self::Stored { place, contains } => {
                SharedValue::Stored { entry: place.get(), contains: *contains }
            }
            Self::Failed(_) | Self::Refused(_) => SharedValue::Failed(self.failure().expect("it failed")),
        }
    }

    /// The failure, if there is one.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Failed(failure) => Some((**failure).clone()),
            Self::Refused(error) => Some(Failure::new(FailureKind::SessionClosed, error.to_string())),
            Self::Inline(_) | Self::Stored { .. } => None,
        }
    }

    pub(crate) fn from_shared(value: SharedValue) -> Self {
        match value {
            SharedValue::Inline { bytes, .. } => Self::Inline(Value::inline(&bytes)),
            SharedValue::Stored { entry, contains } => Self::Stored { place: StoredAt::new(entry), contains },
            SharedValue::Failed(failure) => Self::Failed(Arc::new(failure)),
        }
    }
}

/// A thread that waits for some of many objects.
pub(crate) struct WaitGroup {
    remaining: AtomicIsize,
    thread: Thread,
    /// Whether the first failure ends the wait.
    ends_at_failure: AtomicBool,
    /// On whose doorbell the thread sleeps, if it does.
    sleeps_at: OnceLock<Arc<Inner>>,
}

impl WaitGroup {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let (remaining, ends_at_failure) = (AtomicIsize::new(count as isize), AtomicBool::new(false));
        let sleeps_at = OnceLock::new();
        Arc::new(Self { remaining, thread: std::thread::current(), ends_at_failure, sleeps_at })
    }

    /// From now on the thread sleeps on its process's doorbell.
    pub(crate) fn sleep_at(&self, runtime: &Arc<Inner>) {
        let _ = self.sleeps_at.set(runtime.clone());
    }

    /// The first failure shall end the wait.
    pub(crate) fn end_at_failure(&self) {
        self.ends_at_failure.store(true, Ordering::Release);
    }

    /// One of the objects, which will be counted down next, has failed.
    fn on_failure(&self) {
        if self.ends_at_failure.load(Ordering::Acquire) {
            self.remaining.fetch_min(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.remaining.load(Ordering::Acquire) <= 0
    }

    /// The thread does not wait any more, for whatever reason.
    pub(crate) fn end(&self) {
        self.remaining.store(isize::MIN / 2, Ordering::Release);
    }

    pub(crate) fn count_down(&self) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.thread.unpark();
            if let Some(runtime) = self.sleeps_at.get() {
                runtime.control.doorbell().call_all();
            }
        }
    }
}

enum Waiter {
    Group(Arc<WaitGroup>),
    Waker(Waker),
    /// A submitter machine, one of whose tasks has this object as input.
    Machine(ShardIndex),
    /// A queue of completions, in which this object has a position.
    Completion(Arc<CompletionQueue>, usize),
}

impl Waiter {
    /// Whether it still wants to be told.
    fn waits(&self) -> bool {
        match self {
            Self::Group(group) => !group.is_done(),
            Self::Completion(queue, _) => !queue.is_abandoned(),
            Self::Waker(_) | Self::Machine(_) => true,
        }
    }

    fn is_waker_like(&self, waker: &Waker) -> bool {
        matches!(self, Self::Waker(own) if own.will_wake(waker))
    }
}

/// Of the last waiters of an object so many are compared with a new waker: futures are polled again with the same one.
const WAKERS_COMPARED: usize = 4;

#[derive(Default)]
struct Waiters {
    /// The node was told of this object before it had a value: it is told the value, too.
    escaped: bool,
    /// The object itself, for that: it must not go before it has a value that others wait for.
    kept: Option<Arc<Entry>>,
    /// The object was found in the value of this one, which keeps it; see [`Entry::borrow_from`].
    lender: Option<Handle>,
    /// The value of this object was lost, and is waited for by this entry.
    renewal: Weak<Entry>,
    /// The entry whose lost value is waited for by this one.
    origin: Option<Arc<Entry>>,
    list: Vec<Waiter>,
}

impl Waiters {
    /// Adds one. A program may wait for an object that takes long as often as it likes, with a timeout or for any of many: the
    /// list grows with the threads that wait, not with the waits that are over. Wakers stay until the object has a value, but
    /// one that is registered again counts once.
    fn push(&mut self, waiter: Waiter) {
        if let Waiter::Waker(waker) = &waiter
            && self.list.iter().rev().take(WAKERS_COMPARED).any(|other| other.is_waker_like(waker))
        {
            return;
        }
        if self.list.len() == self.list.capacity() {
            self.list.retain(Waiter::waits);
            self.list.reserve(self.list.len() + 1);
        }
        self.list.push(waiter);
    }
}

/// An object in this process.
pub(crate) struct Entry {
    pub(crate) id: ObjectId,
    /// Nothing for an object that could not even be submitted.
    runtime: Option<Arc<Inner>>,
    key: AtomicU64,
    /// Whether the object is an item of the stream that the task gives.
    is_item: AtomicBool,
    known: AtomicBool,
    escaped: AtomicBool,
    /// Whether it has a lender.
    borrowed: AtomicBool,
    /// Whether the node was not asked for its value yet, and has to be.
    unasked: AtomicBool,
    /// The number of the last list in which it was seen.
    seen_in: AtomicU32,
    outcome: OnceLock<Outcome>,
    waiters: Mutex<Option<Box<Waiters>>>,
}

const NO_KEY: u64 = u64::MAX;

impl Entry {
    /// An object without a value yet.
    pub(crate) fn new(id: ObjectId, runtime: Arc<Inner>) -> Self {
        Self {
            id,
            runtime: Some(runtime),
            key: AtomicU64::new(NO_KEY),
            is_item: AtomicBool::new(false),
            known: AtomicBool::new(false),
            escaped: AtomicBool::new(false),
            borrowed: AtomicBool::new(false),
            unasked: AtomicBool::new(false),
            seen_in: AtomicU32::new(0),
            outcome: OnceLock::new(),
            waiters: Mutex::new(None),
        }
    }

    /// An object with a value.
    pub(crate) fn with_outcome(id: ObjectId, runtime: Arc<Inner>, outcome: Outcome) -> Self {
        let entry = Self::new(id, runtime);
        let _ = entry.outcome.set(outcome);
        entry
    }

    /// An object that could not even be submitted.
    pub(crate) fn refused(error: Error) -> Self {
        Self {
            id: ObjectId::default(),
            runtime: None,
            key: AtomicU64::new(NO_KEY),
            is_item: AtomicBool::new(false),
            known: AtomicBool::new(false),
            escaped: AtomicBool::new(false),
            borrowed: AtomicBool::new(false),
            unasked: AtomicBool::new(false),
            seen_in: AtomicU32::new(0),
            outcome: OnceLock::from(Outcome::Refused(Box::new(error))),
            waiters: Mutex::new(None),
        }
    }

    pub(crate) fn runtime(&self) -> Option<&Arc<Inner>> {
        self.runtime.as_ref()
    }

    pub(crate) fn set_key(&self, key: TaskKey) {
        let word = u64::from(key.index) << 32 | u64::from(key.generation);
        self.key.store(word, Ordering::Release);
    }

    /// The object is an item of the stream that this task gives.
    pub(crate) fn set_stream_key(&self, key: TaskKey) {
        self.is_item.store(true, Ordering::Relaxed);
        self.set_key(key);
    }

    /// The task of this process whose return value the object is, if one is. An item of a stream is none: it has a value
    /// before its task ends.
    pub(crate) fn key(&self) -> Option<TaskKey> {
        self.record_key().filter(|_| !self.is_item.load(Ordering::Relaxed))
    }

    /// The task of this process that makes the object, also as an item of a stream: the task stays on record with the entry.
    pub(crate) fn record_key(&self) -> Option<TaskKey> {
        match self.key.load(Ordering::Acquire) {
            NO_KEY => None,
            word => Some(TaskKey { index: (word >> 32) as u32, generation: word as u32 }),
        }
    }

    pub(crate) fn set_known(&self) {
        self.known.store(true, Ordering::Release);
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Notes that others may ask the node for this object; true the first time.
    pub(crate) fn set_escaped(&self) -> bool {
        !self.escaped.swap(true, Ordering::AcqRel)
    }

    /// The object was found in the value of `lender`, and lives as long as that does: the node need not hear of this
    /// reference before somebody wants to know more than its id.
    pub(crate) fn borrow_from(&self, lender: Handle) {
        self.waiters.lock().get_or_insert_default().lender = Some(lender);
        self.borrowed.store(true, Ordering::Release);
    }

    /// Ends the borrowing, and gives the lender, to be dropped when the node knows that this process holds the object.
    pub(crate) fn take_lender(&self) -> Option<Handle> {
        if !self.borrowed.load(Ordering::Acquire) || !self.borrowed.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.waiters.lock().as_mut()?.lender.take()
    }

    /// The node is asked for the value when somebody wants it.
    pub(crate) fn set_unasked(&self) {
        self.unasked.store(true, Ordering::Release);
    }

    /// Whether the node has to be asked now.
    pub(crate) fn take_unasked(&self) -> bool {
        self.unasked.load(Ordering::Acquire) && self.unasked.swap(false, Ordering::AcqRel)
    }

    /// Notes in which list it was seen, and says whether that was the last one before as well.
    #[inline]
    pub(crate) fn see_in(&self, list: u32) -> bool {
        let before = self.seen_in.load(Ordering::Relaxed);
        self.seen_in.store(list, Ordering::Relaxed);
        before == list
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// Whether others may have references to it when this process has none, and its value may be lost.
    fn may_be_wanted_again(&self, runtime: &Inner) -> bool {
        self.is_known()
            && self.escaped.load(Ordering::Acquire)
            && matches!(self.outcome.get(), Some(Outcome::Stored { .. }))
            && runtime.tuning.lineage_bytes_max > 0
            && !runtime.is_closed()
    }

    /// The entry by which the lost value of this one is waited for, and whether that is new.
    pub(crate) fn renew(self: &Arc<Self>, lost: &Arc<Self>, runtime: &Arc<Inner>) -> (Arc<Self>, bool) {
        let mut waiters = self.waiters.lock();
        let waiters = waiters.get_or_insert_default();
        if let Some(renewal) = waiters.renewal.upgrade() {
            if !Arc::ptr_eq(&renewal, lost) {
                return (renewal, false);
            }
            // The caller has it, too: this does not drop it.
            drop(renewal);
        }
        let renewal = Arc::new(Self::new(self.id, runtime.clone()));
        let (origin, kept) = (Some(self.clone()), Some(renewal.clone()));
        *renewal.waiters.lock() = Some(Box::new(Waiters { origin, kept, ..Waiters::default() }));
        waiters.renewal = Arc::downgrade(&renewal);
        (renewal, true)
    }

    /// The entry whose lost value is waited for by this one, or this one.
    pub(crate) fn origin(self: &Arc<Self>) -> Arc<Self> {
        let origin = self.waiters.lock().as_ref().and_then(|waiters| waiters.origin.clone());
        origin.unwrap_or_else(|| self.clone())
    }

    /// The entry by which the lost value of this one is waited for, if somebody does.
    pub(crate) fn renewal(&self) -> Option<Arc<Self>> {
        self.waiters.lock().as_ref()?.renewal.upgrade()
    }

    /// A value that was lost has been made again, or could not be.
    fn resolve_again(&self, outcome: Outcome, later: &mut Later) {
        if let (Some(Outcome::Stored { place, .. }), Outcome::Stored { place: by_now, .. }) =
            (self.outcome.get(), &outcome)
        {
            place.set(by_now.get());
        }
        if self.is_known() {
            later.messages.push(ToNode::Resolved { object: self.id, value: outcome.to_shared() });
        }
        if let Some(renewal) = self.renewal() {
            renewal.resolve(outcome, later);
            later.entries.push(renewal);
        }
    }

    /// Gives the object its outcome, unless it has one; who waits is told by `later`.
    pub(crate) fn resolve(&self, outcome: Outcome, later: &mut Later) {
        // Before anybody sees the failure: who is told of it may ask for its reason at once.
        if let Outcome::Failed(failure) = &outcome
            && let Some(runtime) = self.runtime()
        {
            runtime.failures.note(self.id, failure);
        }
        if let Err(outcome) = self.outcome.set(outcome) {
            return self.resolve_again(outcome, later);
        }
        let mut kept = self.waiters.lock();
        let Some(mut waiters) = kept.take() else { return };
        if waiters.origin.is_some() {
            let origin = waiters.origin.take();
            *kept = Some(Box::new(Waiters { origin, ..Waiters::default() }));
        }
        drop(kept);
        let failed = self.outcome.get().is_some_and(Outcome::is_failed);
        if waiters.escaped {
            let value = self.outcome.get().expect("just set").to_shared();
            later.messages.push(ToNode::Resolved { object: self.id, value });
        }
        later.entries.extend(waiters.kept);
        for waiter in waiters.list {
            match waiter {
                Waiter::Group(group) => {
                    if failed {
                        group.on_failure();
                    }
                    later.groups.push(group);
                }
                Waiter::Waker(waker) => later.wakers.push(waker),
                Waiter::Machine(shard) => {
                    let failed = self.outcome.get().expect("just set").is_failed();
                    later.resolved.push((shard, self.id, failed));
                }
                Waiter::Completion(queue, position) => queue.push(position, later),
            }
        }
    }

    /// Registers a thread, unless there is an outcome: then counts it down at once.
    pub(crate) fn add_group(&self, group: &Arc<WaitGroup>) {
        if !self.add_waiter(|| Waiter::Group(group.clone())) {
            group.count_down();
        }
    }

    /// Registers a waker; false if there is an outcome.
    pub(crate) fn add_waker(&self, waker: &Waker) -> bool {
        self.add_waiter(|| Waiter::Waker(waker.clone()))
    }

    /// Registers a submitter machine, which will be told; false if there is an outcome.
    pub(crate) fn add_machine(&self, shard: ShardIndex) -> bool {
        self.add_waiter(|| Waiter::Machine(shard))
    }

    /// Registers a queue, which will be given the position; false if there is an outcome.
    pub(crate) fn add_completion(&self, queue: &Arc<CompletionQueue>, position: usize) -> bool {
        self.add_waiter(|| Waiter::Completion(queue.clone(), position))
    }

    fn add_waiter(&self, waiter: impl FnOnce() -> Waiter) -> bool {
        let mut waiters = self.waiters.lock();
        if self.outcome.get().is_some() {
            return false;
        }
        waiters.get_or_insert_default().push(waiter());
        true
    }

    /// The value that the node is told when a reference leaves this process; without one, the node is told
    /// later.
    pub(crate) fn escape_value(self: &Arc<Self>) -> Option<SharedValue> {
        let mut waiters = self.waiters.lock();
        match self.outcome.get() {
            Some(outcome) => Some(outcome.to_shared()),
            None => {
                let waiters = waiters.get_or_insert_default();
                waiters.escaped = true;
                waiters.kept = Some(self.clone());
                None
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take().filter(|runtime| !runtime.fork.is_forked()) else { return };
        let (key, lender) = (self.record_key(), self.take_lender());
        if let Some(key) = key.filter(|_| self.may_be_wanted_again(&runtime) && lender.is_none()) {
            return runtime.leave_object(self.id, key, self);
        }
        if let Some(key) = key {
            runtime.on_handle_dropped(key);
        }
        if lender.is_some() {
            runtime.forget_object(self.id, self);
        } else if self.is_known() {
            runtime.release_object(self.id, self);
        }
    }
}

/// What is to be done once no lock is held.
#[derive(Default)]
pub(crate) struct Later {
    /// Shapes of which tasks were queued: a worker may have to be woken.
    pub(crate) queued: Wakes<ShapeId>,
    /// Processes that messages were sent to: they may have to be woken.
    pub(crate) sent: Wakes<ProcessSlot>,
    /// Objects that tasks of a shard wait for, and whether they failed.
    pub(crate) resolved: Vec<(ShardIndex, ObjectId, bool)>,
    pub(crate) groups: Vec<Arc<WaitGroup>>,
    pub(crate) wakers: Vec<Waker>,
    pub(crate) messages: Vec<ToNode>,
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) payloads: Vec<crate::payload::Payload>,
    /// What finished calls have referred to.
    pub(crate) released: Vec<crate::codec::Released>,
    pub(crate) streams: Vec<Arc<crate::stream::StreamState>>,
    /// Tasks that give items which nobody wants, and who runs them.
    pub(crate) orphans: Vec<(ProcessSlot, TaskKey)>,
    /// Lanes that tasks of a shard wait for.
    pub(crate) lanes: Vec<(ShardIndex, Arc<Shape>)>,
    /// Lost items of streams that were asked for when their task had given them again already.
    pub(crate) missed: Vec<ObjectId>,
}

impl Later {
    /// Does it, and is empty again; then does what others have left. The caller holds no lock.
    pub(crate) fn run(&mut self, runtime: &Arc<Inner>) {
        self.run_once(runtime);
        runtime.run_deferred();
    }

    /// Does it, and is empty again.
    pub(crate) fn run_once(&mut self, runtime: &Arc<Inner>) {
        while let Some((shard, object, failed)) = self.resolved.pop() {
            runtime.on_input_resolved(shard, object, failed, self);
        }
        self.queued.drain(|shape| runtime.wake_worker(shape));
        self.sent.drain(|process| runtime.control.notify(process));
        for (shard, shape) in self.lanes.drain(..) {
            runtime.foresee_lane(shard, shape);
        }
        if !self.messages.is_empty() {
            runtime.outbox.extend(self.messages.drain(..));
        }
        runtime.flush_outbox();
        if !self.groups.is_empty() {
            self.groups.drain(..).for_each(|group| group.count_down());
        }
        if !self.wakers.is_empty() {
            self.wakers.drain(..).for_each(Waker::wake);
        }
        self.streams.iter().for_each(|stream| stream.settle_repeats());
        for (producer, key) in self.orphans.drain(..) {
            runtime.close_stream(producer, key);
        }
        while let Some(object) = self.missed.pop() {
            runtime.on_rebuild(object);
        }
        self.payloads.clear();
        self.released.clear();
        self.entries.clear();
        self.streams.clear();
    }
}

/// Whom to wake: nearly always one, so that one needs no memory.
#[derive(Default)]
pub(crate) struct Wakes<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl<T: Copy + PartialEq> Wakes<T> {
    pub(crate) fn add(&mut self, whom: T) {
        match self.first {
            None => self.first = Some(whom),
            Some(first) if first == whom => {}
            Some(_) if self.others.contains(&whom) => {}
            Some(_) => self.others.push(whom),
        }
    }

    fn drain(&mut self, wake: impl Fn(T)) {
        if let Some(first) = self.first.take() {
            wake(first);
            self.others.drain(..).for_each(wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_ended_are_forgotten() {
        let mut waiters = Waiters::default();
        let lasting = WaitGroup::new(1);
        waiters.push(Waiter::Group(lasting.clone()));
        for _ in 0..10_000 {
            let group = WaitGroup::new(1);
            waiters.push(Waiter::Group(group.clone()));
            group.end();
        }
        assert!(waiters.list.len() < 32, "{} are registered, and one waits", waiters.list.len());
        let waiting =
            |waiter: &Waiter| matches!(waiter, Waiter::Group(group) if Arc::ptr_eq(group, &lasting));
        assert!(waiters.list.iter().any(waiting));
    }

    #[test]
    fn a_waker_is_registered_once_however_often_its_future_is_polled() {
        let mut waiters = Waiters::default();
        for _ in 0..100 {
            waiters.push(Waiter::Waker(Waker::noop().clone()));
        }
        assert_eq!(waiters.list.len(), 1);
    }
}
