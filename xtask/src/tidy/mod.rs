//! `cargo xtask tidy`: the rules of the project that the compiler does not know.
//!
//! Each check is a function from made-up or real input to problems, and does no I/O; only this file and
//! [`source`] touch the disk.

mod code;
mod enums;
mod graph;
mod links;
mod markdown;
mod purity;
mod python;
mod source;
mod supply;
mod text;

use crate::command::cargo;
use crate::{Failed, only_help};
use source::File;
use std::path::Path;

const HELP: &str = "\
Check the rules that the compiler does not know.

usage: cargo xtask tidy

  - the crates depend on each other as the table in ARCHITECTURE.md says
  - no tokio below `io`, no pyo3 outside `python`
  - no clock, thread, random hashing or I/O in `logic`
  - a match on what a machine is told or orders names every variant
  - `unsafe` only in `store`
  - no unfinished code, no ignored test, no file that is too long
  - every Rust and Python file says in its first line what it is for
  - only `_engine.py`, and one file of a library with a part in Rust, import the native module
  - libraries in Python import nothing private of `aktis`
  - dependencies come from crates.io with a checksum, under licences that go together with Apache-2.0
  - no path of somebody's own machine, no space at the end of a line
  - links between the documents lead somewhere, and their lines have at most 110 columns";

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// The file, and the line where one is to blame.
    place: String,
    /// What is wrong and, where it is not plain, how to mend it.
    message: String,
}

impl Problem {
    fn in_file(file: &File, message: impl Into<String>) -> Self {
        Self { place: file.path.clone(), message: message.into() }
    }

    fn at_line(file: &File, line: usize, message: impl Into<String>) -> Self {
        Self { place: format!("{}:{line}", file.path), message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.message.replace('\n', "\n  "))
    }
}

/// Runs all checks, and prints every problem.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if only_help("tidy", HELP, arguments)? {
        return Ok(());
    }
    match find_problems(root) {
        Ok((files, problems)) if problems.is_empty() => {
            println!("tidy: {files} files are in order");
            Ok(())
        }
        Ok((files, problems)) => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            eprintln!("error: {} problems in {files} files", problems.len());
            Err(Failed::Check)
        }
        Err(message) => {
            eprintln!("error: {message}");
            Err(Failed::Check)
        }
    }
}

fn find_problems(root: &Path) -> Result<(usize, Vec<Problem>), String> {
    let files = source::read_tree(root).map_err(|error| format!("could not read the tree: {error}"))?;
    let architecture = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let architecture = architecture.ok_or("there is no ARCHITECTURE.md")?;
    let tree = graph::Dependencies::parse(&cargo_says(root, graph::CARGO_TREE)?);
    let lock = std::fs::read_to_string(root.join("Cargo.lock"));
    let lock = lock.map_err(|error| format!("could not read Cargo.lock: {error}"))?;

    let mut problems = graph::check(&tree, &architecture.text);
    problems.extend(supply::check_licences(&cargo_says(root, supply::CARGO_LICENCES)?));
    problems.extend(supply::check_sources(&lock));
    problems.extend(code::check_allowances(&files));
    for file in &files {
        problems.extend(text::check(file));
        problems.extend(purity::check(file));
        problems.extend(code::check(file));
        problems.extend(enums::check(file));
        problems.extend(python::check(file));
        problems.extend(links::check(file, |target| root.join(target).exists()));
        problems.extend(markdown::check(file));
    }
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    Ok((files.len(), problems))
}

/// What cargo prints.
fn cargo_says(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output =
        cargo(root, arguments).output().map_err(|error| format!("could not start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {} failed:\n{}", arguments[0], String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
