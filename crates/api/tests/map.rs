//! A remote function over the items of an iterator: order, laziness, failures, and what travels.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{block_on, eventually, start, task_error};

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn divide(a: i64, b: i64) -> Result<i64, String> {
    assert!(a != 13, "thirteen is bad luck");
    a.checked_div(b).ok_or_else(|| "division by zero".to_owned())
}

#[remote]
fn task_of(_item: u64) -> aktis::Result<aktis::TaskId> {
    Ok(aktis::runtime_context()?.task)
}

#[remote]
fn filled(len: usize) -> Array<u32> {
    vec![len as u32; len].into()
}

#[remote]
fn length(array: Array<u32>) -> usize {
    array.len()
}

#[remote]
fn stored(x: u64) -> aktis::Result<ObjectRef<u64>> {
    aktis::put(x)
}

#[remote]
fn squares_of_squares(to: u64) -> aktis::Result<u64> {
    square::map(0..to).sum()
}

static RUN: AtomicU64 = AtomicU64::new(0);

#[remote]
fn count_runs(_item: u64) {
    RUN.fetch_add(1, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(1));
}

#[remote(cpus = 0)]
fn runs() -> u64 {
    RUN.load(Ordering::SeqCst)
}

#[remote(isolated, retries = 1)]
fn abort_first(item: u64) -> u32 {
    let attempt = aktis::runtime_context().unwrap().attempt;
    if attempt == 0 && item == 5 {
        std::process::abort();
    }
    attempt
}

#[test]
fn results_come_in_the_order_of_the_items() {
    let session = start();
    let _entered = session.enter();
    let expected: Vec<u64> = (0..20_000).map(|n| n * n).collect();
    assert_eq!(square::map(0..20_000).collect::<aktis::Result<Vec<_>>>().unwrap(), expected);
    assert_eq!(
        square::map(0..20_000).chunk_size(7).in_flight(3).map(Result::unwrap).collect::<Vec<_>>(),
        expected
    );
    let odd = (0..20_000).filter(|n| n % 2 == 1);
    let unknown_length: Vec<_> = square::map(odd).map(Result::unwrap).collect();
    assert_eq!(unknown_length, expected.iter().copied().skip(1).step_by(2).collect::<Vec<_>>());
    assert_eq!(square::map(std::iter::empty::<u64>()).count(), 0);
}

#[test]
fn unordered_results_are_all_there() {
    let session = start();
    let _entered = session.enter();
    let mut map = square::map(0..5_000);
    let first = map.next().unwrap().unwrap();
    let mut all: Vec<_> = map.unordered().map(Result::unwrap).collect();
    all.push(first);
    all.sort_unstable();
    assert_eq!(all, (0..5_000).map(|n| n * n).collect::<Vec<_>>());
}

#[test]
fn many_items_share_a_task() {
    let session = start();
    let _entered = session.enter();
    let tasks: std::collections::HashSet<_> = task_of::map(0..20_000).map(Result::unwrap).collect();
    assert!(tasks.len() < 4_000, "{} tasks for 20000 short items", tasks.len());
    let tasks: std::collections::HashSet<_> =
        task_of::options().cpus(0.5).map(0..100).chunk_size(10).map(Result::unwrap).collect();
    assert_eq!(tasks.len(), 10);
}

#[test]
fn failure_is_of_its_item_alone_and_says_which() {
    let session = start();
    let _entered = session.enter();
    let pairs = (0..50).map(|n| (n, i64::from(n % 20 != 7)));
    let outcomes: Vec<_> = divide::map(pairs).chunk_size(16).collect();
    assert_eq!(outcomes.len(), 50);
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match n {
            7 | 27 | 47 => {
                let error = task_error(outcome);
                assert_eq!(error.downcast::<String>().as_deref(), Some("division by zero"));
                assert_eq!(error.message(), format!("item {n}: division by zero"));
                assert!(error.function().ends_with("divide::map"), "{error}");
            }
            13 => {
                let error = task_error(outcome);
                assert!(error.is_panic() && error.location().is_some(), "{error}");
                let text = error.to_string();
                assert!(text.contains("item 13: ") && text.contains("thirteen is bad luck"), "{text}");
                assert!(error.pid().is_some_and(|pid| pid != std::process::id()));
            }
            _ => assert_eq!(outcome, Ok(n as i64)),
        }
    }
}

#[test]
fn map_takes_items_only_as_they_are_wanted() {
    let session = start();
    let _entered = session.enter();
    let taken = Cell::new(0);
    let mut map = square::map((0..).inspect(|_| taken.set(taken.get() + 1))).chunk_size(2).in_flight(4);
    assert_eq!(taken.get(), 0, "nothing was asked for");
    for n in 0..100_u64 {
        assert_eq!(map.next().unwrap().unwrap(), n * n);
        assert!(taken.get() <= n + 2 * 4 + 2, "{} items were taken for {n}", taken.get());
    }
}

#[test]
fn dropped_map_cancels_what_is_in_flight() {
    let session = start();
    let _entered = session.enter();
    let mut map = count_runs::map(0..100_000).chunk_size(10_000);
    eventually("a chunk runs", || {
        let _ = block_on_ready(&mut map);
        runs::remote().get().unwrap() > 0
    });
    drop(map);
    let mut before = runs::remote().get().unwrap();
    eventually("no chunk runs any more", || {
        std::thread::sleep(Duration::from_millis(20));
        let now = runs::remote().get().unwrap();
        std::mem::replace(&mut before, now) == now
    });
    assert!(before < 50_000, "{before} of 100000 items ran");
}

