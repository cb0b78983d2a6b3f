//! Where the calling code runs.

use crate::failure;
use crate::object_ref::id_bytes;
use aktis_runtime::Runtime;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Where the calling code runs.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Context {
    context: aktis_runtime::Context,
    session: u64,
    process: u32,
}

#[pymethods]
impl Context {
    #[getter]
    fn task_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &id_bytes(self.context.task.to_words()))
    }

    #[getter]
    fn actor_id<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, &id_bytes(self.context.actor?.to_words())))
    }

    #[getter]
    fn job_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.session.to_be_bytes())
    }

    #[getter]
    fn node_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &id_bytes([self.session, 0]))
    }

    #[getter]
    fn worker_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(
            py,
            &id_bytes([self.session, u64::from(self.process) << 32 | u64::from(self.context.pid)]),
        )
    }

    #[getter]
    fn function(&self) -> String {
        self.context.function.to_string()
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.context.attempt
    }

    #[getter]
    fn gpus(&self) -> Vec<u32> {
        self.context.gpus.clone()
    }

    #[getter]
    fn is_worker(&self) -> bool {
        self.context.is_worker
    }
}

/// Where the calling code runs.
#[pyfunction]
pub(crate) fn context(py: Python<'_>) -> PyResult<Context> {
    let runtime = Runtime::current().map_err(|error| failure::to_exception(py, error))?;
    let (session, process) = (runtime.session().0, runtime.process().0);
    Ok(Context { context: runtime.context(), session, process })
}

/// Whether the running task was cancelled.
#[pyfunction]
pub(crate) fn is_cancelled() -> bool {
    Runtime::current().is_ok_and(|runtime| runtime.is_cancelled())
}

/// Ends the actor that runs this, for good, after the current call.
#[pyfunction]
pub(crate) fn exit_actor(py: Python<'_>) -> PyResult<()> {
    let runtime = Runtime::current().map_err(|error| failure::to_exception(py, error))?;
    runtime.exit_actor().map_err(|error| failure::to_exception(py, error))
}
