//! A leader's thread that looks after the other machines: it hears of failures there, and tells of failures here.
//!
//! Invariants:
//! 1. A failure that this machine's members see reaches every other leader, and the other way round.
//! 2. A leader that leaves on purpose says so; one that is gone without a word has died.

use crate::error::{CollectiveError, Result};
use crate::local::{Local, has_ended};
use aktis_io::PinnedStream;
use aktis_store::Alarm;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often the thread looks whether a member on this machine has written down a failure.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long it tries to tell another leader of a failure.
const FAREWELL: Duration = Duration::from_millis(500);
/// The longest message between leaders.
const MESSAGE_BYTES_MAX: usize = 4096;

/// What the thread and its owner share.
struct Shared {
    closing: AtomicBool,
    left: Mutex<HashSet<usize>>,
    bell: OwnedFd,
}

/// The thread; it ends with this value.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Watcher {
    shared: Arc<Shared>,
    alarm: Alarm,
    incoming: Vec<(usize, PinnedStream)>,
    outgoing: Vec<PinnedStream>,
    processes: Vec<(usize, usize, u32, OwnedFd)>,
    has_told: bool,
}

impl Watch {
    pub(crate) fn start(
        incoming: Vec<(usize, PinnedStream)>,
        outgoing: Vec<PinnedStream>,
        local: &Local,
        alarm: Alarm,
    ) -> Result<Self> {
        let setup =
            |error: std::io::Error| CollectiveError::Setup(format!("nobody can watch the group: {error}"));
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| setup(error.into()))?;
        let shared = Arc::new(Shared { closing: AtomicBool::new(false), left: Mutex::default(), bell });
        let mut processes = Vec::new();
        for (rank, pid, process) in local.processes() {
            let place = local.place_of(rank).expect("it is on this machine");
            processes.push((place, rank, pid, process.try_clone().map_err(setup)?));
        }
        let watcher =
            Watcher { shared: shared.clone(), alarm, incoming, outgoing, processes, has_told: false };
        let thread = std::thread::Builder::new().name("aktis-watch".to_owned()).spawn(move || watcher.run());
        Ok(Self { shared, thread: Some(thread.map_err(setup)?) })
    }

    /// Whether the leader has left on purpose.
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.shared.left.lock().contains(&rank)
    }

    /// A failure was written down here.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watcher {
    fn run(mut self) {
        loop {
            let is_closing = self.shared.closing.load(Ordering::SeqCst);
            self.look_at_processes();
            self.hear();
            if let Some(reason) = self.alarm.failure().filter(|_| !self.has_told) {
                self.has_told = true;
                self.tell(&reason);
            }
            if is_closing {
                // Others that only lack this member's data have it; the rest need to know that it is gone.
                self.tell(&[]);
                return;
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.shared.bell, PollFlags::IN)];
        fds.extend(self.incoming.iter().map(|(_, stream)| PollFd::new(stream.socket(), PollFlags::IN)));
        fds.extend(
            self.processes
                .iter()
                .map(|(.., process)| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)),
        );
        let _ = rustix::event::poll(&mut fds, Some(&TURN));
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.bell, &mut count);
    }

    fn look_at_processes(&mut self) {
        let alarm = &self.alarm;
        self.processes.retain(|(place, rank, pid, process)| {
            let ended = has_ended(process);
            if ended && !alarm.has_left(*place) {
                let reason = format!("its process (pid {pid}) has ended");
                alarm.fail(&CollectiveError::MemberDied { rank: *rank, reason }.encode());
            }
            !ended
        });
    }

    fn hear(&mut self) {
        let Self { shared, alarm, incoming, .. } = self;
        incoming.retain_mut(|(rank, stream)| {
            if !stream.is_ready() {
                return true;
            }
            match message(stream) {
                Some(reason) if reason.is_empty() => {
                    shared.left.lock().insert(*rank);
                }
                Some(reason) => alarm.fail(&reason),
                None => {
                    let reason =
                        "the connection to it was lost: its process or its machine has ended".to_owned();
                    alarm.fail(&CollectiveError::MemberDied { rank: *rank, reason }.encode());
                }
            }
            false
        });
    }

    /// Tells all other leaders why the group failed; or, without a reason, that this one leaves.
    fn tell(&mut self, reason: &[u8]) {
        let deadline = Instant::now() + FAREWELL;
        let length = (reason.len() as u32).to_le_bytes();
        self.outgoing.retain_mut(|stream| {
            stream.send(&[&length, reason].concat(), || Instant::now() < deadline).is_ok()
        });
    }
}

/// The message that has come; `None` if the stream has ended.
fn message(stream: &mut PinnedStream) -> Option<Vec<u8>> {
    let deadline = Instant::now() + FAREWELL;
    let mut length = [0; 4];
    stream.receive(&mut length, || Instant::now() < deadline).ok()?;
    let length = u32::from_le_bytes(length) as usize;
    let mut reason = vec![0; Some(length).filter(|length| *length <= MESSAGE_BYTES_MAX)?];
    stream.receive(&mut reason, || Instant::now() < deadline).ok()?;
    Some(reason)
}
