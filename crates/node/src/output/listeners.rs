//! The drivers that have attached and want to be told what workers of their program print.

use super::OutputEvents;
use aktis_protocol::{ProcessSlot, ProgramId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct Listeners {
    drivers: BTreeMap<ProcessSlot, Listener>,
    events: Option<Arc<dyn OutputEvents>>,
}

struct Listener {
    program: ProgramId,
    wants: bool,
    /// Lines that it was not told, because it does not read.
    missed: u64,
}

impl Listeners {
    /// From now on, `events` is told of changes.
    pub(crate) fn set_events(&mut self, events: Arc<dyn OutputEvents>) {
        self.events = Some(events);
        self.tell();
    }

    /// A driver of this program has attached.
    pub(crate) fn on_attached(&mut self, process: ProcessSlot, program: ProgramId) {
        self.drivers.insert(process, Listener { program, wants: false, missed: 0 });
    }

    /// It wants to be told.
    pub(crate) fn on_wanted(&mut self, process: ProcessSlot) {
        if let Some(listener) = self.drivers.get_mut(&process) {
            listener.wants = true;
            self.tell();
        }
    }

    /// It is gone.
    pub(crate) fn on_left(&mut self, process: ProcessSlot) {
        if self.drivers.remove(&process).is_some_and(|listener| listener.wants) {
            self.tell();
        }
    }

    /// Those who want to be told what workers of a program print.
    pub(crate) fn of(&self, program: ProgramId) -> Vec<ProcessSlot> {
        let wants = |listener: &Listener| listener.wants && listener.program == program;
        self.drivers.iter().filter(|(_, listener)| wants(listener)).map(|(process, _)| *process).collect()
    }

    /// So many lines were kept from one who does not read.
    pub(crate) fn note_missed(&mut self, process: ProcessSlot, lines: u64) {
        if let Some(listener) = self.drivers.get_mut(&process) {
            listener.missed += lines;
        }
    }

    /// How many lines were kept from one so far; it is about to be told.
    pub(crate) fn take_missed(&mut self, process: ProcessSlot) -> u64 {
        self.drivers.get_mut(&process).map_or(0, |listener| std::mem::take(&mut listener.missed))
    }

    fn tell(&self) {
        let wanted = self.drivers.values().filter(|listener| listener.wants);
        let programs: BTreeSet<ProgramId> = wanted.map(|listener| listener.program).collect();
        if let Some(events) = &self.events {
            events.on_listeners(programs);
        }
    }
}
