//! Why something did not give a value: the failure that takes the place of a task's result.

use crate::ids::{ActorId, ObjectId, TaskId};
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
    /// Whether it ran one task at a time, or one actor, and nothing else.
    pub isolated: bool,
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
    /// The actor died with its process. The number of restarts that it was given, all used up; `None` if only the call was
    /// lost, and the actor may live again.
    ActorCrashed(Option<u32>),
    /// The function returned the failure of a task or actor that it had waited for, which is the cause. So many that passed
    /// it on before are left out between the two.
    PassedOn(u32),
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
/// Functions that passed a failure on and are kept: the last ones, and the first ones.
const PASSED_ON_LAST: usize = 3;
const PASSED_ON_FIRST: usize = 2;

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
    /// The actor whose call failed, if the actor is the reason.
    pub actor: Option<ActorId>,
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
            actor: None,
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

    /// The same failure, saying which actor it is about.
    pub fn of_actor(mut self, actor: ActorId) -> Self {
        self.actor = Some(actor);
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

    /// The failure of calls of an actor whose constructor failed with `cause`.
    pub fn not_constructed(object: ObjectId, cause: Failure) -> Self {
        let mut failure = Self::new(FailureKind::ActorDied, "its actor could not be constructed");
        failure.cause = Some(Box::new((object, cause)));
        failure
    }

    /// The failure of a function that returned `cause`, which it had got from a task or actor.
    pub fn passed_on(cause: Failure) -> Self {
        let text = "it passed on the failure of a task or actor that it had waited for";
        let mut failure = Self::new(FailureKind::PassedOn(0), text);
        let object = cause.task.map_or_else(ObjectId::default, |task| task.returns(0));
        failure.cause = Some(Box::new((object, cause)));
        failure.shorten();
        failure
    }

    /// Leaves out one in the middle, if too many functions have passed the failure on.
    fn shorten(&mut self) {
        let passed = self.chain().take_while(|failure| matches!(failure.kind, FailureKind::PassedOn(_)));
        if passed.count() <= PASSED_ON_LAST + PASSED_ON_FIRST {
            return;
        }
        let mut last = self;
        for _ in 1..PASSED_ON_LAST {
            last = &mut last.cause.as_mut().expect("they were counted").1;
        }
        let (_, dropped) = *last.cause.take().expect("they were counted");
        if let (FailureKind::PassedOn(omitted), FailureKind::PassedOn(before)) =
            (&mut last.kind, dropped.kind)
        {
            *omitted += before + 1;
        }
        last.cause = dropped.cause;
    }

    /// The failure and its causes, one behind the other.
    fn chain(&self) -> impl Iterator<Item = &Failure> {
        std::iter::successors(Some(self), |failure| failure.cause.as_ref().map(|cause| &cause.1))
    }

    /// How many causes there are behind it.
    fn depth(&self) -> usize {
        self.chain().count() - 1
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
        self.write_own(f)?;
        let mut before = self;
        for failure in self.chain().skip(1) {
            if let FailureKind::PassedOn(omitted @ 1..) = before.kind {
                write!(f, "\n  ... {omitted} more ...")?;
            }
            match (&before.kind, &failure.kind) {
                (FailureKind::PassedOn(_), FailureKind::PassedOn(_)) => {
                    write!(f, "\n  through: {}", failure.function)?
                }
                _ => {
                    f.write_str("\n  caused by: ")?;
                    failure.write_own(f)?;
                }
            }
            before = failure;
        }
        Ok(())
    }
}

impl Failure {
    /// What is said about it alone, without its causes.
    fn write_own(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.function.is_empty() {
            write!(f, "{}: ", self.function)?;
        }
        match &self.kind {
            FailureKind::Panicked { location: Some(location) } => {
                write!(f, "it panicked: {} (at {location})", self.message)
            }
            FailureKind::Panicked { location: None } => write!(f, "it panicked: {}", self.message),
            _ => f.write_str(&self.message),
        }
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

    #[test]
    fn a_failure_that_many_passed_on_shows_the_ends_and_a_count() {
        let mut failure =
            Failure::new(FailureKind::Panicked { location: None }, "boom").at("root", TaskId::default());
        for level in 0..511 {
            failure = Failure::passed_on(failure).at(&format!("f{level}"), TaskId::default());
        }
        let text = failure.to_string();
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "f510: it passed on the failure of a task or actor that it had waited for",
            "  through: f509",
            "  through: f508",
            "  ... 506 more ...",
            "  through: f1",
            "  through: f0",
            "  caused by: root: it panicked: boom",
        ];
        assert_eq!(lines, expected);
    }
}
