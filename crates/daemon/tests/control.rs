//! The control process is killed at any instant, again and again, while nodes have names and values kept there.
//!
//! It is this very test program, started once more; the nodes are in this process. What was acknowledged is there at the
//! end, and calls between the nodes never fail. `AKTIS_SEED` runs one seed again.

use aktis::prelude::*;
use aktis_daemon::admin::Client;
use aktis_daemon::control::control_directory;
use aktis_daemon::{Control, ControlConfig, Daemon, DaemonConfig, HideControl, Role};
use aktis_protocol::Amount;
use aktis_runtime::{Config, Runtime};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CONTROL: &str = "AKTIS_TEST_CONTROL";
const TEST: &str = "what_was_acknowledged_survives_and_nobody_else_notices";
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it is killed again and again.
const ROUNDS_TIME: Duration = Duration::from_secs(8);
const ROUNDS_MIN: u32 = 5;

/// A control process, which does not outlive this.
struct Head {
    directory: PathBuf,
    child: Child,
}

impl Head {
    fn start(directory: &Path) -> Self {
        let mut head = Self { directory: directory.to_owned(), child: spawn(directory) };
        head.wait_until_ready();
        head
    }

    fn wait_until_ready(&mut self) {
        let output = BufReader::new(self.child.stdout.take().expect("a pipe"));
        let ready = output.lines().map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the control process has not started");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is dead");
    }

    fn member(&self) -> Role {
        let mut client = Client::connect(&control_directory(&self.directory)).expect("it answers");
        let token = client.token(Duration::from_secs(600), None).expect("a token");
        Role::Member { address: token.address, token: token.token }
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
        .env(CONTROL, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs")
}

fn be_control(directory: PathBuf) {
    let listen = Some("127.0.0.1:0".parse().expect("an address"));
    let control =
        Control::start(&ControlConfig { directory, listen, certificate_lifetime: None, node_timeout: None })
            .expect("started");
    println!("\nready");
    control.wait().expect("until it is killed");
}

fn node(directory: &Path, role: Role) -> Daemon {
    let config = DaemonConfig {
        directory: directory.to_owned(),
        role,
        listen: None,
        resources: BTreeMap::from([("CPU".to_owned(), Amount::units(2))]),
        labels: BTreeMap::new(),
        store_bytes: Some(64 << 20),
        spill_directory: None,
        spill_bytes_max: None,
        hide_control: HideControl::Auto,
    };
    Daemon::start(config).expect("a node")
}

struct Counter {
    total: u64,
}

#[actor]
impl Counter {
    fn new(start: u64) -> Self {
        Counter { total: start }
    }

    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }
}

/// Keeps values under new keys until it is told to end; gives how many were acknowledged.
fn keep_values(daemon: &Daemon, writer: u64, over: &AtomicBool) -> u64 {
    let runtime = Runtime::attach(&daemon.attach_directory(), Config::default()).expect("attached");
    let mut kept = 0;
    while !over.load(Ordering::Relaxed) {
        let key = format!("{writer}/{kept}");
        let is_new = runtime.key_put(key.as_bytes(), key.as_bytes(), false).expect("kept");
        assert!(is_new, "{key} was kept twice");
        kept += 1;
    }
    kept
}

/// Gives actors names, and finds each by its name, until it is told to end.
fn keep_names(daemon: &Daemon, over: &AtomicBool) -> Vec<CounterHandle> {
    let session = Session::connect(daemon.attach_directory().to_str().expect("text")).expect("attached");
    let _entered = session.enter();
    let mut named = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let name = format!("name {}", named.len());
        let counter = Counter::options().name(&name).detached().remote(named.len() as u64);
        Counter::find(&name).expect("its name is granted");
        named.push(counter);
    }
    named
}

