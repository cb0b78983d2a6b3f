//! Which tasks and actors a node runs itself, and which it hands up; and what becomes of the answers.

mod support;

use aktis_logic::lease_pool::LeasePool;
use aktis_logic::machine::node::{
    NodeEffect, NodeInput, PATIENCE_MICROSECONDS, Verdict, WELCOME_MICROSECONDS,
};
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::placement::{FromPlacer, QueueRow, ToPlacer};
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    ActorId, Amount, FailureKind, FunctionId, GroupId, GroupPlace, GroupSpec, GroupState, LaneId, Near,
    NodeId, ProcessSlot, Resources, SessionId, Shape, ShapeId, ShardIndex, Strategy, TaskId,
};
use std::collections::VecDeque;
use support::{ME, Scene};

const DRIVER: ProcessSlot = ProcessSlot(0);
const WORKER: ProcessSlot = ProcessSlot(1);
const OTHER: NodeId = NodeId::of_session(SessionId(2));

/// A node of a cluster with two CPUs, a driver, a worker, and a process that stands for another node.
struct Story {
    scene: Scene,
    peer: ProcessSlot,
    lanes: u32,
}

impl Story {
    fn begin() -> Self {
        Self::of_node(true)
    }

    fn of_node(is_clustered: bool) -> Self {
        Self::of_cpus(2, is_clustered)
    }

    fn of_cpus(count: u64, is_clustered: bool) -> Self {
        let scene = Scene::new(cpus(count), true, is_clustered);
        let mut story = Self { scene, peer: ProcessSlot(0), lanes: 0 };
        story.step(NodeInput::WorkerSpawned { process: WORKER, pid: 7 });
        // What it has ahead of demand it gives back, so that all is free.
        let ahead = story.hear(WORKER, ToNode::Started);
        story.give_back(&ahead);
        story.peer = story.scene.link();
        story
    }

    fn step(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        self.scene.step(input)
    }

    fn hear(&mut self, from: ProcessSlot, message: ToNode) -> Vec<NodeEffect> {
        self.scene.hear(from, message)
    }

    /// The leases that these effects give are given back.
    fn give_back(&mut self, effects: &[NodeEffect]) -> Vec<NodeEffect> {
        let mut after = Vec::new();
        for effect in effects {
            if let NodeEffect::Send { to, message: FromNode::LeaseGranted { lease } } = effect {
                after.extend(self.hear(*to, ToNode::LeaseReturned { lease: lease.lease }));
            }
        }
        after
    }

    /// Somebody submits so many tasks of a shape; gives its number, and what follows.
    fn submit(&mut self, by: ProcessSlot, shape: Shape, count: u32) -> (ShapeId, Vec<NodeEffect>) {
        let opened = self.hear(by, ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) });
        let shape = opened.iter().find_map(|effect| match effect {
            NodeEffect::OpenLane { shape, .. } => Some(*shape),
            _ => None,
        });
        let lane = LaneId(self.lanes);
        self.lanes += 1;
        let effects = self.step(NodeInput::LaneDemand { lane, queued: count });
        (shape.expect("a new lane"), effects)
    }

    /// Time passes, and the lane is as full as before.
    fn wait(&mut self, count: u32) -> Vec<NodeEffect> {
        self.scene.now += PATIENCE_MICROSECONDS;
        let lane = LaneId(self.lanes - 1);
        self.step(NodeInput::LaneDemand { lane, queued: count })
    }
}

fn cpus(count: u64) -> Resources {
    Resources::none().with(CPU, Amount::units(count))
}

fn cpu() -> Shape {
    Shape { resources: cpus(1), ..Shape::default() }
}

fn spreading() -> Shape {
    Shape { strategy: Strategy::Spread, ..cpu() }
}

/// Tasks that need a little of the node, and may run there.
fn with(strategy: Strategy) -> Shape {
    Shape { resources: Resources::none().with(CPU, Amount(1000)), strategy, ..Shape::default() }
}

/// How many leases these effects give to a process.
fn leases(effects: &[NodeEffect], to: ProcessSlot) -> usize {
    let granted = |effect: &&NodeEffect| matches!(effect, NodeEffect::Send { to: holder, message: FromNode::LeaseGranted { .. } } if *holder == to);
    effects.iter().filter(granted).count()
}

