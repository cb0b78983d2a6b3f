//! Those whom the node has not started: drivers that attach through a socket, and local processes, which are places
//! in the table of processes that this very process takes.

use super::{HOST, Shell};
use crate::attach::{Welcome, welcome};
use crate::delivery::Delivery;
use crate::output::OutputEvents;
use crate::peer::{Peer, PeerLink};
use crate::programs::Launch;
use aktis_logic::machine::node::{Guest, NodeInput, ProgramConfig};
use aktis_protocol::admin::LogLine;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::state;
use aktis_protocol::{DeathCause, ProcessSlot, ProgramId, ProgramSpec};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A driver that wants to attach.
pub(crate) struct Arrival {
    pub(crate) pid: u32,
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) pidfd: Arc<OwnedFd>,
}

/// A driver that has attached, as the node's thread watches it.
pub(crate) struct GuestProcess {
    pub(crate) process: ProcessSlot,
    pub(crate) pid: u32,
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) pidfd: Arc<OwnedFd>,
}

/// What the node's thread has to know about templates.
pub(crate) enum TemplateNews {
    /// Nothing of it runs.
    Unneeded(ProgramId),
    /// Workers of this program are to be forked.
    Added(ProgramId, Launch),
    /// They are not needed any more.
    Forgotten(ProgramId),
}

impl Shell {
    /// There is a program that workers may run. False if its copy is gone.
    pub(crate) fn add_program(&mut self, spec: &ProgramSpec, launch: Launch) -> bool {
        if let Launch::Copy(path) = &launch
            && !path.exists()
        {
            return false;
        }
        let config =
            ProgramConfig { program: spec.id, shared_worker: spec.has_shared_worker(), shares: spec.shares };
        self.specs.entry(spec.id).or_insert_with(|| spec.clone());
        self.launch(spec.id, launch);
        self.step(NodeInput::ProgramAdded(config));
        if !self.machine.knows_program(spec.id) {
            self.forget_program(spec.id);
        }
        true
    }

    /// Workers of the program are started like this, from now on.
    pub(crate) fn launch(&mut self, program: ProgramId, launch: Launch) {
        if self.launches.contains_key(&program) {
            return;
        }
        if let Launch::Template { .. } = launch {
            self.template_news.push(TemplateNews::Added(program, launch.clone()));
        }
        self.launches.insert(program, launch);
    }

    /// Nothing refers to the program any more.
    pub(super) fn forget_program(&mut self, program: ProgramId) {
        self.specs.remove(&program);
        match self.launches.remove(&program) {
            Some(Launch::Copy(path)) => drop(std::fs::remove_file(path)),
            Some(Launch::Template { .. }) => self.template_news.push(TemplateNews::Forgotten(program)),
            Some(Launch::ThisProgram) | None => {}
        }
    }

    /// What is known of a program, and where its copy is.
    pub(crate) fn program(&self, program: ProgramId) -> Option<(ProgramSpec, Option<std::path::PathBuf>)> {
        let copy = match self.launches.get(&program) {
            Some(Launch::Copy(path)) => Some(path.to_path_buf()),
            _ => None,
        };
        Some((self.specs.get(&program)?.clone(), copy))
    }

    /// A driver wants a place.
    pub(crate) fn attach(&mut self, program: ProgramId, arrival: Arrival) -> Result<(), String> {
        self.read_inbox();
        let Arrival { pid, socket, pidfd } = arrival;
        let process = self.admit(Guest::Driver(program), pid)?;
        self.control.start_process(process, pid);
        let (session, resources) = (self.session, self.resources.clone());
        let descriptors = self.greeting();
        // If it cannot be told, it is gone, which is found out next.
        let _ = welcome(&socket, Welcome { process, session, resources }, &descriptors);
        let mut peer = Peer::default();
        peer.on_started(PeerLink { pid, socket: socket.clone(), pidfd: None });
        self.peers.insert(process, peer);
        self.listeners.on_attached(process, program);
        self.arrived.push(GuestProcess { process, pid, socket, pidfd });
        Ok(())
    }

