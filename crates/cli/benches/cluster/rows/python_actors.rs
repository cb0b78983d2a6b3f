//! Python actors, each a process, on three nodes.

use super::{Outcome, check};
use crate::Failure;
use crate::arguments::Scale;
use crate::cluster::Cluster;
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use crate::samples::{Samples, rate};
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const NODES: u64 = 3;
const WANTED: Bound = Bound::AtLeast(100.0);

/// What the program in Python prints.
#[derive(Deserialize)]
struct Report {
    seconds: f64,
    /// How many processes answered, and on how many nodes.
    processes: u64,
    nodes: u64,
}

pub(super) fn measure(scale: Scale) -> Outcome {
    let actors: u64 = scale.pick(60, 300);
    let rounds = scale.pick(2, 5);
    let network = Network::new(NODES as u8)?;
    // Each node has room for its part, so that all take part.
    let room = format!("room={}", actors / NODES);
    let options: &[&str] = &["--cpus", "2", "--resource", &room, "--store-bytes", "256MiB"];
    let cluster = Cluster::on(&network, &[options; NODES as usize])?;
    let rates: Vec<f64> = (0..rounds).map(|_| round(&cluster, actors)).collect::<Result<_, _>>()?;
    let rates = Samples::new(rates);
    let name = format!("{actors} Python actors created and answering, 3 nodes");
    let detail = format!("median of {rounds}; {:.0} to {:.0}", rates.least(), rates.most());
    Ok(vec![Figure::new(name, rates.median(), Unit::PerSecond).wanted(WANTED).detail(detail)])
}

/// Actors per second of a new driver.
fn round(cluster: &Cluster, actors: u64) -> Result<f64, Failure> {
    let python = std::env::var("AKTIS_BENCH_PYTHON")
        .map_err(|_| "no interpreter is named\nhint: `cargo xtask bench cluster` makes one and names it")?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/python/cluster_actors.py");
    let output = Command::new(python)
        .arg(program)
        .args([cluster.head().address()?, actors.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let report: Report = serde_json::from_slice(&output.stdout)?;
    check("counting processes", report.processes, actors)?;
    check("counting nodes", report.nodes, NODES)?;
    Ok(rate(actors, Duration::from_secs_f64(report.seconds)))
}
