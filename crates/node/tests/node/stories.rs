//! The stories: what the driver does in each, and what is to be seen from outside.

use crate::worker::sign_of_life;
use crate::{MANNERS, STORY};
use aktis_node::{EmbeddedNode, NodeOptions, OutputOptions, WorkerProgram};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use aktis_protocol::limits;
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    Amount, DeathCause, EntryRef, GroupId, GroupPlace, GroupSpec, Labels, ObjectId, ProcessSlot, Resources,
    Shape, ShardIndex, TaskId,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub(crate) type Test = (&'static str, fn());

/// All tests, by name.
pub(crate) const TESTS: &[Test] = &[
    ("a_killed_worker_is_reported_with_its_last_words_and_replaced", || tell("killed worker", "")),
    ("workers_killed_again_and_again_are_replaced", || tell("many deaths", "")),
    ("a_worker_that_exits_is_reported_with_its_code", || tell("worker exits", "exits")),
    ("a_worker_that_does_not_listen_is_killed_at_shutdown", || tell("shutdown", "deaf")),
    ("objects_go_to_disk_and_come_back", || tell("spill", "")),
    ("without_a_disk_what_does_not_fit_is_refused", || tell("nothing spilled", "")),
    ("a_full_store_and_a_missing_directory_are_explained", || tell("no directory", "")),
    ("a_worker_that_cannot_be_started_is_reported", || tell("no descriptors", "")),
    ("placement_groups_come_and_go_without_end", || tell("groups", "")),
    ("values_are_kept_under_keys", || tell("keys", "")),
    ("a_worker_cannot_speak_as_another_process", || tell("impostor", "impersonates")),
    ("answers_come_in_order_to_many_threads", || tell("many threads", "")),
    ("output_that_nobody_takes_stops_nothing", output_that_nobody_takes_stops_nothing),
    ("workers_print_through_the_driver", workers_print_through_the_driver),
    ("workers_leak_no_descriptor_and_have_no_input", workers_leak_no_descriptor_and_have_no_input),
    ("workers_die_with_a_killed_driver", workers_die_with_a_killed_driver),
];

/// Plays the driver's part in a story; panics if something is wrong.
pub(crate) fn play(story: &str) {
    match story {
        "killed worker" => a_killed_worker(),
        "many deaths" => many_deaths(),
        "stuck output" => stuck_output(),
        "worker exits" => a_worker_exits(),
        "shutdown" => shutdown(),
        "spill" => spill(),
        "nothing spilled" => nothing_spilled(),
        "no directory" => no_directory(),
        "no descriptors" => no_descriptors(),
        "groups" => groups(),
        "keys" => keys(),
        "many threads" => many_threads(),
        "impostor" => crate::impostor::is_not_believed(),
        "print" => drop(Driver::with_worker()),
        "sit" => sit(),
        other => panic!("no story is called {other}"),
    }
}

pub(crate) fn driver(story: &str, manners: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(STORY, story).env(MANNERS, manners).stdin(Stdio::null());
    command
}

pub(crate) fn tell(story: &str, manners: &str) {
    let status = driver(story, manners).status().expect("started");
    assert!(status.success(), "the driver of `{story}` ended with {status}");
}

// In the driver.

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Driver {
    pub(crate) node: Arc<EmbeddedNode>,
    answers: Receiver<FromNode>,
}

pub(crate) fn options() -> NodeOptions {
    NodeOptions {
        labels: Labels::new(),
        resources: Resources::none().with(CPU, Amount::units(2)),
        store_bytes: 1 << 20,
        spill_directory: std::env::temp_dir(),
        spill_bytes_max: u64::MAX,
        spill_above_percent: aktis_node::SPILL_ABOVE_PERCENT_DEFAULT,
        output: OutputOptions::default(),
        workers: WorkerProgram::ThisProgram,
    }
}

fn silent() -> OutputOptions {
    OutputOptions { forward: false, ..OutputOptions::default() }
}

impl Driver {
    pub(crate) fn start(options: NodeOptions) -> Self {
        let (sender, answers) = channel();
        let deliver = Box::new(move |message| drop(sender.send(message)));
        Self { node: EmbeddedNode::start(options, deliver).expect("started"), answers }
    }

    /// A driver whose first worker is at work.
    fn with_worker() -> Self {
        let driver = Self::start(options());
        driver.worker_pid();
        driver
    }

    pub(crate) fn wait_for<T>(&self, mut wanted: impl FnMut(FromNode) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.answers.recv_timeout(left).expect("an answer in time");
            if let Some(found) = wanted(answer) {
                return found;
            }
        }
    }

    /// Waits until a worker has said that it is alive, and tells who.
    fn worker_pid(&self) -> u32 {
        self.pid_in(sign_of_life(self.node.session()))
    }

    /// Waits for an object that is a process id.
    pub(crate) fn pid_in(&self, object: ObjectId) -> u32 {
        self.node.send(ToNode::Subscribed { object });
        let value = self.wait_for(|answer| match answer {
            FromNode::ObjectResolved { object: resolved, value } if resolved == object => Some(value),
            _ => None,
        });
        let SharedValue::Inline { bytes, .. } = value else { panic!("no sign of life: {value:?}") };
        u32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }

    pub(crate) fn death(&self) -> (ProcessSlot, DeathCause) {
        self.wait_for(|answer| match answer {
            FromNode::ProcessDied { process, cause } => Some((process, cause)),
            _ => None,
        })
    }

    pub(crate) fn put(&self, number: u64, byte: u8, bytes: u64) -> Result<EntryRef, String> {
        let object = self.object(number);
        self.node.send(ToNode::ExtentWanted { request: 1, object, bytes });
        let entry = self.wait_for(|answer| match answer {
            FromNode::ExtentGranted { request: 1, entry } => Some(Ok(entry)),
            FromNode::ExtentDenied { request: 1, failure } => Some(Err(failure.to_string())),
            _ => None,
        })?;
        let mut writer = self.node.arena().write(entry).expect("granted");
        writer.fill(byte);
        writer.seal();
        self.node.send(ToNode::Sealed { object, holder: ProcessSlot(0) });
        Ok(entry)
    }

    pub(crate) fn object(&self, number: u64) -> ObjectId {
        TaskId::root(self.node.session()).child(number).returns(0)
    }
}

