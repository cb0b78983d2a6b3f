//! The Tokio runtime of a worker process, which asynchronous methods find around them.

use std::sync::LazyLock;
use tokio::runtime::{Builder, EnterGuard, Handle};

/// Nothing if there are no resources for a thread or its poll; then Tokio itself says that it is missing.
static RUNTIME: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    // The methods are polled by the worker's threads. This one drives timers, sockets and what methods spawn.
    let drive = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("aktis-tokio".into()).spawn(drive).ok()?;
    Some(handle)
});

/// Makes the runtime that of this thread, until the guard goes. The first call starts the runtime.
pub(super) fn enter() -> Option<EnterGuard<'static>> {
    RUNTIME.as_ref().map(Handle::enter)
}
