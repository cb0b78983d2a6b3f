//! The control process is killed, and started again in the same directory: nobody but newcomers notices.

use crate::machines::{Cluster, Machine, PATIENCE, run, until};
use crate::{Counter, add, go, linger, places};
use std::io::BufRead;
use std::time::{Duration, Instant};

/// The ids of the nodes that are alive, as a machine knows them.
fn nodes(machine: &Machine) -> Vec<String> {
    let listed = machine.json(&["list", "nodes", "--state", "alive", "--json"]);
    let mut nodes: Vec<String> =
        listed["nodes"].as_array().expect("a list").iter().map(|node| node["node"].to_string()).collect();
    nodes.sort();
    nodes
}

fn status(machine: &Machine) -> String {
    String::from_utf8(run(&machine.path, &["status"]).stdout).expect("text")
}

#[test]
fn work_goes_on_while_the_control_process_is_down() {
    let mut cluster = Cluster::new(0, &[3]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let counter = Counter::options().cpus(1).name("counter").remote(10);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
    let lingers = linger::options().retries(0).remote(cluster.board(), 0);
    places(&cluster, 0..1);
    let (known, node) = (nodes(cluster.head()), cluster.head().pid());
    cluster.machines[0].kill_control();

    for number in 0..100 {
        assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 12 + number);
    }
    until("both nodes have noticed", || {
        cluster.machines.iter().all(|machine| status(machine).contains("the control process is down"))
    });
    let created = Counter::options().cpus(1).remote(5);
    assert_eq!(created.add(1).get_timeout(PATIENCE).unwrap(), 6, "what is new finds another node");
    drop(created);
    assert_eq!(add::remote(3, 4).get_timeout(PATIENCE).unwrap(), 7, "and so do tasks");
    let other = cluster.machines[1].session();
    {
        let _entered = other.enter();
        assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3, "a new task on a node that lives");
    }
    let refused = run(&cluster.head().path, &["token"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("the control process, which decides who is let in, is down"), "{errors}");

    cluster.machines[0].start_control();
    until("all have joined again", || {
        cluster.machines.iter().all(|machine| !status(machine).contains("the control process is down"))
    });
    assert_eq!(
        (nodes(cluster.head()), cluster.head().pid()),
        (known, node),
        "the nodes are those from before"
    );
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 112, "and so is what is between them");
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3, "tasks find other nodes again");
    let _entered = other.enter();
    let found = Counter::find("counter").expect("the name is kept");
    assert_eq!(found.add(1).get_timeout(PATIENCE).unwrap(), 113);
    go(&cluster);
    lingers.get_timeout(PATIENCE).expect("it was never lost");
}

#[test]
fn a_node_that_starts_meanwhile_waits_and_joins() {
    let mut cluster = Cluster::new(1, &[]);
    let (address, token) = cluster.invitation();
    cluster.machines[0].kill_control();
    let arguments = ["--address", &address, "--token", &token, "--cpus", "1"];
    let mut late = Machine::begin(cluster.next_path(), &arguments);
    let mut line = String::new();
    let mut errors = late.errors();
    errors.read_line(&mut line).expect("it says what it waits for");
    let waits = format!(" WARN  node: the control process at {address} does not answer");
    assert!(line.contains(&waits) && line.contains("this node waits for it"), "{line}");
    cluster.machines[0].start_control();
    cluster.machines.push(late);
    until("the late node has started", || cluster.machines[1].path.join("aktis.sock").exists());
    cluster.wait_for_links();
}

#[test]
fn a_second_head_is_refused_and_the_first_goes_on() {
    let mut cluster = Cluster::new(1, &[]);
    let refused = run(&cluster.head().path, &["start", "--head"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors.contains("the control process of a cluster runs in"), "{errors}");
    assert!(errors.contains("already, as process") && errors.contains("hint: "), "{errors}");
    cluster.join(1);
    cluster.wait_for_links();
    let refused = run(&cluster.machines[1].path, &["start", "--head"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("a node of aktis runs in"), "a member is no head: {errors}");
    assert_eq!(cluster.machines[1].alive(), 2);
}

#[test]
fn a_node_that_dies_meanwhile_is_given_up_and_its_names_are_free() {
    let mut cluster = Cluster::new(1, &[1]);
    let session = cluster.head().session();
    {
        let other = cluster.machines[1].session();
        let _entered = other.enter();
        let counter = Counter::options().name("name").detached().remote(1);
        assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 2);
    }
    let _entered = session.enter();
    assert!(Counter::find("name").is_ok());
    cluster.machines[0].kill_control();
    cluster.machines[1].kill();
    cluster.machines[0].start_control();
    let began = Instant::now();
    until("it is given up", || cluster.head().members() == 1);
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    let counter = Counter::options().name("name").remote(5);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 6);
    assert_eq!(Counter::find("name").expect("it is the new one").add(1).get_timeout(PATIENCE).unwrap(), 7);
}

#[test]
fn both_processes_of_the_head_end_together() {
    for stop in [true, false] {
        let mut cluster = Cluster::new(1, &[]);
        if !stop {
            cluster.machines[0].kill_control();
        }
        let stopped = run(&cluster.head().path, &["stop"]);
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
        let lock = std::fs::File::open(cluster.head().path.join("lock")).expect("it has run");
        lock.try_lock().expect("nobody runs there");
        drop(lock);
        if !stop {
            // The tables outlive both.
            cluster.machines[0].start_control();
            assert_eq!(cluster.head().alive(), 1);
        }
    }
}

#[test]
fn a_head_and_its_node_start_with_options_that_only_heads_have() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--node-timeout", "5s"];
    let head = Machine::start(directory.path().join("0"), &options);
    assert_eq!(nodes(&head).len(), 1);
}
