//! Daemons that are started and ended by commands.

use crate::snapshot::aktis;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a command, and returns what it printed and its exit code.
fn run(directory: &Path, arguments: &[&str]) -> (String, String, i32) {
    told(aktis(directory).args(arguments).output().expect("it runs"))
}

fn told(output: Output) -> (String, String, i32) {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.code().expect("it was not killed"))
}

/// A daemon in the foreground, and the first line that it has printed.
///
/// The kernel chooses its port: other tests listen on the default one while this daemon is down.
fn start(directory: &Path) -> (Child, String) {
    let mut child = aktis(directory)
        .args(["start", "--head", "--listen", "127.0.0.1:0", "--cpus", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line)
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("aktis");
    (parent, path)
}

/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process of the node of a machine.
fn node(directory: &Path) -> Pid {
    let status: serde_json::Value =
        serde_json::from_str(&run(directory, &["status", "--json"]).0).expect("JSON");
    let pid = status["nodes"][0]["pid"].as_i64().expect("a process");
    Pid::from_raw(pid as i32).expect("a process")
}

#[test]
fn signals_end_a_daemon_in_the_foreground() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (_parent, path) = directory();
        let (mut child, line) = start(&path);
        assert!(line.starts_with("node ") && line.contains(&path.display().to_string()), "{line}");
        kill_process(Pid::from_child(&child), signal).expect("sent");
        assert!(child.wait().expect("ended").success(), "{signal:?} is no failure");
        assert!(!path.join("aktis.sock").exists());
        assert_eq!(run(&path, &["status"]).2, 1);
    }
}

#[test]
fn a_control_process_that_was_killed_leaves_nothing_in_the_way() {
    let (_parent, path) = directory();
    let (mut child, first) = start(&path);
    let (_, errors, code) = run(&path, &["start", "--head"]);
    assert!(code == 1 && errors.contains(&format!("already, as process {}", child.id())), "{errors}");
    child.kill().expect("killed");
    child.wait().expect("dead");
    until("the loss of the control process", || run(&path, &["status"]).2 == 3);
    let (printed, errors, _) = run(&path, &["status"]);
    assert!(printed.contains("1 node alive") && errors.contains("control process is down"), "{errors}");
    let (mut child, second) = start(&path);
    assert_eq!(first.split(' ').nth(1), second.split(' ').nth(1), "it is the same node");
    assert_eq!(run(&path, &["stop"]), ("the node of this machine has ended\n".into(), String::new(), 0));
    assert!(child.wait().expect("ended").success());
    assert!(run(&path, &["status"]).1.contains("no node of aktis runs in"));
}

#[test]
fn a_daemon_in_the_background_is_ready_when_the_command_returns() {
    let (_parent, path) = directory();
    let (printed, errors, code) = run(&path, &["start", "--head", "--cpus", "3", "--detach"]);
    assert_eq!((errors.as_str(), code), ("", 0));
    let control =
        printed.split("as process ").nth(1).and_then(|rest| rest.split(';').next()).expect("its process");
    let status = run(&path, &["status", "--json"]).0;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["resources"]["CPU"]["total"], 3);
    let node = status["nodes"][0]["pid"].to_string();
    for pid in [control, node.as_str()] {
        let session = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let fields: Vec<&str> = session.rsplit(") ").next().expect("fields").split(' ').collect();
        assert_eq!(fields[3], pid, "it has a session of its own");
    }

    let (_, errors, code) = run(&path, &["start", "--head", "--detach"]);
    assert!(code == 1 && errors.contains("already, as process") && errors.contains("hint: "), "{errors}");
    assert_eq!(run(&path, &["stop"]).2, 0);
    assert_eq!(run(&path, &["stop"]).2, 1);
}

