//! Which tasks a peer sends on, and which it leaves to workers of this node.

use super::{PATIENCE, Pair, add, linger, node, open_peer};
use aktis_protocol::{DeathCause, ShapeId, limits};
use aktis_runtime::bridge::Bridge;
use std::sync::mpsc::channel;
use std::time::Instant;

#[test]
fn what_came_from_one_node_is_not_sent_on_to_another() {
    let pair = Pair::new(0);
    let _entered = pair.here.runtime.enter();
    let waiting = add::remote(1, 2);
    let third = open_peer(&pair.there.runtime);
    let slot = third.process();
    let third = Bridge::new(third);
    let deadline = Instant::now() + PATIENCE;
    while pair.there.with_machine(|machine| machine.counts().received == 0) {
        assert!(Instant::now() < deadline, "it was not sent");
        std::thread::yield_now();
    }
    for shape in (0..limits::SHAPES_MAX as _).map(ShapeId) {
        let claimed = third.claim(shape, None);
        assert!(claimed.is_none(), "{claimed:?}");
    }
    drop(waiting);
    pair.there.runtime.node().unwrap().host().close_local(slot, DeathCause::default());
}

#[test]
fn a_wake_up_for_a_task_that_the_peer_has_no_lease_for_is_passed_on() {
    let runtime = node(1);
    let (peer, sleeper) = (Bridge::new(open_peer(&runtime)), Bridge::new(open_peer(&runtime)));
    let board = tempfile::tempdir().expect("a directory");
    let _entered = runtime.enter();
    // It has the only CPU, so that the next one stays in its lane.
    let lingering = linger::remote(board.path().to_str().expect("text"));
    let deadline = Instant::now() + PATIENCE;
    while !board.path().join("begun").exists() {
        assert!(Instant::now() < deadline, "it has not begun");
        std::thread::yield_now();
    }
    let waiting = add::remote(1, 2);
    let shapes: Vec<ShapeId> = (0..limits::SHAPES_MAX as _).map(ShapeId).collect();
    sleeper.watch(&[]);
    assert!(sleeper.unwatch(&shapes), "the task is in its lane");
    let (ready, is_ready) = channel();
    let sleeping = std::thread::spawn(move || {
        let begin = Instant::now();
        sleeper.sleep(&[], PATIENCE, || ready.send(()).expect("the test is there"));
        begin.elapsed()
    });
    is_ready.recv_timeout(PATIENCE).expect("it is about to sleep");
    peer.pass_on(&[]);
    assert!(sleeping.join().unwrap() < PATIENCE);
    lingering.cancel().unwrap();
    assert_eq!(waiting.get_timeout(PATIENCE).unwrap(), 3);
    runtime.shutdown();
}
