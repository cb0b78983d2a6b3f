//! A whole cluster in one thread, from a seed: all machines of the product together, and every fault.
//!
//! Each virtual machine has a real node, the real client of the control process, a real proxy for each linked node, drivers
//! and workers with real submitters and lease pools. The control process is the real head, with its placer and membership,
//! on real shards. Tasks are scheduled bottom-up as in production: they wait in a queue of their node, are offloaded to the
//! placer, forwarded over a link, and answered back.
//!
//! Drivers submit tasks of all shapes, with heavy-tailed run times; tasks are given values of other tasks, submit tasks of
//! their own and wait for them, and are cancelled. Each seed has a random part of all faults: links break or are held up in
//! one direction, the control process is killed, machines pause, die and leave, workers and drivers die, disks are slow.
//!
//! Checked on the way: the invariants of all machines after each step; resources other than CPUs are never over-committed;
//! a copy is made only of an object that is exported. Without faults, no task fails that nobody has cancelled.
//!
//! When the faults are over:
//! 1. all tasks of drivers come to their end, within [`LIVENESS_MICROSECONDS`];
//! 2. the head and all clients agree about the members;
//! 3. after the drivers have left, nothing is left on any machine: no object, copy, task, or message of a proxy;
//! 4. then all resources are free.

mod faults;
mod host;
mod links;
mod memory;
mod orders;
mod process;
mod script;
mod thread;

use crate::head::{Cluster, Event, Members, Swarm};
use crate::random::Random;
use crate::world::Fetch;
use aktis_logic::machine::control_client::{ControlClientEffect, ControlClientInput};
use aktis_logic::machine::node::{NodeInput, Verdict};
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_logic::{Machine, Time};
use aktis_protocol::{FailureKind, NodeId, ProcessSlot};
use faults::Faults;
use host::Host;
use links::{PeerLink, PeerLinkId};
use script::Script;
use std::collections::{BTreeMap, BTreeSet};

/// How long drivers submit tasks, and faults happen.
const BUSY_MICROSECONDS: u64 = 6_000_000;
/// How long the tasks that were submitted may take to come to their end, in virtual time.
pub const LIVENESS_MICROSECONDS: u64 = 90_000_000;
/// How long it may take until nothing is left.
const TIDY_MICROSECONDS: u64 = 60_000_000;
/// How long it may take until all workers are gone, and all resources free.
const FREE_MICROSECONDS: u64 = 400_000_000;
/// Tasks of one driver without an outcome, at most.
const UNFINISHED_MAX: usize = 12;
/// Frames under way in one direction of a link.
const FRAMES_MAX: usize = 4096;

/// What happens to the machines, beside their clients.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    /// A machine has something to do.
    Turn(usize),
    /// A driver of a machine does something.
    Acted(usize),
    /// A node dials another one.
    Dialled(usize, NodeId),
    /// A frame arrives at an end of a link.
    FrameCame(PeerLinkId, usize),
    /// A node learns that a link is over.
    LinkEnded(usize, PeerLinkId),
    /// A copy from another node has come.
    Fetched(usize, Fetch),
    /// Something goes wrong.
    Fault,
}

/// What the machines share: the network between them.
pub(crate) struct Machines {
    faults: Faults,
    links: BTreeMap<PeerLinkId, PeerLink>,
    last_link: u64,
    fetches: BTreeSet<(usize, Fetch)>,
    frames: u64,
    /// Tasks that drivers have submitted.
    submitted: u64,
    /// Tasks of drivers and workers that have come to their end.
    finished: u64,
    /// Tasks that have failed, and that nobody had cancelled.
    failed: BTreeMap<String, u64>,
    memberships_lost: u64,
}

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A hash of everything that happened, in order.
    pub hash: u64,
    /// Virtual time in all.
    pub microseconds: u64,
    /// Steps of the head and of clients.
    pub steps: u64,
    /// Frames between nodes.
    pub frames: u64,
    /// Tasks that drivers have submitted.
    pub submitted: u64,
    /// Tasks that have come to their end.
    pub finished: u64,
    /// Tasks that have failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Memberships that were ended while their nodes lived.
    pub memberships_lost: u64,
    /// Whether there were faults.
    pub has_faults: bool,
}

/// Runs a cluster from a seed, until everything has come to its end. With `trace`, prints one line per event. Panics if
/// something is wrong.
pub fn run(seed: u64, trace: bool) -> Summary {
    run_for(seed, BUSY_MICROSECONDS, trace)
}

