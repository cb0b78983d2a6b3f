//! What workers of this node print: kept, and told to those drivers, on whichever node, whose program they run.
//!
//! Each node tells the others of which programs it has drivers that want to hear. Lines that nobody wants to hear are
//! printed by the daemon.
//!
//! Invariants:
//! 1. Nobody waits: a link that has no room loses lines, and so does a driver that does not read, which is told.
//! 2. Whatever becomes of it, every line is kept for a while: see [`Log`].

use crate::host::NodeHost;
use crate::log::Log;
use crate::neighbours::Neighbours;
use aktis_daemon::{Host, OutputEvents, PrintedLine, Stream};
use aktis_io::Link;
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
        self.wanted.lock().there.remove(&node);
    }

    /// Another node says what is wanted there.
    pub(crate) fn on_listening(&self, from: NodeId, programs: Vec<ProgramId>) {
        self.wanted.lock().there.insert(from, programs.into_iter().take(PROGRAMS_MAX).collect());
    }

    /// Workers of another node have printed something for drivers here.
    pub(crate) fn on_printed(&self, program: ProgramId, lines: &[LogLine]) {
        if let Some(host) = self.host.upgrade() {
            host.print_to_drivers(program, lines);
        }
    }

    fn on_lines_of(&self, program: ProgramId, lines: Vec<LogLine>) {
        let wanted = self.wanted.lock();
        let here = wanted.here.contains(&program);
        let there = wanted.there.iter().filter(|(_, programs)| programs.contains(&program));
        let there: Vec<NodeId> = there.map(|(node, _)| *node).collect();
        drop(wanted);
        if here {
            self.on_printed(program, &lines);
        }
        if !here && there.is_empty() {
            let bytes = |line: LogLine| {
                (
                    stream(line.stream),
                    format!("({} pid={}) {}\n", line.name, line.pid, line.text).into_bytes(),
                )
            };
            return aktis_daemon::write_directly(&lines.into_iter().map(bytes).collect::<Vec<_>>());
        }
        let Some(neighbours) = self.neighbours.get().and_then(Weak::upgrade) else { return };
        let links = neighbours.links().into_iter().filter(|(node, _)| there.contains(node));
        let links: Vec<Link> = links.map(|(_, link)| link).collect();
        if !links.is_empty() {
            let frame = encode(&Frame::Printed { program, lines });
            // Words are not worth waiting for.
            links.iter().for_each(|link| drop(link.send(frame.clone())));
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