    /// From now on, `events` is told for whom output is wanted.
    pub(crate) fn set_output_events(&mut self, events: Arc<dyn OutputEvents>) {
        self.listeners.set_events(events);
    }

    /// Tells the drivers of a program what its workers have printed. One that does not read misses it.
    /// `missed` lines before these have not come so far.
    pub(crate) fn print_to_drivers(&mut self, program: ProgramId, lines: &[LogLine], missed: u64) {
        for driver in self.listeners.of(program) {
            self.listeners.note_missed(driver, missed);
            let mut rest = lines;
            while !rest.is_empty() {
                if self.peers.get(&driver).is_none_or(|peer| peer.blocked_on().is_some()) {
                    self.listeners.note_missed(driver, rest.len() as u64);
                    break;
                }
                let (page, _) = state::page(rest.iter(), Clone::clone);
                // A line alone is shorter than a message; else there would be no end.
                rest = &rest[page.len().max(1)..];
                let missed = self.listeners.take_missed(driver);
                self.send(driver, FromNode::Printed { lines: page, missed });
            }
        }
    }

    fn admit(&mut self, guest: Guest, pid: u32) -> Result<ProcessSlot, String> {
        self.step(NodeInput::Attached { guest, pid });
        self.admission.take().unwrap_or_else(|| Err("the node is ending".into()))
    }

    /// Gives the node's own process a voice in its place, or a place to what stands for another node.
    pub(crate) fn open_local(
        &mut self,
        guest: Option<Guest>,
        delivery: Arc<Delivery>,
    ) -> Result<ProcessSlot, String> {
        self.read_inbox();
        let process = match guest {
            Some(guest) => self.admit(guest, std::process::id())?,
            None => HOST,
        };
        if process != HOST {
            self.control.start_elsewhere(process, std::process::id());
        }
        self.locals.insert(process, delivery);
        Ok(process)
    }

    /// The local process leaves. The node's own process stays, but is not told anything any more.
    pub(crate) fn close_local(&mut self, process: ProcessSlot, cause: DeathCause) {
        self.read_inbox();
        if self.locals.remove(&process).is_some() && process != HOST {
            self.step(NodeInput::ProcessLeft { process, cause });
        }
    }

    /// Nothing is left of a local process.
    pub(crate) fn on_local_gone(&mut self, process: ProcessSlot) {
        self.locals.remove(&process);
        self.on_process_died(process, DeathCause { pid: std::process::id(), ..DeathCause::default() });
    }

    /// Something for a local process. The node's own process deals with deaths by itself while it has no voice.
    pub(super) fn send_locally(&mut self, to: ProcessSlot, message: FromNode) -> Option<FromNode> {
        match (self.locals.get(&to), &message) {
            (Some(delivery), _) => {
                delivery.push(message);
                self.ready.entry(to).or_insert_with(|| delivery.clone());
                None
            }
            (None, FromNode::ProcessDied { process, .. }) if to == HOST => {
                let message = ToNode::DeathHandled { process: *process };
                self.inputs.push_back(NodeInput::Received { from: HOST, message });
                None
            }
            (None, _) => Some(message),
        }
    }

    /// The node's thread has ended badly: those in this process must not wait for it.
    pub(crate) fn tell_locals_of_the_end(&mut self) {
        for (process, delivery) in &self.locals {
            delivery.push(FromNode::Shutdown);
            self.ready.insert(*process, delivery.clone());
        }
    }

    /// What there is to deliver to is taken over by the caller: of one local process, or of all.
    pub(crate) fn take_ready(&mut self) -> BTreeMap<ProcessSlot, Arc<Delivery>> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn take_ready_of(&mut self, process: ProcessSlot) -> Option<Arc<Delivery>> {
        self.ready.remove(&process)
    }

    /// Drivers that have attached since this was asked last.
    pub(crate) fn take_arrived(&mut self) -> Vec<GuestProcess> {
        std::mem::take(&mut self.arrived)
    }

    /// What has happened to templates since this was asked last.
    pub(crate) fn take_template_news(&mut self) -> Vec<TemplateNews> {
        std::mem::take(&mut self.template_news)
    }
}
