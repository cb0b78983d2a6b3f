//! Actors: order, state, errors, names, lives and deaths, concurrency.

mod support;

use aktis::prelude::*;
use aktis::{Error, runtime_context};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::task::{Poll, Waker};
use support::{eventually, start, task_error};

struct Counter {
    total: u64,
}

#[actor]
impl Counter {
    fn new(start: u64) -> Result<Self, String> {
        match start {
            666 => Err("not that number".to_owned()),
            999 => panic!("the constructor panics"),
            _ => Ok(Counter { total: start }),
        }
    }

    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn checked(&self, limit: u64) -> Result<u64, String> {
        if self.total > limit { Err(format!("{} is over {limit}", self.total)) } else { Ok(self.total) }
    }

    fn explode(&mut self) {
        self.total += 1;
        panic!("the method panics");
    }

    fn crash(&self) {
        std::process::abort();
    }

    fn leave(&self) -> aktis::Result<()> {
        aktis::exit_actor()
    }

    fn place(&self) -> (u32, u32) {
        let context = runtime_context().expect("an actor has a context");
        assert!(context.actor.is_some());
        (context.pid, context.attempt)
    }
}

#[remote]
fn add_from_a_task(counter: CounterHandle, n: u64) -> aktis::Result<u64> {
    counter.add(n).get()
}

#[remote]
fn make_counter(start: u64) -> CounterHandle {
    Counter::remote(start)
}

fn is_dead<T>(outcome: &aktis::Result<T>) -> bool {
    matches!(outcome, Err(Error::ActorDied(_)))
}

#[test]
fn calls_run_one_after_another_in_order() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::remote(0);
    let totals: Vec<_> = (1..=10_000).map(|n| counter.add(n)).collect();
    let expected: Vec<u64> = (1..=10_000).map(|n| n * (n + 1) / 2).collect();
    assert_eq!(session.get_all(&totals).unwrap(), expected);
}

#[test]
fn references_as_arguments_do_not_change_the_order() {
    let session = start();
    let _entered = session.enter();
    let (first, second) = (Counter::remote(1), Counter::remote(0));
    let late = second.add(first.add(first.add(1)));
    let last = second.total();
    assert_eq!(late.get().unwrap(), 4);
    assert_eq!(last.get().unwrap(), 4);
}

#[test]
fn each_actor_has_its_own_state() {
    let session = start();
    let _entered = session.enter();
    let counters: Vec<_> = (1_000..2_000).map(Counter::remote).collect();
    let totals: Vec<_> = counters.iter().map(|counter| counter.add(1)).collect();
    assert_eq!(session.get_all(&totals).unwrap(), (1_001..=2_000).collect::<Vec<u64>>());
}

#[test]
fn nothing_stays_on_record_when_actors_and_their_answers_are_gone() {
    let session = start();
    let _entered = session.enter();
    let counters: Vec<_> = (2_000..2_100).map(Counter::remote).collect();
    let totals: Vec<_> = counters.iter().map(|counter| counter.add(1)).collect();
    session.get_all(&totals).unwrap();
    drop((counters, totals));
    eventually("the records go", || session.statistics().recorded_tasks == 0);
}

#[test]
fn handles_travel() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::remote(1);
    assert_eq!(add_from_a_task::remote(&counter, 2).get().unwrap(), 3);
    let boxed = session.put(vec![counter.clone()]).unwrap();
    drop(counter);
    assert_eq!(boxed.get().unwrap()[0].add(3).get().unwrap(), 6);
    let made = make_counter::remote(7).get().unwrap();
    assert_eq!(made.add(1).get().unwrap(), 8, "an actor outlives the task that made it");
}

#[test]
fn errors_and_panics_of_methods_leave_the_actor_alive() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::remote(5);
    let error = task_error(counter.checked(3).get());
    assert_eq!(error.downcast::<String>().as_deref(), Some("5 is over 3"));
    let error = task_error(counter.explode().get());
    assert!(error.is_panic() && error.message().contains("the method panics"), "{error}");
    assert_eq!(counter.total().get().unwrap(), 6);
}

#[test]
fn a_failed_constructor_is_the_reason_of_every_call() {
    let session = start();
    let _entered = session.enter();
    for (start, reason) in [(666, "not that number"), (999, "the constructor panics")] {
        let counter = Counter::remote(start);
        for _ in 0..2 {
            let outcome = counter.total().get();
            assert!(is_dead(&outcome), "{outcome:?}");
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains(reason), "{text}");
        }
    }
}

