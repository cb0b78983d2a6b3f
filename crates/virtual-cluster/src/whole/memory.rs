//! What the processes of one machine share: its node, the queues of tasks, the cells that say who runs what, and channels.

use crate::port::{Run as ForeignRun, SharedMemory};
use crate::world::World;
use aktis_logic::machine::remote_node::{Claimed, SubmitError};
use aktis_protocol::control::{FromNode, ToNode, encode};
use aktis_protocol::hot::{Message, TaskHeader};
use aktis_protocol::{
    ActorId, FunctionId, LaneId, ProcessSlot, ProgramId, Shape, ShapeId, ShardIndex, TaskId, TaskKey,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many tasks a queue holds: few, so that submitters have to wait for room.
pub(super) const LANE_TASKS_MAX: usize = 16;
/// How many messages a channel holds before a proxy has to wait.
const CHANNEL_MESSAGES_MAX: usize = 8;

/// A task or call of another node that runs here.
pub(super) type Run = ForeignRun<Memory>;

/// A task that was submitted and that no process has claimed.
#[derive(Clone, Debug)]
pub(super) struct LaneTask {
    pub(super) key: TaskKey,
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) function: FunctionId,
    pub(super) arguments: Vec<u8>,
}

/// Which task a thread, or a proxy, has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) submitter: ProcessSlot,
    pub(super) key: TaskKey,
    pub(super) attempt: u32,
}

/// A message to a process: from whom, what, and its payload.
pub(super) type Packet = (ProcessSlot, Message, Vec<u8>);

/// See the module.
pub(super) struct Memory {
    pub(super) world: World,
    /// Tasks by queue.
    pub(super) lanes: BTreeMap<LaneId, VecDeque<LaneTask>>,
    pub(super) cells: BTreeMap<(ProcessSlot, usize), Cell>,
    pub(super) inboxes: BTreeMap<ProcessSlot, VecDeque<Packet>>,
    pub(super) runs: Vec<Run>,
    /// Runs that are in their queue, or have been claimed.
    pub(super) queued: BTreeSet<TaskKey>,
    /// Tasks that somebody has cancelled, while threads run them.
    pub(super) cancelled: BTreeSet<(ProcessSlot, TaskKey)>,
    /// Processes that are proxies of other nodes.
    pub(super) proxies: BTreeSet<ProcessSlot>,
    /// Whether the node has the program.
    pub(super) has_program: bool,
    /// Programs that are being added, and the proxies that wait for that.
    pub(super) adding: Vec<(ProcessSlot, ProgramId)>,
    last_key: u32,
}

impl Memory {
    pub(super) fn new(world: World, has_program: bool) -> Self {
        Self {
            world,
            lanes: BTreeMap::new(),
            cells: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            runs: Vec::new(),
            queued: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            proxies: BTreeSet::new(),
            has_program,
            adding: Vec::new(),
            last_key: 0,
        }
    }

    /// Puts a task into a queue. The node hears of it if the queue was empty.
    pub(super) fn queue(&mut self, submitter: ProcessSlot, lane: LaneId, task: LaneTask) {
        let queue = self.lanes.entry(lane).or_default();
        let was_empty = queue.is_empty();
        queue.push_back(task);
        if was_empty {
            self.send(submitter, ToNode::LaneActive { lane });
        }
    }

    /// Takes a task out of its queue, unless a process has claimed it.
    pub(super) fn take_back(&mut self, lane: LaneId, key: TaskKey) -> bool {
        let Some(queue) = self.lanes.get_mut(&lane) else { return false };
        let before = queue.len();
        queue.retain(|task| task.key != key);
        queue.len() < before
    }