pub(crate) fn pidfd(pid: u32) -> rustix::fd::OwnedFd {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("it runs")
}

pub(crate) fn kill(pid: u32) {
    rustix::process::pidfd_send_signal(pidfd(pid), Signal::KILL).expect("killed");
}

pub(crate) fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn a_killed_worker() {
    let driver = Driver::start(options());
    let pid = driver.worker_pid();
    assert!(driver.node.processes().contains(&(ProcessSlot(1), pid)));
    kill(pid);
    let (process, cause) = driver.death();
    assert_eq!((process, cause.pid, cause.signal), (ProcessSlot(1), pid, Some(9)));
    assert_eq!(cause.stderr_tail, ["these are my words"]);
    assert!(!driver.node.control().is_alive(process));
    driver.node.send(ToNode::DeathHandled { process });
    driver.node.send(ToNode::Released { object: sign_of_life(driver.node.session()) });
    let next = driver.worker_pid();
    assert_ne!(next, pid);
    driver.node.shutdown();
    driver.node.shutdown();
    assert!(!exists(pid) && !exists(next), "nobody is left, not even as a zombie");
    assert_eq!(driver.node.processes(), []);
}

fn many_deaths() {
    let driver = Driver::start(NodeOptions { output: silent(), ..options() });
    let mut seen = Vec::new();
    for _ in 0..40 {
        let pid = driver.worker_pid();
        assert!(!seen.contains(&pid));
        seen.push(pid);
        kill(pid);
        let (process, cause) = driver.death();
        assert_eq!((cause.pid, cause.signal), (pid, Some(9)));
        driver.node.send(ToNode::DeathHandled { process });
        driver.node.send(ToNode::Released { object: sign_of_life(driver.node.session()) });
    }
    driver.worker_pid();
    driver.node.shutdown();
    assert!(seen.into_iter().all(|pid| !exists(pid)));
}

