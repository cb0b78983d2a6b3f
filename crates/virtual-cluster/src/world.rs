//! A virtual node: the real node machine, with an imitated operating system around it.
//!
//! It keeps the promises that a real shell keeps, and no others: what processes send arrives in one
//! order, a death comes after the last message, each process reads what it was sent in order, effects
//! are carried out in order. Time passes when the caller says so.

use crate::index::{Entry, Index};
use aktis_logic::machine::node::{Guest, Node, NodeConfig, NodeEffect, NodeInput, SpillRefusal, WorkerKind};
use aktis_logic::{Machine, Time};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{DeathCause, EntryRef, LaneId, ObjectId, ProcessSlot, ProgramId, ShapeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The place of the process that the node lives in: a driver, or a daemon.
pub const DRIVER: ProcessSlot = ProcessSlot(0);

/// What waits to be seen by the node.
#[derive(Clone, Debug)]
enum Arrival {
    Message(ProcessSlot, ToNode),
    Death(ProcessSlot, DeathCause),
}

/// A copy between memory and disk that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// To disk.
    Spill(EntryRef),
    /// And back.
    Restore(EntryRef, u64),
    /// Room on disk.
    Reserve(EntryRef),
}

/// An object that the node wants copied from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Its entry here.
    pub entry: EntryRef,
    /// The object.
    pub object: ObjectId,
    /// The process that stands for the other node.
    pub peer: ProcessSlot,
    /// Where it goes in the arena.
    pub offset: u64,
}

/// A process that the node has started or admitted.
#[derive(Clone, Debug)]
pub struct Worker {
    /// What kind of worker; none if it is a driver, or stands for another node.
    pub kind: Option<WorkerKind>,
    /// The program that it runs, or is; none if it stands for another node.
    pub program: Option<ProgramId>,
    /// The GPUs it sees.
    pub gpus: Vec<u32>,
    /// How it was set up.
    pub environment: String,
    /// Whether it still runs.
    pub running: bool,
}

/// The virtual node.
pub struct World {
    /// The machine under test.
    pub node: Node,
    /// Shared memory: the index of objects, and pins.
    pub index: Index,
    /// The program of the driver that the node lives in.
    pub program: Option<ProgramId>,
    /// Worker processes and guests, dead ones until their place is freed.
    pub workers: BTreeMap<ProcessSlot, Worker>,
    /// Queues: who submits, and which shape.
    pub lanes: BTreeMap<LaneId, (ProcessSlot, ShapeId)>,
    /// What the disk says when it is full.
    pub disk_error: Option<String>,
    /// Whether every input and order is printed.
    pub trace: bool,
    now: Time,
    arrivals: VecDeque<Arrival>,
    mail: BTreeMap<ProcessSlot, VecDeque<FromNode>>,
    io: VecDeque<Io>,
    /// Copies from other nodes that are under way.
    pub fetches: VecDeque<Fetch>,
    /// Entries of which the node wants to know whether somebody reads them; answered at once.
    looks: VecDeque<EntryRef>,
    channels: BTreeSet<(ProcessSlot, ProcessSlot)>,
    /// What became of the one who attached last.
    admission: Option<Result<ProcessSlot, String>>,
    /// Guests that have left and still run.
    pub left: Vec<ProcessSlot>,
    /// Programs that the node has forgotten.
    pub forgotten: Vec<ProgramId>,
}

