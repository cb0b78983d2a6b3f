//! Two jobs on one node, one of which says whatever it likes about what is the other's.
//!
//! The same honest job runs twice, with a hostile one and without it. The hostile job knows the ids of all that the other
//! has, and also of what the other will make next. Checked after each message:
//!
//! 1. what a hostile message causes is told to the hostile job alone;
//! 2. it is told no value, no place of an actor, and gets no channel, lane or room by the ids of the other;
//! 3. the honest job is told the same, and orders the same, in both runs.

use crate::random::Random;
use aktis_logic::machine::node::{
    Guest, Node, NodeConfig, NodeEffect, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT,
};
use aktis_logic::{Machine, Time};
use aktis_protocol::actors::{ActorPlace, ActorSpec, Away};
use aktis_protocol::control::{FromNode, ObjectCancel, SharedValue, ToNode};
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    ActorId, Amount, Failure, FailureKind, GroupId, GroupSpec, Labels, NodeId, ObjectId, ProcessSlot,
    ProgramId, Resources, SessionId, Shape, ShardIndex, TaskId,
};

const HONEST: ProgramId = ProgramId::from_hash([1; 16]);
const HOSTILE: ProgramId = ProgramId::from_hash([2; 16]);
/// The namespace of the honest job, which it was given.
const NAMESPACE: &str = "~00112233445566778899aabbccddeeff";
const BYTES: u64 = 1 << 10;
/// Between two messages.
const STEP_MICROSECONDS: u64 = 1_000;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Hostile messages.
    pub attacks: u64,
    /// Objects, actors and groups that the honest job has made.
    pub made: u64,
}

/// Runs both jobs from a seed. Panics if something is wrong.
pub fn run(seed: u64, steps: u32) -> Summary {
    let mut random = Random::new(seed);
    let (mut alone, mut attacked) = (Site::new(), Site::new());
    let mut summary = Summary::default();
    for _ in 0..steps {
        if random.chance(60) {
            let attack = attacked.attack(&mut random);
            attacked.hear_hostile(attack);
            summary.attacks += 1;
            continue;
        }
        // Both do the same: what is random is drawn from two equal generators.
        let same = Random::new(random.number());
        let (one, other) = (alone.act(&mut same.clone()), attacked.act(&mut same.clone()));
        assert_eq!(one, other, "the honest job sees a difference");
    }
    summary.made = attacked.next;
    summary
}

/// A node with the processes of both jobs.
struct Site {
    node: Node,
    now: u64,
    honest: Vec<ProcessSlot>,
    hostile: Vec<ProcessSlot>,
    /// Makes ids.
    next: u64,
    objects: Vec<ObjectId>,
    actors: Vec<ActorId>,
    groups: Vec<GroupId>,
}

impl Site {
    fn new() -> Self {
        let node = Node::new(NodeConfig {
            node: NodeId::default(),
            labels: Labels::new(),
            resources: Resources::none().with(CPU, Amount::units(4)),
            store_bytes: 1 << 20,
            entries_max: 512,
            spill_bytes_max: 0,
            spill_file_is_shared: true,
            spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
            driver: None,
        });
        let (honest, hostile) = (Vec::new(), Vec::new());
        let (objects, actors, groups) = (Vec::new(), Vec::new(), Vec::new());
        let mut site = Self { node, now: 0, honest, hostile, next: 0, objects, actors, groups };
        site.honest = site.attach(HONEST);
        site.hostile = site.attach(HOSTILE);
        site
    }

    /// A driver comes. Gives its place, and that of its worker.
    fn attach(&mut self, program: ProgramId) -> Vec<ProcessSlot> {
        let config = ProgramConfig { program, shared_worker: true, shares: false };
        self.step(NodeInput::ProgramAdded(config));
        let effects = self.step(NodeInput::Attached { guest: Guest::Driver(program), pid: 1 });
        let place = |effect: &NodeEffect| match effect {
            NodeEffect::Admit { process } | NodeEffect::StartWorker { process, .. } => Some(*process),
            _ => None,
        };
        let places: Vec<_> = effects.iter().filter_map(place).collect();
        assert_eq!(places.len(), 2, "{effects:?}");
        for &from in &places {
            self.hear(from, ToNode::Started);
        }
        places
    }

    fn step(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        let mut out = Vec::new();
        self.node.step(Time(self.now), input, &mut out);
        self.node.check();
        out
    }

    fn hear(&mut self, from: ProcessSlot, message: ToNode) -> Vec<NodeEffect> {
        self.step(NodeInput::Received { from, message })
    }

    fn task(&self, number: u64) -> TaskId {
        TaskId::root(SessionId(1)).child(number)
    }

    // The honest job.

