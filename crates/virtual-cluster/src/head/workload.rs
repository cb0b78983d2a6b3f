//! What nodes want of the cluster, and what goes wrong meanwhile.

use super::node::{ASKER, Claim, record_of, row_of};
use super::{Cluster, Event};
use aktis_logic::Time;
use aktis_logic::machine::control_client::ControlClientInput;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::control::RequestId;
use aktis_protocol::keys::KeyQuestion;
use aktis_protocol::placement::{Demand, ToPlacer};
use aktis_protocol::tables::{Change, Query};
use aktis_protocol::{Amount, GroupId, GroupSpec, NodeId, ProcessSlot, ProgramId, Resources, ShapeId};

/// Names that nodes fight for.
const NAMES: u64 = 5;
/// Keys of each node.
const KEYS: u64 = 3;
/// Programs that a node may serve.
const PROGRAMS: u8 = 3;
/// Nodes that live at a time, at most.
const NODES_MAX: usize = 8;

fn cpus(units: u64) -> Resources {
    Resources::none().with("CPU", Amount::units(units))
}

impl Cluster {
    /// A node does something, and again after a while.
    pub(super) fn act(&mut self, number: usize) {
        if self.is_over || self.nodes[number].is_none() {
            return;
        }
        let pause = self.random.below(40_000);
        self.after(pause, Event::Acted(number));
        let choice = self.random.below(17);
        let inputs = self.wants(number, choice);
        for input in inputs {
            self.step_node(number, input);
        }
        if self.random.chance(60) {
            self.step_node(number, ControlClientInput::OrdersEnded);
        }
    }

    fn wants(&mut self, number: usize, choice: u64) -> Vec<ControlClientInput> {
        use ControlClientInput as To;
        let (name, byte) = (format!("name {}", self.random.below(NAMES)), self.random.below(250) as u8);
        let key_number = self.random.below(KEYS);
        let now = self.now.0;
        let random = &mut self.random;
        let Some(node) = self.nodes[number].as_mut() else { return Vec::new() };
        let to = ASKER;
        let mut ask = |questions: &mut u64| {
            *questions += 1;
            node.next_request()
        };
        let input = match choice {
            0 | 1 => {
                if node.claims.contains_key(&name) {
                    return Vec::new();
                }
                let found = node.next_actor();
                node.claims.insert(name.clone(), Claim { actor: found.actor, is_granted: false });
                To::NameWanted { name, found }
            }
            2 => {
                let Some(Claim { actor, .. }) = node.claims.remove(&name) else { return Vec::new() };
                To::NameFreed { name, actor }
            }
            3 | 4 => To::LookupWanted { to, request: ask(&mut self.summary.questions), name },
            5 => To::NamesWanted { to, request: ask(&mut self.summary.questions) },
            6 | 7 => {
                let request = ask(&mut self.summary.questions);
                let key = vec![number as u8, key_number as u8];
                let question = match random.below(4) {
                    0 => {
                        node.values.insert(key.clone(), None);
                        KeyQuestion::Delete { key }
                    }
                    1 => KeyQuestion::Get { key },
                    _ => {
                        node.values.insert(key.clone(), Some(vec![byte]));
                        KeyQuestion::Put { key, value: vec![byte], overwrite: true }
                    }
                };
                To::KeyWanted { to, request, question }
            }
            8 | 9 => {
                let task = node.next_task();
                node.records.insert(task, vec![byte]);
                To::ChangeWanted { change: record_of(task, &[byte]) }
            }
            10 => {
                let Some((task, _)) = node.records.pop_first() else { return Vec::new() };
                To::ChangeWanted { change: Change::TaskForgotten { task } }
            }
            11 => {
                let process = ProcessSlot(100 + node.jobs.len() as u32);
                node.jobs.insert(process, true);
                let (program, command) = (ProgramId::from_hash([1; 16]), String::new());
                To::JobBegan { process, pid: process.0, program, command, unix_microseconds: now }
            }
            12 => {
                let Some((process, runs)) = node.jobs.iter_mut().find(|(_, runs)| **runs) else {
                    return Vec::new();
                };
                *runs = false;
                To::JobEnded { process: *process, unix_milliseconds: now / 1000 }
            }
            13 => {
                let actor = node.next_actor().actor;
                node.unplaced.insert(actor);
                let demand = Demand { needs: cpus(1), count: 1, ..Demand::default() };
                To::ActorPlaceWanted { actor, demand }
            }
            14 => match random.chance(50) {
                true => {
                    let group = GroupId::created_by(node.next_task());
                    node.groups.insert(group);
                    let bundles = vec![cpus(1), cpus(1)];
                    let spec = GroupSpec { group, bundles, detached: true, ..GroupSpec::default() };
                    To::GroupMessage { message: ToPlacer::GroupWanted { spec } }
                }
                false => {
                    let Some(group) = node.groups.pop_first() else { return Vec::new() };
                    To::GroupMessage { message: ToPlacer::GroupRemoved { group } }
                }
            },
            15 => {
                let program = ProgramId::from_hash([byte % PROGRAMS; 16]);
                match node.programs.remove(&program) {
                    true => To::ProgramDropped { program },
                    false => {
                        node.programs.insert(program);
                        To::ProgramServed { row: row_of(program) }
                    }
                }
            }
            _ => match random.chance(50) {
                true => {
                    let asker = u64::from(ask(&mut self.summary.questions));
                    To::QueryWanted { asker, query: Query::Counts }
                }
                false => {
                    let demand = Demand { needs: cpus(2), count: 3, ..Demand::default() };
                    To::PlacesWanted { shape: ShapeId(1), demand }
                }
            },
        };
        vec![input]
    }

