//! Streams: items of a task that arrive while it runs, with back-pressure.

use crate::codec::{Arguments, Encoded, Value};
use crate::entry::{Entry, Later, Outcome, WaitGroup};
use crate::error::Error;
use crate::handle::{Handle, Stream};
use crate::options::TaskOptions;
use crate::payload::Returns;
use crate::registry::Function;
use crate::runtime::Inner;
use crate::submit::Shell;
use aktis_logic::machine::submitter::Repeat;
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::hot::{Message, MessageKind};
use aktis_protocol::{Failure, FailureKind, NotRebuilt, ObjectId, ProcessSlot, TaskId, TaskKey};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

/// The consumer's side of a stream.
pub(crate) struct StreamState {
    task: TaskId,
    runtime: Arc<Inner>,
    key: OnceLock<TaskKey>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Arc<Entry>>,
    ended: bool,
    /// Why it ended before its last item.
    failure: Option<Arc<Failure>>,
    /// How many have come, taken or not.
    received: u32,
    consumed: u32,
    /// How many have come in the current run of the task.
    position: u32,
    /// Set while the finished task runs again for items that were lost.
    again: Option<Again>,
    /// How many have come again, until their producer is told that they were taken.
    repeats: Option<u32>,
    /// Objects that get their values at the end.
    completed: Vec<(Weak<Entry>, Value)>,
    producer: Option<ProcessSlot>,
    groups: Vec<Arc<WaitGroup>>,
    wakers: Vec<Waker>,
}

/// A run of a finished task for items that were lost.
struct Again {
    /// The lost items that have not come again.
    awaited: BTreeSet<u32>,
    /// Nobody else may refer to the stream.
    _stream: Arc<StreamState>,
}

impl StreamState {
    /// An item has arrived; true if it was not there before.
    pub(crate) fn add(
        &self,
        runtime: &Arc<Inner>,
        (from, key): (ProcessSlot, TaskKey),
        index: u32,
        outcome: Outcome,
        held: bool,
        later: &mut Later,
    ) -> bool {
        let object = self.task.returns(index);
        let mut queue = self.queue.lock();
        queue.producer = Some(from);
        queue.position = index + 1;
        if index < queue.received || queue.runs_again() {
            // The task began anew: this item was there before. It goes on as if it had been taken again.
            queue.repeats = Some(queue.consumed.max(index + 1));
            if let Some(again) = &mut queue.again {
                again.awaited.remove(&index);
            }
            drop(queue);
            replace(runtime, object, outcome, held, later);
            return false;
        }
        queue.received = index + 1;
        let entry = Arc::new(Entry::with_outcome(object, runtime.clone(), outcome));
        if held {
            entry.set_known();
            entry.set_stream_key(key);
            // By this the task is found that makes the item again if it is lost.
            runtime.known.lock().insert(object, Arc::downgrade(&entry));
        } else {
            runtime.unlisted.add(&entry);
        }
        queue.items.push_back(entry);
        queue.wake(later);
        true
    }

    /// The task is done; a failure is the last item.
    pub(crate) fn end(&self, outcome: Outcome, later: &mut Later) {
        match outcome {
            Outcome::Failed(failure) => self.fail(&failure, later),
            _ => {
                let mut queue = self.queue.lock();
                queue.ended = true;
                queue.wake(later);
                self.settle_awaited(queue, None, later);
            }
        }
    }

    /// The task failed.
    pub(crate) fn fail(&self, failure: &Arc<Failure>, later: &mut Later) {
        let mut queue = self.queue.lock();
        if queue.ended {
            return self.settle_awaited(queue, Some(failure), later);
        }
        let id = self.task.returns(u32::MAX);
        let entry = Entry::with_outcome(id, self.runtime.clone(), Outcome::Failed(failure.clone()));
        queue.items.push_back(Arc::new(entry));
        queue.ended = true;
        queue.failure = Some(failure.clone());
        for (entry, _) in std::mem::take(&mut queue.completed) {
            if let Some(entry) = entry.upgrade() {
                entry.resolve(Outcome::Failed(failure.clone()), later);
                later.entries.push(entry);
            }
        }
        queue.wake(later);
        self.settle_awaited(queue, Some(failure), later);
    }

    /// A lost item is awaited from the task, which runs or is about to run again.
    pub(crate) fn await_again(self: &Arc<Self>, index: u32) {
        let mut queue = self.queue.lock();
        let again = Again { awaited: BTreeSet::new(), _stream: self.clone() };
        queue.again.get_or_insert(again).awaited.insert(index);
    }

    /// Whether the task runs again and has given all items that were there before.
    pub(crate) fn has_given_all_again(&self) -> bool {
        let queue = self.queue.lock();
        queue.runs_again() && queue.position >= queue.received
    }

