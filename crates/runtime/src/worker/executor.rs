//! The executor of a worker: what its threads share.
//!
//! Invariants:
//! 1. A thread starts a task only while it holds a lease of the task's shape.
//! 2. A thread that is awake looks for messages and tasks between any two things that it runs. One that is
//!    stuck in user code, or blocked, does not count as awake: others are woken, or started, in its stead
//!    (see `watch`).
//! 3. A thread that blocks inside `get` gives its CPUs to others meanwhile, and nothing else that its task holds.

use crate::error::Error;
use crate::registry::ActorState;
use crate::runtime::{Inner, Runtime};
use crate::worker::async_call::AsyncCall;
use crate::worker::attendant::Attendant;
use crate::worker::mailbox::{Hosted, Mailbox};
use crate::worker::nested;
use crate::worker::runner::{self, RunnerState};
use crate::worker::watch::{self, Watch};
use aktis_logic::lease_pool::{HeldLease, LeasePool, Waiting};
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{FromNode, Lease, ToNode};
use aktis_protocol::hot::MessageKind;
use aktis_protocol::limits::THREADS_MAX;
use aktis_protocol::{ActorId, Failure, LeaseId, ProcessSlot, ShapeId, TaskKey};
use aktis_store::LaneConsumer;
use parking_lot::{Mutex, RwLock};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Something that a thread can run without a lease.
pub(crate) enum Runnable {
    /// An actor with calls.
    Actor(Arc<Mailbox>),
    /// A call that was suspended and can go on.
    Future(Arc<AsyncCall>),
    /// Calls for an actor that is not here, or not yet.
    Strays(ActorId),
    /// An actor that was killed: its state is dropped.
    Farewell(Arc<Mailbox>, Option<ActorState>, Failure),
}

/// What the threads of a worker share.
pub(crate) struct Executor {
    kind: WorkerKind,
    leases: Mutex<LeasePool>,
    /// Counts changes of what the node wants back: threads look at it between tasks.
    revocations: AtomicU32,
    lanes: RwLock<(u32, Arc<[LaneConsumer]>)>,
    runnable: Mutex<VecDeque<Runnable>>,
    runnable_count: AtomicUsize,
    pub(crate) hosted: Hosted,
    threads: AtomicUsize,
    /// More of them would have nothing to do.
    threads_max: AtomicUsize,
    /// Threads that wait inside `get` and the like.
    blocked: AtomicUsize,
    sleeping: AtomicUsize,
    spinning: AtomicBool,
    runners: RwLock<Vec<Arc<RunnerState>>>,
    pub(crate) watch: Watch,
    pub(crate) attendant: Attendant,
    /// Whether user code runs on the first thread alone: others only take in messages for it.
    main_only: AtomicBool,
    /// Whether the main thread runs an event loop, which takes turns with the runner.
    looped: AtomicBool,
    /// Whether that loop has something to do besides.
    poked: AtomicBool,
    /// Whether the process ends when the task that runs now has been answered.
    ending: AtomicBool,
    /// Whether threads may run: the process has all that user code needs.
    started: AtomicBool,
    /// A running average of how long tasks and calls take, from samples.
    run_nanoseconds: AtomicU64,
}

/// The number of threads that run one call aside, and no task.
const ASIDE: usize = usize::MAX;
/// Below this average, waking another thread costs more than running the work oneself.
const SHORT_NANOSECONDS: u64 = 2_000;
/// Work that takes longer than this on average is measured all the time.
const LONG_NANOSECONDS: u64 = 20_000;

thread_local! {
    /// Whether this thread is a runner that takes in messages in order to run what they bring.
    pub(crate) static LOOKING: Cell<bool> = const { Cell::new(false) };
    /// The runner that this thread is, with the lease it holds.
    pub(crate) static RUNNER: RefCell<Option<(Arc<RunnerState>, Option<HeldLease>)>> = const { RefCell::new(None) };
    /// Whether what it runs is a task that it has claimed from a lane.
    pub(crate) static FROM_LANE: Cell<bool> = const { Cell::new(false) };
    /// Whether it runs a call of an actor that has more calls queued.
    pub(crate) static MORE_CALLS: Cell<bool> = const { Cell::new(false) };
    /// Whether it keeps that lease, though it blocks.
    static KEEPS_LEASE: Cell<bool> = const { Cell::new(false) };
    /// How long what it runs has waited for values to be brought here.
    pub(crate) static FETCHING: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Does something for which this thread may have to wait for a moment, but not for long: its lease serves nobody else
/// meanwhile.
pub(crate) fn keeping_lease<R>(brief: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            KEEPS_LEASE.set(self.0);
        }
    }
    let _restore = Restore(KEEPS_LEASE.replace(true));
    brief()
}

