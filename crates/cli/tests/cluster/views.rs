//! What people see of a cluster, whichever of its machines they ask.

use super::machines::{Cluster, Machine, PATIENCE, aktis, run, until};
use super::{Counter, DRIVER, add, go, linger, numbers, places};
use aktis::prelude::*;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

#[remote]
fn say(words: String) -> u32 {
    println!("{words}");
    std::process::id()
}

pub(super) fn rows(machine: &Machine, arguments: &[&str]) -> Vec<Value> {
    let all = machine.json(&[&["list"], arguments, &["--json"]].concat());
    all[arguments[0]].as_array().expect("a list").clone()
}

pub(super) fn explanation(machine: &Machine, id: &str) -> String {
    machine.json(&["explain", id, "--json"])["explanation"].as_str().expect("text").to_owned()
}

fn node_of(machine: &Machine) -> String {
    machine.json(&["status", "--json"])["node"].as_str().expect("an id").to_owned()
}

#[test]
fn what_nodes_serve_is_kept_by_the_control_process_while_they_are_members() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
    let served = |machine: &Machine| -> BTreeSet<String> {
        let rows = rows(machine, &["programs", "--filter", "language=rust"]);
        rows.iter().map(|row| format!("{} on {}", row["id"], row["node"])).collect()
    };
    let on_both = served(cluster.head());
    assert_eq!(on_both.len(), 2, "{on_both:?}");
    cluster.machines[0].kill_control();
    cluster.machines[0].start_control();
    until("the member is told of them", || served(&cluster.machines[1]) == on_both);
    cluster.machines[1].kill();
    until("the dead one serves nothing", || served(cluster.head()).len() == 1);
}

#[test]
fn programs_are_told_while_they_run_and_after_they_have_ended() {
    let mut cluster = Cluster::new(1, &[1]);
    let first = cluster.head().session();
    let second = cluster.machines[1].session();
    let node = node_of(&cluster.machines[1]);
    let states = |machine: &Machine| -> Vec<Value> {
        rows(machine, &["jobs"]).iter().map(|row| row["state"].clone()).collect()
    };
    for machine in &cluster.machines {
        until("both run", || states(machine) == ["running", "running"]);
        let on_member = rows(machine, &["jobs", "--node", &node]);
        let [job] = &on_member[..] else { panic!("one job: {on_member:#?}") };
        assert_eq!(job["pid"], std::process::id());
        assert!(job["command"].as_str().unwrap().contains("cluster"), "{job}");
        assert!(
            job["began_unix_milliseconds"].as_u64().unwrap() > 0 && job["ended_unix_milliseconds"].is_null()
        );
    }
    first.shutdown();
    until("the first has ended", || states(cluster.head()) == ["ended", "running"]);
    // What is told outlives the machine, and the control process.
    cluster.machines[1].kill();
    until("the second is lost with its machine", || states(cluster.head()) == ["ended", "lost"]);
    cluster.machines[0].kill_control();
    cluster.machines[0].start_control();
    until("it is there again", || states(cluster.head()) == ["ended", "lost"]);
    drop(second);
}

#[test]
fn nodes_that_are_gone_are_told_of() {
    let mut cluster = Cluster::new(1, &[1, 1]);
    let (killed, stopped) = (node_of(&cluster.machines[1]), node_of(&cluster.machines[2]));
    let dead = |machine: &Machine| rows(machine, &["nodes", "--state", "dead"]);
    assert_eq!(dead(cluster.head()), [] as [Value; 0]);
    assert!(run(&cluster.machines[2].path, &["stop"]).status.success());
    until("the first is gone", || dead(&cluster.machines[1]).len() == 1);
    cluster.machines[1].kill();
    until("both are gone", || dead(cluster.head()).len() == 2);
    // They are told of by the next control process too.
    cluster.machines[0].kill_control();
    cluster.machines[0].start_control();
    until("it says so", || dead(cluster.head()).len() == 2);
    let expected = [(&stopped, "it was stopped"), (&killed, "its lease has lapsed")];
    for (row, (node, why)) in dead(cluster.head()).iter().zip(expected) {
        assert_eq!(row["id"], **node);
        assert!(row["reason"].as_str().unwrap().starts_with(why), "{row}");
        assert!(row["died_unix_milliseconds"].as_u64().is_some_and(|at| at > 0), "{row}");
        let told = explanation(cluster.head(), node);
        assert!(told.contains("it is dead") && told.contains(why), "{told}");
    }
    assert_eq!(cluster.head().count("nodes"), 3);
}

