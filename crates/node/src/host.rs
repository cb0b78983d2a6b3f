//! A node on a thread of this process: in a daemon, to which drivers attach, or in a driver.
//!
//! Several places in the node's table of processes can be in this process, each with a [`LocalLink`]: the one of the
//! process itself, and in a daemon those that stand for other nodes.

use crate::attach::{Directory, Server};
use crate::bell::Bell;
use crate::delivery::{Deliver, Delivery};
use crate::disk::SpillSpace;
use crate::embedded::OutputOptions;
use crate::node_thread::{NodeThread, Shared};
use crate::output::{Forwarder, OutputEvents};
use crate::programs::{Launch, ProgramError, ProgramSource, launch_of};
use crate::shell::{Elsewhere, Explainer, HOST, Shell};
use aktis_logic::machine::node::{
    DrainProgress, Guest, NodeConfig, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT,
};
use aktis_protocol::admin::LogLine;
use aktis_protocol::control::{RequestId, ToNode};
use aktis_protocol::placement::NodeReport;
use aktis_protocol::questions::{ProcessAnswer, ProcessQuestion};
use aktis_protocol::{
    DeathCause, Labels, NodeId, ObjectId, ProcessSlot, ProgramId, ProgramSpec, Resources, SessionId, limits,
};
use aktis_store::{Arena, Control, Hidden, Pin, SpilledObject, SpilledObjects, StoreError};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// What a node in a daemon starts with.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The name of its session; a random one if it has none.
    pub session: Option<SessionId>,
    /// Where it listens for drivers and keeps copies of programs: a private directory, made if it is not there.
    pub directory: PathBuf,
    /// What its operator says about it.
    pub labels: Labels,
    /// What it offers.
    pub resources: Resources,
    /// Size of the object store.
    pub store_bytes: u64,
    /// Where objects go that do not fit.
    pub spill_directory: PathBuf,
    /// How many bytes may be there at most.
    pub spill_bytes_max: u64,
    /// What becomes of what workers print.
    pub output: OutputOptions,
    /// A directory that workers do not see.
    pub hidden: Option<Hidden>,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no object store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no shared memory for queues.
    #[error(
        "no shared memory for the queues between processes: {0}\n\
         hint: raise the limits on address space (ulimit -v) and on the size of files (ulimit -f)"
    )]
    Control(io::Error),
    /// Its directory cannot be used.
    #[error("the node cannot use its directory: {0}")]
    Directory(io::Error),
    /// The system is out of descriptors or threads.
    #[error(
        "the system refused {what}: {source}\n\
         hint: raise the limits on open files (ulimit -n) and on processes (ulimit -u)"
    )]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// What every node begins with.
pub(crate) struct Beginning {
    pub(crate) session: Option<SessionId>,
    pub(crate) labels: Labels,
    pub(crate) resources: Resources,
    pub(crate) store_bytes: u64,
    pub(crate) spill_directory: PathBuf,
    pub(crate) spill_bytes_max: u64,
    pub(crate) spill_above_percent: u32,
    pub(crate) output: OutputOptions,
    pub(crate) hidden: Option<Hidden>,
}

/// What a place in this process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalRole {
    /// The daemon itself; it always has its place, and can be opened once at a time.
    Daemon,
    /// What stands for this other node.
    Peer(NodeId),
}

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The node has none left.
    #[error("{0}")]
    Refused(String),
    /// Shared memory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An object that is served to another node.
pub enum OpenedCopy {
    /// Its bytes, which stay while this lives.
    InMemory(Pin),
    /// It lies on disk for now.
    OnDisk(Arc<SpilledObject>),
    /// The node that this process stands for has it.
    Elsewhere(ProcessSlot),
}

/// How often an object is looked for that is between memory and disk, and the pause before each look.
const OPENINGS_MAX: u32 = 1000;
const OPEN_AGAIN: Duration = Duration::from_millis(1);

