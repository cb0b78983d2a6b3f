//! Functions and classes that this worker has fetched: what calls name by the object that holds their code.

use crate::worker::raised;
use crate::{codec, hooks};
use aktis_protocol::{Failure, FailureKind, ObjectId};
use aktis_runtime::Runtime;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, LazyLock};

/// A function or class that was fetched, and its name.
pub(crate) struct Loaded {
    pub(crate) name: Arc<str>,
    pub(crate) object: Py<PyAny>,
    /// Whether it refers to objects or actors.
    is_closure: bool,
    /// How often it was called in this process.
    pub(crate) calls: AtomicU32,
}

static LOADED: LazyLock<Mutex<HashMap<ObjectId, Arc<Loaded>>>> = LazyLock::new(Mutex::default);
/// Functions that are kept; when there are more, all are forgotten and fetched again.
const LOADED_MAX: usize = 4096;

/// The object from which this process has a function or class. One that refers to objects or actors counts as none: its
/// calls have to carry its references.
pub(crate) fn origin_of(py: Python<'_>, code: &Py<PyAny>) -> Option<ObjectId> {
    let is_it =
        |(_, loaded): &(&ObjectId, &Arc<Loaded>)| !loaded.is_closure && loaded.object.is(code.bind(py));
    LOADED.lock().iter().find(is_it).map(|(object, _)| *object)
}

/// The function or class that was exported as this object.
pub(crate) fn load(py: Python<'_>, runtime: &Runtime, object: ObjectId) -> Result<Arc<Loaded>, Failure> {
    if let Some(loaded) = LOADED.lock().get(&object) {
        return Ok(loaded.clone());
    }
    let handle = runtime.adopt_object(object);
    // Code is in the store already: to hand the CPU on for that would only have less urgent tasks run first.
    let value = py.detach(|| runtime.keeping_cpu(|| handle.get(None))).map_err(|error| {
        Failure::new(FailureKind::UnknownFunction, format!("its code cannot be fetched: {error}"))
    })?;
    let unreadable = || Failure::new(FailureKind::UnknownFunction, "its code cannot be read");
    let raw = value.raw().map_err(|_| unreadable())?;
    let (len, rest) = raw.body().split_first_chunk().ok_or_else(unreadable)?;
    let (name, blob) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len))).ok_or_else(unreadable)?;
    let name = String::from_utf8_lossy(name);
    let load = || hooks::get(py).and_then(|hooks| hooks.load.call1(py, (PyBytes::new(py, blob),)));
    let object_loaded = codec::reading(runtime, &value, load).map_err(|error| raised(py, &error, &name))?;
    let is_closure = value.contains();
    if !is_closure {
        runtime.keep_code(object);
    }
    let calls = AtomicU32::new(0);
    let loaded = Arc::new(Loaded { name: name.into(), object: object_loaded, is_closure, calls });
    let mut table = LOADED.lock();
    if table.len() >= LOADED_MAX {
        table.clear();
    }
    table.insert(object, loaded.clone());
    Ok(loaded)
}
