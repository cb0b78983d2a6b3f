//! The project's own commands: `cargo xtask test | tidy | fuzz | python | compat | clients | chaos | bench`.
//!
//! Exit codes: 0 if all is well, 1 if a check failed, 2 if the command line makes no sense.

mod bench;
mod chaos;
mod clients;
mod command;
mod compat;
mod fuzz;
mod python;
mod tally;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
The project's own commands.

usage: cargo xtask COMMAND [OPTIONS]

commands:
  test     run everything that continuous integration runs
  tidy     check the rules that the compiler does not know
  fuzz     give changed inputs to the parsers of what others send
  python   build and install the Python package for development
  compat   compare programs with Aktis and with Ray
  clients  run libraries that use Ray with Aktis
  chaos    kill and stop processes of a cluster under a workload with known answers
  bench    measure the engine, a cluster, the control store, or the Python package, beside their limits or peers

`cargo xtask COMMAND --help` says more about each.";

/// How a command ended, if not well.
#[derive(Debug, PartialEq, Eq)]
enum Failed {
    /// A check did not pass; it has already said why.
    Check,
    /// The command line makes no sense.
    Usage(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&workspace_root(), &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Check) => ExitCode::FAILURE,
        Err(Failed::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(Failed::Usage(format!("no command given\n\n{HELP}")));
    };
    match command.as_str() {
        "test" => test::run(root, rest),
        "tidy" => tidy::run(root, rest),
        "fuzz" => fuzz::run(root, rest),
        "python" => python::run(root, rest),
        "compat" => compat::run(root, rest),
        "clients" => clients::run(root, rest),
        "chaos" => chaos::run(root, rest),
        "bench" => bench::run(root, rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(Failed::Usage(format!(
            "unknown command `{other}`\nhint: the commands are test, tidy, fuzz, python, compat, clients, chaos and bench; see `cargo xtask --help`"
        ))),
    }
}

/// Handles the command line of a command that takes no arguments; true if it only asked for help.
fn only_help(name: &str, help: &str, arguments: &[String]) -> Result<bool, Failed> {
    match arguments.first().map(String::as_str) {
        None => Ok(false),
        Some("--help" | "-h") => {
            println!("{help}");
            Ok(true)
        }
        Some(other) => Err(Failed::Usage(format!(
            "`{name}` does not know `{other}`\nhint: see `cargo xtask {name} --help`"
        ))),
    }
}

/// The root of the working tree that cargo runs us in.
fn workspace_root() -> PathBuf {
    // The variable of the run, not the one of the build: two working trees may share a target folder.
    let package = std::env::var("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&package).parent().expect("xtask lies inside the workspace").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch_words(words: &[&str]) -> Result<(), Failed> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        dispatch(Path::new("/nowhere"), &words)
    }

    #[test]
    fn every_command_explains_itself() {
        assert_eq!(dispatch_words(&["--help"]), Ok(()));
        for command in ["test", "tidy", "fuzz", "python", "compat", "clients", "chaos", "bench"] {
            assert_eq!(dispatch_words(&[command, "--help"]), Ok(()));
        }
    }

    #[test]
    fn senseless_command_lines_are_usage_errors() {
        for words in [
            &[][..],
            &["tset"],
            &["test", "--fast"],
            &["tidy", "src"],
            &["python", "3"],
            &["compat", "--fast"],
            &["fuzz", "--fast"],
            &["bench"],
            &["bench", "gpu"],
        ] {
            assert!(matches!(dispatch_words(words), Err(Failed::Usage(_))), "{words:?}");
        }
    }
}
