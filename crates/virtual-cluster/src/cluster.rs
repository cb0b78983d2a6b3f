//! Several nodes that know each other's objects, from a seed: references travel as arguments, results and contents, over
//! links that keep the order of what they carry, each at its own speed.
//!
//! Checked after every step: the invariants of each node, and that nothing is freed that a driver refers to. As long as no
//! link and no node has failed, nothing is lost and every copy succeeds. At the end, when all have let go of everything,
//! nothing is left on any node that lives.

mod bridge;
mod site;

use crate::random::Random;
use crate::world::DRIVER;
use aktis_protocol::ObjectId;
use aktis_protocol::control::ToNode;
use bridge::Parcel;
use site::Site;
use std::collections::{BTreeMap, VecDeque};

/// Nodes of the cluster.
const SITES: usize = 3;

/// How often all tidy up before something counts as left.
const ROUNDS: u32 = 3000;

struct Cluster {
    sites: Vec<Site>,
    /// What is on its way from one node to another.
    wires: BTreeMap<(usize, usize), VecDeque<Parcel>>,
    random: Random,
    /// Whether links and nodes fail.
    faults: bool,
    trace: bool,
}

/// Runs `steps` random events from a seed, then lets everything come to its end. Panics if something is wrong.
pub fn run(seed: u64, steps: u32, trace: bool) {
    let mut random = Random::new(seed);
    let faults = random.chance(50);
    let sites = (0..SITES).map(|_| Site::new()).collect();
    let mut cluster = Cluster { sites, wires: BTreeMap::new(), random, faults, trace };
    for (one, other) in pairs() {
        cluster.link(one, other);
    }
    for _ in 0..steps {
        cluster.step();
        cluster.check();
    }
    cluster.finish();
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..SITES).flat_map(|one| (one + 1..SITES).map(move |other| (one, other)))
}

impl Cluster {
    fn link(&mut self, one: usize, other: usize) {
        self.sites[one].world.trace = self.trace;
        self.sites[other].world.trace = self.trace;
        self.sites[one].link(other);
        self.sites[other].link(one);
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
                self.sites[site].world.arrive();
            }
            25..45 => self.read_mail(site),
            45..60 => self.read_letters(site),
            60..75 => self.carry_one(),
            75..90 => self.sites[site].act(&mut self.random),
            90..93 => {
                self.sites[site].world.finish_io();
            }
            93..97 => self.fetch_one(site),
            97 => {
                let microseconds = self.random.below(20_000);
                self.sites[site].world.pass(microseconds);
            }
            98 if self.faults && self.random.chance(15) => self.fail_one(site),
            _ => {}
        }
    }

    /// A process of a node reads a message.
    fn read_mail(&mut self, index: usize) {
        let site = &mut self.sites[index];
        let bridges: Vec<_> = site.bridges.iter().map(|(&other, bridge)| (other, bridge.slot)).collect();
        let readers: Vec<_> =
            bridges.iter().copied().filter(|(_, slot)| site.world.has_mail(*slot)).collect();
        let turn = self.random.below(readers.len() as u64 + 1) as usize;
        match readers.get(turn) {
            Some(&(other, slot)) => {
                if let Some(message) = site.world.read(slot) {
                    site.on_mail_to_bridge(other, message);
                }
            }
            None => {
                if let Some(message) = site.world.read(DRIVER) {
                    site.on_mail(message);
                }
            }
        }
        self.send(index);
    }

    fn read_letters(&mut self, index: usize) {
        let site = &mut self.sites[index];
        if self.random.chance(50) {
            if let Some((other, letter)) = site.letters_to_driver.pop_front() {
                site.on_letter(other, letter);
            }
            return;
        }
        let others: Vec<_> = site.bridges.keys().copied().collect();
        if let Some(other) = self.random.pick(&others)
            && let Some(letter) =
                site.bridges.get_mut(&other).and_then(|bridge| bridge.letters_in.pop_front())
        {
            site.on_letter_to_bridge(other, letter);
        }
        self.send(index);
    }

    /// What those who stand for others want sent is on its way.
    fn send(&mut self, index: usize) {
        for (&other, bridge) in &mut self.sites[index].bridges {
            self.wires.entry((index, other)).or_default().extend(bridge.sending.drain(..));
        }
    }

    /// The next parcel of some link arrives.
    fn carry_one(&mut self) {
        let full = self.wires.iter().filter(|(_, wire)| !wire.is_empty());
        let Some((from, to)) = self.random.pick(&full.map(|(&way, _)| way).collect::<Vec<_>>()) else {
            return;
        };
        let parcel = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("it is not empty");
        if self.trace {
            println!("{from} -> {to}: {parcel:?}");
        }
        self.sites[to].on_parcel(from, parcel);
        self.send(to);
    }

    /// The oldest copy that a node wants from another goes on, as far as that one has it.
    fn fetch_one(&mut self, index: usize) {
        let Some(fetch) = self.sites[index].world.fetches.pop_front() else { return };
        let bridges = &self.sites[index].bridges;
        let from = bridges.iter().find(|(_, bridge)| bridge.slot == fetch.peer).map(|(&other, _)| other);
        let from = from.expect("fetches end with their link");
        let (slot, object) = (self.sites[from].bridges[&index].slot, fetch.object);
        let outcome = if self.sites[from].bridges[&index].loans.get(object).is_none() {
            Err(format!("{object} is not lent"))
        } else if self.can_serve(from, object) {
            Ok(())
        } else if self.sites[from].world.node.is_stored(object) {
            // Who was to have it has not: this one brings it here, or finds out that it is lost.
            self.sites[from].world.send(slot, ToNode::RestoreWanted { request: 4, object });
            return self.sites[index].world.fetches.push_back(fetch);
        } else {
            Err(format!("{object} is gone there"))
        };
        assert!(outcome.is_ok() || self.faults, "{index} from {from}: {outcome:?}");
        self.sites[index].world.finish_fetch(fetch, outcome);
    }

    /// Whether a node, or the one that it says has the object, can serve it as things are.
    fn can_serve(&self, from: usize, object: ObjectId) -> bool {
        let mut at = from;
        for _ in 0..SITES {
            let site = &self.sites[at];
            let peer = match site.world.node.copy_of(object) {
                None => return false,
                Some((_, None)) => return true,
                Some((_, Some(peer))) => peer,
            };
            let next = site.bridges.iter().find(|(_, bridge)| bridge.slot == peer).map(|(&other, _)| other);
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
        self.sites[dying] = Site::new();
        others.iter().for_each(|&other| self.link(dying.min(other), dying.max(other)));
    }

    fn check(&self) {
        for site in &self.sites {
            site.check();
            assert!(self.faults || site.losses.is_empty(), "lost though nothing failed: {:?}", site.losses);
        }
    }

    /// All let go of everything; then nothing may be left.
    fn finish(&mut self) {
        for round in 0..ROUNDS {
            for index in 0..SITES {
                self.sites[index].close(&mut self.random);
                while self.sites[index].world.arrive() {}
                for _ in 0..4 {
                    self.read_mail(index);
                    self.read_letters(index);
                    self.fetch_one(index);
                    self.carry_one();
                }
                self.sites[index].world.finish_io();
                self.sites[index].world.pass(if round % 10 == 0 { 50_000 } else { 1_000 });
            }
            self.check();
            let quiet = self.wires.values().all(VecDeque::is_empty);
            if quiet && self.sites.iter().all(|site| site.remains().is_none()) {
                return;
            }
        }
        let left: Vec<_> = self.sites.iter().map(Site::remains).collect();
        panic!("something is left: {left:?}");
    }
}
