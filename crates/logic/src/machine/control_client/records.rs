//! What the cluster keeps of this node's tasks and objects: told in batches, behind the work, and asked for when it is needed.
//!
//! Invariants:
//! 1. Changes are made in their order: one batch at a time is under way, and the next has all that has come meanwhile.
//! 2. Of each task, hold, copy and row only the last change waits, and one that is taken back before it was sent leaves no
//!    trace. So what waits while the control process is away is not more than there is.
//! 3. Nobody waits for a change.

use super::questions::{AskedFor, Asker};
use super::{ControlClient, ControlClientEffect};
use crate::machine::node::{NodeInput, OnRecord};
use crate::{Effects, Time};
use aktis_protocol::control::decode;
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::member::Question;
use aktis_protocol::tables::{Answer, Change, Key, Query, Table};
use aktis_protocol::{NodeId, ObjectId, TaskId, limits};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// Most bytes of changes that wait while the control process is away; records of tasks and events beyond it are not kept there.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Most bytes of one batch.
const BATCH_BYTES: usize = limits::BATCH_BYTES_MAX / 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Changes that were not sent yet, in order.
    waiting: BTreeMap<u64, Change>,
    bytes: usize,
    next: u64,
    /// Where among them the one about a thing is.
    unsent: BTreeMap<Thing, u64>,
    /// Things that the cluster was told of, and not yet that they are over.
    sent: BTreeSet<Thing>,
    /// Those that were sent, and not answered.
    under_way: Option<Vec<Change>>,
}

/// What a change tells the cluster of, or takes back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

