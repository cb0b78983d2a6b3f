//! A node that is drained: what it still takes, what goes elsewhere, and when it may leave.

mod support;

use aktis_logic::machine::node::{
    DRAIN_QUIET_MICROSECONDS, DrainLeft, DrainProgress, NodeEffect, NodeInput, Verdict,
};
use aktis_logic::{Machine, Time};
use aktis_protocol::actors::{ActorPlace, ActorSpec, Ending};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    ActorId, Amount, DeathCause, LaneId, ObjectId, ProcessSlot, Resources, SessionId, Shape, ShardIndex,
    TaskId,
};
use support::Scene;

const DRIVER: ProcessSlot = ProcessSlot(0);
const LOOK: u64 = 50_000;

fn cpus(count: u64) -> Resources {
    Resources::none().with(CPU, Amount::units(count))
}

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

fn actor() -> ActorId {
    ActorId::created_by(TaskId::root(SessionId(2)).child(1))
}

/// A node of a cluster without a driver of its own, a process that stands for another node, and a drain without deadline.
fn drained() -> (Scene, ProcessSlot) {
    let mut scene = Scene::of_daemon(cpus(2));
    scene.node.join_cluster();
    let peer = scene.link();
    scene.step(NodeInput::Drain { patience_microseconds: None });
    (scene, peer)
}

fn progress(scene: &Scene) -> DrainProgress {
    scene.node.drain_progress(Time(scene.now)).expect("it is drained")
}

fn wait(scene: &mut Scene, microseconds: u64) -> Vec<NodeEffect> {
    let (mut effects, end) = (Vec::new(), scene.now + microseconds);
    while scene.now < end {
        scene.now = (scene.now + LOOK).min(end);
        effects.extend(scene.step(NodeInput::Ticked));
    }
    effects
}

#[test]
fn a_drained_node_with_nothing_leaves_after_a_quiet_while() {
    let (mut scene, _) = drained();
    assert!(scene.node.next_wakeup().is_some(), "it looks again by itself");
    wait(&mut scene, DRAIN_QUIET_MICROSECONDS - 1);
    assert_eq!(progress(&scene), DrainProgress { left: DrainLeft::default(), is_over: false });
    wait(&mut scene, LOOK);
    assert!(progress(&scene).is_over);
    assert!(scene.node.report(|_| Vec::new(), |_| Vec::new()).is_draining);
}

#[test]
fn tasks_of_other_nodes_go_back_and_none_starts() {
    let mut scene = Scene::new(cpus(2), true, true);
    let peer = scene.link();
    scene.step(NodeInput::Drain { patience_microseconds: None });
    let shape = Shape { resources: cpus(1), ..Shape::default() };
    scene.hear(peer, ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) });
    let mut effects = scene.step(NodeInput::LaneDemand { lane: LaneId(0), queued: 3 });
    effects.extend(wait(&mut scene, 2 * LOOK));
    let starts = |effect: &NodeEffect| {
        matches!(
            effect,
            NodeEffect::StartWorker { .. } | NodeEffect::Send { message: FromNode::LeaseGranted { .. }, .. }
        )
    };
    assert!(!effects.iter().any(starts), "{effects:?}");
    let returned = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::HandBack { .. } } if *to == peer);
    assert!(effects.iter().any(returned), "{effects:?}");
    assert_eq!(progress(&scene).left.tasks, 3);
    scene.step(NodeInput::LaneDemand { lane: LaneId(0), queued: 0 });
    assert_eq!(progress(&scene).left.tasks, 0);
}

#[test]
fn a_driver_is_waited_for_until_the_deadline_and_its_tasks_go_elsewhere() {
    let mut scene = Scene::new(cpus(2), true, true);
    scene.link();
    scene.step(NodeInput::Drain { patience_microseconds: Some(1_000_000) });
    let shape = Shape { resources: cpus(1), ..Shape::default() };
    scene.hear(DRIVER, ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) });
    let effects = scene.step(NodeInput::LaneDemand { lane: LaneId(0), queued: 2 });
    let asked = |effect: &NodeEffect| matches!(effect, NodeEffect::Place { count: 2, .. });
    assert!(effects.iter().any(asked), "at once, not when it has waited: {effects:?}");
    let rest = 1_000_000 - 1 - scene.now;
    wait(&mut scene, rest);
    assert_eq!((progress(&scene).left.drivers, progress(&scene).is_over), (1, false));
    wait(&mut scene, 1);
    assert!(progress(&scene).is_over);
}

