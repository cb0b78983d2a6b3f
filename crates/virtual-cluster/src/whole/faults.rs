//! What goes wrong in a run: a random part of all faults, and nothing at all in some runs.

use super::{Doing, Machines};
use crate::head::{Cluster, Event};
use crate::random::Random;
use aktis_logic::Time;

/// Machines that live at a time, at most.
const MACHINES_MAX: usize = 5;

/// Which faults a run has, besides those of the links to the control process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    is_calm: bool,
    breaks_links: bool,
    holds_up_links: bool,
    kills_workers: bool,
    kills_drivers: bool,
    fills_disks: bool,
}

impl Faults {
    pub(super) fn new(random: &mut Random) -> Self {
        let is_calm = random.chance(25);
        let mut flip = || random.chance(50) && !is_calm;
        Self {
            is_calm,
            breaks_links: flip(),
            holds_up_links: flip(),
            kills_workers: flip(),
            kills_drivers: flip(),
            fills_disks: flip(),
        }
    }

    /// Whether nothing goes wrong.
    pub(super) fn is_calm(self) -> bool {
        self.is_calm
    }
}

impl Cluster<Machines> {
    /// One of the faults of this run happens, and the next one after a while.
    pub(super) fn fault(&mut self) {
        let (faults, swarm) = (self.members.faults, self.swarm);
        if self.is_over || faults.is_calm() {
            return;
        }
        let pause = 20_000 + self.random.below(600_000);
        self.after(pause, Event::Of(Doing::Fault));
        let alive: Vec<usize> =
            (0..self.nodes.len()).filter(|number| self.nodes[*number].is_some()).collect();
        let Some(number) = self.random.pick(&alive) else { return };
        match self.random.below(14) {
            0 | 1 if swarm.breaks_links => {
                if let Some(link) = self.random.pick(&self.live_links()) {
                    self.break_link(link, false);
                }
            }
            2 if swarm.kills_head => self.kill_head(),
            3 if swarm.pauses_nodes => {
                let until = Time(self.now.0 + self.random.below(4_000_000));
                self.note(format_args!("node {number} pauses until {}", until.0));
                self.paused.insert(number, until);
            }
            4 if swarm.kills_nodes && alive.len() > 1 => self.end_machine(number, false),
            5 if swarm.nodes_leave && alive.len() > 1 => self.end_machine(number, true),
            6 if alive.len() < MACHINES_MAX => self.after(0, Event::NodeStarted),
            7 | 8 if faults.breaks_links => {
                if let Some(link) = self.random.pick(&self.live_peer_links()) {
                    self.break_peer_link(link);
                }
            }
            9 | 10 if faults.holds_up_links => {
                let until = Time(self.now.0 + self.random.below(3_000_000));
                let to = self.random.below(2) as usize;
                if let Some(link) = self.random.pick(&self.live_peer_links()) {
                    self.hold_up(link, to, until);
                }
            }
            11 if faults.kills_workers => {
                let workers = self.nodes[number].as_ref().map(super::Host::workers).unwrap_or_default();
                self.kill_process(number, &workers);
            }
            12 if faults.kills_drivers => {
                let drivers = self.nodes[number].as_ref().map(super::Host::drivers).unwrap_or_default();
                self.kill_process(number, &drivers);
                if let Some(host) = self.nodes[number].as_mut().filter(|_| !drivers.is_empty()) {
                    host.attach_driver();
                }
            }
            13 if faults.fills_disks => {
                let is_full = self.random.chance(50);
                if let Some(host) = &self.nodes[number] {
                    host.world().disk_error = is_full.then(|| "no space is left".to_owned());
                }
            }
            _ if swarm.has_ghosts => (0..4).for_each(|_| self.haunt()),
            _ => {}
        }
        self.wake(number, self.now);
    }

    fn kill_process(&mut self, number: usize, slots: &[aktis_protocol::ProcessSlot]) {
        let Some(slot) = self.random.pick(slots) else { return };
        let now = self.now;
        self.note(format_args!("process {slot} of node {number} is killed"));
        if let Some(host) = &mut self.nodes[number] {
            host.advance(now);
            host.kill(slot);
        }
    }

    /// A machine dies, or leaves the cluster. Another one takes its place.
    fn end_machine(&mut self, number: usize, leaves: bool) {
        let Some(mut host) = self.nodes[number].take() else { return };
        self.note(format_args!("node {number} ends; it leaves: {leaves}"));
        self.departed.insert(host.id);
        if let Some(link) = host.link {
            self.break_link(link, leaves);
        }
        for link in self.links_of(number) {
            self.break_peer_link(link);
        }
        host.clear();
        self.after(1_000, Event::NodeStarted);
    }
}
