//! Tasks with large inputs that lie on one of two nodes, with and without regard to where (figure 8a of Ray's paper).

use super::{Outcome, check, make};
use crate::Failure;
use crate::arguments::Scale;
use crate::cluster::{Cluster, PATIENCE};
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use crate::plot::{Line, Plot};
use crate::progress;
use crate::samples::{Samples, milliseconds, timed};
use aktis::Session;
use aktis::prelude::*;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SIZES: [(usize, &str); 4] =
    [(100_000, "100 KB"), (1_000_000, "1 MB"), (10_000_000, "10 MB"), (100_000_000, "100 MB")];
/// What the two nodes are asked for by name, each for itself.
const NODES: [&str; 2] = ["left", "right"];
/// How long after one task the next is submitted. The first task after a rest takes longer, and larger inputs take longer to
/// make: all tasks follow the same rest, so that sizes can be compared.
const EVERY: Duration = Duration::from_millis(80);
/// How much slower a task may be with the largest input than with the smallest, to count as flat.
const FLAT: f64 = 2.0;

/// Reads its input in place; the work does not depend on how large that is.
#[remote]
fn look(input: Array<u8>) -> u64 {
    input.len() as u64 + u64::from(input[0])
}

pub(super) fn measure(scale: Scale) -> Outcome {
    let tasks = scale.pick(40, 250);
    let [aware, unaware] = [true, false].map(|aware| latencies(aware, tasks));
    let (aware, unaware) = (aware?, unaware?);
    draw(&aware, &unaware)?;
    let mut figures = Vec::new();
    for ((_, name), (aware, unaware)) in SIZES.iter().zip(aware.iter().zip(&unaware)) {
        figures.push(
            Figure::new(format!("task with an input of {name}, aware"), aware.mean, Unit::Milliseconds)
                .limit("unaware", unaware.mean)
                .detail(format!("mean of {tasks}; median {:.2} against {:.2}", aware.median, unaware.median)),
        );
    }
    let (smallest, largest) = (aware[0].mean, aware[SIZES.len() - 1].mean);
    figures.push(
        Figure::new("the same, 100 MB against 100 KB, aware", largest, Unit::Milliseconds)
            .wanted(Bound::AtMost(FLAT * smallest))
            .limit("100 KB", smallest),
    );
    Ok(figures)
}

/// Milliseconds.
struct Latency {
    mean: f64,
    median: f64,
}

fn latencies(aware: bool, tasks: usize) -> Result<Vec<Latency>, Failure> {
    let network = Network::new(3)?;
    let driver = ["--cpus", "0", "--store-bytes", "1GiB"];
    let [left, right] = NODES.map(|name| format!("{name}=1"));
    let with = |name| ["--cpus", "1", "--resource", name, "--store-bytes", "1GiB"];
    let cluster = Cluster::on(&network, &[&driver, &with(left.as_str()), &with(right.as_str())])?;
    let session = Session::builder().address(cluster.head().address()?).locality(aware).start()?;
    let _entered = session.enter();
    let word = if aware { "aware" } else { "unaware" };
    SIZES
        .into_iter()
        .map(|(bytes, name)| {
            progress::say(format_args!("  {word}, {name}"));
            one_by_one(bytes, 4)?;
            let times = one_by_one(bytes, tasks)?;
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            Ok(Latency { mean, median: Samples::new(times).median() })
        })
        .collect()
}

/// Milliseconds of each of so many tasks: each has an input of its own, which is there before the task is submitted.
fn one_by_one(bytes: usize, tasks: usize) -> Result<Vec<f64>, Failure> {
    // Which node has the input is not to be guessed from what came before.
    let mut dice = 7_u64;
    let mut last = Instant::now();
    (0..tasks)
        .map(|_| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let node = NODES[(dice >> 63) as usize];
            let input = make::options().cpus(0).resource(node, 1).remote(bytes, 7);
            aktis::wait(vec![input.clone()], 1, Some(PATIENCE))?;
            std::thread::sleep(EVERY.saturating_sub(last.elapsed()));
            last = Instant::now();
            let (time, sum) = timed(|| look::remote(input).get())?;
            check("looking at an input", sum, bytes as u64 + 7)?;
            Ok(milliseconds(time))
        })
        .collect()
}

fn draw(aware: &[Latency], unaware: &[Latency]) -> Result<(), Failure> {
    let Some(folder) = std::env::var_os("AKTIS_BENCH_PLOTS") else { return Ok(()) };
    let line = |name, colour, latencies: &[Latency]| Line {
        name,
        colour,
        points: SIZES.iter().zip(latencies).map(|(size, latency)| (size.0 as f64, latency.mean)).collect(),
    };
    let plot = Plot {
        title: "Mean time of a task whose input is on one of two nodes".to_owned(),
        across: "size of the input",
        marks: SIZES.map(|(bytes, name)| (bytes as f64, name.to_owned())).into(),
        up: "ms",
        lines: vec![line("aware", "#1b7837", aware), line("unaware", "#b2182b", unaware)],
    };
    Ok(std::fs::write(PathBuf::from(folder).join("locality.svg"), plot.to_svg())?)
}
