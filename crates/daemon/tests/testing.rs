//! Clusters for tests: they come up, change and go, and nothing of them is left, whatever becomes of the test.

use aktis::prelude::*;
use aktis_daemon::testing::{Cluster, ClusterError, NodeOptions};
use aktis_protocol::{Amount, NodeId};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Names the other side of the test that kills it.
const KILLED: &str = "AKTIS_TEST_KILLED";

#[remote]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn nodes_are_added_removed_and_killed() {
    let mut cluster = Cluster::start(NodeOptions::new().cpus(0)).unwrap();
    let first = cluster.add_node(NodeOptions::new().resource("left", 1)).unwrap();
    let second = cluster.add_node(NodeOptions::new().resource("right", 1).label("zone", "b")).unwrap();
    cluster.wait_for_nodes(PATIENCE).unwrap();
    let session = Session::connect(cluster.address()).unwrap();
    let _entered = session.enter();
    for (name, node) in [("left", first), ("right", second)] {
        let pid = parent::options().resource(name, 1.0).remote().get_timeout(PATIENCE).unwrap();
        assert_eq!(Some(pid), cluster.pid_of(node), "{name}");
    }
    let killed = cluster.pid_of(first).unwrap();
    cluster.kill_node(first).unwrap();
    assert!(!is_there(killed));
    cluster.wait_for_nodes(PATIENCE).unwrap();
    cluster.remove_node(second).unwrap();
    cluster.wait_for_nodes(PATIENCE).unwrap();
    assert_eq!(cluster.nodes().len(), 1);
    assert!(matches!(cluster.kill_node(first), Err(ClusterError::NoSuchNode(node)) if node == first));
    assert_eq!(cluster.address_of(second), None);
    session.shutdown();
}

#[remote]
fn nodes_seen() -> Vec<(NodeId, bool)> {
    let nodes = aktis::nodes().expect("the nodes");
    nodes.into_iter().filter(|node| node.is_alive).map(|node| (node.id, node.is_here)).collect()
}

#[test]
fn a_program_sees_all_nodes_and_what_they_have() {
    let mut cluster = Cluster::start(NodeOptions::new().cpus(1)).unwrap();
    let second = cluster.add_node(NodeOptions::new().cpus(3).label("zone", "b")).unwrap();
    cluster.wait_for_nodes(PATIENCE).unwrap();
    let session = Session::connect(cluster.address()).unwrap();
    let nodes = session.nodes().unwrap();
    let ids: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, BTreeSet::from_iter(cluster.nodes()));
    assert!(nodes.iter().all(|node| node.is_alive && node.address.is_some()), "{nodes:?}");
    assert!(nodes.iter().all(|node| node.is_here == node.is_head && node.is_here == (node.id != second)));
    let other = nodes.iter().find(|node| node.id == second).unwrap();
    assert_eq!(other.labels.get("zone").map(String::as_str), Some("b"));
    assert_eq!((other.total.get("CPU"), other.free.get("CPU")), (Amount::units(3), Amount::units(3)));
    let _entered = session.enter();
    let mut seen = nodes_seen::options().on_node(second).remote().get_timeout(PATIENCE).unwrap();
    seen.sort_by_key(|(_, is_here)| *is_here);
    assert!(seen.len() == 2 && seen[1] == (second, true) && !seen[0].1, "{seen:?}");
    cluster.kill_node(second).unwrap();
    cluster.wait_for_nodes(PATIENCE).unwrap();
    let is_alive = |node: &aktis::Node| node.id == second && node.is_alive;
    until("the dead one is known to be dead", || !session.nodes().unwrap().iter().any(is_alive));
    session.shutdown();
}

#[test]
fn a_node_that_does_not_start_says_why() {
    let error = Cluster::start(NodeOptions::new().store_bytes(1 << 60)).unwrap_err();
    assert!(matches!(&error, ClusterError::NotStarted(why) if !why.is_empty()), "{error}");
}

#[test]
fn nothing_is_left_of_a_cluster() {
    let mut cluster = Cluster::start(NodeOptions::new()).unwrap();
    cluster.add_node(NodeOptions::new()).unwrap();
    let pids: Vec<u32> =
        cluster.nodes().into_iter().filter_map(|node: NodeId| cluster.pid_of(node)).collect();
    let base = PathBuf::from(cluster.address()).parent().unwrap().to_owned();
    assert!(base.exists() && pids.len() == 2);
    drop(cluster);
    assert!(!base.exists() && !pids.into_iter().any(is_there));
}

#[test]
fn nothing_is_left_of_a_cluster_whose_test_was_killed() {
    let this = std::env::current_exe().expect("this program");
    let mut test = Command::new(this)
        .args(["--exact", "a_test_that_will_be_killed", "--nocapture"])
        .env(KILLED, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(test.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let told =
        lines.filter_map(|line| line.strip_prefix("cluster ").map(str::to_owned)).next().expect("told");
    let mut words = told.split(' ');
    let base = PathBuf::from(words.next().expect("a directory"));
    let pids: Vec<u32> = words.map(|word| word.parse().expect("a number")).collect();
    assert!(base.exists() && pids.len() == 2 && pids.iter().copied().all(is_there), "{told}");
    test.kill().expect("it runs");
    test.wait().expect("it is dead");
    until("all nodes have ended", || !pids.iter().copied().any(is_there));
    until("what they have written is gone", || !base.exists());
}

/// Not a test by itself: the other side of the one before.
#[test]
fn a_test_that_will_be_killed() {
    if std::env::var_os(KILLED).is_none() {
        return;
    }
    let mut cluster = Cluster::start(NodeOptions::new()).unwrap();
    cluster.add_node(NodeOptions::new()).unwrap();
    let pids: Vec<String> = cluster
        .nodes()
        .into_iter()
        .filter_map(|node| cluster.pid_of(node))
        .map(|pid| pid.to_string())
        .collect();
    let base = PathBuf::from(cluster.address()).parent().unwrap().display().to_string();
    println!("\ncluster {base} {}", pids.join(" "));
    std::thread::park();
}
