//! Short tasks on several nodes: which node runs how many of them.

use aktis::prelude::*;
use aktis::{NodeId, ObjectRef};
use aktis_daemon::testing::{Cluster, NodeOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const CPUS: u64 = 2;
const NODES: usize = 3;

#[remote]
fn rest(milliseconds: u64) -> NodeId {
    std::thread::sleep(Duration::from_millis(milliseconds));
    aktis::node().expect("a session")
}

fn cluster() -> Cluster {
    let options = || NodeOptions::new().cpus(CPUS);
    let mut cluster = Cluster::start(options()).expect("a head");
    for _ in 1..NODES {
        cluster.add_node(options()).expect("a node");
    }
    cluster.wait_for_nodes(PATIENCE).expect("all are there");
    cluster
}

/// How many of the tasks each node has run, and how long all of them took.
fn counts(submit: impl FnOnce() -> Vec<ObjectRef<NodeId>>) -> (BTreeMap<NodeId, usize>, Duration) {
    let start = Instant::now();
    let mut counts = BTreeMap::new();
    for object in submit() {
        *counts.entry(object.get_timeout(PATIENCE).expect("it runs")).or_default() += 1;
    }
    (counts, start.elapsed())
}

fn spread(count: u64, milliseconds: u64) -> (BTreeMap<NodeId, usize>, Duration) {
    counts(|| (0..count).map(|_| rest::options().spread().remote(milliseconds)).collect())
}

fn anywhere(count: u64, milliseconds: u64) -> (BTreeMap<NodeId, usize>, Duration) {
    counts(|| (0..count).map(|_| rest::remote(milliseconds)).collect())
}

/// As many on each node, give or take a few: nodes that are still at work are left out of a round.
fn check_even(counts: &BTreeMap<NodeId, usize>, count: usize) {
    let part = count / NODES;
    let is_even = |some: &usize| (part / 2..=part * 3 / 2).contains(some);
    assert!(counts.len() == NODES && counts.values().all(is_even), "{count} tasks: {counts:?}");
}

#[test]
fn short_tasks_that_spread_go_round_all_nodes() {
    let cluster = cluster();
    let session = Session::connect(cluster.address()).expect("a session");
    let _entered = session.enter();
    for (count, milliseconds) in [(30, 50), (300, 0)] {
        check_even(&spread(count, milliseconds).0, count as usize);
    }
    // One after another: each node has its turn.
    let one_by_one: BTreeSet<NodeId> = (0..2 * NODES).flat_map(|_| spread(1, 0).0.into_keys()).collect();
    assert_eq!(one_by_one.len(), NODES);
    session.shutdown();
}

#[test]
fn tasks_after_a_burst_do_not_pile_onto_one_node() {
    let cluster = cluster();
    let session = Session::connect(cluster.address()).expect("a session");
    let _entered = session.enter();
    let count = CPUS * NODES as u64;
    for submit in [spread, anywhere] {
        submit(60, 50);
        let (counts, took) = submit(count, 200);
        // Three in a row would be on one node.
        assert!(took < Duration::from_millis(600), "{took:?}: {counts:?}");
        assert!(counts.values().all(|some| *some as u64 <= 2 * CPUS), "{counts:?}");
    }
    session.shutdown();
}
