//! What worker processes print: forwarded line by line, each with who printed it, and the last lines kept.
//!
//! The node's thread reads ([`Output`]), another thread writes ([`Forwarder`]): a driver whose output is blocked does
//! not stop its node. A driver that has attached to a daemon is told the lines, and has a [`Printer`] for them.

mod forwarder;
mod lines;
mod listeners;
mod marks;
mod printer;
mod repeats;

pub(crate) use forwarder::Forwarder;
pub use forwarder::{OutputEvents, PrintedLine, WriteOutput, write_directly};
pub(crate) use listeners::Listeners;
pub use printer::Printer;

use aktis_protocol::{NodeId, ProgramId, limits};
use forwarder::Line;
use lines::Lines;
use marks::{Marks, Part};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

const READ_BYTES: usize = 64 * 1024;
/// Reads of a dead worker's pipe: a pipe holds no more, and a child of it may go on writing for ever.
const LAST_READS_MAX: usize = 16;
/// How the titles of workers begin that say what they run.
const TITLES: [&str; 2] = ["aktis::", "ray::"];
const IDLE: &str = "IDLE";

/// Which of the two outputs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One output of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) stream: Stream,
    pub(crate) pid: u32,
    /// What the process runs.
    pub(crate) program: ProgramId,
    /// Its node, if that is another one.
    pub(crate) node: Option<NodeId>,
}

/// One output of one process that was started.
pub(crate) struct Output {
    /// `None` once it is closed.
    pipe: Option<OwnedFd>,
    source: Source,
    /// What the process is, for lines without a name.
    kind: &'static str,
    marks: Marks,
    lines: Lines,
    /// In whose name the line is that is being printed.
    name: Arc<str>,
    /// The name that was marked last, if there is one.
    named: Option<Arc<str>>,
    /// Complete lines that are to be forwarded.
    ready: Vec<Line>,
    /// The last lines of standard error, oldest first.
    tail: VecDeque<String>,
}

