//! Bugs that a test can plant into a machine, in order to see that seeds of the virtual cluster find them.
//!
//! A build without debug assertions has none of them. Those of the proxy are in [`crate::machine::remote_node`].

/// The bug that a machine has, if a test has planted one.
#[derive(Clone, Copy, Debug)]
pub struct Planted<B>(Option<B>);

impl<B> Default for Planted<B> {
    fn default() -> Self {
        Self(None)
    }
}

impl<B: Copy + PartialEq> Planted<B> {
    /// The machine decides wrongly from now on.
    pub fn plant(&mut self, bug: Option<B>) {
        self.0 = bug;
    }

    /// Whether the machine has this bug.
    pub(crate) fn has(&self, bug: B) -> bool {
        cfg!(debug_assertions) && self.0 == Some(bug)
    }
}

/// A wrong decision of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeBug {
    /// Does not take back the resources of a lease that a worker returns.
    LeakedLease,
    /// Forgets which references a value contains, so that the node frees these objects.
    UnheldContents,
    /// Does not tell the waiters of an object that the process which was to make it is dead.
    SilentOwner,
}

/// A wrong decision of the control process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadBug {
    /// Accepts messages over a link that was replaced, or has never joined.
    StaleLink,
    /// Answers a claim of a name that a later claim has overtaken.
    OvertakenClaim,
    /// Keeps names that a node does not tell any more when it joins again.
    KeptNames,
}

/// A wrong decision of the placer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacerBug {
    /// Accepts messages of a node's earlier membership.
    StaleEpoch,
    /// Forgets that a node has returned what was set aside for a group.
    LostReturn,
}

/// A wrong decision of a shard of the control store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardBug {
    /// Answers before the change is on disk.
    EarlyAnswer,
    /// Makes a repeated batch once more.
    RepeatedBatch,
    /// Accepts a batch of a membership that is over.
    StaleEpoch,
}

/// A wrong decision of a submitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitterBug {
    /// Sends the calls of a restarted actor again in reverse order.
    ReversedCalls,
    /// Takes the loss of an earlier attempt for that of the present one.
    StaleAttempt,
}
