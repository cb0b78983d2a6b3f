//! One machine: its node, the client of the control process, a proxy for each linked node, drivers and workers.

use super::links::Neighbour;
use super::memory::Memory;
use super::process::Process;
use super::script::{LICENCE, PROGRAM};
use super::thread::RunTimes;
use crate::head::{Member, node_id};
use crate::port::{Proxy, SharedMemory, VirtualProcess, counts_left};
use crate::random::Random;
use crate::world::{World, killed};
use aktis_logic::machine::control_client::ControlClient;
use aktis_logic::machine::node::{Guest, NodeConfig, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_logic::machine::remote_node::{LocalEvent, LocalNode, LocalProcesses, RemoteNode};
use aktis_logic::{LinkId, Machine, Time};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::placement::{NodeInfo, NodeReport, RunTimes as RunTimesRow};
use aktis_protocol::resources::CPU;
use aktis_protocol::{
    Amount, DeathCause, Epoch, Failure, FailureKind, Labels, NodeId, ProcessSlot, Resources, SessionId,
    TaskId,
};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Bytes of a node's store: a few values fill it.
const STORE_BYTES: u64 = 1 << 20;
/// How often the node looks at queues that have tasks.
const DEMAND_MICROSECONDS: u64 = 10_000;
/// What happens to a machine at one time, at most.
const DEEDS_MAX: usize = 48;
/// Cells of a proxy: few, so that some tasks have none.
const CELLS: usize = 3;

/// See the module.
pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) client: ControlClient,
    pub(super) link: Option<LinkId>,
    /// The epoch of its membership, as it tells other nodes.
    pub(super) epoch: Epoch,
    pub(super) is_expelled: bool,
    pub(super) memory: Rc<RefCell<Memory>>,
    pub(super) neighbours: BTreeMap<NodeId, Neighbour>,
    pub(super) proxies: BTreeMap<NodeId, Proxy<Memory>>,
    pub(super) processes: BTreeMap<ProcessSlot, Process>,
    pub(super) next_turn: Option<Time>,
    next_demand: Time,
    /// Whether tasks were queued when the node was told last.
    has_demand: bool,
    run_times: RunTimes,
    roots: u64,
    total: Resources,
    pub(super) memberships_lost: u64,
}

impl Host {
    /// A machine that starts now. A rich one has all that a task may need.
    pub(super) fn new(now: Time, number: usize, is_rich: bool, random: &mut Random) -> Self {
        let (id, has_program) = (node_id(number), random.chance(50));
        let cpus = if is_rich { 4 } else { random.below(5) };
        let total = Resources::none().with(CPU, Amount::units(cpus));
        let total = if is_rich || random.chance(30) { total.with(LICENCE, Amount::ONE) } else { total };
        let config = NodeConfig {
            node: id,
            labels: Labels::new(),
            resources: total.clone(),
            store_bytes: STORE_BYTES,
            entries_max: 256,
            spill_bytes_max: 1 << 30,
            spill_file_is_shared: true,
            spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
            driver: None,
        };
        let mut world = World::new(config);
        world.join_cluster();
        let info = NodeInfo {
            node: id,
            epoch: Epoch(0),
            address: ([127, 0, 0, 1], number as u16 + 1).into(),
            labels: Labels::new(),
            resources: total.clone(),
        };
        let mut host = Self {
            id,
            client: ControlClient::new(info, crate::world::DRIVER),
            link: None,
            epoch: Epoch(0),
            is_expelled: false,
            memory: Rc::new(RefCell::new(Memory::new(world, false))),
            neighbours: BTreeMap::new(),
            proxies: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_turn: None,
            next_demand: Time(0),
            has_demand: false,
            run_times: RunTimes::new(),
            roots: 0,
            total,
            memberships_lost: 0,
        };
        host.advance(now);
        if has_program {
            host.add_program();
        }
        host
    }