#[test]
fn what_there_is_is_told_by_every_machine() {
    let cluster = Cluster::new(0, &[2, 2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let lingering: Vec<_> = (0..3).map(|number| linger::remote(cluster.board(), number)).collect();
    places(&cluster, 0..3);
    let counter = Counter::options().name("the counter").cpus(1).remote(1);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 2);
    let large = session.put(vec![1_u8; 1 << 20]).unwrap();
    let members: BTreeSet<String> = cluster.machines[1..].iter().map(node_of).collect();
    for machine in &cluster.machines {
        let running = rows(machine, &["tasks", "--state", "running"]);
        assert_eq!(running.len(), 3, "{running:#?}");
        for row in &running {
            assert!(row["name"].as_str().unwrap().ends_with("linger"), "{row}");
            assert!(members.contains(row["node"].as_str().unwrap()), "it runs on a member: {row}");
            assert!(row["pid"].as_u64().is_some_and(|pid| pid > 1), "{row}");
        }
        let ids: BTreeSet<&str> = running.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 3, "each is listed once");
        assert_eq!(rows(machine, &["tasks", "--filter", "kind=constructor"]), [] as [Value; 0]);
        let pid = &running[0]["pid"];
        let of_process =
            rows(machine, &["tasks", "--filter", &format!("pid={pid}"), "--filter", "state=running"]);
        assert!(!of_process.is_empty() && of_process.iter().all(|row| row["pid"] == *pid));

        let actors = rows(machine, &["actors"]);
        let [actor] = &actors[..] else { panic!("one actor: {actors:#?}") };
        assert_eq!((&actor["name"], &actor["state"]), (&Value::from("the counter"), &Value::from("alive")));
        assert!(members.contains(actor["node"].as_str().unwrap()) && actor["pid"].is_number(), "{actor}");
        let workers = rows(machine, &["workers"]);
        let worker = workers
            .iter()
            .find(|row| row["pid"] == actor["pid"] && row["node"] == actor["node"])
            .expect("it");
        assert_eq!(worker["resources"]["CPU"], 1, "what the actor holds: {worker}");
        let stored = rows(machine, &["objects", "--state", "memory"]);
        assert!(stored.iter().any(|row| row["bytes"].as_u64().unwrap() >= 1 << 20), "{stored:#?}");

        let told = explanation(machine, running[0]["id"].as_str().unwrap());
        assert!(told.contains(&format!(": it is running in worker process {pid}")), "{told}");
        assert!(told.contains("is on another node"), "the submitter's view, too: {told}");
        let told = explanation(machine, &actor["id"].as_str().unwrap()[..20]);
        assert!(told.contains(&format!("it lives in process {}", actor["pid"])), "{told}");
        let nodes = rows(machine, &["nodes"]);
        assert!(nodes.iter().all(|row| row["state"] == "alive" && row["pid"].is_number()), "{nodes:#?}");
    }
    let words = lingering[0].explain();
    assert!(words.contains("another node") && words.contains("it is running in worker process"), "{words}");
    let words = aktis::explain(&counter);
    assert!(words.contains("another node") && words.contains("lives in process"), "{words}");
    drop(large);
    go(&cluster);
}

#[test]
fn what_waits_and_why_is_in_the_status_and_explained() {
    let cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let impossible = add::options().resource("unobtainium", 1.0).remote(1, 2);
    let doomed = linger::options().retries(0).remote(cluster.board(), 0);
    places(&cluster, 0..1);
    for machine in &cluster.machines {
        let mut waiting = Value::Null;
        until("the demand is seen", || {
            let status = machine.json(&["status", "--json"]);
            assert_eq!(status["drivers"], 1, "{status}");
            waiting = status["demand"].clone();
            waiting.as_array().is_some_and(|rows| rows.iter().any(|row| row["infeasible"] == true))
        });
        assert!(waiting.to_string().contains("unobtainium"), "{waiting}");
        let queued = rows(machine, &["tasks", "--state", "queued"]);
        let told = explanation(machine, queued[0]["id"].as_str().unwrap());
        assert!(told.contains("unobtainium"), "{told}");
    }
    let running = rows(cluster.head(), &["tasks", "--state", "running"]);
    let (id, pid) = (running[0]["id"].as_str().unwrap(), running[0]["pid"].as_u64().unwrap());
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    doomed.get_timeout(PATIENCE).unwrap_err();
    let told = explanation(&cluster.machines[1], id);
    assert!(told.contains("has failed") && told.contains("signal 9"), "why it died: {told}");
    let unknown = run(&cluster.head().path, &["explain", "0123456789abcdef"]);
    assert_eq!(unknown.status.code(), Some(1));
    let unknown = String::from_utf8(unknown.stderr).unwrap();
    assert!(unknown.contains("is known") && unknown.contains("hint: "), "{unknown}");
    drop(impossible);
}

#[test]
fn people_are_told_once_by_the_driver_what_no_node_can_run() {
    let cluster = Cluster::new(0, &[1]);
    let directory = cluster.head().path.to_str().expect("text").to_owned();
    for place in [directory, LOCAL.to_owned()] {
        let mut driver = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "views::a_driver_that_is_warned", "--nocapture"])
            .env(DRIVER, &place)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut words = Vec::new();
        for line in BufReader::new(driver.stderr.take().expect("a pipe")).lines() {
            words.push(line.expect("text"));
            if words.last().is_some_and(|line| line.contains("philosophers")) {
                // It may end.
                drop(driver.stdin.take());
            }
        }
        assert!(driver.wait().expect("it has run").success(), "{words:#?}");
        let about = |what: &str| words.iter().filter(|line| line.contains(what)).count();
        assert_eq!((about("unobtainium"), about("philosophers")), (1, 1), "{place}: {words:#?}");
        assert!(words.iter().any(|line| line.starts_with("aktis: a task waits for a node")), "{words:#?}");
    }
}