    /// The task has ended: lost items that it has not given again are not made again, or by another run if they were lost
    /// after it had given them.
    fn settle_awaited(&self, mut queue: MutexGuard<'_, Queue>, cause: Option<&Failure>, later: &mut Later) {
        let position = std::mem::take(&mut queue.position);
        let Some(again) = queue.again.take() else { return };
        drop(queue);
        for index in again.awaited {
            let object = self.task.returns(index);
            if cause.is_none() && index < position {
                later.missed.push(object);
                continue;
            }
            let why = match cause {
                Some(cause) => format!("its generator failed when it ran again: {}", cause.message),
                None => format!("its generator gave {position} items when it ran again"),
            };
            let text = format!(
                "item {index} was lost with the node that had it, and {why}\n\
                 hint: a generator must give the same items each time for its items to be reconstructed"
            );
            let failure = Failure::new(FailureKind::NotRebuilt(NotRebuilt::Other), text);
            let listed = self.runtime.known.lock().get(&object).and_then(Weak::upgrade);
            match listed {
                Some(entry) => {
                    entry.resolve(Outcome::Failed(Arc::new(failure)), later);
                    later.entries.push(entry);
                }
                None => {
                    let value = SharedValue::Failed(failure);
                    later.messages.push(ToNode::Resolved { object, value });
                }
            }
        }
        // The last reference to the stream may go: not while its shard is locked.
        later.streams.push(again._stream);
    }

    /// The process that gave the items is dead; another may begin anew.
    pub(crate) fn forget_producer(&self) {
        let mut queue = self.queue.lock();
        (queue.producer, queue.position) = (None, 0);
    }

    /// Tells the producer that items which came again need not be waited for. No lock is held.
    pub(crate) fn settle_repeats(&self) {
        let mut queue = self.queue.lock();
        let (Some(repeats), Some(producer), Some(&key)) =
            (queue.repeats.take(), queue.producer, self.key.get())
        else {
            return;
        };
        drop(queue);
        let kind = MessageKind::StreamCredit as u8;
        let message = Message { kind, form: 0, contains: 0, reserved: 0, index: repeats, key };
        if producer == self.runtime.me {
            self.tell(producer, MessageKind::StreamCredit, repeats);
        } else if self.runtime.push_message(producer, &message, &[]) {
            self.runtime.control.notify(producer);
        } else {
            // Whoever waits for the next item tries again: this may be the thread that opens channels.
            self.queue.lock().repeats.get_or_insert(repeats);
        }
    }

    /// The next item, if it is there: `Some(None)` is the end.
    pub(crate) fn take(&self) -> Option<Option<Handle>> {
        let mut queue = self.queue.lock();
        let Some(entry) = queue.items.pop_front() else { return queue.ended.then_some(None) };
        queue.consumed += 1;
        let (consumed, producer, ended) = (queue.consumed, queue.producer, queue.ended);
        drop(queue);
        if let (Some(producer), false) = (producer, ended) {
            self.tell(producer, MessageKind::StreamCredit, consumed);
        }
        Some(Some(Handle { entry }))
    }

    pub(crate) fn runtime(&self) -> &Arc<Inner> {
        &self.runtime
    }

    pub(crate) fn is_ready(&self) -> bool {
        let queue = self.queue.lock();
        queue.ended || !queue.items.is_empty()
    }

    pub(crate) fn add_group(&self, group: &Arc<WaitGroup>) {
        let mut queue = self.queue.lock();
        if queue.ended || !queue.items.is_empty() {
            group.count_down();
        } else {
            queue.groups.push(group.clone());
        }
    }

    /// Keeps a waker; false if there is something to take.
    pub(crate) fn add_waker(&self, waker: &Waker) -> bool {
        let mut queue = self.queue.lock();
        let wait = !queue.ended && queue.items.is_empty();
        if wait {
            queue.wakers.push(waker.clone());
        }
        wait
    }

    /// The consumer is gone: the task ends at its next item, or never starts.
    pub(crate) fn close(&self) {
        if self.runtime.fork.is_forked() {
            return;
        }
        let mut queue = self.queue.lock();
        let (producer, ended) = (queue.producer, queue.ended);
        let completed = std::mem::take(&mut queue.completed);
        drop(queue);
        let failure = Arc::new(Failure::new(FailureKind::Cancelled, "nobody wants its items any more"));
        let mut later = Later::default();
        for entry in completed.into_iter().filter_map(|(entry, _)| entry.upgrade()) {
            entry.resolve(Outcome::Failed(failure.clone()), &mut later);
            later.entries.push(entry);
        }
        later.run(&self.runtime);
        let Some(&key) = self.key.get() else { return };
        match producer {
            Some(producer) if !ended => self.tell(producer, MessageKind::StreamClosed, 0),
            None if !ended => {
                self.runtime.cancel(key, false, true);
            }
            _ => {}
        }
        self.runtime.on_handle_dropped(key);
    }

    fn tell(&self, producer: ProcessSlot, kind: MessageKind, index: u32) {
        let Some(&key) = self.key.get().filter(|_| !self.runtime.fork.is_forked()) else { return };
        if producer == self.runtime.me {
            if let Some(executor) = &self.runtime.executor {
                executor.on_task_message(producer, kind, key, index);
            }
            return;
        }
        let message = Message { kind: kind as u8, form: 0, contains: 0, reserved: 0, index, key };
        while !self.runtime.push_message(producer, &message, &[]) {
            if self.runtime.is_closed() || !self.runtime.control.is_alive(producer) {
                return;
            }
            self.runtime.flush_outbox();
            self.runtime.drain();
            std::thread::yield_now();
        }
        self.runtime.control.notify(producer);
    }
}

