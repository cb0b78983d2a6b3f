//! The executor of a worker: what its threads share.
//!
//! Invariants:
//! 1. A thread starts a task only while it holds a lease of the task's shape.
//! 2. While any thread is busy, another one sleeps on the doorbell, or the limit of threads is reached:
//!    so messages are always taken in.
//! 3. A thread that blocks inside `get` gives its lease to others meanwhile.

use crate::registry::ActorState;
use crate::runtime::{Inner, Runtime};
use crate::worker::leases::{Held, Leases};
use crate::worker::mailbox::{AsyncCall, Hosted, Mailbox};
use crate::worker::runner::{self, RunnerState};
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{FromNode, Lease, ToNode};
use aktis_protocol::hot::MessageKind;
use aktis_protocol::limits::THREADS_MAX;
use aktis_protocol::{Failure, ProcessSlot, ShapeId, TaskId, TaskKey};
use aktis_store::LaneConsumer;
use parking_lot::{Mutex, RwLock};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Something that a thread can run without a lease.
pub(crate) enum Runnable {
    /// An actor with calls.
    Actor(Arc<Mailbox>),
    /// A call that was suspended and can go on.
    Future(Arc<AsyncCall>),
    /// A call for an actor that is not here.
    Refusal(ProcessSlot, TaskKey, TaskId),
    /// An actor that was killed: its state is dropped.
    Farewell(Arc<Mailbox>, Option<ActorState>, Failure),
}

/// What the threads of a worker share.
pub(crate) struct Executor {
    kind: WorkerKind,
    leases: Mutex<Leases>,
    /// Counts changes of what the node wants back: threads look at it between tasks.
    revocations: AtomicU32,
    lanes: RwLock<(u32, Arc<[LaneConsumer]>)>,
    runnable: Mutex<VecDeque<Runnable>>,
    runnable_count: AtomicUsize,
    pub(crate) hosted: Hosted,
    threads: AtomicUsize,
    sleeping: AtomicUsize,
    spinning: AtomicBool,
    runners: RwLock<Vec<Arc<RunnerState>>>,
}

thread_local! {
    /// Whether this thread is a runner that takes in messages in order to run what they bring.
    pub(crate) static LOOKING: Cell<bool> = const { Cell::new(false) };
    /// The runner that this thread is, with the lease it holds.
    pub(crate) static RUNNER: RefCell<Option<(Arc<RunnerState>, Option<Held>)>> = const { RefCell::new(None) };
}

impl Executor {
    pub(crate) fn new(kind: WorkerKind) -> Self {
        Self {
            kind,
            leases: Mutex::default(),
            revocations: AtomicU32::new(0),
            lanes: RwLock::new((u32::MAX, Arc::default())),
            runnable: Mutex::default(),
            runnable_count: AtomicUsize::new(0),
            hosted: Hosted::default(),
            threads: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            spinning: AtomicBool::new(false),
            runners: RwLock::default(),
        }
    }

    /// Whether actors that nobody but their creator knows may live here.
    pub(crate) fn hosts_actors(&self) -> bool {
        self.kind == WorkerKind::Shared
    }

    /// Starts the first thread.
    pub(crate) fn start(&self, runtime: &Arc<Inner>) {
        self.spawn_runner(runtime);
    }

