//! Runs large virtual clusters, and the studies of them.
//!
//! ```text
//! aktis-virtual-cluster --nodes 1000 --workload rollouts --seed 1
//! aktis-virtual-cluster --study nodes --plot nodes.svg
//! ```

use aktis_protocol::limits::NODES_MAX;
use aktis_virtual_cluster::scale::{self, Options, Outcome, Workload};
use aktis_virtual_cluster::studies;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Runs a virtual cluster around the real placer in one thread, or a study of such clusters.

Usage: aktis-virtual-cluster [OPTIONS]

  --nodes N       nodes of the cluster, or of the largest one of a study [100]
  --workers N     workers of each node [8]
  --tasks N       tasks in all [100 for each node]
  --workload W    rollouts, short, local, mixture or drifting [rollouts]
  --seed N        what chance is made of [1]
  --study S       nodes, estimators, decisions or recovery
  --plot FILE     where the plot of the study is written, as SVG
";

/// What the command line says.
struct Arguments {
    options: Options,
    has_nodes: bool,
    tasks: Option<u64>,
    study: Option<String>,
    plot: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let done = parse(&words).and_then(|arguments| match &arguments.study {
        Some(name) => study(name, &arguments),
        None => {
            cluster(&arguments);
            Ok(())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}\nhint: `--help` lists the options");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments =
        Arguments { options: Options::default(), has_nodes: false, tasks: None, study: None, plot: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || match value.parse::<u64>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{word} must be a positive integer, got '{value}'")),
        };
        match word.as_str() {
            "--nodes" => match number()? {
                nodes if nodes > NODES_MAX as u64 => {
                    return Err(format!("a cluster takes at most {NODES_MAX} nodes, got {nodes}"));
                }
                nodes => (arguments.options.nodes, arguments.has_nodes) = (nodes, true),
            },
            "--workers" => arguments.options.workers = number()?,
            "--tasks" => arguments.tasks = Some(number()?),
            "--seed" => arguments.options.seed = number()?,
            "--workload" => {
                arguments.options.workload =
                    Workload::parse(value).ok_or_else(|| format!("there is no workload '{value}'"))?;
            }
            "--study" => arguments.study = Some(value.clone()),
            "--plot" => arguments.plot = Some(value.clone()),
            other => return Err(format!("there is no option '{other}'")),
        }
    }
    arguments.options.tasks = arguments.tasks.unwrap_or(arguments.options.nodes * 100);
    Ok(arguments)
}

fn study(name: &str, arguments: &Arguments) -> Result<(), String> {
    let nodes_max = if arguments.has_nodes { arguments.options.nodes } else { NODES_MAX as u64 };
    let say = |what: &str| eprintln!("{what}");
    let done = studies::run(name, nodes_max, say)
        .ok_or_else(|| format!("there is no study '{name}', but {}", studies::NAMES.join(", ")))?;
    print!("{}", done.table);
    if let Some(path) = &arguments.plot {
        std::fs::write(path, done.plot.to_svg()).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn cluster(arguments: &Arguments) {
    let options = arguments.options;
    let began = Instant::now();
    let mut shown = None;
    let outcome = scale::run(options, |ended| {
        let percent = ended as u64 * 100 / options.tasks;
        if shown.replace(percent) != Some(percent) {
            let bar = "#".repeat(percent as usize / 2);
            eprint!("\r[{bar:<50}] {percent:>3} % of {} tasks", options.tasks);
            let _ = std::io::stderr().flush();
        }
    });
    eprintln!();
    print_summary(options, &outcome, began);
}

fn print_summary(options: Options, outcome: &Outcome, began: Instant) {
    let Options { nodes, workers, tasks, .. } = options;
    let delays = outcome.delays;
    println!("nodes             {nodes} of {workers} workers");
    println!("tasks             {} of {tasks}", outcome.done);
    println!("virtual time      {:.2} s", outcome.microseconds as f64 / 1e6);
    println!("throughput        {:.0} tasks/s", outcome.tasks_per_second());
    println!(
        "delay             {:.1} ms median, {:.1} ms 99 %",
        delays.median as f64 / 1e3,
        delays.percentile_99 as f64 / 1e3
    );
    println!(
        "placer            {} steps, {:.1} us each, busy for {:.0} % of the virtual time",
        outcome.placer_steps,
        outcome.placer_microseconds as f64 / outcome.placer_steps.max(1) as f64,
        outcome.placer_load() * 100.0
    );
    println!("real time         {:.1} s in one thread", began.elapsed().as_secs_f64());
    if let Some(kilobytes) = peak_memory() {
        println!("peak memory       {:.2} GiB", kilobytes as f64 / f64::from(1 << 20));
    }
}

/// The most memory that this process has used so far, in KiB.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().split(' ').next()?.parse().ok()
}