/// A node on a thread of this process.
pub struct Host {
    session: SessionId,
    control: Arc<Control>,
    arena: Arc<Arena>,
    /// What of it lies on disk.
    spilled: Arc<SpilledObjects>,
    shared: Arc<Shared>,
    /// What others can attach to, with its directory; none in a driver, and none after the end.
    door: Mutex<Option<(Server, Arc<Directory>)>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    thread_id: ThreadId,
    pid: u32,
    /// What workers print, unless nobody wants it.
    forwarder: Option<Forwarder>,
}

/// The labels of a node with the one that every node has: its id.
pub fn with_own_label(mut labels: Labels, node: NodeId) -> Labels {
    labels.insert(
        aktis_protocol::placement::NODE_ID_LABEL.to_owned(),
        node.to_words().map(|word| format!("{word:016x}")).concat(),
    );
    labels
}

impl Host {
    /// Starts a node to which drivers can attach when this returns.
    pub fn start(config: HostConfig) -> Result<Arc<Self>, StartError> {
        let directory = Arc::new(Directory::take(&config.directory).map_err(StartError::Directory)?);
        let beginning = Beginning {
            session: config.session,
            labels: config.labels,
            resources: config.resources,
            store_bytes: config.store_bytes,
            spill_directory: config.spill_directory,
            spill_bytes_max: config.spill_bytes_max,
            spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
            output: config.output,
            hidden: config.hidden,
        };
        let host = Self::begin(beginning, None)?;
        let server = Server::start(directory.clone(), host.shared.clone()).map_err(StartError::Directory)?;
        *host.door.lock() = Some((server, directory));
        Ok(Arc::new(host))
    }

