//! Values whose only copy died, and with it the process that had submitted their tasks: made again by those who want them.

use crate::machines::{Cluster, PATIENCE, until};
use crate::recovery::{BYTES, all_ready, fill, first, increased, note, runs};
use aktis::Error;
use aktis::prelude::*;

type Filled = ObjectRef<Vec<u8>>;

/// What only the machines have that run the tasks which tasks have submitted.
const CHILDREN: [&str; 2] = ["--resource", "child=8"];
/// What only the machine has that submits them.
const PARENT: [&str; 2] = ["--resource", "parent=1"];

/// Submits tasks, and gives references to what they will give.
#[remote]
fn parent(board: String, retries: u32) -> Vec<Filled> {
    note(&board, "parent");
    let child =
        |number| fill::options().resource("child", 1.0).retries(retries).remote(board.clone(), number);
    (0..3).map(child).collect()
}

/// The same, but what it gives was made from what nobody else knows.
#[remote]
fn grandparent(board: String) -> Vec<Filled> {
    let first = fill::options().resource("child", 1.0).remote(board.clone(), 4);
    let second = increased::options().resource("child", 1.0).remote(board.clone(), first);
    vec![increased::options().resource("child", 1.0).remote(board, second)]
}

/// Puts a value away, and gives a reference to it.
#[remote]
fn put_away() -> Filled {
    aktis::put(vec![7; BYTES]).expect("there is room")
}

/// A head without CPUs, on which the driver is, a machine for parents, and one for children.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(0, &[]);
    cluster.join_with(1, &PARENT);
    cluster.join_with(2, &CHILDREN);
    cluster.wait_for_links();
    cluster
}

/// What a parent gave, once all of it has values.
fn children(cluster: &Cluster, session: &Session, retries: u32) -> Vec<Filled> {
    let parent = parent::options().resource("parent", 1.0).remote(cluster.board(), retries);
    let children = parent.get_timeout(PATIENCE).unwrap();
    all_ready(session, children)
}

fn assert_values(children: &[Filled]) {
    for (number, child) in children.iter().enumerate() {
        assert_eq!(child.get_timeout(PATIENCE).unwrap(), vec![number as u8; BYTES]);
    }
}

/// Waits until the control process keeps nothing about tasks and objects any more.
fn wait_until_forgotten(cluster: &Cluster) {
    until("all is forgotten", || {
        let kept = &cluster.head().json(&["status", "--json"])["kept"];
        kept["tasks"] == 0 && kept["objects"] == 0
    });
}

/// How many tasks the control process knows.
fn recorded(cluster: &Cluster) -> u64 {
    kept(cluster, "tasks")
}

/// How much of something the control process knows.
fn kept(cluster: &Cluster, what: &str) -> u64 {
    cluster.head().json(&["status", "--json"])["kept"][what].as_u64().unwrap_or(0)
}

#[test]
fn what_was_put_goes_with_its_machine_and_whoever_wants_it_is_told_with_which() {
    let mut cluster = cluster();
    let session = cluster.head().session();
    let _entered = session.enter();
    let put = put_away::options().resource("child", 1.0).remote().get_timeout(PATIENCE).unwrap();
    until("it is on record where it is", || kept(&cluster, "objects") == 1);
    let status = cluster.machines[2].json(&["status", "--json"]);
    let node = status["node"].as_str().expect("an id");
    cluster.machines[2].kill();
    let error = put.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    let text = format!("its only copy was on node {node}, which is");
    assert!(error.to_string().contains(&text), "{error}");
    drop(put);
    cluster.machines.remove(2);
    cluster.wait_until_empty();
    wait_until_forgotten(&cluster);
}

#[test]
fn what_another_machine_has_is_found_after_the_death_of_the_one_that_named_it() {
    let mut cluster = cluster();
    let session = cluster.head().session();
    let _entered = session.enter();
    let children = children(&cluster, &session, 3);
    cluster.machines[1].kill();
    assert_values(&children);
    assert_eq!((runs(&cluster, "parent"), runs(&cluster, "fill")), (1, 3), "nothing has run again");
    drop(children);
    cluster.machines.remove(1);
    cluster.wait_until_empty();
    wait_until_forgotten(&cluster);
}

