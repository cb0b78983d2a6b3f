//! Checkpoints of Python actors.

use crate::worker::{self, construct_with, python_actor, raised};
use crate::{failure, hooks};
use aktis_protocol::{Failure, FailureKind};
use aktis_runtime::registry::{ActorState, REMEMBERED, Remembered};
use aktis_runtime::{Runtime, Value};
use pyo3::prelude::*;

#[linkme::distributed_slice(REMEMBERED)]
static ACTORS: Remembered = Remembered {
    constructor: worker::ACTOR.id,
    save,
    restore: |call, saved| construct_with(call, Some(saved)),
    same,
};

fn save(state: &ActorState) -> Result<Vec<u8>, Failure> {
    let actor = python_actor(state)?;
    Python::attach(|py| {
        let saved = hooks::get(py).and_then(|hooks| hooks.save.call1(py, (&actor.instance,)));
        let bytes = saved.and_then(|saved| saved.extract::<Vec<u8>>(py));
        bytes.map_err(|error| {
            let failure = raised(py, &error, "__checkpoint__");
            Failure::new(FailureKind::ActorDied, failure.message)
        })
    })
}

/// Whether two encoded values are equal. Equal values may be pickled to different bytes.
fn same(before: &[u8], after: &[u8]) -> bool {
    let Ok(runtime) = Runtime::current() else { return false };
    Python::attach(|py| {
        let decode = |bytes: &[u8]| crate::codec::decode(py, &runtime, &Value::inline(bytes), None);
        let compared = || -> PyResult<bool> {
            let (before, after) = (decode(before)?, decode(after)?);
            let equal = before.bind(py).eq(after.bind(py));
            // Values such as arrays, and instances without `__eq__`, say nothing about it.
            Ok(equal.unwrap_or(true) || !has_equality(before.bind(py)))
        };
        compared().unwrap_or(true)
    })
}

/// Whether the type says when two of its values are equal.
fn has_equality(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    let inherited = || {
        let own = value.get_type().getattr("__eq__")?;
        Ok::<_, PyErr>(!own.is(&py.get_type::<PyAny>().getattr("__eq__")?))
    };
    inherited().unwrap_or(false)
}

/// Has the actor that runs this take a checkpoint after the current call, before it is answered.
#[pyfunction]
pub(crate) fn checkpoint(py: Python<'_>) -> PyResult<()> {
    let runtime = Runtime::current().map_err(|error| failure::to_exception(py, error))?;
    runtime.checkpoint().map_err(|error| failure::to_exception(py, error))
}
