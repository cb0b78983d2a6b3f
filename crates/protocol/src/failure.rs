//! Why something did not give a value: the failure that takes the place of a task's result.

use crate::ids::{ObjectId, TaskId};
use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeathCause {
    /// The process that died.
    pub pid: u32,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// Its exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Whether the kernel killed it because memory ran out.
    pub out_of_memory: bool,
    /// The last lines of its standard error, oldest first.
    pub stderr_tail: Vec<String>,
}

impl std::fmt::Display for DeathCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pid == 0 {
            // There was no process, or not on this node.
            return write!(f, "{}", self.stderr_tail.join("; "));
        }
        write!(f, "worker process {} ", self.pid)?;
        match (self.signal, self.exit_code) {
            (Some(_), _) if self.out_of_memory => {
                write!(f, "was killed by the kernel, because the machine or its group ran out of memory")?;
            }
            (Some(signal), _) => write!(f, "was killed by signal {signal} ({})", signal_name(signal))?,
            (None, Some(code)) => write!(f, "exited with code {code}")?,
            (None, None) => write!(f, "disappeared")?,
        }
        if !self.stderr_tail.is_empty() {
            write!(f, "; its last words:")?;
            for line in &self.stderr_tail {
                write!(f, "\n  | {line}")?;
            }
        }
        Ok(())
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL: killed by someone, or by the kernel for lack of memory",
        10 => "SIGUSR1",
        11 => "SIGSEGV: a crash in native code, or a stack that overflowed",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        16 => "SIGSTKFLT",
        17 => "SIGCHLD",
        18 => "SIGCONT",
        19 => "SIGSTOP",
        20 => "SIGTSTP",
        21 => "SIGTTIN",
        22 => "SIGTTOU",
        23 => "SIGURG",
        24 => "SIGXCPU: it used more CPU time than it may (ulimit -t)",
        25 => "SIGXFSZ: it wrote a file larger than it may (ulimit -f)",
        26 => "SIGVTALRM",
        27 => "SIGPROF",
        28 => "SIGWINCH",
        29 => "SIGIO",
        30 => "SIGPWR",
        31 => "SIGSYS: a system call that it may not make (seccomp)",
        34..=64 => "a real-time signal",
        _ => "see signal(7)",
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The function returned an error of the user's own type, here encoded.
    Returned {
        /// The Rust name of the error's type.
        type_name: String,
        /// The error, encoded like any other value.
        encoded: Vec<u8>,
    },
    /// The function panicked.
    Panicked {
        /// `file:line:column` of the panic, if known.
        location: Option<String>,
    },
    /// The process that ran it died, more often than retries were allowed.
    WorkerDied(DeathCause),
    /// The actor is gone: it was killed, exited, failed to construct, or died too often.
    ActorDied,
    /// The actor is gone, or could not be, because its placement group was removed.
    ActorGroupRemoved,
    /// It was cancelled.
    Cancelled,
    /// It was not done by its deadline, and was cancelled.
    DeadlinePassed,
    /// The placement group that it was to run in was removed.
    GroupRemoved,
    /// The task may run on one node only, and that is not there.
    Unschedulable,
    /// The actor may live on one node only, and that is not there.
    ActorUnschedulable,
    /// An input of the task failed, so the task never ran.
    InputFailed,
    /// A worker's program does not know the function: it is not the same build.
    UnknownFunction,
    /// A value could not be encoded or decoded.
    Codec,
    /// The object store could not take or give back a value.
    Store,
    /// A limit of the node or of the system is reached.
    Refused,
    /// The process that was to run it could not be set up as it has to be.
    Environment,
    /// The value was lost and could not be made again.
    Lost,
    /// The value was lost, and the task that makes it may not, or can not, be run again.
    NotRebuilt(NotRebuilt),
    /// The session ended first.
    SessionClosed,
}

/// Why a task is not run again for a value of it that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotRebuilt {
    /// It has run as often as it may.
    NoRetryLeft,
    /// How it is run is not on record any more.
    NotOnRecord,
    /// Another reason, which the message says.
    Other,
}

/// Causes that a failure keeps, one behind the other.
const CAUSES_MAX: usize = 8;

/// A failure in the place of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong, for programs.
    pub kind: FailureKind,
    /// What went wrong, for people: lower-case, concrete, one sentence.
    pub message: String,
    /// The function or method that failed.
    pub function: String,
    /// The task that failed.
    pub task: Option<TaskId>,
    /// The process in which it ran, if it ran.
    pub pid: Option<u32>,
    /// Whether the task may be run again, if it has retries left.
    pub retriable: bool,
    /// The object whose failure caused this one, and that failure.
    pub cause: Option<Box<(ObjectId, Failure)>>,
}

impl Failure {
    /// A failure with a message and nothing else.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            function: String::new(),
            task: None,
            pid: None,
            retriable: false,
            cause: None,
        }
    }

    /// The same failure, saying which function and task it belongs to.
    pub fn at(mut self, function: &str, task: TaskId) -> Self {
        self.function = function.to_owned();
        self.task = Some(task);
        self
    }

    /// The same failure, saying which function and task it belongs to unless it says so already.
    pub fn or_at(self, function: &str, task: TaskId) -> Self {
        if self.function.is_empty() { self.at(function, task) } else { Self { task: Some(task), ..self } }
    }

    /// The failure of a task whose input `object` failed with `cause`.
    pub fn of_input(object: ObjectId, cause: Failure) -> Self {
        let mut failure = Self::new(FailureKind::InputFailed, format!("its input {object} failed"));
        // A long chain of tasks fails as one: what is at its end counts.
        let cause = if cause.depth() < CAUSES_MAX { cause } else { cause.root_cause().clone() };
        failure.cause = Some(Box::new((object, cause)));
        failure
    }

    /// How many causes there are behind it.
    fn depth(&self) -> usize {
        std::iter::successors(Some(self), |failure| failure.cause.as_ref().map(|cause| &cause.1)).count() - 1
    }

    /// The first failure in the chain of causes.
    pub fn root_cause(&self) -> &Failure {
        let mut failure = self;
        while let Some(cause) = &failure.cause {
            failure = &cause.1;
        }
        failure
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.function.is_empty() {
            write!(f, "{}: ", self.function)?;
        }
        write!(f, "{}", self.message)?;
        if let FailureKind::Panicked { location: Some(location) } = &self.kind {
            write!(f, " (at {location})")?;
        }
        if let Some(cause) = &self.cause {
            write!(f, "\n  caused by: {}", cause.1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_kills_are_told_from_those_of_others() {
        let cause = DeathCause { pid: 7, signal: Some(9), ..DeathCause::default() };
        assert!(cause.to_string().contains("killed by signal 9"));
        let cause = DeathCause { out_of_memory: true, ..cause };
        assert!(cause.to_string().contains("ran out of memory"), "{cause}");
    }

    #[test]
    fn a_long_chain_of_causes_is_cut_and_keeps_its_root() {
        let mut failure = Failure::new(FailureKind::Cancelled, "the root");
        for _ in 0..100_000 {
            failure = Failure::of_input(ObjectId::default(), failure);
        }
        assert!(failure.depth() <= CAUSES_MAX + 1);
        assert_eq!(failure.root_cause().message, "the root");
    }
}
