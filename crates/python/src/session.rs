//! A process in a session.

use crate::actor::Actor;
use crate::detached::detached;
use crate::object_ref::{ObjectRef, id_bytes, id_words};
use crate::{failure, hooks, strategy};
use aktis_protocol::{GroupId, GroupPlace, GroupStrategy, Resources, Shape, Strategy, limits};
use aktis_runtime::{Config, EnterGuard, Tuning};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long `wait_for_template` waits.
const TEMPLATE_PATIENCE: Duration = Duration::from_secs(60);

/// This process in one session.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct Runtime {
    runtime: aktis_runtime::Runtime,
}

thread_local! {
    static ENTERED: RefCell<Vec<EnterGuard>> = const { RefCell::new(Vec::new()) };
}

/// The shape of a task: Python's workers run one thing at a time.
pub(crate) fn shape(
    resources: Resources,
    environment: String,
    group: Option<GroupPlace>,
    strategy: Strategy,
) -> Shape {
    Shape { resources, isolated: true, environment, group, strategy, ..Shape::default() }
}

/// How a process goes about its tasks and objects, from what Python says of it.
pub(crate) fn tuning_from(wanted: &BTreeMap<String, u64>) -> PyResult<Tuning> {
    let mut tuning = Tuning::default();
    for (name, &number) in wanted {
        let amount = usize::try_from(number).unwrap_or(usize::MAX);
        match name.as_str() {
            "inline_bytes_max" => tuning.inline_bytes_max = amount.min(limits::INLINE_BYTES_MAX),
            "lineage_bytes_max" => tuning.lineage_bytes_max = amount,
            "queued_tasks_max" => tuning.queued_tasks_max = amount,
            "locality" => tuning.locality = number != 0,
            "cancel_asks" => tuning.cancel_asks = number != 0,
            "cancel_forgets" => tuning.cancel_forgets = number != 0,
            "retry_doubles" => tuning.retry_doubles = number != 0,
            "retry_delay_milliseconds" => tuning.retry_delay = Duration::from_millis(number),
            other => return Err(PyValueError::new_err(format!("{other:?} cannot be tuned"))),
        }
    }
    Ok(tuning)
}

