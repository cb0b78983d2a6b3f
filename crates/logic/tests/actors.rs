//! Actors that are owned by other nodes, and what becomes of them when those are out of reach.

mod support;

use aktis_logic::machine::node::{Guest, NodeEffect, NodeInput, Verdict};
use aktis_protocol::actors::{ActorPlace, ActorSpec, FoundActor, Takeover};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{
    ActorId, Amount, DeathCause, Failure, FailureKind, NodeId, ProcessSlot, Resources, SessionId, TaskId,
};
use support::{OTHER, Scene};

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

/// How often the actor was named, as the process that stands for its node is told when nobody here holds it.
fn released_by(effects: &[NodeEffect], peer: ProcessSlot) -> Vec<u64> {
    let count = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, message: FromNode::ActorReleased { count, .. } } if *to == peer => {
            Some(*count)
        }
        _ => None,
    };
    effects.iter().filter_map(count).collect()
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
    let found = FoundActor { actor: actor(), type_name: String::new(), details: Vec::new(), abroad: false };
    let found = scene.step(NodeInput::NameFound { to: DRIVER, request: 1, found: Some((peer, found)) });
    assert!(matches!(told(&found)[..], [ActorPlace::Pending(_)]), "{found:?}");
    let back = scene.hear(peer, ToNode::ActorBack { actor: actor() });
    assert!(matches!(told(&back)[..], [ActorPlace::Alive { process, .. }] if *process == peer), "{back:?}");
}

