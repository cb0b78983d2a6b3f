//! Studies of large clusters: each gives a table, a plot, and can be run again by its name.

use crate::placement::Decision;
use crate::placement::estimators::Estimator;
use crate::plot::Plot;
use crate::scale::{self, Options, Outcome, Workload};

/// The names of all studies.
pub const NAMES: [&str; 4] = ["nodes", "estimators", "decisions", "recovery"];

/// What a study gives.
pub struct Study {
    /// A table in Markdown.
    pub table: String,
    /// A plot.
    pub plot: Plot,
}

/// Runs a study, with clusters of at most so many nodes; `say` is told what is done. Nothing if there is no such study.
pub fn run(name: &str, nodes_max: u64, say: impl Fn(&str)) -> Option<Study> {
    let go = |what: &str, options: Options| {
        say(what);
        scale::run(options, |_| {})
    };
    Some(match name {
        "nodes" => nodes(nodes_max, go),
        "estimators" => estimators(nodes_max, go),
        "decisions" => decisions(nodes_max, go),
        "recovery" => recovery(nodes_max, go),
        _ => return None,
    })
}

type Line = (String, Vec<(f64, f64)>);

fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(|cell| (*cell).to_owned()).collect());
    text += &line(head.iter().map(|_| "---".to_owned()).collect());
    rows.into_iter().for_each(|row| text += &line(row));
    text
}

fn milliseconds(microseconds: u64) -> String {
    format!("{:.1}", microseconds as f64 / 1e3)
}

fn sizes(nodes_max: u64) -> Vec<u64> {
    [1, 3, 10, 30, 100, 300, 1_000, 3_000].into_iter().filter(|nodes| *nodes <= nodes_max).collect()
}

/// Throughput and delay against nodes, and what that costs the placer.
fn nodes(nodes_max: u64, go: impl Fn(&str, Options) -> Outcome) -> Study {
    let mut rows = Vec::new();
    let workloads = [
        ("rollouts", Workload::Rollouts, 100),
        ("short", Workload::Short, 500),
        ("local", Workload::Local, 100),
    ];
    let mut loads: Vec<Line> = Vec::new();
    for (name, workload, per_node) in workloads {
        let mut line = Vec::new();
        for nodes in sizes(nodes_max) {
            // Short tasks on very many nodes tell nothing new, and take long.
            if workload == Workload::Short && nodes > 1_000 {
                continue;
            }
            let options = Options { nodes, tasks: nodes * per_node, workload, ..Options::default() };
            let outcome = go(&format!("{name}: {nodes} nodes"), options);
            let per_step = outcome.placer_microseconds as f64 / outcome.placer_steps.max(1) as f64;
            line.push((nodes as f64, outcome.placer_load() * 100.0));
            rows.push(vec![
                name.to_owned(),
                nodes.to_string(),
                format!("{:.0}", outcome.tasks_per_second()),
                milliseconds(outcome.delays.median),
                milliseconds(outcome.delays.percentile_99),
                format!("{per_step:.1}"),
                format!("{:.2}", outcome.placer_load() * 100.0),
            ]);
        }
        loads.push((name.to_owned(), line));
    }
    let head = [
        "workload",
        "nodes",
        "tasks/s",
        "median delay, ms",
        "99 % delay, ms",
        "placer, us per step",
        "placer busy, %",
    ];
    let plot = Plot {
        title: "How busy the placer is".to_owned(),
        across: "nodes of 8 workers".to_owned(),
        up: "% of one core".to_owned(),
        lines: loads,
    };
    Study { table: table(&head, rows), plot }
}

