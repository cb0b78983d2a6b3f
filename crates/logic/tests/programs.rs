//! Programs whose drivers are gone: what is kept of them, and for how long.

mod support;

use aktis_logic::machine::node::{
    NodeEffect, NodeInput, PROGRAM_KEPT_MICROSECONDS, ProgramConfig, TEMPLATE_IDLE_MICROSECONDS_MAX,
};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{LaneId, ProcessSlot, ProgramId, Resources, Shape, ShardIndex};
use support::Scene;

const RED: ProgramId = ProgramId::from_hash([7; 16]);

/// A node that knows a program of templates, of which another node has a lane.
fn scene() -> (Scene, ProcessSlot, LaneId) {
    let mut scene = Scene::new(Resources::none(), true, true);
    scene.step(NodeInput::ProgramAdded(ProgramConfig { program: RED, shared_worker: false }));
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