#[pymethods]
impl Runtime {
    #[staticmethod]
    #[pyo3(signature = (*, resources, store_bytes, spill_directory, spill_bytes_max, spill_above_percent,
                        forward_output, deduplicate_output, labels, tuning, template, environment))]
    #[expect(clippy::too_many_arguments, reason = "each is an option by name")]
    fn start(
        py: Python<'_>,
        resources: BTreeMap<String, f64>,
        store_bytes: u64,
        spill_directory: String,
        spill_bytes_max: u64,
        spill_above_percent: u32,
        forward_output: bool,
        deduplicate_output: bool,
        labels: BTreeMap<String, String>,
        tuning: BTreeMap<String, u64>,
        template: Vec<OsString>,
        environment: BTreeMap<OsString, OsString>,
    ) -> PyResult<Self> {
        crate::worker::set_runtime_hooks();
        let config = Config {
            labels,
            resources: crate::calls::resources_from(resources)?,
            store_bytes,
            spill_directory: spill_directory.into(),
            spill_bytes_max,
            spill_above_percent,
            output: output(forward_output, deduplicate_output),
            ..config(&tuning, template, environment)?
        };
        let started = py.detach(|| aktis_runtime::Runtime::start(config));
        let runtime = started.map_err(|error| failure::to_exception(py, error))?;
        Ok(Self { runtime })
    }

    /// Waits until the process runs that workers are forked from; ends the session if it does not.
    fn wait_for_template(&self, py: Python<'_>) -> PyResult<()> {
        let ready = py.detach(|| {
            let ready = self.runtime.wait_for_template(TEMPLATE_PATIENCE);
            ready.inspect_err(|_| self.runtime.shutdown())
        });
        ready.map_err(|error| failure::to_exception(py, error))
    }

    /// Attaches to the node of this machine that an address means.
    #[staticmethod]
    #[pyo3(signature = (*, address, forward_output, deduplicate_output, tuning, template, environment, timeout, share))]
    #[expect(clippy::too_many_arguments, reason = "each is an option by name")]
    fn attach(
        py: Python<'_>,
        address: &str,
        forward_output: bool,
        deduplicate_output: bool,
        tuning: BTreeMap<String, u64>,
        template: Vec<OsString>,
        environment: BTreeMap<OsString, OsString>,
        timeout: f64,
        share: bool,
    ) -> PyResult<Self> {
        crate::worker::set_runtime_hooks();
        let output = output(forward_output, deduplicate_output);
        let attach_timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
        let config = Config { output, attach_timeout, share, ..config(&tuning, template, environment)? };
        let attached = py.detach(|| {
            let directory = aktis_runtime::find_local(address)
                .map_err(|error| aktis_runtime::Error::System(error.to_string()))?;
            aktis_runtime::Runtime::attach(&directory, config)
        });
        let runtime = attached.map_err(|error| match error {
            error @ aktis_runtime::Error::Interrupted => failure::to_exception(py, error),
            error => PyConnectionError::new_err(error.to_string()),
        })?;
        Ok(Self { runtime })
    }

    fn session_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.runtime.session().0.to_be_bytes())
    }

    fn directory(&self) -> Option<OsString> {
        self.runtime.directory().map(OsString::from)
    }

    fn number(&self) -> u64 {
        self.runtime.number()
    }

    fn is_closed(&self) -> bool {
        self.runtime.is_closed()
    }

    fn shutdown(&self, py: Python<'_>) {
        detached(py, || {
            self.runtime.shutdown();
            crate::retired::forget(self.runtime.number());
        });
    }

    fn make_current(&self) -> PyResult<()> {
        self.runtime.make_current().map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    fn enter(&self) {
        let guard = self.runtime.enter();
        ENTERED.with_borrow_mut(|entered| entered.push(guard));
    }

    fn leave(&self) {
        let guard = ENTERED.with_borrow_mut(Vec::pop);
        drop(guard);
    }

    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        resources_to_python(py, &self.runtime.resources())
    }

    fn worker_pids(&self) -> Vec<u32> {
        self.runtime.worker_pids()
    }

    fn template_pid(&self) -> Option<u32> {
        self.runtime.template_pid()
    }

    fn find_actor(&self, py: Python<'_>, name: &str) -> PyResult<Option<(Actor, Vec<u8>)>> {
        let found = detached(py, || self.runtime.find_actor(name));
        let found = found.map_err(|error| failure::to_exception(py, error))?;
        Ok(found.map(|(handle, found)| (Actor { handle }, found.details)))
    }

    fn actor_names(&self, py: Python<'_>, namespace: &str) -> PyResult<Vec<String>> {
        detached(py, || self.runtime.actor_names(namespace)).map_err(|error| failure::to_exception(py, error))
    }

    /// From now on questions about keys, names and the state have answers within so many seconds in all, or fail.
    #[pyo3(signature = (seconds))]
    fn answer_within(&self, seconds: Option<f64>) {
        let patience = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        self.runtime.answer_within(patience);
    }

    fn key_put(&self, py: Python<'_>, key: &[u8], value: &[u8], overwrite: bool) -> PyResult<bool> {
        detached(py, || self.runtime.key_put(key, value, overwrite))
            .map_err(|error| failure::to_exception(py, error))
    }

    fn key_get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = detached(py, || self.runtime.key_get(key));
        let value = value.map_err(|error| failure::to_exception(py, error))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn key_delete(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        detached(py, || self.runtime.key_delete(key)).map_err(|error| failure::to_exception(py, error))
    }

    fn key_list<'py>(&self, py: Python<'py>, prefix: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let keys = detached(py, || self.runtime.key_list(prefix));
        let keys = keys.map_err(|error| failure::to_exception(py, error))?;
        Ok(keys.iter().map(|key| PyBytes::new(py, key)).collect())
    }

    fn create_group<'py>(
        &self,
        py: Python<'py>,
        bundles: Vec<BTreeMap<String, f64>>,
        labels: Vec<Vec<strategy::Rule>>,
        strategy: &str,
        name: &str,
        detached: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, Py<ObjectRef>)> {
        let bundles = bundles.into_iter().map(crate::calls::resources_from).collect::<PyResult<_>>()?;
        let strategy = match strategy {
            "PACK" => GroupStrategy::Pack,
            "SPREAD" => GroupStrategy::Spread,
            "STRICT_PACK" => GroupStrategy::StrictPack,
            "STRICT_SPREAD" => GroupStrategy::StrictSpread,
            other => return Err(PyValueError::new_err(format!("there is no strategy {other}"))),
        };
        let labels = labels.into_iter().map(strategy::rules).collect::<PyResult<_>>()?;
        let name = (!name.is_empty()).then(|| name.to_owned());
        let ready = crate::codec::encode(py.None().bind(py))?;
        let created = crate::detached::detached(py, || {
            self.runtime.create_group(bundles, labels, strategy, name, detached, ready)
        });
        let (group, handle) = created.map_err(|error| failure::to_exception(py, error))?;
        Ok((PyBytes::new(py, &id_bytes(group.to_words())), ObjectRef::create(py, handle)?))
    }

    fn watch_group(&self, py: Python<'_>, group: &[u8]) -> PyResult<Py<ObjectRef>> {
        let group = GroupId::from_words(id_words(group)?);
        let ready = crate::codec::encode(py.None().bind(py))?;
        let watched = detached(py, || self.runtime.watch_group(group, ready));
        ObjectRef::create(py, watched.map_err(|error| failure::to_exception(py, error))?)
    }

    fn remove_group(&self, py: Python<'_>, group: &[u8]) -> PyResult<()> {
        let group = GroupId::from_words(id_words(group)?);
        detached(py, || self.runtime.remove_group(group)).map_err(|error| failure::to_exception(py, error))
    }

    fn available_resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::state::available(py, &self.runtime)
    }

    #[pyo3(signature = (what, daemon=None))]
    fn state<'py>(
        &self,
        py: Python<'py>,
        what: &str,
        daemon: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyList>> {
        crate::state::rows(py, &self.runtime, what, daemon.as_deref())
    }

    fn timeline(&self, py: Python<'_>) -> Vec<crate::timeline::Row> {
        crate::timeline::rows(py, &self.runtime)
    }

    fn __repr__(&self) -> String {
        let state = if self.runtime.is_closed() { "closed" } else { "open" };
        format!("Runtime({:016x}, {state})", self.runtime.session().0)
    }
}

