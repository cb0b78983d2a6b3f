//! The tasks that a driver submits and the actors that it calls, which other nodes run and own.

use super::memory::LaneTask;
use super::site::{Site, fresh_task};
use crate::random::Random;
use crate::world::DRIVER;
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::control::{SharedValue, ToNode, decode, encode};
use aktis_protocol::hot::{
    CANCEL_FORCE, CANCEL_RECURSIVE, CallHeader, Message, MessageKind, Stored, ValueForm, split_references,
};
use aktis_protocol::peer::{Inside, PeerArgument};
use aktis_protocol::{ActorId, Failure, FailureKind, FunctionId, ObjectId, ProcessSlot, TaskKey};
use std::collections::{BTreeMap, BTreeSet};

/// How a call ends whose actor takes no calls any more.
const LOST_WITH_ACTOR: &str = "lost with its actor";

/// How often a task is started again.
const RETRIES: u32 = 5;

/// A task or call without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    task: LaneTask,
    /// The actor, and the proxy that the call was given to, if it is a call.
    call: Option<(ActorId, ProcessSlot)>,
    objects: Vec<ObjectId>,
    actors: Vec<ActorId>,
    cancelled: bool,
}

/// A handle of an actor.
#[derive(Debug, Default)]
pub(super) struct DriverHandle {
    pub(super) used: bool,
    /// How many tasks and calls that were submitted have it as an argument, or call it.
    passed: u32,
    place: Option<ActorPlace>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) pending: BTreeMap<TaskKey, Pending>,
    /// Tasks and calls that are over, and how they ended.
    finished: BTreeMap<TaskKey, &'static str>,
    pub(super) handles: BTreeMap<ActorId, DriverHandle>,
    /// Actors that live in this driver.
    pub(super) living: BTreeSet<ActorId>,
    /// Calls that wait for their actor.
    wanted: Vec<ActorId>,
}

impl Tasks {
    /// Whether an actor lives here, and the driver holds it.
    pub(super) fn keeps(&self, actor: ActorId) -> bool {
        self.living.contains(&actor) && self.handles.get(&actor).is_some_and(|handle| handle.used)
    }
}

impl Tasks {
    /// The actors that live here, and that the driver holds.
    pub(super) fn kept(&self) -> impl Iterator<Item = ActorId> {
        self.living.iter().copied().filter(|actor| self.keeps(*actor))
    }
}

impl Site {
    /// An actor in the driver's own process.
    pub(super) fn make_actor(&mut self, random: &mut Random) {
        if self.tasks.living.len() > 2 {
            return;
        }
        let actor = ActorId::created_by(fresh_task(random));
        self.tell(ToNode::ActorEscaped { actor, host: DRIVER });
        self.tasks.living.insert(actor);
        self.tasks.handles.insert(actor, DriverHandle { used: true, ..DriverHandle::default() });
    }

    pub(super) fn end_actor(&mut self, actor: ActorId) {
        self.tasks.living.remove(&actor);
        let failure = Failure::new(FailureKind::ActorDied, "its last handle was dropped");
        self.tell(ToNode::ActorEnded { actor, failure });
    }

    pub(super) fn hold_handle(&mut self, actor: ActorId) {
        if !self.tasks.handles.contains_key(&actor) {
            self.tell(ToNode::ActorHeld { actor });
        }
        self.tasks.handles.entry(actor).or_default().used = true;
    }

    pub(super) fn pick_handle(&self, random: &mut Random) -> Option<ActorId> {
        let used = self.tasks.handles.iter().filter(|(_, handle)| handle.used);
        random.pick(&used.map(|(&actor, _)| actor).collect::<Vec<_>>())
    }

    pub(super) fn drop_handle(&mut self, random: &mut Random) {
        if let Some(actor) = self.pick_handle(random)
            && (!self.tasks.living.contains(&actor) || random.chance(20))
        {
            self.tasks.handles.get_mut(&actor).expect("it was picked").used = false;
        }
        self.release_handles();
    }

    pub(super) fn drop_all_handles(&mut self) {
        self.tasks.handles.values_mut().for_each(|handle| handle.used = false);
        self.release_handles();
    }