/// The driver's output is locked by the very thread that waits for a worker, which prints without end.
fn stuck_output() {
    let _locked = std::io::stdout().lock();
    let driver = Driver::start(options());
    let pid = driver.worker_pid();
    kill(pid);
    assert_eq!(driver.death().1.pid, pid);
    driver.node.shutdown();
}

fn a_worker_exits() {
    let driver = Driver::start(options());
    let (process, cause) = driver.death();
    assert_eq!((process, cause.signal, cause.exit_code), (ProcessSlot(1), None, Some(3)));
    assert_eq!(cause.stderr_tail, ["these are my words"]);
}

fn shutdown() {
    let driver = Driver::start(options());
    let pid = driver.worker_pid();
    driver.node.shutdown();
    assert!(!exists(pid), "what does not listen is killed");
}

fn spill() {
    let driver = Driver::start(options());
    let entries: Vec<_> = (0..6).map(|n| driver.put(n, n as u8, 300 << 10).expect("room is made")).collect();
    for (number, entry) in entries.iter().enumerate() {
        let object = driver.object(number as u64);
        // Resident objects may be pinned at once; the others after they were asked for, unless others push them out.
        let pin = loop {
            match driver.node.arena().pin(*entry) {
                Ok(pin) => break pin,
                Err(error) => assert_eq!(error, aktis_store::PinError::NotResident),
            }
            driver.node.send(ToNode::RestoreWanted { request: 2, object });
            let restored = driver.wait_for(|answer| match answer {
                FromNode::Restored { request: 2, outcome } => Some(outcome),
                _ => None,
            });
            restored.expect("restored");
        };
        assert!(pin.len() == 300 << 10 && pin.iter().all(|byte| *byte == number as u8));
    }
    let large = driver.put(7, 7, 2 << 20).expect("one that is larger than the store lies on disk");
    let pin = driver.node.arena().pin(large).expect("it is read there");
    assert!(pin.len() == 2 << 20 && pin.iter().all(|byte| *byte == 7));
}

fn nothing_spilled() {
    let driver = Driver::start(NodeOptions { spill_bytes_max: 0, ..options() });
    let refused = driver.put(1, 1, 2 << 20).expect_err("larger than the store");
    assert!(
        refused.contains("larger than the object store") && refused.contains("spill_bytes_max"),
        "{refused}"
    );
    driver.put(2, 1, 900 << 10).expect("room");
    driver.put(3, 1, 900 << 10).expect_err("no room");
}

fn no_directory() {
    let spill_directory = "/nowhere/at-all".into();
    let driver = Driver::start(NodeOptions { spill_directory, ..options() });
    let refused = (0..6).find_map(|number| driver.put(number, 1, 300 << 10).err()).expect("not all fit");
    assert!(refused.contains("/nowhere/at-all"), "{refused}");
    driver.put(10, 1, 1 << 12).expect("small ones fit still");
}

fn no_descriptors() {
    let driver = Driver::start(options());
    let pid = driver.worker_pid();
    let victim = pidfd(pid);
    let files = rustix::process::Resource::Nofile;
    let limit = rustix::process::Rlimit { current: Some(4), ..rustix::process::getrlimit(files) };
    rustix::process::setrlimit(files, limit).expect("limit");
    rustix::process::pidfd_send_signal(&victim, Signal::KILL).expect("killed");
    assert_eq!(driver.death().1.signal, Some(9));
    driver.node.send(ToNode::DeathHandled { process: ProcessSlot(1) });
    let (_, cause) = driver.death();
    assert_eq!(cause.pid, 0);
    assert!(cause.stderr_tail[0].starts_with("it could not be started"), "{cause}");
}

fn many_threads() {
    let driver = Driver::with_worker();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let node = &driver.node;
            scope.spawn(move || {
                for count in 0..500 {
                    let name = "nobody".to_owned();
                    node.send(ToNode::NameWanted { request: thread * 1000 + count, name });
                }
            });
        }
    });
    let mut next = [0; 4];
    for _ in 0..2000 {
        let request = driver.wait_for(|answer| match answer {
            FromNode::ActorFound { request, found: None } => Some(request),
            _ => None,
        });
        let thread = (request / 1000) as usize;
        assert_eq!(request % 1000, next[thread], "in order");
        next[thread] += 1;
    }
}

