//! What makes no sense, or panics where nobody expects it: a clear error, and the session goes on.

mod support;

use aktis::Error;
use aktis::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::processes::is_running;
use support::{PATIENCE, eventually, start, task_error};

const MEGABYTE: usize = 1 << 20;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn length(bytes: Array<u8>) -> usize {
    bytes.len()
}

#[remote(resources(unobtainium = 1))]
fn needs_the_unknown(x: u64) -> u64 {
    x
}

/// Runs until the session ends.
#[remote]
fn spin() -> u64 {
    loop {
        std::thread::yield_now();
    }
}

/// Panics where it is told to.
#[derive(Debug)]
struct Bomb(Fuse);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Fuse {
    Serialize,
    Deserialize,
    Drop,
    Never,
}

impl Serialize for Bomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, Fuse::Serialize, "the serialiser panics");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fuse = Fuse::deserialize(deserializer)?;
        assert_ne!(fuse, Fuse::Deserialize, "the deserialiser panics");
        Ok(Self(fuse))
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 == Fuse::Drop && !std::thread::panicking() {
            panic!("the destructor panics");
        }
    }
}

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a bomb")
    }
}

#[remote]
fn make(fuse: Fuse) -> Bomb {
    Bomb(fuse)
}

#[remote]
fn fail_with(fuse: Fuse) -> Result<u64, Bomb> {
    Err(Bomb(fuse))
}

#[remote]
fn panic_with(fuse: Fuse) -> u64 {
    std::panic::panic_any(Bomb(fuse))
}

#[remote]
fn panic_on_a_thread_of_its_own() -> bool {
    std::thread::spawn(|| panic!("on another thread")).join().is_err()
}

#[remote(isolated, retries = 0)]
fn overflow_the_stack(n: u64) -> u64 {
    std::hint::black_box(if n == u64::MAX { 0 } else { 1 + overflow_the_stack(std::hint::black_box(n + 1)) })
}

#[remote(isolated, retries = 0)]
fn exit(code: i32) -> u64 {
    eprintln!("that was all");
    std::process::exit(code);
}

/// An actor whose parts panic.
struct Fragile {
    _bomb: Bomb,
}

#[actor]
impl Fragile {
    fn new(fuse: Fuse) -> Self {
        assert_ne!(fuse, Fuse::Serialize, "the constructor panics");
        Self { _bomb: Bomb(fuse) }
    }
    fn ping(&self) -> u64 {
        1
    }
    fn leave(&self) -> aktis::Result<()> {
        aktis::exit_actor()
    }
}

/// Waits until its caller is gone, or for ever.
struct Slow;

#[actor]
impl Slow {
    fn new() -> Self {
        Self
    }
    fn spin(&self) -> u64 {
        spin()
    }
}

#[test]
fn what_no_node_can_run_waits_explains_itself_and_can_be_cancelled() {
    let session = start();
    let _entered = session.enter();
    let unknown = needs_the_unknown::remote(1);
    let too_much = square::options().cpus(64).remote(2);
    let behind = square::remote(&too_much);
    let actor = Slow::options().gpus(7).remote();
    let call = actor.spin();
    eventually("it says what is missing", || unknown.explain().contains("unobtainium"));
    eventually("it says how much it wants", || too_much.explain().contains("64 CPU"));
    eventually("an actor says so, too", || aktis::explain(&actor).contains("7 GPU"));
    assert!(!unknown.is_ready() && !too_much.is_ready() && !behind.is_ready() && !call.is_ready());
    unknown.cancel().unwrap();
    too_much.cancel().unwrap();
    assert!(matches!(unknown.get(), Err(Error::Cancelled(_))));
    assert!(matches!(too_much.get(), Err(Error::Cancelled(_))));
    assert!(task_error(behind.get()).cause().is_some());
    aktis::kill(&actor).unwrap();
    let outcome = call.get_timeout(PATIENCE);
    assert!(matches!(outcome, Err(Error::ActorDied(_))), "{outcome:?}");
    assert_eq!(square::remote(3).get().unwrap(), 9);
}

#[test]
fn an_argument_larger_than_the_store_and_its_room_on_disk_is_refused() {
    let builder = Session::builder().cpus(2).store_bytes(16 << 20);
    let session = builder.spill_bytes_max(16 << 20).start().unwrap();
    let _entered = session.enter();
    let outcome = length::remote(Array::from(vec![0; 32 * MEGABYTE])).get();
    let Err(Error::Store(text)) = outcome else { panic!("{outcome:?}") };
    assert!(text.contains("larger than the object store") && text.contains("hint: "), "{text}");
    assert_eq!(length::remote(Array::from(vec![0; MEGABYTE])).get().unwrap(), MEGABYTE);
}

