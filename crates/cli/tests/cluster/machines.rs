//! Clusters whose nodes are processes: each is the program `aktis`, in a directory of its own.

use aktis::Session;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that is not about time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A daemon, which does not outlive this. On the head it is the child of the control process.
pub(crate) struct Machine {
    pub(crate) path: PathBuf,
    child: Child,
}

impl Machine {
    pub(crate) fn start(path: PathBuf, arguments: &[&str]) -> Self {
        let mut machine = Self::begin(path, arguments);
        machine.wait_until_ready();
        machine
    }

    /// Starts it, and does not wait until it is there.
    pub(crate) fn begin(path: PathBuf, arguments: &[&str]) -> Self {
        let child = spawn(&mut aktis(&path), arguments);
        Self { path, child }
    }

    /// Starts it by a command of the caller's, which becomes `aktis`; gives what it says when it is ready.
    pub(crate) fn start_by(mut command: Command, path: PathBuf, arguments: &[&str]) -> (Self, Vec<String>) {
        command.env("AKTIS_DIRECTORY", &path).stdin(Stdio::null());
        let mut machine = Self { child: spawn(&mut command, arguments), path };
        let words = machine.wait_until_ready();
        (machine, words)
    }

    fn wait_until_ready(&mut self) -> Vec<String> {
        let output = BufReader::new(self.child.stdout.take().expect("a pipe"));
        let words: Vec<String> =
            output.lines().map(|line| line.expect("a line")).take_while(|line| !line.is_empty()).collect();
        assert!(words.first().is_some_and(|line| line.starts_with("node ")), "it has not started: {words:?}");
        words
    }

