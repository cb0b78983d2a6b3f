//! What the cluster keeps of this node's tasks and objects: told in batches, behind the work, and asked for when it is needed.
//!
//! Invariants:
//! 1. Changes are made in their order: one batch at a time is under way, and the next has all that has come meanwhile.
//! 2. Of each task, hold, copy and row only the last word waits, and what is taken back before it was sent leaves no trace. So
//!    what waits while the control process is away is not more than there is.
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
use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// Where among them the one about a thing is.
    unsent: HashMap<Thing, u64>,
    /// Things that the cluster was told of, and not yet that they are over.
    sent: HashSet<Thing>,
    /// Those that were sent, and not answered.
    under_way: Option<Vec<Change>>,
    /// Those who wait for answers.
    askers: HashMap<u64, Sender<Answer>>,
    next_asker: u64,
}

/// What a change tells the cluster of, or takes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Task(TaskId),
    Hold(ObjectId),
    Copy(ObjectId),
    Row(Table, Key),
}

/// The thing that a change is about, and whether it tells of it; events are about nothing that lasts.
fn thing_of(change: &Change) -> Option<(Thing, bool)> {
    match change {
        Change::TaskRecorded { task, .. } => Some((Thing::Task(*task), true)),
        Change::TaskForgotten { task } => Some((Thing::Task(*task), false)),
        Change::Held { object } => Some((Thing::Hold(*object), true)),
        Change::Released { object } => Some((Thing::Hold(*object), false)),
        Change::CopyMade { object, .. } => Some((Thing::Copy(*object), true)),
        Change::CopyDropped { object } => Some((Thing::Copy(*object), false)),
        Change::RowPut { table, key, .. } => Some((Thing::Row(*table, key.clone()), true)),
        Change::RowDeleted { table, key } => Some((Thing::Row(*table, key.clone()), false)),
        Change::EventNoted(_) => None,
    }
}

impl Tables {
    fn add(&mut self, change: Change) {
        let thing = thing_of(&change);
        if let Some((thing, tells)) = &thing {
            let before = self.unsent.remove(thing).and_then(|place| self.waiting.remove(&place));
            self.bytes -= before.map_or(0, |before| before.bytes());
            if !tells && !self.sent.contains(thing) {
                return;
            }
        }
        if matches!(change, Change::TaskRecorded { .. }) && self.bytes > WAITING_BYTES_MAX {
            return;
        }
        let place = self.next;
        self.next += 1;
        self.unsent.extend(thing.map(|(thing, _)| (thing, place)));
        self.bytes += change.bytes();
        self.waiting.insert(place, change);
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
            if let Some((thing, tells)) = thing_of(&change) {
                self.unsent.remove(&thing);
                match tells {
                    true => self.sent.insert(thing),
                    false => self.sent.remove(&thing),
                };
            }
            bytes += change.bytes();
            batch.push(change);
        }
        self.bytes -= bytes;
        self.under_way = Some(batch.clone());
        Some(batch)
    }

    /// What was under way may have been made, or not: it goes before all that waits.
    fn put_back(&mut self) {
        let Some(batch) = self.under_way.take() else { return };
        self.sent.extend(batch.iter().filter_map(thing_of).map(|(thing, _)| thing));
        let later = std::mem::take(&mut self.waiting).into_values();
        self.unsent.clear();
        self.bytes = 0;
        batch.into_iter().chain(later).for_each(|change| self.add(change));
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
        match is_answered {
            true => tables.under_way = None,
            false => tables.put_back(),
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
            Some(Answer::Object(Some(row))) if row.bytes.is_some() => {
                let gone = !row.copies.iter().any(lives);
                OnRecord::Copies { nodes: row.copies, gone }
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
        assert!(batch.contains(&recorded(3, 2)) && tables.bytes == 0 && tables.unsent.is_empty());
    }

    #[test]
    fn nothing_is_left_of_what_comes_and_goes_while_nobody_listens() {
        let mut tables = Tables::default();
        let object = |number| task(number).returns(0);
        let held = |number| Change::Held { object: object(number) };
        let released = |number| Change::Released { object: object(number) };
        tables.add(held(0));
        assert_eq!(tables.next_batch(), Some(vec![held(0)]));
        tables.under_way = None;
        for number in 1..100 {
            let object = object(number);
            tables.add(recorded(number, 1));
            tables.add(held(number));
            tables.add(Change::CopyMade { object, bytes: 1 });
            tables.add(Change::CopyDropped { object });
            tables.add(released(number));
            tables.add(Change::TaskForgotten { task: task(number) });
            let (table, key) = (Table::Jobs, Key::from("a job"));
            tables.add(Change::RowPut { table, key: key.clone(), value: vec![1], overwrite: true });
            tables.add(Change::RowPut { table, key: key.clone(), value: vec![2], overwrite: true });
            tables.add(Change::RowDeleted { table, key });
            // What the cluster knows may come and go, too.
            tables.add(released(0));
            tables.add(held(0));
            tables.add(released(0));
        }
        assert_eq!((tables.waiting.len(), tables.unsent.len()), (1, 1));
        assert_eq!(tables.next_batch(), Some(vec![released(0)]));
        assert!(tables.sent.is_empty() && tables.bytes == 0);
    }

    #[test]
    fn what_was_not_answered_may_have_been_made() {
        let mut tables = Tables::default();
        let (record, forgotten) = (recorded(1, 1), Change::TaskForgotten { task: task(1) });
        tables.add(record.clone());
        tables.next_batch();
        tables.put_back();
        tables.add(forgotten.clone());
        assert_eq!(tables.next_batch(), Some(vec![forgotten.clone()]));
        tables.put_back();
        assert_eq!(tables.next_batch(), Some(vec![forgotten.clone()]), "it is said again");
        tables.add(record.clone());
        tables.put_back();
        assert_eq!(tables.next_batch(), Some(vec![record]), "the last word");
    }

    #[test]
    fn a_record_for_which_there_was_no_room_is_not_taken_back() {
        let mut tables = Tables { bytes: WAITING_BYTES_MAX + 1, ..Tables::default() };
        tables.add(recorded(1, 1));
        tables.add(Change::TaskForgotten { task: task(1) });
        assert_eq!(tables.next_batch(), None);
    }
}
