//! References that outlive the Python objects that held them.

use aktis_runtime::Handle;
use parking_lot::Mutex;

/// Kept until their session ends.
static KEPT: Mutex<Vec<Handle>> = Mutex::new(Vec::new());
/// Functions whose tasks may still be fetched by workers.
static FUNCTIONS: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

/// Keeps a reference until its session ends: somebody may still ask for it by its id.
pub(crate) fn keep(handle: Handle) {
    let mut kept = KEPT.lock();
    let over = sweep(&mut kept, |handle| handle.runtime().is_none_or(|runtime| runtime.is_closed()));
    kept.push(handle);
    drop(kept);
    drop(over);
}

/// Keeps a function while calls of it may be under way.
pub(crate) fn keep_function(handle: Handle) {
    let mut functions = FUNCTIONS.lock();
    let over = sweep(&mut functions, |handle| {
        handle
            .runtime()
            .is_none_or(|runtime| runtime.is_closed() || runtime.statistics().unfinished_tasks == 0)
    });
    functions.push(handle);
    drop(functions);
    drop(over);
}

/// Takes out what is over: it is dropped when no lock is held.
fn sweep(kept: &mut Vec<Handle>, over: impl Fn(&Handle) -> bool) -> Vec<Handle> {
    // Looking costs: it is worth it each time the list has doubled.
    if kept.len() < 16 || !kept.len().is_power_of_two() {
        return Vec::new();
    }
    kept.extract_if(.., |handle| over(handle)).collect()
}
