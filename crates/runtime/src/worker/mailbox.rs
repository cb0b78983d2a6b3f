//! Actors that live in this worker: their state, their calls in order, and their end.
//!
//! Invariants:
//! 1. Calls start in the order in which they arrived.
//! 2. An exclusive call (`&mut self`) runs alone; others run together, up to the actor's concurrency.
//! 3. `scheduled` is true exactly while the mailbox is queued for a thread, or a thread keeps it (see `batch`). If it is
//!    false, either nothing can start, or a thread that has just finished a call is about to look.

use crate::codec::{ArgumentReader, ShortBytes};
use crate::registry::{self, ActorState, AsyncReturn, Call, Function, FunctionBody};
use crate::runtime::{IdMap, Inner};
use crate::worker::async_call::AsyncCall;
use crate::worker::context::TaskContext;
use crate::worker::executor::{Executor, Runnable};
use crate::worker::groups::{Group, State};
use crate::worker::pace::Pace;
use crate::worker::remembering::Memory;
use crate::worker::reply::Answer;
use crate::worker::run::{self, Asker, CallContext, Outcome, catch};
use crate::worker::runner::RunnerState;
use crate::worker::start;
use aktis_protocol::actors::{ActorSpec, Ending};
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::{CallHeader, MessageKind};
use aktis_protocol::{ActorId, Failure, FailureKind, FunctionId, ProcessSlot, TaskId, TaskKey};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;

/// The actors of this worker.
#[derive(Default)]
pub(crate) struct Hosted {
    mailboxes: Mutex<IdMap<ActorId, Arc<Mailbox>>>,
    /// Calls for actors that are not here, in order. Locked while `mailboxes` is.
    strays: Mutex<IdMap<ActorId, Vec<Item>>>,
    count: AtomicUsize,
    /// What is said about the actor that the node had this process host last.
    details: Mutex<Option<(ActorId, Vec<u8>)>>,
    /// The actor that was called last: calls come in runs.
    last: Mutex<Option<Arc<Mailbox>>>,
}

/// With more actors than this, idle ones keep no memory for calls to come.
const MANY: usize = 256;

/// One actor.
pub(crate) struct Mailbox {
    pub(super) actor: ActorId,
    /// Which life, if the node manages it.
    pub(super) incarnation: Option<u32>,
    /// Who made it, if the node does not manage it.
    creator: Option<ProcessSlot>,
    /// Whether the node waits to hear of its end.
    reports: AtomicBool,
    /// Whether it is to end here and to live elsewhere.
    pub(super) moves: AtomicBool,
    pub(super) gpus: Arc<[u32]>,
    /// Its checkpoints and its log, if it has them.
    pub(super) memory: Option<Box<Mutex<Memory>>>,
    pub(super) pace: Pace,
    pub(super) inner: Mutex<State>,
}

pub(super) enum Life {
    /// The constructor has not run.
    New,
    /// It takes calls.
    Ready(ActorState),
    /// It is gone; calls get this failure.
    Ended(Box<Failure>),
}

pub(crate) struct Item {
    kind: MessageKind,
    pub(super) from: ProcessSlot,
    pub(super) key: TaskKey,
    pub(super) task: TaskId,
    /// What to run, or the failure that says that this program does not have it.
    function: Option<&'static Function>,
    id: FunctionId,
    pub(super) group: u16,
    attempt: u32,
    stream_ahead: u32,
    bytes: ShortBytes,
}

