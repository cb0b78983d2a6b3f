//! All slots of a shard, with the nodes and the counts that they share: makes changes, and answers questions.
//!
//! 1. `counts` is what the slots have.
//! 2. No limit is passed by a change that was not forced.

use super::nodes::{NodeIndex, Nodes};
use super::slot::{Fate, Object, Slot};
use aktis_protocol::slots::SlotIndex;
use aktis_protocol::tables::{Answer, Change, Counts, Event, Key, ObjectRow, Query, RefusalKind, Table};
use aktis_protocol::{NodeId, ObjectId, limits};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Bound;

/// The state that changes change.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) nodes: Nodes,
    /// By their number; `None` for those of other shards.
    slots: Vec<Option<Slot>>,
    pub(super) events: VecDeque<Event>,
    pub(super) counts: Counts,
}

/// What a change was about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched {
    Nothing,
    Row,
    /// An object, and whether it may be free now.
    Object {
        object: ObjectId,
        suspect: bool,
    },
    Event,
}

/// Whether limits and conditions are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is asked for.
    Asked,
    /// It was decided before: the log says so.
    Forced,
}

impl Tables {
    /// Empty tables with these slots.
    pub(super) fn new(slots: impl IntoIterator<Item = SlotIndex>) -> Self {
        let mut tables = Self {
            nodes: Nodes::default(),
            slots: (0..limits::SLOTS).map(|_| None).collect(),
            events: VecDeque::new(),
            counts: Counts::default(),
        };
        for slot in slots {
            tables.slots[usize::from(slot.0)] = Some(Slot::default());
        }
        tables
    }

