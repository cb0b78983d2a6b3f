//! The submitter: every task and actor call of one process (or of some of its threads), from `remote` until nobody
//! can ask for it.
//!
//! It decides when a task may be sent (its inputs are there), in which order calls reach an actor, what
//! happens when a worker dies (again, or failed), what a cancel means, and how long a finished task stays
//! on record (lineage). What a task *is*, the payload `P`, it never looks at.
//!
//! Invariants:
//! 1. A task is finished exactly once, unless it is run again because its values were lost; answers that come later, or
//!    for an earlier life, change nothing.
//! 2. Calls of one actor are sent in the order of submission, also when they are sent again.
//! 3. A record goes when it is finished, no return is referenced, and no finished task downstream that is
//!    on record was computed from it.

mod actors;
mod lanes;
mod lineage;

use crate::planted::{Planted, SubmitterBug};
use crate::slab::Slab;
use actors::Actor;
pub use actors::{ActorIndex, Place};
use aktis_protocol::{DeathCause, Failure, FailureKind, ObjectId, ShardIndex, TaskId, TaskKey, limits};
pub use lanes::LaneIndex;
use lanes::Lanes;
use lineage::Lineage;
pub use lineage::Repeat;
use std::collections::BTreeMap;

/// Where a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To whoever pulls from this lane.
    Lane(LaneIndex),
    /// To this actor, in order.
    Actor(ActorIndex),
}

/// An input that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Made by a task of this process (finished or not).
    Task(TaskKey),
    /// Made by another process, or by another submitter of this one, and awaited.
    Elsewhere(ObjectId),
    /// Made by a task of this process: a reference to it is inside an input. It is not waited for, but if the task that has
    /// it is run again, so is this one.
    Inside(TaskKey),
}

/// A task to be run.
pub struct Submission<P> {
    /// The task.
    pub task: TaskId,
    /// Where it goes.
    pub route: Route,
    /// How many values it returns.
    pub returns: u32,
    /// How often it may be run again; [`limits::FOR_EVER`] is no limit.
    pub retries: u32,
    /// How often it was sent before, by another submitter.
    pub attempt: u32,
    /// Size of the payload, for the bound on lineage.
    pub bytes: u32,
    /// What it is.
    pub payload: P,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Some inputs are missing.
    Waiting,
    /// It could be sent.
    Queued,
    /// An attempt failed; it is queued again when it has rested.
    Resting,
    /// It is in a lane (at this position) or with its actor, or running.
    Sent {
        /// The position in the lane.
        position: u64,
    },
    /// A thread of this process runs it instead of waiting for it.
    Taken,
    /// It has values or a failure.
    Finished,
}

/// What the submitter orders.
#[derive(Debug)]
pub enum SubmitterEffect<P> {
    /// Give all returns of this task that have no value yet this failure.
    Fail(P, TaskId, Failure, Route),
    /// An input of this task failed: give its returns a failure that says so.
    FailForInput(P, TaskId, Route),
    /// This payload is not needed any more.
    Drop(P),
    /// These calls may be sendable now.
    Flush(ActorIndex),
    /// This actor's place is free: nobody calls it, and all its calls are finished.
    Closed(ActorIndex),
    /// This task is to be tried again in a while: say then that it has rested.
    Rest(TaskKey),
}

/// One task on record.
pub struct Record<P> {
    task: TaskId,
    route: Route,
    stage: Stage,
    missing: u32,
    returns: u32,
    returns_missing: u32,
    handles: u32,
    retries: u32,
    attempt: u32,
    bytes: u32,
    lineage_users: u32,
    /// Tasks that wait for this one, and tasks whose values this one was computed from.
    edges: Option<Box<Edges>>,
    payload: Option<P>,
}

#[derive(Default)]
struct Edges {
    dependents: Vec<TaskKey>,
    producers: Vec<TaskKey>,
}

