//! Actors, streams and references whose worker is killed at any instant: every call has an answer.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use support::processes::{Dice, kill};
use support::{PATIENCE, eventually};

struct Echo {
    calls: u64,
}

#[actor]
impl Echo {
    fn new() -> Self {
        Self { calls: 0 }
    }
    fn echo(&mut self, x: u64) -> u64 {
        self.calls += 1;
        x
    }
    fn count(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }
    fn pid(&self) -> u32 {
        std::process::id()
    }
    fn numbers(&self) -> Array<u64> {
        vec![7; 20_000].into()
    }
}

#[remote(stream)]
fn count_up(n: u64) -> impl Iterator<Item = u64> {
    0..n
}

#[remote]
fn pid() -> u32 {
    std::process::id()
}

#[remote(retries = 100_000)]
fn make_references(n: u64) -> aktis::Result<Vec<ObjectRef<u64>>> {
    (0..n).map(aktis::put).collect()
}

/// Returns results that may still be on their way.
#[remote(retries = 100_000)]
fn start_squares(n: u64) -> Vec<ObjectRef<u64>> {
    (0..n).map(square::remote).collect()
}

/// As deep as it is told, each waiting for the next.
#[remote]
fn descend(depth: u64) -> aktis::Result<u64> {
    if depth == 0 { Ok(0) } else { Ok(1 + descend::remote(depth - 1).get()?) }
}

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

fn quiet() -> Session {
    Session::builder().cpus(2).store_bytes(64 << 20).forward_output(false).start().expect("a session starts")
}

