//! Empty tasks on three nodes with a CPU each, next to one node with three CPUs.
//!
//! Both run on the same cores of this machine, at different times. So what three nodes do more (links, encryption, copies of
//! the bookkeeping) costs time here, while there is nothing that they could do faster.

use super::{Outcome, check, empty};
use crate::Failure;
use crate::arguments::Scale;
use crate::cluster::Cluster;
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use crate::samples::{Samples, rate, timed};
use aktis::Session;
use std::sync::Barrier;
use std::time::Instant;

const NODES: usize = 3;
/// Of what one node does.
const SHARE_WANTED: f64 = 0.9;
const ONE: &[&str] = &["--cpus", "3", "--store-bytes", "256MiB"];
const EACH: &[&str] = &["--cpus", "1", "--store-bytes", "256MiB"];

/// One node, and three that have as many CPUs together.
struct Both {
    one: Cluster,
    three: Cluster,
    // Dropped last: the machines of both.
    _network: Network,
}

impl Both {
    fn start() -> Result<Self, Failure> {
        let network = Network::new(4)?;
        let one = Cluster::start(&network.machines[..1], &[ONE])?;
        let three = Cluster::start(&network.machines[1..], &[EACH; NODES])?;
        Ok(Self { one, three, _network: network })
    }
}

/// A driver on one of the nodes submits everything.
pub(super) fn one_submitter(scale: Scale) -> Outcome {
    let both = Both::start()?;
    let (one, three) = (both.one.head().session()?, both.three.head().session()?);
    compare("empty tasks in flight, 3 nodes, one submitter", scale, |count| {
        Ok([in_session(&one, count)?, in_session(&three, count)?])
    })
}

/// A driver on each node submits a third.
pub(super) fn submitter_on_each(scale: Scale) -> Outcome {
    let both = Both::start()?;
    let one: Vec<Session> = (0..NODES).map(|_| both.one.head().session()).collect::<Result<_, _>>()?;
    let three: Vec<Session> = both.three.nodes.iter().map(|node| node.session()).collect::<Result<_, _>>()?;
    compare("empty tasks in flight, 3 nodes, a submitter on each", scale, |count| {
        Ok([at_once(&one, count)?, at_once(&three, count)?])
    })
}

fn compare(name: &str, scale: Scale, mut round: impl FnMut(u64) -> Result<[f64; 2], Failure>) -> Outcome {
    let (count, rounds) = scale.pick((300_000, 7), (600_000, 41));
    for _ in 0..2 {
        round(count)?; // The first ones find cold memory, and nodes that do not know the program.
    }
    let (mut ones, mut threes, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let [one, three] = round(count)?;
        ones.push(one);
        threes.push(three);
        shares.push(three / one);
    }
    let (one, three, shares) = (Samples::new(ones), Samples::new(threes), Samples::new(shares));
    let detail = format!(
        "median of {rounds} x {count}; by rounds {:.2} x ({:.2} to {:.2})",
        shares.median(),
        shares.least(),
        shares.most()
    );
    Ok(vec![
        Figure::new(name, three.median(), Unit::PerSecond)
            .wanted(Bound::AtLeast(SHARE_WANTED * one.median()))
            .limit("one node", one.median())
            .detail(detail),
    ])
}

/// Submits tasks, holds on to all of them, then takes what they give.
fn run_all(count: u64) -> Result<(), Failure> {
    let tasks: Vec<_> = (0..count).map(|_| empty::remote()).collect();
    let sum = tasks.into_iter().map(|task| task.get()).sum::<aktis::Result<u64>>()?;
    check("counting empty tasks", sum, count)
}

/// Tasks per second of one driver.
fn in_session(session: &Session, count: u64) -> Result<f64, Failure> {
    let _entered = session.enter();
    let (time, ()) = timed(|| run_all(count))?;
    Ok(rate(count, time))
}

/// Tasks per second of several drivers together, from the first one's start to the last one's end.
fn at_once(sessions: &[Session], count: u64) -> Result<f64, Failure> {
    let each = count / sessions.len() as u64;
    let start = Barrier::new(sessions.len() + 1);
    let run = |session: &Session| {
        let _entered = session.enter();
        start.wait();
        run_all(each)
    };
    std::thread::scope(|scope| {
        let run = &run;
        let drivers: Vec<_> = sessions.iter().map(|session| scope.spawn(move || run(session))).collect();
        start.wait();
        let begin = Instant::now();
        for driver in drivers {
            driver.join().map_err(|_| "a driver panicked")??;
        }
        Ok(rate(each * sessions.len() as u64, begin.elapsed()))
    })
}
