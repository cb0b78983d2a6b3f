//! How the whole cluster stands, in one screen.

use crate::arguments::Form;
use crate::failed::Failed;
use crate::record::Record;
use crate::{rows, show, table};
use aktis_protocol::admin::{ClusterStatus, DemandRow, NodeRow, NodeState};
use aktis_protocol::state::ResourceRow;
use aktis_protocol::tables::Counts;
use aktis_protocol::text::{one_line, rfc3339};
use aktis_protocol::{Amount, Resources};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Nodes that have left or died that people are shown.
const DEAD_SHOWN: usize = 5;

/// Prints it.
pub(crate) fn show(output: &mut dyn Write, status: &ClusterStatus, form: Form) -> Result<(), Failed> {
    match form.json {
        true => show::json(output, &record(status)),
        false => text(output, status).map_err(Failed::Output),
    }
}

/// Fails if the control process or a node does not answer.
pub(crate) fn health(status: &ClusterStatus) -> Result<(), Failed> {
    if status.head_lost.is_some() {
        return Err(Failed::Unwell("the control process is down, or cannot be reached".to_owned()));
    }
    let silent = status.nodes.iter().filter(|node| node.state == NodeState::Silent);
    let silent: Vec<String> = silent.map(|node| rows::short(node.node)).collect();
    match silent.is_empty() {
        true => Ok(()),
        false => Err(Failed::Unwell(format!("these nodes do not answer: {}", silent.join(", ")))),
    }
}

fn record(status: &ClusterStatus) -> Record {
    let resources: Map<String, Value> =
        totals(status).iter().map(|row| (row.name.clone(), rows::usage(row))).collect();
    let demand = |row: &DemandRow| {
        Record::default()
            .field("resources", rows::amounts(&row.resources))
            .field("waiting", row.waiting)
            .field("infeasible", row.infeasible)
            .field("reason", row.reason.as_str())
    };
    Record::default()
        .field("node", status.node.to_string())
        .field("address", status.address.as_deref())
        .field("head_lost", status.head_lost.as_deref())
        .field("drivers", status.drivers)
        .field("resources", resources)
        .records("nodes", status.nodes.iter().map(rows::node).collect())
        .records("dead", status.dead.iter().map(rows::node).collect())
        .records("demand", status.demand.iter().map(demand).collect())
        .field("kept", status.kept.as_ref().map(kept))
}

/// What the control process keeps, for programs.
fn kept(counts: &Counts) -> Value {
    json!({
        "tasks": counts.tasks,
        "task_bytes": counts.task_bytes,
        "objects": counts.objects,
        "rows": counts.rows,
        "row_bytes": counts.row_bytes,
        "events": counts.events,
    })
}

fn text(output: &mut dyn Write, status: &ClusterStatus) -> io::Result<()> {
    let alive = status.nodes.iter().filter(|node| node.state.is_up()).count();
    let address =
        status.address.as_ref().map_or(String::new(), |address| format!(" at {}", one_line(address)));
    let nodes = counted(status.nodes.len() as u64, "node");
    let nodes = if alive == status.nodes.len() { nodes } else { format!("{alive} of {nodes}") };
    let programs = counted(status.drivers.into(), "program");
    writeln!(output, "a cluster{address}: {nodes} alive, {programs} attached")?;
    if let Some(reason) = &status.head_lost {
        writeln!(output, "the control process is down, or cannot be reached: {}", one_line(reason))?;
        writeln!(output, "what follows is what the node of this machine knows")?;
    }
    writeln!(output)?;
    table::write(output, &status.nodes.iter().map(rows::node).collect::<Vec<_>>())?;
    for node in status.nodes.iter().filter(|node| node.state == NodeState::Draining) {
        let reason = one_line(node.reason.as_deref().unwrap_or_default());
        writeln!(output, "\nnode {} is {reason}", rows::short(node.node))?;
    }
    dead(output, &status.dead)?;
    let resources: Vec<Record> = totals(status)
        .iter()
        .map(|row| {
            Record::default().column("RESOURCE", row.name.as_str()).column("IN USE", rows::usage_text(row))
        })
        .collect();
    if !resources.is_empty() {
        writeln!(output)?;
        table::write(output, &resources)?;
    }
    if !status.demand.is_empty() {
        writeln!(output, "\nwaiting:")?;
    }
    for row in &status.demand {
        let who = if row.waiting == 1 { "task or actor wants" } else { "tasks or actors each want" };
        let wanted = rows::resources_text(&row.resources);
        let infeasible = if row.infeasible { "no node can ever give this: " } else { "" };
        let (wanted, reason) = (one_line(&wanted), one_line(&row.reason));
        writeln!(output, "  {} {who} {wanted}: {infeasible}{reason}", row.waiting)?;
    }
    // Programs that were written for Ray look for this form.
    if std::env::var_os("AKTIS_COMPAT").is_some_and(|value| value == "1") {
        for row in &status.demand {
            writeln!(output, " {}: {}+ pending tasks/actors", dictionary(&row.resources), row.waiting)?;
        }
    }
    Ok(())
}

/// Resources as Python prints a dictionary of them.
fn dictionary(resources: &Resources) -> String {
    let items: Vec<_> = resources
        .iter()
        .map(|(name, amount)| format!("'{}': {:?}", one_line(name), amount.to_f64()))
        .collect();
    format!("{{{}}}", items.join(", "))
}

/// The last nodes that have left or died, the latest first.
fn dead(output: &mut dyn Write, dead: &[NodeRow]) -> io::Result<()> {
    if dead.is_empty() {
        return Ok(());
    }
    writeln!(output, "\nno longer in the cluster:")?;
    for node in dead.iter().rev().take(DEAD_SHOWN) {
        let since = node.died_unix_milliseconds.map_or(String::new(), |died| rfc3339(died) + " ");
        let (host, reason) = (one_line(&node.host), one_line(node.reason.as_deref().unwrap_or_default()));
        writeln!(output, "  {since}{} on {host}: {reason}", rows::short(node.node))?;
    }
    match dead.len().checked_sub(DEAD_SHOWN) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(output, "  {more} more: see `aktis list nodes --state dead`"),
    }
}

/// What the nodes that are alive have together.
fn totals(status: &ClusterStatus) -> Vec<ResourceRow> {
    let mut totals = BTreeMap::<&str, (u64, u64)>::new();
    for node in status.nodes.iter().filter(|node| node.state.is_up()) {
        for row in &node.resources {
            let (total, available) = totals.entry(&row.name).or_default();
            *total = total.saturating_add(row.total.0);
            *available = available.saturating_add(row.available.0);
        }
    }
    let row = |(name, (total, available)): (&str, (u64, u64))| ResourceRow {
        name: name.to_owned(),
        total: Amount(total),
        available: Amount(available),
    };
    totals.into_iter().map(row).collect()
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
