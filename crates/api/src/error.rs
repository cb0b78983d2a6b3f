//! What users see when something went wrong, each variant saying what they can do.

use aktis_protocol::{DeathCause, Failure, FailureKind, ObjectId, TaskId};
use aktis_runtime::codec::{Value, decode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::any::Any;
use std::fmt::{Debug, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

/// A result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no value.
///
/// It can be the error of a remote function itself: with `-> aktis::Result<T>`, `?` works inside. Errors of other
/// crates become one with [`Error::other`].
///
/// `Debug` is the text of `Display`, so that a `main` that returns it prints that, with its hint; `{:#?}` shows the parts.
///
/// ```
/// let error = aktis::Error::NotInitialised;
/// assert_eq!(format!("{error:?}"), error.to_string());
/// assert!(error.to_string().contains("hint: call aktis::init() first"));
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// The function returned an error or panicked, or one of its inputs failed.
    Task(TaskError),
    /// The worker process died, more often than the task may be retried.
    WorkerDied(TaskError),
    /// The actor is gone: killed, exited, never constructed, or died too often.
    ActorDied(TaskError),
    /// The task was cancelled.
    Cancelled(TaskError),
    /// The task was not done by its deadline, and was cancelled.
    DeadlinePassed(TaskError),
    /// It may run on one node only, and that is not there.
    Unschedulable(TaskError),
    /// The worker's program does not know the function.
    UnknownFunction(TaskError),
    /// The value was lost and could not be made again.
    Lost(TaskError),
    /// The time given for waiting is over; the work goes on.
    Timeout(Duration),
    /// The object store could not take or give a value.
    Store(String),
    /// A value could not be encoded or decoded.
    Codec(String),
    /// The session has ended.
    Closed,
    /// There is no session.
    NotInitialised,
    /// There is a session for this process already.
    AlreadyInitialised,
    /// This process was forked from one with a session.
    Forked,
    /// A task waits for its own result.
    WaitsForItself(ObjectId),
    /// Options or arguments make no sense.
    Invalid(String),
    /// The operating system refused.
    System(String),
    /// An error of the program itself, in its own words: see [`Error::other`].
    Other(String),
}

impl Error {
    /// An error with a text of one's own, or with that of an error of any other type and of its sources.
    ///
    /// ```
    /// use aktis::prelude::*;
    ///
    /// #[remote]
    /// fn parse(text: String) -> aktis::Result<f64> {
    ///     let number: f64 = text.trim().parse().map_err(aktis::Error::other)?;
    ///     if number < 0.0 {
    ///         return Err(aktis::Error::other(format!("{number} is negative")));
    ///     }
    ///     Ok(number)
    /// }
    ///
    /// fn main() -> aktis::Result<()> {
    ///     let _session = aktis::init()?;
    ///     assert_eq!(parse::remote(" 4.5").get()?, 4.5);
    ///     let error = parse::remote("-1").get().unwrap_err();
    ///     assert!(error.to_string().contains("-1 is negative"));
    ///     Ok(())
    /// }
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::Other(joined(&*error)),
        }
    }

    /// What is known about the failure, if a task, actor or object has failed.
    pub fn task_error(&self) -> Option<&TaskError> {
        match self {
            Self::Task(error)
            | Self::WorkerDied(error)
            | Self::ActorDied(error)
            | Self::Cancelled(error)
            | Self::DeadlinePassed(error)
            | Self::Unschedulable(error)
            | Self::UnknownFunction(error)
            | Self::Lost(error) => Some(error),
            _ => None,
        }
    }

    /// The error that a function returned, in its own type: see [`TaskError::downcast`].
    pub fn downcast<E: DeserializeOwned + 'static>(&self) -> Option<E> {
        self.task_error()?.downcast()
    }
}

