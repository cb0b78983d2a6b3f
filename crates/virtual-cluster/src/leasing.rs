//! Workers whose threads run tasks, around the real node and the real lease pools, from a seed.
//!
//! Messages wait by chance, so leases are granted, revoked and returned across each other. Some tasks never end, some
//! wait for others, and processes die. Checked at every step:
//! - what can run does run: a queued task starts within [`START_MICROSECONDS_MAX`] if its resources are free;
//! - of resources other than CPUs, tasks that run or wait never hold more than the node has;
//! - the invariants of the node and of the pools.

mod worker;

use crate::random::Random;
use crate::world::{DRIVER, World, killed};
use aktis_logic::machine::node::{NodeConfig, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_logic::planted::NodeBug;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    Amount, Labels, LaneId, NodeId, ProcessSlot, ProgramId, Resources, Shape, ShapeId, ShardIndex,
};
use std::collections::BTreeMap;
use worker::Worker;

/// The longest that a task may wait whose resources are free. Idle isolated workers keep a lease for less.
pub const START_MICROSECONDS_MAX: u64 = 1_000_000;
const STEP_MICROSECONDS: u64 = 500;
/// How often the node looks at lanes that have tasks.
const DEMAND_MICROSECONDS: u64 = 10_000;
/// Tasks that never end, at most.
const STUCK_MAX: usize = 2;
const CPUS: u64 = 3;
const LICENCE: &str = "licence";

/// Tasks of one shape that wait.
struct Queue {
    lane: LaneId,
    wanted: Resources,
    queued: u32,
    /// Since when all tasks that wait could run; none if they cannot, or the last one started just now.
    startable_since: Option<u64>,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tasks that were started.
    pub started: u64,
    /// Leases that were granted to a worker that the node waited for.
    pub crossings: u64,
    /// Tasks that waited for others.
    pub waits: u64,
}

struct Leasing {
    world: World,
    random: Random,
    queues: BTreeMap<ShapeId, Queue>,
    workers: BTreeMap<ProcessSlot, Worker>,
    summary: Summary,
    /// Whether new tasks come and processes die.
    is_open: bool,
    phase: Phase,
}

/// For a while, tasks of some shapes come, and none of the others.
#[derive(Default)]
struct Phase {
    shapes: Vec<ShapeId>,
    /// Steps from one submission to the next, on average.
    rest: u64,
}

/// Runs `steps` of half a millisecond from a seed, then lets all tasks come to their end; with `trace`, all that the node
/// sees and orders is printed. Panics if something is wrong.
pub fn run(seed: u64, steps: u32, trace: bool) -> Summary {
    run_with(seed, steps, trace, None)
}

/// The same, with a bug in the node.
pub fn run_with(seed: u64, steps: u32, trace: bool, planted: Option<NodeBug>) -> Summary {
    let program = ProgramId::from_words([0, 0]);
    let config = NodeConfig {
        node: NodeId::default(),
        labels: Labels::new(),
        resources: total(),
        store_bytes: 1 << 20,
        entries_max: 64,
        spill_bytes_max: 0,
        spill_file_is_shared: true,
        spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
        driver: Some(ProgramConfig { program, shared_worker: true, shares: false }),
    };
    let mut world = World::new(config);
    world.trace = trace;
    world.node.planted.plant(planted);
    let (random, workers) = (Random::new(seed), BTreeMap::new());
    let queues = shapes(program).into_iter().map(|shape| open(&mut world, shape)).collect();
    let mut run = Leasing {
        world,
        random,
        queues,
        workers,
        summary: Summary::default(),
        is_open: true,
        phase: Phase::default(),
    };
    for _ in 0..steps {
        run.step();
    }
    run.finish();
    run.summary
}

fn total() -> Resources {
    Resources::none().with(CPU, Amount::units(CPUS)).with(LICENCE, Amount::units(1))
}

fn shapes(program: ProgramId) -> [Shape; 5] {
    let cpu = Resources::none().with(CPU, Amount::units(1));
    let licence = cpu.clone().with(LICENCE, Amount::units(1));
    let shape = |resources: &Resources, isolated| Shape {
        resources: resources.clone(),
        isolated,
        program,
        ..Shape::default()
    };
    let wide = Resources::none().with(CPU, Amount::units(2));
    [
        shape(&cpu, false),
        shape(&cpu, true),
        shape(&licence, false),
        shape(&licence, true),
        shape(&wide, false),
    ]
}

fn open(world: &mut World, shape: Shape) -> (ShapeId, Queue) {
    let wanted = shape.resources.clone();
    let question = ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) };
    let answer = world.ask(DRIVER, question, |message| matches!(message, FromNode::LaneOpened { .. }));
    let FromNode::LaneOpened { lane: Ok(lane), .. } = answer else { panic!("no lane: {answer:?}") };
    (world.lanes[&lane].1, Queue { lane, wanted, queued: 0, startable_since: None })
}

impl Leasing {
    fn step(&mut self) {
        self.world.pass(STEP_MICROSECONDS);
        if self.is_open {
            self.submit();
        }
        self.report_demand();
        while self.world.unseen() > 0 && self.random.chance(90) {
            self.world.arrive();
        }
        self.deliver();
        self.work();
        self.check();
    }

