//! How things stand on the node, as rows for Python.

use crate::detached::detached;
use crate::failure;
use crate::object_ref::id_bytes;
use crate::session::resources_to_python;
use aktis_protocol::state::{
    ActorRow, ActorState, GroupRow, ObjectRow, StateKind, StateRows, StoreRow, WorkerRole, WorkerRow,
    WorkerState,
};
use aktis_protocol::{GroupState, GroupStrategy, ProcessSlot, Resources};
use aktis_runtime::Runtime;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// What of the node's resources is free now.
pub(crate) fn available<'py>(py: Python<'py>, runtime: &Runtime) -> PyResult<Bound<'py, PyDict>> {
    let (_, available) = resources(py, runtime)?;
    resources_to_python(py, &available)
}

fn ask(py: Python<'_>, runtime: &Runtime, what: StateKind) -> PyResult<StateRows> {
    let answer = detached(py, || runtime.state(what)).map_err(|error| failure::to_exception(py, error))?;
    Ok(answer.0)
}

fn resources(py: Python<'_>, runtime: &Runtime) -> PyResult<(Resources, Resources)> {
    let (mut total, mut available) = (Resources::none(), Resources::none());
    if let StateRows::Resources(rows) = ask(py, runtime, StateKind::Resources)? {
        for row in rows {
            total.set(&row.name, row.total);
            available.set(&row.name, row.available);
        }
    }
    Ok((total, available))
}

/// Rows about workers, actors, objects, groups, the store, the node, or the tasks of this process.
pub(crate) fn rows<'py>(py: Python<'py>, runtime: &Runtime, what: &str) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let kind = match what {
        "tasks" => {
            add(&list, runtime.tasks().iter(), |row| task(py, row))?;
            return Ok(list);
        }
        "nodes" => {
            list.append(node(py, runtime)?)?;
            return Ok(list);
        }
        "workers" => StateKind::Workers,
        "actors" => StateKind::Actors,
        "objects" => StateKind::Objects,
        "groups" => StateKind::Groups,
        "store" => StateKind::Store,
        other => return Err(PyValueError::new_err(format!("nothing is known about {other}"))),
    };
    match ask(py, runtime, kind)? {
        StateRows::Workers(rows) => add(&list, rows.iter(), |row| worker(py, runtime, row))?,
        StateRows::Actors(rows) => add(&list, rows.iter(), |row| actor(py, runtime, row))?,
        StateRows::Objects(rows) => add(&list, rows.iter(), |row| object(py, row))?,
        StateRows::Groups(rows) => add(&list, rows.iter(), |row| group(py, runtime, row))?,
        StateRows::Store(row) => list.append(store(py, &row)?)?,
        StateRows::Resources(_) => {}
    }
    Ok(list)
}

fn add<'py, R>(
    list: &Bound<'py, PyList>,
    rows: impl Iterator<Item = R>,
    convert: impl Fn(R) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<()> {
    for row in rows {
        list.append(convert(row)?)?;
    }
    Ok(())
}

/// The id of a process, as its own context shows it.
fn worker_id<'py>(py: Python<'py>, runtime: &Runtime, process: ProcessSlot, pid: u32) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &id_bytes([runtime.session().0, u64::from(process.0) << 32 | u64::from(pid)]))
}

fn node_id<'py>(py: Python<'py>, runtime: &Runtime) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &id_bytes([runtime.session().0, 0]))
}

fn node<'py>(py: Python<'py>, runtime: &Runtime) -> PyResult<Bound<'py, PyDict>> {
    let (total, available) = resources(py, runtime)?;
    let row = PyDict::new(py);
    row.set_item("id", node_id(py, runtime))?;
    row.set_item("state", "ALIVE")?;
    row.set_item("resources", resources_to_python(py, &total)?)?;
    row.set_item("available", resources_to_python(py, &available)?)?;
    row.set_item("pid", runtime.driver_pid())?;
    row.set_item("labels", PyDict::new(py))?;
    row.set_item("head", true)?;
    Ok(row)
}

fn task<'py>(py: Python<'py>, task: &aktis_runtime::runtime::TaskRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", PyBytes::new(py, &id_bytes(task.task.to_words())))?;
    row.set_item("function", &task.name)?;
    row.set_item("state", task.state)?;
    row.set_item("kind", task.kind)?;
    row.set_item("attempt", task.attempt)?;
    if let Some(pid) = task.pid {
        row.set_item("pid", pid)?;
    }
    if let Some(actor) = task.actor {
        row.set_item("actor", PyBytes::new(py, &id_bytes(actor.to_words())))?;
    }
    if let Some(error) = &task.error {
        row.set_item("error", error)?;
    }
    Ok(row)
}

