//! Drivers that attach to a node in another process, share it, leave it and are killed.
//!
//! Each test is the daemon, and starts its own program again as drivers. Another program is the same one with a few
//! bytes more: its name is a hash of its content.

mod support;

use aktis::prelude::*;
use aktis_node::{Host, HostConfig, LocalRole, OutputOptions};
use aktis_protocol::state::{StateKind, StateRows, StoreRow};
use aktis_protocol::{Amount, Labels, ProgramId, Resources, resources};
use aktis_runtime::Runtime;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use support::processes::{is_running, kill, part};
use support::{PATIENCE, eventually};

const NODE: &str = "AKTIS_TEST_NODE";
const PART: &str = "AKTIS_TEST_PART";

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn sum(numbers: Array<u8>) -> u64 {
    numbers.iter().map(|&number| u64::from(number)).sum()
}

#[remote]
fn ones(megabytes: usize) -> Array<u8> {
    vec![1; megabytes << 20].into()
}

#[remote(isolated)]
fn pid_alone() -> u32 {
    std::process::id()
}

#[remote]
fn spin() -> u64 {
    loop {
        std::thread::yield_now();
    }
}

struct Counter(u64);

#[actor]
impl Counter {
    fn new(start: u64) -> Self {
        Self(start)
    }
    fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }
    fn pid(&self) -> u32 {
        std::process::id()
    }
}

/// A node in this process, to which others attach.
struct Node {
    host: Arc<Host>,
    daemon: Runtime,
    directory: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let host = Host::start(HostConfig {
            session: None,
            labels: Labels::new(),
            directory: directory.path().join("node"),
            resources: Resources::none().with(resources::CPU, Amount::units(2)),
            store_bytes: 64 << 20,
            spill_directory: directory.path().to_owned(),
            spill_bytes_max: u64::MAX,
            output: OutputOptions { forward: false, ..OutputOptions::default() },
            hidden: None,
        });
        let host = host.expect("a node starts");
        let daemon = Runtime::start_local(&host, LocalRole::Daemon, ProgramId::default()).expect("a place");
        Self { host, daemon, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("node")
    }

    fn address(&self) -> String {
        self.path().display().to_string()
    }

    /// The worker processes.
    fn workers(&self) -> Vec<u32> {
        match self.daemon.state(StateKind::Workers).expect("an answer").0 {
            StateRows::Workers(rows) => rows.iter().map(|row| row.pid).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn store(&self) -> StoreRow {
        match self.daemon.state(StateKind::Store).expect("an answer").0 {
            StateRows::Store(row) => row,
            other => panic!("{other:?}"),
        }
    }

    /// A driver that is this program, or a copy of it.
    fn driver(&self, program: &Path, test: &str, part: &str) -> Driver {
        let mut command = Command::new(program);
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env(NODE, self.path()).env("AKTIS_ADDRESS", self.path());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a driver starts");
        let words = BufReader::new(child.stdout.take().expect("piped"));
        Driver { child, words }
    }

    /// This program with another content.
    fn other_program(&self) -> PathBuf {
        let path = self.directory.path().join("other");
        std::fs::copy(this_program(), &path).expect("copied");
        let mut file = std::fs::File::options().append(true).open(&path).expect("opened");
        file.write_all(b"another build").expect("written");
        path
    }

    /// Nothing is left of any driver.
    fn expect_nothing_left(&self) {
        eventually("all processes end", || self.host.processes().is_empty());
        eventually("the store is empty", || self.store().used == 0 && self.store().objects == 0);
        assert_eq!(self.workers(), []);
        assert_eq!(self.daemon.actor_names("").expect("names"), [] as [String; 0]);
    }
}

struct Driver {
    child: Child,
    words: BufReader<ChildStdout>,
}

impl Driver {
    /// Waits until it says this; gives the rest of the line.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.words.read_line(&mut line).expect("words") > 0, "the driver ended before {word:?}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{word}").expect("it listens");
    }

    /// It ends by itself, and all was well.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("waited for").success());
    }

    fn kill(mut self) {
        kill(self.child.id());
        self.child.wait().expect("waited for");
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program")
}

fn say(words: std::fmt::Arguments<'_>) {
    println!("{words}");
    std::io::stdout().flush().expect("said");
}

/// Waits for the next word; `None` at the end.
fn listen() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).expect("words");
    (read > 0).then(|| line.trim().to_owned())
}

fn attach() -> Session {
    Session::connect(std::env::var(NODE).expect("the node's directory")).expect("a place")
}

/// A bit of everything.
fn work() {
    let squares: Vec<_> = (0..1000).map(square::remote).collect();
    assert_eq!(aktis::get(&squares[999]), Ok(999 * 999));
    assert!(squares.iter().all(|square| square.get().is_ok()));
    let large = ones::remote(2);
    assert_eq!(sum::remote(&large).get(), Ok(2 << 20));
    let put = aktis::put(Array::from(vec![2_u8; 1 << 20])).expect("stored");
    assert_eq!(sum::remote(&put).get(), Ok(2 << 20));
    assert_ne!(pid_alone::remote().get(), Ok(std::process::id()));
    let counter = Counter::remote(1);
    assert_eq!(counter.add(2).get(), Ok(3));
    let managed = Counter::options().restarts(1).remote(10);
    assert_eq!(managed.add(2).get(), Ok(12));
}

