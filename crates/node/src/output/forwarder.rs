//! Writes workers' lines to this process's own output, or hands them on, on a thread of its own.
//!
//! Invariants:
//! 1. The node's thread never waits here: what is written, and to whom, may block.
//! 2. What waits to be written is bounded by [`WAITING_BYTES_MAX`]: whoever reads workers' output stops then.

use super::repeats::Repeats;
use super::{Source, Stream};
use crate::bell::Bell;
use aktis_protocol::ProgramId;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes read from workers that are not written yet.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Writes lines, each with its end, somewhere. Called on one thread, with no lock held.
pub type WriteOutput = fn(&[(Stream, Vec<u8>)]);

/// Digits of a node's id that stand before a line.
const NODE_DIGITS: usize = 12;

/// What a daemon does with what workers print.
pub trait OutputEvents: Send + Sync {
    /// Workers have printed something. Called on one thread, with no lock held.
    fn on_lines(&self, lines: Vec<PrintedLine>);

    /// There are drivers of these programs that want to be told what workers print, and of no others. Called under
    /// the node's lock: it must not wait.
    fn on_listeners(&self, programs: BTreeSet<ProgramId>);
}

/// A line that a worker has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedLine {
    /// What the worker runs.
    pub program: ProgramId,
    /// Its process.
    pub pid: u32,
    /// Which of its outputs.
    pub stream: Stream,
    /// What ran there, or what kind of process it is.
    pub name: Arc<str>,
    /// The line, without its end.
    pub text: Vec<u8>,
}

/// A line that a worker has printed, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) source: Source,
    pub(crate) name: Arc<str>,
    pub(crate) text: Vec<u8>,
}

impl Line {
    fn into_bytes(self) -> Vec<u8> {
        let Self { source, name, mut text } = self;
        let prefix = match source.node.map(|node| node.to_string()) {
            None => format!("({name} pid={}) ", source.pid),
            Some(node) => format!("({name} pid={}, node={}) ", source.pid, &node[..NODE_DIGITS]),
        };
        text.splice(0..0, prefix.into_bytes());
        text.push(b'\n');
        text
    }

    fn into_printed(self) -> PrintedLine {
        let Source { stream, pid, program, .. } = self.source;
        PrintedLine { program, pid, stream, name: self.name, text: self.text }
    }
}

/// The thread that writes workers' lines.
#[derive(Clone)]
pub(crate) struct Forwarder {
    shared: Arc<Forwarding>,
}

struct Forwarding {
    state: Mutex<State>,
    changed: Condvar,
    bell: Arc<Bell>,
    deduplicate: bool,
    write: WriteOutput,
    /// Takes the lines instead.
    events: OnceLock<Arc<dyn OutputEvents>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Line>,
    /// Those that wait, and those that are being written.
    waiting_bytes: usize,
    started: bool,
    finished: bool,
    closing: bool,
}