/// The same, with drivers and faults that go on for so long.
pub fn run_for(seed: u64, busy_microseconds: u64, trace: bool) -> Summary {
    let mut random = Random::new(seed);
    let faults = Faults::new(&mut random);
    let swarm = match faults.is_calm() {
        true => Swarm { is_disk_slow: false, has_ghosts: false, ..Swarm::new(&mut random) },
        false => Swarm::new(&mut random),
    };
    let nodes = 2 + random.below(3);
    let machines = Machines {
        faults,
        links: BTreeMap::new(),
        last_link: 0,
        fetches: BTreeSet::new(),
        frames: 0,
        submitted: 0,
        finished: 0,
        failed: BTreeMap::new(),
        memberships_lost: 0,
    };
    let mut cluster = Cluster::new(random, swarm, machines, trace);
    (0..nodes).for_each(|_| cluster.after(1, Event::NodeStarted));
    cluster.after(500_000, Event::Of(Doing::Fault));
    cluster.run_until(busy_microseconds);
    cluster.finish()
}

impl Members for Machines {
    type Node = Host;
    type Event = Doing;

    fn start_node(cluster: &mut Cluster<Self>, number: usize) -> Host {
        // When the faults are over, there is a machine that can run every task.
        let is_rich = number == 0 || cluster.is_over;
        let mut host = Host::new(cluster.now, number, is_rich, &mut cluster.random);
        let drivers = u64::from(number == 0) + cluster.random.below(2);
        (0..drivers).for_each(|_| host.attach_driver());
        cluster.after(100, Event::Of(Doing::Turn(number)));
        host.next_turn = Some(Time(cluster.now.0 + 100));
        cluster.after(1_000, Event::Of(Doing::Acted(number)));
        host
    }

    fn carry_out(
        cluster: &mut Cluster<Self>,
        number: usize,
        effect: ControlClientEffect,
    ) -> Vec<ControlClientInput> {
        let now = cluster.now;
        let Some(host) = cluster.nodes[number].as_mut() else { return Vec::new() };
        host.advance(now);
        match effect {
            ControlClientEffect::ToNode(input) => host.world().input(input),
            ControlClientEffect::PlaceTasks { shape, node, count, slots } => {
                let verdict = host.slot_of(node).map_or(Verdict::Unlinked, Verdict::There);
                host.world().input(NodeInput::Placed { shape, verdict, count, slots });
            }
            ControlClientEffect::PlaceActor { actor, node } => {
                let verdict = host.slot_of(node).map_or(Verdict::Unlinked, Verdict::There);
                host.world().input(NodeInput::ActorPlaced { actor, verdict });
            }
            ControlClientEffect::LookAtLinks => return vec![cluster.links_seen(number)],
            ControlClientEffect::LookAtNode => {
                let report = host.report();
                return vec![ControlClientInput::NodeSeen { report }];
            }
            ControlClientEffect::ReachActor { .. } | ControlClientEffect::Answer { .. } => {
                unreachable!("nobody has asked: {effect:?}")
            }
            ControlClientEffect::ResetNeighbours
            | ControlClientEffect::SetMembers { .. }
            | ControlClientEffect::AddMember { .. }
            | ControlClientEffect::RemoveMember { .. } => cluster.on_members_order(number, effect),
            ControlClientEffect::Dial | ControlClientEffect::Send { .. } => {
                unreachable!("the network carries this out: {effect:?}")
            }
            ControlClientEffect::Renew { .. }
            | ControlClientEffect::RenewNow
            | ControlClientEffect::End { .. }
            | ControlClientEffect::Log { .. } => {}
        }
        cluster.wake(number, now);
        cluster.take_orders(number)
    }

    fn on_event(cluster: &mut Cluster<Self>, event: Doing) {
        match event {
            Doing::Turn(number) => cluster.turn(number),
            Doing::Acted(number) => cluster.act(number),
            Doing::Dialled(number, node) => cluster.on_peer_dialled(number, node),
            Doing::FrameCame(link, to) => cluster.on_frame_came(link, to),
            Doing::LinkEnded(number, link) => cluster.on_link_ended(number, link),
            Doing::Fetched(number, fetch) => cluster.on_fetched(number, fetch),
            Doing::Fault => cluster.fault(),
        }
    }

