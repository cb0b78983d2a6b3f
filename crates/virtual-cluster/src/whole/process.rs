//! One process of the program: a driver, or a worker whose threads run tasks. Each has a real submitter, for tasks of its own.

use super::memory::{LANE_TASKS_MAX, LaneTask, Memory, Packet};
use super::script::{SHAPES, Script, shape};
use super::thread::Thread;
use crate::port::SharedMemory;
use aktis_logic::Time;
use aktis_logic::lease_pool::LeasePool;
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_logic::machine::submitter::{
    Cancelled, Input, LaneIndex, Repeat, Route, Submission, Submitter, SubmitterConfig, SubmitterEffect,
};
use aktis_protocol::control::{FromNode, RequestId, SharedValue, ToNode, decode, encode};
use aktis_protocol::hot::{CANCEL_RECURSIVE, Message, MessageKind, Stored, ValueForm};
use aktis_protocol::peer::{Inside, PeerArgument};
use aktis_protocol::{
    EntryRef, Failure, FailureKind, LaneId, NotRebuilt, ObjectId, ProcessSlot, ShardIndex, TaskId, TaskKey,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long a task rests before it is tried again.
const REST_MICROSECONDS: u64 = 10_000;
/// How often a task may be run again.
const RETRIES: u32 = 8;

/// A task, as its submitter knows it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    script: Script,
    /// The tasks whose values it is given.
    inputs: Vec<TaskKey>,
}

/// How a task has come out.
#[derive(Clone, Debug)]
enum Outcome {
    Inline,
    Stored(ObjectId, EntryRef),
    Failed,
}

/// The return value of a task that something refers to.
#[derive(Debug)]
struct Returned {
    task: TaskId,
    references: u32,
    outcome: Option<Outcome>,
}

/// The queue for tasks of one shape.
#[derive(Clone, Copy, Debug)]
struct Queue {
    index: LaneIndex,
    lane: Option<LaneId>,
}

/// See the module.
pub(super) struct Process {
    pub(super) slot: ProcessSlot,
    pub(super) is_driver: bool,
    submitter: Submitter<Job>,
    queues: [Option<Queue>; SHAPES],
    asked: BTreeMap<RequestId, usize>,
    returned: BTreeMap<TaskKey, Returned>,
    keys: BTreeMap<TaskId, TaskKey>,
    /// What the program itself refers to.
    held: Vec<TaskKey>,
    rests: VecDeque<(Time, TaskKey)>,
    /// Values that were lost and asked for, and whose tasks run again.
    renewed: BTreeSet<TaskKey>,
    next_request: RequestId,
    root: TaskId,
    tasks: u64,
    pub(super) pool: LeasePool,
    pub(super) threads: Vec<Thread>,
    pub(super) next_cell: usize,
    /// Whether something has happened since it has last gone on.
    pub(super) is_dirty: bool,
    /// Why tasks have failed that nobody had cancelled.
    pub(super) failures: Vec<(TaskId, FailureKind)>,
    cancelled: BTreeSet<TaskId>,
    pub(super) finished: u64,
}

impl Process {
    pub(super) fn new(slot: ProcessSlot, is_driver: bool, root: TaskId) -> Self {
        let config = SubmitterConfig { lineage: true, lineage_bytes_max: 1 << 20, rests: true };
        Self {
            slot,
            is_driver,
            submitter: Submitter::new(config),
            queues: [None; SHAPES],
            asked: BTreeMap::new(),
            returned: BTreeMap::new(),
            keys: BTreeMap::new(),
            held: Vec::new(),
            rests: VecDeque::new(),
            renewed: BTreeSet::new(),
            next_request: 1,
            root,
            tasks: 0,
            pool: LeasePool::default(),
            threads: Vec::new(),
            next_cell: 0,
            is_dirty: true,
            failures: Vec::new(),
            cancelled: BTreeSet::new(),
            finished: 0,
        }
    }

    pub(super) fn request(&mut self) -> RequestId {
        self.next_request += 1;
        self.next_request
    }

    /// Tasks that have no outcome.
    pub(super) fn unfinished(&self) -> usize {
        self.submitter.unfinished()
    }

    pub(super) fn is_finished(&self, key: TaskKey) -> bool {
        !self.submitter.is_unfinished(key)
    }

