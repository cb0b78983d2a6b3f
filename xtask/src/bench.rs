//! `cargo xtask bench`: measurements, each next to a limit of the machine or to what others reach in the same run.

use crate::command::{self, cargo};
use crate::{Failed, only_help, python};
use std::path::Path;
use std::process::Command;

const HELP: &str = "\
Measure on this machine, next to its own limits or to others, in the same run.

usage: cargo xtask bench engine [--quick] [--json FILE] [-- FILTER...]
       cargo xtask bench control [--quick] [--json FILE] [-- FILTER...]
       cargo xtask bench cluster [--quick] [--json FILE] [-- FILTER...]
       cargo xtask bench learning [--quick] [--json FILE] [--plots FOLDER] [--peers-python PATH] [-- FILTER...]
       cargo xtask bench python [--quick] [--json FILE] [--rounds N] [--peers LIST] [--ray-python PATH] [-- FILTER...]

  engine               the Rust engine beside the machine's limits: cargo bench -p aktis --bench engine
  control              the control store on disk: cargo bench -p aktis-io --bench control
  cluster              nodes as network namespaces of this machine, beside TCP and iperf3, as root:
                       cargo bench -p aktis-cli --bench cluster; then, without a FILTER, the control store
  learning             simulation, collectives, training and reinforcement learning beside EnvPool,
                       Stable-Baselines3, RLlib, OpenMPI, Gloo, torchrun and Ray: benches/learning
  python               the Python package beside Ray, Dask and multiprocessing: benches/python
  --quick              fewer rounds: a look, not a figure to quote
  --json FILE          also write the figures to FILE
  --plots FOLDER       also draw the figures of `learning` into FOLDER
  --rounds N           how often each row is measured with each peer
  --peers LIST         only these, separated by commas: aktis, ray, dask, multiprocessing
  --ray-python PATH    an interpreter that has ray, dask and distributed; without it, one is set up below
                       `target`, which fetches some hundred megabytes once
  --peers-python PATH  an interpreter that has the peers of `learning`; without it, one is set up likewise
  -- FILTER...         only the measurements whose names contain FILTER; passed on as it stands";

/// What is measured.
#[derive(Clone, Copy)]
enum Subject {
    Engine,
    Control,
    Cluster,
    Learning,
    Python,
}

/// Runs the benchmark that the arguments name.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    let (subject, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "engine" => (Subject::Engine, rest),
        Some((first, rest)) if first == "control" => (Subject::Control, rest),
        Some((first, rest)) if first == "cluster" => (Subject::Cluster, rest),
        Some((first, rest)) if first == "learning" => (Subject::Learning, rest),
        Some((first, rest)) if first == "python" => (Subject::Python, rest),
        Some((first, _)) if first.starts_with('-') => {
            return only_help("bench", HELP, arguments).map(|_| ());
        }
        Some((other, _)) => {
            return Err(Failed::Usage(format!(
                "there is no benchmark `{other}`\nhint: try `engine`, `control`, `cluster`, `learning` or `python`"
            )));
        }
        None => {
            return Err(Failed::Usage(
                "which benchmark?\nhint: try `engine`, `control`, `cluster`, `learning` or `python`"
                    .to_owned(),
            ));
        }
    };
    if rest.first().is_some_and(|word| word == "--help" || word == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    let here = std::env::current_dir().unwrap_or_else(|_| root.to_owned());
    let passed_on = arguments_for_benchmark(subject, &here, rest)?;
    let Some(mut benchmark) = program(subject, root) else { return Err(Failed::Check) };
    benchmark.args(passed_on);
    if !command::run(benchmark) {
        return Err(Failed::Check);
    }
    // The control store is a part of a cluster.
    let quick: Vec<String> = rest.iter().filter(|word| *word == "--quick").cloned().collect();
    let is_whole = matches!(subject, Subject::Cluster) && !rest.iter().any(|word| word == "--");
    if is_whole { run(root, &[&["control".to_owned()], &quick[..]].concat()) } else { Ok(()) }
}