/// Kills workers at any instant until `story` is over; it is told how many.
fn while_workers_die(session: &Session, seed: u64, story: impl FnOnce(&dyn Fn() -> usize)) {
    let (done, killed) = (AtomicBool::new(false), std::sync::Mutex::new(HashSet::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice::new(seed);
            while !done.load(Ordering::Relaxed) {
                dice.dawdle(30_000);
                for pid in session.worker_pids() {
                    kill(pid);
                    killed.lock().expect("no panics").insert(pid);
                }
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            story(&|| killed.lock().expect("no panics").len());
        }));
        done.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn an_actor_that_may_be_restarted_answers_every_call() {
    let session = quiet();
    while_workers_die(&session, 1, |killed| {
        let _entered = session.enter();
        let options = || Echo::options().restarts(100_000).call_retries(100_000);
        let actors = [options().remote(), options().isolated().remote(), options().name("named").remote()];
        let mut x = 0;
        while killed() < 60 {
            let calls: Vec<_> = (x..x + 30).map(|x| (x, actors[x as usize % 3].echo(x))).collect();
            for (x, call) in calls {
                assert_eq!(call.get_timeout(PATIENCE).unwrap(), x, "after {} deaths", killed());
            }
            x += 30;
        }
        let found = Echo::find("named").unwrap();
        assert_eq!(found.echo(5).get_timeout(PATIENCE).unwrap(), 5);
    });
}

#[test]
fn calls_of_an_actor_that_died_fail_and_never_hang() {
    let session = quiet();
    while_workers_die(&session, 2, |killed| {
        let _entered = session.enter();
        while killed() < 60 {
            let (light, heavy) = (Echo::remote(), Echo::options().isolated().remote());
            let calls: Vec<_> =
                (0..200).map(|n| if n % 20 == 0 { heavy.count() } else { light.count() }).collect();
            let mut last = [0, 0];
            for (n, call) in calls.iter().enumerate() {
                match call.get_timeout(PATIENCE) {
                    Ok(count) => {
                        let last = &mut last[usize::from(n % 20 == 0)];
                        assert_eq!(count, *last + 1, "calls run in order, and once");
                        *last = count;
                    }
                    Err(Error::ActorDied(error)) => assert!(!error.to_string().is_empty()),
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    });
    let _entered = session.enter();
    // The one that was killed last may be chosen once more, as long as nobody knows.
    eventually("a new one lives", || Echo::remote().count().get_timeout(PATIENCE) == Ok(1));
}

#[test]
fn a_death_says_so_to_those_who_call_later() {
    let session = quiet();
    let _entered = session.enter();
    let actor = Echo::remote();
    let array = actor.numbers().get().unwrap();
    kill(actor.pid().get().unwrap());
    let outcome = actor.echo(1).get_timeout(PATIENCE);
    let Err(Error::ActorDied(error)) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("SIGKILL"), "{error}");
    assert!(array.iter().all(|number| *number == 7), "what it made stays readable");
    eventually("explain says so", || aktis::explain(&actor).contains("dead"));
}

#[test]
fn a_stream_whose_worker_died_ends_with_the_reason() {
    let session = quiet();
    while_workers_die(&session, 3, |killed| {
        let _entered = session.enter();
        while killed() < 40 {
            let mut expected = 0;
            for item in count_up::remote(3000) {
                match item.and_then(|item| item.get_timeout(PATIENCE)) {
                    Ok(number) => {
                        assert_eq!(number, expected, "items come in order, and once");
                        expected += 1;
                    }
                    Err(Error::WorkerDied(_)) => break,
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    });
}

#[test]
fn references_into_a_dead_worker_give_their_value_or_say_that_it_is_lost() {
    let session = quiet();
    while_workers_die(&session, 4, |killed| {
        let _entered = session.enter();
        while killed() < 40 {
            let both = [make_references::remote(20), start_squares::remote(20)];
            for (container, value_of) in both.iter().zip([|n| n, |n| n * n]) {
                let refs = match container.get_timeout(PATIENCE) {
                    Ok(refs) => refs,
                    Err(Error::Lost(_)) => continue,
                    Err(other) => panic!("{other:?}"),
                };
                let through = square::options().retries(100_000).remote(&refs[3]);
                for (n, object) in (0..).zip(&refs) {
                    match object.get_timeout(PATIENCE) {
                        Ok(value) => assert_eq!(value, value_of(n)),
                        Err(Error::Lost(error)) => assert!(error.message().contains("died"), "{error}"),
                        Err(other) => panic!("{other:?}"),
                    }
                }
                let wanted = value_of(3) * value_of(3);
                match through.get_timeout(PATIENCE) {
                    Ok(value) => assert_eq!(value, wanted),
                    Err(Error::Task(error)) => assert!(error.cause().is_some(), "{error}"),
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    });
}

#[test]
fn a_worker_killed_while_a_task_waits_inside_it_is_replaced() {
    let session = quiet();
    while_workers_die(&session, 5, |killed| {
        let _entered = session.enter();
        while killed() < 40 {
            let deep = descend::options().retries(100_000).remote(10);
            let outcome = deep.get_timeout(PATIENCE);
            assert_eq!(outcome, Ok(10));
        }
    });
}

#[test]
fn an_idle_session_replaces_its_worker_in_time() {
    let session = quiet();
    let _entered = session.enter();
    for _ in 0..10 {
        let first = pid::remote().get_timeout(PATIENCE).unwrap();
        kill(first);
        let actor = Echo::options().restarts(3).call_retries(3).remote();
        assert_ne!(actor.pid().get_timeout(PATIENCE).unwrap(), first);
    }
}

/// As deep as it is told, each waiting for the next on a thread of its own: with a bound, it runs nothing
/// meanwhile.
#[remote]
fn descend_by_threads(depth: u64) -> aktis::Result<u64> {
    if depth == 0 { Ok(0) } else { Ok(1 + descend_by_threads::remote(depth - 1).get_timeout(PATIENCE)?) }
}

/// There are 512 threads in a worker, and the last one never waits.
#[test]
fn a_chain_of_waiting_tasks_that_is_too_deep_is_refused_and_does_not_hang() {
    let session = quiet();
    let _entered = session.enter();
    assert_eq!(descend_by_threads::remote(400).get_timeout(PATIENCE).unwrap(), 400);
    let error = support::task_error(descend_by_threads::remote(1000).get_timeout(PATIENCE));
    assert!(error.to_string().contains("threads of this worker process wait"), "{error}");
    // The task that was not waited for goes on for a while, and waits, too.
    eventually("all threads are back", || descend_by_threads::remote(400).get_timeout(PATIENCE) == Ok(400));
}

#[test]
fn a_deep_chain_of_tasks_that_wait_without_end_needs_few_threads() {
    let session = quiet();
    let _entered = session.enter();
    assert_eq!(descend::remote(1000).get_timeout(PATIENCE), Ok(1000));
}
