//! What a mailbox holds: an actor's life, and its calls in their groups, each with a limit of its own.

use crate::worker::async_call::AsyncCall;
use crate::worker::mailbox::{Item, Life};
use std::collections::VecDeque;
use std::sync::Weak;

pub(super) struct State {
    pub(super) life: Life,
    /// Calls that belong to no other group.
    pub(super) main: Group,
    /// Calls that are counted by themselves.
    pub(super) groups: Box<[Group]>,
    /// The calls that are suspended.
    pub(super) suspended: Vec<Weak<AsyncCall>>,
    pub(super) exclusive: bool,
    pub(super) scheduled: bool,
    /// The thread that keeps it to itself, by its index (see `batch`).
    pub(super) keeper: Option<u32>,
}

/// Calls that are counted together.
pub(super) struct Group {
    number: u16,
    pub(super) queue: VecDeque<Item>,
    pub(super) running: u32,
    concurrency: u32,
}

impl Group {
    pub(super) fn new(number: u16, concurrency: u32) -> Self {
        Self { number, queue: VecDeque::new(), running: 0, concurrency: concurrency.max(1) }
    }
}

impl State {
    pub(super) fn group(&mut self, number: u16) -> &mut Group {
        // A group that the actor does not have is that of all others.
        self.groups.iter_mut().find(|group| group.number == number).unwrap_or(&mut self.main)
    }

    pub(super) fn all_groups(&mut self) -> impl Iterator<Item = &mut Group> {
        std::iter::once(&mut self.main).chain(self.groups.iter_mut())
    }

    /// Whether calls are queued, startable or not.
    pub(super) fn has_queued(&self) -> bool {
        std::iter::once(&self.main).chain(&*self.groups).any(|group| !group.queue.is_empty())
    }

    /// Whether two calls may run at the same time.
    pub(super) fn overlaps(&self) -> bool {
        self.main.concurrency > 1 || !self.groups.is_empty()
    }

    pub(super) fn running(&self) -> u32 {
        self.main.running + self.groups.iter().map(|group| group.running).sum::<u32>()
    }

    /// Notes that the mailbox is queued for a thread; true if it is to be queued: something can start, and nobody will
    /// look before.
    pub(super) fn schedule(&mut self) -> bool {
        let schedule = !self.scheduled && self.startable().is_some();
        self.scheduled |= schedule;
        schedule
    }

    /// The group whose next item may start now, and whether that runs alone.
    pub(super) fn startable(&self) -> Option<(u16, bool)> {
        if self.exclusive {
            return None;
        }
        let running = self.running();
        let startable = |group: &Group| {
            let exclusive = group.queue.front()?.is_exclusive();
            let fits = group.running < group.concurrency && !(exclusive && running > 0);
            fits.then_some((group.number, exclusive))
        };
        std::iter::once(&self.main).chain(&*self.groups).find_map(startable)
    }

    /// Takes the next item that may start now, and whether it runs alone.
    pub(super) fn take(&mut self) -> Option<(Item, bool)> {
        let (number, exclusive) = self.startable()?;
        let group = self.group(number);
        group.running += 1;
        let item = group.queue.pop_front().expect("there is one");
        self.exclusive = exclusive;
        Some((item, exclusive))
    }
}
