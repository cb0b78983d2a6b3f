//! The runtime of one process in one session.

use crate::codec::{Arguments, Encoded, Value};
use crate::error::Error;
use crate::handle::{ActorHandle, Handle, Stream};
use crate::options::{ActorOptions, Config, TaskOptions};
use crate::registry::Function;
use aktis_protocol::{ActorId, ObjectId, Resources, TaskId, hot::Stored};
use std::sync::Arc;
use std::time::Duration;

/// The runtime of one process in one session. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {}

/// Where the calling code runs.
#[derive(Clone, Debug)]
pub struct Context {
    /// The task, or the driver's root.
    pub task: TaskId,
    /// The function's name; empty in the driver.
    pub function: Arc<str>,
    /// The actor, inside one.
    pub actor: Option<ActorId>,
    /// How often the task was started before, or the actor restarted.
    pub attempt: u32,
    /// GPUs of the task or actor, by index.
    pub gpus: Vec<u32>,
    /// The process.
    pub pid: u32,
    /// Whether this is a worker process.
    pub is_worker: bool,
}

impl Runtime {
    /// Starts a session (embedded node, worker processes) in this process.
    pub fn start(config: Config) -> Result<Self, Error> {
        let _ = config;
        unreachable!()
    }
    /// Ends the session: running tasks are dropped, all processes end. Idempotent.
    pub fn shutdown(&self) {}
    /// Makes this the session of the process that `current` gives everywhere; fails if there is one.
    pub fn make_current(&self) -> Result<(), Error> {
        unreachable!()
    }
    /// Makes this the session that `current` gives on this thread, until the guard goes.
    pub fn enter(&self) -> EnterGuard {
        unreachable!()
    }
    /// The thread's session, else the process's.
    pub fn current() -> Result<Self, Error> {
        Err(Error::NotInitialised)
    }
    /// Submits a task with one return value.
    pub fn submit(&self, function: &'static Function, options: &TaskOptions, arguments: Arguments) -> Result<Handle, Error> {
        let _ = (function, options, arguments);
        unreachable!()
    }
    /// Submits a task with several return values.
    pub fn submit_several(
        &self,
        function: &'static Function,
        options: &TaskOptions,
        arguments: Arguments,
        returns: u32,
    ) -> Result<Vec<Handle>, Error> {
        let _ = (function, options, arguments, returns);
        unreachable!()
    }
    /// Submits a streaming task.
    pub fn submit_stream(&self, function: &'static Function, options: &TaskOptions, arguments: Arguments) -> Result<Stream, Error> {
        let _ = (function, options, arguments);
        unreachable!()
    }
    /// Creates an actor.
    pub fn create_actor(
        &self,
        constructor: &'static Function,
        options: &ActorOptions,
        arguments: Arguments,
    ) -> Result<ActorHandle, Error> {
        let _ = (constructor, options, arguments);
        unreachable!()
    }
    /// The actor with this name and the name of its constructor.
    pub fn find_actor(&self, name: &str) -> Result<Option<(ActorHandle, String)>, Error> {
        let _ = name;
        unreachable!()
    }
    /// Makes an object of an encoded value.
    pub fn put(&self, value: Encoded) -> Result<Handle, Error> {
        let _ = value;
        unreachable!()
    }
    /// Blocks until `count` of the handles have a value or failure, or the time is over.
    /// Gives the positions of at most `count` that have, in order.
    pub fn wait(&self, handles: &[Handle], count: usize, timeout: Option<Duration>) -> Result<Vec<usize>, Error> {
        let _ = (handles, count, timeout);
        unreachable!()
    }
    /// A reference to an object that was found inside a value.
    pub fn adopt_object(&self, object: ObjectId) -> Handle {
        let _ = object;
        unreachable!()
    }
    /// A handle of an actor that was found inside a value.
    pub fn adopt_actor(&self, actor: ActorId) -> ActorHandle {
        let _ = actor;
        unreachable!()
    }
    /// The value of a stored object, pinned.
    pub fn open(&self, stored: Stored) -> Result<Value, Error> {
        let _ = stored;
        unreachable!()
    }
    /// Where the calling code runs.
    pub fn context(&self) -> Context {
        unreachable!()
    }
    /// Whether the running task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        unreachable!()
    }
    /// What the node has in all.
    pub fn resources(&self) -> Resources {
        unreachable!()
    }
    /// Ends the actor that is running this, for good, after the current call.
    pub fn exit_actor(&self) -> Result<(), Error> {
        unreachable!()
    }
}

/// Ends what [`Runtime::enter`] began.
pub struct EnterGuard {}