#[test]
fn a_value_is_made_again_without_the_process_that_submitted_its_task() {
    let mut cluster = cluster();
    let session = cluster.head().session();
    let _entered = session.enter();
    let children = children(&cluster, &session, 3);
    until("the tasks are on record", || recorded(&cluster) == 3);
    cluster.machines[1].kill();
    cluster.machines[2].kill();
    cluster.join_with(2, &CHILDREN);
    assert_values(&children);
    assert_eq!((runs(&cluster, "parent"), runs(&cluster, "fill")), (1, 6), "each once more, and only once");
    drop(children);
    cluster.machines.drain(1..3);
    cluster.wait_until_empty();
    wait_until_forgotten(&cluster);
}

#[test]
fn lineage_outlives_the_control_process_too() {
    let mut cluster = cluster();
    let session = cluster.head().session();
    let _entered = session.enter();
    let children = children(&cluster, &session, 3);
    until("the tasks are on record", || recorded(&cluster) == 3);
    cluster.machines[0].kill_control();
    cluster.machines[1].kill();
    cluster.machines[2].kill();
    cluster.machines[0].start_control();
    cluster.join_with(2, &CHILDREN);
    assert_values(&children);
    assert_eq!((runs(&cluster, "parent"), runs(&cluster, "fill")), (1, 6));
    drop(children);
    cluster.machines.drain(1..3);
    cluster.wait_until_empty();
    wait_until_forgotten(&cluster);
}

#[test]
fn what_an_adopted_task_needs_is_made_again_first() {
    let mut cluster = cluster();
    let session = cluster.head().session();
    let _entered = session.enter();
    let last = grandparent::options().resource("parent", 1.0).remote(cluster.board()).get_timeout(PATIENCE);
    let last = all_ready(&session, last.unwrap());
    until("the task is on record", || recorded(&cluster) == 1);
    cluster.machines[1].kill();
    cluster.machines[2].kill();
    cluster.join_with(2, &CHILDREN);
    assert_eq!(last[0].get_timeout(PATIENCE).unwrap(), vec![6; BYTES]);
    assert_eq!((runs(&cluster, "fill"), runs(&cluster, "increased")), (2, 4));
    drop(last);
    cluster.machines.drain(1..3);
    cluster.wait_until_empty();
    wait_until_forgotten(&cluster);
}

#[test]
fn an_adopted_task_runs_as_often_as_it_may_be_retried() {
    let mut cluster = cluster();
    let session = cluster.head().session();
    let _entered = session.enter();
    let children = children(&cluster, &session, 1);
    until("the tasks are on record", || recorded(&cluster) == 3);
    cluster.machines[1].kill();
    cluster.machines[2].kill();
    cluster.join_with(2, &CHILDREN);
    // Where it is made again: no other machine has a copy.
    for (number, child) in children.iter().enumerate() {
        let first = first::options().resource("child", 1.0).remote(child.clone());
        assert_eq!(first.get_timeout(PATIENCE).unwrap(), number as u8);
    }
    cluster.machines[3].kill();
    cluster.join_with(2, &CHILDREN);
    let error = children[0].get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(error.to_string().contains("no retry is left after 2 runs"), "{error}");
    assert_eq!(runs(&cluster, "fill"), 6);
}

#[test]
fn a_value_that_is_referred_to_only_by_another_value_is_made_again() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = all_ready(&session, vec![fill::remote(cluster.board(), 9)]);
    let list = session.put(made).unwrap();
    cluster.machines[1].kill();
    cluster.join(1);
    let made = list.get_timeout(PATIENCE).unwrap();
    assert_eq!(made[0].get_timeout(PATIENCE).unwrap(), vec![9; BYTES]);
    assert_eq!(runs(&cluster, "fill"), 2);
}
