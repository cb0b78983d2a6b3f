//! References in the order in which they finish, and waits for many that do not block.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::sync::Mutex;
use std::time::Instant;
use support::{PATIENCE, block_on, start, task_error};

/// Opens by name, so that a test says which task finishes next.
#[derive(Default)]
struct Gate {
    open: Mutex<Vec<u64>>,
}

#[actor(max_concurrency = 64)]
impl Gate {
    fn new() -> Self {
        Self::default()
    }

    fn pass(&self, number: u64) -> u64 {
        while !self.open.lock().unwrap().contains(&number) {
            std::thread::yield_now();
        }
        number
    }

    fn open(&self, number: u64) {
        self.open.lock().unwrap().push(number);
    }
}

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn fail(reason: String) -> Result<u64, String> {
    Err(reason)
}

#[remote]
fn sum_as_completed(numbers: Vec<ObjectRef<u64>>) -> aktis::Result<u64> {
    let own = (0..10).map(square::remote);
    aktis::as_completed(own.chain(numbers)).map(|done| done?.get()).sum()
}

#[remote]
fn wait_until_cancelled(gate: GateHandle) -> aktis::Result<bool> {
    let mut never = aktis::as_completed([gate.pass(u64::MAX)]);
    gate.open(1).get()?;
    Ok(matches!(never.next(), Some(Err(Error::Cancelled(_)))))
}

#[test]
fn references_come_in_the_order_in_which_they_finish() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    let mut done = session.as_completed((0..8).map(|number| gate.pass(number)));
    for number in [3, 0, 7, 1, 2, 6, 5, 4] {
        assert!(matches!(done.next_timeout(Duration::from_millis(1)), Some(Err(Error::Timeout(_)))));
        gate.open(number).get().unwrap();
        assert_eq!(done.next().unwrap().unwrap().get().unwrap(), number);
    }
    assert!(done.next().is_none());
    done.extend([square::remote(9), fail::remote("no")]);
    assert_eq!(done.unfinished(), 2);
    let outcomes: Vec<_> = done.map(|done| done.unwrap().get()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Ok(81))).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1, "a failure is an outcome");
}

#[test]
fn timeout_ends_the_loop_and_leaves_the_unfinished() {
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    let refs = [gate.pass(0), square::remote(2), gate.pass(1)];
    refs[1].get().unwrap();
    let mut done = aktis::as_completed(refs).timeout(Duration::from_millis(30));
    let items: Vec<_> = done.by_ref().collect();
    assert_eq!(items.len(), 2, "{items:?}");
    assert_eq!(items[0].as_ref().unwrap().get().unwrap(), 4);
    assert_eq!(items[1], Err(Error::Timeout(Duration::from_millis(30))));
    let rest = done.into_unfinished();
    gate.open(0).get().unwrap();
    gate.open(1).get().unwrap();
    assert_eq!(session.get_all(&rest).unwrap(), [0, 1]);
}

#[test]
fn references_of_two_sessions_and_failed_submissions_can_be_mixed() {
    let unsubmitted = square::remote(1);
    let (one, two) = (start(), start());
    let mut refs = vec![unsubmitted];
    for session in [&one, &two] {
        let _entered = session.enter();
        refs.extend((0..50).map(square::remote));
    }
    let (ok, failed): (Vec<_>, Vec<_>) =
        aktis::as_completed(refs).map(|done| done.unwrap().get()).partition(aktis::Result::is_ok);
    assert_eq!((ok.len(), failed.len()), (100, 1));
    assert_eq!(failed[0], Err(Error::NotInitialised));
}

#[test]
fn end_of_the_session_ends_the_loop() {
    let session = start();
    let done = {
        let _entered = session.enter();
        let gate = Gate::remote();
        aktis::as_completed([gate.pass(0)])
    };
    drop(session);
    let outcomes: Vec<_> = done.map(|done| done.and_then(|done| done.get())).collect();
    assert_eq!(outcomes.len(), 1);
    assert!(outcomes[0].is_err(), "{outcomes:?}");
}

#[test]
fn tasks_wait_for_borrowed_references_and_end_when_cancelled() {
    let session = start();
    let _entered = session.enter();
    let numbers: Vec<_> = (0..10).map(square::remote).collect();
    assert_eq!(sum_as_completed::remote(numbers).get().unwrap(), 2 * 285);
    let gate = Gate::remote();
    let waits = wait_until_cancelled::remote(gate.clone());
    gate.pass(1).get().unwrap();
    waits.cancel().unwrap();
    assert!(matches!(waits.get(), Err(Error::Cancelled(_))));
    gate.kill().unwrap();
}

/// A loop that asks all references at each step takes some seconds for as many.
#[test]
fn cost_of_each_is_constant() {
    let session = start();
    let _entered = session.enter();
    let time = |count: u64| {
        let refs: Vec<_> = (0..count).map(square::remote).collect();
        session.get_all(&refs).unwrap();
        let begin = Instant::now();
        let total: u64 = aktis::as_completed(refs).map(|done| done.unwrap().get().unwrap()).sum();
        assert_eq!(total, (0..count).map(|n| n * n).sum());
        begin.elapsed()
    };
    time(1_000);
    let (few, many) = (time(2_000), time(50_000));
    assert!(many < 250 * few.max(Duration::from_micros(100)), "2000 in {few:?}, 50000 in {many:?}");
}

#[test]
fn many_are_awaited_without_a_thread() {
    use futures_util::StreamExt;
    let session = start();
    let _entered = session.enter();
    let gate = Gate::remote();
    let mut done = aktis::as_completed((0..3).map(|number| gate.pass(number))).into_async();
    for number in [1, 2, 0] {
        gate.open(number).get().unwrap();
        let reference = block_on(done.next()).unwrap().unwrap();
        assert_eq!(block_on(reference).unwrap(), number);
    }
    assert!(block_on(done.next()).is_none());

    let refs: Vec<_> = (0..100).map(square::remote).collect();
    let squares = block_on(aktis::get_all_async(&refs)).unwrap();
    assert_eq!(squares, block_on(session.get_all_async(&refs)).unwrap());
    assert_eq!(squares[99], 9_801);
    let failed = [square::remote(1), fail::remote("no")];
    assert_eq!(task_error(block_on(aktis::get_all_async(&failed))).message(), "no");

    let refs = vec![gate.pass(10), square::remote(1), gate.pass(11), square::remote(2)];
    let (ready, rest) = block_on(session.wait_async(refs, 2)).unwrap();
    assert_eq!(block_on(aktis::get_all_async(&ready)).unwrap(), [1, 4]);
    gate.open(10).get().unwrap();
    let (ready, rest) = block_on(aktis::wait_async(rest, 1)).unwrap();
    assert_eq!(ready[0].get_timeout(PATIENCE).unwrap(), 10);
    gate.open(11).get().unwrap();
    let (ready, rest) = block_on(aktis::wait_async(rest, 2)).unwrap();
    assert_eq!((ready.len(), rest.len()), (1, 0), "more than there are means all");
    gate.kill().unwrap();
}
