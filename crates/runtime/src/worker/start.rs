//! What the program wants to be done in each worker process before its first task.
//!
//! A hook that fails is not tried again: the worker stays, and fails whatever it is given with the hook's error. A process
//! that ended instead would be started again and again, and no caller would learn why.

use crate::registry::WORKER_STARTS;
use crate::worker::run::{catch, install_panic_hook};
use aktis_protocol::{Failure, FailureKind};
use std::sync::OnceLock;

/// Why this worker cannot run anything.
static REFUSAL: OnceLock<Failure> = OnceLock::new();

/// Runs the hooks of the program, then gives it a logger if it has none.
pub(super) fn run_hooks() {
    install_panic_hook();
    for hook in WORKER_STARTS {
        if let Err(failure) = catch(|| (hook.run)().map_err(refusal)) {
            let failure = refusal(format!("{}: {failure}", hook.name));
            eprintln!("aktis: {failure}");
            let _ = REFUSAL.set(failure);
            break;
        }
    }
    // A hook may have set a panic hook of its own: it is called for panics outside of tasks.
    install_panic_hook();
    #[cfg(any(feature = "log", feature = "tracing"))]
    super::logging::install();
}

fn refusal(reason: String) -> Failure {
    Failure::new(FailureKind::Environment, reason)
}

/// Fails if this worker cannot run anything.
#[inline]
pub(super) fn check() -> Result<(), Failure> {
    match REFUSAL.get() {
        None => Ok(()),
        Some(failure) => Err(refused(failure)),
    }
}

#[cold]
fn refused(failure: &Failure) -> Failure {
    let message = format!(
        "the worker process could not start: {}\nhint: `#[on_worker_start]` runs once in each worker process, and is not \
         tried again",
        failure.message
    );
    Failure { message, pid: Some(std::process::id()), ..failure.clone() }
}
