//! Finished tasks that stay on record: how to make their values again, within a bound of bytes.

use super::{Out, Submitter, SubmitterEffect};
use aktis_protocol::TaskKey;

/// A place in the list of finished tasks, oldest first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    previous: Option<TaskKey>,
    next: Option<TaskKey>,
    linked: bool,
}

/// The list of finished tasks with payloads on record.
#[derive(Default)]
pub(super) struct Lineage {
    oldest: Option<TaskKey>,
    newest: Option<TaskKey>,
    bytes: usize,
}

impl Lineage {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<P> Submitter<P> {
    /// Keeps a finished task on record; drops the payloads of the oldest beyond the bound.
    pub(super) fn remember(&mut self, key: TaskKey, out: &mut Out<P>) {
        let newest = self.lineage.newest.replace(key);
        let Some(record) = self.tasks.get_mut(key) else { return };
        record.link = Link { previous: newest, next: None, linked: true };
        self.lineage.bytes += record.bytes as usize;
        let producers = record.edges.as_mut().map(|edges| std::mem::take(&mut edges.producers));
        match newest.and_then(|newest| self.tasks.get_mut(newest)) {
            Some(before) => before.link.next = Some(key),
            None => self.lineage.oldest = Some(key),
        }
        if let Some(producers) = producers.filter(|producers| !producers.is_empty()) {
            self.keep_producers(key, producers);
        }
        while self.lineage.bytes > self.config.lineage_bytes_max {
            let Some(oldest) = self.lineage.oldest else { break };
            self.unlink(oldest);
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

    /// Takes a task out of the list.
    pub(super) fn unlink(&mut self, key: TaskKey) {
        let Some(record) = self.tasks.get_mut(key) else { return };
        if !record.link.linked {
            return;
        }
        let Link { previous, next, .. } = std::mem::take(&mut record.link);
        self.lineage.bytes -= record.bytes as usize;
        match previous.and_then(|previous| self.tasks.get_mut(previous)) {
            Some(before) => before.link.next = next,
            None => self.lineage.oldest = next,
        }
        match next.and_then(|next| self.tasks.get_mut(next)) {
            Some(after) => after.link.previous = previous,
            None => self.lineage.newest = previous,
        }
    }
}
