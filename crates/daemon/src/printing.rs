//! What workers of this node print: kept, and told to those drivers, on whichever node, whose program they run.
//!
//! Each node tells the others of which programs it has drivers that want to hear. Lines that nobody wants to hear are
//! printed by the daemon.
//!
//! Invariants:
//! 1. Nobody waits: a link that carries less than is printed loses lines, and so does a driver that does not read. Either
//!    way the driver is told how many. Work on the same link does not wait for lines either.
//! 2. Whatever becomes of it, every line is kept for a while: see [`Log`].

use crate::host::NodeHost;
use crate::log::Log;
use crate::neighbours::Neighbours;
use aktis_io::Link;
use aktis_node::{Host, OutputEvents, PrintedLine, Stream};
use aktis_protocol::admin::{LogLine, LogStream};
use aktis_protocol::control::encode;
use aktis_protocol::limits::PROGRAMS_MAX;
use aktis_protocol::peer::Frame;
use aktis_protocol::{NodeId, ProgramId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};

/// Bytes that wait on a link above which no lines are added: what else goes over it must not wait for long.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// See the module.
pub(crate) struct Printing {
    host: Weak<Host>,
    log: Arc<Log>,
    neighbours: OnceLock<Weak<Neighbours>>,
    wanted: Mutex<Wanted>,
    changes: Mutex<Option<Sender<()>>>,
}

/// Of which programs there are drivers that want to hear what workers print.
#[derive(Default)]
struct Wanted {
    here: BTreeSet<ProgramId>,
    there: BTreeMap<NodeId, BTreeSet<ProgramId>>,
    missed: Missed,
}

/// How many lines of each program a node was not sent.
#[derive(Default)]
struct Missed(BTreeMap<NodeId, BTreeMap<ProgramId, u64>>);

impl Missed {
    /// Whether so many lines may be sent over a link on which so many bytes wait: if so, how many were not before them.
    fn admit(&mut self, to: NodeId, program: ProgramId, lines: u64, waiting_bytes: usize) -> Option<u64> {
        if waiting_bytes > WAITING_BYTES_MAX {
            *self.0.entry(to).or_default().entry(program).or_default() += lines;
            return None;
        }
        Some(self.0.get_mut(&to).and_then(|missed| missed.remove(&program)).unwrap_or(0))
    }
}

impl Printing {
    /// Takes what workers of the node print from now on.
    pub(crate) fn start(host: &NodeHost, log: Arc<Log>) -> io::Result<Arc<Self>> {
        let (changes, changed) = channel();
        let printing = Arc::new(Self {
            host: Arc::downgrade(host.host()),
            log,
            neighbours: OnceLock::new(),
            wanted: Mutex::default(),
            changes: Mutex::new(Some(changes)),
        });
        let other = Arc::downgrade(&printing);
        let run = move || announce_all(&other, &changed);
        std::thread::Builder::new().name("aktis-printing".into()).spawn(run)?;
        host.host().set_output_events(printing.clone());
        Ok(printing)
    }

    pub(crate) fn set_neighbours(&self, neighbours: &Arc<Neighbours>) {
        let _ = self.neighbours.set(Arc::downgrade(neighbours));
    }

    pub(crate) fn close(&self) {
        self.changes.lock().take();
    }

    /// There is a link to a node: it is told what is wanted here.
    pub(crate) fn on_linked(&self, link: &Link) {
        let here = self.wanted.lock().here.clone();
        if !here.is_empty() {
            announce(link, &here);
        }
    }

    pub(crate) fn on_unlinked(&self, node: NodeId) {
        let mut wanted = self.wanted.lock();
        wanted.there.remove(&node);
        wanted.missed.0.remove(&node);
    }

    /// Another node says what is wanted there.
    pub(crate) fn on_listening(&self, from: NodeId, programs: Vec<ProgramId>) {
        self.wanted.lock().there.insert(from, programs.into_iter().take(PROGRAMS_MAX).collect());
    }

    /// Workers of another node have printed something for drivers here. A node speaks for its own workers only.
    pub(crate) fn on_printed_there(
        &self,
        from: NodeId,
        program: ProgramId,
        mut lines: Vec<LogLine>,
        missed: u64,
    ) {
        lines.retain(|line| line.node == from);
        self.on_printed(program, &lines, missed);
    }