impl Forwarder {
    /// Makes the forwarder; its thread starts with the first line. The bell rings when there is room again.
    pub(crate) fn new(bell: Arc<Bell>, deduplicate: bool, write: WriteOutput) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let events = OnceLock::new();
        Self { shared: Arc::new(Forwarding { state, changed, bell, deduplicate, write, events }) }
    }

    /// Hands the lines on from now on, instead of writing them.
    pub(crate) fn hand_on(&self, events: Arc<dyn OutputEvents>) {
        let _ = self.shared.events.set(events);
    }

    /// Whether no more should be read for now.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.state.lock().waiting_bytes >= WAITING_BYTES_MAX
    }

    /// Has lines written, together if nothing else is in the way.
    pub(crate) fn push(&self, lines: Vec<Line>) {
        if lines.is_empty() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.waiting_bytes += lines.iter().map(|line| line.text.len()).sum::<usize>();
        state.waiting.extend(lines);
        if !state.started {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name("aktis-output".to_owned());
            state.started = builder.spawn(move || shared.run()).is_ok();
        }
        self.shared.changed.notify_all();
    }

    /// Lets the thread write what it has, for at most `patience`. It is not waited for any longer: somebody may
    /// hold the lock of the driver's output right now, even the caller.
    pub(crate) fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.shared.state.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        while state.started && !state.finished {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

impl Forwarding {
    fn run(&self) {
        let mut repeats = Repeats::default();
        loop {
            let (lines, closing) = self.next(repeats.due());
            let bytes = lines.iter().map(|line| line.text.len()).sum();
            if let Some(events) = self.events.get() {
                if !lines.is_empty() {
                    events.on_lines(lines.into_iter().map(Line::into_printed).collect());
                }
                self.on_written(bytes, closing);
                if closing {
                    return;
                }
                continue;
            }
            let mut batch = Vec::with_capacity(lines.len());
            let mut print = |line: Line| batch.push((line.source.stream, line.into_bytes()));
            let now = Instant::now();
            repeats.on_time(now, &mut print);
            for line in lines {
                if self.deduplicate {
                    repeats.on_line(now, line, &mut print);
                } else {
                    print(line);
                }
            }
            if closing {
                repeats.finish(&mut print);
            }
            if !batch.is_empty() {
                (self.write)(&batch);
            }
            self.on_written(bytes, closing);
            if closing {
                return;
            }
        }
    }

    /// Waits for lines, the end, or until it is `due`. There is nothing more once it is closing.
    fn next(&self, due: Option<Instant>) -> (VecDeque<Line>, bool) {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closing {
            match due {
                None => self.changed.wait(&mut state),
                Some(due) if self.changed.wait_until(&mut state, due).timed_out() => break,
                Some(_) => {}
            }
        }
        (std::mem::take(&mut state.waiting), state.closing)
    }

    fn on_written(&self, bytes: usize, closing: bool) {
        let mut state = self.state.lock();
        let was_full = state.waiting_bytes >= WAITING_BYTES_MAX;
        state.waiting_bytes -= bytes;
        state.finished = closing;
        if was_full && state.waiting_bytes < WAITING_BYTES_MAX {
            self.bell.ring();
        }
        self.changed.notify_all();
    }
}

/// Writes lines to this process's own standard output and standard error.
pub fn write_directly(lines: &[(Stream, Vec<u8>)]) {
    for run in lines.chunk_by(|left, right| left.0 == right.0) {
        let bytes: Vec<u8> = run.iter().flat_map(|(_, line)| line).copied().collect();
        // The output may be closed: then there is nobody to tell.
        let _ = match run[0].0 {
            Stream::Stdout => io::stdout().lock().write_all(&bytes),
            Stream::Stderr => io::stderr().lock().write_all(&bytes),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static GATE: Mutex<()> = Mutex::new(());

    fn write(lines: &[(Stream, Vec<u8>)]) {
        let _gate = GATE.lock();
        let text = |line: &(Stream, Vec<u8>)| format!("{:?} {}", line.0, String::from_utf8_lossy(&line.1));
        WRITTEN.lock().extend(lines.iter().map(text));
    }

    fn line(pid: u32, text: &str) -> Line {
        let source = Source { stream: Stream::Stderr, pid, program: ProgramId::default(), node: None };
        Line { source, name: "f".into(), text: text.into() }
    }

    #[test]
    fn a_closed_gate_fills_it_up_and_the_end_tells_all() {
        let gate = GATE.lock();
        let forwarder = Forwarder::new(Arc::new(Bell::new().expect("bell")), true, write);
        forwarder.push(vec![line(1, "hello"), line(2, "hello")]);
        assert!(!forwarder.is_full());
        while !forwarder.is_full() {
            forwarder.push(vec![line(3, &"x".repeat(8192))]);
        }
        forwarder.close(Duration::from_millis(1));
        assert!(forwarder.is_full(), "nothing is written, and nobody waits for it for ever");
        drop(gate);
        forwarder.close(Duration::from_secs(20));
        let written = WRITTEN.lock();
        assert_eq!(written[0], "Stderr (f pid=1) hello\n");
        let told = written.last().expect("written");
        assert_eq!(told, "Stderr (f pid=2) hello [printed once more, by another worker]\n");
        assert!(!forwarder.is_full());
    }
}
