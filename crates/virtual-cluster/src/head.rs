//! A virtual cluster around the real head and real clients: links that fail, a control process that is killed, nodes that
//! pause, die and leave, from a seed.
//!
//! The network keeps the order of the messages of a link, delays them, and loses those that are under way when the link
//! breaks; the two ends learn of that at different times. The disk of the control process is made of real shards, lags
//! behind, and loses what was not synced when the process is killed. Checked on the way:
//! 1. the invariants of the head and of each client, after each of their steps;
//! 2. a name is granted only to the actor that the head knows by it;
//! 3. a message that comes late, over a link that was replaced, changes nothing;
//! 4. each question is answered once.
//!
//! When the faults are over, and all nodes have been welcomed:
//! 5. nothing is pending, within [`QUIET_MICROSECONDS`];
//! 6. all nodes know the same members;
//! 7. each name has one owner, which knows that it has it, and the disk says the same;
//! 8. the disk has the last value of each key, each task record, and each job once, as its node knows it; no job of a
//!    departed node runs, and no task of one is on record;
//! 9. the disk has the programs that the nodes serve, and no others.

mod checks;
mod network;
mod node;
mod process;
mod store;
mod workload;

use crate::random::Random;
use crate::trace_hash::TraceHash;
use aktis_logic::machine::control_client::{
    ControlClientEffect, ControlClientInput, QUESTION_PATIENCE_MICROSECONDS,
};
use aktis_logic::planted::HeadBug;
use aktis_logic::{LinkId, Machine, Time};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::{Amount, Epoch, NodeId, Resources};
use network::Wire;
use node::Node;
use process::{Completion, Process};
use std::collections::{BTreeMap, BTreeSet};
use store::Store;

/// How long the faults go on.
const FAULTS_MICROSECONDS: u64 = 20_000_000;
/// How long it may take at most until nothing is pending after the faults: longer than a lease lapses and a departed node's
/// records go. A question is given up much later, so each one that is asked must be answered.
pub const QUIET_MICROSECONDS: u64 = 30_000_000;
const _: () = assert!(QUIET_MICROSECONDS + SETTLED_MICROSECONDS < QUESTION_PATIENCE_MICROSECONDS);
/// How long nothing is pending before the end is checked: longer than the last pause, delay or unnoticed end of a link lasts.
const SETTLED_MICROSECONDS: u64 = 5_000_000;
/// Messages under way on one link at most.
const MESSAGES_MAX: usize = 4096;

/// What a run is made of: a random part of all faults.
#[derive(Clone, Copy, Debug)]
struct Swarm {
    breaks_links: bool,
    clogs_links: bool,
    kills_head: bool,
    pauses_nodes: bool,
    kills_nodes: bool,
    nodes_leave: bool,
    is_disk_slow: bool,
    has_ghosts: bool,
    shards: u16,
    delay_max: u64,
}

impl Swarm {
    fn new(random: &mut Random) -> Self {
        let mut flip = || random.chance(50);
        Self {
            breaks_links: flip(),
            clogs_links: flip(),
            kills_head: flip(),
            pauses_nodes: flip(),
            kills_nodes: flip(),
            nodes_leave: flip(),
            is_disk_slow: flip(),
            has_ghosts: flip(),
            shards: if flip() { 3 } else { 1 },
            delay_max: if flip() { 500 } else { 60_000 },
        }
    }
}

/// What happens at some time.
#[derive(Clone, Debug)]
enum Event {
    /// The next message of a link arrives at the control process.
    ToHead(LinkId),
    /// The next message of a link arrives at its node.
    ToNode(LinkId),
    /// The control process learns that a link is over.
    HeadLinkEnded(LinkId, bool),
    /// A node learns that a link is over.
    NodeLinkEnded(usize, LinkId),
    /// A node has dialled.
    Dialled(usize),
    /// The control process acts on what its tables have told.
    HeadTold(u64),
    HeadTicked(u64),
    NodeTicked(usize),
    /// Records of a shard are on disk.
    Synced(u64, usize, u64),
    HeadStarted,
    NodeStarted,
    /// A search for an actor has an end.
    Reached(usize, u64, bool),
    /// A node does something.
    Acted(usize),
    /// Something goes wrong.
    Fault,
}

