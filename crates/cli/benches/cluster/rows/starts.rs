//! How soon a cluster is there, and how soon a node joins one.

use super::{HERE, Outcome, check, empty};
use crate::Failure;
use crate::arguments::Scale;
use crate::cluster::Cluster;
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use crate::samples::{Samples, milliseconds};
use std::time::Instant;

const HEAD: &[&str] = &["--cpus", "0", "--store-bytes", "256MiB"];
const MEMBER: &[&str] = &["--cpus", "1", "--resource", "here=1", "--store-bytes", "256MiB"];

/// Milliseconds of one cluster's youth.
struct Youth {
    /// From nothing until three nodes are a cluster, and a task of a new driver has run on a member.
    first_task: f64,
    /// From the start of a further daemon until it says that it is a member.
    join: f64,
    /// Until a task has run there that nobody else could run.
    join_and_task: f64,
}

pub(super) fn measure(scale: Scale) -> Outcome {
    let rounds = scale.pick(3, 9);
    let network = Network::new(4)?;
    let youths: Vec<Youth> = (0..rounds).map(|_| youth(&network)).collect::<Result<_, _>>()?;
    let figure = |name: &str, time: fn(&Youth) -> f64, wanted: Option<f64>| {
        let times = Samples::new(youths.iter().map(time).collect());
        let figure = Figure::new(name, times.median(), Unit::Milliseconds).detail(format!(
            "median of {rounds}; {:.0} to {:.0}",
            times.least(),
            times.most()
        ));
        wanted.map_or(figure.clone(), |wanted| figure.wanted(Bound::AtMost(wanted)))
    };
    Ok(vec![
        figure("cluster of 3 up, first task done", |youth| youth.first_task, Some(1000.0)),
        figure("node join", |youth| youth.join, Some(200.0)),
        figure("node join and first task there", |youth| youth.join_and_task, None),
    ])
}

fn youth(network: &Network) -> Result<Youth, Failure> {
    let begin = Instant::now();
    let mut cluster = Cluster::begin(&network.machines[0], HEAD)?;
    for machine in &network.machines[1..3] {
        cluster.add(machine, &["--cpus", "1", "--store-bytes", "256MiB"])?;
    }
    cluster.wait_for_members()?;
    let session = cluster.head().session()?;
    let entered = session.enter();
    check("the first task", empty::remote().get()?, 1)?;
    let first_task = milliseconds(begin.elapsed());
    let begin = Instant::now();
    cluster.add(&network.machines[3], MEMBER)?;
    cluster.wait_for_last()?;
    let join = milliseconds(begin.elapsed());
    check("the first task of a member", empty::options().resource(HERE, 1).remote().get()?, 1)?;
    let join_and_task = milliseconds(begin.elapsed());
    drop(entered);
    session.shutdown();
    Ok(Youth { first_task, join, join_and_task })
}
