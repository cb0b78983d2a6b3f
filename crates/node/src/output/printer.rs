//! What a driver that has attached to a daemon does with what workers print: the same as one with a node of its own.

use super::forwarder::Line;
use super::{Forwarder, Source, Stream};
use crate::bell::Bell;
use crate::embedded::OutputOptions;
use aktis_protocol::admin::{LogLine, LogStream};
use aktis_protocol::{NodeId, ProgramId, SessionId};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For so long nothing must come before the last words are taken for that.
const QUIET: Duration = Duration::from_millis(50);
/// How long last words are waited for.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Prints the lines that the node sends. Whoever hands them over never waits.
pub struct Printer {
    forwarder: Forwarder,
    session: SessionId,
    state: Mutex<State>,
}

struct State {
    /// Lines that were not printed, because too many wait for it.
    missed: u64,
    last: Instant,
}

impl Printer {
    /// Prints as the options say; lines of other nodes than this session's are marked with their node.
    pub fn new(options: OutputOptions, session: SessionId) -> io::Result<Self> {
        let forwarder = Forwarder::new(Arc::new(Bell::new()?), options.deduplicate, options.write);
        let state = Mutex::new(State { missed: 0, last: Instant::now() });
        Ok(Self { forwarder, session, state })
    }

    /// Has lines printed, of which so many before these were lost on the way.
    pub fn print(&self, lines: Vec<LogLine>, missed: u64) {
        let mut state = self.state.lock();
        state.last = Instant::now();
        state.missed += missed;
        if self.forwarder.is_full() {
            state.missed += lines.len() as u64;
            return;
        }
        let missed = std::mem::take(&mut state.missed);
        drop(state);
        let told = (missed > 0).then(|| self.told(missed));
        self.forwarder.push(told.into_iter().chain(lines.into_iter().map(|line| self.line(line))).collect());
    }

    /// Waits a moment for what workers have printed last, and for it to be written.
    pub fn finish(&self) {
        let until = Instant::now() + LAST_WORDS;
        // What was printed before this call may be on its way.
        self.state.lock().last = Instant::now();
        loop {
            let quiet_at = self.state.lock().last + QUIET;
            let now = Instant::now();
            if now >= quiet_at || now >= until {
                break;
            }
            std::thread::sleep(quiet_at.min(until) - now);
        }
        self.forwarder.close(LAST_WORDS);
    }

    fn line(&self, line: LogLine) -> Line {
        let stream = match line.stream {
            LogStream::Output => Stream::Stdout,
            LogStream::Error => Stream::Stderr,
        };
        let source = self.source(stream, line.pid, Some(line.node));
        Line { source, name: line.name.into(), text: line.text.into_bytes() }
    }

    /// Says that lines are missing.
    fn told(&self, missed: u64) -> Line {
        let text =
            format!("{missed} lines of workers are not shown: there were too many at once; see `aktis logs`");
        let source = self.source(Stream::Stderr, std::process::id(), None);
        Line { source, name: "aktis".into(), text: text.into_bytes() }
    }

    fn source(&self, stream: Stream, pid: u32, node: Option<NodeId>) -> Source {
        // A node's session is the beginning of its id.
        let node = node.filter(|node| node.to_words()[0] != self.session.0);
        Source { stream, pid, program: ProgramId::default(), node }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.forwarder.close(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn lines_say_where_they_come_from_and_how_many_are_missing() {
        let write = |lines: &[(Stream, Vec<u8>)]| {
            WRITTEN.lock().extend(lines.iter().map(|(_, line)| String::from_utf8_lossy(line).into_owned()));
        };
        let options = OutputOptions { forward: true, deduplicate: true, write };
        let printer = Printer::new(options, SessionId(7)).expect("a printer");
        let line = |node, pid, text: &str| LogLine {
            node: NodeId::from_words([node, 0]),
            pid,
            name: "f".into(),
            stream: LogStream::Output,
            unix_milliseconds: 0,
            text: text.into(),
        };
        printer.print(vec![line(7, 1, "here"), line(8, 1, "there"), line(8, 1, "here")], 0);
        printer.print(Vec::new(), 3);
        printer.finish();
        let written = WRITTEN.lock();
        assert_eq!(written[..2], ["(f pid=1) here\n", "(f pid=1, node=000000000000) there\n"]);
        assert!(written[2].contains("3 lines of workers are not shown"), "{}", written[2]);
        let told = "(f pid=1, node=000000000000) here [printed once more, by another worker]\n";
        assert_eq!(written[3..], [told], "the same process id on another node is another worker");
    }
}