/// Calls an actor of the other node until it is told to end; gives how often.
fn call(daemon: &Daemon, over: &AtomicBool, calls: &AtomicU64) {
    let session = Session::connect(daemon.attach_directory().to_str().expect("text")).expect("attached");
    let _entered = session.enter();
    let counter = Counter::find("called").expect("it lives on the other node");
    while !over.load(Ordering::Relaxed) {
        let total = counter.add(1).get_timeout(PATIENCE).expect("calls go on");
        assert_eq!(total, calls.fetch_add(1, Ordering::Relaxed) + 1, "each call once");
    }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// Kills the control process at random instants, some while it starts.
fn kill_again_and_again(head: &mut Head, seed: u64) -> u32 {
    let (began, mut state, mut rounds) = (Instant::now(), seed.max(1), 0);
    while rounds < ROUNDS_MIN || began.elapsed() < ROUNDS_TIME {
        std::thread::sleep(Duration::from_millis(random(&mut state, 300)));
        head.kill();
        head.child = spawn(&head.directory);
        if random(&mut state, 4) == 0 {
            std::thread::sleep(Duration::from_millis(random(&mut state, 40)));
            head.kill();
            head.child = spawn(&head.directory);
        }
        head.wait_until_ready();
        rounds += 1;
    }
    rounds
}

#[test]
fn what_was_acknowledged_survives_and_nobody_else_notices() {
    if let Some(directory) = std::env::var_os(CONTROL) {
        return be_control(directory.into());
    }
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = std::env::var("AKTIS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(clock);
    println!("AKTIS_SEED={seed}");
    let parent = tempfile::tempdir().expect("a directory");
    let mut head = Head::start(&parent.path().join("head"));
    let [one, two] = ["one", "two"].map(|name| node(&parent.path().join(name), head.member()));
    let linked = Instant::now();
    while one.linked_nodes() + two.linked_nodes() < 2 {
        assert!(linked.elapsed() < PATIENCE, "the nodes have not found each other");
        std::thread::yield_now();
    }
    let session = Session::connect(one.attach_directory().to_str().expect("text")).expect("attached");
    let _entered = session.enter();
    let called = Counter::options().name("called").detached().remote(0);
    assert_eq!(called.add(0).get_timeout(PATIENCE).expect("it lives"), 0);
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let (values, names, rounds) = std::thread::scope(|scope| {
        let values: Vec<_> = [&one, &two]
            .into_iter()
            .zip(0..)
            .map(|(daemon, writer)| {
                scope.spawn({
                    let over = &over;
                    move || keep_values(daemon, writer, over)
                })
            })
            .collect();
        let names = scope.spawn(|| keep_names(&one, &over));
        scope.spawn(|| call(&two, &over, &calls));
        let rounds = kill_again_and_again(&mut head, seed);
        over.store(true, Ordering::Relaxed);
        let values: Vec<u64> = values.into_iter().map(|thread| thread.join().expect("no failure")).collect();
        (values, names.join().expect("no failure"), rounds)
    });
    let kept: u64 = values.iter().sum();
    let calls = calls.into_inner();
    println!("{rounds} rounds, {kept} values, {} names, {calls} calls", names.len());
    assert!(kept > 0 && !names.is_empty() && calls > 0, "all of it went on");
    let reader = Runtime::attach(&two.attach_directory(), Config::default()).expect("attached");
    for (writer, kept) in values.into_iter().enumerate() {
        for number in 0..kept {
            let key = format!("{writer}/{number}");
            let value = reader.key_get(key.as_bytes()).expect("an answer");
            assert_eq!(value.as_deref(), Some(key.as_bytes()), "AKTIS_SEED={seed}");
        }
    }
    let other = Session::connect(two.attach_directory().to_str().expect("text")).expect("attached");
    let _entered = other.enter();
    for number in 0..names.len() as u64 {
        let found = Counter::find(&format!("name {number}")).expect("AKTIS_SEED={seed}");
        assert_eq!(found.add(1).get_timeout(PATIENCE).expect("it lives"), number + 1);
    }
}
