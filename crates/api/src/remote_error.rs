//! How the error that a remote function returns becomes a failure. Used by generated code, not by hand.
//!
//! What the error's type can do decides, found out by method resolution in the generated code, where the type is known:
//! 1. One that serde can write comes back in its own type.
//! 2. Any other that is, or becomes, a `Box<dyn Error + Send + Sync>` (of `std::io`, `anyhow`, most crates), and a
//!    `Box<dyn Error>`, comes back as text, with the texts of its sources.
//! 3. All else does not compile, and [`RemoteError`] says why.

use crate::error::{Error, joined};
use aktis_protocol::{Failure, FailureKind};
use aktis_runtime::Encoded;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt::Display;

/// An error that remote functions and methods may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a remote function",
    label = "this error cannot travel to another process",
    note = "derive serde's `Serialize` and `Deserialize` for it, and implement `Display`: it comes back in its own type",
    note = "or implement `std::error::Error`, or return a `Box<dyn Error>`, an `anyhow::Error` or a `String`: its text \
            comes back"
)]
pub trait RemoteError: Serialize + DeserializeOwned + Display + 'static {}
#[diagnostic::do_not_recommend]
impl<E: Serialize + DeserializeOwned + Display + 'static> RemoteError for E {}

/// Asks what the type of an error can do: `(&&&ErrorProbe(&error)).error_kind()`.
pub struct ErrorProbe<'a, E>(pub &'a E);

/// An error that comes back in its own type.
pub struct TypedError;
/// An error that comes back as text.
pub struct TextError;
/// The same, of a type that says nothing of other threads.
pub struct LocalTextError;
/// An error that cannot travel.
pub struct UnfitError;

/// Found first.
pub trait TypedErrorKind {
    /// The kind.
    fn error_kind(&self) -> TypedError {
        TypedError
    }
}
impl<E: RemoteError> TypedErrorKind for &&ErrorProbe<'_, E> {}

/// Found if there is no other.
pub trait TextErrorKind {
    /// The kind.
    fn error_kind(&self) -> TextError {
        TextError
    }
}
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> TextErrorKind for &ErrorProbe<'_, E> {}

/// Found if there is no other.
pub trait LocalTextErrorKind {
    /// The kind.
    fn error_kind(&self) -> LocalTextError {
        LocalTextError
    }
}
impl LocalTextErrorKind for &ErrorProbe<'_, Box<dyn std::error::Error>> {}
impl LocalTextErrorKind for &ErrorProbe<'_, Box<dyn std::error::Error + Send>> {}

/// Found last.
pub trait UnfitErrorKind {
    /// The kind.
    fn error_kind(&self) -> UnfitError {
        UnfitError
    }
}
impl<E> UnfitErrorKind for ErrorProbe<'_, E> {}

impl TypedError {
    /// The failure that carries the error.
    pub fn failure<E: RemoteError>(self, error: E) -> Failure {
        returned_error(&error)
    }
}

impl TextError {
    /// The failure that carries the error's text.
    pub fn failure(self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        error_as_text(&*error.into())
    }
}

impl LocalTextError {
    /// The failure that carries the error's text.
    pub fn failure(self, error: Box<dyn std::error::Error>) -> Failure {
        error_as_text(&*error)
    }
}

impl UnfitError {
    /// Does not compile.
    pub fn failure<E: RemoteError>(self, error: E) -> Failure {
        returned_error(&error)
    }
}

/// The texts of an error and its sources, as a failure. A failure of a task or actor among them is its cause.
fn error_as_text(error: &(dyn std::error::Error + 'static)) -> Failure {
    if let Some(error) = error.downcast_ref::<Error>() {
        return returned_error(error);
    }
    let kind = FailureKind::Returned { type_name: String::new(), encoded: Vec::new() };
    let mut failure = Failure::new(kind, joined(error));
    let mut sources = std::iter::successors(error.source(), |error| error.source());
    let cause = sources.find_map(|source| source.downcast_ref::<Error>()?.task_error());
    failure.cause = cause.and_then(|cause| Failure::passed_on(cause.failure().clone()).cause);
    failure
}

/// A returned error of the user's own type, as a failure that carries it. An error that came from a task or actor is
/// passed on.
pub fn returned_error<E: RemoteError>(error: &E) -> Failure {
    if let Some(passed_on) = (error as &dyn Any).downcast_ref::<Error>().and_then(Error::task_error) {
        return Failure::passed_on(passed_on.failure().clone());
    }
    let message = error.to_string();
    let type_name = std::any::type_name::<E>().to_owned();
    match Encoded::of(error) {
        Ok(encoded) => Failure::new(FailureKind::Returned { type_name, encoded: encoded.to_vec() }, message),
        // The message is worth more than the reason why the rest is lost, but say both.
        Err(problem) => Failure::new(FailureKind::Codec, format!("{message} (its error: {problem})")),
    }
}

#[cfg(test)]
#[expect(clippy::needless_borrow, reason = "it is what generated code does, whatever the type")]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Debug)]
    struct Reading(std::io::Error);

    impl Display for Reading {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("reading the weights")
        }
    }

    impl std::error::Error for Reading {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_of_another_crate_keeps_the_texts_of_its_sources() {
        let error = Reading(std::io::Error::other("the disk is gone"));
        let failure = (&&&ErrorProbe(&error)).error_kind().failure(error);
        assert_eq!(failure.message, "reading the weights: the disk is gone");
    }

    #[test]
    fn a_serialisable_error_keeps_its_type() {
        let error = "in words".to_owned();
        let failure = (&&&ErrorProbe(&error)).error_kind().failure(error);
        let Error::Task(error) = Error::from(Arc::new(failure)) else { panic!("a task's error") };
        assert_eq!(error.downcast::<String>().as_deref(), Some("in words"));
    }

    #[test]
    fn an_error_that_is_passed_on_keeps_its_type() {
        let inner = Error::from(Arc::new(returned_error(&"the root".to_owned())));
        let failure = (&&&ErrorProbe(&inner)).error_kind().failure(inner.clone());
        let outer = Error::from(Arc::new(failure));
        assert_eq!(outer.downcast::<String>().as_deref(), Some("the root"));
        assert_eq!(outer.downcast::<Error>().as_ref(), Some(&inner));
        assert_eq!(outer.task_error().expect("a task's error").message(), "the root");
        let boxed: Box<dyn std::error::Error + Send + Sync> = outer.into();
        let failure = (&&&ErrorProbe(&boxed)).error_kind().failure(boxed);
        assert_eq!(Error::from(Arc::new(failure)).downcast::<String>().as_deref(), Some("the root"));
    }
}
