//! The port of a proxy's machine over a virtual node: what the runtime of a proxy does, with plain tables instead of
//! shared memory.

use crate::world::{DRIVER, World};
use aktis_logic::machine::remote_node::{
    Claimed, LocalAnswer, LocalEvent, LocalNode, LocalProcesses, RemoteNode, RemoteNodeCounts, SubmitError,
    answer_message,
};
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, SharedValue, ToNode, decode};
use aktis_protocol::hot::{Message, MessageKind, ValueForm};
use aktis_protocol::peer::{Inside, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{
    ActorId, DeathCause, EntryRef, Failure, FailureKind, LaneId, NodeId, ObjectId, ProcessSlot, ProgramId,
    ProgramKind, ProgramSpec, Shape, ShapeId, TaskId, TaskKey,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// What the processes of one virtual node share, as its proxies use it.
pub(crate) trait SharedMemory: Sized {
    /// The node.
    fn world(&mut self) -> &mut World;

    /// A process tells the node something.
    fn send(&mut self, from: ProcessSlot, message: ToNode);

    /// Whether a process has no room for a message.
    fn is_full(&self, to: ProcessSlot) -> bool;

    /// Sends a message to a process; false if there is no room.
    fn push(&mut self, from: ProcessSlot, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool;

    /// A proxy claims a task that a process of this node has submitted.
    fn claim(&mut self, proxy: ProcessSlot, shape: ShapeId, cell: Option<usize>) -> Option<Claimed>;

    /// A proxy does not have the task of a cell any more.
    fn clear_cell(&mut self, proxy: ProcessSlot, cell: usize);

    /// The queue of a proxy for tasks of this shape.
    fn queue_for(&mut self, proxy: ProcessSlot, shape: &Shape) -> Result<LaneId, SubmitError>;

    /// A task or call of another node is to run here.
    fn add_run(&mut self, run: Run<Self>) -> TaskKey;

    /// All tasks and calls of other nodes that run here.
    fn runs(&mut self) -> &mut Vec<Run<Self>>;

    /// Takes a run out. The caller drops it when it has no borrow of this memory.
    #[must_use = "a run releases what it holds when it is dropped"]
    fn take_run(&mut self, key: TaskKey) -> Option<Run<Self>> {
        let runs = self.runs();
        let place = runs.iter().position(|run| run.key == key)?;
        Some(runs.remove(place))
    }

    /// An actor that was looked up by its name is known here now.
    fn on_actor_found(&mut self, actor: ActorId);

    /// Whether the node has the program.
    fn has_program(&self) -> bool;

    /// A proxy has got a program for this node.
    fn add_program(&mut self, proxy: ProcessSlot, program: ProgramId);
}

/// A task or call of another node that runs here.
pub(crate) struct Run<M: SharedMemory> {
    pub(crate) proxy: VirtualProcess<M>,
    pub(crate) ticket: Ticket,
    pub(crate) key: TaskKey,
    /// The queue of a task.
    pub(crate) lane: Option<LaneId>,
    /// The actor, if it is a call.
    pub(crate) actor: Option<Handle>,
    pub(crate) call: PeerCall,
    /// Holds what the arguments refer to.
    pub(crate) arguments: Arguments,
    pub(crate) begun: bool,
    pub(crate) cancelled: bool,
    /// Whether its result is being stored.
    pub(crate) stores: bool,
}

/// The proxy for another node.
pub(crate) struct Proxy<M: SharedMemory> {
    pub(crate) port: VirtualProcess<M>,
    pub(crate) machine: RemoteNode<VirtualProcess<M>>,
}

impl<M: SharedMemory> Proxy<M> {
    /// After an input: what was dropped is released.
    pub(crate) fn settle(&mut self) {
        self.port.release_dropped();
        self.machine.check();
    }

    /// What is left of all that it had to do, if anything.
    pub(crate) fn remains(&self) -> Option<String> {
        let (counts, held) = (self.machine.counts(), self.port.holds());
        let idle = RemoteNodeCounts { tickets: counts.tickets, ..Default::default() };
        let is_left = counts != idle || held > 0 || self.port.has_events();
        is_left.then(|| format!("{counts:?}, {held} held"))
    }
}

/// The counts that are not 0, in words.
pub(crate) fn counts_left(counts: &[(&str, usize)]) -> Vec<String> {
    let left = counts.iter().filter(|(_, count)| *count > 0);
    left.map(|(what, count)| format!("{count} {what}")).collect()
}

/// Something that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holding {
    Object(ObjectId),
    Actor(ActorId),
}

/// One reference, shared by its clones. The last one puts it on the list of what is to be released.
pub(crate) struct Token {
    holding: Holding,
    dropped: Rc<RefCell<Vec<Holding>>>,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.holding);
    }
}

