//! What the cluster keeps of this node's tasks and objects: told in batches, behind the work, and asked for when it is needed.
//!
//! Invariants:
//! 1. Changes are made in their order: one batch at a time is under way, and the next has all that has come meanwhile.
//! 2. What is taken back before it was sent is not sent at all.
//! 3. Nobody waits for a change.

use super::Elsewhere;
use super::questions::{AskedFor, Asker};
use aktis_logic::machine::node::{NodeInput, OnRecord};
use aktis_protocol::control::decode;
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::member::Question;
use aktis_protocol::tables::{Answer, Change, Key, Query, Table};
use aktis_protocol::{NodeId, ObjectId, TaskId, limits};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::sync::Weak;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Most bytes of changes that wait while the control process is away; records of tasks beyond it are not kept there.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Most bytes of one batch.
const BATCH_BYTES: usize = limits::BATCH_BYTES_MAX / 2;

/// See the module.
#[derive(Default)]
pub(super) struct Tables {
    /// Changes that were not sent yet, in order.
    waiting: BTreeMap<u64, Change>,
    bytes: usize,
    next: u64,
    /// The records, holds and copies among them.
    recorded: HashMap<TaskId, u64>,
    held: HashMap<ObjectId, u64>,
    copied: HashMap<ObjectId, u64>,
    /// Those that were sent, and not answered.
    under_way: Option<Vec<Change>>,
    /// Those who wait for answers.
    askers: HashMap<u64, Sender<Answer>>,
    next_asker: u64,
}

impl Tables {
    fn add(&mut self, change: Change) {
        let taken_back = match &change {
            Change::TaskForgotten { task } => self.recorded.remove(task),
            Change::TaskRecorded { task, .. } => {
                let before = self.recorded.remove(task);
                before.into_iter().for_each(|place| self.take(place));
                None
            }
            Change::Released { object } => self.held.remove(object),
            Change::CopyDropped { object } => self.copied.remove(object),
            _ => None,
        };
        if let Some(place) = taken_back {
            self.take(place);
            // There may be an older one that was sent, and the same change again does no harm.
        }
        if matches!(change, Change::TaskRecorded { .. }) && self.bytes > WAITING_BYTES_MAX {
            return;
        }
        let place = self.next;
        self.next += 1;
        match &change {
            Change::TaskRecorded { task, .. } => {
                self.recorded.insert(*task, place);
            }
            Change::Held { object } => {
                self.held.insert(*object, place);
            }
            Change::CopyMade { object, .. } => {
                self.copied.insert(*object, place);
            }
            _ => {}
        }
        self.bytes += change.bytes();
        self.waiting.insert(place, change);
    }

    fn take(&mut self, place: u64) {
        if let Some(change) = self.waiting.remove(&place) {
            self.bytes -= change.bytes();
        }
    }

    /// What is sent next, unless something is under way.
    fn next_batch(&mut self) -> Option<Vec<Change>> {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return None;
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && batch.len() < limits::BATCH_CHANGES_MAX
            && let Some((_, change)) = self.waiting.pop_first()
        {
            match &change {
                Change::TaskRecorded { task, .. } => drop(self.recorded.remove(task)),
                Change::Held { object } => drop(self.held.remove(object)),
                Change::CopyMade { object, .. } => drop(self.copied.remove(object)),
                _ => {}
            }
            bytes += change.bytes();
            batch.push(change);
        }
        self.bytes -= bytes;
        self.under_way = Some(batch.clone());
        Some(batch)
    }
}

impl Elsewhere {
    /// Has the cluster keep or forget something.
    pub(super) fn change_tables(&self, change: Change) {
        self.tables.lock().add(change);
    }

    /// Sends what waits, unless something is under way.
    pub(super) fn flush_tables(&self) {
        let batch = self.tables.lock().next_batch();
        if let Some(batch) = batch {
            self.ask_control(Asker::of(AskedFor::Changes), Question::Change(batch));
        }
    }

    /// The control process has made a batch, or has not answered for so long that it is sent once more.
    pub(super) fn on_changed(&self, is_answered: bool) {
        let mut tables = self.tables.lock();
        if let Some(batch) = tables.under_way.take().filter(|_| !is_answered) {
            let later = std::mem::take(&mut tables.waiting).into_values();
            tables.recorded.clear();
            tables.held.clear();
            tables.copied.clear();
            tables.bytes = 0;
            batch.into_iter().chain(later).for_each(|change| tables.add(change));
        }
        drop(tables);
        self.flush_tables();
    }

