//! Leases between the node and its workers: what can run does run, and only CPUs are lent while a task waits.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::{PATIENCE, eventually};

static HOLDS: AtomicBool = AtomicBool::new(false);
static OPEN: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Long enough for a task that may start to start, and short enough to wait for when it may not.
const MOMENT: Duration = Duration::from_millis(300);

/// Occupies a thread of the shared worker until the session ends.
#[remote]
fn hold() {
    HOLDS.store(true, Ordering::SeqCst);
    while !OPEN.load(Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[remote(cpus = 0)]
fn holds() -> bool {
    HOLDS.load(Ordering::SeqCst)
}

#[remote(cpus = 0)]
fn open() {
    OPEN.store(true, Ordering::SeqCst);
}

#[remote(isolated)]
fn alone() -> u32 {
    std::process::id()
}

/// The node grants the shared worker a lease while it waits for another one that `hold` uses. It needs many sessions
/// that keep each other from being prompt, and rests in which the isolated worker gives its lease back.
#[test]
fn isolated_tasks_run_beside_a_long_one_after_every_rest() {
    let story = || {
        let session = Session::builder().cpus(2).store_bytes(16 << 20).start().expect("a session starts");
        let _entered = session.enter();
        let _long = hold::remote();
        for round in 0..4 {
            let outcome = alone::remote().get_timeout(PATIENCE);
            assert!(outcome.is_ok(), "round {round}: {outcome:?}");
            std::thread::sleep(MOMENT);
        }
    };
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..12).map(|_| scope.spawn(story)).collect();
        sessions.into_iter().for_each(|session| session.join().expect("no isolated task is stuck"));
    });
}

/// Counts the tasks that have the licence and are not done; true if there was never another one.
struct Inside;

impl Inside {
    fn enter() -> (Self, bool) {
        (Self, INSIDE.fetch_add(1, Ordering::SeqCst) == 0)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

#[remote(resources(licence = 1))]
fn with_licence() -> bool {
    Inside::enter().1
}

#[remote(resources(licence = 1))]
fn wait_with_licence() -> aktis::Result<bool> {
    let (_inside, first) = Inside::enter();
    hold::remote().get()?;
    Ok(first)
}

#[remote(isolated, resources(licence = 1))]
fn wait_alone_with_licence() -> aktis::Result<()> {
    hold::remote().get()
}

#[remote(stream, stream_ahead = 1, resources(licence = 1))]
fn stream_with_licence() -> impl Iterator<Item = bool> {
    let (inside, first) = Inside::enter();
    (0..3).map(move |_| {
        HOLDS.store(true, Ordering::SeqCst);
        let _ = &inside;
        first
    })
}

struct Licensed;

#[actor]
impl Licensed {
    fn new() -> Self {
        Self
    }

    fn wait(&self) -> aktis::Result<()> {
        hold::remote().get()
    }
}

#[remote]
fn add(a: u32, b: u32) -> u32 {
    a + b
}

fn start_with_licence() -> Session {
    let builder = Session::builder().cpus(2).store_bytes(16 << 20).resource("licence", 1);
    builder.start().expect("a session starts")
}

fn is_held() -> bool {
    holds::remote().get_timeout(PATIENCE).expect("it needs no CPU")
}

/// While somebody waits with the licence, its CPU is free, but not the licence.
fn check_that_the_licence_is_kept() {
    let second = with_licence::remote();
    // One CPU is that of the task that is waited for, the other one is lent.
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE), Ok(3));
    let early = second.get_timeout(MOMENT);
    assert!(matches!(early, Err(Error::Timeout(_))), "the licence was given away: {early:?}");
    open::remote().get_timeout(PATIENCE).expect("it needs no CPU");
    assert_eq!(second.get_timeout(PATIENCE), Ok(true));
}

#[test]
fn a_task_that_waits_in_get_keeps_its_licence() {
    let session = start_with_licence();
    let _entered = session.enter();
    let first = wait_with_licence::remote();
    eventually("the task waits", is_held);
    check_that_the_licence_is_kept();
    assert_eq!(first.get_timeout(PATIENCE), Ok(true));
}