impl World {
    /// A virtual node that has just been started.
    pub fn new(config: NodeConfig) -> Self {
        let program = config.driver.map(|driver| driver.program);
        let mut node = Node::new(config);
        let mut effects = Vec::new();
        node.start(Time(0), &mut effects);
        let mut world = Self {
            node,
            index: Index::default(),
            program,
            workers: BTreeMap::new(),
            lanes: BTreeMap::new(),
            disk_error: None,
            trace: false,
            now: Time(0),
            arrivals: VecDeque::new(),
            mail: BTreeMap::new(),
            io: VecDeque::new(),
            fetches: VecDeque::new(),
            looks: VecDeque::new(),
            channels: BTreeSet::new(),
            admission: None,
            left: Vec::new(),
            forgotten: Vec::new(),
        };
        world.carry_out(effects);
        world
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether the process runs.
    pub fn is_running(&self, process: ProcessSlot) -> bool {
        process == DRIVER || self.workers.get(&process).is_some_and(|worker| worker.running)
    }

    /// All processes that run, the driver first.
    pub fn running(&self) -> Vec<ProcessSlot> {
        let workers = self.workers.iter().filter(|(_, worker)| worker.running).map(|(&slot, _)| slot);
        std::iter::once(DRIVER).chain(workers).collect()
    }

    /// The program of a process.
    pub fn program_of(&self, process: ProcessSlot) -> Option<ProgramId> {
        if process == DRIVER { self.program } else { self.workers.get(&process)?.program }
    }

    /// Somebody attaches: its place, or why there is none.
    pub fn attach(&mut self, guest: Guest) -> Result<ProcessSlot, String> {
        self.input(NodeInput::Attached { guest, pid: 1 });
        let process = self.admission.take().expect("whoever attaches gets an answer")?;
        let program = match guest {
            Guest::Driver(program) => Some(program),
            Guest::Peer(_) => None,
        };
        let guest =
            Worker { kind: None, program, gpus: Vec::new(), environment: String::new(), running: true };
        assert!(self.workers.insert(process, guest).is_none(), "{process} is taken");
        self.mail.insert(process, VecDeque::new());
        Ok(process)
    }

    /// A process sends something; the node sees it later.
    pub fn send(&mut self, from: ProcessSlot, message: ToNode) {
        assert!(self.is_running(from), "the dead do not send");
        self.arrivals.push_back(Arrival::Message(from, message));
    }

    /// How many messages and deaths the node has not seen yet.
    pub fn unseen(&self) -> usize {
        self.arrivals.len()
    }

    /// The node sees the next message or death; false if there is none.
    pub fn arrive(&mut self) -> bool {
        let Some(arrival) = self.arrivals.pop_front() else { return false };
        self.input(match arrival {
            Arrival::Message(from, message) => NodeInput::Received { from, message },
            Arrival::Death(process, cause) => NodeInput::ProcessDied { process, cause },
        });
        true
    }

    /// A process reads its next message.
    pub fn read(&mut self, process: ProcessSlot) -> Option<FromNode> {
        self.mail.get_mut(&process)?.pop_front()
    }

    /// Whether a process has something to read.
    pub fn has_mail(&self, process: ProcessSlot) -> bool {
        self.mail.get(&process).is_some_and(|mail| !mail.is_empty())
    }

    /// A process dies at once. What it sent before still arrives; what it was sent is lost.
    pub fn kill(&mut self, process: ProcessSlot, cause: DeathCause) {
        let worker = self.workers.get_mut(&process).expect("only workers and guests are killed");
        if !std::mem::replace(&mut worker.running, false) {
            return;
        }
        self.mail.remove(&process);
        self.left.retain(|left| *left != process);
        self.index.clear_pins(process);
        self.arrivals.push_back(Arrival::Death(process, cause));
    }

    /// Copies between memory and disk that are under way.
    pub fn io(&self) -> usize {
        self.io.len()
    }

    /// The oldest copy between memory and disk ends; false if there is none.
    pub fn finish_io(&mut self) -> bool {
        let Some(io) = self.io.pop_front() else { return false };
        match io {
            Io::Spill(entry) => {
                let outcome = match &self.disk_error {
                    Some(text) => Err(SpillRefusal::Disk(text.clone())),
                    _ if self.index.spill(entry) => Ok(()),
                    _ => Err(SpillRefusal::Pinned),
                };
                self.input(NodeInput::Spilled { entry, outcome });
            }
            Io::Reserve(entry) => {
                let outcome = self.disk_error.clone().map_or(Ok(()), Err);
                self.input(NodeInput::Reserved { entry, outcome });
            }
            Io::Restore(entry, offset) => {
                self.index.restore(entry, offset);
                self.input(NodeInput::Restored { entry, outcome: Ok(()) });
            }
        }
        true
    }

    /// A copy from another node ends, well or not.
    pub fn finish_fetch(&mut self, fetch: Fetch, outcome: Result<(), String>) {
        if outcome.is_ok() {
            self.index.restore(fetch.entry, fetch.offset);
        }
        self.input(NodeInput::Restored { entry: fetch.entry, outcome });
    }

    /// A process asks the node something and gets the answer before anything else happens to it, as who stands for another
    /// node does: both are in one program.
    pub fn ask(
        &mut self,
        process: ProcessSlot,
        question: ToNode,
        is_answer: impl Fn(&FromNode) -> bool,
    ) -> FromNode {
        self.send(process, question);
        while self.arrive() {}
        let mail = self.mail.get_mut(&process).expect("a process that runs");
        let place = mail.iter().position(is_answer).expect("the node answers at once");
        mail.remove(place).expect("just found")
    }

    /// Time passes; the node is woken whenever it asked to be.
    pub fn pass(&mut self, microseconds: u64) {
        let end = Time(self.now.0 + microseconds);
        while let Some(due) = self.node.next_wakeup().filter(|due| *due <= end) {
            assert!(due > self.now, "the node wants to be woken at {due:?}, which is over: a busy loop");
            self.now = due;
            self.input(NodeInput::Ticked);
        }
        self.now = end;
    }

    /// The node takes one input; its orders are carried out, and its invariants checked.
    pub fn input(&mut self, input: NodeInput) {
        self.step(input);
        while let Some(entry) = self.looks.pop_front() {
            let outcome = if self.index.spill(entry) { Ok(()) } else { Err(SpillRefusal::Pinned) };
            self.step(NodeInput::Spilled { entry, outcome });
        }
    }

    fn step(&mut self, input: NodeInput) {
        let mut effects = Vec::new();
        if self.trace {
            println!("{} µs: {input:?}", self.now.0);
        }
        self.node.step(self.now, input, &mut effects);
        if self.trace {
            effects.iter().for_each(|effect| println!("    {effect:?}"));
        }
        self.node.check();
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<NodeEffect>) {
        for effect in effects {
            match effect {
                NodeEffect::Send { to, message } => self.deliver(to, message),
                NodeEffect::StartWorker { process, kind, program, gpus, environment } => {
                    let (kind, program) = (Some(kind), Some(program));
                    let worker = Worker { kind, program, gpus, environment, running: true };
                    assert!(self.workers.insert(process, worker).is_none(), "{process} is taken");
                    self.mail.insert(process, VecDeque::new());
                }
                NodeEffect::Admit { process } => self.admission = Some(Ok(process)),
                NodeEffect::TurnAway { reason } => self.admission = Some(Err(reason)),
                NodeEffect::SeeOff { process } => self.left.push(process),
                // What is forked from it is started here as everything is.
                NodeEffect::EndTemplate { .. } => {}
                NodeEffect::ForgetProgram { program } => self.forgotten.push(program),
                NodeEffect::KillWorker { process } => self.kill(process, killed(process)),
                NodeEffect::FreeProcess { process } => {
                    let worker = self.workers.remove(&process).expect("a process that was started");
                    assert!(!worker.running, "{process} is freed and still runs");
                    assert!(self.lanes.values().all(|(submitter, _)| *submitter != process));
                    self.channels.retain(|(from, to)| *from != process && *to != process);
                }
                NodeEffect::OpenLane { lane, submitter, shape } => {
                    assert!(self.lanes.insert(lane, (submitter, shape)).is_none(), "lane {lane} is open");
                }
                NodeEffect::CloseLane { lane } => {
                    assert!(self.lanes.remove(&lane).is_some(), "lane {lane} is not open");
                }
                NodeEffect::FreeShape { shape } => {
                    assert!(self.lanes.values().all(|(_, of)| *of != shape), "{shape} is in use");
                }
                NodeEffect::OpenChannel { from, to } => {
                    assert!(self.channels.insert((from, to)), "the channel is open");
                }
                NodeEffect::WriteEntry { entry, object, state, offset, bytes } => {
                    self.index.write(Entry { entry, object, state, offset, bytes });
                }
                NodeEffect::Spill { entry, bytes: 0, .. } => self.looks.push_back(entry),
                NodeEffect::Spill { entry, .. } => self.io.push_back(Io::Spill(entry)),
                NodeEffect::Reserve { entry, .. } => self.io.push_back(Io::Reserve(entry)),
                NodeEffect::Restore { entry, offset, .. } => self.io.push_back(Io::Restore(entry, offset)),
                NodeEffect::Fetch { entry, object, peer, offset, .. } => {
                    self.fetches.push_back(Fetch { entry, object, peer, offset });
                }
                NodeEffect::Place { .. }
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
                | NodeEffect::AskKey { .. } => unreachable!("this node is the only one"),
                NodeEffect::FreeSpilled { .. }
                | NodeEffect::GiveBack { .. }
                | NodeEffect::ForgetCheckpoint { .. } => {}
            }
        }
    }

    fn deliver(&mut self, to: ProcessSlot, message: FromNode) {
        if let FromNode::ExtentGranted { entry, .. } = &message {
            assert!(self.index.get(*entry).is_some(), "an entry is written before it is mentioned");
        }
        if self.is_running(to) {
            self.mail.entry(to).or_default().push_back(message);
        }
    }
}

/// How a process ends that is killed.
pub fn killed(process: ProcessSlot) -> DeathCause {
    DeathCause { pid: 1000 + process.0, signal: Some(9), ..DeathCause::default() }
}