/// A reference to an object.
#[derive(Clone)]
pub(crate) struct Reference(Rc<Token>);

impl Reference {
    fn object(&self) -> ObjectId {
        match self.0.holding {
            Holding::Object(object) => object,
            Holding::Actor(actor) => unreachable!("{actor:?} is no object"),
        }
    }
}

/// A handle of an actor.
#[derive(Clone)]
pub(crate) struct Handle(Rc<Token>);

impl Handle {
    fn actor(&self) -> ActorId {
        match self.0.holding {
            Holding::Actor(actor) => actor,
            Holding::Object(object) => unreachable!("{object} is no actor"),
        }
    }
}

/// Arguments, with references to all that they refer to.
pub(crate) struct Arguments {
    pub(crate) objects: Vec<Reference>,
    _inside: Vec<Reference>,
    _actors: Vec<Handle>,
}

/// An object as the process knows it.
struct Known {
    token: Weak<Token>,
    asked: bool,
    /// Whether the machine wants to hear when there is a value.
    awaited: bool,
    value: Option<SharedValue>,
}

struct KnownActor {
    token: Weak<Token>,
    place: ActorPlace,
}

#[derive(Default)]
struct Tables {
    objects: BTreeMap<ObjectId, Known>,
    actors: BTreeMap<ActorId, KnownActor>,
    events: VecDeque<LocalEvent>,
}

/// See the module.
pub(crate) struct VirtualProcess<M> {
    pub(crate) slot: ProcessSlot,
    memory: Rc<RefCell<M>>,
    tables: Rc<RefCell<Tables>>,
    dropped: Rc<RefCell<Vec<Holding>>>,
}

impl<M> Clone for VirtualProcess<M> {
    fn clone(&self) -> Self {
        let Self { slot, memory, tables, dropped } = self;
        Self { slot: *slot, memory: memory.clone(), tables: tables.clone(), dropped: dropped.clone() }
    }
}

impl<M: SharedMemory> VirtualProcess<M> {
    pub(crate) fn new(slot: ProcessSlot, memory: Rc<RefCell<M>>) -> Self {
        Self { slot, memory, tables: Rc::default(), dropped: Rc::default() }
    }

    /// Something happens that the machine has to deal with.
    pub(crate) fn push_event(&self, event: LocalEvent) {
        self.tables.borrow_mut().events.push_back(event);
    }

    pub(crate) fn take_events(&self) -> VecDeque<LocalEvent> {
        std::mem::take(&mut self.tables.borrow_mut().events)
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.tables.borrow().events.is_empty()
    }

    /// What is held.
    pub(crate) fn holds(&self) -> usize {
        let tables = self.tables.borrow();
        tables.objects.len() + tables.actors.len()
    }

    /// A message of the node.
    pub(crate) fn on_message(&self, message: FromNode) {
        let mut tables = self.tables.borrow_mut();
        match message {
            FromNode::ObjectResolved { object, value } => tables.resolve(object, value),
            FromNode::ActorChanged { actor, place } => {
                if let Some(known) = tables.actors.get_mut(&actor) {
                    known.place = place.clone();
                }
                tables.events.push_back(LocalEvent::ActorChanged { actor, place });
            }
            FromNode::ProcessDied { process, .. } => {
                tables.events.push_back(LocalEvent::ProcessDied(process));
            }
            FromNode::Restored { .. } | FromNode::SharedWorker { .. } => {}
            order => tables.events.push_back(LocalEvent::Order(order)),
        }
    }

    /// Tells the node what was released since the last look.
    pub(crate) fn release_dropped(&self) {
        loop {
            let dropped = std::mem::take(&mut *self.dropped.borrow_mut());
            if dropped.is_empty() {
                return;
            }
            for holding in dropped {
                let mut tables = self.tables.borrow_mut();
                let message = match holding {
                    Holding::Object(object) => {
                        tables.objects.remove(&object);
                        ToNode::Released { object }
                    }
                    Holding::Actor(actor) => {
                        tables.actors.remove(&actor);
                        ToNode::ActorReleased { actor }
                    }
                };
                drop(tables);
                self.memory.borrow_mut().send(self.slot, message);
            }
        }
    }

