//! Deadlines: what is not done in time is cancelled, wherever it is, and costs nothing once it is done.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use support::{PATIENCE, eventually, start};

const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(3600);

static STARTED: AtomicBool = AtomicBool::new(false);
static OPEN: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

#[remote]
fn hold() {
    STARTED.store(true, Ordering::SeqCst);
    while !OPEN.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[remote]
fn note(number: u32) -> u32 {
    NOTED.lock().unwrap().push(number);
    number
}

#[remote]
fn after(_input: (), number: u32) -> u32 {
    note(number)
}

#[remote]
fn pass(number: u32) -> u32 {
    number
}

#[remote(deadline = 0.05)]
fn until_cancelled() {
    while !aktis::is_cancelled() {
        std::thread::yield_now();
    }
    OPEN.store(true, Ordering::SeqCst);
}

#[remote(isolated, retries = 1000000)]
fn dies() {
    std::process::exit(3);
}

#[remote(stream)]
fn endless() -> impl Iterator<Item = u32> {
    std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(1));
        Some(1)
    })
}

struct Gate;

#[actor]
impl Gate {
    fn new() -> Self {
        Self
    }
    fn has_started(&self) -> bool {
        STARTED.load(Ordering::SeqCst)
    }
    fn is_open(&self) -> bool {
        OPEN.load(Ordering::SeqCst)
    }
    fn open(&self) {
        OPEN.store(true, Ordering::SeqCst);
    }
    fn hold(&self) {
        hold();
    }
    fn note(&self, number: u32) -> u32 {
        note(number)
    }
    fn noted(&self) -> Vec<u32> {
        NOTED.lock().unwrap().clone()
    }
}

struct Waits;

#[actor]
impl Waits {
    fn new() -> Self {
        Self
    }
    async fn wait(&self) {
        STARTED.store(true, Ordering::SeqCst);
        std::future::pending().await
    }
    async fn answer(&self) -> u32 {
        42
    }
}

fn is_overdue<T: std::fmt::Debug>(outcome: aktis::Result<T>) -> bool {
    match outcome {
        Err(Error::DeadlinePassed(error)) => error.message().contains("deadline"),
        other => panic!("expected a deadline to have passed, found {other:?}"),
    }
}

#[test]
fn a_task_that_is_queued_for_too_long_never_runs() {
    let session = Session::builder().cpus(1).start().unwrap();
    let _entered = session.enter();
    let gate = Gate::remote();
    let held = hold::remote();
    eventually("the CPU is in use", || gate.has_started().get().unwrap());
    let overdue = note::options().deadline(SOON).remote(1);
    let behind = pass::remote(&overdue);
    assert!(is_overdue(overdue.get()));
    let failure = support::task_error(behind.get());
    assert!(failure.cause().unwrap().message().contains("deadline of 50ms"), "{failure}");
    gate.open().get().unwrap();
    held.get().unwrap();
    assert_eq!(note::remote(2).get().unwrap(), 2);
    assert_eq!(gate.noted().get().unwrap(), [2]);
}

#[test]
fn a_task_that_waits_for_its_input_for_too_long_never_runs() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    let held = hold::remote();
    let overdue = after::options().deadline(SOON).remote(&held, 1);
    assert!(is_overdue(overdue.get()));
    gate.open().get().unwrap();
    held.get().unwrap();
    assert_eq!(after::remote(&held, 2).get().unwrap(), 2);
    assert_eq!(gate.noted().get().unwrap(), [2]);
}

#[test]
fn a_running_task_is_cancelled() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    assert!(is_overdue(until_cancelled::remote().get()));
    eventually("it sees that", || gate.is_open().get().unwrap());
}

#[test]
fn a_call_in_a_mailbox_never_runs() {
    let session = start();
    let _entered = session.enter();
    let (gate, other) = (Gate::remote(), Gate::remote());
    let held = gate.hold();
    eventually("the actor is busy", || other.has_started().get().unwrap());
    assert!(is_overdue(gate.with_deadline(SOON).note(1).get()));
    other.open().get().unwrap();
    held.get().unwrap();
    assert_eq!(gate.note(2).get().unwrap(), 2);
    assert_eq!(gate.noted().get().unwrap(), [2]);
}

#[test]
fn a_suspended_call_is_cancelled() {
    let session = start();
    let _entered = session.enter();
    let actor = Waits::remote();
    assert!(is_overdue(actor.with_deadline(SOON).wait().get()));
    assert_eq!(actor.answer().get().unwrap(), 42);
}

#[test]
fn tries_share_a_deadline() {
    let session = start();
    let _entered = session.enter();
    let begin = Instant::now();
    assert!(is_overdue(dies::options().deadline(10 * SOON).remote().get()));
    assert!(begin.elapsed() >= 10 * SOON && begin.elapsed() < PATIENCE);
}

#[test]
fn a_stream_ends_with_the_failure() {
    let session = start();
    let _entered = session.enter();
    let mut items: Vec<_> = endless::options().deadline(4 * SOON).remote().collect();
    let last = items.pop().expect("there is a last item");
    assert!(is_overdue(last.and_then(|item| item.get())));
    assert!(items.into_iter().all(|item| item.and_then(|item| item.get()) == Ok(1)));
}

#[test]
fn what_is_done_in_time_stays() {
    let session = start();
    let _entered = session.enter();
    let early = pass::options().deadline(40 * SOON).remote(1);
    let seen = pass::options().deadline(40 * SOON).remote(2);
    assert_eq!(seen.get().unwrap(), 2);
    eventually("the deadlines have passed", || session.statistics().alarms == 0);
    assert_eq!(early.get().unwrap(), 1, "nobody had looked at it before");
    assert_eq!(seen.get().unwrap(), 2);
}

#[test]
fn deadlines_of_finished_tasks_are_forgotten() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote().with_deadline(LATE);
    for _ in 0..20 {
        let refs: Vec<_> = (0..1000).map(|number| pass::options().deadline(LATE).remote(number)).collect();
        session.get_all(&refs).unwrap();
        gate.is_open().get().unwrap();
    }
    let alarms = session.statistics().alarms;
    assert!(alarms < 5000, "{alarms} of 20000 deadlines are kept");
    // A sooner one is not held up by those.
    assert!(is_overdue(until_cancelled::remote().get()));
}
