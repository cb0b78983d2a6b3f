//! A town of wanderers with faults, from a seed: what may happen in any order, happens in some order.
//!
//! Checked after every step: the node's own invariants, and the rules of shared memory. Whenever the node
//! has seen everything: what a living process can reach is known. At the end: every question was
//! answered, and nothing is left.

use crate::random::Random;
use crate::town::Town;
use crate::wanderer::{PROGRAMS, Wanderer};
use crate::world::{DRIVER, killed};
use aktis_logic::machine::node::{Guest, NodeConfig, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_logic::planted::NodeBug;
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{Amount, Labels, NodeId, ObjectId, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// Drivers and other nodes that are attached at a time.
const GUESTS_MAX: usize = 3;

/// One run.
struct Chaos {
    town: Town<Wanderer>,
    /// What each box contains, whoever made it.
    boxes: BTreeMap<ObjectId, Vec<ObjectId>>,
    /// Objects that were on their way when the process that sent them died: nobody promises them.
    unprotected: BTreeSet<ObjectId>,
}

/// Runs `steps` random events from a seed, then lets everything come to its end; with `trace`, all that the
/// node sees and orders is printed. Panics if something is wrong.
pub fn run(seed: u64, steps: u32, trace: bool) {
    run_with(seed, steps, trace, None);
}

/// The same, with a bug in the node.
pub fn run_with(seed: u64, steps: u32, trace: bool, planted: Option<NodeBug>) {
    let mut random = Random::new(seed);
    let config = NodeConfig {
        node: NodeId::default(),
        labels: Labels::new(),
        resources: Resources::none()
            .with(CPU, Amount::units(1 + random.below(4)))
            .with(GPU, Amount::units(2)),
        store_bytes: 1 << 20,
        entries_max: 64,
        spill_bytes_max: [0, 1 << 20, 1 << 30][random.below(3) as usize],
        spill_file_is_shared: true,
        spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
        driver: random.chance(80).then(|| ProgramConfig {
            program: PROGRAMS[0],
            shared_worker: random.chance(60),
            shares: true,
        }),
    };
    let mut town = Town::new(config, random);
    town.world.trace = trace;
    town.world.node.planted.plant(planted);
    let mut chaos = Chaos { town, boxes: BTreeMap::new(), unprotected: BTreeSet::new() };
    for _ in 0..steps {
        chaos.step();
        chaos.check();
    }
    chaos.finish();
}

impl Chaos {
    fn step(&mut self) {
        let town = &mut self.town;
        match town.random.below(100) {
            0..30 => {
                town.world.arrive();
            }
            30..33 => while town.world.arrive() {},
            33..50 => {
                let all = town.with_mail();
                if let Some(slot) = town.random.pick(&all) {
                    town.read_mail(slot);
                }
            }
            50..60 => {
                let all = town.with_letters();
                if let Some(channel) = town.random.pick(&all) {
                    town.read_letter(channel);
                }
            }
            60..85 => {
                let all: Vec<_> = town.programs.keys().copied().collect();
                if let Some(slot) = town.random.pick(&all) {
                    town.act(slot);
                }
            }
            85..89 => {
                town.world.finish_io();
            }
            89..92 => self.report_demand(),
            92..95 => {
                let longest = if town.random.chance(10) { 3_000_000 } else { 5_000 };
                let microseconds = town.random.below(longest);
                town.world.pass(microseconds);
            }
            95..98 => {
                let all = town.starting();
                if let Some(slot) = town.random.pick(&all) {
                    town.start(slot);
                }
            }
            98 if town.random.chance(60) => self.kill_one(),
            99 if town.random.chance(40) => self.attach_one(),
            99 if town.random.chance(30) => self.detach_one(),
            _ => {
                let full = town.random.chance(30);
                town.world.disk_error = full.then(|| "no space left on device".into());
            }
        }
    }

    fn report_demand(&mut self) {
        let town = &mut self.town;
        let lanes: Vec<_> = town.world.lanes.keys().copied().collect();
        if let Some(lane) = town.random.pick(&lanes) {
            let queued = town.random.below(4) as u32;
            town.world.input(NodeInput::LaneDemand { lane, queued });
        }
    }

    /// A driver of a known or new program, or another node.
    fn attach_one(&mut self) {
        let world = &mut self.town.world;
        let guests = world.workers.values().filter(|worker| worker.kind.is_none() && worker.running);
        if guests.count() >= GUESTS_MAX {
            return;
        }
        let index = self.town.random.below(4) as usize;
        let Some(&program) = PROGRAMS.get(index) else {
            world.attach(Guest::Peer(NodeId::default())).expect("there is a place");
            return;
        };
        world.input(NodeInput::ProgramAdded(ProgramConfig {
            program,
            shared_worker: index % 2 == 1,
            shares: true,
        }));
        world.attach(Guest::Driver(program)).expect("there is a place");
    }

    fn detach_one(&mut self) {
        let guests = self.town.world.workers.iter().filter(|(_, worker)| worker.kind.is_none());
        let guests: Vec<_> = guests.map(|(&slot, _)| slot).collect();
        let Some(slot) = self.town.random.pick(&guests) else { return };
        if self.town.world.is_running(slot)
            && let Some(mut program) = self.town.depart(slot)
        {
            self.boxes.extend(program.belongings.boxes.drain(..));
            self.unprotected.extend(program.belongings.on_the_way());
        }
    }

    fn kill_one(&mut self) {
        let victims: Vec<_> = self.town.world.running().into_iter().filter(|slot| *slot != DRIVER).collect();
        let Some(slot) = self.town.random.pick(&victims) else { return };
        self.town.world.kill(slot, killed(slot));
    }

    /// Boxes outlive their makers.
    fn note_boxes(&mut self) {
        for program in self.town.programs.values_mut() {
            self.boxes.extend(program.belongings.boxes.drain(..));
        }
    }

    fn check(&mut self) {
        self.note_boxes();
        for program in self.town.bury().into_values() {
            self.unprotected.extend(program.belongings.on_the_way());
        }
        let unprotected = self.reachable(self.unprotected.iter().copied().collect());
        for program in self.town.programs.values_mut() {
            let freed = std::mem::take(&mut program.belongings.freed_while_held);
            let wrong = freed.iter().find(|object| !unprotected.contains(object));
            assert_eq!(wrong, None, "an object was freed and is held");
        }
        if self.town.world.unseen() > 0 {
            return;
        }
        let held = self.town.programs.values().flat_map(|program| program.belongings.announced()).collect();
        for object in self.reachable(held) {
            let known = self.town.world.node.knows_object(object);
            assert!(known || unprotected.contains(&object), "{object} is held and was freed");
        }
    }

    fn reachable(&self, mut open: Vec<ObjectId>) -> BTreeSet<ObjectId> {
        let mut seen = BTreeSet::new();
        while let Some(object) = open.pop() {
            if seen.insert(object) {
                open.extend(self.boxes.get(&object).into_iter().flatten());
            }
        }
        seen
    }

    /// Everybody tidies up; then nothing may be left.
    fn finish(&mut self) {
        self.town.world.disk_error = None;
        for slot in self.town.departed.clone() {
            self.town.world.kill(slot, killed(slot));
        }
        for _ in 0..2000 {
            self.tidy_up();
            if self.is_over() {
                return self.end_guests();
            }
        }
        let node = &self.town.world.node;
        let waiting: Vec<_> = self.town.programs.iter().filter(|(_, program)| !is_over(program)).collect();
        let waiting: Vec<_> = waiting.iter().map(|(slot, _)| **slot).collect();
        panic!(
            "something is left: {} objects, {} copies, {} actors, {} groups, {} spilled bytes; {waiting:?} wait",
            node.objects(),
            node.copies(),
            node.actors(),
            node.groups(),
            node.spilled_bytes()
        );
    }

    /// Without drivers, their programs end and are forgotten.
    fn end_guests(&mut self) {
        let guests = self.town.world.workers.iter().filter(|(_, worker)| worker.kind.is_none());
        for slot in guests.map(|(&slot, _)| slot).collect::<Vec<_>>() {
            self.town.world.kill(slot, killed(slot));
        }
        for _ in 0..200 {
            self.tidy_up();
            self.town.world.pass(500_000);
        }
        let world = &self.town.world;
        // A daemon has lanes for many programs, and keeps them.
        assert!(world.program.is_none() || world.node.programs() == 1, "a program is left");
        let strange = world.running().into_iter().find(|slot| world.program_of(*slot) != world.program);
        assert_eq!(strange, None, "a worker of another program is left");
    }

    fn tidy_up(&mut self) {
        let town = &mut self.town;
        town.settle();
        for lane in town.world.lanes.keys().copied().collect::<Vec<_>>() {
            town.world.input(NodeInput::LaneDemand { lane, queued: 0 });
        }
        for slot in town.programs.keys().copied().collect::<Vec<_>>() {
            if let Some(program) = town.programs.get_mut(&slot) {
                program.closing = true;
            }
            town.act(slot);
        }
        town.world.pass(5_000);
        town.settle();
    }

    fn is_over(&self) -> bool {
        let node = &self.town.world.node;
        let nothing =
            node.objects() + node.copies() + node.actors() + node.groups() == 0 && node.spilled_bytes() == 0;
        nothing && self.town.programs.values().all(is_over)
    }
}

fn is_over(program: &Wanderer) -> bool {
    program.belongings.are_gone() && program.hosting.is_over()
}
