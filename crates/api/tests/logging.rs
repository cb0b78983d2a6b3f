//! Lines of `log` and `tracing` in tasks: they reach the driver, unless the program logs in its own way.

mod support;

use aktis::prelude::*;
use std::process::Command;
use support::processes::{again, output_within, part};
use support::{PATIENCE, start};

struct OwnLogger;

impl log::Log for OwnLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("own logger: {}", record.args());
    }

    fn flush(&self) {}
}

#[aktis::on_worker_start]
fn set_up() -> Result<(), log::SetLoggerError> {
    if part().as_deref() == Some("own") {
        log::set_logger(&OwnLogger)?;
        log::set_max_level(log::LevelFilter::Trace);
    }
    Ok(())
}

#[remote]
fn speak() {
    log::info!("a line {}", 1);
    log::debug!("a detail");
    let _span = tracing::info_span!("span").entered();
    tracing::warn!(answer = 42, "an event");
    tracing::trace!("a trace");
}

const TEST: &str = "lines_of_tasks_reach_the_driver";

#[test]
fn lines_of_tasks_reach_the_driver() {
    if part().is_some() {
        let session = start();
        let _entered = session.enter();
        return speak::remote().get().unwrap();
    }
    let errors = |mut command: Command| {
        command.env_remove("RUST_LOG");
        let output = output_within(command, PATIENCE);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let by_default = errors(again(TEST, "default"));
    assert!(by_default.contains("INFO logging: a line 1"), "{by_default}");
    assert!(by_default.contains("WARN logging: an event answer=42"), "{by_default}");
    assert!(!by_default.contains("a detail") && !by_default.contains("a trace"), "{by_default}");

    let mut all = again(TEST, "all");
    all.env("AKTIS_LOG", "warn,logging=trace");
    let all = errors(all);
    assert!(all.contains("DEBUG logging: a detail") && all.contains("TRACE logging: a trace"), "{all}");

    let own = errors(again(TEST, "own"));
    assert!(own.contains("own logger: a line 1") && own.contains("own logger: a detail"), "{own}");
    assert!(!own.contains("INFO logging: a line 1"), "{own}");
}