/// The virtual cluster.
struct Cluster {
    random: Random,
    swarm: Swarm,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    events_given: u64,
    process: Option<Process>,
    /// Lives of the control process.
    lives: u64,
    store: Store<Completion>,
    /// All nodes, by number; `None` for those that are gone.
    nodes: Vec<Option<Node>>,
    /// Until when nodes are paused.
    paused: BTreeMap<usize, Time>,
    wires: BTreeMap<LinkId, Wire>,
    links: u64,
    /// Nodes that are gone.
    departed: BTreeSet<NodeId>,
    is_over: bool,
    /// A bug that each head has.
    planted: Option<HeadBug>,
    traces: bool,
    hash: TraceHash,
    summary: Summary,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A hash of everything that happened, in order.
    pub hash: u64,
    /// Steps of the head and of clients.
    pub steps: u64,
    /// Lives of the control process.
    pub lives: u64,
    /// Questions that were asked.
    pub questions: u64,
    /// Memberships that were ended while their nodes lived.
    pub memberships_lost: u64,
    /// Late messages that were injected.
    pub ghosts: u64,
}

/// Runs a cluster of so many nodes under faults, and then lets everything come to its end. With `trace`, prints one line
/// per event. Panics if something is wrong.
pub fn run(seed: u64, nodes: usize, trace: bool) -> Summary {
    run_with(seed, nodes, trace, None)
}

/// The same, with a bug in the head.
pub fn run_with(seed: u64, nodes: usize, trace: bool, planted: Option<HeadBug>) -> Summary {
    let mut random = Random::new(seed);
    let swarm = Swarm::new(&mut random);
    let mut cluster = Cluster {
        planted,
        store: Store::new(swarm.shards),
        random,
        swarm,
        now: Time(0),
        events: BTreeMap::new(),
        events_given: 0,
        process: None,
        lives: 0,
        nodes: Vec::new(),
        paused: BTreeMap::new(),
        wires: BTreeMap::new(),
        links: 0,
        departed: BTreeSet::new(),
        is_over: false,
        traces: trace,
        hash: TraceHash::default(),
        summary: Summary::default(),
    };
    cluster.after(0, Event::HeadStarted);
    (0..nodes).for_each(|_| cluster.after(1, Event::NodeStarted));
    cluster.after(500_000, Event::Fault);
    cluster.run_until(FAULTS_MICROSECONDS);
    cluster.end_faults();
    // The last faults may show after a quiet moment: a lease lapses, a link is found broken.
    let deadline = FAULTS_MICROSECONDS + QUIET_MICROSECONDS + SETTLED_MICROSECONDS;
    let mut quiet_since = None;
    while cluster.now.0 < deadline {
        let next = cluster.now.0 + 1_000_000;
        cluster.run_until(next);
        quiet_since = cluster.is_quiet().then(|| quiet_since.unwrap_or(next));
        if quiet_since.is_some_and(|since| next - since >= SETTLED_MICROSECONDS) {
            break;
        }
    }
    cluster.check_quiet();
    let Summary { steps, questions, memberships_lost, ghosts, .. } = cluster.summary;
    Summary { hash: cluster.hash.get(), steps, lives: cluster.lives, questions, memberships_lost, ghosts }
}

impl Cluster {
    fn after(&mut self, microseconds: u64, event: Event) {
        self.at(Time(self.now.0 + microseconds), event);
    }

    fn at(&mut self, time: Time, event: Event) {
        self.events_given += 1;
        self.events.insert((time, self.events_given), event);
    }

