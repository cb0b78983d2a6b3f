//! What runs when a worker process starts, and what its failure does.

mod support;

use aktis::Error;
use aktis::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};
use support::processes::{again, output_within, part};
use support::{PATIENCE, start};

static STARTS: AtomicU32 = AtomicU32::new(0);

#[aktis::on_worker_start]
fn set_up() -> Result<(), String> {
    STARTS.fetch_add(1, Ordering::SeqCst);
    match part().as_deref() {
        Some("error") => Err("there is no licence".to_owned()),
        Some("panic") => panic!("there is no licence"),
        _ => Ok(()),
    }
}

/// A hook of its own that sets a panic hook, which must not take away the errors of tasks.
#[aktis::on_worker_start]
fn set_panic_hook() {
    std::panic::set_hook(Box::new(|info| eprintln!("outside of tasks: {info}")));
}

#[remote]
fn starts() -> (u32, u32) {
    (STARTS.load(Ordering::SeqCst), std::process::id())
}

#[remote]
fn fall() {
    panic!("it falls");
}

struct Counter;

#[actor]
impl Counter {
    fn new() -> Self {
        Counter
    }

    fn starts(&self) -> u32 {
        STARTS.load(Ordering::SeqCst)
    }
}

#[test]
fn hook_runs_once_in_each_worker_before_its_first_task() {
    let session = start();
    let _entered = session.enter();
    let shared = starts::remote().get().unwrap();
    let isolated = starts::options().isolated().remote().get().unwrap();
    assert_eq!((shared.0, isolated.0), (1, 1));
    assert_ne!(shared.1, isolated.1);
    assert_eq!(Counter::options().isolated().remote().starts().get().unwrap(), 1);
    assert_eq!(STARTS.load(Ordering::SeqCst), 0, "the driver is no worker");
}

#[test]
fn panics_of_tasks_keep_their_message_beside_a_panic_hook() {
    let session = start();
    let _entered = session.enter();
    let error = support::task_error(fall::remote().get());
    assert!(error.is_panic() && error.to_string().contains("it falls"), "{error}");
    assert!(error.location().is_some_and(|location| location.contains("worker_start.rs")), "{error}");
}

#[test]
fn failed_hook_is_the_error_of_whatever_the_worker_is_given() {
    if part().is_some() {
        return use_a_worker_that_cannot_start();
    }
    for part in ["error", "panic"] {
        let test = "failed_hook_is_the_error_of_whatever_the_worker_is_given";
        let output = output_within(again(test, part), PATIENCE);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{part}: {errors}");
        assert_eq!(errors.matches("aktis: ").count(), 2, "a line of each of two processes:\n{errors}");
    }
}

fn use_a_worker_that_cannot_start() {
    let session = start();
    let _entered = session.enter();
    for task in [starts::remote(), starts::remote(), starts::options().isolated().remote()] {
        let error = task.get_timeout(PATIENCE).expect_err("the worker cannot start");
        assert!(matches!(error, Error::System(_)), "{error:?}");
        let text = error.to_string();
        for part in ["could not start", "worker_start::set_up", "there is no licence", "hint: "] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
    }
    let error = Counter::remote().starts().get_timeout(PATIENCE).expect_err("no actor starts either");
    assert!(matches!(error, Error::ActorDied(_)) && error.to_string().contains("no licence"), "{error}");
}
