//! `aktis token`, `aktis nodes` and `aktis audit`: who is let into the cluster, who was, and who did what.

use crate::arguments::Form;
use crate::failed::Failed;
use crate::record::Record;
use crate::terminal::note;
use crate::{rows, show, table, values};
use aktis_daemon::admin::Client;
use aktis_protocol::NodeId;
use aktis_protocol::admin::{IdPrefix, JoinToken};
use aktis_protocol::tables::{Event, Key};
use aktis_protocol::text::rfc3339;
use aktis_protocol::trust::{PutOutKind, TokenRow};
use clap::{Args, Subcommand, value_parser};
use std::io::Write;
use std::time::Duration;

/// Print a new token, with which machines can join the cluster; show, revoke and rotate tokens
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The token alone goes to the standard output, so that a script can use it.
These commands are for the machine of the head."
)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: Option<TokenCommand>,
    /// For how long it is good, such as 30m, 12h or 7d; 365d at most
    #[arg(long, visible_alias = "ttl", value_name = "DURATION", default_value = "1h", value_parser = values::lifetime)]
    lifetime: Duration,
    /// How many machines can join with it [default: any number]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..))]
    uses: Option<u32>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Show the tokens that have not expired, and how often each was used; not the tokens themselves
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Make another key for tokens: no token that was made before lets anybody in any more
    Rotate {
        #[command(flatten)]
        form: Form,
    },
    /// Let nobody in any more with a token
    Revoke {
        /// The token's id, or the first digits of it
        #[arg(value_parser = values::id)]
        id: IdPrefix,
        #[command(flatten)]
        form: Form,
    },
}

/// Put nodes out of the cluster
#[derive(Args, Debug)]
#[command(after_help = "\
Both end the node's membership at once: it ends, all nodes close their links to it, and its
certificate is refused. What ran there runs again elsewhere, if it may.
These commands are for the machine of the head.")]
pub(crate) struct Nodes {
    #[command(subcommand)]
    pub(crate) command: NodesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// Put a node out; its machine can join again with a token
    Expel {
        /// The node's id, or the first digits of it
        #[arg(value_parser = values::id)]
        node: IdPrefix,
        #[command(flatten)]
        form: Form,
    },
    /// Put a node out and refuse its key for good, also with a token: for a machine that was lost or broken into
    Revoke {
        /// The node's id, or the first digits of it; the whole id if it left long ago
        #[arg(value_parser = values::id)]
        node: IdPrefix,
        #[command(flatten)]
        form: Form,
    },
}

