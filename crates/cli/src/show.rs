//! Answers of the daemon, printed for people or for programs.

use crate::arguments::Form;
use crate::failed::Failed;
use crate::record::Record;
use crate::terminal::{Screen, note};
use crate::{rows, table};
use aktis_daemon::admin::{Client, ClientError};
use aktis_daemon::control::control_directory;
use aktis_daemon::directory::{Holder, LOG_NAME, wait_until_free};
use aktis_protocol::admin::{IdPrefix, Killed, Listing, LogLine, LogQuery, StopScope};
use aktis_protocol::text;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Rows, as a table or as one object.
pub(crate) fn listing(output: &mut dyn Write, listing: Listing, form: Form) -> Result<(), Failed> {
    let (name, records) = rows::records(&listing.rows);
    if form.json {
        let silent: Vec<String> = listing.silent.iter().map(ToString::to_string).collect();
        let whole = Record::default().records(name, records).field("left_out", listing.left_out);
        return json(output, &whole.field("silent_nodes", silent));
    }
    if records.is_empty() {
        note(&format!("no {name}"));
    }
    table::write(output, &records).map_err(Failed::Output)?;
    output.flush().map_err(Failed::Output)?;
    if listing.left_out > 0 {
        note(&format!("{} more are not shown; see --limit", listing.left_out));
    }
    for node in listing.silent {
        note(&format!("node {} has not answered: its {name} are missing", rows::short(node)));
    }
    Ok(())
}

/// Why something stands as it does.
pub(crate) fn explanation(
    output: &mut dyn Write,
    id: &IdPrefix,
    text: &str,
    form: Form,
) -> Result<(), Failed> {
    match form.json {
        true => json(output, &Record::default().field("id", id.to_string()).field("explanation", text)),
        false => writeln!(output, "{text}").map_err(Failed::Output),
    }
}

/// Lines that processes have printed, as they come.
pub(crate) fn logs(
    output: &mut Screen<impl Write>,
    client: Client,
    query: LogQuery,
    form: Form,
) -> Result<(), Failed> {
    let for_terminal = io::stdout().is_terminal();
    let mut failed = None;
    client.logs(query, |lines, missed| {
        if missed > 0 {
            note(&format!("{missed} lines are not kept any more"));
        }
        let written = lines.iter().try_for_each(|line| log_line(output, line, form, for_terminal));
        failed = written.and_then(|()| output.flush()).err();
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed.map_or(Ok(()), |error| Err(Failed::Output(error)))
}

fn log_line(
    output: &mut Screen<impl Write>,
    line: &LogLine,
    form: Form,
    for_terminal: bool,
) -> io::Result<()> {
    if form.json {
        return writeln!(output, "{}", text::json(&serde_json::to_string(&rows::log_line(line))?));
    }
    let (time, node) = (text::rfc3339(line.unix_milliseconds), rows::short(line.node));
    let text = format!("{time} ({} pid={} node={node}) {}", line.name, line.pid, line.text);
    output.printed_line(&text, for_terminal)
}

/// What was told to end.
pub(crate) fn killed(output: &mut dyn Write, killed: &Killed, form: Form) -> Result<(), Failed> {
    let Killed { kind, id, node } = killed;
    if form.json {
        let record = Record::default().field("kind", kind.word()).field("id", id.as_str());
        return json(output, &record.field("node", node.to_string()));
    }
    writeln!(output, "{} {id} was told to end, on node {}", kind.word(), rows::short(*node))
        .map_err(Failed::Output)
}

/// Ends a daemon, and says so when it is gone.
pub(crate) fn stop(
    output: &mut dyn Write,
    directory: &Path,
    cluster: bool,
    patience: Duration,
    form: Form,
) -> Result<(), Failed> {
    // Nodes end each other; a control process ends the node of its machine.
    let (client, scope) = match cluster {
        true => (Client::connect(directory), StopScope::Cluster),
        false => (Client::connect_to_control(directory), StopScope::Node),
    };
    let ended = match client {
        Err(ClientError::Starting { directory, .. }) => terminate(&directory, patience)?,
        client => client?.stop(scope, patience)?,
    };
    // On the machine of a control process, its directory is free last.
    let is_free = |path: &Path| wait_until_free(path, patience);
    if !ended || !is_free(directory) || !is_free(&control_directory(directory)) {
        let log = directory.join(LOG_NAME);
        return Err(Failed::StillThere { seconds: patience.as_secs(), log });
    }
    if form.json {
        return json(output, &Record::default().field("ended", if cluster { "cluster" } else { "node" }));
    }
    let what = if cluster { "the cluster" } else { "the node of this machine" };
    writeln!(output, "{what} has ended").map_err(Failed::Output)
}

/// Ends a process that has a directory, and cannot be asked to end over its socket; false if it is there after `patience`.
fn terminate(directory: &Path, patience: Duration) -> Result<bool, Failed> {
    if let Some(holder) = Holder::find(directory) {
        holder.terminate().map_err(|source| Failed::System { what: "to end the process", source })?;
    }
    Ok(wait_until_free(directory, patience))
}

/// An object for programs.
pub(crate) fn json(output: &mut dyn Write, record: &Record) -> Result<(), Failed> {
    let document = serde_json::to_string_pretty(record).map_err(|error| Failed::Output(error.into()))?;
    writeln!(output, "{}", text::json(&document)).map_err(Failed::Output)
}
