//! Waiting without the interpreter's lock, also while the interpreter ends.
//!
//! A thread that wants the lock back while the interpreter ends is ended by it, in the middle of our frames, which is more
//! than they can bear. So once the program exits, threads other than the main one do not come back at all.

use pyo3::prelude::*;
use std::sync::OnceLock;
use std::thread::ThreadId;

/// The thread that ends the program.
static EXITING: OnceLock<ThreadId> = OnceLock::new();

/// The program exits: from now on only the calling thread comes back from waiting.
#[pyfunction]
pub(crate) fn begin_exit() {
    let _ = EXITING.set(std::thread::current().id());
}

/// Whether the program exits on another thread.
pub(crate) fn is_left_behind() -> bool {
    EXITING.get().is_some_and(|main| *main != std::thread::current().id())
}

/// Runs `wait` without the interpreter's lock.
pub(crate) fn detached<R: Send>(py: Python<'_>, wait: impl Send + FnOnce() -> R) -> R {
    py.detach(|| {
        let result = wait();
        if is_left_behind() {
            loop {
                std::thread::park();
            }
        }
        result
    })
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
