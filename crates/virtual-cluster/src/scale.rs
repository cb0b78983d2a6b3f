//! Large clusters: how many tasks so many nodes run, how long tasks wait, and what that costs the placer.
//!
//! The placer and the membership are the real ones. Nodes are those of [`placement`](crate::placement): simple, so that
//! ten thousand of them fit into one thread. Virtual time does not count what the machines take for their steps. The
//! placer's share is measured instead: if its steps take longer than the virtual time that passes, it is the bottleneck.

use crate::placement::estimators::Estimator;
use crate::placement::task::{Fate, Kind, Task};
use crate::placement::{Cluster, Decision, Manner};
use crate::random::Random;
use aktis_logic::Time;
use aktis_protocol::resources::CPU;
use aktis_protocol::{Amount, FunctionId, Labels, NodeId, Resources};

/// Microseconds between two looks at how far a run is.
const LOOK_MICROSECONDS: u64 = 100_000;
/// When drivers begin: all nodes have joined and reported by then.
const BEGIN_MICROSECONDS: u64 = 500_000;
/// The longest that a run may take, in virtual time.
const LIMIT_MICROSECONDS: u64 = 3_600_000_000;
/// Tasks that a driver submits at once.
const BATCH: u64 = 20;
/// How much of all workers' time tasks take, in percent.
const LOAD_PERCENT: u64 = 80;

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Simulations of very different length (200 ms on average), which a tenth of the nodes submit.
    Rollouts,
    /// Tasks of 2 ms, which a tenth of the nodes submit.
    Short,
    /// Simulations that each node submits for itself.
    Local,
    /// Short tasks (2 ms) among longer (100 ms) and long ones (3 s), which a tenth of the nodes submit.
    Mixture,
    /// The same, but functions change how long they run in the course of the run.
    Drifting,
}

impl Workload {
    /// The workload with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "rollouts" => Self::Rollouts,
            "short" => Self::Short,
            "local" => Self::Local,
            "mixture" => Self::Mixture,
            "drifting" => Self::Drifting,
            _ => return None,
        })
    }

    fn mean_microseconds(self) -> u64 {
        match self {
            Self::Rollouts | Self::Local => 200_000,
            Self::Short => 2_000,
            Self::Mixture | Self::Drifting => (94 * 2_000 + 5 * 100_000 + 3_000_000) / 100,
        }
    }

    /// A task: its function, and how long it runs. `progress` is how far the run is, in percent.
    fn task(self, random: &mut Random, progress: u64) -> (FunctionId, u64) {
        let spread = |random: &mut Random, mean: u64| mean / 2 + random.below(mean);
        match self {
            Self::Rollouts | Self::Local => {
                // Heavy-tailed: four fifths take 50 ms, the rest 800 ms, each within a factor of three.
                let mean = if random.chance(80) { 50_000 } else { 800_000 };
                (FunctionId(1), spread(random, mean))
            }
            Self::Short => (FunctionId(1), spread(random, 2_000)),
            Self::Mixture | Self::Drifting => {
                let class = match random.below(100) {
                    0..94 => 0,
                    94..99 => 1,
                    _ => 2,
                };
                let mean = [2_000, 100_000, 3_000_000][class as usize];
                let drifts = self == Self::Drifting && progress >= 50;
                // In the second half, the functions have changed places.
                let function = if drifts { (class + 1) % 3 } else { class };
                (FunctionId(1 + function), spread(random, mean))
            }
        }
    }
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Nodes.
    pub nodes: u64,
    /// Workers of each: tasks that it runs at a time.
    pub workers: u64,
    /// Tasks in all.
    pub tasks: u64,
    /// What runs.
    pub workload: Workload,
    /// What chance is made of.
    pub seed: u64,
    /// How run times are estimated.
    pub estimator: Estimator,
    /// Who decides where tasks run.
    pub decision: Decision,
    /// How often nodes report.
    pub report_every: u64,
    /// Bytes that each task reads, which some node has; 0 for none.
    pub input_bytes: u64,
    /// Whether the placer is told of them.
    pub tells_inputs: bool,
    /// A node that dies in the middle of the run, if one does.
    pub crashes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 100,
            workers: 8,
            tasks: 10_000,
            workload: Workload::Rollouts,
            seed: 1,
            estimator: Estimator::Sketches,
            decision: Decision::BottomUp,
            report_every: aktis_protocol::limits::NODE_REPORT_MICROSECONDS,
            input_bytes: 0,
            tells_inputs: true,
            crashes: false,
        }
    }
}

/// How long tasks waited beyond the time that they ran, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// On average.
    pub mean: u64,
    /// Half of the tasks waited no longer.
    pub median: u64,
    /// One of a hundred waited longer.
    pub percentile_99: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Tasks that have run.
    pub done: usize,
    /// From the first submission to the last end, in virtual microseconds.
    pub microseconds: u64,
    /// How long tasks waited.
    pub delays: Delays,
    /// How long those waited that run for less than 5 ms.
    pub short_delays: Delays,
    /// Bytes that were moved between nodes.
    pub moved_bytes: u64,
    /// Steps of the placer.
    pub placer_steps: u64,
    /// What these took, by the clock of the computer.
    pub placer_microseconds: u64,
    /// From a crash until the last task that was lost in it has run, in virtual microseconds.
    pub recovery_microseconds: Option<u64>,
}