#[test]
fn two_programs_share_a_node_and_the_death_of_one_is_its_own() {
    match part().as_deref() {
        Some("busy") => {
            let session = attach();
            let _entered = session.enter();
            work();
            let kept = (ones::remote(4), aktis::put(Array::from(vec![1_u8; 1 << 20])), Counter::remote(0));
            kept.2.add(1).get().expect("counted");
            kept.0.get().expect("made");
            let spinning: Vec<_> = (0..10).map(|_| spin::remote()).collect();
            say(format_args!("ready {}", kept.2.pid().get().expect("a worker")));
            while listen().is_some() {}
            drop((spinning, kept));
            return;
        }
        Some("calm") => {
            let session = attach();
            let _entered = session.enter();
            work();
            let counter = Counter::remote(0);
            say(format_args!("ready {}", counter.pid().get().expect("a worker")));
            assert_eq!(listen().as_deref(), Some("go on"));
            work();
            assert_eq!(counter.add(5).get(), Ok(5), "its actor has not noticed");
            say(format_args!("done"));
            // Its worker ends with it.
            while listen().is_some() {}
            return;
        }
        _ => {}
    }
    const TEST: &str = "two_programs_share_a_node_and_the_death_of_one_is_its_own";
    let node = Node::start();
    let mut calm = node.driver(&this_program(), TEST, "calm");
    let worker_of_calm: u32 = calm.hear("ready").parse().expect("a number");
    let mut busy = node.driver(&node.other_program(), TEST, "busy");
    let worker_of_busy: u32 = busy.hear("ready").parse().expect("a number");
    assert_ne!(worker_of_calm, worker_of_busy, "each program has its own worker");

    busy.kill();
    calm.tell("go on");
    calm.hear("done");
    eventually("the worker of the killed driver's program ends", || !is_running(worker_of_busy));
    assert!(is_running(worker_of_calm));
    calm.finish();
    node.expect_nothing_left();
}

#[test]
fn drivers_of_one_program_share_its_worker_and_find_what_others_leave() {
    match part().as_deref() {
        Some("first") => {
            let session = attach();
            let _entered = session.enter();
            let keeper = Counter::options().name("keeper").detached().remote(40);
            assert_eq!(keeper.add(1).get(), Ok(41));
            say(format_args!("ready {}", keeper.pid().get().expect("a worker")));
            while listen().is_some() {}
            return;
        }
        Some("second") => {
            let session = attach();
            let _entered = session.enter();
            let own = Counter::remote(0);
            say(format_args!("ready {}", own.pid().get().expect("a worker")));
            assert_eq!(listen().as_deref(), Some("look"));
            let keeper = Counter::find("keeper").expect("it outlives its driver");
            assert_eq!(keeper.add(1).get(), Ok(42));
            keeper.kill().expect("killed");
            say(format_args!("done"));
            return;
        }
        _ => {}
    }
    const TEST: &str = "drivers_of_one_program_share_its_worker_and_find_what_others_leave";
    let node = Node::start();
    let mut first = node.driver(&this_program(), TEST, "first");
    let mut second = node.driver(&this_program(), TEST, "second");
    assert_eq!(first.hear("ready"), second.hear("ready"));
    first.kill();
    second.tell("look");
    second.hear("done");
    second.finish();
    node.expect_nothing_left();
}

#[test]
fn a_process_comes_and_goes_and_what_it_reads_stays() {
    if part().is_some() {
        let mut kept = Vec::new();
        for round in 0..30_u8 {
            let session = attach();
            let _entered = session.enter();
            assert_eq!(square::remote(u64::from(round)).get(), Ok(u64::from(round) * u64::from(round)));
            let stored = aktis::put(Array::from(vec![round; 100_000])).expect("stored");
            if round < 3 {
                kept.push(stored.get().expect("read"));
            }
        }
        for (round, array) in (0..).zip(&kept) {
            assert!(array.iter().all(|&byte| byte == round), "what is read in place does not change");
        }
        say(format_args!("done"));
        while listen().is_some() {}
        return;
    }
    let node = Node::start();
    let mut driver =
        node.driver(&this_program(), "a_process_comes_and_goes_and_what_it_reads_stays", "comes and goes");
    driver.hear("done");
    let highest = node.host.processes().iter().map(|(slot, _)| slot.0).max();
    assert!(highest.is_none_or(|slot| slot < 20), "places are used again: {highest:?}");
    driver.finish();
    node.expect_nothing_left();
}

#[test]
fn whoever_waits_is_told_when_the_node_ends() {
    if part().is_some() {
        let session = attach();
        let _entered = session.enter();
        let never = spin::remote();
        say(format_args!("ready"));
        let error = never.get_timeout(PATIENCE).expect_err("it cannot be done");
        assert!(!matches!(error, aktis::Error::Timeout(_)), "{error}");
        assert!(square::remote(1).get().is_err());
        return;
    }
    let node = Node::start();
    let mut driver = node.driver(&this_program(), "whoever_waits_is_told_when_the_node_ends", "waits");
    driver.hear("ready");
    node.host.shutdown();
    driver.finish();
}

