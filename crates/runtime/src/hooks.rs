//! What a language on top of the runtime wants to be told; a program without one sets none of it.

use std::sync::OnceLock;
use std::time::Duration;

/// Functions that the runtime calls, on any thread and with no lock held. None of them may block for long, if nothing else
/// is said.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// A thread has been waiting for a while. True if it shall give up: the wait then fails with
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub interrupted: fn() -> bool,
    /// The task or call that this worker runs on its main thread was cancelled.
    pub cancelled: fn(),
    /// The main thread of a worker has nothing to do and is about to sleep.
    pub idle: fn(),
    /// The actor of this worker wants its calls to run on an event loop: the main thread runs it from now on, and calls
    /// [`Runtime::turn`](crate::Runtime::turn) again and again. It does not return.
    pub run_loop: fn(),
    /// The node has told this worker to end, which it does next. User code may be running.
    pub shut_down: fn(),
    /// The actor of this worker ended by itself, and its process is about to.
    pub exits: fn(),
    /// A further thread of this worker is about to run its first call: runs what is passed, which does not return. What
    /// the thread needs for calls can be made once, instead of for each.
    pub thread: fn(&mut (dyn FnMut() + Send)),
    /// Calls of an actor that take less than this on average are run by one thread, though more may run at the same time.
    pub brief: Duration,
    /// A thread of user code is about to wait for what it calls: others may run meanwhile.
    pub blocking: fn(&mut (dyn FnMut() + Send)),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks of this process; the first call counts.
pub fn set(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

/// Whether the calling thread, which has been waiting for a while, shall give up.
pub(crate) fn interrupted() -> bool {
    get().is_some_and(|hooks| (hooks.interrupted)())
}

/// Does something that may take long, for a thread of user code.
pub(crate) fn blocking<R: Send>(wait: impl FnOnce() -> R + Send) -> R {
    let Some(hooks) = get() else { return wait() };
    let (mut wait, mut result) = (Some(wait), None);
    (hooks.blocking)(&mut || result = wait.take().map(|wait| wait()));
    result.expect("the hook calls what it is given")
}

/// The hooks, if there are any.
#[inline]
pub(crate) fn get() -> Option<&'static Hooks> {
    HOOKS.get()
}
