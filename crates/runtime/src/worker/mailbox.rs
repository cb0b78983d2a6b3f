//! Actors that live in this worker: their state, their calls in order, and their end.
//!
//! Invariants:
//! 1. Calls start in the order in which they arrived.
//! 2. An exclusive call (`&mut self`) runs alone; others run together, up to the actor's concurrency.
//! 3. `scheduled` is true exactly while a thread has the mailbox or will pop it.

use crate::codec::{ArgumentReader, ShortBytes};
use crate::registry::{self, ActorState, AsyncReturn, Call, Function, FunctionBody};
use crate::runtime::{IdMap, Inner};
use crate::worker::context::TaskContext;
use crate::worker::executor::{Executor, Runnable};
use crate::worker::reply::Answer;
use crate::worker::run::{self, Asker, CallContext, Outcome, catch};
use crate::worker::runner::RunnerState;
use aktis_protocol::control::{ActorSpec, ToNode};
use aktis_protocol::hot::{CallHeader, MessageKind};
use aktis_protocol::{ActorId, Failure, FailureKind, FunctionId, ProcessSlot, TaskId, TaskKey};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// Calls that one thread runs of one actor before it looks at other work.
const BATCH: usize = 64;

/// The actors of this worker.
#[derive(Default)]
pub(crate) struct Hosted {
    mailboxes: Mutex<IdMap<ActorId, Arc<Mailbox>>>,
    count: AtomicUsize,
    /// The actor that was called last: calls come in runs.
    last: Mutex<Option<Arc<Mailbox>>>,
}

/// With more actors than this, idle ones keep no memory for calls to come.
const MANY: usize = 256;

/// One actor.
pub(crate) struct Mailbox {
    actor: ActorId,
    /// Which life, if the node manages it.
    incarnation: Option<u32>,
    /// Whether the node waits to hear of its end.
    reports: AtomicBool,
    concurrency: u32,
    gpus: Arc<[u32]>,
    inner: Mutex<State>,
}

struct State {
    life: Life,
    queue: VecDeque<Item>,
    running: u32,
    exclusive: bool,
    scheduled: bool,
}

enum Life {
    /// The constructor has not run.
    New,
    /// It takes calls.
    Ready(ActorState),
    /// It is gone; calls get this failure.
    Ended(Box<Failure>),
}

struct Item {
    kind: MessageKind,
    from: ProcessSlot,
    key: TaskKey,
    task: TaskId,
    /// What to run, or the failure that says that this program does not have it.
    function: Option<&'static Function>,
    id: FunctionId,
    attempt: u32,
    stream_ahead: u32,
    bytes: ShortBytes,
}

/// A call for an actor that is not here: refused by a thread that holds no lock.
pub(crate) fn refuse(runtime: &Arc<Inner>, from: ProcessSlot, key: TaskKey, task: TaskId) {
    let failure = Failure::new(FailureKind::ActorDied, "its actor is gone");
    let answer = Answer::failed(task.returns(0), failure.at("", task));
    answer.send(runtime, from, MessageKind::Returned, key, 0);
}

impl Executor {
    /// A message for an actor of this worker. The caller may hold locks of the runtime: nothing is run here.
    pub(crate) fn deliver(
        &self,
        runtime: &Arc<Inner>,
        from: ProcessSlot,
        kind: MessageKind,
        key: TaskKey,
        header: &CallHeader,
        bytes: &[u8],
    ) {
        let item = Item {
            kind,
            from,
            key,
            task: header.task,
            function: registry::find(header.function),
            id: header.function,
            attempt: header.attempt,
            stream_ahead: header.stream_ahead,
            bytes: bytes.into(),
        };
        if kind == MessageKind::ActorCall {
            match self.hosted.find(header.actor) {
                Some(mailbox) => mailbox.add(runtime, self, item),
                None => self.push_runnable(runtime, Runnable::Refusal(from, key, header.task)),
            }
            return;
        }
        let mut mailboxes = self.hosted.mailboxes.lock();
        if kind == MessageKind::ActorCreate {
            let mailbox = Arc::new(Mailbox::new(header.actor, None, header.concurrency, Arc::default()));
            mailboxes.insert(header.actor, mailbox.clone());
            self.hosted.count.store(mailboxes.len(), Ordering::Relaxed);
            drop(mailboxes);
            return mailbox.add(runtime, self, item);
        }
        let mailbox = mailboxes.get(&header.actor).cloned();
        drop(mailboxes);
        match mailbox {
            Some(mailbox) if kind == MessageKind::ActorKill => mailbox.kill(runtime, self),
            Some(mailbox) => mailbox.add(runtime, self, item),
            None => {}
        }
    }
}