#[test]
fn a_daemon_that_dies_before_it_is_ready_is_noticed() {
    let (parent, path) = directory();
    std::fs::write(parent.path().join("file"), "").expect("written");
    let (_, errors, code) = run(&parent.path().join("file"), &["start", "--head", "--detach"]);
    assert!(code == 1 && errors.contains("is not a directory"), "{errors}");
    // A socket cannot be made there: the daemon itself finds out.
    let long = path.join("x".repeat(100));
    let (_, errors, code) = run(&long, &["start", "--head", "--detach"]);
    assert!(code == 1 && errors.contains("too long for a socket"), "{errors}");
    let (_, errors, code) = run(&path, &["start", "--head", "--detach", "--listen", "192.0.2.1:0"]);
    assert!(code == 1 && errors.contains("hint: name an address of this machine"), "{errors}");
}

#[test]
fn the_directory_is_found_by_the_environment() {
    let (parent, _) = directory();
    let missing = |command: &mut Command| {
        let (_, errors, code) = told(command.arg("status").output().expect("it runs"));
        assert_eq!(code, 1);
        errors
    };
    let place = |path: &Path| format!("no node of aktis runs in {}\n", path.display());
    let (first, second) = (parent.path().join("first"), parent.path().join("second"));
    let found = missing(aktis(&first).env("XDG_RUNTIME_DIR", &second));
    assert!(found.contains(&place(&first)), "{found}");
    let found = missing(aktis(&first).env("AKTIS_DIRECTORY", "").env("XDG_RUNTIME_DIR", &second));
    assert!(found.contains(&place(&second.join("aktis"))), "{found}");
    let found = missing(aktis(&first).args(["--directory", &second.display().to_string()]));
    assert!(found.contains(&place(&second)), "{found}");
    let found = missing(aktis(&first).current_dir(parent.path()).args(["--directory", "second"]));
    assert!(found.contains(&place(&second)), "{found}");
}

#[test]
fn a_relative_directory_means_the_same_to_all_processes() {
    let (parent, _) = directory();
    std::fs::create_dir(parent.path().join("big")).expect("made");
    let aktis = |variable: &str, arguments: &[&str]| {
        let mut command = aktis(Path::new(variable));
        told(command.current_dir(parent.path()).args(arguments).output().expect("it runs"))
    };
    for (variable, option) in [("", &["--directory", "here"][..]), ("here", &[])] {
        let start = ["start", "--head", "--detach", "--cpus", "1", "--spill-directory", "big"];
        let (_, errors, code) = aktis(variable, &[&start, option].concat());
        assert_eq!((errors.as_str(), code), ("", 0));
        let (printed, errors, code) = aktis(variable, &[&["status"], option].concat());
        assert_eq!((errors.as_str(), code), ("", 0), "{printed}");
        assert_eq!(aktis(variable, &[&["stop"], option].concat()).2, 0);
        assert!(!parent.path().join("here/here").exists());
    }
}

