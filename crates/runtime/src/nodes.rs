//! The nodes of the session: of its cluster, or the one that is embedded in the driver.

use crate::error::Error;
use crate::runtime::Runtime;
use aktis_node::NODE_VARIABLE;
use aktis_node::admin_wire::list_nodes;
use aktis_protocol::admin::{NodeRow, NodeState};
use aktis_protocol::state::{StateKind, StateRows};
use std::path::PathBuf;

impl Runtime {
    /// The nodes of the session, dead ones included. The daemon of this node asks all others.
    pub fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        self.0.check_usable()?;
        let daemon = self.node_directory().and_then(|node| Some(node.parent()?.to_owned()));
        let listed = daemon.map(|daemon| list_nodes(&daemon)).transpose();
        let problem =
            |error| Error::System(format!("the daemon of this node does not tell its nodes: {error}"));
        match listed.map_err(problem)?.flatten() {
            Some(rows) => Ok(rows),
            None => Ok(vec![self.only_node()?]),
        }
    }

    /// The directory of this process's node, if that is not embedded in a driver.
    fn node_directory(&self) -> Option<PathBuf> {
        match self.0.executor {
            Some(_) => std::env::var_os(NODE_VARIABLE).map(PathBuf::from),
            None => self.directory().map(PathBuf::from),
        }
    }

    /// A node that is in no cluster.
    fn only_node(&self) -> Result<NodeRow, Error> {
        let resources = match self.state(StateKind::Resources)?.0 {
            StateRows::Resources(rows) => rows,
            _ => Vec::new(),
        };
        let labels = match self.state(StateKind::Labels)?.0 {
            StateRows::Labels(labels) => labels,
            _ => Default::default(),
        };
        let (node, state) = (self.node_id(), NodeState::Alive);
        Ok(NodeRow { node, state, labels, resources, ..NodeRow::default() })
    }
}