/// Stands for a node inside the driver.
const LOCAL: &str = "local";

/// Not a test by itself: the driver of the one before.
#[test]
fn a_driver_that_is_warned() {
    let Ok(directory) = std::env::var(DRIVER) else { return };
    let session = match &*directory {
        LOCAL => Session::builder().cpus(1).start().unwrap(),
        directory => Session::connect(format!("{directory}/node")).unwrap(),
    };
    let _entered = session.enter();
    let wanting =
        [0.25, 0.5, 1.0].map(|cpus| add::options().cpus(cpus).resource("unobtainium", 1.0).remote(1, 2));
    let counter = Counter::options().resource("philosophers", 3.0).remote(1);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop((wanting, counter));
    session.shutdown();
}

#[test]
fn a_machine_that_does_not_answer_is_named_and_the_rest_is_shown() {
    let cluster = Cluster::new(1, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = numbers::remote(1 << 20);
    session.wait(vec![made.clone()], 1, PATIENCE).unwrap();
    let member = node_of(&cluster.machines[1]);
    cluster.machines[1].signal(Signal::STOP);
    let listed = cluster.head().json(&["list", "workers", "--json"]);
    cluster.machines[1].signal(Signal::CONT);
    assert_eq!(listed["silent_nodes"], Value::from(vec![member]), "{listed:#}");
    assert!(!listed["workers"].as_array().unwrap().is_empty(), "{listed:#}");
}

#[test]
fn what_was_printed_anywhere_is_read_everywhere() {
    let cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let pid = say::remote("first words").get_timeout(PATIENCE).unwrap();
    let member = node_of(&cluster.machines[1]);
    for machine in &cluster.machines {
        until("the line is kept", || {
            let output = run(&machine.path, &["logs", "--process", &pid.to_string()]);
            let text = String::from_utf8(output.stdout).unwrap();
            let (process, node) = (format!("pid={pid}"), format!("node={}", &member[..12]));
            text.lines().any(|line| [&process, &node, "first words"].iter().all(|part| line.contains(*part)))
        });
    }
    let mut follower = aktis(&cluster.head().path)
        .args(["logs", "--follow", "--tail", "0", "--node", &member[..8]])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.send(lines.next()));
    let line = loop {
        // It may not have begun to follow before the first of these.
        say::remote("more words").get_timeout(PATIENCE).unwrap();
        if let Ok(line) = heard.recv_timeout(Duration::from_millis(200)) {
            break line.expect("a line").expect("text");
        }
    };
    follower.kill().expect("it runs");
    follower.wait().expect("it is dead");
    assert!(line.contains("more words"), "{line}");
    let nobody = run(&cluster.head().path, &["logs", "--node", "0123456789"]);
    assert_eq!(nobody.status.code(), Some(1));
}

#[test]
fn what_workers_of_another_machine_print_reaches_the_driver_once() {
    let cluster = Cluster::new(0, &[2]);
    let this = std::env::current_exe().expect("this program");
    let output = Command::new(this)
        .args(["--exact", "views::a_driver_that_listens", "--nocapture"])
        .env(DRIVER, &cluster.head().path)
        .output()
        .expect("it runs");
    let printed = String::from_utf8(output.stdout).unwrap();
    let node = format!(", node={}) ", &node_of(&cluster.machines[1])[..12]);
    let of = |words: &str| printed.lines().filter(|line| line.ends_with(words)).collect::<Vec<_>>();
    let [line] = of("words for the driver")[..] else { panic!("one line: {printed}") };
    assert!(line.contains("pid=") && line.contains(&node), "{line}");
    assert_eq!(of("and more").len(), 20, "{printed}");
}

/// Not a test by itself: the driver of the one before.
#[test]
fn a_driver_that_listens() {
    let Ok(directory) = std::env::var(DRIVER) else { return };
    let session = Session::connect(format!("{directory}/node")).unwrap();
    let _entered = session.enter();
    say::remote("words for the driver").get_timeout(PATIENCE).unwrap();
    for number in 0..20 {
        say::remote(format!("{number} and more")).get_timeout(PATIENCE).unwrap();
    }
    session.shutdown();
}

#[test]
fn a_whole_cluster_ends_by_one_command_on_any_machine() {
    let mut cluster = Cluster::new(1, &[1, 1]);
    let stopped = run(&cluster.machines[1].path, &["stop", "--cluster"]);
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    assert_eq!(String::from_utf8_lossy(&stopped.stdout), "the cluster has ended\n");
    for machine in &mut cluster.machines {
        assert!(machine.wait().success(), "it ended as it should");
    }
}
