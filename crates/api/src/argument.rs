//! What can be given where a remote function takes a `T`.

use crate::array::{Array, Element};
use crate::object_ref::ObjectRef;
use aktis_runtime::{Arguments, Error, Runtime};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What can be given where a remote function takes a `T`: a `T`, or an [`ObjectRef<T>`](ObjectRef).
///
/// An `ObjectRef` is resolved before the function runs. Those *inside* values stay what they are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given where the remote function takes `{T}`",
    label = "expected `{T}`, `ObjectRef<{T}>` or `&ObjectRef<{T}>`",
    note = "arguments travel to another process: give an owned value, or `put` it once and give the `ObjectRef`"
)]
pub trait IntoArg<T> {
    #[doc(hidden)]
    fn add_to(self, arguments: &mut Arguments, runtime: &Runtime) -> Result<(), Error>;
}

impl<T: Serialize + DeserializeOwned> IntoArg<T> for T {
    #[inline]
    fn add_to(self, arguments: &mut Arguments, runtime: &Runtime) -> Result<(), Error> {
        arguments.push_owned(runtime, self)
    }
}

impl<T> IntoArg<T> for ObjectRef<T> {
    #[inline]
    fn add_to(self, arguments: &mut Arguments, _: &Runtime) -> Result<(), Error> {
        arguments.push_handle(self.into_handle());
        Ok(())
    }
}

impl<T> IntoArg<T> for &ObjectRef<T> {
    #[inline]
    fn add_to(self, arguments: &mut Arguments, _: &Runtime) -> Result<(), Error> {
        arguments.push_handle(self.handle().clone());
        Ok(())
    }
}

impl IntoArg<String> for &str {
    fn add_to(self, arguments: &mut Arguments, runtime: &Runtime) -> Result<(), Error> {
        arguments.push(runtime, &self.to_owned())
    }
}

impl<T: Element> IntoArg<Array<T>> for &Array<T> {
    fn add_to(self, arguments: &mut Arguments, runtime: &Runtime) -> Result<(), Error> {
        arguments.push(runtime, self)
    }
}
