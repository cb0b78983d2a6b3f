//! A virtual cluster around the real placer: hundreds of nodes, old news, deaths and gangs, in one thread.
//!
//! Messages take a while, and keep their order between any two who speak. Nodes report now and then, so what the placer
//! knows is old. A node that dies says nothing more; its lease lapses. Checked on the way:
//! 1. the placer's own invariants;
//! 2. whoever is sent something, or is named as a place, is a member at that time, with that epoch;
//! 3. a reason to wait is not told twice in a row;
//! 4. what is said to be impossible has to run on a node that is no member at that time;
//! 5. a group that is said to be ready has each of its bundles set aside, on living nodes.

mod conduct;
pub mod estimators;
pub mod host;
pub mod study;
pub mod task;
pub mod trial;

use crate::random::Random;
use aktis_logic::machine::placer::{Placer, PlacerEffect, PlacerInput};
use aktis_logic::membership::Membership;
use aktis_logic::{Machine, Time};
use aktis_protocol::limits::{
    NODE_HEARTBEAT_MICROSECONDS, NODE_LEASE_MICROSECONDS, NODE_REPORT_MICROSECONDS,
};
use aktis_protocol::placement::{Demand, FromPlacer, Labels, NodeInfo, NodeReport, Strategy, ToPlacer};
use aktis_protocol::{Amount, Epoch, GroupId, GroupState, NodeId, Resources};
use estimators::{Estimates, Estimator};
use host::Host;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use task::{Fate, Kind, Object, ObjectIndex, Task, TaskIndex};

/// What happens at some time.
#[derive(Clone, Debug)]
enum Event {
    ToPlacer(NodeId, Epoch, ToPlacer),
    FromPlacer(NodeId, Epoch, FromPlacer),
    /// Tasks arrive at a node: each with its attempt.
    Forwarded(NodeId, Epoch, Vec<(TaskIndex, u32)>),
    /// The inputs of a task are there.
    InputsCame(NodeId, u32, TaskIndex, u32),
    Finished(NodeId, u32, TaskIndex, u32),
    Heartbeat(NodeId, u32),
    HeartbeatCame(NodeId, Epoch),
    Report(NodeId, u32),
    Submit(TaskIndex),
    Crash(NodeId),
    Join(NodeId),
    Say(NodeId, ToPlacer),
    /// A row is on disk.
    Written(GroupId, u64),
}

/// How long the disk takes.
const WRITE_MICROSECONDS_MAX: u64 = 5_000;

/// Who decides where tasks run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// Each node first, then the placer: the product's way.
    #[default]
    BottomUp,
    /// The placer alone.
    Central,
    /// Nobody: each task goes to any node.
    Random,
}

/// How the cluster behaves.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Whether demands tell of their inputs.
    pub tells_inputs: bool,
    /// How run times are estimated.
    pub estimator: Estimator,
    /// Who decides where tasks run.
    pub decision: Decision,
    /// How often nodes report.
    pub report_every: u64,
    /// Whether nodes tell how fast their links are.
    pub tells_links: bool,
    /// Whether all that the placer orders is kept.
    pub keeps_history: bool,
    /// Bytes per second between any two nodes.
    pub bandwidth: u64,
    /// Messages take up to so many microseconds.
    pub delay_max: u64,
    /// How often of a hundred times a node refuses to set bundles aside.
    pub refusals_percent: u64,
    /// How often of a hundred times the dead are heard: what they had said comes late.
    pub ghosts_percent: u64,
    /// The invariants are checked after every so many steps of the placer.
    pub check_every: u64,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            tells_inputs: true,
            estimator: Estimator::default(),
            decision: Decision::default(),
            report_every: NODE_REPORT_MICROSECONDS,
            tells_links: true,
            keeps_history: true,
            bandwidth: 1_000_000_000,
            delay_max: 1_000,
            refusals_percent: 0,
            ghosts_percent: 0,
            check_every: 1,
        }
    }
}

