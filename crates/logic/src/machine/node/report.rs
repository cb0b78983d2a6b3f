//! How the node stands, for the placer.

use super::Node;
use super::places::Stance;
use crate::ledger::{Allocation, Source};
use aktis_protocol::placement::{NodeReport, QueueRow};
use aktis_protocol::{FunctionId, GroupPlace, ProcessSlot, ShapeId, limits};
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Node {
    /// What is free and what is queued. `running` says how many tasks a process runs now: leases that it does not use
    /// are as good as free, since they are given back when asked for.
    pub fn report(&self, running: impl Fn(ProcessSlot) -> usize) -> NodeReport {
        let mut available = self.stock.node().available().clone();
        let mut usable = self.stock.node().total().clone();
        let is_node = |allocation: &&Allocation| allocation.source() == Source::Node;
        let kept = self.actors.allocations().chain(self.groups.allocations()).filter(is_node);
        kept.for_each(|allocation| usable.take_up_to(allocation.resources(), 1));
        let mut used: BTreeMap<ProcessSlot, usize> = BTreeMap::new();
        let mut in_use: BTreeMap<ShapeId, u32> = BTreeMap::new();
        for lease in self.leases.leases.values().filter(|lease| !self.is_peer(lease.holder)) {
            let left = used.entry(lease.holder).or_insert_with(|| running(lease.holder));
            if *left > 0 {
                *left -= 1;
                *in_use.entry(lease.shape).or_default() += 1;
            } else if lease.allocation.source() == Source::Node {
                available.add(lease.allocation.resources());
            }
        }
        NodeReport { available, usable, queues: self.queue_rows(&in_use), ..NodeReport::default() }
    }

    fn queue_rows(&self, in_use: &BTreeMap<ShapeId, u32>) -> Vec<QueueRow> {
        let row = |shape: ShapeId| {
            let definition = self.leases.find_shape(shape)?;
            let queued = match self.stance_of_shape(shape) {
                Stance::Here | Stance::Only => self.leases.queued(shape).min(u64::from(u32::MAX)) as u32,
                // Nobody waits for those here.
                Stance::Ask | Stance::Never => 0,
            };
            let running = in_use.get(&shape).copied().unwrap_or(0);
            let (needs, group) = (definition.resources.clone(), definition.group);
            (queued + running > 0).then(|| QueueRow {
                needs,
                group,
                function: FunctionId::default(),
                priority: definition.priority,
                queued,
                running,
            })
        };
        let mut rows: Vec<QueueRow> = self.leases.known_shapes().filter_map(row).collect();
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
