//! Actors that are in the care of other nodes, and what becomes of them when those are out of reach.

mod support;

use aktis_logic::machine::node::{NodeEffect, NodeInput};
use aktis_protocol::actors::{ActorPlace, ActorSpec, FoundActor};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{
    ActorId, Amount, DeathCause, Failure, FailureKind, ProcessSlot, Resources, SessionId, TaskId,
};
use support::Scene;

const DRIVER: ProcessSlot = ProcessSlot(0);

fn scene() -> Scene {
    Scene::new(Resources::none().with("CPU", Amount::units(2)), false, true)
}

fn actor() -> ActorId {
    ActorId::created_by(TaskId::root(SessionId(7)).child(1))
}

/// What the driver is told about the actor, in order.
fn told(effects: &[NodeEffect]) -> Vec<&ActorPlace> {
    let mut places = Vec::new();
    for effect in effects {
        if let NodeEffect::Send { to: DRIVER, message: FromNode::ActorChanged { place, .. } } = effect {
            places.push(place);
        }
    }
    places
}

/// The driver holds an actor of another node, which takes calls. Gives the process that stands for that node.
fn known(scene: &mut Scene) -> ProcessSlot {
    let peer = scene.link();
    scene.hear(peer, ToNode::ActorEscaped { actor: actor(), host: peer });
    scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    scene.hear(peer, ToNode::ActorReleased { actor: actor() });
    let back = scene.hear(peer, ToNode::ActorBack { actor: actor() });
    assert!(matches!(told(&back)[..], [ActorPlace::Alive { process, .. }] if *process == peer), "{back:?}");
    peer
}

fn lose(scene: &mut Scene, peer: ProcessSlot) {
    let lost = scene.step(NodeInput::ProcessLeft { process: peer, cause: DeathCause::default() });
    assert!(matches!(told(&lost)[..], [ActorPlace::Dead(_)]), "{lost:?}");
}

#[test]
fn an_actor_whose_node_was_out_of_reach_is_taken_from_it_again() {
    let mut scene = scene();
    let before = known(&mut scene);
    lose(&mut scene, before);
    // It may have the place of the one before.
    let peer = scene.link();
    let named = scene.hear(peer, ToNode::ActorEscaped { actor: actor(), host: peer });
    assert!(matches!(told(&named)[..], [ActorPlace::Pending(_)]), "its node says how it is: {named:?}");
    let back = scene.hear(peer, ToNode::ActorBack { actor: actor() });
    assert!(matches!(told(&back)[..], [ActorPlace::Alive { process, .. }] if *process == peer), "{back:?}");
}

#[test]
fn an_actor_whose_node_was_out_of_reach_is_found_by_its_name_again() {
    let mut scene = scene();
    let before = known(&mut scene);
    lose(&mut scene, before);
    let peer = scene.link();
    let found = FoundActor { actor: actor(), type_name: String::new(), details: Vec::new() };
    let found = scene.step(NodeInput::NameFound { to: DRIVER, request: 1, found: Some((peer, found)) });
    assert!(matches!(told(&found)[..], [ActorPlace::Pending(_)]), "{found:?}");
    let back = scene.hear(peer, ToNode::ActorBack { actor: actor() });
    assert!(matches!(told(&back)[..], [ActorPlace::Alive { process, .. }] if *process == peer), "{back:?}");
}

#[test]
fn an_actor_that_its_node_has_called_gone_stays_so() {
    let mut scene = scene();
    let peer = known(&mut scene);
    let failure = Failure::new(FailureKind::ActorDied, "it was killed");
    let gone = scene.hear(peer, ToNode::ActorEnded { actor: actor(), failure });
    assert!(matches!(told(&gone)[..], [ActorPlace::Dead(_)]), "{gone:?}");
    let named = scene.hear(peer, ToNode::ActorEscaped { actor: actor(), host: peer });
    assert_eq!(told(&named), Vec::<&ActorPlace>::new());
    // Nobody is asked to kill what is dead.
    let killed = scene.hear(DRIVER, ToNode::ActorKilled { actor: actor(), restart: false, request: None });
    assert_eq!(told(&killed), Vec::<&ActorPlace>::new());
}

#[test]
fn nobody_is_told_to_kill_an_actor_whose_node_is_gone() {
    let mut scene = scene();
    let peer = known(&mut scene);
    lose(&mut scene, peer);
    let effects = scene.hear(DRIVER, ToNode::ActorKilled { actor: actor(), restart: false, request: None });
    assert!(effects.is_empty(), "{effects:?}");
}

#[test]
fn the_process_of_an_actor_is_not_killed_for_one_of_its_calls() {
    let mut scene = scene();
    let resources = Resources::none().with("CPU", Amount::ONE);
    let spec = ActorSpec { actor: actor(), resources, isolated: true, ..ActorSpec::default() };
    let wanted = scene.hear(DRIVER, ToNode::ActorWanted { spec: Box::new(spec) });
    let host = wanted.iter().find_map(|effect| match effect {
        NodeEffect::StartWorker { process, .. } => Some(*process),
        _ => None,
    });
    let process = host.expect("a process for it");
    scene.step(NodeInput::WorkerSpawned { process, pid: 9 });
    scene.hear(process, ToNode::Started);
    let task = TaskId::root(SessionId(1)).child(2);
    let effects = scene.hear(DRIVER, ToNode::WorkerKilled { process, task });
    assert!(effects.is_empty(), "{effects:?}");
}