impl Executor {
    /// `main_only` is whether user code runs on the first thread alone, unless an actor wants otherwise.
    pub(crate) fn new(kind: WorkerKind, main_only: bool) -> Self {
        Self {
            kind,
            leases: Mutex::default(),
            revocations: AtomicU32::new(0),
            lanes: RwLock::new((u32::MAX, Arc::default())),
            runnable: Mutex::default(),
            runnable_count: AtomicUsize::new(0),
            hosted: Hosted::default(),
            threads: AtomicUsize::new(0),
            threads_max: AtomicUsize::new(THREADS_MAX),
            blocked: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            spinning: AtomicBool::new(false),
            runners: RwLock::default(),
            watch: Watch::default(),
            attendant: Attendant::default(),
            main_only: AtomicBool::new(main_only),
            looped: AtomicBool::new(false),
            poked: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            started: AtomicBool::new(false),
            // Nothing is known yet: take work for long, and use every thread.
            run_nanoseconds: AtomicU64::new(1_000_000),
        }
    }

    /// Whether it runs tasks on many threads.
    pub(crate) fn is_shared(&self) -> bool {
        self.kind == WorkerKind::Shared
    }

    /// Whether actors that nobody but their creator knows may live here.
    pub(crate) fn hosts_actors(&self) -> bool {
        self.kind == WorkerKind::Shared
    }

    /// Makes the calling thread the first one.
    pub(crate) fn run_here(&self, runtime: &Arc<Inner>) -> ! {
        self.started.store(true, Ordering::Release);
        let index = self.threads.fetch_add(1, Ordering::AcqRel);
        let state = Arc::new(RunnerState::new(index, Runtime(runtime.clone())));
        self.runners.write().push(state.clone());
        watch::spawn(runtime);
        runner::run(runtime, state)
    }

    /// Whether user code runs on the first thread alone.
    pub(crate) fn is_main_only(&self) -> bool {
        self.main_only.load(Ordering::Acquire)
    }

    /// An actor wants so many of its calls to run at the same time.
    pub(crate) fn use_threads(&self, runtime: &Inner, concurrency: u32) {
        if self.kind == WorkerKind::Isolated {
            // All calls may block; one more thread takes in what they wait for.
            self.threads_max.store(THREADS_MAX.min(concurrency as usize + 1), Ordering::Release);
        }
        if self.main_only.swap(false, Ordering::AcqRel) {
            self.attendant.recall();
            runtime.control.doorbell().call();
        }
    }

    /// Whether a thread that user code starts can only be the work of the call that runs.
    pub(crate) fn runs_one_call_at_a_time(&self) -> bool {
        self.main_only.load(Ordering::Acquire) && !self.is_looped()
    }

