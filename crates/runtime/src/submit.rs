//! From `remote` to a worker's queue: the shell around the submitter machine.

mod lanes;
mod near;

use crate::codec::Arguments;
use crate::entry::{Entry, Later, Outcome};
use crate::error::Error;
use crate::handle::Handle;
use crate::kept_arguments::KeptArguments;
use crate::options::{TaskOptions, Tuning};
use crate::payload::{Payload, Returns, Verb};
use crate::registry::{Function, FunctionBody};
use crate::runtime::{IdMap, Inner};
use crate::shards::Shard;
use crate::worker::TaskBytes;
use aktis_logic::machine::submitter::{
    ActorIndex, Input, LaneIndex, Record, Route, Stage, Submission, Submitter, SubmitterConfig,
    SubmitterEffect,
};
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::{CallHeader, Message, MessageKind, TaskHeader};
use aktis_protocol::limits::{TASK_PAYLOAD_BYTES_MAX, TASK_RETURNS_MAX};
use aktis_protocol::{
    ActorId, Failure, FailureKind, LaneId, ObjectId, ProcessSlot, Shape, ShapeId, ShardIndex, TaskId,
    TaskKey, limits,
};
use aktis_store::{LaneProducer, WakeUp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

pub(crate) use lanes::Reopen;

/// Tasks that waited for room go into their lane together, up to this many, when there is room for all of them.
const SENT_AT_ONCE: usize = 64;

/// A queue in shared memory and what belongs to it.
struct Lane {
    id: LaneId,
    shape: ShapeId,
    definition: Arc<Shape>,
    producer: LaneProducer,
    /// Whether the node has removed it, or was told that it may: its memory may be another one's.
    removed: bool,
    /// Submissions that have chosen it and are not on record yet.
    choices: u32,
}

/// An actor in the machine's table.
#[derive(Default)]
pub(crate) struct ActorSlot {
    pub(crate) id: ActorId,
    /// Whether the node knows it: then the node ends it, else its creator does.
    pub(crate) managed: bool,
    /// Why it is not running, as the node said.
    pub(crate) pending: Option<Box<str>>,
}

/// The machine and the queues that it fills.
pub(crate) struct Shell {
    pub(crate) machine: Submitter<Payload>,
    lanes: Vec<Lane>,
    by_shape: IdMap<Arc<Shape>, LaneIndex>,
    /// Whether the first lane is that of the default shape, which stays. Who submits for others has none.
    pub(crate) has_default: bool,
    /// Whether the node has no more lanes for tasks by where their inputs are.
    near_refused: bool,
    /// The shapes of lanes that were given up: tasks that went through them may have to run again.
    given_up: IdMap<LaneIndex, Arc<Shape>>,
    /// How many there may be before those are looked for that no task on record went through.
    given_up_max: usize,
    /// Actors whose channel was full.
    stalled: Vec<ActorIndex>,
    /// Light actors that wait for a worker to live in.
    pub(crate) homeless: Vec<ActorIndex>,
    /// What belongs to the actors of the machine's table, by their places there.
    pub(crate) actors: Vec<ActorSlot>,
    /// The places of actors that others may know too.
    pub(crate) actor_index: IdMap<ActorId, ActorIndex>,
    kept_arguments: KeptArguments,
    out: Vec<SubmitterEffect<Payload>>,
}

/// The lane of the default shape.
pub(crate) const DEFAULT_LANE: LaneIndex = LaneIndex(0);

impl Shell {
    /// The shell of one of `shards` machines.
    pub(crate) fn new(
        shard: ShardIndex,
        tuning: &Tuning,
        shards: usize,
        kept_arguments: KeptArguments,
    ) -> Self {
        let config = SubmitterConfig {
            lineage: tuning.lineage_bytes_max > 0,
            lineage_bytes_max: tuning.lineage_bytes_max / shards,
            rests: !tuning.retry_delay.is_zero(),
        };
        Self {
            machine: Submitter::of_shard(config, shard),
            lanes: Vec::new(),
            by_shape: IdMap::default(),
            has_default: true,
            near_refused: false,
            given_up: IdMap::default(),
            given_up_max: limits::LANES_KEPT,
            stalled: Vec::new(),
            homeless: Vec::new(),
            actors: Vec::new(),
            actor_index: IdMap::default(),
            kept_arguments,
            out: Vec::new(),
        }
    }

    /// Does what the machine ordered; the rest is for `later`.
    pub(crate) fn obey(&mut self, runtime: &Arc<Inner>, later: &mut Later) {
        while !self.out.is_empty() {
            let mut effects = std::mem::take(&mut self.out);
            for effect in effects.drain(..) {
                match effect {
                    SubmitterEffect::Drop(payload) => later.payloads.push(payload),
                    SubmitterEffect::Flush(actor) => self.flush_actor(runtime, actor, later),
                    SubmitterEffect::Closed(actor) => self.on_actor_closed(runtime, actor),
                    SubmitterEffect::Rest(key) => runtime.alarms.add_rest(runtime, key),
                    SubmitterEffect::Fail(payload, task, failure, route) => {
                        if let (Verb::Release, Route::Actor(actor)) = (payload.verb, route) {
                            // The actor is dead, so that its farewell is never sent.
                            self.machine.close_actor(actor, &mut self.out);
                        }
                        let mut failure = failure.at(payload.name(), task);
                        if let Route::Actor(actor) = route {
                            failure.actor = self.actors.get(actor.0 as usize).map(|slot| slot.id);
                        }
                        payload.returns.fail(&Arc::new(failure), later);
                        later.payloads.push(payload);
                    }
                    SubmitterEffect::FailForInput(payload, task, route) => {
                        let failure = payload.input_failure(&runtime.failures).at(payload.name(), task);
                        if let (Verb::Create, Route::Actor(actor)) = (payload.verb, route) {
                            let failure = Failure::not_constructed(task.returns(0), failure.clone());
                            self.machine.on_actor_dead(actor, &failure, &mut self.out);
                        }
                        payload.returns.fail(&Arc::new(failure), later);
                        later.payloads.push(payload);
                    }
                }
            }
            if self.out.is_empty() {
                self.out = effects;
            }
        }
    }

    /// Runs a handler of the machine, and obeys it.
    pub(crate) fn step<R>(
        &mut self,
        runtime: &Arc<Inner>,
        later: &mut Later,
        handler: impl FnOnce(&mut Submitter<Payload>, &mut Vec<SubmitterEffect<Payload>>) -> R,
    ) -> R {
        let result = handler(&mut self.machine, &mut self.out);
        if !self.out.is_empty() {
            self.obey(runtime, later);
        }
        result
    }

    /// One return of a task has arrived, or a failure in its place. When it is done, it stays on record while its
    /// result is wanted, but must not keep its arguments alive.
    pub(crate) fn on_returned(
        &mut self,
        runtime: &Arc<Inner>,
        key: TaskKey,
        failed: bool,
        later: &mut Later,
    ) {
        self.step(runtime, later, |machine, out| machine.on_returned(key, failed, out));
        let Some(payload) = self.machine.kept_payload_mut(key) else { return };
        let before = payload.arguments.size_bytes();
        // A node that ends with its driver loses no values before.
        let own = if runtime.tells_lineage() { payload.arguments.own() } else { Vec::new() };
        let Some(released) = payload.arguments.release() else { return };
        later.released.push(released);
        let grown = payload.arguments.size_bytes().saturating_sub(before) as u32;
        if !own.is_empty() {
            self.keep_own_arguments(runtime, key, own, later);
        }
        if grown > 0 {
            self.step(runtime, later, |machine, out| machine.on_payload_grown(key, grown, out));
        }
    }

    /// Large arguments that were passed by value stay, so that the finished task can run again, unless they take too much.
    fn keep_own_arguments(
        &mut self,
        runtime: &Arc<Inner>,
        key: TaskKey,
        own: Vec<Handle>,
        later: &mut Later,
    ) {
        let bytes = own.iter().filter_map(|handle| runtime.stored_bytes(&handle.entry)).sum();
        let bytes_max = KeptArguments::bytes_max(runtime.arena.bytes());
        if bytes > bytes_max {
            return later.entries.extend(own.into_iter().map(|handle| handle.entry));
        }
        let charge = self.kept_arguments.charge(bytes);
        if let Some(payload) = self.machine.kept_payload_mut(key) {
            payload.arguments.keep_own(own, charge);
        }
        later.released.extend(self.kept_arguments.add(&mut self.machine, key, bytes_max));
    }

    /// Sends what can be sent, everywhere.
    pub(crate) fn flush(&mut self, runtime: &Arc<Inner>, later: &mut Later) {
        for place in 0..self.lanes.len() {
            if let Some(lane) = self.machine.lane_in(place) {
                self.flush_lane(runtime, lane, later);
            }
        }
        for actor in std::mem::take(&mut self.stalled) {
            self.flush_actor(runtime, actor, later);
        }
    }

    /// Whether tasks wait for room in a queue.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.stalled.is_empty() || self.machine.open_lanes().any(|lane| self.machine.lane_backlog(lane) > 0)
    }

    /// Moves tasks of a lane into its queue, as many as fit.
    pub(crate) fn flush_lane(&mut self, runtime: &Arc<Inner>, index: LaneIndex, later: &mut Later) {
        let (mut pushed, mut room) = (false, 0);
        while let Some(key) = self.machine.next_in_lane(index) {
            if room == 0 {
                room = self.machine.lane_backlog(index).min(SENT_AT_ONCE);
                if !self.lanes[index.place()].producer.has_room_for(room as u64) {
                    break;
                }
            }
            room -= 1;
            let record = self.machine.record(key).expect("queued tasks are on record");
            let payload = record.payload().expect("a queued task has its payload");
            if let Some(near) = runtime.near(payload.arguments.handles())
                && self.may_move(index)
            {
                let Some(lane) = self.move_near(index, key, near, later) else { break };
                self.flush_lane(runtime, lane, later);
                continue;
            }
            let Some(bytes) = payload.final_bytes() else {
                self.step(runtime, later, |machine, out| machine.on_input_failed(key, out));
                continue;
            };
            if bytes.len() > TASK_PAYLOAD_BYTES_MAX {
                self.fail_oversized(runtime, key, bytes.len(), later);
                continue;
            }
            let header = payload.task_header(key, record);
            let lane = &mut self.lanes[index.place()];
            let Some(position) = lane.producer.push(&header, &bytes) else { break };
            self.machine.on_sent(index, key, position);
            pushed = true;
        }
        if pushed {
            let lane = &self.lanes[index.place()];
            if lane.producer.activate() {
                later.messages.push(ToNode::LaneActive { lane: lane.id });
            }
            later.queued.add(lane.shape);
        }
    }

    fn fail_oversized(&mut self, runtime: &Arc<Inner>, key: TaskKey, bytes: usize, later: &mut Later) {
        let message = format!(
            "its arguments take {bytes} bytes, more than {TASK_PAYLOAD_BYTES_MAX}\nhint: put large arguments into the object store with put()"
        );
        let failure = Failure::new(FailureKind::Codec, message);
        self.step(runtime, later, |machine, out| machine.fail(key, failure, out));
    }

    /// Sends the calls of an actor that can be sent, in order.
    pub(crate) fn flush_actor(&mut self, runtime: &Arc<Inner>, index: ActorIndex, later: &mut Later) {
        while let Some((key, process)) = self.machine.next_call(index) {
            let record = self.machine.record(key).expect("queued calls are on record");
            let payload = record.payload().expect("a queued call has its payload");
            let Some(bytes) = payload.final_bytes() else {
                self.step(runtime, later, |machine, out| machine.on_input_failed(key, out));
                continue;
            };
            if bytes.len() > TASK_PAYLOAD_BYTES_MAX - size_of::<CallHeader>() {
                self.fail_oversized(runtime, key, bytes.len(), later);
                continue;
            }
            let (message, header) = self.call_headers(index, key, payload, record);
            let verb = payload.verb;
            let sent = if process == runtime.me {
                runtime.deliver_locally(&message, &header, &bytes)
            } else {
                runtime.push_message(process, &message, &[header.as_bytes(), &bytes])
            };
            if !sent {
                if !self.stalled.contains(&index) {
                    self.stalled.push(index);
                }
                break;
            }
            if process != runtime.me {
                later.sent.add(process);
            }
            self.machine.on_call_sent(index, key);
            if verb == Verb::Release {
                self.step(runtime, later, |machine, out| {
                    machine.on_returned(key, false, out);
                    machine.close_actor(index, out);
                });
                break;
            }
        }
    }

    fn call_headers(
        &self,
        index: ActorIndex,
        key: TaskKey,
        payload: &Payload,
        record: &Record<Payload>,
    ) -> (Message, CallHeader) {
        let kind = match payload.verb {
            Verb::Create => MessageKind::ActorCreate,
            Verb::Release => MessageKind::ActorRelease,
            Verb::Call | Verb::Task => MessageKind::ActorCall,
        };
        let header = CallHeader {
            actor: self.actors[index.0 as usize].id,
            task: record.task(),
            function: payload.function.map(|function| function.id).unwrap_or_default(),
            attempt: record.attempt(),
            stream_ahead: payload.number,
            concurrency: payload.number,
            group: u32::from(payload.group),
            returns: record.returns(),
            reserved: 0,
        };
        (Message { kind: kind as u8, form: 0, contains: 0, reserved: 0, index: 0, key }, header)
    }

    /// A process died, perhaps with a wake-up that was meant for a task: somebody else gets it.
    pub(crate) fn wake_others(&self, runtime: &Inner) {
        let waits = |lane: &&Lane| !lane.removed && runtime.control.lane_queued(lane.id) > 0;
        for lane in self.lanes.iter().filter(waits) {
            runtime.control.wake_idle(lane.shape, runtime.me);
        }
    }

    /// What a dead process had taken from the lanes of this one, and how often each was started before.
    pub(crate) fn claimed_by(&mut self, dead: ProcessSlot) -> Vec<(TaskKey, u32)> {
        let lanes = self.lanes.iter_mut().filter(|lane| !lane.removed);
        lanes.flat_map(|lane| lane.producer.reclaim(dead)).collect()
    }

    /// Takes back a task that nobody claimed yet.
    pub(crate) fn take_back(&mut self, lane: LaneIndex, position: u64) -> bool {
        self.lanes[lane.place()].producer.cancel(position)
    }

    /// The shape of a task, unless its lane is gone.
    pub(crate) fn shape_of(&self, key: TaskKey) -> Option<ShapeId> {
        match self.machine.record(key)?.route() {
            Route::Lane(lane) if self.machine.lane_failure(lane).is_none() => {
                Some(self.lanes[lane.place()].shape)
            }
            _ => None,
        }
    }

    /// What a task needs, wherever its inputs are; nothing if that is gone.
    pub(crate) fn definition_of(&self, key: TaskKey) -> Option<Shape> {
        let Route::Lane(lane) = self.machine.record(key)?.route() else { return None };
        let definition = match self.reopen(lane) {
            Reopen::Open(lane) => self.lanes[lane.place()].definition.clone(),
            Reopen::Wanted(shape) => shape,
            Reopen::Gone => return None,
        };
        Some(Shape { near: None, ..(*definition).clone() })
    }

    /// Takes a task for a thread of this process that holds a lease of this shape and waits for it; nothing if
    /// it has another shape, cannot run now, or somebody has it.
    pub(crate) fn take(
        &mut self,
        key: TaskKey,
        shape: ShapeId,
    ) -> Option<(&'static Function, TaskHeader, TaskBytes)> {
        let record = self.machine.record(key)?;
        let Route::Lane(index) = record.route() else { return None };
        let lane = &mut self.lanes[index.place()];
        let payload = record.payload().filter(|_| lane.shape == shape)?;
        let function = payload.function.filter(|function| matches!(function.body, FunctionBody::Task(_)))?;
        let is_sendable = matches!(record.stage(), Stage::Queued | Stage::Sent { .. });
        let bytes = is_sendable.then(|| payload.final_bytes()).flatten()?;
        let is_free = match record.stage() {
            Stage::Queued => true,
            Stage::Sent { position } => lane.producer.cancel(position),
            Stage::Waiting | Stage::Resting | Stage::Taken | Stage::Finished => false,
        };
        if !is_free {
            return None;
        }
        let task = (function, payload.task_header(key, record), TaskBytes::copy(&bytes));
        self.machine.on_taken(key);
        Some(task)
    }

    /// The queue of a lane, and how many tasks of it are before this position.
    pub(crate) fn lane_position(&self, lane: LaneIndex, position: u64) -> (LaneId, u64) {
        let lane = &self.lanes[lane.place()];
        (lane.id, lane.producer.ahead_of(position))
    }

    /// The queue of a lane.
    pub(crate) fn lane_id(&self, lane: LaneIndex) -> LaneId {
        self.lanes[lane.place()].id
    }
}

