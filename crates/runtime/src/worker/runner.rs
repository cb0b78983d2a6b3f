//! One thread of a worker: finds work, runs it, spins a little, sleeps.

use crate::owed::OwedWakeUps;
use crate::runtime::{Inner, Runtime};
use crate::shards::choose_shard;
use crate::worker::context::TaskContext;
use crate::worker::executor::{Executor, FETCHING, FROM_LANE, LOOKING, RUNNER, Runnable};
use crate::worker::frames::{Frame, Outer};
use crate::worker::mailbox::{self, Mailbox};
use crate::worker::nested;
use crate::worker::run;
use crate::worker::watching::Watching;
use aktis_logic::lease_pool::HeldLease;
use aktis_protocol::hot::{CANCEL_RECURSIVE, MessageKind, TaskHeader};
use aktis_protocol::limits::THREADS_MAX;
use aktis_protocol::{FunctionId, ProcessSlot, TaskId, TaskKey};
use aktis_store::{LaneConsumer, Sample, WakeUp};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long an idle thread spins before it sleeps: a few round trips to a submitter that spins too.
const SPIN: Duration = Duration::from_micros(30);
const ROUNDS: u32 = 32;
/// How long a process that runs one task at a time keeps a lease that it does not use.
const IDLE_LEASE: Duration = Duration::from_millis(200);

/// What others may look at or change in a runner.
pub(crate) struct RunnerState {
    /// Its running cell.
    pub(crate) index: usize,
    pub(crate) runtime: Runtime,
    submitter: AtomicU32,
    key: AtomicU64,
    cancelled: Mutex<Arc<AtomicBool>>,
    /// What waits on this thread for what it runs.
    outer: Mutex<Outer>,
    /// Whether what it runs was cancelled with all that it has submitted.
    recursive: AtomicBool,
    pub(crate) stream_consumed: AtomicU32,
    pub(crate) stream_closed: AtomicBool,
    thread: Mutex<Option<Thread>>,
    /// Whether the doorbell counts it among those who watch.
    pub(super) watching: Watching,
    /// To those who wait for the answers of its tasks.
    owed: OwedWakeUps<ProcessSlot>,
    /// Whether it is inside `get` and the like.
    blocked: AtomicBool,
    /// Whether an event loop runs on it, between two turns of the worker.
    outside: AtomicBool,
    /// How many things it has run.
    finished: AtomicU64,
    /// The actor that it keeps to itself.
    kept: Mutex<Option<Arc<Mailbox>>>,
    /// Whether there is one; changed under that lock.
    keeping: AtomicBool,
}

const NOBODY: u32 = u32::MAX;

impl RunnerState {
    pub(crate) fn new(index: usize, runtime: Runtime) -> Self {
        Self {
            index,
            runtime,
            submitter: AtomicU32::new(NOBODY),
            key: AtomicU64::new(0),
            cancelled: Mutex::default(),
            outer: Mutex::default(),
            recursive: AtomicBool::new(false),
            stream_consumed: AtomicU32::new(0),
            stream_closed: AtomicBool::new(false),
            thread: Mutex::new(None),
            watching: Watching::default(),
            owed: OwedWakeUps::default(),
            blocked: AtomicBool::new(false),
            outside: AtomicBool::new(false),
            finished: AtomicU64::new(0),
            kept: Mutex::default(),
            keeping: AtomicBool::new(false),
        }
    }

    /// Whether it looks for further calls after one: a thread aside does not.
    pub(crate) fn can_keep(&self) -> bool {
        self.index < THREADS_MAX
    }

