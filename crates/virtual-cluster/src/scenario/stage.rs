//! Where a story takes place: a world, the names used in the story, and what every process was told.

use crate::world::{DRIVER, Worker, World, killed};
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{FromNode, RequestId, ToNode};
use aktis_protocol::{
    ActorId, DeathCause, EntryRef, GroupId, LaneId, LeaseId, ObjectId, ProcessSlot, ProgramId, SessionId,
};
use aktis_protocol::{ShapeId, TaskId};
use std::collections::BTreeMap;

/// The stage of one story.
#[derive(Default)]
pub(super) struct Stage {
    pub(super) world: Option<World>,
    /// Everything that each process was told since it began, in order.
    pub(super) told: BTreeMap<ProcessSlot, Vec<FromNode>>,
    /// Leases that each process holds.
    pub(super) leases: BTreeMap<ProcessSlot, Vec<(LeaseId, ShapeId)>>,
    /// Drivers and other nodes that have attached, by name.
    pub(super) guests: BTreeMap<String, ProcessSlot>,
    pub(super) lanes: BTreeMap<String, LaneId>,
    /// The last entry granted for each object.
    pub(super) entries: BTreeMap<ObjectId, EntryRef>,
    /// Which object each request was about, and what was answered.
    pub(super) requests: BTreeMap<RequestId, ObjectId>,
    pub(super) answers: BTreeMap<ObjectId, Vec<FromNode>>,
    /// Deaths are not dealt with by themselves.
    pub(super) deaths_unhandled: bool,
    /// Copies to and from disk do not end by themselves.
    pub(super) disk_stopped: bool,
}

impl Stage {
    pub(super) fn world(&mut self) -> Result<&mut World, String> {
        self.world.as_mut().ok_or_else(|| "a story begins with `node`".to_owned())
    }

    /// The process with this name that runs now.
    pub(super) fn process(&mut self, name: &str) -> Result<ProcessSlot, String> {
        if let Some(&guest) = self.guests.get(name) {
            return Ok(guest);
        }
        let world = self.world()?;
        let (name, program) = name.split_once(':').map_or((name, None), |(name, of)| (name, Some(of)));
        let program = program.map(Self::program);
        let youngest = |kind: WorkerKind| {
            let alike = |worker: &Worker| {
                worker.running
                    && worker.kind == Some(kind)
                    && (program.is_none() || worker.program == program)
            };
            world.workers.iter().rfind(|(_, worker)| alike(worker)).map(|(&slot, _)| slot)
        };
        let found = match name {
            "driver" => Some(DRIVER),
            "worker" => youngest(WorkerKind::Shared),
            "isolated" => youngest(WorkerKind::Isolated),
            _ => name.strip_prefix('p').and_then(|number| number.parse().ok()).map(ProcessSlot),
        };
        found.ok_or_else(|| format!("there is no process {name:?} now"))
    }

    /// The id that a name in the story stands for.
    pub(super) fn object(name: &str) -> ObjectId {
        task(name).returns(0)
    }

    pub(super) fn actor(name: &str) -> ActorId {
        ActorId::created_by(task(name))
    }

    pub(super) fn group(name: &str) -> GroupId {
        GroupId::created_by(task(name))
    }

    /// The program with this name; an empty one is that of the driver which the node lives in.
    pub(super) fn program(name: &str) -> ProgramId {
        let number = name.bytes().fold(0, |number: u64, byte| number.wrapping_mul(257) + u64::from(byte));
        ProgramId::from_words([0, number])
    }

    pub(super) fn lane(&self, name: &str) -> Result<LaneId, String> {
        self.lanes.get(name).copied().ok_or_else(|| format!("there is no lane {name:?}"))
    }

    pub(super) fn shape(&mut self, name: &str) -> Result<ShapeId, String> {
        let lane = self.lane(name)?;
        let lanes = &self.world()?.lanes;
        lanes.get(&lane).map(|(_, shape)| *shape).ok_or_else(|| format!("the lane {name:?} is closed"))
    }

    pub(super) fn entry(&self, name: &str) -> Result<EntryRef, String> {
        let entry = self.entries.get(&Self::object(name));
        entry.copied().ok_or_else(|| format!("nobody was granted space for {name:?}"))
    }

    /// A process sends something, and all that follows from it happens.
    pub(super) fn send(&mut self, from: ProcessSlot, message: ToNode) -> Result<(), String> {
        let world = self.world()?;
        if !world.is_running(from) {
            return Err(format!("process {from} does not run"));
        }
        world.send(from, message);
        self.settle()
    }

    /// A request about an object: its answer is kept under the object's name.
    pub(super) fn request(&mut self, object: ObjectId) -> RequestId {
        let request = self.requests.len() as RequestId + 1;
        self.requests.insert(request, object);
        request
    }

    /// Everything that can happen without time passing does.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        loop {
            while self.world()?.arrive() {}
            for process in self.world()?.running() {
                while let Some(message) = self.world()?.read(process) {
                    self.on_message(process, message)?;
                }
            }
            let stopped = self.disk_stopped;
            let world = self.world()?;
            if world.unseen() == 0 && (stopped || !world.finish_io()) {
                return Ok(());
            }
        }
    }

    fn on_message(&mut self, process: ProcessSlot, message: FromNode) -> Result<(), String> {
        match &message {
            FromNode::ProcessDied { process: dead, .. } if !self.deaths_unhandled => {
                let dead = *dead;
                self.world()?.send(process, ToNode::DeathHandled { process: dead });
            }
            FromNode::LaneRemoved { lane, .. } => {
                let lane = *lane;
                self.world()?.send(process, ToNode::LaneForgotten { lane });
            }
            FromNode::LeaseGranted { lease } => {
                self.leases.entry(process).or_default().push((lease.lease, lease.shape));
            }
            FromNode::ExtentGranted { request, entry } => {
                if let Some(object) = self.requests.get(request) {
                    self.entries.insert(*object, *entry);
                }
            }
            // A guest lives on after it has left.
            FromNode::Shutdown if self.world()?.left.contains(&process) => {}
            FromNode::Shutdown => self.world()?.kill(process, exited(process)),
            _ => {}
        }
        if let FromNode::ExtentGranted { request, .. }
        | FromNode::ExtentDenied { request, .. }
        | FromNode::Restored { request, .. } = &message
            && let Some(object) = self.requests.get(request)
        {
            self.answers.entry(*object).or_default().push(message.clone());
        }
        self.told.entry(process).or_default().push(message);
        Ok(())
    }

    /// A process dies; what it was told is forgotten with it.
    pub(super) fn kill(&mut self, process: ProcessSlot) -> Result<(), String> {
        self.told.remove(&process);
        self.leases.remove(&process);
        self.world()?.kill(process, killed(process));
        self.settle()
    }
}

fn task(name: &str) -> TaskId {
    let number = name.bytes().fold(0, |number: u64, byte| number.wrapping_mul(257) + u64::from(byte));
    TaskId::root(SessionId(1)).child(number)
}

fn exited(process: ProcessSlot) -> DeathCause {
    DeathCause { pid: 1000 + process.0, exit_code: Some(0), ..DeathCause::default() }
}
