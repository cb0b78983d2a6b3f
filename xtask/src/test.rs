//! `cargo xtask test`: everything that continuous integration runs, in order, up to the first failure.

use crate::command::{self, cargo};
use crate::tally::{Runner, Tally};
use crate::{Failed, only_help, python, tidy};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const HELP: &str = "\
Run everything that continuous integration runs, in order, and stop at the first failure.

usage: cargo xtask test

steps: format, tidy, advisories (if cargo-audit is installed), clippy, tests (cargo-nextest if it is installed, else cargo test), documentation
tests, documentation, examples, quickstart, more examples, learning; and for Python: environment, Python format, Python lint, types,
package, Python tests, Python tests on two nodes, Python quickstart. Nothing is installed outside of
`target`; see `cargo xtask python --help` about the environment in there.

The last line is `N passed, M failed`, summed over the test runners. A step that fails without a
failed test, such as clippy, counts as one failure.";

/// Tests that also run with the driver on one node and its work on another: what is hardest to keep true between two.
const ON_TWO_NODES: &[&str] = &[
    "-m",
    "pytest",
    "--quiet",
    "--nodes",
    "python/tests/test_actors.py",
    "python/tests/test_closures.py",
    "python/tests/test_cancel.py",
    "python/tests/test_failures.py",
    "python/tests/test_generators.py",
    "python/tests/test_wait_get.py",
];

/// The examples of the crates beside the engine.
const MORE_EXAMPLES: &[&str] =
    &["build", "--release", "--examples", "-p", "aktis-collective", "-p", "aktis-simulate"];

/// Examples that learn, as they were built. All end within seconds.
const LEARNING: &[&str] = &["parameter_server", "allreduce", "es_pendulum", "own_environment", "rl_loop"];

/// What is known of the versions that are used: the database is fetched from the network.
const ADVISORIES: &str = "advisories";

/// One step, under the name that its heading shows.
struct Step {
    name: &'static str,
    work: Work,
}

/// What a step does.
enum Work {
    /// The checks of `tidy`, in this process.
    Tidy,
    /// A cargo command.
    Cargo(&'static [&'static str]),
    /// Examples that were built before, run one after the other.
    Examples(&'static [&'static str]),
    /// A cargo command in which rustdoc's warnings are errors.
    Documentation(&'static [&'static str]),
    /// A cargo command that runs tests.
    Tests(Runner, &'static [&'static str]),
    /// The environment in which the Python steps run.
    Environment,
    /// The Python package, installed into it.
    Package,
    /// A Python command.
    Python(&'static [&'static str]),
    /// A Python command that runs tests.
    PythonTests(&'static [&'static str]),
}

/// Runs all steps.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if only_help("test", HELP, arguments)? {
        return Ok(());
    }
    run_steps(root, &steps(has(root, "nextest"), has(root, "audit")))
}