/// An actor of the other node lives here, in a process of its own, which is given.
fn hosted(scene: &mut Scene, peer: ProcessSlot, may_move: bool) -> ProcessSlot {
    let spec =
        ActorSpec { actor: actor(), resources: cpus(1), isolated: true, may_move, ..ActorSpec::default() };
    let wanted = scene.hear(peer, ToNode::ActorWanted { spec: Box::new(spec) });
    let worker = wanted.iter().find_map(|effect| match effect {
        NodeEffect::StartWorker { process, .. } => Some(*process),
        _ => None,
    });
    let worker = worker.expect("a process for it");
    scene.step(NodeInput::WorkerSpawned { process: worker, pid: 9 });
    scene.hear(worker, ToNode::Started);
    scene.hear(worker, ToNode::ActorStarted { actor: actor(), incarnation: 0 });
    worker
}

fn is_told_to_move(effects: &[NodeEffect], worker: ProcessSlot) -> bool {
    effects.iter().any(|effect| {
        matches!(effect, NodeEffect::Send { to, message: FromNode::EndActor { ending: Ending::ToMove, .. } } if *to == worker)
    })
}

/// What a process is told about the actor.
fn told(effects: &[NodeEffect], whom: ProcessSlot) -> Vec<&ActorPlace> {
    let mut places = Vec::new();
    for effect in effects {
        if let NodeEffect::Send { to, message: FromNode::ActorChanged { place, .. } } = effect
            && *to == whom
        {
            places.push(place);
        }
    }
    places
}

fn is_returned(effects: &[NodeEffect], peer: ProcessSlot) -> bool {
    effects.iter().any(|effect| {
        matches!(effect, NodeEffect::Send { to, message: FromNode::ActorLost { cause: None, .. } } if *to == peer)
    })
}

#[test]
fn an_actor_of_another_node_goes_back_after_the_calls_that_it_has() {
    let mut scene = Scene::new(cpus(2), false, true);
    let peer = scene.link();
    let worker = hosted(&mut scene, peer, true);
    scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    let effects = scene.step(NodeInput::Drain { patience_microseconds: None });
    assert!(is_told_to_move(&effects, worker), "{effects:?}");
    assert!(told(&effects, DRIVER).is_empty(), "it still answers calls: {effects:?}");
    assert_eq!(progress(&scene).left.moving_actors, 1);
    let effects = scene.hear(worker, ToNode::ActorLost { actor: actor(), incarnation: 0, cause: None });
    assert!(is_returned(&effects, peer), "{effects:?}");
    assert!(matches!(told(&effects, DRIVER)[..], [ActorPlace::Moved(_)]), "{effects:?}");
    assert_eq!(progress(&scene).left.moving_actors, 0);
}

#[test]
fn an_actor_that_dies_on_its_way_out_has_died_like_any_other() {
    let mut scene = Scene::new(cpus(2), false, true);
    let peer = scene.link();
    let worker = hosted(&mut scene, peer, true);
    scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    scene.step(NodeInput::Drain { patience_microseconds: None });
    let cause = DeathCause { pid: 9, signal: Some(9), ..DeathCause::default() };
    let effects = scene.step(NodeInput::ProcessDied { process: worker, cause });
    assert!(
        matches!(told(&effects, DRIVER)[..], [ActorPlace::Pending(_)]),
        "calls may have begun: {effects:?}"
    );
    assert!(!is_returned(&effects, peer), "{effects:?}");
}