/// A node in the background that waits for a head which is not there, when its command has said so.
fn waiting(directory: &Path, address: &str, token: &str) -> (Child, String) {
    let mut child = aktis(directory)
        .args(["start", "--detach", "--address", address, "--token", token, "--cpus", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line)
}

#[test]
fn a_node_that_waits_for_its_head_can_be_seen_and_ended() {
    let (_head_parent, head) = directory();
    assert_eq!(run(&head, &["start", "--head", "--detach", "--cpus", "1"]).2, 0);
    let token: serde_json::Value = serde_json::from_str(&run(&head, &["token", "--json"]).0).expect("JSON");
    let (address, token) = (token["address"].as_str().expect("text"), token["token"].as_str().expect("text"));
    assert_eq!(run(&head, &["stop"]).2, 0);

    let (_parent, path) = directory();
    let (mut child, line) = waiting(&path, address, token);
    assert!(line.contains(&format!("the control process at {address} does not answer")), "{line}");
    let (_, errors, code) = run(&path, &["status"]);
    assert!(code == 1 && errors.contains("does not listen: it is being started"), "{errors}");
    assert_eq!(run(&path, &["stop"]), ("the node of this machine has ended\n".into(), String::new(), 0));
    assert_eq!(child.wait().expect("ended").code(), Some(1));
    assert!(run(&path, &["stop"]).1.contains("no node of aktis runs in"));

    let (mut child, _) = waiting(&path, address, token);
    child.kill().expect("killed");
    child.wait().expect("dead");
    until("the end of the daemon", || run(&path, &["status"]).1.contains("no node of aktis runs in"));
}

#[test]
fn the_log_is_bounded_while_daemons_write_to_it() {
    let (_parent, path) = directory();
    assert_eq!(run(&path, &["start", "--head", "--detach", "--cpus", "1"]).2, 0);
    let log = std::fs::OpenOptions::new().write(true).open(path.join("daemon.log")).expect("its log");
    log.set_len(64 << 20).expect("lengthened");
    until("a log that begins anew", || log.metadata().expect("known").len() < 16 << 20);
    assert!(path.join("daemon.log.old").metadata().expect("put aside").len() <= 16 << 20);
    assert_eq!(run(&path, &["stop"]).2, 0);
}

#[test]
fn a_node_that_was_killed_is_started_again_beside_its_control_process() {
    let (_parent, path) = directory();
    let (mut child, _) = start(&path);
    let killed = node(&path);
    kill_process(killed, Signal::KILL).expect("sent");
    until("the end of the node", || run(&path, &["status"]).1.contains("no node of aktis runs in"));
    let (_, errors, code) = run(&path, &["start", "--head", "--detach", "--cpus", "1"]);
    assert_eq!((errors.as_str(), code), ("", 0));
    assert_ne!(node(&path), killed);
    let (_, errors, code) = run(&path, &["start", "--head", "--detach"]);
    assert!(code == 1 && errors.contains(&format!("already, as process {}", child.id())), "{errors}");
    assert_eq!(run(&path, &["stop"]).2, 0);
    assert!(child.wait().expect("ended").success());
    assert!(run(&path, &["status"]).1.contains("no node of aktis runs in"));
}

/// Whether a line of a log begins with a time of UTC and a level.
fn is_dated(line: &str) -> bool {
    let (time, rest) = line.split_once(' ').unwrap_or_default();
    let levels = ["INFO ", "WARN ", "ERROR", "OUT  ", "ERR  "];
    aktis_protocol::text::parse_rfc3339(time).is_some_and(|milliseconds| milliseconds > 1_700_000_000_000)
        && time.ends_with('Z')
        && levels.iter().any(|level| rest.starts_with(level))
}

#[test]
fn lines_of_node_and_control_process_have_times_and_are_among_the_logs() {
    let (_parent, path) = directory();
    assert_eq!(run(&path, &["start", "--head", "--detach", "--cpus", "1"]).2, 0);
    let address =
        serde_json::from_str::<serde_json::Value>(&run(&path, &["token", "--json"]).0).expect("JSON");
    let address = address["address"].as_str().expect("text").to_owned();
    let mut stranger = std::net::TcpStream::connect(&address).expect("it listens");
    std::io::Write::write_all(&mut stranger, b"no TLS\n").expect("sent");
    let has = |since: &str, text: &str| run(&path, &["logs", "--since", since]).0.contains(text);
    until("the line of the control process", || has("10m", "WARN refused a connection from 127.0.0.1"));
    assert!(has("10m", "(control pid=") && has("10m", "(daemon pid="), "{}", run(&path, &["logs"]).0);
    assert!(!has("2100-01-01T00:00Z", "pid="), "nothing is from the future");
    assert_eq!(run(&path, &["stop"]).2, 0);
    let log = std::fs::read_to_string(path.join("daemon.log")).expect("read");
    for words in ["control: refused a connection", "control: it listens on", "node: it ends"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(log.lines().all(is_dated), "{log}");
}

#[test]
fn the_node_of_a_head_listens_at_the_port_that_is_named() {
    let (_parent, path) = directory();
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).expect("a port");
    let port = free.port().to_string();
    assert_eq!(run(&path, &["start", "--head", "--detach", "--node-port", &port]).2, 0);
    let status: serde_json::Value = serde_json::from_str(&run(&path, &["status", "--json"]).0).expect("JSON");
    assert_eq!(status["nodes"][0]["address"], format!("127.0.0.1:{port}"));
    assert_eq!(run(&path, &["stop"]).2, 0);
}

fn json(directory: &Path, arguments: &[&str]) -> serde_json::Value {
    let (printed, errors, code) = run(directory, arguments);
    assert_eq!(code, 0, "{arguments:?}: {errors}");
    serde_json::from_str(&printed).expect("JSON")
}

#[test]
fn a_head_goes_on_in_another_directory_from_a_backup() {
    let (parent, path) = directory();
    let (_, errors, code) = run(&path, &["backup", "no.tar"]);
    assert!(code == 1 && errors.contains("no control process was ever started"), "{errors}");
    let started = json(&path, &["start", "--head", "--cpus", "1", "--detach", "--json"]);
    assert_eq!(json(&path, &["status", "--json"])["node"], started["node"]);
    assert!(started["token"].as_str().is_some_and(|token| token.starts_with("aktis1.")), "{started}");
    let file = parent.path().join("cluster.tar");
    let told = json(&path, &["backup", &file.display().to_string(), "--json"]);
    assert!(told["files"].as_u64().is_some_and(|files| files > 3), "{told}");
    let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().expect("a file"));
    assert_eq!(mode & 0o777, 0o600, "it has the keys of the cluster");
    let (_, errors, code) = run(&path, &["backup", &file.display().to_string()]);
    assert!(code == 1 && errors.contains("hint: name a file that does not exist"), "{errors}");
    let (_, errors, code) = run(&path, &["restore", &file.display().to_string()]);
    assert!(code == 1 && errors.contains("there is something in"), "{errors}");
    assert_eq!(json(&path, &["stop", "--json"])["ended"], "node");

    let second = parent.path().join("second");
    json(&second, &["restore", &file.display().to_string(), "--json"]);
    let authority =
        |directory: &Path| std::fs::read(directory.join("control/authority/authority.key")).unwrap();
    assert_eq!(authority(&second), authority(&path), "it is the same cluster");
    json(&second, &["start", "--head", "--cpus", "1", "--detach", "--json"]);
    until("the node of the first directory is told of as dead", || {
        let dead = json(&second, &["list", "nodes", "--state", "dead", "--json"]);
        dead["nodes"].as_array().is_some_and(|rows| rows.iter().any(|row| row["id"] == started["node"]))
    });
    assert_eq!(run(&second, &["stop"]).2, 0);
}

