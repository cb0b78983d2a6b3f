//! The machine of the node and what carries out its orders, under one lock.
//!
//! Invariants:
//! 1. Whoever steps the machine first reads all that has arrived from workers: what caused an event comes before it.
//! 2. Orders are carried out in order, before the lock is given back.
//! 3. Nothing here waits: processes are started by the node's thread, disks are reached by another, answers to the
//!    driver are delivered after the lock is given back.

mod guests;

pub(crate) use guests::{Arrival, GuestProcess, TemplateNews};

use crate::bell::Bell;
use crate::checkpoints::CheckpointSpace;
use crate::delivery::Delivery;
use crate::demand::Demand;
use crate::disk::{Disk, DiskOrder, SpillSpace};
use crate::inbox::{Impostors, Inbox, Received};
use crate::journal;
use crate::output::Listeners;
use crate::peer::{Peer, TooLarge};
use crate::programs::Launch;
use crate::questions::{QuestionId, Questions};
use crate::run_times::{self, Measured, Usual};
use crate::spawn::{SpawnOrder, WorkerProcess, stillborn};
use aktis_logic::machine::node::{
    self, DrainProgress, Node, NodeConfig, NodeEffect, NodeInput, SpillRefusal,
};
use aktis_logic::{Machine, Time};
use aktis_protocol::admin::IdPrefix;
use aktis_protocol::control::{FromNode, RequestId, ToNode};
use aktis_protocol::placement::NodeReport;
use aktis_protocol::questions::{ProcessAnswer, ProcessQuestion};
use aktis_protocol::state::StateRows;
use aktis_protocol::{
    DeathCause, EntryRef, ExtentPlace, Failure, FailureKind, LaneId, ObjectId, ProcessSlot, ProgramId,
    ProgramSpec, Resources, SessionId,
};
use aktis_store::{Arena, Control, EntryState, Populator, SpilledObjects};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The place of the process in which the node lives: a driver, or a daemon.
pub(crate) const HOST: ProcessSlot = ProcessSlot(0);
/// Messages read from workers in one go; more than the socket holds, so that all that was there is read.
const MESSAGES_AT_ONCE_MAX: usize = 10_000;
/// A machine that wants to be woken at once again gets its tick after so long, in microseconds.
const TICK_MICROSECONDS_MIN: u64 = 1_000;
/// The machine's invariants are checked after one of so many steps.
const STEPS_PER_CHECK: u64 = if cfg!(debug_assertions) { 64 } else { 16_384 };
/// In release builds, they are not checked while the node knows more objects: a check looks at all of them.
const CHECKED_OBJECTS_MAX: usize = 4_096;

pub(crate) struct Shell {
    machine: Node,
    session: SessionId,
    /// What the node has in all.
    resources: Resources,
    began: Instant,
    control: Arc<Control>,
    arena: Arc<Arena>,
    checkpoints: CheckpointSpace,
    inbox: Inbox,
    impostors: Impostors,
    peers: BTreeMap<ProcessSlot, Peer>,
    /// Places that are in this very process, and what takes the node's messages to them.
    locals: BTreeMap<ProcessSlot, Arc<Delivery>>,
    /// Those of them that have got something.
    ready: BTreeMap<ProcessSlot, Arc<Delivery>>,
    specs: BTreeMap<ProgramId, ProgramSpec>,
    launches: BTreeMap<ProgramId, Launch>,
    /// What became of the one who attached last.
    admission: Option<Result<ProcessSlot, String>>,
    /// For the node's thread.
    arrived: Vec<GuestProcess>,
    template_news: Vec<TemplateNews>,
    demand: Demand,
    measured: Measured,
    usual: Usual,
    disk: Disk,
    populator: Populator,
    spawn_orders: VecDeque<SpawnOrder>,
    inputs: VecDeque<NodeInput>,
    /// Lanes and channels that shared memory had no room for: their requests are refused.
    refused_lanes: Vec<(LaneId, String)>,
    refused_channels: Vec<(ProcessSlot, ProcessSlot)>,
    steps: u64,
    last_tick: Time,
    plan: Planned,
    newly_blocked: bool,
    /// Whether it was said that workers cannot be started.
    warned: bool,
    closing: bool,
    /// Takes what other nodes have to do with.
    elsewhere: Option<Elsewhere>,
    questions: Questions<ProcessSlot, ProcessAnswer>,
    /// Finds out what no process of this node knows.
    explainer: Option<Explainer>,
    listeners: Listeners,
}

