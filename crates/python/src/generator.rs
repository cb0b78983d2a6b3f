//! The items of a generator that a worker runs, one after another.

use crate::head::Head;
use crate::hooks;
use crate::timeline::Span;
use crate::worker::{encoded, end_if_exit, is_retriable, note_failure, raised};
use aktis_protocol::Failure;
use aktis_runtime::registry::Items;
use aktis_runtime::{Encoded, Runtime};
use aktis_store::RunKind;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// The items that a Python iterator gives.
pub(crate) struct Generator {
    iterator: Py<PyAny>,
    kind: RunKind,
    name: String,
    /// The number of its run.
    run: Option<u64>,
    failed: bool,
    /// What exceptions are worth another attempt.
    flags: u8,
    retry: Vec<u8>,
}

impl Generator {
    /// What the iterator gives that a function returned.
    pub(crate) fn items(
        py: Python<'_>,
        head: &Head<'_>,
        result: &Bound<'_, PyAny>,
        kind: RunKind,
        name: &str,
    ) -> Result<Items, Failure> {
        let run = Runtime::current().ok().and_then(|runtime| runtime.begin_run(kind, name));
        let iterator = match result.hasattr("__anext__") {
            Ok(true) => hooks::get(py)
                .and_then(|hooks| hooks.iterate_async.call1(py, (result,)))
                .and_then(|iterator| iterator.bind(py).try_iter()),
            _ => result.try_iter(),
        };
        let iterator = iterator.map_err(|error| raised(py, &error, name))?;
        let (iterator, name) = (iterator.into_any().unbind(), name.to_owned());
        let (flags, retry) = (head.flags, head.retry.to_vec());
        Ok(Box::new(Self { iterator, kind, name, run, failed: false, flags, retry }))
    }
}

impl Iterator for Generator {
    type Item = Result<Encoded, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| match self.iterator.call_method0(py, "__next__") {
            Ok(item) => Some(encoded(py, item.bind(py), &self.name)),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => None,
            Err(error) => {
                if self.kind == RunKind::Call {
                    end_if_exit(py, &error);
                }
                self.failed = true;
                let mut failure = raised(py, &error, &self.name);
                failure.retriable = is_retriable(py, self.flags, &self.retry, &error);
                Some(Err(failure))
            }
        })
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let runtime = Runtime::current().ok();
        let mut span = runtime.as_ref().map(|runtime| Span::begun(runtime, self.run));
        note_failure(&mut span, self.failed);
        // A generator that is not used up runs its `finally` blocks here, where it ran before.
        CLOSING.store(true, Ordering::SeqCst);
        Python::attach(|py| {
            let closed = match self.iterator.getattr(py, "close") {
                Ok(close) => close.call0(py).map(|_| ()),
                Err(_) => Ok(()),
            };
            if let Err(error) = closed {
                error.write_unraisable(py, None);
            }
        });
        CLOSING.store(false, Ordering::SeqCst);
    }
}

/// Whether a generator that nobody wants runs its `finally` blocks.
static CLOSING: AtomicBool = AtomicBool::new(false);

/// Whether what runs on the main thread is to be interrupted: it was cancelled, and does not end already.
#[pyfunction]
pub(crate) fn is_interrupted() -> bool {
    let cancelled = Runtime::current().is_ok_and(|runtime| runtime.is_cancelled());
    cancelled && !CLOSING.load(Ordering::SeqCst)
}