impl Hosted {
    fn find(&self, actor: ActorId) -> Option<Arc<Mailbox>> {
        let mut last = self.last.lock();
        if let Some(mailbox) = last.as_ref().filter(|mailbox| mailbox.actor == actor) {
            return Some(mailbox.clone());
        }
        *last = self.mailboxes.lock().get(&actor).cloned();
        last.clone()
    }

    fn are_many(&self) -> bool {
        self.count.load(Ordering::Relaxed) > MANY
    }

    /// Constructs an actor that the node manages.
    pub(crate) fn host(
        &self,
        runtime: &Arc<Inner>,
        executor: &Executor,
        spec: ActorSpec,
        incarnation: u32,
        gpus: Vec<u32>,
    ) {
        if spec.concurrency > 1 {
            executor.use_all_threads(runtime);
        }
        let mailbox = Arc::new(Mailbox::new(spec.actor, Some(incarnation), spec.concurrency, gpus.into()));
        self.mailboxes.lock().insert(spec.actor, mailbox.clone());
        *self.last.lock() = None;
        let [high, low] = spec.actor.to_words();
        let item = Item {
            kind: MessageKind::ActorCreate,
            from: runtime.me,
            key: TaskKey { index: u32::MAX, generation: u32::MAX },
            task: TaskId::from_words([high, low]),
            function: registry::find(spec.constructor),
            id: spec.constructor,
            attempt: incarnation,
            stream_ahead: 0,
            bytes: spec.arguments.into(),
        };
        mailbox.add(runtime, executor, item);
    }

    /// The node ends an actor.
    pub(crate) fn end(&self, runtime: &Arc<Inner>, executor: &Executor, actor: ActorId, now: bool) {
        let Some(mailbox) = self.mailboxes.lock().get(&actor).cloned() else { return };
        mailbox.reports.store(true, Ordering::Release);
        if now {
            return mailbox.kill(runtime, executor);
        }
        let item = Item {
            kind: MessageKind::ActorRelease,
            from: runtime.me,
            key: TaskKey { index: u32::MAX, generation: u32::MAX },
            task: TaskId::default(),
            function: None,
            id: FunctionId::default(),
            attempt: 0,
            stream_ahead: 0,
            bytes: ShortBytes::default(),
        };
        mailbox.add(runtime, executor, item);
    }

    /// Drops a queued call that its caller cancelled.
    pub(crate) fn cancel(&self, from: ProcessSlot, key: TaskKey) {
        for mailbox in self.mailboxes.lock().values() {
            mailbox.inner.lock().queue.retain(|item| item.from != from || item.key != key);
        }
    }

    fn forget(&self, mailbox: &Arc<Mailbox>) {
        let mut mailboxes = self.mailboxes.lock();
        if mailboxes.get(&mailbox.actor).is_some_and(|other| Arc::ptr_eq(other, mailbox)) {
            mailboxes.remove(&mailbox.actor);
            self.count.store(mailboxes.len(), Ordering::Relaxed);
            drop(mailboxes);
            *self.last.lock() = None;
        }
    }
}

impl Mailbox {
    fn new(actor: ActorId, incarnation: Option<u32>, concurrency: u32, gpus: Arc<[u32]>) -> Self {
        let queue = VecDeque::new();
        let state = State { life: Life::New, queue, running: 0, exclusive: false, scheduled: false };
        let reports = AtomicBool::new(incarnation.is_some());
        let concurrency = concurrency.max(1);
        Self { actor, incarnation, reports, concurrency, gpus, inner: Mutex::new(state) }
    }

