//! Python functions that are called when something is ready, all on one thread.
//!
//! The runtime's threads never run Python code: they leave the function in a queue, and the thread for callbacks, which
//! Python starts when the first one is wanted, calls it.

use crate::detached::detached;
use crate::object_ref::ObjectRef;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

static QUEUE: Mutex<Vec<Ready>> = Mutex::new(Vec::new());
static WAKE: Condvar = Condvar::new();
/// The process whose thread for callbacks runs; a fork has none of its parent's threads.
static STARTED_IN: AtomicU32 = AtomicU32::new(0);

/// A function to be called, and what with.
struct Ready {
    callback: Py<PyAny>,
    reference: Option<Py<ObjectRef>>,
}

/// Leaves its function in the queue when it is woken, once.
struct Callback(Mutex<Option<Ready>>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        if let Some(ready) = self.0.lock().take() {
            QUEUE.lock().push(ready);
            WAKE.notify_one();
        }
    }
}

/// Calls `callback(reference)` once the object has a value or a failure.
pub(crate) fn when_ready(py: Python<'_>, reference: Py<ObjectRef>, callback: Py<PyAny>) -> PyResult<()> {
    start(py)?;
    let handle = reference.get().handle().clone();
    let ready = Ready { callback, reference: Some(reference) };
    let waker = Waker::from(Arc::new(Callback(Mutex::new(Some(ready)))));
    if detached(py, || handle.poll(&waker)).is_ready() {
        waker.wake();
    }
    Ok(())
}

/// A waker that has `callback()` called.
pub(crate) fn waker(py: Python<'_>, callback: Py<PyAny>) -> PyResult<Waker> {
    start(py)?;
    let ready = Ready { callback, reference: None };
    Ok(Waker::from(Arc::new(Callback(Mutex::new(Some(ready))))))
}

fn start(py: Python<'_>) -> PyResult<()> {
    let this = std::process::id();
    if STARTED_IN.swap(this, Ordering::AcqRel) == this {
        return Ok(());
    }
    start_thread(py).inspect_err(|_| STARTED_IN.store(0, Ordering::Release))
}

fn start_thread(py: Python<'_>) -> PyResult<()> {
    let options = pyo3::types::PyDict::new(py);
    options.set_item("target", py.import("aktis._hooks")?.getattr("run_callbacks")?)?;
    options.set_item("name", "aktis-callbacks")?;
    options.set_item("daemon", true)?;
    py.import("threading")?.getattr("Thread")?.call((), Some(&options))?.call_method0("start")?;
    Ok(())
}

/// A function, and what to call it with.
type Call<'py> = (Py<PyAny>, Bound<'py, PyTuple>);

/// Waits for functions that are to be called. The thread for callbacks calls them in a loop that is in Python: whatever
/// they do when the program ends, there are no frames of ours around them.
#[pyfunction]
pub(crate) fn next_callbacks(py: Python<'_>) -> PyResult<Vec<Call<'_>>> {
    let batch = detached(py, || {
        let mut queue = QUEUE.lock();
        while queue.is_empty() {
            WAKE.wait(&mut queue);
        }
        std::mem::take(&mut *queue)
    });
    batch.into_iter().map(|ready| Ok((ready.callback, PyTuple::new(py, ready.reference)?))).collect()
}

/// Tells of an exception that nobody can catch.
#[pyfunction]
pub(crate) fn report_unraisable(error: Bound<'_, PyAny>, callback: &Bound<'_, PyAny>) {
    let py = callback.py();
    PyErr::from_value(error).write_unraisable(py, Some(callback));
}
