//! Programs whose drivers are gone: what is kept of them, and for how long.

mod support;

use aktis_logic::machine::node::{
    Guest, NodeEffect, NodeInput, PROGRAM_KEPT_MICROSECONDS, ProgramConfig, TEMPLATE_IDLE_MICROSECONDS_MAX,
};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::{
    DeathCause, LaneId, ObjectId, ProcessSlot, ProgramId, Resources, SessionId, Shape, ShardIndex, TaskId,
    limits,
};
use support::Scene;

const RED: ProgramId = ProgramId::from_hash([7; 16]);

/// A node that knows a program of templates, of which another node has a lane.
fn scene() -> (Scene, ProcessSlot, LaneId) {
    let mut scene = Scene::new(Resources::none(), true, true);
    scene.step(NodeInput::ProgramAdded(ProgramConfig { program: RED, shared_worker: false, shares: false }));
    let peer = scene.link();
    let shape = Shape { program: RED, ..Shape::default() };
    let opened = scene.hear(peer, ToNode::LaneWanted { request: 1, shape, shard: ShardIndex(0) });
    let lane = opened.iter().find_map(|effect| match effect {
        NodeEffect::Send { message: FromNode::LaneOpened { lane, .. }, .. } => lane.clone().ok(),
        _ => None,
    });
    (scene, peer, lane.expect("a lane"))
}

/// Time passes; what the node orders at the end of it.
fn pass(scene: &mut Scene, microseconds: u64) -> Vec<NodeEffect> {
    let until = scene.now + microseconds;
    let mut effects = Vec::new();
    while scene.now < until {
        scene.now = until.min(scene.now + 500_000);
        effects = scene.step(NodeInput::Ticked);
    }
    effects
}

fn ends_template(effect: &NodeEffect) -> bool {
    matches!(effect, NodeEffect::EndTemplate { program: RED })
}

fn forgets(effect: &NodeEffect) -> bool {
    matches!(effect, NodeEffect::ForgetProgram { program: RED })
}

#[test]
fn a_template_without_work_ends_and_lanes_of_other_nodes_do_not_keep_its_program() {
    let (mut scene, peer, lane) = scene();
    let effects = pass(&mut scene, TEMPLATE_IDLE_MICROSECONDS_MAX);
    assert!(!effects.iter().any(ends_template), "{effects:?}");
    let effects = pass(&mut scene, 1_000_000);
    assert!(effects.iter().any(ends_template), "{effects:?}");
    let is_asked = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, message } => *to == peer && *message == FromNode::LanesUnwanted(RED),
        _ => false,
    };
    assert!(effects.iter().any(is_asked), "{effects:?}");

    // A lane that is not given up keeps it: there is something to do in it.
    let effects = pass(&mut scene, PROGRAM_KEPT_MICROSECONDS);
    assert!(!effects.iter().any(forgets), "{effects:?}");
    scene.hear(peer, ToNode::LaneForgotten { lane });
    let effects = pass(&mut scene, 500_000);
    assert!(effects.iter().any(forgets), "{effects:?}");
}

/// A driver of `RED` attaches.
fn attach(scene: &mut Scene) -> ProcessSlot {
    let admitted = scene.step(NodeInput::Attached { guest: Guest::Driver(RED), pid: 9 });
    let place = admitted.iter().find_map(|effect| match effect {
        NodeEffect::Admit { process } => Some(*process),
        _ => None,
    });
    let driver = place.expect("there is a place");
    scene.hear(driver, ToNode::Started);
    driver
}

fn code(number: u64) -> (ObjectId, SharedValue) {
    let object = TaskId::root(SessionId(number)).child(0).returns(0);
    (object, SharedValue::Inline { bytes: vec![1], contains: false })
}

/// Exports code as the last thing that a process does.
fn export_and_die(scene: &mut Scene, object: ObjectId, value: SharedValue) {
    let exporter = attach(scene);
    scene.hear(exporter, ToNode::Escaped { object, value: Some(value) });
    scene.hear(exporter, ToNode::CodeKept { object });
    scene.step(NodeInput::ProcessLeft { process: exporter, cause: DeathCause::default() });
}

#[test]
fn code_outlives_its_exporter_while_its_program_is_in_use() {
    let (mut scene, ..) = scene();
    let ((object, value), driver) = (code(1), attach(&mut scene));
    export_and_die(&mut scene, object, value.clone());
    let told = scene.hear(driver, ToNode::Subscribed { object });
    let is_told = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, message: FromNode::ObjectResolved { value: told, .. } } => {
            *to == driver && *told == value
        }
        _ => false,
    };
    assert!(told.iter().any(is_told), "{told:?}");
    scene.step(NodeInput::ProcessLeft { process: driver, cause: DeathCause::default() });
    assert!(scene.node.knows_object(object), "the program has just lost its last driver");
    pass(&mut scene, 1_000_000);
    assert!(!scene.node.knows_object(object), "nothing of the program is left");
}

#[test]
fn the_oldest_code_of_a_program_is_released_at_the_limit() {
    let (mut scene, ..) = scene();
    let driver = attach(&mut scene);
    for number in 0..=limits::CODE_OBJECTS_MAX as u64 {
        let (object, value) = code(1 + number);
        scene.hear(driver, ToNode::Escaped { object, value: Some(value) });
        scene.hear(driver, ToNode::CodeKept { object });
        scene.hear(driver, ToNode::Released { object });
    }
    assert!(!scene.node.knows_object(code(1).0));
    assert!(scene.node.knows_object(code(2).0));
    assert_eq!(scene.node.objects(), limits::CODE_OBJECTS_MAX);
}

/// A driver of another program than all the others attaches.
fn attach_another(scene: &mut Scene, number: usize) -> Result<ProcessSlot, String> {
    let mut hash = [2; 16];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    let program = ProgramId::from_hash(hash);
    scene.step(NodeInput::ProgramAdded(ProgramConfig { program, shared_worker: false, shares: false }));
    let effects = scene.step(NodeInput::Attached { guest: Guest::Driver(program), pid: 9 });
    let outcome = effects.into_iter().find_map(|effect| match effect {
        NodeEffect::Admit { process } => Some(Ok(process)),
        NodeEffect::TurnAway { reason } => Some(Err(reason)),
        _ => None,
    });
    let driver = outcome.expect("an answer")?;
    scene.hear(driver, ToNode::Started);
    Ok(driver)
}

#[test]
fn a_node_that_serves_as_many_programs_as_it_can_says_what_to_end_and_has_room_after_that() {
    let mut scene = Scene::new(Resources::none(), true, true);
    let mut drivers = Vec::new();
    let refusal = (0..=limits::PROGRAMS_MAX).find_map(|number| {
        let attached = attach_another(&mut scene, number);
        attached.map(|driver| drivers.push(driver)).err()
    });
    let refusal = refusal.expect("there is an end to it");
    assert!(drivers.len() <= limits::PROGRAMS_MAX && drivers.len() > limits::PROGRAMS_MAX / 2);
    for part in [&limits::PROGRAMS_MAX.to_string(), "hint: ", "end drivers", "`aktis kill`"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    scene.step(NodeInput::ProcessLeft { process: drivers[0], cause: DeathCause::default() });
    assert!(attach_another(&mut scene, 1000).is_ok(), "the program without a driver makes room");
    assert!(attach_another(&mut scene, 1001).is_err(), "all others are needed");
}