/// The program that measures, ready to be started; `None` if it could not be built.
fn program(subject: Subject, root: &Path) -> Option<Command> {
    match subject {
        Subject::Engine => Some(cargo(root, &["bench", "-p", "aktis", "--bench", "engine", "--"])),
        Subject::Control => Some(cargo(root, &["bench", "-p", "aktis-io", "--bench", "control", "--"])),
        Subject::Cluster => {
            let mut program = cargo(root, &["bench", "-p", "aktis-cli", "--bench", "cluster", "--"]);
            program.env("AKTIS_BENCH_PLOTS", root.join("docs"));
            program.env("AKTIS_BENCH_PYTHON", python::python(root, &[]).get_program());
            (python::prepare(root) && python::install(root)).then_some(program)
        }
        Subject::Learning => {
            let mut program = python::python(root, &["benches/learning/run.py", "--environments"]);
            program.arg(python::target_folder(root).join("bench-learning"));
            (python::prepare(root) && python::install(root)).then_some(program)
        }
        Subject::Python => {
            let mut program = python::python(root, &["benches/python/run.py", "--environments"]);
            program.arg(python::target_folder(root).join("bench-python"));
            (python::prepare(root) && python::install(root)).then_some(program)
        }
    }
}

/// What the benchmark program is given; `here` is where relative paths begin.
fn arguments_for_benchmark(
    subject: Subject,
    here: &Path,
    arguments: &[String],
) -> Result<Vec<String>, Failed> {
    let mut passed_on = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match (subject, word.as_str()) {
            (_, "--quick") => passed_on.push(word.clone()),
            // Benchmarks run in another folder, where a relative path would get lost.
            (_, "--json")
            | (Subject::Python, "--ray-python")
            | (Subject::Learning, "--plots" | "--peers-python") => {
                let file = here.join(value_of(word, words.next())?);
                passed_on.extend([word.clone(), file.display().to_string()]);
            }
            (Subject::Python, "--rounds" | "--peers") => {
                passed_on.extend([word.clone(), value_of(word, words.next())?]);
            }
            (Subject::Engine | Subject::Control | Subject::Cluster, "--") => {
                passed_on.extend(words.by_ref().cloned())
            }
            (Subject::Python | Subject::Learning, "--") => {
                passed_on.extend([word.clone()].into_iter().chain(words.by_ref().cloned()))
            }
            (_, other) => {
                return Err(Failed::Usage(format!(
                    "`bench` does not know `{other}`\nhint: a filter comes after `--`; see `cargo xtask bench --help`"
                )));
            }
        }
    }
    Ok(passed_on)
}

fn value_of(option: &str, value: Option<&String>) -> Result<String, Failed> {
    value.cloned().ok_or_else(|| Failed::Usage(format!("`{option}` wants a value")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate_for(subject: Subject, words: &[&str]) -> Result<Vec<String>, Failed> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        arguments_for_benchmark(subject, Path::new("/here"), &words)
    }

    fn translate(words: &[&str]) -> Result<Vec<String>, Failed> {
        translate_for(Subject::Engine, words)
    }

    #[test]
    fn known_arguments_are_passed_on() {
        let passed_on = translate(&["--quick", "--json", "out.json", "--", "put", "--odd"]).unwrap();
        assert_eq!(passed_on, ["--quick", "--json", "/here/out.json", "put", "--odd"]);
        assert_eq!(translate(&["--json", "/there/out.json"]).unwrap(), ["--json", "/there/out.json"]);
    }

    #[test]
    fn arguments_for_peers_are_passed_on() {
        let words = &["--ray-python", "there/python", "--rounds", "3", "--peers", "aktis,ray", "--", "put"];
        let passed_on = translate_for(Subject::Python, words).unwrap();
        assert_eq!(passed_on[1], "/here/there/python");
        assert_eq!(passed_on[2..], words[2..]);
    }

    #[test]
    fn learning_has_peers_plots_and_filters() {
        let words = &["--quick", "--peers-python", "there/python", "--", "rl_ppo"];
        let passed_on = translate_for(Subject::Learning, words).unwrap();
        assert_eq!(passed_on, ["--quick", "--peers-python", "/here/there/python", "--", "rl_ppo"]);
        let files = translate_for(Subject::Learning, &["--json", "out.json", "--plots", "docs"]).unwrap();
        assert_eq!(files, ["--json", "/here/out.json", "--plots", "/here/docs"]);
        assert!(translate(&["--plots", "docs"]).is_err());
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for words in [&["put"][..], &["--json"], &["--fast"], &["--rounds", "3"]] {
            assert!(matches!(translate(words), Err(Failed::Usage(_))), "{words:?}");
        }
        assert!(matches!(translate_for(Subject::Python, &["--peers"]), Err(Failed::Usage(_))));
    }
}