    /// A thread claims a task of this shape, from any queue; the task's submitter comes with it.
    pub(super) fn claim_for_thread(
        &mut self,
        cell: (ProcessSlot, usize),
        shape: ShapeId,
    ) -> Option<(ProcessSlot, LaneTask)> {
        let lanes: Vec<(LaneId, ProcessSlot)> = self.lanes_of(shape).collect();
        for (lane, submitter) in lanes {
            let is_live = self.world.is_running(submitter);
            while let Some(task) = self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                if !is_live || self.proxies.contains(&submitter) && !self.begin_run(task.key) {
                    continue;
                }
                let LaneTask { key, attempt, .. } = task;
                self.cells.insert(cell, Cell { submitter, key, attempt });
                return Some((submitter, task));
            }
        }
        None
    }

    fn lanes_of(&self, shape: ShapeId) -> impl Iterator<Item = (LaneId, ProcessSlot)> {
        let lanes = self.world.lanes.iter().filter(move |(_, (_, of))| *of == shape);
        lanes.map(|(&lane, &(submitter, _))| (lane, submitter))
    }

    /// Whether tasks of this shape wait that local processes have submitted: a proxy may forward these.
    pub(super) fn has_tasks_to_forward(&self, shape: ShapeId) -> bool {
        self.own_lanes_of(shape).any(|lane| self.lanes.get(&lane).is_some_and(|tasks| !tasks.is_empty()))
    }

    /// Whether tasks of this shape wait.
    pub(super) fn has_tasks(&self, shape: ShapeId) -> bool {
        self.lanes_of(shape).any(|(lane, _)| self.lanes.get(&lane).is_some_and(|tasks| !tasks.is_empty()))
    }

    /// The queues of local processes that live. What another node has sent goes no further.
    fn own_lanes_of(&self, shape: ShapeId) -> impl Iterator<Item = LaneId> {
        let is_own =
            |submitter: &ProcessSlot| !self.proxies.contains(submitter) && self.world.is_running(*submitter);
        self.lanes_of(shape).filter(move |(_, submitter)| is_own(submitter)).map(|(lane, _)| lane)
    }

    /// A task of another node begins; false if that node has given it up.
    fn begin_run(&mut self, key: TaskKey) -> bool {
        self.runs.iter_mut().find(|run| run.key == key).is_some_and(|run| {
            run.begun = true;
            true
        })
    }

    /// What the tasks run that wait in queues of this shape.
    pub(super) fn waiting(&self, shape: ShapeId) -> Vec<FunctionId> {
        let lanes = self.lanes_of(shape).filter_map(|(lane, _)| self.lanes.get(&lane));
        lanes.flatten().map(|task| task.function).take(32).collect()
    }

    /// A process is dead: nobody reads its channel. The node's death notice comes after what it has sent.
    pub(super) fn on_process_ended(&mut self, slot: ProcessSlot) {
        self.inboxes.remove(&slot);
        self.adding.retain(|(waiting, _)| *waiting != slot);
        self.cancelled.retain(|(submitter, _)| *submitter != slot);
    }

    /// Forgets queues that the node has closed.
    pub(super) fn tidy(&mut self) {
        let open = &self.world.lanes;
        self.lanes.retain(|lane, _| open.contains_key(lane));
        let runs: BTreeSet<TaskKey> = self.runs.iter().map(|run| run.key).collect();
        self.queued.retain(|key| runs.contains(key));
        // Of dead processes, submitters that live look for what was lost with them.
        let world = &self.world;
        self.cells.retain(|(owner, _), cell| {
            let is_looked_for = world.workers.contains_key(owner) && world.is_running(cell.submitter);
            world.is_running(*owner) || is_looked_for
        });
    }

    /// Tasks of other nodes that are not in their queues yet, and whose submitters their proxies are.
    pub(super) fn ready_runs(&self) -> Vec<(LaneId, ProcessSlot, LaneTask)> {
        let mut ready = Vec::new();
        for run in &self.runs {
            if let Some(lane) = run.lane.filter(|_| !self.queued.contains(&run.key)) {
                let (key, task, attempt, function) = (run.key, run.call.task, 0, run.call.function);
                let arguments = encode(&run.call.arguments);
                ready.push((lane, run.proxy.slot, LaneTask { key, task, attempt, function, arguments }));
            }
        }
        ready
    }
}

impl SharedMemory for Memory {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn send(&mut self, from: ProcessSlot, message: ToNode) {
        if self.world.is_running(from) {
            self.world.send(from, message);
        }
    }

    fn is_full(&self, to: ProcessSlot) -> bool {
        self.inboxes.get(&to).is_some_and(|inbox| inbox.len() >= CHANNEL_MESSAGES_MAX)
    }

    fn push(&mut self, from: ProcessSlot, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        let has_room = !self.is_full(to);
        if has_room {
            self.inboxes.entry(to).or_default().push_back((from, *message, payload.to_vec()));
        }
        has_room
    }

    fn claim(&mut self, proxy: ProcessSlot, shape: ShapeId, cell: Option<usize>) -> Option<Claimed> {
        let lanes: Vec<_> = self.own_lanes_of(shape).collect();
        let (lane, task) =
            lanes.into_iter().find_map(|lane| Some((lane, self.lanes.get_mut(&lane)?.pop_front()?)))?;
        let (submitter, _) = self.world.lanes[&lane];
        let LaneTask { key, task, attempt, function, arguments } = task;
        if let Some(cell) = cell {
            self.cells.insert((proxy, cell), Cell { submitter, key, attempt });
        }
        let (stream_ahead, returns, kind) = (0, 1, 0);
        let header = TaskHeader { task, function, key, attempt, stream_ahead, returns, kind };
        Some(Claimed { submitter, header, arguments })
    }

    fn clear_cell(&mut self, proxy: ProcessSlot, cell: usize) {
        self.cells.remove(&(proxy, cell));
    }

    fn queue_for(&mut self, proxy: ProcessSlot, shape: &Shape) -> Result<LaneId, SubmitError> {
        let question = ToNode::LaneWanted { request: 0, shape: shape.clone(), shard: ShardIndex(0) };
        let answer = self.world.ask(proxy, question, |answer| matches!(answer, FromNode::LaneOpened { .. }));
        match answer {
            FromNode::LaneOpened { lane: Ok(lane), .. } => Ok(lane),
            FromNode::LaneOpened { lane: Err(failure), .. } => Err(SubmitError::Failed(failure.to_string())),
            other => unreachable!("{other:?}"),
        }
    }

    fn add_run(&mut self, mut run: Run) -> TaskKey {
        self.last_key += 1;
        run.key = TaskKey { index: self.last_key, generation: 0 };
        let key = run.key;
        self.runs.push(run);
        key
    }

    fn runs(&mut self) -> &mut Vec<Run> {
        &mut self.runs
    }

    fn on_actor_found(&mut self, actor: ActorId) {
        unreachable!("{actor}: no process looks for actors");
    }

    fn has_program(&self) -> bool {
        self.has_program
    }

    fn add_program(&mut self, proxy: ProcessSlot, program: ProgramId) {
        self.adding.push((proxy, program));
    }
}