    /// Now and then a few tasks; mostly nothing for a while.
    fn submit(&mut self) {
        if self.phase.rest == 0 || self.random.below(2000) == 0 {
            let rest = self.random.pick(&[50, 200, 1000]).expect("there are some");
            let all = self.queues.keys().copied();
            self.phase = Phase { shapes: all.filter(|_| self.random.chance(35)).collect(), rest };
        }
        let shape = self.random.pick(&self.phase.shapes);
        if let Some(shape) = shape.filter(|_| self.random.below(self.phase.rest) == 0) {
            let queue = self.queues.get_mut(&shape).expect("it has a queue");
            queue.queued += 1 + self.random.below(3) as u32;
            self.world.send(DRIVER, ToNode::LaneActive { lane: queue.lane });
        }
        if self.random.below(4000) == 0 {
            let alive: Vec<_> = self.workers.keys().copied().collect();
            let dead = self.random.pick(&alive);
            dead.into_iter().for_each(|slot| self.world.kill(slot, killed(slot)));
        }
    }

    fn report_demand(&mut self) {
        if self.world.now().0.is_multiple_of(DEMAND_MICROSECONDS) {
            for &Queue { lane, queued, .. } in self.queues.values() {
                self.world.input(NodeInput::LaneDemand { lane, queued });
            }
        }
    }

    /// Processes start, read their messages, or are dead.
    fn deliver(&mut self) {
        let world = &mut self.world;
        // What ran in a dead process is submitted again.
        for (_, worker) in self.workers.extract_if(.., |slot, _| !world.is_running(*slot)) {
            for (shape, _) in worker.tasks() {
                self.queues.get_mut(&shape).expect("it has a queue").queued += 1;
            }
        }
        for slot in world.running() {
            let kind = world.workers.get(&slot).and_then(|worker| worker.kind);
            if let Some(kind) = kind
                && !self.workers.contains_key(&slot)
            {
                if self.random.chance(5) {
                    self.workers.insert(slot, Worker::new(kind));
                    world.send(slot, ToNode::Started);
                }
                continue;
            }
            while world.has_mail(slot) && self.random.chance(70) {
                let message = world.read(slot).expect("there is one");
                match message {
                    FromNode::ProcessDied { process, .. } => {
                        world.send(slot, ToNode::DeathHandled { process });
                    }
                    FromNode::Shutdown => {
                        world.kill(slot, killed(slot));
                        break;
                    }
                    message => {
                        let Some(worker) = self.workers.get_mut(&slot) else { continue };
                        self.summary.crossings += u64::from(worker.is_crossed_by(&message));
                        let sent = worker.on_message(message);
                        sent.into_iter().for_each(|message| world.send(slot, message));
                    }
                }
            }
        }
    }

    fn work(&mut self) {
        let mut stuck = self.workers.values().map(Worker::stuck).sum::<usize>();
        for (&slot, worker) in &mut self.workers {
            if !self.world.is_running(slot) {
                continue;
            }
            let now = self.world.now().0;
            let mut sent = worker.go_on(now, !self.is_open);
            for shape in worker.idle_shapes() {
                let Some(queue) = self.queues.get_mut(&shape) else { continue };
                if queue.queued > 0 && self.random.chance(80) {
                    let endless = self.is_open && stuck < STUCK_MAX && self.random.chance(10);
                    let waits = self.random.chance(30);
                    worker.begin(now, shape, endless, waits, &mut self.random);
                    queue.queued -= 1;
                    queue.startable_since = None;
                    stuck += usize::from(endless);
                    self.summary.started += 1;
                    self.summary.waits += u64::from(waits);
                }
            }
            sent.extend(worker.return_idle(now));
            sent.into_iter().for_each(|message| self.world.send(slot, message));
        }
    }

    /// What tasks use: one that waits uses no CPU.
    fn used(&self) -> Resources {
        let mut used = Resources::none();
        for (shape, waits) in self.workers.values().flat_map(Worker::tasks) {
            let mut wanted = self.queues[&shape].wanted.clone();
            if waits {
                wanted.set(CPU, Amount::ZERO);
            }
            used.add(&wanted);
        }
        used
    }

    fn check(&mut self) {
        self.workers.values().for_each(Worker::check);
        let used = self.used();
        assert!(used.get(LICENCE) <= total().get(LICENCE), "{used:?} is in use");
        let startable = |queue: &Queue| {
            let mut then = used.clone();
            then.add(&queue.wanted);
            total().covers(&then)
        };
        // A task that lacks something keeps that back from others.
        let all = self.queues.values().filter(|queue| queue.queued > 0).all(startable);
        let now = self.world.now().0;
        for queue in self.queues.values_mut() {
            match all && queue.queued > 0 {
                false => queue.startable_since = None,
                true => {
                    let since = *queue.startable_since.get_or_insert(now);
                    let late = now - since > START_MICROSECONDS_MAX;
                    assert!(!late, "{} can run since {since} µs and does not at {now} µs", queue.lane);
                }
            }
        }
    }

    /// All tasks end; then the node has all that it began with, apart from leases that are idle.
    fn finish(&mut self) {
        self.is_open = false;
        for _ in 0..200_000 {
            self.step();
            let idle = self.workers.values().all(|worker| worker.tasks().next().is_none());
            if idle && self.queues.values().all(|queue| queue.queued == 0) {
                break;
            }
        }
        for _ in 0..2_000 {
            self.step();
        }
        let left: u32 = self.queues.values().map(|queue| queue.queued).sum();
        assert_eq!(left, 0, "tasks that never ran");
        assert_eq!(self.world.node.resources_debt().get(CPU), Amount::ZERO);
    }
}
