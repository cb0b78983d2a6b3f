//! Placement groups come and go: the numbers of their shapes and lanes are used again.

use aktis_logic::machine::node::{NodeConfig, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    Amount, FailureKind, GroupId, GroupPlace, GroupSpec, GroupState, Labels, LaneId, NodeId, ProcessSlot,
    ProgramId, Resources, SessionId, Shape, ShardIndex, TaskId, limits,
};
use aktis_virtual_cluster::world::{DRIVER, World};

const WORKER: ProcessSlot = ProcessSlot(1);

fn world() -> World {
    let mut world = World::new(NodeConfig {
        node: NodeId::default(),
        labels: Labels::new(),
        resources: Resources::none().with(CPU, Amount::ONE),
        store_bytes: 1 << 20,
        entries_max: 16,
        spill_bytes_max: 0,
        spill_file_is_shared: true,
        spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
        driver: Some(ProgramConfig { program: ProgramId::default(), shared_worker: false, shares: false }),
    });
    world.send(WORKER, ToNode::Started);
    settle(&mut world);
    world
}

/// Lets everything happen; gives what the driver was told. The worker gives back each lease that it gets.
fn settle(world: &mut World) -> Vec<FromNode> {
    let mut told = Vec::new();
    loop {
        while world.arrive() {}
        while let Some(message) = world.read(WORKER) {
            if let FromNode::LeaseGranted { lease } = message {
                world.send(WORKER, ToNode::LeaseReturned { lease: lease.lease });
            }
        }
        while let Some(message) = world.read(DRIVER) {
            if let FromNode::LaneRemoved { lane, .. } = message {
                world.send(DRIVER, ToNode::LaneForgotten { lane });
            }
            told.push(message);
        }
        if world.unseen() == 0 {
            return told;
        }
    }
}

fn group(number: u64) -> GroupId {
    GroupId::created_by(TaskId::root(SessionId(1)).child(number))
}

fn make(world: &mut World, number: u64) -> Vec<FromNode> {
    let bundles = vec![Resources::none().with(CPU, Amount::ONE)];
    let spec = GroupSpec { group: group(number), bundles, ..GroupSpec::default() };
    world.send(DRIVER, ToNode::GroupWanted { spec });
    settle(world)
}

fn lane(world: &mut World, number: u64) -> Result<LaneId, FailureKind> {
    let group = Some(GroupPlace { group: group(number), bundle: None });
    let shape = Shape { group, ..Shape::default() };
    world.send(DRIVER, ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) });
    let opened = settle(world).into_iter().find_map(|message| match message {
        FromNode::LaneOpened { lane, .. } => Some(lane.map_err(|failure| failure.kind)),
        _ => None,
    });
    opened.expect("an answer")
}

#[test]
fn ten_thousand_groups_in_a_row_are_made_used_and_removed() {
    let mut world = world();
    for number in 0..10_000 {
        let told = make(&mut world, number);
        assert_eq!(told, [FromNode::GroupChanged { group: group(number), state: GroupState::Ready }]);
        let used = lane(&mut world, number).expect("there is room");
        assert_eq!(used, LaneId(0), "the place of the one before");
        world.input(NodeInput::LaneDemand { lane: used, queued: 1 });
        settle(&mut world);
        world.send(DRIVER, ToNode::GroupRemoved { group: group(number) });
        settle(&mut world);
        assert_eq!((world.node.groups(), world.lanes.len()), (0, 0));
    }
    assert_eq!(world.running().len(), 2, "one worker has done for all");
    assert_eq!(lane(&mut world, 7), Err(FailureKind::GroupRemoved));
}

#[test]
fn groups_that_live_at_the_same_time_are_bounded_by_their_shapes() {
    let mut world = world();
    let fits = limits::SHAPES_MAX as u64 - 1;
    for number in 0..=fits {
        make(&mut world, number);
        assert_eq!(lane(&mut world, number).is_ok(), number < fits);
    }
    world.send(DRIVER, ToNode::GroupRemoved { group: group(3) });
    settle(&mut world);
    assert!(lane(&mut world, fits).is_ok());
}