    fn release_handles(&mut self) {
        let is_unused = |_: &ActorId, handle: &mut DriverHandle| !handle.used && handle.passed == 0;
        let unused: Vec<_> = self.tasks.handles.extract_if(.., is_unused).map(|(actor, _)| actor).collect();
        unused.into_iter().for_each(|actor| self.tell(ToNode::ActorReleased { actor }));
    }

    /// Arguments, with references that stay until the task or call is over.
    fn some_arguments(&mut self, random: &mut Random) -> (Vec<u8>, Vec<ObjectId>, Vec<ActorId>) {
        let (mut inside, mut arguments) = (Inside::default(), Vec::new());
        let mut passed = Vec::new();
        for _ in 0..random.below(3) {
            let Some(object) = self.pick(random) else { break };
            passed.push(object);
            match random.chance(50) {
                true => arguments.push(PeerArgument::Object(object)),
                false => inside.objects.push(object),
            }
        }
        if random.chance(60) {
            inside.actors.extend(self.pick_handle(random));
        }
        let actors = inside.actors.clone();
        arguments.push(PeerArgument::Value { bytes: encode(&inside), inside });
        for object in &passed {
            self.references.get_mut(object).expect("it was picked").passed += 1;
        }
        for actor in &actors {
            self.tasks.handles.get_mut(actor).expect("it was picked").passed += 1;
        }
        (encode(&arguments), passed, actors)
    }

    pub(super) fn submit_task(&mut self, random: &mut Random) {
        if self.tasks.pending.len() > 8 {
            return;
        }
        let (arguments, objects, actors) = self.some_arguments(random);
        let key = self.memory.borrow_mut().key();
        let task = LaneTask { key, task: fresh_task(random), attempt: 0, arguments };
        self.memory.borrow_mut().lane.push_back(task.clone());
        self.tasks.pending.insert(key, Pending { task, call: None, objects, actors, cancelled: false });
    }

    /// Calls an actor of another node, now or when it takes calls.
    pub(super) fn call_actor(&mut self, random: &mut Random) {
        let Some(actor) = self.pick_handle(random) else { return };
        if self.tasks.living.contains(&actor) || self.tasks.pending.len() > 8 || self.tasks.wanted.len() > 4 {
            return;
        }
        self.tasks.handles.get_mut(&actor).expect("it was picked").passed += 1;
        self.tasks.wanted.push(actor);
        self.make_calls(random);
    }

    /// Makes the calls whose actors take calls, and fails those whose actors are gone.
    pub(super) fn make_calls(&mut self, random: &mut Random) {
        for actor in std::mem::take(&mut self.tasks.wanted) {
            match self.tasks.handles[&actor].place.clone() {
                Some(ActorPlace::Alive { process, .. }) => self.make_call(actor, process, random),
                Some(ActorPlace::Dead(failure)) => self.on_call_failed(actor, &failure),
                Some(ActorPlace::Pending(_) | ActorPlace::Moved(_)) | None => self.tasks.wanted.push(actor),
            }
        }
    }

    fn make_call(&mut self, actor: ActorId, process: ProcessSlot, random: &mut Random) {
        let proxy = self.proxies.values().find(|proxy| proxy.port.slot == process);
        // The node says soon that the process is dead.
        let Some(port) = proxy.map(|proxy| proxy.port.clone()) else { return self.tasks.wanted.push(actor) };
        let (arguments, objects, actors) = self.some_arguments(random);
        let (key, task, function) = (self.memory.borrow_mut().key(), fresh_task(random), FunctionId(1));
        let (attempt, stream_ahead, concurrency, group, returns, reserved) = (0, 0, 1, 0, 1, 0);
        let header = CallHeader {
            actor,
            task,
            function,
            attempt,
            stream_ahead,
            concurrency,
            group,
            returns,
            reserved,
        };
        let kind = MessageKind::ActorCall;
        let call = LocalEvent::Call { from: DRIVER, kind, key, header, arguments: arguments.clone() };
        port.push_event(call);
        let task = LaneTask { key, task, attempt, arguments };
        let call = Some((actor, process));
        self.tasks.pending.insert(key, Pending { task, call, objects, actors, cancelled: false });
    }

