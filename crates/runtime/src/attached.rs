//! Runtimes of processes whose node is not their own: drivers that attach to a daemon, and places inside a daemon.
//!
//! Invariants:
//! 1. A driver that shuts its session down detaches, and ends nothing else.
//! 2. When the node is gone, whatever has no outcome fails: nobody waits for ever.

use crate::error::Error;
use crate::node::Link;
use crate::options::Config;
use crate::runtime::{Inner, Parts, Runtime};
use aktis_node::{
    AttachError, DriverLink, Host, LocalLink, LocalRole, Printer, ProgramSource, WorkerProgram,
};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{ProgramId, Resources};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

impl Runtime {
    /// Attaches this process, as a driver, to the node that listens in a directory. Of the configuration, only what
    /// concerns this process counts.
    pub fn attach(directory: &Path, config: Config) -> Result<Self, Error> {
        crate::registry::check_unique().map_err(Error::Invalid)?;
        debug_assert!(crate::worker::is_linked());
        let mut program = match &config.workers {
            WorkerProgram::ThisProgram => ProgramSource::this_program().map_err(|error| {
                Error::System(format!("this program cannot be given to the node: {error}"))
            })?,
            WorkerProgram::Template { command, environment, version } => {
                ProgramSource::python(command.clone(), environment.clone(), version.clone())
            }
        };
        program.spec.shares = config.share;
        let attached =
            DriverLink::attach(directory, &program, config.attach_timeout, &crate::hooks::interrupted);
        let link = Arc::new(attached.map_err(|error| match error {
            AttachError::Interrupted => Error::Interrupted,
            error => Error::System(error.to_string()),
        })?);
        let inner = Inner::new(Parts {
            me: link.slot(),
            session: link.session(),
            control: link.control().clone(),
            arena: link.arena().clone(),
            executor: None,
            tuning: config.tuning,
            resources: link.resources().clone(),
            default_shape: config.default_shape,
            program: link.program(),
        })?;
        let _ = inner.link.set(Link::Attached(link.clone()));
        let prints = config.output.forward;
        if prints {
            let printer = Printer::new(config.output, link.session())
                .map_err(|error| Error::System(format!("cannot print what workers print: {error}")))?;
            let _ = inner.printer.set(printer);
        }
        let target = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("aktis-link".into())
            .spawn(move || listen(&target, &link))
            .map_err(|error| Error::System(format!("cannot start a thread: {error}")))?;
        let runtime = begin(Self(inner))?;
        if prints {
            runtime.0.send_to_node(ToNode::OutputWanted);
        }
        Ok(runtime)
    }

    /// Where the node listens that this process has attached to, if it has.
    pub fn directory(&self) -> Option<&Path> {
        match self.0.link.get()? {
            Link::Attached(link) => Some(link.directory()),
            Link::Embedded(_) | Link::Local(_) | Link::Worker(_) => None,
        }
    }

    /// A runtime in a place of the node's own process. Its program is that of the tasks that it submits; they may name
    /// others. Shutting it down gives the place up.
    pub fn start_local(host: &Host, role: LocalRole, program: ProgramId) -> Result<Self, Error> {
        let target: Arc<OnceLock<Weak<Inner>>> = Arc::default();
        let deliver = {
            let target = target.clone();
            Box::new(move |message| {
                if let Some(inner) = target.wait().upgrade() {
                    inner.on_node_message(message);
                }
            })
        };
        let opened = host.open_local(role, deliver);
        let link = opened.map_err(|error| Error::System(error.to_string()))?;
        let inner = Inner::new(local_parts(&link, program));
        let _ = target.set(inner.as_ref().map_or_else(|_| Weak::new(), Arc::downgrade));
        let inner = inner?;
        let _ = inner.link.set(Link::Local(Arc::new(link)));
        inner.send_to_node(ToNode::Started);
        // What stands for another node takes in messages itself, on the thread that forwards them.
        if !matches!(role, LocalRole::Peer(_)) {
            crate::pump::spawn(&inner)?;
        }
        Ok(Self(inner))
    }
}

fn local_parts(link: &LocalLink, program: ProgramId) -> Parts {
    let config = Config::default();
    Parts {
        me: link.slot(),
        session: link.session(),
        control: link.control().clone(),
        arena: link.arena().clone(),
        executor: None,
        tuning: config.tuning,
        resources: Resources::none(),
        default_shape: config.default_shape,
        program,
    }
}

fn begin(runtime: Runtime) -> Result<Runtime, Error> {
    runtime.0.send_to_node(ToNode::Started);
    let begun = runtime.0.open_default_lane().and_then(|()| crate::pump::spawn(&runtime.0));
    match begun {
        Ok(()) => Ok(runtime),
        Err(error) => {
            runtime.shutdown();
            Err(error)
        }
    }
}

/// Takes in what the node says, until one of the two leaves.
fn listen(target: &Weak<Inner>, link: &DriverLink) {
    while let Some(message) = link.receive()
        && message != FromNode::Shutdown
    {
        match (target.upgrade(), message) {
            (Some(inner), message) => inner.on_node_message(message),
            // Nothing is left here that a death could concern.
            (None, FromNode::ProcessDied { process, .. }) => {
                let _ = link.send(&ToNode::DeathHandled { process });
            }
            (None, _) => {}
        }
    }
    if let Some(inner) = target.upgrade() {
        inner.on_node_gone();
    }
}
