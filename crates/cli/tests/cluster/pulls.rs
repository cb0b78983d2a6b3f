//! Objects between machines: more of them than fit, from disk too, and each of them once.

use crate::machines::{Cluster, Machine, PATIENCE, until};
use aktis::prelude::*;
use aktis::{Error, NodeId};
use rustix::process::Signal;
use std::time::Duration;

/// Of an object, of which a store has room for two.
const OBJECT_BYTES: usize = 10 << 20;
/// Objects that each machine makes: several times what fits.
const OBJECTS: u8 = 8;

/// Bytes that differ from object to object, and from place to place.
fn contents(number: u8) -> Vec<u8> {
    (0..OBJECT_BYTES).map(|place| (place / 4096) as u8 ^ number).collect()
}

#[remote]
fn fill(number: u8) -> Array<u8> {
    Array::from(contents(number))
}

/// Whether this is the object of this number; from where it was seen.
#[remote]
fn is_right(number: u8, bytes: Array<u8>) -> (bool, NodeId) {
    (bytes.to_vec() == contents(number), aktis::node().expect("a session"))
}

fn node_of(machine: &Machine) -> NodeId {
    let session = machine.session();
    let _entered = session.enter();
    aktis::node().expect("a session")
}

#[test]
fn machines_whose_stores_are_full_exchange_what_they_have_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let spill = directory.path().to_str().expect("text");
    let cluster = Cluster::new_with(0, &[2, 2], &["--store-bytes", "24MiB", "--spill-directory", spill]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let nodes = [node_of(&cluster.machines[1]), node_of(&cluster.machines[2])];
    let make = |node: NodeId| {
        let made = (0..OBJECTS).map(|number| fill::options().retries(0).on_node(node).remote(number));
        made.collect::<Vec<_>>()
    };
    let made = nodes.map(make);
    let all: Vec<_> = made.iter().flatten().cloned().collect();
    let (ready, _) = session.wait(all, 2 * OBJECTS as usize, PATIENCE).unwrap();
    assert_eq!(ready.len(), 2 * OBJECTS as usize);
    drop(ready);
    for machine in &cluster.machines[1..] {
        assert!(machine.store("disk_bytes") > OBJECT_BYTES as u64, "it has not spilled");
    }
    // Both ways at once, and the driver's machine wants them all besides.
    let check = |objects: &[ObjectRef<Array<u8>>], node: NodeId| {
        let numbered = objects.iter().cloned().zip(0..);
        let checked =
            numbered.map(|(object, number)| is_right::options().on_node(node).remote(number, object));
        checked.collect::<Vec<_>>()
    };
    let checked = [check(&made[0], nodes[1]), check(&made[1], nodes[0])];
    for objects in &made {
        for (object, number) in objects.iter().zip(0..) {
            assert!(object.get_timeout(PATIENCE).unwrap().to_vec() == contents(number), "object {number}");
        }
    }
    for (checked, node) in checked.into_iter().zip([nodes[1], nodes[0]]) {
        for answer in checked {
            assert_eq!(answer.get_timeout(PATIENCE).unwrap(), (true, node));
        }
    }
    assert_eq!(cluster.head().store("pulled_objects"), 2 * u64::from(OBJECTS));
    for machine in &cluster.machines[1..] {
        assert_eq!(machine.store("pulled_objects"), u64::from(OBJECTS), "each came once");
    }
    drop(made);
    cluster.wait_until_empty();
}

#[remote]
fn joined(first: Array<u8>, second: Array<u8>) -> Array<u8> {
    Array::from([&first[..], &second[..], &first[..]].concat())
}

#[test]
fn an_object_larger_than_every_store_is_made_and_read_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let spill = directory.path().to_str().expect("text");
    let cluster = Cluster::new_with(0, &[1, 1], &["--store-bytes", "24MiB", "--spill-directory", spill]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let nodes = [1, 2].map(|machine| node_of(&cluster.machines[machine]));
    let parts = nodes.map(|node| fill::options().on_node(node).remote(1));
    let [first, second] = parts.clone();
    let large = joined::options().on_node(nodes[0]).remote(first, second);
    // One of its inputs came from the other machine; now it goes there, and to the driver's.
    let larger = joined::options().on_node(nodes[1]).remote(large.clone(), parts[0].clone());
    let expected = contents(1);
    for (object, parts) in [(large, 3), (larger, 7)] {
        let bytes = object.get_timeout(PATIENCE).unwrap();
        assert_eq!(bytes.len(), parts * OBJECT_BYTES);
        assert!(bytes.chunks(OBJECT_BYTES).all(|part| part == expected));
    }
    drop(parts);
    cluster.wait_until_empty();
    for machine in &cluster.machines {
        assert_eq!(machine.store("disk_bytes"), 0, "its room on disk is given back");
    }
}

#[test]
fn an_object_comes_once_to_each_machine_however_many_wait_for_it() {
    let cluster = Cluster::new(0, &[1, 4]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let [maker, reader] = [1, 2].map(|machine| node_of(&cluster.machines[machine]));
    let made = fill::options().on_node(maker).remote(1);
    let check = || is_right::options().on_node(reader).remote(1, made.clone());
    let checked: Vec<_> = (0..40).map(|_| check()).collect();
    for answer in checked {
        assert_eq!(answer.get_timeout(PATIENCE).unwrap(), (true, reader));
    }
    let pulled = |machine: usize| cluster.machines[machine].store("pulled_objects");
    assert_eq!(pulled(2), 1);
    assert_eq!((pulled(0), pulled(1)), (0, 0), "it came straight from the one that has it");
    let readers: Vec<_> = (0..8).map(|_| made.clone()).collect();
    std::thread::scope(|scope| {
        for object in readers {
            let session = &session;
            scope.spawn(move || {
                let _entered = session.enter();
                assert!(object.get_timeout(PATIENCE).unwrap().to_vec() == contents(1));
            });
        }
    });
    assert_eq!(pulled(0), 1);
}

#[test]
fn a_reader_gives_up_when_its_time_is_over_though_the_object_is_only_on_its_way() {
    let cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = fill::options().retries(0).remote(1);
    let (made, _) = session.wait(vec![made], 1, PATIENCE).unwrap();
    // It is known to be there, and cannot be reached until it is found out to be dead.
    cluster.machines[1].signal(Signal::STOP);
    let error = made[0].get_timeout(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error:?}");
    cluster.machines[1].signal(Signal::CONT);
    until("it is there, or lost with its machine", || {
        !matches!(made[0].get_timeout(Duration::from_millis(200)), Err(Error::Timeout(_)))
    });
}
