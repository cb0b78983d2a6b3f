//! One node of a virtual cluster: its machine, a driver, and a proxy for each link to another node.
//!
//! The driver makes, passes on, reads and drops objects (here), submits tasks and calls actors (`tasks.rs`), and is the
//! worker of all tasks and calls that other nodes send (`runs.rs`).

use super::memory::{Memory, SHAPE};
use super::port::VirtualProcess;
use super::runs::Result;
use super::tasks::Tasks;
use crate::random::Random;
use crate::world::{DRIVER, World, killed};
use aktis_logic::machine::node::{Guest, NodeConfig, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_logic::machine::remote_node::{
    LocalEvent, LocalProcesses, PlantedBug, RemoteNode, RemoteNodeCounts,
};
use aktis_protocol::control::{FromNode, Lease, RequestId, SharedValue, ToNode};
use aktis_protocol::hot::TaskHeader;
use aktis_protocol::peer::Frame;
use aktis_protocol::{
    ActorId, EntryRef, FailureKind, FunctionId, Labels, NodeId, NotRebuilt, ObjectId, ProgramId, Resources,
    SessionId, Shape, TaskId, TaskKey,
};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Bytes of a node's store: a few objects fill it.
const STORE_BYTES: u64 = 1 << 20;
/// Bytes of an object in the store at most.
pub(super) const OBJECT_BYTES_MAX: u64 = 400 << 10;
/// Cells of a proxy: few, so that some tasks have none.
const CELLS: usize = 2;

/// A reference of the driver.
#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) used: bool,
    /// Whether the driver has to say its value.
    promised: bool,
    awaited: bool,
    pub(super) entry: Option<EntryRef>,
    /// How many tasks and calls that were submitted have it as an argument.
    pub(super) passed: u32,
}

/// What the driver has asked the node for.
#[derive(Debug)]
pub(super) enum Question {
    /// Space for an object: its own, or the result of a task.
    Space(ObjectId, Option<Result>),
    Restore(ObjectId),
}

/// The proxy for another node.
pub(super) struct Proxy {
    pub(super) port: VirtualProcess,
    pub(super) machine: RemoteNode<VirtualProcess>,
}

/// See the module.
pub(super) struct Site {
    pub(super) memory: Rc<RefCell<Memory>>,
    pub(super) proxies: BTreeMap<usize, Proxy>,
    pub(super) references: BTreeMap<ObjectId, Reference>,
    pub(super) questions: BTreeMap<RequestId, Question>,
    next_request: RequestId,
    pub(super) tasks: Tasks,
    /// Objects that were lost, and tasks and calls that failed, without a fault.
    pub(super) losses: Vec<String>,
    /// Actors whose calls failed since the actor had ended.
    pub(super) ended: Vec<ActorId>,
}

