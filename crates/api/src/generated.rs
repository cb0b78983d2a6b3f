//! What the generated code of `#[remote]` and `#[actor]` stands on. Not for use by hand.

pub use crate::actor::Actor;
pub use crate::map::map;
pub use crate::options::{ActorSettings, Chain, TaskSettings};
pub use crate::remote_error::*;
pub use aktis_protocol::{Failure, FunctionId};
pub use aktis_runtime::chunk::run_chunk;
pub use aktis_runtime::registry::{
    ActorState, AsyncReturn, FUNCTIONS, Items, REMEMBERED, Remembered, Returns, WORKER_STARTS, WorkerStart,
};
pub use aktis_runtime::{
    ActorOptions, Arguments, Call, Encoded, Error, Function, FunctionBody, Runtime, TaskOptions,
};
pub use {linkme, serde};

use crate::argument::IntoArg;
use crate::object_ref::ObjectRef;
use crate::options::actor::RemoteActor;
use crate::options::task::RemoteFunction;
use crate::stream::ObjectStream;
use aktis_protocol::FailureKind;
use aktis_runtime::Value;
use aktis_runtime::codec::decode;
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value that remote functions and methods may take or return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken or returned by a remote function",
    label = "this value cannot travel to another process",
    note = "derive serde's `Serialize` and `Deserialize` for it"
)]
pub trait RemoteValue: Serialize + DeserializeOwned {}
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> RemoteValue for T {}

/// Tells whether a type is a `Result`, under whatever name: the constant of this type hides that of [`NotResult`].
pub struct ResultTest<T>(PhantomData<T>);

impl<T, E> ResultTest<Result<T, E>> {
    /// A `Result`.
    pub const IS_RESULT: bool = true;
}

/// What [`ResultTest`] falls back to.
pub trait NotResult {
    /// Any other type.
    const IS_RESULT: bool = false;
}

impl<T> NotResult for ResultTest<T> {}

/// The options of one call, from those of the function's attribute on.
pub fn task_options<F: RemoteFunction>(defaults: &TaskOptions) -> crate::TaskOptions<F> {
    crate::TaskOptions::new(TaskSettings::from_default(defaults))
}

/// The options of one actor, from those of its attribute on.
pub fn actor_options<A: RemoteActor>(defaults: &ActorOptions) -> crate::ActorOptions<A> {
    crate::ActorOptions::new(ActorSettings::from_default(defaults))
}

/// Takes one argument out of a call.
#[inline]
pub fn take<T: RemoteValue>(call: &mut Call, name: &str) -> Result<T, Failure> {
    call.argument(name)
}

/// Adds one argument; errors say which.
#[inline]
pub fn add<T>(
    arguments: &mut Arguments,
    runtime: &Runtime,
    name: &str,
    value: impl IntoArg<T>,
) -> Result<(), Error> {
    value.add_to(arguments, runtime).map_err(|error| match error {
        Error::Codec(problem) => Error::Codec(format!("argument `{name}`: {problem}")),
        other => other,
    })
}

/// Submits a task; what prevents it comes out of the reference.
#[inline]
pub fn submit<T>(
    function: &'static Function,
    options: &TaskOptions,
    add: impl FnOnce(&mut Arguments, &Runtime) -> Result<(), Error>,
) -> ObjectRef<T> {
    ObjectRef::from_outcome(Runtime::current().and_then(|runtime| {
        let mut arguments = Arguments::new();
        add(&mut arguments, &runtime)?;
        runtime.submit(function, options, arguments)
    }))
}

/// Submits a task with several return values.
pub fn submit_several<const N: usize>(
    function: &'static Function,
    options: &TaskOptions,
    add: impl FnOnce(&mut Arguments, &Runtime) -> Result<(), Error>,
) -> [ObjectRef<()>; N] {
    let outcome = Runtime::current().and_then(|runtime| {
        let mut arguments = Arguments::new();
        add(&mut arguments, &runtime)?;
        let handles = runtime.submit_several(function, options, arguments, N as u32)?;
        handles.try_into().map_err(|_| Error::Invalid("a task has as many references as returns".to_owned()))
    });
    match outcome {
        Ok(handles) => <[_; N]>::map(handles, ObjectRef::new),
        Err(error) => std::array::from_fn(|_| ObjectRef::from_outcome(Err(error.clone()))),
    }
}

/// One of several references, with the type of its value.
pub fn retyped<T>(reference: ObjectRef<()>) -> ObjectRef<T> {
    reference.retyped()
}

