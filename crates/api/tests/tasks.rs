//! Tasks: values in, values out, references, nesting, waiting, cancelling.

mod support;

use aktis::prelude::*;
use aktis::{Error, runtime_context};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{PATIENCE, block_on, eventually, start};

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[remote]
fn nothing() {}

#[remote]
fn length(bytes: Vec<u8>, text: String) -> usize {
    bytes.len() + text.len()
}

#[remote]
fn fibonacci(n: u64) -> aktis::Result<u64> {
    if n < 2 {
        return Ok(n);
    }
    let (a, b) = (fibonacci::remote(n - 1), fibonacci::remote(n - 2));
    Ok(a.get()? + b.get()?)
}

#[remote(returns = 3)]
fn three(x: u8) -> (u8, String, Vec<u64>) {
    (x, "three".repeat(usize::from(x)), vec![7; 20_000])
}

#[remote]
fn where_am_i() -> (u32, bool, String) {
    let context = runtime_context().expect("a task has a context");
    (context.pid, context.is_worker, context.function.to_string())
}

/// Runs until it is cancelled.
#[remote]
fn until_cancelled() -> bool {
    STARTED.store(true, Ordering::SeqCst);
    while !aktis::is_cancelled() {
        std::thread::yield_now();
    }
    ENDED.store(true, Ordering::SeqCst);
    true
}

static STARTED: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);

#[remote(cpus = 0)]
fn has_started() -> bool {
    STARTED.load(Ordering::SeqCst)
}

#[remote(cpus = 0)]
fn has_ended() -> bool {
    ENDED.load(Ordering::SeqCst)
}

#[remote(resources(unobtainium = 1))]
fn never() -> u64 {
    0
}

#[test]
fn a_task_gives_its_value() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(square::remote(3).get().unwrap(), 9);
    nothing::remote().get().unwrap();
    assert_eq!(square(3), 9, "the function can still be called here");
}

#[test]
fn large_arguments_travel() {
    let session = start();
    let _entered = session.enter();
    for size in [0, 1, 32 << 10, 1 << 20] {
        assert_eq!(length::remote(vec![1; size], "abc").get().unwrap(), size + 3);
    }
}

#[test]
fn references_are_resolved_before_the_function_runs() {
    let session = start();
    let _entered = session.enter();
    let a = square::remote(3);
    let b = square::remote(&a);
    assert_eq!(add::remote(a, b).get().unwrap(), 90);
    let mut sum = session.put(0).unwrap();
    for n in 1..=1000 {
        sum = add::remote(sum, n);
    }
    assert_eq!(sum.get().unwrap(), 500_500);
}

#[test]
fn nested_tasks_that_wait_need_no_more_cpus() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(fibonacci::remote(12).get().unwrap(), 144);
}

#[test]
fn tens_of_thousands_of_tasks_all_finish() {
    let session = start();
    let _entered = session.enter();
    let refs: Vec<_> = (0..50_000).map(square::remote).collect();
    for (x, square) in (0..).zip(refs) {
        assert_eq!(square.get().unwrap(), x * x);
    }
}

#[test]
fn a_producer_that_is_too_fast_is_slowed_down() {
    let session = Session::builder().cpus(2).queued_tasks_max(64).start().unwrap();
    let _entered = session.enter();
    let refs: Vec<_> = (0..5_000).map(square::remote).collect();
    assert_eq!(session.get_all(&refs).unwrap().len(), 5_000);
}

#[test]
fn threads_of_the_driver_submit_at_the_same_time() {
    let session = start();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let session = &session;
            scope.spawn(move || {
                let _entered = session.enter();
                let refs: Vec<_> = (0..1_000).map(|n| add::remote(n, thread)).collect();
                let sum: u64 = session.get_all(&refs).unwrap().into_iter().sum();
                assert_eq!(sum, 499_500 + 1_000 * thread);
            });
        }
    });
}

#[test]
fn several_returns_are_several_references() {
    let session = start();
    let _entered = session.enter();
    let (small, text, large) = three::remote(2);
    assert_eq!(large.get().unwrap(), vec![7; 20_000]);
    assert_eq!(text.get().unwrap(), "threethree");
    assert_eq!(square::remote(7).get().unwrap(), 49);
    assert_eq!(small.get().unwrap(), 2);
}

#[test]
fn references_can_be_awaited() {
    let session = start();
    let _entered = session.enter();
    let value = block_on(async {
        let nine = square::remote(3);
        let first = nine.clone().await?;
        Ok::<_, Error>(first + square::remote(nine).await?)
    });
    assert_eq!(value.unwrap(), 90);
}