/// What becomes of what workers print.
fn output(forward: bool, deduplicate: bool) -> aktis_node::OutputOptions {
    aktis_node::OutputOptions { forward, deduplicate, write: crate::output::write }
}

/// What a session that starts a node and one that attaches to one have in common.
fn config(
    tuning: &BTreeMap<String, u64>,
    template: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
) -> PyResult<Config> {
    Ok(Config {
        tuning: tuning_from(tuning)?,
        default_shape: Arc::new(shape(Shape::default().resources, String::new(), None, Strategy::Default)),
        workers: aktis_node::WorkerProgram::Template {
            command: template,
            environment: environment.into_iter().collect(),
            version: Python::version_str().to_owned(),
        },
        ..Config::default()
    })
}

/// Resources as Python sees them.
pub(crate) fn resources_to_python<'py>(
    py: Python<'py>,
    resources: &Resources,
) -> PyResult<Bound<'py, PyDict>> {
    let amounts = PyDict::new(py);
    for (name, amount) in resources.iter() {
        amounts.set_item(name, amount.to_f64())?;
    }
    Ok(amounts)
}

/// The session of the calling thread, else of the process.
#[pyfunction]
pub(crate) fn current() -> Option<Runtime> {
    let runtime = aktis_runtime::Runtime::current().ok()?;
    Some(Runtime { runtime })
}

/// The current session; if there is none, one is started.
#[inline]
pub(crate) fn current_or_start(py: Python<'_>) -> PyResult<aktis_runtime::Runtime> {
    if let Ok(runtime) = aktis_runtime::Runtime::current() {
        return Ok(runtime);
    }
    crate::detached::stay_if_left_behind(py);
    hooks::get(py)?.ensure_session.call0(py)?;
    aktis_runtime::Runtime::current().map_err(|error| failure::to_exception(py, error))
}

/// The version of the engine.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Where nodes of this user listen, unless told otherwise.
#[pyfunction]
pub(crate) fn default_directory() -> PathBuf {
    aktis_runtime::default_directory()
}
