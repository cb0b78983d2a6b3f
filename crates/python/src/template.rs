//! The template process, and the workers that it becomes.

use crate::{hooks, worker};
use aktis_node::{ForkOutcome, ForkedWorker, serve_template};
use aktis_protocol::{Shape, Strategy};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The worker that this process has just become.
static FORKED: Mutex<Option<ForkedWorker>> = Mutex::new(None);

/// The template's loop: forks a worker for each request, and returns in each of these. `prepare` is called before the first
/// fork, while the program goes on.
#[pyfunction]
pub(crate) fn run_template(py: Python<'_>, prepare: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    // Python's own fork keeps the interpreter usable in the child.
    let fork = py.import("os")?.getattr("fork")?;
    let fork = || {
        let pid: u32 = fork.call0().and_then(|pid| pid.extract()).map_err(io::Error::other)?;
        Ok(if pid == 0 { ForkOutcome::Child } else { ForkOutcome::Parent(pid) })
    };
    let prepare = || {
        if let Some(Err(error)) = prepare.map(Bound::call0) {
            error.print(py);
            std::process::exit(1);
        }
    };
    let idle = || {
        if let Err(error) = hooks::get(py).and_then(|hooks| hooks.load_later.call0(py)) {
            error.print(py);
        }
    };
    let forked = serve_template(prepare, fork, idle);
    let forked = forked.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    *FORKED.lock() = Some(forked);
    Ok(())
}

/// Runs tasks and calls on the calling thread until the session ends.
#[pyfunction]
pub(crate) fn run_worker(py: Python<'_>, tuning: BTreeMap<String, u64>) -> PyResult<()> {
    let Some(forked) = FORKED.lock().take() else {
        return Err(PyRuntimeError::new_err("this process was not forked from a template"));
    };
    let os = py.import("os")?;
    let environ = os.getattr("environ")?;
    for (name, value) in &forked.variables {
        environ.set_item(name, value)?;
    }
    worker::set_runtime_hooks();
    let tuning = crate::session::tuning_from(&tuning)?;
    let environment = forked.environment.clone();
    let resources = Shape::default().resources;
    let shape = Arc::new(crate::session::shape(resources, String::new(), None, Strategy::Default));
    py.detach(|| {
        aktis_runtime::serve(forked.link, shape, tuning, |_| {
            Python::attach(|py| {
                let prepared = hooks::get(py)
                    .and_then(|hooks| hooks.prepare.call1(py, (environment,)))
                    .and_then(|refusal| refusal.extract::<Option<String>>(py));
                match prepared {
                    Ok(None) => {}
                    Ok(Some(refusal)) => worker::refuse_all(refusal),
                    Err(error) => {
                        error.print(py);
                        std::process::exit(1);
                    }
                }
            });
        })
    })
}
