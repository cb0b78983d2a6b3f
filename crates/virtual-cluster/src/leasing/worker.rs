//! One worker: its lease pool, and the tasks that its threads run.

use crate::random::Random;
use aktis_logic::lease_pool::{HeldLease, LeasePool, Waiting};
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{LeaseId, ShapeId};

/// How long an isolated worker keeps a lease that it does not use.
const IDLE_LEASE_MICROSECONDS: u64 = 200_000;

/// A task that a thread runs.
struct Task {
    shape: ShapeId,
    /// None if it goes on without one after it has waited, or waits and others use it.
    held: Option<HeldLease>,
    /// When it waits for another one, and until when.
    wait: Option<(u64, u64)>,
    is_waiting: bool,
    /// Whether its lease was for it only, and is back at the node.
    is_used_up: bool,
    /// None if it never ends.
    ends_at: Option<u64>,
}

/// A worker that has started.
pub(super) struct Worker {
    kind: WorkerKind,
    pool: LeasePool,
    tasks: Vec<Task>,
    idle_since: Option<u64>,
}

impl Worker {
    pub(super) fn new(kind: WorkerKind) -> Self {
        Self { kind, pool: LeasePool::default(), tasks: Vec::new(), idle_since: None }
    }

    /// The shapes of its tasks, and whether they wait.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (ShapeId, bool)> {
        self.tasks.iter().map(|task| (task.shape, task.is_waiting))
    }

    /// How many of its tasks never end.
    pub(super) fn stuck(&self) -> usize {
        self.tasks.iter().filter(|task| task.ends_at.is_none()).count()
    }

    pub(super) fn check(&self) {
        self.pool.check();
    }

    /// Whether the message grants a lease of which the node wants one back.
    pub(super) fn is_crossed_by(&self, message: &FromNode) -> bool {
        matches!(message, FromNode::LeaseGranted { lease } if self.pool.is_wanted(lease.shape))
    }

    /// What it answers the node.
    pub(super) fn on_message(&mut self, message: FromNode) -> Option<ToNode> {
        match message {
            FromNode::LeaseGranted { lease } => returned(self.pool.grant(lease)),
            FromNode::LeaseRevoked { shape } => returned(self.pool.revoke(shape)),
            _ => None,
        }
    }

    /// Shapes of which a thread may begin a task.
    pub(super) fn idle_shapes(&self) -> Vec<ShapeId> {
        match self.kind == WorkerKind::Isolated && !self.tasks.is_empty() {
            true => Vec::new(),
            false => self.pool.idle_shapes().collect(),
        }
    }

    /// A thread begins a task.
    pub(super) fn begin(
        &mut self,
        now: u64,
        shape: ShapeId,
        endless: bool,
        waits: bool,
        random: &mut Random,
    ) {
        let held = self.pool.take(shape);
        assert!(held.is_some(), "a lease of {shape} is idle");
        let longest = if random.chance(20) { 300_000 } else { 3_000 };
        let length = 1 + random.below(longest);
        let wait_from = now + random.below(length);
        let wait = (waits && !endless).then(|| (wait_from, wait_from + random.below(50_000)));
        let ends_at = (!endless).then(|| wait.map_or(now, |(_, until)| until) + length);
        self.tasks.push(Task { shape, held, wait, is_waiting: false, is_used_up: false, ends_at });
        self.idle_since = None;
    }

    /// Tasks wait, go on and end, also those that never do if all are to `end`. Gives what it tells the node.
    pub(super) fn go_on(&mut self, now: u64, end: bool) -> Vec<ToNode> {
        let mut sent = Vec::new();
        let isolated = self.kind == WorkerKind::Isolated;
        for task in &mut self.tasks {
            match task.wait {
                Some((from, until)) if !task.is_waiting && now >= from && now < until => {
                    task.is_waiting = true;
                    match task.held.as_ref().map(|held| held.while_waiting(isolated)) {
                        Some(Waiting::PutBack) => {
                            let held = task.held.take().expect("it has one");
                            sent.extend(returned(self.pool.put(held)));
                        }
                        Some(Waiting::UseUp) => {
                            let held = task.held.take().expect("it has one");
                            task.is_used_up = true;
                            sent.extend(returned(Some(self.pool.use_up(&held))));
                        }
                        Some(Waiting::LendCpu) => sent.extend(blocked(task, true)),
                        None => {}
                    }
                }
                Some((_, until)) if task.is_waiting && now >= until => {
                    task.is_waiting = false;
                    task.wait = None;
                    match task.held {
                        Some(_) => sent.extend(blocked(task, false)),
                        None if task.is_used_up => {}
                        None => task.held = self.pool.take(task.shape),
                    }
                }
                _ => {}
            }
        }
        let is_over = |task: &mut Task| !task.is_waiting && task.ends_at.map_or(end, |at| now >= at);
        for task in self.tasks.extract_if(.., is_over) {
            let back = task.held.and_then(|held| match held.once {
                true => Some(self.pool.use_up(&held)),
                false => self.pool.put(held),
            });
            sent.extend(returned(back));
        }
        sent
    }

    /// An isolated worker that has had nothing to do for a while gives its leases back.
    pub(super) fn return_idle(&mut self, now: u64) -> Vec<ToNode> {
        if self.kind == WorkerKind::Shared
            || !self.tasks.is_empty()
            || self.pool.idle_shapes().next().is_none()
        {
            self.idle_since = None;
            return Vec::new();
        }
        if now - *self.idle_since.get_or_insert(now) < IDLE_LEASE_MICROSECONDS {
            return Vec::new();
        }
        self.pool.take_all().into_iter().filter_map(|held| returned(Some(held.lease))).collect()
    }
}

fn returned(lease: Option<LeaseId>) -> Option<ToNode> {
    lease.map(|lease| ToNode::LeaseReturned { lease })
}

fn blocked(task: &Task, blocked: bool) -> Option<ToNode> {
    task.held.as_ref().map(|held| ToNode::LeaseBlocked { lease: held.lease, blocked })
}
