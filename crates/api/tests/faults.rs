//! Workers that are killed at any instant: nothing is lost, nothing comes twice, and the session goes on.

mod support;

use aktis::prelude::*;
use aktis::{Error, ObjectId};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use support::processes::{Dice, is_running, kill};
use support::{PATIENCE, eventually};

const MEGABYTE: usize = 1 << 20;
const RETRIES: u32 = 100_000;

#[remote(retries = 100_000)]
fn square(x: u64) -> u64 {
    x * x
}

#[remote(retries = 100_000)]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[remote(retries = 100_000)]
fn sum_of_squares(n: u64) -> aktis::Result<u64> {
    let squares: Vec<_> = (0..n).map(square::remote).collect();
    Ok(aktis::get_all(&squares)?.into_iter().sum())
}

/// An array that is too large to travel in messages.
#[remote(retries = 100_000)]
fn numbers(first: u64) -> Array<u64> {
    (first..first + 10_000).collect::<Vec<_>>().into()
}

#[remote(retries = 100_000)]
fn sum(numbers: Array<u64>) -> u64 {
    numbers.iter().sum()
}

/// Writes arrays all the time, and returns one.
#[remote(retries = 100_000)]
fn write_much(byte: u8) -> aktis::Result<Array<u8>> {
    aktis::put(Array::from(vec![byte; 8 * MEGABYTE]))?;
    Ok(vec![byte; 8 * MEGABYTE].into())
}

#[remote(retries = 0)]
fn die() -> u32 {
    eprintln!("process {} dies", std::process::id());
    kill(std::process::id());
    unreachable!("killed")
}

#[remote]
fn pid() -> u32 {
    std::process::id()
}

/// Kills each worker that comes up, after it has done some work, until `kills` are done.
fn kill_workers(session: &Session, kills: usize, seed: u64, progress: &AtomicU64) {
    let mut dice = Dice::new(seed);
    let (mut seen, mut killed) = (u64::MAX, HashSet::new());
    let begin = Instant::now();
    while killed.len() < kills {
        assert!(begin.elapsed() < PATIENCE, "{} of {kills} are killed", killed.len());
        // Now and then a worker dies before it has done anything at all.
        let early = dice.below(10) == 0;
        eventually("results come in", || early || progress.load(Ordering::Relaxed) != seen);
        seen = progress.load(Ordering::Relaxed);
        dice.dawdle(4000);
        for pid in session.worker_pids() {
            kill(pid);
            killed.insert(pid);
        }
    }
}

/// Takes each result as soon as it is there; each comes once.
fn collect(session: &Session, refs: Vec<(ObjectRef<u64>, u64)>, progress: &AtomicU64) {
    let (mut left, expected): (Vec<_>, Vec<_>) =
        refs.into_iter().map(|(r, value)| (r.clone(), (r.id(), value))).unzip();
    let mut seen: HashSet<ObjectId> = HashSet::new();
    while !left.is_empty() {
        let (ready, rest) = session.wait(left, 1, PATIENCE).unwrap();
        assert!(
            !ready.is_empty(),
            "{} of {} results are missing: {}",
            rest.len(),
            expected.len(),
            rest[0].explain()
        );
        for object in ready {
            let value = object.get().unwrap();
            let (_, wanted) = expected.iter().find(|(id, _)| *id == object.id()).unwrap();
            assert_eq!(value, *wanted);
            assert!(seen.insert(object.id()), "a result came twice");
            progress.fetch_add(1, Ordering::Relaxed);
        }
        left = rest;
    }
    assert_eq!(seen.len(), expected.len());
}

fn batch(n: u64) -> Vec<(ObjectRef<u64>, u64)> {
    let mut refs = Vec::new();
    for x in n..n + 40 {
        refs.push((square::remote(x), x * x));
        refs.push((add::remote(square::remote(x), square::remote(1)), x * x + 1));
    }
    refs.push((sum_of_squares::remote(10), 285));
    refs.push((sum::remote(numbers::remote(n)), 10_000 * n + 49_995_000));
    refs
}

/// Runs all kinds of tasks while workers are killed, and checks every result.
fn survive(kills: usize, seed: u64) {
    let session = Session::builder().cpus(2).store_bytes(64 << 20).forward_output(false).start().unwrap();
    let progress = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_workers(&session, kills, seed, &progress));
        let _entered = session.enter();
        let mut n = 0;
        while !killer.is_finished() {
            collect(&session, batch(n), &progress);
            n += 1;
        }
    });
    let _entered = session.enter();
    let refs: Vec<_> = (0..1000).map(square::remote).collect();
    assert_eq!(session.get_all(&refs).unwrap(), (0..1000).map(|x| x * x).collect::<Vec<_>>());
    let workers = session.worker_pids();
    assert!(!workers.is_empty());
    drop((refs, _entered));
    session.shutdown();
    assert!(workers.into_iter().all(|pid| !is_running(pid)), "a worker outlives its session");
}

#[test]
fn tasks_survive_a_hundred_deaths_of_their_worker() {
    survive(100, 1);
}

#[test]
fn tasks_survive_another_hundred_deaths_of_their_worker() {
    survive(100, 2);
}

#[test]
fn tasks_survive_yet_another_hundred_deaths_of_their_worker() {
    survive(100, 3);
}

