//! Bugs that a test can plant into a proxy, in order to see that the simulator finds them.
//!
//! The first two were bugs of the product. A release build has none of them.

/// A wrong decision. Each says what the proxy does instead of the right thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Imports the arguments of a task when its program has come, and not when the task has.
    LateImports,
    /// Releases an actor as often as it was imported by now, and not as often as the node has counted.
    ReleaseAllActorImports,
    /// Releases an exported object at the first release, though it was exported again since.
    ReleaseAllExports,
    /// Does not hold the return values of received tasks that were exported before they are given.
    UnheldReturns,
    /// Forgets values that no process wants, and does not release them.
    KeptValues,
    /// Does not tell the submitters of tasks without a cell that the link has ended.
    UnseenTasks,
    /// Drops answers for processes that have no room when the link ends, and tells nothing.
    LostBacklog,
    /// Forgets that the other side waits for a value which is not known yet.
    ForgottenWaiter,
    /// Forgets the calls that were sent to an actor which is away, and does not tell the node.
    SilentAway,
    /// Cancels a task that waits for its program without an answer.
    SilentCancel,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::LateImports,
        Self::ReleaseAllActorImports,
        Self::ReleaseAllExports,
        Self::UnheldReturns,
        Self::KeptValues,
        Self::UnseenTasks,
        Self::LostBacklog,
        Self::ForgottenWaiter,
        Self::SilentAway,
        Self::SilentCancel,
    ];
}