    fn add(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, item: Item) {
        let mut state = self.inner.lock();
        state.queue.push_back(item);
        let schedule = !state.scheduled;
        state.scheduled = true;
        drop(state);
        if schedule {
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
    }

    /// Runs calls, as many as may run now, up to a batch.
    pub(crate) fn run(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, runner: &RunnerState) {
        for _ in 0..BATCH {
            let Some((item, state, exclusive)) = self.next(runtime, executor) else { return };
            self.run_item(runtime, executor, runner, item, state, exclusive);
        }
        executor.push_runnable(runtime, Runnable::Actor(self.clone()));
    }

    /// The next item that may start now. Without one, the mailbox is not scheduled any more.
    fn next(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
    ) -> Option<(Item, Option<ActorState>, bool)> {
        let mut guard = self.inner.lock();
        let state = &mut *guard;
        let item = state.queue.front();
        let exclusive = item.is_some_and(|item| item.is_exclusive());
        let full = state.exclusive || state.running >= self.concurrency || (exclusive && state.running > 0);
        if item.is_none() || full {
            state.scheduled = false;
            return None;
        }
        let item = state.queue.pop_front().expect("there is one");
        state.running += 1;
        state.exclusive = exclusive;
        let actor = match &state.life {
            Life::Ready(actor) => Some(actor.clone()),
            _ => None,
        };
        let more = !exclusive && !state.queue.is_empty() && state.running < self.concurrency;
        drop(guard);
        if more {
            // Another thread may take the next call meanwhile; this one comes back to the mailbox, too.
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
        Some((item, actor, exclusive))
    }

    fn run_item(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
        runner: &RunnerState,
        item: Item,
        actor: Option<ActorState>,
        exclusive: bool,
    ) {
        match item.kind {
            MessageKind::ActorCreate => self.construct(runtime, runner, item),
            MessageKind::ActorRelease => {
                drop(actor);
                let failure = Failure::new(FailureKind::ActorDied, "its actor ended: no handle was left");
                self.end(runtime, executor, failure);
                executor.hosted.forget(self);
            }
            _ => match actor {
                Some(actor) => {
                    let suspended = self.call(runtime, executor, runner, item, actor, exclusive);
                    if suspended {
                        return;
                    }
                }
                None => self.refuse(runtime, &item),
            },
        }
        self.done(runtime, executor, exclusive);
    }

    /// A call is over: others may start.
    fn done(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, exclusive: bool) {
        let mut state = self.inner.lock();
        state.running -= 1;
        if exclusive {
            state.exclusive = false;
        }
        let schedule = !state.scheduled && !state.queue.is_empty();
        state.scheduled |= schedule;
        if state.queue.is_empty() && executor.hosted.are_many() {
            state.queue = VecDeque::new();
        }
        drop(state);
        if schedule {
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
    }

    fn context<'a>(&self, runtime: &'a Arc<Inner>, item: &Item) -> CallContext<'a> {
        CallContext {
            runtime,
            task: item.task,
            actor: self.actor,
            attempt: self.incarnation.unwrap_or(item.attempt),
            gpus: self.gpus.clone(),
            from: item.from,
            key: item.key,
        }
    }

    fn construct(&self, runtime: &Arc<Inner>, runner: &RunnerState, mut item: Item) {
        let context = self.context(runtime, &item);
        let mut name = "";
        let result = item.function().and_then(|function| {
            name = function.name;
            let FunctionBody::Constructor(body) = function.body else {
                return Err(Failure::new(FailureKind::UnknownFunction, "it is not a constructor"));
            };
            runner.begin(item.from, item.key);
            let before = context.enter(function.name, Arc::default());
            let mut call = Call::new(ArgumentReader::new(std::mem::take(&mut item.bytes), &runner.runtime));
            let result = catch(|| body(&mut call));
            drop(call);
            run::leave(runtime, before);
            runner.end();
            result
        });
        let ended = result.as_ref().err().map(|cause| {
            let message = format!("its actor could not be constructed: {name}: {cause}");
            Failure { message, kind: FailureKind::ActorDied, ..cause.clone() }
        });
        let mut state = self.inner.lock();
        state.life = match (result, &state.life) {
            (_, Life::Ended(failure)) => Life::Ended(failure.clone()),
            (Ok(actor), _) => Life::Ready(actor),
            (Err(_), _) => Life::Ended(Box::new(ended.clone().expect("it failed"))),
        };
        drop(state);
        match (self.incarnation, ended) {
            (Some(incarnation), None) => {
                runtime.send_to_node(ToNode::ActorStarted { actor: self.actor, incarnation });
            }
            (Some(_), Some(failure)) => {
                runtime.send_to_node(ToNode::ActorEnded { actor: self.actor, failure });
            }
            (None, _) => {
                let answer = Answer::nothing(context.object());
                answer.send(runtime, context.from, MessageKind::Returned, context.key, 0);
            }
        }
    }

    /// Runs a call; true if it is suspended and goes on later.
    fn call(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
        runner: &RunnerState,
        mut item: Item,
        actor: ActorState,
        exclusive: bool,
    ) -> bool {
        let context = self.context(runtime, &item);
        let function = match item.function() {
            Ok(function) => function,
            Err(failure) => {
                item.asker().refuse(runtime, failure.at("", item.task));
                return false;
            }
        };
        let cancelled = runner.begin(item.from, item.key);
        let before = context.enter(function.name, cancelled.clone());
        let mut call = Call::new(ArgumentReader::new(std::mem::take(&mut item.bytes), &runner.runtime));
        let outcome = match function.body {
            FunctionBody::Method { run, .. } => Ok(Outcome::One(catch(|| run(&mut call, &actor)))),
            FunctionBody::SeveralMethod(run) => Ok(Outcome::Several(catch(|| run(&mut call, &actor)))),
            FunctionBody::StreamMethod(run) => Ok(Outcome::Stream(catch(|| run(&mut call, &actor)))),
            FunctionBody::AsyncMethod { run, .. } => match catch(|| run(&mut call, actor.clone())) {
                Ok(future) => Err(future),
                Err(failure) => Ok(Outcome::One(Err(failure))),
            },
            _ => {
                let failure = Failure::new(FailureKind::UnknownFunction, "it is not a method");
                Ok(Outcome::One(Err(failure)))
            }
        };
        drop(call);
        drop(actor);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(future) => {
                let exits = run::leave(runtime, before);
                runner.end();
                let call = AsyncCall::new(self, runtime, function.name, item, exclusive, cancelled, future);
                call.note_exit(exits);
                call.poll(runtime, executor);
                return true;
            }
        };
        let exits = item.asker().answer(runtime, runner, function.name, before, outcome);
        runner.end();
        if exits {
            self.exit(runtime, executor);
        }
        false
    }