impl Inner {
    /// Wakes a worker for tasks that were queued. A driver owes it that if it has woken it just now: see `owed`. Others do
    /// not come to pay.
    pub(crate) fn wake_worker(&self, shape: ShapeId) {
        let is_driver = self.executor.is_none() && self.bridge.get().is_none();
        let when = |process| if is_driver { self.owed.owe((shape, process)) } else { WakeUp::Now };
        self.control.wake_idle_when(shape, self.me, when);
    }

    /// Wakes all workers that were to be woken later.
    #[inline]
    pub(crate) fn pay(&self) {
        self.owed.pay(|whom| self.wake_owed(whom));
    }

    /// The same, for those for whom it is time.
    pub(crate) fn pay_due(&self) {
        self.owed.pay_due(|whom| self.wake_owed(whom));
    }

    fn wake_owed(&self, (shape, process): (ShapeId, ProcessSlot)) {
        if !self.control.wake_if_idle(shape, process) {
            // Somebody else may have had something for it, and no wake-up for another one.
            self.control.wake_idle(shape, self.me);
        }
    }

    /// Submits a task with one return value: the hot path.
    pub(crate) fn submit_one(
        self: &Arc<Self>,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
    ) -> Result<Handle, Error> {
        let task = self.next_task();
        let entry = Arc::new(Entry::new(task.returns(0), self.clone()));
        let returns = Returns::One(Arc::downgrade(&entry));
        let key = self.submit_task(task, function, options, arguments, returns, 1)?;
        entry.set_key(key);
        Ok(Handle { entry })
    }