    /// It keeps this actor to itself (see `batch`).
    pub(crate) fn keep(&self, mailbox: &Arc<Mailbox>) {
        let mut kept = self.kept.lock();
        *kept = Some(mailbox.clone());
        self.keeping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_keeping(&self) -> bool {
        self.keeping.load(Ordering::SeqCst)
    }

    /// Counts a call of the actor that it keeps.
    pub(crate) fn count_kept(&self) {
        if self.is_keeping() {
            self.count_finished();
        }
    }

    /// It does not keep an actor any more.
    pub(crate) fn stop_keeping(&self) {
        if self.is_keeping() {
            self.take_kept();
        }
    }

    /// It is stuck in a call, or about to block: others may have what it keeps.
    pub(crate) fn let_go(&self, runtime: &Arc<Inner>, executor: &Executor) {
        if self.is_keeping()
            && let Some(mailbox) = self.take_kept()
        {
            mailbox.let_go(runtime, executor, self.index);
        }
    }

    /// Whether it is to wake a process later that waits for an answer: see `owed`.
    pub(super) fn owes(&self, process: ProcessSlot) -> bool {
        self.owed.owe(process) != WakeUp::Now
    }

    /// Wakes all whom it was to wake later.
    #[inline]
    pub(super) fn pay(&self, runtime: &Inner) {
        self.owed.pay(|process| runtime.control.remind(process));
    }

    /// The same, for those for whom it is time.
    #[inline]
    pub(super) fn pay_due(&self, runtime: &Inner) {
        self.owed.pay_due(|process| runtime.control.remind(process));
    }

    fn take_kept(&self) -> Option<Arc<Mailbox>> {
        let mut kept = self.kept.lock();
        self.keeping.store(false, Ordering::SeqCst);
        kept.take()
    }

    /// Whether it is stuck in user code, or blocked: it does not look for messages.
    pub(crate) fn is_away(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) || (self.is_busy() && !self.watching.is_on())
    }