#[test]
fn an_actor_moves_only_when_what_it_has_submitted_is_done() {
    let mut scene = Scene::new(cpus(2), false, true);
    let peer = scene.link();
    let worker = hosted(&mut scene, peer, true);
    scene.hear(worker, ToNode::Escaped { object: object(1), value: None });
    scene.hear(peer, ToNode::Held { object: object(1) });
    let mut effects = scene.step(NodeInput::Drain { patience_microseconds: None });
    effects.extend(wait(&mut scene, 2 * LOOK));
    assert!(!is_told_to_move(&effects, worker), "the value would end with it: {effects:?}");
    assert_eq!(progress(&scene).left.bound_actors, 1);
    let value = SharedValue::Inline { bytes: vec![1], contains: false };
    scene.hear(worker, ToNode::Resolved { object: object(1), value });
    assert!(is_told_to_move(&wait(&mut scene, 2 * LOOK), worker));
}

#[test]
fn a_node_does_not_leave_while_something_has_come_since_its_last_look() {
    let (mut scene, peer) = drained();
    wait(&mut scene, DRAIN_QUIET_MICROSECONDS + LOOK);
    assert!(progress(&scene).is_over);
    let value = SharedValue::Inline { bytes: vec![1], contains: false };
    scene.hear(peer, ToNode::Escaped { object: object(1), value: Some(value) });
    let other = scene.link_to(aktis_protocol::NodeId::of_session(SessionId(3)));
    scene.hear(other, ToNode::Held { object: object(1) });
    let DrainProgress { left, is_over } = progress(&scene);
    assert!(left.objects > 0 && !is_over, "{left}");
}

#[test]
fn an_actor_that_cannot_live_elsewhere_stays() {
    let mut scene = Scene::new(cpus(2), false, true);
    let peer = scene.link();
    let worker = hosted(&mut scene, peer, false);
    let effects = scene.step(NodeInput::Drain { patience_microseconds: None });
    assert!(!is_told_to_move(&effects, worker), "{effects:?}");
    assert_eq!(progress(&scene).left.bound_actors, 1);
}

#[test]
fn an_actor_that_another_node_returns_alive_lives_once_more_without_using_up_a_restart() {
    let mut scene = Scene::new(cpus(2), false, true);
    let peer = scene.link();
    let spec = ActorSpec {
        actor: actor(),
        resources: Resources::none().with("there", Amount::ONE),
        isolated: true,
        restarts_max: 1,
        ..ActorSpec::default()
    };
    scene.hear(DRIVER, ToNode::ActorWanted { spec: Box::new(spec) });
    for life in 0..3 {
        let verdict = Verdict::There(peer);
        let placed = scene.step(NodeInput::ActorPlaced { actor: actor(), verdict });
        let is_life = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { message: FromNode::HostActor { incarnation, .. }, .. } if *incarnation == life);
        assert!(placed.iter().any(is_life), "{life}: {placed:?}");
        scene.hear(peer, ToNode::ActorStarted { actor: actor(), incarnation: life });
        let lost = ToNode::ActorLost { actor: actor(), incarnation: life, cause: None };
        let effects = scene.hear(peer, lost);
        assert!(matches!(told(&effects, DRIVER)[..], [ActorPlace::Moved(_), ..]), "{effects:?}");
    }
}

#[test]
fn objects_that_others_hold_are_handed_over_once() {
    let (mut scene, peer) = drained();
    let value = SharedValue::Inline { bytes: vec![1], contains: false };
    let other = scene.link_to(aktis_protocol::NodeId::of_session(SessionId(3)));
    scene.hear(other, ToNode::Escaped { object: object(1), value: Some(value.clone()) });
    scene.hear(other, ToNode::Escaped { object: object(2), value: None });
    scene.hear(peer, ToNode::Held { object: object(1) });
    scene.hear(peer, ToNode::Held { object: object(2) });
    let left = scene.node.objects_to_hand_over();
    assert!(left.contains(&(peer, object(1))) && !left.contains(&(peer, object(2))), "{left:?}");
    scene.step(NodeInput::ObjectsHandedOver { peer, objects: vec![object(1)] });
    assert!(!scene.node.objects_to_hand_over().contains(&(peer, object(1))));
    scene.hear(other, ToNode::Resolved { object: object(2), value });
    assert!(scene.node.objects_to_hand_over().contains(&(peer, object(2))));
}
