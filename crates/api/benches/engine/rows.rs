//! The rows of the table, in their order. Each is measured in a process of its own and may give several figures.

mod actors;
mod endurance;
mod large_objects;
mod limits;
mod lineage;
mod map;
mod one_at_a_time;
mod queued_tasks;
mod sessions;
mod small_objects;
mod tasks;

use crate::Failure;
use crate::arguments::Scale;
use crate::figure::Figure;
use aktis::Session;

/// One measurement.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Whether it asks so much of the machine that it is measured only if everything is.
    pub(crate) only_full: bool,
    pub(crate) measure: fn(Scale) -> Outcome,
}

/// The figures of a row.
pub(crate) type Outcome = Result<Vec<Figure>, Failure>;

const fn row(name: &'static str, measure: fn(Scale) -> Outcome) -> Row {
    Row { name, only_full: false, measure }
}

/// All rows.
pub(crate) const ALL: &[Row] = &[
    row("limits", limits::measure),
    row("tasks-in-flight", tasks::in_flight),
    row("nested-tasks", tasks::nested),
    row("wait-one-by-one", tasks::wait_one_by_one),
    row("map", map::measure),
    row("one-task", one_at_a_time::tasks),
    row("actor-calls", actors::calls_in_flight),
    row("one-actor-call", one_at_a_time::actor_calls),
    row("small-objects", small_objects::measure),
    row("large-put", large_objects::put),
    row("large-get", large_objects::get),
    row("session", sessions::measure),
    row("endurance", endurance::measure),
    row("queued-tasks", queued_tasks::measure),
    row("live-actors", actors::hundred_thousand),
    Row { only_full: true, ..row("million-actors", actors::million) },
    row("lineage", lineage::measure),
];

/// The CPUs of every session here.
const CPUS: u32 = 2;

/// A private session.
fn session() -> aktis::Result<Session> {
    Session::builder().cpus(CPUS).start()
}

/// Fails unless the engine gave back what it should have: a wrong result has no speed.
fn check(what: &str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(format!("wrong result: {what} gave {found}, and {expected} is right").into())
}