/// Submits a streaming task.
pub fn submit_stream<T>(
    function: &'static Function,
    options: &TaskOptions,
    add: impl FnOnce(&mut Arguments, &Runtime) -> Result<(), Error>,
) -> ObjectStream<T> {
    ObjectStream::from_outcome(Runtime::current().and_then(|runtime| {
        let mut arguments = Arguments::new();
        add(&mut arguments, &runtime)?;
        runtime.submit_stream(function, options, arguments)
    }))
}

/// A return value, encoded.
#[inline]
pub fn returned<T: RemoteValue>(value: T) -> Result<Encoded, Failure> {
    Encoded::of_owned(value)
        .map_err(|problem| Failure::new(FailureKind::Codec, format!("its return value: {problem}")))
}

/// What a function that runs when a worker starts may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned by a function that runs when a worker starts",
    note = "return nothing, or a `Result<(), E>` whose error has a `Display`"
)]
pub trait Started {
    /// What went wrong, if something has.
    fn problem(self) -> Result<(), String>;
}

impl Started for () {
    fn problem(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Display> Started for Result<(), E> {
    fn problem(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

/// The outcome of a function that runs when a worker starts.
pub fn started(outcome: impl Started) -> Result<(), String> {
    outcome.problem()
}

/// The items of a stream, encoded one by one.
pub fn items<T: RemoteValue + 'static>(items: impl Iterator<Item = T> + 'static) -> Items {
    Box::new(items.map(returned))
}

/// The items of a stream of results, encoded one by one.
pub fn fallible_items<T: RemoteValue + 'static, E: 'static>(
    items: impl Iterator<Item = Result<T, E>> + 'static,
    failure_of: fn(E) -> Failure,
) -> Items {
    Box::new(items.map(move |item| item.map_err(failure_of).and_then(returned)))
}

/// The state of an actor whose calls run one at a time.
pub fn exclusive_state<A: Send + 'static>(actor: A) -> ActorState {
    Arc::new(Mutex::new(actor))
}

/// The actor inside its state. A panic in an earlier call does not lock it away.
pub fn lock<A: Send + 'static>(state: &ActorState) -> MutexGuard<'_, A> {
    let mutex = state.downcast_ref::<Mutex<A>>().expect("methods get the state that their constructor made");
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An actor that can have checkpoints.
#[diagnostic::on_unimplemented(
    message = "the actor `{Self}` cannot have checkpoints",
    label = "its state cannot be saved",
    note = "derive serde's `Serialize` and `Deserialize` for it"
)]
pub trait Saved: Serialize + DeserializeOwned {}
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Saved for T {}

/// How an actor whose calls run one at a time becomes a checkpoint, and comes back.
pub const fn remembered<A: Saved + Send + 'static>(constructor: FunctionId) -> Remembered {
    Remembered { constructor, save: save::<A>, restore: restore::<A>, same }
}

fn save<A: Saved + Send + 'static>(state: &ActorState) -> Result<Vec<u8>, Failure> {
    let died = |problem: String| Failure::new(FailureKind::ActorDied, problem);
    let encoded = Encoded::of(&*lock::<A>(state)).map_err(died)?;
    if encoded.contains() {
        return Err(died("it holds references to objects or actors, which end with its process".to_owned()));
    }
    Ok(encoded.to_vec())
}

fn restore<A: Saved + Send + 'static>(_: &mut Call, saved: &[u8]) -> Result<ActorState, Failure> {
    let actor = decode::<A>(&Value::inline(saved));
    actor.map(exclusive_state).map_err(|problem| Failure::new(FailureKind::ActorDied, problem))
}

/// Whether two encoded values have the same bytes. The order does not matter: that of a hash map differs from process to
/// process.
fn same(before: &[u8], after: &[u8]) -> bool {
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    before == after || (before.len() == after.len() && sorted(before) == sorted(after))
}

/// The state of an actor whose calls may run at the same time.
pub fn shared_state<A: Send + Sync + 'static>(actor: A) -> ActorState {
    Arc::new(RwLock::new(actor))
}

const OVERLAP: &str = "calls that change an actor never overlap others";

fn rw_lock<A: Send + Sync + 'static>(state: &ActorState) -> Arc<RwLock<A>> {
    let lock = state.clone().downcast();
    lock.unwrap_or_else(|_| panic!("methods get the state that their constructor made"))
}

/// The actor, for a call that only reads it; lives across await points.
pub fn read<A: Send + Sync + 'static>(state: &ActorState) -> ArcRwLockReadGuard<RawRwLock, A> {
    rw_lock(state).try_read_arc().expect(OVERLAP)
}

/// The actor, for a call that changes it; lives across await points.
pub fn write<A: Send + Sync + 'static>(state: &ActorState) -> ArcRwLockWriteGuard<RawRwLock, A> {
    rw_lock(state).try_write_arc().expect(OVERLAP)
}