impl Records {
    pub(super) fn add(&mut self, change: Change) {
        let thing = thing_of(&change);
        if let Some((thing, tells)) = &thing {
            let before = self.unsent.remove(thing).and_then(|place| self.waiting.remove(&place));
            self.bytes -= before.map_or(0, |before| before.bytes());
            if !tells && !self.sent.contains(thing) {
                return;
            }
        }
        if matches!(change, Change::TaskRecorded { .. } | Change::EventNoted(_))
            && self.bytes > WAITING_BYTES_MAX
        {
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

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    pub(super) fn check(&self) {
        assert_eq!(self.bytes, self.waiting.values().map(Change::bytes).sum::<usize>());
        assert!(self.unsent.values().all(|place| self.waiting.contains_key(place)), "records invariant 2");
    }
}

impl ControlClient {
    /// Sends the changes that wait, unless a batch is under way.
    pub(super) fn flush_records(&mut self, now: Time, out: &mut Effects<ControlClientEffect>) {
        if let Some(batch) = self.records.next_batch() {
            self.ask(now, Asker::of(AskedFor::Changes), Question::Change(batch), out);
        }
    }

    /// The control process has made a batch, or has not answered for so long that it is sent once more.
    pub(super) fn on_changed(
        &mut self,
        now: Time,
        is_answered: bool,
        out: &mut Effects<ControlClientEffect>,
    ) {
        match is_answered {
            true => self.records.under_way = None,
            false => self.records.put_back(),
        }
        self.flush_records(now, out);
    }

    /// Asks how the task of an object can be run again.
    pub(super) fn on_record_wanted(
        &mut self,
        now: Time,
        object: ObjectId,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let query = Question::Query(Query::Task(object.task()));
        self.ask(now, Asker::of(AskedFor::Record(object)), query, out);
    }

    pub(super) fn on_record(
        &mut self,
        now: Time,
        object: ObjectId,
        answer: Option<Answer>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let found = match answer {
            Some(Answer::Task(Some(record))) => decode::<RecordedTask>(&record).ok(),
            _ => None,
        };
        match found {
            Some(task) => {
                let input = NodeInput::RecordFound { object, found: OnRecord::Task(task) };
                out.push(ControlClientEffect::ToNode(input));
            }
            None => {
                let query = Question::Query(Query::Object(object));
                self.ask(now, Asker::of(AskedFor::Copies(object)), query, out);
            }
        }
    }

    pub(super) fn on_copies(
        &mut self,
        object: ObjectId,
        answer: Option<Answer>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let lives = |node: &NodeId| *node == self.me() || self.nodes().any(|info| info.node == *node);
        let found = match answer {
            // The tables know for a while where the copies of a dead node were.
            Some(Answer::Object(Some(row))) if row.bytes.is_some() => {
                let gone = !row.copies.iter().any(lives);
                OnRecord::Copies { nodes: row.copies, gone }
            }
            _ => OnRecord::Nothing,
        };
        out.push(ControlClientEffect::ToNode(NodeInput::RecordFound { object, found }));
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
    fn a_change_taken_back_before_sending_is_not_sent() {
        let mut records = Records::default();
        let forgotten = |number| Change::TaskForgotten { task: task(number) };
        records.add(recorded(1, 1));
        assert_eq!(records.next_batch(), Some(vec![recorded(1, 1)]));
        records.add(recorded(2, 1));
        records.add(recorded(3, 1));
        records.add(forgotten(2));
        records.add(recorded(3, 2));
        records.add(forgotten(1));
        assert_eq!(records.next_batch(), None, "one at a time");
        records.under_way = None;
        let batch = records.next_batch().expect("something waits");
        assert!(!batch.contains(&recorded(2, 1)) && !batch.contains(&recorded(3, 1)), "{batch:?}");
        assert_eq!(batch.last(), Some(&forgotten(1)));
        assert!(batch.contains(&recorded(3, 2)) && records.bytes == 0 && records.unsent.is_empty());
    }

    #[test]
    fn changes_that_cancel_out_leave_nothing_waiting() {
        let mut records = Records::default();
        let object = |number| task(number).returns(0);
        let held = |number| Change::Held { object: object(number) };
        let released = |number| Change::Released { object: object(number) };
        records.add(held(0));
        assert_eq!(records.next_batch(), Some(vec![held(0)]));
        records.under_way = None;
        for number in 1..100 {
            let object = object(number);
            records.add(recorded(number, 1));
            records.add(held(number));
            records.add(Change::CopyMade { object, bytes: 1 });
            records.add(Change::CopyDropped { object });
            records.add(released(number));
            records.add(Change::TaskForgotten { task: task(number) });
            let (table, key) = (Table::Jobs, Key::from("a job"));
            records.add(Change::RowPut { table, key: key.clone(), value: vec![1], overwrite: true });
            records.add(Change::RowPut { table, key: key.clone(), value: vec![2], overwrite: true });
            records.add(Change::RowDeleted { table, key });
            // What the cluster knows may come and go, too.
            records.add(released(0));
            records.add(held(0));
            records.add(released(0));
        }
        assert_eq!((records.waiting.len(), records.unsent.len()), (1, 1));
        assert_eq!(records.next_batch(), Some(vec![released(0)]));
        assert!(records.sent.is_empty() && records.bytes == 0);
    }

    #[test]
    fn an_unanswered_batch_is_sent_again() {
        let mut records = Records::default();
        let (record, forgotten) = (recorded(1, 1), Change::TaskForgotten { task: task(1) });
        records.add(record.clone());
        records.next_batch();
        records.put_back();
        records.add(forgotten.clone());
        assert_eq!(records.next_batch(), Some(vec![forgotten.clone()]));
        records.put_back();
        assert_eq!(records.next_batch(), Some(vec![forgotten.clone()]), "it is said again");
        records.add(record.clone());
        records.put_back();
        assert_eq!(records.next_batch(), Some(vec![record]), "the last word");
    }

    #[test]
    fn a_record_for_which_there_was_no_room_is_not_taken_back() {
        let mut records = Records { bytes: WAITING_BYTES_MAX + 1, ..Records::default() };
        records.add(recorded(1, 1));
        records.add(Change::TaskForgotten { task: task(1) });
        assert_eq!(records.next_batch(), None);
    }
}
