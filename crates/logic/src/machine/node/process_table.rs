//! The places for processes, and what is in each of them.
//!
//! Invariants:
//! 1. Place 0 is that of the process which the node lives in, a driver or a daemon. It is always alive.
//! 2. A place is used again only after every process that was alive at a death has dealt with it: until
//!    then, its number still means the dead process to somebody.
//!    A guest that has left has to let go of shared memory itself.
//! 3. At most one shared worker of a program starts or lives at a time.

use crate::Time;
use aktis_protocol::{ActorId, NodeId, ProcessSlot, ProgramId, ShapeId, limits};
use std::collections::{BTreeMap, BTreeSet};

/// The place of the process that the node lives in.
pub(super) const HOST: ProcessSlot = ProcessSlot(0);

/// Places that only shared workers may take, so that a shared worker can always be started again.
const PLACES_KEPT: usize = 2;

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The node's own process, where that is not a driver.
    Daemon,
    /// A user's program.
    Driver(ProgramId),
    /// Another node, as the process that stands for it here.
    Peer(NodeId),
    /// Runs tasks and actors of a program on many threads.
    Shared(ProgramId),
    /// Runs tasks of one shape, one at a time.
    TaskRunner(ShapeId),
    /// Runs one actor.
    ActorHost(ActorId),
    /// Ran tasks of a shape that is gone, and ends.
    Retired,
}

impl Role {
    /// Whether it is a worker that runs nothing but one thing at a time, and may be killed for that.
    pub(super) fn is_isolated(self) -> bool {
        match self {
            Self::TaskRunner(_) | Self::ActorHost(_) | Self::Retired => true,
            Self::Daemon | Self::Driver(_) | Self::Peer(_) | Self::Shared(_) => false,
        }
    }
}

/// How far a process has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Ordered, and has not said that it is ready.
    Starting,
    /// Takes messages and work.
    Alive,
    /// Told to end; killed at `kill_at` if it has not by then.
    Leaving { kill_at: Time },
    /// Ended; those in `awaiting` have yet to deal with it.
    Dead { awaiting: BTreeSet<ProcessSlot> },
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) role: Role,
    pub(super) stage: Stage,
    pub(super) pid: u32,
    /// The program that it runs, once it takes messages; what it was started for may be gone by now.
    pub(super) job: Option<ProgramId>,
}

impl Process {
    /// Whether it can send and be sent messages.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Alive | Stage::Leaving { .. })
    }

    /// Whether it may still become or be live.
    pub(super) fn is_not_dead(&self) -> bool {
        !matches!(self.stage, Stage::Dead { .. })
    }
}

/// All places in use.
#[derive(Debug)]
pub(super) struct ProcessTable {
    processes: BTreeMap<ProcessSlot, Process>,
}

impl ProcessTable {
    /// A process table with nobody on it but the node's own process, which is a driver of this program or a daemon.
    pub(super) fn new(driver: Option<ProgramId>) -> Self {
        let role = driver.map_or(Role::Daemon, Role::Driver);
        let host = Process { role, stage: Stage::Alive, pid: 0, job: driver };
        Self { processes: BTreeMap::from([(HOST, host)]) }
    }

    pub(super) fn get(&self, slot: ProcessSlot) -> Option<&Process> {
        self.processes.get(&slot)
    }

    pub(super) fn get_mut(&mut self, slot: ProcessSlot) -> Option<&mut Process> {
        self.processes.get_mut(&slot)
    }

    pub(super) fn is_live(&self, slot: ProcessSlot) -> bool {
        self.get(slot).is_some_and(Process::is_live)
    }

    /// Whether it stands for another node.
    pub(super) fn is_peer(&self, slot: ProcessSlot) -> bool {
        self.node_of(slot).is_some()
    }