/// Carries out orders that other nodes have to do with: `Fetch`, `Place` and `PlaceActor`. It is called under the
/// node's lock, and must not wait.
pub type Elsewhere = Box<dyn Fn(NodeEffect) + Send>;

/// Finds out what other nodes know about something, and has it told to the process by
/// [`Host::tell_explanation`](crate::Host::tell_explanation). It is called under the node's lock, and must not wait.
pub type Explainer = Box<dyn Fn(ProcessSlot, RequestId, IdPrefix) + Send>;

/// What the node's thread is waiting for, as far as others may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planned {
    /// It will look again by itself, at once.
    Awake,
    /// It sleeps until then, unless it is woken.
    Until(Option<Time>),
}

/// What the node's thread shall wait for.
pub(crate) struct Plan {
    pub(crate) timeout: Option<Duration>,
    /// Sockets of workers that messages wait for.
    pub(crate) blocked: Vec<Arc<OwnedFd>>,
}

impl Shell {
    pub(crate) fn new(
        config: NodeConfig,
        session: SessionId,
        control: Arc<Control>,
        arena: Arc<Arena>,
        spill: SpillSpace,
        bell: Arc<Bell>,
    ) -> io::Result<Self> {
        Ok(Self {
            session,
            resources: config.resources.clone(),
            machine: Node::new(config),
            began: Instant::now(),
            inbox: Inbox::new()?,
            impostors: Impostors::default(),
            peers: BTreeMap::new(),
            locals: BTreeMap::new(),
            ready: BTreeMap::new(),
            specs: BTreeMap::new(),
            launches: BTreeMap::new(),
            admission: None,
            arrived: Vec::new(),
            template_news: Vec::new(),
            demand: Demand::default(),
            measured: Measured::default(),
            usual: Usual::default(),
            checkpoints: CheckpointSpace::new(spill.directory(), &format!("{:016x}", session.0)),
            disk: Disk::new(arena.clone(), spill, bell),
            populator: Populator::new(arena.clone()),
            spawn_orders: VecDeque::new(),
            inputs: VecDeque::new(),
            refused_lanes: Vec::new(),
            refused_channels: Vec::new(),
            steps: 0,
            last_tick: Time::default(),
            plan: Planned::Awake,
            newly_blocked: false,
            warned: false,
            closing: false,
            elsewhere: None,
            questions: Questions::default(),
            explainer: None,
            listeners: Listeners::default(),
            control,
            arena,
        })
    }

    /// Lets the machine order its first workers.
    pub(crate) fn begin(&mut self) {
        let mut effects = Vec::new();
        self.machine.start(self.now(), &mut effects);
        self.carry_out_all(effects);
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    // What happens.

    /// A local process has sent a message.
    pub(crate) fn on_local_message(&mut self, from: ProcessSlot, message: ToNode) {
        self.read_inbox();
        // One that was closed meanwhile does not speak for whoever has its place now.
        if self.locals.contains_key(&from) {
            self.on_message(from, message);
        }
    }

    /// Reads what workers have sent.
    pub(crate) fn read_inbox(&mut self) {
        for _ in 0..MESSAGES_AT_ONCE_MAX {
            let Some(Received { from, pid, message }) = self.inbox.receive() else { return };
            // Local processes do not speak through the inbox, so that nobody can in their name.
            match pid.is_some() && self.peers.get(&from).and_then(Peer::pid) == pid {
                true => self.on_message(from, message),
                false => self.impostors.note(pid, from),
            }
        }
    }

    fn on_message(&mut self, from: ProcessSlot, message: ToNode) {
        let now = self.now();
        let input = match message {
            ToNode::LaneActive { lane } => self.demand.on_lane_active(now, lane, &self.control),
            ToNode::Answered { question, answer } => {
                return self.questions.on_answered(from, question, answer);
            }
            ToNode::OutputWanted => return self.listeners.on_wanted(from),
            ToNode::ExplainWanted { request, id } => return self.on_explain_wanted(from, request, &id),
            message => NodeInput::Received { from, message },
        };
        self.step(input);
    }

    /// A worker process was started, or could not be.
    pub(crate) fn on_spawned(&mut self, process: ProcessSlot, spawned: io::Result<&WorkerProcess>) {
        let worker = match spawned {
            Ok(worker) => worker,
            Err(error) => return self.on_stillborn(process, &error),
        };
        self.control.start_process(process, worker.pid());
        if worker.greet(&self.greeting()).is_err() {
            // It cannot work; its death is reported as usual.
            worker.kill();
        }
        self.step(NodeInput::WorkerSpawned { process, pid: worker.pid() });
        self.peers.entry(process).or_default().on_started(worker.link());
    }

    /// The descriptors that every process gets.
    fn greeting(&self) -> Vec<BorrowedFd<'_>> {
        let arena = &self.arena;
        let always = [self.inbox.sender(), self.control.fd(), arena.index_fd(), arena.arena_fd()];
        always.into_iter().chain(arena.file_fd()).collect()
    }