fn steps(nextest: bool, audit: bool) -> Vec<Step> {
    use Work::{Cargo, Documentation, Environment, Examples, Package, Python, PythonTests, Tests, Tidy};
    let tests = if nextest {
        Tests(Runner::Nextest, &["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        Tests(Runner::Cargo, &["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"])
    };
    let documentation_tests = Tests(Runner::Cargo, &["test", "--workspace", "--doc", "--no-fail-fast"]);
    let documentation = Documentation(&["doc", "--workspace", "--no-deps", "--exclude", "xtask"]);
    let all = [
        ("format", Cargo(&["fmt", "--all", "--check"])),
        ("tidy", Tidy),
        (ADVISORIES, Cargo(&["audit"])),
        ("clippy", Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        ("tests", tests),
        ("documentation tests", documentation_tests),
        ("documentation", documentation),
        ("examples", Cargo(&["build", "--release", "--examples"])),
        ("quickstart", Cargo(&["run", "--release", "--example", "quickstart"])),
        ("more examples", Cargo(MORE_EXAMPLES)),
        ("learning", Examples(LEARNING)),
        ("environment", Environment),
        ("Python format", Python(&["-m", "ruff", "format", "--check", "--quiet", "."])),
        ("Python lint", Python(&["-m", "ruff", "check", "--quiet", "."])),
        ("types", Python(&["-m", "mypy"])),
        ("package", Package),
        ("Python tests", PythonTests(&["-m", "pytest", "--quiet"])),
        ("Python tests on two nodes", PythonTests(ON_TWO_NODES)),
        ("Python quickstart", Python(&["examples/python/quickstart.py"])),
    ];
    let wanted = all.into_iter().filter(|(name, _)| audit || *name != ADVISORIES);
    wanted.map(|(name, work)| Step { name, work }).collect()
}

/// Whether a command of cargo is installed.
fn has(root: &Path, command: &str) -> bool {
    let mut question = cargo(root, &[command, "--version"]);
    question.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn run_steps(root: &Path, steps: &[Step]) -> Result<(), Failed> {
    let mut tally = Tally::default();
    let began = Instant::now();
    let outcome = steps.iter().try_for_each(|step| run_step(root, step, &mut tally));
    println!("\nfinished in {:.1} s", began.elapsed().as_secs_f64());
    println!("{tally}");
    outcome
}

fn run_step(root: &Path, step: &Step, tally: &mut Tally) -> Result<(), Failed> {
    println!("\n== {}: {}", step.name, step.work);
    let began = Instant::now();
    let failed_before = tally.failed;
    let succeeded = step.work.run(root, tally);
    let seconds = began.elapsed().as_secs_f64();
    if succeeded {
        println!("== {}: ok in {seconds:.1} s", step.name);
        return Ok(());
    }
    eprintln!("error: {} failed after {seconds:.1} s; the steps after it did not run", step.name);
    // A summary without failures would be a lie, whatever it was that failed.
    tally.failed = tally.failed.max(failed_before + 1);
    Err(Failed::Check)
}

impl Work {
    fn run(&self, root: &Path, tally: &mut Tally) -> bool {
        match self {
            Self::Tidy => tidy::run(root, &[]).is_ok(),
            Self::Cargo(arguments) => command::run(cargo(root, arguments)),
            Self::Examples(names) => {
                let folder = python::target_folder(root).join("release/examples");
                names.iter().all(|name| command::run(Command::new(folder.join(name))))
            }
            Self::Documentation(arguments) => {
                let mut command = cargo(root, arguments);
                command.env("RUSTDOCFLAGS", "-D warnings");
                command::run(command)
            }
            Self::Tests(runner, arguments) => {
                command::run_watched(cargo(root, arguments), |line| tally.on_line(*runner, line))
            }
            Self::Environment => python::prepare(root),
            Self::Package => python::install(root),
            Self::Python(arguments) => command::run(python::python(root, arguments)),
            Self::PythonTests(arguments) => {
                // Tests run pytest in turn; the last summary is the one of them all.
                let mut summary = String::new();
                let succeeded = command::run_watched(python::python(root, arguments), |line| {
                    if Runner::Pytest.is_summary(line) {
                        line.clone_into(&mut summary);
                    }
                });
                tally.on_line(Runner::Pytest, &summary);
                succeeded
            }
        }
    }
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tidy => write!(f, "cargo xtask tidy"),
            Self::Cargo(arguments) | Self::Tests(_, arguments) => write!(f, "cargo {}", arguments.join(" ")),
            Self::Examples(names) => write!(f, "target/release/examples: {}", names.join(", ")),
            Self::Documentation(arguments) => {
                write!(f, "RUSTDOCFLAGS='-D warnings' cargo {}", arguments.join(" "))
            }
            Self::Environment => write!(f, "target/python"),
            Self::Package => write!(f, "python {}", python::INSTALL.join(" ")),
            Self::Python(arguments) | Self::PythonTests(arguments) => {
                write!(f, "python {}", arguments.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_those_that_the_help_names() {
        for installed in [true, false] {
            let mut rest = HELP.split_once("steps: ").expect("the help lists the steps").1.replace('\n', " ");
            for step in steps(installed, installed) {
                let place =
                    rest.find(step.name).unwrap_or_else(|| panic!("{} is missing or late", step.name));
                rest.drain(..place + step.name.len());
            }
        }
    }

    #[test]
    fn a_failed_step_is_a_failure_even_without_tests() {
        let mut tally = Tally::default();
        let step = Step { name: "nonsense", work: Work::Cargo(&["no-such-command"]) };
        assert_eq!(run_step(Path::new("."), &step, &mut tally), Err(Failed::Check));
        assert_eq!(tally, Tally { passed: 0, failed: 1 });
    }
}
