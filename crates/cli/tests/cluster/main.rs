//! Clusters whose machines, links and drivers fail: what can go on does, what cannot fails with words, nothing is left.
//!
//! The daemons are processes of the program `aktis`; the driver is the test itself, unless it has to die.

mod actions;
mod control;
mod lineage;
mod links;
mod machines;
mod network;
mod placement;
mod pulls;
mod recovery;
mod rolling;
mod takeover;
mod trust;
mod views;
mod wire;

use aktis::Error;
use aktis::prelude::*;
use machines::{Cluster, Machine, PATIENCE, aktis, ancestors, run, until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A machine that dies is found out within this time: its lease is over after 2 s, and those who wait hear of it.
const FOUND: Duration = Duration::from_secs(3);
/// How much longer that may take where processes have to wait for a CPU.
const BUSY: Duration = Duration::from_secs(4);

/// Since then no more time has passed than it takes to find out that a machine is dead.
fn check_found(died: Instant) {
    let took = died.elapsed();
    let load = std::fs::read_to_string("/proc/loadavg").expect("the load of this machine");
    let load: f64 = load.split(' ').next().and_then(|now| now.parse().ok()).expect("a number");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let slack = if load > processors as f64 { BUSY } else { Duration::ZERO };
    assert!(took < FOUND + slack, "it took {took:?}, at a load of {load} on {processors} processors");
}

/// Names the driver's side of a test that kills it.
const DRIVER: &str = "AKTIS_TEST_DRIVER";

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

/// Writes down that it runs, and where, and ends when it may or must.
#[remote]
fn linger(board: String, number: u64) -> Vec<u32> {
    let board = Path::new(&board);
    let line: Vec<String> = ancestors().iter().map(u32::to_string).collect();
    // Renamed, so that nobody reads the half of it.
    let (draft, place) = (board.join(format!("draft-{number}")), board.join(format!("started-{number}")));
    std::fs::write(&draft, line.join(" ")).expect("written");
    std::fs::rename(draft, place).expect("renamed");
    while !board.join("go").exists() && !aktis::is_cancelled() {
        std::thread::sleep(Duration::from_millis(5));
    }
    ancestors()
}

#[remote]
fn numbers(count: usize) -> (Vec<u32>, Vec<u8>) {
    (ancestors(), (0..count).map(|number| number as u8).collect())
}

#[remote]
fn length(made: (Vec<u32>, Vec<u8>)) -> (Vec<u32>, usize) {
    (ancestors(), made.1.len())
}

#[remote]
fn same(counter: CounterHandle) -> CounterHandle {
    counter
}

#[remote]
fn add_through(counter: CounterHandle, n: u64) -> aktis::Result<u64> {
    counter.add(n).get()
}

struct Counter {
    total: u64,
}

#[actor(isolated)]
impl Counter {
    fn new(start: u64) -> Self {
        Counter { total: start }
    }

    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }

    fn ancestors(&self) -> Vec<u32> {
        ancestors()
    }
}

/// Where each of these tasks runs, once all do.
fn places(cluster: &Cluster, numbers: std::ops::Range<u64>) -> BTreeMap<u64, usize> {
    let board = cluster.board();
    let place = |number: u64| {
        let file = Path::new(&board).join(format!("started-{number}"));
        until("the task runs", || file.exists());
        let text = std::fs::read_to_string(&file).expect("read");
        let pids: Vec<u32> = text.split(' ').map(|pid| pid.parse().expect("a number")).collect();
        (number, cluster.machine_of(&pids))
    };
    numbers.map(place).collect()
}

fn go(cluster: &Cluster) {
    std::fs::write(Path::new(&cluster.board()).join("go"), "").expect("written");
}