    /// Whether it waits for something that others have to do.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::SeqCst);
    }

    /// The calling thread is the runner: messages about its task unpark it.
    pub(crate) fn note_thread(&self) {
        *self.thread.lock() = Some(std::thread::current());
    }

    /// Whether it is running user code.
    pub(crate) fn is_busy(&self) -> bool {
        self.submitter.load(Ordering::Relaxed) != NOBODY || self.outside.load(Ordering::Relaxed)
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// Called by the thread itself, which is the only one that counts.
    fn count_finished(&self) {
        self.finished.store(self.finished() + 1, Ordering::Relaxed);
    }

    /// Says what the thread runs from now on; gives the flag by which it may be cancelled.
    pub(crate) fn begin(&self, submitter: ProcessSlot, key: TaskKey) -> Arc<AtomicBool> {
        let mut cancelled = self.cancelled.lock();
        self.recursive.store(false, Ordering::Relaxed);
        self.key.store(word(key), Ordering::Relaxed);
        self.submitter.store(submitter.0, Ordering::Release);
        if cancelled.load(Ordering::Relaxed) || Arc::strong_count(&cancelled) > 1 {
            *cancelled = Arc::default();
        }
        cancelled.clone()
    }

    /// Cancels what it runs for a submitter, also what waits on this thread; false if there is nothing.
    pub(crate) fn cancel_all_of(&self, submitter: ProcessSlot) -> bool {
        let mut outer = self.outer.lock();
        let cancelled = self.cancelled.lock();
        let (waits, reaches) = outer.cancel(|frame| frame.submitter == submitter.0, true);
        let runs = self.submitter.load(Ordering::Acquire) == submitter.0;
        if runs || reaches {
            self.cancel_running(&cancelled, true);
        }
        runs || waits
    }

    /// Cancels what it runs. The caller holds the lock of the flag.
    fn cancel_running(&self, cancelled: &AtomicBool, recursive: bool) {
        self.recursive.fetch_or(recursive, Ordering::AcqRel);
        cancelled.store(true, Ordering::Release);
    }

    /// What it ran is over; true if what that has submitted is to be cancelled.
    pub(crate) fn end(&self) -> bool {
        self.submitter.store(NOBODY, Ordering::Release);
        self.recursive.load(Ordering::Relaxed) && self.recursive.swap(false, Ordering::AcqRel)
    }

    /// What the thread runs waits for another task, which the thread runs from now on; gives the flag by which that may
    /// be cancelled. It is cancelled from the start if what waits was cancelled with all that it has submitted.
    pub(crate) fn suspend(&self, submitter: ProcessSlot, key: TaskKey, task: TaskId) -> Arc<AtomicBool> {
        let family = TaskContext::family();
        let mut outer = self.outer.lock();
        let flag = outer.take_flag();
        let mut cancelled = self.cancelled.lock();
        let recursive =
            self.recursive.load(Ordering::Relaxed) && self.recursive.swap(false, Ordering::AcqRel);
        let frame = Frame {
            submitter: self.submitter.load(Ordering::Relaxed),
            key: self.key.load(Ordering::Relaxed),
            cancelled: std::mem::replace(&mut *cancelled, flag.clone()),
            recursive,
            family,
            above: task,
        };
        self.key.store(word(key), Ordering::Relaxed);
        self.submitter.store(submitter.0, Ordering::Release);
        if recursive && frame.is_parent() {
            self.cancel_running(&flag, true);
        }
        outer.frames.push(frame);
        flag
    }

    /// Ends what `suspend` began.
    pub(crate) fn resume(&self) {
        let mut outer = self.outer.lock();
        let frame = outer.frames.pop().expect("`suspend` came before");
        let mut cancelled = self.cancelled.lock();
        self.key.store(frame.key, Ordering::Relaxed);
        self.submitter.store(frame.submitter, Ordering::Release);
        self.recursive.store(frame.recursive, Ordering::Relaxed);
        outer.spare = Some(std::mem::replace(&mut cancelled, frame.cancelled));
    }

    pub(crate) fn begin_stream(&self) {
        self.stream_consumed.store(0, Ordering::Relaxed);
        self.stream_closed.store(false, Ordering::Release);
    }

    /// A message about the task with this key; false if it runs another one.
    pub(crate) fn on_task_message(
        &self,
        from: ProcessSlot,
        kind: MessageKind,
        key: TaskKey,
        index: u32,
    ) -> bool {
        let found = self.note_message(from, kind, key, index);
        if let (true, Some(thread)) = (found, &*self.thread.lock()) {
            thread.unpark();
        }
        found
    }

    /// Notes a message, if it is about what the thread runs, or about what waits there for that. The locks are held
    /// throughout, and `begin` takes one of them: the next task does not get it.
    fn note_message(&self, from: ProcessSlot, kind: MessageKind, key: TaskKey, index: u32) -> bool {
        let mut outer = self.outer.lock();
        let cancelled = self.cancelled.lock();
        let is_this = |submitter: u32, at: u64| submitter == from.0 && at == word(key);
        let runs_this = is_this(self.submitter.load(Ordering::Acquire), self.key.load(Ordering::Relaxed));
        let waits = |frame: &Frame| is_this(frame.submitter, frame.key);
        if !runs_this && !outer.frames.iter().any(waits) {
            return false;
        }
        match kind {
            MessageKind::Cancel => {
                let recursive = index & CANCEL_RECURSIVE != 0;
                if runs_this || outer.cancel(waits, recursive).1 {
                    self.cancel_running(&cancelled, recursive);
                }
            }
            // Of what is on one thread, only the lowest can be a stream.
            MessageKind::StreamCredit => {
                self.stream_consumed.fetch_max(index, Ordering::AcqRel);
            }
            MessageKind::StreamClosed => self.stream_closed.store(true, Ordering::Release),
            _ => {}
        }
        true
    }
}

fn word(key: TaskKey) -> u64 {
    u64::from(key.index) << 32 | u64::from(key.generation)
}

/// The life of a runner.
pub(crate) fn run(runtime: &Arc<Inner>, state: Arc<RunnerState>) -> ! {
    state.note_thread();
    RUNNER.set(Some((state.clone(), None)));
    nested::note_stack();
    choose_shard(state.index);
    let executor = runtime.executor.as_ref().expect("runners belong to workers");
    let entered = state.index == 0 || crate::hooks::get().is_none();
    let mut runner = Runner { runtime, executor, state, turn: 0, lanes: (u32::MAX, Arc::default()), entered };
    runner.live()
}

/// Things that one turn of an event loop runs at most.
const TURN: usize = 16;