    fn on_call_failed(&mut self, actor: ActorId, failure: &Failure) {
        self.tasks.handles.get_mut(&actor).expect("the call holds it").passed -= 1;
        if failure.kind == FailureKind::ActorDied {
            self.ended.push(actor);
        }
    }

    pub(super) fn cancel_one(&mut self, random: &mut Random) {
        let Some(key) = random.pick(&self.tasks.pending.keys().copied().collect::<Vec<_>>()) else { return };
        let pending = self.tasks.pending.get_mut(&key).expect("it was picked");
        pending.cancelled = true;
        let mut memory = self.memory.borrow_mut();
        if let Some(place) = memory.lane.iter().position(|task| task.key == key) {
            memory.lane.remove(place);
            drop(memory);
            return self.finish(key, "cancelled in the lane");
        }
        drop(memory);
        let force = pending.call.is_none() && random.chance(50);
        let index = CANCEL_RECURSIVE | if force { CANCEL_FORCE } else { 0 };
        for proxy in self.proxies.values() {
            let kind = MessageKind::Cancel;
            proxy.port.push_event(LocalEvent::TaskMessage { from: DRIVER, kind, key, index });
        }
    }

    /// A task or call is over: what it has passed on is released.
    fn finish(&mut self, key: TaskKey, how: &'static str) {
        let Pending { call, objects, actors, .. } = self.tasks.pending.remove(&key).expect("it is pending");
        assert_eq!(self.tasks.finished.insert(key, how), None, "{key:?} finishes twice");
        for object in objects {
            self.references.get_mut(&object).expect("the task holds it").passed -= 1;
        }
        for actor in actors.into_iter().chain(call.map(|(actor, _)| actor)) {
            self.tasks.handles.get_mut(&actor).expect("the task holds it").passed -= 1;
        }
        self.release_unused();
        self.release_handles();
    }

    /// The driver reads the next message in its channel; false if there is none.
    pub(super) fn read_channel(&mut self) -> bool {
        let next = self.memory.borrow_mut().channel.pop_front();
        let Some((_, message, payload)) = next else { return false };
        self.on_answer(&message, &payload);
        true
    }

    fn on_answer(&mut self, message: &Message, payload: &[u8]) {
        if MessageKind::from_u8(message.kind) == Some(MessageKind::Cancel) {
            return;
        }
        let key = message.key;
        match self.tasks.finished.get(&key) {
            // The caller heard that the actor is away after the proxy, which still got this call.
            Some(&LOST_WITH_ACTOR) => return self.drop_answer(message, payload),
            finished => assert_eq!(finished, None, "{key:?} has an answer and is over"),
        }
        let cancelled = self.tasks.pending[&key].cancelled;
        let object = match ValueForm::from_u8(message.form).expect("a form") {
            ValueForm::Stored => {
                let Stored { object, entry } = Stored::from_payload(payload).expect("a stored value");
                self.references.entry(object).or_default().entry = Some(entry);
                Some(object)
            }
            ValueForm::Inline if message.contains != 0 => {
                let (object, bytes) = split_references(payload).expect("a value with references");
                let value = SharedValue::Inline { bytes: bytes.to_vec(), contains: true };
                self.tell(ToNode::Escaped { object, value: Some(value) });
                Some(object)
            }
            ValueForm::Inline => None,
            ValueForm::Failed => {
                let failure: Failure = decode(payload).expect("a failure");
                let expected =
                    matches!(failure.kind, FailureKind::InputFailed | FailureKind::Store) || cancelled;
                if !expected {
                    self.losses.push(format!("{key:?}: {failure:?}"));
                }
                None
            }
        };
        if let Some(object) = object {
            self.references.entry(object).or_default().used = true;
        }
        self.finish(key, "answered");
    }

