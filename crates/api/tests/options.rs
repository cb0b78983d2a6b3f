//! Options: resources and what they limit, GPUs by index, isolation, names, bad amounts.

mod support;

use aktis::prelude::*;
use aktis::{Amount, Error, runtime_context};
use std::sync::atomic::{AtomicU32, Ordering};
use support::{eventually, start};

#[remote]
fn pid() -> u32 {
    std::process::id()
}

#[remote(gpus = 1)]
fn gpus() -> Vec<u32> {
    runtime_context().expect("a task has a context").gpus
}

static INSIDE: AtomicU32 = AtomicU32::new(0);

/// How many of these ran at the same time at most.
#[remote(cpus = 0, resources(disk = 1))]
fn use_disk() -> u32 {
    let inside = INSIDE.fetch_add(1, Ordering::SeqCst) + 1;
    std::thread::yield_now();
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    inside
}

#[remote(resources(unobtainium = 1))]
fn never() {}

struct Holder;

#[actor]
impl Holder {
    fn new() -> Self {
        Self
    }
    fn gpus(&self) -> Vec<u32> {
        runtime_context().expect("an actor has a context").gpus
    }
    fn pid(&self) -> u32 {
        std::process::id()
    }
}

#[remote]
fn nodes_here() -> usize {
    let nodes = aktis::nodes().expect("the nodes");
    nodes.iter().filter(|node| node.is_here && node.total.get("CPU") == Amount::units(2)).count()
}

#[test]
fn an_embedded_session_has_one_node() {
    let session = Session::builder().cpus(2).label("zone", "b").start().unwrap();
    let _entered = session.enter();
    let [node] = &session.nodes().unwrap()[..] else { panic!("one node") };
    assert!(node.is_alive && node.is_here && !node.is_head && node.address.is_none(), "{node:?}");
    assert_eq!((node.id, node.total.get("CPU")), (aktis::node().unwrap(), Amount::units(2)));
    assert_eq!(node.labels.get("zone").map(String::as_str), Some("b"));
    assert_eq!(nodes_here::options().on_node(node.id).remote().get(), Ok(1));
}

#[test]
fn a_custom_resource_limits_what_runs_at_once() {
    let session = Session::builder().cpus(2).resource("disk", 1.5).start().unwrap();
    let _entered = session.enter();
    let refs: Vec<_> = (0..200).map(|_| use_disk::remote()).collect();
    assert!(session.get_all(&refs).unwrap().into_iter().all(|inside| inside == 1));
    let halves: Vec<_> = (0..50).map(|_| use_disk::options().resource("disk", 0.5).remote()).collect();
    assert!(session.get_all(&halves).unwrap().into_iter().all(|inside| inside <= 3));
}

#[test]
fn gpus_are_given_out_by_index() {
    let session = Session::builder().cpus(2).gpus(2).start().unwrap();
    let _entered = session.enter();
    let one = gpus::remote().get().unwrap();
    assert!(one == [0] || one == [1], "{one:?}");
    let both = gpus::options().gpus(2).remote().get().unwrap();
    assert_eq!(both, [0, 1]);
    let holders: Vec<_> = (0..2).map(|_| Holder::options().gpus(1).remote()).collect();
    let mut held: Vec<_> = holders.iter().flat_map(|holder| holder.gpus().get().unwrap()).collect();
    held.sort_unstable();
    assert_eq!(held, [0, 1], "two actors never share one");
}

#[test]
fn isolated_work_has_a_process_of_its_own() {
    let session = start();
    let _entered = session.enter();
    let shared = pid::remote().get().unwrap();
    assert_eq!(pid::remote().get().unwrap(), shared);
    assert_ne!(pid::options().isolated().remote().get().unwrap(), shared);
    let (here, apart) = (Holder::remote(), Holder::options().isolated().remote());
    assert_eq!(here.pid().get().unwrap(), shared);
    assert_ne!(apart.pid().get().unwrap(), shared);
}

#[test]
fn a_name_is_what_people_see() {
    let session = start();
    let _entered = session.enter();
    let named = never::options().name("the task with a name").remote();
    eventually("the name shows", || named.explain().contains("the task with a name"));
}

#[test]
fn bad_amounts_are_refused() {
    let session = start();
    let _entered = session.enter();
    for amount in [-1.0, 0.00001, f64::NAN, f64::INFINITY] {
        let outcome = pid::options().gpus(amount).remote().get();
        assert!(matches!(&outcome, Err(Error::Invalid(text)) if text.contains("GPU")), "{outcome:?}");
        let outcome = Holder::options().resource("disk", amount).remote().pid().get();
        assert!(matches!(&outcome, Err(Error::Invalid(text)) if text.contains("disk")), "{outcome:?}");
        assert!(matches!(Session::builder().cpus(amount).start(), Err(Error::Invalid(_))));
    }
}

#[test]
fn a_session_says_what_it_has() {
    let session = Session::builder().cpus(3).gpus(0.5).resource("disk", 7).start().unwrap();
    let text = session.resources().to_string();
    assert!(text.contains("3 CPU") && text.contains("0.5 GPU") && text.contains("7 disk"), "{text}");
}