#[test]
fn an_isolated_task_that_waits_in_get_keeps_its_licence() {
    let session = start_with_licence();
    let _entered = session.enter();
    let first = wait_alone_with_licence::remote();
    eventually("the task waits", is_held);
    check_that_the_licence_is_kept();
    assert_eq!(first.get_timeout(PATIENCE), Ok(()));
}

#[test]
fn an_actor_that_waits_in_get_keeps_its_licence() {
    let session = start_with_licence();
    let _entered = session.enter();
    let actor = Licensed::options().resource("licence", 1).remote();
    let call = actor.wait();
    eventually("the call waits", is_held);
    let second = with_licence::remote();
    let early = second.get_timeout(MOMENT);
    assert!(matches!(early, Err(Error::Timeout(_))), "the licence was given away: {early:?}");
    open::remote().get_timeout(PATIENCE).expect("it needs no CPU");
    assert_eq!(call.get_timeout(PATIENCE), Ok(()));
    drop(actor);
    assert_eq!(second.get_timeout(PATIENCE), Ok(true));
}

#[test]
fn a_stream_that_waits_for_its_consumer_keeps_its_licence() {
    let session = start_with_licence();
    let _entered = session.enter();
    let stream = stream_with_licence::remote();
    eventually("the stream has an item", is_held);
    let second = with_licence::remote();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE), Ok(3));
    let early = second.get_timeout(MOMENT);
    assert!(matches!(early, Err(Error::Timeout(_))), "the licence was given away: {early:?}");
    let items: Vec<_> = stream.map(|item| item.and_then(|item| item.get())).collect();
    assert_eq!(items, [Ok(true), Ok(true), Ok(true)]);
    assert_eq!(second.get_timeout(PATIENCE), Ok(true));
}

/// Tasks that waited run on with CPUs that others have got meanwhile; when all are done, both CPUs are free again.
#[test]
fn cpus_that_were_lent_are_all_there_again_afterwards() {
    #[remote(resources(licence = 0.25))]
    fn wait_a_little(number: u32) -> aktis::Result<u32> {
        add::remote(number, 1).get_timeout(PATIENCE)
    }
    let session = start_with_licence();
    let _entered = session.enter();
    let waiting: Vec<_> = (0..200).map(wait_a_little::remote).collect();
    for (number, task) in (0..).zip(&waiting) {
        assert_eq!(task.get_timeout(PATIENCE), Ok(number + 1));
    }
    let wide: Vec<_> = (0..4).map(|number| add::options().cpus(2).remote(number, 1)).collect();
    for (number, task) in (0..).zip(&wide) {
        assert_eq!(task.get_timeout(PATIENCE), Ok(number + 1));
    }
}

/// Calls of it last until it is opened.
#[derive(Default)]
struct Gate {
    is_open: AtomicBool,
    inside: AtomicUsize,
}

#[actor(max_concurrency = 8)]
impl Gate {
    fn new() -> Self {
        Self::default()
    }

    fn pass(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
        while !self.is_open.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

#[remote]
fn double(x: u64) -> u64 {
    2 * x
}

#[test]
fn a_thread_in_a_long_call_keeps_no_lease_from_tasks() {
    let session = Session::builder().cpus(2).start().unwrap();
    let _entered = session.enter();
    for round in 0..50 {
        let gate = Gate::remote();
        // Threads that have just run tasks take the calls.
        let before: Vec<_> = (0..20).map(double::remote).collect();
        let passing = [gate.pass(), gate.pass()];
        session.get_all(&before).unwrap();
        while gate.inside().get_timeout(PATIENCE).unwrap() < 2 {}
        assert_eq!(double::remote(round).get_timeout(PATIENCE).unwrap(), 2 * round);
        gate.open().get_timeout(PATIENCE).unwrap();
        passing.iter().for_each(|pass| pass.get_timeout(PATIENCE).unwrap());
    }
}
