//! What can go wrong in this process, each variant saying what the caller can do.

use aktis_protocol::Failure;
use std::sync::Arc;

/// An error of the runtime.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The task, actor or object failed elsewhere.
    #[error("{0}")]
    Failed(Arc<Failure>),
    /// The time given for waiting is over; the work goes on.
    #[error("timed out after {0:?}; the work goes on, and can be waited for again")]
    TimedOut(std::time::Duration),
    /// The waiting thread was told to give up; the work goes on.
    #[error("the wait was interrupted; the work goes on, and can be waited for again")]
    Interrupted,
    /// The session is closed.
    #[error("the session is closed\nhint: keep the Session alive as long as its references are used")]
    Closed,
    /// There is no session in this process.
    #[error("aktis is not initialised\nhint: call aktis::init() first, and keep what it returns")]
    NotInitialised,
    /// There is a current session already.
    #[error(
        "aktis is initialised already\nhint: use the session that init() returned, or Session::start for a second, private one"
    )]
    AlreadyInitialised,
    /// This process was made by `fork` after the session began.
    #[error(
        "this process was forked from one that uses aktis, and cannot use that session\nhint: start a session of its own after the fork"
    )]
    Forked,
    /// A task waits for its own result.
    #[error("a task cannot wait for its own result: {0}")]
    WaitsForItself(aktis_protocol::ObjectId),
    /// A value could not be turned into bytes or back.
    #[error("{0}")]
    Codec(String),
    /// The object store refused.
    #[error("{0}")]
    Store(String),
    /// Options or arguments make no sense.
    #[error("{0}")]
    Invalid(String),
    /// Another actor has this name.
    #[error("there is an actor named `{0}` already\nhint: find it by its name, or choose another one")]
    NameTaken(String),
    /// The operating system refused.
    #[error("{0}")]
    System(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(Arc::new(failure))
    }
}
