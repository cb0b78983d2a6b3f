//! References to objects and actors, without types.

use crate::actors::ActorEntry;
use crate::codec::{Arguments, Value};
use crate::entry::{Entry, Outcome};
use crate::error::Error;
use crate::objects::Patience;
use crate::options::CallOptions;
use crate::registry::Function;
use crate::runtime::Runtime;
use crate::stream::StreamState;
use crate::wait::{Found, value_of};
use crate::worker::context::TaskContext;
use aktis_logic::machine::submitter::Route;
use aktis_protocol::control::{ObjectCancel, ToNode};
use aktis_protocol::{ActorId, Failure, FailureKind, ObjectId};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A counted reference to an object; the object lives while one exists.
#[derive(Clone)]
pub struct Handle {
    pub(crate) entry: Arc<Entry>,
}

impl AsRef<Handle> for Handle {
    fn as_ref(&self) -> &Handle {
        self
    }
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

    /// A reference to an object that was found inside this one's value. This one is kept until the node knows of the
    /// other, or it is dropped.
    pub fn adopt_inside(self, object: ObjectId) -> Handle {
        match self.entry.runtime().cloned() {
            Some(runtime) => runtime.adopt_inside(object, self),
            None => Self::failed(Error::Closed),
        }
    }

    /// Blocks until there is a value or a failure; `timeout` of `None` waits for ever.
    pub fn get(&self, timeout: Option<Duration>) -> Result<Value, Error> {
        match self.entry.runtime() {
            Some(runtime) => runtime.get(&self.entry, timeout),
            None => match value_of(&self.entry, Patience::default())? {
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
                    runtime.pay();
                    runtime.pump.want_now();
                    return Poll::Pending;
                }
            }
            match value_of(entry, Patience::default()) {
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
                runtime.pay();
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

    /// Has the value, if it is ready and on another node, brought to this one. Nobody waits for that here.
    pub fn fetch(&self) {
        if let Some(Outcome::Stored { place, .. }) = self.entry.outcome()
            && let Some(runtime) = self.entry.runtime()
        {
            runtime.fetch(self.entry.id, place.get());
        }
    }

    /// Whether the value is in this process or in its node's store, or there is none.
    pub fn is_here(&self) -> bool {
        match (self.entry.outcome(), self.entry.runtime()) {
            (Some(Outcome::Stored { place, .. }), Some(runtime)) => {
                runtime.arena.size_of(place.get()).is_some() && runtime.arena.elsewhere(place.get()).is_none()
            }
            (outcome, _) => outcome.is_some(),
        }
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

    /// Notes that the object is in the list with this number, and says whether it has been seen there before. Who goes through
    /// lists at the same time as others may be told that it has not; who has had so many lists that their numbers
    /// come again, that it has.
    #[inline]
    pub fn see_in(&self, list: u32) -> bool {
        self.entry.see_in(list)
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
    /// isolation; `recursive` also cancels what it has submitted and what is not finished. If another process owns the
    /// object, the node passes the cancel on. A finished task and a `put` object are left as they are; a finished task that
    /// is run again, since its value was lost, is not.
    pub fn cancel(&self, force: bool, recursive: bool) -> Result<(), Error> {
        let Some(runtime) = self.entry.runtime() else { return Ok(()) };
        runtime.check_usable()?;
        if self.entry.outcome().is_some() && !runtime.is_gone(&self.entry) {
            if let Some(key) = self.entry.key().filter(|_| runtime.tuning.cancel_forgets) {
                runtime.forget_lineage(key);
            }
            return Ok(());
        }
        match self.entry.key() {
            Some(key) => drop(runtime.cancel(key, force, recursive)),
            None => {
                let cancel = ObjectCancel { object: self.entry.id, force, recursive };
                runtime.send_to_node(ToNode::CancelWanted(cancel));
            }
        }
        Ok(())
    }

    /// Whether the object is made by a call of an actor that this process has submitted.
    pub fn is_made_by_actor(&self) -> bool {
        let (Some(runtime), Some(key)) = (self.entry.runtime(), self.entry.key()) else { return false };
        let shell = runtime.submitter.of(key).lock();
        shell.machine.record(key).is_some_and(|record| matches!(record.route(), Route::Actor(..)))
    }

    /// To be called when the reference is written into a value: others may then ask for the object.
    pub fn escape(&self) {
        Self::escape_all(std::slice::from_ref(self));
    }

    /// The same, for all references in one value.
    pub fn escape_all(handles: &[Self]) {
        let mut tasks = Vec::new();
        for handle in handles {
            let Some(runtime) = handle.entry.runtime() else { continue };
            if runtime.escape_object(&handle.entry) && runtime.tells_lineage() {
                tasks.extend(handle.entry.key());
            }
        }
        let runtime = handles.iter().find_map(|handle| handle.entry.runtime());
        if let Some(runtime) = runtime.filter(|_| !tasks.is_empty()) {
            tasks.dedup();
            runtime.tell_lineage(&tasks);
        }
    }

    /// Says why the object has no value yet, or what failed: sentences for people.
    pub fn explain(&self) -> String {
        self.is_ready();
        match self.entry.outcome() {
            Some(Outcome::Inline(value)) => {
                format!("it has a value of {} bytes, in this process", value.bytes().len())
            }
            Some(Outcome::Stored { .. }) => self.explain_stored(),
            Some(Outcome::Failed(failure)) => format!("it failed: {failure}"),
            Some(Outcome::Refused(error)) => format!("it was not submitted: {error}"),
            None => match self.entry.runtime() {
                Some(runtime) => runtime.explain_pending(&self.entry),
                None => String::new(),
            },
        }
    }
}

impl Handle {
    /// Says where a value is that is in an object store, or was.
    fn explain_stored(&self) -> String {
        let Some(runtime) = self.entry.runtime() else { return String::new() };
        if runtime.is_gone(&self.entry) {
            return match self.entry.renewal() {
                Some(_) => format!(
                    "its value was lost with the node that had it, and is wanted again: {}",
                    runtime.explain_pending(&self.entry)
                ),
                None => "its value was lost with the node that had it; it is made again, if that is possible, when \
                         somebody wants it"
                    .to_owned(),
            };
        }
        match runtime.is_value_elsewhere(&self.entry) {
            true => "it has a value, in the object store of another node".to_owned(),
            false => "it has a value, in the object store of this node".to_owned(),
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.id())
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

    /// To be called once the arguments of the constructor are ready, if the actor was created to wait for them.
    pub fn on_arguments_ready(&self) {
        self.entry.runtime.send_to_node(ToNode::ActorArgumentsReady(self.entry.id));
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
                self.state.runtime().pay();
                self.state.runtime().pump.want_now();
                return Poll::Pending;
            }
        }
    }
}

impl Stream {
    /// Whether the next item, or the end, is there; if not, the waker is woken when it is worth asking again. Takes nothing.
    pub fn poll_ready(&self, waker: &Waker) -> Result<bool, Error> {
        self.state.runtime().check_usable()?;
        if !self.state.add_waker(waker) {
            return Ok(true);
        }
        self.state.runtime().pay();
        self.state.runtime().pump.want_now();
        Ok(false)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.state.close();
    }
}
