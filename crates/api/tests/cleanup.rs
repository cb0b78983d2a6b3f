//! The end of a driver, however it comes: its workers are gone within a second, and nothing is left behind.
//!
//! Each test starts its own program again as a driver, so that what it leaves can be seen from outside.

mod support;

use aktis::prelude::*;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::Instant;
use support::PATIENCE;
use support::processes::{
    Belongings, again, again_after, again_with_disk, interrupt_group, is_running, kill, output_within, part,
    said,
};

const MEGABYTE: usize = 1 << 20;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn spin() -> u64 {
    loop {
        std::thread::yield_now();
    }
}

#[remote(isolated)]
fn spin_alone() -> u64 {
    spin()
}

#[remote]
fn zeros(megabytes: usize) -> Array<u8> {
    vec![0; megabytes << 20].into()
}

#[remote(retries = 0)]
fn crash() -> u64 {
    std::process::abort()
}

struct Counter(u64);

#[actor]
impl Counter {
    fn new() -> Self {
        Self(0)
    }
    fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }
}

/// Has work of all kinds going on, tells its workers' ids, and then ends in its way.
fn drive(ending: &str) {
    let directory = std::env::var("SPILL").expect("a directory");
    let session = Session::builder()
        .cpus(4)
        .store_bytes(16 << 20)
        .spill_directory(directory)
        .start()
        .expect("a session");
    let _entered = session.enter();
    let actor = Counter::options().isolated().remote();
    assert_eq!(actor.add(1).get().unwrap(), 1);
    let kept: Vec<_> = (0..6_u8).map(|n| session.put(Array::from(vec![n; 4 * MEGABYTE])).unwrap()).collect();
    let (shared, alone) = (spin::remote(), spin_alone::remote());
    support::eventually("three workers run", || session.worker_pids().len() >= 3);
    let workers: Vec<_> = session.worker_pids().iter().map(u32::to_string).collect();
    println!("\nworkers {}", workers.join(" "));
    match ending {
        "wait" => drop(shared.get()),
        "panic" => panic!("the driver panics"),
        "exit" => std::process::exit(7),
        "abort" => std::process::abort(),
        "leak" => {
            std::mem::forget((alone, kept, actor));
            drop(_entered);
            std::mem::forget(session);
        }
        other => panic!("unknown ending {other}"),
    }
}

/// A driver that runs, with its workers.
struct Driver {
    child: Child,
    /// Kept open: a driver that cannot print any more would fail for that reason.
    _output: BufReader<ChildStdout>,
    workers: Vec<u32>,
    directory: tempfile::TempDir,
}

impl Driver {
    fn start(test: &str, ending: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = again(test, ending)
            .env("SPILL", directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map_while(Result::ok);
        let workers = lines.find_map(|line| line.strip_prefix("workers ").map(str::to_owned));
        let workers = workers.expect("the driver gets so far");
        let workers: Vec<u32> = workers.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert!(workers.len() >= 3, "{workers:?}");
        Self { child, _output: output, workers, directory }
    }

    /// The driver ends: what it has started must end with it.
    fn end(mut self) -> ExitStatus {
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if begin.elapsed() > PATIENCE => {
                    kill(self.child.id());
                    panic!("the driver does not end");
                }
                None => std::thread::yield_now(),
            }
        };
        let dead = Instant::now();
        while self.workers.iter().any(|pid| is_running(*pid)) {
            assert!(dead.elapsed().as_secs() < 1, "workers outlive their driver: {:?}", self.workers);
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_dir(self.directory.path()).unwrap().count(), 0, "a file is left");
        status
    }
}

fn ends(test: &str, ending: &str, end: impl FnOnce(&Driver)) -> Option<ExitStatus> {
    if let Some(ending) = part() {
        drive(&ending);
        return None;
    }
    let shared_memory = || std::fs::read_dir("/dev/shm").map_or(0, |files| files.flatten().count());
    let before = shared_memory();
    let driver = Driver::start(test, ending);
    end(&driver);
    let status = driver.end();
    assert_eq!(shared_memory(), before);
    Some(status)
}