    /// The process ends when the task that runs now has been answered.
    pub(crate) fn end_after_this(&self) {
        self.ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// An actor wants its calls to run on an event loop on the main thread.
    pub(crate) fn use_loop(&self) {
        self.looped.store(true, Ordering::Release);
    }

    /// Whether the main thread runs an event loop, or is about to.
    pub(crate) fn is_looped(&self) -> bool {
        self.looped.load(Ordering::Acquire)
    }

    /// The event loop has something to do besides what the runner finds.
    pub(crate) fn poke(&self, runtime: &Inner) {
        if !self.poked.swap(true, Ordering::SeqCst) {
            runtime.control.doorbell().call();
        }
    }

    /// Whether the event loop has something to do.
    pub(crate) fn is_poked(&self) -> bool {
        self.poked.load(Ordering::SeqCst)
    }

    /// Whether the event loop has something to do, which it does after this.
    pub(crate) fn take_poke(&self) -> bool {
        self.poked.load(Ordering::SeqCst) && self.poked.swap(false, Ordering::SeqCst)
    }

    /// Whether the first thread is stuck in user code, or blocked.
    pub(crate) fn is_main_away(&self) -> bool {
        self.runners.read().first().is_some_and(|main| main.is_away())
    }

    /// Starts the first thread.
    pub(crate) fn start(&self, runtime: &Arc<Inner>) {
        self.started.store(true, Ordering::Release);
        self.spawn_runner(runtime);
        watch::spawn(runtime);
    }

    /// Starts one more thread, if there may be one more.
    pub(crate) fn spawn_runner(&self, runtime: &Arc<Inner>) {
        if !self.started.load(Ordering::Acquire) {
            return;
        }
        let index = self.threads.fetch_add(1, Ordering::AcqRel);
        if index >= self.threads_max.load(Ordering::Acquire) {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let state = Arc::new(RunnerState::new(index, Runtime(runtime.clone())));
        self.runners.write().push(state.clone());
        self.watch.wake();
        let runtime = runtime.clone();
        let body = move || runner::run(&runtime, state);
        let spawned = std::thread::Builder::new()
            .name(format!("aktis-run-{index}"))
            .stack_size(nested::stack_bytes())
            .spawn(body);
        if let Err(error) = spawned {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            eprintln!("aktis: cannot start another thread: {error}");
        }
    }

    /// The lanes of this node, read again when they changed.
    pub(crate) fn lanes(&self, runtime: &Inner) -> Arc<[LaneConsumer]> {
        let version = runtime.control.lanes_version();
        {
            let lanes = self.lanes.read();
            if lanes.0 == version {
                return lanes.1.clone();
            }
        }
        let fresh: Arc<[LaneConsumer]> = runtime.control.lane_consumers().into();
        *self.lanes.write() = (version, fresh.clone());
        fresh
    }

    // Things to run without a lease.

    pub(crate) fn push_runnable(&self, runtime: &Inner, runnable: Runnable) {
        self.runnable.lock().push_back(runnable);
        let others = self.runnable_count.fetch_add(1, Ordering::SeqCst);
        let bell = runtime.control.doorbell();
        if others > 0 && self.wants_more_threads() {
            bell.call();
        } else if !LOOKING.get() {
            bell.ring();
        }
    }

    pub(crate) fn pop_runnable(&self) -> Option<Runnable> {
        if self.runnable_count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let runnable = self.runnable.lock().pop_front()?;
        self.runnable_count.fetch_sub(1, Ordering::SeqCst);
        Some(runnable)
    }

    pub(crate) fn has_runnable(&self) -> bool {
        self.runnable_count.load(Ordering::SeqCst) > 0
    }

    // Leases.

    /// Takes an idle lease for which a task is queued.
    pub(crate) fn take_lease_for_work(&self, lanes: &[LaneConsumer]) -> Option<HeldLease> {
        let mut leases = self.leases.lock();
        let shape = leases.idle_shapes().find(|shape| has_tasks(lanes, *shape))?;
        leases.take(shape)
    }

    /// Takes an idle lease of a shape.
    pub(crate) fn take_lease(&self, shape: ShapeId) -> Option<HeldLease> {
        self.leases.lock().take(shape)
    }

    /// A process that runs one task at a time is busy from now on: what else is in the lane is for others, one of which
    /// is woken. The wake-up for it may have come here.
    pub(crate) fn leave_to_others(&self, runtime: &Inner, lanes: &[LaneConsumer], shape: ShapeId) {
        if self.kind == WorkerKind::Isolated {
            runtime.control.retract_idle(shape);
            let with_tasks = lanes.iter().filter(|lane| lane.shape() == shape && !lane.is_empty());
            // Tasks that may go to other nodes can be taken by more.
            let lane = with_tasks.min_by_key(|lane| runtime.control.is_elsewhere(lane.submitter()));
            lane.into_iter().for_each(|lane| self.wake_others(runtime, lane));
        }
    }

    /// Wakes another process for what is in the lane.
    pub(crate) fn wake_others(&self, runtime: &Inner, lane: &LaneConsumer) {
        if !lane.is_empty() {
            runtime.control.wake_idle(lane.shape(), lane.submitter());
        }
    }

    /// Gives a lease back; the node gets it if it wants one.
    pub(crate) fn put_lease(&self, runtime: &Inner, held: HeldLease) {
        let shape = held.shape;
        let returned = self.leases.lock().put(held);
        self.send_back(runtime, shape, returned);
    }

    /// A lease that was for one task goes back to the node.
    pub(crate) fn use_up_lease(&self, runtime: &Inner, held: &HeldLease) {
        let returned = self.leases.lock().use_up(held);
        self.send_back(runtime, held.shape, Some(returned));
    }

    /// This process has had nothing to do for a while: the node gets its leases back, so that it knows what is free.
    pub(crate) fn return_idle_leases(&self, runtime: &Inner) {
        let returned = self.leases.lock().take_all();
        for held in returned {
            self.send_back(runtime, held.shape, Some(held.lease));
        }
    }

    /// Whether leases that are idle for long go back to the node: a process that runs one task at a time has few.
    pub(crate) fn returns_idle_leases(&self) -> bool {
        self.kind == WorkerKind::Isolated && self.leases.lock().idle_shapes().next().is_some()
    }

    /// Gives a lease back to the node. Without another one, this process is not to be woken for such tasks any more; a
    /// wake-up that is on its way is for others.
    fn send_back(&self, runtime: &Inner, shape: ShapeId, returned: Option<LeaseId>) {
        let Some(lease) = returned else { return };
        if !self.leases.lock().idle_shapes().any(|idle| idle == shape) {
            runtime.control.retract_idle(shape);
            for lane in self.lanes(runtime).iter().filter(|lane| lane.shape() == shape) {
                self.wake_others(runtime, lane);
            }
        }
        runtime.send_to_node(ToNode::LeaseReturned { lease });
    }

    /// Whether a lease of this shape should go back to the node.
    pub(crate) fn is_lease_wanted(&self, shape: ShapeId) -> bool {
        self.revocations.load(Ordering::Relaxed) > 0 && self.leases.lock().is_wanted(shape)
    }

    /// Tells submitters which shapes this worker could run more of, were it woken.
    pub(crate) fn announce_idle(&self, runtime: &Inner) {
        for shape in self.leases.lock().idle_shapes() {
            runtime.control.announce_idle(shape);
        }
    }

    /// Whether an idle lease has a queued task.
    pub(crate) fn has_work_for_lease(&self, lanes: &[LaneConsumer]) -> bool {
        self.leases.lock().idle_shapes().any(|shape| has_tasks(lanes, shape))
    }

    // Threads.

    pub(crate) fn begin_spin(&self) -> bool {
        !self.spinning.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_spin(&self) {
        self.spinning.store(false, Ordering::Release);
    }

    pub(crate) fn begin_sleep(&self) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_sleep(&self) {
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn is_nobody_asleep(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst) == 0
    }

    /// Takes a sample of how long a task or call ran.
    pub(crate) fn note_run(&self, nanoseconds: u64) {
        let average = self.run_nanoseconds.load(Ordering::Relaxed);
        let next = average - average / 8 + nanoseconds.min(8_000_000) / 8;
        self.run_nanoseconds.store(next, Ordering::Relaxed);
    }

    /// Whether work takes so long that it costs next to nothing to measure all of it.
    #[inline]
    pub(crate) fn runs_long(&self) -> bool {
        self.run_nanoseconds.load(Ordering::Relaxed) > LONG_NANOSECONDS
    }

    /// Whether work takes long enough for another thread to be worth waking.
    pub(crate) fn wants_more_threads(&self) -> bool {
        self.run_nanoseconds.load(Ordering::Relaxed) > SHORT_NANOSECONDS
    }

    /// Whether the calling thread wakes a process later that waits for the answer of what it runs: it has just woken that
    /// process, and has more to run that takes no time.
    pub(crate) fn owes_wake_up(&self, runtime: &Inner, process: ProcessSlot) -> bool {
        RUNNER.with_borrow(|runner| {
            let Some((state, held)) = runner else { return false };
            let more_tasks = || {
                let has_tasks = |held: &HeldLease| has_tasks(&self.lanes(runtime), held.shape);
                FROM_LANE.get() && !self.runs_long() && held.as_ref().is_some_and(has_tasks)
            };
            (MORE_CALLS.get() || more_tasks()) && state.owes(process)
        })
    }

    /// Wakes all whom the calling thread owes that.
    pub(crate) fn pay(runtime: &Inner) {
        RUNNER.with_borrow(|runner| {
            if let Some((state, _)) = runner {
                state.pay(runtime);
            }
        });
    }

    /// Called by a thread that found work: others shall use what leases are idle, if that pays.
    pub(crate) fn on_busy(&self, runtime: &Arc<Inner>) {
        if self.kind == WorkerKind::Isolated {
            // The one lease that it has is about to be used.
            return;
        }
        if self.wants_more_threads() {
            self.offer_idle(runtime);
        } else {
            for shape in self.leases.lock().idle_shapes() {
                runtime.control.retract_idle(shape);
            }
        }
    }

    /// Lets another thread of this worker use what leases are idle: now, or when a task is pushed.
    pub(crate) fn offer_idle(&self, runtime: &Arc<Inner>) {
        self.announce_idle(runtime);
        if self.has_work_for_lease(&self.lanes(runtime)) {
            self.add_hand(runtime);
        }
    }

    /// Wakes one more thread, or starts one if all are awake.
    pub(crate) fn add_hand(&self, runtime: &Arc<Inner>) {
        if self.is_main_only() {
            if !self.is_main_away() {
                runtime.control.doorbell().call();
            } else if !self.attendant.recall() {
                match self.threads.load(Ordering::Acquire) {
                    1 => self.spawn_runner(runtime),
                    // It may sleep on the bell, which did not ring while the first thread still watched.
                    _ => runtime.control.doorbell().call(),
                }
            }
        } else if self.is_nobody_asleep() {
            self.spawn_runner(runtime);
        } else {
            runtime.control.doorbell().call();
        }
    }

    /// A thread of its own for one call that would hold up all others; `run` is told who it is.
    pub(crate) fn run_aside(
        &self,
        runtime: &Arc<Inner>,
        run: impl FnOnce(&Arc<Inner>, &RunnerState) + Send + 'static,
    ) -> std::io::Result<()> {
        let state = Arc::new(RunnerState::new(ASIDE, Runtime(runtime.clone())));
        self.runners.write().push(state.clone());
        let runtime = runtime.clone();
        let body = move || {
            let executor = runtime.executor.as_ref().expect("it belongs to a worker");
            state.note_thread();
            run(&runtime, &state);
            executor.runners.write().retain(|other| !Arc::ptr_eq(other, &state));
        };
        std::thread::Builder::new().name("aktis-aside".into()).spawn(body).map(|_| ())
    }

    /// All threads, to be looked at.
    pub(crate) fn runners(&self) -> Vec<Arc<RunnerState>> {
        self.runners.read().clone()
    }

    /// The running thread is about to block: its lease serves others until the guard goes.
    ///
    /// The last thread is refused: it must be left to take in what the others wait for.
    pub(crate) fn enter_blocked<'a>(&'a self, runtime: &'a Arc<Inner>) -> Result<Blocked<'a>, Error> {
        let is_runner = RUNNER.with_borrow(Option::is_some);
        if is_runner && self.blocked.fetch_add(1, Ordering::AcqRel) + 1 >= THREADS_MAX {
            self.blocked.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::System(format!(
                "{} threads of this worker process wait for other tasks, and none would be left to run them\n\
                 hint: return references instead of waiting for them, or let tasks that wait be `isolated`",
                THREADS_MAX - 1
            )));
        }
        let held = RUNNER.with_borrow_mut(|runner| {
            let (_, held) = runner.as_mut()?;
            if KEEPS_LEASE.get() { None } else { held.take() }
        });
        let held = held.map(|held| (held.while_waiting(self.kind == WorkerKind::Isolated), held));
        let state = RUNNER.with_borrow(|runner| runner.as_ref().map(|(state, _)| state.clone()));
        if let Some(state) = &state {
            state.set_blocked(true);
            state.watching.stop(runtime.control.doorbell());
            state.let_go(runtime, self);
            state.pay(runtime);
        }
        match &held {
            Some((Waiting::LendCpu, held)) => {
                runtime.send_to_node(ToNode::LeaseBlocked { lease: held.lease, blocked: true });
            }
            Some((Waiting::PutBack, held)) => self.put_lease(runtime, held.clone()),
            Some((Waiting::UseUp, held)) => self.use_up_lease(runtime, held),
            None => {}
        }
        // Somebody must take in what this thread waits for, and may use its lease.
        let waits = || {
            runtime.control.has_inbound()
                || self.has_runnable()
                || self.has_work_for_lease(&self.lanes(runtime))
        };
        if state.is_some() && (self.is_main_only() || self.is_nobody_asleep() || waits()) {
            self.add_hand(runtime);
        }
        self.announce_idle(runtime);
        Ok(Blocked { executor: self, runtime, held, state })
    }

    /// The node orders something that only workers do.
    fn on_order(&self, runtime: &Arc<Inner>, message: FromNode) {
        match message {
            FromNode::LeaseGranted { lease } => self.on_lease_granted(runtime, lease),
            FromNode::LeaseRevoked { shape } => {
                self.revocations.fetch_add(1, Ordering::SeqCst);
                let returned = self.leases.lock().revoke(shape);
                self.send_back(runtime, shape, returned);
            }
            FromNode::HostActor { spec, incarnation, gpus } => {
                self.hosted.host(runtime, self, spec, incarnation, gpus);
            }
            FromNode::EndActor { actor, ending } => self.hosted.end(runtime, self, actor, ending),
            _ => {}
        }
    }

    fn on_lease_granted(&self, runtime: &Arc<Inner>, lease: Lease) {
        let shape = lease.shape;
        let returned = self.leases.lock().grant(lease);
        self.send_back(runtime, shape, returned);
        self.offer_idle(runtime);
        if self.kind == WorkerKind::Isolated {
            // Others may have taken its task meanwhile. A thread that fell asleep without a lease would never give it back.
            runtime.control.doorbell().call();
        }
    }

    /// A message about a task that this worker runs.
    pub(crate) fn on_task_message(&self, from: ProcessSlot, kind: MessageKind, key: TaskKey, index: u32) {
        let mut cancelled_main = false;
        for runner in self.runners.read().iter() {
            let found = runner.on_task_message(from, kind, key, index);
            if found && kind == MessageKind::Cancel && runner.index == 0 && self.is_main_only() {
                cancelled_main = true;
            }
        }
        if let (true, Some(hooks)) = (cancelled_main, crate::hooks::get()) {
            (hooks.cancelled)();
        }
        if kind == MessageKind::Cancel {
            self.hosted.cancel(from, key);
        }
    }

    /// Cancels all that runs here for a submitter; false if nothing does.
    pub(super) fn cancel_all_of(&self, submitter: ProcessSlot) -> bool {
        let cancelled = self.runners.read().iter().filter(|runner| runner.cancel_all_of(submitter)).count();
        cancelled > 0
    }

    /// A submitter died: its lanes will go; nothing of it must be cached.
    pub(super) fn forget_lanes(&self) {
        *self.lanes.write() = (u32::MAX, Arc::default());
    }
}

fn has_tasks(lanes: &[LaneConsumer], shape: ShapeId) -> bool {
    lanes.iter().any(|lane| lane.shape() == shape && !lane.is_empty())
}

/// A thread that blocks; its lease serves others meanwhile.
pub(crate) struct Blocked<'a> {
    executor: &'a Executor,
    runtime: &'a Arc<Inner>,
    held: Option<(Waiting, HeldLease)>,
    state: Option<Arc<RunnerState>>,
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            self.executor.blocked.fetch_sub(1, Ordering::AcqRel);
            state.set_blocked(false);
            state.watching.start(self.runtime.control.doorbell());
        }
        let Some((waiting, held)) = self.held.take() else { return };
        let again = match waiting {
            Waiting::LendCpu => {
                self.runtime.send_to_node(ToNode::LeaseBlocked { lease: held.lease, blocked: false });
                Some(held)
            }
            // Without an idle lease the task goes on all the same: it must not wait for others to finish.
            // The thread then starts no other task until it gets a lease.
            Waiting::PutBack => self.executor.take_lease(held.shape),
            Waiting::UseUp => None,
        };
        RUNNER.with_borrow_mut(|runner| {
            if let Some((_, held)) = runner {
                *held = again;
            }
        });
    }
}

impl Inner {
    /// The node orders something that only workers do.
    pub(crate) fn on_worker_order(self: &Arc<Self>, message: FromNode) {
        if let Some(executor) = &self.executor {
            executor.on_order(self, message);
        }
    }
}