    /// Something has happened: it is part of the trace.
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let line = format!("{:>9} {what}", self.now.0);
        self.hash.add(&line);
        if self.traces {
            println!("{line}");
        }
    }

    fn run_until(&mut self, until: u64) {
        while let Some((&(time, number), _)) = self.events.first_key_value()
            && time.0 <= until
        {
            let event = self.events.remove(&(time, number)).expect("the first");
            self.now = Time(time.0.max(self.now.0));
            self.on_event(event);
        }
        self.now = Time(self.now.0.max(until));
    }

    fn on_event(&mut self, event: Event) {
        let is_there = self.process.is_some();
        if let Some(until) = self.pause_of(&event) {
            // In the same order: each link has its own queue.
            return self.at(until, event);
        }
        match event {
            Event::ToHead(link) => self.deliver_to_head(link),
            Event::ToNode(link) => self.deliver_to_node(link),
            Event::HeadLinkEnded(link, leaves) => self.on_head_link_ended(link, leaves),
            Event::NodeLinkEnded(node, link) => self.on_node_link_ended(node, link),
            Event::Dialled(node) => self.on_dialled(node),
            Event::HeadTold(life) if is_there && life == self.lives => self.on_told(),
            Event::HeadTicked(life) if is_there && life == self.lives => self.on_head_ticked(),
            Event::Synced(life, shard, up_to) if is_there && life == self.lives => {
                self.store.on_synced(self.now, shard, up_to);
                self.after_store();
            }
            // Of a life that is over.
            Event::HeadTold(_) | Event::HeadTicked(_) | Event::Synced(..) => {}
            Event::NodeTicked(node) => self.step_node(node, ControlClientInput::Ticked),
            Event::HeadStarted => self.start_head(),
            Event::NodeStarted => self.start_node(),
            Event::Reached(node, search, is_reached) => {
                self.step_node(node, ControlClientInput::ActorReached { search, is_reached });
            }
            Event::Acted(node) => self.act(node),
            Event::Fault => self.fault(),
        }
    }

    /// Until when the node of an event is paused, if it is.
    fn pause_of(&self, event: &Event) -> Option<Time> {
        let node = match event {
            Event::ToNode(link) => self.wires.get(link)?.node,
            Event::NodeTicked(node) | Event::NodeLinkEnded(node, _) | Event::Acted(node) => *node,
            _ => return None,
        };
        self.paused.get(&node).copied().filter(|until| *until > self.now)
    }

    fn start_node(&mut self) {
        let number = self.nodes.len();
        let info = NodeInfo {
            node: NodeId::from_words([number as u64 + 1, 0]),
            epoch: Epoch(0),
            address: ([127, 0, 0, 1], number as u16 + 1).into(),
            labels: Default::default(),
            resources: Resources::none().with("CPU", Amount::units(4)),
        };
        self.note(format_args!("node {number} starts"));
        self.nodes.push(Some(Node::new(info)));
        self.after(0, Event::NodeTicked(number));
        self.after(1_000, Event::Acted(number));
    }

    /// A node is told something.
    fn step_node(&mut self, number: usize, input: ControlClientInput) {
        let mut inputs = std::collections::VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now;
            let Some(node) = self.nodes[number].as_mut() else { return };
            let mut effects = Vec::new();
            let before = node.client.next_wakeup();
            let is_tick = matches!(input, ControlClientInput::Ticked);
            node.client.step(now, input.clone(), &mut effects);
            node.client.check();
            let due = node.client.next_wakeup().filter(|due| is_tick || Some(*due) != before);
            self.summary.steps += 1;
            if !is_tick || !effects.is_empty() {
                self.note(format_args!("node {number} {input:?} -> {effects:?}"));
            }
            if let Some(due) = due {
                self.at(due, Event::NodeTicked(number));
            }
            for effect in effects {
                inputs.extend(self.carry_out_for(number, effect));
            }
        }
    }

    /// Carries out what a client orders; gives what it is told at once.
    fn carry_out_for(&mut self, number: usize, effect: ControlClientEffect) -> Vec<ControlClientInput> {
        let Some(node) = self.nodes[number].as_mut() else { return Vec::new() };
        match effect {
            ControlClientEffect::Dial => {
                let pause = self.random.below(5_000);
                self.after(pause, Event::Dialled(number));
            }
            ControlClientEffect::Send { link, message } => self.send_to_head(link, message),
            ControlClientEffect::ToNode(input) => {
                let mut orders = node.on_input(input);
                if !orders.is_empty() {
                    // The shell says so after all that the node has ordered.
                    orders.push(ControlClientInput::OrdersEnded);
                }
                return orders;
            }
            ControlClientEffect::PlaceTasks { .. } => {}
            ControlClientEffect::PlaceActor { actor, .. } => {
                assert!(node.unplaced.remove(&actor), "{actor} waits for no place");
            }
            ControlClientEffect::ReachActor { search, node: other, to, request, found } => {
                self.reach_actor(number, search, other, (to, request), found);
            }
            ControlClientEffect::LookAtLinks => {
                let nodes = node.client.nodes().map(|info| info.node).collect();
                return vec![ControlClientInput::LinksSeen { nodes }];
            }
            ControlClientEffect::LookAtNode => {
                return vec![ControlClientInput::NodeSeen { report: node.report() }];
            }
            ControlClientEffect::Answer { asker, .. } => {
                let request = asker as u32;
                assert!(node.open.remove(&request), "question {request} is answered, and was not open");
            }
            ControlClientEffect::ResetNeighbours
            | ControlClientEffect::SetMembers { .. }
            | ControlClientEffect::AddMember { .. }
            | ControlClientEffect::RemoveMember { .. }
            | ControlClientEffect::Renew { .. }
            | ControlClientEffect::RenewNow
            | ControlClientEffect::End { .. }
            | ControlClientEffect::Log { .. } => {}
        }
        Vec::new()
    }
}