/// Calls for an actor that is not here, seen to by a thread that holds no lock. Its creator may have said to create it
/// before the caller got its handle, and that may still have to be taken in; then they are among the actor's first.
pub(crate) fn see_to_strays(runtime: &Arc<Inner>, executor: &Executor, actor: ActorId) {
    runtime.drain_fully();
    for item in executor.hosted.take_strays(actor) {
        let failure = Failure::new(FailureKind::ActorDied, "its actor is gone").of_actor(actor);
        let answer = Answer::failed(item.task.returns(0), failure.at("", item.task));
        answer.send(runtime, item.from, MessageKind::Returned, item.key, 0);
    }
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
            group: header.group as u16,
            attempt: header.attempt,
            stream_ahead: header.stream_ahead,
            bytes: bytes.into(),
        };
        if kind == MessageKind::ActorCall {
            match self.hosted.find(header.actor) {
                Some(mailbox) => mailbox.add(runtime, self, item),
                None => self.deliver_stray(runtime, header.actor, item),
            }
            return;
        }
        let mut mailboxes = self.hosted.mailboxes.lock();
        if kind == MessageKind::ActorCreate {
            let main = Group::new(0, header.concurrency);
            let mut mailbox = Mailbox::new(header.actor, None, main, Arc::default());
            mailbox.creator = Some(from);
            let mailbox = Arc::new(mailbox);
            mailboxes.insert(header.actor, mailbox.clone());
            self.hosted.count.store(mailboxes.len(), Ordering::Relaxed);
            // Calls that came too early come before all that find the actor from now on.
            let early = self.hosted.strays.lock().remove(&header.actor).unwrap_or_default();
            let schedule = mailbox.queue(std::iter::once(item).chain(early));
            drop(mailboxes);
            if schedule {
                self.push_runnable(runtime, Runnable::Actor(mailbox));
            }
            return;
        }
        let mailbox = mailboxes.get(&header.actor).cloned();
        drop(mailboxes);
        match mailbox {
            Some(mailbox) if kind == MessageKind::ActorKill => mailbox.kill(runtime, self),
            Some(mailbox) => mailbox.add(runtime, self, item),
            None => {}
        }
    }

    /// A call for an actor that is not here.
    fn deliver_stray(&self, runtime: &Arc<Inner>, actor: ActorId, item: Item) {
        let mailboxes = self.hosted.mailboxes.lock();
        if let Some(mailbox) = mailboxes.get(&actor).cloned() {
            drop(mailboxes);
            return mailbox.add(runtime, self, item);
        }
        let mut strays = self.hosted.strays.lock();
        let strays_of_actor = strays.entry(actor).or_default();
        let is_first = strays_of_actor.is_empty();
        strays_of_actor.push(item);
        drop((strays, mailboxes));
        if is_first {
            self.push_runnable(runtime, Runnable::Strays(actor));
        }
    }
}

impl Hosted {
    fn take_strays(&self, actor: ActorId) -> Vec<Item> {
        let _mailboxes = self.mailboxes.lock();
        self.strays.lock().remove(&actor).unwrap_or_default()
    }

    fn find(&self, actor: ActorId) -> Option<Arc<Mailbox>> {
        let mut last = self.last.lock();
        if let Some(mailbox) = last.as_ref().filter(|mailbox| mailbox.actor == actor) {
            return Some(mailbox.clone());
        }
        *last = self.mailboxes.lock().get(&actor).cloned();
        last.clone()
    }

    /// What its creator said about an actor that the node had this process host.
    pub(crate) fn details(&self, actor: ActorId) -> Option<Vec<u8>> {
        let details = self.details.lock();
        details.as_ref().filter(|(hosted, _)| *hosted == actor).map(|(_, details)| details.clone())
    }

    /// Whether the actor has checkpoints.
    pub(crate) fn remembers(&self, actor: ActorId) -> bool {
        self.mailboxes.lock().get(&actor).is_some_and(|mailbox| mailbox.memory.is_some())
    }

    /// Whether no actor lives here.
    pub(crate) fn is_empty(&self) -> bool {
        self.mailboxes.lock().is_empty()
    }

    /// The actors that this process has made by itself.
    pub(crate) fn created_by(&self, creator: ProcessSlot) -> Vec<ActorId> {
        let mailboxes = self.mailboxes.lock();
        let made = mailboxes.iter().filter(|(_, mailbox)| mailbox.creator == Some(creator));
        made.map(|(&actor, _)| actor).collect()
    }

    fn are_many(&self) -> bool {
        self.count.load(Ordering::Relaxed) > MANY
    }