    /// Starts one more thread, if there may be one more.
    pub(crate) fn spawn_runner(&self, runtime: &Arc<Inner>) {
        let index = self.threads.fetch_add(1, Ordering::AcqRel);
        if index >= THREADS_MAX {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let state = Arc::new(RunnerState::new(index, Runtime(runtime.clone())));
        self.runners.write().push(state.clone());
        let runtime = runtime.clone();
        let body = move || runner::run(&runtime, state);
        let spawned = std::thread::Builder::new().name(format!("aktis-run-{index}")).spawn(body);
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
        // A thread that looks for work takes the first one itself.
        if others > 0 || !LOOKING.get() {
            runtime.control.doorbell().ring(1);
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
    pub(crate) fn take_lease_for_work(&self, lanes: &[LaneConsumer]) -> Option<Held> {
        let mut leases = self.leases.lock();
        let shape = leases.idle_shapes().find(|shape| has_tasks(lanes, *shape))?;
        leases.take(shape)
    }

    /// Takes an idle lease of a shape.
    pub(crate) fn take_lease(&self, shape: ShapeId) -> Option<Held> {
        self.leases.lock().take(shape)
    }

    /// Gives a lease back; the node gets it if it wants one.
    pub(crate) fn put_lease(&self, runtime: &Inner, held: Held) {
        let returned = self.leases.lock().put(held);
        if let Some(message) = returned {
            runtime.send_to_node(message);
        }
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

    /// Makes sure that a thread is left to take in what comes, while the calling one is busy.
    pub(crate) fn ensure_spare(&self, runtime: &Arc<Inner>) {
        if self.sleeping.load(Ordering::Relaxed) == 0 && !self.spinning.load(Ordering::Relaxed) {
            self.spawn_runner(runtime);
        }
    }

    /// Called by a thread that found work: others must be there for what comes next.
    pub(crate) fn on_busy(&self, runtime: &Arc<Inner>) {
        self.ensure_spare(runtime);
        self.offer_idle(runtime);
    }

    /// Lets another thread of this worker use what leases are idle: now, or when a task is pushed.
    pub(crate) fn offer_idle(&self, runtime: &Inner) {
        self.announce_idle(runtime);
        let lanes = self.lanes(runtime);
        if self.has_work_for_lease(&lanes) {
            runtime.control.doorbell().ring(1);
        }
    }

    /// The running thread is about to block: its lease serves others until the guard goes.
    pub(crate) fn enter_blocked<'a>(&'a self, runtime: &'a Arc<Inner>) -> Blocked<'a> {
        let held = RUNNER.with_borrow_mut(|runner| {
            let (_, held) = runner.as_mut()?;
            // GPUs are not handed on: the task's data is on them.
            if held.as_ref()?.gpus.is_empty() { held.take() } else { None }
        });
        if let Some(held) = &held {
            match self.kind {
                WorkerKind::Isolated => {
                    runtime.send_to_node(ToNode::LeaseBlocked { lease: held.lease, blocked: true });
                }
                WorkerKind::Shared => {
                    self.put_lease(runtime, held.clone());
                    self.on_busy(runtime);
                }
            }
        } else if RUNNER.with_borrow(Option::is_some) {
            self.on_busy(runtime);
        }
        Blocked { executor: self, runtime, held }
    }

    /// The node orders something that only workers do.
    fn on_order(&self, runtime: &Arc<Inner>, message: FromNode) {
        match message {
            FromNode::LeaseGranted { lease } => self.on_lease_granted(runtime, lease),
            FromNode::LeaseRevoked { shape } => {
                self.revocations.fetch_add(1, Ordering::SeqCst);
                let returned = self.leases.lock().revoke(shape);
                if let Some(message) = returned {
                    runtime.send_to_node(message);
                }
            }
            FromNode::HostActor { spec, incarnation, gpus } => {
                self.hosted.host(runtime, self, spec, incarnation, gpus);
            }
            FromNode::EndActor { actor, now } => self.hosted.end(runtime, self, actor, now),
            _ => {}
        }
    }

    fn on_lease_granted(&self, runtime: &Inner, lease: Lease) {
        self.leases.lock().grant(lease);
        self.offer_idle(runtime);
        runtime.control.doorbell().ring(1);
    }

    /// A message about a task that this worker runs.
    pub(crate) fn on_task_message(&self, from: ProcessSlot, kind: MessageKind, key: TaskKey, index: u32) {
        for runner in self.runners.read().iter() {
            runner.on_task_message(from, kind, key, index);
        }
        if kind == MessageKind::Cancel {
            self.hosted.cancel(from, key);
        }
    }

    /// A submitter died: its lanes will go; nothing of it must be cached.
    pub(crate) fn on_process_died(&self, _dead: ProcessSlot) {
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
    held: Option<Held>,
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let again = match self.executor.kind {
            WorkerKind::Isolated => {
                self.runtime.send_to_node(ToNode::LeaseBlocked { lease: held.lease, blocked: false });
                Some(held)
            }
            // Without an idle lease the task goes on all the same: it must not wait for others to finish.
            // The thread then starts no other task until it gets a lease.
            WorkerKind::Shared => self.executor.take_lease(held.shape),
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