#[test]
fn values_that_panic_fail_only_their_own_task() {
    let session = start();
    let _entered = session.enter();
    for (outcome, text) in [
        (make::remote(Fuse::Serialize).get(), "the serialiser panics"),
        (make::remote(Fuse::Drop).get(), "the destructor panics"),
        (fail_with::remote(Fuse::Serialize).cast().get(), "the serialiser panics"),
        (fail_with::remote(Fuse::Drop).cast().get(), "the destructor panics"),
    ] {
        let error = task_error(outcome);
        assert!(error.is_panic() && error.message().contains(text), "{error}");
        assert!(error.location().is_some_and(|place| place.contains("bad_input.rs:")), "{error}");
    }
    for fuse in [Fuse::Drop, Fuse::Never] {
        assert!(task_error(panic_with::remote(fuse).get()).is_panic());
    }
    let error = task_error(fail_with::remote(Fuse::Never).get());
    assert_eq!(error.downcast::<Bomb>().map(|bomb| bomb.0), Some(Fuse::Never));
    assert!(panic_on_a_thread_of_its_own::remote().get().unwrap());
    assert_eq!(make::remote(Fuse::Never).get().unwrap().0, Fuse::Never);
}

#[test]
fn panics_on_the_callers_own_thread_are_its_own_and_break_nothing() {
    let session = start();
    let _entered = session.enter();
    let put = catch_unwind(AssertUnwindSafe(|| session.put(Bomb(Fuse::Serialize))));
    assert!(put.is_err());
    let made = make::remote(Fuse::Deserialize);
    for _ in 0..3 {
        let got = catch_unwind(AssertUnwindSafe(|| made.get()));
        assert!(got.is_err(), "it panics as often as it is asked for");
    }
    let error = task_error(fail_with::remote(Fuse::Deserialize).get());
    assert!(catch_unwind(AssertUnwindSafe(|| error.downcast::<Bomb>())).is_err());
    let many: Vec<_> = (0..1000).map(square::remote).collect();
    assert_eq!(session.get_all(&many).unwrap()[999], 999 * 999, "all goes on");
    assert_eq!(session.put(7_u64).unwrap().get().unwrap(), 7);
}

#[test]
fn actors_that_panic_at_birth_or_death_leave_others_alone() {
    let session = start();
    let _entered = session.enter();
    let neighbour = Fragile::remote(Fuse::Never);
    assert_eq!(neighbour.ping().get().unwrap(), 1);
    let stillborn = Fragile::remote(Fuse::Serialize);
    for _ in 0..2 {
        let outcome = stillborn.ping().get();
        let Err(Error::ActorDied(error)) = outcome else { panic!("{outcome:?}") };
        assert!(error.to_string().contains("the constructor panics"), "{error}");
    }
    for ending in 0..4 {
        let options = if ending == 3 { Fragile::options().name("fragile") } else { Fragile::options() };
        let fragile = options.remote(Fuse::Drop);
        assert_eq!(fragile.ping().get().unwrap(), 1);
        match ending {
            0 => drop(fragile),
            1 => aktis::kill(&fragile).unwrap(),
            2 => drop(fragile.leave().get()),
            _ => aktis::kill(&fragile).unwrap(),
        }
        assert_eq!(neighbour.ping().get_timeout(PATIENCE).unwrap(), 1, "after ending {ending}");
        assert_eq!(square::remote(3).get_timeout(PATIENCE).unwrap(), 9, "after ending {ending}");
    }
}

#[test]
fn programs_that_end_themselves_say_how() {
    let session = Session::builder().cpus(2).store_bytes(64 << 20).forward_output(false).start().unwrap();
    let _entered = session.enter();
    for code in [0, 3] {
        let outcome = exit::remote(code).get_timeout(PATIENCE);
        let Err(Error::WorkerDied(error)) = outcome else { panic!("{outcome:?}") };
        let death = error.death().expect("it says how");
        assert_eq!((death.signal, death.exit_code), (None, Some(code)), "{error}");
        assert_eq!(death.stderr_tail, ["that was all"], "{error}");
        assert!(error.to_string().contains(&format!("exited with code {code}")), "{error}");
    }
    let outcome = overflow_the_stack::remote(0).get_timeout(PATIENCE);
    let Err(Error::WorkerDied(error)) = outcome else { panic!("{outcome:?}") };
    let death = error.death().expect("it says how");
    assert!(matches!(death.signal, Some(6 | 11)), "{error}");
    assert!(error.to_string().contains("overflow"), "{error}");
    assert_eq!(square::remote(3).get().unwrap(), 9);
}