    /// One random thing, and what follows. Gives what the node ordered and told, but for what the hostile job was told.
    fn act(&mut self, random: &mut Random) -> Vec<String> {
        self.now += STEP_MICROSECONDS;
        let mut seen = Vec::new();
        for (from, message) in self.honest_deed(random) {
            let mut waiting = vec![(from, message)];
            while let Some((from, message)) = waiting.pop() {
                for effect in self.hear(from, message) {
                    waiting.extend(self.answer(&effect));
                    if !self.is_for_hostile(&effect) {
                        seen.push(format!("{effect:?}"));
                    }
                }
            }
        }
        seen
    }

    fn is_for_hostile(&self, effect: &NodeEffect) -> bool {
        matches!(effect, NodeEffect::Send { to, .. } if self.hostile.contains(to))
    }

    /// What a process of the honest job says to an order.
    fn answer(&self, effect: &NodeEffect) -> Option<(ProcessSlot, ToNode)> {
        let NodeEffect::Send { to, message } = effect else { return None };
        let message = match message {
            FromNode::HostActor { spec, incarnation, .. } => {
                ToNode::ActorStarted { actor: spec.actor, incarnation: *incarnation }
            }
            FromNode::EndActor { actor, .. } => ToNode::ActorEnded {
                actor: *actor,
                failure: Failure::new(FailureKind::ActorDied, "it was told to end"),
            },
            _ => return None,
        };
        Some((*to, message))
    }