    fn refuse(&self, runtime: &Arc<Inner>, item: &Item) {
        let failure = match &self.inner.lock().life {
            Life::Ended(failure) => (**failure).clone(),
            _ => Failure::new(FailureKind::ActorDied, "its actor is gone"),
        };
        let function = item.function.map_or("", |function| function.name);
        let answer = Answer::failed(item.task.returns(0), failure.at(function, item.task));
        answer.send(runtime, item.from, MessageKind::Returned, item.key, 0);
    }

    /// The actor asked for its own end.
    fn exit(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) {
        let failure = Failure::new(FailureKind::ActorDied, "its actor exited");
        self.end(runtime, executor, failure);
    }

    fn kill(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) {
        let failure = Failure::new(FailureKind::ActorDied, "its actor was killed");
        let mut state = self.inner.lock();
        let schedule = !state.scheduled && !state.queue.is_empty();
        state.scheduled |= schedule;
        let before = std::mem::replace(&mut state.life, Life::Ended(Box::new(failure.clone())));
        drop(state);
        if schedule {
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
        executor.hosted.forget(self);
        // The state's destructor is user code: it runs where no lock is held.
        executor.push_runnable(runtime, Runnable::Farewell(self.clone(), before.into_state(), failure));
    }

    fn end(self: &Arc<Self>, runtime: &Arc<Inner>, _executor: &Executor, failure: Failure) {
        let before = std::mem::replace(&mut self.inner.lock().life, Life::Ended(Box::new(failure.clone())));
        if !matches!(before, Life::Ended(_)) {
            if let (true, Some(hooks)) = (self.incarnation.is_some(), crate::hooks::get()) {
                (hooks.exits)();
            }
            self.bury(runtime, before.into_state(), failure);
        }
    }

    /// Drops the actor's state and tells the node.
    pub(crate) fn bury(&self, runtime: &Arc<Inner>, state: Option<ActorState>, failure: Failure) {
        let dropped = catch(|| {
            drop(state);
            Ok(())
        });
        if let Err(panic) = dropped {
            eprintln!("aktis: the destructor of an actor failed: {panic}");
        }
        if self.reports.load(Ordering::Acquire) {
            runtime.send_to_node(ToNode::ActorEnded { actor: self.actor, failure });
        }
    }
}

impl Life {
    fn into_state(self) -> Option<ActorState> {
        match self {
            Self::Ready(state) => Some(state),
            Self::New | Self::Ended(_) => None,
        }
    }
}

impl Item {
    fn function(&self) -> Result<&'static Function, Failure> {
        self.function.ok_or_else(|| run::unknown(self.id))
    }

