//! What the daemon tells, as records.

use crate::record::Record;
use aktis_protocol::admin::{JobRow, LogLine, LogStream, NodeRow, OnNode, ProgramRow, Rows, TaskRow};
use aktis_protocol::state::{ActorRow, GroupRow, ObjectRow, ResourceRow, StoreRow, WorkerRow};
use aktis_protocol::{Amount, NodeId, Resources, resources};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Digits of a node's id in a table: few nodes have the same ones.
const NODE_DIGITS: usize = 12;

/// The rows, and what they are called together.
pub(crate) fn records(rows: &Rows) -> (&'static str, Vec<Record>) {
    match rows {
        Rows::Tasks(rows) => ("tasks", rows.iter().map(task).collect()),
        Rows::Actors(rows) => ("actors", rows.iter().map(actor).collect()),
        Rows::Objects(rows) => ("objects", rows.iter().map(object).collect()),
        Rows::Nodes(rows) => {
            let any_dead = rows.iter().any(|row| row.reason.is_some());
            let reason = |row: &NodeRow| row.reason.clone().unwrap_or_default();
            let with_reason = |row| match any_dead {
                true => node(row).column("REASON", reason(row)),
                false => node(row),
            };
            ("nodes", rows.iter().map(with_reason).collect())
        }
        Rows::Workers(rows) => ("workers", rows.iter().map(worker).collect()),
        Rows::Jobs(rows) => ("jobs", rows.iter().map(job).collect()),
        Rows::Programs(rows) => ("programs", rows.iter().map(program).collect()),
        Rows::Groups(rows) => ("groups", rows.iter().map(group).collect()),
    }
}

fn task(OnNode { node, row }: &OnNode<TaskRow>) -> Record {
    Record::default()
        .both("id", "ID", row.task.to_string())
        .both("name", "NAME", row.name.as_str())
        .both("kind", "KIND", row.kind.word())
        .both("state", "STATE", row.state.word())
        .both("attempt", "ATTEMPT", row.attempt)
        .field("node", node.to_string())
        .column("NODE", short(*node))
        .both("pid", "PID", row.pid)
        .field("actor", row.actor.map(|actor| actor.to_string()))
        .both("error", "ERROR", row.error.as_deref())
}

fn actor(OnNode { node, row }: &OnNode<ActorRow>) -> Record {
    Record::default()
        .both("id", "ID", row.actor.to_string())
        .both("type", "TYPE", row.type_name.as_str())
        .both("name", "NAME", row.name.as_deref())
        .both("state", "STATE", row.state.word())
        .field("node", node.to_string())
        .column("NODE", short(*node))
        .both("pid", "PID", (row.pid != 0).then_some(row.pid))
        .both("restarts", "RESTARTS", row.restarts)
        .field("resources", amounts(&row.resources))
        .field("detached", row.detached)
        .both("reason", "REASON", row.reason.as_str())
}

fn object(OnNode { node, row }: &OnNode<ObjectRow>) -> Record {
    let holders: Vec<u32> = row.holders.iter().map(|process| process.0).collect();
    Record::default()
        .both("id", "ID", row.object.to_string())
        .both("state", "STATE", row.place().word())
        .both("bytes", "BYTES", row.bytes)
        .both("pinned", "PINNED", row.pinned)
        .column("HOLDERS", holders.len())
        .field("holders", holders)
        .field("node", node.to_string())
        .column("NODE", short(*node))
}

fn worker(OnNode { node, row }: &OnNode<WorkerRow>) -> Record {
    let actor = row.role.actor().map(|actor| actor.to_string());
    Record::default()
        .field("node", node.to_string())
        .column("NODE", short(*node))
        .both("process", "PROCESS", row.process.0)
        .both("pid", "PID", (row.pid != 0).then_some(row.pid))
        .both("role", "ROLE", row.role.word())
        .both("state", "STATE", row.state.word())
        .field("resources", amounts(&row.resources))
        .column("RESOURCES", resources_text(&row.resources))
        .both("actor", "ACTOR", actor)
}

fn job(OnNode { node, row }: &OnNode<JobRow>) -> Record {
    Record::default()
        .both("id", "ID", format!("{:016x}", row.job))
        .both("state", "STATE", row.state.word())
        .field("node", node.to_string())
        .column("NODE", short(*node))
        .both("pid", "PID", row.pid)
        .field("program", row.program.to_string())
        .field("began_unix_milliseconds", row.began_unix_milliseconds)
        .field("ended_unix_milliseconds", row.ended_unix_milliseconds)
        .both("command", "COMMAND", row.command.as_str())
}

fn program(OnNode { node, row }: &OnNode<ProgramRow>) -> Record {
    Record::default()
        .both("id", "ID", row.program.to_string())
        .both("language", "LANGUAGE", row.language.word())
        .both("version", "VERSION", row.version.as_deref())
        .field("bytes", row.bytes)
        .column("SIZE", row.bytes.map(bytes_text))
        .both("architecture", "ARCHITECTURE", row.architecture.as_str())
        .field("node", node.to_string())
        .column("NODE", short(*node))
        .field("came_unix_milliseconds", row.came_unix_milliseconds)
}

