//! What the processes of one virtual node share: its machine, the lane of the driver's tasks, the tasks and calls of other
//! nodes that run here, and the channel of the driver.

use crate::port::{Run as ForeignRun, SharedMemory};
use crate::world::{DRIVER, World};
use aktis_logic::machine::remote_node::{Claimed, SubmitError};
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::{Message, TaskHeader};
use aktis_protocol::{ActorId, LaneId, LeaseId, ProcessSlot, ProgramId, Shape, ShapeId, TaskId, TaskKey};
use std::collections::{BTreeMap, VecDeque};

/// The shape of all tasks.
pub(super) const SHAPE: ShapeId = ShapeId(1);
/// How many messages the driver's channel holds: few, so that messages have to wait.
const CHANNEL_MESSAGES: usize = 3;

/// A task that the driver has submitted, and no process has claimed.
#[derive(Clone, Debug)]
pub(super) struct LaneTask {
    pub(super) key: TaskKey,
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) arguments: Vec<u8>,
}

/// A task or call of another node that runs here.
pub(super) type Run = ForeignRun<Memory>;

/// See the module.
pub(super) struct Memory {
    pub(super) world: World,
    pub(super) lane: VecDeque<LaneTask>,
    /// Which attempts of tasks the processes say that they have.
    pub(super) cells: BTreeMap<(ProcessSlot, usize), (TaskKey, u32)>,
    pub(super) runs: Vec<Run>,
    /// Messages to the driver.
    pub(super) channel: VecDeque<(ProcessSlot, Message, Vec<u8>)>,
    /// Leases that were granted and not returned.
    pub(super) leases: BTreeMap<LeaseId, ProcessSlot>,
    /// Whether tasks of other nodes find no queue.
    pub(super) no_queue: bool,
    /// Whether the node has the program.
    pub(super) has_program: bool,
    /// Programs that are being added, and the proxies that wait for that.
    pub(super) adding: Vec<(ProcessSlot, ProgramId)>,
    /// Actors that the driver has looked for, and holds from now on.
    pub(super) found: Vec<ActorId>,
    last_key: u32,
    last_lease: u64,
}

impl Memory {
    pub(super) fn new(world: World, has_program: bool) -> Self {
        Self {
            world,
            lane: VecDeque::new(),
            cells: BTreeMap::new(),
            runs: Vec::new(),
            channel: VecDeque::new(),
            leases: BTreeMap::new(),
            no_queue: false,
            has_program,
            adding: Vec::new(),
            found: Vec::new(),
            last_key: 0,
            last_lease: 0,
        }
    }

    pub(super) fn key(&mut self) -> TaskKey {
        self.last_key += 1;
        TaskKey { index: self.last_key, generation: 0 }
    }

    /// A lease for a proxy.
    pub(super) fn grant(&mut self, to: ProcessSlot) -> LeaseId {
        self.last_lease += 1;
        self.leases.insert(LeaseId(self.last_lease), to);
        LeaseId(self.last_lease)
    }

    /// Whether the driver's channel has no room.
    fn is_channel_full(&self) -> bool {
        self.channel.len() >= CHANNEL_MESSAGES
    }
}

impl SharedMemory for Memory {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Leases are granted by the test, and go back to it.
    fn send(&mut self, from: ProcessSlot, message: ToNode) {
        if !self.world.is_running(from) {
            return;
        }
        match message {
            ToNode::LeaseReturned { lease } => {
                assert_eq!(self.leases.remove(&lease), Some(from), "{lease:?} is returned once");
            }
            message => self.world.send(from, message),
        }
    }

    fn is_full(&self, to: ProcessSlot) -> bool {
        assert_eq!(to, DRIVER, "tasks and calls are those of the driver");
        self.is_channel_full()
    }

    fn push(&mut self, from: ProcessSlot, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        let has_room = !self.is_full(to);
        if has_room {
            self.channel.push_back((from, *message, payload.to_vec()));
        }
        has_room
    }

    fn claim(&mut self, proxy: ProcessSlot, shape: ShapeId, cell: Option<usize>) -> Option<Claimed> {
        assert_eq!(shape, SHAPE, "there is one");
        let LaneTask { key, task, attempt, arguments } = self.lane.pop_front()?;
        if let Some(cell) = cell {
            self.cells.insert((proxy, cell), (key, attempt));
        }
        let header = TaskHeader { key, task, attempt, returns: 1, ..super::site::task_header() };
        Some(Claimed { submitter: DRIVER, header, arguments })
    }

    fn clear_cell(&mut self, proxy: ProcessSlot, cell: usize) {
        self.cells.remove(&(proxy, cell));
    }

    fn queue_for(&mut self, _proxy: ProcessSlot, _shape: &Shape) -> Result<LaneId, SubmitError> {
        if self.no_queue { Err(SubmitError::NoQueue) } else { Ok(LaneId(0)) }
    }

    fn add_run(&mut self, mut run: Run) -> TaskKey {
        run.key = self.key();
        let key = run.key;
        self.runs.push(run);
        key
    }

    fn runs(&mut self) -> &mut Vec<Run> {
        &mut self.runs
    }

    fn on_actor_found(&mut self, actor: ActorId) {
        self.send(DRIVER, ToNode::ActorHeld { actor });
        self.found.push(actor);
    }

    fn has_program(&self) -> bool {
        self.has_program
    }

    fn add_program(&mut self, proxy: ProcessSlot, program: ProgramId) {
        self.adding.push((proxy, program));
    }
}