/// How many tasks are handed up.
fn handed_up(effects: &[NodeEffect]) -> u32 {
    let count = |effect: &NodeEffect| match effect {
        NodeEffect::Place { count, .. } => Some(*count),
        _ => None,
    };
    effects.iter().filter_map(count).sum()
}

fn later(reason: &str, lasting: bool) -> Verdict {
    Verdict::Later { reason: reason.to_owned(), lasting }
}

/// What people are told by a process.
fn warnings(effects: &[NodeEffect], by: ProcessSlot) -> Vec<&str> {
    let mut texts = Vec::new();
    for effect in effects {
        if let NodeEffect::Send { to, message: FromNode::Warned { text } } = effect
            && *to == by
        {
            texts.push(text.as_str());
        }
    }
    texts
}

/// What the placer is told.
fn told(effects: Vec<NodeEffect>) -> Vec<ToPlacer> {
    let message = |effect| match effect {
        NodeEffect::TellPlacer { message } => Some(message),
        _ => None,
    };
    effects.into_iter().filter_map(message).collect()
}

#[test]
fn tasks_run_where_their_strategy_says() {
    let here = [
        Strategy::Default,
        Strategy::Node { node: ME, soft: false },
        Strategy::Node { node: ME, soft: true },
    ];
    for strategy in here {
        let (_, effects) = Story::begin().submit(DRIVER, with(strategy.clone()), 1);
        assert_eq!((handed_up(&effects), leases(&effects, WORKER)), (0, 1), "{strategy:?}");
    }
    let elsewhere = [
        Strategy::Spread,
        Strategy::Node { node: OTHER, soft: false },
        Strategy::Node { node: OTHER, soft: true },
    ];
    for strategy in elsewhere {
        let mut story = Story::begin();
        let (shape, effects) = story.submit(DRIVER, with(strategy.clone()), 3);
        assert_eq!((handed_up(&effects), leases(&effects, WORKER)), (3, 0), "{strategy:?}");
        let peer = story.peer;
        let there =
            story.step(NodeInput::Placed { shape, verdict: Verdict::There(peer), count: 2, slots: 2 });
        assert_eq!((leases(&there, peer), leases(&there, WORKER)), (2, 0), "{strategy:?}");
    }
}

#[test]
fn what_runs_where_the_placer_says_runs_here_on_credit_only() {
    let mut story = Story::begin();
    let (shape, effects) = story.submit(DRIVER, with(Strategy::Spread), 5);
    assert_eq!(leases(&effects, WORKER), 0);
    let effects = story.step(NodeInput::Placed { shape, verdict: Verdict::Here, count: 2, slots: 2 });
    assert_eq!(leases(&effects, WORKER), 2);
    let effects = story.wait(3);
    assert_eq!((leases(&effects, WORKER), handed_up(&effects)), (0, 3));
    let effects = story.step(NodeInput::PlacesLost);
    assert_eq!(leases(&effects, WORKER), 3, "nobody says where: here is as good as anywhere");
}

#[test]
fn leases_of_tasks_that_spread_are_for_one_task_each() {
    let mut story = Story::begin();
    let (shape, _) = story.submit(DRIVER, spreading(), 6);
    let peer = story.peer;
    let there = story.step(NodeInput::Placed { shape, verdict: Verdict::There(peer), count: 3, slots: 2 });
    let here = story.step(NodeInput::Placed { shape, verdict: Verdict::Here, count: 3, slots: 2 });
    assert_eq!((leases(&there, peer), leases(&here, WORKER)), (3, 2));
    let is_once = |effect: &NodeEffect| match effect {
        NodeEffect::Send { message: FromNode::LeaseGranted { lease }, .. } => lease.once,
        _ => true,
    };
    assert!(there.iter().chain(&here).all(is_once));
    // The third that was placed here gets its lease when one of the others is back, and no fourth does.
    let again = story.give_back(&here);
    let spread = |effect: &&NodeEffect| match effect {
        NodeEffect::Send { message: FromNode::LeaseGranted { lease }, .. } => lease.shape == shape,
        _ => false,
    };
    assert_eq!(again.iter().filter(spread).count(), 1);
    assert_eq!(story.give_back(&again).iter().filter(spread).count(), 0);
    // Tasks that do not spread keep their leases.
    let (_, effects) = story.submit(DRIVER, with(Strategy::Default), 1);
    assert!(leases(&effects, WORKER) == 1 && !effects.iter().all(is_once));
}

