//! Which machine gets what: strategies, labels, placement groups, and tasks that go where their inputs are.

use crate::machines::{Cluster, PATIENCE, until};
use crate::{go, linger, places};
use aktis::prelude::*;
use aktis::{Amount, GroupStrategy, LabelRule, LabelTest, NodeId, PlacementGroup, Resources, Strategy};
use std::collections::{BTreeMap, BTreeSet};

#[remote]
pub(crate) fn here() -> NodeId {
    aktis::node().expect("a session")
}

#[remote]
fn here_there(node: NodeId) -> aktis::Result<NodeId> {
    here::options().on_node(node).remote().get()
}

#[remote]
pub(crate) fn make(bytes: usize) -> Array<u8> {
    Array::from(vec![1; bytes])
}

#[remote]
pub(crate) fn read(_bytes: Array<u8>) -> NodeId {
    aktis::node().expect("a session")
}

struct Resident;

#[actor(isolated)]
impl Resident {
    fn new() -> Self {
        Resident
    }

    fn node(&self) -> NodeId {
        aktis::node().expect("a session")
    }
}

/// The nodes of all machines.
fn nodes(cluster: &Cluster) -> Vec<NodeId> {
    let node = |machine: &crate::machines::Machine| {
        let session = machine.session();
        let _entered = session.enter();
        aktis::node().expect("a session")
    };
    cluster.machines.iter().map(node).collect()
}

fn cpus(count: usize) -> Vec<Resources> {
    vec![Resources::none().with("CPU", Amount::ONE); count]
}

/// The node of each bundle of a group, as tasks see it.
fn bundle_nodes(group: &PlacementGroup, count: u32) -> Vec<NodeId> {
    let refs: Vec<_> =
        (0..count).map(|index| here::options().in_group(group.bundle(index)).remote()).collect();
    refs.into_iter().map(|object| object.get_timeout(PATIENCE).expect("it runs in its bundle")).collect()
}

fn distinct(nodes: &[NodeId]) -> usize {
    nodes.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn tasks_and_actors_run_on_the_nodes_that_they_name() {
    let cluster = Cluster::new(1, &[1, 1]);
    let all = nodes(&cluster);
    let session = cluster.head().session();
    let _entered = session.enter();
    for &node in &all {
        assert_eq!(here::options().on_node(node).remote().get_timeout(PATIENCE).unwrap(), node);
        let preferred = Strategy::Node { node, soft: true };
        // Others take it while the last report says that the preferred one has something to do.
        until("it runs where it is preferred", || {
            here::options().strategy(preferred.clone()).remote().get_timeout(PATIENCE).unwrap() == node
        });
        let resident = Resident::options().on_node(node).remote();
        assert_eq!(resident.node().get_timeout(PATIENCE).unwrap(), node);
    }
    let missing: NodeId = "0123456789abcdef0000000000000000".parse().unwrap();
    let soft = Strategy::Node { node: missing, soft: true };
    assert!(all.contains(&here::options().strategy(soft).remote().get_timeout(PATIENCE).unwrap()));
    let is_refused = |error: aktis::Error| {
        assert!(matches!(error, aktis::Error::Unschedulable(_)), "{error:?}");
        assert!(error.to_string().contains("no node that is 0123456789abcdef"), "{error}");
    };
    is_refused(here::options().on_node(missing).remote().get_timeout(PATIENCE).unwrap_err());
    is_refused(Resident::options().on_node(missing).remote().node().get_timeout(PATIENCE).unwrap_err());
    for &node in &all {
        let nested = here_there::options().on_node(node).remote(missing).get_timeout(PATIENCE).unwrap_err();
        assert!(nested.to_string().contains("no node that is 0123456789abcdef"), "{nested}");
    }
}

#[test]
fn tasks_and_actors_that_insist_on_a_node_that_dies_fail() {
    let mut cluster = Cluster::new(1, &[1]);
    let dying = nodes(&cluster)[1];
    let session = cluster.head().session();
    let _entered = session.enter();
    let first = linger::options().retries(0).on_node(dying).remote(cluster.board(), 0);
    places(&cluster, 0..1);
    let waits = here::options().on_node(dying).remote();
    let resident = Resident::options().cpus(1).restarts(1).on_node(dying).remote();
    cluster.machines[1].kill();
    cluster.machines.remove(1);
    assert!(first.get_timeout(PATIENCE).is_err());
    let error = waits.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, aktis::Error::Unschedulable(_)), "{error:?}");
    until("its restart is given up", || {
        let error = resident.node().get_timeout(PATIENCE).unwrap_err();
        matches!(error, aktis::Error::Unschedulable(_))
    });
    assert!(here::remote().get_timeout(PATIENCE).is_ok(), "others go on");
}

