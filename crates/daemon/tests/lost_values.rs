//! Values that were lost with the only node that may make them: their errors say so, each time.

use aktis::prelude::*;
use aktis_daemon::testing::{Cluster, NodeOptions};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// More than goes with an answer: the value stays on its node.
const BYTES: usize = 1 << 20;
const VALUES: u8 = 10;

#[remote]
fn fill(number: u8) -> Array<u8> {
    vec![number; BYTES].into()
}

#[test]
fn each_value_of_a_node_that_is_gone_names_that_node() {
    let mut cluster = Cluster::start(NodeOptions::new()).expect("a head");
    let node = cluster.add_node(NodeOptions::new()).expect("a node");
    cluster.wait_for_nodes(PATIENCE).expect("both are there");
    let session = Session::connect(cluster.address()).expect("a session");
    let _entered = session.enter();
    let values: Vec<_> = (0..VALUES).map(|number| fill::options().on_node(node).remote(number)).collect();
    let (values, late) = session.wait(values, VALUES.into(), Some(PATIENCE)).expect("a session");
    assert!(late.is_empty());
    cluster.kill_node(node).expect("it ran");
    cluster.wait_for_nodes(PATIENCE).expect("the head knows");
    // The second time, nothing is on record of the tasks any more.
    for round in 0..2 {
        for value in &values {
            let error = value.get_timeout(PATIENCE).expect_err("its node is gone").to_string();
            assert!(error.contains(&format!("no node that is {node}")), "round {round}: {error}");
            let invented = ["placement group", "not on record", "lineage_bytes_max"];
            assert!(!invented.iter().any(|words| error.contains(words)), "round {round}: {error}");
        }
    }
    session.shutdown();
}
