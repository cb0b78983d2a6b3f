//! Actors' handles, without their types: what the handles that `#[actor]` generates are made of.

use crate::error::{Error, Result};
use crate::object_ref::{Explain, ObjectRef};
use aktis_protocol::ActorId;
use aktis_runtime::codec::{deserialize_actor, serialize_actor};
use aktis_runtime::{ActorHandle, ActorOptions, Arguments, CallOptions, Function, Runtime};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{Debug, Formatter};
use std::time::Duration;

/// An actor, or why it could not even be asked for: calls then give that error.
#[derive(Clone)]
pub struct Actor {
    handle: Result<ActorHandle, aktis_runtime::Error>,
    /// How long after they are made calls through this handle are cancelled, if they are not done.
    deadline: Option<Duration>,
}

impl Actor {
    /// Creates an actor in the current session.
    pub fn create(
        constructor: &'static Function,
        options: &ActorOptions,
        add: impl FnOnce(&mut Arguments, &Runtime) -> Result<(), aktis_runtime::Error>,
    ) -> Self {
        Self::new(Runtime::current().and_then(|runtime| {
            let mut arguments = Arguments::new();
            add(&mut arguments, &runtime)?;
            runtime.create_actor(constructor, options, arguments)
        }))
    }

    fn new(handle: Result<ActorHandle, aktis_runtime::Error>) -> Self {
        Self { handle, deadline: None }
    }

    /// The same actor, whose calls are cancelled if they are not done in time.
    pub fn with_deadline(&self, allowed: Duration) -> Self {
        Self { handle: self.handle.clone(), deadline: Some(allowed) }
    }

    /// The actor with this name in the current session, if it was made by this constructor.
    pub fn find(name: &str, constructor: &'static Function) -> Result<Self> {
        let found = Runtime::current()?.find_actor(name)?;
        let (handle, found) = found.ok_or_else(|| {
            let message = format!("there is no actor named `{name}`");
            Error::Invalid(message + "\nhint: give it the name with `options().name(..)` when it is created")
        })?;
        if found.type_name != constructor.name {
            let message = format!(
                "the actor named `{name}` was made by {}, not by {}",
                found.type_name, constructor.name
            );
            return Err(Error::Invalid(message));
        }
        Ok(Self::new(Ok(handle)))
    }

    /// Calls a method.
    #[inline]
    pub fn call<T>(
        &self,
        method: &'static Function,
        add: impl FnOnce(&mut Arguments, &Runtime) -> Result<(), aktis_runtime::Error>,
    ) -> ObjectRef<T> {
        ObjectRef::from_outcome(self.handle().and_then(|handle| {
            let runtime = Runtime::current()?;
            let mut arguments = Arguments::new();
            add(&mut arguments, &runtime)?;
            let options = CallOptions { deadline: self.deadline, ..CallOptions::default() };
            handle.call(method, &options, arguments)
        }))
    }

    /// Ends the actor now, for good.
    pub fn kill(&self) -> Result<()> {
        Ok(self.handle()?.kill(false)?)
    }

    /// Where the actor is, or why it is not.
    pub fn explain(&self) -> String {
        match &self.handle {
            Ok(handle) => handle.explain(),
            Err(error) => error.to_string(),
        }
    }

    /// The actor's id; zero if it could not be asked for.
    pub fn id(&self) -> ActorId {
        self.handle.as_ref().map_or_else(|_| ActorId::default(), ActorHandle::id)
    }

    fn handle(&self) -> Result<&ActorHandle, aktis_runtime::Error> {
        self.handle.as_ref().map_err(Clone::clone)
    }
}

impl Debug for Actor {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.handle {
            Ok(handle) => write!(f, "{}", handle.id()),
            Err(error) => write!(f, "{error}"),
        }
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.handle {
            Ok(handle) => serialize_actor(handle, serializer),
            Err(error) => Err(S::Error::custom(format!("the actor could not be created: {error}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_actor(deserializer).map(|handle| Self::new(Ok(handle)))
    }
}

/// A handle of an actor, whatever its type: what `#[actor]` generates implements this.
pub trait ActorRef {
    #[doc(hidden)]
    fn actor(&self) -> &Actor;

    /// The actor's id.
    fn actor_id(&self) -> ActorId {
        self.actor().id()
    }
}

impl<H: ActorRef> Explain for H {
    fn explain(&self) -> String {
        self.actor().explain()
    }
}

/// Ends an actor now, for good: calls that wait and later ones give [`Error::ActorDied`].
pub fn kill(handle: &impl ActorRef) -> Result<()> {
    handle.actor().kill()
}
