//! Stories of a node with real worker processes.
//!
//! This program is started again in four parts: without anything special it runs all stories, each in a process of
//! its own; with [`STORY`] set it is the driver in one story; with a worker's argument it is a worker; with
//! [`TEMPLATE`] set it is what workers are forked from.

#[path = "node/forks.rs"]
mod forks;
#[path = "node/impostor.rs"]
mod impostor;
#[path = "node/stories.rs"]
mod stories;
#[path = "node/worker.rs"]
mod worker;

use aktis_node::WorkerLink;
use std::process::ExitCode;

/// Which story this process is the driver of.
const STORY: &str = "AKTIS_TEST_STORY";
/// How workers of the story behave.
const MANNERS: &str = "AKTIS_TEST_WORKER";

/// Set in templates.
const TEMPLATE: &str = "AKTIS_TEST_TEMPLATE";

fn main() -> ExitCode {
    if let Some(link) = WorkerLink::from_arguments() {
        worker::work(&link.expect("a worker's link"));
    }
    if std::env::var_os(TEMPLATE).is_some() {
        worker::be_template();
    }
    if let Ok(story) = std::env::var(STORY) {
        if !forks::play(&story) {
            stories::play(&story);
        }
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--list") {
        // A runner asks for the ignored ones, too: there are none.
        for (name, _) in tests().filter(|_| !has("--ignored")) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let mut failed = 0;
    for (name, test) in tests() {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        let outcome = std::panic::catch_unwind(test);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(outcome.is_err());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tests() -> impl Iterator<Item = &'static stories::Test> {
    stories::TESTS.iter().chain(forks::TESTS)
}