#[test]
fn an_actor_named_again_while_it_is_released_is_a_new_import() {
    let mut scene = scene();
    let peer = known(&mut scene);
    let released = scene.hear(DRIVER, ToNode::ActorReleased { actor: actor() });
    assert_eq!(released_by(&released, peer), [1]);
    // The peer names it again before it has carried that order out.
    scene.hear(peer, ToNode::ActorEscaped { actor: actor(), host: peer });
    let held = scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    assert!(matches!(told(&held)[..], [ActorPlace::Pending(_)]), "its node says how it is: {held:?}");
    let back = scene.hear(peer, ToNode::ActorBack { actor: actor() });
    assert!(matches!(told(&back)[..], [ActorPlace::Alive { .. }]), "{back:?}");
    // Of two that name it, both are released.
    scene.hear(peer, ToNode::ActorEscaped { actor: actor(), host: peer });
    scene.hear(peer, ToNode::ActorReleased { actor: actor() });
    let released = scene.hear(DRIVER, ToNode::ActorReleased { actor: actor() });
    assert_eq!(released_by(&released, peer), [2]);
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

// Detached actors outlive the node that owns them.

/// An actor of another node lives here, and is detached. Gives the process that stands for that node, and the one that the
/// actor lives in.
fn hosted(scene: &mut Scene, restarts_left: u32) -> (ProcessSlot, ProcessSlot) {
    let peer = scene.link();
    let takeover =
        Takeover { name: Some("name".into()), restarts_max: 2, restarts_left, ..Takeover::default() };
    let resources = Resources::none().with("CPU", Amount::ONE);
    let takeover = Some(Box::new(takeover));
    let spec = ActorSpec { actor: actor(), resources, isolated: true, takeover, ..ActorSpec::default() };
    let wanted = scene.hear(peer, ToNode::ActorWanted { spec: Box::new(spec) });
    let worker = start(scene, &wanted, 0);
    scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    (peer, worker)
}

/// A worker is started for the actor, and constructs it.
fn start(scene: &mut Scene, ordered: &[NodeEffect], incarnation: u32) -> ProcessSlot {
    let ordered = ordered.iter().find_map(|effect| match effect {
        NodeEffect::StartWorker { process, .. } => Some(*process),
        _ => None,
    });
    let worker = ordered.expect("a worker is started");
    scene.step(NodeInput::WorkerSpawned { process: worker, pid: 9 });
    scene.hear(worker, ToNode::Started);
    scene.hear(worker, ToNode::ActorStarted { actor: actor(), incarnation });
    worker
}

/// The link to the other node ends. It lets go of all before it is known to be dead.
fn part(scene: &mut Scene, peer: ProcessSlot) -> Vec<NodeEffect> {
    let mut effects = scene.hear(peer, ToNode::NodeGone);
    effects.extend(scene.hear(peer, ToNode::ActorReleased { actor: actor() }));
    effects.extend(scene.step(NodeInput::ProcessLeft { process: peer, cause: DeathCause::default() }));
    effects
}

fn claims(effects: &[NodeEffect]) -> Vec<(&str, &FoundActor)> {
    let claims = effects.iter().filter_map(|effect| match effect {
        NodeEffect::ClaimName { name, found } => Some((&name[..], found)),
        _ => None,
    });
    claims.collect()
}

fn is_killed(effects: &[NodeEffect], worker: ProcessSlot) -> bool {
    effects.iter().any(|effect| matches!(effect, NodeEffect::KillWorker { process } if *process == worker))
}

/// Nobody knows the actor any more, and nothing is left of it.
fn is_forgotten(scene: &mut Scene, worker: ProcessSlot) {
    scene.step(NodeInput::ProcessDied { process: worker, cause: DeathCause::default() });
    scene.hear(DRIVER, ToNode::ActorReleased { actor: actor() });
    let held = scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    let place = told(&held)[0].clone();
    assert!(
        matches!(place, ActorPlace::Dead(failure) if failure.message.contains("nobody held")),
        "{held:?}"
    );
}

#[test]
fn a_detached_actor_comes_into_the_care_of_the_node_that_it_lives_on() {
    let mut scene = scene();
    let (peer, worker) = hosted(&mut scene, 1);
    let parted = part(&mut scene, peer);
    assert!(told(&parted).is_empty() && claims(&parted).is_empty(), "it lives on: {parted:?}");
    // The driver's handle is all that there is: it is detached, though.
    scene.hear(DRIVER, ToNode::ActorReleased { actor: actor() });
    let third = scene.link_to(NodeId::from_words([3, 3]));
    let left = scene.step(NodeInput::NodeLeft { node: OTHER });
    let [("name", found)] = claims(&left)[..] else { panic!("{left:?}") };
    assert_eq!(found.actor, actor());
    let tells = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::ActorInherited { .. } } if *to == third);
    assert!(left.iter().any(tells), "others may know it: {left:?}");
    scene.step(NodeInput::NameClaimed { name: "name".into(), actor: actor(), granted: true });
    let wanted = scene.hear(DRIVER, ToNode::NameWanted { request: 1, name: "name".into() });
    let finds = |effect: &NodeEffect| {
        matches!(effect, NodeEffect::Send { message: FromNode::ActorFound { found: Some(_), .. }, .. })
    };
    assert!(wanted.iter().any(finds), "{wanted:?}");
    scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    // One restart is left.
    let died = scene.step(NodeInput::ProcessDied { process: worker, cause: DeathCause::default() });
    assert!(matches!(told(&died)[..], [ActorPlace::Pending(_), ..]), "{died:?}");
    let worker = start(&mut scene, &died, 1);
    let died = scene.step(NodeInput::ProcessDied { process: worker, cause: DeathCause::default() });
    let [ActorPlace::Dead(failure)] = told(&died)[..] else { panic!("{died:?}") };
    assert!(failure.message.contains("after 2 restarts"), "{failure:?}");
    assert!(died.iter().any(|effect| matches!(effect, NodeEffect::FreeName { .. })), "{died:?}");
    is_forgotten(&mut scene, worker);
}

#[test]
fn a_node_that_joins_again_hears_from_the_heir_of_its_actor() {
    let mut scene = scene();
    let (peer, _) = hosted(&mut scene, 1);
    part(&mut scene, peer);
    scene.step(NodeInput::NodeLeft { node: OTHER });
    scene.step(NodeInput::NameClaimed { name: "name".into(), actor: actor(), granted: true });
    let admitted = scene.step(NodeInput::Attached { guest: Guest::Peer(OTHER), pid: 8 });
    let again = admitted.iter().find_map(|effect| match effect {
        NodeEffect::Admit { process } => Some(*process),
        _ => None,
    });
    let again = again.expect("there is a place");
    let linked = scene.hear(again, ToNode::Started);
    let tells = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::ActorInherited { .. } } if *to == again);
    assert!(linked.iter().any(tells), "{linked:?}");
}

