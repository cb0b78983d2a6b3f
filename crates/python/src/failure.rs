//! From the runtime's errors to Python's exceptions.

use crate::hooks;
use aktis_protocol::{FailureKind, NotRebuilt};
use aktis_runtime::{Error, Handle};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::Cell;

/// Every kind of failure, by the word that Python knows it by.
pub(crate) const FAILURE_KINDS: [&str; 21] = [
    "raised",
    "panicked",
    "worker_died",
    "actor_died",
    "actor_group_removed",
    "cancelled",
    "deadline",
    "group_removed",
    "unschedulable",
    "actor_unschedulable",
    "input_failed",
    "unknown_function",
    "codec",
    "store",
    "refused",
    "environment",
    "lost",
    "reconstruction",
    "no_retry_left",
    "not_on_record",
    "session_closed",
];

/// Why there is no value.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Failure {
    failure: aktis_protocol::Failure,
    object: Option<[u8; 16]>,
}

#[pymethods]
impl Failure {
    #[getter]
    fn kind(&self) -> &'static str {
        // Each stands in `FAILURE_KINDS` too.
        match self.failure.kind {
            FailureKind::Returned { .. } => "raised",
            FailureKind::Panicked { .. } => "panicked",
            FailureKind::WorkerDied(_) => "worker_died",
            FailureKind::ActorDied => "actor_died",
            FailureKind::ActorGroupRemoved => "actor_group_removed",
            FailureKind::Cancelled => "cancelled",
            FailureKind::DeadlinePassed => "deadline",
            FailureKind::GroupRemoved => "group_removed",
            FailureKind::Unschedulable => "unschedulable",
            FailureKind::ActorUnschedulable => "actor_unschedulable",
            FailureKind::InputFailed => "input_failed",
            FailureKind::UnknownFunction => "unknown_function",
            FailureKind::Codec => "codec",
            FailureKind::Store => "store",
            FailureKind::Refused => "refused",
            FailureKind::Environment => "environment",
            FailureKind::Lost => "lost",
            FailureKind::NotRebuilt(NotRebuilt::Other) => "reconstruction",
            FailureKind::NotRebuilt(NotRebuilt::NoRetryLeft) => "no_retry_left",
            FailureKind::NotRebuilt(NotRebuilt::NotOnRecord) => "not_on_record",
            FailureKind::SessionClosed => "session_closed",
            FailureKind::ActorCrashed(_) => "actor_died",
            FailureKind::PassedOn(_) => "input_failed",
        }
    }

    #[getter]
    fn message(&self) -> String {
        // What was raised is told by the exception itself.
        match &self.failure.kind {
            FailureKind::WorkerDied(cause) if self.failure.message.is_empty() => cause.to_string(),
            FailureKind::Panicked { .. } => format!("it panicked: {}", self.failure.message),
            _ => self.failure.message.clone(),
        }
    }

    #[getter]
    fn function(&self) -> &str {
        &self.failure.function
    }

    #[getter]
    fn task_id<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, &crate::object_ref::id_bytes(self.failure.task?.to_words())))
    }

    /// The actor whose call failed, if the actor is the reason.
    #[getter]
    fn actor_id<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, &crate::object_ref::id_bytes(self.failure.actor?.to_words())))
    }

    /// Whether the actor died with its process.
    #[getter]
    fn is_crash(&self) -> bool {
        matches!(self.failure.kind, FailureKind::ActorCrashed(_))
    }

    /// Whether only the call was lost with the actor's process, and the actor may live again.
    #[getter]
    fn is_restarting(&self) -> bool {
        matches!(self.failure.kind, FailureKind::ActorCrashed(None))
    }

    #[getter]
    fn object_id<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, &self.object?))
    }

    #[getter]
    fn pid(&self) -> Option<u32> {
        match &self.failure.kind {
            FailureKind::WorkerDied(cause) => Some(cause.pid),
            _ => self.failure.pid,
        }
    }

    #[getter]
    fn signal(&self) -> Option<i32> {
        match &self.failure.kind {
            FailureKind::WorkerDied(cause) => cause.signal,
            _ => None,
        }
    }

    #[getter]
    fn exit_code(&self) -> Option<i32> {
        match &self.failure.kind {
            FailureKind::WorkerDied(cause) => cause.exit_code,
            _ => None,
        }
    }

    #[getter]
    fn out_of_memory(&self) -> bool {
        matches!(&self.failure.kind, FailureKind::WorkerDied(cause) if cause.out_of_memory)
    }

    #[getter]
    fn type_name(&self) -> Option<&str> {
        match &self.failure.kind {
            FailureKind::Returned { type_name, .. } => Some(type_name),
            _ => None,
        }
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.failure.kind {
            FailureKind::Returned { encoded, .. } => Some(PyBytes::new(py, encoded)),
            _ => None,
        }
    }

    #[getter]
    fn cause(&self) -> Option<Self> {
        let (object, failure) = self.failure.cause.as_deref()?;
        let object = Some(crate::object_ref::id_bytes(object.to_words()));
        Some(Self { failure: failure.clone(), object })
    }

    fn __str__(&self) -> String {
        self.failure.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Failure({}: {})", self.kind(), self.failure)
    }
}

