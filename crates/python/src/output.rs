//! What workers print: the name in which it is printed, and the way into the driver's `sys.stdout`.

use crate::hooks;
use aktis_node::Stream;
use aktis_protocol::output::mark;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

/// The name in which this worker prints: the function of its task, or its actor. Locked only by who holds the
/// interpreter's lock, so that no fork finds it locked.
static NAME: Mutex<String> = Mutex::new(String::new());

/// What this worker prints from now on is printed in this name.
pub(crate) fn set_name(name: &str) {
    let mut current = NAME.lock();
    current.clear();
    current.push_str(name);
}

/// What this worker prints from now on is printed by this actor. One whose class says how it is shown is shown so.
pub(crate) fn set_actor(instance: &Bound<'_, PyAny>) {
    let own_way = || {
        let plain = instance.py().import("builtins")?.getattr("object")?.getattr("__repr__")?;
        PyResult::Ok(!instance.get_type().getattr("__repr__")?.is(&plain))
    };
    if let (Ok(true), Ok(shown)) = (own_way(), instance.repr()) {
        set_name(&shown.to_string_lossy());
    }
}

/// The mark before what this worker prints, and the one after it; empty if it has not run anything yet.
#[pyfunction]
pub(crate) fn output_mark(py: Python<'_>) -> (Bound<'_, PyBytes>, Bound<'_, PyBytes>) {
    let name = NAME.lock();
    let mark_of = |name: &str, marked: bool| if marked { mark(name) } else { Vec::new() };
    let marked = !name.is_empty();
    (PyBytes::new(py, &mark_of(&name, marked)), PyBytes::new(py, &mark_of("", marked)))
}

/// Writes workers' lines to where the driver's program writes: `sys.stdout` may have been replaced.
pub(crate) fn write(lines: &[(Stream, Vec<u8>)]) {
    let written = Python::try_attach(|py| {
        for run in lines.chunk_by(|left, right| left.0 == right.0) {
            let texts = run.iter().map(|(_, line)| PyString::new(py, &String::from_utf8_lossy(line)));
            let texts = PyList::new(py, texts)?;
            hooks::get(py)?.write_output.call1(py, (run[0].0 == Stream::Stderr, texts))?;
        }
        PyResult::Ok(())
    });
    match written {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            Python::try_attach(|py| error.write_unraisable(py, None));
        }
        // The interpreter is gone, or about to be.
        None => aktis_node::write_directly(lines),
    }
}
