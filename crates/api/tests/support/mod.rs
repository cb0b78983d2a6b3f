//! What the tests share.
#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod processes;

use aktis::prelude::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Long enough for anything that is to happen at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A private session with two CPUs.
pub(crate) fn start() -> Session {
    Session::builder().cpus(2).store_bytes(64 << 20).start().expect("a session starts")
}

/// Asks again and again, until the answer is yes.
pub(crate) fn eventually(what: &str, mut answer: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !answer() {
        assert!(begin.elapsed() < PATIENCE, "this never happened: {what}");
        std::thread::yield_now();
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
    }
}

/// What an error is about, as a task's error.
pub(crate) fn task_error<T: std::fmt::Debug>(outcome: aktis::Result<T>) -> aktis::TaskError {
    match outcome {
        Err(aktis::Error::Task(error)) => error,
        other => panic!("expected a task's error, got {other:?}"),
    }
}