    fn node_of(event: &Doing) -> Option<usize> {
        match event {
            Doing::Turn(number)
            | Doing::Acted(number)
            | Doing::Dialled(number, _)
            | Doing::LinkEnded(number, _)
            | Doing::Fetched(number, _) => Some(*number),
            Doing::FrameCame(..) | Doing::Fault => None,
        }
    }
}

impl Cluster<Machines> {
    /// A machine has something to do then.
    fn wake(&mut self, number: usize, at: Time) {
        let Some(host) = &mut self.nodes[number] else { return };
        let at = Time(at.0.max(self.now.0 + 1));
        if host.next_turn.is_none_or(|due| at < due) {
            host.next_turn = Some(at);
            self.at(at, Event::Of(Doing::Turn(number)));
        }
    }

    fn turn(&mut self, number: usize) {
        let now = self.now;
        let Some(host) = &mut self.nodes[number] else { return };
        if host.next_turn.is_none_or(|due| due > now) {
            return;
        }
        host.next_turn = None;
        let has_more = host.turn(now, &mut self.random);
        host.check();
        let due = match has_more {
            true => Some(Time(now.0 + 1 + self.random.below(200))),
            false => host.next_wakeup().map(|due| Time(due.0.max(now.0 + 1))),
        };
        self.send_frames(number);
        self.start_fetches(number);
        self.carry_out_orders(number);
        if let Some(due) = due {
            self.wake(number, due);
        }
    }

    /// What a node has ordered of the cluster reaches its client.
    fn carry_out_orders(&mut self, number: usize) {
        let inputs = self.take_orders(number);
        inputs.into_iter().for_each(|input| self.step_node(number, input));
    }

    /// The drivers of a machine do something, and again after a while.
    fn act(&mut self, number: usize) {
        if self.is_over {
            return;
        }
        let Some(host) = &mut self.nodes[number] else { return };
        let random = &mut self.random;
        for slot in host.drivers() {
            let memory = host.memory.clone();
            let process = host.processes.get_mut(&slot).expect("just listed");
            match random.below(10) {
                0..7 if process.unfinished() < UNFINISHED_MAX => {
                    for _ in 0..1 + random.below(4) {
                        let count = random.below(3);
                        let inputs = (0..count).filter_map(|_| random.pick(process.held())).collect();
                        process.submit(&mut memory.borrow_mut(), Script::random(random), inputs);
                        self.members.submitted += 1;
                    }
                }
                7 => {
                    let proxies = &host.proxies;
                    let key = random.pick(process.held()).filter(|_| random.chance(30));
                    let push = |slot: ProcessSlot, event: LocalEvent| {
                        if let Some(proxy) = proxies.values().find(|proxy| proxy.port.slot == slot) {
                            proxy.port.push_event(event);
                        }
                    };
                    if let Some(key) = key {
                        process.cancel(&mut memory.borrow_mut(), key, &push);
                    }
                }
                _ => {
                    let count = process.held().len() as u64;
                    if count > 0 {
                        process.drop_held(&mut memory.borrow_mut(), random.below(count) as usize);
                    }
                }
            }
        }
        let pause = self.random.below(60_000);
        self.after(pause, Event::Of(Doing::Acted(number)));
        self.wake(number, self.now);
    }