/// The virtual cluster.
pub struct Cluster {
    /// The machine under test.
    pub placer: Placer,
    /// Who is a member: the product's own as well.
    pub membership: Membership,
    /// All nodes, dead ones too.
    pub hosts: BTreeMap<NodeId, Host>,
    /// All tasks.
    pub tasks: Vec<Task>,
    /// All objects.
    pub objects: Vec<Object>,
    /// What the makers of groups were told last, and the nodes of the bundles.
    pub groups: BTreeMap<GroupId, (GroupState, Vec<NodeId>)>,
    /// How many bytes were moved between nodes.
    pub moved_bytes: u64,
    random: Random,
    manner: Manner,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    events_given: u64,
    /// When the last message between these two arrives; the placer is the one with the default id.
    lines: BTreeMap<(NodeId, NodeId), Time>,
    steps: u64,
    estimates: Estimates,
    /// Tasks that have come to their end.
    ended: usize,
    /// How long the placer has taken for its steps, by the clock of the computer.
    placer_time: Duration,
    history: Vec<(Time, PlacerEffect)>,
    /// When all is on disk that was to be written.
    disk_at: Time,
}

impl Cluster {
    /// A cluster without nodes.
    pub fn new(manner: Manner, random: Random) -> Self {
        Self {
            placer: Placer::new(),
            membership: Membership::new(Epoch(1)),
            hosts: BTreeMap::new(),
            tasks: Vec::new(),
            objects: Vec::new(),
            groups: BTreeMap::new(),
            moved_bytes: 0,
            random,
            manner,
            now: Time(0),
            events: BTreeMap::new(),
            events_given: 0,
            lines: BTreeMap::new(),
            steps: 0,
            estimates: Estimates::default(),
            ended: 0,
            placer_time: Duration::ZERO,
            history: Vec::new(),
            disk_at: Time(0),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How long the placer has taken for its steps so far, by the clock of the computer.
    pub fn placer_time(&self) -> Duration {
        self.placer_time
    }

    /// Steps of the placer so far.
    pub fn placer_steps(&self) -> u64 {
        self.steps
    }

    /// Tasks that have run, or will never do so.
    pub fn ended(&self) -> usize {
        self.ended
    }

    /// All that the placer has ordered so far.
    pub fn history(&self) -> &[(Time, PlacerEffect)] {
        &self.history
    }

    /// A node that joins at some time.
    pub fn add_node(&mut self, at: Time, total: Resources, labels: Labels) -> NodeId {
        let node = NodeId::from_words([7, self.hosts.len() as u64 + 1]);
        self.hosts.insert(node, Host::new(node, total, labels));
        self.plan(at, Event::Join(node));
        node
    }

    /// A node dies at some time; what it had is gone.
    pub fn crash(&mut self, at: Time, node: NodeId) {
        self.plan(at, Event::Crash(node));
    }

    /// A dead node joins again at some time.
    pub fn join(&mut self, at: Time, node: NodeId) {
        self.plan(at, Event::Join(node));
    }

    /// A node says something at some time, if it is alive then.
    pub fn say(&mut self, at: Time, node: NodeId, message: ToPlacer) {
        self.plan(at, Event::Say(node, message));
    }

    /// A task that is submitted at some time.
    pub fn submit(&mut self, at: Time, home: NodeId, kind: Kind, run: u64) -> TaskIndex {
        let task = TaskIndex(self.tasks.len());
        let kind = Kind { function: self.manner.estimator.class(kind.function, run), ..kind };
        self.tasks.push(Task { kind, run, home, submitted: at, fate: Fate::Queued, attempt: 0 });
        self.plan(at, Event::Submit(task));
        task
    }

    /// An object that these nodes have.
    pub fn put(&mut self, bytes: u64, holders: impl IntoIterator<Item = NodeId>) -> ObjectIndex {
        self.objects.push(Object { bytes, holders: holders.into_iter().collect() });
        ObjectIndex(self.objects.len() - 1)
    }

    /// Lets everything happen until some time.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let machine_due =
                [self.placer.next_wakeup(), self.membership.next_wakeup()].into_iter().flatten().min();
            let event_due = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = machine_due.into_iter().chain(event_due).min().filter(|next| *next <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            match event_due.filter(|due| *due <= next).and_then(|_| self.events.pop_first()) {
                Some((_, event)) => self.on_event(event),
                None => self.on_machine_due(),
            }
        }
        self.now = end;
    }

    /// Lets everything happen until all tasks have come to their end, or some time.
    pub fn run_to_end(&mut self, limit: Time) {
        while self.now < limit && self.ended < self.tasks.len() {
            self.run_until(Time(self.now.0 + 1_000_000));
        }
    }

    fn plan(&mut self, at: Time, event: Event) {
        self.events_given += 1;
        self.events.insert((at.max(self.now), self.events_given), event);
    }

    fn after(&mut self, microseconds: u64, event: Event) {
        self.plan(Time(self.now.0 + microseconds), event);
    }

    /// Plans the arrival of a message: not before those that were sent before it.
    fn post(&mut self, from: NodeId, to: NodeId, event: Event) {
        let delay = 50 + self.random.below(self.manner.delay_max);
        let last = self.lines.entry((from, to)).or_default();
        let at = Time((self.now.0 + delay).max(last.0));
        *last = at;
        self.plan(at, event);
    }

    fn on_machine_due(&mut self) {
        for (node, _) in self.membership.lapse(self.now) {
            self.on_node_lost(node);
        }
        self.membership.check();
        self.step(PlacerInput::Ticked);
    }

    fn step(&mut self, input: PlacerInput) {
        let mut out = Vec::new();
        let began = Instant::now();
        self.placer.step(self.now, input, &mut out);
        self.placer_time += began.elapsed();
        self.steps += 1;
        if self.steps.is_multiple_of(self.manner.check_every) {
            self.placer.check();
        }
        for effect in out {
            if self.manner.keeps_history {
                self.history.push((self.now, effect.clone()));
            }
            let (to, message) = match effect {
                PlacerEffect::Send { to, message } => (to, message),
                PlacerEffect::WriteGroup { group, write, .. } => {
                    let at =
                        self.disk_at.max(Time(self.now.0 + 1 + self.random.below(WRITE_MICROSECONDS_MAX)));
                    self.disk_at = at;
                    self.plan(at, Event::Written(group, write));
                    continue;
                }
            };
            let epoch =
                self.membership.epoch(to).unwrap_or_else(|| panic!("{to} left and is sent {message:?}"));
            self.check_message(to, &message);
            self.post(NodeId::default(), to, Event::FromPlacer(to, epoch, message));
        }
    }

    fn check_message(&mut self, to: NodeId, message: &FromPlacer) {
        match message {
            FromPlacer::Placed { node, epoch, count, .. } => {
                assert!(self.membership.is_current(*node, *epoch), "{node} is a place and has left");
                assert!(*count > 0, "a place for nothing");
            }
            FromPlacer::Impossible { request, reason } => {
                let mut lanes = self.hosts[&to].lanes.iter();
                // Its home may have died, or have had it run meanwhile.
                let Some((kind, _)) = lanes.find(|(_, lane)| lane.request == *request) else { return };
                let Strategy::Node { node, soft: false } = kind.strategy else {
                    panic!("{kind:?} may run elsewhere, and {to} is told that {reason}")
                };
                assert_eq!(self.membership.epoch(node), None, "{to} is told that {reason}");
            }
            FromPlacer::GroupChanged { group, state: GroupState::Ready, nodes, .. } => {
                for (node, index) in nodes.iter().zip(0..) {
                    let host = &self.hosts[node];
                    let has = host.bundles.contains_key(&(*group, index));
                    let doomed = host.epoch.is_none_or(|epoch| !self.membership.is_current(*node, epoch));
                    assert!(has || doomed, "{group} is ready, and {node} has not set bundle {index} aside");
                }
            }
            FromPlacer::GroupChanged { .. }
            | FromPlacer::Waiting { .. }
            | FromPlacer::Refused { .. }
            | FromPlacer::Reserve { .. }
            | FromPlacer::Commit { .. }
            | FromPlacer::Return { .. } => {}
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ToPlacer(from, epoch, message) => {
                self.step(PlacerInput::Received { from, epoch, message })
            }
            Event::FromPlacer(to, epoch, message) => {
                if self.hosts[&to].epoch == Some(epoch) {
                    self.on_placer_message(to, message);
                }
            }
            Event::Forwarded(to, epoch, tasks) => self.on_forwarded(to, epoch, tasks),
            Event::InputsCame(node, life, task, attempt) => {
                if self.hosts[&node].life == life {
                    self.hosts.get_mut(&node).expect("it is there").queue.push_back((task, attempt));
                    self.start(node);
                }
            }
            Event::Finished(node, life, task, attempt) => self.on_finished(node, life, task, attempt),
            Event::Heartbeat(node, life) => {
                let Some(epoch) = self.hosts[&node].epoch.filter(|_| self.hosts[&node].life == life) else {
                    return;
                };
                self.post(node, NodeId::default(), Event::HeartbeatCame(node, epoch));
                self.after(NODE_HEARTBEAT_MICROSECONDS, Event::Heartbeat(node, life));
            }
            Event::HeartbeatCame(node, epoch) => drop(self.membership.on_heartbeat(self.now, node, epoch)),
            Event::Report(node, life) => {
                if self.hosts[&node].life == life {
                    self.report(node);
                    self.after(self.manner.report_every, Event::Report(node, life));
                }
            }
            Event::Submit(task) => self.on_submit(task),
            Event::Crash(node) => self.on_crash(node),
            Event::Join(node) => self.on_join(node),
            Event::Say(node, message) => self.tell_placer(node, message),
            Event::Written(group, write) => {
                self.step(PlacerInput::GroupWritten { group, write, outcome: Ok(()) });
            }
        }
    }

    fn host(&mut self, node: NodeId) -> &mut Host {
        self.hosts.get_mut(&node).expect("there is such a node")
    }

    fn tell_placer(&mut self, from: NodeId, message: ToPlacer) {
        if let Some(epoch) = self.hosts[&from].epoch {
            self.post(from, NodeId::default(), Event::ToPlacer(from, epoch, message));
        }
    }

    fn on_join(&mut self, node: NodeId) {
        if self.hosts[&node].is_alive() {
            return;
        }
        let Ok(joined) = self.membership.on_joined(self.now, node) else { return };
        if joined.replaced.is_some() {
            self.return_home(node);
        }
        let host = self.host(node);
        host.epoch = Some(joined.epoch);
        let (life, labels, resources) = (host.life, host.labels.clone(), host.total.clone());
        let address = "10.0.0.1:7000".parse().expect("an address");
        let info = NodeInfo { node, epoch: joined.epoch, address, labels, resources };
        self.step(PlacerInput::NodeJoined { info });
        self.plan(self.now, Event::Heartbeat(node, life));
        let first = self.random.below(self.manner.report_every);
        self.after(first, Event::Report(node, life));
    }

    fn on_crash(&mut self, node: NodeId) {
        if let Some(epoch) = self.hosts[&node].epoch
            && self.random.chance(self.manner.ghosts_percent)
        {
            self.haunt(node, epoch);
        }
        self.host(node).die();
        for task in self.tasks.iter_mut().filter(|task| task.home == node) {
            if !matches!(task.fate, Fate::Done(_) | Fate::Impossible) && task.submitted <= self.now {
                self.ended += usize::from(task.fate != Fate::Lost);
                task.fate = Fate::Lost;
            }
        }
        for object in &mut self.objects {
            object.holders.remove(&node);
        }
    }

    /// What a node had said before it died comes later than anybody would think.
    fn haunt(&mut self, node: NodeId, epoch: Epoch) {
        let resources = self.hosts[&node].total.clone();
        let report = NodeReport { available: resources.clone(), usable: resources, ..NodeReport::default() };
        let demand =
            Demand { needs: Resources::none().with("ghosts", Amount::ONE), count: 1, ..Demand::default() };
        for message in [ToPlacer::Reported { report }, ToPlacer::PlaceWanted { request: u32::MAX, demand }] {
            let late = NODE_LEASE_MICROSECONDS + self.random.below(4_000_000);
            self.after(late, Event::ToPlacer(node, epoch, message));
        }
        self.after(NODE_LEASE_MICROSECONDS, Event::HeartbeatCame(node, epoch));
    }

    /// The lease of a node has lapsed.
    fn on_node_lost(&mut self, node: NodeId) {
        self.step(PlacerInput::NodeLeft { node });
        self.return_home(node);
    }

    /// Whatever was sent to a node that is gone is at home again.
    fn return_home(&mut self, node: NodeId) {
        let sent = (0..).zip(&self.tasks).filter(|(_, task)| task.fate == Fate::Sent(node));
        let sent: Vec<TaskIndex> = sent.map(|(index, _)| TaskIndex(index)).collect();
        sent.into_iter().for_each(|task| self.on_submit(task));
    }
}