    fn ask(&self, question: ToNode, is_answer: impl Fn(&FromNode) -> bool) -> FromNode {
        self.release_dropped();
        self.memory.borrow_mut().world().ask(self.slot, question, is_answer)
    }

    fn token(&self, holding: Holding) -> Rc<Token> {
        Rc::new(Token { holding, dropped: self.dropped.clone() })
    }

    fn add_run(
        &self,
        ticket: Ticket,
        lane: Option<LaneId>,
        actor: Option<Handle>,
        call: &PeerCall,
    ) -> TaskKey {
        let arguments = self.arguments(&call.arguments);
        self.ask_for(&arguments);
        let (key, call, proxy) = (TaskKey { index: 0, generation: 0 }, call.clone(), self.clone());
        let (begun, cancelled, stores) = (false, false, false);
        let run = Run { proxy, ticket, key, lane, actor, call, arguments, begun, cancelled, stores };
        self.memory.borrow_mut().add_run(run)
    }

    fn cause(&self) -> DeathCause {
        crate::world::killed(self.slot)
    }
}

impl Tables {
    fn resolve(&mut self, object: ObjectId, value: SharedValue) {
        let Some(known) = self.objects.get_mut(&object) else { return };
        known.value.get_or_insert(value);
        if std::mem::take(&mut known.awaited) {
            self.events.push_back(LocalEvent::Ready { object });
        }
    }
}

impl<M: SharedMemory> LocalProcesses for VirtualProcess<M> {
    fn is_alive(&self, process: ProcessSlot) -> bool {
        self.memory.borrow_mut().world().is_running(process)
    }

    fn push(&self, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        self.release_dropped();
        self.memory.borrow_mut().push(self.slot, to, message, payload)
    }

    fn tell(&self, message: ToNode) {
        self.release_dropped();
        self.memory.borrow_mut().send(self.slot, message);
    }
}

impl<M: SharedMemory> LocalNode for VirtualProcess<M> {
    type Object = Reference;
    type Actor = Handle;
    type Arguments = Arguments;
    type Executable = Vec<u8>;

    fn process(&self) -> ProcessSlot {
        self.slot
    }

    fn node(&self) -> NodeId {
        self.memory.borrow_mut().world().id()
    }

    fn claim(&self, shape: ShapeId, cell: Option<usize>) -> Option<Claimed> {
        self.memory.borrow_mut().claim(self.slot, shape, cell)
    }

    fn clear_cell(&self, cell: usize) {
        self.memory.borrow_mut().clear_cell(self.slot, cell);
    }

    fn arguments_in(&self, bytes: &[u8]) -> Result<Vec<PeerArgument>, String> {
        decode(bytes).map_err(|error| error.to_string())
    }

    fn references_in(&self, bytes: &[u8]) -> Result<Inside, String> {
        decode(bytes).map_err(|error| error.to_string())
    }

    fn submit(&self, ticket: Ticket, call: &PeerCall, shape: &Arc<Shape>) -> Result<TaskKey, SubmitError> {
        let lane = self.memory.borrow_mut().queue_for(self.slot, shape)?;
        Ok(self.add_run(ticket, Some(lane), None, call))
    }

    fn call(&self, ticket: Ticket, actor: &Handle, _group: u16, call: &PeerCall) -> TaskKey {
        self.add_run(ticket, None, Some(actor.clone()), call)
    }

    /// A task that has not begun ends; one that has begun learns of it, or ends with its worker.
    fn cancel(&self, key: TaskKey, force: bool, _recursive: bool) -> Option<(ProcessSlot, Message)> {
        let mut memory = self.memory.borrow_mut();
        let is_full = memory.is_full(DRIVER);
        let run = memory.runs().iter_mut().find(|run| run.key == key)?;
        if run.begun && !force {
            run.cancelled = true;
            let index = 0;
            let message = answer_message(MessageKind::Cancel, ValueForm::Inline, false, index, key);
            return is_full.then_some((DRIVER, message));
        }
        let (ticket, begun) = (run.ticket, run.begun);
        let kind = match begun {
            true => FailureKind::WorkerDied(self.cause()),
            false => FailureKind::Cancelled,
        };
        let taken = memory.take_run(key);
        drop(memory);
        drop(taken);
        self.push_event(LocalEvent::Failed { ticket, failure: Failure::new(kind, "it was cancelled") });
        None
    }

