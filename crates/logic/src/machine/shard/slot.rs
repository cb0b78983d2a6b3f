//! One slot: the rows, objects and tasks whose ids fall into it. It depends on nothing outside of it.
//!
//! 1. An object that is known has a copy or a holder.
//! 2. A task whose recorder has left makes at least one object that is known.

use super::nodes::{NodeIndex, NodeList, Nodes};
use aktis_protocol::records::{SavedObject, SavedTask, SlotPiece};
use aktis_protocol::tables::{Counts, Table};
use aktis_protocol::{NodeId, ObjectId, TaskId, limits};
use foldhash::fast::FixedState;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// A table by ids, in an order that is the same in every run.
type Map<K, V> = std::collections::HashMap<K, V, FixedState>;

/// The tables of one slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    rows: [BTreeMap<Vec<u8>, Vec<u8>>; Table::ALL.len()],
    objects: Map<ObjectId, Object>,
    tasks: Map<TaskId, Task>,
}

/// What is known of an object. There may be a hundred million of them.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// One more than its size, once that is known.
    size: Option<NonZeroU64>,
    pub(super) copies: NodeList,
    pub(super) holders: NodeList,
}

const _: () = assert!(size_of::<(ObjectId, Object)>() == 56);

/// How the objects of a task are made.
#[derive(Debug)]
pub(super) struct Task {
    recorder: Option<NodeIndex>,
    returns: u32,
    pub(super) record: Box<[u8]>,
}

/// What has become of an object after a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Somebody holds it, or it was not known in the first place.
    Stays,
    /// Nobody holds it, and there are copies.
    Unheld,
    /// It is forgotten.
    Gone,
}

impl Object {
    /// Its size, once there has been a copy.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.size.map(|size| size.get() - 1)
    }

    fn set_bytes(&mut self, bytes: u64) {
        self.size = self.size.or(NonZeroU64::new(bytes.saturating_add(1)));
    }
}

impl Slot {
    /// The value of a row.
    pub(super) fn row(&self, table: Table, key: &[u8]) -> Option<&Vec<u8>> {
        self.rows[table as usize].get(key)
    }

