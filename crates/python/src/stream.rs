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
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<ObjectRef>> {
        let timeout: Option<Duration> = timeout.map(seconds).transpose()?;
        let next = detached(py, || self.stream.next(timeout));
        let item = next.map_err(|error| failure::to_exception(py, error))?;
        Ok(item.map(ObjectRef::new))
    }

    fn poll(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let waker = callbacks::waker(py, callback)?;
        let polled = detached(py, || self.stream.poll_next(&waker));
        match polled {
            Poll::Pending => Ok(PyBool::new(py, true).to_owned().into_any().unbind()),
            Poll::Ready(Ok(Some(handle))) => Ok(Py::new(py, ObjectRef::new(handle))?.into_any()),
            Poll::Ready(Ok(None)) => Ok(py.None()),
            Poll::Ready(Err(error)) => Err(failure::to_exception(py, error)),
        }
    }

    /// A reference that is resolved when the last item was given.
    fn completed(&self, py: Python<'_>) -> PyResult<ObjectRef> {
        let ready = crate::codec::encode(py.None().bind(py))?;
        Ok(ObjectRef::new(detached(py, || self.stream.completed(ready))))
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