#[test]
fn the_placer_learns_with_the_next_question_how_many_are_done() {
    let mut story = Story::begin();
    let (shape, _) = story.submit(DRIVER, spreading(), 9);
    let peer = story.peer;
    let here = story.step(NodeInput::Placed { shape, verdict: Verdict::Here, count: 3, slots: 2 });
    let there = story.step(NodeInput::Placed { shape, verdict: Verdict::There(peer), count: 3, slots: 2 });
    assert_eq!((leases(&here, WORKER), leases(&there, peer)), (2, 3));
    story.give_back(&there);
    let one = here.iter().filter(|effect| leases(std::slice::from_ref(effect), WORKER) > 0).take(1);
    story.give_back(&one.cloned().collect::<Vec<_>>());
    // All that were placed have begun, and three are left.
    let effects = story.wait(3);
    let done = effects.iter().filter_map(|effect| match effect {
        NodeEffect::PlacesDone { peer, count, .. } => Some((*peer, *count)),
        _ => None,
    });
    assert_eq!(done.collect::<Vec<_>>(), [(None, 1), (Some(peer), 3)]);
    assert_eq!(handed_up(&effects), 3);
}

#[test]
fn tasks_that_were_placed_here_and_cannot_start_get_another_place() {
    let mut story = Story::begin();
    let (busy, effects) = story.submit(DRIVER, cpu(), 2);
    assert_eq!(leases(&effects, WORKER), 2, "{busy}");
    let (shape, _) = story.submit(DRIVER, spreading(), 2);
    story.step(NodeInput::Placed { shape, verdict: Verdict::Here, count: 2, slots: 2 });
    assert_eq!(handed_up(&story.wait(2)), 0);
    story.scene.now += WELCOME_MICROSECONDS;
    assert_eq!(handed_up(&story.wait(2)), 2);
}

/// The worker of a story with the leases in its pool.
#[derive(Default)]
struct PooledWorker {
    pool: LeasePool,
}

impl PooledWorker {
    /// Handles what these effects tell the worker, and what follows from its answers. Gives how many leases of the shape
    /// it returns.
    fn handle(&mut self, story: &mut Story, shape: ShapeId, effects: Vec<NodeEffect>) -> usize {
        let mut returned = 0;
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let (of, back) = match effect {
                NodeEffect::Send { to: WORKER, message: FromNode::LeaseGranted { lease } } => {
                    (lease.shape, self.pool.grant(lease))
                }
                NodeEffect::Send { to: WORKER, message: FromNode::LeaseRevoked { shape } } => {
                    (shape, self.pool.revoke(shape))
                }
                _ => continue,
            };
            if let Some(lease) = back {
                returned += usize::from(of == shape);
                assert!(returned < 100, "the node grants what the worker returns, again and again");
                effects.extend(story.hear(WORKER, ToNode::LeaseReturned { lease }));
            }
        }
        self.pool.check();
        returned
    }
}

#[test]
fn a_spread_task_starts_beside_older_ones_of_its_shape() {
    // With and without a report that the lane is empty, after which the node asks for the leases in use.
    for is_reported_empty in [false, true] {
        let mut story = Story::of_cpus(4, true);
        let mut worker = PooledWorker::default();
        let (shape, _) = story.submit(DRIVER, Shape { isolated: false, ..spreading() }, 1);
        for task in 0..4 {
            let here = NodeInput::Placed { shape, verdict: Verdict::Here, count: 1, slots: 4 };
            let effects = story.step(here);
            let bounced = worker.handle(&mut story, shape, effects);
            assert!(bounced <= 1, "task {task} waits for {bounced} leases that came back");
            worker.pool.take(shape).unwrap_or_else(|| panic!("task {task} has no lease"));
            if is_reported_empty {
                let effects = story.wait(0);
                assert_eq!(worker.handle(&mut story, shape, effects), 0);
            }
            // The tasks run for long, and another one comes.
            story.scene.now += 1_000_000;
            let effects = story.wait(u32::from(task < 3));
            worker.handle(&mut story, shape, effects);
        }
        let effects = story.wait(1);
        let done = effects.iter().any(|effect| matches!(effect, NodeEffect::PlacesDone { .. }));
        assert!(!done, "all of them still run: {effects:?}");
    }
}