#[test]
fn tasks_of_a_member_that_was_killed_run_again_elsewhere_if_they_may() {
    let mut cluster = Cluster::new(0, &[2, 2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let submit = |number| linger::options().retries(if number < 2 { 2 } else { 0 });
    let refs: Vec<_> = (0..4).map(|number| submit(number).remote(cluster.board(), number)).collect();
    let places = places(&cluster, 0..4);
    let dying = places[&2];
    let lost: Vec<u64> = (2..4).filter(|number| places[number] == dying).collect();
    let killed = Instant::now();
    cluster.machines[dying].kill();
    for number in lost {
        let error = refs[number as usize].get_timeout(PATIENCE).unwrap_err();
        assert!(matches!(error, Error::WorkerDied(_)), "{error}");
        assert!(error.to_string().contains("no member of the cluster any more"), "{error}");
    }
    check_found(killed);
    go(&cluster);
    // Those without retries that run elsewhere may have come there through the dead member, which was full.
    for object in &refs[..2] {
        let place = object.get_timeout(PATIENCE).unwrap();
        assert_ne!(cluster.machine_of(&place), dying);
    }
}

#[test]
fn tasks_of_a_member_that_is_stopped_run_again_elsewhere() {
    let mut cluster = Cluster::new(0, &[2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let refs: Vec<_> = (0..2).map(|number| linger::remote(cluster.board(), number)).collect();
    assert!(places(&cluster, 0..2).values().all(|place| *place == 1));
    cluster.join(2);
    let stopped = run(&cluster.machines[1].path, &["stop"]);
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    go(&cluster);
    for object in refs {
        assert_eq!(cluster.machine_of(&object.get_timeout(PATIENCE).unwrap()), 2);
    }
}

#[test]
fn an_actor_with_restarts_lives_again_on_another_member() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let counter = Counter::options().cpus(1).restarts(1).remote(10);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
    cluster.join(1);
    cluster.machines[1].kill();
    let mut total = None;
    until("it lives again", || {
        total = counter.add(1).get_timeout(PATIENCE).ok();
        total.is_some()
    });
    assert_eq!(total, Some(11), "it starts anew");
    let place = counter.ancestors().get_timeout(PATIENCE).unwrap();
    assert_eq!(cluster.machine_of(&place), 2);
}

#[test]
fn calls_of_an_actor_whose_machine_is_gone_fail_with_words() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let counter = Counter::options().cpus(1).remote(10);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
    let killed = Instant::now();
    cluster.machines[1].kill();
    let error = counter.add(1).get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::ActorDied(_)), "{error:?}");
    check_found(killed);
    let error = counter.add(1).get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::ActorDied(_)), "{error:?}");
}

#[test]
fn an_object_whose_only_copy_is_gone_is_lost_and_nobody_waits_for_it() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = numbers::options().retries(0).remote(4 << 20);
    let (made, _) = session.wait(vec![made], 1, PATIENCE).unwrap();
    let [made] = <[_; 1]>::try_from(made).expect("it is ready");
    cluster.machines[1].kill();
    let asked = Instant::now();
    let error = made.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(asked.elapsed() < FOUND + BUSY, "it took {:?}", asked.elapsed());
    cluster.join(1);
    let error = length::remote(made).get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(&error, Error::Lost(_) | Error::Task(_)), "{error:?}");
    assert!(error.to_string().contains("no retry is left after 1 run of its task"), "{error}");
}

#[test]
fn a_member_that_was_frozen_joins_again_by_itself() {
    let cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let of_member = cluster.machines[1].session();
    let _entered = session.enter();
    let found = {
        let _entered = of_member.enter();
        Counter::options().name("known").detached().cpus(0.0).remote(1);
        let _entered = session.enter();
        Counter::find("known").expect("it is known everywhere")
    };
    assert_eq!(found.add(1).get_timeout(PATIENCE).unwrap(), 2);
    let counter = Counter::options().remote(10);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
    drop(counter);
    let lost = linger::options().retries(0).remote(cluster.board(), 0);
    places(&cluster, 0..1);
    let frozen = Instant::now();
    cluster.machines[1].signal(Signal::STOP);
    let error = lost.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::WorkerDied(_)), "{error:?}");
    check_found(frozen);
    until("it is given up", || cluster.head().members() == 1);
    until("so is what it served", || cluster.head().count("programs") == 1);
    let waiting = add::remote(1, 2);
    until("all that is timed is over", || frozen.elapsed() > Duration::from_secs(20));
    cluster.machines[1].signal(Signal::CONT);
    assert_eq!(waiting.get_timeout(PATIENCE).unwrap(), 3);
    cluster.wait_for_links();
    // What it serves, and for whom, is told anew.
    until("it serves its driver", || {
        let jobs = cluster.head().json(&["list", "jobs", "--state", "running", "--json"]);
        jobs["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2) && cluster.head().count("programs") == 2
    });
    // It has lived on meanwhile, and is found again, though there is a handle by which it was thought dead.
    until("it is found", || {
        Counter::find("known").is_ok_and(|again| again.add(1).get_timeout(PATIENCE).is_ok_and(|n| n > 2))
    });
    assert!(found.add(1).get_timeout(PATIENCE).is_ok());
    found.kill().expect("killed");
    drop(found);
    of_member.shutdown();
    for number in 0..100 {
        assert_eq!(add::remote(number, 1).get_timeout(PATIENCE).unwrap(), number + 1);
    }
    cluster.wait_until_empty();
}

