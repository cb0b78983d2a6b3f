//! The threads of a worker: each runs a task with a lease, reads what it is given, waits for what it submits, and answers.

use super::memory::{LaneTask, Memory};
use super::process::Process;
use super::script::{LICENCE_SHAPE, Script};
use crate::port::SharedMemory;
use crate::random::Random;
use aktis_logic::Time;
use aktis_logic::estimate;
use aktis_logic::lease_pool::{HeldLease, Waiting};
use aktis_logic::machine::remote_node::{LocalAnswer, LocalEvent, answer_message};
use aktis_protocol::control::{RequestId, ToNode, decode, encode};
use aktis_protocol::hot::{MessageKind, Stored, ValueForm};
use aktis_protocol::peer::PeerArgument;
use aktis_protocol::{
    EntryRef, Failure, FailureKind, FunctionId, ObjectId, ProcessSlot, ShapeId, TaskId, TaskKey,
};
use std::collections::BTreeMap;

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Doing {
    /// It waits for a value that it is given.
    Reading(RequestId),
    /// It runs until then.
    Running(Time),
    /// It waits for the tasks that it has submitted.
    Waiting,
    /// It waits for room for its value.
    Storing(RequestId),
}

/// See the module.
pub(super) struct Thread {
    cell: usize,
    submitter: ProcessSlot,
    key: TaskKey,
    task: TaskId,
    script: Script,
    pub(super) shape: ShapeId,
    /// Values that it is given, and has not read.
    inputs: Vec<ObjectId>,
    doing: Doing,
    /// None if it goes on without one after it has waited, or waits and others use it.
    held: Option<HeldLease>,
    /// Whether its lease was for it only, and is back at the node.
    is_used_up: bool,
    children: Vec<TaskKey>,
    has_submitted: bool,
    /// Whether its submitter is dead. The submitter's place may be another's by now.
    is_orphaned: bool,
    began: Time,
}

/// Run times, by function and bucket.
pub(super) type RunTimes = BTreeMap<FunctionId, BTreeMap<u8, u32>>;

impl Thread {
    pub(super) fn function(&self) -> FunctionId {
        self.script.function()
    }

    /// When it goes on by itself.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        match self.doing {
            Doing::Running(until) => Some(until),
            Doing::Reading(_) | Doing::Waiting | Doing::Storing(_) => None,
        }
    }

    /// Whether it uses a CPU.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.doing != Doing::Waiting
    }

    /// Whether its task is not wanted any more.
    fn is_cancelled(&self, memory: &Memory) -> bool {
        if self.is_orphaned {
            return true;
        }
        match memory.proxies.contains(&self.submitter) {
            true => memory.runs.iter().find(|run| run.key == self.key).is_none_or(|run| run.cancelled),
            false => {
                memory.cancelled.contains(&(self.submitter, self.key))
                    || !memory.world.is_running(self.submitter)
            }
        }
    }
}

impl Process {
    /// Threads go on, and begin tasks for which there are leases; gives whether anything was done.
    pub(super) fn work(
        &mut self,
        now: Time,
        memory: &mut Memory,
        random: &mut Random,
        run_times: &mut RunTimes,
    ) -> bool {
        let mut progress = false;
        let mut place = 0;
        while place < self.threads.len() {
            let thread = &self.threads[place];
            let is_cancelled = thread.is_cancelled(memory);
            match thread.doing {
                Doing::Running(_) | Doing::Waiting if is_cancelled => {
                    let failure = Failure::new(FailureKind::Cancelled, "it was cancelled");
                    self.answer(memory, place, LocalAnswer::Failed(failure));
                    progress = true;
                    continue;
                }
                Doing::Running(until) if until <= now => {
                    let took = now.0 - thread.began.0;
                    *run_times
                        .entry(thread.function())
                        .or_default()
                        .entry(estimate::bucket(took))
                        .or_default() += 1;
                    progress = true;
                    if self.end_run(now, memory, place, random) {
                        continue;
                    }
                }
                Doing::Waiting if thread.children.iter().all(|key| self.is_finished(*key)) => {
                    self.end_wait(now, memory, place);
                    progress = true;
                }
                Doing::Running(_) | Doing::Waiting | Doing::Reading(_) | Doing::Storing(_) => {}
            }
            place += 1;
        }
        let idle: Vec<ShapeId> = self.pool.idle_shapes().collect();
        for shape in idle {
            while let Some(held) = self.pool.take(shape) {
                let cell = (self.slot, self.next_cell);
                let Some((submitter, task)) = memory.claim_for_thread(cell, shape) else {
                    let returned = self.pool.put(held);
                    self.return_lease(memory, returned);
                    break;
                };
                self.begin(now, memory, held, submitter, task);
                progress = true;
            }
        }
        self.pool.check();
        progress
    }