    /// No more faults and no more tasks: everything comes to its end, and then nothing is left.
    fn finish(mut self) -> Summary {
        self.note(format_args!("the faults are over"));
        self.is_over = true;
        self.after(0, Event::NodeStarted);
        self.nodes.iter().flatten().for_each(|host| host.world().disk_error = None);
        self.until("tasks have no outcome", LIVENESS_MICROSECONDS, Self::unfinished);
        self.until("the members differ", TIDY_MICROSECONDS, Self::disagreement);
        self.collect_outcomes();
        let numbers: Vec<usize> = (0..self.nodes.len()).collect();
        for &number in &numbers {
            let Some(host) = &mut self.nodes[number] else { continue };
            let memory = host.memory.clone();
            for slot in host.drivers() {
                let process = host.processes.get_mut(&slot).expect("just listed");
                while !process.held().is_empty() {
                    process.drop_held(&mut memory.borrow_mut(), 0);
                }
            }
            self.wake(number, self.now);
        }
        self.until("a driver has tasks", TIDY_MICROSECONDS, |cluster| {
            let hosts = cluster.nodes.iter().flatten();
            let busy = hosts.flat_map(|host| host.processes.values()).filter(|process| !process.is_empty());
            let busy: Vec<_> = busy.map(|process| process.describe()).collect();
            (!busy.is_empty()).then(|| format!("{busy:?}"))
        });
        for &number in &numbers {
            let Some(host) = &mut self.nodes[number] else { continue };
            host.drivers().into_iter().for_each(|slot| host.detach(slot));
            self.wake(number, self.now);
        }
        self.until("something is left", TIDY_MICROSECONDS, |cluster| {
            let left: Vec<_> = cluster.nodes.iter().flatten().filter_map(Host::remains).collect();
            (!left.is_empty()).then(|| format!("{left:#?}"))
        });
        self.until("resources are not free", FREE_MICROSECONDS, |cluster| {
            let hosts = cluster.nodes.iter().flatten().filter(|host| !host.is_free());
            let kept: Vec<_> = hosts.map(Host::describe_resources).collect();
            (!kept.is_empty()).then(|| format!("{kept:?}"))
        });
        let summary = self.summary();
        self.nodes.iter_mut().flatten().for_each(Host::clear);
        Summary {
            hash: summary.hash,
            microseconds: self.now.0,
            steps: summary.steps,
            frames: self.members.frames,
            submitted: self.members.submitted,
            finished: self.members.finished,
            failed: std::mem::take(&mut self.members.failed),
            memberships_lost: self.members.memberships_lost,
            has_faults: !self.members.faults.is_calm(),
        }
    }

    /// Time passes until `problem` has nothing to say. Panics if it still has after so long.
    fn until(&mut self, what: &str, microseconds: u64, problem: impl Fn(&Self) -> Option<String>) {
        let deadline = self.now.0 + microseconds;
        while let Some(text) = problem(self) {
            assert!(self.now.0 < deadline, "{what} after {} s: {text}", microseconds / 1_000_000);
            let next = self.now.0 + 250_000;
            self.run_until(next);
        }
    }

    fn unfinished(&self) -> Option<String> {
        let hosts = self.nodes.iter().flatten();
        let open: Vec<_> = hosts
            .filter_map(|host| {
                let processes = host.processes.values().filter(|process| process.unfinished() > 0);
                let tasks: Vec<_> = processes.map(|process| process.describe()).collect();
                (!tasks.is_empty()).then(|| format!("{}: {tasks:?}", host.describe()))
            })
            .collect();
        (!open.is_empty()).then(|| format!("{open:#?}"))
    }

    fn disagreement(&self) -> Option<String> {
        let Some(head) = self.head() else { return Some("there is no head".to_owned()) };
        let members: BTreeSet<NodeId> = head.membership().members().map(|(node, _)| node).collect();
        let alive: BTreeSet<NodeId> = self.nodes.iter().flatten().map(|host| host.id).collect();
        if members != alive {
            return Some(format!("{members:?} are members, {alive:?} live"));
        }
        for host in self.nodes.iter().flatten() {
            let known: BTreeSet<NodeId> =
                host.client.nodes().map(|info| info.node).chain([host.id]).collect();
            let is_linked = |node: &NodeId| {
                *node == host.id || host.neighbours.get(node).is_some_and(links::Neighbour::is_linked)
            };
            if known != alive || !host.client.is_member() || !alive.iter().all(is_linked) {
                return Some(format!("{} knows {known:?} of {alive:?}", host.id));
            }
        }
        (head.placer().waiting() > 0).then(|| "demands wait at the placer".to_owned())
    }

    /// Counts what has become of all tasks. Without faults none fails that nobody has cancelled.
    fn collect_outcomes(&mut self) {
        let is_calm = self.members.faults.is_calm();
        for host in self.nodes.iter().flatten() {
            self.members.memberships_lost += host.memberships_lost;
            for process in host.processes.values() {
                self.members.finished += process.finished;
                for (task, kind) in &process.failures {
                    let is_follow_up = *kind == FailureKind::InputFailed && process.has_cancelled();
                    assert!(!is_calm || is_follow_up, "{task} failed though nothing else did: {kind:?}");
                    let text = format!("{kind:?}");
                    let name = text.split(['(', ' ']).next().unwrap_or_default();
                    *self.members.failed.entry(name.to_owned()).or_default() += 1;
                }
            }
        }
        let odd = ["Unschedulable", "Codec", "Refused"];
        let failed = &self.members.failed;
        assert!(odd.iter().all(|kind| !failed.contains_key(*kind)), "{failed:?}");
        if let Some(head) = self.head() {
            head.check();
        }
    }
}