    /// Submits a task with several return values.
    pub(crate) fn submit_several(
        self: &Arc<Self>,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
        count: u32,
    ) -> Result<Vec<Handle>, Error> {
        let task = self.next_task();
        let (handles, returns) = self.several_returns(task, count)?;
        let key = self.submit_task(task, function, options, arguments, returns, count)?;
        handles.iter().for_each(|handle| handle.entry.set_key(key));
        Ok(handles)
    }

    /// References to the return values of a task that has several.
    pub(crate) fn several_returns(
        self: &Arc<Self>,
        task: TaskId,
        count: u32,
    ) -> Result<(Vec<Handle>, Returns), Error> {
        if count > TASK_RETURNS_MAX {
            return Err(Error::Invalid(format!(
                "a call that returns {count} values, and the limit is {TASK_RETURNS_MAX}\n\
                 hint: return one list, or stream the values"
            )));
        }
        let handles: Vec<Handle> = (0..count)
            .map(|index| Handle { entry: Arc::new(Entry::new(task.returns(index), self.clone())) })
            .collect();
        let returns = Returns::Several(handles.iter().map(|handle| Arc::downgrade(&handle.entry)).collect());
        Ok((handles, returns))
    }

    /// Records a task and sends it if it can be sent.
    pub(crate) fn submit_task(
        self: &Arc<Self>,
        task: TaskId,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
        returns: Returns,
        count: u32,
    ) -> Result<TaskKey, Error> {
        self.check_usable()?;
        self.check_own(arguments.handles())?;
        let shard = self.submitter.mine();
        let near = self.near(arguments.handles());
        let lane = match &options.shape {
            _ if near.is_some() => self.lane_near(shard, options.shape.as_ref(), near)?,
            None if shard.has_default_lane.load(Ordering::Relaxed) => DEFAULT_LANE,
            None => self.lane_of(shard, &self.default_shape)?,
            Some(shape) => self.lane_of(shard, shape)?,
        };
        let stream = matches!(returns, Returns::Stream(..));
        let ahead = options.stream_ahead.unwrap_or(limits::STREAM_AHEAD_DEFAULT).max(1);
        let payload = Payload {
            function: Some(function),
            arguments,
            returns,
            name: options.name.clone(),
            verb: Verb::Task,
            group: 0,
            kind: options.kind,
            number: if stream { ahead } else { 0 },
        };
        let retries = options.retries.unwrap_or(limits::TASK_RETRIES_DEFAULT);
        let route = Route::Lane(lane);
        let key = self.record_in(shard, task, route, payload, count, (retries, 0), |shell, later| {
            shell.flush_lane(self, lane, later);
        });
        if let Some(allowed) = options.deadline {
            self.set_deadline(key, allowed);
        }
        self.tend_after_submit(key, count)?;
        Ok(key)
    }