    /// Starts a node: in a driver, if there is one that takes its answers and has workers.
    pub(crate) fn begin(
        beginning: Beginning,
        driver: Option<(Launch, Arc<Delivery>)>,
    ) -> Result<Self, StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let session = beginning.session.map_or_else(random_session, Ok).map_err(system("random bytes"))?;
        let control = Arc::new(Control::create().map_err(StartError::Control)?);
        let arena = Arena::create(beginning.store_bytes, limits::STORED_OBJECTS_MAX)?;
        let spill = SpillSpace::open(beginning.spill_directory, beginning.spill_bytes_max);
        let arena = Arc::new(arena.with_file(spill.descriptor()));
        let bell = Arc::new(Bell::new().map_err(system("an event descriptor"))?);
        let program = driver.as_ref().map(|(launch, _)| ProgramConfig {
            program: ProgramId::default(),
            shared_worker: matches!(launch, Launch::ThisProgram),
            shares: false,
        });
        let node = NodeId::of_session(session);
        let config = NodeConfig {
            node,
            labels: with_own_label(beginning.labels, node),
            resources: beginning.resources,
            store_bytes: beginning.store_bytes,
            entries_max: limits::STORED_OBJECTS_MAX,
            spill_bytes_max: beginning.spill_bytes_max,
            spill_file_is_shared: arena.file_fd().is_some(),
            spill_above_percent: beginning.spill_above_percent,
            driver: program,
        };
        let mut shell = Shell::new(config, session, control.clone(), arena.clone(), spill, bell.clone())
            .map_err(system("sockets"))?;
        let inbox = shell.inbox_descriptor().map_err(system("sockets"))?;
        if let Some((launch, delivery)) = driver {
            shell.launch(ProgramId::default(), launch);
            let _ = shell.open_local(None, delivery);
        }
        shell.begin();
        let spilled = shell.spilled();
        let output = beginning.output;
        let forwarder =
            output.forward.then(|| Forwarder::new(bell.clone(), output.deduplicate, output.write));
        let shared = Arc::new(Shared { shell: Mutex::new(shell), bell, closing: AtomicBool::new(false) });
        let node_thread =
            NodeThread::new(shared.clone(), inbox, session, beginning.hidden, forwarder.clone());
        let builder = std::thread::Builder::new().name("aktis-node".to_owned());
        let thread = builder.spawn(move || node_thread.run()).map_err(system("a thread"))?;
        let (thread_id, pid) = (thread.thread().id(), std::process::id());
        let (thread, door) = (Mutex::new(Some(thread)), Mutex::new(None));
        Ok(Self { session, control, arena, spilled, shared, door, thread, thread_id, pid, forwarder })
    }

    /// The session: a random number.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Has the node serve a program: its workers are started when something of it is to run. Nothing if it does.
    /// Nothing of it may be submitted before; a program that nothing refers to for a while is forgotten.
    pub fn add_program(&self, source: &ProgramSource) -> Result<(), ProgramError> {
        let missing = || ProgramError::NotIt(source.spec.id);
        let directory = self.door.lock().as_ref().map(|(_, directory)| directory.programs());
        let directory = directory.ok_or_else(missing)?;
        let launch = launch_of(source, &directory)?;
        let added = self.shared.with_shell(|shell| shell.add_program(&source.spec, launch));
        if added { Ok(()) } else { Err(missing()) }
    }

    /// What the node knows of a program, and where its copy of the executable is, if it has one.
    pub fn program(&self, program: ProgramId) -> Option<(ProgramSpec, Option<PathBuf>)> {
        self.shared.shell.lock().program(program)
    }

    /// Takes a place in this process. The node's answers go to `deliver`, one at a time and in order, on any thread.
    /// A peer has to say [`ToNode::Started`] when it is ready, and only then gets any.
    pub fn open_local(&self, role: LocalRole, deliver: Deliver) -> Result<LocalLink, LocalError> {
        let delivery = Arc::new(Delivery::new(deliver));
        let guest = match role {
            LocalRole::Daemon => None,
            LocalRole::Peer(node) => Some(Guest::Peer(node)),
        };
        let slot = self.shared.with_shell(|shell| shell.open_local(guest, delivery));
        let slot = slot.map_err(LocalError::Refused)?;
        if slot == HOST {
            return Ok(self.own_link());
        }
        let place = Arc::new(Place { slot, shared: self.shared.clone() });
        let arena = Arc::new(self.arena.as_process(slot, place.clone())?);
        let control = Arc::new(self.control.as_process(slot));
        Ok(LocalLink { _place: Some(place), ..self.link(slot, control, arena) })
    }

    /// Gives a place in this process up: to all others, it has died of this. The place is used again when its
    /// [`LocalLink`] and all that was pinned through it are dropped.
    pub fn close_local(&self, slot: ProcessSlot, cause: DeathCause) {
        self.shared.with_shell(|shell| shell.close_local(slot, cause));
    }

    /// How the node stands, for the placer.
    pub fn report(&self) -> NodeReport {
        self.shared.shell.lock().report()
    }

    /// How far the drain of this node is, if it is drained.
    pub fn drain_progress(&self) -> Option<DrainProgress> {
        self.shared.shell.lock().drain_progress()
    }

    /// The objects that other nodes hold and have no copy of, if this node is drained.
    pub fn objects_to_hand_over(&self) -> Vec<(ProcessSlot, ObjectId)> {
        self.shared.shell.lock().objects_to_hand_over()
    }

    /// Hands what other nodes have to do with to `elsewhere`, from now on.
    pub fn set_elsewhere(&self, elsewhere: Elsewhere) {
        self.shared.shell.lock().set_elsewhere(elsewhere);
    }

    /// Something that other nodes have to do with has happened.
    pub fn feed(&self, input: NodeInput) {
        self.shared.with_shell(|shell| shell.on_elsewhere(input));
    }

    /// Hands what workers print to `events` from now on, unless it is not forwarded at all.
    pub fn set_output_events(&self, events: Arc<dyn OutputEvents>) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.hand_on(events.clone());
            self.shared.shell.lock().set_output_events(events);
        }
    }

    /// Tells the drivers of a program what its workers, on any node, have printed; `missed` lines before these were lost.
    pub fn print_to_drivers(&self, program: ProgramId, lines: &[LogLine], missed: u64) {
        self.shared.with_shell(|shell| shell.print_to_drivers(program, lines, missed));
    }

    /// Has questions about what other nodes know answered by `explainer`, from now on.
    pub fn set_explainer(&self, explainer: Explainer) {
        self.shared.shell.lock().set_explainer(explainer);
    }

    /// What other nodes know about something, for the process that has asked.
    pub fn tell_explanation(&self, to: ProcessSlot, request: RequestId, text: String) {
        self.shared.with_shell(|shell| shell.tell_explanation(to, request, text));
    }

    /// Asks all worker and driver processes something, and gives what they answer within `patience`.
    pub fn ask_processes(
        &self,
        what: &ProcessQuestion,
        patience: Duration,
    ) -> Vec<(ProcessSlot, ProcessAnswer)> {
        let until = Instant::now() + patience;
        let (question, answers) = self.shared.with_shell(|shell| shell.ask_all(what));
        let next = || answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let told = std::iter::from_fn(next).collect();
        self.shared.shell.lock().forget_question(question);
        told
    }

    /// The object store.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// An object, as it is served to another node: as it lies here, without room in memory for it. `None` if this node
    /// knows of no copy.
    pub fn open_copy(&self, object: ObjectId) -> Option<OpenedCopy> {
        for _ in 0..OPENINGS_MAX {
            let (entry, peer) = self.shared.with_shell(|shell| shell.copy_of(object))?;
            if let Some(peer) = peer {
                return Some(OpenedCopy::Elsewhere(peer));
            }
            if let Ok(pin) = self.arena.pin(entry) {
                return Some(OpenedCopy::InMemory(pin));
            }
            if let Some(spilled) = self.spilled.get(entry) {
                return Some(OpenedCopy::OnDisk(spilled));
            }
            // It is just being moved.
            std::thread::sleep(OPEN_AGAIN);
        }
        None
    }

    /// The place of this process itself.
    pub(crate) fn own_link(&self) -> LocalLink {
        self.link(HOST, self.control.clone(), self.arena.clone())
    }

    fn link(&self, slot: ProcessSlot, control: Arc<Control>, arena: Arc<Arena>) -> LocalLink {
        let (session, shared, pid) = (self.session, self.shared.clone(), self.pid);
        LocalLink { slot, session, control, arena, shared, pid, _place: None }
    }

    /// The processes that run, but for this one, and their process ids.
    pub fn processes(&self) -> Vec<(ProcessSlot, u32)> {
        self.shared.shell.lock().processes()
    }

    /// Where drivers attach.
    pub fn directory(&self) -> Option<PathBuf> {
        self.door.lock().as_ref().and_then(|(_, directory)| directory.programs().parent().map(Path::to_owned))
    }

    /// Ends the node: workers are told to end and killed if they do not, drivers are told, threads are waited for.
    /// Idempotent; called on the node's own thread it does not wait.
    pub fn shutdown(&self) {
        // A child made by `fork` has none of the threads, and its parent's workers are not its own.
        if std::process::id() != self.pid {
            return;
        }
        self.shared.closing.store(true, Ordering::Release);
        self.shared.bell.ring();
        if std::thread::current().id() == self.thread_id {
            return;
        }
        let door = self.door.lock().take();
        drop(door);
        // The lock is kept meanwhile: who comes second returns when all is over, too.
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
        self.shared.shell.lock().close_checkpoints();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// A place in the node's table of processes that is in the node's own process.
pub struct LocalLink {
    slot: ProcessSlot,
    session: SessionId,
    control: Arc<Control>,
    arena: Arc<Arena>,
    shared: Arc<Shared>,
    pid: u32,
    _place: Option<Arc<Place>>,
}

/// A place in this process, which is free when all that uses it is dropped.
struct Place {
    slot: ProcessSlot,
    shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.with_shell(|shell| shell.on_local_gone(self.slot));
    }
}

impl LocalLink {
    /// The place.
    pub fn slot(&self) -> ProcessSlot {
        self.slot
    }

    /// The node's session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The queues between processes.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The object store.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Tells the node something. What workers have sent before is taken in first. Answers that are there at once have
    /// been delivered when this returns, unless another thread is delivering them right now.
    pub fn send(&self, message: ToNode) {
        if std::process::id() == self.pid {
            self.shared.send_from(self.slot, message);
        }
    }
}

fn random_session() -> io::Result<SessionId> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(SessionId(u64::from_ne_bytes(bytes)))
}