    /// The rows of a table.
    pub(super) fn rows(&self, table: Table) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.rows[table as usize]
    }

    /// Sets a row; gives the value that was there.
    pub(super) fn put_row(&mut self, table: Table, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let rows = &mut self.rows[table as usize];
        match rows.get_mut(key) {
            Some(old) => Some(std::mem::replace(old, value.to_vec())),
            None => rows.insert(key.to_vec(), value.to_vec()),
        }
    }

    /// Deletes a row; gives the value that was there.
    pub(super) fn delete_row(&mut self, table: Table, key: &[u8]) -> Option<Vec<u8>> {
        self.rows[table as usize].remove(key)
    }

    /// An object that is known.
    pub(super) fn object(&self, object: ObjectId) -> Option<&Object> {
        self.objects.get(&object)
    }

    /// All objects that are known.
    pub(super) fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.objects.iter().map(|(id, object)| (*id, object))
    }

    /// `node` has a copy; tells whether the object was not known before.
    #[inline]
    pub(super) fn make_copy(&mut self, object: ObjectId, node: NodeIndex, bytes: u64) -> bool {
        let before = self.objects.len();
        let known = self.objects.entry(object).or_default();
        known.set_bytes(bytes);
        known.copies.insert(node);
        self.objects.len() > before
    }

    /// `node` has no copy any more.
    #[inline]
    pub(super) fn drop_copy(&mut self, object: ObjectId, node: NodeIndex) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.copies.remove(node);
        }
    }

    /// `node` holds a reference; tells whether the object was not known before.
    #[inline]
    pub(super) fn hold(&mut self, object: ObjectId, node: NodeIndex) -> bool {
        let before = self.objects.len();
        self.objects.entry(object).or_default().holders.insert(node);
        self.objects.len() > before
    }

    /// `node` holds no reference any more.
    #[inline]
    pub(super) fn release(&mut self, object: ObjectId, node: NodeIndex) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.holders.remove(node);
        }
    }

    /// Looks what an object has come to, and forgets it if nobody has or holds it: its task too, if that is
    /// nobody's.
    pub(super) fn settle(&mut self, object: ObjectId, counts: &mut Counts) -> Fate {
        match self.objects.get(&object) {
            Some(known) if !known.holders.is_empty() => Fate::Stays,
            None => Fate::Stays,
            Some(known) if !known.copies.is_empty() => Fate::Unheld,
            Some(_) => {
                self.objects.remove(&object);
                counts.objects -= 1;
                self.settle_task(object.task(), counts);
                // Tables do not shrink by themselves, and most objects live shortly.
                if self.objects.capacity() > 64 && self.objects.len() < self.objects.capacity() / 8 {
                    self.objects.shrink_to(self.objects.len() * 2);
                }
                Fate::Gone
            }
        }
    }

    /// A task's record.
    pub(super) fn task(&self, task: TaskId) -> Option<&Task> {
        self.tasks.get(&task)
    }

    /// Records a task; the last record counts.
    pub(super) fn record_task(
        &mut self,
        task: TaskId,
        recorder: NodeIndex,
        (returns, record): (u32, &[u8]),
        counts: &mut Counts,
    ) {
        self.forget_task(task, counts);
        counts.tasks += 1;
        counts.task_bytes += record.len() as u64;
        self.tasks.insert(task, Task { recorder: Some(recorder), returns, record: record.into() });
    }

    /// `node` need not keep a task on record, if it is the one who does; others may hold what it makes.
    pub(super) fn give_up_task(&mut self, task: TaskId, node: NodeIndex, counts: &mut Counts) {
        if let Some(known) = self.tasks.get_mut(&task).filter(|known| known.recorder == Some(node)) {
            known.recorder = None;
            self.settle_task(task, counts);
        }
    }

    /// Forgets a task's record.
    fn forget_task(&mut self, task: TaskId, counts: &mut Counts) {
        if let Some(old) = self.tasks.remove(&task) {
            counts.tasks -= 1;
            counts.task_bytes -= old.record.len() as u64;
        }
    }

    /// `node` has left: it has and holds nothing, and remembers no task. Appends the objects that it had or held.
    pub(super) fn forget_node(&mut self, node: NodeIndex, touched: &mut Vec<ObjectId>, counts: &mut Counts) {
        for (id, object) in &mut self.objects {
            // Both, always: an `or` would leave the second alone.
            if object.copies.remove(node) | object.holders.remove(node) {
                touched.push(*id);
            }
        }
        let mut orphans = Vec::new();
        for (id, task) in &mut self.tasks {
            if task.recorder == Some(node) {
                task.recorder = None;
                orphans.push(*id);
            }
        }
        for task in orphans {
            self.settle_task(task, counts);
        }
    }

    /// Forgets the record of a task whose recorder has left, if none of its objects is known.
    fn settle_task(&mut self, task: TaskId, counts: &mut Counts) {
        let Some(Task { recorder: None, returns, .. }) = self.tasks.get(&task) else { return };
        let makes_known = |index| self.objects.contains_key(&task.returns(index));
        if !(0..*returns).any(makes_known) {
            self.forget_task(task, counts);
        }
    }

    /// The slot as it is saved.
    pub(super) fn save(&self, nodes: &Nodes) -> SlotPiece {
        let mut places = Places::default();
        let rows = Table::ALL.iter().flat_map(|table| {
            self.rows(*table).iter().map(|(key, value)| (*table, key.clone(), value.clone()))
        });
        let objects = self.objects.iter().map(|(object, known)| SavedObject {
            object: *object,
            bytes: known.bytes(),
            copies: known.copies.as_slice().iter().map(|node| places.of(*node)).collect(),
            holders: known.holders.as_slice().iter().map(|node| places.of(*node)).collect(),
        });
        let objects = objects.collect();
        let tasks = self.tasks.iter().map(|(task, known)| SavedTask {
            task: *task,
            recorder: known.recorder.map(|node| places.of(node)),
            returns: known.returns,
            record: known.record.to_vec(),
        });
        let (rows, tasks) = (rows.collect(), tasks.collect());
        let nodes: Vec<NodeId> = places.order.iter().map(|index| nodes.id(*index)).collect();
        SlotPiece { nodes, rows, objects, tasks }
    }

    /// The slot as it was saved; `nodes` are the numbers that its nodes have now.
    pub(super) fn load(piece: SlotPiece, nodes: &[NodeIndex], counts: &mut Counts) -> Option<Self> {
        let list = |places: &[u16]| -> Option<NodeList> {
            let mut list = NodeList::default();
            for place in places {
                list.insert(*nodes.get(usize::from(*place))?);
            }
            Some(list)
        };
        let mut slot = Self::default();
        slot.objects.reserve(piece.objects.len());
        for (table, key, value) in piece.rows {
            counts.rows += 1;
            counts.row_bytes += (key.len() + value.len()) as u64;
            slot.rows[table as usize].insert(key, value);
        }
        for saved in piece.objects {
            let mut object =
                Object { size: None, copies: list(&saved.copies)?, holders: list(&saved.holders)? };
            saved.bytes.into_iter().for_each(|bytes| object.set_bytes(bytes));
            slot.objects.insert(saved.object, object);
        }
        counts.objects += slot.objects.len() as u64;
        for saved in piece.tasks {
            let recorder = match saved.recorder {
                Some(place) => Some(*nodes.get(usize::from(place))?),
                None => None,
            };
            counts.tasks += 1;
            counts.task_bytes += saved.record.len() as u64;
            slot.tasks
                .insert(saved.task, Task { recorder, returns: saved.returns, record: saved.record.into() });
        }
        Some(slot)
    }

    /// Panics if an invariant is broken; adds what there is to `counts`.
    pub(super) fn check(&self, nodes: &Nodes, counts: &mut Counts) {
        for (key, value) in self.rows.iter().flatten() {
            counts.rows += 1;
            counts.row_bytes += (key.len() + value.len()) as u64;
        }
        for (id, object) in &self.objects {
            object.copies.check(nodes);
            object.holders.check(nodes);
            assert!(!object.copies.is_empty() || !object.holders.is_empty(), "slot invariant 1: {id}");
        }
        counts.objects += self.objects.len() as u64;
        for (id, task) in &self.tasks {
            counts.tasks += 1;
            counts.task_bytes += task.record.len() as u64;
            let known = (0..task.returns).any(|index| self.objects.contains_key(&id.returns(index)));
            assert!(task.recorder.is_some() || known, "slot invariant 2: {id}");
            assert!(task.recorder.is_none_or(|recorder| nodes.is_known(recorder)), "the recorder of {id}");
            assert!(task.returns <= limits::TASK_RETURNS_MAX);
        }
    }
}

/// Gives the nodes of a piece their numbers in it, in the order in which they are met.
#[derive(Default)]
struct Places {
    order: Vec<NodeIndex>,
    numbers: BTreeMap<NodeIndex, u16>,
}

impl Places {
    fn of(&mut self, node: NodeIndex) -> u16 {
        *self.numbers.entry(node).or_insert_with(|| {
            self.order.push(node);
            (self.order.len() - 1) as u16
        })
    }
}