fn group(OnNode { node, row }: &OnNode<GroupRow>) -> Record {
    let bundles: Vec<Value> = row.bundles.iter().map(|bundle| amounts(bundle).into()).collect();
    let bundles_text: Vec<String> = row.bundles.iter().map(resources_text).collect();
    let on: Vec<String> = row.nodes.iter().map(ToString::to_string).collect();
    let on_short: BTreeSet<String> = row.nodes.iter().copied().map(short).collect();
    Record::default()
        .both("id", "ID", row.group.to_string())
        .both("name", "NAME", row.name.as_deref())
        .both("state", "STATE", row.state.word())
        .both("strategy", "STRATEGY", row.strategy.word())
        .field("bundles", bundles)
        .column("BUNDLES", bundles_text.join(" | "))
        .field("node", node.to_string())
        .field("nodes", on)
        .column("NODES", on_short.into_iter().collect::<Vec<_>>().join(","))
        .both("reason", "REASON", row.state.reason())
}

/// A node.
pub(crate) fn node(row: &NodeRow) -> Record {
    let used = |name: &str| {
        let found = row.resources.iter().find(|resource| resource.name == name);
        found.map_or(String::new(), usage_text)
    };
    let resources = row.resources.iter().map(|resource| (resource.name.clone(), usage(resource)));
    // That every node has its id as a label is nothing to tell people of.
    let shown =
        || row.labels.iter().filter(|(name, _)| name.as_str() != aktis_protocol::placement::NODE_ID_LABEL);
    let labels = shown().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    let labels_text: Vec<String> = shown().map(|(name, value)| format!("{name}={value}")).collect();
    Record::default()
        .field("id", row.node.to_string())
        .column("ID", short(row.node))
        .both("state", "STATE", row.state.word())
        .field("is_head", row.is_head)
        .column("ROLE", if row.is_head { "head" } else { "member" })
        .both("host", "HOST", row.host.as_str())
        .both("address", "ADDRESS", row.address.as_str())
        .field("pid", row.pid)
        .both("version", "VERSION", row.version.as_str())
        .column("CPU", used(resources::CPU))
        .column("GPU", used(resources::GPU))
        .field("resources", resources.collect::<Map<_, _>>())
        .field("store", store(&row.store))
        .column("STORE", format!("{} / {}", bytes_text(row.store.used), bytes_text(row.store.capacity)))
        .both("workers", "WORKERS", row.workers)
        .field("labels", labels.collect::<Map<_, _>>())
        .column("LABELS", labels_text.join(","))
        .field("died_unix_milliseconds", row.died_unix_milliseconds)
        .field("reason", row.reason.as_deref())
}

/// A line that a process has printed. It has no columns: people get it as it is.
pub(crate) fn log_line(line: &LogLine) -> Record {
    let stream = match line.stream {
        LogStream::Output => "stdout",
        LogStream::Error => "stderr",
    };
    Record::default()
        .field("unix_milliseconds", line.unix_milliseconds)
        .field("node", line.node.to_string())
        .field("pid", line.pid)
        .field("name", line.name.as_str())
        .field("stream", stream)
        .field("text", line.text.as_str())
}

/// The first digits of a node's id.
pub(crate) fn short(node: NodeId) -> String {
    node.to_string()[..NODE_DIGITS].to_owned()
}

/// A whole number where it is one: programs compare those.
fn amount(amount: Amount) -> Value {
    match amount.0 % Amount::ONE.0 {
        0 => Value::from(amount.0 / Amount::ONE.0),
        _ => Value::from(amount.to_f64()),
    }
}

/// Names and amounts, for programs.
pub(crate) fn amounts(resources: &Resources) -> Map<String, Value> {
    resources.iter().map(|(name, value)| (name.to_owned(), amount(value))).collect()
}

/// Total and free amount, for programs.
pub(crate) fn usage(row: &ResourceRow) -> Value {
    json!({ "total": amount(row.total), "available": amount(row.available) })
}

/// What is in use, of how much.
pub(crate) fn usage_text(row: &ResourceRow) -> String {
    let used = Amount(row.total.0.saturating_sub(row.available.0));
    format!("{} / {}", amount_text(&row.name, used), amount_text(&row.name, row.total))
}

fn amount_text(name: &str, amount: Amount) -> String {
    match name {
        resources::MEMORY => bytes_text(amount.0 / Amount::ONE.0),
        _ => amount.to_string(),
    }
}

/// Names and amounts, for people.
pub(crate) fn resources_text(resources: &Resources) -> String {
    let parts: Vec<String> =
        resources.iter().map(|(name, amount)| format!("{} {name}", amount_text(name, amount))).collect();
    parts.join(", ")
}

fn store(row: &StoreRow) -> Value {
    json!({
        "capacity_bytes": row.capacity,
        "used_bytes": row.used,
        "objects": row.objects,
        "disk_bytes": row.on_disk,
        "spilled_objects": row.spilled_objects,
        "restored_objects": row.restored_objects,
        "pulled_objects": row.pulled_objects,
        "pulled_bytes": row.pulled_bytes,
    })
}

/// A number of bytes with the largest unit that leaves something before the point.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        // What would be rounded to 1024.0 is one of the next.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (4 << 30, "4.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }

    #[test]
    fn amounts_are_whole_numbers_where_they_can_be() {
        let all = Resources::none().with("CPU", Amount::units(3)).with("disk", Amount(5_000));
        assert_eq!(Value::from(amounts(&all)).to_string(), r#"{"CPU":3,"disk":0.5}"#);
        assert_eq!(
            resources_text(&all.with("memory", Amount::units(1 << 30))),
            "3 CPU, 0.5 disk, 1.0 GiB memory"
        );
    }
}
