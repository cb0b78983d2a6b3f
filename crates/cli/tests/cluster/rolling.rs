//! A rolling restart of a cluster of three nodes under load, in the order that docs/operating.md names: nothing is lost.

use crate::machines::{Cluster, PATIENCE, run, until};
use aktis::Session;
use aktis::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Tasks of one round.
const TASKS: u64 = 20;
/// Rounds of work that are done before and after each restart at least.
const ROUNDS: u64 = 3;

#[remote]
fn tripled(values: Vec<u64>) -> Vec<u64> {
    values.into_iter().map(|value| value * 3).collect()
}

/// Counts how often each number was added.
#[derive(Serialize, Deserialize)]
struct Ledger {
    counts: BTreeMap<u64, u64>,
}

#[actor(restarts = 1000, checkpoint = 1)]
impl Ledger {
    fn new() -> Self {
        Self { counts: BTreeMap::new() }
    }

    fn add(&mut self, number: u64) -> u64 {
        *self.counts.entry(number).or_default() += 1;
        self.counts.len() as u64
    }

    fn counts(&self) -> BTreeMap<u64, u64> {
        self.counts.clone()
    }
}

/// Works through a node until it is told to stop. Every answer must be right, and every call count once.
fn work(session: &Session, board: &str, rounds: &AtomicU64, is_over: &AtomicBool) {
    let _entered = session.enter();
    let ledger = Ledger::options().cpus(1).checkpoint_directory(board).call_retries(1000).remote();
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                tripled::options().retries(1000).spread().remote(vec![round * TASKS + number; 20_000])
            })
            .collect();
        let added = ledger.add(round);
        for (number, task) in (0..).zip(tasks) {
            let answer = task.get_timeout(PATIENCE).expect("no task is lost");
            assert!(answer.len() == 20_000 && answer[0] == (round * TASKS + number) * 3);
        }
        round += 1;
        assert_eq!(added.get_timeout(PATIENCE).expect("no call is lost"), round);
        rounds.store(round, Ordering::Relaxed);
    }
    let counts = ledger.counts().get_timeout(PATIENCE).expect("it lives");
    assert!(counts.len() as u64 == round && counts.values().all(|count| *count == 1), "{counts:?}");
}

/// Ends the work, also when a step fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something to the cluster while a driver on one of its machines works, after each step of which work goes on.
fn under_load(cluster: &mut Cluster, driver: usize, steps: &[&dyn Fn(&mut Cluster)]) {
    let session = cluster.machines[driver].session();
    let board = cluster.board();
    let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&session, &board, &rounds, &is_over));
        let over = Over(&is_over);
        let more = || {
            let before = rounds.load(Ordering::Relaxed);
            let is_done = || rounds.load(Ordering::Relaxed) >= before + ROUNDS;
            until("work goes on", || is_done() || worker.is_finished());
        };
        more();
        for step in steps {
            step(cluster);
            more();
        }
        drop(over);
        worker.join().expect("nothing was lost");
    });
    session.shutdown();
}

/// Restarts a machine as `systemctl restart` does, and waits as its operator does.
fn restart(cluster: &mut Cluster, machine: usize, arguments: &[&str]) {
    cluster.machines[machine].terminate();
    cluster.machines[machine].start_again(arguments);
    wait_until_well(cluster);
}

fn wait_until_well(cluster: &Cluster) {
    let head = &cluster.head().path;
    until("the cluster is well", || run(head, &["status"]).status.code() == Some(0));
    cluster.wait_for_links();
}

#[test]
fn a_rolling_restart_of_three_nodes_under_load_loses_nothing() {
    let mut cluster = Cluster::new(0, &[2, 2]);
    let (address, _) = cluster.invitation();
    let member = ["--address", &address, "--cpus", "2"];
    let (first, second) = (
        |cluster: &mut Cluster| restart(cluster, 1, &member),
        |cluster: &mut Cluster| restart(cluster, 2, &member),
    );
    let control = |cluster: &mut Cluster| {
        cluster.machines[0].kill_control();
        cluster.machines[0].start_control();
        wait_until_well(cluster);
    };
    under_load(&mut cluster, 0, &[&first, &second, &control]);
    // The head is the last. Drivers end with the node that they are attached to.
    let head = |cluster: &mut Cluster| restart(cluster, 0, &["--head", "--cpus", "0"]);
    under_load(&mut cluster, 1, &[&head]);
}
