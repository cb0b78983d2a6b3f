//! The node of this daemon, as the rest of it uses the node.

use crate::peer::Programs;
use aktis_logic::machine::node::{DrainProgress, NodeInput};
use aktis_node::{Elsewhere, Host, LocalRole, ProgramSource};
use aktis_protocol::placement::NodeReport;
use aktis_protocol::state::{ResourceRow, StateKind, StateRows};
use aktis_protocol::{DeathCause, NodeId, ProcessSlot, ProgramId, ProgramSpec};
use aktis_runtime::{Error, Runtime};
use aktis_store::Arena;
use std::fs::File;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub(crate) struct NodeHost {
    host: Arc<Host>,
    /// The daemon's own place in the node.
    own: Runtime,
}

impl NodeHost {
    pub(crate) fn new(host: Arc<Host>) -> Result<Self, Error> {
        let own = Runtime::start_local(&host, LocalRole::Daemon, ProgramId::default())?;
        Ok(Self { host, own })
    }

    /// The daemon's own place in the node.
    pub(crate) fn own(&self) -> &Runtime {
        &self.own
    }

    /// The node.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// A process that stands for another node.
    pub(crate) fn open_peer(&self, node: NodeId) -> Result<Runtime, Error> {
        Runtime::start_local(&self.host, LocalRole::Peer(node), ProgramId::default())
    }

    pub(crate) fn close_peer(&self, process: ProcessSlot, cause: DeathCause) {
        self.host.close_local(process, cause);
    }

    pub(crate) fn set_elsewhere(&self, elsewhere: Elsewhere) {
        self.host.set_elsewhere(elsewhere);
    }

    pub(crate) fn feed(&self, input: NodeInput) {
        self.host.feed(input);
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        self.host.arena()
    }

    /// What there is, and what of it is free.
    pub(crate) fn resources(&self) -> Vec<ResourceRow> {
        match self.own.state(StateKind::Resources) {
            Ok((StateRows::Resources(rows), _)) => rows,
            _ => Vec::new(),
        }
    }

    /// How far the drain of this node is, if it is drained.
    pub(crate) fn drain_progress(&self) -> Option<DrainProgress> {
        self.host.drain_progress()
    }

    /// How the node stands, for the placer.
    pub(crate) fn report(&self) -> NodeReport {
        self.host.report()
    }
}

impl Programs for NodeHost {
    fn knows(&self, program: ProgramId) -> bool {
        self.host.program(program).is_some()
    }

    fn find(&self, program: ProgramId) -> Result<(ProgramSpec, Option<File>), String> {
        let (spec, path) =
            self.host.program(program).ok_or("it is not known on the node that wants it run")?;
        let executable = path.map(File::open).transpose().map_err(|error| error.to_string())?;
        Ok((spec, executable))
    }

    fn add(&self, spec: ProgramSpec, executable: Option<File>) -> Result<(), String> {
        self.host.add_program(&ProgramSource { spec, executable }).map_err(|error| error.to_string())
    }
}
