//! The lines that processes of Aktis say about themselves.
//!
//! In a daemon and in a control process ([`begin`]) each line has its time (UTC), its level and the kind of its process, and
//! is kept for `aktis logs` ([`listen`]). Elsewhere, in a driver or a worker, a line says that it is from `aktis`.
//!
//! Invariants:
//! 1. A line holds one line: names and errors that users chose are written out, see [`aktis_protocol::text`].
//! 2. A standard error that is full or closed ends nobody.

use crate::output::Stream;
use aktis_protocol::text;
use parking_lot::Mutex;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// Something went wrong, and work goes on.
    Warning,
    /// Something cannot go on.
    Error,
}

impl Level {
    /// The word that stands in a line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warning => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// Told of each line of this process, with its level.
pub type Listener = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// The kind of this process, once it keeps a journal.
static KIND: OnceLock<&'static str> = OnceLock::new();
static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);
/// What lines of a driver or a worker begin with; some texts bring it along.
const OWN_NAME: &str = "aktis: ";

/// This process is a daemon or a control process: its lines have times and levels from now on, its panics too.
pub fn begin(kind: &'static str) {
    if KIND.set(kind).is_ok() {
        std::panic::set_hook(Box::new(|panic| error(panic)));
    }
}

/// Whether this process keeps a journal.
pub fn is_begun() -> bool {
    KIND.get().is_some()
}

/// Has each line told to somebody besides, or to nobody any more.
pub fn listen(listener: Option<Listener>) {
    *LISTENER.lock() = listener;
}

/// Says something that is good to know.
pub fn info(what: impl Display) {
    say(Level::Info, &what.to_string());
}

/// Says that something went wrong.
pub fn warn(what: impl Display) {
    say(Level::Warning, &what.to_string());
}

/// Says that something cannot go on.
pub fn error(what: impl Display) {
    say(Level::Error, &what.to_string());
}

fn say(level: Level, what: &str) {
    print(level, what);
    let listener = LISTENER.lock().clone();
    if let Some(listener) = listener {
        what.lines().for_each(|line| listener(level, own(line)));
    }
}

/// Prints the lines, and tells nobody.
pub fn print(level: Level, what: &str) {
    let now = unix_milliseconds();
    let lines: String = what.lines().map(|line| shown(now, level, own(line)) + "\n").collect();
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// Prints lines of workers of which no driver wants to hear: the name and the process of each, and its text.
pub fn print_workers_lines<'a>(lines: impl Iterator<Item = (Stream, u64, &'a str)>) {
    let shown: String = lines
        .map(|(stream, unix_milliseconds, line)| {
            let word = match stream {
                Stream::Stdout => "OUT",
                Stream::Stderr => "ERR",
            };
            format!("{} {word:<5} {}\n", text::rfc3339(unix_milliseconds), text::printed_line(line, false))
        })
        .collect();
    let _ = io::stderr().write_all(shown.as_bytes());
}

/// The line without the name that lines of a driver or a worker begin with.
pub fn own(line: &str) -> &str {
    line.strip_prefix(OWN_NAME).unwrap_or(line)
}

fn shown(now: u64, level: Level, line: &str) -> String {
    let line = text::printed_line(line, false);
    match KIND.get() {
        Some(kind) => format!("{} {:<5} {kind}: {line}", text::rfc3339(now), level.word()),
        None if line.starts_with("hint: ") => line,
        None => format!("{OWN_NAME}{line}"),
    }
}

/// Milliseconds since 1970.
pub fn unix_milliseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_time_and_its_level_in_a_daemon() {
        assert_eq!(shown(0, Level::Warning, "a\x1b[2J\nb"), "aktis: a\\x1b[2J\\x0ab");
        assert_eq!(shown(0, Level::Warning, "hint: do it"), "hint: do it");
        KIND.set("node").expect("no other test begins");
        assert_eq!(shown(1, Level::Info, own("aktis: f")), "1970-01-01T00:00:00.001Z INFO  node: f");
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = told.clone();
        listen(Some(Arc::new(move |level, line: &str| listener.lock().push((level, line.to_owned())))));
        warn("aktis: one\nhint: two");
        listen(None);
        let expected = [(Level::Warning, "one".to_owned()), (Level::Warning, "hint: two".to_owned())];
        assert_eq!(*told.lock(), expected);
    }
}
