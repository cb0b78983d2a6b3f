//! Where the calling code runs.

use crate::actor::Actor;
use crate::detached::detached;
use crate::object_ref::id_bytes;
use crate::{failure, head};
use aktis_protocol::{GroupId, Resources, Shape};
use aktis_runtime::Runtime;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::cell::RefCell;

thread_local! {
    /// What the task that the thread runs may use; nothing if it is the usual.
    static ASSIGNED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The function of the task that the thread runs, or ran last.
    static RUNNING: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// What this process is there for: its actor, or the task that it runs if that may use more than is usual. Threads that
/// user code starts run on its behalf.
static PURPOSE: Mutex<Option<Purpose>> = Mutex::new(None);

struct Purpose {
    context: aktis_runtime::Context,
    assigned: Vec<u8>,
}

/// A task begins that may use this.
pub(crate) fn set_assigned(runtime: &Runtime, assigned: &[u8]) {
    ASSIGNED.with_borrow_mut(|current| {
        if !(current.is_empty() && assigned.is_empty()) {
            current.clear();
            current.extend_from_slice(assigned);
            let purpose = || Purpose { context: runtime.context(), assigned: assigned.to_vec() };
            *PURPOSE.lock() = (!assigned.is_empty()).then(purpose);
        }
    });
}

/// A task begins that calls this function.
pub(crate) fn set_running(py: Python<'_>, function: &Py<PyAny>) {
    RUNNING.with_borrow_mut(|running| {
        if !running.as_ref().is_some_and(|before| before.is(function)) {
            *running = Some(function.clone_ref(py));
        }
    });
}

/// The function of the task that the calling thread runs; None if it runs none.
#[pyfunction]
pub(crate) fn running_function(py: Python<'_>) -> Option<Py<PyAny>> {
    RUNNING.with_borrow(|running| running.as_ref().map(|function| function.clone_ref(py)))
}

/// An actor begins that may use this.
pub(crate) fn set_actor_assigned(runtime: &Runtime, assigned: &[u8]) {
    *PURPOSE.lock() = Some(Purpose { context: runtime.context(), assigned: assigned.to_vec() });
}

/// Where the calling code runs.
#[pyclass(frozen, module = "aktis._native")]
#[derive(Clone)]
pub(crate) struct Context {
    context: aktis_runtime::Context,
    session: u64,
    process: u32,
    /// Whether it is not this thread that was asked for something, but this process.
    on_behalf: bool,
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
        let process = u64::from(self.process) << 32 | u64::from(self.context.pid);
        PyBytes::new(py, &id_bytes([self.session, process]))
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
    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::session::resources_to_python(py, &self.assigned().1)
    }

    /// The placement group around this, and the bundle; -1 is any.
    #[getter]
    fn group<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyBytes>, i64)> {
        let (group, bundle) = self.assigned().0?;
        Some((PyBytes::new(py, &id_bytes(group.to_words())), bundle))
    }

    /// The actor that this is, and the details that it was created with.
    fn actor<'py>(&self, py: Python<'py>) -> PyResult<Option<(Actor, Bound<'py, PyBytes>)>> {
        let Some(id) = self.context.actor else { return Ok(None) };
        let runtime = Runtime::current().map_err(|error| failure::to_exception(py, error))?;
        let details = runtime.actor_details(id).unwrap_or_default();
        let handle = detached(py, || runtime.adopt_actor(id));
        Ok(Some((Actor { handle }, PyBytes::new(py, &details))))
    }

    /// How often the actor was started again.
    #[getter]
    fn incarnation(&self) -> u32 {
        self.context.attempt
    }

    #[getter]
    fn is_worker(&self) -> bool {
        self.context.is_worker
    }
}

impl Context {
    fn assigned(&self) -> (Option<(GroupId, i64)>, Resources) {
        let read = |assigned: &[u8]| match assigned {
            [] => (None, Shape::default().resources),
            assigned => head::read_assigned(assigned),
        };
        match (self.context.is_worker, self.context.actor.is_some() || self.on_behalf) {
            (false, _) => (None, Resources::none()),
            (true, true) => read(PURPOSE.lock().as_ref().map_or(&[], |purpose| &purpose.assigned)),
            (true, false) => ASSIGNED.with_borrow(|assigned| read(assigned)),
        }
    }
}

/// Where the calling code runs.
#[pyfunction]
pub(crate) fn context(py: Python<'_>) -> PyResult<Context> {
    let runtime = Runtime::current().map_err(|error| failure::to_exception(py, error))?;
    let (session, process) = (runtime.session().0, runtime.process().0);
    let own = runtime.context();
    if own.is_worker
        && own.function.is_empty()
        && let Some(purpose) = &*PURPOSE.lock()
    {
        return Ok(Context { context: purpose.context.clone(), session, process, on_behalf: true });
    }
    Ok(Context { context: own, session, process, on_behalf: false })
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