/// An item has come again. The node counts this process as a holder once, however often it comes.
fn replace(runtime: &Arc<Inner>, object: ObjectId, outcome: Outcome, held: bool, later: &mut Later) {
    let listed = runtime.known.lock().get(&object).and_then(Weak::upgrade);
    match listed {
        Some(entry) => {
            if held {
                later.entries.extend(entry.take_lender().map(|lender| lender.entry));
                entry.set_known();
            }
            entry.resolve(outcome, later);
            later.entries.push(entry);
        }
        None => later.messages.extend(held.then_some(ToNode::Released { object })),
    }
}

impl Shell {
    /// An item of a stream has arrived.
    pub(crate) fn note_item(&mut self, key: TaskKey, index: u32) {
        if let Some(payload) = self.machine.payload_mut(key)
            && let Returns::Stream(_, items) = &mut payload.returns
        {
            *items = (*items).max(index + 1);
        }
    }

    /// The stream that takes in the items of a task when it runs again; nothing if the task gives none.
    pub(crate) fn stream_again(&mut self, runtime: &Arc<Inner>, key: TaskKey) -> Option<Arc<StreamState>> {
        let runs = self.machine.repeat(key) == Repeat::UnderWay;
        let task = self.machine.record(key)?.task();
        let Returns::Stream(stream, items) = &mut self.machine.payload_mut(key)?.returns else { return None };
        if let Some(stream) = stream.upgrade() {
            return Some(stream);
        }
        // Its consumer is gone, and others refer to its items.
        let queue = Queue {
            ended: true,
            received: *items,
            consumed: *items,
            position: if runs { *items } else { 0 },
            ..Queue::default()
        };
        let (runtime, key) = (runtime.clone(), OnceLock::from(key));
        let state = Arc::new(StreamState { task, runtime, key, queue: Mutex::new(queue) });
        *stream = Arc::downgrade(&state);
        Some(state)
    }
}

impl Queue {
    /// Whether the current run is one for lost items, after the stream had ended.
    fn runs_again(&self) -> bool {
        self.again.is_some() && self.ended
    }

    fn wake(&mut self, later: &mut Later) {
        later.groups.append(&mut self.groups);
        later.wakers.append(&mut self.wakers);
        if self.ended {
            for (entry, value) in self.completed.drain(..) {
                if let Some(entry) = entry.upgrade() {
                    entry.resolve(Outcome::Inline(value), later);
                    later.entries.push(entry);
                }
            }
        }
    }
}

impl Inner {
    /// Submits a streaming task.
    pub(crate) fn submit_stream(
        self: &Arc<Self>,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
    ) -> Result<Stream, Error> {
        let task = self.next_task();
        let stream = self.new_stream(task);
        let key = self.submit_task(task, function, options, arguments, stream.returns(), 1)?;
        stream.set_key(key);
        Ok(stream)
    }

    /// The consumer's side of what `task` will give.
    pub(crate) fn new_stream(self: &Arc<Self>, task: TaskId) -> Stream {
        let (runtime, key, queue) = (self.clone(), OnceLock::new(), Mutex::default());
        Stream { state: Arc::new(StreamState { task, runtime, key, queue }) }
    }
}

impl Stream {
    pub(crate) fn returns(&self) -> Returns {
        Returns::Stream(Arc::downgrade(&self.state), 0)
    }

    pub(crate) fn set_key(&self, key: TaskKey) {
        let _ = self.state.key.set(key);
    }

    /// The task that gives the items.
    pub fn task(&self) -> TaskId {
        self.state.task
    }

    /// An object that has the value `ready` when the task has given its last item, and the failure if the task failed.
    pub fn completed(&self, ready: Encoded) -> Handle {
        let (runtime, value) = (self.state.runtime.clone(), ready.into_value());
        let id = runtime.next_task().returns(0);
        let mut queue = self.state.queue.lock();
        let entry = if queue.ended {
            let outcome = queue.failure.clone().map_or(Outcome::Inline(value), Outcome::Failed);
            Arc::new(Entry::with_outcome(id, runtime, outcome))
        } else {
            let entry = Arc::new(Entry::new(id, runtime));
            queue.completed.push((Arc::downgrade(&entry), value));
            entry
        };
        Handle { entry }
    }

    /// Whether all items have been taken.
    pub fn is_finished(&self) -> bool {
        let queue = self.state.queue.lock();
        queue.ended && queue.items.is_empty()
    }

    /// Whether an item, or the end, can be taken without waiting.
    pub fn is_ready(&self) -> bool {
        self.state.is_ready()
    }

    /// Cancels the task; see [`Handle::cancel`].
    pub fn cancel(&self, force: bool, recursive: bool) -> Result<(), Error> {
        self.state.runtime.check_usable()?;
        if let Some(&key) = self.state.key.get() {
            self.state.runtime.cancel(key, force, recursive);
        }
        Ok(())
    }
}
