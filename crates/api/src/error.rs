//! What users see when something went wrong, each variant saying what they can do.

use aktis_protocol::{DeathCause, Failure, FailureKind, ObjectId, TaskId};
use aktis_runtime::codec::{Value, decode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

/// A result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no value.
///
/// It can be the error of a remote function itself: with `-> aktis::Result<T>`, `?` works inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}

impl std::error::Error for Error {}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task(error) | Self::Cancelled(error) => write!(f, "{error}"),
            Self::DeadlinePassed(error) => {
                write!(f, "{error}\nhint: give it more time, or a higher `priority` if it waited for others")
            }
            Self::WorkerDied(error) => write!(
                f,
                "{error}\nhint: only that process died; give the function `retries` if it may run again, or \
                 `isolated` to keep its crashes away from others"
            ),
            Self::ActorDied(error) => {
                write!(f, "{error}\nhint: create the actor again, or give it `restarts`")
            }
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
            Self::Store(message) | Self::Codec(message) | Self::Invalid(message) | Self::System(message) => {
                f.write_str(message)
            }
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
            FailureKind::Returned { .. } | FailureKind::Panicked { .. } | FailureKind::InputFailed => {
                Self::Task(TaskError(failure))
            }
            FailureKind::WorkerDied(_) => Self::WorkerDied(TaskError(failure)),
            FailureKind::ActorDied | FailureKind::ActorGroupRemoved => Self::ActorDied(TaskError(failure)),
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
#[derive(Clone, Debug, PartialEq)]
pub struct TaskError(Arc<Failure>);

impl TaskError {
    /// The function or method that failed.
    pub fn function(&self) -> &str {
        &self.0.function
    }

    /// What went wrong: the text of the returned error, or the panic's message.
    pub fn message(&self) -> &str {
        &self.0.message
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

    /// The failure that caused this one: an input's, for a task that never ran.
    pub fn cause(&self) -> Option<TaskError> {
        self.0.cause.as_ref().map(|cause| Self(Arc::new(cause.1.clone())))
    }

    /// The error that the function returned, or that the first of its failed inputs' functions did;
    /// `None` if there is none of this type.
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
    pub fn downcast<E: DeserializeOwned>(&self) -> Option<E> {
        let mut failure = &*self.0;
        loop {
            if let FailureKind::Returned { type_name, encoded } = &failure.kind
                && type_name == std::any::type_name::<E>()
            {
                return decode(&Value::inline(encoded)).ok();
            }
            failure = &failure.cause.as_ref()?.1;
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
    fn what_the_user_must_do_is_hinted() {
        for error in [Error::Closed, Error::NotInitialised, Error::Forked, Error::Timeout(Duration::ZERO)] {
            assert!(error.to_string().contains("\nhint: "), "{error}");
        }
    }
}
