//! Finished tasks that stay on record: how to make their values again, within a bound of bytes.

use super::{Input, LaneIndex, Out, Record, Route, Stage, Submitter, SubmitterEffect};
use aktis_protocol::TaskKey;
use std::collections::{BTreeSet, VecDeque};

/// The finished tasks with payloads on record, in the order in which they finished.
#[derive(Default)]
pub(super) struct Lineage {
    /// Oldest first, with the attempt that finished. Those that went for another reason than their age, or are run again,
    /// stay in here until it is swept: taking one out of the middle would touch its neighbours, which costs more than all
    /// else that is done for lineage.
    finished: VecDeque<(TaskKey, u32)>,
    /// Tasks that were finished and are run again.
    pub(super) repeated: BTreeSet<TaskKey>,
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
    /// It is a call of an actor: these are not run again.
    Call,
    /// What would be needed is not on record any more.
    Forgotten,
}

/// Whether a place in the list is that of a task which is kept since then.
fn is_current<P>(record: Option<&Record<P>>, attempt: u32) -> bool {
    record.is_some_and(|record| record.is_kept() && record.attempt == attempt)
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
        let place = (key, record.attempt);
        self.lineage.bytes += record.bytes as usize;
        self.lineage.kept += 1;
        if self.lineage.finished.len() >= 2 * self.lineage.kept + GONE_MAX {
            let tasks = &self.tasks;
            self.lineage.finished.retain(|&(key, attempt)| is_current(tasks.get(key), attempt));
        }
        self.lineage.finished.push_back(place);
        if let Some(producers) = producers.filter(|producers| !producers.is_empty()) {
            self.keep_producers(key, producers);
        }
        self.evict_oldest(out);
    }

    /// Drops the payloads of the oldest beyond the bound. One that is run again needs its own.
    fn evict_oldest(&mut self, out: &mut Out<P>) {
        while self.lineage.bytes > self.config.lineage_bytes_max {
            let Some((oldest, attempt)) = self.lineage.finished.pop_front() else { break };
            if is_current(self.tasks.get(oldest), attempt) {
                self.discount(oldest);
                self.evict(oldest, out);
            }
        }
    }

    /// The payload of a finished task has so many bytes more than was said.
    pub fn on_payload_grown(&mut self, key: TaskKey, bytes: u32, out: &mut Out<P>) {
        let Some(record) = self.tasks.get_mut(key).filter(|record| record.is_kept()) else { return };
        record.bytes = record.bytes.saturating_add(bytes);
        self.lineage.bytes += bytes as usize;
        self.evict_oldest(out);
    }

    /// Producers that are on record stay while `key` does.
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
        match (record.stage, record.route) {
            (Stage::Finished, Route::Actor(_)) => Repeat::Call,
            (Stage::Finished, Route::Lane(_)) if record.payload.is_none() => Repeat::Forgotten,
            (Stage::Finished, Route::Lane(_)) if record.retries == 0 => {
                Repeat::NoRetryLeft { runs: record.attempt + 1 }
            }
            (Stage::Finished, Route::Lane(_)) => Repeat::Possible,
            _ => Repeat::UnderWay,
        }
    }

    /// The tasks that have to run again so that the values of this one are made again, each after those whose values it
    /// needs. `lost_inputs` gives the tasks that have made what a task needs and what is gone. If one cannot run again,
    /// gives that, and why.
    pub fn steps_to(
        &self,
        key: TaskKey,
        mut lost_inputs: impl FnMut(TaskKey) -> Vec<TaskKey>,
    ) -> Result<Vec<TaskKey>, (TaskKey, Repeat)> {
        let (mut steps, mut seen) = (Vec::new(), BTreeSet::new());
        // Deeper ones first; a task whose producers are dealt with is there a second time. A worklist, since chains may be
        // as long as a user likes.
        let mut open = vec![(key, false)];
        while let Some((key, is_ready)) = open.pop() {
            if is_ready {
                steps.push(key);
            } else if seen.insert(key) {
                match self.repeat(key) {
                    Repeat::Possible => {}
                    Repeat::UnderWay => continue,
                    refusal => return Err((key, refusal)),
                }
                open.push((key, true));
                open.extend(lost_inputs(key).into_iter().map(|producer| (producer, false)));
            }
        }
        Ok(steps)
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

    /// Values of a finished task were lost, and somebody wants them: it is run again, if it can be, from this lane, which is
    /// open. `inputs` are those made by tasks of this submitter, and those that are missing.
    pub fn on_values_lost(&mut self, key: TaskKey, lane: LaneIndex, inputs: &[Input], out: &mut Out<P>) {
        if self.repeat(key) != Repeat::Possible {
            return;
        }
        self.discount(key);
        let Some(record) = self.tasks.get_mut(key) else { return };
        record.route = Route::Lane(lane);
        record.try_again(false);
        record.missing = 0;
        self.lineage.repeated.insert(key);
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

    /// A finished task is not to be run again.
    pub fn forget_lineage(&mut self, key: TaskKey, out: &mut Out<P>) {
        if self.tasks.get(key).is_some_and(Record::is_kept) {
            self.discount(key);
            self.evict(key, out);
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
            if self.lineage.finished.front() == Some(&(key, record.attempt)) {
                self.lineage.finished.pop_front();
            }
        }
    }
}
