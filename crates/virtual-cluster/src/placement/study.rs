//! What placement is worth, in numbers: tasks near their inputs, and run times by function.

use super::estimators::Estimator;
use super::task::{Kind, Task};
use super::{Cluster, Manner};
use crate::random::Random;
use aktis_logic::Time;
use aktis_protocol::placement::Labels;
use aktis_protocol::resources::CPU;
use aktis_protocol::{Amount, FunctionId, Resources};

/// How long tasks took, from submission to end, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// On average.
    pub mean: u64,
    /// Half of them took no longer.
    pub median: u64,
    /// Of a hundred, one took longer.
    pub percentile_99: u64,
    /// How many bytes were moved between nodes.
    pub moved_bytes: u64,
}

fn cpus(units: u64) -> Resources {
    Resources::none().with(CPU, Amount::units(units))
}

fn latencies(cluster: &Cluster, counts: impl Fn(&Task) -> bool) -> Latencies {
    let tasks = cluster.tasks.iter().filter(|task| counts(task));
    let mut all: Vec<u64> = tasks.map(|task| task.latency().expect("all tasks have run")).collect();
    all.sort_unstable();
    Latencies {
        mean: all.iter().sum::<u64>() / all.len() as u64,
        median: all[all.len() / 2],
        percentile_99: all[all.len() * 99 / 100],
        moved_bytes: cluster.moved_bytes,
    }
}

/// A thousand short tasks on two nodes, each with an input of its own, of this size, on one of them.
pub fn locality(input_bytes: u64, aware: bool) -> Latencies {
    let manner = Manner { tells_inputs: aware, ..Manner::default() };
    let mut cluster = Cluster::new(manner, Random::new(1));
    let driver = cluster.add_node(Time(0), cpus(0), Labels::new());
    let workers = [0; 2].map(|_| cluster.add_node(Time(0), cpus(8), Labels::new()));
    let mut random = Random::new(2);
    for number in 0..1000 {
        let holder = workers[random.below(2) as usize];
        let inputs = vec![cluster.put(input_bytes, [holder])];
        let kind = Kind { function: FunctionId(1), needs: cpus(1), inputs, ..Kind::default() };
        cluster.submit(Time(10_000 + number * 5_000), driver, kind, 1_000);
    }
    cluster.run_to_end(Time(600_000_000));
    latencies(&cluster, |_| true)
}

/// The function of the many short tasks of [`mixture`].
const SHORT: FunctionId = FunctionId(1);

/// Short tasks (2 ms) among longer (100 ms) and long ones (3 s), on twenty nodes that are busy for three quarters of
/// the time. Gives how long the short ones took.
pub fn mixture(seed: u64, by_function: bool) -> Latencies {
    let estimator = if by_function { Estimator::Sketches } else { Estimator::OneAverage };
    let manner = Manner { estimator, check_every: 100, ..Manner::default() };
    let mut cluster = Cluster::new(manner, Random::new(seed));
    let drivers = [0; 4].map(|_| cluster.add_node(Time(0), cpus(0), Labels::new()));
    for _ in 0..20 {
        cluster.add_node(Time(0), cpus(4), Labels::new());
    }
    let mut random = Random::new(seed + 1);
    let mean = (94 * 2_000 + 5 * 100_000 + 3_000_000) / 100;
    let spacing = mean * 4 / 3 / 80;
    let mut at = 10_000;
    for _ in 0..20_000 {
        at += random.below(2 * spacing);
        let (function, run) = match random.below(100) {
            0..94 => (SHORT, 2_000),
            94..99 => (FunctionId(2), 100_000),
            _ => (FunctionId(3), 3_000_000),
        };
        let home = drivers[random.below(4) as usize];
        let kind = Kind { function, needs: cpus(1), ..Kind::default() };
        cluster.submit(Time(at), home, kind, run / 2 + random.below(run));
    }
    cluster.run_to_end(Time(at + 120_000_000));
    latencies(&cluster, |task| task.run < 5_000)
}