    fn withdraw(&self, _shape: ShapeId, keys: &[TaskKey]) -> Vec<TaskKey> {
        let mut memory = self.memory.borrow_mut();
        let is_waiting = |run: &Run<M>| keys.contains(&run.key) && !run.begun;
        let withdrawn: Vec<TaskKey> =
            memory.runs().iter().filter(|run| is_waiting(run)).map(|run| run.key).collect();
        let taken: Vec<_> = withdrawn.iter().map(|key| memory.take_run(*key)).collect();
        drop(memory);
        drop(taken);
        withdrawn
    }

    fn kill_worker_of(&self, _task: TaskId, key: TaskKey) {
        self.cancel(key, true, true);
    }

    fn arguments(&self, items: &[PeerArgument]) -> Arguments {
        let (mut objects, mut within, mut actors) = (Vec::new(), Vec::new(), Vec::new());
        for item in items {
            match item {
                PeerArgument::Value { inside, .. } => {
                    within.extend(inside.objects.iter().map(|object| self.hold(*object)));
                    actors.extend(inside.actors.iter().map(|actor| self.hold_actor(*actor)));
                }
                PeerArgument::Object(object) => objects.push(self.hold(*object)),
            }
        }
        Arguments { objects, _inside: within, _actors: actors }
    }

    fn ask_for(&self, arguments: &Arguments) {
        arguments.objects.iter().for_each(|object| drop(self.value_of(object)));
    }

    fn are_known(&self, arguments: &Arguments) -> bool {
        let tables = self.tables.borrow();
        let is_known = |object: &Reference| {
            tables.objects.get(&object.object()).is_some_and(|known| known.value.is_some())
        };
        arguments.objects.iter().all(is_known)
    }

    fn hold(&self, object: ObjectId) -> Reference {
        if let Some(held) = self.held(object) {
            return held;
        }
        let token = self.token(Holding::Object(object));
        let known = Known { token: Rc::downgrade(&token), asked: false, awaited: false, value: None };
        self.tables.borrow_mut().objects.insert(object, known);
        self.memory.borrow_mut().send(self.slot, ToNode::Held { object });
        Reference(token)
    }

    fn held(&self, object: ObjectId) -> Option<Reference> {
        self.release_dropped();
        self.tables.borrow().objects.get(&object).and_then(|known| known.token.upgrade()).map(Reference)
    }

    fn look_up(&self, object: ObjectId) -> Option<Reference> {
        let is_answer = |answer: &FromNode| matches!(answer, FromNode::LookedUp { .. });
        match self.ask(ToNode::LookupWanted { request: 3, object }, is_answer) {
            FromNode::LookedUp { known: true, .. } => Some(self.hold(object)),
            _ => None,
        }
    }

    fn import(
        &self,
        object: ObjectId,
        bytes: u64,
        holder: ProcessSlot,
        named: bool,
    ) -> Result<EntryRef, String> {
        let question = ToNode::Imported { request: 1, object, bytes, holder, named };
        match self.ask(question, |answer| matches!(answer, FromNode::ImportedAs { .. })) {
            FromNode::ImportedAs { entry, .. } => entry.map_err(|failure| failure.to_string()),
            other => unreachable!("{other:?}"),
        }
    }

    fn take_result(&self, object: ObjectId, answer: &LocalAnswer) -> Reference {
        let value = match answer {
            LocalAnswer::Inline(bytes, _) => SharedValue::Inline { bytes: bytes.clone(), contains: true },
            LocalAnswer::Stored(stored, contains) => {
                SharedValue::Stored { entry: stored.entry, contains: *contains }
            }
            LocalAnswer::Failed(failure) => SharedValue::Failed(failure.clone()),
        };
        if let Some(held) = self.held(object) {
            self.tables.borrow_mut().resolve(object, value);
            return held;
        }
        // The worker has told the node that this process holds it.
        let token = self.token(Holding::Object(object));
        let known = Known { token: Rc::downgrade(&token), asked: true, awaited: false, value: Some(value) };
        self.tables.borrow_mut().objects.insert(object, known);
        Reference(token)
    }

