//! Jobs that share with each other, and jobs that do not.

mod support;

use aktis_logic::machine::node::{Guest, NodeEffect, NodeInput, ProgramConfig};
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::{
    ActorId, Amount, DeathCause, ObjectId, ProcessSlot, ProgramId, Resources, SessionId, TaskId,
};
use support::Scene;

const RED: ProgramId = ProgramId::from_hash([1; 16]);
const BLUE: ProgramId = ProgramId::from_hash([2; 16]);
const GREEN: ProgramId = ProgramId::from_hash([3; 16]);
/// A namespace that a job was given.
const PRIVATE: &str = "~00112233445566778899aabbccddeeff";

/// A daemon's node.
fn scene() -> Scene {
    Scene::of_daemon(Resources::none().with("CPU", Amount::units(2)))
}

/// A driver comes; it has a place, and a shared worker has one.
fn attach(scene: &mut Scene, program: ProgramId, shares: bool) -> [ProcessSlot; 2] {
    scene.step(NodeInput::ProgramAdded(ProgramConfig { program, shared_worker: true, shares }));
    let effects = scene.step(NodeInput::Attached { guest: Guest::Driver(program), pid: 1 });
    let place = |effect: &NodeEffect| match effect {
        NodeEffect::Admit { process } | NodeEffect::StartWorker { process, .. } => Some(*process),
        _ => None,
    };
    let places: Vec<_> = effects.iter().filter_map(place).collect();
    for &process in &places {
        scene.hear(process, ToNode::Started);
    }
    places.try_into().expect("a driver and its worker")
}

fn actor(number: u64) -> ActorId {
    ActorId::created_by(TaskId::root(SessionId(7)).child(number))
}

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(7)).child(100 + number).returns(0)
}

/// A driver makes an actor, which lives in the worker of its program.
fn make(scene: &mut Scene, [driver, worker]: [ProcessSlot; 2], program: ProgramId, number: u64, name: &str) {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    let spec = ActorSpec { actor: actor(number), program, name, concurrency: 1, ..ActorSpec::default() };
    scene.hear(driver, ToNode::ActorWanted { spec: Box::new(spec) });
    scene.hear(worker, ToNode::ActorStarted { actor: actor(number), incarnation: 0 });
}

fn export(scene: &mut Scene, from: ProcessSlot, number: u64) {
    let value = Some(SharedValue::Inline { bytes: vec![7], contains: false });
    scene.hear(from, ToNode::Escaped { object: object(number), value });
}

/// Whether a process finds an actor by its name.
fn finds(scene: &mut Scene, from: ProcessSlot, name: &str) -> bool {
    let effects = scene.hear(from, ToNode::NameWanted { request: 1, name: name.into() });
    let found = |effect: &NodeEffect| match effect {
        NodeEffect::Send { message: FromNode::ActorFound { found, .. }, .. } => Some(found.is_some()),
        _ => None,
    };
    effects.iter().find_map(found).expect("an answer")
}

/// Whether a process that knows the actor's id can call it.
fn can_call(scene: &mut Scene, from: ProcessSlot, number: u64) -> bool {
    let effects = scene.hear(from, ToNode::ActorHeld { actor: actor(number) });
    let alive = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, message: FromNode::ActorChanged { place, .. } } if *to == from => {
            Some(matches!(place, ActorPlace::Alive { .. }))
        }
        _ => None,
    };
    effects.iter().find_map(alive).expect("an answer")
}

/// Whether a process that knows the object's id can read it; the refusal says why not.
fn can_read(scene: &mut Scene, from: ProcessSlot, number: u64) -> bool {
    scene.hear(from, ToNode::Held { object: object(number) });
    let effects = scene.hear(from, ToNode::Subscribed { object: object(number) });
    let value = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, message: FromNode::ObjectResolved { value, .. } } if *to == from => {
            Some(value.clone())
        }
        _ => None,
    };
    match effects.iter().find_map(value).expect("an answer") {
        SharedValue::Failed(failure) => {
            let said = failure.to_string();
            assert!(said.contains("belongs to another job") && said.contains("hint: "), "{said}");
            false
        }
        SharedValue::Inline { .. } | SharedValue::Stored { .. } => true,
    }
}

fn names(scene: &mut Scene, from: ProcessSlot, namespace: &str) -> Vec<String> {
    let effects = scene.hear(from, ToNode::NamesWanted { request: 1, namespace: namespace.into() });
    let names = |effect: &NodeEffect| match effect {
        NodeEffect::Send { message: FromNode::Names { names, .. }, .. } => Some(names.clone()),
        _ => None,
    };
    effects.iter().find_map(names).expect("an answer")
}

#[test]
fn to_know_an_id_is_not_to_have_it() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    make(&mut scene, red, RED, 1, "");
    export(&mut scene, red[0], 1);
    for stranger in blue {
        assert!(!can_call(&mut scene, stranger, 1) && !can_read(&mut scene, stranger, 1));
        scene.hear(stranger, ToNode::ActorKilled { actor: actor(1), restart: false, request: None });
    }
    for own in red {
        assert!(can_call(&mut scene, own, 1) && can_read(&mut scene, own, 1));
    }
}

