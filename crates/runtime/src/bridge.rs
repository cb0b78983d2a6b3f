//! The runtime of a proxy for another node: what local processes send it is put into a queue, which the shell of the
//! proxy's machine reads (`logic::machine::remote_node`).
//!
//! To the others it is a process like any other. It claims tasks, but runs none; it hosts actors that live elsewhere;
//! it submits tasks and calls of another node, and their answers go into the queue as well.
//!
//! Invariant: nothing is done about an event where it happens, since locks of the runtime may be held there.

use crate::codec::{Arguments, Value, inside};
use crate::entry::{Entry, Later, Outcome, StoredAt};
use crate::error::Error;
use crate::handle::{ActorHandle, Handle};
use crate::inbound::cancel_index;
use crate::objects::Patience;
use crate::payload::{Payload, Returns, Verb};
use crate::registry::{Function, FunctionBody};
use crate::runtime::{Inner, Runtime};
use crate::wait::{Found, value_of};
use aktis_logic::machine::remote_node::{Claimed, LocalAnswer, LocalEvent, answer_message};
use aktis_logic::machine::submitter::Route;
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::hot::{CallHeader, Message, MessageKind, Stored, ValueForm};
use aktis_protocol::peer::{Inside, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{
    ActorId, EntryRef, Failure, FailureKind, FunctionId, LeaseId, ObjectId, ProcessSlot, Shape, ShapeId,
    TaskId, TaskKey,
};
use aktis_store::LaneConsumer;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;
use zerocopy::FromBytes;

/// The events of one proxy.
#[derive(Default)]
pub struct BridgeQueue {
    events: Mutex<VecDeque<LocalEvent>>,
    waiting: AtomicBool,
    runtime: Mutex<Weak<Inner>>,
}

impl BridgeQueue {
    pub(crate) fn push(&self, event: LocalEvent) {
        self.events.lock().push_back(event);
        self.waiting.store(true, Ordering::SeqCst);
    }

    /// What happened since the last look.
    pub fn take(&self) -> VecDeque<LocalEvent> {
        self.waiting.store(false, Ordering::SeqCst);
        std::mem::take(&mut self.events.lock())
    }

    /// Ends the owner's sleep.
    pub fn wake(&self) {
        self.waiting.store(true, Ordering::SeqCst);
        if let Some(runtime) = self.runtime.lock().upgrade() {
            runtime.control.doorbell().call();
        }
    }

    fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// The runtime of a proxy. See the module.
#[derive(Clone)]
pub struct Bridge {
    runtime: Runtime,
    queue: Arc<BridgeQueue>,
    lanes: Arc<Mutex<(u32, Arc<[LaneConsumer]>)>>,
}

impl Bridge {
    /// Makes a runtime the one of a proxy, before a process can have sent it anything.
    pub fn new(runtime: Runtime) -> Self {
        let queue =
            Arc::new(BridgeQueue { runtime: Mutex::new(Arc::downgrade(&runtime.0)), ..Default::default() });
        let _ = runtime.0.bridge.set(queue.clone());
        runtime.0.submitter.first().lock().has_default = false;
        Self { runtime, queue, lanes: Arc::new(Mutex::new((u32::MAX, Arc::default()))) }
    }

    /// The runtime that it is the end of.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Its events.
    pub fn queue(&self) -> &Arc<BridgeQueue> {
        &self.queue
    }

    /// Takes in what local processes have sent; gives what happened.
    pub fn take(&self) -> VecDeque<LocalEvent> {
        self.runtime.0.drain();
        self.runtime.0.run_deferred();
        self.queue.take()
    }

    /// Sleeps until something may have happened, unless something has. `shapes` have idle leases: their tasks are worth
    /// waking for. Other threads may do what there is to do once `ready` was called, which is just before the sleep.
    pub fn sleep(&self, shapes: &[ShapeId], timeout: Duration, ready: impl FnOnce()) {
        let bell = self.runtime.0.control.doorbell();
        let ticket = bell.prepare();
        let happened = self.announce(shapes);
        ready();
        if happened { bell.stay(ticket) } else { bell.sleep(ticket, Some(timeout)) }
    }

    /// From now on the caller looks again and again by itself: whoever sleeps is not woken, for tasks of these shapes
    /// neither.
    pub fn watch(&self, shapes: &[ShapeId]) {
        let control = &self.runtime.0.control;
        control.doorbell().watch();
        shapes.iter().for_each(|shape| control.retract_idle(*shape));
    }

    /// The caller does not look any more, whoever sleeps is woken again. Gives whether something has happened of which
    /// nobody else will hear.
    pub fn unwatch(&self, shapes: &[ShapeId]) -> bool {
        self.runtime.0.control.doorbell().unwatch();
        self.announce(shapes)
    }

    /// Has this process woken for tasks of these shapes from now on; gives whether there is something to do already.
    fn announce(&self, shapes: &[ShapeId]) -> bool {
        let inner = &self.runtime.0;
        shapes.iter().for_each(|shape| inner.control.announce_idle(*shape));
        let lanes = self.lanes();
        let is_worth_waking = |lane: &LaneConsumer| {
            shapes.contains(&lane.shape()) && self.may_forward(lane) && !lane.is_empty()
        };
        inner.control.has_inbound() || self.queue.is_waiting() || lanes.iter().any(is_worth_waking)
    }

    /// A wake-up for a task of a shape without an idle lease is another process's: the lease was there when this process fell
    /// asleep.
    pub fn pass_on(&self, idle: &[ShapeId]) {
        let control = &self.runtime.0.control;
        let lanes = self.lanes();
        let is_anothers = |lane: &&LaneConsumer| {
            !idle.contains(&lane.shape()) && self.may_forward(lane) && !lane.is_empty()
        };
        for lane in lanes.iter().filter(is_anothers) {
            control.retract_idle(lane.shape());
            control.wake_idle(lane.shape(), lane.submitter());
        }
    }

    fn lanes(&self) -> Arc<[LaneConsumer]> {
        let control = &self.runtime.0.control;
        let mut lanes = self.lanes.lock();
        if lanes.0 != control.lanes_version() {
            *lanes = (control.lanes_version(), control.lane_consumers().into());
        }
        lanes.1.clone()
    }

    /// Whether tasks of a lane may go to another node: what came from one does not, so that nothing goes in rings.
    fn may_forward(&self, lane: &LaneConsumer) -> bool {
        !self.runtime.0.control.is_elsewhere(lane.submitter())
    }

    /// Claims a task of this shape that a process of this node has submitted, and says in a cell, if there is one, for all to see,
    /// that this process has it.
    pub fn claim(&self, shape: ShapeId, cell: Option<usize>) -> Option<Claimed> {
        let me = self.runtime.0.me;
        let cell = cell.map(|cell| &self.runtime.0.control.cells(me)[cell]);
        let lanes = self.lanes();
        let mut suitable = lanes.iter().filter(|lane| lane.shape() == shape && self.may_forward(lane));
        suitable.find_map(|lane| {
            let submitter = lane.submitter();
            lane.claim(me, |header, arguments| {
                if let Some(cell) = cell {
                    cell.set(lane.running(header));
                }
                Claimed { submitter, header: *header, arguments: arguments.to_vec() }
            })
        })
    }

    /// How many cells there are in which others see what this process has.
    pub fn cells(&self) -> usize {
        self.runtime.0.control.cells(self.runtime.0.me).len()
    }

    /// Says that it has a task no more.
    pub fn clear_cell(&self, cell: usize) {
        self.runtime.0.control.cells(self.runtime.0.me)[cell].clear();
    }

    /// Gives a lease back.
    pub fn return_lease(&self, lease: LeaseId) {
        self.send(ToNode::LeaseReturned { lease });
    }

    /// Says something to the node.
    pub fn send(&self, message: ToNode) {
        self.runtime.0.send_to_node(message);
    }

    /// Sends a message to a local process; false if there is no room now, or no channel yet.
    pub fn push(&self, to: ProcessSlot, message: &Message, parts: &[&[u8]]) -> bool {
        let inner = &self.runtime.0;
        let pushed = inner.push_message(to, message, parts);
        match pushed {
            true => inner.control.notify(to),
            false => inner.flush_outbox(),
        }
        pushed
    }

    /// Whether the process is alive.
    pub fn is_alive(&self, process: ProcessSlot) -> bool {
        self.runtime.0.control.is_alive(process)
    }

    /// Submits a task that the other node has sent.
    pub fn submit(&self, ticket: Ticket, call: &PeerCall, shape: &Arc<Shape>) -> Result<TaskKey, Error> {
        let inner = &self.runtime.0;
        let shard = inner.submitter.first();
        let lane = inner.lane_of(shard, shape)?;
        let payload = self.payload(ticket, call, Verb::Task, 0);
        let inputs: Vec<Handle> = payload.arguments.handles().to_vec();
        inputs.iter().for_each(|handle| inner.announce(&handle.entry));
        let key = inner.record(call.task, Route::Lane(lane), payload, call.returns, 0, |shell, later| {
            shell.flush_lane(inner, lane, later);
        });
        self.forget_returns(key, call.returns);
        Ok(key)
    }

    /// Calls an actor for the other node.
    pub fn call(&self, ticket: Ticket, actor: &ActorHandle, group: u16, call: &PeerCall) -> TaskKey {
        let inner = &self.runtime.0;
        let payload = self.payload(ticket, call, Verb::Call, group);
        let inputs: Vec<Handle> = payload.arguments.handles().to_vec();
        inputs.iter().for_each(|handle| inner.announce(&handle.entry));
        let key = inner.record_foreign_call(call.task, &actor.entry, payload, call.returns);
        self.forget_returns(key, call.returns);
        key
    }

    fn payload(&self, ticket: Ticket, call: &PeerCall, verb: Verb, group: u16) -> Payload {
        Payload {
            function: Some(foreign_function(call.function)),
            arguments: self.arguments(&call.arguments),
            returns: Returns::Foreign(self.queue.clone(), ticket, call.attempt),
            name: None,
            verb,
            group,
            kind: call.kind,
            number: call.stream_ahead,
        }
    }

    /// Nobody here refers to what it returns: its record goes with the last answer.
    fn forget_returns(&self, key: TaskKey, returns: u32) {
        for _ in 0..returns {
            self.runtime.0.on_handle_dropped(key);
        }
    }

    /// Arguments as they came from the other node, which has named all that they refer to.
    pub fn arguments(&self, items: &[PeerArgument]) -> Arguments {
        let mut arguments = Arguments::new();
        for item in items {
            match item {
                PeerArgument::Value { bytes, inside } => {
                    let handles = inside.objects.iter().map(|object| self.runtime.0.hold_object(*object));
                    let actors = inside.actors.iter().map(|actor| self.runtime.0.adopt_actor(*actor));
                    arguments.push_foreign(bytes, handles.collect(), actors.collect());
                }
                PeerArgument::Object(object) => arguments.push_handle(self.runtime.0.hold_object(*object)),
            }
        }
        arguments
    }

    /// Ends a task or call that was submitted here. Gives what is to be pushed to whom, if there was no room for it.
    pub fn cancel(&self, key: TaskKey, force: bool, recursive: bool) -> Option<(ProcessSlot, Message)> {
        let untold = self.runtime.0.cancel(key, force, recursive)?;
        let (form, index) = (ValueForm::Inline, cancel_index(force, recursive));
        Some((untold, answer_message(MessageKind::Cancel, form, false, index, key)))
    }

    /// Ends those of these tasks that have this shape and that nobody has begun; gives which.
    pub fn withdraw(&self, shape: ShapeId, keys: &[TaskKey]) -> Vec<TaskKey> {
        self.runtime.0.withdraw(shape, keys)
    }

    /// Has the worker killed that runs a task which was submitted here and cancelled, if one still does.
    pub fn kill_worker_of(&self, task: TaskId, key: TaskKey) {
        if let Some(process) = self.runtime.0.who_runs(key) {
            self.send(ToNode::WorkerKilled { process, task });
        }
    }

    /// Holds an object that this node knows.
    pub fn hold(&self, object: ObjectId) -> Handle {
        self.runtime.0.hold_object(object)
    }

    /// A handle of the object, if this process has one already, with which it lets go of it.
    pub fn handle_of(&self, object: ObjectId) -> Option<Handle> {
        let entry = self.runtime.0.known.lock().get(&object).and_then(Weak::upgrade)?;
        Some(Handle { entry })
    }

    /// Whether this node knows the object; if so, this process holds it from now on.
    pub fn look_up(&self, object: ObjectId) -> Result<Option<Handle>, Error> {
        match self.runtime.0.request(|request| ToNode::LookupWanted { request, object })? {
            FromNode::LookedUp { known: true, .. } => Ok(Some(self.hold(object))),
            _ => Ok(None),
        }
    }

    /// The object is in the other node's store: gives its entry in the index here. `holder` holds it from now on. `named`
    /// says whether the other node has named it by this, or had before.
    pub fn import(
        &self,
        object: ObjectId,
        bytes: u64,
        holder: ProcessSlot,
        named: bool,
    ) -> Result<EntryRef, Error> {
        let question = |request| ToNode::Imported { request, object, bytes, holder, named };
        match self.runtime.0.request(question)? {
            FromNode::ImportedAs { entry, .. } => entry.map_err(Error::from),
            other => Err(Error::System(format!("the node answered {other:?} to an import"))),
        }
    }

    /// The result of a task, which a worker has given to this process to hold.
    pub fn take_result(&self, object: ObjectId, answer: &LocalAnswer) -> Handle {
        let outcome = match answer {
            LocalAnswer::Inline(bytes, _) => Outcome::Inline(Value::inline(bytes)),
            LocalAnswer::Stored(stored, contains) => {
                Outcome::Stored { place: StoredAt::new(stored.entry), contains: *contains }
            }
            LocalAnswer::Failed(failure) => Outcome::Failed(Arc::new(failure.clone())),
        };
        let inner = &self.runtime.0;
        let mut known = inner.known.lock();
        if let Some(entry) = known.get(&object).and_then(Weak::upgrade) {
            // It was named before it had a value, or comes again. The node counts this process as a holder once.
            drop(known);
            let mut later = Later::default();
            entry.set_known();
            entry.resolve(outcome, &mut later);
            later.run(inner);
            return Handle { entry };
        }
        let entry = Arc::new(Entry::with_outcome(object, inner.clone(), outcome));
        entry.set_known();
        entry.set_escaped();
        known.insert(object, Arc::downgrade(&entry));
        Handle { entry }
    }

    /// The value of an object, if it has one; else there will be a [`LocalEvent::Ready`].
    pub fn value_of(&self, handle: &Handle) -> Option<SharedValue> {
        self.runtime.0.announce(&handle.entry);
        let waker = Waker::from(Arc::new(Ready { queue: self.queue.clone(), object: handle.id() }));
        if handle.entry.outcome().is_none() && handle.entry.add_waker(&waker) {
            return None;
        }
        handle.entry.outcome().map(Outcome::to_shared)
    }

    /// A handle by which the value of an object is waited for that was lost; nothing if it was not.
    pub fn renew(&self, handle: &Handle) -> Option<Handle> {
        let inner = &self.runtime.0;
        let lost = match handle.entry.outcome()? {
            Outcome::Stored { place, .. } => inner.arena.size_of(place.get()).is_none(),
            Outcome::Failed(failure) => failure.kind == FailureKind::Lost,
            Outcome::Inline(_) | Outcome::Refused(_) => false,
        };
        lost.then(|| Handle { entry: inner.renew(&handle.entry) })
    }

    /// The bytes of an object's value, in memory. A value that was lost is not waited for.
    pub fn open(&self, handle: &Handle) -> Result<Value, Error> {
        let text =
            match handle.has_outcome().then(|| value_of(&handle.entry, Patience::default())).transpose()? {
                Some(Found::Value(value)) => return Ok(value),
                Some(Found::Renewed(_)) => format!("the value of object {} was lost", handle.id()),
                None => format!("object {} has no value yet", handle.id()),
            };
        Err(Failure::new(FailureKind::Lost, text).into())
    }

    /// The process that stands for the node which is to say the value of an object, or has it; none if it is this one.
    pub fn origin_of(&self, object: ObjectId) -> Option<ProcessSlot> {
        match self.runtime.0.request(|request| ToNode::OriginWanted { request, object }) {
            Ok(FromNode::Origin { peer, .. }) => peer,
            _ => None,
        }
    }

    /// The references inside the value of an object, as far as the node knows them.
    pub fn contents_of(&self, object: ObjectId) -> Result<Inside, Error> {
        match self.runtime.0.request(|request| ToNode::ContentsWanted { request, object })? {
            FromNode::Contents { objects, actors, .. } => Ok(Inside { objects, actors }),
            other => Err(Error::System(format!("the node answered {other:?} to a question about contents"))),
        }
    }

    /// How large a stored value is, and whether references are inside.
    pub fn size_of(&self, handle: &Handle) -> Result<(u64, bool), Error> {
        match handle.entry.outcome() {
            Some(Outcome::Stored { place, contains }) => match self.runtime.0.arena.size_of(place.get()) {
                Some(bytes) => Ok((bytes, *contains)),
                None => Err(Error::Store(format!("object {} is not in the store any more", handle.id()))),
            },
            _ => Err(Error::Store(format!("object {} is not in the store", handle.id()))),
        }
    }

    /// Constructs an actor for the other node. The values of all its arguments are known.
    pub fn host_actor(&self, mut spec: ActorSpec, arguments: Arguments) -> Result<ActorHandle, Error> {
        let failure = |handle: &Handle| handle.entry.outcome().and_then(Outcome::failure);
        if let Some(failure) = arguments.handles().iter().find_map(failure) {
            return Err(Error::from(failure));
        }
        let payload = Payload::creation(foreign_function(spec.constructor), arguments, spec.concurrency);
        let bytes =
            payload.final_bytes().ok_or_else(|| Error::System("an argument has no value".to_owned()))?;
        spec.arguments = bytes.into_owned();
        Ok(self.runtime.0.start_foreign_actor(spec, payload.arguments))
    }

    /// A handle of an actor that this node knows.
    pub fn adopt_actor(&self, actor: ActorId) -> ActorHandle {
        self.runtime.0.adopt_actor(actor)
    }

    /// Has it said, by [`LocalEvent::ActorChanged`], that an actor is alive or dead; each change is said anyway. Nothing is said
    /// of a new handle's actor, whose place the node has yet to tell: it would count as an actor that takes no calls any more.
    pub fn look_at(&self, actor: &ActorHandle) {
        let place = self.runtime.0.place_of(&actor.entry);
        if let ActorPlace::Pending(_) = place {
            return;
        }
        self.queue.push(LocalEvent::ActorChanged { actor: actor.entry.id, place });
        self.queue.wake();
    }
}

struct Ready {
    queue: Arc<BridgeQueue>,
    object: ObjectId,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.queue.push(LocalEvent::Ready { object: self.object });
        self.queue.wake();
    }
}

/// The arguments of a claimed task or call, as another node understands them, and the objects that they name.
pub fn to_peer(arguments: &[u8]) -> Result<Vec<PeerArgument>, String> {
    let items = crate::codec::foreign_items(arguments)?;
    items
        .into_iter()
        .map(|item| match item {
            crate::codec::ForeignItem::Value(bytes) => {
                Ok(PeerArgument::Value { inside: inside(bytes)?, bytes: bytes.to_vec() })
            }
            crate::codec::ForeignItem::Stored(stored) => Ok(PeerArgument::Object(stored.object)),
        })
        .collect()
}

/// The references inside an encoded value.
pub fn inside_of(bytes: &[u8]) -> Result<Inside, String> {
    inside(bytes)
}

/// A worker's answer, as it lies in a channel.
pub(crate) fn read_answer(form: ValueForm, contains: bool, payload: &[u8]) -> LocalAnswer {
    match form {
        ValueForm::Inline if contains => {
            let (object, bytes) = ObjectId::read_from_prefix(payload).expect("the id comes first");
            LocalAnswer::Inline(bytes.to_vec(), Some(object))
        }
        ValueForm::Inline => LocalAnswer::Inline(payload.to_vec(), None),
        ValueForm::Stored => {
            LocalAnswer::Stored(Stored::read_from_bytes(payload).expect("a stored value"), contains)
        }
        ValueForm::Failed => {
            LocalAnswer::Failed(aktis_protocol::control::decode(payload).unwrap_or_else(|error| {
                let text = format!("its failure could not be decoded: {error}");
                Failure::new(FailureKind::Codec, text)
            }))
        }
    }
}

/// A function of somebody else's program, by its id: this process only passes it on.
fn foreign_function(id: FunctionId) -> &'static Function {
    static KNOWN: LazyLock<Mutex<HashMap<FunctionId, &'static Function>>> = LazyLock::new(Mutex::default);
    KNOWN.lock().entry(id).or_insert_with(|| {
        let body = FunctionBody::Several(|_| Err(Failure::new(FailureKind::Codec, "it runs elsewhere")));
        // As many as the programs of a cluster have functions, and they live as long as this process.
        Box::leak(Box::new(Function { id, name: "", body }))
    })
}

impl Inner {
    /// Gives an event to whoever owns the bridge; false if this process is none.
    pub(crate) fn tell_bridge(&self, event: impl FnOnce() -> LocalEvent) -> bool {
        let Some(queue) = self.bridge.get() else { return false };
        queue.push(event());
        true
    }

    /// A message for an actor that lives on another node, or about a task that was forwarded.
    pub(crate) fn bridge_message(
        &self,
        from: ProcessSlot,
        kind: MessageKind,
        message: &Message,
        payload: &[u8],
    ) {
        self.tell_bridge(|| match kind {
            MessageKind::StreamCredit | MessageKind::StreamClosed | MessageKind::Cancel => {
                LocalEvent::TaskMessage { from, kind, key: message.key, index: message.index }
            }
            _ => {
                let (header, arguments) =
                    CallHeader::read_from_prefix(payload).expect("a call begins with its header");
                LocalEvent::Call { from, kind, key: message.key, header, arguments: arguments.to_vec() }
            }
        });
    }
}
