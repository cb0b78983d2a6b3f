//! How things stand on the node, as rows for Python.

use crate::detached::detached;
use crate::failure;
use crate::object_ref::id_bytes;
use crate::session::resources_to_python;
use aktis_daemon::admin::{Client, ClientError};
use aktis_protocol::admin::{
    JobRow, ListKind, ListQuery, NodeRow, NodeState, OnNode, Rows, TaskKind, TaskRow, TaskState,
};
use aktis_protocol::state::{
    ActorRow, ActorState, GroupRow, ObjectRow, StateKind, StateRows, StoreRow, WorkerRole, WorkerRow,
    WorkerState,
};
use aktis_protocol::{GroupState, GroupStrategy, ProcessSlot, Resources, limits};
use aktis_runtime::Runtime;
use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::path::Path;

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

/// Rows about workers, actors, objects, groups, the store, the nodes or tasks. With the directory of a cluster's daemon
/// they are about the whole of it, but for groups; else about the node of this process, and its own tasks.
pub(crate) fn rows<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    what: &str,
    daemon: Option<&Path>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    if let Some(daemon) = daemon
        && cluster_rows(py, &list, daemon, what)?
    {
        return Ok(list);
    }
    let session = runtime.session().0;
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
        StateRows::Workers(rows) => add(&list, rows.iter(), |row| worker(py, session, row))?,
        StateRows::Actors(rows) => add(&list, rows.iter(), |row| actor(py, session, row))?,
        StateRows::Objects(rows) => {
            add(&list, rows.iter().filter(|row| !row.elsewhere), |row| object(py, session, row))?;
        }
        StateRows::Groups(rows) => add(&list, rows.iter(), |row| group(py, row))?,
        StateRows::Store(row) => list.append(store(py, &row)?)?,
        StateRows::Resources(_) | StateRows::Demand(_) | StateRows::Drivers(_) | StateRows::Labels(_) => {}
    }
    Ok(list)
}

/// Adds the rows of all nodes, as the daemon in this directory tells them; false if it is no daemon of a cluster, or the
/// rows are not of the cluster.
fn cluster_rows<'py>(
    py: Python<'py>,
    list: &Bound<'py, PyList>,
    daemon: &Path,
    asked: &str,
) -> PyResult<bool> {
    let failed = |error: ClientError| PyConnectionError::new_err(error.to_string());
    let what = match asked {
        "tasks" => ListKind::Tasks,
        "workers" => ListKind::Workers,
        "actors" => ListKind::Actors,
        "objects" => ListKind::Objects,
        "nodes" | "store" => ListKind::Nodes,
        "jobs" => ListKind::Jobs,
        _ => return Ok(false),
    };
    let query = ListQuery {
        what,
        limit: limits::LISTED_ROWS_MAX,
        node: None,
        state: (asked == "store").then(|| NodeState::Alive.word().to_owned()),
        name: None,
        filters: Vec::new(),
    };
    let stores = what == ListKind::Nodes && asked == "store";
    let listing = detached(py, || Client::connect(daemon)?.list(query));
    let rows = match listing {
        Ok(listing) => listing.rows,
        // A node that is in no cluster has nobody who listens there.
        Err(ClientError::NoDaemon { .. }) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    match rows {
        Rows::Tasks(rows) => add(list, rows.iter(), |row| {
            let known = task(py, &row.row)?;
            known.set_item("node", node_id(py, row.node.to_words()[0]))?;
            Ok(known)
        })?,
        Rows::Workers(rows) => add(list, rows.iter(), |row| worker(py, row.node.to_words()[0], &row.row))?,
        Rows::Actors(rows) => add(list, rows.iter(), |row| actor(py, row.node.to_words()[0], &row.row))?,
        Rows::Objects(rows) => {
            // What a node has of another is in the rows of that one.
            let here = rows.iter().filter(|row| !row.row.elsewhere);
            add(list, here, |row| object(py, row.node.to_words()[0], &row.row))?;
        }
        Rows::Jobs(rows) => add(list, rows.iter(), |row| job(py, row))?,
        Rows::Programs(_) | Rows::Groups(_) => return Ok(false),
        Rows::Nodes(rows) if stores => add(list, rows.iter(), |row| {
            let known = store(py, &row.store)?;
            known.set_item("node", node_id(py, row.node.to_words()[0]))?;
            Ok(known)
        })?,
        Rows::Nodes(rows) => add(list, rows.iter(), |row| cluster_node(py, row))?,
    }
    Ok(true)
}

fn job<'py>(py: Python<'py>, job: &OnNode<JobRow>) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", format!("{:016x}", job.row.job))?;
    row.set_item("node", node_id(py, job.node.to_words()[0]))?;
    row.set_item("command", &job.row.command)?;
    row.set_item("program", job.row.program.to_string())?;
    row.set_item("pid", job.row.pid)?;
    row.set_item("state", job.row.state.word())?;
    row.set_item("began", job.row.began_unix_milliseconds)?;
    row.set_item("ended", job.row.ended_unix_milliseconds)?;
    Ok(row)
}

