//! Waiting without the interpreter's lock, also while the interpreter ends.
//!
//! A thread that wants the lock back while the interpreter ends is ended by it, in the middle of our frames, which is more
//! than they can bear. So once the program exits, threads other than the main one do not come back at all; and it does not
//! exit while one is on its way.

use pyo3::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How long the end of the program waits for threads that come back. They need nothing but the interpreter's lock.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);

/// The thread that ends the program.
static EXITING: OnceLock<ThreadId> = OnceLock::new();

/// Threads that were not left behind, and wait for the interpreter's lock.
static COMING_BACK: AtomicUsize = AtomicUsize::new(0);

/// The program exits: from now on only the calling thread comes back from waiting.
#[pyfunction]
pub(crate) fn begin_exit(py: Python<'_>) {
    let _ = EXITING.set(std::thread::current().id());
    if is_left_behind() || COMING_BACK.load(Ordering::SeqCst) == 0 {
        return;
    }
    py.detach(|| {
        let began = Instant::now();
        while COMING_BACK.load(Ordering::SeqCst) > 0 && began.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    });
}

/// Whether the program exits on another thread.
pub(crate) fn is_left_behind() -> bool {
    EXITING.get().is_some_and(|main| *main != std::thread::current().id())
}

/// Whether this is the main thread of the process, which has the number of the process; also in a fork.
pub(crate) fn is_main() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Runs `wait` without the interpreter's lock.
pub(crate) fn detached<R: Send>(py: Python<'_>, wait: impl Send + FnOnce() -> R) -> R {
    let result = py.detach(|| {
        let result = wait();
        // Before the question: whoever has been told to come back is counted when the program begins to exit.
        COMING_BACK.fetch_add(1, Ordering::SeqCst);
        if is_left_behind() {
            COMING_BACK.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        result
    });
    COMING_BACK.fetch_sub(1, Ordering::SeqCst);
    result
}

/// A thread that the program leaves behind goes no further: before it runs Python code inside of our frames.
pub(crate) fn stay_if_left_behind(py: Python<'_>) {
    if is_left_behind() {
        detached(py, || ());
    }
}

/// Runs `wait`, for a thread that may have the interpreter's lock, without it.
pub(crate) fn let_go(wait: &mut (dyn FnMut() + Send)) {
    let mut wait = Some(wait);
    let waited = Python::try_attach(|py| wait.take().map(|wait| detached(py, wait)));
    if let (None, Some(wait)) = (waited, wait) {
        // The interpreter is gone, or going.
        wait();
    }
}