/// More groups than there are lanes, each with one.
fn groups() {
    let driver = Driver::start(NodeOptions { output: silent(), ..options() });
    for number in 0..limits::LANES_MAX as u64 + 1000 {
        let group = GroupId::created_by(TaskId::root(driver.node.session()).child(number));
        let spec = GroupSpec { group, bundles: vec![Resources::none()], ..GroupSpec::default() };
        driver.node.send(ToNode::GroupWanted { spec });
        let group_place = Some(GroupPlace { group, bundle: Some(0) });
        let shape = Shape { resources: Resources::none(), group: group_place, ..Shape::default() };
        driver.node.send(ToNode::LaneWanted { request: 1, shape, shard: ShardIndex(0) });
        let lane = driver.wait_for(|answer| match answer {
            FromNode::LaneOpened { request: 1, lane } => Some(lane.expect("there is room")),
            _ => None,
        });
        driver.node.send(ToNode::GroupRemoved { group });
        driver.wait_for(|answer| match answer {
            FromNode::LaneRemoved { lane: removed, .. } if removed == lane => Some(()),
            _ => None,
        });
        driver.node.send(ToNode::LaneForgotten { lane });
    }
}

fn keys() {
    let driver = Driver::start(options());
    let key = |name: &str| name.as_bytes().to_vec();
    let ask = |question| {
        driver.node.send(ToNode::KeyAsked { request: 1, question });
        driver.wait_for(|answer| match answer {
            FromNode::KeyAnswered { request: 1, answer } => Some(answer.expect("an answer")),
            _ => None,
        })
    };
    for (name, expected) in [("a/1", false), ("a/2", false), ("b", false), ("a/1", true)] {
        let value = vec![7; limits::KEY_VALUE_BYTES_MAX];
        let answer = ask(KeyQuestion::Put { key: key(name), value, overwrite: true });
        assert_eq!(answer, KeyAnswer::Existed(expected), "{name}");
    }
    let listed = ask(KeyQuestion::List { prefix: key("a/") });
    assert_eq!(listed, KeyAnswer::Keys { keys: vec![key("a/1"), key("a/2")], left_out: 0 });
    for expected in [true, false] {
        let value = expected.then(|| vec![7; limits::KEY_VALUE_BYTES_MAX]);
        assert_eq!(ask(KeyQuestion::Get { key: key("b") }), KeyAnswer::Value(value));
        assert_eq!(ask(KeyQuestion::Delete { key: key("b") }), KeyAnswer::Existed(expected));
    }
}

fn sit() {
    let driver = Driver::start(options());
    println!("worker {}", driver.worker_pid());
    loop {
        std::thread::park();
    }
}

// From outside.

fn output_that_nobody_takes_stops_nothing() {
    let output = driver("stuck output", "chatters").output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn workers_print_through_the_driver() {
    let output = driver("print", "").output().expect("started");
    assert!(output.status.success());
    for (text, words) in [(output.stdout, "hello from a worker"), (output.stderr, "these are my words")] {
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find(|line| line.contains(words)).expect("forwarded");
        assert!(line.starts_with("(worker pid=") && line.ends_with(words), "{line}");
    }
}

fn workers_leak_no_descriptor_and_have_no_input() {
    let output = driver("print", "starts processes").output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("a child process has {} descriptors", crate::worker::inherited_descriptors());
    assert!(text.contains(&expected), "as many as a child of this process: {text}");
    assert!(text.contains("the input holds 0 bytes"), "{text}");
}

fn workers_die_with_a_killed_driver() {
    let mut child: Child = driver("sit", "deaf").stdout(Stdio::piped()).spawn().expect("started");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let worker = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("worker ").map(|pid| pid.parse().expect("a process id")))
        .expect("the worker's process id");
    let worker = pidfd(worker);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let ended = rustix::event::poll(&mut [PollFd::new(&worker, PollFlags::IN)], Some(&second));
    assert_eq!(ended, Ok(1), "the worker is gone within a second");
}
