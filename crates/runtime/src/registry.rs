//! The functions that this program can run, found at link time, and how one is called.

use crate::codec::Encoded;
use aktis_protocol::{Failure, FunctionId};
use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

/// The state of an actor, without its type: an `Arc` of whatever lock the actor's macro chose.
pub type ActorState = Arc<dyn Any + Send + Sync>;

/// What a function gives: its return values, each with its position, in order.
pub type Returns = Result<Vec<Encoded>, Failure>;

/// One item at a time, until there are no more.
pub type Items = Box<dyn Iterator<Item = Result<Encoded, Failure>>>;

/// How to run a function. Each takes its arguments out of the [`Call`].
pub enum FunctionBody {
    /// A task.
    Task(fn(&mut Call) -> Result<Encoded, Failure>),
    /// A task with several return values.
    Several(fn(&mut Call) -> Returns),
    /// A task that gives many items, one after another.
    Stream(fn(&mut Call) -> Result<Items, Failure>),
    /// Constructs an actor.
    Constructor(fn(&mut Call) -> Result<ActorState, Failure>),
    /// A method. `exclusive` if it takes `&mut self`.
    Method {
        /// Whether nothing else may run in the actor meanwhile.
        exclusive: bool,
        /// Whether it leaves the actor as it is: then an actor with checkpoints does not log it.
        read_only: bool,
        /// The code.
        run: fn(&mut Call, &ActorState) -> Result<Encoded, Failure>,
    },
    /// A method with several return values.
    SeveralMethod(fn(&mut Call, &ActorState) -> Returns),
    /// A method that gives many items, one after another.
    StreamMethod(fn(&mut Call, &ActorState) -> Result<Items, Failure>),
    /// An asynchronous method.
    AsyncMethod {
        /// Whether nothing else may run in the actor meanwhile.
        exclusive: bool,
        /// The code: takes the arguments at once, and gives the result, or a future.
        run: fn(&mut Call, ActorState) -> Result<AsyncReturn, Failure>,
    },
}

/// What an asynchronous method gives when it is called.
pub enum AsyncReturn {
    /// Its result: it has nothing to wait for.
    Done(Result<Encoded, Failure>),
    /// What goes on until there is a result.
    Later(CallFuture),
}

/// A call that goes on until there is a result.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Encoded, Failure>> + Send>>;

impl AsyncReturn {
    /// What goes on until there is a result.
    pub fn later(future: impl Future<Output = Result<Encoded, Failure>> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }
}

/// How the state of an actor becomes the bytes of a checkpoint, and comes back.
pub struct Remembered {
    /// The actor's constructor.
    pub constructor: FunctionId,
    /// Writes the state.
    pub save: fn(&ActorState) -> Result<Vec<u8>, Failure>,
    /// Makes the actor of a state. The call is that of the constructor.
    pub restore: fn(&mut Call, &[u8]) -> Result<ActorState, Failure>,
    /// Whether two encoded values are the same for people.
    pub same: fn(&[u8], &[u8]) -> bool,
}

/// All actors of this program that can have checkpoints.
#[linkme::distributed_slice]
pub static REMEMBERED: [Remembered];

/// A function that can be called remotely.
pub struct Function {
    /// Hash of path, signature and place in the source.
    pub id: FunctionId,
    /// Path and name, for people.
    pub name: &'static str,
    /// How to run it.
    pub body: FunctionBody,
}

/// All functions of this program.
#[linkme::distributed_slice]
pub static FUNCTIONS: [Function];

/// What else this program can be started again as. Each is called before `main`, looks at the arguments, and does not
/// return if they mean it.
#[linkme::distributed_slice]
pub static MODES: [fn()];

/// Something that each worker process does before its first task.
pub struct WorkerStart {
    /// Path and name, for people.
    pub name: &'static str,
    /// Does it; or why it could not be done.
    pub run: fn() -> Result<(), String>,
}

/// All of these of this program.
#[linkme::distributed_slice]
pub static WORKER_STARTS: [WorkerStart];

/// One call that is being run: where its arguments come from.
pub struct Call {
    arguments: crate::codec::ArgumentReader,
    group: u16,
}

impl Call {
    /// A call with these encoded arguments.
    pub fn new(arguments: crate::codec::ArgumentReader) -> Self {
        Self { arguments, group: 0 }
    }

    /// The same call, counted in this group of its actor's calls.
    pub(crate) fn in_group(self, group: u16) -> Self {
        Self { group, ..self }
    }

    /// The group of its actor's calls that it is counted in; 0 is that of all others.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// User code begins only now: the call had to wait for something that other threads of the worker have held, such as
    /// an interpreter's lock. That does not count when it is judged how long the actor's calls take.
    pub fn begins(&self) {
        crate::worker::user_code_begins();
    }

    /// The next argument. `name` is for the error message.
    pub fn argument<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<T, Failure> {
        self.arguments.next(name)
    }

    /// The arguments, for who reads them without serde.
    pub fn arguments(&mut self) -> &mut crate::codec::ArgumentReader {
        &mut self.arguments
    }
}

static BY_ID: LazyLock<HashMap<FunctionId, &'static Function, foldhash::fast::FixedState>> =
    LazyLock::new(|| FUNCTIONS.iter().map(|function| (function.id, function)).collect());

/// The function of this program with this id.
pub fn find(id: FunctionId) -> Option<&'static Function> {
    BY_ID.get(&id).copied()
}

/// How actors with this constructor are saved, if they can be.
pub(crate) fn remembered(constructor: FunctionId) -> Option<&'static Remembered> {
    REMEMBERED.iter().find(|remembered| remembered.constructor == constructor)
}

/// Says which two functions share an id, if two do: then neither can be called safely.
pub(crate) fn check_unique() -> Result<(), String> {
    if BY_ID.len() == FUNCTIONS.len() {
        return Ok(());
    }
    let twice = FUNCTIONS.iter().find(|function| !std::ptr::eq(BY_ID[&function.id], *function));
    let name = twice.map_or("", |function| function.name);
    Err(format!("two remote functions have the same id: {name}\nhint: give one of them another name"))
}
