//! A world with programs in all its processes, moved on one event at a time, in any order that real
//! processes could show.

use crate::program::{Deed, Program, Surroundings};
use crate::random::Random;
use crate::world::{DRIVER, World};
use aktis_logic::machine::node::NodeConfig;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{DeathCause, ProcessSlot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The channel from one process to another.
type Channel = (ProcessSlot, ProcessSlot);

/// A world and its programs.
pub struct Town<P: Program> {
    /// The virtual node.
    pub world: World,
    /// Programs of the processes that have started.
    pub programs: BTreeMap<ProcessSlot, P>,
    /// Guests that have said that they leave, and whose processes still run.
    pub departed: BTreeSet<ProcessSlot>,
    /// Chance.
    pub random: Random,
    /// Letters on their way. Those of a dead process stay in shared memory, and can still be read.
    letters: BTreeMap<Channel, VecDeque<P::Letter>>,
}

impl<P: Program> Town<P> {
    /// A town in which only the driver runs.
    pub fn new(config: NodeConfig, random: Random) -> Self {
        let world = World::new(config);
        let programs = BTreeMap::from([(DRIVER, P::begin(None, world.program))]);
        Self { world, programs, departed: BTreeSet::new(), random, letters: BTreeMap::new() }
    }

    /// The workers and guests that have not said that they are ready.
    pub fn starting(&self) -> Vec<ProcessSlot> {
        let running = self.world.running();
        let begun = |slot: &ProcessSlot| self.programs.contains_key(slot) || self.departed.contains(slot);
        running.into_iter().filter(|slot| !begun(slot)).collect()
    }

    /// A guest leaves: its program is over, but its process still has what it has pinned.
    pub fn depart(&mut self, slot: ProcessSlot) -> Option<P> {
        let program = self.programs.remove(&slot)?;
        self.departed.insert(slot);
        self.world.send(slot, ToNode::Detached);
        Some(program)
    }

    /// A worker or guest becomes ready.
    pub fn start(&mut self, slot: ProcessSlot) {
        let worker = &self.world.workers[&slot];
        self.programs.insert(slot, P::begin(worker.kind, worker.program));
        self.world.send(slot, ToNode::Started);
    }

    /// Takes out the programs of processes that do not run any more.
    pub fn bury(&mut self) -> BTreeMap<ProcessSlot, P> {
        let world = &self.world;
        self.departed.retain(|slot| world.is_running(*slot));
        self.letters.retain(|(_, to), _| world.is_running(*to));
        self.programs.extract_if(.., |slot, _| !world.is_running(*slot)).collect()
    }

    /// Processes whose node has written to them.
    pub fn with_mail(&self) -> Vec<ProcessSlot> {
        self.programs.keys().copied().filter(|slot| self.world.has_mail(*slot)).collect()
    }

    /// A process reads its next message from the node.
    pub fn read_mail(&mut self, slot: ProcessSlot) {
        let Some(message) = self.world.read(slot) else { return };
        if let FromNode::ProcessDied { process, .. } = &message {
            // What the dead one wrote is read before its death is dealt with.
            while self.read_letter((*process, slot)) {}
        }
        self.with(slot, |program, around| program.on_message(around, message));
    }

    /// Channels with something in them.
    pub fn with_letters(&self) -> Vec<Channel> {
        let full = self.letters.iter().filter(|(_, letters)| !letters.is_empty());
        full.map(|(&channel, _)| channel).filter(|(_, to)| self.programs.contains_key(to)).collect()
    }

    /// The receiver reads the next letter; false if there is none.
    pub fn read_letter(&mut self, channel: Channel) -> bool {
        let Some(letter) = self.letters.get_mut(&channel).and_then(VecDeque::pop_front) else { return false };
        self.with(channel.1, |program, around| program.on_letter(around, channel.0, letter));
        true
    }

    /// The program of a process does something by itself.
    pub fn act(&mut self, slot: ProcessSlot) {
        self.with(slot, P::act);
    }

    fn with(&mut self, me: ProcessSlot, run: impl FnOnce(&mut P, &mut Surroundings<'_, P::Letter>)) {
        if !self.world.is_running(me) {
            return;
        }
        let peers: Vec<_> = self.programs.keys().copied().filter(|slot| *slot != me).collect();
        let Some(program) = self.programs.get_mut(&me) else { return };
        let mut around = Surroundings {
            me,
            now: self.world.now(),
            index: &mut self.world.index,
            peers: &peers,
            random: &mut self.random,
            deeds: Vec::new(),
        };
        run(program, &mut around);
        for deed in around.deeds {
            match deed {
                Deed::Tell(message) => self.world.send(me, message),
                Deed::Write(to, letter) if self.world.is_running(to) => {
                    self.letters.entry((me, to)).or_default().push_back(letter);
                }
                // Into the shared memory of a process that nobody reads any more.
                Deed::Write(..) => {}
                Deed::Exit => {
                    let cause = DeathCause { pid: 1, exit_code: Some(0), ..DeathCause::default() };
                    return self.world.kill(me, cause);
                }
            }
        }
    }

    /// All that needs no faults and no time: messages, letters and the disk, until nothing is left.
    pub fn settle(&mut self) {
        loop {
            while self.world.arrive() {}
            let mut idle = true;
            for slot in self.with_mail() {
                self.read_mail(slot);
                idle = false;
            }
            for channel in self.with_letters() {
                idle &= !self.read_letter(channel);
            }
            for slot in self.starting() {
                self.start(slot);
                idle = false;
            }
            idle &= !self.world.finish_io();
            self.bury();
            if idle && self.world.unseen() == 0 {
                return;
            }
        }
    }
}