    /// Asks how the task of an object can be run again.
    pub(super) fn seek_record(&self, object: ObjectId) {
        let query = Query::Task(object.task());
        self.ask_control(Asker::of(AskedFor::Record(object)), Question::Query(query));
    }

    pub(super) fn on_record(&self, object: ObjectId, answer: Option<Answer>) {
        let found = match answer {
            Some(Answer::Task(Some(record))) => decode::<RecordedTask>(&record).ok(),
            _ => None,
        };
        match found {
            Some(task) => self.host.feed(NodeInput::RecordFound { object, found: OnRecord::Task(task) }),
            None => {
                let query = Question::Query(Query::Object(object));
                self.ask_control(Asker::of(AskedFor::Copies(object)), query);
            }
        }
    }

    pub(super) fn on_copies(&self, object: ObjectId, answer: Option<Answer>) {
        let member = self.member.get().and_then(Weak::upgrade);
        let lives = |node: &NodeId| {
            *node == self.me
                || member.as_ref().is_none_or(|member| member.nodes().iter().any(|info| info.node == *node))
        };
        let found = match answer {
            // It is on record for a while where the copies of a dead node were.
            Some(Answer::Object(Some(row))) if row.bytes.is_some() && !row.copies.iter().any(lives) => {
                OnRecord::CopiesGone(row.copies)
            }
            _ => OnRecord::Nothing,
        };
        self.host.feed(NodeInput::RecordFound { object, found });
    }

    /// Asks the tables something, and waits for the answer; nothing if the control process is away.
    pub(crate) fn query_tables(&self, query: Query, patience: Duration) -> Option<Answer> {
        let (sender, receiver) = channel();
        let mut tables = self.tables.lock();
        tables.next_asker += 1;
        let number = tables.next_asker;
        tables.askers.insert(number, sender);
        drop(tables);
        self.ask_control(Asker::of(AskedFor::Somebody(number)), Question::Query(query));
        let answer = receiver.recv_timeout(patience).ok();
        self.tables.lock().askers.remove(&number);
        answer
    }

    /// All rows of a table, in the order of their keys; nothing if the control process does not answer.
    pub(super) fn all_rows<Row: DeserializeOwned>(
        &self,
        table: Table,
        patience: Duration,
    ) -> Option<Vec<Row>> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let (prefix, limit) = (Key(Vec::new()), limits::ANSWER_ROWS_MAX);
            let query = Query::Rows { table, prefix, after, limit, values: true };
            let Answer::Rows { rows, more } = self.query_tables(query, patience)? else { return None };
            after = rows.last().map(|(key, _)| key.clone());
            all.extend(rows.iter().filter_map(|(_, value)| decode(value).ok()));
            if !more {
                return Some(all);
            }
        }
    }

    pub(super) fn on_told(&self, number: u64, answer: Option<Answer>) {
        let asker = self.tables.lock().askers.remove(&number);
        if let (Some(asker), Some(answer)) = (asker, answer) {
            let _ = asker.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::SessionId;

    fn task(number: u64) -> TaskId {
        TaskId::root(SessionId(1)).child(number)
    }

    fn recorded(number: u64, byte: u8) -> Change {
        Change::TaskRecorded { task: task(number), returns: 1, record: vec![byte] }
    }

    #[test]
    fn what_is_taken_back_before_it_was_sent_is_not_sent() {
        let mut tables = Tables::default();
        let forgotten = |number| Change::TaskForgotten { task: task(number) };
        tables.add(recorded(1, 1));
        assert_eq!(tables.next_batch(), Some(vec![recorded(1, 1)]));
        tables.add(recorded(2, 1));
        tables.add(recorded(3, 1));
        tables.add(forgotten(2));
        tables.add(recorded(3, 2));
        tables.add(forgotten(1));
        assert_eq!(tables.next_batch(), None, "one at a time");
        tables.under_way = None;
        let batch = tables.next_batch().expect("something waits");
        assert!(!batch.contains(&recorded(2, 1)) && !batch.contains(&recorded(3, 1)), "{batch:?}");
        assert_eq!(batch.last(), Some(&forgotten(1)));
        assert!(batch.contains(&recorded(3, 2)) && tables.bytes == 0 && tables.recorded.is_empty());
    }
}