    /// It is tried again, but not without a word: somebody may wait for it.
    fn on_stillborn(&mut self, process: ProcessSlot, error: &io::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            journal::warn(format_args!(
                "a worker process could not be started, and is tried again: {error}\n\
                 hint: raise the limits on open files (ulimit -n) and on processes (ulimit -u)"
            ));
        }
        self.on_process_died(process, stillborn(error));
    }

    /// A worker process has ended.
    pub(crate) fn on_process_died(&mut self, process: ProcessSlot, cause: DeathCause) {
        self.read_inbox();
        self.peers.remove(&process);
        self.questions.on_died(&process);
        self.listeners.on_left(process);
        self.control.mark_dead(process);
        self.arena.clear_pins(process);
        self.step(NodeInput::ProcessDied { process, cause });
    }

    /// The disk's thread may have news, sockets may have room, and time has passed.
    pub(crate) fn on_wakeup(&mut self) {
        self.read_inbox();
        for outcome in self.disk.take_outcomes() {
            self.step(outcome);
        }
        self.peers.values_mut().for_each(Peer::flush);
        let now = self.now();
        for report in self.demand.on_tick(now, &self.control) {
            self.step(report);
        }
        if self.machine.next_wakeup().is_some_and(|wakeup| self.not_too_soon(wakeup) <= now) {
            self.last_tick = now;
            self.arena.tick();
            self.step(NodeInput::Ticked);
        }
    }

    fn not_too_soon(&self, wakeup: Time) -> Time {
        wakeup.max(Time(self.last_tick.0 + TICK_MICROSECONDS_MIN))
    }

    // What the node's thread does next.

    /// What the node's thread shall wait for, now that it has done everything.
    pub(crate) fn plan(&mut self) -> Plan {
        let deadline = self.deadline();
        self.plan = Planned::Until(deadline);
        self.newly_blocked = false;
        let now = self.now();
        let timeout = deadline.map(|at| Duration::from_micros(at.0.saturating_sub(now.0)));
        let timeout = if self.has_errands() { Some(Duration::ZERO) } else { timeout };
        Plan { timeout, blocked: self.peers.values().filter_map(|peer| peer.blocked_on().cloned()).collect() }
    }

    fn deadline(&self) -> Option<Time> {
        let wakeup = self.machine.next_wakeup().map(|wakeup| self.not_too_soon(wakeup));
        [wakeup, self.demand.next_tick()].into_iter().flatten().min()
    }

    /// Whether the node's thread sleeps though there is something to do for it; says so once.
    pub(crate) fn must_wake(&mut self) -> bool {
        let Planned::Until(planned) = self.plan else { return false };
        let earlier = match (self.deadline(), planned) {
            (Some(wanted), Some(planned)) => wanted < planned,
            (wanted, None) => wanted.is_some(),
            (None, Some(_)) => false,
        };
        let wake = earlier || self.newly_blocked || self.has_errands();
        if wake {
            self.plan = Planned::Awake;
        }
        wake
    }

    /// Whether something waits for the node's thread.
    fn has_errands(&self) -> bool {
        !self.spawn_orders.is_empty()
            || !self.ready.is_empty()
            || !self.arrived.is_empty()
            || !self.template_news.is_empty()
    }

    pub(crate) fn next_spawn_order(&mut self) -> Option<SpawnOrder> {
        self.spawn_orders.pop_front()
    }

    /// A descriptor to wait on for messages of workers.
    pub(crate) fn inbox_descriptor(&self) -> io::Result<OwnedFd> {
        self.inbox.receiver()
    }

    /// Asks all worker and driver processes something. The answers come where the second says.
    pub(crate) fn ask_all(
        &mut self,
        what: &ProcessQuestion,
    ) -> (QuestionId, Receiver<(ProcessSlot, ProcessAnswer)>) {
        let asked = self.processes().into_iter().map(|(process, _)| process).collect::<BTreeSet<_>>();
        let (question, answers) = self.questions.open(asked.clone());
        for process in asked {
            self.send(process, FromNode::Asked { question, what: what.clone() });
        }
        (question, answers)
    }

    /// Has questions about what other nodes know answered by `explainer`, from now on.
    pub(crate) fn set_explainer(&mut self, explainer: Explainer) {
        self.explainer = Some(explainer);
    }

    fn on_explain_wanted(&mut self, from: ProcessSlot, request: RequestId, id: &IdPrefix) {
        match &self.explainer {
            Some(explainer) => explainer(from, request, id.clone()),
            None => self.tell_explanation(from, request, "there are no other nodes".to_owned()),
        }
    }

    /// What other nodes know, for one who has asked.
    pub(crate) fn tell_explanation(&mut self, to: ProcessSlot, request: RequestId, text: String) {
        self.send(to, FromNode::ShapeExplained { request, text });
    }

    /// Nobody waits for the answers any more.
    pub(crate) fn forget_question(&mut self, question: QuestionId) {
        self.questions.close(question);
    }

    /// The worker processes that run.
    pub(crate) fn processes(&self) -> Vec<(ProcessSlot, u32)> {
        self.peers.iter().filter_map(|(process, peer)| Some((*process, peer.pid()?))).collect()
    }

    // The end.

    /// Tells all workers to end; nothing is decided from now on. Gives the disk's thread, to be waited for.
    pub(crate) fn close(&mut self) -> Option<JoinHandle<()>> {
        self.closing = true;
        self.spawn_orders.clear();
        self.demand = Demand::default();
        for peer in self.peers.values_mut() {
            let _ = peer.send(&FromNode::Shutdown);
        }
        self.disk.close()
    }

    /// Removes the checkpoints of this node's actors. No worker runs any more.
    pub(crate) fn close_checkpoints(&mut self) {
        self.checkpoints.close();
    }

    /// Ends the background population of pages.
    pub(crate) fn close_populator(&self) {
        self.populator.close();
    }

    // What the machine orders.

    fn step(&mut self, input: NodeInput) {
        if self.closing {
            return;
        }
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let mut effects = Vec::new();
            self.machine.step(self.now(), input, &mut effects);
            self.steps += 1;
            let is_quick = cfg!(debug_assertions) || self.machine.objects() <= CHECKED_OBJECTS_MAX;
            if self.steps.is_multiple_of(STEPS_PER_CHECK) && is_quick {
                self.machine.check();
            }
            self.carry_out_all(effects);
        }
    }

    fn carry_out_all(&mut self, effects: Vec<NodeEffect>) {
        for effect in effects {
            self.carry_out(effect);
        }
        self.refused_lanes.clear();
        self.refused_channels.clear();
    }

    fn carry_out(&mut self, effect: NodeEffect) {
        match effect {
            NodeEffect::Send { to, message } => self.send(to, message),
            NodeEffect::StartWorker { process, kind, program, gpus, environment } => {
                self.peers.insert(process, Peer::default());
                let launch = self.launches.get(&program).expect("a known program can be launched").clone();
                let order = SpawnOrder { process, kind, program, launch, gpus, environment };
                self.spawn_orders.push_back(order);
            }
            NodeEffect::Admit { process } => self.admission = Some(Ok(process)),
            NodeEffect::TurnAway { reason } => self.admission = Some(Err(reason)),
            NodeEffect::SeeOff { process } => self.control.mark_dead(process),
            NodeEffect::EndTemplate { program } => self.template_news.push(TemplateNews::Unneeded(program)),
            NodeEffect::ForgetProgram { program } => self.forget_program(program),
            NodeEffect::KillWorker { process } => {
                if let Some(peer) = self.peers.get_mut(&process) {
                    peer.kill();
                }
            }
            NodeEffect::FreeProcess { process } => self.control.wipe_process(process),
            NodeEffect::OpenLane { lane, submitter, shape } => {
                if let Err(error) = self.control.open_lane(lane, submitter, shape) {
                    self.refused_lanes.push((lane, error.to_string()));
                }
            }
            NodeEffect::CloseLane { lane } => {
                self.demand.forget(lane);
                self.control.close_lane(lane);
            }
            NodeEffect::FreeShape { shape } => self.control.forget_shape(shape),
            NodeEffect::OpenChannel { from, to } => {
                if self.control.open_channel(from, to).is_err() {
                    self.refused_channels.push((from, to));
                }
            }
            NodeEffect::WriteEntry { entry, object, state, offset, bytes } => {
                self.arena.write_entry(entry, object, entry_state(state), offset, bytes);
                if let (node::EntryState::Writing, ExtentPlace::Arena(offset)) =
                    (state, ExtentPlace::from_word(offset))
                {
                    self.populator.advance(offset + bytes);
                }
            }
            // Nothing to copy: the question is only whether somebody reads it, and needs no disk.
            NodeEffect::Spill { entry, bytes: 0, .. } => {
                let unread = self.arena.begin_spill(entry);
                if unread {
                    self.arena.finish_spill(entry);
                }
                let outcome = if unread { Ok(()) } else { Err(SpillRefusal::Pinned) };
                self.inputs.push_back(NodeInput::Spilled { entry, outcome });
            }
            NodeEffect::Spill { entry, file_offset, .. } => {
                self.disk.order(DiskOrder::Spill { entry, file_offset });
            }
            NodeEffect::Reserve { entry, file_offset, bytes } => {
                self.disk.order(DiskOrder::Reserve { entry, file_offset, bytes });
            }
            NodeEffect::Restore { entry, file_offset, offset, .. } => {
                self.disk.order(DiskOrder::Restore { entry, file_offset, offset });
            }
            NodeEffect::Fetch { .. }
            | NodeEffect::Place { .. }
            | NodeEffect::PlacesDone { .. }
            | NodeEffect::PlaceActor { .. }
            | NodeEffect::Withdraw { .. }
            | NodeEffect::WithdrawActor { .. }
            | NodeEffect::TellPlacer { .. }
            | NodeEffect::ClaimName { .. }
            | NodeEffect::FreeName { .. }
            | NodeEffect::SeekName { .. }
            | NodeEffect::SeekNames { .. }
            | NodeEffect::JobBegan { .. }
            | NodeEffect::JobEnded { .. }
            | NodeEffect::ProgramCame { .. }
            | NodeEffect::ProgramWent { .. }
            | NodeEffect::ChangeTables { .. }
            | NodeEffect::SeekRecord { .. }
            | NodeEffect::AskKey { .. } => self.hand_up(effect),
            NodeEffect::ForgetCheckpoint { actor, directory } => self.checkpoints.forget(actor, &directory),
            NodeEffect::GiveBack { offset, bytes } => self.arena.give_back(offset, bytes),
            NodeEffect::FreeSpilled { file_offset, bytes } => {
                self.disk.order(DiskOrder::Free { file_offset, bytes });
            }
        }
    }

    /// How the node stands, for the placer.
    pub(crate) fn report(&mut self) -> NodeReport {
        let control = &self.control;
        let running = |process| {
            let cells = control.cells(process).iter();
            let running = cells.filter_map(|cell| cell.get());
            running.map(|running| (running.shape, running.likeness)).collect::<Vec<_>>()
        };
        let lanes = control.lane_consumers();
        let report = self.machine.report(running, |shape| run_times::waiting(&lanes, shape));
        let run_times = self.measured.take(control, self.peers.keys().copied());
        NodeReport { run_times, ..report }
    }

    /// The copy of an object that is served to other nodes, and who else has it if this node has none.
    pub(crate) fn copy_of(&mut self, object: ObjectId) -> Option<(EntryRef, Option<ProcessSlot>)> {
        self.read_inbox();
        self.machine.copy_of(object)
    }

    /// How far the drain of the node is, if it is drained.
    pub(crate) fn drain_progress(&mut self) -> Option<DrainProgress> {
        self.read_inbox();
        self.machine.drain_progress(self.now())
    }

    /// The objects that other nodes hold and have no copy of, if the node is drained.
    pub(crate) fn objects_to_hand_over(&mut self) -> Vec<(ProcessSlot, ObjectId)> {
        self.read_inbox();
        self.machine.objects_to_hand_over()
    }

    /// What lies on disk.
    pub(crate) fn spilled(&self) -> Arc<SpilledObjects> {
        self.disk.spilled().clone()
    }

    /// From now on there may be other nodes.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: Elsewhere) {
        self.elsewhere = Some(elsewhere);
        self.machine.join_cluster();
    }

    /// Something that other nodes have to do with has happened.
    pub(crate) fn on_elsewhere(&mut self, input: NodeInput) {
        self.read_inbox();
        self.step(input);
    }

    /// A node without others hands nothing up.
    fn hand_up(&mut self, mut effect: NodeEffect) {
        if let NodeEffect::Place { shape, function, .. } = &mut effect {
            let waiting = run_times::waiting(&self.control.lane_consumers(), *shape);
            *function = self.usual.note(*shape, &waiting);
        }
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere(effect);
        }
    }

    fn send(&mut self, to: ProcessSlot, message: FromNode) {
        let message = self.corrected(to, message);
        let Some(message) = self.send_locally(to, message) else { return };
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let was_blocked = peer.blocked_on().is_some();
        if let Err(TooLarge) = peer.send(&message) {
            return self.on_too_large(to, message);
        }
        // Then the node's thread must wait for this socket too.
        self.newly_blocked |= !was_blocked && peer.blocked_on().is_some();
    }

    /// The answer, or a refusal if what it promises could not be made.
    fn corrected(&mut self, to: ProcessSlot, message: FromNode) -> FromNode {
        match message {
            FromNode::LaneOpened { request, lane: Ok(lane) } => {
                let refused = self.refused_lanes.iter().find(|(refused, _)| *refused == lane);
                let lane = match refused {
                    Some((_, reason)) => Err(Failure::new(
                        FailureKind::Refused,
                        format!("there is no shared memory for another queue of tasks: {reason}"),
                    )),
                    None => Ok(lane),
                };
                FromNode::LaneOpened { request, lane }
            }
            // The machine does not see who reads what.
            FromNode::StateTold { request, rows: StateRows::Objects(mut rows), left_out } => {
                rows.iter_mut().for_each(|row| row.pinned = self.arena.is_pinned(row.entry));
                FromNode::StateTold { request, rows: StateRows::Objects(rows), left_out }
            }
            FromNode::HostActor { mut spec, incarnation, gpus } => {
                if let Some(log) = &mut spec.log
                    && log.directory.is_empty()
                    && !self.control.is_elsewhere(to)
                {
                    log.directory = self.checkpoints.directory().to_string_lossy().into_owned();
                }
                FromNode::HostActor { spec, incarnation, gpus }
            }
            FromNode::ChannelOpened { request, to: receiver, open } => {
                let open = open && !self.refused_channels.contains(&(to, receiver));
                FromNode::ChannelOpened { request, to: receiver, open }
            }
            message => message,
        }
    }

    /// A message does not fit into the worker's socket.
    fn on_too_large(&mut self, to: ProcessSlot, message: FromNode) {
        let FromNode::HostActor { spec, .. } = message else {
            journal::warn(format_args!("dropped a message that is too large for a worker process"));
            return;
        };
        let failure = Failure::new(
            FailureKind::Codec,
            format!(
                "the arguments of {}'s constructor are too large to be sent\nhint: put large values first and \
                 pass the references",
                spec.type_name
            ),
        );
        let message = ToNode::ActorEnded { actor: spec.actor, failure };
        self.inputs.push_back(NodeInput::Received { from: to, message });
    }
}

fn entry_state(state: node::EntryState) -> EntryState {
    match state {
        node::EntryState::Free => EntryState::Free,
        node::EntryState::Writing => EntryState::Writing,
        node::EntryState::Sealed => EntryState::Sealed,
        node::EntryState::Spilled => EntryState::Spilled,
    }
}
