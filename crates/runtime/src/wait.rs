//! Blocking until objects have outcomes.
//!
//! First the waiting thread takes in completions itself, spinning for a short bounded time after the last
//! progress; then it gives its CPU back (in a worker), and sleeps until it is told.

use crate::codec::Value;
use crate::entry::{Entry, Outcome, WaitGroup};
use crate::error::Error;
use crate::handle::Handle;
use crate::objects::{Patience, is_loss};
use crate::pump::SPIN_PARTS;
use crate::runtime::Inner;
use crate::worker::context::TaskContext;
use aktis_protocol::hot::Stored;
use aktis_protocol::{Failure, FailureKind, TaskKey};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long to spin after the last progress. Several round trips to a worker that spins too.
const SPIN: Duration = Duration::from_micros(40);
/// Rounds of the spin between two looks at the clock.
const ROUNDS: u32 = 32;

/// In so many rounds, who waits for many objects looks once whether any has failed.
const FAILURES_EVERY: u32 = 16;
/// Handles that a thread which waits for some of many looks at in one round of its spin.
const LOOKED_AT_MAX: usize = 64;
/// How often a waiting thread asks whether it shall give up.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(50);

/// What is found where an object has an outcome.
pub(crate) enum Found {
    /// Its value.
    Value(Value),
    /// Its value was lost, and is made again: it comes to this entry.
    Renewed(Arc<Entry>),
}

/// The value of an object that has an outcome.
pub(crate) fn value_of(entry: &Arc<Entry>, patience: Patience) -> Result<Found, Error> {
    match (entry.outcome().expect("there is an outcome"), entry.runtime()) {
        (Outcome::Inline(value), _) => Ok(Found::Value(value.clone())),
        (Outcome::Stored { place, .. }, Some(runtime)) => {
            let stored = Stored { object: entry.id, entry: place.get() };
            match runtime.open_held(stored, Handle { entry: entry.clone() }, patience) {
                Err(error) if is_loss(&error) => Ok(Found::Renewed(runtime.renew(entry))),
                value => value.map(Found::Value),
            }
        }
        (Outcome::Stored { .. }, None) => Err(Error::Closed),
        (Outcome::Failed(failure), _) => Err(Error::Failed(failure.clone())),
        (Outcome::Refused(error), _) => Err((**error).clone()),
    }
}

/// Ends a wait, so that the objects it was registered with can forget it.
struct EndOnDrop<'a>(&'a WaitGroup);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The positions of the first handles that have outcomes, at most `count`.
fn first_ready<H: AsRef<Handle>>(handles: &[H], count: usize) -> Vec<usize> {
    let ready = handles.iter().enumerate().filter(|(_, handle)| handle.as_ref().has_outcome());
    ready.map(|(position, _)| position).take(count).collect()
}

/// How many of many handles have outcomes, for a thread that asks over and over: each look costs little, however many
/// handles there are.
struct Progress<'a, H> {
    handles: &'a [H],
    /// Positions of the handles that had no outcome when they were last looked at.
    pending: RefCell<Vec<usize>>,
    /// The place in `pending` at which the next look begins.
    next: Cell<usize>,
    /// Handles that still have to get outcomes.
    missing: Cell<usize>,
}

impl<'a, H: AsRef<Handle>> Progress<'a, H> {
    fn new(handles: &'a [H], count: usize) -> Self {
        let pending = RefCell::new((0..handles.len()).collect());
        Self { handles, pending, next: Cell::new(0), missing: Cell::new(count) }
    }

    /// Looks at the next few handles; whether enough have outcomes.
    fn look(&self) -> bool {
        let mut pending = self.pending.borrow_mut();
        let mut next = self.next.get();
        for _ in 0..LOOKED_AT_MAX.min(pending.len()) {
            if self.missing.get() == 0 {
                break;
            }
            next = if next < pending.len() { next } else { 0 };
            if self.handles[pending[next]].as_ref().has_outcome() {
                pending.swap_remove(next);
                self.missing.set(self.missing.get() - 1);
            } else {
                next += 1;
            }
        }
        self.next.set(next);
        self.missing.get() == 0
    }
}

impl Inner {
    /// The value of an object, waiting for it, again and again if it is lost and made again, but no longer than `timeout`
    /// in all.
    pub(crate) fn get(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        timeout: Option<Duration>,
    ) -> Result<Value, Error> {
        let patience = Patience::new(timeout);
        let mut found = self.get_once(entry, patience)?;
        loop {
            match found {
                Found::Value(value) => return Ok(value),
                Found::Renewed(entry) => found = self.get_once(&entry, patience)?,
            }
        }
    }

