//! Whether a member that waits goes on waiting.

use crate::operation::Operation;
use std::time::{Duration, Instant};

/// How an operation is bounded.
pub(crate) struct Guard<'a> {
    pub(crate) operation: Operation,
    pub(crate) began: Instant,
    pub(crate) timeout: Duration,
    pub(crate) interrupted: &'a (dyn Fn() -> bool + Send + Sync),
}

impl Guard<'_> {
    /// Whether the time is over.
    pub(crate) fn is_late(&self) -> bool {
        self.began.elapsed() >= self.timeout
    }
}
