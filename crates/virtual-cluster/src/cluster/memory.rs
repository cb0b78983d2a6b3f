//! What the processes of one virtual node share: its machine, the lane of the driver's tasks, the tasks and calls of other
//! nodes that run here, and the channel of the driver.

use super::port::{Arguments, Handle, VirtualProcess};
use crate::world::{DRIVER, World};
use aktis_logic::machine::remote_node::Claimed;
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::{Message, TaskHeader};
use aktis_protocol::peer::{PeerCall, Ticket};
use aktis_protocol::{ActorId, LeaseId, ProcessSlot, ProgramId, ShapeId, TaskId, TaskKey};
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
pub(super) struct Run {
    pub(super) proxy: VirtualProcess,
    pub(super) ticket: Ticket,
    pub(super) key: TaskKey,
    /// The actor, if it is a call.
    pub(super) actor: Option<Handle>,
    pub(super) call: PeerCall,
    /// Holds what the arguments refer to.
    pub(super) arguments: Arguments,
    pub(super) begun: bool,
    pub(super) cancelled: bool,
    /// Whether its result is being stored.
    pub(super) stores: bool,
}

impl Run {
    pub(super) fn new(
        proxy: VirtualProcess,
        ticket: Ticket,
        actor: Option<Handle>,
        call: &PeerCall,
        arguments: Arguments,
    ) -> Self {
        let (key, call) = (TaskKey { index: 0, generation: 0 }, call.clone());
        Self { proxy, ticket, key, actor, call, arguments, begun: false, cancelled: false, stores: false }
    }
}

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

    /// A process tells the node something. Leases are granted by the test, and go back to it.
    pub(super) fn send(&mut self, from: ProcessSlot, message: ToNode) {
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

    pub(super) fn is_full(&self) -> bool {
        self.channel.len() >= CHANNEL_MESSAGES
    }

    pub(super) fn push(&mut self, from: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        let has_room = !self.is_full();
        if has_room {
            self.channel.push_back((from, *message, payload.to_vec()));
        }
        has_room
    }

    pub(super) fn claim(
        &mut self,
        proxy: ProcessSlot,
        shape: ShapeId,
        cell: Option<usize>,
    ) -> Option<Claimed> {
        assert_eq!(shape, SHAPE, "there is one");
        let LaneTask { key, task, attempt, arguments } = self.lane.pop_front()?;
        if let Some(cell) = cell {
            self.cells.insert((proxy, cell), (key, attempt));
        }
        let header = TaskHeader { key, task, attempt, returns: 1, ..super::site::task_header() };
        Some(Claimed { submitter: DRIVER, header, arguments })
    }

    pub(super) fn add_run(&mut self, mut run: Run) -> TaskKey {
        run.key = self.key();
        let key = run.key;
        self.runs.push(run);
        key
    }

    /// Takes a run out. The caller drops it when it has no borrow of this memory.
    #[must_use = "a run releases what it holds when it is dropped"]
    pub(super) fn take_run(&mut self, key: TaskKey) -> Option<Run> {
        let place = self.runs.iter().position(|run| run.key == key)?;
        Some(self.runs.remove(place))
    }
}