impl Output {
    /// The output of a process, which is a `kind` of process.
    pub(crate) fn new(
        pipe: OwnedFd,
        stream: Stream,
        kind: &'static str,
        program: ProgramId,
        pid: u32,
    ) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            pipe: Some(pipe),
            source: Source { stream, pid, program, node: None },
            kind,
            marks: Marks::default(),
            lines: Lines::default(),
            name: kind.into(),
            named: None,
            ready: Vec::new(),
            tail: VecDeque::new(),
        })
    }

    /// The pipe to wait on, while it is open.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Takes in some of what is there; false if nothing is.
    pub(crate) fn read_some(&mut self, forwarder: Option<&Forwarder>) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; READ_BYTES];
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                self.on_bytes(&buffer[..count]);
                self.forward(forwarder);
                return true;
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.pipe = None,
        }
        false
    }

    /// Takes in all that a dead process has left behind.
    pub(crate) fn finish(&mut self, forwarder: Option<&Forwarder>) {
        for _ in 0..LAST_READS_MAX {
            if !self.read_some(forwarder) {
                break;
            }
        }
        let words = self.marks.finish();
        self.on_words(&words, self.name.clone());
        if !self.lines.is_empty() {
            let mut lines = std::mem::take(&mut self.lines);
            let name = self.name.clone();
            lines.finish(|line| self.on_line(line, &name));
        }
        self.forward(forwarder);
    }

    fn forward(&mut self, forwarder: Option<&Forwarder>) {
        let lines = std::mem::take(&mut self.ready);
        if let Some(forwarder) = forwarder {
            forwarder.push(lines);
        }
    }

    /// The last lines; none for standard output.
    pub(crate) fn tail(&mut self) -> Vec<String> {
        std::mem::take(&mut self.tail).into()
    }

    fn on_bytes(&mut self, bytes: &[u8]) {
        let mut marks = std::mem::take(&mut self.marks);
        // For words without a name; looked up once.
        let mut nameless: Option<Arc<str>> = None;
        marks.split(bytes, |part| match part {
            Part::Name(b"") => self.named = None,
            Part::Name(name) => {
                let same = self.named.take().filter(|named| named.as_bytes() == name);
                self.named = Some(same.unwrap_or_else(|| String::from_utf8_lossy(name).into()));
            }
            Part::Words(words) => {
                let name = match &self.named {
                    Some(named) => named.clone(),
                    None => nameless.get_or_insert_with(|| self.nameless()).clone(),
                };
                self.on_words(words, name);
            }
        });
        self.marks = marks;
    }

    fn on_words(&mut self, words: &[u8], name: Arc<str>) {
        let mut lines = std::mem::take(&mut self.lines);
        let mut of_line = if lines.is_empty() { name.clone() } else { self.name.clone() };
        lines.take_in(words, Instant::now(), |line| {
            self.on_line(line, &of_line);
            of_line = name.clone();
        });
        (self.lines, self.name) = (lines, of_line);
    }

    /// For words of which it is not known in whose name they are: what the process runs now is a good guess.
    fn nameless(&self) -> Arc<str> {
        let title = std::fs::read(format!("/proc/{}/cmdline", self.source.pid)).unwrap_or_default();
        let title = String::from_utf8_lossy(title.split(|byte| *byte == 0).next().unwrap_or_default());
        let running = TITLES.iter().find_map(|start| title.strip_prefix(start)).filter(|name| *name != IDLE);
        running.unwrap_or(self.kind).into()
    }

    fn on_line(&mut self, line: &[u8], name: &Arc<str>) {
        if self.source.stream == Stream::Stderr {
            if self.tail.len() == limits::STDERR_LINES_KEPT {
                self.tail.pop_front();
            }
            let kept = &line[..line.len().min(limits::STDERR_LINE_BYTES_MAX)];
            self.tail.push_back(String::from_utf8_lossy(kept).into_owned());
        }
        self.ready.push(Line { source: self.source, name: name.clone(), text: line.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::output::mark;
    use parking_lot::Mutex;
    use std::fs::File;
    use std::io::Write;
    use std::time::Duration;

    fn output(stream: Stream) -> (Output, File) {
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        (Output::new(read, stream, "worker", ProgramId::default(), 7).expect("output"), write.into())
    }

    #[test]
    fn the_last_lines_are_kept_whole_and_bounded() {
        let (mut stderr, mut pipe) = output(Stream::Stderr);
        for line in 0..limits::STDERR_LINES_KEPT + 5 {
            write!(pipe, "line {line}\nand ").expect("written");
        }
        pipe.write_all(&mark("f")).expect("written");
        write!(pipe, "{}", "x".repeat(2 * limits::STDERR_LINE_BYTES_MAX)).expect("written");
        stderr.finish(None);
        let tail = stderr.tail();
        assert_eq!(tail.len(), limits::STDERR_LINES_KEPT);
        assert_eq!(tail[0], format!("and line {}", 6));
        assert_eq!(tail.last().map(String::len), Some(limits::STDERR_LINE_BYTES_MAX));
        assert!(stderr.pipe().is_some(), "the other end is open still");
        drop(pipe);
        assert!(!stderr.read_some(None));
        assert!(stderr.pipe().is_none());
    }

    static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    #[test]
    fn lines_are_in_the_name_in_which_they_begin() {
        let write: WriteOutput = |lines| WRITTEN.lock().extend(lines.iter().flat_map(|(_, line)| line));
        let bell = Arc::new(crate::bell::Bell::new().expect("bell"));
        let forwarder = Forwarder::new(bell, false, write);
        let (mut stdout, mut pipe) = output(Stream::Stdout);
        let (f, g, nobody) = (&mark("f")[..], &mark("a g")[..], &mark("")[..]);
        let words =
            [&b"raw\n"[..], f, b"one\ntwo", nobody, f, b" more\n", nobody, b"raw ", g, b"three\nfour"];
        for piece in words {
            pipe.write_all(piece).expect("written");
            assert!(stdout.read_some(Some(&forwarder)));
        }
        stdout.finish(Some(&forwarder));
        forwarder.close(Duration::from_secs(20));
        let written = String::from_utf8_lossy(&WRITTEN.lock()).into_owned();
        let expected = "(worker pid=7) raw\n(f pid=7) one\n(f pid=7) two more\n(worker pid=7) raw three\n\
                        (a g pid=7) four\n";
        assert_eq!(written, expected);
    }
}