    /// Gives a call of an actor to the machine; `flush` sends what can be sent.
    pub(crate) fn record(
        self: &Arc<Self>,
        task: TaskId,
        route: Route,
        payload: Payload,
        returns: u32,
        retries: u32,
        flush: impl FnOnce(&mut Shell, &mut Later),
    ) -> TaskKey {
        let attempt = payload.returns.attempts_before();
        self.record_in(self.submitter.first(), task, route, payload, returns, (retries, attempt), flush)
    }

    /// Gives a task or call to the machine, with how often it may be run again, and was sent before.
    #[expect(clippy::too_many_arguments, reason = "what a submission consists of")]
    pub(crate) fn record_in(
        self: &Arc<Self>,
        shard: &Shard,
        task: TaskId,
        route: Route,
        payload: Payload,
        returns: u32,
        (retries, attempt): (u32, u32),
        flush: impl FnOnce(&mut Shell, &mut Later),
    ) -> TaskKey {
        let inputs: Vec<Handle> = payload.arguments.handles().to_vec();
        let inside = Self::inputs_inside(shard.index, payload.arguments.kept().0);
        // Before the lock is taken: this flushes the outbox.
        inputs.iter().for_each(|handle| self.announce(&handle.entry));
        let bytes = (payload.arguments.size_bytes() + size_of::<Payload>()) as u32;
        let submission = Submission { task, route, returns, retries, attempt, bytes, payload };
        let mut later = Later::default();
        let mut shell = shard.lock();
        let key = if inputs.is_empty() {
            shell.machine.on_submitted(submission, &inside)
        } else {
            self.submit_with_inputs(shard.index, &mut shell, submission, (&inputs, &inside), &mut later)
        };
        if let Route::Lane(lane) = route
            && let Some(failure) = shell.machine.lane_failure(lane)
        {
            shell.step(self, &mut later, |machine, out| machine.fail(key, failure, out));
        } else {
            flush(&mut shell, &mut later);
        }
        if let Route::Lane(lane) = route {
            shell.on_chosen(lane);
        }
        let urgent = shell.has_backlog();
        drop(shell);
        later.run(self);
        if urgent || !inputs.is_empty() {
            self.pump.want();
        }
        key
    }