/// The texts of an error and its sources, in one line. A source that its error tells of already is left out.
pub(crate) fn joined(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for source in std::iter::successors(error.source(), |error| error.source()) {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::other(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::other(error)
    }
}

impl Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if !f.alternate() {
            return write!(f, "{self}");
        }
        let tuple =
            |f: &mut Formatter<'_>, name, field: &dyn Debug| f.debug_tuple(name).field(field).finish();
        match self {
            Self::Task(error) => tuple(f, "Task", error),
            Self::WorkerDied(error) => tuple(f, "WorkerDied", error),
            Self::ActorDied(error) => tuple(f, "ActorDied", error),
            Self::Cancelled(error) => tuple(f, "Cancelled", error),
            Self::DeadlinePassed(error) => tuple(f, "DeadlinePassed", error),
            Self::Unschedulable(error) => tuple(f, "Unschedulable", error),
            Self::UnknownFunction(error) => tuple(f, "UnknownFunction", error),
            Self::Lost(error) => tuple(f, "Lost", error),
            Self::Timeout(time) => tuple(f, "Timeout", time),
            Self::Store(text) => tuple(f, "Store", text),
            Self::Codec(text) => tuple(f, "Codec", text),
            Self::Closed => f.write_str("Closed"),
            Self::NotInitialised => f.write_str("NotInitialised"),
            Self::AlreadyInitialised => f.write_str("AlreadyInitialised"),
            Self::Forked => f.write_str("Forked"),
            Self::WaitsForItself(object) => tuple(f, "WaitsForItself", object),
            Self::Invalid(text) => tuple(f, "Invalid", text),
            Self::System(text) => tuple(f, "System", text),
            Self::Other(text) => tuple(f, "Other", text),
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task(error) | Self::Cancelled(error) => write!(f, "{error}"),
            Self::DeadlinePassed(error) => {
                write!(f, "{error}\nhint: give it more time, or a higher `priority` if it waited for others")
            }
            Self::WorkerDied(error) if error.death().is_some_and(|death| death.isolated) => {
                write!(f, "{error}\nhint: only that process died; give the function `retries` if it may run again")
            }
            Self::WorkerDied(error) => write!(
                f,
                "{error}\nhint: only that process died; give the function `retries` if it may run again, or \
                 `isolated` to keep its crashes away from others"
            ),
            Self::ActorDied(error) => write!(f, "{error}\nhint: {}", error.actor_hint()),
            Self::Unschedulable(error) => {
                write!(f, "{error}\nhint: name a node of `aktis list nodes`, or let others do as well (`soft`)")
            }
            Self::UnknownFunction(error) => write!(
                f,
                "{error}\nhint: driver and workers must be the same build, and the crate with the function must be \
                 named somewhere in the program"
            ),
            Self::Lost(error) => write!(f, "{error}\nhint: submit the task again"),
            Self::Timeout(time) => {
                write!(f, "no value after {time:?}\nhint: the work goes on: wait again, cancel it, or ask `explain`")
            }
            Self::Store(message)
            | Self::Codec(message)
            | Self::Invalid(message)
            | Self::System(message)
            | Self::Other(message) => f.write_str(message),
            Self::Closed => f.write_str(
                "the session has ended\nhint: keep the Session alive as long as its references are used",
            ),
            Self::NotInitialised => f.write_str(
                "there is no session\nhint: call aktis::init() first and keep what it returns, or enter() a Session",
            ),
            Self::AlreadyInitialised => f.write_str(
                "there is a session for this process already\nhint: use the one that init() returned, or \
                 Session::start() for a second, private one",
            ),
            Self::Forked => f.write_str(
                "this process was forked from one with a session, and cannot use it\nhint: start a session after \
                 the fork",
            ),
            Self::WaitsForItself(object) => write!(
                f,
                "the task waits for its own result {object}, which cannot come\nhint: return the reference, or let \
                 another task wait for it"
            ),
        }
    }
}

impl From<aktis_runtime::Error> for Error {
    fn from(error: aktis_runtime::Error) -> Self {
        use aktis_runtime::Error as Inner;
        match error {
            Inner::Failed(failure) => failure.into(),
            Inner::TimedOut(time) => Self::Timeout(time),
            Inner::Closed => Self::Closed,
            Inner::NotInitialised => Self::NotInitialised,
            Inner::AlreadyInitialised => Self::AlreadyInitialised,
            Inner::Forked => Self::Forked,
            Inner::WaitsForItself(object) => Self::WaitsForItself(object),
            Inner::Codec(message) => Self::Codec(message),
            Inner::Store(message) => Self::Store(message),
            Inner::Invalid(message) => Self::Invalid(message),
            Inner::NameTaken(_) => Self::Invalid(error.to_string()),
            Inner::System(message) => Self::System(message),
            other => Self::System(other.to_string()),
        }
    }
}