#[test]
fn spread_tasks_run_on_one_node_after_the_other() {
    let cluster = Cluster::new(2, &[2, 2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let refs: Vec<_> =
        (0..6).map(|number| linger::options().spread().remote(cluster.board(), number)).collect();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for machine in places(&cluster, 0..6).into_values() {
        *counts.entry(machine).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([(0, 2), (1, 2), (2, 2)]));
    go(&cluster);
    refs.iter().for_each(|object| drop(object.get_timeout(PATIENCE).unwrap()));
}

#[test]
fn labels_choose_nodes_also_those_that_come_later() {
    let mut cluster = Cluster::new(1, &[]);
    cluster.join_with(1, &["--label", "zone=b"]);
    cluster.wait_for_links();
    let all = nodes(&cluster);
    let session = cluster.head().session();
    let _entered = session.enter();
    let zone = |value: &str| {
        let test = LabelTest::In(vec![value.to_owned()]);
        Strategy::Labels { hard: vec![LabelRule { name: "zone".into(), test }], soft: Vec::new() }
    };
    assert_eq!(here::options().strategy(zone("b")).remote().get_timeout(PATIENCE).unwrap(), all[1]);
    let waits = here::options().strategy(zone("c")).remote();
    let resident = Resident::options().strategy(zone("c")).remote();
    until("it is said why it waits", || waits.explain().contains("no node with zone in (c)"));
    cluster.join_with(1, &["--label", "zone=c"]);
    let third = waits.get_timeout(PATIENCE).unwrap();
    assert!(!all.contains(&third));
    assert_eq!(resident.node().get_timeout(PATIENCE).unwrap(), third);
}

#[test]
fn groups_are_packed_and_spread_and_given_back() {
    let cluster = Cluster::new(2, &[2, 2]);
    let session = cluster.head().session();
    let entered = session.enter();
    let kinds = [
        (GroupStrategy::StrictSpread, 3, 3..=3),
        (GroupStrategy::Spread, 3, 3..=3),
        (GroupStrategy::StrictPack, 2, 1..=1),
        (GroupStrategy::Pack, 2, 1..=1),
        (GroupStrategy::Pack, 4, 2..=2),
    ];
    for (strategy, count, expected) in kinds {
        let make = || {
            let group = PlacementGroup::create(cpus(count), strategy).unwrap();
            group.wait(PATIENCE).unwrap();
            let nodes = bundle_nodes(&group, count as u32);
            (group, nodes)
        };
        let is_strict = matches!(strategy, GroupStrategy::StrictSpread | GroupStrategy::StrictPack);
        let (mut group, mut nodes) = make();
        // Those that only prefer some places take others while these are not known to be free again.
        until("the bundles are where they are preferred", || {
            let is_so = expected.contains(&distinct(&nodes));
            assert!(is_so || !is_strict, "{strategy:?} of {count} is on {nodes:?}");
            if !is_so {
                group.remove().unwrap();
                (group, nodes) = make();
            }
            is_so
        });
        let resident = Resident::options().cpus(1).in_group(group.bundle(0)).remote();
        assert_eq!(resident.node().get_timeout(PATIENCE).unwrap(), nodes[0]);
        let any = here::options().in_group(&group).remote().get_timeout(PATIENCE).unwrap();
        assert!(nodes.contains(&any));
        group.remove().unwrap();
        until("it goes with its group", || resident.node().get_timeout(PATIENCE).is_err());
    }
    // For as long as there is a driver, workers have CPUs ahead of demand.
    drop(entered);
    session.shutdown();
    cluster.wait_until_empty();
}

#[test]
fn a_group_that_fits_nowhere_waits_for_a_node_and_outlives_one_but_not_its_driver() {
    let mut cluster = Cluster::new(1, &[1]);
    let session = cluster.head().session();
    let entered = session.enter();
    let group = PlacementGroup::create(cpus(3), GroupStrategy::StrictSpread).unwrap();
    let early = here::options().in_group(group.bundle(2)).remote();
    assert!(group.wait(Duration::from_millis(200)).is_err(), "there are two nodes for three bundles");
    cluster.join(1);
    group.wait(PATIENCE).unwrap();
    early.get_timeout(PATIENCE).unwrap();
    let before = bundle_nodes(&group, 3);
    assert_eq!(distinct(&before), 3);
    // One of its nodes dies, another comes: it gets that one's place.
    let lost = nodes(&cluster)[2];
    cluster.machines[2].kill();
    cluster.machines.remove(2);
    let place = before.iter().position(|node| *node == lost).expect("it had a bundle") as u32;
    let late = here::options().in_group(group.bundle(place)).remote();
    cluster.join(1);
    let replaced = late.get_timeout(PATIENCE).unwrap();
    assert!(!before.contains(&replaced));
    drop(entered);
    session.shutdown();
    cluster.wait_until_empty();
}

#[test]
fn groups_outlive_the_control_process_and_what_goes_meanwhile_is_gone() {
    let mut cluster = Cluster::new(1, &[1, 1]);
    let session = cluster.head().session();
    let entered = session.enter();
    let create = |count| PlacementGroup::create(cpus(count), GroupStrategy::StrictSpread).unwrap();
    let (kept, removed) = (create(2), create(1));
    kept.wait(PATIENCE).unwrap();
    removed.wait(PATIENCE).unwrap();
    let before = bundle_nodes(&kept, 2);
    let freed = bundle_nodes(&removed, 1);
    cluster.machines[0].kill_control();
    removed.remove().unwrap();
    cluster.machines[0].start_control();
    let next = create(1);
    next.wait(PATIENCE).unwrap();
    assert_eq!(bundle_nodes(&next, 1), freed, "all else is set aside");
    assert_eq!(bundle_nodes(&kept, 2), before, "the group is where it was");
    let more = create(1);
    assert!(more.wait(Duration::from_millis(500)).is_err(), "all is set aside");
    more.remove().unwrap();

    // One of its nodes dies meanwhile: when the control process is back, it finds another.
    let all = nodes(&cluster);
    let place = before.iter().position(|node| *node != all[0]).expect("it is on two nodes");
    let lost = all.iter().position(|node| *node == before[place]).expect("it is one of them");
    cluster.machines[0].kill_control();
    cluster.machines[lost].kill();
    cluster.machines.remove(lost);
    cluster.machines[0].start_control();
    cluster.join(1);
    let replaced = here::options().in_group(kept.bundle(place as u32)).remote();
    assert!(!all.contains(&replaced.get_timeout(PATIENCE).unwrap()));
    assert_eq!(bundle_nodes(&kept, 2)[1 - place], before[1 - place], "the other stays");

    // Its driver ends meanwhile, and it goes with that.
    cluster.machines[0].kill_control();
    drop(entered);
    session.shutdown();
    cluster.machines[0].start_control();
    cluster.wait_until_empty();
}

#[test]
fn tasks_go_where_their_inputs_are_unless_they_may_not() {
    let cluster = Cluster::new(2, &[2]);
    let other = nodes(&cluster)[1];
    for aware in [true, false] {
        let address = cluster.head().path.join("node");
        let session = Session::builder().address(address.to_str().unwrap()).locality(aware).start().unwrap();
        let _entered = session.enter();
        let home = aktis::node().unwrap();
        let expected = if aware { other } else { home };
        // It is a preference: on a busy machine another node may be the one where it is done sooner.
        until("a reader goes where its input is", || {
            let far = make::options().on_node(other).remote(8 << 20);
            until("it is made", || far.is_ready());
            read::remote(&far).get_timeout(PATIENCE).unwrap() == expected
        });
        until("a reader goes where its input will be", || {
            let later = make::options().on_node(other).remote(9 << 20);
            read::remote(&later).get_timeout(PATIENCE).unwrap() == expected
        });
        until("a reader stays where its input is", || {
            let near = make::options().on_node(home).remote(8 << 20);
            until("it is made", || near.is_ready());
            read::remote(&near).get_timeout(PATIENCE).unwrap() == home
        });
    }
}
