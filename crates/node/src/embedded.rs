//! The node inside a driver: what `init` starts and `shutdown` ends.

use crate::delivery::{Deliver, Delivery};
use crate::host::{Beginning, Host, LocalLink, StartError};
use crate::output::WriteOutput;
use crate::programs::Launch;
use crate::template::{TemplateProgram, TemplateStatus};
use aktis_protocol::control::ToNode;
use aktis_protocol::{Labels, ProcessSlot, Resources, SessionId};
use aktis_store::{Arena, Control};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
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
        /// The version of what it is: two that differ are different programs to a node that serves many.
        version: String,
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
    /// Part of the object store, in percent, above which objects go there before it is full.
    pub spill_above_percent: u32,
    /// What becomes of what workers print.
    pub output: OutputOptions,
    /// What workers run.
    pub workers: WorkerProgram,
}

/// A node that lives on a thread of the driver's process.
pub struct EmbeddedNode {
    host: Host,
    link: LocalLink,
    template: Option<Arc<TemplateStatus>>,
}

impl EmbeddedNode {
    /// Starts a node. Its answers to the driver go to `deliver`, one at a time and in order, on any thread.
    /// Worker processes are being started when this returns.
    pub fn start(options: NodeOptions, deliver: Deliver) -> Result<Arc<Self>, StartError> {
        let (launch, template) = match options.workers {
            WorkerProgram::ThisProgram => (Launch::ThisProgram, None),
            WorkerProgram::Template { command, environment, .. } => {
                let status = Arc::<TemplateStatus>::default();
                let program = Arc::new(TemplateProgram { command, environment });
                (Launch::Template { program, status: status.clone() }, Some(status))
            }
        };
        let beginning = Beginning {
            session: None,
            labels: options.labels,
            resources: options.resources,
            store_bytes: options.store_bytes,
            spill_directory: options.spill_directory,
            spill_bytes_max: options.spill_bytes_max,
            spill_above_percent: options.spill_above_percent,
            output: options.output,
            hidden: None,
        };
        let delivery = Arc::new(Delivery::new(deliver));
        let host = Host::begin(beginning, Some((launch, delivery)))?;
        let link = host.own_link();
        Ok(Arc::new(Self { host, link, template }))
    }

    /// The node itself.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The session: a random number.
    pub fn session(&self) -> SessionId {
        self.host.session()
    }

    /// The queues between processes.
    pub fn control(&self) -> &Arc<Control> {
        self.link.control()
    }

    /// The object store.
    pub fn arena(&self) -> &Arc<Arena> {
        self.link.arena()
    }

    /// Tells the node something, as the driver. What workers have sent before is taken in first. Answers that are there
    /// at once have been given to `deliver` when this returns, unless another thread is giving them right now.
    pub fn send(&self, message: ToNode) {
        self.link.send(message);
    }

    /// Ends the session: workers are told to end and killed if they do not, threads are waited for. Idempotent;
    /// called by `deliver` on the node's own thread it does not wait.
    pub fn shutdown(&self) {
        self.host.shutdown();
    }

    /// The worker processes that run, and their process ids.
    pub fn processes(&self) -> Vec<(ProcessSlot, u32)> {
        self.host.processes()
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
}
