//! Finished tasks that stay on record: how to make their values again, within a bound of bytes.

use super::{Input, Out, Record, Route, Stage, Submitter, SubmitterEffect};
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

/// Whether a finished task can be run again, for values of it that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It can.
    Possible,
    /// It is about to run, or runs, or is run again already.
    UnderWay,
    /// It has run as often as it may.
    NoRetryLeft {
        /// So often.
        runs: u32,
    },
    /// What would be needed is not on record any more.
    Forgotten,
}

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

    /// Whether a task can be run again, for values of it that were lost.
    pub fn repeat(&self, key: TaskKey) -> Repeat {
        let Some(record) = self.tasks.get(key) else { return Repeat::Forgotten };
        let is_open = |lane| self.lane_failure(lane).is_none();
        match (record.stage, record.route) {
            (Stage::Finished, Route::Lane(lane)) if record.payload.is_some() && is_open(lane) => {
                match record.retries {
                    0 => Repeat::NoRetryLeft { runs: record.attempt + 1 },
                    _ => Repeat::Possible,
                }
            }
            (Stage::Finished, _) => Repeat::Forgotten,
            _ => Repeat::UnderWay,
        }
    }

    /// The tasks of this submitter that have made inputs of a finished one, and are on record.
    pub fn producers(&self, key: TaskKey) -> &[TaskKey] {
        let edges = self.tasks.get(key).and_then(|record| record.edges.as_ref());
        edges.map_or(&[], |edges| &edges.producers)
    }

    /// A return of a finished task is referenced once more.
    pub fn on_handle_added(&mut self, key: TaskKey) {
        if let Some(record) = self.tasks.get_mut(key) {
            record.handles += 1;
        }
    }

    /// Values of a finished task were lost, and somebody wants them: it is run again, if it can be. `inputs` are those
    /// made by tasks of this submitter, and those that are missing.
    pub fn on_values_lost(&mut self, key: TaskKey, inputs: &[Input], out: &mut Out<P>) {
        if self.repeat(key) != Repeat::Possible {
            return;
        }
        self.discount(key);
        let Some(record) = self.tasks.get_mut(key) else { return };
        let Route::Lane(lane) = record.route else { return };
        record.try_again();
        record.missing = 0;
        let producers = record.edges.as_mut().map(|edges| std::mem::take(&mut edges.producers));
        self.unfinished += 1;
        self.connect(key, inputs);
        if self.tasks.get(key).is_some_and(|record| record.stage == Stage::Queued) {
            self.lanes.queue(lane).push_back(key);
        }
        for producer in producers.unwrap_or_default() {
            if let Some(record) = self.tasks.get_mut(producer) {
                record.lineage_users -= 1;
                self.forget_if_unused(producer, out);
            }
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