    /// With the lock held: an input of another shard or process is missing exactly if it has no outcome now; a
    /// failed one fails the task.
    fn submit_with_inputs(
        self: &Arc<Self>,
        shard: ShardIndex,
        shell: &mut Shell,
        submission: Submission<Payload>,
        (inputs, inside): (&[Handle], &[Input]),
        later: &mut Later,
    ) -> TaskKey {
        let mut needed = Self::inputs_of(shard, inputs);
        needed.extend(inside);
        let key = shell.machine.on_submitted(submission, &needed);
        let failed = inputs.iter().any(|handle| handle.entry.outcome().is_some_and(Outcome::is_failed));
        if failed {
            shell.step(self, later, |machine, out| machine.on_input_failed(key, out));
        }
        key
    }

    /// What a task with these inputs waits for, with the lock of its shard held.
    pub(crate) fn inputs_of(shard: ShardIndex, inputs: &[Handle]) -> Vec<Input> {
        let input = |handle: &Handle| match handle.entry.key() {
            Some(key) if key.shard() == shard => Some(Input::Task(key)),
            _ => handle.entry.add_machine(shard).then(|| Input::Elsewhere(handle.id())),
        };
        let mut found: Vec<Input> = inputs.iter().filter_map(input).collect();
        // An item of a stream is not waited for until its task ends.
        let items = inputs.iter().filter(|handle| handle.entry.key().is_none());
        let tasks = items.filter_map(|handle| handle.entry.record_key());
        found.extend(tasks.filter(|key| key.shard() == shard).map(Input::Inside));
        found
    }

