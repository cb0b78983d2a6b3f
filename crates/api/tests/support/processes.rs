//! Processes in tests: killing them, starting this program again in another part, and what must not be left behind.

use rustix::process::{Pid, Signal};
use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Names the part that this program plays, where a test has started it again.
const PART: &str = "AKTIS_TEST_PART";

/// What this process is to do instead of the test, if it was started by one.
pub(crate) fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// This program again: it runs only the test with this name, which finds its part.
pub(crate) fn again(test: &str, part: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = if interrupts_are_ignored() {
        // Some shells start what runs in the background so, and it would be inherited.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PART, part);
    command
}

fn interrupts_are_ignored() -> bool {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & 1 << (Signal::INT.as_raw() - 1) != 0
}

/// The same, by way of a shell that first runs `before`.
pub(crate) fn again_after(before: &str, test: &str, part: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{before} exec \"$0\" --exact {test} --nocapture --test-threads=1");
    command.args(["-c", &script]).arg(std::env::current_exe().expect("this program")).env(PART, part);
    command
}

/// The same, with a small disk of its own over a directory; nothing where the system does not allow that.
pub(crate) fn again_with_disk(directory: &Path, kilobytes: u32, test: &str, part: &str) -> Option<Command> {
    let mount = |then: &str| {
        let directory = directory.display();
        let inside = format!("mount -t tmpfs -o size={kilobytes}k none {directory} && {then}");
        format!("exec unshare --user --map-root-user --mount sh -c '{inside}' \"$0\"")
    };
    let tried = Command::new("sh").args(["-c", &mount("true"), "true"]).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system does not allow a mount namespace");
        return None;
    }
    let mut command = Command::new("sh");
    let run = format!("exec \"$0\" --exact {test} --nocapture --test-threads=1");
    command.args(["-c", &mount(&run)]).arg(std::env::current_exe().expect("this program")).env(PART, part);
    Some(command)
}

/// Runs a command to its end; a command that does not end in time is killed, and that is a failure.
pub(crate) fn output_within(mut command: Command, patience: Duration) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("started");
    let pid = child.id();
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let errors = std::thread::spawn(move || read_all(&mut err));
    let words = std::thread::spawn(move || read_all(&mut out));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("waited for") {
            break status;
        }
        if begin.elapsed() > patience {
            let threads = stacks(pid);
            let _ = child.kill();
            panic!(
                "it did not end within {patience:?}: {:?}{:?}{threads}",
                words.join().map(text),
                errors.join().map(text)
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    Output { status, stdout: words.join().expect("read"), stderr: errors.join().expect("read") }
}

fn stacks(pid: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| {
            let read = |file: &str| read_to_string(thread.path().join(file)).unwrap_or_default();
            format!("\n{} waits in {}", read("comm").trim(), read("wchan"))
        })
        .collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    bytes
}

/// All that a process has said.
pub(crate) fn said(output: &Output) -> String {
    text(output.stdout.clone()) + &text(output.stderr.clone())
}

fn id(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("not zero")
}

/// Kills a process, as `kill -9` does; one that is dead already stays so.
pub(crate) fn kill(pid: u32) {
    let _ = rustix::process::kill_process(id(pid), Signal::KILL);
}

/// Sends SIGINT to all processes of a group, as the terminal does.
pub(crate) fn interrupt_group(leader: &Child) {
    rustix::process::kill_process_group(id(leader.id()), Signal::INT).expect("it runs");
}

/// Whether a process is there and not only waits to be reaped.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// What a process has that a session could leave behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belongings {
    children: BTreeSet<u32>,
    descriptors: usize,
    mappings: usize,
    threads: BTreeSet<String>,
}

impl Belongings {
    /// Those of this process. It only makes sense in a process that runs a single test.
    pub(crate) fn now() -> Self {
        let maps = read_to_string("/proc/self/maps").expect("mappings");
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
        Self {
            children: children(),
            descriptors,
            mappings: maps.lines().filter(|line| line.contains("memfd:aktis")).count(),
            threads: threads(),
        }
    }
}

/// The processes whose parent is this one, also those that wait to be reaped.
fn children() -> BTreeSet<u32> {
    let me = std::process::id().to_string();
    let numbers = std::fs::read_dir("/proc").expect("processes").flatten();
    let processes = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&me))
    };
    processes.filter(is_child).collect()
}

fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    tasks.filter_map(|task| read_to_string(task.path().join("comm")).ok()).collect()
}

/// Numbers that look random, the same in each run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Lets up to so many microseconds pass, so that what comes next comes at any instant.
    pub(crate) fn dawdle(&mut self, microseconds_max: u64) {
        let time = Duration::from_micros(self.below(microseconds_max));
        std::thread::park_timeout(time);
    }
}