impl<P> Record<P> {
    /// The task.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Where it goes.
    pub fn route(&self) -> Route {
        self.route
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// How often it was sent before.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How often it may be run again.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// How many values it returns.
    pub fn returns(&self) -> u32 {
        self.returns
    }

    /// How many of these are referenced.
    pub fn handles(&self) -> u32 {
        self.handles
    }

    /// How many inputs are missing.
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// What it is, if that is still on record.
    pub fn payload(&self) -> Option<&P> {
        self.payload.as_ref()
    }

    /// Whether it is finished, and could be run again.
    fn is_kept(&self) -> bool {
        self.stage == Stage::Finished && self.payload.is_some()
    }

    /// Its worker is lost: it can be sent again, and owes all its returns again; false if no retry is left.
    /// One that is `free` uses no retry.
    fn try_again(&mut self, free: bool) -> bool {
        if self.retries == 0 && !free {
            return false;
        }
        self.retries -= u32::from(!free && self.retries != limits::FOR_EVER);
        self.attempt += 1;
        self.returns_missing = self.returns;
        self.stage = Stage::Queued;
        true
    }
}

/// Why a task is finished.
enum Finish {
    /// All its returns are there.
    Returned,
    /// It returned a failure, which the shell has taken.
    ReturnedFailure,
    /// It ends without an answer.
    Failed(Failure),
    /// It cannot start.
    InputFailed,
}

/// What a cancel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not been sent, and never will be.
    BeforeStart,
    /// It had been sent: its route and position tell where to stop it.
    Sent(Route, u64),
    /// A thread of this process runs it.
    Taken,
    /// It was finished, or unknown: nothing changes.
    TooLate,
}

/// What is kept, and how much.
#[derive(Clone, Copy, Debug)]
pub struct SubmitterConfig {
    /// Whether finished tasks stay on record while their returns are referenced.
    pub lineage: bool,
    /// Bytes of finished tasks' payloads that are kept at most; the oldest go first.
    pub lineage_bytes_max: usize,
    /// Whether tasks rest before they are tried again.
    pub rests: bool,
}

/// The machine. See the module.
pub struct Submitter<P> {
    config: SubmitterConfig,
    tasks: Slab<Record<P>>,
    lanes: Lanes,
    /// Boxed: a table of a million grows without copying them.
    #[expect(clippy::vec_box, reason = "growing moves pointers, not actors")]
    actors: Vec<Box<Actor>>,
    free_actors: Vec<u32>,
    elsewhere: BTreeMap<ObjectId, Vec<TaskKey>>,
    unfinished: usize,
    lineage: Lineage,
    /// The bug that a test has planted, if any.
    pub planted: Planted<SubmitterBug>,
}

type Out<P> = Vec<SubmitterEffect<P>>;

impl<P> Submitter<P> {
    /// A submitter without tasks.
    pub fn new(config: SubmitterConfig) -> Self {
        Self::of_shard(config, ShardIndex::default())
    }

    /// A submitter without tasks, of a process that has several.
    pub fn of_shard(config: SubmitterConfig, shard: ShardIndex) -> Self {
        Self {
            planted: Planted::default(),
            config,
            tasks: Slab::new(shard),
            lanes: Lanes::default(),
            actors: Vec::new(),
            free_actors: Vec::new(),
            elsewhere: BTreeMap::new(),
            unfinished: 0,
            lineage: Lineage::default(),
        }
    }

    /// How many tasks are not finished.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// How many tasks are on record, finished or not.
    pub fn on_record(&self) -> usize {
        self.tasks.len()
    }

    /// Bytes of finished tasks' payloads on record.
    pub fn lineage_bytes(&self) -> usize {
        self.lineage.bytes()
    }

    /// A task on record.
    pub fn record(&self, key: TaskKey) -> Option<&Record<P>> {
        self.tasks.get(key)
    }

    /// All tasks on record, finished or not.
    pub fn records(&self) -> impl Iterator<Item = (TaskKey, &Record<P>)> {
        self.tasks.iter()
    }

    /// The payload of a task that is on record with it, to be changed.
    pub fn payload_mut(&mut self, key: TaskKey) -> Option<&mut P> {
        self.tasks.get_mut(key)?.payload.as_mut()
    }

