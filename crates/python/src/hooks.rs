//! The Python functions that the native part calls: those of `aktis._hooks`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The functions, looked up once.
pub(crate) struct Hooks {
    pub(crate) ensure_session: Py<PyAny>,
    pub(crate) dumps: Py<PyAny>,
    pub(crate) loads: Py<PyAny>,
    pub(crate) to_exception: Py<PyAny>,
    pub(crate) timeout_error: Py<PyAny>,
    pub(crate) capture: Py<PyAny>,
    pub(crate) is_retriable: Py<PyAny>,
    pub(crate) load: Py<PyAny>,
    pub(crate) prepare: Py<PyAny>,
    pub(crate) load_later: Py<PyAny>,
    pub(crate) async_runner: Py<PyAny>,
    pub(crate) run_loop: Py<PyAny>,
    pub(crate) iterate_async: Py<PyAny>,
    pub(crate) dynamic: Py<PyAny>,
    pub(crate) await_ref: Py<PyAny>,
    pub(crate) future_of: Py<PyAny>,
    pub(crate) flush: Py<PyAny>,
    pub(crate) write_output: Py<PyAny>,
    pub(crate) exits: Py<PyAny>,
    pub(crate) class_method: Py<PyAny>,
    pub(crate) construct: Py<PyAny>,
    pub(crate) save: Py<PyAny>,
    pub(crate) restore: Py<PyAny>,
    pub(crate) leave_process: Py<PyAny>,
}

static HOOKS: PyOnceLock<Hooks> = PyOnceLock::new();
/// What has an event loop run a call. It is imported by the first call that needs it.
static ASYNC_RUNNER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Gives the native part the functions it calls: an object with the attributes of `aktis._hooks`.
#[pyfunction]
pub(crate) fn set_hooks(hooks: &Bound<'_, PyAny>) -> PyResult<()> {
    let named = |name: &str| hooks.getattr(name).map(Bound::unbind);
    let found = Hooks {
        ensure_session: named("ensure_session")?,
        dumps: named("dumps")?,
        loads: named("loads")?,
        to_exception: named("to_exception")?,
        timeout_error: named("timeout_error")?,
        capture: named("capture")?,
        is_retriable: named("is_retriable")?,
        load: named("load")?,
        prepare: named("prepare")?,
        load_later: named("load_later")?,
        async_runner: named("async_runner")?,
        run_loop: named("run_loop")?,
        iterate_async: named("iterate_async")?,
        dynamic: named("dynamic")?,
        await_ref: named("await_ref")?,
        future_of: named("future_of")?,
        flush: named("flush")?,
        write_output: named("write_output")?,
        exits: named("exits")?,
        class_method: named("class_method")?,
        construct: named("construct")?,
        save: named("save")?,
        restore: named("restore")?,
        leave_process: named("leave_process")?,
    };
    let _ = HOOKS.set(hooks.py(), found);
    Ok(())
}

/// The functions.
pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Hooks> {
    // The package sets them while it is imported.
    HOOKS.get(py).ok_or_else(|| PyRuntimeError::new_err("import aktis, not aktis._native"))
}

/// What has an event loop run a call.
pub(crate) fn async_runner(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    ASYNC_RUNNER.get_or_try_init(py, || get(py)?.async_runner.call0(py))
}