    fn value_of(&self, reference: &Reference) -> Option<SharedValue> {
        let object = reference.object();
        let mut tables = self.tables.borrow_mut();
        let known = tables.objects.get_mut(&object).expect("a reference holds it");
        let was_asked = std::mem::replace(&mut known.asked, true);
        known.awaited |= known.value.is_none();
        let value = known.value.clone();
        drop(tables);
        if !was_asked {
            self.memory.borrow_mut().send(self.slot, ToNode::Subscribed { object });
        }
        value
    }

    fn renew(&self, reference: &Reference) -> Option<Reference> {
        let mut tables = self.tables.borrow_mut();
        let known = tables.objects.get_mut(&reference.object()).expect("a reference holds it");
        let lost = match known.value.as_ref()? {
            SharedValue::Stored { entry, .. } => self.memory.borrow_mut().world().index.get(*entry).is_none(),
            SharedValue::Failed(failure) => failure.kind == FailureKind::Lost,
            SharedValue::Inline { .. } => false,
        };
        lost.then(|| {
            (known.value, known.asked) = (None, false);
            reference.clone()
        })
    }

    fn origin_of(&self, object: ObjectId) -> Option<ProcessSlot> {
        let is_answer = |answer: &FromNode| matches!(answer, FromNode::Origin { .. });
        match self.ask(ToNode::OriginWanted { request: 5, object }, is_answer) {
            FromNode::Origin { peer, .. } => peer,
            other => unreachable!("{other:?}"),
        }
    }

    fn contents_of(&self, object: ObjectId) -> Result<Inside, String> {
        let is_answer = |answer: &FromNode| matches!(answer, FromNode::Contents { .. });
        match self.ask(ToNode::ContentsWanted { request: 2, object }, is_answer) {
            FromNode::Contents { objects, actors, .. } => Ok(Inside { objects, actors }),
            other => unreachable!("{other:?}"),
        }
    }

    fn size_of(&self, reference: &Reference) -> Result<(u64, bool), String> {
        let tables = self.tables.borrow();
        match tables.objects[&reference.object()].value {
            Some(SharedValue::Stored { entry, contains }) => {
                let mut memory = self.memory.borrow_mut();
                let found = memory.world().index.get(entry).ok_or("it is not in the store any more")?;
                Ok((found.bytes, contains))
            }
            _ => Err("it is not in the store".to_owned()),
        }
    }

    fn host_actor(&self, spec: ActorSpec, _arguments: Arguments) -> Result<Handle, String> {
        unreachable!("{spec:?}: virtual nodes do not place actors on each other")
    }

    fn hold_actor(&self, actor: ActorId) -> Handle {
        self.release_dropped();
        if let Some(held) = self.tables.borrow().actors.get(&actor).and_then(|known| known.token.upgrade()) {
            return Handle(held);
        }
        let token = self.token(Holding::Actor(actor));
        let known = KnownActor { token: Rc::downgrade(&token), place: ActorPlace::Pending(String::new()) };
        self.tables.borrow_mut().actors.insert(actor, known);
        self.memory.borrow_mut().send(self.slot, ToNode::ActorHeld { actor });
        Handle(token)
    }

    fn look_at(&self, handle: &Handle) {
        let actor = handle.actor();
        let place = self.tables.borrow().actors[&actor].place.clone();
        if let ActorPlace::Pending(_) = place {
            return;
        }
        self.push_event(LocalEvent::ActorChanged { actor, place });
    }

    fn on_actor_found(&self, actor: ActorId) {
        self.memory.borrow_mut().on_actor_found(actor);
    }

    fn knows_program(&self, _program: ProgramId) -> bool {
        self.memory.borrow().has_program()
    }

    fn find_program(&self, program: ProgramId) -> Result<(ProgramSpec, Option<Vec<u8>>), String> {
        Ok((ProgramSpec::here(program, ProgramKind::Rust { bytes: 3 }), Some(vec![1, 2, 3])))
    }

    fn read_part(&self, executable: &mut Vec<u8>, bytes_max: usize) -> Vec<u8> {
        let rest = executable.split_off(executable.len().min(bytes_max));
        std::mem::replace(executable, rest)
    }

    fn new_executable(&self) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn append(&self, executable: &mut Vec<u8>, bytes: &[u8]) -> Result<(), String> {
        executable.extend(bytes);
        Ok(())
    }

    fn add_program(&self, program: ProgramId, _spec: ProgramSpec, executable: Option<Vec<u8>>) {
        assert_eq!(executable.as_deref(), Some(&[1, 2, 3][..]), "all of it has come");
        self.memory.borrow_mut().add_program(self.slot, program);
    }
}