#[test]
fn workers_die_with_a_driver_that_is_killed() {
    let status = ends("workers_die_with_a_driver_that_is_killed", "wait", |driver| kill(driver.child.id()));
    assert!(status.is_none_or(|status| status.signal() == Some(9)));
}

#[test]
fn an_interrupt_ends_a_driver_that_waits_and_its_workers() {
    let test = "an_interrupt_ends_a_driver_that_waits_and_its_workers";
    let status = ends(test, "wait", |driver| interrupt_group(&driver.child));
    assert!(status.is_none_or(|status| status.signal() == Some(2)));
}

#[test]
fn workers_die_with_a_driver_that_panics() {
    // In the test that runs as the driver, the panic is what is asked for.
    let status = ends("workers_die_with_a_driver_that_panics", "panic", |_| ());
    assert!(status.is_none_or(|status| status.code() == Some(101)), "{status:?}");
}

#[test]
fn workers_die_with_a_driver_that_exits() {
    let status = ends("workers_die_with_a_driver_that_exits", "exit", |_| ());
    assert!(status.is_none_or(|status| status.code() == Some(7)), "{status:?}");
}

#[test]
fn workers_die_with_a_driver_that_aborts() {
    let status = ends("workers_die_with_a_driver_that_aborts", "abort", |_| ());
    assert!(status.is_none_or(|status| status.signal() == Some(6)), "{status:?}");
}