thread_local! {
    /// What a signal handler raised while the thread waited.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// For threads that wait: whether a signal handler raised something. Handlers run on the main thread alone.
pub(crate) fn interrupted() -> bool {
    if crate::detached::is_left_behind() || !crate::detached::is_main() {
        return false;
    }
    Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            RAISED.set(Some(error));
            true
        }
    })
    .unwrap_or(true)
}

/// What a signal handler raised while this thread waited.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// The exception for what became of an object.
pub(crate) fn of_object(py: Python<'_>, error: Error, object: &Handle) -> PyErr {
    match error {
        Error::Failed(failure) => {
            crate::detached::stay_if_left_behind(py);
            let object = Some(crate::object_ref::id_bytes(object.id().to_words()));
            exception(py, Failure { failure: (*failure).clone(), object })
        }
        other => to_exception(py, other),
    }
}

/// The exception for an error of the runtime.
pub(crate) fn to_exception(py: Python<'_>, error: Error) -> PyErr {
    crate::detached::stay_if_left_behind(py);
    match error {
        Error::Failed(failure) => failed(py, (*failure).clone()),
        Error::TimedOut(after) => {
            let message = format!("nothing after {after:?}; the work goes on, and can be waited for again");
            raise(hooks::get(py).and_then(|hooks| hooks.timeout_error.call1(py, (message,))), py)
        }
        Error::Interrupted => {
            RAISED.take().unwrap_or_else(|| PyRuntimeError::new_err("the interpreter is shutting down"))
        }
        Error::Closed => {
            let kind = FailureKind::SessionClosed;
            failed(py, aktis_protocol::Failure::new(kind, "the session is closed"))
        }
        Error::Store(message) => failed(py, aktis_protocol::Failure::new(FailureKind::Store, message)),
        Error::NameTaken(_) => PyValueError::new_err(error.to_string()),
        Error::Invalid(message) => PyValueError::new_err(message),
        Error::Codec(message) => PyTypeError::new_err(message),
        Error::NotInitialised => {
            PyRuntimeError::new_err("aktis is not initialised\nhint: call aktis.init() first")
        }
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// The exception for a failure.
pub(crate) fn failed(py: Python<'_>, failure: aktis_protocol::Failure) -> PyErr {
    exception(py, Failure { failure, object: None })
}

fn exception(py: Python<'_>, failure: Failure) -> PyErr {
    raise(hooks::get(py).and_then(|hooks| hooks.to_exception.call1(py, (failure,))), py)
}

fn raise(exception: PyResult<Py<PyAny>>, py: Python<'_>) -> PyErr {
    match exception {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(error) => error,
    }
}