    fn on_printed(&self, program: ProgramId, lines: &[LogLine], missed: u64) {
        if let Some(host) = self.host.upgrade() {
            host.print_to_drivers(program, lines, missed);
        }
    }

    fn on_lines_of(&self, program: ProgramId, lines: Vec<LogLine>) {
        let wanted = self.wanted.lock();
        let here = wanted.here.contains(&program);
        let there = wanted.there.iter().filter(|(_, programs)| programs.contains(&program));
        let there: Vec<NodeId> = there.map(|(node, _)| *node).collect();
        drop(wanted);
        if here {
            self.on_printed(program, &lines, 0);
        }
        if !here && there.is_empty() {
            return print_here(&lines);
        }
        let Some(neighbours) = self.neighbours.get().and_then(Weak::upgrade) else { return };
        let mut links = neighbours.links();
        links.retain(|(node, _)| there.contains(node));
        let count = lines.len() as u64;
        let mut frame = Frame::Printed { program, lines, missed: 0 };
        for (node, link) in links {
            let admitted = self.wanted.lock().missed.admit(node, program, count, link.queued_bytes());
            if let (Some(missed_before), Frame::Printed { missed, .. }) = (admitted, &mut frame) {
                *missed = missed_before;
                // If it cannot be sent, the link is over.
                let _ = link.send(encode(&frame));
            }
        }
    }
}

impl OutputEvents for Printing {
    fn on_lines(&self, lines: Vec<PrintedLine>) {
        for run in lines.chunk_by(|left, right| left.program == right.program) {
            let of_run = run
                .iter()
                .map(|line| self.log.line(&line.name, line.pid, log_stream(line.stream), &line.text));
            let of_run: Vec<LogLine> = of_run.collect();
            self.log.add(&of_run);
            self.on_lines_of(run[0].program, of_run);
        }
    }

    fn on_listeners(&self, programs: BTreeSet<ProgramId>) {
        self.wanted.lock().here = programs;
        if let Some(changes) = &*self.changes.lock() {
            let _ = changes.send(());
        }
    }
}

/// Tells all other nodes what is wanted here, whenever that changes.
fn announce_all(printing: &Weak<Printing>, changed: &Receiver<()>) {
    while changed.recv().is_ok() {
        let Some(printing) = printing.upgrade() else { return };
        let Some(neighbours) = printing.neighbours.get().and_then(Weak::upgrade) else { continue };
        let here = printing.wanted.lock().here.clone();
        for (_, link) in neighbours.links() {
            announce(&link, &here);
        }
    }
}

/// Prints lines that no driver wants to hear.
fn print_here(lines: &[LogLine]) {
    let texts: Vec<String> =
        lines.iter().map(|line| format!("({} pid={}) {}", line.name, line.pid, line.text)).collect();
    let shown = lines.iter().zip(&texts);
    let shown = shown.map(|(line, text)| (stream(line.stream), line.unix_milliseconds, text.as_str()));
    aktis_node::journal::print_workers_lines(shown);
}

fn announce(link: &Link, programs: &BTreeSet<ProgramId>) {
    // If that cannot be said, the link is over, or so full that lines would be lost too.
    let _ = link.send(encode(&Frame::Listening { programs: programs.iter().copied().collect() }));
}

fn log_stream(stream: Stream) -> LogStream {
    match stream {
        Stream::Stdout => LogStream::Output,
        Stream::Stderr => LogStream::Error,
    }
}

fn stream(stream: LogStream) -> Stream {
    match stream {
        LogStream::Output => Stream::Stdout,
        LogStream::Error => Stream::Stderr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_link_has_no_room_for_are_counted() {
        let (one, other) = (NodeId::from_words([1, 0]), NodeId::from_words([2, 0]));
        let program = ProgramId::default();
        let mut missed = Missed::default();
        assert_eq!(missed.admit(one, program, 3, WAITING_BYTES_MAX), Some(0));
        assert_eq!(missed.admit(one, program, 3, WAITING_BYTES_MAX + 1), None);
        assert_eq!(missed.admit(one, program, 2, usize::MAX), None);
        assert_eq!(missed.admit(other, program, 1, 0), Some(0));
        assert_eq!(missed.admit(one, program, 1, 0), Some(5));
        assert_eq!(missed.admit(one, program, 1, 0), Some(0), "it was said once");
    }
}
