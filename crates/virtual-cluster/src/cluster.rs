//! Several nodes that run each other's tasks, call each other's actors and know each other's objects, from a seed: the
//! real machines of nodes and of their proxies ([`aktis_logic::machine::remote_node`]), over links that keep the order of
//! what they carry, each at its own speed, with room or without.
//!
//! Checked after every step: the invariants of all machines; nothing is freed that a driver refers to; a task finishes
//! once. As long as no link and no node has failed, nothing is lost, every copy succeeds, and no actor that its owner holds
//! counts as ended. At the end, when all drivers have dropped everything, every task and call has come to its end, and
//! nothing is left on any node that lives.

mod memory;
mod port;
mod runs;
mod site;
mod tasks;

use crate::random::Random;
use crate::trace_hash::TraceHash;
use crate::world::DRIVER;
use aktis_logic::machine::remote_node::PlantedBug;
use aktis_protocol::ObjectId;
use aktis_protocol::control::ToNode;
use aktis_protocol::peer::Frame;
use site::Site;
use std::collections::{BTreeMap, VecDeque};

/// Nodes of the cluster.
const SITES: usize = 3;

/// How often all tidy up before something counts as left.
const ROUNDS: u32 = 3000;

struct Cluster {
    sites: Vec<Site>,
    /// What is on its way from one node to another.
    wires: BTreeMap<(usize, usize), VecDeque<Frame>>,
    random: Random,
    /// Whether links and nodes fail.
    faults: bool,
    trace: bool,
    /// A bug that all proxies have.
    planted: Option<PlantedBug>,
    summary: Summary,
}

/// How many frames of each kind have crossed.
pub type Frames = BTreeMap<String, u64>;

/// What a run has seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What has crossed.
    pub frames: Frames,
    /// Of all frames, with their ends and their order.
    hash: TraceHash,
}

impl Summary {
    /// A number for all that has crossed, in its order.
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// A frame crosses.
    fn note(&mut self, from: usize, to: usize, frame: &Frame) {
        let text = format!("{frame:?}");
        let kind = text.split(' ').next().unwrap_or_default();
        *self.frames.entry(kind.to_owned()).or_default() += 1;
        self.hash.add(&format!("{from}{to}{text}"));
    }
}

/// Runs `steps` random events from a seed, then lets everything come to its end. Panics if something is wrong; gives what
/// it has seen.
pub fn run(seed: u64, steps: u32, trace: bool) -> Summary {
    run_with(seed, steps, trace, None)
}

/// The same, with a bug in all proxies.
pub fn run_with(seed: u64, steps: u32, trace: bool, planted: Option<PlantedBug>) -> Summary {
    let mut random = Random::new(seed);
    let faults = random.chance(50);
    let sites = (0..SITES).map(|_| Site::new(random.chance(50))).collect();
    let mut cluster = Cluster {
        sites,
        wires: BTreeMap::new(),
        random,
        faults,
        trace,
        planted,
        summary: Summary::default(),
    };
    for (one, other) in pairs() {
        cluster.link(one, other);
    }
    for _ in 0..steps {
        cluster.step();
        cluster.check();
    }
    cluster.finish();
    cluster.summary
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..SITES).flat_map(|one| (one + 1..SITES).map(move |other| (one, other)))
}

impl Cluster {
    fn link(&mut self, one: usize, other: usize) {
        self.sites[one].world().trace = self.trace;
        self.sites[other].world().trace = self.trace;
        self.sites[one].link(other, self.planted);
        self.sites[other].link(one, self.planted);
    }

    fn unlink(&mut self, one: usize, other: usize) {
        self.sites[one].unlink(other);
        self.sites[other].unlink(one);
        self.wires.remove(&(one, other));
        self.wires.remove(&(other, one));
    }

    fn step(&mut self) {
        let site = self.random.below(SITES as u64) as usize;
        match self.random.below(100) {
            0..25 => {
                self.sites[site].world().arrive();
            }
            25..40 => self.read_mail(site),
            40..47 => {
                self.sites[site].read_channel();
            }
            47..60 => self.turn(site),
            60..75 => self.carry_one(),
            75..90 => self.sites[site].act(&mut self.random, self.faults),
            90..92 => {
                self.sites[site].world().finish_io();
            }
            92..96 => self.fetch_one(site),
            96 => self.sites[site].finish_adding(),
            97 => {
                let microseconds = self.random.below(20_000);
                self.sites[site].world().pass(microseconds);
            }
            98 if self.faults && self.random.chance(15) => self.fail_one(site),
            98 => self.sites[site].make_calls(&mut self.random),
            99 => self.seek_actor(site),
            _ => {}
        }
        self.send(site);
    }

    /// The driver of a node looks for an actor of another one.
    fn seek_actor(&mut self, index: usize) {
        let Some(other) = self.sites[index].pick_link(&mut self.random) else { return };
        let actors: Vec<_> = self.sites[other].tasks.kept().collect();
        if let Some(actor) = self.random.pick(&actors) {
            self.sites[index].seek_actor(other, actor);
        }
    }

    /// A process of a node reads a message of its node.
    fn read_mail(&mut self, index: usize) {
        let site = &mut self.sites[index];
        let readers: Vec<_> = site
            .proxies
            .iter()
            .filter(|(_, proxy)| site.world().has_mail(proxy.port.slot))
            .map(|(&other, _)| other)
            .collect();
        let turn = self.random.below(readers.len() as u64 + 1) as usize;
        match readers.get(turn) {
            Some(&other) => site.read_mail_of(other),
            None => {
                let message = site.world().read(DRIVER);
                message.into_iter().for_each(|message| site.on_mail(message));
            }
        }
    }

