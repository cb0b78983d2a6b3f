//! One task or call at a time: how long until its result is there, next to a blocking socket's round trip.

use super::actors::Counter;
use super::tasks::empty;
use super::{Outcome, check, session};
use crate::Failure;
use crate::arguments::Scale;
use crate::cores::Placement;
use crate::figure::{Bound, Figure, Unit};
use crate::peer::{Peer, Way};
use crate::samples::{Samples, microseconds, timed};

const GOAL: Bound = Bound::AtMost(5.0);
/// Turns between engine and sockets, so that both see the same moods of the machine.
const TURNS: usize = 20;

/// A task at a time.
pub(super) fn tasks(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    measure("one task at a time", scale, || check("an empty task", empty::remote().get()?, 1))
}

/// A call of an actor at a time.
pub(super) fn actor_calls(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let counter = Counter::remote(0);
    let mut calls = 0;
    measure("one actor call at a time", scale, || {
        calls += 1;
        check("an actor's count", counter.add(1).get()?, calls)
    })
}

fn measure(name: &str, scale: Scale, mut call: impl FnMut() -> Result<(), Failure>) -> Outcome {
    let in_turn = scale.pick(2_000, 20_000) / TURNS;
    // On one core, where a socket is fastest.
    let start = |way| Peer::start(way, Placement::OneCore);
    let mut sockets = [start(Way::Stream)?, start(Way::Seqpacket)?];
    let mut socket_times = [Vec::new(), Vec::new()];
    let mut call_times = Vec::new();
    repeat(in_turn, &mut call)?;
    for _ in 0..TURNS {
        call_times.extend(repeat(in_turn, &mut call)?);
        for (socket, times) in sockets.iter_mut().zip(&mut socket_times) {
            times.extend(socket.times(in_turn / 2, 1)?);
        }
    }
    let calls = Samples::new(call_times);
    let [stream, seqpacket] = socket_times.map(|times| Samples::new(times).median());
    // It has to be faster than either kind of socket.
    let socket = stream.min(seqpacket);
    let median = Figure::new(format!("{name}, median"), calls.median(), Unit::Microseconds)
        .wanted(Bound::AtMost(socket))
        .goal(GOAL)
        .limit("Unix socket, one core", socket)
        .detail(format!("least {:.2}", calls.least()));
    let tail = Figure::new(format!("{name}, p99"), calls.quantile(0.99), Unit::Microseconds);
    Ok(vec![median, tail])
}

/// Microseconds of each of `count` calls.
fn repeat(count: usize, call: &mut impl FnMut() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
    (0..count).map(|_| timed(&mut *call).map(|(time, ())| microseconds(time))).collect()
}
