//! What the machine can do without an engine: round trips between two processes, and copies.

use super::Outcome;
use crate::Failure;
use crate::arguments::Scale;
use crate::figure::{Figure, Unit};
use crate::peer::{Peer, Way};
use crate::progress;
use crate::samples::{Samples, microseconds};
use crate::warm_copy::WarmMemory;
use std::time::{Duration, Instant};

const WARM_UP: u32 = 200;
/// On a busy machine a spinning round trip may take a whole turn of the scheduler.
const TIME_MAX: Duration = Duration::from_secs(5);
const COPY_BYTES: usize = 100_000_000;

/// Measures all of them.
pub(super) fn measure(scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    // A spinning round trip is about as short as a look at the clock: many are timed together.
    let ways = [
        (Way::Spinning, 100, "limit: round trip, spinning on a shared word"),
        (Way::Futex, 1, "limit: round trip, futex"),
        (Way::Stream, 1, "limit: round trip, Unix stream socket"),
        (Way::Seqpacket, 1, "limit: round trip, Unix seqpacket socket"),
    ];
    for (way, together, name) in ways {
        progress::say(format_args!("  {name}"));
        let samples = round_trips(way, together, scale.pick(2_000, 20_000))?;
        let detail = format!("median; least {:.2}, p99 {:.2}", samples.least(), samples.quantile(0.99));
        figures.push(Figure::new(name, samples.median(), Unit::Microseconds).detail(detail));
    }
    figures.push(warm_copy(scale.pick(10, 30))?);
    Ok(figures)
}

/// Microseconds of each of `count` round trips; the mean of each `together` that are timed as one.
fn round_trips(way: Way, together: u32, count: u32) -> Result<Samples, Failure> {
    let mut peer = Peer::start(way)?;
    for _ in 0..WARM_UP {
        peer.round_trip()?;
    }
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < count as usize && begin.elapsed() < TIME_MAX {
        let begin = Instant::now();
        for _ in 0..together {
            peer.round_trip()?;
        }
        times.push(microseconds(begin.elapsed()) / f64::from(together));
    }
    Ok(Samples::new(times))
}

fn warm_copy(rounds: u32) -> Result<Figure, Failure> {
    let source = vec![7_u8; COPY_BYTES];
    let mut memory = WarmMemory::new(COPY_BYTES)?;
    memory.copy(&source);
    let speeds = (0..rounds).map(|_| COPY_BYTES as f64 / memory.copy(&source).as_secs_f64() / 1e9);
    let speeds = Samples::new(speeds.collect());
    Ok(Figure::new(
        "limit: copy of 100 MB into warm shared memory",
        speeds.median(),
        Unit::GigabytesPerSecond,
    )
    .detail(format!("median of {rounds}; best {:.1}", speeds.most())))
}