    /// A proxy of a node deals with what local processes want, if its link has room.
    fn turn(&mut self, index: usize) {
        let has_room = self.random.chance(70);
        if let Some(other) = self.sites[index].pick_link(&mut self.random) {
            self.sites[index].turn(other, has_room);
        }
    }

    /// What the proxies of a node want sent is on its way.
    fn send(&mut self, index: usize) {
        for (&other, proxy) in &mut self.sites[index].proxies {
            self.wires.entry((index, other)).or_default().extend(proxy.machine.outbox().drain(..));
        }
    }

    /// The next frame of some link arrives.
    fn carry_one(&mut self) {
        let full = self.wires.iter().filter(|(_, wire)| !wire.is_empty());
        let Some((from, to)) = self.random.pick(&full.map(|(&way, _)| way).collect::<Vec<_>>()) else {
            return;
        };
        let frame = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("it is not empty");
        if self.trace {
            println!("{from} -> {to}: {frame:?}");
        }
        self.summary.note(from, to, &frame);
        self.sites[to].on_frame(from, frame);
        self.send(to);
    }

    /// The oldest copy that a node wants from another goes on, as far as that one has it.
    fn fetch_one(&mut self, index: usize) {
        let fetch = self.sites[index].world().fetches.pop_front();
        let Some(fetch) = fetch else { return };
        let proxies = &self.sites[index].proxies;
        let from = proxies.iter().find(|(_, proxy)| proxy.port.slot == fetch.peer).map(|(&other, _)| other);
        let from = from.expect("fetches end with their link");
        let object = fetch.object;
        let can_serve = self.can_serve(from, object);
        let proxy = &self.sites[from].proxies[&index];
        let outcome = if proxy.machine.exported(object).is_none() {
            Err(format!("{object} is not exported"))
        } else if can_serve {
            Ok(())
        } else if self.sites[from].world().node.is_stored(object) {
            // The node that was to have it has it no more: this one fetches it, or finds out that it is lost.
            let restore = ToNode::RestoreWanted { request: 4, object };
            self.sites[from].world().send(proxy.port.slot, restore);
            return self.sites[index].world().fetches.push_back(fetch);
        } else {
            Err(format!("{object} is gone there"))
        };
        assert!(outcome.is_ok() || self.faults, "{index} from {from}: {outcome:?}");
        self.sites[index].world().finish_fetch(fetch, outcome);
    }

    /// Whether a node, or the one that it says has the object, can serve it as things are. As the shell of a node does, each
    /// reads first what its processes have told it: a worker may have sealed the object just before it answered.
    fn can_serve(&self, from: usize, object: ObjectId) -> bool {
        let mut at = from;
        for _ in 0..SITES {
            let site = &self.sites[at];
            while site.world().arrive() {}
            let copy = site.world().node.copy_of(object);
            let peer = match copy {
                None => return false,
                Some((_, None)) => return true,
                Some((_, Some(peer))) => peer,
            };
            let next =
                site.proxies.iter().find(|(_, proxy)| proxy.port.slot == peer).map(|(&other, _)| other);
            let Some(next) = next else { return false };
            at = next;
        }
        false
    }

    /// A link fails, or a whole node; others take their place.
    fn fail_one(&mut self, dying: usize) {
        if self.random.chance(50) {
            let other = (dying + 1) % SITES;
            self.unlink(dying, other);
            return self.link(dying.min(other), dying.max(other));
        }
        let others: Vec<_> = (0..SITES).filter(|other| *other != dying).collect();
        others.iter().for_each(|&other| self.unlink(dying, other));
        self.sites[dying].memory.borrow_mut().runs.clear();
        self.sites[dying] = Site::new(self.random.chance(50));
        others.iter().for_each(|&other| self.link(dying.min(other), dying.max(other)));
    }

    fn check(&self) {
        for site in &self.sites {
            site.check();
            if self.faults {
                continue;
            }
            assert!(site.losses.is_empty(), "lost though nothing failed: {:?}", site.losses);
            for actor in &site.ended {
                let is_held = self.sites.iter().any(|owner| owner.tasks.keeps(*actor));
                assert!(!is_held, "{actor:?} counts as ended, and its owner holds it");
            }
        }
    }

    /// All drivers drop everything; then nothing may be left.
    fn finish(&mut self) {
        for round in 0..ROUNDS {
            for index in 0..SITES {
                self.sites[index].close(&mut self.random);
                while self.sites[index].world().arrive() {}
                for _ in 0..4 {
                    self.read_mail(index);
                    self.sites[index].read_channel();
                    self.turn(index);
                    self.send(index);
                    self.fetch_one(index);
                    self.carry_one();
                }
                self.sites[index].make_calls(&mut self.random);
                self.sites[index].finish_adding();
                self.send(index);
                self.sites[index].world().finish_io();
                self.sites[index].world().pass(if round % 10 == 0 { 50_000 } else { 1_000 });
            }
            self.check();
            let quiet = self.wires.values().all(VecDeque::is_empty);
            if quiet && self.sites.iter().all(|site| site.remains().is_none()) {
                return;
            }
        }
        let left: Vec<_> = self.sites.iter().map(Site::remains).collect();
        panic!("something is left: {left:#?}");
    }
}
