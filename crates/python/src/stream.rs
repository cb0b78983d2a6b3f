//! What a streaming task gives: references, one after another.

use crate::detached::detached;
use crate::object_ref::{ObjectRef, id_bytes, seconds};
use crate::{callbacks, failure};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use std::task::Poll;
use std::time::Duration;

/// The items of a streaming task or method.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct Stream {
    stream: aktis_runtime::Stream,
}

impl Stream {
    pub(crate) fn new(stream: aktis_runtime::Stream) -> Self {
        Self { stream }
    }

    pub(crate) fn cancel(&self, force: bool, recursive: bool) -> Result<(), aktis_runtime::Error> {
        self.stream.cancel(force, recursive)
    }
}

#[pymethods]
impl Stream {
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<ObjectRef>>> {
        let timeout: Option<Duration> = timeout.map(seconds).transpose()?;
        let next = detached(py, || self.stream.next(timeout));
        let item = next.map_err(|error| failure::to_exception(py, error))?;
        item.map(|handle| ObjectRef::create(py, handle)).transpose()
    }

    fn poll(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let waker = callbacks::waker(py, callback)?;
        let polled = detached(py, || self.stream.poll_next(&waker));
        match polled {
            Poll::Pending => Ok(PyBool::new(py, true).to_owned().into_any().unbind()),
            Poll::Ready(Ok(Some(handle))) => Ok(ObjectRef::create(py, handle)?.into_any()),
            Poll::Ready(Ok(None)) => Ok(py.None()),
            Poll::Ready(Err(error)) => Err(failure::to_exception(py, error)),
        }
    }

    /// Whether the next item, or the end, is there; if not, the callback is called when it is worth asking again.
    /// Nothing is taken.
    fn watch(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        let waker = callbacks::waker(py, callback)?;
        detached(py, || self.stream.poll_ready(&waker)).map_err(|error| failure::to_exception(py, error))
    }

    /// A reference that is resolved when the last item was given.
    fn completed(&self, py: Python<'_>) -> PyResult<Py<ObjectRef>> {
        let ready = crate::codec::encode(py.None().bind(py))?;
        ObjectRef::create(py, detached(py, || self.stream.completed(ready)))
    }

    fn is_finished(&self, py: Python<'_>) -> bool {
        detached(py, || self.stream.is_finished())
    }

    fn is_ready(&self, py: Python<'_>) -> bool {
        detached(py, || self.stream.is_ready())
    }

    fn task_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let task = detached(py, || self.stream.task());
        PyBytes::new(py, &id_bytes(task.to_words()))
    }
}
