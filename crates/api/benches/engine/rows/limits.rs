//! What the machine can do without an engine: round trips between two processes, and copies.

use super::Outcome;
use crate::Failure;
use crate::arguments::Scale;
use crate::cores::Placement::{OneCore, TwoCores};
use crate::figure::{Figure, Unit};
use crate::peer::{Peer, Way};
use crate::progress;
use crate::samples::Samples;
use crate::warm_copy::WarmMemory;

const WARM_UP: usize = 200;
const COPY_BYTES: usize = 100_000_000;

/// Measures all of them.
pub(super) fn measure(scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    // A spinning round trip is about as short as a look at the clock: many are timed together.
    let ways = [
        (Way::Spinning, TwoCores, 100, "spinning on a shared word"),
        (Way::Futex, OneCore, 1, "futex, on one core"),
        (Way::Futex, TwoCores, 1, "futex, between cores"),
        (Way::Stream, OneCore, 1, "Unix stream socket, on one core"),
        (Way::Stream, TwoCores, 1, "Unix stream socket, between cores"),
        (Way::Seqpacket, OneCore, 1, "Unix seqpacket socket, on one core"),
        (Way::Seqpacket, TwoCores, 1, "Unix seqpacket socket, between cores"),
    ];
    for (way, placement, together, name) in ways {
        let name = format!("limit: round trip, {name}");
        progress::say(format_args!("  {name}"));
        let mut peer = Peer::start(way, placement)?;
        peer.times(WARM_UP, together)?;
        let samples = Samples::new(peer.times(scale.pick(2_000, 20_000), together)?);
        let detail = format!("median; least {:.2}, p99 {:.2}", samples.least(), samples.quantile(0.99));
        figures.push(Figure::new(name, samples.median(), Unit::Microseconds).detail(detail));
    }
    figures.push(warm_copy(scale.pick(10, 30))?);
    Ok(figures)
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
