//! The last lines that processes of this node have printed, for `aktis logs`.
//!
//! Invariants:
//! 1. What is kept is at most [`LOG_BYTES_KEPT`] long; the oldest lines go first.
//! 2. Lines have consecutive numbers, by which readers go on where they were, and learn how many they have missed.

use aktis_node::journal::{self, Level};
use aktis_protocol::NodeId;
use aktis_protocol::admin::{LogLine, LogPart, LogStream};
use aktis_protocol::limits::{LOG_BYTES_KEPT, LOG_LINE_BYTES_MAX, LOG_LINES_MAX};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a line takes besides its words.
const LINE_BYTES: usize = size_of::<LogLine>();

/// See the module.
pub(crate) struct Log {
    node: NodeId,
    /// The kind of this process: the name of its own lines.
    kind: &'static str,
    kept: Mutex<Kept>,
    grown: Condvar,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    /// The number of the first of them.
    first: u64,
    bytes: usize,
}

impl Log {
    pub(crate) fn new(node: NodeId, kind: &'static str) -> Self {
        Self { node, kind, kept: Mutex::default(), grown: Condvar::new() }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// A line of this node, as it was read now.
    pub(crate) fn line(&self, name: &str, pid: u32, stream: LogStream, text: &[u8]) -> LogLine {
        let mut text = String::from_utf8_lossy(text).into_owned();
        text.truncate(text.floor_char_boundary(LOG_LINE_BYTES_MAX));
        LogLine {
            node: self.node,
            pid,
            name: name.to_owned(),
            stream,
            unix_milliseconds: journal::unix_milliseconds(),
            text,
        }
    }

    pub(crate) fn add(&self, lines: &[LogLine]) {
        let mut kept = self.kept.lock();
        for line in lines {
            kept.bytes += size_of_line(line);
            kept.lines.push_back(line.clone());
        }
        while kept.bytes > LOG_BYTES_KEPT
            && let Some(line) = kept.lines.pop_front()
        {
            kept.bytes -= size_of_line(&line);
            kept.first += 1;
        }
        drop(kept);
        self.grown.notify_all();
    }

    /// Prints and keeps a warning of this process.
    pub(crate) fn warn(&self, text: &str) {
        journal::print(Level::Warning, text);
        text.lines().for_each(|line| self.keep(Level::Warning, journal::own(line)));
    }

    fn keep(&self, level: Level, line: &str) {
        let text = format!("{} {line}", level.word());
        self.add(&[self.line(self.kind, std::process::id(), LogStream::Error, text.as_bytes())]);
    }

    /// Keeps what this whole process says about itself from now on.
    pub(crate) fn keep_journal(self: &Arc<Self>) {
        let log = Arc::downgrade(self);
        let keep = move |level, line: &str| log.upgrade().iter().for_each(|log| log.keep(level, line));
        journal::listen(Some(Arc::new(keep)));
    }

    /// Waits until there are lines from `position` on.
    pub(crate) fn wait(&self, position: u64, patience: Duration) {
        let until = Instant::now() + patience;
        let mut kept = self.kept.lock();
        while kept.first + kept.lines.len() as u64 <= position {
            if self.grown.wait_until(&mut kept, until).timed_out() {
                return;
            }
        }
    }

    /// Lines from `position` on that are meant, or the last `tail` of all that are.
    pub(crate) fn read(
        &self,
        position: Option<u64>,
        tail: Option<u32>,
        means: impl Fn(&LogLine) -> bool,
    ) -> LogPart {
        let kept = self.kept.lock();
        let end = kept.first + kept.lines.len() as u64;
        let number = |(index, line)| (kept.first + index as u64, line);
        let numbered = || kept.lines.iter().enumerate().map(number).filter(|(_, line)| means(line));
        let (from, missed) = match (position, tail) {
            (Some(position), _) => (position.max(kept.first), kept.first.saturating_sub(position)),
            (None, None) => (kept.first, kept.first),
            (None, Some(0)) => (end, 0),
            (None, Some(tail)) => {
                let of_tail = numbered().rev().nth(tail as usize - 1);
                (of_tail.map_or(kept.first, |(number, _)| number), 0)
            }
        };
        let mut chosen = numbered().filter(|(number, _)| *number >= from);
        let (mut lines, mut next) = (Vec::new(), end);
        for (_, line) in chosen.by_ref().take(LOG_LINES_MAX) {
            lines.push(line.clone());
        }
        let more = chosen.next();
        if let Some((number, _)) = more {
            next = number;
        }
        LogPart { lines, missed, next, is_last: more.is_none() }
    }
}

fn size_of_line(line: &LogLine) -> usize {
    LINE_BYTES + line.name.len() + line.text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(count: usize) -> Log {
        let log = Log::new(NodeId::from_words([1, 2]), "node");
        let line = |number: usize| {
            log.line("f", number as u32 % 2, LogStream::Output, number.to_string().as_bytes())
        };
        log.add(&(0..count).map(line).collect::<Vec<_>>());
        log
    }

    fn texts(part: &LogPart) -> Vec<&str> {
        part.lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn readers_go_on_where_they_were() {
        let log = log_of(LOG_LINES_MAX + 5);
        let first = log.read(None, None, |_| true);
        assert_eq!((first.lines.len(), first.is_last, first.missed), (LOG_LINES_MAX, false, 0));
        let rest = log.read(Some(first.next), None, |_| true);
        assert_eq!((rest.lines.len(), rest.is_last), (5, true));
        assert_eq!(log.read(Some(rest.next), None, |_| true).lines, []);
        log.add(&[log.line("f", 1, LogStream::Output, b"new")]);
        assert_eq!(texts(&log.read(Some(rest.next), None, |_| true)), ["new"]);
    }

    #[test]
    fn the_last_lines_are_the_last_of_those_that_are_meant() {
        let log = log_of(10);
        assert_eq!(texts(&log.read(None, Some(2), |line| line.pid == 0)), ["6", "8"]);
        assert_eq!(texts(&log.read(None, Some(0), |_| true)), [""; 0]);
        assert_eq!(log.read(None, Some(100), |_| true).lines.len(), 10);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_gone_is_counted() {
        let log = log_of(3);
        let long = "x".repeat(2 * LOG_LINE_BYTES_MAX);
        let count = LOG_BYTES_KEPT / LOG_LINE_BYTES_MAX + 1;
        for _ in 0..count {
            log.add(&[log.line("f", 1, LogStream::Output, long.as_bytes())]);
        }
        let part = log.read(Some(0), None, |_| true);
        assert!(part.missed >= 3 && part.lines.len() < count, "{} of {count}", part.lines.len());
        assert_eq!(part.lines[0].text.len(), LOG_LINE_BYTES_MAX);
    }
}
