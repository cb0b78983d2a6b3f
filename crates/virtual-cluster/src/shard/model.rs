//! What a shard is to do, as plainly as it can be said: sets and searches, no sharing, no numbers for nodes.

use aktis_protocol::slots::SlotIndex;
use aktis_protocol::tables::{
    Answer, Batch, Change, Counts, Event, Key, ObjectRow, Query, Refusal, RefusalKind, Rejection, Sender,
    Table,
};
use aktis_protocol::{NodeId, ObjectId, TaskId};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// The state of a shard.
#[derive(Clone, Debug)]
pub(super) struct Model {
    slots: BTreeSet<SlotIndex>,
    rows: BTreeMap<(Table, Key), Vec<u8>>,
    objects: BTreeMap<ObjectId, Object>,
    tasks: BTreeMap<TaskId, (Option<NodeId>, u32, Vec<u8>)>,
    events: Vec<Event>,
    /// The last life of each node, and whether it is over.
    lives: BTreeMap<NodeId, (u64, bool)>,
    /// All batches that were made in those lives, and what was refused of them.
    made: BTreeMap<Sender, BTreeMap<u64, Vec<Refusal>>>,
}

#[derive(Clone, Debug, Default)]
struct Object {
    bytes: Option<u64>,
    copies: BTreeSet<NodeId>,
    holders: BTreeSet<NodeId>,
}

impl Model {
    pub(super) fn new(slots: &[SlotIndex]) -> Self {
        Self {
            slots: slots.iter().copied().collect(),
            rows: BTreeMap::new(),
            objects: BTreeMap::new(),
            tasks: BTreeMap::new(),
            events: Vec::new(),
            lives: BTreeMap::new(),
            made: BTreeMap::new(),
        }
    }

    /// Ends the life before a sender's, if it has begun another; whether that was so.
    pub(super) fn end_life_before(&mut self, sender: Sender) -> bool {
        let before = self.lives.get(&sender.node).filter(|(epoch, left)| sender.epoch > *epoch && !left);
        let before = before.map(|(epoch, _)| Sender { epoch: *epoch, ..sender });
        before.map(|before| self.forget(before)).is_some()
    }

    /// A batch comes: the answer, and whether it is made.
    pub(super) fn on_batch(&mut self, batch: &Batch) -> (Answer, bool) {
        let Sender { node, epoch } = batch.sender;
        if let Some(&(last, left)) = self.lives.get(&node)
            && (epoch < last || epoch == last && left)
        {
            return (Answer::Rejected(Rejection::Stale { epoch: last }), false);
        }
        self.lives.insert(node, (epoch, false));
        let made = self.made.entry(batch.sender).or_default();
        if made.last_key_value().is_some_and(|(last, _)| batch.sequence <= *last) {
            let refused = made.get(&batch.sequence).cloned().unwrap_or_default();
            return (Answer::Applied { refused }, false);
        }
        let mut refused = Vec::new();
        for (place, change) in batch.changes.iter().enumerate() {
            if let Err(why) = self.make(node, change) {
                refused.push(Refusal { change: place as u32, why });
            }
        }
        self.settle();
        self.made.entry(batch.sender).or_default().insert(batch.sequence, refused.clone());
        (Answer::Applied { refused }, true)
    }

    /// A node leaves: the answer, and whether anything follows from it.
    pub(super) fn on_left(&mut self, sender: Sender) -> (Answer, bool) {
        let applied = Answer::Applied { refused: vec![] };
        match self.lives.get(&sender.node) {
            Some(&(epoch, _)) if sender.epoch < epoch => {
                (Answer::Rejected(Rejection::Stale { epoch }), false)
            }
            Some(&(epoch, true)) if sender.epoch == epoch => (applied, false),
            _ => {
                self.forget(sender);
                (applied, true)
            }
        }
    }

    fn forget(&mut self, sender: Sender) {
        self.lives.insert(sender.node, (sender.epoch, true));
        for object in self.objects.values_mut() {
            object.copies.remove(&sender.node);
            object.holders.remove(&sender.node);
        }
        for (recorder, ..) in self.tasks.values_mut() {
            *recorder = recorder.filter(|recorder| *recorder != sender.node);
        }
        self.settle();
    }