    /// A node asks another one of an actor. It has an answer if that node lives.
    pub(super) fn reach_actor(
        &mut self,
        number: usize,
        search: u64,
        other: NodeId,
        (to, request): (ProcessSlot, RequestId),
        found: FoundActor,
    ) {
        let is_there = self.nodes.iter().flatten().any(|node| node.id == other);
        let is_reached = is_there && !self.random.chance(if self.is_over { 0 } else { 20 });
        if is_reached && let Some(node) = self.nodes[number].as_mut() {
            let found = Some((ProcessSlot(50), found));
            node.on_input(NodeInput::NameFound { to, request, found });
        }
        let pause = self.random.below(2_000);
        self.after(pause, Event::Reached(number, search, is_reached));
    }

    /// One of the faults of this run happens, and the next one after a while.
    pub(super) fn fault(&mut self) {
        if self.is_over {
            return;
        }
        let pause = 20_000 + self.random.below(800_000);
        self.after(pause, Event::Fault);
        let links = self.live_links();
        let alive: Vec<usize> =
            (0..self.nodes.len()).filter(|number| self.nodes[*number].is_some()).collect();
        match self.random.below(12) {
            0..=2 if self.swarm.breaks_links => {
                if let Some(link) = self.random.pick(&links) {
                    self.break_link(link, false);
                }
            }
            3 | 4 if self.swarm.clogs_links => {
                let until = Time(self.now.0 + self.random.below(3_000_000));
                let to_head = self.random.chance(50);
                if let Some(wire) = self.random.pick(&links).and_then(|link| self.wires.get_mut(&link)) {
                    match to_head {
                        true => wire.clogged_to_head = until,
                        false => wire.clogged_to_node = until,
                    }
                }
            }
            5 if self.swarm.kills_head => self.kill_head(),
            6 | 7 if self.swarm.pauses_nodes => {
                let until = Time(self.now.0 + self.random.below(4_000_000));
                if let Some(number) = self.random.pick(&alive) {
                    self.note(format_args!("node {number} pauses until {}", until.0));
                    self.paused.insert(number, until);
                }
            }
            8 if self.swarm.kills_nodes && alive.len() > 2 => {
                let number = self.random.pick(&alive).expect("there are some");
                self.end_node(number, false);
            }
            9 if self.swarm.nodes_leave && alive.len() > 2 => {
                let number = self.random.pick(&alive).expect("there are some");
                self.end_node(number, true);
            }
            10 if alive.len() < NODES_MAX => self.start_node(),
            _ if self.swarm.has_ghosts => (0..4).for_each(|_| self.haunt()),
            _ => {}
        }
    }

    /// A node dies, or leaves.
    fn end_node(&mut self, number: usize, leaves: bool) {
        let Some(node) = self.nodes[number].take() else { return };
        self.note(format_args!("node {number} ends; it leaves: {leaves}"));
        self.departed.insert(node.id);
        if let Some(link) = node.link {
            self.break_link(link, leaves);
        }
        self.after(1_000, Event::NodeStarted);
    }

    /// No more faults, and nobody wants anything new. Pauses and delays that have begun come to their end.
    pub(super) fn end_faults(&mut self) {
        self.note(format_args!("the faults are over"));
        self.is_over = true;
        for number in 0..self.nodes.len() {
            self.step_node_if_alive(number, ControlClientInput::OrdersEnded);
        }
    }

    fn step_node_if_alive(&mut self, number: usize, input: ControlClientInput) {
        if self.nodes[number].is_some() {
            self.step_node(number, input);
        }
    }
}
