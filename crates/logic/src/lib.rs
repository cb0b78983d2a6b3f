//! Every decision of Aktis, in deterministic machines: no clock, no thread, no socket, no random hashing.
//!
//! A machine takes inputs (past events) and gives effects (orders). Production shells and the virtual
//! cluster run the same machines.

pub mod directory;
pub mod estimate;
pub mod extents;
pub mod lease_pool;
pub mod ledger;
pub mod machine;
pub mod membership;
pub mod planted;
pub mod slab;

/// A point in time, in microseconds since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// One link between a node and the control process, as the shell numbers it. A number is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// What a machine orders, in order.
pub type Effects<E> = Vec<E>;

/// A deterministic state machine.
pub trait Machine {
    /// Past events, as a closed enum.
    type Input;
    /// Orders, as a closed enum.
    type Effect;
    /// Takes one event, and appends orders.
    fn step(&mut self, now: Time, input: Self::Input, out: &mut Effects<Self::Effect>);
    /// When the machine wants a tick, if nothing else happens before.
    fn next_wakeup(&self) -> Option<Time>;
    /// Panics if an invariant is broken. Run after every simulated step.
    fn check(&self);
}