#[test]
fn a_detached_actor_ends_when_the_node_is_back_that_has_counted_it_as_lost() {
    let mut scene = scene();
    let (peer, worker) = hosted(&mut scene, 1);
    part(&mut scene, peer);
    scene.link();
    let back = scene.step(NodeInput::NodeBack { node: OTHER });
    assert!(is_killed(&back, worker), "{back:?}");
    assert!(matches!(told(&back)[..], [ActorPlace::Dead(_)]), "{back:?}");
    let left = scene.step(NodeInput::NodeLeft { node: OTHER });
    assert!(claims(&left).is_empty(), "{left:?}");
    is_forgotten(&mut scene, worker);
}

#[test]
fn an_actor_that_is_not_detached_ends_with_the_node_that_had_it_started() {
    let mut scene = scene();
    let peer = scene.link();
    let spec = ActorSpec { actor: actor(), isolated: true, ..ActorSpec::default() };
    let wanted = scene.hear(peer, ToNode::ActorWanted { spec: Box::new(spec) });
    let worker = start(&mut scene, &wanted, 0);
    scene.hear(DRIVER, ToNode::ActorHeld { actor: actor() });
    let parted = part(&mut scene, peer);
    assert!(is_killed(&parted, worker), "{parted:?}");
    is_forgotten(&mut scene, worker);
}

#[test]
fn who_wants_the_name_of_an_actor_that_is_left_by_its_node_does_not_get_it() {
    let mut scene = scene();
    let (peer, worker) = hosted(&mut scene, 0);
    part(&mut scene, peer);
    let other = ActorId::created_by(TaskId::root(SessionId(7)).child(2));
    let name = Some("name".to_owned());
    let spec = ActorSpec { actor: other, name, isolated: true, ..ActorSpec::default() };
    scene.hear(DRIVER, ToNode::ActorWanted { spec: Box::new(spec) });
    let left = scene.step(NodeInput::NodeLeft { node: OTHER });
    let freed = |effect: &NodeEffect| matches!(effect, NodeEffect::FreeName { actor, .. } if *actor == other);
    let claimed = |effect: &NodeEffect| matches!(effect, NodeEffect::ClaimName { .. });
    let (freed, claimed) = (left.iter().position(freed), left.iter().position(claimed));
    assert!(freed.is_some() && freed < claimed, "{left:?}");
    assert!(!is_killed(&left, worker));
    // The one that came later was refused meanwhile, which is nothing to the other.
    let late = scene.step(NodeInput::NameClaimed { name: "name".into(), actor: other, granted: false });
    assert!(!is_killed(&late, worker), "{late:?}");
}

#[test]
fn who_was_taken_for_dead_leaves_detached_actors_to_the_nodes_that_they_live_on() {
    for (is_linked, is_refused) in [(true, false), (false, false), (false, true)] {
        let mut scene = scene();
        let host = scene.link();
        let name = Some("name".to_owned());
        let resources = Resources::none().with("there", Amount::ONE);
        let restarts_max = 3;
        let spec = ActorSpec {
            actor: actor(),
            name,
            resources,
            restarts_max,
            detached: true,
            isolated: true,
            ..ActorSpec::default()
        };
        scene.hear(DRIVER, ToNode::ActorWanted { spec: Box::new(spec) });
        let verdict = Verdict::There(host);
        let placed = scene.step(NodeInput::ActorPlaced { actor: actor(), verdict });
        let takeover = placed.iter().find_map(|effect| match effect {
            NodeEffect::Send { message: FromNode::HostActor { spec, .. }, .. } => spec.takeover.clone(),
            _ => None,
        });
        let takeover = takeover.expect("the other node can own it");
        assert_eq!((takeover.restarts_left, takeover.name.as_deref()), (3, Some("name")));
        let [("name", found)] = claims(&placed)[..] else { panic!("{placed:?}") };
        assert!(found.abroad, "its name is kept for that node");
        scene.hear(host, ToNode::ActorStarted { actor: actor(), incarnation: 0 });
        if !is_linked {
            let cause = DeathCause::default();
            let lost = scene.step(NodeInput::ProcessLeft { process: host, cause });
            assert!(matches!(told(&lost)[..], [ActorPlace::Pending(_), ..]), "it is started again: {lost:?}");
        }
        if is_refused {
            // The control process may say that the successor has the name, before this node knows that it was given up.
            scene.step(NodeInput::NameClaimed { name: "name".into(), actor: actor(), granted: false });
        }
        let expelled = scene.step(NodeInput::Expelled);
        let is_freed = expelled.iter().any(|effect| matches!(effect, NodeEffect::FreeName { .. }));
        let is_dead = matches!(told(&expelled)[..], [ActorPlace::Dead(_)]);
        assert!(is_refused || (is_freed && is_dead), "{expelled:?}");
        if is_linked {
            scene.step(NodeInput::ProcessLeft { process: host, cause: DeathCause::default() });
        }
        let successor = scene.link();
        let named = scene.hear(successor, ToNode::ActorInherited { actor: actor() });
        assert!(matches!(told(&named)[..], [ActorPlace::Pending(_)]), "{named:?}");
        let back = scene.hear(successor, ToNode::ActorBack { actor: actor() });
        assert!(matches!(told(&back)[..], [ActorPlace::Alive { .. }]), "{back:?}");
    }
}