    pub(super) fn world(&self) -> RefMut<'_, World> {
        RefMut::map(self.memory.borrow_mut(), |memory| &mut memory.world)
    }

    /// The process that is the proxy for a node.
    pub(super) fn slot_of(&self, node: NodeId) -> Option<ProcessSlot> {
        self.proxies.get(&node).map(|proxy| proxy.port.slot)
    }

    /// The node that a process is the proxy for.
    pub(super) fn node_of(&self, slot: ProcessSlot) -> Option<NodeId> {
        self.proxies.iter().find(|(_, proxy)| proxy.port.slot == slot).map(|(node, _)| *node)
    }

    fn add_program(&mut self) {
        let config = ProgramConfig { program: PROGRAM, shared_worker: true, shares: false };
        self.world().input(NodeInput::ProgramAdded(config));
        self.memory.borrow_mut().has_program = true;
    }

    fn next_root(&mut self) -> TaskId {
        self.roots += 1;
        TaskId::root(SessionId((self.id.to_words()[0] << 32) | self.roots))
    }

    /// A driver attaches, if there is a place for it.
    pub(super) fn attach_driver(&mut self) {
        self.add_program();
        let attached = self.world().attach(Guest::Driver(PROGRAM));
        let Ok(slot) = attached else { return };
        self.world().send(slot, ToNode::Started);
        let process = Process::new(slot, true, self.next_root());
        self.processes.insert(slot, process);
    }

    pub(super) fn drivers(&self) -> Vec<ProcessSlot> {
        self.processes.iter().filter(|(_, process)| process.is_driver).map(|(slot, _)| *slot).collect()
    }

    pub(super) fn workers(&self) -> Vec<ProcessSlot> {
        self.processes.iter().filter(|(_, process)| !process.is_driver).map(|(slot, _)| *slot).collect()
    }

    /// A driver or worker dies at once.
    pub(super) fn kill(&mut self, slot: ProcessSlot) {
        self.end_process(slot, killed(slot));
    }

    /// A driver leaves.
    pub(super) fn detach(&mut self, slot: ProcessSlot) {
        self.processes.remove(&slot);
        self.world().send(slot, ToNode::Detached);
    }

    fn end_process(&mut self, slot: ProcessSlot, cause: DeathCause) {
        self.processes.remove(&slot);
        let mut memory = self.memory.borrow_mut();
        memory.on_process_ended(slot);
        memory.world.kill(slot, cause);
    }

    /// Time passes for the node, which does what is due.
    pub(super) fn advance(&mut self, now: Time) {
        let mut world = self.world();
        let passed = now.0 - world.now().0;
        world.pass(passed);
    }

    /// Everything that can happen now happens, in a random order, up to a bound; gives whether there is more.
    pub(super) fn turn(&mut self, now: Time, random: &mut Random) -> bool {
        self.advance(now);
        if now >= self.next_demand {
            self.report_demand();
            self.next_demand = Time(now.0 + DEMAND_MICROSECONDS);
        }
        for _ in 0..DEEDS_MAX {
            match random.below(9) {
                0..3 => drop(self.world().arrive()),
                3 => self.read_mail(random),
                4 => self.read_packet(random),
                5 | 6 => self.run_one(now, random),
                7 => self.serve_proxy(now, random),
                _ => self.tend(random),
            }
        }
        self.queue_runs();
        self.end_left();
        self.has_more()
    }

    fn report_demand(&mut self) {
        let mut memory = self.memory.borrow_mut();
        memory.tidy();
        self.has_demand = memory.lanes.values().any(|tasks| !tasks.is_empty());
        let queued: Vec<_> = memory.lanes.iter().map(|(&lane, tasks)| (lane, tasks.len() as u32)).collect();
        for (lane, queued) in queued {
            memory.world.input(NodeInput::LaneDemand { lane, queued });
        }
    }

    /// A process or proxy reads what the node has sent it.
    fn read_mail(&mut self, random: &mut Random) {
        let world = self.world();
        let known = self.processes.keys().copied().chain(self.proxies.values().map(|proxy| proxy.port.slot));
        let readers: Vec<_> = known.filter(|slot| world.has_mail(*slot)).collect();
        drop(world);
        let Some(slot) = random.pick(&readers) else { return };
        let Some(message) = self.world().read(slot) else { return };
        if let Some(process) = self.processes.get_mut(&slot) {
            if message == FromNode::Shutdown {
                let cause = DeathCause { pid: 1, exit_code: Some(0), ..DeathCause::default() };
                return self.end_process(slot, cause);
            }
            return process.on_mail(&mut self.memory.borrow_mut(), message);
        }
        let node = self.node_of(slot).expect("it has mail");
        self.on_proxy_mail(node, message);
    }

    /// What a dead worker had of another node's tasks is lost.
    fn on_proxy_mail(&mut self, node: NodeId, message: FromNode) {
        let port = self.proxies[&node].port.clone();
        if let FromNode::ProcessDied { process, cause } = &message {
            let mut memory = self.memory.borrow_mut();
            let is_lost = |at: &(ProcessSlot, usize), cell: &mut super::memory::Cell| {
                at.0 == *process && cell.submitter == port.slot
            };
            let lost: Vec<_> = memory.cells.extract_if(.., is_lost).map(|(_, cell)| cell.key).collect();
            let runs: Vec<_> = lost.into_iter().filter_map(|key| memory.take_run(key)).collect();
            drop(memory);
            for run in runs {
                let failure = Failure::new(FailureKind::WorkerDied(cause.clone()), "its worker died");
                port.push_event(LocalEvent::Failed { ticket: run.ticket, failure });
            }
        }
        port.on_message(message);
    }

    fn read_packet(&mut self, random: &mut Random) {
        let memory = self.memory.borrow();
        let full = memory.inboxes.iter().filter(|(_, inbox)| !inbox.is_empty()).map(|(slot, _)| *slot);
        let readers: Vec<_> = full.collect();
        drop(memory);
        let Some(slot) = random.pick(&readers) else { return };
        let mut memory = self.memory.borrow_mut();
        let packet = memory.inboxes.get_mut(&slot).and_then(VecDeque::pop_front);
        if let (Some(process), Some(packet)) = (self.processes.get_mut(&slot), packet) {
            process.on_packet(&mut memory, packet);
        }
    }

    /// The threads of one process go on, and what it has to submit is sent.
    fn run_one(&mut self, now: Time, random: &mut Random) {
        let slots: Vec<_> = self.processes.keys().copied().collect();
        let Some(slot) = random.pick(&slots) else { return };
        let process = self.processes.get_mut(&slot).expect("just listed");
        let mut memory = self.memory.borrow_mut();
        if memory.world.is_running(slot) {
            let progress = process.work(now, &mut memory, random, &mut self.run_times);
            process.is_dirty = process.flush(now, &mut memory) || progress;
        }
    }

    /// One proxy deals with what local processes want, if its link has room.
    fn serve_proxy(&mut self, now: Time, random: &mut Random) {
        let nodes: Vec<_> = self.proxies.keys().copied().collect();
        let Some(node) = random.pick(&nodes) else { return };
        let has_room = random.chance(80);
        let proxy = self.proxies.get_mut(&node).expect("just listed");
        proxy.machine.begin_turn();
        proxy.machine.on_time(now);
        if has_room {
            proxy.machine.add_events(proxy.port.take_events());
            while proxy.machine.on_room(now) {}
            proxy.machine.send_program_part();
        }
        proxy.settle();
    }

    /// Disks, programs that are being added, and processes that start.
    fn tend(&mut self, random: &mut Random) {
        match random.below(3) {
            0 => drop(self.world().finish_io()),
            1 => self.finish_adding(),
            _ => self.start_one(random),
        }
    }

    fn finish_adding(&mut self) {
        let adding = self.memory.borrow_mut().adding.pop();
        let Some((slot, program)) = adding else { return };
        self.add_program();
        let now = self.world().now();
        if let Some(node) = self.node_of(slot) {
            let proxy = self.proxies.get_mut(&node).expect("just found");
            proxy.machine.on_program_added(now, program, Ok(()));
            proxy.settle();
        }
    }

    fn starting(&self) -> Vec<ProcessSlot> {
        let world = self.world();
        let workers = world.workers.iter().filter(|(_, worker)| worker.running && worker.kind.is_some());
        workers.map(|(slot, _)| *slot).filter(|slot| !self.processes.contains_key(slot)).collect()
    }

    fn start_one(&mut self, random: &mut Random) {
        let Some(slot) = random.pick(&self.starting()) else { return };
        self.world().send(slot, ToNode::Started);
        let process = Process::new(slot, false, self.next_root());
        self.processes.insert(slot, process);
    }

    /// Tasks of other nodes enter their queues when their inputs are known.
    fn queue_runs(&mut self) {
        let ready = self.memory.borrow().ready_runs();
        for (lane, slot, task) in ready {
            let Some(node) = self.node_of(slot) else { continue };
            let memory = self.memory.borrow();
            let run = memory.runs.iter().find(|run| run.key == task.key).expect("just listed");
            let is_ready = self.proxies[&node].port.are_known(&run.arguments);
            drop(memory);
            if is_ready {
                let mut memory = self.memory.borrow_mut();
                memory.queued.insert(task.key);
                memory.queue(slot, lane, task);
            }
        }
    }

    /// Processes that have left end.
    fn end_left(&mut self) {
        let left = std::mem::take(&mut self.world().left);
        let cause = DeathCause { pid: 1, exit_code: Some(0), ..DeathCause::default() };
        left.into_iter().for_each(|slot| self.end_process(slot, cause.clone()));
        // A killed worker's program is over.
        let world = self.world();
        let dead: Vec<_> = self.processes.keys().copied().filter(|slot| !world.is_running(*slot)).collect();
        drop(world);
        for slot in dead {
            self.processes.remove(&slot);
            self.memory.borrow_mut().on_process_ended(slot);
        }
    }

    fn has_more(&self) -> bool {
        let is_starting = !self.starting().is_empty();
        let memory = self.memory.borrow();
        let has_mail = |slot: ProcessSlot| memory.world.has_mail(slot);
        let can_claim = |proxy: &Proxy<Memory>| {
            proxy.machine.idle_shapes().into_iter().any(|shape| memory.has_tasks_to_forward(shape))
        };
        is_starting
            || memory.world.unseen() > 0
            || memory.world.io() > 0
            || memory.inboxes.values().any(|inbox| !inbox.is_empty())
            || !memory.adding.is_empty()
            || self.processes.iter().any(|(slot, process)| has_mail(*slot) || process.can_go_on(&memory))
            || self.proxies.values().any(|proxy| {
                let port = &proxy.port;
                has_mail(port.slot) || port.has_events() || proxy.machine.has_backlog() || can_claim(proxy)
            })
    }

    /// When something is due, if nothing else happens before.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let node = self.world().node.next_wakeup();
        let proxies = self.proxies.values().filter_map(|proxy| proxy.machine.next_wakeup());
        let processes = self.processes.values();
        let threads = processes
            .clone()
            .flat_map(|process| process.threads.iter().filter_map(super::thread::Thread::next_wakeup));
        let rests = processes.filter_map(Process::next_wakeup);
        let has_tasks = self.has_demand || self.memory.borrow().lanes.values().any(|tasks| !tasks.is_empty());
        let demand = has_tasks.then_some(self.next_demand);
        node.into_iter().chain(proxies).chain(threads).chain(rests).chain(demand).min()
    }

    /// How the node stands, for the placer.
    pub(super) fn report(&mut self) -> NodeReport {
        let memory = self.memory.borrow();
        let running = |slot: ProcessSlot| {
            let threads = self.processes.get(&slot).map(|process| &process.threads);
            let running = threads.into_iter().flatten().filter(|thread| thread.is_on_cpu());
            running.map(|thread| (thread.shape, thread.function())).collect()
        };
        let report = memory.world.node.report(running, |shape| memory.waiting(shape));
        drop(memory);
        let run_times = std::mem::take(&mut self.run_times).into_iter();
        let row = |(function, buckets): (_, BTreeMap<u8, u32>)| RunTimesRow {
            function,
            buckets: buckets.into_iter().collect(),
        };
        NodeReport { run_times: run_times.map(row).collect(), ..report }
    }

    /// Checks what must hold at any time.
    pub(super) fn check(&self) {
        self.proxies.values().for_each(|proxy| proxy.machine.check());
        let licences: u64 = self.processes.values().map(Process::licences).sum();
        assert!(
            Amount::units(licences) <= self.total.get(LICENCE),
            "{}: {licences} licences are in use",
            self.id
        );
    }

    /// What is left here after all, if anything.
    pub(super) fn remains(&self) -> Option<String> {
        self.memory.borrow_mut().tidy();
        let memory = self.memory.borrow();
        let node = &memory.world.node;
        let counts = [
            ("objects", node.objects()),
            ("copies", node.copies()),
            ("runs", memory.runs.len()),
            ("cells", memory.cells.len()),
            ("fetches", memory.world.fetches.len()),
            ("queued tasks", memory.lanes.values().map(VecDeque::len).sum()),
            ("processes with tasks", self.processes.values().filter(|process| !process.is_empty()).count()),
            ("drivers", self.drivers().len()),
        ];
        let mut left = counts_left(&counts);
        for (other, proxy) in &self.proxies {
            left.extend(proxy.remains().map(|text| format!("proxy for {other}: {text}")));
        }
        if node.resources_debt().iter().any(|(_, amount)| amount != Amount::ZERO) {
            left.push(format!("debt {:?}", node.resources_debt()));
        }
        (!left.is_empty()).then(|| format!("{}: {}", self.id, left.join(", ")))
    }

    /// How things stand, in words.
    pub(super) fn describe(&self) -> String {
        let memory = self.memory.borrow();
        let lanes: Vec<_> = memory.lanes.iter().map(|(lane, tasks)| (*lane, tasks.len())).collect();
        let proxies: Vec<_> =
            self.proxies.iter().map(|(node, proxy)| (node, proxy.machine.counts())).collect();
        format!(
            "{} lanes {lanes:?} of {:?}, cells {:?}, proxies {proxies:?}",
            self.id, memory.world.lanes, memory.cells
        )
    }

    /// Whether all resources are free, since no worker is left.
    pub(super) fn is_free(&self) -> bool {
        let memory = self.memory.borrow();
        memory.world.node.resources_available() == &self.total
    }

    pub(super) fn describe_resources(&self) -> String {
        let memory = self.memory.borrow();
        format!("{:?} of {:?}", memory.world.node.resources_available(), self.total)
    }

    /// A new proxy, for a link to another node.
    pub(super) fn add_proxy(&mut self, node: NodeId) {
        let slot = self.world().attach(Guest::Peer(node)).expect("there is a place");
        self.world().send(slot, ToNode::Started);
        self.memory.borrow_mut().proxies.insert(slot);
        let port = VirtualProcess::new(slot, self.memory.clone());
        let machine = RemoteNode::new(port.clone(), CELLS);
        self.proxies.insert(node, Proxy { port, machine });
    }

    /// The proxy of a node ends, and is a dead process.
    pub(super) fn end_proxy(&mut self, now: Time, node: NodeId) {
        let Some(Proxy { port, mut machine }) = self.proxies.remove(&node) else { return };
        let (slot, cause) = (port.slot, killed(port.slot));
        machine.on_link_ended(now, &cause);
        machine.on_time(now);
        machine.end(&cause);
        port.tell(ToNode::NodeGone);
        drop(machine);
        let is_its = |run: &mut super::memory::Run| run.proxy.slot == slot;
        let runs: Vec<_> = self.memory.borrow_mut().runs.extract_if(.., is_its).collect();
        drop(runs);
        port.release_dropped();
        let mut memory = self.memory.borrow_mut();
        memory.on_process_ended(slot);
        memory.world.kill(slot, cause);
        // The node hears of the death first, and before that all that it was told until then.
        while memory.world.arrive() {}
        memory.proxies.remove(&slot);
        let fetches = std::mem::take(&mut memory.world.fetches);
        let (dead, alive): (VecDeque<_>, VecDeque<_>) =
            fetches.into_iter().partition(|fetch| fetch.peer == slot);
        memory.world.fetches = alive;
        for fetch in dead {
            memory.world.finish_fetch(fetch, Err("the node that had it is gone".to_owned()));
        }
    }

    /// What keeps this machine in memory goes with it.
    pub(super) fn clear(&mut self) {
        let runs = std::mem::take(&mut self.memory.borrow_mut().runs);
        drop(runs);
        self.proxies.clear();
    }
}

impl Member for Host {
    fn id(&self) -> NodeId {
        self.id
    }

    fn client(&mut self) -> &mut ControlClient {
        &mut self.client
    }

    fn link(&mut self) -> &mut Option<LinkId> {
        &mut self.link
    }
}