impl Outcome {
    /// Tasks per virtual second.
    pub fn tasks_per_second(&self) -> f64 {
        self.done as f64 * 1e6 / self.microseconds.max(1) as f64
    }

    /// How much of its time the placer was busy, if it were as fast as on this computer.
    pub fn placer_load(&self) -> f64 {
        self.placer_microseconds as f64 / self.microseconds.max(1) as f64
    }
}

/// Runs so many tasks on so many nodes. `look` is told now and then how many have come to their end.
pub fn run(options: Options, mut look: impl FnMut(usize)) -> Outcome {
    let (mut cluster, crashed_at) = plan(options);
    let count = options.tasks as usize;
    let mut lost = None;
    while cluster.ended() < count && cluster.now().0 < LIMIT_MICROSECONDS {
        cluster.run_until(Time(cluster.now().0 + LOOK_MICROSECONDS));
        if let Some((node, at)) = crashed_at
            && lost.is_none()
            && cluster.now() >= at
        {
            let was_there = |task: &Task| task.fate == Fate::Sent(node);
            lost = Some(
                (0..cluster.tasks.len())
                    .filter(|place| was_there(&cluster.tasks[*place]))
                    .collect::<Vec<_>>(),
            );
        }
        look(cluster.ended());
    }
    let ended_at = |task: &Task| match task.fate {
        Fate::Done(at) => Some(at.0),
        _ => None,
    };
    let recovery = crashed_at.and_then(|(_, at)| {
        let ends = lost?.into_iter().filter_map(|place| ended_at(&cluster.tasks[place]));
        ends.max().map(|end| end.saturating_sub(at.0))
    });
    let done = cluster.tasks.iter().filter(|task| task.latency().is_some()).count();
    let last = cluster.tasks.iter().filter_map(ended_at).max().unwrap_or_default();
    Outcome {
        done,
        microseconds: last.saturating_sub(BEGIN_MICROSECONDS),
        delays: delays(&cluster, |_| true),
        short_delays: delays(&cluster, |task| task.run < 5_000),
        moved_bytes: cluster.moved_bytes,
        placer_steps: cluster.placer_steps(),
        placer_microseconds: cluster.placer_time().as_micros() as u64,
        recovery_microseconds: recovery,
    }
}

/// A cluster with all its tasks, and the node that dies, with the time.
fn plan(options: Options) -> (Cluster, Option<(NodeId, Time)>) {
    let Options { nodes, workers, tasks, workload, seed, .. } = options;
    let manner = Manner {
        estimator: options.estimator,
        decision: options.decision,
        report_every: options.report_every,
        tells_inputs: options.tells_inputs,
        tells_links: false,
        keeps_history: false,
        check_every: u64::MAX,
        ..Manner::default()
    };
    let mut random = Random::new(seed);
    let mut cluster = Cluster::new(manner, Random::new(seed + 1));
    let total = Resources::none().with(CPU, Amount::units(workers));
    let all: Vec<NodeId> = (0..nodes)
        .map(|_| {
            let at = Time(random.below(BEGIN_MICROSECONDS / 2));
            cluster.add_node(at, total.clone(), Labels::new())
        })
        .collect();
    let drivers: Vec<NodeId> = match workload {
        Workload::Local => all.clone(),
        _ => all.iter().step_by(10).copied().collect(),
    };
    let length = tasks * workload.mean_microseconds() * 100 / (nodes * workers * LOAD_PERCENT);
    let needs = Resources::none().with(CPU, Amount::ONE);
    let mut submitted = 0;
    while submitted < tasks {
        let offset = random.below(length.max(1));
        let home = random.pick(&drivers).expect("there are drivers");
        for _ in 0..BATCH.min(tasks - submitted) {
            let (function, run) = workload.task(&mut random, offset * 100 / length.max(1));
            let inputs = match options.input_bytes {
                0 => Vec::new(),
                bytes => vec![cluster.put(bytes, random.pick(&all))],
            };
            let kind = Kind { function, needs: needs.clone(), inputs, ..Kind::default() };
            cluster.submit(Time(BEGIN_MICROSECONDS + offset), home, kind, run);
            submitted += 1;
        }
    }
    // Not a node that submits: its tasks would be lost with it.
    let crashed = options.crashes.then(|| (all[all.len() - 1], Time(BEGIN_MICROSECONDS + length / 2)));
    if let Some((node, at)) = crashed {
        cluster.crash(Time(at.0 + 1), node);
    }
    (cluster, crashed)
}

fn delays(cluster: &Cluster, counts: impl Fn(&Task) -> bool) -> Delays {
    let tasks = cluster.tasks.iter().filter(|task| counts(task));
    let mut all: Vec<u64> = tasks.filter_map(|task| Some(task.latency()?.saturating_sub(task.run))).collect();
    if all.is_empty() {
        return Delays::default();
    }
    all.sort_unstable();
    Delays {
        mean: all.iter().sum::<u64>() / all.len() as u64,
        median: all[all.len() / 2],
        percentile_99: all[all.len() * 99 / 100],
    }
}