    /// The other node that it stands for.
    pub(super) fn node_of(&self, slot: ProcessSlot) -> Option<NodeId> {
        match self.get(slot)?.role {
            Role::Peer(node) => Some(node),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessSlot, &Process)> {
        self.processes.iter().map(|(&slot, process)| (slot, process))
    }

    /// All that can be sent messages.
    pub(super) fn live(&self) -> impl Iterator<Item = ProcessSlot> {
        self.iter().filter(|(_, process)| process.is_live()).map(|(slot, _)| slot)
    }

    /// How many drivers of a program there are.
    pub(super) fn drivers(&self, program: ProgramId) -> usize {
        let role = Role::Driver(program);
        self.iter().filter(|(_, process)| process.role == role && process.is_not_dead()).count()
    }

    /// The shared worker of a program, if it takes work.
    pub(super) fn shared(&self, program: ProgramId) -> Option<ProcessSlot> {
        let role = Role::Shared(program);
        let takes_work = |process: &Process| process.role == role && process.stage == Stage::Alive;
        self.iter().find(|(_, process)| takes_work(process)).map(|(slot, _)| slot)
    }

    /// Whether the process was ordered and is not ready yet.
    pub(super) fn is_starting(&self, slot: ProcessSlot) -> bool {
        self.get(slot).is_some_and(|process| process.stage == Stage::Starting)
    }

    /// Workers for this shape that start or live.
    pub(super) fn runners(&self, shape: ShapeId) -> impl Iterator<Item = ProcessSlot> {
        let counts =
            move |process: &Process| process.role == Role::TaskRunner(shape) && process.is_not_dead();
        self.iter().filter(move |(_, process)| counts(process)).map(|(slot, _)| slot)
    }

    /// The shape that these workers are for goes: they run nothing else.
    pub(super) fn retire(&mut self, shape: ShapeId) -> Vec<ProcessSlot> {
        let of_shape: Vec<_> = self.runners(shape).collect();
        for slot in &of_shape {
            self.get_mut(*slot).expect("a runner has a place").role = Role::Retired;
        }
        of_shape
    }

    /// Workers that are being started for tasks, and for which shape.
    pub(super) fn starting_runners(&self) -> impl Iterator<Item = (ProcessSlot, ShapeId)> {
        self.iter().filter_map(|(slot, process)| match process {
            Process { role: Role::TaskRunner(shape), stage: Stage::Starting, .. } => Some((slot, *shape)),
            _ => None,
        })
    }

    /// Takes the lowest free place for a process that is about to be started; `None` if all are taken.
    pub(super) fn add(&mut self, role: Role) -> Option<ProcessSlot> {
        let kept = if let Role::Shared(_) = role { 0 } else { PLACES_KEPT };
        if self.processes.len() + kept >= limits::PROCESSES_MAX {
            return None;
        }
        let slot = (0..).map(ProcessSlot).find(|slot| !self.processes.contains_key(slot))?;
        self.processes.insert(slot, Process { role, stage: Stage::Starting, pid: 0, job: None });
        Some(slot)
    }

    /// Marks a process as dead. Returns those that are to be told, and must deal with it. One that `lingers` must
    /// end, too.
    pub(super) fn bury(&mut self, slot: ProcessSlot, lingers: bool) -> Vec<ProcessSlot> {
        let mourners: Vec<_> = self.live().filter(|&other| other != slot).collect();
        if let Some(process) = self.get_mut(slot) {
            let awaiting = mourners.iter().copied().chain(lingers.then_some(slot)).collect();
            process.stage = Stage::Dead { awaiting };
            process.role = Role::Retired;
        }
        mourners
    }

    /// `by` has dealt with the death of `dead`, or is dead itself. True if nobody else has to.
    pub(super) fn settle(&mut self, dead: ProcessSlot, by: ProcessSlot) -> bool {
        match self.get_mut(dead).map(|process| &mut process.stage) {
            Some(Stage::Dead { awaiting }) => awaiting.remove(&by) && awaiting.is_empty(),
            _ => false,
        }
    }

    /// The dead.
    pub(super) fn dead(&self) -> Vec<ProcessSlot> {
        let dead = |process: &Process| matches!(process.stage, Stage::Dead { .. });
        self.iter().filter(|(_, process)| dead(process)).map(|(slot, _)| slot).collect()
    }

    /// The place may be used again.
    pub(super) fn remove(&mut self, slot: ProcessSlot) {
        self.processes.remove(&slot);
    }

    pub(super) fn check(&self) {
        let host = self.get(HOST).expect("process_table invariant 1");
        assert!(matches!(host.role, Role::Daemon | Role::Driver(_)), "process_table invariant 1");
        assert!(host.stage == Stage::Alive, "process_table invariant 1");
        let mut shared = BTreeSet::new();
        for (slot, process) in self.iter() {
            match &process.stage {
                Stage::Dead { awaiting } => {
                    assert!(!awaiting.is_empty(), "process_table: {slot} should have been freed");
                    assert!(
                        awaiting.iter().all(|&other| other == slot || self.is_live(other)),
                        "process_table: {slot} awaits the dead"
                    );
                }
                _ => {
                    if let Role::Shared(program) = process.role {
                        assert!(shared.insert(program), "process_table invariant 3: {program}");
                    }
                }
            }
        }
        assert!(self.processes.len() <= limits::PROCESSES_MAX);
    }
}
