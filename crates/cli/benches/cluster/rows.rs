//! What is measured.

mod locality;
mod python_actors;
mod round_trips;
mod secrecy;
mod starts;
mod tasks;
mod transfer;

use crate::Failure;
use crate::arguments::Scale;
use crate::figure::Figure;
use aktis::prelude::*;

/// What a row gives.
pub(crate) type Outcome = Result<Vec<Figure>, Failure>;

/// A row of the benchmark: figures that belong together.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(Scale) -> Outcome,
}

/// All of them, in the order of the table.
pub(crate) const ALL: &[Row] = &[
    Row { name: "starts", measure: starts::measure },
    Row { name: "one-remote-task", measure: round_trips::tasks },
    Row { name: "one-remote-call", measure: round_trips::calls },
    Row { name: "tasks-in-flight", measure: tasks::one_submitter },
    Row { name: "tasks-from-every-node", measure: tasks::submitter_on_each },
    Row { name: "transfer-1-gigabit", measure: transfer::one_gigabit },
    Row { name: "transfer-10-gigabit", measure: transfer::ten_gigabit },
    Row { name: "transfer-unlimited", measure: transfer::unlimited },
    Row { name: "locality", measure: locality::measure },
    Row { name: "python-actors", measure: python_actors::measure },
    Row { name: "secrecy", measure: secrecy::measure },
];

/// What a node has that it is asked for by name.
const HERE: &str = "here";

/// A task that does nothing. What it gives is counted, so that none can be missing.
#[remote]
fn empty() -> u64 {
    1
}

/// An array that is made where the task runs.
#[remote]
fn make(bytes: usize, content: u8) -> Array<u8> {
    vec![content; bytes].into()
}

/// Fails unless the cluster gave back what it should have: a wrong result has no speed.
fn check(what: &str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(format!("wrong result: {what} gave {found}, and {expected} is right").into())
}
