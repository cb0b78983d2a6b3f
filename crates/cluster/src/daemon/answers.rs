//! What the daemon answers the command line.

use super::{DaemonError, Parts};
use crate::admin::{Admin, LogPage, LogPosition, Refusal};
use aktis_protocol::NodeId;
use aktis_protocol::admin::{
    ClusterStatus, IdPrefix, JoinToken, ListKind, ListQuery, Listing, LogQuery, NodeRow, NodeState, OnNode,
    Rows, StopScope,
};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::state::{ResourceRow, StateKind, StateRows, StoreRow};
use std::sync::Arc;
use std::time::Duration;

/// Answers from the parts of a daemon.
pub(super) struct Answers(pub(super) Arc<Parts>);

impl Answers {
    /// This node.
    fn own_row(&self) -> NodeRow {
        let parts = &self.0;
        let store = match parts.host.own().state(StateKind::Store) {
            Ok((StateRows::Store(row), _)) => row,
            _ => StoreRow::default(),
        };
        let workers = match parts.host.own().state(StateKind::Workers) {
            Ok((StateRows::Workers(rows), left_out)) => rows.len() as u32 + left_out as u32,
            _ => 0,
        };
        NodeRow {
            node: parts.node,
            is_head: parts.is_head,
            state: NodeState::Alive,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            address: parts.about.address.to_string(),
            pid: std::process::id(),
            labels: parts.about.labels.clone(),
            resources: parts.host.resources(),
            store,
            workers,
        }
    }

    fn nodes(&self) -> Vec<NodeRow> {
        let others = self.0.member.nodes();
        let mut rows = vec![self.own_row()];
        rows.extend(others.iter().filter(|info| info.node != self.0.node).map(|info| self.other_row(info)));
        rows
    }

    /// Another node, as far as it is known here.
    fn other_row(&self, info: &NodeInfo) -> NodeRow {
        let linked = self.0.neighbours.slot_of(info.node).is_some();
        let resource = |(name, total): (&str, aktis_protocol::Amount)| ResourceRow {
            name: name.to_owned(),
            total,
            available: total,
        };
        NodeRow {
            node: info.node,
            is_head: false,
            state: if linked { NodeState::Alive } else { NodeState::Silent },
            address: info.address.to_string(),
            labels: info.labels.clone(),
            resources: info.resources.iter().map(resource).collect(),
            ..NodeRow::default()
        }
    }

    fn rows(&self, kind: StateKind) -> Result<(StateRows, u64), Refusal> {
        self.0.host.own().state(kind).map_err(|error| Refusal::new(error.to_string()))
    }

    /// The nodes about which nothing is known here but that they are there.
    fn silent(&self) -> Vec<NodeId> {
        self.0.member.nodes().iter().map(|info| info.node).filter(|node| *node != self.0.node).collect()
    }
}

impl Admin for Answers {
    fn status(&self) -> Result<ClusterStatus, Refusal> {
        let parts = &self.0;
        let head_lost = parts.member.away().map(|away| {
            format!(
                "it has been away for {} s; what runs goes on, and what is new stays on its node",
                away.as_secs()
            )
        });
        Ok(ClusterStatus {
            node: parts.node,
            address: Some(parts.head.to_string()),
            head_lost,
            nodes: self.nodes(),
            ..ClusterStatus::default()
        })
    }

    fn stop(&self, scope: StopScope) -> Result<(), Refusal> {
        if scope == StopScope::Cluster {
            return Err(absent("stop all nodes of a cluster at once"));
        }
        self.0.stop();
        Ok(())
    }

    fn list(&self, query: &ListQuery) -> Result<Listing, Refusal> {
        let node = self.0.node;
        let silent = if query.what == ListKind::Nodes { Vec::new() } else { self.silent() };
        let (rows, left_out) = match query.what {
            ListKind::Nodes => {
                let (rows, left_out) = query.select(self.nodes());
                (Rows::Nodes(rows), left_out)
            }
            ListKind::Workers => {
                let (StateRows::Workers(rows), more) = self.rows(StateKind::Workers)? else {
                    return Err(confused());
                };
                let (rows, left_out) = query.select(rows.into_iter().map(|row| OnNode { node, row }));
                (Rows::Workers(rows), left_out + more)
            }
            ListKind::Actors => {
                let (StateRows::Actors(rows), more) = self.rows(StateKind::Actors)? else {
                    return Err(confused());
                };
                let (rows, left_out) = query.select(rows.into_iter().map(|row| OnNode { node, row }));
                (Rows::Actors(rows), left_out + more)
            }
            ListKind::Objects => {
                let (StateRows::Objects(rows), more) = self.rows(StateKind::Objects)? else {
                    return Err(confused());
                };
                let (rows, left_out) = query.select(rows.into_iter().map(|row| OnNode { node, row }));
                (Rows::Objects(rows), left_out + more)
            }
            ListKind::Tasks => {
                return Err(absent("list tasks, which only the processes know that submitted them"));
            }
        };
        Ok(Listing { rows, left_out, silent })
    }

    fn explain(&self, _: &IdPrefix) -> Result<String, Refusal> {
        Err(absent("explain what runs on a node"))
    }

    fn logs(&self, _: &LogQuery, _: Option<LogPosition>, _: Duration) -> Result<LogPage, Refusal> {
        Err(absent("keep what processes print"))
    }

    fn token(&self, _lifetime: Duration) -> Result<JoinToken, Refusal> {
        let (what, hint) = match self.0.is_head {
            true => {
                ("the control process, which gives out tokens, is down", "start it with `aktis start --head`")
            }
            false => ("only the control process gives out tokens", "run `aktis token` on the head's machine"),
        };
        Err(Refusal::new(what).with_hint(hint))
    }
}

fn absent(what: &'static str) -> Refusal {
    Refusal::new(DaemonError::Absent { what }.to_string())
}

fn confused() -> Refusal {
    Refusal::new("the node gave other rows than it was asked for".to_owned())
}