#[test]
fn dropping_a_session_wakes_everybody_who_waits() {
    for round in 0..5 {
        let session = start();
        let workers = session.worker_pids();
        let entered = session.enter();
        let spinning: Vec<_> = (0..3).map(|_| spin::remote()).collect();
        let pending = needs_the_unknown::remote(1);
        let behind = square::remote(&spinning[0]);
        let actor = Slow::remote();
        let call = actor.spin();
        let queued: Vec<_> = (0..round * 1000).map(square::remote).collect();
        drop(entered);
        let waiting = AtomicUsize::new(0);
        let all = [&spinning[0], &spinning[2], &pending, &behind, &call];
        std::thread::scope(|scope| {
            let getters: Vec<_> = all
                .into_iter()
                .map(|object| {
                    let waiting = &waiting;
                    scope.spawn(move || {
                        waiting.fetch_add(1, Ordering::SeqCst);
                        object.get()
                    })
                })
                .collect();
            eventually("everybody waits", || waiting.load(Ordering::SeqCst) == all.len());
            session.shutdown();
            for getter in getters {
                assert_eq!(getter.join().unwrap(), Err(Error::Closed));
            }
        });
        for object in &queued {
            assert!(matches!(object.get(), Ok(_) | Err(Error::Closed)));
        }
        assert!(workers.into_iter().all(|pid| !is_running(pid)));
    }
}

#[test]
fn a_session_ends_under_threads_that_use_it() {
    for _ in 0..10 {
        let session = start();
        let done = AtomicBool::new(false);
        let busy = AtomicUsize::new(0);
        let runtime = {
            let _entered = session.enter();
            square::remote(1)
        };
        // The session itself is dropped by this thread, while others hold references and use them.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (runtime, done, busy) = (runtime.clone(), &done, &busy);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        assert!(matches!(runtime.get(), Ok(1) | Err(Error::Closed)));
                        assert!(!runtime.explain().is_empty());
                        drop(runtime.clone());
                        busy.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("they are busy", || busy.load(Ordering::Relaxed) > 100);
            session.shutdown();
            let now = busy.load(Ordering::Relaxed);
            eventually("they still are", || busy.load(Ordering::Relaxed) > now + 10);
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn many_threads_use_one_session() {
    let session = Session::builder().cpus(2).store_bytes(256 << 20).start().unwrap();
    let session = &session;
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            scope.spawn(move || {
                let _entered = session.enter();
                for round in 0..40_u64 {
                    let x = thread * 1000 + round;
                    let refs: Vec<_> = (x..x + 50).map(square::remote).collect();
                    let array = session.put(Array::from(vec![thread as u8; 100_000])).unwrap();
                    let small = session.put(x).unwrap();
                    let lengths = length::remote(&array);
                    assert_eq!(square::remote(small).get().unwrap(), x * x);
                    assert!(array.get().unwrap().iter().all(|byte| u64::from(*byte) == thread));
                    assert_eq!(lengths.get().unwrap(), 100_000);
                    let (ready, rest) = session.wait(refs, 25, PATIENCE).unwrap();
                    assert_eq!((ready.len(), rest.len()), (25, 25));
                    let sum: u64 = ready.iter().chain(&rest).map(|object| object.get().unwrap()).sum();
                    assert_eq!(sum, (x..x + 50).map(|x| x * x).sum());
                }
            });
        }
    });
}

#[test]
fn references_of_an_ended_session_are_closed_in_the_next() {
    let first = start();
    let (done, never, large) = {
        let _entered = first.enter();
        let done = square::remote(5);
        assert_eq!(done.get().unwrap(), 25);
        let large = first.put(Array::from(vec![1_u8; MEGABYTE])).unwrap();
        (done, needs_the_unknown::remote(1), large)
    };
    first.shutdown();
    let second = start();
    let _entered = second.enter();
    assert_eq!(never.get(), Err(Error::Closed));
    assert_eq!(done.get(), Ok(25), "what is in this process stays");
    let outcome = large.get();
    assert!(matches!(outcome, Ok(_) | Err(Error::Closed)), "{outcome:?}");
    let outcome = square::remote(&never).get_timeout(PATIENCE);
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(square::remote(6).get().unwrap(), 36);
}

/// Nobody waits, so nobody takes in what comes: then the one who asks must.
#[test]
fn asking_again_and_again_is_as_good_as_waiting() {
    let session = start();
    let _entered = session.enter();
    for x in 0..20 {
        let object = square::remote(x);
        eventually("it is ready", || object.is_ready());
        let object = square::remote(x);
        eventually("it is explained", || object.explain().contains("it has a value"));
    }
}