    /// The payload of a finished task that is on record with it, to be changed.
    pub fn kept_payload_mut(&mut self, key: TaskKey) -> Option<&mut P> {
        self.tasks.get_mut(key).filter(|record| record.is_kept())?.payload.as_mut()
    }

    /// Whether a task was not finished.
    pub fn is_unfinished(&self, key: TaskKey) -> bool {
        self.tasks.get(key).is_some_and(|record| record.stage != Stage::Finished)
    }

    /// A task was submitted; its returns are referenced once each. `inputs` are the missing ones.
    pub fn on_submitted(&mut self, submission: Submission<P>, inputs: &[Input]) -> TaskKey {
        let record = Record {
            task: submission.task,
            route: submission.route,
            stage: Stage::Queued,
            missing: 0,
            returns: submission.returns,
            returns_missing: submission.returns,
            handles: submission.returns,
            retries: submission.retries,
            attempt: submission.attempt,
            bytes: submission.bytes,
            lineage_users: 0,
            edges: None,
            payload: Some(submission.payload),
        };
        let key = self.tasks.insert(record);
        self.unfinished += 1;
        if !inputs.is_empty() {
            self.connect(key, inputs);
        }
        match submission.route {
            Route::Lane(lane) => {
                if self.tasks.get(key).is_some_and(|record| record.stage == Stage::Queued) {
                    self.lanes.queue(lane).push_back(key);
                }
            }
            Route::Actor(actor) => self.actors[actor.0 as usize].queue.push_back(key),
        }
        key
    }

    fn connect(&mut self, key: TaskKey, inputs: &[Input]) {
        let (mut missing, mut producers) = (0, Vec::new());
        for input in inputs {
            match *input {
                Input::Task(producer) => {
                    let Some(record) = self.tasks.get_mut(producer) else { continue };
                    producers.push(producer);
                    if record.stage != Stage::Finished {
                        missing += 1;
                        let mut edges = record.edges.take().unwrap_or_default();
                        add_waiting(&self.tasks, &mut edges.dependents, key);
                        self.tasks.get_mut(producer).expect("just found").edges = Some(edges);
                    }
                }
                Input::Elsewhere(object) => {
                    missing += 1;
                    add_waiting(&self.tasks, self.elsewhere.entry(object).or_default(), key);
                }
                Input::Inside(producer) => {
                    producers.extend(self.tasks.get(producer).is_some().then_some(producer));
                }
            }
        }
        let record = self.tasks.get_mut(key).expect("just inserted");
        record.missing = missing;
        if missing > 0 {
            record.stage = Stage::Waiting;
        }
        if !producers.is_empty() {
            record.edges.get_or_insert_default().producers = producers;
        }
    }

    /// The session is over: everything unfinished fails.
    pub fn on_closed(&mut self, failure: &Failure, out: &mut Out<P>) {
        let unfinished = self.tasks.iter().filter(|(_, record)| record.stage != Stage::Finished);
        for key in unfinished.map(|(key, _)| key).collect::<Vec<_>>() {
            self.fail(key, failure.clone(), out);
        }
    }

    /// The next task of the lane was sent.
    pub fn on_sent(&mut self, lane: LaneIndex, key: TaskKey, position: u64) {
        let front = self.lanes.queue(lane).pop_front();
        debug_assert_eq!(front, Some(key));
        if let Some(record) = self.tasks.get_mut(key) {
            record.stage = Stage::Sent { position };
        }
    }

