//! `aktis drain`: has a node hand over what it has and leave.

use crate::arguments::Form;
use crate::failed::Failed;
use crate::record::Record;
use crate::terminal::note;
use crate::{rows, show, values};
use aktis_daemon::admin::{Client, ClientError};
use aktis_protocol::NodeId;
use aktis_protocol::admin::{ClusterStatus, DrainOrder, IdPrefix, NodeRow, NodeState};
use aktis_protocol::member::Departure;
use clap::Args;
use std::io::Write;
use std::time::{Duration, Instant};

/// The pause between two looks at the node.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often what is left is said, at most.
const SAID_AGAIN: Duration = Duration::from_secs(1);
/// What a node says that has nothing left.
const NOTHING: &str = "nothing is left";

/// Have a node take nothing new, hand over what it has, and leave the cluster
#[derive(Args, Debug)]
#[command(after_help = "\
Tasks that wait there go to other nodes, and those that run end there. Actors with max_restarts end
after the calls that they have, and live on elsewhere. Nodes that hold references to objects of that
node get copies. The node waits for the programs that are attached to it, and for actors that cannot
live elsewhere: give a --deadline if they may take too long. What is left then is lost with the
node, or runs again elsewhere, if it may.

Exit codes: 0 if the node has left and nothing was lost, 1 if something was left at the deadline.")]
pub(crate) struct Drain {
    /// The node's id, or the first digits of it
    #[arg(value_parser = values::id)]
    node: IdPrefix,
    /// The node leaves after so long in any case, such as 90s or 10m [default: it waits for ever]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    deadline: Option<Duration>,
    #[command(flatten)]
    form: Form,
}

/// Gives the order, and waits until the node is gone.
pub(crate) fn run(
    output: &mut dyn Write,
    connect: impl Fn() -> Result<Client, ClientError>,
    wanted: Drain,
) -> Result<(), Failed> {
    let patience_milliseconds = wanted.deadline.map(|deadline| deadline.as_millis() as u64);
    let mut client = connect()?;
    let node = client.drain(DrainOrder { node: wanted.node, patience_milliseconds })?;
    let begun = Instant::now();
    // Unknown until the node has said it.
    let (mut left, mut said, mut said_at) = (None::<String>, None, None::<Instant>);
    loop {
        let status = match client.status() {
            Ok(status) => status,
            // The node that was asked has left itself.
            Err(ClientError::Ended { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        let Some(row) = row_of(&status, node) else {
            let gone = status.dead.iter().rev().find(|row| row.node == node);
            let reason = gone.and_then(|row| row.reason.clone()).unwrap_or_default();
            if !reason.is_empty() && reason != Departure::Left.to_string() {
                return Err(Failed::LostWhileDrained { node: rows::short(node), reason });
            }
            break;
        };
        if row.state == NodeState::Draining {
            let reason = row.reason.as_deref().unwrap_or_default();
            left = Some(reason.strip_prefix("drained: ").unwrap_or(reason).to_owned());
        }
        if let Some(now) = left.as_ref().filter(|now| said.as_ref() != Some(*now))
            && said_at.is_none_or(|at| at.elapsed() >= SAID_AGAIN)
        {
            note(&format!("node {} is drained: {now}", rows::short(node)));
            (said, said_at) = (left.clone(), Some(Instant::now()));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let is_late = wanted.deadline.is_some_and(|deadline| begun.elapsed() + LOOK_AGAIN >= deadline);
    if is_late && left.as_deref() != Some(NOTHING) {
        let left = left.unwrap_or_else(|| "it is not known what".to_owned());
        return Err(Failed::NotDrained { node: rows::short(node), left });
    }
    if wanted.form.json {
        let record = Record::default().field("node", node.to_string());
        return show::json(output, &record.field("seconds", begun.elapsed().as_secs_f64()));
    }
    writeln!(output, "node {} has left", rows::short(node)).map_err(Failed::Output)
}

fn row_of(status: &ClusterStatus, node: NodeId) -> Option<&NodeRow> {
    status.nodes.iter().find(|row| row.node == node)
}