    fn get_once(self: &Arc<Self>, entry: &Arc<Entry>, patience: Patience) -> Result<Found, Error> {
        if entry.outcome().is_some() {
            self.pump.passed();
        } else {
            self.check_usable()?;
            self.announce(entry);
            if TaskContext::is_task(entry.id.task()) {
                return Err(Error::WaitsForItself(entry.id));
            }
            if patience.deadline.is_none() {
                self.run_instead_of_waiting(entry);
            }
        }
        if entry.outcome().is_none() {
            let is_there = || entry.outcome().is_some();
            let done = self.block(patience.left(), 1, is_there, |group| entry.add_group(group))?;
            if !done && TaskContext::is_cancelled() {
                return Err(Failure::new(FailureKind::Cancelled, "the task that waits was cancelled").into());
            }
            if !done {
                return Err(Error::TimedOut(patience.timeout));
            }
        }
        value_of(entry, patience)
    }

    /// Waits for `count` of the handles; gives the positions of at most `count` that have outcomes.
    ///
    /// If enough of the first handles have outcomes, the others are not looked at: programs wait for the next of a long
    /// list again and again.
    pub(crate) fn wait<H: AsRef<Handle>>(
        self: &Arc<Self>,
        handles: &[H],
        count: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<usize>, Error> {
        self.check_usable()?;
        let count = count.min(handles.len());
        let positions = first_ready(handles, count);
        if positions.len() == count {
            return Ok(positions);
        }
        let entries = || handles.iter().map(|handle| &handle.as_ref().entry);
        entries().for_each(|entry| self.announce(entry));
        let progress = Progress::new(handles, count);
        self.block(
            timeout,
            count,
            || progress.look(),
            |group| entries().for_each(|entry| entry.add_group(group)),
        )?;
        Ok(first_ready(handles, count))
    }

    /// Waits until all handles have a value or one has failed; false if the time is over before.
    pub(crate) fn wait_all(
        self: &Arc<Self>,
        handles: &[Handle],
        timeout: Option<Duration>,
    ) -> Result<bool, Error> {
        let first = Cell::new(0);
        let rounds = Cell::new(0_u32);
        let failed = |handle: &Handle| handle.entry.outcome().is_some_and(Outcome::is_failed);
        let done = || {
            let ready =
                handles[first.get()..].iter().take_while(|handle| handle.has_outcome() && !failed(handle));
            first.set(first.get() + ready.count());
            rounds.set(rounds.get().wrapping_add(1));
            // Failures further on are looked for now and then: the list may be long.
            let look = rounds.get().is_multiple_of(FAILURES_EVERY);
            first.get() == handles.len()
                || failed(&handles[first.get()])
                || (look && handles[first.get()..].iter().any(failed))
        };
        if done() {
            self.renew_lost(handles);
            return Ok(true);
        }
        self.check_usable()?;
        let rest = &handles[first.get()..];
        rest.iter().for_each(|handle| self.announce(&handle.entry));
        if let Some(own) = rest.iter().find(|handle| TaskContext::is_task(handle.id().task())) {
            return Err(Error::WaitsForItself(own.id()));
        }
        let register = |group: &Arc<WaitGroup>| {
            group.end_at_failure();
            rest.iter().for_each(|handle| handle.entry.add_group(group));
        };
        let finished = self.block(timeout, rest.len(), done, register)?;
        if !finished && TaskContext::is_cancelled() {
            return Err(Failure::new(FailureKind::Cancelled, "the task that waits was cancelled").into());
        }
        self.renew_lost(handles);
        Ok(finished)
    }

    /// Blocks until `done`, or the time is over: then gives false. Fails if too many threads wait.
    /// `register` makes whatever may change `done` count the group down, `count` times in all.
    pub(crate) fn block(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        count: usize,
        done: impl Fn() -> bool,
        register: impl FnOnce(&Arc<WaitGroup>),
    ) -> Result<bool, Error> {
        // A time that no clock reaches is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.spin(deadline, &done) {
            return Ok(true);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        let _blocked = self.executor.as_ref().map(|executor| executor.enter_blocked(self)).transpose()?;
        let group = WaitGroup::new(count);
        let _ended = EndOnDrop(&group);
        // In a worker, the threads that look for tasks sleep on the doorbell.
        let leading = if self.executor.is_none() { self.pump.lead() } else { None };
        if leading.is_some() {
            group.sleep_at(self);
        }
        register(&group);
        if leading.is_none() {
            self.pump.want_now();
        }
        loop {
            if group.is_done() || done() {
                return Ok(true);
            }
            if TaskContext::is_cancelled() {
                return Ok(false);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(done());
            }
            let hooks = crate::hooks::get();
            let left = match hooks {
                Some(_) => Some(left.map_or(LOOK_UP, |left| left.min(LOOK_UP))),
                None => left,
            };
            match (&leading, left) {
                (Some(_), left) => self.sleep_at_the_door(&group, left),
                (None, None) => std::thread::park(),
                (None, Some(left)) => std::thread::park_timeout(left),
            }
            if let Some(hooks) = hooks {
                if (hooks.interrupted)() {
                    return Err(Error::Interrupted);
                }
                // Whoever should take in messages may be in code that does not.
                self.drain();
            }
        }
    }

    /// Takes in completions, or sleeps until there are some, or the group is done.
    fn sleep_at_the_door(self: &Arc<Self>, group: &WaitGroup, timeout: Option<Duration>) {
        if self.drain() {
            return;
        }
        self.pay();
        let bell = self.control.doorbell();
        let ticket = bell.prepare();
        if self.control.has_inbound() || group.is_done() {
            bell.stay(ticket);
        } else {
            bell.sleep(ticket, timeout);
        }
    }

    /// Takes in completions until `done`, or nothing has come for a while.
    fn spin(self: &Arc<Self>, deadline: Option<Instant>, done: &impl Fn() -> bool) -> bool {
        self.pay();
        self.pump.enter();
        self.control.doorbell().watch();
        let finished = self.spin_inside(deadline, done);
        self.control.doorbell().unwatch();
        self.pump.leave();
        self.pump.on_spun(finished);
        // What came meanwhile has not rung for others who may wait for it.
        if self.control.has_inbound() {
            self.control.doorbell().ring();
        }
        finished
    }

    fn spin_inside(self: &Arc<Self>, deadline: Option<Instant>, done: &impl Fn() -> bool) -> bool {
        let mut last_progress = None;
        // In a worker, who sleeps gives its CPU away, which is worth some patience.
        let parts = if self.executor.is_some() { SPIN_PARTS } else { self.pump.spin_part() };
        let spin = SPIN / SPIN_PARTS * parts;
        loop {
            for _ in 0..ROUNDS {
                if done() {
                    return true;
                }
                if self.drain() {
                    last_progress = None;
                } else {
                    std::hint::spin_loop();
                }
            }
            let now = Instant::now();
            if now.duration_since(*last_progress.get_or_insert(now)) > spin
                || deadline.is_some_and(|deadline| now >= deadline)
            {
                return done();
            }
            std::thread::yield_now();
        }
    }

    /// After a submission: now and then takes in completions, and waits when too much is unfinished. The submission
    /// counts, also if the wait is interrupted; but then nobody gets the references to what it returns.
    pub(crate) fn tend_after_submit(self: &Arc<Self>, key: TaskKey, returns: u32) -> Result<(), Error> {
        let (tend, unfinished) = TaskContext::count_submission(|| self.unfinished_of_thread());
        if tend {
            self.pay_due();
            self.drain();
        }
        // While no shard has more than its part, all together are below the bound.
        let part = self.tuning.queued_tasks_max / self.submitter.all().len();
        if unfinished.is_none_or(|unfinished| unfinished < part) {
            return Ok(());
        }
        let waited = crate::hooks::blocking(|| self.wait_for_room());
        if waited.is_err() {
            (0..returns).for_each(|_| self.on_handle_dropped(key));
        }
        waited
    }

    /// How many tasks and calls of this process are not finished.
    pub(crate) fn unfinished(self: &Arc<Self>) -> usize {
        let in_use =
            self.submitter.all().iter().filter(|shard| shard.has_default_lane.load(Ordering::Acquire));
        let unfinished = in_use.map(|shard| shard.lock().machine.unfinished()).sum();
        self.run_deferred();
        unfinished
    }

    /// How many are not finished of the shard to which this thread submits.
    fn unfinished_of_thread(self: &Arc<Self>) -> usize {
        let unfinished = self.submitter.mine().lock().machine.unfinished();
        self.run_deferred();
        unfinished
    }

    /// Blocks until fewer tasks are unfinished than may be.
    fn wait_for_room(self: &Arc<Self>) -> Result<(), Error> {
        let has_room = || self.is_closed() || self.unfinished() < self.tuning.queued_tasks_max;
        while !has_room() {
            if self.spin(None, &has_room) {
                break;
            }
            if crate::hooks::interrupted() {
                return Err(Error::Interrupted);
            }
            let _blocked = self.executor.as_ref().and_then(|executor| executor.enter_blocked(self).ok());
            self.pump.want_now();
            std::thread::park_timeout(Duration::from_micros(500));
        }
        Ok(())
    }
}