/// What the main thread does when its event loop has nothing to do: as much as there is to run, or sleep until there is
/// something, the loop is poked, or the time is over.
pub(crate) fn turn(runtime: &Arc<Inner>, timeout: Option<Duration>) {
    let Some(executor) = &runtime.executor else { return };
    let Some(state) = RUNNER.with_borrow(|runner| runner.as_ref().map(|(state, _)| state.clone())) else {
        return;
    };
    let mut runner =
        Runner { runtime, executor, state, turn: 0, lanes: (u32::MAX, Arc::default()), entered: true };
    runner.state.outside.store(false, Ordering::SeqCst);
    runner.state.count_finished();
    runner.state.watching.start(runtime.control.doorbell());
    executor.watch.wake();
    let worked = (0..TURN).take_while(|_| runner.work_once()).count() > 0;
    if !executor.take_poke() && !worked && timeout != Some(Duration::ZERO) {
        if !runner.spin() {
            runner.sleep_for(timeout);
        }
        executor.take_poke();
        runner.work_once();
    }
    runner.state.pay(runtime);
    // What the loop does now may take long: it counts as busy. If it does, the watch has somebody else take in messages;
    // until then nobody is woken for them.
    runner.state.outside.store(true, Ordering::SeqCst);
}

struct Runner<'a> {
    runtime: &'a Arc<Inner>,
    executor: &'a Executor,
    state: Arc<RunnerState>,
    turn: usize,
    lanes: (u32, Arc<[LaneConsumer]>),
    /// Whether the thread has what it needs to run calls.
    entered: bool,
}

/// One of so many runs is timed.
const SAMPLE_EVERY: u64 = 16;
/// After so many tasks, what is owed is paid if it is time.
const PAY_EVERY: u64 = 16;