    /// Constructs an actor that the node manages.
    pub(crate) fn host(
        &self,
        runtime: &Arc<Inner>,
        executor: &Executor,
        spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: Vec<u32>,
    ) {
        if spec.looped {
            executor.use_loop();
        } else if spec.concurrency > 1 || !spec.groups.is_empty() {
            let groups = spec.groups.iter().map(|&(_, concurrency)| concurrency);
            executor.use_threads(runtime, groups.fold(spec.concurrency, u32::saturating_add));
        }
        *self.details.lock() = Some((spec.actor, spec.details));
        let main = Group::new(0, spec.concurrency);
        let mut mailbox = Mailbox::new(spec.actor, Some(incarnation), main, gpus.into());
        mailbox.inner.get_mut().groups =
            spec.groups.iter().map(|&(number, concurrency)| Group::new(number, concurrency)).collect();
        let memory = |log| Box::new(Mutex::new(Memory::new(spec.actor, log, spec.constructor)));
        mailbox.memory = spec.log.map(memory);
        let mailbox = Arc::new(mailbox);
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
            group: 0,
            attempt: incarnation,
            stream_ahead: 0,
            bytes: spec.arguments.into(),
        };
        mailbox.add(runtime, executor, item);
    }

    /// The node ends an actor.
    pub(crate) fn end(&self, runtime: &Arc<Inner>, executor: &Executor, actor: ActorId, ending: Ending) {
        let Some(mailbox) = self.mailboxes.lock().get(&actor).cloned() else { return };
        mailbox.reports.store(true, Ordering::Release);
        match ending {
            Ending::Now => mailbox.kill(runtime, executor),
            Ending::AfterCalls => mailbox.add(runtime, executor, Item::release()),
            Ending::ToMove => mailbox.begin_move(runtime, executor),
        }
    }

    /// Drops a queued call that its caller cancelled.
    pub(crate) fn cancel(&self, from: ProcessSlot, key: TaskKey) {
        let mut cancelled = None;
        for mailbox in self.mailboxes.lock().values() {
            let mut state = mailbox.inner.lock();
            for group in state.all_groups() {
                group.queue.retain(|item| item.from != from || item.key != key);
            }
            state.suspended.retain(|call| call.strong_count() > 0);
            let calls = state.suspended.iter().filter_map(Weak::upgrade);
            cancelled = cancelled.or(calls.into_iter().find(|call| call.is(from, key)));
        }
        // Woken when no lock is held: it looks whether it was cancelled.
        if let Some(call) = cancelled {
            call.cancelled.store(true, Ordering::Release);
            call.wake();
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
    fn new(actor: ActorId, incarnation: Option<u32>, main: Group, gpus: Arc<[u32]>) -> Self {
        let state = State {
            life: Life::New,
            main,
            groups: Box::default(),
            suspended: Vec::new(),
            exclusive: false,
            scheduled: false,
            keeper: None,
        };
        let reports = AtomicBool::new(incarnation.is_some());
        let (moves, pace, inner) = (AtomicBool::new(false), Pace::default(), Mutex::new(state));
        Self { actor, incarnation, creator: None, reports, moves, gpus, memory: None, pace, inner }
    }

    pub(super) fn add(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor, item: Item) {
        if self.queue(std::iter::once(item)) {
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
    }

    /// Adds calls; true if the mailbox has to be queued for a thread.
    fn queue(&self, items: impl Iterator<Item = Item>) -> bool {
        let mut state = self.inner.lock();
        for item in items {
            state.group(item.group).queue.push_back(item);
        }
        state.schedule()
    }

    pub(super) fn run_item(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
        runner: &RunnerState,
        item: Item,
        actor: Option<ActorState>,
        exclusive: bool,
    ) {
        let group = item.group;
        match item.kind {
            MessageKind::ActorCreate => self.construct(runtime, runner, item),
            MessageKind::ActorRelease => {
                drop(actor);
                if self.moves.load(Ordering::Acquire) {
                    return self.move_out(runtime);
                }
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
        // This thread looks for the next call by itself.
        self.count_done(executor, group, exclusive);
    }

    fn count_done(&self, executor: &Executor, group: u16, exclusive: bool) {
        let mut state = self.inner.lock();
        state.group(group).running -= 1;
        if exclusive {
            state.exclusive = false;
        }
        self.leave_if_idle(&mut state);
        if state.main.queue.is_empty() && executor.hosted.are_many() {
            state.main.queue = VecDeque::new();
        }
    }

    /// A call is over that no thread has waited for: others may start.
    pub(super) fn done(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
        group: u16,
        exclusive: bool,
    ) {
        self.count_done(executor, group, exclusive);
        if self.inner.lock().schedule() {
            executor.push_runnable(runtime, Runnable::Actor(self.clone()));
        }
    }

    pub(super) fn context<'a>(&self, runtime: &'a Arc<Inner>, item: &Item) -> CallContext<'a> {
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
            let result = catch(|| start::check().and_then(|()| self.construct_or_restore(&mut call, body)));
            run::end_if_forked(runtime);
            drop(call);
            run::leave(runtime, before);
            let result = result.and_then(|actor| self.replay(runtime, runner, &actor).map(|()| actor));
            runner.end();
            result
        });
        let ended = result.as_ref().err().map(|cause| {
            let cause = cause.clone().or_at(name, item.task);
            let pid = cause.pid.or(Some(std::process::id()));
            Failure::not_constructed(item.task.returns(0), Failure { pid, ..cause })
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
        if let (FunctionBody::StreamMethod(_), true) = (&function.body, executor.is_looped())
            && runner.index == 0
        {
            return self.call_aside(runtime, executor, item, actor, exclusive);
        }
        let logs = self.logs(function);
        if logs && self.answer_again(runtime, &item) {
            return false;
        }
        let logged = logs.then(|| (item.bytes.clone(), actor.clone()));
        let cancelled = runner.begin(item.from, item.key);
        let before = context.enter(function.name, cancelled.clone());
        let reader = ArgumentReader::new(std::mem::take(&mut item.bytes), &runner.runtime);
        let mut call = Call::new(reader).in_group(item.group);
        let outcome = match function.body {
            FunctionBody::Method { run, .. } => Ok(Outcome::One(catch(|| run(&mut call, &actor)))),
            FunctionBody::SeveralMethod(run) => Ok(Outcome::Several(catch(|| run(&mut call, &actor)))),
            FunctionBody::StreamMethod(run) => Ok(Outcome::Stream(catch(|| run(&mut call, &actor)))),
            FunctionBody::AsyncMethod { run, .. } => match catch(|| run(&mut call, actor.clone())) {
                Ok(AsyncReturn::Later(future)) => Err(future),
                Ok(AsyncReturn::Done(result)) => Ok(Outcome::One(result)),
                Err(failure) => Ok(Outcome::One(Err(failure))),
            },
            _ => {
                let failure = Failure::new(FailureKind::UnknownFunction, "it is not a method");
                Ok(Outcome::One(Err(failure)))
            }
        };
        drop(call);
        drop(actor);
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(future) => {
                let exits = run::leave(runtime, before);
                let call = AsyncCall::new(self, runtime, function.name, item, exclusive, cancelled, future);
                call.note_exit(exits);
                if !call.poll(runtime, executor) {
                    call.suspend();
                }
                // Who cancels it finds it here or among those that are suspended, never at neither place.
                runner.end();
                call.heed_cancel();
                return true;
            }
        };
        let was_stream = matches!(outcome, Outcome::Stream(Ok(_)));
        let mut ended = None;
        if let Some((arguments, actor)) = &logged {
            ended = self.remember(runtime, &item, function, arguments, actor, &mut outcome);
        }
        let exits = item.asker().answer(runtime, runner, function.name, before, outcome);
        if runner.end() {
            runtime.cancel_children(item.task, TaskContext::last_children());
        }
        if let (Some((_, actor)), None, false) = (&logged, &ended, exits) {
            ended = self.checkpoint_if_due(runtime, &item, actor, was_stream);
        }
        drop(logged);
        if let Some(failure) = ended {
            self.end(runtime, executor, failure);
        } else if exits {
            self.exit(runtime, executor);
        }
        false
    }

    /// Runs a call that waits for its consumer on a thread of its own, where an event loop must not wait.
    fn call_aside(
        self: &Arc<Self>,
        runtime: &Arc<Inner>,
        executor: &Executor,
        item: Item,
        actor: ActorState,
        exclusive: bool,
    ) -> bool {
        let (mailbox, group, asker) = (self.clone(), item.group, item.asker());
        let started = executor.run_aside(runtime, move |runtime, runner| {
            let executor = runtime.executor.as_ref().expect("it belongs to a worker");
            mailbox.call(runtime, executor, runner, item, actor, exclusive);
            mailbox.done(runtime, executor, group, exclusive);
        });
        if let Err(error) = started {
            let text = format!("no thread can be started for it: {error}");
            asker.refuse(runtime, Failure::new(FailureKind::Refused, text).at("", asker.task));
            return false;
        }
        true
    }

    fn refuse(&self, runtime: &Arc<Inner>, item: &Item) {
        let failure = match &self.inner.lock().life {
            Life::Ended(failure) => (**failure).clone(),
            _ => Failure::new(FailureKind::ActorDied, "its actor is gone"),
        };
        let function = item.function.map_or("", |function| function.name);
        let failure = failure.at(function, item.task).of_actor(self.actor);
        let answer = Answer::failed(item.task.returns(0), failure);
        answer.send(runtime, item.from, MessageKind::Returned, item.key, 0);
    }

    /// The actor asked for its own end.
    pub(super) fn exit(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) {
        let failure = Failure::new(FailureKind::ActorDied, "its actor exited");
        self.end(runtime, executor, failure);
    }

    fn kill(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) {
        let failure = Failure::new(FailureKind::ActorDied, "its actor was killed");
        let mut state = self.inner.lock();
        let schedule = state.schedule();
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

    /// Drops the actor's state, which runs user code.
    pub(super) fn drop_state(&self, state: Option<ActorState>) {
        let dropped = catch(|| {
            drop(state);
            Ok(())
        });
        if let Err(panic) = dropped {
            eprintln!("aktis: the destructor of an actor failed: {panic}");
        }
    }

    /// Drops the actor's state and tells the node.
    pub(crate) fn bury(&self, runtime: &Arc<Inner>, state: Option<ActorState>, failure: Failure) {
        self.drop_state(state);
        if self.reports.load(Ordering::Acquire) {
            runtime.send_to_node(ToNode::ActorEnded { actor: self.actor, failure });
        }
    }
}

impl Life {
    /// The actor, if it takes calls.
    pub(super) fn actor(&self) -> Option<ActorState> {
        match self {
            Self::Ready(state) => Some(state.clone()),
            Self::New | Self::Ended(_) => None,
        }
    }

    pub(super) fn into_state(self) -> Option<ActorState> {
        match self {
            Self::Ready(state) => Some(state),
            Self::New | Self::Ended(_) => None,
        }
    }
}

impl Item {
    /// The end of an actor, after the calls that came before.
    pub(super) fn release() -> Self {
        Self {
            kind: MessageKind::ActorRelease,
            from: ProcessSlot::default(),
            key: TaskKey { index: u32::MAX, generation: u32::MAX },
            task: TaskId::default(),
            function: None,
            id: FunctionId::default(),
            group: 0,
            attempt: 0,
            stream_ahead: 0,
            bytes: ShortBytes::default(),
        }
    }

    fn function(&self) -> Result<&'static Function, Failure> {
        self.function.ok_or_else(|| run::unknown(self.id))
    }

    fn asker(&self) -> Asker {
        Asker { process: self.from, key: self.key, task: self.task, stream_ahead: self.stream_ahead }
    }

    pub(super) fn is_exclusive(&self) -> bool {
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
    pub(super) fn enter(&self, function: &'static str, cancelled: Arc<AtomicBool>) -> Option<TaskContext> {
        TaskContext::new(
            self.runtime,
            self.task,
            function,
            Some(self.actor),
            self.attempt,
            self.gpus.clone(),
            cancelled,
        )
        .enter(self.runtime.executor.as_ref())
    }
}
