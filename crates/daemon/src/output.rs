//! What worker processes print: forwarded to the driver's own output line by line, and the last lines kept.
//!
//! Invariants:
//! 1. The node's thread reads, another thread writes: a driver whose output is blocked does not stop its node.
//! 2. What is read and not yet written is bounded by [`WAITING_BYTES_MAX`]; then workers wait in `print`.

use crate::bell::Bell;
use aktis_protocol::limits;
use parking_lot::{Condvar, Mutex};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read from workers that wait to be written.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// A longer line is forwarded in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// Reads of a dead worker's pipe: a pipe holds no more, and a child of it may go on writing for ever.
const LAST_READS_MAX: usize = 16;

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// One output of one worker process.
pub(crate) struct Output {
    /// `None` once it is closed.
    pipe: Option<OwnedFd>,
    stream: Stream,
    prefix: String,
    partial: Vec<u8>,
    /// The last lines of standard error, oldest first.
    tail: VecDeque<String>,
}

impl Output {
    /// The output of a process, which is called `who` before each line.
    pub(crate) fn new(pipe: OwnedFd, stream: Stream, who: &str) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        let prefix = format!("(aktis {who}) ");
        Ok(Self { pipe: Some(pipe), stream, prefix, partial: Vec::new(), tail: VecDeque::new() })
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
                self.on_bytes(&buffer[..count], forwarder);
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
        if !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            self.on_line(&line, forwarder);
        }
    }

    /// The last lines; none for standard output.
    pub(crate) fn tail(&mut self) -> Vec<String> {
        std::mem::take(&mut self.tail).into()
    }

    fn on_bytes(&mut self, bytes: &[u8], forwarder: Option<&Forwarder>) {
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = lines.next() {
            self.partial.extend_from_slice(piece);
            let complete = lines.peek().is_some();
            if complete || self.partial.len() > LINE_BYTES_MAX {
                let mut line = std::mem::take(&mut self.partial);
                self.on_line(&line, forwarder);
                line.clear();
                self.partial = line;
            }
        }
    }

    fn on_line(&mut self, line: &[u8], forwarder: Option<&Forwarder>) {
        if self.stream == Stream::Stderr {
            if self.tail.len() == limits::STDERR_LINES_KEPT {
                self.tail.pop_front();
            }
            let kept = &line[..line.len().min(limits::STDERR_LINE_BYTES_MAX)];
            self.tail.push_back(String::from_utf8_lossy(kept).into_owned());
        }
        if let Some(forwarder) = forwarder {
            forwarder.push(self.stream, [self.prefix.as_bytes(), line, b"\n"].concat());
        }
    }
}

/// The thread that writes workers' lines to the driver's own output.
pub(crate) struct Forwarder {
    shared: Arc<Forwarding>,
}

struct Forwarding {
    state: Mutex<ForwardingState>,
    changed: Condvar,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct ForwardingState {
    waiting: VecDeque<(Stream, Vec<u8>)>,
    waiting_bytes: usize,
    writing: bool,
    started: bool,
    closing: bool,
}

impl Forwarder {
    /// Makes the forwarder; its thread starts with the first line. The bell rings when there is room again.
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        let shared = Forwarding { state: Mutex::default(), changed: Condvar::new(), bell };
        Self { shared: Arc::new(shared) }
    }

    /// Whether no more should be read for now.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.state.lock().waiting_bytes >= WAITING_BYTES_MAX
    }

    fn push(&self, stream: Stream, line: Vec<u8>) {
        let mut state = self.shared.state.lock();
        state.waiting_bytes += line.len();
        state.waiting.push_back((stream, line));
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
        while state.started && (state.writing || !state.waiting.is_empty()) {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

impl Forwarding {
    fn run(&self) {
        while let Some((stream, line)) = self.next() {
            // The driver's output may be closed: then there is nobody to tell.
            let _ = match stream {
                Stream::Stdout => io::stdout().lock().write_all(&line),
                Stream::Stderr => io::stderr().lock().write_all(&line),
            };
        }
    }

    fn next(&self) -> Option<(Stream, Vec<u8>)> {
        let mut state = self.state.lock();
        if state.writing {
            state.writing = false;
            self.changed.notify_all();
        }
        loop {
            if let Some((stream, line)) = state.waiting.pop_front() {
                let was_full = state.waiting_bytes >= WAITING_BYTES_MAX;
                state.waiting_bytes -= line.len();
                state.writing = true;
                if was_full && state.waiting_bytes < WAITING_BYTES_MAX {
                    self.bell.ring();
                }
                return Some((stream, line));
            }
            if state.closing {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stream: Stream) -> (Output, std::fs::File) {
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        (Output::new(read, stream, "worker 7").expect("output"), write.into())
    }

    #[test]
    fn the_last_lines_are_kept_whole_and_bounded() {
        let (mut stderr, mut pipe) = output(Stream::Stderr);
        for line in 0..limits::STDERR_LINES_KEPT + 5 {
            write!(pipe, "line {line}\nand ").expect("written");
        }
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

    #[test]
    fn lines_wait_with_their_prefix_and_fill_up() {
        let bell = Arc::new(Bell::new().expect("bell"));
        let forwarder = Forwarder::new(bell);
        // As if the thread were busy with a line for ever.
        forwarder.shared.state.lock().started = true;
        let (mut stdout, mut pipe) = output(Stream::Stdout);
        pipe.write_all(b"one\ntw").expect("written");
        stdout.read_some(Some(&forwarder));
        let waiting = forwarder.shared.state.lock().waiting.clone();
        assert_eq!(waiting, [(Stream::Stdout, b"(aktis worker 7) one\n".to_vec())]);
        assert!(!forwarder.is_full());
        let line = vec![b'x'; 32 * 1024];
        while !forwarder.is_full() {
            pipe.write_all(&line).expect("written");
            stdout.read_some(Some(&forwarder));
        }
        assert!(forwarder.shared.state.lock().waiting_bytes >= WAITING_BYTES_MAX);
        forwarder.close(Duration::ZERO);
    }
}
