//! The nodes of a session.

use crate::error::Result;
use aktis_protocol::admin::NodeRow;
use aktis_protocol::{NodeId, Resources};
use aktis_runtime::Runtime;
use std::collections::BTreeMap;

/// A node of a session: a machine of its cluster, or the engine inside the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its id, for [`on_node`](crate::Strategy::Node).
    pub id: NodeId,
    /// Whether it works. One that is dead, or that cannot be reached at the moment, does not.
    pub is_alive: bool,
    /// Whether the calling code runs on it.
    pub is_here: bool,
    /// Whether the head of the cluster runs on it.
    pub is_head: bool,
    /// Where other nodes reach it; `None` if it is in no cluster.
    pub address: Option<String>,
    /// What its operator says about it.
    pub labels: BTreeMap<String, String>,
    /// What it has in all.
    pub total: Resources,
    /// What of it is free now.
    pub free: Resources,
}

pub(crate) fn nodes_of(runtime: &Runtime) -> Result<Vec<Node>> {
    let here = runtime.node_id();
    Ok(runtime.nodes()?.into_iter().map(|row| node(row, here)).collect())
}

fn node(row: NodeRow, here: NodeId) -> Node {
    let (mut total, mut free) = (Resources::none(), Resources::none());
    for resource in &row.resources {
        total.set(&resource.name, resource.total);
        free.set(&resource.name, resource.available);
    }
    Node {
        id: row.node,
        is_alive: row.state.is_up(),
        is_here: row.node == here,
        is_head: row.is_head,
        address: Some(row.address).filter(|address| !address.is_empty()),
        labels: row.labels,
        total,
        free,
    }
}