    /// What the program itself refers to.
    pub(super) fn held(&self) -> &[TaskKey] {
        &self.held
    }

    /// Submits a task. The program refers to its value until it [drops](Self::drop_held) it.
    pub(super) fn submit(&mut self, memory: &mut Memory, script: Script, inputs: Vec<TaskKey>) -> TaskKey {
        let queue = self.queue(memory, script.shape);
        self.is_dirty = true;
        self.tasks += 1;
        let task = self.root.child(self.tasks);
        let has_failed = |key: &TaskKey| matches!(self.returned[key].outcome, Some(Outcome::Failed));
        let is_doomed = inputs.iter().any(has_failed);
        for key in &inputs {
            self.returned.get_mut(key).expect("the program refers to it").references += 1;
        }
        let missing: Vec<Input> = inputs.iter().copied().map(Input::Task).collect();
        let (route, payload) = (Route::Lane(queue.index), Job { script, inputs });
        let submission =
            Submission { task, route, returns: 1, retries: RETRIES, attempt: 0, bytes: 50, payload };
        let key = self.submitter.on_submitted(submission, &missing);
        self.returned.insert(key, Returned { task, references: 1, outcome: None });
        self.keys.insert(task, key);
        self.held.push(key);
        if is_doomed {
            let mut effects = Vec::new();
            self.submitter.on_input_failed(key, &mut effects);
            self.carry_out(memory, effects);
        }
        key
    }

    /// The queue for a shape, which is asked for if there is none.
    fn queue(&mut self, memory: &mut Memory, number: usize) -> Queue {
        if let Some(queue) = self.queues[number] {
            return queue;
        }
        let queue = Queue { index: self.submitter.open_lane(), lane: None };
        let (request, shape) = (self.request(), shape(number, &memory.world));
        self.asked.insert(request, number);
        memory.send(self.slot, ToNode::LaneWanted { request, shape, shard: ShardIndex(0) });
        self.queues[number] = Some(queue);
        queue
    }

    /// Tasks that can be sent go into their queues, as far as there is room; gives whether there were any.
    pub(super) fn flush(&mut self, now: Time, memory: &mut Memory) -> bool {
        while let Some((_, key)) = self.rests.pop_front_if(|(at, _)| *at <= now) {
            self.submitter.on_rested(key);
        }
        let mut progress = false;
        for queue in self.queues.into_iter().flatten() {
            let Some(lane) = queue.lane else { continue };
            while memory.lanes.get(&lane).is_none_or(|tasks| tasks.len() < LANE_TASKS_MAX)
                && let Some(key) = self.submitter.next_in_lane(queue.index)
            {
                let task = self.task_of(key);
                memory.queue(self.slot, lane, task);
                self.submitter.on_sent(queue.index, key, 0);
                progress = true;
            }
        }
        self.submitter.check();
        progress
    }

    fn task_of(&self, key: TaskKey) -> LaneTask {
        let record = self.submitter.record(key).expect("it is next");
        let job = record.payload().expect("it has not run");
        let mut arguments =
            vec![PeerArgument::Value { bytes: job.script.encode(), inside: Inside::default() }];
        for input in &job.inputs {
            if let Some(Outcome::Stored(object, _)) = self.returned[input].outcome {
                arguments.push(PeerArgument::Object(object));
            }
        }
        let (task, attempt, function) = (record.task(), record.attempt(), job.script.function());
        LaneTask { key, task, attempt, function, arguments: encode(&arguments) }
    }

    /// Whether a thread could begin a task, or a task could be sent, or something has happened.
    pub(super) fn can_go_on(&self, memory: &Memory) -> bool {
        let has_room =
            |lane: LaneId| memory.lanes.get(&lane).is_none_or(|tasks| tasks.len() < LANE_TASKS_MAX);
        let can_send =
            |queue: &Queue| queue.lane.is_some_and(has_room) && self.submitter.lane_backlog(queue.index) > 0;
        self.is_dirty
            || self.pool.idle_shapes().any(|shape| memory.has_tasks(shape))
            || self.queues.iter().flatten().any(can_send)
    }