    fn honest_deed(&mut self, random: &mut Random) -> Vec<(ProcessSlot, ToNode)> {
        let (driver, worker) = (self.honest[0], self.honest[1]);
        let from = random.pick(&self.honest).expect("it has processes");
        let (object, actor) = (random.pick(&self.objects), random.pick(&self.actors));
        match (random.below(12), object, actor) {
            (0, ..) => {
                let object = self.fresh_object();
                let wanted = ToNode::ExtentWanted { request: 1, object, bytes: BYTES };
                vec![(from, wanted), (from, ToNode::Sealed { object, holder: driver })]
            }
            (1, ..) => {
                let object = self.fresh_object();
                let value = random.chance(50).then(|| value(b"secret"));
                vec![(driver, ToNode::Escaped { object, value })]
            }
            (2, Some(object), _) => vec![(from, ToNode::Resolved { object, value: value(b"secret") })],
            (3 | 4, Some(object), _) => {
                vec![(worker, ToNode::Held { object }), (worker, ToNode::Subscribed { object })]
            }
            (5, Some(inner), inside) => {
                let container = self.fresh_object();
                let actors = inside.into_iter().collect();
                vec![(from, ToNode::Contains { container, holder: driver, objects: vec![inner], actors })]
            }
            // The driver keeps all that it has made: an id of what is gone is nobody's.
            (6, Some(object), _) => vec![(worker, ToNode::Released { object })],
            (7, ..) => {
                let number = self.fresh();
                let actor = ActorId::created_by(self.task(number));
                self.actors.push(actor);
                let name = random.chance(50).then(|| format!("{NAMESPACE}/{number}"));
                let spec = ActorSpec { actor, program: HONEST, name, concurrency: 1, ..ActorSpec::default() };
                vec![(driver, ToNode::ActorWanted { spec: Box::new(spec) })]
            }
            (8, _, Some(actor)) => vec![(worker, ToNode::ActorHeld { actor })],
            (9, _, Some(actor)) => {
                vec![(driver, ToNode::ActorKilled { actor, restart: false, request: None })]
            }
            (10, ..) if self.groups.len() < 4 => {
                let group = GroupId::created_by(self.task(self.next));
                self.next += 1;
                self.groups.push(group);
                let bundles = vec![Resources::none().with(CPU, Amount::from_f64(0.1).expect("an amount"))];
                vec![(
                    driver,
                    ToNode::GroupWanted { spec: GroupSpec { group, bundles, ..GroupSpec::default() } },
                )]
            }
            _ => vec![(from, ToNode::NamesWanted { request: 1, namespace: NAMESPACE.into() })],
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn fresh_object(&mut self) -> ObjectId {
        let number = self.fresh();
        let object = self.task(number).returns(0);
        self.objects.push(object);
        object
    }

    // The hostile job.

    /// Something about what is the other's.
    fn attack(&self, random: &mut Random) -> ToNode {
        let victim = random.pick(&self.honest).expect("it has processes");
        let object = random.pick(&self.objects);
        if object.is_none() || random.chance(10) {
            // One that is not there yet: whoever asks for it early must not get it either.
            let object = self.task(self.next + random.below(3)).returns(0);
            return match random.chance(50) {
                true => ToNode::Held { object },
                false => ToNode::Subscribed { object },
            };
        }
        let object = object.expect("it was just there");
        if let Some(actor) = random.pick(&self.actors).filter(|_| random.chance(40)) {
            return actor_attack(random, actor, victim, self.hostile[0]);
        }
        if let Some(group) = random.pick(&self.groups).filter(|_| random.chance(10)) {
            return ToNode::GroupRemoved { group };
        }
        object_attack(random, object, victim, self.hostile[0])
    }

    fn hear_hostile(&mut self, message: ToNode) {
        self.now += STEP_MICROSECONDS;
        let from = self.hostile[usize::from(is_of_worker(&message))];
        let effects = self.hear(from, message.clone());
        for effect in effects {
            let NodeEffect::Send { to, message: told } = &effect else {
                panic!("{message:?} causes {effect:?}");
            };
            assert!(self.hostile.contains(to), "{message:?} tells others {told:?}");
            let gives = match told {
                FromNode::ObjectResolved { value, .. } => !matches!(value, SharedValue::Failed(_)),
                FromNode::ActorChanged { place, .. } => !matches!(place, ActorPlace::Dead(_)),
                FromNode::ActorFound { found, .. } => found.is_some(),
                FromNode::Names { names, .. } => !names.is_empty(),
                FromNode::ExtentGranted { .. } => true,
                FromNode::Restored { outcome, .. } => outcome.is_ok(),
                FromNode::ImportedAs { entry, .. } => entry.is_ok(),
                FromNode::LookedUp { known, .. } => *known,
                FromNode::Contents { objects, actors, .. } => !(objects.is_empty() && actors.is_empty()),
                FromNode::LaneOpened { lane, .. } => lane.is_ok(),
                FromNode::ChannelOpened { open, .. } => *open,
                FromNode::HostActor { .. } | FromNode::EndActor { .. } => true,
                _ => false,
            };
            assert!(!gives, "{message:?} is answered by {told:?}");
        }
    }
}

/// Whether the hostile worker says it, and not the driver.
fn is_of_worker(message: &ToNode) -> bool {
    matches!(message, ToNode::ActorStarted { .. } | ToNode::ActorEnded { .. } | ToNode::Contains { .. })
}

fn value(bytes: &[u8]) -> SharedValue {
    SharedValue::Inline { bytes: bytes.to_vec(), contains: false }
}

fn object_attack(random: &mut Random, object: ObjectId, victim: ProcessSlot, me: ProcessSlot) -> ToNode {
    let shape = Shape { program: HONEST, ..Shape::default() };
    match random.below(22) {
        0 => ToNode::Held { object },
        1 => ToNode::Subscribed { object },
        2 => ToNode::Escaped { object, value: Some(value(b"forged")) },
        3 => ToNode::Resolved { object, value: value(b"forged") },
        4 => ToNode::Released { object },
        5 => ToNode::LeftToOthers { object },
        6 => ToNode::CodeKept { object },
        7 => ToNode::ExtentWanted { request: 1, object, bytes: BYTES },
        8 => ToNode::RestoreWanted { request: 1, object },
        9 => ToNode::Sealed { object, holder: me },
        10 => ToNode::Abandoned { object },
        11 => ToNode::CancelWanted(ObjectCancel { object, force: true, recursive: true }),
        12 => ToNode::Contains { container: object, holder: me, objects: Vec::new(), actors: Vec::new() },
        13 => ToNode::ContentsWanted { request: 1, object },
        14 => ToNode::LookupWanted { request: 1, object },
        15 => ToNode::Promised { object, holder: me, found: true },
        16 => ToNode::Imported { request: 1, object, bytes: BYTES, holder: me, named: true },
        17 => ToNode::NotKnown { object },
        18 => ToNode::ChannelWanted { request: 1, to: victim },
        19 => ToNode::WorkerKilled { process: victim, task: object.task() },
        20 => ToNode::LaneWanted { request: 1, shape, shard: ShardIndex(0) },
        _ => {
            let (task, returns, program, lineage) = (object.task(), 1, HOSTILE, vec![1]);
            ToNode::Recorded { tasks: vec![RecordedTask { task, returns, program, lineage }] }
        }
    }
}

fn actor_attack(random: &mut Random, actor: ActorId, victim: ProcessSlot, me: ProcessSlot) -> ToNode {
    let spec = |program| Box::new(ActorSpec { actor, program, concurrency: 1, ..ActorSpec::default() });
    let failure = Failure::new(FailureKind::ActorDied, "forged");
    match random.below(14) {
        0 | 1 => ToNode::ActorHeld { actor },
        2 => ToNode::ActorKilled { actor, restart: false, request: Some(1) },
        3 => ToNode::ActorKilled { actor, restart: true, request: None },
        4 => ToNode::ActorReleased { actor },
        5 => ToNode::ActorWanted { spec: spec(HONEST) },
        6 => ToNode::ActorEscaped { actor, host: victim },
        7 => ToNode::ActorEscaped { actor, host: me },
        8 => ToNode::ActorEnded { actor, failure },
        9 => ToNode::ActorStarted { actor, incarnation: 0 },
        10 => ToNode::ActorAway { actor, away: Away { reason: "forged".into(), is_moved: false } },
        11 => ToNode::ActorInherited { actor },
        12 => ToNode::NameWanted { request: 1, name: format!("{NAMESPACE}/{}", random.below(40)) },
        _ => ToNode::NamesWanted { request: 1, namespace: String::new() },
    }
}
