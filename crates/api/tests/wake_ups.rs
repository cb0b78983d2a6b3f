//! Whoever sleeps is woken for what concerns it, also where wake-ups are put off because many things come at once.

mod support;

use aktis::prelude::*;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::{PATIENCE, eventually};

/// Adds a byte to a file: what has run can be seen without waiting for it.
#[remote]
fn add_byte(path: PathBuf) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(&[1]).unwrap();
}

/// A hundred of them take so long that their driver sleeps meanwhile, and one counts as short.
#[remote]
fn short(x: u64) -> u64 {
    pause(Duration::from_micros(12));
    x
}

/// Runs until there is a file.
#[remote]
fn hold(path: PathBuf) {
    eventually("the task is let go", || path.exists());
}

fn one_cpu() -> Session {
    Session::builder().cpus(1).store_bytes(64 << 20).start().expect("a session starts")
}

fn pause(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn bytes(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[test]
fn what_is_queued_runs_though_its_driver_does_nothing_else() {
    let (session, folder) = (one_cpu(), tempfile::tempdir().unwrap());
    let _entered = session.enter();
    let path = folder.path().join("bytes");
    File::create(&path).unwrap();
    // The worker is woken, runs dry and sleeps again; the short pauses are about as long as that takes.
    for round in 1..=1000 {
        let _task = add_byte::remote(path.clone());
        eventually("the task runs", || bytes(&path) == round);
        pause(Duration::from_micros(round % 100));
        if matches!(round % 100, 40 | 55) {
            // Long enough for all in the worker to go to rest.
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn an_answer_is_seen_though_the_worker_is_stuck_in_what_comes_next() {
    let (session, folder) = (one_cpu(), tempfile::tempdir().unwrap());
    let _entered = session.enter();
    for round in 0..50 {
        let file = folder.path().join(round.to_string());
        let tasks: Vec<_> = (0..100).map(short::remote).collect();
        let long = hold::remote(file.clone());
        // It is woken for answers before this one, and sleeps again.
        assert_eq!(tasks[99].get_timeout(PATIENCE).unwrap(), 99);
        File::create(file).unwrap();
        long.get_timeout(PATIENCE).unwrap();
    }
}

/// Runs the same as the tasks.
struct Runs;

#[actor]
impl Runs {
    fn new() -> Self {
        Self
    }
    fn short(&mut self, x: u64) -> u64 {
        short(x)
    }
    fn hold(&mut self, path: PathBuf) {
        hold(path);
    }
}

#[test]
fn an_answer_is_seen_though_the_actor_is_stuck_in_its_next_call() {
    let (session, folder) = (one_cpu(), tempfile::tempdir().unwrap());
    let _entered = session.enter();
    let actor = Runs::remote();
    for round in 0..50 {
        let file = folder.path().join(round.to_string());
        let calls: Vec<_> = (0..100).map(|x| actor.short(x)).collect();
        let long = actor.hold(file.clone());
        assert_eq!(calls[99].get_timeout(PATIENCE).unwrap(), 99);
        File::create(file).unwrap();
        long.get_timeout(PATIENCE).unwrap();
    }
}

/// Nobody takes in the answers, as nobody waits for them.
#[test]
fn no_task_counts_as_unfinished_though_all_references_were_dropped() {
    let session = one_cpu();
    let _entered = session.enter();
    for round in 0..10 {
        (0..2_000).for_each(|number| drop(short::remote(round * number)));
        eventually("all tasks are done", || session.statistics().unfinished_tasks == 0);
    }
}