impl From<Arc<Failure>> for Error {
    fn from(failure: Arc<Failure>) -> Self {
        match &failure.kind {
            FailureKind::Returned { .. }
            | FailureKind::Panicked { .. }
            | FailureKind::InputFailed
            | FailureKind::PassedOn(_) => Self::Task(TaskError(failure)),
            FailureKind::WorkerDied(_) => Self::WorkerDied(TaskError(failure)),
            FailureKind::ActorDied | FailureKind::ActorCrashed(_) | FailureKind::ActorGroupRemoved => {
                Self::ActorDied(TaskError(failure))
            }
            FailureKind::Cancelled | FailureKind::GroupRemoved => Self::Cancelled(TaskError(failure)),
            FailureKind::DeadlinePassed => Self::DeadlinePassed(TaskError(failure)),
            FailureKind::Unschedulable | FailureKind::ActorUnschedulable => {
                Self::Unschedulable(TaskError(failure))
            }
            FailureKind::UnknownFunction => Self::UnknownFunction(TaskError(failure)),
            FailureKind::Lost | FailureKind::NotRebuilt(_) => Self::Lost(TaskError(failure)),
            FailureKind::Codec => Self::Codec(failure.to_string()),
            FailureKind::Store => Self::Store(failure.to_string()),
            FailureKind::Refused | FailureKind::Environment => Self::System(failure.to_string()),
            FailureKind::SessionClosed => Self::Closed,
        }
    }
}

/// What is known about the failure of a task, actor or object.
///
/// `Debug` is the text of `Display`; `{:#?}` shows the parts.
#[derive(Clone, PartialEq)]
pub struct TaskError(Arc<Failure>);

impl TaskError {
    /// The function or method that failed.
    pub fn function(&self) -> &str {
        &self.0.function
    }

    /// What went wrong: the text of the returned error, or the panic's message. If the function returned the failure of a
    /// task or actor that it had waited for, it is that one's message.
    pub fn message(&self) -> &str {
        let mut failure = &*self.0;
        while let (FailureKind::PassedOn(_), Some(cause)) = (&failure.kind, &failure.cause) {
            failure = &cause.1;
        }
        &failure.message
    }

    pub(crate) fn failure(&self) -> &Failure {
        &self.0
    }

    /// What can be done about the end of an actor.
    fn actor_hint(&self) -> String {
        match &self.0.kind {
            FailureKind::ActorCrashed(Some(0)) => "create the actor again, or give it `restarts`".to_owned(),
            FailureKind::ActorCrashed(Some(restarts)) => format!(
                "it has used up its {restarts} restarts: find out why its process dies, or give it more `restarts`"
            ),
            FailureKind::ActorCrashed(None) => {
                "the call is lost; if the actor has restarts left it lives again: repeat the call, or give the actor \
                 `call_retries`"
                    .to_owned()
            }
            FailureKind::ActorGroupRemoved => "create the actor again in a group that exists".to_owned(),
            _ if self.0.cause.is_some() => {
                "repair the cause and create the actor again; a failed constructor is not repeated".to_owned()
            }
            _ => "create the actor again if it is still needed".to_owned(),
        }
    }

    /// The task that failed.
    pub fn task(&self) -> Option<TaskId> {
        self.0.task
    }

    /// The process in which it ran.
    pub fn pid(&self) -> Option<u32> {
        self.0.pid
    }