#[test]
fn a_service_is_configured_by_a_file_and_tells_systemd_when_it_is_ready() {
    let (parent, path) = directory();
    let settings = parent.path().join("aktis.conf");
    std::fs::write(&settings, "# a head\nhead = true\ncpus = 3\nlabel = zone=a\n").expect("written");
    let place = parent.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&place).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut child = aktis(&path)
        .args(["start", "--config", &settings.display().to_string(), "--cpus", "2", "--json"])
        .env("NOTIFY_SOCKET", &place)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let told = |state: &str| {
        let mut datagram = [0; 64];
        let length = manager.recv(&mut datagram).expect("told in time");
        assert_eq!(&datagram[..length], state.as_bytes());
    };
    told("READY=1");
    let status = json(&path, &["status", "--json"]);
    assert_eq!(status["resources"]["CPU"]["total"], 2, "the command line goes before the file");
    assert_eq!(status["nodes"][0]["labels"]["zone"], "a");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("sent");
    told("STOPPING=1");
    assert!(child.wait().expect("ended").success());
    let greeting: serde_json::Value =
        serde_json::from_reader(child.stdout.take().expect("a pipe")).expect("JSON, and nothing else");
    assert_eq!(greeting["node"], status["node"]);
}

/// Units are checked by systemd itself, where it is installed.
#[test]
fn systemd_accepts_the_units() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let folder = tempfile::tempdir().expect("a directory");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(units).expect("units") {
        let entry = entry.expect("a unit");
        let text = std::fs::read_to_string(entry.path()).expect("text");
        let text = text.replace("/usr/local/bin/aktis", env!("CARGO_BIN_EXE_aktis"));
        files.push(folder.path().join(entry.file_name()));
        std::fs::write(files.last().expect("one"), text).expect("written");
    }
    assert_eq!(files.len(), 2);
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&files).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        output => {
            let (printed, errors, code) = told(output.expect("it runs"));
            assert_eq!((code, printed.as_str(), errors.as_str()), (0, "", ""));
        }
    }
}