    /// When a task has rested.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.rests.front().map(|(at, _)| *at)
    }

    fn carry_out(&mut self, memory: &mut Memory, effects: Vec<SubmitterEffect<Job>>) {
        let mut effects = VecDeque::from(effects);
        let now = memory.world.now();
        while let Some(effect) = effects.pop_front() {
            let dropped = match effect {
                SubmitterEffect::Fail(job, task, failure, _) => {
                    self.fail(memory, task, failure);
                    job.inputs
                }
                SubmitterEffect::FailForInput(job, task, _) => {
                    self.fail(memory, task, Failure::new(FailureKind::InputFailed, "an input failed"));
                    job.inputs
                }
                SubmitterEffect::Drop(job) => job.inputs,
                SubmitterEffect::Rest(key) => {
                    self.rests.push_back((Time(now.0 + REST_MICROSECONDS), key));
                    Vec::new()
                }
                SubmitterEffect::Flush(actor) | SubmitterEffect::Closed(actor) => {
                    unreachable!("{actor:?}: there are no actors")
                }
            };
            for key in dropped {
                effects.extend(self.drop_reference(memory, key));
            }
        }
    }

    fn fail(&mut self, memory: &mut Memory, task: TaskId, failure: Failure) {
        self.finished += 1;
        if !self.cancelled.contains(&task) {
            self.failures.push((task, failure.kind.clone()));
        }
        let Some(&key) = self.keys.get(&task) else { return };
        self.set_outcome(memory, key, Outcome::Failed);
        if self.renewed.remove(&key) {
            let value = SharedValue::Failed(failure);
            memory.send(self.slot, ToNode::Resolved { object: task.returns(0), value });
        }
    }

    fn set_outcome(&mut self, memory: &mut Memory, key: TaskKey, outcome: Outcome) {
        if let Some(returned) = self.returned.get_mut(&key) {
            let before = returned.outcome.replace(outcome);
            if let Some(Outcome::Stored(object, _)) = before
                && !matches!(returned.outcome, Some(Outcome::Stored(..)))
            {
                memory.send(self.slot, ToNode::Released { object });
            }
        }
    }

    /// One reference to a value goes.
    fn drop_reference(&mut self, memory: &mut Memory, key: TaskKey) -> Vec<SubmitterEffect<Job>> {
        let returned = self.returned.get_mut(&key).expect("it is referred to");
        returned.references -= 1;
        let mut effects = Vec::new();
        if returned.references == 0 {
            let Returned { task, outcome, .. } = self.returned.remove(&key).expect("just found");
            self.keys.remove(&task);
            self.renewed.remove(&key);
            if let Some(Outcome::Stored(object, _)) = outcome {
                memory.send(self.slot, ToNode::Released { object });
            }
            self.submitter.on_handle_dropped(key, &mut effects);
        }
        effects
    }

    /// The program refers to a value no more.
    pub(super) fn drop_held(&mut self, memory: &mut Memory, place: usize) {
        let key = self.held.swap_remove(place);
        let effects = self.drop_reference(memory, key);
        self.carry_out(memory, effects);
    }

    pub(super) fn drop_key(&mut self, memory: &mut Memory, key: TaskKey) {
        let place = self.held.iter().position(|held| *held == key).expect("the program refers to it");
        self.drop_held(memory, place);
    }

    /// Ends a task early.
    pub(super) fn cancel(
        &mut self,
        memory: &mut Memory,
        key: TaskKey,
        proxies: &dyn Fn(ProcessSlot, LocalEvent),
    ) {
        let Some(returned) = self.returned.get(&key).filter(|returned| returned.outcome.is_none()) else {
            return;
        };
        self.cancelled.insert(returned.task);
        let mut effects = Vec::new();
        let found = self.submitter.on_cancelled(key, &mut effects);
        self.carry_out(memory, effects);
        let Cancelled::Sent(Route::Lane(index), _) = found else { return };
        let queue = self.queues.iter().flatten().find(|queue| queue.index == index);
        if queue.and_then(|queue| queue.lane).is_some_and(|lane| memory.take_back(lane, key)) {
            return;
        }
        memory.cancelled.insert((self.slot, key));
        for &proxy in &memory.proxies {
            let (from, kind, index) = (self.slot, MessageKind::Cancel, CANCEL_RECURSIVE);
            proxies(proxy, LocalEvent::TaskMessage { from, kind, key, index });
        }
    }

    /// Another process has answered.
    pub(super) fn on_packet(&mut self, memory: &mut Memory, (_, message, payload): Packet) {
        self.is_dirty = true;
        if MessageKind::from_u8(message.kind) == Some(MessageKind::Cancel) {
            return;
        }
        let Message { key, .. } = message;
        memory.cancelled.remove(&(self.slot, key));
        let (outcome, failure) = match ValueForm::from_u8(message.form).expect("a form") {
            ValueForm::Inline => (Outcome::Inline, None),
            ValueForm::Stored => {
                let Stored { object, entry } = Stored::from_payload(&payload).expect("a stored value");
                (Outcome::Stored(object, entry), None)
            }
            ValueForm::Failed => (Outcome::Failed, Some(decode::<Failure>(&payload).expect("a failure"))),
        };
        let stored = match outcome {
            Outcome::Stored(object, _) => Some(object),
            Outcome::Inline | Outcome::Failed => None,
        };
        let task = self.submitter.record(key).map(|record| record.task());
        let mut effects = Vec::new();
        if !self.submitter.on_returned(key, failure.is_some(), &mut effects) {
            if let Some(object) = stored {
                memory.send(self.slot, ToNode::Released { object });
            }
            return self.carry_out(memory, effects);
        }
        self.finished += 1;
        if let (Some(task), Some(failure)) = (task, &failure)
            && !self.cancelled.contains(&task)
        {
            self.failures.push((task, failure.kind.clone()));
        }
        match self.returned.contains_key(&key) {
            true => {
                if self.renewed.remove(&key) {
                    let value = match (&outcome, failure) {
                        (_, Some(failure)) => SharedValue::Failed(failure),
                        (Outcome::Stored(_, entry), _) => {
                            SharedValue::Stored { entry: *entry, contains: false }
                        }
                        _ => SharedValue::Inline { bytes: Vec::new(), contains: false },
                    };
                    let object = task.expect("it is on record").returns(0);
                    memory.send(self.slot, ToNode::Resolved { object, value });
                }
                self.set_outcome(memory, key, outcome);
            }
            // Nobody refers to it any more.
            false => {
                if let Some(object) = stored {
                    memory.send(self.slot, ToNode::Released { object });
                }
            }
        }
        self.carry_out(memory, effects);
    }

    /// What a process has sent counts before anything else is heard about it.
    fn read_packets_of(&mut self, memory: &mut Memory, process: ProcessSlot) {
        let inbox = memory.inboxes.remove(&self.slot).unwrap_or_default();
        let (packets, others): (VecDeque<_>, VecDeque<_>) =
            inbox.into_iter().partition(|(from, ..)| *from == process);
        memory.inboxes.insert(self.slot, others);
        packets.into_iter().for_each(|packet| self.on_packet(memory, packet));
    }

    /// The node says something.
    pub(super) fn on_mail(&mut self, memory: &mut Memory, message: FromNode) {
        self.is_dirty = true;
        let mut effects = Vec::new();
        match message {
            FromNode::LaneOpened { request, lane } => {
                let number = self.asked.remove(&request).expect("it was asked for");
                let queue = self.queues[number].as_mut().expect("it was asked for");
                queue.lane = Some(lane.unwrap_or_else(|failure| panic!("no queue: {failure}")));
            }
            FromNode::LaneRemoved { lane, failure } => {
                let is_it = |queue: &&mut Option<Queue>| queue.is_some_and(|queue| queue.lane == Some(lane));
                if let Some(Queue { index, .. }) = self.queues.iter_mut().find(is_it).and_then(Option::take) {
                    self.submitter.on_lane_removed(index, &failure, &mut effects);
                }
                memory.send(self.slot, ToNode::LaneForgotten { lane });
            }
            FromNode::LeaseGranted { lease } => {
                let returned = self.pool.grant(lease);
                self.return_lease(memory, returned);
            }
            FromNode::LeaseRevoked { shape } => {
                let returned = self.pool.revoke(shape);
                self.return_lease(memory, returned);
            }
            FromNode::TaskLost { process, key, attempt, cause } => {
                self.read_packets_of(memory, process);
                self.submitter.on_lost(key, attempt, cause.as_ref(), &mut effects);
            }
            FromNode::ProcessDied { process, cause } => {
                self.read_packets_of(memory, process);
                self.orphan_tasks_of(process);
                let me = self.slot;
                let is_lost = |at: &(ProcessSlot, usize), cell: &mut super::memory::Cell| {
                    at.0 == process && cell.submitter == me
                };
                let lost: Vec<_> = memory.cells.extract_if(.., is_lost).map(|(_, cell)| cell).collect();
                for cell in lost {
                    self.submitter.on_lost(cell.key, cell.attempt, Some(&cause), &mut effects);
                }
                memory.send(self.slot, ToNode::DeathHandled { process });
            }
            FromNode::Rebuild { object } => self.rebuild(memory, object, &mut effects),
            FromNode::ExtentGranted { request, entry } => self.on_room(memory, request, Some(entry)),
            FromNode::ExtentDenied { request, .. } => self.on_room(memory, request, None),
            FromNode::Restored { request, outcome } => self.on_read(memory, request, outcome.map(drop)),
            FromNode::SharedWorker { .. } | FromNode::Warned { .. } | FromNode::LanesUnwanted(_) => {}
            other => unreachable!("{}: {other:?}", self.slot),
        }
        self.carry_out(memory, effects);
    }

    pub(super) fn return_lease(&self, memory: &mut Memory, lease: Option<aktis_protocol::LeaseId>) {
        if let Some(lease) = lease {
            memory.send(self.slot, ToNode::LeaseReturned { lease });
        }
    }

    /// A value that a task of this process has made is lost: the task runs again, after those whose values it needs and
    /// that are lost too.
    fn rebuild(&mut self, memory: &mut Memory, object: ObjectId, effects: &mut Vec<SubmitterEffect<Job>>) {
        let key = self.keys.get(&object.task()).copied();
        let is_lost = |entry: EntryRef| memory.world.index.get(entry).is_none();
        let lost_inputs = |key: TaskKey| {
            let inputs =
                self.submitter.record(key).and_then(|record| record.payload()).map(|job| &job.inputs);
            let lost = |input: &&TaskKey| matches!(self.returned[*input].outcome, Some(Outcome::Stored(_, entry)) if is_lost(entry));
            inputs.into_iter().flatten().filter(lost).copied().collect()
        };
        let steps = key.ok_or(()).and_then(|key| {
            if self.submitter.repeat(key) == Repeat::UnderWay {
                return Ok((key, Vec::new()));
            }
            self.submitter.steps_to(key, lost_inputs).map(|steps| (key, steps)).map_err(drop)
        });
        let Ok((key, steps)) = steps else {
            let failure = Failure::new(FailureKind::NotRebuilt(NotRebuilt::Other), "it cannot be run again");
            let value = SharedValue::Failed(failure);
            return memory.send(self.slot, ToNode::Resolved { object, value });
        };
        self.renewed.insert(key);
        let steps_left: BTreeSet<TaskKey> = steps.iter().copied().collect();
        for step in steps {
            let job =
                self.submitter.record(step).and_then(|record| record.payload()).expect("it can run again");
            let (number, inputs) = (job.script.shape, job.inputs.clone());
            let missing: Vec<Input> =
                inputs.into_iter().filter(|input| steps_left.contains(input)).map(Input::Task).collect();
            let queue = self.queue(memory, number);
            self.submitter.on_values_lost(step, queue.index, &missing, effects);
        }
    }

    /// Whether the program has cancelled a task.
    pub(super) fn has_cancelled(&self) -> bool {
        !self.cancelled.is_empty()
    }

    /// What is not finished, in words.
    pub(super) fn describe(&self) -> String {
        let open = self.submitter.records().filter(|(key, _)| self.submitter.is_unfinished(*key));
        let open: Vec<_> =
            open.map(|(key, record)| (key, record.stage(), record.attempt(), record.payload())).collect();
        format!(
            "process {}: {open:?}, queues {:?}, {} on record",
            self.slot,
            self.queues,
            self.submitter.on_record()
        )
    }

    /// Whether nothing is left of all tasks.
    pub(super) fn is_empty(&self) -> bool {
        self.submitter.on_record() == 0 && self.returned.is_empty() && self.threads.is_empty()
    }
}
