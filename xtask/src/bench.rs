//! `cargo xtask bench`: measurements, each next to the physical limit that it runs into.

use crate::command::{self, cargo};
use crate::{Failed, only_help};
use std::path::Path;

const HELP: &str = "\
Measure the engine on this machine, and the machine's own limits in the same run.

usage: cargo xtask bench engine [--quick] [--json FILE] [-- FILTER...]

  --quick        fewer rounds: a look, not a figure to quote
  --json FILE    also write the figures to FILE
  -- FILTER...   only the measurements whose names contain FILTER; passed on as it stands

It runs `cargo bench -p aktis --bench engine`.";

/// Runs the benchmark that the arguments name.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    let (subject, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "engine" => (first.as_str(), rest),
        Some((first, _)) if first.starts_with('-') => {
            return only_help("bench", HELP, arguments).map(|_| ());
        }
        Some((other, _)) => {
            return Err(Failed::Usage(format!("there is no benchmark `{other}`\nhint: try `engine`")));
        }
        None => return Err(Failed::Usage("which benchmark?\nhint: try `engine`".to_owned())),
    };
    if rest.first().is_some_and(|word| word == "--help" || word == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    let here = std::env::current_dir().unwrap_or_else(|_| root.to_owned());
    let passed_on = arguments_for_benchmark(&here, rest)?;
    let mut benchmark = cargo(root, &["bench", "-p", "aktis", "--bench", subject, "--"]);
    benchmark.args(passed_on);
    if command::run(benchmark) { Ok(()) } else { Err(Failed::Check) }
}

/// What the benchmark program is given; `here` is where relative paths begin.
fn arguments_for_benchmark(here: &Path, arguments: &[String]) -> Result<Vec<String>, Failed> {
    let mut passed_on = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => passed_on.push(word.clone()),
            "--json" => {
                let Some(file) = words.next() else {
                    return Err(Failed::Usage("`--json` wants the name of a file".to_owned()));
                };
                // Cargo runs benchmarks in the folder of their package, where a relative path would get lost.
                passed_on.extend([word.clone(), here.join(file).display().to_string()]);
            }
            "--" => passed_on.extend(words.by_ref().cloned()),
            other => {
                return Err(Failed::Usage(format!(
                    "`bench engine` does not know `{other}`\nhint: a filter comes after `--`; see `cargo xtask bench --help`"
                )));
            }
        }
    }
    Ok(passed_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(words: &[&str]) -> Result<Vec<String>, Failed> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        arguments_for_benchmark(Path::new("/here"), &words)
    }

    #[test]
    fn known_arguments_are_passed_on() {
        let passed_on = translate(&["--quick", "--json", "out.json", "--", "put", "--odd"]).unwrap();
        assert_eq!(passed_on, ["--quick", "--json", "/here/out.json", "put", "--odd"]);
        assert_eq!(translate(&["--json", "/there/out.json"]).unwrap(), ["--json", "/there/out.json"]);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for words in [&["put"][..], &["--json"], &["--fast"]] {
            assert!(matches!(translate(words), Err(Failed::Usage(_))), "{words:?}");
        }
    }
}
