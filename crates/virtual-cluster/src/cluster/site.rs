//! One node of a virtual cluster: its machine, a driver that makes, passes on, reads and drops objects, and a process for
//! each link to another node.

use super::bridge::{Bridge, Letter};
use crate::random::Random;
use crate::world::{DRIVER, World, killed};
use aktis_logic::machine::node::{Guest, NodeConfig, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_protocol::control::{FromNode, RequestId, SharedValue, ToNode};
use aktis_protocol::{
    EntryRef, FailureKind, Labels, NodeId, NotRebuilt, ObjectId, ProgramId, Resources, SessionId, TaskId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a node's store: a few objects fill it.
const STORE_BYTES: u64 = 1 << 20;
/// Bytes of an object in the store at most.
const OBJECT_BYTES_MAX: u64 = 400 << 10;

/// A reference of the driver.
#[derive(Debug, Default)]
struct Reference {
    used: bool,
    /// Whether the driver has to say its value.
    promised: bool,
    awaited: bool,
    entry: Option<EntryRef>,
    /// The links by which tasks have it as an argument.
    passed: Vec<(usize, u64)>,
}

/// What the driver has asked the node for.
#[derive(Debug)]
enum Question {
    /// Space for an object: its own, or the result of a task that came by this link.
    Space(ObjectId, Option<(usize, u64)>),
    Restore(ObjectId),
}

/// See the module.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) bridges: BTreeMap<usize, Bridge>,
    /// Letters to the driver, with the number of the other node.
    pub(super) letters_to_driver: VecDeque<(usize, Letter)>,
    /// How often there was a link to each other node.
    lives: BTreeMap<usize, u64>,
    references: BTreeMap<ObjectId, Reference>,
    questions: BTreeMap<RequestId, Question>,
    next_request: RequestId,
    /// Arguments of tasks that run here, and the links by which they came.
    working: Vec<(ObjectId, usize, u64)>,
    /// Objects that were lost, whoever noticed.
    pub(super) losses: Vec<String>,
}

impl Site {
    pub(super) fn new() -> Self {
        let config = NodeConfig {
            node: NodeId::default(),
            labels: Labels::new(),
            resources: Resources::none(),
            store_bytes: STORE_BYTES,
            entries_max: 256,
            spill_bytes_max: 1 << 30,
            spill_file_is_shared: true,
            spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
            driver: Some(ProgramConfig { program: ProgramId::default(), shared_worker: true }),
        };
        Self {
            world: World::new(config),
            bridges: BTreeMap::new(),
            letters_to_driver: VecDeque::new(),
            lives: BTreeMap::new(),
            references: BTreeMap::new(),
            questions: BTreeMap::new(),
            next_request: 10,
            working: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// There is a link to another node.
    pub(super) fn link(&mut self, other: usize) {
        let slot =
            self.world.attach(Guest::Peer(NodeId::from_words([other as u64, 0]))).expect("there is a place");
        self.world.send(slot, ToNode::Started);
        self.bridges.insert(other, Bridge::new(slot));
        *self.lives.entry(other).or_default() += 1;
    }

    /// The link to another node is gone.
    pub(super) fn unlink(&mut self, other: usize) {
        let Some(bridge) = self.bridges.remove(&other) else { return };
        self.world.kill(bridge.slot, killed(bridge.slot));
        // The node hears of the death first, and before that all that it was told until then.
        while self.world.arrive() {}
        let (dead, alive): (VecDeque<_>, _) =
            std::mem::take(&mut self.world.fetches).into_iter().partition(|fetch| fetch.peer == bridge.slot);
        self.world.fetches = alive;
        for fetch in dead {
            self.world.finish_fetch(fetch, Err("the node that had it is gone".to_owned()));
        }
        // What it has answered is read after its death too; what it has asked is not wanted any more.
        self.letters_to_driver
            .retain(|(from, letter)| *from != other || matches!(letter, Letter::Result(..)));
    }

    fn life(&self, other: usize) -> u64 {
        self.lives.get(&other).copied().unwrap_or(0)
    }

    fn tell(&mut self, message: ToNode) {
        self.world.send(DRIVER, message);
    }

    fn ask(&mut self, question: Question, message: impl FnOnce(RequestId) -> ToNode) {
        self.next_request += 1;
        self.questions.insert(self.next_request, question);
        self.tell_later(message);
    }

    fn tell_later(&mut self, message: impl FnOnce(RequestId) -> ToNode) {
        let message = message(self.next_request);
        self.tell(message);
    }

    /// The driver does one random thing.
    pub(super) fn act(&mut self, random: &mut Random) {
        match random.below(12) {
            0 => self.make(random),
            1 | 2 => self.make_stored(random),
            3..=5 => self.pass_one(random),
            6 => self.finish_one(random),
            7 | 8 => self.look_at_one(random),
            9 => self.resolve_one(),
            _ => self.drop_one(random),
        }
    }

    /// The driver only tidies up.
    pub(super) fn close(&mut self, random: &mut Random) {
        while !self.working.is_empty() {
            self.finish_one(random);
        }
        self.resolve_one();
        self.references.values_mut().for_each(|reference| reference.used = false);
        self.release_unused();
    }

    fn pick(&self, random: &mut Random) -> Option<ObjectId> {
        let used = self.references.iter().filter(|(_, reference)| reference.used);
        random.pick(&used.map(|(&object, _)| object).collect::<Vec<_>>())
    }

    fn pick_link(&self, random: &mut Random) -> Option<(usize, u64)> {
        let other = random.pick(&self.bridges.keys().copied().collect::<Vec<_>>())?;
        Some((other, self.life(other)))
    }

    /// A small value, known or yet to come, with references inside or not.
    fn make(&mut self, random: &mut Random) {
        let object = fresh(random);
        let inside: BTreeSet<_> = (0..random.below(3)).filter_map(|_| self.pick(random)).collect();
        let (promised, contains) = (random.chance(30), !inside.is_empty());
        if contains {
            let (objects, actors) = (inside.into_iter().collect(), Vec::new());
            self.tell(ToNode::Contains { container: object, holder: DRIVER, objects, actors });
        }
        let value = (!promised).then(|| SharedValue::Inline { bytes: vec![1], contains });
        self.tell(ToNode::Escaped { object, value });
        self.references.insert(object, Reference { used: true, promised, ..Reference::default() });
    }

    /// A value in the store: the driver's own, or the result of a task of another node.
    fn make_stored(&mut self, random: &mut Random) {
        if self.questions.len() > 4 {
            return;
        }
        let (object, bytes) = (fresh(random), 1 + random.below(OBJECT_BYTES_MAX));
        let link = self.pick_link(random).filter(|_| random.chance(60));
        self.ask(Question::Space(object, link), |request| ToNode::ExtentWanted { request, object, bytes });
    }

    fn on_space(&mut self, object: ObjectId, entry: EntryRef, link: Option<(usize, u64)>) {
        match link {
            None => {
                self.tell(ToNode::Sealed { object, holder: DRIVER });
                let entry = Some(entry);
                self.references.insert(object, Reference { used: true, entry, ..Reference::default() });
            }
            Some((other, life)) => {
                match self.bridges.get_mut(&other).filter(|_| self.lives[&other] == life) {
                    Some(bridge) => {
                        let holder = bridge.slot;
                        bridge.letters_in.push_back(Letter::Result(object, entry));
                        self.tell(ToNode::Sealed { object, holder });
                    }
                    None => self.tell(ToNode::Abandoned { object }),
                }
            }
        }
    }

    /// A task on another node gets an object.
    fn pass_one(&mut self, random: &mut Random) {
        let (Some(object), Some(link)) = (self.pick(random), self.pick_link(random)) else { return };
        self.references.get_mut(&object).expect("it was picked").passed.push(link);
        self.bridges.get_mut(&link.0).expect("a link").letters_in.push_back(Letter::Argument(object));
    }

    /// A task of another node ends; whoever ran it may have kept its argument.
    fn finish_one(&mut self, random: &mut Random) {
        if self.working.is_empty() {
            return;
        }
        let (object, other, life) =
            self.working.swap_remove(random.below(self.working.len() as u64) as usize);
        if self.life(other) == life
            && let Some(bridge) = self.bridges.get_mut(&other)
        {
            bridge.letters_in.push_back(Letter::Done(object));
        }
    }

    /// Reads an object, or asks for its value.
    fn look_at_one(&mut self, random: &mut Random) {
        let Some(object) = self.pick(random) else { return };
        let reference = self.references.get_mut(&object).expect("it was picked");
        match reference.entry {
            Some(entry) if self.world.index.pin(entry, DRIVER) => self.world.index.unpin(entry, DRIVER),
            Some(_) => {
                self.ask(Question::Restore(object), |request| ToNode::RestoreWanted { request, object });
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
            self.tell(ToNode::Resolved { object, value: inline() });
        }
    }

    fn drop_one(&mut self, random: &mut Random) {
        if let Some(object) = self.pick(random) {
            self.references.get_mut(&object).expect("it was picked").used = false;
        }
        self.release_unused();
    }

    fn release_unused(&mut self) {
        let (questions, working) = (&self.questions, &self.working);
        let restores = |object: &ObjectId| {
            questions.values().any(|question| matches!(question, Question::Restore(asked) if asked == object))
        };
        let is_unused = |object: &ObjectId, reference: &mut Reference| {
            let busy = reference.used || reference.promised || reference.awaited;
            let works = working.iter().any(|(used, ..)| used == object);
            !busy && !works && reference.passed.is_empty() && !restores(object)
        };
        for object in self.references.extract_if(.., is_unused).map(|(object, _)| object).collect::<Vec<_>>()
        {
            self.tell(ToNode::Released { object });
        }
    }

    /// A letter to the driver.
    pub(super) fn on_letter(&mut self, other: usize, letter: Letter) {
        match letter {
            Letter::Argument(object) => {
                self.tell(ToNode::Held { object });
                self.references.entry(object).or_default().used = true;
                self.working.push((object, other, self.life(other)));
            }
            Letter::Done(object) => {
                if let Some(reference) = self.references.get_mut(&object)
                    && let Some(position) = reference.passed.iter().position(|(to, _)| *to == other)
                {
                    reference.passed.swap_remove(position);
                }
            }
            Letter::Result(object, entry) => {
                let reference = self.references.entry(object).or_default();
                (reference.used, reference.entry) = (true, Some(entry));
            }
        }
    }

    /// A message of the node to the driver.
    pub(super) fn on_mail(&mut self, message: FromNode) {
        match message {
            FromNode::ExtentGranted { request, entry } => {
                if let Some(Question::Space(object, link)) = self.questions.remove(&request) {
                    self.on_space(object, entry, link);
                }
            }
            FromNode::ExtentDenied { request, .. } => {
                self.questions.remove(&request);
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
            // Results that the driver has put: it cannot make them again.
            FromNode::Rebuild { object } => {
                let kind = FailureKind::NotRebuilt(NotRebuilt::Other);
                let failure = aktis_protocol::Failure::new(kind, "nobody makes it again");
                self.tell(ToNode::Resolved { object, value: SharedValue::Failed(failure) });
            }
            FromNode::ProcessDied { process, .. } => {
                let lives = &self.lives;
                let over =
                    |(other, life): &(usize, u64)| lives[other] != *life || !self.bridges.contains_key(other);
                self.references
                    .values_mut()
                    .for_each(|reference| reference.passed.retain(|link| !over(link)));
                self.tell(ToNode::DeathHandled { process });
            }
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

    /// Whatever the driver refers to, the node knows.
    pub(super) fn check(&self) {
        if self.world.unseen() > 0 {
            return;
        }
        for object in self.references.keys() {
            assert!(self.world.node.knows_object(*object), "{object} is referred to and was freed");
        }
    }

    /// What is left here, if anything.
    pub(super) fn remains(&self) -> Option<String> {
        let node = &self.world.node;
        let lent = self.bridges.values().filter(|bridge| !bridge.loans.is_empty()).count();
        let counts = [node.objects(), node.copies(), self.references.len(), self.questions.len(), lent];
        (counts != [0; 5]).then(|| format!("objects, copies, references, questions, loans: {counts:?}"))
    }
}

fn fresh(random: &mut Random) -> ObjectId {
    TaskId::root(SessionId(random.number())).child(0).returns(0)
}

fn inline() -> SharedValue {
    SharedValue::Inline { bytes: vec![1], contains: false }
}