    /// The driver does not want a value that the node counts it as a holder of.
    fn drop_answer(&mut self, message: &Message, payload: &[u8]) {
        let object = match ValueForm::from_u8(message.form) {
            Some(ValueForm::Stored) => Stored::from_payload(payload).map(|stored| stored.object),
            Some(ValueForm::Inline) if message.contains != 0 => {
                split_references(payload).map(|(object, _)| object)
            }
            _ => None,
        };
        if let Some(object) = object.filter(|object| !self.references.contains_key(object)) {
            self.tell(ToNode::Released { object });
        }
    }

    /// A task was lost, or returned: it is submitted again.
    fn retry(&mut self, key: TaskKey, attempt: u32) {
        let Some(pending) = self.tasks.pending.get_mut(&key) else { return };
        if pending.task.attempt != attempt || pending.call.is_some() {
            return;
        }
        pending.task.attempt += 1;
        if pending.cancelled || pending.task.attempt > RETRIES {
            return self.finish(key, "lost for the last time");
        }
        let task = pending.task.clone();
        self.memory.borrow_mut().lane.push_front(task);
    }

    pub(super) fn on_task_lost(&mut self, process: ProcessSlot, key: TaskKey, attempt: u32) {
        self.read_channel_of(process);
        self.retry(key, attempt);
    }

    /// What a process has answered counts, before anything else is heard about it.
    fn read_channel_of(&mut self, process: ProcessSlot) {
        let mut memory = self.memory.borrow_mut();
        let channel = std::mem::take(&mut memory.channel);
        let (answers, others): (Vec<_>, Vec<_>) =
            channel.into_iter().partition(|(from, ..)| *from == process);
        memory.channel.extend(others);
        drop(memory);
        answers.iter().for_each(|(_, message, payload)| self.on_answer(message, payload));
    }

    /// A process died: tasks that it says it has are lost, and calls that it was given.
    pub(super) fn on_process_died(&mut self, process: ProcessSlot) {
        self.read_channel_of(process);
        let mut memory = self.memory.borrow_mut();
        let cells = memory.cells.extract_if(.., |(owner, _), _| *owner == process);
        let lost: Vec<_> = cells.map(|(_, task)| task).collect();
        drop(memory);
        lost.into_iter().for_each(|(key, attempt)| self.retry(key, attempt));
        self.lose_calls(|_, given_to| given_to == process);
        // Its place may be another's before the node says where its actors are.
        let lived_there = |place: &mut ActorPlace| matches!(place, ActorPlace::Alive { process: host, .. } if *host == process);
        for handle in self.tasks.handles.values_mut() {
            handle.place.take_if(lived_there);
        }
        self.tell(ToNode::DeathHandled { process });
    }

    /// Calls without an answer are over, since their actor does not take calls any more.
    fn lose_calls(&mut self, is_lost: impl Fn(ActorId, ProcessSlot) -> bool) {
        let lost = |pending: &Pending| pending.call.is_some_and(|(actor, process)| is_lost(actor, process));
        let keys: Vec<_> =
            self.tasks.pending.iter().filter(|(_, pending)| lost(pending)).map(|(&key, _)| key).collect();
        keys.into_iter().for_each(|key| self.finish(key, LOST_WITH_ACTOR));
    }

    /// The node says where an actor is.
    pub(super) fn on_actor_changed(&mut self, actor: ActorId, place: ActorPlace) {
        let Some(handle) = self.tasks.handles.get_mut(&actor) else { return };
        let before = handle.place.replace(place.clone());
        if let Some(ActorPlace::Alive { process, .. }) = before {
            self.read_channel_of(process);
        }
        match place {
            ActorPlace::Alive { .. } => {}
            ActorPlace::Pending(_) | ActorPlace::Moved(_) => self.lose_calls(|called, _| called == actor),
            ActorPlace::Dead(failure) => {
                let count = self
                    .tasks
                    .pending
                    .values()
                    .filter(|pending| pending.call.is_some_and(|(called, _)| called == actor));
                if count.count() > 0 && failure.kind == FailureKind::ActorDied {
                    self.ended.push(actor);
                }
                self.lose_calls(|called, _| called == actor);
            }
        }
    }
}