#[test]
fn init_ignores_options_of_a_node_when_the_environment_names_one() {
    const TEST: &str = "init_ignores_options_of_a_node_when_the_environment_names_one";
    if part().is_some() {
        let session = Session::builder().cpus(7).label("zone", "b").store_bytes(1 << 20).init();
        let session = session.expect("the node of the environment");
        assert_eq!(session.resources().get(resources::CPU), Amount::units(2), "the CPUs are the node's");
        assert_eq!(square::remote(3).get(), Ok(9));
        drop(session);
        let explicit = Session::builder().address(std::env::var(NODE).expect("a node")).cpus(7).init();
        let error = explicit.expect_err("the program names a node and CPUs");
        assert!(error.to_string().contains("CPU cannot be chosen"), "{error}");
        let own = Session::builder().address("local").cpus(7).init().expect("a node of its own");
        assert_eq!(own.resources().get(resources::CPU), Amount::units(7));
        return;
    }
    let node = Node::start();
    node.driver(&this_program(), TEST, "inits").finish();
    node.expect_nothing_left();
}

#[test]
fn an_address_without_a_node_is_explained() {
    let empty = tempfile::tempdir().expect("a directory");
    let error = Session::connect(empty.path().display().to_string()).expect_err("nobody is there");
    assert!(error.to_string().contains("no node runs in"), "{error}");
    let node = Node::start();
    let sized = Session::builder().address(node.address()).cpus(3).start().expect_err("it has its CPUs");
    assert!(sized.to_string().contains("CPU cannot be chosen"), "{sized}");
    let builder = || Session::builder().address(node.address());
    for (builder, option) in [
        (builder().spill_directory("/"), "where objects are spilled"),
        (builder().spill_bytes_max(1), "how much is spilled"),
    ] {
        let error = builder.start().expect_err("it has its disk");
        assert!(error.to_string().contains(&format!("{option} cannot be chosen")), "{error}");
    }
    let second = Host::start(HostConfig {
        session: None,
        labels: Labels::new(),
        directory: node.path(),
        resources: Resources::none(),
        store_bytes: 1 << 20,
        spill_directory: node.path(),
        spill_bytes_max: 0,
        output: OutputOptions::default(),
        hidden: None,
    });
    let error = second.err().expect("the directory is taken");
    assert!(error.to_string().contains("another node runs in"), "{error}");
}

/// Another user of this machine.
const MALLORY: u32 = 54321;

/// Listens where drivers look for a node, and tells how many bytes one of them sends.
fn pose_as_a_node(directory: &Path) {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket");
    let path = directory.join("attach.sock");
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).expect("short")).expect("free");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("changed");
    rustix::net::listen(&listener, 1).expect("listens");
    say(format_args!("listening"));
    let driver = rustix::net::accept(&listener).expect("a driver");
    let mut request = vec![0; 1 << 16];
    let (received, _) = rustix::net::recv(&driver, &mut request[..], RecvFlags::empty()).expect("bytes");
    say(format_args!("received {received}"));
    let _ = rustix::net::send(&driver, b"\0not today", SendFlags::empty());
}

#[test]
fn a_driver_tells_a_node_of_another_user_nothing() {
    const TEST: &str = "a_driver_tells_a_node_of_another_user_nothing";
    if part().is_some() {
        return pose_as_a_node(Path::new(&std::env::var(NODE).expect("a directory")));
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can start a process of another user");
        return;
    }
    let base = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(base.path(), PermissionsExt::from_mode(0o755)).expect("changed");
    let trap = base.path().join("aktis-0");
    std::fs::create_dir(&trap).expect("made");
    chown(&trap, Some(MALLORY), None).expect("given away");
    let mut command = Command::new(this_program());
    command.args(["--exact", TEST, "--nocapture", "--test-threads=1"]).uid(MALLORY);
    command.env(PART, "false node").env(NODE, &trap).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process starts");
    let words = BufReader::new(child.stdout.take().expect("piped"));
    let mut mallory = Driver { child, words };
    mallory.hear("listening");

    let address = trap.to_str().expect("a text");
    let error = Session::connect(address).expect_err("the directory is another user's").to_string();
    assert!(error.contains(&format!("{address} belongs to user {MALLORY}, not to user 0")), "{error}");
    // It looks right now; but who listens there has not changed.
    chown(&trap, Some(0), None).expect("taken back");
    std::fs::set_permissions(&trap, PermissionsExt::from_mode(0o700)).expect("changed");
    let error = Session::connect(address).expect_err("the listener is another user's").to_string();
    let told = format!("the node in {address} is a process of user {MALLORY} (pid {})", mallory.child.id());
    assert!(error.contains(&told), "{error}");
    let mut said = String::new();
    mallory.words.read_to_string(&mut said).expect("its words");
    assert!(said.contains("received 0"), "nothing was sent: {said}");
    mallory.child.wait().expect("waited for");
}
