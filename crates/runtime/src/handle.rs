//! References to objects and actors, without types.

use crate::actors::ActorEntry;
use crate::codec::{Arguments, Value};
use crate::entry::{Entry, Later, Outcome};
use crate::error::Error;
use crate::options::CallOptions;
use crate::payload::{Returns, Verb};
use crate::registry::Function;
use crate::runtime::{Inner, Runtime, TaskRow};
use crate::stream::StreamState;
use crate::submit::Shell;
use crate::wait::{Found, value_of};
use crate::worker::context::TaskContext;
use aktis_logic::machine::submitter::{Place, Route, Stage};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{ActorId, Failure, FailureKind, LaneId, ObjectId, TaskKey};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A counted reference to an object; the object lives while one exists.
#[derive(Clone)]
pub struct Handle {
    pub(crate) entry: Arc<Entry>,
}

impl Handle {
    /// A reference that is failed from the start: what could not even be submitted.
    pub fn failed(error: Error) -> Self {
        Self { entry: Arc::new(Entry::refused(error)) }
    }

    /// The object.
    pub fn id(&self) -> ObjectId {
        self.entry.id
    }

    /// Blocks until there is a value or a failure; `timeout` of `None` waits for ever.
    pub fn get(&self, timeout: Option<Duration>) -> Result<Value, Error> {
        match self.entry.runtime() {
            Some(runtime) => runtime.get(&self.entry, timeout),
            None => match value_of(&self.entry)? {
                Found::Value(value) => Ok(value),
                Found::Renewed(_) => Err(Error::Closed),
            },
        }
    }