/// Ways to estimate run times.
fn estimators(nodes_max: u64, go: impl Fn(&str, Options) -> Outcome) -> Study {
    let nodes = nodes_max.min(40);
    let workloads = [
        ("homogeneous", Workload::Short, 40_000),
        ("heavy-tailed", Workload::Rollouts, 8_000),
        ("mixture", Workload::Mixture, 30_000),
        ("drifting", Workload::Drifting, 30_000),
    ];
    let (mut rows, mut lines) = (Vec::new(), Vec::<Line>::new());
    for estimator in Estimator::ALL {
        let mut line = Vec::new();
        for (place, (name, workload, tasks)) in workloads.into_iter().enumerate() {
            let options = Options { nodes, workers: 4, tasks, workload, estimator, ..Options::default() };
            let outcome = go(&format!("{}: {name}", estimator.name()), options);
            line.push((10f64.powi(place as i32), outcome.delays.mean as f64 / 1e3));
            rows.push(vec![
                name.to_owned(),
                estimator.name().to_owned(),
                milliseconds(outcome.delays.mean),
                milliseconds(outcome.delays.percentile_99),
                milliseconds(outcome.short_delays.mean),
                format!("{:.2}", outcome.microseconds as f64 / 1e6),
            ]);
        }
        lines.push((estimator.name().to_owned(), line));
    }
    rows.sort_by_key(|row| workloads.iter().position(|(name, ..)| *name == row[0]));
    let head = [
        "load",
        "estimator",
        "mean delay, ms",
        "99 % delay, ms",
        "mean delay of short tasks, ms",
        "makespan, s",
    ];
    let plot = Plot {
        title: "Mean delay by estimator".to_owned(),
        across: "load: 1 homogeneous, 10 heavy-tailed, 100 mixture, 1 k drifting".to_owned(),
        up: "ms".to_owned(),
        lines,
    };
    Study { table: table(&head, rows), plot }
}

/// Who decides, with and without locality, and with how old news.
fn decisions(nodes_max: u64, go: impl Fn(&str, Options) -> Outcome) -> Study {
    let nodes = nodes_max.min(100);
    let base = Options { nodes, tasks: nodes * 100, workload: Workload::Rollouts, ..Options::default() };
    let deciders =
        [("bottom-up", Decision::BottomUp), ("centralised", Decision::Central), ("random", Decision::Random)];
    let (mut rows, mut lines) = (Vec::new(), Vec::<Line>::new());
    let add = |rows: &mut Vec<Vec<String>>, name: &str, inputs: &str, age: u64, outcome: &Outcome| {
        rows.push(vec![
            name.to_owned(),
            inputs.to_owned(),
            (age / 1_000).to_string(),
            milliseconds(outcome.delays.mean),
            milliseconds(outcome.delays.percentile_99),
            format!("{:.1}", outcome.moved_bytes as f64 / 1e9),
            outcome.placer_steps.to_string(),
        ]);
    };
    for (name, decision) in deciders {
        let mut line = Vec::new();
        for age in [10_000, 100_000, 1_000_000] {
            let options = Options { decision, report_every: age, ..base };
            let outcome = go(&format!("{name}, reports every {} ms", age / 1_000), options);
            line.push((age as f64 / 1e3, outcome.delays.mean as f64 / 1e3));
            add(&mut rows, name, "none", age, &outcome);
        }
        lines.push((name.to_owned(), line));
        for (text, tells_inputs) in [("10 MB, known", true), ("10 MB, not known", false)] {
            let options = Options { decision, input_bytes: 10_000_000, tells_inputs, ..base };
            let outcome = go(&format!("{name}, {text}"), options);
            add(&mut rows, name, text, options.report_every, &outcome);
        }
    }
    let head = [
        "decision",
        "inputs",
        "reports every, ms",
        "mean delay, ms",
        "99 % delay, ms",
        "moved, GB",
        "placer steps",
    ];
    let plot = Plot {
        title: "Mean delay by the age of what is known of the load".to_owned(),
        across: "ms between reports".to_owned(),
        up: "ms".to_owned(),
        lines,
    };
    Study { table: table(&head, rows), plot }
}

/// How long it takes until the tasks of a node that died have run elsewhere.
fn recovery(nodes_max: u64, go: impl Fn(&str, Options) -> Outcome) -> Study {
    let (mut rows, mut line) = (Vec::new(), Vec::new());
    for nodes in sizes(nodes_max).into_iter().filter(|nodes| *nodes >= 3) {
        let options = Options { nodes, tasks: nodes * 100, crashes: true, ..Options::default() };
        let outcome = go(&format!("{nodes} nodes"), options);
        let Some(recovery) = outcome.recovery_microseconds else { continue };
        line.push((nodes as f64, recovery as f64 / 1e3));
        rows.push(vec![
            nodes.to_string(),
            milliseconds(recovery),
            milliseconds(outcome.delays.percentile_99),
        ]);
    }
    let head = ["nodes", "from the crash to the last lost task's end, ms", "99 % delay of all tasks, ms"];
    let plot = Plot {
        title: "Recovery from a crash of a node".to_owned(),
        across: "nodes of 8 workers".to_owned(),
        up: "ms".to_owned(),
        lines: vec![("recovery".to_owned(), line)],
    };
    Study { table: table(&head, rows), plot }
}
