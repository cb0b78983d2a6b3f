//! One task or actor call, as the oracle sees it.

use aktis_logic::machine::submitter::Route;
use aktis_protocol::{ObjectId, TaskId, TaskKey};

/// What the machine carries for a task: the errand's number. It cannot be copied: each comes out once.
#[derive(Debug)]
pub(super) struct Ticket(pub(super) usize);

/// What became of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has neither values nor a failure.
    Open,
    /// It has its values.
    Value,
    /// It has a failure.
    Failed,
}

/// An input of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A return of another errand.
    Errand(usize, u32),
    /// An object made elsewhere.
    Thing(ObjectId),
}

impl Need {
    /// Whether it is a return of this errand.
    pub(super) fn is_of(&self, number: usize) -> bool {
        matches!(self, Self::Errand(other, _) if *other == number)
    }
}

/// What a program asks for.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) task: TaskId,
    pub(super) route: Route,
    pub(super) returns: u32,
    pub(super) retries: u32,
    pub(super) bytes: u32,
    pub(super) needs: Vec<Need>,
}

/// An order on its way, and what is left of it afterwards.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) order: Order,
    pub(super) key: TaskKey,
    pub(super) fate: Fate,
    /// Its position in the lane, while it is sent.
    pub(super) sent: Option<u64>,
    /// Whether a thread of its own process runs it.
    pub(super) taken: bool,
    /// How often it was sent or taken.
    pub(super) runs: u32,
    /// How many returns of this run have arrived.
    pub(super) arrived: u32,
    /// How many returns are referenced.
    pub(super) handles: u32,
    /// Whether the machine has the ticket.
    pub(super) ticket: bool,
    /// The inputs that it waits for.
    pub(super) awaits: Vec<Need>,
}

impl Errand {
    pub(super) fn new(order: Order, key: TaskKey, awaits: Vec<Need>) -> Self {
        let handles = order.returns;
        let (fate, sent, taken) = (Fate::Open, None, false);
        Self { order, key, fate, sent, taken, runs: 0, arrived: 0, handles, ticket: true, awaits }
    }

    pub(super) fn is_open(&self) -> bool {
        self.fate == Fate::Open
    }

    /// Whether it is sent or taken.
    pub(super) fn is_under_way(&self) -> bool {
        self.sent.is_some() || self.taken
    }

    /// Whether it may run once more after the runs it had.
    pub(super) fn may_run_again(&self) -> bool {
        self.runs <= self.order.retries
    }

    pub(super) fn needs_errand(&self, number: usize) -> bool {
        self.order.needs.iter().any(|need| need.is_of(number))
    }

    /// How often a finished one was tried: a try that was to come, when an answer came late, counts.
    pub(super) fn tries(&self) -> u32 {
        self.runs + u32::from(!self.is_under_way())
    }

    /// It is to run again, once these inputs are there.
    pub(super) fn begin_again(&mut self, awaits: Vec<Need>) {
        self.runs = self.tries();
        (self.fate, self.sent, self.taken, self.arrived) = (Fate::Open, None, false, 0);
        self.awaits = awaits;
    }
}
