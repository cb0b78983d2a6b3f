//! The command `aktis` inside a Python process, and what a daemon is asked through its own socket.

use crate::detached::detached;
use crate::object_ref::id_bytes;
use crate::session::resources_to_python;
use aktis_cli::Restart;
use aktis_daemon::admin::{Client, ClientError};
use aktis_protocol::admin::{ListKind, ListQuery, Rows};
use aktis_protocol::{Resources, limits};
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::ffi::OsString;
use std::path::Path;

/// Does what the arguments of the command say, of which the first is its name; gives its exit code. `restart` is the
/// command line that starts it once more, without arguments of its own.
#[pyfunction]
pub(crate) fn cli(py: Python<'_>, arguments: Vec<OsString>, restart: Vec<OsString>) -> u8 {
    let mut words = restart.into_iter();
    let restart = Restart { program: words.next().unwrap_or_default(), arguments: words.collect() };
    py.detach(|| aktis_cli::run(arguments, &restart))
}

/// The nodes of a cluster, as the daemon knows them that has this directory; also the last that are dead, if they are wanted.
#[pyfunction]
#[pyo3(signature = (directory, with_dead = false))]
pub(crate) fn cluster_nodes(
    py: Python<'_>,
    directory: OsString,
    with_dead: bool,
) -> PyResult<Bound<'_, PyList>> {
    let nodes = detached(py, || {
        let mut client = Client::connect(Path::new(&directory))?;
        match with_dead.then(|| client.list(all_nodes())).transpose()?.map(|listing| listing.rows) {
            Some(Rows::Nodes(nodes)) => Ok(nodes),
            _ => Ok(client.status()?.nodes),
        }
    });
    let nodes = nodes.map_err(|error: ClientError| PyConnectionError::new_err(error.to_string()))?;
    let rows = PyList::empty(py);
    for node in nodes {
        let (mut total, mut available) = (Resources::none(), Resources::none());
        for resource in &node.resources {
            total.set(&resource.name, resource.total);
            available.set(&resource.name, resource.available);
        }
        let row = PyDict::new(py);
        // As contexts show it, which know the session of their node: that is the first half of its id.
        row.set_item("node_id", PyBytes::new(py, &id_bytes([node.node.to_words()[0], 0])))?;
        row.set_item("is_head", node.is_head)?;
        row.set_item("is_alive", node.state.is_up())?;
        row.set_item("host", node.host)?;
        row.set_item("address", node.address)?;
        row.set_item("labels", node.labels)?;
        row.set_item("total", resources_to_python(py, &total)?)?;
        row.set_item("available", resources_to_python(py, &available)?)?;
        row.set_item("store_bytes", node.store.capacity)?;
        row.set_item("drivers", node.drivers)?;
        rows.append(row)?;
    }
    Ok(rows)
}

fn all_nodes() -> ListQuery {
    ListQuery {
        what: ListKind::Nodes,
        limit: limits::LISTED_ROWS_MAX,
        node: None,
        state: None,
        name: None,
        filters: Vec::new(),
    }
}
