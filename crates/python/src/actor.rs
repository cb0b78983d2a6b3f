//! Handles of actors.

use crate::detached::detached;
use crate::object_ref::{id_bytes, id_hex};
use crate::{codec, failure, session};
use aktis_protocol::ActorId;
use aktis_runtime::ActorHandle;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// A counted handle of an actor, without methods.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct Actor {
    pub(crate) handle: ActorHandle,
}

#[pymethods]
impl Actor {
    fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &id_bytes(self.handle.id().to_words()))
    }

    fn hex(&self) -> String {
        id_hex(self.handle.id().to_words())
    }

    fn kill(&self, py: Python<'_>, restart: bool) -> PyResult<()> {
        detached(py, || self.handle.kill(restart)).map_err(|error| failure::to_exception(py, error))
    }

    /// What the actor waits for before it has a place is ready.
    fn begin(&self) {
        self.handle.on_arguments_ready();
    }

    fn __hash__(&self) -> u64 {
        self.handle.id().to_words()[1]
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Self>().is_ok_and(|other| other.get().handle.id() == self.handle.id())
    }

    fn __repr__(&self) -> String {
        format!("Actor({})", self.hex())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let load = py.import("aktis._native")?.getattr("load_actor")?;
        match codec::attach_actor(&self.handle) {
            Some(number) => (load, (Some(number), None::<Bound<'_, PyBytes>>)).into_pyobject(py),
            None => {
                self.handle.escape();
                (load, (None::<usize>, Some(self.binary(py)))).into_pyobject(py)
            }
        }
    }
}

/// The actor with this number in the value that is being unpickled, or with this id.
#[pyfunction]
pub(crate) fn load_actor(py: Python<'_>, number: Option<u32>, binary: Option<&[u8]>) -> PyResult<Actor> {
    let handle = match (number, binary) {
        (Some(number), _) => codec::attached_actor(number)?,
        (None, binary) => {
            let actor = ActorId::from_words(crate::object_ref::id_words(binary.unwrap_or_default())?);
            session::current_or_start(py)?.adopt_actor(actor)
        }
    };
    Ok(Actor { handle })
}
