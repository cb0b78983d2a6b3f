//! One task or call at a time on another node, next to a plain TCP round trip between the same two machines.

use super::{HERE, Outcome, check, empty};
use crate::Failure;
use crate::arguments::Scale;
use crate::cluster::Cluster;
use crate::echo::Echo;
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use crate::samples::{Samples, microseconds, timed};
use aktis::prelude::*;

/// Turns between the cluster and plain TCP, so that both see the same moods of the machine.
const TURNS: usize = 20;

struct Counter {
    total: u64,
}

#[actor]
impl Counter {
    fn new() -> Self {
        Self { total: 0 }
    }

    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }
}

/// A driver's own node that runs nothing, and one that does.
struct Pair {
    network: Network,
    cluster: Cluster,
}

impl Pair {
    fn start() -> Result<Self, Failure> {
        let network = Network::new(2)?;
        let far = ["--cpus", "1", "--resource", "here=1", "--store-bytes", "256MiB"];
        let cluster = Cluster::on(&network, &[&["--cpus", "0", "--store-bytes", "256MiB"], &far])?;
        Ok(Self { network, cluster })
    }
}

/// A task at a time.
pub(super) fn tasks(scale: Scale) -> Outcome {
    let pair = Pair::start()?;
    let session = pair.cluster.head().session()?;
    let _entered = session.enter();
    measure("remote task, one at a time", 3.0, scale, &pair.network, || {
        check("an empty task", empty::remote().get()?, 1)
    })
}

/// A call of an actor at a time.
pub(super) fn calls(scale: Scale) -> Outcome {
    let pair = Pair::start()?;
    let session = pair.cluster.head().session()?;
    let _entered = session.enter();
    let counter = Counter::options().resource(HERE, 1).remote();
    let mut calls = 0;
    measure("remote actor call, one at a time", 2.0, scale, &pair.network, || {
        calls += 1;
        check("an actor's count", counter.add(1).get()?, calls)
    })
}

fn measure(
    name: &str,
    times_wanted: f64,
    scale: Scale,
    network: &Network,
    mut call: impl FnMut() -> Result<(), Failure>,
) -> Outcome {
    let in_turn = scale.pick(2_000, 20_000) / TURNS;
    let [near, far] = &network.machines[..] else { return Err("two machines are needed".into()) };
    let echo = Echo::start(far)?;
    let (mut calls, mut trips, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    repeat(in_turn, &mut call)?;
    for _ in 0..TURNS {
        let (call, trip) = (repeat(in_turn, &mut call)?, echo.times(near, in_turn)?);
        ratios.push(Samples::new(call.clone()).median() / Samples::new(trip.clone()).median());
        calls.extend(call);
        trips.extend(trip);
    }
    let (calls, trips, ratios) = (Samples::new(calls), Samples::new(trips), Samples::new(ratios));
    let detail = format!(
        "by turns {:.2} x ({:.2} to {:.2}); one in ten below {:.1} against {:.1}, least {:.1} against {:.1}",
        ratios.median(),
        ratios.least(),
        ratios.most(),
        calls.quantile(0.1),
        trips.quantile(0.1),
        calls.least(),
        trips.least(),
    );
    let median = Figure::new(format!("{name}, median"), calls.median(), Unit::Microseconds)
        .wanted(Bound::AtMost(times_wanted * trips.median()))
        .limit("TCP", trips.median())
        .detail(detail);
    let tail = Figure::new(format!("{name}, p99"), calls.quantile(0.99), Unit::Microseconds)
        .limit("TCP", trips.quantile(0.99));
    Ok(vec![median, tail])
}

/// Microseconds of each of `count` calls.
fn repeat(count: usize, call: &mut impl FnMut() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
    (0..count).map(|_| timed(&mut *call).map(|(time, ())| microseconds(time))).collect()
}