    /// A thread of this process runs a task of a lane itself: it was not sent, or was taken back. If it is
    /// among those that wait for room, it is passed over there.
    pub fn on_taken(&mut self, key: TaskKey) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        let is_task = matches!(record.route, Route::Lane(_));
        debug_assert!(is_task && matches!(record.stage, Stage::Queued | Stage::Sent { .. }));
        record.stage = Stage::Taken;
    }

    /// One return value (or a failure in its place) has arrived. Gives whether it is to be kept: false for
    /// a late or repeated answer.
    pub fn on_returned(&mut self, key: TaskKey, failed: bool, out: &mut Out<P>) -> bool {
        let Some(record) = self.tasks.get_mut(key) else { return false };
        // What waits for its inputs was not sent; if it has run before, this is of then.
        if matches!(record.stage, Stage::Finished | Stage::Waiting) {
            return false;
        }
        record.returns_missing = record.returns_missing.saturating_sub(1);
        if failed {
            self.finish(key, Finish::ReturnedFailure, out);
        } else if record.returns_missing == 0 {
            self.finish(key, Finish::Returned, out);
        }
        true
    }

    /// An object made elsewhere has a value or failed.
    pub fn on_elsewhere_resolved(&mut self, object: ObjectId, failed: bool, out: &mut Out<P>) {
        for key in self.elsewhere.remove(&object).unwrap_or_default() {
            if self.settle(key, failed, out) {
                self.finish(key, Finish::InputFailed, out);
            }
        }
    }

    /// Whether some task waits for an object made elsewhere.
    pub fn awaits(&self, object: ObjectId) -> bool {
        self.elsewhere.contains_key(&object)
    }

    /// The process that ran this attempt of a task died: it is queued again, or fails. A process that dies just after
    /// it has answered may still name an attempt that is over. Without a cause nobody had begun it: that was no try.
    pub fn on_lost(&mut self, key: TaskKey, attempt: u32, cause: Option<&DeathCause>, out: &mut Out<P>) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        let is_stale = record.attempt != attempt && !self.planted.has(SubmitterBug::StaleAttempt);
        if !matches!(record.stage, Stage::Sent { .. }) || is_stale {
            return;
        }
        let Route::Lane(lane) = record.route else { return };
        let Some(cause) = cause else {
            record.stage = Stage::Queued;
            return self.lanes.queue(lane).push_front(key);
        };
        if record.try_again(false) {
            match self.config.rests {
                true => rest(record, key, out),
                false => self.lanes.queue(lane).push_front(key),
            }
            return;
        }
        let tries = record.attempt + 1;
        let message = format!("its worker died, and no retry is left after {tries} tries: {cause}");
        let failure = Failure::new(FailureKind::WorkerDied(cause.clone()), message);
        self.finish(key, Finish::Failed(failure), out);
    }

    /// An attempt failed, and says that another may succeed. True if there will be one.
    pub fn on_attempt_failed(&mut self, key: TaskKey, out: &mut Out<P>) -> bool {
        let Some(record) = self.tasks.get_mut(key) else { return false };
        let was_taken = record.stage == Stage::Taken;
        if !(was_taken || matches!(record.stage, Stage::Sent { .. })) || !record.try_again(false) {
            return false;
        }
        match record.route {
            Route::Lane(lane) => {
                let queue = self.lanes.queue(lane);
                if was_taken {
                    // It may have been taken from the middle of this very queue.
                    queue.retain(|&queued| queued != key);
                }
                match self.config.rests {
                    true => rest(record, key, out),
                    false => queue.push_back(key),
                }
            }
            Route::Actor(actor) => self.call_again(actor, key, out),
        }
        true
    }

    /// A task has rested: it is next in its lane.
    pub fn on_rested(&mut self, key: TaskKey) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        if let (Stage::Resting, Route::Lane(lane)) = (record.stage, record.route) {
            record.stage = Stage::Queued;
            self.lanes.queue(lane).push_front(key);
        }
    }

    /// Somebody wants a task to end. The returns of one that was not finished get a failure.
    pub fn on_cancelled(&mut self, key: TaskKey, out: &mut Out<P>) -> Cancelled {
        self.end_early(key, || Failure::new(FailureKind::Cancelled, "it was cancelled"), out)
    }

    /// The time that a task had is over (`allowed` says in words how long that was): it ends as if somebody had cancelled it.
    /// Tries of it share that time. One that was done in time, and is run again for values that were lost, has no deadline.
    pub fn on_deadline_passed(&mut self, key: TaskKey, allowed: &str, out: &mut Out<P>) -> Cancelled {
        if self.lineage.repeated.contains(&key) {
            return Cancelled::TooLate;
        }
        let failure = || {
            let message = format!("it was not done within its deadline of {allowed}, and was cancelled");
            Failure::new(FailureKind::DeadlinePassed, message)
        };
        self.end_early(key, failure, out)
    }

    fn end_early(&mut self, key: TaskKey, failure: impl FnOnce() -> Failure, out: &mut Out<P>) -> Cancelled {
        let Some(record) = self.tasks.get(key) else { return Cancelled::TooLate };
        let found = match record.stage {
            Stage::Finished => return Cancelled::TooLate,
            Stage::Waiting | Stage::Queued | Stage::Resting => Cancelled::BeforeStart,
            Stage::Sent { position } => Cancelled::Sent(record.route, position),
            Stage::Taken => Cancelled::Taken,
        };
        self.fail(key, failure(), out);
        found
    }

    /// A task cannot run: its returns get this failure.
    pub fn fail(&mut self, key: TaskKey, failure: Failure, out: &mut Out<P>) {
        if self.is_unfinished(key) {
            self.finish(key, Finish::Failed(failure), out);
        }
    }

    /// An input of a task was failed when it was submitted.
    pub fn on_input_failed(&mut self, key: TaskKey, out: &mut Out<P>) {
        if self.is_unfinished(key) {
            self.finish(key, Finish::InputFailed, out);
        }
    }

    /// One return of a task is not referenced any more.
    pub fn on_handle_dropped(&mut self, key: TaskKey, out: &mut Out<P>) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        record.handles = record.handles.saturating_sub(1);
        self.forget_if_unused(key, out);
    }

    /// Marks a task as finished and tells those who wait for it, and those who wait for these.
    fn finish(&mut self, key: TaskKey, how: Finish, out: &mut Out<P>) {
        let mut finished = vec![];
        self.finish_one(key, how, &mut finished, out);
        while let Some((producer, failed)) = finished.pop() {
            let Some(record) = self.tasks.get_mut(producer) else { continue };
            let dependents = record.edges.as_mut().map(|edges| std::mem::take(&mut edges.dependents));
            for dependent in dependents.unwrap_or_default() {
                if self.settle(dependent, failed, out) {
                    self.finish_one(dependent, Finish::InputFailed, &mut finished, out);
                }
            }
            self.forget_if_unused(producer, out);
        }
    }

    fn finish_one(
        &mut self,
        key: TaskKey,
        how: Finish,
        finished: &mut Vec<(TaskKey, bool)>,
        out: &mut Out<P>,
    ) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        let was_waiting = std::mem::replace(&mut record.stage, Stage::Finished) == Stage::Waiting;
        self.unfinished -= 1;
        if !self.lineage.repeated.is_empty() {
            self.lineage.repeated.remove(&key);
        }
        if record.edges.as_ref().is_some_and(|edges| !edges.dependents.is_empty()) {
            finished.push((key, !matches!(how, Finish::Returned)));
        }
        let (task, route) = (record.task, record.route);
        let is_task = matches!(route, Route::Lane(_));
        // One that took a reference to its value may have finished first: it is kept for that one, too.
        let is_wanted = record.handles > 0 || record.lineage_users > 0;
        if matches!(how, Finish::Returned) && self.config.lineage && is_task && is_wanted {
            self.remember(key, out);
        } else {
            if let Some(edges) = &mut record.edges {
                edges.producers = Vec::new();
            }
            out.extend(record.payload.take().map(|payload| match how {
                Finish::Returned | Finish::ReturnedFailure => SubmitterEffect::Drop(payload),
                Finish::Failed(failure) => SubmitterEffect::Fail(payload, task, failure, route),
                Finish::InputFailed => SubmitterEffect::FailForInput(payload, task, route),
            }));
        }
        if let Route::Actor(actor) = route {
            self.on_call_finished(actor, was_waiting, out);
        }
        self.forget_if_unused(key, out);
    }

    /// Counts an input as settled; true if the task must fail for it.
    fn settle(&mut self, key: TaskKey, failed: bool, out: &mut Out<P>) -> bool {
        let Some(record) = self.tasks.get_mut(key) else { return false };
        if record.stage != Stage::Waiting {
            return false;
        }
        if failed {
            return true;
        }
        record.missing -= 1;
        if record.missing == 0 {
            record.stage = Stage::Queued;
            match record.route {
                Route::Lane(lane) => self.lanes.queue(lane).push_back(key),
                Route::Actor(actor) => out.push(SubmitterEffect::Flush(actor)),
            }
        }
        false
    }

    fn forget_if_unused(&mut self, key: TaskKey, out: &mut Out<P>) {
        let mut unused = vec![];
        unused.extend(self.take_if_unused(key, out));
        while let Some(producers) = unused.pop() {
            for producer in producers {
                if let Some(record) = self.tasks.get_mut(producer) {
                    record.lineage_users -= 1;
                    unused.extend(self.take_if_unused(producer, out));
                }
            }
        }
    }

    /// Takes a record that nobody needs off the table; gives the producers that it kept on record.
    fn take_if_unused(&mut self, key: TaskKey, out: &mut Out<P>) -> Option<Vec<TaskKey>> {
        let record = self.tasks.get(key)?;
        let has_dependents = record.edges.as_ref().is_some_and(|edges| !edges.dependents.is_empty());
        let in_use = record.handles > 0 || record.lineage_users > 0 || has_dependents;
        if record.stage != Stage::Finished || in_use {
            return None;
        }
        self.discount(key);
        let record = self.tasks.remove(key)?;
        out.extend(record.payload.map(SubmitterEffect::Drop));
        record.edges.map(|edges| edges.producers).filter(|producers| !producers.is_empty())
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        let unfinished = self.tasks.iter().filter(|(_, record)| record.stage != Stage::Finished).count();
        assert_eq!(unfinished, self.unfinished, "the count of unfinished tasks is right");
        let mut users: BTreeMap<TaskKey, u32> = BTreeMap::new();
        let mut bytes = 0;
        for (_, record) in self.tasks.iter() {
            let edges = record.edges.as_deref();
            if record.stage == Stage::Finished {
                for producer in edges.map_or(&[][..], |edges| &edges.producers) {
                    *users.entry(*producer).or_default() += 1;
                }
                assert!(edges.is_none_or(|edges| edges.dependents.is_empty()), "dependents were told");
                assert!(record.handles > 0 || record.lineage_users > 0, "an unused record is gone");
                bytes += if record.payload.is_some() { record.bytes as usize } else { 0 };
            }
            assert_eq!(
                record.missing > 0,
                record.stage == Stage::Waiting || record.stage == Stage::Finished && record.missing > 0
            );
        }
        for (key, record) in self.tasks.iter() {
            assert_eq!(
                record.lineage_users,
                users.get(&key).copied().unwrap_or(0),
                "lineage users of {key:?}"
            );
        }
        assert_eq!(bytes, self.lineage.bytes(), "the bytes of lineage are right");
        let is_open = |key: &TaskKey| self.is_unfinished(*key);
        assert!(self.lineage.repeated.iter().all(is_open), "what is run again is not finished");
    }
}

fn rest<P>(record: &mut Record<P>, key: TaskKey, out: &mut Out<P>) {
    record.stage = Stage::Resting;
    out.push(SubmitterEffect::Rest(key));
}

/// Adds a task to those that wait for something. Before the list grows, it loses those that wait no more, because
/// they were cancelled or failed.
fn add_waiting<P>(tasks: &Slab<Record<P>>, list: &mut Vec<TaskKey>, key: TaskKey) {
    if list.len() == list.capacity() {
        list.retain(|&other| tasks.get(other).is_some_and(|record| record.stage != Stage::Finished));
    }
    list.push(key);
}

#[cfg(test)]
mod tests;