    /// The slots that are here.
    pub(super) fn slots(&self) -> impl Iterator<Item = (SlotIndex, &Slot)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((SlotIndex(index as u16), slot.as_ref()?)))
    }

    /// One slot, if it is here.
    pub(super) fn slot(&self, slot: SlotIndex) -> Option<&Slot> {
        self.slots.get(usize::from(slot.0))?.as_ref()
    }

    /// One slot, to be changed, with what slots share; if it is here.
    #[inline]
    pub(super) fn slot_mut(&mut self, slot: SlotIndex) -> Option<(&mut Slot, &mut Counts)> {
        Some((self.slots.get_mut(usize::from(slot.0))?.as_mut()?, &mut self.counts))
    }

    /// Puts a slot in its place, if it is one of this shard's.
    pub(super) fn set_slot(&mut self, index: SlotIndex, slot: Slot) {
        if let Some(place) = self.slots.get_mut(usize::from(index.0)).filter(|place| place.is_some()) {
            *place = Some(slot);
        }
    }

    /// Makes a change of `node`.
    pub(super) fn make(
        &mut self,
        node: NodeIndex,
        change: &Change,
        mode: Mode,
    ) -> Result<Touched, RefusalKind> {
        if mode == Mode::Asked {
            self.judge(change)?;
        }
        let Some((slot, counts)) = self.slot_mut(change.slot()) else { return Err(RefusalKind::Elsewhere) };
        Ok(match change {
            Change::CopyMade { object, bytes } => {
                counts.objects += u64::from(slot.make_copy(*object, node, *bytes));
                Touched::Object { object: *object, suspect: true }
            }
            Change::CopyDropped { object } => {
                slot.drop_copy(*object, node);
                Touched::Object { object: *object, suspect: true }
            }
            Change::Held { object } => {
                counts.objects += u64::from(slot.hold(*object, node));
                Touched::Object { object: *object, suspect: false }
            }
            Change::Released { object } => {
                slot.release(*object, node);
                Touched::Object { object: *object, suspect: true }
            }
            Change::RowPut { table, key, value, .. } => {
                let old = slot.put_row(*table, &key.0, value);
                counts.rows += u64::from(old.is_none());
                counts.row_bytes += value.len() as u64;
                counts.row_bytes += if old.is_none() { key.0.len() as u64 } else { 0 };
                counts.row_bytes -= old.map_or(0, |old| old.len() as u64);
                Touched::Row
            }
            Change::RowDeleted { table, key } => match slot.delete_row(*table, &key.0) {
                Some(old) => {
                    counts.rows -= 1;
                    counts.row_bytes -= (key.0.len() + old.len()) as u64;
                    Touched::Row
                }
                None => Touched::Nothing,
            },
            Change::TaskRecorded { task, returns, record } => {
                slot.record_task(*task, node, (*returns, record), counts);
                Touched::Nothing
            }
            Change::TaskForgotten { task } => {
                slot.give_up_task(*task, node, counts);
                Touched::Nothing
            }
            Change::EventNoted(event) => {
                self.note(event.clone());
                Touched::Event
            }
        })
    }

    /// Keeps an event, and lets the oldest go.
    pub(super) fn note(&mut self, event: Event) {
        if self.events.len() == limits::EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.counts.events = self.events.len() as u64;
    }

    /// Whether a change may be made.
    fn judge(&self, change: &Change) -> Result<(), RefusalKind> {
        let slot = || self.slot(change.slot()).ok_or(RefusalKind::Elsewhere);
        let refuse_if = |is_so: bool, why| if is_so { Err(why) } else { Ok(()) };
        match change {
            Change::CopyMade { object, .. } | Change::Held { object } => {
                let full = self.counts.objects >= limits::SHARD_OBJECTS_MAX as u64;
                refuse_if(full && slot()?.object(*object).is_none(), RefusalKind::Full)
            }
            Change::RowPut { table, key, value, overwrite } => {
                let large = key.0.len() > limits::KEY_BYTES_MAX || value.len() > limits::ROW_BYTES_MAX;
                refuse_if(large, RefusalKind::TooLarge)?;
                let old = slot()?.row(*table, &key.0);
                refuse_if(old.is_some() && !overwrite, RefusalKind::Exists)?;
                let freed = old.map_or(0, |old| key.0.len() + old.len());
                let bytes = self.counts.row_bytes as usize - freed + key.0.len() + value.len();
                // What users keep leaves room for what the cluster has to.
                let most = match table {
                    Table::Keys if key.0.starts_with(limits::OWN_KEY_PREFIX) => {
                        limits::OWN_KEY_ROWS_BYTES_MAX
                    }
                    Table::Keys => limits::KEY_ROWS_BYTES_MAX,
                    _ => limits::ROWS_BYTES_MAX,
                };
                refuse_if(bytes > most, RefusalKind::Full)
            }
            Change::TaskRecorded { task, returns, record } => {
                let large = record.len() > limits::TASK_RECORD_BYTES_MAX;
                refuse_if(large || *returns > limits::TASK_RETURNS_MAX, RefusalKind::TooLarge)?;
                let freed = slot()?.task(*task).map_or(0, |old| old.record.len());
                let bytes = self.counts.task_bytes as usize - freed + record.len();
                refuse_if(bytes > limits::TASK_RECORDS_BYTES_MAX, RefusalKind::Full)
            }
            Change::EventNoted(event) => {
                let large = event.subject.0.len() > limits::KEY_BYTES_MAX;
                refuse_if(large || event.text.len() > limits::EVENT_BYTES_MAX, RefusalKind::TooLarge)
            }
            Change::CopyDropped { .. }
            | Change::Released { .. }
            | Change::RowDeleted { .. }
            | Change::TaskForgotten { .. } => Ok(()),
        }
    }

    /// Looks what an object has come to; see [`Slot::settle`].
    pub(super) fn settle(&mut self, object: ObjectId) -> Fate {
        match self.slot_mut(SlotIndex::of_object(object)) {
            Some((slot, counts)) => slot.settle(object, counts),
            None => Fate::Stays,
        }
    }

    /// An object that is known.
    pub(super) fn object(&self, object: ObjectId) -> Option<&Object> {
        self.slot(SlotIndex::of_object(object))?.object(object)
    }

    /// An object as others see it.
    pub(super) fn object_row(&self, object: ObjectId) -> Option<ObjectRow> {
        self.object(object).map(|known| self.row_of(known))
    }

    fn row_of(&self, known: &Object) -> ObjectRow {
        let (copies, holders) = (self.nodes.ids(&known.copies), self.nodes.ids(&known.holders));
        ObjectRow { bytes: known.bytes(), copies, holders }
    }

    /// A row's value.
    pub(super) fn row(&self, table: Table, key: &Key) -> Option<&Vec<u8>> {
        self.slot(SlotIndex::of_row(table, &key.0))?.row(table, &key.0)
    }

    /// Answers a question.
    pub(super) fn answer(&self, query: Query) -> Answer {
        match query {
            Query::Row { table, key } => Answer::Row(self.row(table, &key).cloned()),
            Query::Rows { table, prefix, after, limit, values } => {
                self.rows(table, &prefix, after.as_ref(), limit, values)
            }
            Query::Object(object) => Answer::Object(self.object_row(object)),
            Query::Objects { node, limit } => Answer::Objects(self.some_objects(node, limit)),
            Query::Task(task) => {
                let slot = self.slot(SlotIndex::of_task(task));
                Answer::Task(slot.and_then(|slot| slot.task(task)).map(|known| known.record.to_vec()))
            }
            Query::Events { limit } => {
                let skipped = self.events.len().saturating_sub(limit.min(limits::ANSWER_ROWS_MAX) as usize);
                Answer::Events(self.events.iter().skip(skipped).cloned().collect())
            }
            Query::Counts => Answer::Counts(self.counts),
        }
    }

    /// Rows in the order of their keys, though each slot has its own part of them.
    fn rows(&self, table: Table, prefix: &Key, after: Option<&Key>, limit: u32, values: bool) -> Answer {
        let limit = limit.min(limits::ANSWER_ROWS_MAX) as usize;
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.0.as_slice()),
            _ => Bound::Included(prefix.0.as_slice()),
        };
        let mut first = BTreeMap::new();
        let mut more = false;
        for (_, slot) in self.slots() {
            let rows = slot.rows(table).range::<[u8], _>((from, Bound::Unbounded));
            for (key, value) in rows.take_while(|(key, _)| key.starts_with(&prefix.0)) {
                let last = first.last_key_value().map(|(key, _): (&&Vec<u8>, _)| *key);
                if first.len() == limit && last.is_none_or(|last| key > last) {
                    more = true;
                    break;
                }
                first.insert(key, value);
                if first.len() > limit {
                    first.pop_last();
                    more = true;
                }
            }
        }
        let value = |value: &Vec<u8>| if values { value.clone() } else { Vec::new() };
        let rows = first.into_iter().map(|(key, row)| (Key(key.clone()), value(row)));
        Answer::Rows { rows: rows.collect(), more }
    }

    fn some_objects(&self, node: Option<NodeId>, limit: u32) -> Vec<(ObjectId, ObjectRow)> {
        let limit = limit.min(limits::ANSWER_ROWS_MAX) as usize;
        let index = node.map(|node| self.nodes.find(node));
        let wanted = |object: &Object| match index {
            None => true,
            Some(None) => false,
            Some(Some(node)) => object.copies.contains(node) || object.holders.contains(node),
        };
        let objects = self.slots().flat_map(|(_, slot)| slot.objects());
        let objects = objects.filter(|(_, object)| wanted(object)).take(limit);
        let mut rows: Vec<_> = objects.map(|(id, object)| (id, self.row_of(object))).collect();
        rows.sort_unstable_by_key(|(object, _)| *object);
        rows
    }

    pub(super) fn check(&self) {
        self.nodes.check();
        let mut counts = Counts { events: self.events.len() as u64, ..Counts::default() };
        for (_, slot) in self.slots() {
            slot.check(&self.nodes, &mut counts);
        }
        assert_eq!(counts, self.counts, "tables invariant 1");
        assert!(self.events.len() <= limits::EVENTS_MAX, "tables invariant 2");
    }
}