fn worker<'py>(py: Python<'py>, runtime: &Runtime, worker: &WorkerRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", worker_id(py, runtime, worker.process, worker.pid))?;
    row.set_item("pid", worker.pid)?;
    row.set_item("alive", worker.state != WorkerState::Leaving)?;
    row.set_item("kind", "WORKER")?;
    let state = match worker.state {
        WorkerState::Starting => "STARTING",
        WorkerState::Idle => "IDLE",
        WorkerState::Busy => "BUSY",
        WorkerState::Leaving => "LEAVING",
    };
    row.set_item("state", state)?;
    row.set_item("node", node_id(py, runtime))?;
    row.set_item("resources", resources_to_python(py, &worker.resources)?)?;
    if let WorkerRole::Actor(actor) = worker.role {
        row.set_item("actor", PyBytes::new(py, &id_bytes(actor.to_words())))?;
    }
    Ok(row)
}

fn actor<'py>(py: Python<'py>, runtime: &Runtime, actor: &ActorRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", PyBytes::new(py, &id_bytes(actor.actor.to_words())))?;
    row.set_item("type_name", &actor.type_name)?;
    row.set_item("name", actor.name.as_deref().unwrap_or_default())?;
    let state = match actor.state {
        ActorState::Pending => "PENDING",
        ActorState::Alive => "ALIVE",
        ActorState::Restarting => "RESTARTING",
        ActorState::Dead => "DEAD",
    };
    row.set_item("state", state)?;
    if let Some(process) = actor.process {
        row.set_item("pid", actor.pid)?;
        row.set_item("worker", worker_id(py, runtime, process, actor.pid))?;
        row.set_item("node", node_id(py, runtime))?;
    }
    row.set_item("restarts", actor.restarts)?;
    row.set_item("detached", actor.detached)?;
    row.set_item("resources", resources_to_python(py, &actor.resources)?)?;
    if !actor.reason.is_empty() {
        row.set_item("error", &actor.reason)?;
    }
    Ok(row)
}

fn object<'py>(py: Python<'py>, object: &ObjectRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", PyBytes::new(py, &id_bytes(object.object.to_words())))?;
    row.set_item("size", object.bytes)?;
    let state = match (object.sealed, object.spilled) {
        (false, _) => "CREATING",
        (true, false) => "SEALED",
        (true, true) => "SPILLED",
    };
    row.set_item("state", state)?;
    row.set_item("stored", object.sealed && !object.spilled)?;
    row.set_item("spilled", object.spilled)?;
    row.set_item("pinned", object.pinned)?;
    let holders: Vec<String> = object.holders.iter().map(|holder| format!("process {}", holder.0)).collect();
    row.set_item("holders", holders)?;
    Ok(row)
}

fn group<'py>(py: Python<'py>, runtime: &Runtime, group: &GroupRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", PyBytes::new(py, &id_bytes(group.group.to_words())))?;
    row.set_item("name", group.name.as_deref().unwrap_or_default())?;
    let strategy = match group.strategy {
        GroupStrategy::Pack => "PACK",
        GroupStrategy::Spread => "SPREAD",
        GroupStrategy::StrictPack => "STRICT_PACK",
        GroupStrategy::StrictSpread => "STRICT_SPREAD",
    };
    row.set_item("strategy", strategy)?;
    let (state, reason) = match &group.state {
        GroupState::Pending(reason) => ("PENDING", Some(reason)),
        GroupState::Ready => ("CREATED", None),
        GroupState::Removed(reason) => ("REMOVED", Some(reason)),
    };
    row.set_item("state", state)?;
    row.set_item("reason", reason)?;
    let bundles = group.bundles.iter().map(|bundle| resources_to_python(py, bundle));
    row.set_item("bundles", bundles.collect::<PyResult<Vec<_>>>()?)?;
    let nodes: Vec<_> = group.bundles.iter().map(|_| node_id(py, runtime)).collect();
    row.set_item("nodes", if state == "CREATED" { nodes } else { Vec::new() })?;
    Ok(row)
}

fn store<'py>(py: Python<'py>, store: &StoreRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("used_bytes", store.used)?;
    row.set_item("capacity_bytes", store.capacity)?;
    row.set_item("used_objects", store.objects)?;
    row.set_item("on_disk_bytes", store.on_disk)?;
    row.set_item("spilled_bytes", store.spilled_bytes)?;
    row.set_item("spilled_objects", store.spilled_objects)?;
    row.set_item("restored_bytes", store.restored_bytes)?;
    row.set_item("restored_objects", store.restored_objects)?;
    Ok(row)
}