/// How many tasks of this node the placer is told to be done.
fn done_here(effects: &[NodeEffect]) -> u32 {
    let count = |effect: &NodeEffect| match effect {
        NodeEffect::PlacesDone { peer: None, count, .. } => Some(*count),
        _ => None,
    };
    effects.iter().filter_map(count).sum()
}

#[test]
fn tasks_stop_running_here_once_the_placer_answers_again() {
    for shape in [spreading(), with(Strategy::Node { node: OTHER, soft: true })] {
        let mut story = Story::begin();
        let (shape, _) = story.submit(DRIVER, shape, 300);
        let here = story.step(NodeInput::PlacesLost);
        assert!(leases(&here, WORKER) > 0, "nobody says where: here is as good as anywhere");
        let lost = story.scene.now;
        let mut effects = Vec::new();
        while handed_up(&effects) == 0 {
            effects = story.wait(200);
            assert!(story.scene.now < lost + WELCOME_MICROSECONDS, "the placer is not asked again");
        }
        let peer = story.peer;
        let answer = NodeInput::Placed { shape, verdict: Verdict::There(peer), count: 1, slots: 2 };
        assert_eq!(leases(&story.step(answer), peer), 1);
        let of_shape = |effect: &&NodeEffect| matches!(effect, NodeEffect::Send { to: WORKER, message: FromNode::LeaseGranted { lease } } if lease.shape == shape);
        let after = story.give_back(&here);
        assert_eq!(after.iter().filter(of_shape).count(), 0, "the placer has not said here");
    }
}

#[test]
fn a_missing_answer_is_no_place_that_is_done_later() {
    let mut story = Story::begin();
    let (busy, _) = story.submit(DRIVER, cpu(), 2);
    let (shape, _) = story.submit(DRIVER, spreading(), 2);
    let lost = story.step(NodeInput::PlacesLost);
    assert_eq!(leases(&lost, WORKER), 0, "{busy} has all CPUs");
    story.scene.now += WELCOME_MICROSECONDS;
    let effects = story.wait(2);
    assert_eq!((handed_up(&effects), done_here(&effects)), (2, 0), "{shape}");
}

#[test]
fn a_proxy_keeps_no_more_idle_leases_than_its_node_has_slots() {
    let mut story = Story::begin();
    let (shape, _) = story.submit(DRIVER, Shape { isolated: false, ..Shape::default() }, 12);
    assert!(handed_up(&story.wait(10)) > 0);
    let peer = story.peer;
    let there = story.step(NodeInput::Placed { shape, verdict: Verdict::There(peer), count: 8, slots: 2 });
    assert_eq!(leases(&there, peer), 8);
    let revoked = |effects: &[NodeEffect]| {
        let to_peer = |effect: &&NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::LeaseRevoked { .. } } if *to == peer);
        effects.iter().filter(to_peer).count()
    };
    assert_eq!(revoked(&story.wait(1)), 0, "there is work");
    assert_eq!(revoked(&story.wait(0)), 6);
    assert_eq!(revoked(&story.wait(0)), 0, "they are asked for once");
}

#[test]
fn what_another_node_has_sent_is_not_handed_up() {
    let mut story = Story::begin();
    let peer = story.peer;
    let wide = Shape { resources: cpus(2), ..Shape::default() };
    story.submit(peer, wide.clone(), 5);
    assert_eq!(handed_up(&story.wait(5)), 0, "it would go in rings");
    story.submit(DRIVER, wide, 3);
    assert_eq!(handed_up(&story.wait(3)), 3, "those of this node are");
}

#[test]
fn what_another_node_has_sent_goes_back_to_it_if_nothing_moves() {
    let mut story = Story::begin();
    let peer = story.peer;
    let wide = Shape { resources: cpus(2), ..Shape::default() };
    let (shape, effects) = story.submit(peer, wide, 5);
    assert_eq!(leases(&effects, WORKER), 1, "there is room for one");
    let handed_back = |effects: &[NodeEffect]| {
        let is_told = |effect: &&NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::HandBack { shape: told } } if *to == peer && *told == shape);
        effects.iter().filter(is_told).count()
    };
    let lane = LaneId(0);
    let mut look = |microseconds, queued| {
        story.scene.now += microseconds;
        handed_back(&story.step(NodeInput::LaneDemand { lane, queued }))
    };
    assert_eq!(look(1, 4), 0);
    assert_eq!(look(WELCOME_MICROSECONDS, 4), 1);
    assert_eq!(look(WELCOME_MICROSECONDS, 3), 0, "one has begun: the others will");
    assert_eq!(look(WELCOME_MICROSECONDS, 3), 1);
}