    /// For futures: the value, or `Pending` with the waker kept.
    pub fn poll(&self, waker: &Waker) -> Poll<Result<Value, Error>> {
        let mut renewed: Option<Handle> = None;
        loop {
            let entry = &renewed.as_ref().unwrap_or(self).entry;
            if let (None, Some(runtime)) = (entry.outcome(), entry.runtime()) {
                if let Err(error) = runtime.check_usable() {
                    return Poll::Ready(Err(error));
                }
                runtime.announce(entry);
                runtime.drain();
                if entry.add_waker(waker) {
                    runtime.pump.want_now();
                    return Poll::Pending;
                }
            }
            match value_of(entry) {
                Ok(Found::Value(value)) => return Poll::Ready(Ok(value)),
                Ok(Found::Renewed(entry)) => renewed = Some(Handle { entry }),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Whether there is a value or a failure. Who only asks and never waits takes in what has come, too.
    pub fn is_ready(&self) -> bool {
        self.has_outcome() || {
            if let Some(runtime) = self.entry.runtime().filter(|runtime| runtime.check_usable().is_ok()) {
                runtime.announce(&self.entry);
                runtime.drain();
            }
            self.has_outcome()
        }
    }

    /// Whether a value or a failure has been taken in.
    #[inline]
    pub fn has_outcome(&self) -> bool {
        self.entry.outcome().is_some()
    }

    /// What went wrong, if something has.
    pub fn failure(&self) -> Option<Error> {
        match self.entry.outcome()? {
            Outcome::Failed(failure) => Some(Error::Failed(failure.clone())),
            Outcome::Refused(error) => Some((**error).clone()),
            Outcome::Inline(_) | Outcome::Stored { .. } => None,
        }
    }

    /// Whether it belongs to this session.
    pub fn belongs_to(&self, runtime: &Runtime) -> bool {
        self.entry.runtime().is_none_or(|own| Arc::ptr_eq(own, &runtime.0))
    }

    /// Whether its value, if it has one, is in this process's memory, so that to get it is not to wait.
    #[inline]
    pub fn is_inline(&self) -> bool {
        matches!(self.entry.outcome(), Some(Outcome::Inline(_) | Outcome::Failed(_) | Outcome::Refused(_)))
    }

    /// Whether both refer to the same object in the same process.
    #[inline]
    pub fn is_same(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }

    /// A number that references to the same object in this process share, and no others at the same time.
    #[inline]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.entry) as usize
    }

    /// Whether its session is over.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.entry.runtime().is_some_and(|runtime| runtime.is_closed())
    }

    /// The session that the reference belongs to; `None` if it never was submitted.
    pub fn runtime(&self) -> Option<Runtime> {
        self.entry.runtime().cloned().map(Runtime)
    }

    /// Cancels the task that makes this object; `force` also kills the worker process if the task runs in
    /// isolation; `recursive` also cancels what it has submitted and what is not finished. A finished task, a `put`
    /// object or one made elsewhere is left as it is.
    pub fn cancel(&self, force: bool, recursive: bool) -> Result<(), Error> {
        let Some(runtime) = self.entry.runtime() else { return Ok(()) };
        runtime.check_usable()?;
        if let (Some(key), None) = (self.entry.key(), self.entry.outcome()) {
            runtime.cancel(key, force, recursive);
        }
        Ok(())
    }

    /// To be called when the reference is written into a value: others may then ask for the object.
    pub fn escape(&self) {
        if let Some(runtime) = self.entry.runtime() {
            runtime.escape_object(&self.entry);
        }
    }

    /// Says why the object has no value yet, or what failed: sentences for people.
    pub fn explain(&self) -> String {
        self.is_ready();
        match self.entry.outcome() {
            Some(Outcome::Inline(value)) => {
                format!("it has a value of {} bytes, in this process", value.bytes().len())
            }
            Some(Outcome::Stored { .. }) => "it has a value, in the object store of this node".to_owned(),
            Some(Outcome::Failed(failure)) => format!("it failed: {failure}"),
            Some(Outcome::Refused(error)) => format!("it was not submitted: {error}"),
            None => match self.entry.runtime() {
                Some(runtime) => runtime.explain_pending(&self.entry),
                None => String::new(),
            },
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.id())
    }
}

/// Where a pending task stands.
enum Standing {
    Waiting { inputs: Vec<ObjectId> },
    InLane { lane: LaneId, ahead: u64, claimed: bool },
    Taken,
    WithActor(Place),
}

impl Inner {
    /// The tasks and calls of this process that are on record.
    pub(crate) fn task_rows(self: &Arc<Self>) -> Vec<TaskRow> {
        let mut rows: Vec<(TaskKey, TaskRow)> = Vec::new();
        let mut later = Later::default();
        for shard in self.submitter.all() {
            self.add_task_rows(&shard.lock(), &mut rows, &mut later);
        }
        later.run(self);
        for (key, row) in rows.iter_mut().filter(|(_, row)| row.state == "PENDING") {
            if let Some(process) = self.who_runs(*key) {
                row.state = "RUNNING";
                row.pid = Some(self.control.pid(process));
            }
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn add_task_rows(&self, shell: &Shell, rows: &mut Vec<(TaskKey, TaskRow)>, later: &mut Later) {
        for (key, record) in shell.machine.records() {
            let Some(payload) = record.payload() else { continue };
            let (actor, kind) = match (record.route(), payload.verb) {
                (Route::Lane(_), _) => (None, "NORMAL_TASK"),
                (Route::Actor(index), Verb::Create) => (Some(index), "ACTOR_CREATION_TASK"),
                (Route::Actor(index), _) => (Some(index), "ACTOR_TASK"),
            };
            let error = match &payload.returns {
                Returns::One(entry) => entry.upgrade().and_then(|entry| {
                    let failure = entry.outcome().and_then(Outcome::failure);
                    later.entries.push(entry);
                    Some(failure?.to_string())
                }),
                _ => None,
            };
            let state = match record.stage() {
                Stage::Waiting => "PENDING_ARGS",
                Stage::Queued | Stage::Resting | Stage::Sent { .. } => "PENDING",
                Stage::Taken => "RUNNING",
                Stage::Finished if error.is_some() => "FAILED",
                Stage::Finished => "FINISHED",
            };
            let (task, name, attempt) = (record.task(), payload.name().to_owned(), record.attempt());
            let actor = actor.map(|index| shell.actors[index.0 as usize].id);
            let pid = (record.stage() == Stage::Taken).then(|| self.control.pid(self.me));
            rows.push((key, TaskRow { task, name, state, kind, attempt, pid, actor, error }));
        }
    }

    fn explain_pending(self: &Arc<Self>, entry: &Entry) -> String {
        let Some(key) = entry.key() else {
            return "it is made by another process, which has not said that it is done".to_owned();
        };
        let (name, standing) = {
            let shell = self.submitter.of(key).lock();
            let Some(record) = shell.machine.record(key) else {
                drop(shell);
                self.run_deferred();
                return match entry.outcome() {
                    Some(_) => "it has just come".to_owned(),
                    None => "its task is not on record any more".to_owned(),
                };
            };
            let name = record.payload().map_or(String::new(), |payload| payload.name().to_owned());
            let (route, stage) = (record.route(), record.stage());
            let standing = match (route, stage) {
                (_, Stage::Waiting) => {
                    let handles = record.payload().map_or(&[][..], |payload| payload.arguments.handles());
                    let missing = handles.iter().filter(|handle| !handle.has_outcome());
                    Standing::Waiting { inputs: missing.map(Handle::id).collect() }
                }
                (Route::Lane(lane), Stage::Sent { position }) => {
                    let (lane, ahead) = shell.lane_position(lane, position);
                    Standing::InLane { lane, ahead, claimed: ahead == 0 }
                }
                (_, Stage::Taken) => Standing::Taken,
                (Route::Lane(lane), _) => {
                    let ahead = shell.machine.lane_position(lane, key).unwrap_or(0) as u64;
                    let (id, queue) = (shell.lane_id(lane), self.control.lane_queued(shell.lane_id(lane)));
                    Standing::InLane { lane: id, ahead: ahead + u64::from(queue), claimed: false }
                }
                (Route::Actor(actor), _) => Standing::WithActor(shell.machine.actor_place(actor).clone()),
            };
            (name, standing)
        };
        self.run_deferred();
        let text = match standing {
            Standing::Waiting { inputs } => {
                let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
                format!("waits for {} of its inputs: {}", inputs.len(), inputs.join(", "))
            }
            Standing::InLane { lane, ahead, claimed } => self.explain_in_lane(key, lane, ahead, claimed),
            Standing::Taken => "is running in this process, on a thread that waits for it".to_owned(),
            Standing::WithActor(Place::Pending) => "waits for its actor, which is not running yet".to_owned(),
            Standing::WithActor(Place::Alive(process)) => {
                format!("is with its actor, in process {}", self.control.pid(process))
            }
            Standing::WithActor(Place::Dead(failure)) => format!("cannot run: {failure}"),
        };
        format!("{name} {text}")
    }

    fn explain_in_lane(
        self: &Arc<Self>,
        key: aktis_protocol::TaskKey,
        lane: LaneId,
        ahead: u64,
        claimed: bool,
    ) -> String {
        if let Some(process) = self.who_runs(key) {
            return format!("is running in worker process {}", self.control.pid(process));
        }
        if claimed && self.control.lane_queued(lane) == 0 {
            return "has just been taken by a worker".to_owned();
        }
        let mut text = format!("is queued behind {ahead} others");
        if let Ok(FromNode::ShapeExplained { text: reason, .. }) =
            self.request(|request| ToNode::ShapeQuestion { request, lane })
        {
            text = format!("{text}: {reason}");
        }
        text
    }
}

/// A counted reference to an actor.
#[derive(Clone)]
pub struct ActorHandle {
    pub(crate) entry: Arc<ActorEntry>,
}

impl ActorHandle {
    /// The session that the handle belongs to.
    pub fn runtime(&self) -> Runtime {
        Runtime(self.entry.runtime.clone())
    }

    /// The actor.
    pub fn id(&self) -> ActorId {
        self.entry.id
    }

    /// Calls a method; calls through one process arrive in order.
    pub fn call(
        &self,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
    ) -> Result<Handle, Error> {
        self.entry.runtime.call_actor(&self.entry, function, options, arguments)
    }

    /// Calls a method with several return values.
    pub fn call_several(
        &self,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
        returns: u32,
    ) -> Result<Vec<Handle>, Error> {
        self.entry.runtime.call_actor_several(&self.entry, function, options, arguments, returns)
    }

    /// Calls a method that gives many items.
    pub fn call_stream(
        &self,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
    ) -> Result<Stream, Error> {
        self.entry.runtime.call_actor_stream(&self.entry, function, options, arguments)
    }

    /// Ends the actor now; with `restart`, it may start again if it has restarts left.
    pub fn kill(&self, restart: bool) -> Result<(), Error> {
        self.entry.runtime.check_usable()?;
        self.entry.runtime.kill_actor(&self.entry, restart);
        Ok(())
    }

    /// Says where the actor is, or why it is not.
    pub fn explain(&self) -> String {
        self.entry.runtime.explain_actor(&self.entry)
    }

    /// To be called when the handle is written into a value.
    pub fn escape(&self) {
        self.entry.runtime.escape_actor(&self.entry);
    }
}

impl std::fmt::Debug for ActorHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ActorHandle({})", self.id())
    }
}

/// The items of a streaming task, as references, in order.
pub struct Stream {
    pub(crate) state: Arc<StreamState>,
}

impl Stream {
    /// The next item; `None` at the end. Blocks until it is there. A failure of the task is the last item.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<Handle>, Error> {
        let runtime = self.state.runtime().clone();
        runtime.check_usable()?;
        if let Some(item) = self.state.take() {
            return Ok(item);
        }
        let state = &self.state;
        let is_ready = || {
            state.settle_repeats();
            state.is_ready()
        };
        runtime.block(timeout, 1, is_ready, |group| state.add_group(group))?;
        match self.state.take() {
            Some(item) => Ok(item),
            None if TaskContext::is_cancelled() => {
                Err(Failure::new(FailureKind::Cancelled, "the task that waits was cancelled").into())
            }
            None => Err(Error::TimedOut(timeout.unwrap_or_default())),
        }
    }

    /// For async streams.
    pub fn poll_next(&self, waker: &Waker) -> Poll<Result<Option<Handle>, Error>> {
        if let Err(error) = self.state.runtime().check_usable() {
            return Poll::Ready(Err(error));
        }
        loop {
            if let Some(item) = self.state.take() {
                return Poll::Ready(Ok(item));
            }
            if self.state.add_waker(waker) {
                self.state.runtime().pump.want_now();
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.state.close();
    }
}
