//! `aktis kv`: look at the key-value space of the cluster, and clear it.

use crate::arguments::Form;
use crate::confirm::confirm;
use crate::failed::Failed;
use crate::record::Record;
use crate::terminal::note;
use crate::{show, table};
use aktis_daemon::admin::{Client, ClientError};
use aktis_protocol::limits;
use clap::{Args, Subcommand, value_parser};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// How the keys of users begin; all others are the library's own.
const USER_PREFIX: &str = "user/";
/// Keys that `clear` asks for at a time.
const CLEARED_AT_A_TIME: u32 = 1000;

/// Look at keys and values that programs keep in the cluster, and delete them
#[derive(Args, Debug)]
#[command(after_help = "\
Keys are shown and taken with `%` and two hexadecimal digits for `%`, spaces and all bytes that are no visible ASCII.
Keys of programs begin with `user/LENGTH/NAMESPACE/`, those of the library itself with `aktis/`.")]
pub(crate) struct Kv {
    #[command(subcommand)]
    pub(crate) command: KvCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Show keys, and how many bytes their values have
    List {
        /// Only those that begin like this
        #[arg(value_parser = parse_key, default_value = "")]
        prefix: KeyText,
        /// How many at most
        #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=i64::from(limits::LISTED_ROWS_MAX)))]
        limit: u32,
        #[command(flatten)]
        form: Form,
    },
    /// Print the value of a key: its bytes as they are, unless to a terminal
    Get {
        /// The key
        #[arg(value_parser = parse_key)]
        key: KeyText,
        #[command(flatten)]
        form: Form,
    },
    /// Delete keys
    Delete {
        /// The keys
        #[arg(value_parser = parse_key, required = true, value_name = "KEY")]
        keys: Vec<KeyText>,
        #[command(flatten)]
        form: Form,
    },
    /// Delete all keys that begin like this; without a prefix, all keys of users
    Clear {
        /// How they begin
        #[arg(value_parser = parse_key, default_value = USER_PREFIX)]
        prefix: KeyText,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        form: Form,
    },
}

/// A key, as it was written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyText(Vec<u8>);

/// Does what was asked.
pub(crate) fn run(output: &mut dyn Write, mut client: Client, command: KvCommand) -> Result<(), Failed> {
    match command {
        KvCommand::List { prefix, limit, form } => list(output, &mut client, &prefix, limit, form),
        KvCommand::Get { key, form } => get(output, &mut client, &key, form),
        KvCommand::Delete { keys, form } => {
            let mut deleted = 0_u64;
            for key in &keys {
                if !client.delete_key(&key.0)? {
                    return Err(Failed::NoSuchKey(written(&key.0)));
                }
                deleted += 1;
            }
            tell_deleted(output, deleted, form)
        }
        KvCommand::Clear { prefix, yes, form } => {
            let which = if prefix.0.is_empty() {
                "all keys, with those of the library itself".to_owned()
            } else {
                format!("all keys that begin with {}", written(&prefix.0))
            };
            confirm(&format!("Delete {which}?"), yes)?;
            tell_deleted(output, clear(&mut client, &prefix)?, form)
        }
    }
}

fn list(
    output: &mut dyn Write,
    client: &mut Client,
    prefix: &KeyText,
    limit: u32,
    form: Form,
) -> Result<(), Failed> {
    let (keys, more) = client.keys(&prefix.0, limit)?;
    let bytes: u64 = keys.iter().map(|row| row.bytes + row.key.len() as u64).sum();
    let count = keys.len();
    let record = |key: &[u8], bytes: u64| {
        Record::default().both("key", "KEY", written(key)).both("bytes", "BYTES", bytes)
    };
    let records: Vec<Record> = keys.iter().map(|row| record(&row.key, row.bytes)).collect();
    if form.json {
        let whole = Record::default().records("keys", records).field("bytes", bytes).field("more", more);
        return show::json(output, &whole);
    }
    table::write(output, &records).and_then(|()| output.flush()).map_err(Failed::Output)?;
    let others = if more { "; there are more, see --limit" } else { "" };
    let keys = if count == 1 { "key" } else { "keys" };
    note(&format!("{count} {keys}, {bytes} bytes with values{others}"));
    Ok(())
}

fn get(output: &mut dyn Write, client: &mut Client, key: &KeyText, form: Form) -> Result<(), Failed> {
    let value = client.key_value(&key.0)?.ok_or_else(|| Failed::NoSuchKey(written(&key.0)))?;
    if form.json {
        let text = std::str::from_utf8(&value).ok();
        let record = Record::default()
            .field("key", written(&key.0))
            .field("bytes", value.len())
            .field("text", text)
            .field("hex", value.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")));
        return show::json(output, &record);
    }
    let printed = match io::stdout().is_terminal() {
        true => writeln!(output, "{}", String::from_utf8_lossy(&value)),
        // A program reads it: as it is.
        false => output.flush().and_then(|()| io::stdout().write_all(&value)),
    };
    printed.map_err(Failed::Output)
}

/// Deletes keys until there are none; gives how many there were. Another process may delete some meanwhile.
fn clear(client: &mut Client, prefix: &KeyText) -> Result<u64, ClientError> {
    let mut deleted = 0;
    loop {
        let (keys, more) = client.keys(&prefix.0, CLEARED_AT_A_TIME)?;
        for row in &keys {
            deleted += u64::from(client.delete_key(&row.key)?);
        }
        if !more || keys.is_empty() {
            return Ok(deleted);
        }
    }
}

fn tell_deleted(output: &mut dyn Write, deleted: u64, form: Form) -> Result<(), Failed> {
    match form.json {
        true => show::json(output, &Record::default().field("deleted", deleted)),
        false => writeln!(output, "deleted {deleted} {}", if deleted == 1 { "key" } else { "keys" })
            .map_err(Failed::Output),
    }
}

/// A key in visible ASCII, from which [`parse_key`] gets its bytes back.
fn written(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key {
        match byte {
            b'%' => text += "%25",
            b'!'..=b'~' => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "%{byte:02x}");
            }
        }
    }
    text
}

fn parse_key(text: &str) -> Result<KeyText, String> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            key.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        key.push(byte.ok_or("`%` must be followed by two hexadecimal digits; `%25` is `%` itself")?);
        rest = &rest[2..];
    }
    match key.len() <= limits::KEY_BYTES_MAX {
        true => Ok(KeyText(key)),
        false => Err(format!("keys have at most {} bytes, got {}", limits::KEY_BYTES_MAX, key.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_bytes_survives_its_text() {
        let key: Vec<u8> = (0..=255).collect();
        let text = written(&key);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert_eq!(parse_key(&text), Ok(KeyText(key)));
        assert_eq!(parse_key("größe"), Ok(KeyText("größe".into())));
        for wrong in ["%", "%2", "%zz", "a%+1", "%é"] {
            assert!(parse_key(wrong).is_err(), "{wrong}");
        }
        assert!(parse_key(&"k".repeat(limits::KEY_BYTES_MAX + 1)).is_err());
    }
}