    fn asker(&self) -> Asker {
        Asker { process: self.from, key: self.key, task: self.task, stream_ahead: self.stream_ahead }
    }

    fn is_exclusive(&self) -> bool {
        match self.function.map(|function| &function.body) {
            Some(FunctionBody::Method { exclusive, .. } | FunctionBody::AsyncMethod { exclusive, .. }) => {
                *exclusive
            }
            Some(FunctionBody::SeveralMethod(_) | FunctionBody::StreamMethod(_)) => false,
            _ => true,
        }
    }
}

impl CallContext<'_> {
    fn enter(&self, function: &'static str, cancelled: Arc<AtomicBool>) -> Option<TaskContext> {
        TaskContext::new(
            self.runtime,
            self.task,
            function,
            Some(self.actor),
            self.attempt,
            self.gpus.clone(),
            cancelled,
        )
        .enter()
    }
}

/// A call of an asynchronous method that is under way.
pub(crate) struct AsyncCall {
    mailbox: Arc<Mailbox>,
    runtime: Weak<Inner>,
    function: &'static str,
    item: Item,
    exclusive: bool,
    cancelled: Arc<AtomicBool>,
    exits: AtomicBool,
    future: Mutex<Option<AsyncReturn>>,
}

impl AsyncCall {
    fn new(
        mailbox: &Arc<Mailbox>,
        runtime: &Arc<Inner>,
        function: &'static str,
        item: Item,
        exclusive: bool,
        cancelled: Arc<AtomicBool>,
        future: AsyncReturn,
    ) -> Arc<Self> {
        Arc::new(Self {
            mailbox: mailbox.clone(),
            runtime: Arc::downgrade(runtime),
            function,
            item,
            exclusive,
            cancelled,
            exits: AtomicBool::new(false),
            future: Mutex::new(Some(future)),
        })
    }

    fn note_exit(&self, exits: bool) {
        self.exits.fetch_or(exits, Ordering::AcqRel);
    }

    /// Goes on with the call; answers when it is done.
    pub(crate) fn poll(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) {
        let mut slot = self.future.lock();
        let Some(future) = slot.as_mut() else { return };
        let waker = Waker::from(self.clone());
        let context = self.mailbox.context(runtime, &self.item);
        let before = context.enter(self.function, self.cancelled.clone());
        let polled = catch(|| Ok(future.as_mut().poll(&mut Context::from_waker(&waker))));
        let result = match polled {
            Ok(Poll::Pending) => {
                self.note_exit(run::leave(runtime, before));
                return;
            }
            Ok(Poll::Ready(result)) => result,
            Err(panic) => Err(panic),
        };
        // Dropping the future ends its hold on the actor's state, before others may start.
        let dropped = slot.take();
        drop(slot);
        let _ = catch(|| {
            drop(dropped);
            Ok(())
        });
        let result = result.map_err(|failure| failure.or_at(self.function, self.item.task));
        let answer = Answer::new(runtime, context.from, context.object(), result);
        self.note_exit(run::leave(runtime, before));
        answer.send(runtime, context.from, MessageKind::Returned, context.key, 0);
        if self.exits.load(Ordering::Acquire) {
            self.mailbox.exit(runtime, executor);
        }
        self.mailbox.done(runtime, executor, self.exclusive);
    }
}

impl Wake for AsyncCall {
    fn wake(self: Arc<Self>) {
        if let Some(runtime) = self.runtime.upgrade()
            && let Some(executor) = &runtime.executor
        {
            executor.push_runnable(&runtime, Runnable::Future(self.clone()));
        }
    }
}
