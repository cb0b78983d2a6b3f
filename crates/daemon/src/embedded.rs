//! The node inside a driver: what `init` starts and `shutdown` ends.

use crate::bell::Bell;
use crate::delivery::{Deliver, Delivery};
use crate::node_thread::{NodeThread, Shared};
use crate::output::{Forwarder, WriteOutput};
use crate::shell::Shell;
use crate::template::{Keeper, TemplateProgram, TemplateStatus};
use aktis_logic::machine::node::NodeConfig;
use aktis_protocol::control::ToNode;
use aktis_protocol::{ProcessSlot, Resources, SessionId, limits};
use aktis_store::{Arena, Control, StoreError};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

/// What worker processes run.
#[derive(Clone, Debug)]
pub enum WorkerProgram {
    /// The driver's own program, started again with an argument. One worker is shared by many tasks and actors.
    ThisProgram,
    /// Forks of a template: a process that has loaded what they need and then calls
    /// [`serve_template`](crate::serve_template). Each runs one thing at a time.
    Template {
        /// The program to start, and its arguments.
        command: Vec<OsString>,
        /// Environment variables that it gets besides the driver's own.
        environment: Vec<(OsString, OsString)>,
    },
}

/// What becomes of what workers print.
#[derive(Clone, Copy, Debug)]
pub struct OutputOptions {
    /// Whether it is forwarded to the driver.
    pub forward: bool,
    /// Whether a line that several workers print at about the same time is forwarded once, and then counted.
    pub deduplicate: bool,
    /// Where it is forwarded to.
    pub write: WriteOutput,
}

impl Default for OutputOptions {
    /// It is printed by this process. `AKTIS_DEDUP_LOGS=0` in the environment has every line printed.
    fn default() -> Self {
        let deduplicate = std::env::var_os("AKTIS_DEDUP_LOGS").is_none_or(|value| value != "0");
        Self { forward: true, deduplicate, write: crate::output::write_directly }
    }
}

/// What a node starts with.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What it offers.
    pub resources: Resources,
    /// Size of the object store.
    pub store_bytes: u64,
    /// Where objects go that do not fit.
    pub spill_directory: PathBuf,
    /// How many bytes may be there at most.
    pub spill_bytes_max: u64,
    /// Part of the object store, in percent, above which objects go there before it is full.
    pub spill_above_percent: u32,
    /// What becomes of what workers print.
    pub output: OutputOptions,
    /// What workers run.
    pub workers: WorkerProgram,
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

/// A node that lives on a thread of the driver's process.
pub struct EmbeddedNode {
    session: SessionId,
    control: Arc<Control>,
    arena: Arc<Arena>,
    shared: Arc<Shared>,
    template: Option<Arc<TemplateStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    thread_id: ThreadId,
    pid: u32,
}

impl EmbeddedNode {
    /// Starts a node. Its answers to the driver go to `deliver`, one at a time and in order, on any thread.
    /// Worker processes are being started when this returns.
    pub fn start(options: NodeOptions, deliver: Deliver) -> Result<Arc<Self>, StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let session = random_session().map_err(system("random bytes"))?;
        let control = Arc::new(Control::create().map_err(StartError::Control)?);
        let arena = Arc::new(Arena::create(options.store_bytes, limits::STORED_OBJECTS_MAX)?);
        let bell = Arc::new(Bell::new().map_err(system("an event descriptor"))?);
        let delivery = Arc::new(Delivery::new(deliver));
        let config = NodeConfig {
            resources: options.resources,
            store_bytes: options.store_bytes,
            entries_max: limits::STORED_OBJECTS_MAX,
            spill_bytes_max: options.spill_bytes_max,
            spill_above_percent: options.spill_above_percent,
            shared_worker: matches!(options.workers, WorkerProgram::ThisProgram),
        };
        let directory = options.spill_directory;
        let mut shell =
            Shell::new(config, control.clone(), arena.clone(), directory, delivery.clone(), bell.clone())
                .map_err(system("sockets"))?;
        let inbox = shell.inbox_descriptor().map_err(system("sockets"))?;
        shell.begin();
        let output = options.output;
        let forwarder =
            output.forward.then(|| Forwarder::new(bell.clone(), output.deduplicate, output.write));
        let closing = AtomicBool::new(false);
        let shared = Arc::new(Shared { shell: Mutex::new(shell), delivery, bell, closing });
        let (keeper, template) = match options.workers {
            WorkerProgram::ThisProgram => (None, None),
            WorkerProgram::Template { command, environment } => {
                let status = Arc::<TemplateStatus>::default();
                let program = TemplateProgram { command, environment };
                (Some(Keeper::new(program, session, status.clone())), Some(status))
            }
        };
        let node_thread = NodeThread::new(shared.clone(), inbox, session, keeper, forwarder);
        let builder = std::thread::Builder::new().name("aktis-node".to_owned());
        let thread = builder.spawn(move || node_thread.run()).map_err(system("a thread"))?;
        let thread_id = thread.thread().id();
        let pid = std::process::id();
        let thread = Mutex::new(Some(thread));
        Ok(Arc::new(Self { session, control, arena, shared, template, thread, thread_id, pid }))
    }

    /// The session: a random number.
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

    /// Tells the node something, as the driver. What workers have sent before is taken in first. Answers that are there
    /// at once have been given to `deliver` when this returns, unless another thread is giving them right now.
    pub fn send(&self, message: ToNode) {
        if self.is_forked() {
            return;
        }
        let wake = {
            let mut shell = self.shared.shell.lock();
            shell.on_driver_message(message);
            shell.must_wake()
        };
        if wake {
            self.shared.bell.ring();
        }
        self.shared.delivery.run();
    }

    /// Ends the session: workers are told to end and killed if they do not, threads are waited for. Idempotent;
    /// called by `deliver` on the node's own thread it does not wait.
    pub fn shutdown(&self) {
        if self.is_forked() {
            return;
        }
        self.shared.closing.store(true, Ordering::Release);
        self.shared.bell.ring();
        if std::thread::current().id() == self.thread_id {
            return;
        }
        // The lock is kept meanwhile: who comes second returns when all is over, too.
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }

    /// The worker processes that run, and their process ids.
    pub fn processes(&self) -> Vec<(ProcessSlot, u32)> {
        self.shared.shell.lock().processes()
    }

    /// Waits until the template can fork workers, if they are forked. The error says why it cannot: at once if it has
    /// ended several times, else when the time is over.
    pub fn wait_for_template(&self, patience: Duration) -> Result<(), String> {
        self.template.as_ref().map_or(Ok(()), |template| template.wait_until_ready(patience))
    }

    /// The template's process id, while there is one that can fork workers.
    pub fn template_pid(&self) -> Option<u32> {
        self.template.as_ref().and_then(|template| template.pid())
    }

    /// A child made by `fork` has none of the threads, and its parent's workers are not its own.
    fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }
}

impl Drop for EmbeddedNode {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn random_session() -> io::Result<SessionId> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(SessionId(u64::from_ne_bytes(bytes)))
}