impl Site {
    pub(super) fn new(has_program: bool) -> Self {
        let config = NodeConfig {
            node: NodeId::default(),
            labels: Labels::new(),
            resources: Resources::none(),
            store_bytes: STORE_BYTES,
            entries_max: 256,
            spill_bytes_max: 1 << 30,
            spill_file_is_shared: true,
            spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
            driver: Some(ProgramConfig { program: ProgramId::default(), shared_worker: true, shares: false }),
        };
        Self {
            memory: Rc::new(RefCell::new(Memory::new(World::new(config), has_program))),
            proxies: BTreeMap::new(),
            references: BTreeMap::new(),
            questions: BTreeMap::new(),
            next_request: 10,
            tasks: Tasks::default(),
            losses: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub(super) fn world(&self) -> RefMut<'_, World> {
        RefMut::map(self.memory.borrow_mut(), |memory| &mut memory.world)
    }

    /// There is a link to another node.
    pub(super) fn link(&mut self, other: usize, planted: Option<PlantedBug>) {
        let guest = Guest::Peer(NodeId::from_words([other as u64, 0]));
        let slot = self.world().attach(guest).expect("there is a place");
        self.world().send(slot, ToNode::Started);
        let port = VirtualProcess::new(slot, self.memory.clone());
        let definition = Shape::default();
        port.push_event(LocalEvent::Order(FromNode::ShapeTold { shape: SHAPE, definition }));
        let mut machine = RemoteNode::new(port.clone(), CELLS);
        planted.into_iter().for_each(|bug| machine.plant(bug));
        self.proxies.insert(other, Proxy { port, machine });
    }

    /// The link to another node is gone: its proxy ends, and is a dead process.
    pub(super) fn unlink(&mut self, other: usize) {
        let Some(Proxy { port, mut machine }) = self.proxies.remove(&other) else { return };
        let (slot, cause) = (port.slot, killed(port.slot));
        let now = self.world().now();
        machine.on_link_ended(now, &cause);
        // The driver reads nothing meanwhile.
        machine.on_time(now);
        machine.end(&cause);
        port.tell(ToNode::NodeGone);
        drop(machine);
        let runs =
            self.memory.borrow_mut().runs.extract_if(.., |run| run.proxy.slot == slot).collect::<Vec<_>>();
        drop(runs);
        port.release_dropped();
        self.memory.borrow_mut().leases.retain(|_, holder| *holder != slot);
        self.memory.borrow_mut().adding.retain(|(waiting, _)| *waiting != slot);
        self.world().kill(slot, cause);
        // The node hears of the death first, and before that all that it was told until then.
        while self.world().arrive() {}
        let mut world = self.world();
        let (dead, alive): (VecDeque<_>, _) =
            std::mem::take(&mut world.fetches).into_iter().partition(|fetch| fetch.peer == slot);
        world.fetches = alive;
        for fetch in dead {
            world.finish_fetch(fetch, Err("the node that had it is gone".to_owned()));
        }
    }

    // The proxies.

    /// A proxy reads the next message of the node, if there is one.
    pub(super) fn read_mail_of(&mut self, other: usize) {
        let proxy = &self.proxies[&other];
        let message = self.world().read(proxy.port.slot);
        message.into_iter().for_each(|message| proxy.port.on_message(message));
    }

    /// A frame arrives from another node.
    pub(super) fn on_frame(&mut self, other: usize, frame: Frame) {
        let now = self.world().now();
        let Some(proxy) = self.proxies.get_mut(&other) else { return };
        proxy.machine.begin_turn();
        proxy.machine.on_frame(now, frame);
        proxy.settle();
        let found = std::mem::take(&mut self.memory.borrow_mut().found);
        found.into_iter().for_each(|actor| self.tasks.handles.entry(actor).or_default().used = true);
    }

    /// The driver looks for an actor of another node by its name.
    pub(super) fn seek_actor(&mut self, other: usize, actor: ActorId) {
        self.proxies.get_mut(&other).expect("a link").machine.seek_actor(actor);
    }

    /// The link to another node has room, or not; time has passed.
    pub(super) fn turn(&mut self, other: usize, has_room: bool) {
        let now = self.world().now();
        let Some(proxy) = self.proxies.get_mut(&other) else { return };
        proxy.machine.on_time(now);
        if has_room {
            proxy.machine.add_events(proxy.port.take_events());
            while proxy.machine.on_room(now) {}
            proxy.machine.send_program_part();
        }
        proxy.settle();
    }

    /// A program that was being added is here.
    pub(super) fn finish_adding(&mut self) {
        let now = self.world().now();
        let mut memory = self.memory.borrow_mut();
        let Some((slot, program)) = memory.adding.pop() else { return };
        memory.has_program = true;
        drop(memory);
        let proxy = self.proxies.values_mut().find(|proxy| proxy.port.slot == slot);
        let proxy = proxy.expect("what a dead proxy waits for is forgotten");
        proxy.machine.on_program_added(now, program, Ok(()));
        proxy.settle();
    }

    /// The node grants a proxy a lease, or wants one back.
    pub(super) fn grant_or_revoke(&mut self, random: &mut Random) {
        let Some(other) = self.pick_link(random) else { return };
        let port = &self.proxies[&other].port;
        let order = match random.below(10) {
            0 => FromNode::LeaseRevoked { shape: SHAPE },
            1 => FromNode::HandBack { shape: SHAPE },
            _ => {
                let lease = self.memory.borrow_mut().grant(port.slot);
                let (gpus, cpus_only, once) = (Vec::new(), true, random.chance(20));
                FromNode::LeaseGranted { lease: Lease { lease, shape: SHAPE, gpus, cpus_only, once } }
            }
        };
        port.push_event(LocalEvent::Order(order));
    }

    // The driver.

    pub(super) fn tell(&self, message: ToNode) {
        self.world().send(DRIVER, message);
    }

    pub(super) fn ask(&mut self, question: Question, message: impl FnOnce(RequestId) -> ToNode) {
        self.next_request += 1;
        self.questions.insert(self.next_request, question);
        self.tell(message(self.next_request));
    }

    /// The driver does one random thing.
    pub(super) fn act(&mut self, random: &mut Random, faults: bool) {
        match random.below(20) {
            0 => self.make(random),
            1 | 2 => self.make_stored(random),
            3..=5 => self.submit_task(random),
            6 | 7 => self.work(random, faults),
            8 => self.look_at_one(random),
            9 => self.resolve_one(),
            10 | 11 => self.call_actor(random),
            12 => self.make_actor(random),
            13 => self.cancel_one(random),
            14 | 15 => self.grant_or_revoke(random),
            16 => self.drop_handle(random),
            17 => {
                let mut memory = self.memory.borrow_mut();
                memory.no_queue = random.chance(10);
            }
            _ => self.drop_one(random),
        }
    }

    /// The driver only tidies up.
    pub(super) fn close(&mut self, random: &mut Random) {
        self.memory.borrow_mut().no_queue = false;
        if !self.memory.borrow().lane.is_empty() {
            self.grant_or_revoke(random);
        }
        for _ in 0..4 {
            self.work(random, false);
        }
        self.resolve_one();
        self.drop_all_handles();
        self.references.values_mut().for_each(|reference| reference.used = false);
        self.release_unused();
    }

    pub(super) fn pick(&self, random: &mut Random) -> Option<ObjectId> {
        let used = self.references.iter().filter(|(_, reference)| reference.used);
        random.pick(&used.map(|(&object, _)| object).collect::<Vec<_>>())
    }

    pub(super) fn pick_link(&self, random: &mut Random) -> Option<usize> {
        random.pick(&self.proxies.keys().copied().collect::<Vec<_>>())
    }

    /// A small value, known or yet to come, with references inside or not.
    fn make(&mut self, random: &mut Random) {
        let object = fresh_task(random).returns(0);
        let inside: BTreeSet<_> = (0..random.below(3)).filter_map(|_| self.pick(random)).collect();
        let (promised, contains) = (random.chance(30), !inside.is_empty());
        let objects: Vec<ObjectId> = inside.into_iter().collect();
        if contains {
            let (objects, actors) = (objects.clone(), Vec::new());
            self.tell(ToNode::Contains { container: object, holder: DRIVER, objects, actors });
        }
        let value = (!promised).then(|| inline(objects));
        self.tell(ToNode::Escaped { object, value });
        self.references.insert(object, Reference { used: true, promised, ..Reference::default() });
    }

    /// A value in the store.
    fn make_stored(&mut self, random: &mut Random) {
        if self.questions.len() > 4 {
            return;
        }
        let (object, bytes) = (fresh_task(random).returns(0), 1 + random.below(OBJECT_BYTES_MAX));
        self.ask(Question::Space(object, None), |request| ToNode::ExtentWanted { request, object, bytes });
    }

    fn on_space(&mut self, object: ObjectId, entry: EntryRef, result: Option<Result>) {
        match result {
            None => {
                self.tell(ToNode::Sealed { object, holder: DRIVER });
                let entry = Some(entry);
                self.references.insert(object, Reference { used: true, entry, ..Reference::default() });
            }
            Some(result) => self.on_space_for_result(object, entry, result),
        }
    }

    /// Reads an object, or asks for its value.
    fn look_at_one(&mut self, random: &mut Random) {
        let Some(object) = self.pick(random) else { return };
        let reference = self.references.get_mut(&object).expect("it was picked");
        match reference.entry {
            Some(entry) => {
                let pinned = self.world().index.pin(entry, DRIVER);
                match pinned {
                    true => self.world().index.unpin(entry, DRIVER),
                    false => self
                        .ask(Question::Restore(object), |request| ToNode::RestoreWanted { request, object }),
                }
            }
            None if !reference.awaited && !reference.promised => {
                reference.awaited = true;
                self.tell(ToNode::Subscribed { object });
            }
            None => {}
        }
    }

    fn resolve_one(&mut self) {
        let promised = self.references.iter_mut().find(|(_, reference)| reference.promised);
        if let Some((&object, reference)) = promised {
            reference.promised = false;
            self.tell(ToNode::Resolved { object, value: inline(Vec::new()) });
        }
    }

    fn drop_one(&mut self, random: &mut Random) {
        if let Some(object) = self.pick(random) {
            self.references.get_mut(&object).expect("it was picked").used = false;
        }
        self.release_unused();
    }

    pub(super) fn release_unused(&mut self) {
        let questions = &self.questions;
        let restores = |object: &ObjectId| {
            questions.values().any(|question| matches!(question, Question::Restore(asked) if asked == object))
        };
        let is_unused = |object: &ObjectId, reference: &mut Reference| {
            let busy = reference.used || reference.promised || reference.awaited;
            !busy && reference.passed == 0 && !restores(object)
        };
        let unused: Vec<_> = self.references.extract_if(.., is_unused).map(|(object, _)| object).collect();
        unused.into_iter().for_each(|object| self.tell(ToNode::Released { object }));
    }

    /// A message of the node to the driver.
    pub(super) fn on_mail(&mut self, message: FromNode) {
        match message {
            FromNode::ExtentGranted { request, entry } => {
                if let Some(Question::Space(object, result)) = self.questions.remove(&request) {
                    self.on_space(object, entry, result);
                }
            }
            FromNode::ExtentDenied { request, .. } => {
                if let Some(Question::Space(_, Some(result))) = self.questions.remove(&request) {
                    self.on_no_space(&result);
                }
            }
            FromNode::Restored { request, outcome } => {
                let Some(Question::Restore(object)) = self.questions.remove(&request) else { return };
                match outcome {
                    Ok(entry) => {
                        if let Some(reference) = self.references.get_mut(&object) {
                            reference.entry = Some(entry);
                        }
                    }
                    Err(failure) if failure.kind == FailureKind::Lost => {
                        self.losses.push(format!("{object} was read: {failure}"));
                    }
                    Err(_) => {}
                }
            }
            FromNode::ObjectResolved { object, value } => self.on_value_told(object, value),
            // The driver has made them without a task: they cannot be reconstructed.
            FromNode::Rebuild { object } => {
                let kind = FailureKind::NotRebuilt(NotRebuilt::Other);
                let failure = aktis_protocol::Failure::new(kind, "no task makes it");
                self.tell(ToNode::Resolved { object, value: SharedValue::Failed(failure) });
            }
            FromNode::ProcessDied { process, .. } => self.on_process_died(process),
            FromNode::TaskLost { key, attempt, process, .. } => self.on_task_lost(process, key, attempt),
            FromNode::ActorChanged { actor, place } => self.on_actor_changed(actor, place),
            FromNode::EndActor { actor, .. } => self.end_actor(actor),
            FromNode::SharedWorker { .. } => {}
            other => unreachable!("{other:?}"),
        }
        self.release_unused();
    }

    fn on_value_told(&mut self, object: ObjectId, value: SharedValue) {
        let Some(reference) = self.references.get_mut(&object) else { return };
        reference.awaited = false;
        match value {
            SharedValue::Stored { entry, .. } => reference.entry = Some(entry),
            SharedValue::Failed(failure) => self.losses.push(format!("{object} was asked for: {failure}")),
            SharedValue::Inline { .. } => {}
        }
    }

    /// The node knows all that the driver refers to, and the invariants of the machines hold.
    pub(super) fn check(&self) {
        self.proxies.values().for_each(|proxy| proxy.machine.check());
        if self.world().unseen() > 0 {
            return;
        }
        for object in self.references.keys() {
            let is_known = self.world().node.knows_object(*object);
            assert!(is_known, "{object} is referred to and was freed");
        }
    }

    /// What is left here, if anything.
    pub(super) fn remains(&self) -> Option<String> {
        let memory = self.memory.borrow();
        let node = &memory.world.node;
        let counts = [
            ("objects", node.objects()),
            ("copies", node.copies()),
            ("actors", node.actors()),
            ("references", self.references.len()),
            ("questions", self.questions.len()),
            ("tasks and calls", self.tasks.pending.len()),
            ("handles", self.tasks.handles.len()),
            ("living actors", self.tasks.living.len()),
            ("tasks in the lane", memory.lane.len()),
            ("runs", memory.runs.len()),
            ("cells", memory.cells.len()),
            ("messages", memory.channel.len()),
            ("leases", memory.leases.len()),
        ];
        let mut left: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        for (other, proxy) in &self.proxies {
            let counts = proxy.machine.counts();
            let idle = RemoteNodeCounts { tickets: counts.tickets, ..Default::default() };
            let held = proxy.port.holds();
            if counts != idle || held > 0 || proxy.port.has_events() {
                left.push(format!("proxy for {other}: {counts:?}, {held} held"));
            }
        }
        (!left.is_empty()).then(|| left.join(", "))
    }
}

impl Proxy {
    /// After an input: what was dropped is released.
    fn settle(&mut self) {
        self.port.release_dropped();
        self.machine.check();
    }
}

pub(super) fn fresh_task(random: &mut Random) -> TaskId {
    TaskId::root(SessionId(random.number())).child(0)
}

fn inline(objects: Vec<ObjectId>) -> SharedValue {
    let contains = !objects.is_empty();
    let inside = aktis_protocol::peer::Inside { objects, actors: Vec::new() };
    SharedValue::Inline { bytes: aktis_protocol::control::encode(&inside), contains }
}

/// A task without a name.
pub(super) fn task_header() -> TaskHeader {
    TaskHeader {
        task: TaskId::default(),
        function: FunctionId(1),
        key: TaskKey { index: 0, generation: 0 },
        attempt: 0,
        stream_ahead: 0,
        returns: 1,
        kind: 0,
    }
}
