//! Round trips between two processes with nothing but the kernel or a shared word between them: physical limits.
//!
//! A word of each process lies in shared memory. Who has the turn writes the number of the round into its own word;
//! the other one spins on it or sleeps on a futex until it is there. Over a socket, one byte goes to and fro.

use crate::Failure;
use crate::arguments::PEER;
use crate::cores::{OnCore, Placement};
use crate::isolation::die_with_parent;
use crate::samples::microseconds;
use aktis_protocol::{FunctionId, ProcessSlot, ShapeId, TaskKey};
use aktis_store::{Control, Running};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

const HERE: ProcessSlot = ProcessSlot(0);
const THERE: ProcessSlot = ProcessSlot(1);
/// The round after which the peer ends.
const LAST: u32 = u32::MAX;
/// On a busy machine a spinning round trip may take a whole turn of the scheduler.
const TIME_MAX: Duration = Duration::from_secs(5);

/// What carries the turn from one process to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A shared word, watched without a pause.
    Spinning,
    /// A shared word, and a futex to sleep on.
    Futex,
    /// A Unix socket of bytes, with blocking calls.
    Stream,
    /// A Unix socket of messages, with blocking calls.
    Seqpacket,
}

/// What a peer is told when it is started.
pub(crate) struct Call {
    way: Way,
    /// Where the shared words are.
    segment: Option<String>,
}

/// The near end of the round trips; ends the far one when dropped.
pub(crate) struct Peer {
    child: Child,
    near: Option<End>,
    core: usize,
    round: u32,
}

enum End {
    Words { control: Control, me: ProcessSlot, other: ProcessSlot, sleeps: bool },
    Socket(OwnedFd),
}

impl Peer {
    /// Starts this program once more, at the far end.
    pub(crate) fn start(way: Way, placement: Placement) -> Result<Self, Failure> {
        let (core, far_core) = placement.cores()?;
        let mut command = Command::new("/proc/self/exe");
        command.args([PEER, way.name()]).stdout(Stdio::piped());
        let near = match way {
            Way::Spinning | Way::Futex => {
                let control = Control::create()?;
                control.start_process(THERE, 0);
                command.arg(format!("/proc/{}/fd/{}", std::process::id(), control.fd().as_raw_fd()));
                End::Words { control, me: HERE, other: THERE, sleeps: way == Way::Futex }
            }
            Way::Stream | Way::Seqpacket => {
                let kind = if way == Way::Stream { SocketType::STREAM } else { SocketType::SEQPACKET };
                let (near, far) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
                command.stdin(Stdio::from(far));
                End::Socket(near)
            }
        };
        let far_core = OnCore::enter(far_core)?;
        let mut child = command.spawn()?;
        drop((far_core, command)); // With the command goes our copy of the far end.
        let stdout = child.stdout.take().ok_or("its output is not a pipe")?;
        let peer = Self { child, near: Some(near), core, round: 0 };
        if BufReader::new(stdout).lines().next().is_none() {
            return Err("the other end of a round trip did not start".into());
        }
        Ok(peer)
    }

    /// Microseconds of each of `count` round trips, or of fewer if they are slow; the mean of each `together` that
    /// are timed as one.
    pub(crate) fn times(&mut self, count: usize, together: u32) -> Result<Vec<f64>, Failure> {
        let _core = OnCore::enter(self.core)?;
        let begin = Instant::now();
        let mut times = Vec::with_capacity(count);
        while times.len() < count && begin.elapsed() < TIME_MAX {
            let begin = Instant::now();
            for _ in 0..together {
                self.round_trip()?;
            }
            times.push(microseconds(begin.elapsed()) / f64::from(together));
        }
        Ok(times)
    }

    /// Goes there and back once.
    fn round_trip(&mut self) -> Result<(), Failure> {
        self.round += 1;
        let near = self.near.as_ref().ok_or("the peer has ended")?;
        near.give(self.round)?;
        near.take(self.round)?;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(near @ End::Words { .. }) = &self.near {
            let _ = near.give(LAST);
        }
        // To the peer, the end of its socket is the end of its work.
        self.near = None;
        let _ = self.child.wait();
    }
}

impl End {
    fn give(&self, round: u32) -> Result<(), Failure> {
        match self {
            Self::Words { control, me, other, sleeps } => {
                let key = TaskKey { index: round, generation: 0 };
                let (shape, likeness) = (ShapeId::default(), FunctionId::default());
                control.cells(*me)[0].set(Running { submitter: *me, key, attempt: 0, shape, likeness });
                if *sleeps {
                    control.wake_process(*other);
                }
            }
            Self::Socket(socket) => {
                rustix::io::write(socket, &[1])?;
            }
        }
        Ok(())
    }

    /// Waits for the turn; false when the last round is over.
    fn take(&self, round: u32) -> Result<bool, Failure> {
        match self {
            Self::Words { control, other, sleeps, .. } => {
                let cell = &control.cells(*other)[0];
                loop {
                    match cell.get() {
                        Some(running) if running.key.index == LAST => return Ok(false),
                        Some(running) if running.key.index == round => return Ok(true),
                        _ if *sleeps => {
                            let is_due = || cell.get().is_some_and(|running| running.key.index >= round);
                            sleep_until(control, is_due);
                        }
                        _ => std::hint::spin_loop(),
                    }
                }
            }
            Self::Socket(socket) => Ok(rustix::io::read(socket, &mut [0])? == 1),
        }
    }
}

fn sleep_until(control: &Control, done: impl Fn() -> bool) {
    let bell = control.doorbell();
    let ticket = bell.prepare();
    if done() { bell.stay(ticket) } else { bell.sleep(ticket, None) }
}

/// The far end: answers until the near one has enough.
pub(crate) fn answer(call: &Call) -> Result<(), Failure> {
    die_with_parent()?;
    let far = match &call.segment {
        Some(segment) => {
            let segment = std::fs::OpenOptions::new().read(true).write(true).open(segment)?;
            let control = Control::open(segment.into(), THERE)?;
            End::Words { control, me: THERE, other: HERE, sleeps: call.way == Way::Futex }
        }
        None => End::Socket(std::io::stdin().as_fd().try_clone_to_owned()?),
    };
    println!("ready");
    let mut round = 1;
    while far.take(round)? {
        far.give(round)?;
        round += 1;
    }
    Ok(())
}

impl Call {
    /// Reads what comes after the first argument.
    pub(crate) fn parse(words: &[String]) -> Result<Self, Failure> {
        let way = words.first().ok_or("which way?")?.parse()?;
        Ok(Self { way, segment: words.get(1).cloned() })
    }
}

impl Way {
    const ALL: [Self; 4] = [Self::Spinning, Self::Futex, Self::Stream, Self::Seqpacket];

    fn name(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Futex => "futex",
            Self::Stream => "stream",
            Self::Seqpacket => "seqpacket",
        }
    }
}

impl FromStr for Way {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        Self::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| format!("no way `{name}`").into())
    }
}