#[test]
fn an_actor_that_another_node_has_sent_goes_back_to_it_if_there_is_no_room() {
    let mut story = Story::begin();
    let peer = story.peer;
    story.submit(DRIVER, Shape { resources: cpus(2), ..Shape::default() }, 1);
    let actor = ActorId::created_by(TaskId::root(SessionId(2)));
    let strategy = Strategy::Node { node: ME, soft: false };
    let spec = ActorSpec { actor, resources: cpus(1), strategy, ..ActorSpec::default() };
    story.hear(peer, ToNode::ActorWanted { spec: Box::new(spec) });
    let is_handed_back = |effects: Vec<NodeEffect>| {
        let is_told = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { to, message: FromNode::ActorLost { actor: lost, cause: None } } if *to == peer && *lost == actor);
        effects.iter().any(is_told)
    };
    story.scene.now += WELCOME_MICROSECONDS - 1;
    assert!(!is_handed_back(story.step(NodeInput::Ticked)));
    story.scene.now += 1;
    assert!(is_handed_back(story.step(NodeInput::Ticked)));
    story.scene.now += WELCOME_MICROSECONDS;
    assert!(!is_handed_back(story.step(NodeInput::Ticked)), "it is not here any more");
}

#[test]
fn an_actor_that_is_released_before_it_has_its_place_is_forgotten() {
    let mut story = Story::begin();
    let actor = |number| ActorId::created_by(TaskId::root(SessionId(1)).child(number));
    let spec = |number, strategy| {
        let (actor, resources) = (actor(number), cpus(2));
        Box::new(ActorSpec { actor, resources, strategy, concurrency: 1, ..ActorSpec::default() })
    };
    story.hear(DRIVER, ToNode::ActorWanted { spec: spec(1, Strategy::Default) });
    story.hear(DRIVER, ToNode::ActorWanted { spec: spec(2, Strategy::Spread) });
    let placed = NodeInput::ActorPlaced { actor: actor(2), verdict: Verdict::Here };
    story.step(placed);
    let place = story.scene.node.actor_place(actor(2));
    assert!(matches!(place, Some(ActorPlace::Pending(_))), "the first actor has all CPUs: {place:?}");
    story.hear(DRIVER, ToNode::ActorReleased { actor: actor(2) });
    assert_eq!(story.scene.node.actors(), 1);
}

#[test]
fn tasks_that_read_much_elsewhere_are_handed_up_while_that_node_is_there() {
    let mut story = Story::begin();
    let near = |peer| Shape { near: Near::new(Some(peer), 8 << 20), ..with(Strategy::Default) };
    let (_, effects) = story.submit(DRIVER, near(story.peer), 1);
    assert_eq!(handed_up(&effects), 1);
    let (_, effects) = story.submit(DRIVER, near(ProcessSlot(77)), 1);
    assert_eq!(handed_up(&effects), 0, "nobody has it");
}

#[test]
fn a_reason_to_wait_is_told_and_the_question_withdrawn_when_nobody_waits() {
    let mut story = Story::begin();
    let (shape, effects) = story.submit(DRIVER, with(Strategy::Node { node: OTHER, soft: false }), 1);
    assert_eq!(handed_up(&effects), 1);
    let reason = "the cluster has no such node".to_owned();
    story.step(NodeInput::Placed { shape, verdict: later(&reason, false), count: 0, slots: 0 });
    let explained = story.hear(DRIVER, ToNode::ShapeQuestion { request: 1, lane: LaneId(0) });
    assert!(explained.iter().any(|effect| matches!(
        effect,
        NodeEffect::Send { message: FromNode::ShapeExplained { text, .. }, .. } if text.ends_with(&reason)
    )));
    assert_eq!(handed_up(&story.wait(1)), 0, "the answer is still to come");
    let effects = story.wait(0);
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::Withdraw { .. })), "{effects:?}");
}