#[test]
fn workers_die_with_a_driver_that_forgets_its_session() {
    let status = ends("workers_die_with_a_driver_that_forgets_its_session", "leak", |_| ());
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

/// Some of everything.
fn use_session(session: &Session) {
    let _entered = session.enter();
    let squares: Vec<_> = (0..500).map(square::remote).collect();
    assert_eq!(session.get_all(&squares).unwrap()[9], 81);
    assert_eq!(square::options().isolated().remote(3).get().unwrap(), 9);
    let actor = Counter::remote();
    assert_eq!(actor.add(2).get().unwrap(), 2);
    let arrays: Vec<_> =
        (0..12_u8).map(|n| session.put(Array::from(vec![n; 4 * MEGABYTE])).unwrap()).collect();
    for (n, array) in (0..).zip(&arrays) {
        assert_eq!(array.get().unwrap()[0], n);
    }
    assert_eq!(zeros::remote(3).get().unwrap().len(), 3 * MEGABYTE);
    assert!(matches!(crash::remote().get(), Err(aktis::Error::WorkerDied(_))));
    assert_eq!(square::remote(4).get().unwrap(), 16);
}

/// Ends a session with everything still going on.
fn abandon_session(session: Session) {
    let running = {
        let _entered = session.enter();
        (spin::remote(), spin_alone::remote(), Counter::remote(), zeros::remote(3))
    };
    session.shutdown();
    assert_eq!(running.0.get(), Err(aktis::Error::Closed));
}

#[test]
fn a_session_leaves_nothing_in_its_driver() {
    let test = "a_session_leaves_nothing_in_its_driver";
    if part().is_none() {
        let output = output_within(again(test, "driver"), PATIENCE);
        assert!(output.status.success(), "{}", said(&output));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let options = Session::builder().cpus(2).store_bytes(16 << 20).forward_output(false);
        options.spill_directory(directory.path()).start().unwrap()
    };
    // The first may load and open what stays for all others.
    use_session(&start());
    let before = Belongings::now();
    for _ in 0..3 {
        use_session(&start());
        abandon_session(start());
        let (one, two) = (start(), start());
        use_session(&one);
        use_session(&two);
        drop((two, one));
        assert_eq!(Belongings::now(), before, "a session has left something");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Starts a session and uses it, or says why it could not.
fn try_session() {
    let outcome = Session::builder().cpus(2).store_bytes(16 << 20).start();
    let session = match outcome {
        Ok(session) => session,
        Err(error) => return println!("\nrefused: {error}"),
    };
    let _entered = session.enter();
    let nine = square::remote(3);
    support::eventually("it works, or says why not", || {
        nine.is_ready() || nine.explain().contains("times in a row")
    });
    match nine.is_ready() {
        true => println!("\nworks: {}", nine.get().unwrap()),
        false => println!("\nwaits: {}", nine.explain()),
    }
}

#[test]
fn too_few_descriptors_are_an_error_and_no_hang() {
    let test = "too_few_descriptors_are_an_error_and_no_hang";
    if part().is_some() {
        return try_session();
    }
    for limit in [8, 12, 14, 16, 18, 20, 22, 24, 28, 32, 64] {
        let command = again_after(&format!("ulimit -n {limit};"), test, "try");
        let text = said(&output_within(command, PATIENCE));
        let works = text.contains("\nworks: 9");
        let refused = text.contains("\nrefused: ") && text.contains("hint: raise the limits on open files");
        let waits =
            text.contains("\nwaits: ") && text.contains("aktis: a worker process could not be started");
        assert!(works || refused || waits, "with {limit} descriptors: {text}");
        assert!(works || text.contains("Too many open files"), "with {limit} descriptors: {text}");
        assert!(works || limit < 32, "32 are enough: {text}");
    }
}

#[test]
fn shared_memory_files_are_not_needed() {
    let test = "shared_memory_files_are_not_needed";
    if part().is_some() {
        let session = Session::builder().cpus(2).store_bytes(16 << 20).start().unwrap();
        return use_session(&session);
    }
    let Some(command) = again_with_disk(Path::new("/dev/shm"), 64, test, "use") else { return };
    let output = output_within(command, PATIENCE);
    assert!(output.status.success(), "{}", said(&output));
}

/// Fills the store and the disk, sees the error, and goes on with what is left.
fn fill_the_disk() {
    let directory = std::env::var("SPILL").expect("a directory");
    let session =
        Session::builder().cpus(2).store_bytes(16 << 20).spill_directory(directory).start().unwrap();
    let _entered = session.enter();
    let mut kept = Vec::new();
    let error = loop {
        assert!(kept.len() < 20, "the store and the disk are full some time");
        match session.put(Array::from(vec![kept.len() as u8; 4 * MEGABYTE])) {
            Ok(object) => kept.push(object),
            Err(error) => break error,
        }
    };
    println!("\nfull: {error}");
    assert!(kept.len() >= 4, "as much as fits into memory is taken");
    let outcome = zeros::remote(8).get();
    assert!(matches!(outcome, Err(aktis::Error::Store(_))), "a task's result is refused, too: {outcome:?}");
    // One goes, so that there is room to bring back what is on disk: nothing was lost.
    drop(kept.pop());
    for (n, object) in (0..).zip(&kept) {
        let array = object.get_timeout(PATIENCE).unwrap();
        assert!(array.len() == 4 * MEGABYTE && array.iter().all(|byte| *byte == n), "object {n}");
    }
    drop(kept);
    for n in 0..20_u8 {
        assert_eq!(session.put(Array::from(vec![n; 8 * MEGABYTE])).unwrap().get().unwrap()[0], n);
    }
    println!("\nall is well");
}

#[test]
fn a_full_disk_is_an_error_and_nothing_is_lost() {
    let test = "a_full_disk_is_an_error_and_nothing_is_lost";
    if part().is_some() {
        return fill_the_disk();
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(mut command) = again_with_disk(directory.path(), 9 * 1024, test, "fill") else { return };
    command.env("SPILL", directory.path());
    let output = output_within(command, PATIENCE);
    let text = said(&output);
    assert!(output.status.success() && text.contains("all is well"), "{text}");
    assert!(text.contains("full: the object store is full") && text.contains("hint: "), "{text}");
}

#[test]
fn more_tasks_than_may_be_queued_slow_their_submitter_down() {
    let session = Session::builder().cpus(2).store_bytes(64 << 20).queued_tasks_max(1000).start().unwrap();
    let _entered = session.enter();
    let mut refs: Vec<ObjectRef<u64>> = Vec::new();
    for x in 0..100_000 {
        refs.push(square::remote(x));
        if x % 997 == 0 {
            let unfinished = refs.iter().filter(|object| !object.is_ready()).count();
            assert!(unfinished <= 1032, "{unfinished} tasks are unfinished after {x}");
        }
    }
    for (x, object) in (0..).zip(&refs) {
        assert_eq!(object.get().unwrap(), x * x);
    }
}