    fn begin(
        &mut self,
        now: Time,
        memory: &mut Memory,
        held: HeldLease,
        submitter: ProcessSlot,
        task: LaneTask,
    ) {
        let LaneTask { key, task, arguments, .. } = task;
        let arguments: Vec<PeerArgument> = decode(&arguments).expect("arguments");
        let (mut script, mut inputs) = (None, Vec::new());
        for argument in arguments {
            match argument {
                PeerArgument::Value { bytes, .. } => script = Some(Script::decode(&bytes)),
                PeerArgument::Object(object) => inputs.push(object),
            }
        }
        let script = script.expect("each task has one");
        let thread = Thread {
            cell: self.next_cell,
            submitter,
            key,
            task,
            script,
            shape: held.shape,
            inputs,
            doing: Doing::Running(Time(now.0 + script.run_microseconds)),
            held: Some(held),
            is_used_up: false,
            children: Vec::new(),
            has_submitted: false,
            is_orphaned: false,
            began: now,
        };
        self.next_cell += 1;
        self.threads.push(thread);
        self.read_next(memory, self.threads.len() - 1);
    }

    /// Asks for the next value that a thread is given; without another one it runs.
    fn read_next(&mut self, memory: &mut Memory, place: usize) {
        let now = memory.world.now();
        let request = self.request();
        let thread = &mut self.threads[place];
        match thread.inputs.pop() {
            Some(object) => {
                thread.doing = Doing::Reading(request);
                memory.send(self.slot, ToNode::RestoreWanted { request, object });
            }
            None => thread.doing = Doing::Running(Time(now.0 + thread.script.run_microseconds)),
        }
    }

    /// A value is there, or will never be.
    pub(super) fn on_read(&mut self, memory: &mut Memory, request: RequestId, outcome: Result<(), Failure>) {
        let reads = |thread: &Thread| thread.doing == Doing::Reading(request);
        let Some(place) = self.threads.iter().position(reads) else { return };
        match outcome {
            Ok(()) => self.read_next(memory, place),
            Err(_) => {
                let failure = Failure::new(FailureKind::InputFailed, "an input is lost");
                self.answer(memory, place, LocalAnswer::Failed(failure));
            }
        }
    }

    /// The time of a task is over: it waits for tasks that it submits, stores its value, or answers. Gives whether its thread
    /// is gone.
    fn end_run(&mut self, now: Time, memory: &mut Memory, place: usize, random: &mut Random) -> bool {
        let Script { children, stored_bytes, .. } = self.threads[place].script;
        if children > 0 && !std::mem::replace(&mut self.threads[place].has_submitted, true) {
            let script = self.threads[place].script;
            for _ in 0..children {
                let child = script.child(random);
                let key = self.submit(memory, child, Vec::new());
                self.threads[place].children.push(key);
            }
            self.begin_wait(memory, place);
            self.flush(now, memory);
            return false;
        }
        if stored_bytes == 0 {
            self.answer(memory, place, LocalAnswer::Inline(Vec::new(), None));
            return true;
        }
        let request = self.request();
        let thread = &mut self.threads[place];
        thread.doing = Doing::Storing(request);
        let object = thread.task.returns(0);
        memory.send(self.slot, ToNode::ExtentWanted { request, object, bytes: stored_bytes });
        false
    }

