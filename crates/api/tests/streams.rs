//! Streams: items in order, back-pressure, failures, and consumers that leave.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::{block_on, eventually, start, task_error};

#[remote(stream)]
fn count(to: u64) -> impl Iterator<Item = u64> {
    0..to
}

#[remote(stream)]
fn arrays(count: u8) -> Box<dyn Iterator<Item = Array<u8>>> {
    Box::new((0..count).map(|n| vec![n; 1 << 20].into()))
}

#[remote(stream)]
fn until_three() -> impl Iterator<Item = Result<u64, String>> {
    (0..10).map(|n| if n == 3 { Err("three is too many".to_owned()) } else { Ok(n) })
}

#[remote(stream)]
fn panic_at(end: u64) -> impl Iterator<Item = u64> {
    (0..).inspect(move |n| assert!(*n < end, "the iterator panics"))
}

#[remote(stream)]
fn refuse(reason: String) -> Result<impl Iterator<Item = u64>, String> {
    if reason.is_empty() { Ok(0..1) } else { Err(reason) }
}

static PRODUCED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicBool = AtomicBool::new(false);

struct Endless;

impl Iterator for Endless {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        Some(PRODUCED.fetch_add(1, Ordering::SeqCst))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        DROPPED.store(true, Ordering::SeqCst);
    }
}

#[remote(stream, stream_ahead = 5)]
fn endless() -> impl Iterator<Item = u64> {
    Endless
}

/// Runs in the same worker process as the stream.
#[remote(cpus = 0)]
fn produced() -> u64 {
    PRODUCED.load(Ordering::SeqCst)
}

#[remote(cpus = 0)]
fn dropped() -> bool {
    DROPPED.load(Ordering::SeqCst)
}

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

fn values<T: serde::de::DeserializeOwned>(stream: ObjectStream<T>) -> aktis::Result<Vec<T>> {
    stream.map(|item| item?.get()).collect()
}

#[test]
fn items_come_in_order_and_end() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(values(count::remote(1_000)).unwrap(), (0..1_000).collect::<Vec<u64>>());
    assert!(values(count::remote(0)).unwrap().is_empty());
    let mut stream = count::remote(1);
    assert!(stream.next().is_some());
    assert!(stream.next().is_none());
    assert!(stream.next().is_none(), "the end stays the end");
}

#[test]
fn items_are_references_like_others() {
    let session = start();
    let _entered = session.enter();
    let squares: Vec<_> = count::remote(10).map(|item| square::remote(item.unwrap())).collect();
    assert_eq!(session.get_all(&squares).unwrap()[9], 81);
    for (n, array) in (0..).zip(arrays::remote(20)) {
        assert!(array.unwrap().get().unwrap().iter().all(|byte| *byte == n));
    }
}

#[test]
fn a_producer_is_only_so_far_ahead() {
    let session = start();
    let _entered = session.enter();
    let mut stream = endless::remote();
    for taken in 1..=200 {
        let item = stream.next().expect("it is endless").unwrap();
        assert_eq!(item.get().unwrap(), taken - 1);
        let ahead = produced::remote().get().unwrap() - taken;
        assert!(ahead <= 5 + 1, "{ahead} items ahead, though 5 (and one being made) are allowed");
    }
    drop(stream);
    eventually("the iterator is dropped", || dropped::remote().get().unwrap());
}

#[test]
fn a_failure_is_the_last_item() {
    let session = start();
    let _entered = session.enter();
    let mut stream = until_three::remote();
    for n in 0..3 {
        assert_eq!(stream.next().unwrap().unwrap().get().unwrap(), n);
    }
    let error = task_error(stream.next().unwrap());
    assert_eq!(error.downcast::<String>().as_deref(), Some("three is too many"));
    assert!(stream.next().is_none());

    let items: Vec<_> = panic_at::remote(2).collect();
    assert_eq!(items.len(), 3);
    assert!(matches!(&items[2], Err(Error::Task(error)) if error.is_panic()), "{items:?}");
    let collected = panic_at::remote(2).collect::<aktis::Result<Vec<_>>>();
    assert!(task_error(collected).is_panic(), "a failed stream cannot be collected");

    let error = task_error(values(refuse::remote("closed today")));
    assert_eq!(error.downcast::<String>().as_deref(), Some("closed today"));
}

#[test]
fn streams_can_be_awaited() {
    let session = start();
    let _entered = session.enter();
    let total = block_on(async {
        let (mut stream, mut total) = (count::remote(100), 0);
        while let Some(item) = stream.next_async().await {
            total += item?.await?;
        }
        Ok::<_, Error>(total)
    });
    assert_eq!(total.unwrap(), 4_950);
}

#[test]
fn stream_goes_through_the_combinators_of_async_streams() {
    use futures_util::{StreamExt, TryStreamExt};
    let session = start();
    let _entered = session.enter();
    let doubled = count::remote(100).into_async().then(|item| async { Ok::<_, Error>(2 * item?.await?) });
    let doubled: Vec<u64> = block_on(doubled.try_collect()).unwrap();
    assert_eq!(doubled, (0..100).map(|n| 2 * n).collect::<Vec<_>>());

    let failed: aktis::Result<Vec<_>> = block_on(until_three::remote().into_async().try_collect());
    assert_eq!(task_error(failed).downcast::<String>().as_deref(), Some("three is too many"));
    let count_items = |items: ObjectStream<u64>| block_on(futures_util::StreamExt::count(items));
    assert_eq!(count_items(until_three::remote()), 4, "three items, and the failure");
}
