//! Priorities: what is more urgent runs first, and `explain` says so.

mod support;

use aktis::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{PATIENCE, eventually};

static STARTED: AtomicBool = AtomicBool::new(false);
static OPEN: AtomicBool = AtomicBool::new(false);
static ORDER: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Keeps the CPU until the gate is open.
#[remote]
fn hold() {
    STARTED.store(true, Ordering::SeqCst);
    while !OPEN.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[remote]
fn note(number: u32) {
    ORDER.lock().unwrap().push(number);
}

#[remote(priority = -1)]
fn note_later(number: u32) {
    ORDER.lock().unwrap().push(number);
}

/// Submits a less urgent task, then an urgent one, and waits for both.
#[remote]
fn note_both(less: u32, more: u32) -> aktis::Result<()> {
    let less = note::options().priority(1).remote(less);
    let more = note::options().priority(2).remote(more);
    // With a timeout, the waiting thread does not run them itself.
    less.get_timeout(PATIENCE)?;
    more.get_timeout(PATIENCE)
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
    fn open(&self) {
        OPEN.store(true, Ordering::SeqCst);
    }
    fn order(&self) -> Vec<u32> {
        ORDER.lock().unwrap().clone()
    }
}

/// A session with one CPU, which is in use.
fn start_busy() -> (Session, ObjectRef<()>) {
    let session = Session::builder().cpus(1).store_bytes(64 << 20).start().expect("a session starts");
    let entered = session.enter();
    let held = hold::remote();
    let gate = Gate::remote();
    eventually("the CPU is in use", || gate.has_started().get().unwrap());
    drop(entered);
    (session, held)
}

/// A gate that the node makes after all that it was told before, so that the worker knows what the node wants back.
fn late_gate() -> GateHandle {
    let gate = Gate::options().name("late").remote();
    assert!(gate.has_started().get().unwrap());
    gate
}

#[test]
fn all_of_the_more_urgent_run_before_all_of_the_less_urgent() {
    let (session, held) = start_busy();
    let _entered = session.enter();
    let mut refs: Vec<_> = (0..100).map(note_later::remote).collect();
    refs.extend((100..200).map(note::remote));
    refs.extend((200..300).map(|number| note::options().priority(7).remote(number)));
    let first = &refs[0];
    eventually("it is explained", || {
        first.explain().contains(
            "priority -1; all 1 CPU are in use by 1 other task; ahead, with a higher priority: 200 tasks",
        )
    });
    let gate = late_gate();
    gate.open().get().unwrap();
    held.get().unwrap();
    session.get_all(&refs).unwrap();
    let expected: Vec<u32> = (200..300).chain(100..200).chain(0..100).collect();
    assert_eq!(gate.order().get().unwrap(), expected);
}

#[test]
fn tasks_of_tasks_say_for_themselves_how_urgent_they_are() {
    let (session, held) = start_busy();
    let _entered = session.enter();
    let outer = note_both::options().priority(3).remote(1, 2);
    let between = note::remote(3);
    let gate = late_gate();
    gate.open().get().unwrap();
    held.get().unwrap();
    outer.get().unwrap();
    between.get().unwrap();
    assert_eq!(gate.order().get().unwrap(), [2, 1, 3]);
}

#[test]
fn actors_get_their_places_in_order_of_priority() {
    let (session, held) = start_busy();
    let _entered = session.enter();
    let later = Gate::options().cpus(1).remote();
    let sooner = Gate::options().cpus(1).priority(1).remote();
    eventually("it is explained", || later.explain().contains("what has a higher priority comes first"));
    late_gate().open().get().unwrap();
    held.get().unwrap();
    assert!(sooner.has_started().get().unwrap());
    assert!(later.explain().contains("in use by 1 actor"), "{}", later.explain());
    sooner.kill().unwrap();
    assert!(later.has_started().get().unwrap());
}
