//! The Python side of the tree: an environment for it below `target`, and the package in there.
//!
//! The environment is made once, and again when the list of what belongs into it changes. `pip` is used as it is
//! configured on the machine.

use crate::{Failed, command, only_help};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HELP: &str = "\
Build the package `aktis` and install it for development, into an environment below `target`.

usage: cargo xtask python

Python files are then used in place; after a change of Rust files, run it again. The environment is made
if there is none. It has what the tests need:

  target/python/bin/python -m pytest python/tests/test_tasks.py

AKTIS_PYTHON names the interpreter to make it with; without, it is the first of python3, python3.14 and so
on down to python3.11 that is 3.11 or newer.";

/// What the tests, the checks and the build need beside the package itself.
const REQUIREMENTS: &[&str] = &[
    "cloudpickle>=3",
    "dask",
    "gymnasium>=1.1",
    "hypothesis",
    "ipython",
    "joblib",
    "maturin>=1.9.4,<2",
    "mypy",
    "numpy",
    "optuna",
    "pandas",
    "pyarrow",
    "pytest>=8",
    "pytest-timeout",
    "ruff",
    "torch",
];

const CANDIDATES: &[&str] = &["python3", "python3.14", "python3.13", "python3.12", "python3.11"];

/// Installs the package in place.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if only_help("python", HELP, arguments)? {
        return Ok(());
    }
    let done = prepare(root) && command::run(python(root, &["-m", "maturin", "develop", "--release"]));
    if done { Ok(()) } else { Err(Failed::Check) }
}

/// Where everything is that can be made again.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

fn home(root: &Path) -> PathBuf {
    target_folder(root).join("python")
}

/// A command of the environment's interpreter, in the workspace and without standard input.
pub(crate) fn python(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(home(root).join("bin/python"));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    // As if it were activated: the build looks for maturin there, and nothing of another environment may get in.
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(home(root).join("bin")).chain(std::env::split_paths(&others));
    command.env("PATH", std::env::join_paths(folders).unwrap_or(others.clone()));
    command.env("VIRTUAL_ENV", home(root)).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    command
}

/// Makes the environment unless it is there with all that belongs into it; whether it is there now.
pub(crate) fn prepare(root: &Path) -> bool {
    let record = home(root).join("requirements.txt");
    let wanted = REQUIREMENTS.join("\n") + "\n";
    if std::fs::read_to_string(&record).is_ok_and(|present| present == wanted) {
        return true;
    }
    let Some(interpreter) = interpreter() else {
        eprintln!(
            "error: there is no Python 3.11 or newer\nhint: install one, or name it: AKTIS_PYTHON=/path/to/python3"
        );
        return false;
    };
    println!("making {} with {interpreter}", home(root).display());
    let mut make = Command::new(&interpreter);
    make.args(["-m", "venv", "--clear"]).arg(home(root)).stdin(Stdio::null());
    let mut fill = python(root, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    fill.args(REQUIREMENTS);
    if !(command::run(make) && command::run(fill)) {
        eprintln!("hint: the environment needs packages; is pip able to fetch them, and are 9 GB free?");
        return false;
    }
    // Written last: an environment without it is not complete, and is made again.
    let recorded = std::fs::write(&record, wanted);
    recorded.inspect_err(|error| eprintln!("error: cannot write {}: {error}", record.display())).is_ok()
}

/// Installs the package as a user would; whether it succeeded.
pub(crate) fn install(root: &Path) -> bool {
    command::run(python(root, INSTALL))
}

/// What `install` runs. Without isolation the build takes maturin from the environment instead of fetching it.
pub(crate) const INSTALL: &[&str] = &[
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--no-build-isolation",
    "--no-deps",
    ".",
];

fn interpreter() -> Option<String> {
    if let Ok(named) = std::env::var("AKTIS_PYTHON") {
        return is_new_enough(&named).then_some(named);
    }
    CANDIDATES.iter().find(|name| is_new_enough(name)).map(|name| name.to_string())
}

fn is_new_enough(name: &str) -> bool {
    let mut question = Command::new(name);
    question.args(["-c", "import sys, venv; sys.exit(sys.version_info < (3, 11))"]);
    question.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    question.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_python_is_not_new_enough() {
        assert!(!is_new_enough("no-such-python"));
        assert!(!is_new_enough("false"));
        assert!(is_new_enough("true"), "the answer is the exit code");
    }

    #[test]
    fn commands_run_in_the_environment() {
        let command = python(Path::new("/tree"), &["-m", "thing"]);
        let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap();
        assert!(std::env::split_paths(path).next().unwrap().ends_with("python/bin"));
        assert!(Path::new(command.get_program()).ends_with("python/bin/python"));
    }

    #[test]
    fn the_requirements_are_those_of_the_package() {
        let package = include_str!("../../pyproject.toml");
        for requirement in REQUIREMENTS {
            assert!(
                package.contains(&format!("\"{requirement}\"")),
                "{requirement} is not in pyproject.toml"
            );
        }
    }
}