/// Polls once, so that the map submits its chunks.
fn block_on_ready<S: futures_util::Stream + Unpin>(stream: &mut S) -> Option<Option<S::Item>> {
    use futures_util::FutureExt;
    futures_util::StreamExt::next(stream).now_or_never()
}

#[test]
fn arrays_and_references_go_both_ways() {
    let session = start();
    let _entered = session.enter();
    let lengths = [0, 1, 10_000, 100_000, 3];
    let arrays: Vec<_> = filled::map(lengths).map(Result::unwrap).collect();
    assert_eq!(arrays.iter().map(|array| array.len()).collect::<Vec<_>>(), lengths);
    assert!(arrays[3].iter().all(|x| *x == 100_000));
    assert_eq!(length::map(arrays).map(Result::unwrap).collect::<Vec<_>>(), lengths);
    let references = lengths.map(filled::remote);
    assert_eq!(length::map(&references).map(Result::unwrap).collect::<Vec<_>>(), lengths);

    let stored: Vec<_> = stored::map(0..100).map(Result::unwrap).collect();
    assert_eq!(session.get_all(&stored).unwrap(), (0..100).collect::<Vec<_>>());
    assert_eq!(square::map(stored).map(Result::unwrap).sum::<u64>(), 328_350);
    assert_eq!(squares_of_squares::remote(1_000).get().unwrap(), 332_833_500);
}

#[remote]
fn fail_at(n: u64, bad: u64) -> Result<u64, String> {
    if n == bad { Err("a bad input".to_owned()) } else { Ok(n) }
}

#[test]
fn failed_reference_fails_its_item_alone() {
    let session = start();
    let _entered = session.enter();
    let inputs: Vec<_> = (0..40).map(|n| fail_at::remote(n, 21)).collect();
    let check = |outcomes: Vec<aktis::Result<u64>>| {
        assert_eq!(outcomes.len(), 40);
        for (n, outcome) in (0..).zip(outcomes) {
            if n == 21 {
                let error = task_error(outcome);
                assert_eq!(error.downcast::<String>().as_deref(), Some("a bad input"));
                assert!(error.message().starts_with("item 21: "), "{error}");
            } else {
                assert_eq!(outcome, Ok(n * n));
            }
        }
    };
    check(square::map(&inputs).collect());
    check(square::map(&inputs).chunk_size(16).in_flight(2).collect());
}

#[test]
fn large_items_between_small_ones_keep_their_order() {
    let session = start();
    let _entered = session.enter();
    let lengths = [1, 2, 100_000, 3, 100_000, 100_000, 4, 5, 100_000];
    let items: Vec<Array<u32>> = lengths.iter().map(|&len| vec![7; len].into()).collect();
    let map = length::map(items).chunk_size(4);
    assert_eq!(map.size_hint(), (0, Some(lengths.len())));
    assert_eq!(map.map(Result::unwrap).collect::<Vec<_>>(), lengths);
}

#[test]
fn reference_of_another_session_fails_its_item_alone() {
    let (other, session) = (start(), start());
    let foreign = other.put(3_u64).unwrap();
    let _entered = session.enter();
    let own: Vec<_> = (0..30).map(|n| session.put(n).unwrap()).collect();
    let items = || own[..10].iter().chain([&foreign]).chain(&own[10..]);
    let check = |outcomes: Vec<aktis::Result<u64>>| {
        let (good, bad): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(good.into_iter().map(Result::unwrap).sum::<u64>(), (0..30).map(|n| n * n).sum());
        let [Err(Error::Invalid(text))] = &bad[..] else { panic!("{bad:?}") };
        assert!(text.contains("item 10: ") && text.contains("belongs to another session"), "{text}");
    };
    let outcomes: Vec<_> = square::map(items()).collect();
    assert!(outcomes[10].is_err(), "{outcomes:?}");
    check(outcomes);
    check(square::map(items()).chunk_size(4).in_flight(1).collect());
    check(square::map(items()).unordered().collect());
}

#[test]
fn chunk_of_a_dead_worker_runs_again() {
    let session = start();
    let _entered = session.enter();
    let attempts: Vec<_> = abort_first::map(0..8).chunk_size(4).map(Result::unwrap).collect();
    assert_eq!(attempts, [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn map_without_a_session_gives_one_error() {
    let results: Vec<_> = square::map(0..10).collect();
    assert_eq!(results, [Err(Error::NotInitialised)]);
    let session = start();
    let mut map = {
        let _entered = session.enter();
        square::map(0..).chunk_size(1).in_flight(1)
    };
    assert_eq!(map.next(), Some(Ok(0)));
    drop(session);
    assert!(map.take(1_000).count() < 10, "the end of the session ends the map");
}

#[test]
fn map_is_an_async_stream() {
    use futures_util::TryStreamExt;
    let session = start();
    let _entered = session.enter();
    let squares: Vec<u64> = block_on(square::map(0..3_000).into_async().try_collect()).unwrap();
    assert_eq!(squares, (0..3_000).map(|n| n * n).collect::<Vec<_>>());
    let mut squares: Vec<u64> =
        block_on(square::map(0..3_000).unordered().into_async().try_collect()).unwrap();
    squares.sort_unstable();
    assert_eq!(squares[2_999], 2_999 * 2_999);
}