    /// The tasks of a shard that make what arguments of a task refer to.
    fn inputs_inside(shard: ShardIndex, inside: &[Handle]) -> Vec<Input> {
        let keys = inside.iter().filter_map(|handle| handle.entry.record_key());
        keys.filter(|key| key.shard() == shard).map(Input::Inside).collect()
    }

    /// An object that tasks of a shard wait for has an outcome.
    pub(crate) fn on_input_resolved(
        self: &Arc<Self>,
        shard: ShardIndex,
        object: ObjectId,
        failed: bool,
        later: &mut Later,
    ) {
        let mut shell = self.submitter.get(shard).lock();
        shell.step(self, later, |machine, out| machine.on_elsewhere_resolved(object, failed, out));
        shell.flush(self, later);
    }

    /// One return of a task is not referenced any more.
    pub(crate) fn on_handle_dropped(self: &Arc<Self>, key: TaskKey) {
        let Some(mut shell) = self.submitter.of(key).try_lock() else { return self.defer_drop(key) };
        let shell_ref = &mut *shell;
        shell_ref.machine.on_handle_dropped(key, &mut shell_ref.out);
        // Nearly always there is just the one payload, to be dropped when the lock is free again.
        let mut later = Later::default();
        let dropped = match shell.out.pop() {
            Some(SubmitterEffect::Drop(payload)) if shell.out.is_empty() => Some(payload),
            Some(other) => {
                shell.out.push(other);
                shell.obey(self, &mut later);
                None
            }
            None => None,
        };
        drop(shell);
        drop(dropped);
        later.run(self);
    }
}
