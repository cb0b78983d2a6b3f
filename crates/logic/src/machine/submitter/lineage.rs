//! Finished tasks that stay on record: how to make their values again, within a bound of bytes.

use super::{Out, Record, Submitter, SubmitterEffect};
use aktis_protocol::TaskKey;
use std::collections::VecDeque;

/// The finished tasks with payloads on record, in the order in which they finished.
#[derive(Default)]
pub(super) struct Lineage {
    /// Oldest first. Those that went for another reason than their age stay in here until it is swept: taking one
    /// out of the middle would touch its neighbours, which costs more than all else that is done for lineage.
    finished: VecDeque<TaskKey>,
    kept: usize,
    bytes: usize,
}

/// How many places of gone tasks there may be, beyond one for each that is kept, before they are swept.
const GONE_MAX: usize = 4096;

impl Lineage {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<P> Submitter<P> {
    /// Keeps a finished task on record; drops the payloads of the oldest beyond the bound.
    pub(super) fn remember(&mut self, key: TaskKey, out: &mut Out<P>) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        let producers = record.edges.as_mut().map(|edges| std::mem::take(&mut edges.producers));
        self.lineage.bytes += record.bytes as usize;
        self.lineage.kept += 1;
        if self.lineage.finished.len() >= 2 * self.lineage.kept + GONE_MAX {
            let tasks = &self.tasks;
            self.lineage.finished.retain(|&key| tasks.get(key).is_some_and(Record::is_kept));
        }
        self.lineage.finished.push_back(key);
        if let Some(producers) = producers.filter(|producers| !producers.is_empty()) {
            self.keep_producers(key, producers);
        }
        while self.lineage.bytes > self.config.lineage_bytes_max {
            let Some(oldest) = self.lineage.finished.pop_front() else { break };
            self.discount(oldest);
            self.evict(oldest, out);
        }
    }

    /// Producers that are on record with a payload stay while `key` does; the others cannot help.
    fn keep_producers(&mut self, key: TaskKey, mut producers: Vec<TaskKey>) {
        producers.retain(|&producer| match self.tasks.get_mut(producer) {
            Some(record) => {
                record.lineage_users += 1;
                true
            }
            None => false,
        });
        if let Some(record) = self.tasks.get_mut(key) {
            record.edges.get_or_insert_default().producers = producers;
        }
    }

    /// Drops what would be needed to run a finished task again.
    fn evict(&mut self, key: TaskKey, out: &mut Out<P>) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        out.extend(record.payload.take().map(SubmitterEffect::Drop));
        let producers = record.edges.as_mut().map(|edges| std::mem::take(&mut edges.producers));
        for producer in producers.unwrap_or_default() {
            if let Some(record) = self.tasks.get_mut(producer) {
                record.lineage_users -= 1;
                self.forget_if_unused(producer, out);
            }
        }
    }

    /// A task is not kept any more.
    pub(super) fn discount(&mut self, key: TaskKey) {
        if let Some(record) = self.tasks.get(key).filter(|record| record.is_kept()) {
            self.lineage.bytes -= record.bytes as usize;
            self.lineage.kept -= 1;
            // Most go in the order in which they came.
            if self.lineage.finished.front() == Some(&key) {
                self.lineage.finished.pop_front();
            }
        }
    }
}