fn cluster_node<'py>(py: Python<'py>, node: &NodeRow) -> PyResult<Bound<'py, PyDict>> {
    let (mut total, mut available) = (Resources::none(), Resources::none());
    for resource in &node.resources {
        total.set(&resource.name, resource.total);
        available.set(&resource.name, resource.available);
    }
    let row = PyDict::new(py);
    row.set_item("id", node_id(py, node.node.to_words()[0]))?;
    row.set_item("state", if node.state.is_up() { "ALIVE" } else { "DEAD" })?;
    row.set_item("resources", resources_to_python(py, &total)?)?;
    row.set_item("available", resources_to_python(py, &available)?)?;
    row.set_item("pid", node.pid)?;
    row.set_item("labels", node.labels.clone())?;
    row.set_item("head", node.is_head)?;
    row.set_item("host", &node.host)?;
    let address = node.address.rsplit_once(':').map_or(node.address.as_str(), |(host, _)| host);
    row.set_item("address", address)?;
    Ok(row)
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
fn worker_id(py: Python<'_>, session: u64, process: ProcessSlot, pid: u32) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &id_bytes([session, u64::from(process.0) << 32 | u64::from(pid)]))
}

/// The id of a node, as contexts show it, which know the session of their node: that is the first half of its id.
fn node_id(py: Python<'_>, session: u64) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &id_bytes([session, 0]))
}

fn node<'py>(py: Python<'py>, runtime: &Runtime) -> PyResult<Bound<'py, PyDict>> {
    let (total, available) = resources(py, runtime)?;
    let row = PyDict::new(py);
    row.set_item("id", node_id(py, runtime.session().0))?;
    row.set_item("state", "ALIVE")?;
    row.set_item("resources", resources_to_python(py, &total)?)?;
    row.set_item("available", resources_to_python(py, &available)?)?;
    row.set_item("pid", runtime.driver_pid())?;
    row.set_item("labels", PyDict::new(py))?;
    row.set_item("head", true)?;
    Ok(row)
}

fn task<'py>(py: Python<'py>, task: &TaskRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", PyBytes::new(py, &id_bytes(task.task.to_words())))?;
    row.set_item("function", &task.name)?;
    let state = match task.state {
        TaskState::Waiting => "PENDING_ARGS",
        TaskState::Queued => "PENDING",
        TaskState::Sent => "SUBMITTED_TO_WORKER",
        TaskState::Running => "RUNNING",
        TaskState::Finished => "FINISHED",
        TaskState::Failed => "FAILED",
    };
    row.set_item("state", state)?;
    let kind = match task.kind {
        TaskKind::Function => "NORMAL_TASK",
        TaskKind::Constructor => "ACTOR_CREATION_TASK",
        TaskKind::Method => "ACTOR_TASK",
    };
    row.set_item("kind", kind)?;
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

fn worker<'py>(py: Python<'py>, session: u64, worker: &WorkerRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", worker_id(py, session, worker.process, worker.pid))?;
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
    row.set_item("node", node_id(py, session))?;
    row.set_item("resources", resources_to_python(py, &worker.resources)?)?;
    if let WorkerRole::Actor(actor) = worker.role {
        row.set_item("actor", PyBytes::new(py, &id_bytes(actor.to_words())))?;
    }
    Ok(row)
}

fn actor<'py>(py: Python<'py>, session: u64, actor: &ActorRow) -> PyResult<Bound<'py, PyDict>> {
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
        row.set_item("worker", worker_id(py, session, process, actor.pid))?;
        row.set_item("node", node_id(py, session))?;
    }
    row.set_item("restarts", actor.restarts)?;
    row.set_item("detached", actor.detached)?;
    row.set_item("resources", resources_to_python(py, &actor.resources)?)?;
    if !actor.reason.is_empty() {
        row.set_item("error", &actor.reason)?;
    }
    Ok(row)
}

fn object<'py>(py: Python<'py>, session: u64, object: &ObjectRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("node", node_id(py, session))?;
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

fn group<'py>(py: Python<'py>, group: &GroupRow) -> PyResult<Bound<'py, PyDict>> {
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
    let nodes = group.nodes.iter().map(|node| PyBytes::new(py, &id_bytes(node.to_words())));
    row.set_item("nodes", nodes.collect::<Vec<_>>())?;
    Ok(row)
}

fn store<'py>(py: Python<'py>, store: &StoreRow) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("used_bytes", store.used)?;
    row.set_item("capacity_bytes", store.capacity)?;
    row.set_item("used_objects", store.objects_in_memory)?;
    row.set_item("all_objects", store.objects)?;
    row.set_item("on_disk_bytes", store.on_disk)?;
    row.set_item("spilled_bytes", store.spilled_bytes)?;
    row.set_item("spilled_objects", store.spilled_objects)?;
    row.set_item("restored_bytes", store.restored_bytes)?;
    row.set_item("restored_objects", store.restored_objects)?;
    Ok(row)
}
