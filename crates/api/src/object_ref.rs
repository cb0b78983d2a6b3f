//! A typed reference to an object that is there, or will be.

use crate::error::{Error, Result};
use aktis_protocol::ObjectId;
use aktis_runtime::codec::{Value, decode, deserialize_handle, note_cast_from, serialize_handle};
use aktis_runtime::{Handle, Runtime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt::{Debug, Formatter};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A reference to an object: the result of a task that may still be running, or a value that was [`put`].
///
/// It is cheap to clone, can be an argument wherever a `T` is expected, can travel inside other values,
/// and can be awaited. The object lives as long as a reference to it does.
///
/// [`put`]: crate::put
pub struct ObjectRef<T> {
    handle: Handle,
    marker: PhantomData<fn() -> T>,
}

impl<T> AsRef<Handle> for ObjectRef<T> {
    fn as_ref(&self) -> &Handle {
        &self.handle
    }
}

impl<T> ObjectRef<T> {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, marker: PhantomData }
    }

    pub(crate) fn from_outcome(outcome: Result<Handle, aktis_runtime::Error>) -> Self {
        Self::new(outcome.unwrap_or_else(Handle::failed))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn into_handle(self) -> Handle {
        self.handle
    }

    /// The object.
    pub fn id(&self) -> ObjectId {
        self.handle.id()
    }

    /// Whether there is a value or a failure, so that `get` does not block.
    pub fn is_ready(&self) -> bool {
        self.handle.is_ready()
    }

    /// Cancels the task that makes this object, and what it has submitted. If it runs already, it sees [`is_cancelled`].
    ///
    /// [`is_cancelled`]: crate::is_cancelled
    pub fn cancel(&self) -> Result<()> {
        Ok(self.handle.cancel(false, true)?)
    }

    /// Cancels the task that makes this object, and kills its process if it runs in isolation.
    pub fn cancel_force(&self) -> Result<()> {
        Ok(self.handle.cancel(true, true)?)
    }

    /// Says why there is no value yet, or what failed: sentences for people.
    pub fn explain(&self) -> String {
        self.handle.explain()
    }

    /// The same reference, to be read as another type. It changes no value: `get` fails with [`Error::Codec`], unless the
    /// object was made as a `U`. The error names both types in the process that called `cast`; in other processes it may
    /// name only `U`.
    ///
    /// ```
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let mixed = vec![aktis::put(7_u64)?.cast::<()>(), aktis::put("seven".to_owned())?.cast::<()>()];
    /// assert_eq!(mixed[0].clone().cast::<u64>().get()?, 7);
    /// assert!(mixed[1].clone().cast::<u64>().get().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cast<U>(self) -> ObjectRef<U> {
        note_cast_from::<T>();
        self.retyped()
    }

    /// The same reference, whose type was not known before.
    pub(crate) fn retyped<U>(self) -> ObjectRef<U> {
        ObjectRef::new(self.handle)
    }
}

impl<T: DeserializeOwned> ObjectRef<T> {
    /// Waits for the value and gives it, or why there is none.
    pub fn get(&self) -> Result<T> {
        decoded(self.handle.get(None)?)
    }

    /// Waits for the value no longer than `timeout`; then gives [`Error::Timeout`], while the work goes on.
    pub fn get_timeout(&self, timeout: Duration) -> Result<T> {
        decoded(self.handle.get(Some(timeout))?)
    }

    pub(crate) fn get_in(&self, runtime: &Runtime, timeout: Option<Duration>) -> Result<T> {
        let value = self.handle.get(timeout)?;
        aktis_runtime::codec::decode_in(Some(runtime), &value).map_err(Error::Codec)
    }
}

#[inline]
fn decoded<T: DeserializeOwned>(value: Value) -> Result<T> {
    decode(&value).map_err(Error::Codec)
}

/// Awaiting a reference gives the value, or why there is none. A clone can be awaited while the reference
/// is kept: `object.clone().await`.
impl<T: DeserializeOwned> Future for ObjectRef<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.handle.poll(context.waker()).map(|value| decoded(value?))
    }
}

impl<T> Clone for ObjectRef<T> {
    fn clone(&self) -> Self {
        Self::new(self.handle.clone())
    }
}

impl<T> Debug for ObjectRef<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectRef<{}>({})", std::any::type_name::<T>(), self.id())
    }
}

impl<T> PartialEq for ObjectRef<T> {
    /// Whether both refer to the same object.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<T> Eq for ObjectRef<T> {}

impl<T> Hash for ObjectRef<T> {
    /// The hash of the object's id.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl<T> PartialOrd for ObjectRef<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for ObjectRef<T> {
    /// The order of the objects' ids, which means nothing else: it is there for maps and sets.
    fn cmp(&self, other: &Self) -> Ordering {
        self.id().cmp(&other.id())
    }
}

impl<T> Serialize for ObjectRef<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_handle(&self.handle, serializer)
    }
}

impl<'de, T> Deserialize<'de> for ObjectRef<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_handle(deserializer).map(Self::new)
    }
}

/// What can say how it is: references and actors' handles.
pub trait Explain {
    /// Why it is not there yet, where it is, or what failed: sentences for people.
    fn explain(&self) -> String;
}

impl<T> Explain for ObjectRef<T> {
    fn explain(&self) -> String {
        self.handle.explain()
    }
}
