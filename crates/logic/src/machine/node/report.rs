//! How the node stands, for the placer.

use super::Node;
use super::places::Stance;
use crate::ledger::{Allocation, Source};
use aktis_protocol::placement::{NodeReport, QueueRow};
use aktis_protocol::{FunctionId, GroupPlace, ProcessSlot, ShapeId, limits};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What runs or waits, by its shape and by what its run time is told by.
type Counts = BTreeMap<(ShapeId, FunctionId), u32>;

impl Node {
    /// What is free and what is queued. `running` says what a process runs now: leases that it does not use are as good as
    /// free, since they are given back when asked for. `waiting` says what some of the tasks of a shape run that wait; if
    /// it finds none, they have begun since somebody counted them.
    pub fn report(
        &self,
        running: impl Fn(ProcessSlot) -> Vec<(ShapeId, FunctionId)>,
        waiting: impl Fn(ShapeId) -> Vec<FunctionId>,
    ) -> NodeReport {
        let mut available = self.resources.node().available().clone();
        let mut usable = self.resources.node().total().clone();
        let is_node = |allocation: &&Allocation| allocation.source() == Source::Node;
        let kept = self.actors.allocations().chain(self.groups.allocations()).filter(is_node);
        kept.for_each(|allocation| usable.take_up_to(allocation.resources(), 1));
        let mut used: BTreeMap<ProcessSlot, Vec<(ShapeId, FunctionId)>> = BTreeMap::new();
        let mut in_use = Counts::new();
        for lease in self.leases.leases.values().filter(|lease| !self.is_peer(lease.holder)) {
            let left = used.entry(lease.holder).or_insert_with(|| running(lease.holder));
            if let Some(place) = left.iter().position(|(shape, _)| *shape == lease.shape) {
                *in_use.entry(left.swap_remove(place)).or_default() += 1;
            } else if lease.allocation.source() == Source::Node {
                available.add(lease.allocation.resources());
            }
        }
        let queues = self.queue_rows(&in_use, waiting);
        NodeReport { available, usable, queues, is_draining: self.is_draining(), ..NodeReport::default() }
    }

    /// Tasks that wait here, those of a shape shared out as a part of them says.
    fn queued(&self, waiting: impl Fn(ShapeId) -> Vec<FunctionId>) -> Counts {
        let mut queued = Counts::new();
        for shape in self.leases.known_shapes() {
            let all = self.leases.queued(shape).min(u64::from(u32::MAX)) as u32;
            let count = match self.stance_of_shape(shape) {
                Stance::Here | Stance::Only => all,
                // Of these, only those wait here that the placer has sent here.
                Stance::Ask => self.places.welcome(shape, all),
                Stance::Never => 0,
            };
            let seen = if count > 0 { waiting(shape) } else { Vec::new() };
            if seen.is_empty() {
                continue;
            }
            let (each, rest) = (count / seen.len() as u32, count as usize % seen.len());
            for (place, function) in seen.into_iter().enumerate() {
                *queued.entry((shape, function)).or_default() += each + u32::from(place < rest);
            }
        }
        queued.retain(|_, count| *count > 0);
        queued
    }

    fn queue_rows(&self, in_use: &Counts, waiting: impl Fn(ShapeId) -> Vec<FunctionId>) -> Vec<QueueRow> {
        let queued = self.queued(waiting);
        let known: BTreeSet<(ShapeId, FunctionId)> = queued.keys().chain(in_use.keys()).copied().collect();
        let row = |key: (ShapeId, FunctionId)| {
            let definition = self.leases.find_shape(key.0)?;
            let count = |counts: &Counts| counts.get(&key).copied().unwrap_or(0);
            Some(QueueRow {
                needs: definition.resources.clone(),
                group: definition.group,
                function: key.1,
                priority: definition.priority,
                queued: count(&queued),
                running: count(in_use),
            })
        };
        let mut rows: Vec<QueueRow> = known.into_iter().filter_map(row).collect();
        // What actors have of the node is not usable; what they have of groups is known by this alone.
        let of_groups = self.actors.allocations().filter_map(|allocation| match allocation.source() {
            Source::Bundle(group, bundle) => {
                Some((GroupPlace { group, bundle: Some(bundle) }, allocation.resources()))
            }
            Source::Node => None,
        });
        for (place, held) in of_groups {
            let (needs, function) = (held.clone(), FunctionId::default());
            rows.push(QueueRow { needs, group: Some(place), function, priority: 0, queued: 0, running: 1 });
        }
        rows.sort_by_key(|row| Reverse(row.queued));
        rows.truncate(limits::REPORT_QUEUES_MAX);
        rows
    }
}