#[test]
fn jobs_that_meet_by_a_name_share_and_so_do_all_whom_they_know() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    let green = attach(&mut scene, GREEN, false);
    make(&mut scene, red, RED, 1, "shop/counter");
    make(&mut scene, green, GREEN, 2, "shop/clock");
    export(&mut scene, red[1], 1);
    assert!(finds(&mut scene, blue[0], "shop/counter"));
    assert!(can_call(&mut scene, blue[1], 1), "a handle may travel within the job");
    assert!(can_read(&mut scene, blue[0], 1), "what the actor gives");
    export(&mut scene, blue[0], 2);
    assert!(can_read(&mut scene, red[1], 2), "what the actor is given");
    assert!(!can_call(&mut scene, blue[0], 2), "whom nobody has met");
    assert!(finds(&mut scene, red[1], "shop/clock"));
    assert!(can_call(&mut scene, blue[0], 2), "a handle that the first actor has passed on");
}

#[test]
fn a_private_name_is_found_and_listed_by_its_job_alone() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    let name = format!("{PRIVATE}/counter");
    make(&mut scene, red, RED, 1, &name);
    assert!(!finds(&mut scene, blue[0], &name) && finds(&mut scene, red[1], &name));
    assert_eq!(names(&mut scene, blue[0], "shop"), [] as [String; 0]);
    assert_eq!(names(&mut scene, red[1], PRIVATE), [name]);
}

#[test]
fn a_job_that_shares_is_open_to_all_and_gets_no_right_by_it() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, true), attach(&mut scene, BLUE, false));
    export(&mut scene, red[0], 1);
    export(&mut scene, blue[0], 2);
    assert!(can_read(&mut scene, blue[0], 1) && !can_read(&mut scene, red[0], 2));
    make(&mut scene, red, RED, 1, "");
    assert!(can_call(&mut scene, blue[0], 1));
    assert!(can_read(&mut scene, red[1], 2), "what its actor is given");
}

#[test]
fn another_node_may_use_everything_and_what_it_was_given_is_for_all_who_know_it() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    let peer = scene.link();
    make(&mut scene, red, RED, 1, "");
    export(&mut scene, red[0], 1);
    assert!(!can_read(&mut scene, blue[0], 1));
    assert!(can_read(&mut scene, peer, 1) && can_call(&mut scene, peer, 1));
    // It may have passed them to any job.
    assert!(can_read(&mut scene, blue[0], 1) && can_call(&mut scene, blue[0], 1));
}

#[test]
fn a_handle_of_an_actor_that_comes_to_live_here_lets_its_holder_call() {
    let mut scene = Scene::of_daemon(Resources::none().with("CPU", Amount::units(2)));
    scene.node.join_cluster();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    let channel = |scene: &mut Scene| {
        let effects = scene.hear(blue[0], ToNode::ChannelWanted { request: 1, to: red[1] });
        effects.iter().any(|effect| matches!(effect, NodeEffect::OpenChannel { .. }))
    };
    let peer = scene.link();
    scene.hear(peer, ToNode::ActorEscaped { actor: actor(1), host: peer });
    scene.hear(blue[0], ToNode::ActorHeld { actor: actor(1) });
    assert!(!channel(&mut scene), "the actor does not live there");
    make(&mut scene, [peer, red[1]], RED, 1, "");
    assert!(channel(&mut scene));
    export(&mut scene, blue[0], 1);
    assert!(can_read(&mut scene, red[1], 1), "what the actor is given");
}

#[test]
fn who_waited_for_an_object_before_it_was_made_does_not_get_it() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    scene.hear(blue[0], ToNode::Held { object: object(1) });
    scene.hear(blue[0], ToNode::Subscribed { object: object(1) });
    let value = SharedValue::Inline { bytes: vec![7], contains: false };
    let exported = scene.hear(red[0], ToNode::Escaped { object: object(1), value: Some(value) });
    let [NodeEffect::Send { to, message: FromNode::ObjectResolved { value, .. } }] = &exported[..] else {
        panic!("{exported:?}");
    };
    assert!(*to == blue[0] && matches!(value, SharedValue::Failed(_)), "{value:?}");
    assert!(!can_read(&mut scene, blue[0], 1) && can_read(&mut scene, red[1], 1));
}

#[test]
fn a_circle_outlives_a_job_that_is_forgotten() {
    let mut scene = scene();
    let (red, blue) = (attach(&mut scene, RED, false), attach(&mut scene, BLUE, false));
    make(&mut scene, red, RED, 1, "shop/counter");
    assert!(finds(&mut scene, blue[0], "shop/counter"));
    export(&mut scene, red[0], 1);
    assert!(can_read(&mut scene, blue[0], 1));
    for process in red {
        scene.step(NodeInput::ProcessDied { process, cause: DeathCause::default() });
        for witness in blue {
            scene.hear(witness, ToNode::DeathHandled { process });
        }
        for other in red.into_iter().filter(|&other| other != process) {
            scene.hear(other, ToNode::DeathHandled { process });
        }
    }
    for _ in 0..200 {
        scene.now += 500_000;
        scene.step(NodeInput::Ticked);
    }
    assert!(!scene.node.knows_program(RED), "nothing of it is left");
    assert!(can_read(&mut scene, blue[1], 1), "what it has made is that of its circle");
}
