//! The runtime of one process in one session: what everything else hangs on.

use crate::alarms::Alarms;
use crate::bridge::BridgeQueue;
use crate::codec::{Arguments, Encoded, Value};
use crate::entry::{Entry, Later, Outcome};
use crate::error::Error;
use crate::groups::Groups;
use crate::handle::{ActorHandle, Handle, Stream};
use crate::inbound::Inbound;
use crate::node::{Link, Outbox, Replies};
use crate::options::{ActorOptions, Config, TaskOptions, Tuning};
use crate::owed::OwedWakeUps;
use crate::pump::Pump;
use crate::rebuild::Rebuilds;
use crate::references::{ReferenceCount, Unlisted};
use crate::registry::Function;
use crate::shards::Shards;
use crate::standing::Failures;
use crate::worker::Executor;
use crate::worker::context::TaskContext;
use aktis_node::{EmbeddedNode, NodeOptions, Printer};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::Stored;
use aktis_protocol::{
    ActorId, Failure, FailureKind, NodeId, ObjectId, ProcessSlot, ProgramId, Resources, SessionId, Shape,
    ShapeId, TaskId, limits,
};
use aktis_store::{Arena, Control, ForkMark, Run, RunKind, Sender};
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// A table keyed by our own ids.
pub(crate) type IdMap<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// The runtime of one process in one session. Cheap to clone.
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Inner>);

/// What the parts of a runtime share.
pub(crate) struct Inner {
    pub(crate) me: ProcessSlot,
    pub(crate) control: Arc<Control>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) link: OnceLock<Link>,
    pub(crate) fork: ForkMark,
    pub(crate) submitter: Shards,
    pub(crate) alarms: Alarms,
    pub(crate) inbound: Mutex<Inbound>,
    pub(crate) senders: Box<[Mutex<Option<Box<Sender>>>]>,
    /// Objects that others may know too, by id.
    pub(crate) known: Mutex<IdMap<ObjectId, Weak<Entry>>>,
    pub(crate) unlisted: Unlisted,
    pub(crate) failures: Failures,
    pub(crate) rebuilds: Rebuilds,
    pub(crate) actors: Mutex<IdMap<ActorId, Weak<crate::actors::ActorEntry>>>,
    pub(crate) groups: Groups,
    /// What detached actors were constructed with.
    pub(crate) kept: Mutex<Vec<Arguments>>,
    pub(crate) replies: Replies,
    pub(crate) outbox: Outbox,
    pub(crate) pump: Pump,
    /// To workers, for tasks of a shape that this process has queued.
    pub(crate) owed: OwedWakeUps<(ShapeId, ProcessSlot)>,
    pub(crate) executor: Option<Executor>,
    /// What the workers run that this process submits to.
    pub(crate) program: ProgramId,
    /// The process where light actors live; 0 while there is none.
    pub(crate) shared_worker: AtomicU32,
    pub(crate) tuning: Tuning,
    /// What happens in a process that stands for another node.
    pub(crate) bridge: OnceLock<Arc<BridgeQueue>>,
    /// Prints what workers print, in a driver that has attached and wants that.
    pub(crate) printer: OnceLock<Printer>,
    pub(crate) session: SessionId,
    /// See [`Runtime::number`].
    number: u64,
    root: TaskId,
    root_counter: AtomicU64,
    closed: AtomicBool,
    resources: Resources,
    /// What a task needs that says nothing about it.
    pub(crate) default_shape: Arc<Shape>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Where the calling code runs.
#[derive(Clone, Debug)]
pub struct Context {
    /// The task, or the driver's root.
    pub task: TaskId,
    /// The function's name; empty in the driver.
    pub function: Arc<str>,
    /// The actor, inside one.
    pub actor: Option<ActorId>,
    /// How often the task was started before, or the actor restarted.
    pub attempt: u32,
    /// GPUs of the task or actor, by index.
    pub gpus: Vec<u32>,
    /// The process.
    pub pid: u32,
    /// Whether this is a worker process.
    pub is_worker: bool,
}