#[test]
fn a_node_that_reaches_the_host_of_its_detached_actor_again_keeps_it() {
    let mut scene = scene();
    let host = scene.link();
    let resources = Resources::none().with("there", Amount::ONE);
    let spec =
        ActorSpec { actor: actor(), resources, restarts_max: 3, detached: true, ..ActorSpec::default() };
    scene.hear(DRIVER, ToNode::ActorWanted { spec: Box::new(spec) });
    scene.step(NodeInput::ActorPlaced { actor: actor(), verdict: Verdict::There(host) });
    scene.hear(host, ToNode::ActorStarted { actor: actor(), incarnation: 0 });
    scene.step(NodeInput::ProcessLeft { process: host, cause: DeathCause::default() });
    scene.link();
    scene.step(NodeInput::NodeBack { node: OTHER });
    let expelled = scene.step(NodeInput::Expelled);
    assert!(told(&expelled).is_empty(), "it waits for another place: {expelled:?}");
}

#[test]
fn an_actor_is_taken_from_its_heir_by_those_who_know_it() {
    for is_lost in [true, false] {
        let mut scene = scene();
        let owner = known(&mut scene);
        if is_lost {
            lose(&mut scene, owner);
        }
        let successor = scene.link_to(NodeId::from_words([3, 3]));
        let named = scene.hear(successor, ToNode::ActorInherited { actor: actor() });
        assert!(matches!(told(&named)[..], [ActorPlace::Pending(_)]), "{named:?}");
        if !is_lost {
            let cause = DeathCause::default();
            let lost = scene.step(NodeInput::ProcessLeft { process: owner, cause });
            assert!(told(&lost).is_empty(), "{lost:?}");
        }
        let back = scene.hear(successor, ToNode::ActorBack { actor: actor() });
        assert!(
            matches!(told(&back)[..], [ActorPlace::Alive { process, .. }] if *process == successor),
            "{back:?}"
        );
        let unknown = ActorId::created_by(TaskId::root(SessionId(7)).child(2));
        let named = scene.hear(successor, ToNode::ActorInherited { actor: unknown });
        let released = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { message: FromNode::ActorKnown { actor }, .. } if *actor == unknown);
        assert!(named.iter().any(released), "{named:?}");
    }
}

#[test]
fn imports_of_an_actor_that_ended_are_released_by_the_node_once() {
    let mut scene = scene();
    let peer = known(&mut scene);
    scene.hear(peer, ToNode::ActorEscaped { actor: actor(), host: peer });
    let failure = Failure::new(FailureKind::ActorDied, "it was killed");
    let ended = scene.hear(peer, ToNode::ActorEnded { actor: actor(), failure });
    assert_eq!(released_by(&ended, peer), [2]);
    let released = scene.hear(DRIVER, ToNode::ActorReleased { actor: actor() });
    assert_eq!(released_by(&released, peer), [], "the node has answered all imports");
}

#[test]
fn two_nodes_that_lost_an_actor_do_not_take_each_other_for_its_owner() {
    let mut scene = scene();
    let owner = known(&mut scene);
    let other = scene.link_to(NodeId::of_session(SessionId(3)));
    lose(&mut scene, owner);
    // This node exports the actor to the other one, which exports it to this one before it has read that.
    scene.hear(other, ToNode::ActorHeld { actor: actor() });
    let named = scene.hear(other, ToNode::ActorEscaped { actor: actor(), host: other });
    assert_eq!(told(&named), [] as [&ActorPlace; 0], "it is gone for the driver: {named:?}");
    let is_refused = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::ActorKnown { .. } } if *to == other);
    assert!(named.iter().any(is_refused), "{named:?}");
}