#[test]
fn a_part_of_a_group_is_set_aside_opened_and_given_back() {
    let mut story = Story::begin();
    let group = GroupId::created_by(TaskId::root(SessionId(3)).child(1));
    let spec = GroupSpec { group, bundles: vec![cpus(1), cpus(1)], ..GroupSpec::default() };
    let wanted = told(story.hear(DRIVER, ToNode::GroupWanted { spec: spec.clone() }));
    assert_eq!(wanted, [ToPlacer::GroupWanted { spec: spec.clone() }]);
    let bundles = vec![(1, cpus(1))];
    let reserve = FromPlacer::Reserve { group, spec: spec.clone(), attempt: 4, bundles };
    let effects = story.step(NodeInput::GroupTold { message: reserve });
    assert_eq!(told(effects), [ToPlacer::Reserved { group, attempt: 4, outcome: Ok(()) }]);
    story.step(NodeInput::GroupTold { message: FromPlacer::Commit { group, attempt: 4 } });
    let nodes = vec![OTHER, ME];
    let ready = FromPlacer::GroupChanged { group, spec: Some(spec.clone()), state: GroupState::Ready, nodes };
    let effects = story.step(NodeInput::GroupTold { message: ready });
    assert!(effects.iter().any(|effect| matches!(
        effect,
        NodeEffect::Send { to: DRIVER, message: FromNode::GroupChanged { state: GroupState::Ready, .. } }
    )));
    // Its own bundle is used at once, the other one through the placer.
    let inside = |bundle| Shape {
        resources: cpus(1),
        group: Some(GroupPlace { group, bundle: Some(bundle) }),
        ..Shape::default()
    };
    let (_, effects) = story.submit(DRIVER, inside(1), 1);
    assert_eq!((leases(&effects, WORKER), handed_up(&effects)), (1, 0));
    let lease = effects.clone();
    let (_, effects) = story.submit(DRIVER, inside(0), 1);
    assert_eq!((leases(&effects, WORKER), handed_up(&effects)), (0, 1));
    // A placer that comes back is told what is here. It knows that the group is wanted, or that it was removed.
    let kept = ToPlacer::GroupKept { group, bundles: vec![1] };
    assert_eq!(told(story.step(NodeInput::PlacerCame)), [kept, ToPlacer::GroupWatched { group }]);
    // Its bundle is returned once nobody uses it.
    let asked_back = FromPlacer::Return { group, bundles: vec![1] };
    assert_eq!(told(story.step(NodeInput::GroupTold { message: asked_back })), []);
    assert_eq!(told(story.give_back(&lease)), [ToPlacer::Returned { group }]);
}

#[test]
fn a_group_is_asked_for_until_the_placer_has_said_that_it_keeps_it() {
    let mut story = Story::begin();
    let group = GroupId::created_by(TaskId::root(SessionId(3)).child(1));
    let spec = GroupSpec { group, bundles: vec![cpus(1)], ..GroupSpec::default() };
    let wanted = told(story.hear(DRIVER, ToNode::GroupWanted { spec: spec.clone() }));
    assert_eq!(wanted, [ToPlacer::GroupWanted { spec: spec.clone() }]);
    assert_eq!(told(story.step(NodeInput::PlacerCame)), wanted, "it may have died before it wrote that down");
    let state = GroupState::Pending("it is large".into());
    let message = FromPlacer::GroupChanged { group, spec: Some(spec), state, nodes: Vec::new() };
    story.step(NodeInput::GroupTold { message });
    assert_eq!(told(story.step(NodeInput::PlacerCame)), [ToPlacer::GroupWatched { group }]);
}

#[test]
fn tasks_that_can_run_nowhere_fail_and_the_next_are_tried_anew() {
    let mut story = Story::begin();
    let bound = with(Strategy::Node { node: OTHER, soft: false });
    let (shape, _) = story.submit(DRIVER, bound.clone(), 2);
    let verdict = Verdict::Never("the cluster has no such node".to_owned());
    let effects = story.step(NodeInput::Placed { shape, verdict, count: 0, slots: 0 });
    let failed = |effect: &NodeEffect| {
        matches!(effect, NodeEffect::Send { to: DRIVER, message: FromNode::LaneRemoved { lane: LaneId(0), failure } }
            if failure.kind == FailureKind::Unschedulable && failure.message.contains("no such node"))
    };
    assert!(effects.iter().any(failed), "{effects:?}");
    assert_eq!(handed_up(&story.wait(2)), 0, "nobody waits");
    let effects = story.hear(DRIVER, ToNode::LaneForgotten { lane: LaneId(0) });
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::CloseLane { .. })), "{effects:?}");
    story.lanes = 0;
    let (_, effects) = story.submit(DRIVER, bound, 1);
    assert_eq!(handed_up(&effects), 1, "it may be there by now");
}

