//! Tokio inside asynchronous methods of actors.

mod support;

use aktis::prelude::*;
use std::time::Instant;
use support::{start, task_error};

struct Waiter;

#[actor]
impl Waiter {
    fn new() -> Self {
        Waiter
    }

    async fn sleep(&self, milliseconds: u64) -> u64 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        milliseconds
    }

    async fn spawn(&mut self, number: u64) -> Result<u64, String> {
        let spawned = tokio::spawn(async move {
            tokio::task::yield_now().await;
            assert!(number != 13, "thirteen");
            number * 2
        });
        spawned.await.map_err(|error| error.to_string())
    }

    async fn give_up(&self) -> bool {
        let never = std::future::pending::<()>();
        tokio::time::timeout(Duration::from_millis(5), never).await.is_err()
    }

    /// A reference is awaited beside a timer.
    async fn race(&self, other: WaiterHandle) -> aktis::Result<String> {
        tokio::select! {
            slept = other.sleep(1) => slept.map(|_| "the other".to_owned()),
            () = tokio::time::sleep(Duration::from_secs(60)) => Ok("the timer".to_owned()),
        }
    }
}

#[test]
fn methods_use_timers_and_spawn() {
    let session = start();
    let _entered = session.enter();
    let waiter = Waiter::remote();
    assert_eq!(waiter.spawn(4).get().unwrap(), 8);
    let error = task_error(waiter.spawn(13).get());
    assert!(error.downcast::<String>().is_some_and(|text| text.contains("panicked")), "{error}");
    assert!(waiter.give_up().get().unwrap());
    assert_eq!(waiter.race(Waiter::options().isolated().remote()).get().unwrap(), "the other");
}

#[test]
fn sleeping_methods_overlap() {
    let session = start();
    let _entered = session.enter();
    let waiter = Waiter::remote();
    let begin = Instant::now();
    let sleeps: Vec<_> = (0..50).map(|_| waiter.sleep(200)).collect();
    assert_eq!(session.get_all(&sleeps).unwrap(), [200; 50]);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "one after the other takes 10 s: {:?}",
        begin.elapsed()
    );
}
