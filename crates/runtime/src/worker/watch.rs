//! The watch of a worker: sees that nothing waits while a thread is stuck in something long.
//!
//! Threads that are awake look for work by themselves, so nobody is woken for it: that makes short tasks
//! cheap. The watch looks now and then, while there is work at all. If a thread has been in the same task
//! since the last look, it does not count as awake any more, and does not keep an actor to itself; if something waits for
//! a thread, one is woken or started. What a thread owes for too long, the watch pays.

use crate::runtime::Inner;
use crate::worker::executor::Executor;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How often the watch looks while there is work.
const TICK: Duration = Duration::from_millis(1);
/// After so many looks without any work it rests until a thread wakes up, if all sleep.
const QUIET_TICKS: u32 = 20;
/// If threads finish fewer things than this between two looks, another thread is worth waking.
const BUSY_FINISHED_MIN: u64 = 500;

/// Lets the watch rest.
#[derive(Default)]
pub(crate) struct Watch {
    /// Whether a thread woke up since the watch has last looked whether to rest.
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Watch {
    /// A thread woke up: there is work.
    pub(crate) fn wake(&self) {
        let mut woken = self.woken.lock();
        if !*woken {
            *woken = true;
            self.wake.notify_one();
        }
    }

    fn rest(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            self.wake.wait(&mut woken);
        }
        *woken = false;
    }
}

/// Starts the watch.
pub(crate) fn spawn(runtime: &Arc<Inner>) {
    let runtime = runtime.clone();
    let body = move || {
        let executor = runtime.executor.as_ref().expect("the watch belongs to a worker");
        run(&runtime, executor);
    };
    let spawned = std::thread::Builder::new().name("aktis-watch".into()).stack_size(256 * 1024).spawn(body);
    if let Err(error) = spawned {
        eprintln!("aktis: cannot start the watch of a worker: {error}");
    }
}

fn run(runtime: &Arc<Inner>, executor: &Executor) {
    let mut before: HashMap<usize, u64> = HashMap::new();
    let mut quiet = 0;
    loop {
        std::thread::sleep(TICK);
        let seen = look(runtime, executor, &mut before);
        help(runtime, executor, &seen);
        quiet = if seen.finished == 0 && !seen.stuck { quiet + 1 } else { 0 };
        // Who is awake and gets nothing done may be about to get stuck in something.
        if quiet > QUIET_TICKS && !runtime.control.doorbell().is_watched() {
            executor.watch.rest();
            quiet = 0;
        }
    }
}

/// What a look has shown.
#[derive(Default)]
struct Seen {
    /// How many things were finished since the last look.
    finished: u64,
    /// Whether a thread is stuck in something.
    stuck: bool,
    /// Whether a thread keeps an actor to itself, and gets on with it.
    keeps: bool,
}

fn look(runtime: &Arc<Inner>, executor: &Executor, before: &mut HashMap<usize, u64>) -> Seen {
    let mut seen = Seen::default();
    for runner in executor.runners() {
        let now = runner.finished();
        let before = before.insert(runner.index, now).unwrap_or(0);
        seen.finished += now.saturating_sub(before);
        if now == before && runner.is_busy() {
            seen.stuck = true;
            runner.watching.stop(runtime.control.doorbell());
            runner.let_go(runtime, executor);
        }
        runner.pay_due(runtime);
        seen.keeps |= runner.is_keeping();
    }
    seen
}

/// Finds a thread for what waits for one.
fn help(runtime: &Arc<Inner>, executor: &Executor, seen: &Seen) {
    let attended = runtime.control.doorbell().is_watched();
    let slow = seen.finished < BUSY_FINISHED_MIN;
    // Who keeps an actor takes in its calls, too, after a batch.
    let unattended = (runtime.control.has_inbound() && !(attended && seen.keeps)) || executor.has_runnable();
    // Who runs tasks on one thread cannot use another for what is queued; but that one may sleep.
    let may_help = !executor.is_main_only() || (!attended && !executor.is_main_away());
    let queued = may_help && executor.has_work_for_lease(&executor.lanes(runtime));
    if (unattended && (!attended || slow)) || (queued && slow) {
        executor.add_hand(runtime);
    }
}