    fn make(&mut self, node: NodeId, change: &Change) -> Result<(), RefusalKind> {
        if !self.slots.contains(&change.slot()) {
            return Err(RefusalKind::Elsewhere);
        }
        match change.clone() {
            Change::CopyMade { object, bytes } => {
                let known = self.objects.entry(object).or_default();
                known.bytes = known.bytes.or(Some(bytes));
                known.copies.insert(node);
            }
            Change::CopyDropped { object } => {
                self.objects.entry(object).or_default().copies.remove(&node);
            }
            Change::Held { object } => {
                self.objects.entry(object).or_default().holders.insert(node);
            }
            Change::Released { object } => {
                self.objects.entry(object).or_default().holders.remove(&node);
            }
            Change::RowPut { table, key, value, overwrite } => {
                if !overwrite && self.rows.contains_key(&(table, key.clone())) {
                    return Err(RefusalKind::Exists);
                }
                self.rows.insert((table, key), value);
            }
            Change::RowDeleted { table, key } => {
                self.rows.remove(&(table, key));
            }
            Change::TaskRecorded { task, returns, record } => {
                self.tasks.insert(task, (Some(node), returns, record));
            }
            Change::TaskForgotten { task } => {
                if let Some((recorder, ..)) = self.tasks.get_mut(&task) {
                    *recorder = recorder.filter(|recorder| *recorder != node);
                }
                self.settle_tasks();
            }
            Change::EventNoted(event) => self.events.push(event),
        }
        Ok(())
    }

    /// What nobody has or holds is forgotten, and lineage that nobody can ask for.
    fn settle(&mut self) {
        self.objects.retain(|_, object| !object.copies.is_empty() || !object.holders.is_empty());
        self.settle_tasks();
    }

    fn settle_tasks(&mut self) {
        let objects = &self.objects;
        self.tasks.retain(|task, (recorder, returns, _)| {
            recorder.is_some() || (0..*returns).any(|index| objects.contains_key(&task.returns(index)))
        });
    }

    /// An object as others see it.
    pub(super) fn row(&self, object: ObjectId) -> Option<ObjectRow> {
        let Object { bytes, copies, holders } = self.objects.get(&object)?;
        let list = |nodes: &BTreeSet<NodeId>| nodes.iter().copied().collect();
        Some(ObjectRow { bytes: *bytes, copies: list(copies), holders: list(holders) })
    }

    /// The answer to a question.
    pub(super) fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::Row { table, key } => Answer::Row(self.rows.get(&(*table, key.clone())).cloned()),
            Query::Rows { table, prefix, after, limit, .. } => {
                let wanted = |(of, key): &(Table, Key)| {
                    of == table
                        && key.0.starts_with(&prefix.0)
                        && after.as_ref().is_none_or(|after| key > after)
                };
                let all = self.rows.iter().filter(|(key, _)| wanted(key));
                let mut rows: Vec<_> = all.map(|((_, key), value)| (key.clone(), value.clone())).collect();
                let more = rows.len() > *limit as usize;
                rows.truncate(*limit as usize);
                Answer::Rows { rows, more }
            }
            Query::Object(object) => Answer::Object(self.row(*object)),
            Query::Objects { node, .. } => {
                let rows = self.objects.keys().filter_map(|object| Some((*object, self.row(*object)?)));
                let wanted = |row: &ObjectRow| {
                    node.is_none_or(|node| row.copies.contains(&node) || row.holders.contains(&node))
                };
                Answer::Objects(rows.filter(|(_, row)| wanted(row)).collect())
            }
            Query::Task(task) => Answer::Task(self.tasks.get(task).map(|(.., record)| record.clone())),
            Query::Events { limit } => {
                let skipped = self.events.len().saturating_sub(*limit as usize);
                Answer::Events(self.events[skipped..].to_vec())
            }
            Query::Counts => Answer::Counts(Counts {
                rows: self.rows.len() as u64,
                row_bytes: self.rows.iter().map(|((_, key), value)| key.0.len() + value.len()).sum::<usize>()
                    as u64,
                objects: self.objects.len() as u64,
                tasks: self.tasks.len() as u64,
                task_bytes: self.tasks.values().map(|(.., record)| record.len() as u64).sum(),
                events: self.events.len() as u64,
            }),
        }
    }
}