/// How an [`Inner`] is made.
pub(crate) struct Parts {
    pub(crate) me: ProcessSlot,
    pub(crate) session: SessionId,
    pub(crate) control: Arc<Control>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) executor: Option<Executor>,
    pub(crate) tuning: Tuning,
    pub(crate) resources: Resources,
    pub(crate) default_shape: Arc<Shape>,
    pub(crate) program: ProgramId,
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>, Error> {
        let fork = ForkMark::new().map_err(|error| Error::System(format!("cannot map a page: {error}")))?;
        let root = TaskId::root(parts.session);
        let random =
            random_number().map_err(|error| Error::System(format!("cannot get a random number: {error}")))?;
        let is_shared = parts.executor.as_ref().is_some_and(Executor::is_shared);
        let shards = if is_shared { limits::SHARDS_MAX } else { 1 };
        Ok(Arc::new(Self {
            me: parts.me,
            control: parts.control,
            arena: parts.arena,
            link: OnceLock::new(),
            fork,
            submitter: Shards::new(shards, &parts.tuning),
            alarms: Alarms::new(&parts.tuning),
            inbound: Mutex::default(),
            senders: (0..limits::PROCESSES_MAX).map(|_| Mutex::new(None)).collect(),
            known: Mutex::default(),
            unlisted: Unlisted::default(),
            failures: Failures::default(),
            rebuilds: Rebuilds::default(),
            actors: Mutex::default(),
            groups: Groups::default(),
            kept: Mutex::default(),
            replies: Replies::default(),
            outbox: Outbox::default(),
            pump: Pump::default(),
            owed: OwedWakeUps::default(),
            executor: parts.executor,
            program: parts.program,
            // A node inside a driver starts its first worker in place 1; others are told.
            shared_worker: AtomicU32::new(u32::from(
                parts.me.0 == 0 && parts.program == ProgramId::default(),
            )),
            tuning: Tuning { queued_tasks_max: parts.tuning.queued_tasks_max.max(1), ..parts.tuning },
            bridge: OnceLock::new(),
            printer: OnceLock::new(),
            session: parts.session,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            // The children of a driver with a node of its own come from the root itself. Those of other drivers, and of
            // stray threads of workers, come from a random child of the root: a slot is used again, and its next process
            // must not repeat the ids of this one. No other job can guess them either.
            root: if parts.me.0 == 0 { root } else { root.child(random) },
            root_counter: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            resources: parts.resources,
            default_shape: parts.default_shape,
        }))
    }

    /// Opens the lane of the default shape: the first of all.
    pub(crate) fn open_default_lane(self: &Arc<Self>) -> Result<(), Error> {
        let lane = self.lane_of(self.submitter.first(), &self.default_shape)?;
        debug_assert_eq!(lane, crate::submit::DEFAULT_LANE);
        Ok(())
    }

    /// The id of the next task or object that the calling code makes.
    pub(crate) fn next_task(&self) -> TaskId {
        TaskContext::next_child(self)
            .or_else(|| self.executor.as_ref().and_then(|_| TaskContext::next_child_of_threads()))
            .unwrap_or_else(|| self.root.child(self.root_counter.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn root(&self) -> TaskId {
        self.root
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Fails in a forked child and after the end.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        if self.fork.is_forked() {
            return Err(Error::Forked);
        }
        if self.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Everything that has no outcome fails: the session is over.
    fn fail_everything(self: &Arc<Self>) {
        let failure = Failure::new(FailureKind::SessionClosed, "the session ended before it was done");
        let mut later = Later::default();
        for shard in self.submitter.all() {
            let mut shell = shard.lock();
            shell.step(self, &mut later, |machine, out| machine.on_closed(&failure, out));
        }
        let mut known: Vec<_> = self.known.lock().values().filter_map(Weak::upgrade).collect();
        known.extend(self.group_watchers());
        let failure = Arc::new(failure);
        for entry in known {
            entry.resolve(Outcome::Failed(failure.clone()), &mut later);
            later.entries.push(entry);
        }
        later.messages.clear();
        later.run(self);
    }

    /// The node of another process has ended.
    pub(crate) fn on_node_gone(self: &Arc<Self>) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.fail_everything();
            self.replies.fail_all();
            self.pump.stop();
            self.alarms.stop();
        }
    }

    fn shutdown(self: &Arc<Self>) {
        if self.fork.is_forked() || self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.fail_everything();
        self.replies.fail_all();
        self.pump.stop();
        self.alarms.stop();
        match self.link.get() {
            Some(Link::Embedded(node)) => node.shutdown(),
            Some(Link::Attached(_) | Link::Local(_)) => {
                self.printer.get().inspect(|printer| printer.finish());
                self.send_to_node(ToNode::Detached);
            }
            Some(Link::Worker(_)) | None => {}
        }
        // A reference made between the first sweep and the end of the node.
        self.fail_everything();
        let kept = std::mem::take(&mut *self.kept.lock());
        drop(kept);
    }
}

impl Runtime {
    /// Starts a session (embedded node, worker processes) in this process.
    pub fn start(config: Config) -> Result<Self, Error> {
        crate::registry::check_unique().map_err(Error::Invalid)?;
        debug_assert!(crate::worker::is_linked());
        let options = NodeOptions {
            labels: config.labels.clone(),
            resources: config.resources.clone(),
            store_bytes: config.store_bytes,
            spill_directory: config.spill_directory.clone(),
            spill_bytes_max: config.spill_bytes_max,
            spill_above_percent: config.spill_above_percent,
            output: config.output,
            workers: config.workers.clone(),
        };
        let target: Arc<OnceLock<Weak<Inner>>> = Arc::default();
        let deliver = {
            let target = target.clone();
            Box::new(move |message| {
                // The node's thread may be faster than the rest of this function.
                if let Some(inner) = target.wait().upgrade() {
                    inner.on_node_message(message);
                }
            })
        };
        let node = EmbeddedNode::start(options, deliver).map_err(|error| Error::System(error.to_string()))?;
        let inner = Inner::new(Parts {
            me: ProcessSlot(0),
            session: node.session(),
            control: node.control().clone(),
            arena: node.arena().clone(),
            executor: None,
            tuning: config.tuning,
            resources: config.resources,
            default_shape: config.default_shape,
            program: ProgramId::default(),
        });
        let _ = target.set(inner.as_ref().map_or_else(|_| Weak::new(), Arc::downgrade));
        let inner = inner?;
        let _ = inner.link.set(Link::Embedded(node));
        let runtime = Self(inner);
        if let Err(error) = runtime.0.open_default_lane() {
            runtime.shutdown();
            return Err(error);
        }
        crate::pump::spawn(&runtime.0)?;
        Ok(runtime)
    }

    /// The node in this process, if it is embedded.
    pub fn node(&self) -> Option<Arc<EmbeddedNode>> {
        match self.0.link.get()? {
            Link::Embedded(node) => Some(node.clone()),
            Link::Local(_) | Link::Worker(_) | Link::Attached(_) => None,
        }
    }

    /// Ends the session: what runs is dropped, all processes end. One that is attached to a node of another process
    /// leaves it, and ends nothing else. Idempotent.
    pub fn shutdown(&self) {
        self.0.shutdown();
        let mut current = CURRENT.write();
        if current.as_ref().is_some_and(|runtime| Arc::ptr_eq(&runtime.0, &self.0)) {
            *current = None;
            EPOCH.fetch_add(1, Ordering::AcqRel);
        }
        drop(current);
    }

    /// Makes this the session of the process that `current` gives everywhere; fails if there is one.
    pub fn make_current(&self) -> Result<(), Error> {
        let mut current = CURRENT.write();
        if current.as_ref().is_some_and(|runtime| !runtime.0.is_closed()) {
            return Err(Error::AlreadyInitialised);
        }
        *current = Some(self.clone());
        EPOCH.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Whether the process has a current session.
    pub fn is_initialised() -> bool {
        CURRENT.read().as_ref().is_some_and(|runtime| !runtime.0.is_closed())
    }

    /// Makes this the session that `current` gives on this thread, until the guard goes.
    pub fn enter(&self) -> EnterGuard {
        ENTERED.with_borrow_mut(|stack| stack.push(self.clone()));
        EnterGuard { _not_send: std::marker::PhantomData }
    }

    /// The thread's session, else the process's.
    pub fn current() -> Result<Self, Error> {
        if let Some(runtime) = ENTERED.with_borrow(|stack| stack.last().cloned()) {
            return Ok(runtime);
        }
        CACHED.with_borrow_mut(|cached| {
            let epoch = EPOCH.load(Ordering::Acquire);
            if cached.0 != epoch {
                let weak = |runtime: &Runtime| Arc::downgrade(&runtime.0);
                *cached = (epoch, CURRENT.read().as_ref().map_or_else(Weak::new, weak));
            }
            cached.1.upgrade().map(Self).ok_or(Error::NotInitialised)
        })
    }

    /// Submits a task with one return value.
    pub fn submit(
        &self,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
    ) -> Result<Handle, Error> {
        self.0.submit_one(function, options, arguments)
    }

    /// Submits a task with several return values.
    pub fn submit_several(
        &self,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
        returns: u32,
    ) -> Result<Vec<Handle>, Error> {
        self.0.submit_several(function, options, arguments, returns)
    }

    /// Submits a streaming task.
    pub fn submit_stream(
        &self,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
    ) -> Result<Stream, Error> {
        self.0.submit_stream(function, options, arguments)
    }

    /// Creates an actor.
    pub fn create_actor(
        &self,
        constructor: &'static Function,
        options: &ActorOptions,
        arguments: Arguments,
    ) -> Result<ActorHandle, Error> {
        self.0.create_actor(constructor, options, arguments)
    }

    /// The actor with this name, and what is said about it.
    pub fn find_actor(&self, name: &str) -> Result<Option<(ActorHandle, FoundActor)>, Error> {
        self.0.find_actor(name)
    }

    /// The names of all actors that a job in this namespace may find, as many as one answer of the node holds.
    pub fn actor_names(&self, namespace: &str) -> Result<Vec<String>, Error> {
        self.0.actor_names(namespace)
    }

    /// Makes an object of an encoded value.
    pub fn put(&self, value: Encoded) -> Result<Handle, Error> {
        self.0.put(value)
    }

    /// Blocks until `count` of the handles have a value or failure, or the time is over.
    /// Gives the positions of at most `count` that have, in order.
    pub fn wait<H: AsRef<Handle>>(
        &self,
        handles: &[H],
        count: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<usize>, Error> {
        self.0.wait(handles, count, timeout)
    }

    /// A reference to an object that was found inside a value.
    pub fn adopt_object(&self, object: ObjectId) -> Handle {
        self.0.adopt_object(object)
    }

    /// The value of the object is code of this program: the node keeps it while the program is in use there.
    pub fn keep_code(&self, object: ObjectId) {
        self.0.send_to_node(ToNode::CodeKept { object });
    }

    /// Blocks until all handles have a value, one has failed, or the time is over: then gives false.
    pub fn wait_all(&self, handles: &[Handle], timeout: Option<Duration>) -> Result<bool, Error> {
        self.0.wait_all(handles, timeout)
    }

    /// The node that this process belongs to.
    pub fn node_id(&self) -> NodeId {
        NodeId::of_session(self.0.session)
    }

    /// The session, by its number.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// Tells this from all other runtimes that this process has or had: one that attaches to a node again finds the
    /// same session there, and nothing of its own.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Bytes of an encoded value up to which it travels inside messages.
    pub fn inline_bytes_max(&self) -> usize {
        self.0.tuning.inline_bytes_max
    }

    /// The place of this process among those of its node.
    pub fn process(&self) -> ProcessSlot {
        self.0.me
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Whether this is the same process in the same session.
    pub fn is_same(&self, other: &Runtime) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A handle of an actor that was found inside a value.
    pub fn adopt_actor(&self, actor: ActorId) -> ActorHandle {
        self.0.adopt_actor(actor)
    }

    /// The value of a stored object, pinned.
    pub fn open(&self, stored: Stored) -> Result<Value, Error> {
        self.0.open_argument(stored)
    }

    /// Where the calling code runs.
    pub fn context(&self) -> Context {
        TaskContext::describe(&self.0)
    }

    /// Says what people call the running task, if not by its function's name.
    pub fn set_function_name(&self, name: &Arc<str>) {
        TaskContext::set_name(name);
    }

    /// Whether the running task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        TaskContext::is_cancelled()
    }

    /// What the node has in all.
    pub fn resources(&self) -> Resources {
        self.0.resources.clone()
    }

    /// For the event loop of an actor, on the main thread of its worker: runs what there is to run, or sleeps until
    /// there is something, the loop is [poked](Self::poke), or the time is over.
    pub fn turn(&self, timeout: Option<Duration>) {
        crate::worker::turn(&self.0, timeout);
    }

    /// Ends the sleep of an actor's event loop: it has something to do.
    pub fn poke(&self) {
        if let Some(executor) = &self.0.executor {
            executor.poke(&self.0);
        }
    }

    /// A private view of a buffer that lies in this session's object store: what is written to it, nobody else sees.
    /// It is good for as long as the buffer is kept. `None` if the buffer lies elsewhere, or the system refuses.
    pub fn private_view(&self, buffer: &crate::Buffer) -> Option<aktis_store::PrivateView> {
        self.0.arena.private_view(buffer.as_slice()).ok().flatten()
    }

    /// What its creator said about an actor of this process.
    pub fn actor_details(&self, actor: ActorId) -> Option<Vec<u8>> {
        self.0.executor.as_ref()?.hosted.details(actor)
    }

    /// Does something for which the task that runs now may have to wait for a moment, but not for long: nobody gets its
    /// CPU meanwhile, as somebody may while it waits for a value.
    pub fn keeping_cpu<R>(&self, brief: impl FnOnce() -> R) -> R {
        crate::worker::keeping_lease(brief)
    }

    /// Ends this worker process when the task that runs now has been answered: its function leaks, say.
    pub fn end_after_this(&self) {
        if let Some(executor) = &self.0.executor {
            executor.end_after_this();
        }
    }

    /// Ends the actor that is running this, for good, after the current call.
    pub fn exit_actor(&self) -> Result<(), Error> {
        TaskContext::exit_actor()
    }

    /// Has the actor that is running this take a checkpoint when the current call is over, before it is answered.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let outside = "checkpoint() was called outside an actor with checkpoints\nhint: call it in a method of an actor \
                       that was created with the option `checkpoint`";
        let remembers =
            |actor| self.0.executor.as_ref().is_some_and(|executor| executor.hosted.remembers(actor));
        if !TaskContext::current_actor().is_some_and(remembers) {
            return Err(Error::Invalid(outside.to_owned()));
        }
        TaskContext::save_actor();
        Ok(())
    }

    /// Numbers about this process: tasks that are not finished, tasks on record, bytes of lineage, alarms.
    pub fn statistics(&self) -> Statistics {
        // Nobody who waits may have taken in the answers of tasks whose references were dropped.
        self.0.drain();
        self.0.run_deferred();
        let alarms = self.0.alarms.len();
        let mut sum = Statistics { unfinished_tasks: 0, recorded_tasks: 0, lineage_bytes: 0, alarms };
        for shard in self.0.submitter.all() {
            let shell = shard.lock();
            sum.unfinished_tasks += shell.machine.unfinished();
            sum.recorded_tasks += shell.machine.on_record();
            sum.lineage_bytes += shell.machine.lineage_bytes();
        }
        self.0.run_deferred();
        sum
    }

    /// The time that runs are told in: nanoseconds of the machine's monotonic clock.
    pub fn clock() -> u64 {
        nanoseconds_now()
    }

    /// Records that the calling thread begins to run its task, or a call; gives the number of that run.
    pub fn begin_run(&self, kind: RunKind, name: &str) -> Option<u64> {
        let task = TaskContext::current_task(&self.0)?;
        let (pid, begin) = (self.0.control.pid(self.0.me), nanoseconds_now());
        Some(self.0.control.add_run(&Run { kind, task, name, pid, begin, end: 0, failed: false }))
    }

    /// What [`begin_run`](Self::begin_run) gave a number for has ended.
    pub fn end_run(&self, number: u64, failed: bool) {
        self.0.control.end_run(number, nanoseconds_now(), failed);
    }

    /// What the processes of the node have run of late, process by process.
    pub fn runs(&self) -> Vec<Run> {
        self.0.control.runs()
    }

    /// The process id of the driver.
    pub fn driver_pid(&self) -> u32 {
        self.0.control.pid(ProcessSlot(0))
    }

    /// How many references this process has to each object that it refers to.
    pub fn reference_counts(&self) -> Vec<ReferenceCount> {
        self.0.reference_counts()
    }

    /// Waits until workers can be forked, where they are (driver only).
    pub fn wait_for_template(&self, patience: Duration) -> Result<(), Error> {
        match self.0.link.get() {
            Some(Link::Embedded(node)) => node.wait_for_template(patience).map_err(Error::System),
            _ => Ok(()),
        }
    }

    /// The process that workers are forked from, where they are (driver only).
    pub fn template_pid(&self) -> Option<u32> {
        match self.0.link.get() {
            Some(Link::Embedded(node)) => node.template_pid(),
            _ => None,
        }
    }

    /// The worker processes of this session, by process id (driver only).
    pub fn worker_pids(&self) -> Vec<u32> {
        match self.0.link.get() {
            Some(Link::Embedded(node)) => node.processes().into_iter().map(|(_, pid)| pid).collect(),
            _ => Vec::new(),
        }
    }
}

fn random_number() -> rustix::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn nanoseconds_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Numbers about one process of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Tasks and calls that are not finished.
    pub unfinished_tasks: usize,
    /// Tasks and calls on record, finished or not.
    pub recorded_tasks: usize,
    /// Bytes of finished tasks' specifications on record.
    pub lineage_bytes: usize,
    /// Deadlines, and tasks that rest before they are tried again.
    pub alarms: usize,
}

static CURRENT: RwLock<Option<Runtime>> = RwLock::new(None);
static EPOCH: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static ENTERED: RefCell<Vec<Runtime>> = const { RefCell::new(Vec::new()) };
    /// Weak: a thread that never looks again must not keep a session's memory and descriptors.
    static CACHED: RefCell<(u64, Weak<Inner>)> = const { RefCell::new((0, Weak::new())) };
}

/// Ends what [`Runtime::enter`] began.
pub struct EnterGuard {
    /// The stack belongs to the thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        let entered = ENTERED.with_borrow_mut(Vec::pop);
        drop(entered);
    }
}
