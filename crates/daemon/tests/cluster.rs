//! Clusters of real daemons in one process, with links between them, workers of their own, and a driver that attaches.

use aktis::prelude::*;
use aktis_daemon::{Daemon, DaemonConfig, HideControl, Role};
use aktis_protocol::Amount;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A head and some members, each in a directory of its own.
struct Cluster {
    daemons: Vec<Daemon>,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// The head has so many CPUs, and each member as many as is said.
    fn new(head_cpus: u64, members: &[u64]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Self { daemons: Vec::new(), directory };
        cluster.start(Role::Head, head_cpus, Some("127.0.0.1:0"), BTreeMap::new());
        for cpus in members {
            cluster.join(*cpus, BTreeMap::new());
        }
        cluster.wait_for_links();
        cluster
    }

    fn join(&mut self, cpus: u64, resources: BTreeMap<String, Amount>) {
        let head = &self.daemons[0];
        let token = head.token(Duration::from_secs(60)).unwrap();
        self.start(Role::Member { address: head.head().to_string(), token }, cpus, None, resources);
    }

    fn start(
        &mut self,
        role: Role,
        cpus: u64,
        listen: Option<&str>,
        mut resources: BTreeMap<String, Amount>,
    ) {
        resources.insert("CPU".into(), Amount::units(cpus));
        let config = DaemonConfig {
            directory: self.directory.path().join(self.daemons.len().to_string()),
            role,
            listen: listen.map(|listen| listen.parse().unwrap()),
            resources,
            labels: BTreeMap::new(),
            store_bytes: Some(256 << 20),
            spill_directory: None,
            spill_bytes_max: None,
            hide_control: HideControl::Auto,
        };
        self.daemons.push(Daemon::start(config).unwrap());
    }

    /// Waits until every node has a link to every other.
    fn wait_for_links(&self) {
        let wanted = self.daemons.len() - 1;
        let deadline = Instant::now() + PATIENCE;
        for daemon in &self.daemons {
            while daemon.linked_nodes() < wanted {
                assert!(Instant::now() < deadline, "the nodes have not found each other");
                std::thread::yield_now();
            }
        }
    }

    fn driver(&self, daemon: usize) -> Session {
        Session::connect(self.daemons[daemon].attach_directory().to_str().unwrap()).unwrap()
    }
}

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[remote]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

#[remote]
fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|number| number as u8).collect()
}

#[remote]
fn sum(bytes: Vec<u8>) -> u64 {
    bytes.into_iter().map(u64::from).sum()
}

#[remote]
fn sum_of_refs(refs: Vec<ObjectRef<u64>>) -> aktis::Result<u64> {
    refs.iter().map(|object| object.get()).sum()
}

#[remote]
fn nested(depth: u64) -> aktis::Result<u64> {
    match depth {
        0 => Ok(1),
        _ => Ok(nested::remote(depth - 1).get()? + nested::remote(depth - 1).get()?),
    }
}

struct Counter {
    total: u64,
}

#[actor(isolated)]
impl Counter {
    fn new(start: u64) -> Self {
        Counter { total: start }
    }

    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }
}

#[test]
fn tasks_of_a_driver_on_a_node_without_cpus_run_on_another() {
    let cluster = Cluster::new(0, &[2]);
    let session = cluster.driver(0);
    let _entered = session.enter();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
    let refs: Vec<_> = (0..500).map(|number| add::remote(number, 1)).collect();
    for (number, object) in refs.into_iter().enumerate() {
        assert_eq!(object.get_timeout(PATIENCE).unwrap(), number as u64 + 1);
    }
}

#[test]
fn large_values_cross_over_tls() {
    let cluster = Cluster::new(0, &[2]);
    let session = cluster.driver(0);
    let _entered = session.enter();
    let bytes = 20 << 20;
    let made_there = numbers::remote(bytes);
    let expected: u64 = (0..bytes).map(|number| u64::from(number as u8)).sum();
    assert_eq!(sum::remote(made_there.clone()).get_timeout(PATIENCE).unwrap(), expected);
    assert_eq!(made_there.get_timeout(PATIENCE).unwrap().len(), bytes);
    let made_here = session.put(vec![2_u8; bytes]).unwrap();
    assert_eq!(sum::remote(made_here).get_timeout(PATIENCE).unwrap(), 2 * bytes as u64);
}

#[test]
fn references_inside_values_and_nested_tasks_work_elsewhere() {
    let cluster = Cluster::new(0, &[2]);
    let session = cluster.driver(0);
    let _entered = session.enter();
    let refs: Vec<_> = (0..10).map(|number| add::remote(number, number)).collect();
    assert_eq!(sum_of_refs::remote(refs).get_timeout(PATIENCE).unwrap(), 90);
    assert_eq!(nested::remote(4).get_timeout(PATIENCE).unwrap(), 16);
}

#[test]
fn an_actor_lives_on_another_node_and_takes_calls_in_order() {
    let cluster = Cluster::new(0, &[2]);
    let session = cluster.driver(0);
    let _entered = session.enter();
    let counter = Counter::options().cpus(1).remote(10);
    let totals: Vec<_> = (0..100).map(|_| counter.add(1)).collect();
    for (number, total) in totals.into_iter().enumerate() {
        assert_eq!(total.get_timeout(PATIENCE).unwrap(), 11 + number as u64);
    }
    drop(counter);
}

#[test]
fn a_named_actor_is_found_from_another_node_and_outlives_its_driver() {
    let cluster = Cluster::new(1, &[1]);
    let first = cluster.driver(0);
    {
        let _entered = first.enter();
        let counter = Counter::options().name("the counter").detached().remote(1);
        assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 2);
    }
    first.shutdown();
    let second = cluster.driver(1);
    let _entered = second.enter();
    let counter = Counter::find("the counter").expect("it lives on");
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 3);
    let other = Counter::options().name("the counter").remote(0);
    assert!(other.add(1).get_timeout(PATIENCE).is_err(), "a name belongs to one actor of the cluster");
    assert!(Counter::find("nobody").is_err());
    counter.kill().unwrap();
}
