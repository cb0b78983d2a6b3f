//! `cargo xtask fuzz`: the parsers of what others send, on changed inputs, for as long as is said.

use crate::command::{self, cargo};
use crate::{Failed, only_help};
use std::path::Path;

const HELP: &str = "\
Give changed inputs to all parsers of what strangers, members, workers, command lines and disks bring.

usage: cargo xtask fuzz [--seconds NUMBER] [--seed NUMBER]

Each target runs so long (60 seconds) on a thread of its own. `cargo xtask test` runs the same targets for some
thousand inputs. With a nightly compiler, `fuzz/` has them for `cargo fuzz`, which looks at what the code does.";

/// The tests of these crates whose names begin like this are the targets.
const TARGETS: &[&str] =
    &["test", "--release", "--package", "aktis-protocol", "--package", "aktis-io", "--lib", "fuzz::"];

/// Runs all targets.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if arguments.first().is_some_and(|first| first == "--help" || first == "-h") {
        return only_help("fuzz", HELP, arguments).map(|_| ());
    }
    let (seconds, seed) = parse(arguments)?;
    let mut command = cargo(root, TARGETS);
    command.env("AKTIS_FUZZ_SECONDS", seconds.to_string());
    if let Some(seed) = seed {
        command.env("AKTIS_SEED", seed.to_string());
    }
    if command::run(command) { Ok(()) } else { Err(Failed::Check) }
}

fn parse(arguments: &[String]) -> Result<(u64, Option<u64>), Failed> {
    let (mut seconds, mut seed) = (60, None);
    for pair in arguments.chunks(2) {
        let usage = |what: &str| Failed::Usage(format!("{what}\nhint: see `cargo xtask fuzz --help`"));
        let value = pair.get(1).and_then(|value| value.parse::<u64>().ok());
        match (pair[0].as_str(), value) {
            ("--seconds", Some(value)) => seconds = value,
            ("--seed", Some(value)) => seed = Some(value),
            ("--seconds" | "--seed", None) => return Err(usage(&format!("`{}` needs a number", pair[0]))),
            (other, _) => return Err(usage(&format!("`fuzz` does not know `{other}`"))),
        }
    }
    Ok((seconds, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_and_the_seed_are_numbers() {
        let words = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&[]), Ok((60, None)));
        assert_eq!(parse(&words("--seed 7 --seconds 5")), Ok((5, Some(7))));
        for wrong in ["--seconds", "--seconds long", "5", "--seconds 5 --fast"] {
            assert!(matches!(parse(&words(wrong)), Err(Failed::Usage(_))), "{wrong}");
        }
    }
}