#[test]
fn isolated_tasks_survive_the_deaths_of_their_workers() {
    let session = Session::builder().cpus(2).store_bytes(64 << 20).forward_output(false).start().unwrap();
    let progress = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_workers(&session, 60, 4, &progress));
        let _entered = session.enter();
        while !killer.is_finished() {
            let isolated = |x| (square::options().isolated().retries(RETRIES).remote(x), x * x);
            collect(&session, (0..10).map(isolated).collect(), &progress);
        }
    });
}

/// A worker that sleeps is asked for by nobody when it dies; its successor must be found all the same.
#[test]
fn a_task_after_an_idle_workers_death_finds_the_next_worker() {
    let session = support::start();
    let _entered = session.enter();
    for round in 0..20 {
        let before = pid::remote().get_timeout(PATIENCE).unwrap();
        std::thread::park_timeout(Duration::from_millis(2 * (round % 3)));
        kill(before);
        eventually("the next worker is there", || {
            let workers = session.worker_pids();
            !workers.is_empty() && !workers.contains(&before)
        });
        std::thread::park_timeout(Duration::from_millis(20 * (round % 4)));
        let after = pid::remote().get_timeout(Duration::from_secs(10)).unwrap();
        assert_ne!(after, before);
    }
}

#[test]
fn the_store_survives_deaths_in_the_middle_of_writing() {
    let session = Session::builder().cpus(2).store_bytes(96 << 20).spill_bytes_max(0).forward_output(false);
    let session = session.start().unwrap();
    let progress = AtomicU64::new(0);
    let _entered = session.enter();
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_workers(&session, 40, 5, &progress));
        let _entered = session.enter();
        while !killer.is_finished() {
            let refs: Vec<_> = (1..4).map(write_much::remote).collect();
            for (byte, object) in (1..4).zip(refs) {
                let array = object.get_timeout(PATIENCE).unwrap();
                assert!(array.len() == 8 * MEGABYTE && array.iter().all(|b| *b == byte));
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    // Several times the whole store, and then nearly all of it at once.
    for byte in 0..50_u8 {
        let object = session.put(Array::from(vec![byte; 8 * MEGABYTE])).unwrap();
        assert_eq!(object.get().unwrap()[MEGABYTE], byte);
    }
    eventually("the space of the dead is free", || {
        let kept: Result<Vec<_>, _> =
            (0..11).map(|_| session.put(Array::from(vec![1_u8; 8 * MEGABYTE]))).collect();
        kept.is_ok()
    });
    assert_eq!(write_much::remote(9).get().unwrap()[0], 9);
}

/// Bytes that a session has on the disk of this directory, in a file without a name.
fn bytes_on_disk(directory: &Path) -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let there = open.filter(|path| std::fs::read_link(path).is_ok_and(|file| file.starts_with(directory)));
    there.filter_map(|path| path.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn room_on_disk_survives_deaths_in_the_middle_of_writing() {
    let directory = tempfile::tempdir().unwrap();
    // No value fits into memory.
    let session = Session::builder().cpus(2).store_bytes(4 << 20).spill_directory(directory.path());
    let session = session.forward_output(false).start().unwrap();
    let progress = AtomicU64::new(0);
    let _entered = session.enter();
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_workers(&session, 20, 7, &progress));
        let _entered = session.enter();
        while !killer.is_finished() {
            let refs: Vec<_> = (1..4).map(write_much::remote).collect();
            for (byte, object) in (1..4).zip(refs) {
                let array = object.get_timeout(PATIENCE).unwrap();
                assert!(array.len() == 8 * MEGABYTE && array.iter().all(|b| *b == byte));
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let array = write_much::remote(9).get_timeout(PATIENCE).unwrap();
    let value = 8 * MEGABYTE as u64;
    assert!(bytes_on_disk(directory.path()) >= value, "it is read on disk");
    drop(array);
    // A file system may keep some pages: where mapped pages of an object are written together with those after them.
    eventually("the room on disk is given back", || bytes_on_disk(directory.path()) < value / 16);
}

#[test]
fn a_death_without_retries_names_the_signal_and_the_last_words() {
    let session = Session::builder().cpus(2).store_bytes(64 << 20).forward_output(false).start().unwrap();
    let _entered = session.enter();
    for isolated in [false, true] {
        let options = die::options();
        let died = if isolated { options.isolated() } else { options }.remote();
        let Err(Error::WorkerDied(error)) = died.get_timeout(PATIENCE) else { panic!("the worker dies") };
        let death = error.death().expect("it says how");
        assert_eq!((death.signal, death.exit_code), (Some(9), None), "{error}");
        let words = format!("process {} dies", death.pid);
        assert!(death.stderr_tail.iter().any(|line| line.contains(&words)), "{error}");
        assert!(error.to_string().contains("SIGKILL"), "{error}");
        assert!(Error::WorkerDied(error).to_string().contains("hint: "));
        assert_eq!(square::remote(3).get().unwrap(), 9, "the session goes on");
    }
}

/// Writing to a reader that is gone is an error in Rust programs, and not the end of the process.
#[remote]
fn write_to_nobody() -> String {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    match std::io::Write::write(&mut writer, b"hello") {
        Ok(_) => "written".to_owned(),
        Err(error) => error.kind().to_string(),
    }
}

#[test]
fn a_broken_pipe_is_an_error_in_workers_as_it_is_in_drivers() {
    let session = support::start();
    let _entered = session.enter();
    assert_eq!(write_to_nobody::remote().get_timeout(PATIENCE).unwrap(), write_to_nobody());
}