#[test]
fn named_actors_are_found() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::options().name("the counter").remote(1);
    counter.add(1).get().unwrap();
    assert_eq!(Counter::find("the counter").unwrap().add(1).get().unwrap(), 3);
    let missing = Counter::find("nobody").map(|_| ());
    assert!(matches!(&missing, Err(Error::Invalid(text)) if text.contains("nobody")), "{missing:?}");
    let wrong = Gate::find("the counter").map(|_| ());
    assert!(matches!(&wrong, Err(Error::Invalid(text)) if text.contains("Counter::new")), "{wrong:?}");
    let outcome = Counter::options().name("the counter").remote(1).total().get();
    assert!(matches!(&outcome, Err(error) if error.to_string().contains("the counter")), "{outcome:?}");
}

#[test]
fn threads_may_get_and_drop_handles_of_the_same_actors_at_the_same_time() {
    let session = start();
    let _entered = session.enter();
    let box_of = |start: u64| aktis::put(vec![Counter::remote(start)]).unwrap();
    let boxes: Vec<_> = (0..8).map(box_of).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (session, boxes) = (&session, &boxes);
            scope.spawn(move || {
                let _entered = session.enter();
                for round in 0..500 {
                    let number = (round + thread) % boxes.len();
                    let handles = boxes[number].get().unwrap();
                    if round % 10 == 0 {
                        assert_eq!(
                            handles[0].total().get().unwrap(),
                            number as u64,
                            "it is the one in the box"
                        );
                    }
                }
            });
        }
    });
    for (number, handles) in boxes.iter().enumerate() {
        assert_eq!(handles.get().unwrap()[0].total().get().unwrap(), number as u64);
    }
}

#[test]
fn detached_actors_live_without_handles_and_others_do_not() {
    let session = start();
    let _entered = session.enter();
    let kept = Counter::options().name("kept").detached().remote(1);
    kept.add(1).get().unwrap();
    drop(kept);
    let gone = Counter::options().name("gone").remote(1);
    gone.add(1).get().unwrap();
    drop(gone);
    eventually("the actor ends", || Counter::find("gone").is_err());
    assert_eq!(Counter::find("kept").unwrap().total().get().unwrap(), 2);
}

#[test]
fn calls_before_the_last_handle_goes_are_done() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::remote(0);
    let totals: Vec<_> = (0..100).map(|_| counter.add(1)).collect();
    drop(counter);
    assert_eq!(session.get_all(&totals).unwrap().last(), Some(&100));
}

#[test]
fn a_killed_actor_is_dead() {
    let session = start();
    let _entered = session.enter();
    for counter in [Counter::remote(1), Counter::options().isolated().restarts(5).remote(1)] {
        counter.add(1).get().unwrap();
        counter.kill().unwrap();
        eventually("the actor dies", || is_dead(&counter.total().get()));
        assert!(!counter.explain().is_empty());
    }
}

#[test]
fn an_actor_can_leave() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::options().restarts(3).remote(1);
    counter.leave().get().unwrap();
    eventually("the actor ends", || is_dead(&counter.total().get()));
}

#[test]
fn an_actor_is_restarted_as_often_as_it_may_be() {
    let session = start();
    let _entered = session.enter();
    let counter = Counter::options().isolated().restarts(1).remote(5);
    assert_eq!(counter.add(1).get().unwrap(), 6);
    let (first_pid, _) = counter.place().get().unwrap();
    assert!(counter.crash().get().is_err());
    eventually("the actor is back", || counter.total().get().is_ok());
    assert_eq!(counter.total().get().unwrap(), 5, "its state is new");
    let (second_pid, attempt) = counter.place().get().unwrap();
    assert_ne!(first_pid, second_pid);
    assert_eq!(attempt, 1);
    assert!(counter.crash().get().is_err());
    eventually("the actor is dead", || is_dead(&counter.total().get()));
    assert_eq!(Counter::remote(1).total().get().unwrap(), 1, "others are not affected");
}

#[test]
fn actors_hold_their_resources() {
    let session = start();
    let _entered = session.enter();
    let holders: Vec<_> = (0..2).map(|_| Counter::options().cpus(1).remote(0)).collect();
    for holder in &holders {
        holder.add(1).get().unwrap();
    }
    let waiting = Counter::options().cpus(1).remote(0);
    let call = waiting.total();
    eventually("the node explains", || waiting.explain().contains("CPU"));
    assert!(!call.is_ready());
    drop(holders);
    assert_eq!(call.get().unwrap(), 0, "it starts when there is room");
}

/// Lets callers through when it is open.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, Vec<Waker>)>,
    changes: u32,
}

static INSIDE: AtomicU32 = AtomicU32::new(0);

