//! Workers that have nothing to do, and when they end.

mod support;

use aktis_logic::machine::node::{IDLE_MICROSECONDS_MAX, NodeEffect, NodeInput};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    Amount, LaneId, ObjectId, ProcessSlot, Resources, SessionId, Shape, ShardIndex, TaskId,
};
use support::Scene;

const DRIVER: ProcessSlot = ProcessSlot(0);

fn object() -> ObjectId {
    TaskId::root(SessionId(1)).child(1).returns(0)
}

/// A worker that has run its only task, and for which no other waits.
fn idle_worker(scene: &mut Scene) -> ProcessSlot {
    let resources = Resources::none().with("place", Amount::ONE);
    // Workers that are started ahead of demand are set up in another way, and stay.
    let environment = "own".to_owned();
    let shape = Shape { resources, environment, isolated: true, ..Shape::default() };
    scene.hear(DRIVER, ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) });
    let ordered = scene.step(NodeInput::LaneDemand { lane: LaneId(0), queued: 1 });
    let worker = ordered.iter().find_map(|effect| match effect {
        NodeEffect::StartWorker { process, .. } => Some(*process),
        _ => None,
    });
    let worker = worker.expect("a worker is started");
    scene.step(NodeInput::WorkerSpawned { process: worker, pid: 9 });
    let granted = scene.hear(worker, ToNode::Started);
    let lease = granted.iter().find_map(|effect| match effect {
        NodeEffect::Send { to, message: FromNode::LeaseGranted { lease } } if *to == worker => {
            Some(lease.lease)
        }
        _ => None,
    });
    scene.step(NodeInput::LaneDemand { lane: LaneId(0), queued: 0 });
    scene.hear(worker, ToNode::LeaseReturned { lease: lease.expect("a lease") });
    worker
}

/// Whether the worker is told to end when it has been idle for so long once more.
fn ends(scene: &mut Scene, worker: ProcessSlot) -> bool {
    scene.now += IDLE_MICROSECONDS_MAX;
    let effects = scene.step(NodeInput::Ticked);
    effects
        .iter()
        .any(|effect| matches!(effect, NodeEffect::Send { to, message: FromNode::Shutdown } if *to == worker))
}

fn scene() -> Scene {
    Scene::new(Resources::none().with(CPU, Amount::ONE).with("place", Amount::ONE), false, false)
}

#[test]
fn an_idle_worker_ends_after_a_while() {
    let mut scene = scene();
    let worker = idle_worker(&mut scene);
    assert!(ends(&mut scene, worker));
}

#[test]
fn an_idle_worker_stays_while_others_wait_for_what_it_has_submitted() {
    let mut scene = scene();
    let worker = idle_worker(&mut scene);
    scene.hear(worker, ToNode::Escaped { object: object(), value: None });
    scene.hear(DRIVER, ToNode::Held { object: object() });
    assert!(!ends(&mut scene, worker), "the driver would lose the value");
    assert!(!ends(&mut scene, worker));
    let value = SharedValue::Inline { bytes: vec![1], contains: false };
    scene.hear(worker, ToNode::Resolved { object: object(), value });
    assert!(ends(&mut scene, worker));
}