impl Runner<'_> {
    fn live(&mut self) -> ! {
        let (runtime, executor) = (self.runtime, self.executor);
        loop {
            if executor.is_main_only() && self.state.index != 0 {
                self.attend();
                continue;
            }
            if let (true, 0, Some(hooks)) = (executor.is_looped(), self.state.index, crate::hooks::get()) {
                (hooks.run_loop)();
            }
            self.state.watching.start(runtime.control.doorbell());
            if self.work_once() {
                continue;
            }
            if self.spin() {
                executor.on_busy(runtime);
                continue;
            }
            self.sleep();
        }
    }

    /// Gets the thread what it needs to run calls, and lives on with that. Not earlier: a thread that has nothing to run
    /// must be able to take in messages, whatever the others do.
    fn enter(&mut self, first: Runnable) {
        self.entered = true;
        let mut first = Some(first);
        let mut live = || {
            if let Some(runnable) = first.take() {
                self.timed(None, |runner| runner.run(runnable));
            }
            self.live()
        };
        match crate::hooks::get() {
            Some(hooks) => (hooks.thread)(&mut live),
            None => live(),
        }
    }

    /// Takes in messages while the first thread is away, and wakes it for what only it can do.
    fn attend(&mut self) {
        if !self.executor.is_main_away() {
            // It may have been woken in place of the first thread, which has then to announce itself again, whether or not
            // there is still something to do.
            self.runtime.control.doorbell().call();
            self.executor.attendant.retire(|| self.executor.is_main_away() || !self.executor.is_main_only());
            return;
        }
        self.runtime.drain();
        self.pass_on();
        self.wake_others();
        let bell = self.runtime.control.doorbell();
        let ticket = bell.prepare();
        self.executor.begin_sleep();
        if self.runtime.control.has_inbound() || !self.executor.is_main_away() {
            bell.stay(ticket);
        } else {
            bell.sleep(ticket, None);
        }
        self.executor.end_sleep();
    }

    /// Wakes the first thread, if it sleeps, for what only it can do.
    fn pass_on(&mut self) {
        if self.finds_work() {
            self.runtime.control.doorbell().call();
        }
    }

    /// Takes in messages and runs one thing; false if there was nothing.
    fn work_once(&mut self) -> bool {
        LOOKING.set(true);
        let drained = self.runtime.drain();
        LOOKING.set(false);
        if let Some(runnable) = self.executor.pop_runnable() {
            self.state.pay(self.runtime);
            // A call needs no lease, and may take long: no task is to wait for it.
            self.put_held();
            if self.entered {
                self.timed(None, |runner| runner.run(runnable));
            } else {
                self.enter(runnable);
            }
            return true;
        }
        if self.run_task() {
            return true;
        }
        self.state.pay(self.runtime);
        drained
    }

    /// Runs something; measures how long it takes, of short things now and then. If it is a task, the node is told.
    fn timed(&mut self, task: Option<FunctionId>, run: impl FnOnce(&mut Self)) {
        let is_due = self.state.finished().is_multiple_of(SAMPLE_EVERY) || self.executor.runs_long();
        let start = is_due.then(|| {
            FETCHING.set(Duration::ZERO);
            Instant::now()
        });
        run(self);
        self.state.count_finished();
        if let Some(start) = start {
            let took = start.elapsed();
            self.executor.note_run(took.as_nanos() as u64);
            if let Some(likeness) = task {
                // What its inputs take to come depends on where it runs, and is reckoned by itself.
                let microseconds = took.saturating_sub(FETCHING.get()).as_micros() as u64;
                self.runtime.control.add_sample(Sample { likeness, microseconds });
            }
        }
    }

    /// The lanes of this node, read again when they changed.
    fn lanes(&mut self) -> Arc<[LaneConsumer]> {
        if self.lanes.0 != self.runtime.control.lanes_version() {
            self.lanes = (self.runtime.control.lanes_version(), self.executor.lanes(self.runtime));
        }
        self.lanes.1.clone()
    }

    fn run(&self, runnable: Runnable) {
        match runnable {
            Runnable::Actor(mailbox) => mailbox.run(self.runtime, self.executor, &self.state),
            Runnable::Future(call) => {
                call.poll(self.runtime, self.executor);
            }
            Runnable::Strays(actor) => mailbox::see_to_strays(self.runtime, self.executor, actor),
            Runnable::Farewell(mailbox, state, failure) => mailbox.bury(self.runtime, state, failure),
        }
    }

    /// Runs one task, if this thread has or gets a lease for one.
    fn run_task(&mut self) -> bool {
        let lanes = self.lanes();
        let held = match take_held() {
            Some(held) if self.executor.is_lease_wanted(held.shape) => {
                self.executor.put_lease(self.runtime, held);
                None
            }
            other => other,
        };
        let held = held.or_else(|| self.executor.take_lease_for_work(&lanes));
        let Some(held) = held else { return false };
        for offset in 0..lanes.len() {
            let lane = &lanes[(self.turn + offset) % lanes.len()];
            if lane.shape() == held.shape
                && let Some((header, payload)) = self.claim(lane)
            {
                self.turn = self.turn.wrapping_add(offset + 1);
                self.executor.leave_to_others(self.runtime, &lanes, held.shape);
                let submitter = lane.submitter();
                let likeness = header.likeness();
                self.timed(Some(likeness), |runner| runner.execute(submitter, header, payload, held));
                self.use_up_held();
                if self.state.finished().is_multiple_of(PAY_EVERY) {
                    self.state.pay_due(self.runtime);
                }
                return true;
            }
        }
        RUNNER.with_borrow_mut(|runner| runner.as_mut().expect("set").1 = Some(held));
        false
    }

    /// Gives the thread's lease back to the node if that was for the task which the thread has run.
    fn use_up_held(&self) {
        let used_up = RUNNER.with_borrow_mut(|runner| runner.as_mut()?.1.take_if(|held| held.once));
        if let Some(held) = used_up {
            self.executor.use_up_lease(self.runtime, &held);
        }
    }

    /// Puts back the lease that the thread has kept for the next task.
    fn put_held(&self) {
        if let Some(held) = take_held() {
            self.executor.put_lease(self.runtime, held);
        }
    }

    /// Claims a task; the running cell is written before the slot is given back.
    fn claim(&self, lane: &LaneConsumer) -> Option<(TaskHeader, TaskBytes)> {
        let cell = &self.runtime.control.cells(self.runtime.me)[self.state.index];
        lane.claim(self.runtime.me, |header, payload| {
            cell.set(lane.running(header));
            (*header, TaskBytes::copy(payload))
        })
    }

    fn execute(&self, submitter: ProcessSlot, header: TaskHeader, payload: TaskBytes, held: HeldLease) {
        let gpus = held.gpus.clone();
        RUNNER.with_borrow_mut(|runner| runner.as_mut().expect("set").1 = Some(held));
        FROM_LANE.set(true);
        run::run_task(self.runtime, &self.state, submitter, &header, payload, gpus);
        FROM_LANE.set(false);
        self.runtime.control.cells(self.runtime.me)[self.state.index].clear();
        if self.executor.is_ending() {
            self.state.pay(self.runtime);
            self.finish_own_tasks();
            if let Some(hooks) = crate::hooks::get() {
                (hooks.exits)();
            }
            self.runtime.flush_outbox();
            crate::worker::end(0);
        }
    }

    /// Waits until all that this process has submitted is done: it goes with the process.
    fn finish_own_tasks(&self) {
        self.put_held();
        while self.runtime.unfinished() > 0 {
            if !self.runtime.drain() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Looks for work for a short time; true if there is some.
    fn spin(&mut self) -> bool {
        if !self.executor.begin_spin() {
            return false;
        }
        let found = self.spin_inside();
        self.executor.end_spin();
        found
    }

    fn spin_inside(&mut self) -> bool {
        let lanes = self.lanes();
        let start = Instant::now();
        loop {
            for _ in 0..ROUNDS {
                if self.sees_work(&lanes) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                return false;
            }
            std::thread::yield_now();
        }
    }

    fn sees_work(&self, lanes: &[LaneConsumer]) -> bool {
        self.runtime.control.has_inbound()
            || self.executor.is_poked()
            || self.executor.has_runnable()
            || lanes.iter().any(|lane| !lane.is_empty() && self.may_run(lane))
    }

    fn may_run(&self, lane: &LaneConsumer) -> bool {
        RUNNER.with_borrow(|runner| {
            runner.as_ref().and_then(|(_, held)| held.as_ref()).is_some_and(|held| held.shape == lane.shape())
        })
    }

    /// Puts the lease back and sleeps until the doorbell rings.
    fn sleep(&mut self) {
        self.sleep_for(None);
    }

    /// Puts the lease back and sleeps until the doorbell rings, or the time is over.
    fn sleep_for(&mut self, timeout: Option<Duration>) {
        if let (0, Some(hooks)) = (self.state.index, crate::hooks::get()) {
            (hooks.idle)();
        }
        self.put_held();
        let bell = self.runtime.control.doorbell();
        self.state.watching.stop(bell);
        let ticket = bell.prepare();
        self.executor.begin_sleep();
        // While another thread is awake and work is short, it gets all of it: nobody else is to be woken.
        if self.executor.wants_more_threads() || !bell.is_watched() {
            self.executor.announce_idle(self.runtime);
        }
        if self.finds_work() {
            bell.stay(ticket);
        } else if timeout.is_none() && self.executor.returns_idle_leases() {
            bell.sleep(ticket, Some(IDLE_LEASE));
            if !self.finds_work() {
                self.executor.return_idle_leases(self.runtime);
            }
        } else {
            bell.sleep(ticket, timeout);
        }
        self.executor.end_sleep();
        self.state.watching.start(bell);
        self.executor.watch.wake();
        if self.finds_work() {
            self.executor.on_busy(self.runtime);
        } else {
            self.wake_others();
        }
    }

    /// A wake-up for a task that this process cannot run, or not now, is another process's.
    fn wake_others(&mut self) {
        for lane in self.lanes().iter() {
            self.executor.wake_others(self.runtime, lane);
        }
    }

    fn finds_work(&mut self) -> bool {
        self.runtime.control.has_inbound()
            || self.executor.is_poked()
            || self.executor.has_runnable()
            || self.executor.has_work_for_lease(&self.lanes())
    }
}

fn take_held() -> Option<HeldLease> {
    RUNNER.with_borrow_mut(|runner| runner.as_mut().and_then(|(_, held)| held.take()))
}

/// A task's arguments, copied out of shared memory: on the stack if they are short.
pub(crate) enum TaskBytes {
    Short { len: u8, bytes: [u8; 64] },
    Long(Vec<u8>),
}

impl TaskBytes {
    pub(crate) fn copy(payload: &[u8]) -> Self {
        let mut bytes = [0; 64];
        match bytes.get_mut(..payload.len()) {
            Some(short) => {
                short.copy_from_slice(payload);
                Self::Short { len: payload.len() as u8, bytes }
            }
            None => Self::Long(payload.to_vec()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}