    fn begin_wait(&mut self, memory: &mut Memory, place: usize) {
        let thread = &mut self.threads[place];
        thread.doing = Doing::Waiting;
        let returned = match thread.held.as_ref().map(|held| held.while_waiting(false)) {
            Some(Waiting::PutBack) => {
                let held = thread.held.take().expect("it has one");
                self.pool.put(held)
            }
            Some(Waiting::UseUp) => {
                let held = thread.held.take().expect("it has one");
                thread.is_used_up = true;
                Some(self.pool.use_up(&held))
            }
            Some(Waiting::LendCpu) => {
                let lease = thread.held.as_ref().expect("it has one").lease;
                memory.send(self.slot, ToNode::LeaseBlocked { lease, blocked: true });
                None
            }
            None => None,
        };
        self.return_lease(memory, returned);
    }

    fn end_wait(&mut self, now: Time, memory: &mut Memory, place: usize) {
        let thread = &mut self.threads[place];
        match &thread.held {
            Some(held) => {
                let lease = held.lease;
                memory.send(self.slot, ToNode::LeaseBlocked { lease, blocked: false });
            }
            None if thread.is_used_up => {}
            None => thread.held = self.pool.take(thread.shape),
        }
        thread.doing = Doing::Running(Time(now.0 + 50));
        let children = std::mem::take(&mut thread.children);
        children.into_iter().for_each(|key| self.drop_key(memory, key));
    }

    /// There is room for a value, or there is none.
    pub(super) fn on_room(&mut self, memory: &mut Memory, request: RequestId, entry: Option<EntryRef>) {
        let stores = |thread: &Thread| thread.doing == Doing::Storing(request);
        let place = self.threads.iter().position(stores).expect("a thread waits for it");
        let thread = &self.threads[place];
        let (object, holder) = (thread.task.returns(0), thread.submitter);
        let Some(entry) = entry else {
            let failure = Failure::new(FailureKind::Store, "there is no room");
            return self.answer(memory, place, LocalAnswer::Failed(failure));
        };
        if thread.is_cancelled(memory) {
            memory.send(self.slot, ToNode::Abandoned { object });
            let failure = Failure::new(FailureKind::Cancelled, "it was cancelled");
            return self.answer(memory, place, LocalAnswer::Failed(failure));
        }
        memory.send(self.slot, ToNode::Sealed { object, holder });
        self.answer(memory, place, LocalAnswer::Stored(Stored { object, entry }, false));
    }

    /// The task of a thread is over.
    fn answer(&mut self, memory: &mut Memory, place: usize, answer: LocalAnswer) {
        let Thread { cell, submitter, key, held, children, is_orphaned, .. } = self.threads.remove(place);
        if is_orphaned {
            // Nobody wants the answer.
        } else if memory.proxies.contains(&submitter) {
            if let Some(run) = memory.take_run(key) {
                let (ticket, from, kind, index) = (run.ticket, self.slot, MessageKind::Returned, 0);
                run.proxy.push_event(LocalEvent::Answer { ticket, from, kind, index, answer });
            }
        } else if memory.world.is_running(submitter) {
            let (form, payload) = match answer {
                LocalAnswer::Inline(bytes, _) => (ValueForm::Inline, bytes),
                LocalAnswer::Stored(stored, _) => (ValueForm::Stored, stored.payload()),
                LocalAnswer::Failed(failure) => (ValueForm::Failed, encode(&failure)),
            };
            let message = answer_message(MessageKind::Returned, form, false, 0, key);
            memory.inboxes.entry(submitter).or_default().push_back((self.slot, message, payload));
        }
        memory.cells.remove(&(self.slot, cell));
        children.into_iter().for_each(|key| self.drop_key(memory, key));
        let returned = held.and_then(|held| match held.once {
            true => Some(self.pool.use_up(&held)),
            false => self.pool.put(held),
        });
        self.return_lease(memory, returned);
    }

    /// A process is dead: its tasks go on until their threads notice.
    pub(super) fn orphan_tasks_of(&mut self, process: ProcessSlot) {
        let its = self.threads.iter_mut().filter(|thread| thread.submitter == process);
        its.for_each(|thread| thread.is_orphaned = true);
    }

    /// How many licences the tasks of its threads have.
    pub(super) fn licences(&self) -> u64 {
        self.threads.iter().filter(|thread| thread.script.shape == LICENCE_SHAPE).count() as u64
    }
}