/// Give the cluster other keys while it goes on, after which no token is good
#[derive(Args, Debug)]
#[command(after_help = "\
For keys that others may have seen. All members get other certificates, in stages. Afterwards what
the old key has signed is refused: certificates of machines that are away now, and all tokens.
Look at `aktis list nodes` first: `aktis nodes revoke` puts out who does not belong there.
This command is for the machine of the head.")]
pub(crate) struct Rotate {
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Show who has joined, left, attached, or was refused, and what was ordered, the last of it last
#[derive(Args, Debug)]
#[command(after_help = "\
The control process keeps the last 10000 of these events on its disk, or more.
This command is for the machine of the head.")]
pub(crate) struct Audit {
    /// Only since this time, such as 2026-01-31T08:00Z (RFC 3339, UTC) or 10m, 2h for so long ago
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    since: Option<u64>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    form: Form,
}

/// Does what was asked about tokens.
pub(crate) fn token(output: &mut dyn Write, mut client: Client, arguments: Token) -> Result<(), Failed> {
    match arguments.command {
        None => {
            let token = client.token(arguments.lifetime, arguments.uses)?;
            show_token(output, &token, arguments.lifetime, arguments.form)
        }
        Some(TokenCommand::List { form }) => {
            let (rows, unix_seconds) = client.tokens()?;
            show_tokens(output, &rows, unix_seconds, form)
        }
        Some(TokenCommand::Rotate { form }) => {
            let count = client.rotate_tokens()?;
            let tokens = if count == 1 { "token is" } else { "tokens are" };
            match form.json {
                true => show::json(output, &Record::default().field("ended", count)),
                false => writeln!(output, "there is another key; {count} {tokens} good no more")
                    .map_err(Failed::Output),
            }
        }
        Some(TokenCommand::Revoke { id, form }) => {
            let id = client.revoke_token(id)?.to_string();
            match form.json {
                true => show::json(output, &Record::default().field("revoked", id)),
                false => writeln!(output, "token {id} is revoked").map_err(Failed::Output),
            }
        }
    }
}

/// Does what was asked about nodes.
pub(crate) fn nodes(output: &mut dyn Write, mut client: Client, command: NodesCommand) -> Result<(), Failed> {
    let (node, form, kind) = match command {
        NodesCommand::Expel { node, form } => (node, form, PutOutKind::Expelled),
        NodesCommand::Revoke { node, form } => (node, form, PutOutKind::Revoked),
    };
    let node = client.put_out(node, kind)?.to_string();
    match form.json {
        true => show::json(output, &Record::default().field(kind.word(), node)),
        false => writeln!(output, "node {node} is {}", kind.word()).map_err(Failed::Output),
    }
}

/// Makes another key for the authority.
pub(crate) fn rotate(output: &mut dyn Write, mut client: Client, form: Form) -> Result<(), Failed> {
    let count = client.rotate_authority()?;
    let nodes = if count == 1 { "node has" } else { "nodes have" };
    match form.json {
        true => show::json(output, &Record::default().field("nodes", count)),
        false => writeln!(
            output,
            "there are other keys; {count} {nodes} certificates of them, and no token is good"
        )
        .map_err(Failed::Output),
    }
}

/// Shows what has happened.
pub(crate) fn audit(output: &mut dyn Write, mut client: Client, arguments: Audit) -> Result<(), Failed> {
    let events = client.audit(arguments.since, arguments.limit)?;
    let records: Vec<Record> = events.iter().map(event).collect();
    if arguments.form.json {
        return show::json(output, &Record::default().records("events", records));
    }
    if records.is_empty() {
        note("no events");
    }
    table::write(output, &records).map_err(Failed::Output)
}

/// A token: alone on the standard output, with its use beside it.
fn show_token(
    output: &mut dyn Write,
    token: &JoinToken,
    lifetime: Duration,
    form: Form,
) -> Result<(), Failed> {
    if form.json {
        let record = Record::default()
            .field("id", token.id.to_string())
            .field("token", token.token.as_str())
            .field("address", token.address.as_str())
            .field("expires_unix_seconds", token.expires_unix_seconds)
            .field("uses_max", token.uses_max)
            .field("command", token.command());
        return show::json(output, &record);
    }
    writeln!(output, "{}", token.token).and_then(|()| output.flush()).map_err(Failed::Output)?;
    let machines = match token.uses_max {
        None => "any number of machines".to_owned(),
        Some(1) => "one machine".to_owned(),
        Some(most) => format!("{most} machines"),
    };
    note(&format!(
        "it is good for {} and for {machines}; its id is {}; to join with it:\n  {}",
        duration_text(lifetime),
        token.id,
        token.command()
    ));
    Ok(())
}

fn show_tokens(
    output: &mut dyn Write,
    rows: &[TokenRow],
    unix_seconds: u64,
    form: Form,
) -> Result<(), Failed> {
    let record = |row: &TokenRow| {
        let most = row.uses_max.map_or_else(|| "any".to_owned(), |most| most.to_string());
        Record::default()
            .both("id", "ID", row.id.to_string())
            .both("state", "STATE", row.state(unix_seconds).word())
            .field("uses", row.uses)
            .field("uses_max", row.uses_max)
            .column("USES", format!("{} of {most}", row.uses))
            .field("made_unix_seconds", row.made_unix_seconds)
            .column("MADE", rfc3339(row.made_unix_seconds.saturating_mul(1000)))
            .field("expires_unix_seconds", row.expires_unix_seconds)
            .column("EXPIRES", rfc3339(row.expires_unix_seconds.saturating_mul(1000)))
    };
    let records: Vec<Record> = rows.iter().map(record).collect();
    if form.json {
        return show::json(output, &Record::default().records("tokens", records));
    }
    if records.is_empty() {
        note("no tokens");
    }
    table::write(output, &records).map_err(Failed::Output)
}

fn event(event: &Event) -> Record {
    let unix_milliseconds = event.at_microseconds / 1000;
    let subject = subject_text(&event.subject);
    let short = subject
        .parse::<NodeId>()
        .map_or_else(|_| subject.clone(), |node| format!("node {}", rows::short(node)));
    Record::default()
        .field("unix_milliseconds", unix_milliseconds)
        .column("TIME", rfc3339(unix_milliseconds))
        .both("kind", "EVENT", event.kind.word())
        .field("subject", subject)
        .column("SUBJECT", short)
        .both("text", "WHAT", event.text.as_str())
}

/// What an event is about: a node by its id, all others by their words.
fn subject_text(subject: &Key) -> String {
    match <[u8; 16]>::try_from(subject.0.as_slice()) {
        Ok(bytes) => bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}")),
        Err(_) => String::from_utf8_lossy(&subject.0).into_owned(),
    }
}

/// A duration as it is written on the command line.
fn duration_text(duration: Duration) -> String {
    let mut seconds = duration.as_secs();
    let mut text = String::new();
    for (unit, length) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if seconds >= length {
            text += &format!("{}{unit}", seconds / length);
            seconds %= length;
        }
    }
    text
}