#[test]
fn what_was_handed_around_is_let_go_everywhere() {
    for members in [&[2][..], &[1, 1]] {
        let cluster = Cluster::new(0, members);
        let session = cluster.head().session();
        let _entered = session.enter();
        let made = numbers::remote(4 << 20);
        assert_eq!(length::remote(made).get_timeout(PATIENCE).unwrap().1, 4 << 20);
        let counter = Counter::options().cpus(1).remote(10);
        assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
        assert_eq!(add_through::remote(counter.clone(), 1).get_timeout(PATIENCE).unwrap(), 12);
        let returned = same::remote(counter.clone()).get_timeout(PATIENCE).unwrap();
        drop(counter);
        assert_eq!(returned.add(1).get_timeout(PATIENCE).unwrap(), 13);
        drop(returned);
        cluster.wait_until_empty();
    }
}

#[test]
fn what_a_dead_driver_has_left_goes_on_all_nodes() {
    let cluster = Cluster::new(0, &[4, 4, 4]);
    let this = std::env::current_exe().expect("this program");
    let mut driver = Command::new(this)
        .args(["--exact", "a_driver_that_will_be_killed", "--nocapture"])
        .env(DRIVER, &cluster.head().path)
        .env("AKTIS_TEST_BOARD", cluster.board())
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    places(&cluster, 0..1);
    let ready = Path::new(&cluster.board()).join("ready");
    until("the driver has done its part", || ready.exists());
    driver.kill().expect("it runs");
    driver.wait().expect("it is dead");
    cluster.wait_until_empty();
}

/// Not a test by itself: the driver of the one before.
#[test]
fn a_driver_that_will_be_killed() {
    let (Ok(directory), Ok(board)) = (std::env::var(DRIVER), std::env::var("AKTIS_TEST_BOARD")) else {
        return;
    };
    let session = Session::connect(format!("{directory}/node")).unwrap();
    let _entered = session.enter();
    let counter = Counter::options().cpus(1).remote(10);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
    let lingers = linger::remote(board.clone(), 0);
    until("it runs", || Path::new(&board).join("started-0").exists());
    let made = numbers::remote(4 << 20);
    length::remote(made.clone()).get_timeout(PATIENCE).unwrap();
    std::fs::write(Path::new(&board).join("ready"), "").unwrap();
    lingers.get().unwrap();
}

#[test]
fn strangers_are_refused_and_the_others_go_on() {
    let mut cluster = Cluster::new(0, &[1]);
    let other = Cluster::new(0, &[]);
    let token = |cluster: &Cluster, lifetime: &str| {
        let token = cluster.head().json(&["token", "--lifetime", lifetime, "--json"]);
        (token["address"].as_str().unwrap().to_owned(), token["token"].as_str().unwrap().to_owned())
    };
    let (address, expired) = token(&cluster, "1s");
    let issued = Instant::now();
    let (_, foreign) = token(&other, "1h");
    let join = |token: &str| {
        let path = cluster.directory.path().join("stranger");
        let output = run(&path, &["start", "--address", &address, "--token", token]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = join("no-token");
    assert!(errors.contains("the token is not one that a head has printed"), "{errors}");
    let errors = join(&foreign);
    assert!(errors.starts_with("error: ") && errors.contains("hint: "), "{errors}");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 10_000], &[0xff; 10_000], b""] {
        let mut stream = TcpStream::connect(&address).unwrap();
        // It may be closed before all is written.
        let _ = stream.write_all(garbage);
    }
    until("the token is too old", || issued.elapsed() > Duration::from_secs(2));
    let errors = join(&expired);
    assert!(errors.contains("expired") && errors.contains("hint: "), "{errors}");
    assert_eq!(cluster.head().count("nodes"), 2);
    cluster.join(1);
    cluster.wait_for_links();
    let session = cluster.head().session();
    let _entered = session.enter();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

#[test]
fn a_killed_node_comes_back_without_a_token() {
    let mut cluster = Cluster::new(0, &[1]);
    cluster.wait_for_links();
    let (address, _) = cluster.invitation();
    let mut killed = cluster.machines.pop().expect("a member");
    killed.kill();
    let path = killed.path.clone();
    drop(killed);
    let errors = |path: &Path| run(path, &["start", "--address", &address]).stderr;
    let told = String::from_utf8(errors(&cluster.directory.path().join("new"))).unwrap();
    assert!(told.contains("no token was given"), "{told}");
    let (back, _) = Machine::start_by(aktis(&path), path, &["--address", &address, "--cpus", "1"]);
    cluster.machines.push(back);
    cluster.wait_for_links();
    let session = cluster.head().session();
    let _entered = session.enter();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}