    /// Whether the function panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0.kind, FailureKind::Panicked { .. })
    }

    /// Where it panicked, as `file:line:column`.
    pub fn location(&self) -> Option<&str> {
        match &self.0.kind {
            FailureKind::Panicked { location } => location.as_deref(),
            _ => None,
        }
    }

    /// How the worker process died.
    pub fn death(&self) -> Option<&DeathCause> {
        match &self.0.kind {
            FailureKind::WorkerDied(death) => Some(death),
            _ => None,
        }
    }

    /// The failure that caused this one: an input's, for a task that never ran; the constructor's, for a call of an actor
    /// that never was; that of a task or actor whose error the function returned.
    pub fn cause(&self) -> Option<TaskError> {
        self.0.cause.as_ref().map(|cause| Self(Arc::new(cause.1.clone())))
    }

    /// The error that the function returned, or that the function of one of the [causes](Self::cause) did: of a failed
    /// input, of a constructor, of a task whose error was passed on by `?`. `None` if there is none of this type.
    ///
    /// ```no_run
    /// # #[derive(Debug, serde::Serialize, serde::Deserialize)] struct FitError;
    /// # fn handle(error: aktis::Error) {
    /// if let aktis::Error::Task(task) = &error
    ///     && let Some(error) = task.downcast::<FitError>()
    /// {
    ///     println!("the user's own error: {error:?}");
    /// }
    /// # }
    /// ```
    pub fn downcast<E: DeserializeOwned + 'static>(&self) -> Option<E> {
        let mut failure = &*self.0;
        loop {
            if let FailureKind::Returned { type_name, encoded } = &failure.kind
                && type_name == std::any::type_name::<E>()
            {
                return decode(&Value::inline(encoded)).ok();
            }
            let cause = &failure.cause.as_ref()?.1;
            if let FailureKind::PassedOn(_) = failure.kind {
                let passed_on: Box<dyn Any> = Box::new(Error::from(Arc::new(cause.clone())));
                if let Ok(error) = passed_on.downcast::<E>() {
                    return Some(*error);
                }
            }
            failure = cause;
        }
    }
}

impl Display for TaskError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        match self.0.pid {
            Some(pid) if self.death().is_none() => write!(f, "\n  in process {pid}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for TaskError {}

impl Debug for TaskError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if f.alternate() { write!(f, "{:#?}", self.0) } else { write!(f, "{self}") }
    }
}

impl Serialize for TaskError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Failure::serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for TaskError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Failure::deserialize(deserializer).map(|failure| Self(Arc::new(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::returned_error;

    fn failed_input() -> Error {
        let cause = returned_error(&"no data".to_owned());
        let object = TaskId::root(aktis_protocol::SessionId(1)).child(1).returns(0);
        Error::from(Arc::new(Failure::of_input(object, cause)))
    }

    #[test]
    fn a_users_error_comes_back_typed_through_the_chain() {
        let Error::Task(task) = failed_input() else { panic!("a task error") };
        assert_eq!(task.downcast::<String>().as_deref(), Some("no data"));
        assert_eq!(task.downcast::<u64>(), None);
        assert_eq!(task.cause().unwrap().message(), "no data");
        assert!(task.to_string().contains("caused by: no data"));
    }

    #[test]
    fn errors_travel() {
        let error = failed_input();
        let bytes = postcard::to_stdvec(&error).unwrap();
        assert_eq!(postcard::from_bytes::<Error>(&bytes).unwrap(), error);
    }

    #[test]
    fn other_errors_keep_the_texts_of_their_sources() {
        let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        assert_eq!(Error::from(missing), Error::Other("no such file".to_owned()));
        assert_eq!(Error::other("in words"), Error::Other("in words".to_owned()));
        let boxed: Box<dyn std::error::Error + Send + Sync> = Error::Closed.into();
        assert_eq!(Error::from(boxed), Error::Closed);
    }

    #[test]
    fn debug_is_the_text_and_alternate_debug_the_parts() {
        let error = failed_input();
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(format!("{error:#?}").starts_with("Task(\n"), "{error:#?}");
        assert_eq!(format!("{:#?}", Error::Closed), "Closed");
    }

    #[test]
    fn what_the_user_must_do_is_hinted() {
        for error in [Error::Closed, Error::NotInitialised, Error::Forked, Error::Timeout(Duration::ZERO)] {
            assert!(error.to_string().contains("\nhint: "), "{error}");
        }
    }
}
