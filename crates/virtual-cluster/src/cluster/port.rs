//! The port of a proxy's machine over a virtual node: what the runtime of a proxy does, with plain tables instead of
//! shared memory.

use super::memory::{Memory, Run};
use crate::world::DRIVER;
use aktis_logic::machine::remote_node::{
    Claimed, LocalAnswer, LocalEvent, LocalNode, LocalProcesses, SubmitError, answer_message,
};
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, SharedValue, ToNode, decode};
use aktis_protocol::hot::{Message, MessageKind, ValueForm};
use aktis_protocol::peer::{Inside, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{
    ActorId, DeathCause, EntryRef, Failure, FailureKind, NodeId, ObjectId, ProcessSlot, ProgramId,
    ProgramKind, ProgramSpec, Shape, ShapeId, TaskId, TaskKey,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Something that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holding {
    Object(ObjectId),
    Actor(ActorId),
}

/// One reference, shared by its clones. The last one puts it on the list of what is to be released.
pub(super) struct Token {
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
pub(super) struct Reference(Rc<Token>);

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
pub(super) struct Handle(Rc<Token>);

impl Handle {
    fn actor(&self) -> ActorId {
        match self.0.holding {
            Holding::Actor(actor) => actor,
            Holding::Object(object) => unreachable!("{object} is no actor"),
        }
    }
}

/// Arguments, with references to all that they refer to.
pub(super) struct Arguments {
    pub(super) objects: Vec<Reference>,
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
#[derive(Clone)]
pub(super) struct VirtualProcess {
    pub(super) slot: ProcessSlot,
    memory: Rc<RefCell<Memory>>,
    tables: Rc<RefCell<Tables>>,
    dropped: Rc<RefCell<Vec<Holding>>>,
}

impl VirtualProcess {
    pub(super) fn new(slot: ProcessSlot, memory: Rc<RefCell<Memory>>) -> Self {
        Self { slot, memory, tables: Rc::default(), dropped: Rc::default() }
    }

    /// Something happens that the machine has to deal with.
    pub(super) fn push_event(&self, event: LocalEvent) {
        self.tables.borrow_mut().events.push_back(event);
    }

    pub(super) fn take_events(&self) -> VecDeque<LocalEvent> {
        std::mem::take(&mut self.tables.borrow_mut().events)
    }

    pub(super) fn has_events(&self) -> bool {
        !self.tables.borrow().events.is_empty()
    }

    /// What is held.
    pub(super) fn holds(&self) -> usize {
        let tables = self.tables.borrow();
        tables.objects.len() + tables.actors.len()
    }

    /// A message of the node.
    pub(super) fn on_message(&self, message: FromNode) {
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
    pub(super) fn release_dropped(&self) {
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
        self.memory.borrow_mut().world.ask(self.slot, question, is_answer)
    }

    fn token(&self, holding: Holding) -> Rc<Token> {
        Rc::new(Token { holding, dropped: self.dropped.clone() })
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

impl LocalProcesses for VirtualProcess {
    fn is_alive(&self, process: ProcessSlot) -> bool {
        self.memory.borrow().world.is_running(process)
    }

    fn push(&self, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        self.release_dropped();
        assert_eq!(to, DRIVER, "tasks and calls are those of the driver");
        self.memory.borrow_mut().push(self.slot, message, payload)
    }

    fn tell(&self, message: ToNode) {
        self.release_dropped();
        self.memory.borrow_mut().send(self.slot, message);
    }
}

impl LocalNode for VirtualProcess {
    type Object = Reference;
    type Actor = Handle;
    type Arguments = Arguments;
    type Executable = Vec<u8>;

    fn process(&self) -> ProcessSlot {
        self.slot
    }

    fn node(&self) -> NodeId {
        NodeId::default()
    }

    fn claim(&self, shape: ShapeId, cell: Option<usize>) -> Option<Claimed> {
        self.memory.borrow_mut().claim(self.slot, shape, cell)
    }

    fn clear_cell(&self, cell: usize) {
        self.memory.borrow_mut().cells.remove(&(self.slot, cell));
    }

    fn arguments_in(&self, bytes: &[u8]) -> Result<Vec<PeerArgument>, String> {
        decode(bytes).map_err(|error| error.to_string())
    }

    fn references_in(&self, bytes: &[u8]) -> Result<Inside, String> {
        decode(bytes).map_err(|error| error.to_string())
    }

    fn submit(&self, ticket: Ticket, call: &PeerCall, _shape: &Arc<Shape>) -> Result<TaskKey, SubmitError> {
        if self.memory.borrow().no_queue {
            return Err(SubmitError::NoQueue);
        }
        let arguments = self.arguments(&call.arguments);
        self.ask_for(&arguments);
        let run = Run::new(self.clone(), ticket, None, call, arguments);
        Ok(self.memory.borrow_mut().add_run(run))
    }

    fn call(&self, ticket: Ticket, actor: &Handle, _group: u16, call: &PeerCall) -> TaskKey {
        let arguments = self.arguments(&call.arguments);
        self.ask_for(&arguments);
        let run = Run::new(self.clone(), ticket, Some(actor.clone()), call, arguments);
        self.memory.borrow_mut().add_run(run)
    }

    /// A task that has not begun ends; one that has begun learns of it, or ends with its worker.
    fn cancel(&self, key: TaskKey, force: bool, _recursive: bool) -> Option<(ProcessSlot, Message)> {
        let mut memory = self.memory.borrow_mut();
        let is_full = memory.is_full();
        let run = memory.runs.iter_mut().find(|run| run.key == key)?;
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
        let is_waiting = |run: &Run| keys.contains(&run.key) && !run.begun;
        let withdrawn: Vec<TaskKey> =
            memory.runs.iter().filter(|run| is_waiting(run)).map(|run| run.key).collect();
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
            SharedValue::Stored { entry, .. } => self.memory.borrow().world.index.get(*entry).is_none(),
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
                let memory = self.memory.borrow();
                let found = memory.world.index.get(entry).ok_or("it is not in the store any more")?;
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
        let mut memory = self.memory.borrow_mut();
        memory.send(DRIVER, ToNode::ActorHeld { actor });
        memory.found.push(actor);
    }

    fn knows_program(&self, _program: ProgramId) -> bool {
        self.memory.borrow().has_program
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
        self.memory.borrow_mut().adding.push((self.slot, program));
    }
}