#[test]
fn tasks_run_in_another_process_and_know_where() {
    let session = start();
    let _entered = session.enter();
    let (pid, is_worker, function) = where_am_i::remote().get().unwrap();
    assert_ne!(pid, std::process::id());
    assert!(is_worker);
    assert!(function.ends_with("where_am_i"), "{function}");
    let here = runtime_context().unwrap();
    assert_eq!((here.pid, here.is_worker), (std::process::id(), false));
}

#[test]
fn wait_gives_at_most_as_many_as_asked_for_in_order() {
    let session = start();
    let _entered = session.enter();
    let refs = vec![square::remote(1), never::remote(), square::remote(2), square::remote(3)];
    let ids: Vec<_> = refs.iter().map(ObjectRef::id).collect();
    let (ready, rest) = session.wait(refs, 3, PATIENCE).unwrap();
    assert_eq!(ready.iter().map(ObjectRef::id).collect::<Vec<_>>(), [ids[0], ids[2], ids[3]]);
    assert_eq!(rest.iter().map(ObjectRef::id).collect::<Vec<_>>(), [ids[1]]);
    let (one, two) = session.wait(ready, 1, None).unwrap();
    assert_eq!((one.len(), two.len()), (1, 2));
    assert_eq!(one[0].id(), ids[0]);
    let (none, all) = session.wait(rest, 1, Duration::from_millis(20)).unwrap();
    assert_eq!((none.len(), all.len()), (0, 1));
}

#[test]
fn wait_counts_a_reference_that_is_given_twice_twice() {
    let session = start();
    let _entered = session.enter();
    let one = square::remote(1);
    let (ready, rest) = session.wait(vec![one.clone(), one.clone()], 1, None).unwrap();
    assert_eq!((ready.len(), rest.len()), (1, 1));
    let (ready, rest) = session.wait(vec![one.clone(), one], 2, None).unwrap();
    assert_eq!((ready.len(), rest.len()), (2, 0));
}

#[test]
fn wait_keeps_the_order_of_ready_and_rest() {
    let session = start();
    let _entered = session.enter();
    let mut left: Vec<_> = (0..200).map(square::remote).collect();
    let ids: Vec<_> = left.iter().map(|object| object.id()).collect();
    session.get_all(&left).unwrap();
    let mut seen = Vec::new();
    for count in (1..=3).cycle() {
        let (ready, rest) = session.wait(left, count, None).unwrap();
        seen.extend(ready.iter().map(|object| object.id()));
        left = rest;
        if left.len() < 3 {
            break;
        }
    }
    seen.extend(left.iter().map(|object| object.id()));
    assert_eq!(seen, ids);
}

#[test]
fn wait_for_more_than_there_are_waits_for_all() {
    let session = start();
    let _entered = session.enter();
    let refs = vec![square::remote(1), square::remote(2)];
    let (ready, rest) = session.wait(refs, 3, PATIENCE).unwrap();
    assert_eq!((ready.len(), rest.len()), (2, 0));
    let refs = ready.into_iter().chain([never::remote()]).collect();
    let (ready, rest) = session.wait(refs, usize::MAX, Duration::from_millis(20)).unwrap();
    assert_eq!((ready.len(), rest.len()), (2, 1));
}

#[test]
fn wait_for_nothing_returns_at_once() {
    let session = start();
    let _entered = session.enter();
    let (none, nobody) = session.wait(Vec::<ObjectRef<u64>>::new(), 0, None).unwrap();
    assert!(none.is_empty() && nobody.is_empty());
}

#[test]
fn get_with_a_timeout_gives_up_while_the_work_goes_on() {
    let session = start();
    let _entered = session.enter();
    let pending = never::remote();
    let time = Duration::from_millis(20);
    assert_eq!(pending.get_timeout(time), Err(Error::Timeout(time)));
    assert!(!pending.is_ready());
    assert_eq!(square::remote(2).get_timeout(PATIENCE), Ok(4));
}

#[test]
fn a_pending_task_can_be_cancelled() {
    let session = start();
    let _entered = session.enter();
    let pending = never::remote();
    let behind = add::remote(&pending, 1);
    pending.cancel().unwrap();
    assert!(matches!(pending.get(), Err(Error::Cancelled(_))));
    let error = support::task_error(behind.get());
    assert!(error.cause().is_some(), "{error}");
}

#[test]
fn a_running_task_sees_that_it_is_cancelled() {
    let session = start();
    let _entered = session.enter();
    let running = until_cancelled::remote();
    eventually("the task starts", || has_started::remote().get().unwrap());
    aktis::cancel(&running).unwrap();
    let outcome = running.get();
    assert!(matches!(outcome, Err(Error::Cancelled(_))), "{outcome:?}");
    eventually("the task ends", || has_ended::remote().get().unwrap());
}