#[actor]
impl Gate {
    fn new() -> Self {
        Self::default()
    }

    async fn pass(&self, n: u64) -> u64 {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        n
    }

    async fn waiting(&self) -> usize {
        self.state.lock().unwrap().1.len()
    }

    async fn open(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        state.1.drain(..).for_each(Waker::wake);
    }

    /// Gives way in the middle: a call that overlapped would be seen.
    async fn change(&mut self) -> u32 {
        assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "exclusive calls never overlap");
        let mut given_way = false;
        poll_fn(|context| {
            if std::mem::replace(&mut given_way, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.changes += 1;
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        self.changes
    }

    async fn nested(&self, counter: CounterHandle) -> aktis::Result<u64> {
        Ok(counter.add(1).await? + counter.add(1).await?)
    }

    async fn explode(&mut self) {
        panic!("the async method panics");
    }
}

#[test]
fn async_calls_run_at_the_same_time() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    let calls: Vec<_> = (0..100).map(|n| gate.pass(n)).collect();
    eventually("all wait at the gate", || gate.waiting().get().unwrap() == 100);
    assert!(calls.iter().all(|call| !call.is_ready()));
    gate.open().get().unwrap();
    assert_eq!(session.get_all(&calls).unwrap(), (0..100).collect::<Vec<u64>>());
}

#[test]
fn exclusive_async_calls_never_overlap() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    let calls: Vec<_> = (0..200).map(|_| gate.change()).collect();
    assert_eq!(session.get_all(&calls).unwrap(), (1..=200).collect::<Vec<u32>>());
}

#[test]
fn async_methods_await_references_and_survive_panics() {
    let session = start();
    let _entered = session.enter();
    let (gate, counter) = (Gate::remote(), Counter::remote(0));
    assert_eq!(gate.nested(&counter).get().unwrap(), 3);
    let error = task_error(gate.explode().get());
    assert!(error.is_panic(), "{error}");
    assert_eq!(gate.nested(&counter).get().unwrap(), 7);
}

struct Meeting(Barrier);

#[actor(max_concurrency = 2)]
impl Meeting {
    fn new() -> Self {
        Self(Barrier::new(2))
    }
    /// Comes back only when another call is here at the same time.
    fn meet(&self) -> bool {
        self.0.wait();
        true
    }
    fn glance(&self) -> bool {
        true
    }
}

#[test]
fn sync_calls_overlap_where_the_actor_allows_it() {
    let session = start();
    let _entered = session.enter();
    let meeting = Meeting::remote();
    let calls: Vec<_> = (0..6).map(|_| meeting.meet()).collect();
    assert_eq!(session.get_all(&calls).unwrap(), [true; 6]);
}

/// Invariant 2 of `worker::batch`: one thread runs brief calls, and is relieved when one of them blocks.
#[test]
fn sync_calls_overlap_after_brief_ones() {
    let session = start();
    let _entered = session.enter();
    let meeting = Meeting::remote();
    for _ in 0..20 {
        let mut calls: Vec<_> = (0..500).map(|_| meeting.glance()).collect();
        calls.push(meeting.meet());
        calls.extend((0..10).map(|_| meeting.glance()));
        calls.push(meeting.meet());
        assert!(session.get_all(&calls).unwrap().into_iter().all(|met| met));
    }
}

#[remote]
fn when_open(gate: String) -> u64 {
    while !std::path::Path::new(&gate).exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    5
}

#[remote]
fn add_twice(counter: CounterHandle) -> aktis::Result<(u64, u64)> {
    let (first, second) = (counter.add(1), counter.add(2));
    Ok((first.get()?, second.get()?))
}

/// Its constructor waits for an argument while somebody else has a handle, and calls it.
#[test]
fn calls_through_a_handle_do_not_overtake_the_creation_of_the_actor() {
    let session = start();
    let _entered = session.enter();
    let board = tempfile::tempdir().expect("a directory");
    let gate = board.path().join("gate");
    let counter = Counter::remote(when_open::remote(gate.to_str().expect("text")));
    let (called, has_called) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let gate = &gate;
        scope.spawn(move || {
            // The handle may have to wait for the argument; that, it does not do for ever.
            let _ = has_called.recv_timeout(std::time::Duration::from_millis(500));
            std::fs::write(gate, "").expect("written");
        });
        let sums = add_twice::remote(counter.clone()).get_timeout(support::PATIENCE);
        drop(called);
        assert_eq!(sums.unwrap(), (6, 8));
    });
    assert_eq!(counter.total().get().unwrap(), 8);
}
