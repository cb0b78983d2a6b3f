//! References to objects and actors, without types.

use crate::codec::Value;
use crate::error::Error;
use aktis_protocol::{ActorId, ObjectId};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A counted reference to an object; the object lives while one exists.
#[derive(Clone)]
pub struct Handle {}

impl Handle {
    /// The object.
    pub fn id(&self) -> ObjectId {
        unreachable!()
    }
    /// Blocks until there is a value or a failure; `timeout` of `None` waits for ever.
    pub fn get(&self, timeout: Option<Duration>) -> Result<Value, Error> {
        let _ = timeout;
        unreachable!()
    }
    /// For futures: the value, or `Pending` with the waker kept.
    pub fn poll(&self, waker: &Waker) -> Poll<Result<Value, Error>> {
        let _ = waker;
        unreachable!()
    }
    /// Whether there is a value or a failure.
    pub fn is_ready(&self) -> bool {
        unreachable!()
    }
    /// Cancels the task that makes this object; `force` also kills an isolated worker.
    pub fn cancel(&self, force: bool) -> Result<(), Error> {
        let _ = force;
        unreachable!()
    }
    /// Says why the object has no value yet, or what failed: sentences for people.
    pub fn explain(&self) -> String {
        unreachable!()
    }
    /// To be called when the reference is written into a value: others may then ask for the object.
    pub fn escape(&self) {
        unreachable!()
    }
}

/// A counted reference to an actor.
#[derive(Clone)]
pub struct ActorHandle {}

impl ActorHandle {
    /// The actor.
    pub fn id(&self) -> ActorId {
        unreachable!()
    }
    /// Calls a method; calls through one process arrive in order.
    pub fn call(
        &self,
        function: &'static crate::Function,
        arguments: crate::Arguments,
    ) -> Result<Handle, Error> {
        let _ = (function, arguments);
        unreachable!()
    }
    /// Ends the actor now; with `restart`, it may start again if it has restarts left.
    pub fn kill(&self, restart: bool) -> Result<(), Error> {
        let _ = restart;
        unreachable!()
    }
    /// Says where the actor is, or why it is not.
    pub fn explain(&self) -> String {
        unreachable!()
    }
    /// To be called when the handle is written into a value.
    pub fn escape(&self) {
        unreachable!()
    }
}

/// The items of a streaming task, as references, in order.
pub struct Stream {}

impl Stream {
    /// The next item; `None` at the end. Blocks until it is there. A failure of the task is the last item.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Handle>, Error> {
        let _ = timeout;
        unreachable!()
    }
    /// For async streams.
    pub fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Handle>, Error>> {
        let _ = waker;
        unreachable!()
    }
}