    /// What it says to people.
    pub(crate) fn errors(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().expect("a pipe"))
    }

    /// The process of its node.
    pub(crate) fn pid(&self) -> u32 {
        self.holder().expect("it runs")
    }

    /// The same, unless it has just ended.
    fn holder(&self) -> Option<u32> {
        std::fs::read_to_string(self.path.join("lock")).ok()?.trim().parse().ok()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).expect("a process"), signal).expect("it runs");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it has run")
    }

    /// Whether the process that was started has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it has run").is_some()
    }

    /// Kills it as a machine dies: it can say nothing any more.
    pub(crate) fn kill(&mut self) {
        self.kill_control();
        // It has the lock for as long as it lives.
        let lock = std::fs::File::open(self.path.join("lock")).expect("it has run");
        while lock.try_lock().is_err() {
            if let Some(pid) = self.holder().and_then(|pid| Pid::from_raw(pid as i32)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills the process that was started: on the head, the control process alone.
    pub(crate) fn kill_control(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("it is dead");
    }

    /// Ends the process that was started by the signal of service managers, and waits for its end.
    pub(crate) fn terminate(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        self.child.wait().expect("it has run");
    }

    /// Starts the control process again.
    pub(crate) fn start_control(&mut self) {
        self.start_again(&["--head"]);
    }

    /// Starts what has ended again, in the same directory.
    pub(crate) fn start_again(&mut self, arguments: &[&str]) {
        self.child = spawn(&mut aktis(&self.path), arguments);
        self.wait_until_ready();
    }

    /// What a command says to programs.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = run(&self.path, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        // 3: a node or the control process does not answer, and the answer is there all the same.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{arguments:?}: {errors}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// A number about its object store.
    pub(crate) fn store(&self, field: &str) -> u64 {
        let status = self.json(&["status", "--json"]);
        let nodes = status["nodes"].as_array().expect("a list");
        let own = nodes.iter().find(|node| node["id"] == status["node"]).expect("the node itself");
        own["store"][field].as_u64().expect("a number")
    }

    /// How many there are of something.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.json(&["list", what, "--json"])[what].as_array().expect("a list").len()
    }

    /// The nodes that it has links to, and itself.
    pub(crate) fn alive(&self) -> usize {
        self.json(&["list", "nodes", "--state", "alive", "--json"])["nodes"].as_array().expect("a list").len()
    }

    /// The members of its cluster, as it knows them, with links or without.
    pub(crate) fn members(&self) -> usize {
        self.json(&["status", "--json"])["nodes"].as_array().expect("a list").len()
    }

    /// What is in use or kept on it.
    fn remains(&self) -> Vec<Value> {
        let listed =
            |what: &str| self.json(&["list", what, "--json"])[what].as_array().expect("a list").clone();
        let cpus = &listed("nodes")[0]["resources"]["CPU"];
        let used = (cpus["available"] != cpus["total"]).then(|| cpus.clone());
        used.into_iter().chain(listed("objects")).chain(listed("actors")).collect()
    }

    pub(crate) fn session(&self) -> Session {
        Session::connect(self.path.join("node").to_str().expect("text")).expect("a session")
    }
}

fn spawn(command: &mut Command, arguments: &[&str]) -> Child {
    command.arg("start").args(arguments);
    if !arguments.contains(&"--store-bytes") {
        command.args(["--store-bytes", "128MiB"]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may be stopped, or dead.
        if self.path.join("lock").exists() {
            self.kill();
        }
        self.kill_control();
    }
}

/// A head and its members.
pub(crate) struct Cluster {
    pub(crate) machines: Vec<Machine>,
    pub(crate) directory: tempfile::TempDir,
    /// How many have joined, those that are gone included.
    joined: u32,
}

impl Cluster {
    /// The head has so many CPUs, and each member as many as is said.
    pub(crate) fn new(head_cpus: u32, members: &[u32]) -> Self {
        Self::new_with(head_cpus, members, &[])
    }

    /// The same, with more arguments for each of them.
    pub(crate) fn new_with(head_cpus: u32, members: &[u32], more: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let cpus = head_cpus.to_string();
        let head = Machine::start(
            directory.path().join("0"),
            &[&["--head", "--listen", "127.0.0.1:0", "--cpus", &cpus], more].concat(),
        );
        let mut cluster = Self { machines: vec![head], directory, joined: 0 };
        members.iter().for_each(|cpus| cluster.join_with(*cpus, more));
        cluster.wait_for_links();
        cluster
    }

    /// Adds a member.
    pub(crate) fn join(&mut self, cpus: u32) {
        self.join_with(cpus, &[]);
    }

    /// Adds a member that is started with more arguments.
    pub(crate) fn join_with(&mut self, cpus: u32, more: &[&str]) {
        let (address, token) = self.invitation();
        let cpus = cpus.to_string();
        let usual = ["--address", &address, "--token", &token, "--cpus", &cpus];
        let path = self.next_path();
        self.joined += 1;
        self.machines.push(Machine::start(path, &[&usual, more].concat()));
    }

    /// What a machine needs to join: the head's address, and a token.
    pub(crate) fn invitation(&self) -> (String, String) {
        let token = self.head().json(&["token", "--json"]);
        let text = |name: &str| token[name].as_str().expect("text").to_owned();
        (text("address"), text("token"))
    }

    /// The directory of the next machine.
    pub(crate) fn next_path(&self) -> PathBuf {
        self.directory.path().join((self.joined + 1).to_string())
    }

    pub(crate) fn head(&self) -> &Machine {
        &self.machines[0]
    }

    /// Waits until all nodes have links to all others.
    pub(crate) fn wait_for_links(&self) {
        for machine in &self.machines {
            until("the nodes have found each other", || machine.alive() == self.machines.len());
        }
    }

    /// Waits until nothing is in use or kept anywhere.
    pub(crate) fn wait_until_empty(&self) {
        let deadline = Instant::now() + PATIENCE;
        for (number, machine) in self.machines.iter().enumerate() {
            loop {
                let remains = machine.remains();
                if remains.is_empty() {
                    break;
                }
                assert!(Instant::now() < deadline, "left on machine {number}: {remains:#?}");
            }
        }
    }

    /// The machine whose daemon has started these processes.
    pub(crate) fn machine_of(&self, ancestors: &[u32]) -> usize {
        let is_it = |machine: &Machine| machine.holder().is_some_and(|pid| ancestors.contains(&pid));
        self.machines.iter().position(is_it).expect("one of the machines")
    }

    /// A directory that tasks of this cluster can use.
    pub(crate) fn board(&self) -> String {
        let board = self.directory.path().join("board");
        std::fs::create_dir_all(&board).expect("a directory");
        board.to_str().expect("text").to_owned()
    }
}

/// The command, about the daemon in a directory.
pub(crate) fn aktis(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aktis"));
    command.env("AKTIS_DIRECTORY", directory).stdin(Stdio::null());
    command
}

pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Output {
    aktis(directory).args(arguments).output().expect("it runs")
}

/// The processes that have started this one, the nearest first.
pub(crate) fn ancestors() -> Vec<u32> {
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
        (parent > 1).then_some(parent)
    };
    std::iter::successors(Some(std::process::id()), parent).skip(1).collect()
}