#[test]
fn without_others_nothing_can_run_on_another_node() {
    let mut story = Story::of_node(false);
    let shape = with(Strategy::Node { node: OTHER, soft: false });
    let effects = story.hear(DRIVER, ToNode::LaneWanted { request: 3, shape, shard: ShardIndex(0) });
    let refused = |effect: &NodeEffect| {
        matches!(effect, NodeEffect::Send { message: FromNode::LaneOpened { lane: Err(failure), .. }, .. }
            if failure.kind == FailureKind::Unschedulable)
    };
    assert!(effects.iter().any(refused), "{effects:?}");
}

#[test]
fn what_insists_on_a_node_is_told_what_that_node_lacks() {
    let mut story = Story::begin();
    let strategy = Strategy::Node { node: ME, soft: false };
    story.submit(DRIVER, Shape { resources: cpus(3), ..with(strategy) }, 1);
    let told = story.hear(DRIVER, ToNode::ShapeQuestion { request: 1, lane: LaneId(0) });
    let [NodeEffect::Send { message: FromNode::ShapeExplained { text, .. }, .. }] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(text.ends_with("it has to be on this node, which has not 3 CPU, but 2 CPU in all"), "{text}");
}

#[test]
fn people_are_told_once_what_no_node_can_run() {
    let mut story = Story::begin();
    let large = |count| Shape { resources: cpus(count), ..Shape::default() };
    let (shape, effects) = story.submit(DRIVER, large(99), 1);
    assert_eq!(warnings(&effects, DRIVER), [] as [&str; 0], "others may have more");
    let mut answer = |shape, verdict| story.step(NodeInput::Placed { shape, verdict, count: 0, slots: 0 });
    assert_eq!(warnings(&answer(shape, later("all is taken", false)), DRIVER), [] as [&str; 0]);
    let effects = answer(shape, later("no node has 99 CPU", true));
    assert_eq!(warnings(&effects, DRIVER), ["a task waits for a node that can run it: no node has 99 CPU"]);
    assert_eq!(warnings(&answer(shape, later("no node has 99 CPU", true)), DRIVER), [] as [&str; 0]);
    assert_eq!(warnings(&answer(shape, later("no node has it", true)), DRIVER).len(), 1);

    let mut alone = Story::of_node(false);
    let (_, effects) = alone.submit(DRIVER, large(99), 1);
    let text = "a task waits for a node that can run it: no node has 99 CPU; this node has 2 CPU in all";
    assert_eq!(warnings(&effects, DRIVER), [text]);
    assert_eq!(warnings(&alone.wait(1), DRIVER), [] as [&str; 0]);
    let (_, effects) = alone.submit(DRIVER, large(2), 1);
    assert_eq!(warnings(&effects, DRIVER), [] as [&str; 0], "it waits for others at most");
}

#[test]
fn queues_are_reported_by_what_waits_in_them() {
    let mut story = Story::begin();
    let (long, short) = (FunctionId(1), FunctionId(2));
    let (here, _) = story.submit(DRIVER, with(Strategy::Default), 9);
    let (elsewhere, _) = story.submit(DRIVER, with(Strategy::Spread), 5);
    let report = |running: Option<ShapeId>, waiting: &[FunctionId]| {
        let runs = |process| running.filter(|_| process == WORKER).map(|shape| (shape, short));
        let report =
            story.scene.node.report(|process| runs(process).into_iter().collect(), |_| waiting.to_vec());
        let row = |row: &QueueRow| (row.function, row.queued, row.running);
        (report.available, report.queues.iter().map(row).collect::<Vec<_>>())
    };
    let (available, rows) = report(Some(here), &[long, short, long, long]);
    assert_eq!(rows, [(long, 7, 0), (short, 2, 1)], "nobody waits here for what others run");
    let (more, rows) = report(None, &[long]);
    assert_eq!(rows, [(long, 9, 0)]);
    assert_ne!(more, available, "what is not used is free");
    assert_eq!(report(Some(elsewhere), &[long]), (more, rows), "it is not used by a task with other needs");
    assert_eq!(report(None, &[]).1, [], "they have begun meanwhile");
}
