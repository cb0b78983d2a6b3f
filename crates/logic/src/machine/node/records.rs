//! How tasks can be run again, though the process or the node that submitted them is dead.
//!
//! A process tells its node of each task whose results others may ask for. The node tells the cluster of those whose
//! results other nodes know. A node that still knows an object which was named to it by a node that died claims it: the
//! cluster keeps what it knows of the dead one's tasks for such objects only.
//!
//! The cluster also knows where the copies are of objects that several nodes know: when the last of them is gone, there is
//! nothing left to wait for.
//!
//! Invariants:
//! 1. A task is on record while one of its results is known.
//! 2. The records take as many bytes as is counted, and not more than the limit.
//! 3. What is claimed is known, and of what is told to be here there is a copy.

use super::copies::Copies;
use super::{Node, NodeEffect};
use crate::Effects;
use crate::directory::Directory;
use aktis_protocol::control::encode;
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::tables::Change;
use aktis_protocol::{ObjectId, ProcessSlot, TaskId, limits};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Record {
    task: RecordedTask,
    /// Its place in the order of their coming.
    age: u64,
    /// Whether the cluster was told.
    told: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Records {
    tasks: BTreeMap<TaskId, Record>,
    /// The oldest first.
    ages: BTreeMap<u64, TaskId>,
    last_age: u64,
    bytes: usize,
    /// What the cluster was told of objects.
    objects: BTreeMap<ObjectId, Told>,
}

/// What the cluster was told of an object. While it is one of these, the node holds it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Who had named it is dead, and it is known here.
    claimed: bool,
    /// There is a copy here.
    located: bool,
}

impl Records {
    /// How the task that makes an object can be run again, if that is on record.
    pub(super) fn of(&self, object: ObjectId) -> Option<&RecordedTask> {
        self.tasks.get(&object.task()).map(|record| &record.task)
    }

    fn remove(&mut self, task: TaskId) -> Option<Record> {
        let record = self.tasks.remove(&task)?;
        self.ages.remove(&record.age);
        self.bytes -= record.task.lineage.len();
        Some(record)
    }

    /// Keeps a task on record, and lets the oldest go beyond the limit; gives those of them that the cluster was told of.
    fn add(&mut self, task: RecordedTask) -> Vec<TaskId> {
        let told = self.remove(task.task).is_some_and(|before| before.told);
        self.last_age += 1;
        self.bytes += task.lineage.len();
        self.ages.insert(self.last_age, task.task);
        self.tasks.insert(task.task, Record { task, age: self.last_age, told });
        let mut gone = Vec::new();
        while self.bytes > limits::NODE_LINEAGE_BYTES_MAX
            && let Some((_, oldest)) = self.ages.pop_first()
        {
            gone.extend(self.remove(oldest).filter(|record| record.told).map(|record| record.task.task));
        }
        gone
    }

    fn check(&self, directory: &Directory, copies: &Copies) {
        for (task, record) in &self.tasks {
            assert!(makes_known(directory, &record.task), "records invariant 1: {task}");
            assert_eq!(self.ages.get(&record.age), Some(task));
        }
        assert_eq!(self.tasks.len(), self.ages.len());
        let bytes: usize = self.tasks.values().map(|record| record.task.lineage.len()).sum();
        assert!(bytes == self.bytes && bytes <= limits::NODE_LINEAGE_BYTES_MAX, "records invariant 2");
        for (object, told) in &self.objects {
            assert_ne!(*told, Told::default(), "{object}");
            assert!(!told.claimed || directory.knows(*object), "records invariant 3: {object}");
            assert!(!told.located || copies.bytes_here(*object).is_some(), "records invariant 3: {object}");
        }
    }
}

/// Whether one of the results of a task is known.
fn makes_known(directory: &Directory, task: &RecordedTask) -> bool {
    (0..task.returns).any(|index| directory.knows(task.task.returns(index)))
}

/// What the cluster is told to keep of a task.
fn recorded(task: &RecordedTask) -> Change {
    Change::TaskRecorded { task: task.task, returns: task.returns, record: encode(task) }
}

impl Node {
    pub(super) fn on_recorded(&mut self, tasks: Vec<RecordedTask>, out: &mut Effects<NodeEffect>) {
        tasks.into_iter().for_each(|task| self.keep_record(task, out));
    }

    /// Keeps a task on record, if one of its results is known.
    pub(super) fn keep_record(&mut self, task: RecordedTask, out: &mut Effects<NodeEffect>) {
        let fits =
            task.lineage.len() <= limits::TOLD_LINEAGE_BYTES_MAX && task.returns <= limits::TASK_RETURNS_MAX;
        if !fits || !self.places.is_clustered() || !makes_known(&self.directory, &task) {
            return;
        }
        let id = task.task;
        let returns = (0..task.returns).map(|index| id.returns(index));
        let is_abroad =
            returns.flat_map(|object| self.directory.holders(object)).any(|holder| self.is_peer(holder));
        for gone in self.records.add(task) {
            out.push(NodeEffect::ChangeTables { change: Change::TaskForgotten { task: gone } });
        }
        // One that the cluster knows is told anew: it may be run once less.
        if let Some(record) = self.records.tasks.get_mut(&id).filter(|record| record.told || is_abroad) {
            record.told = true;
            out.push(NodeEffect::ChangeTables { change: recorded(&record.task) });
        }
    }

    /// Another node knows the object from now on.
    pub(super) fn note_abroad(
        &mut self,
        object: ObjectId,
        holder: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.is_peer(holder) {
            return;
        }
        if let Some(record) = self.records.tasks.get_mut(&object.task()).filter(|record| !record.told) {
            record.told = true;
            out.push(NodeEffect::ChangeTables { change: recorded(&record.task) });
        }
        self.tell_location(object, out);
    }

    /// The cluster is told of copies that this node has got or lost.
    pub(super) fn tell_locations(&mut self, out: &mut Effects<NodeEffect>) {
        for object in self.memory.copies.take_changed() {
            self.tell_location(object, out);
        }
    }

    /// Where a copy is matters to the cluster once another node knows the object.
    fn tell_location(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let told = self.records.objects.get(&object).copied().unwrap_or_default();
        let bytes = self.memory.copies.bytes_here(object);
        if bytes.is_none() {
            return self.tell_object(object, Told { located: false, ..told }, 0, out);
        }
        let is_abroad = || {
            self.peers.namer(object).is_some()
                || self.directory.holders(object).any(|holder| self.is_peer(holder))
        };
        if let Some(bytes) = bytes.filter(|_| !told.located && self.places.is_clustered() && is_abroad()) {
            self.tell_object(object, Told { located: true, ..told }, bytes, out);
        }
    }

    fn tell_object(&mut self, object: ObjectId, told: Told, bytes: u64, out: &mut Effects<NodeEffect>) {
        let before = match told == Told::default() {
            true => self.records.objects.remove(&object),
            false => self.records.objects.insert(object, told),
        };
        let before = before.unwrap_or_default();
        let (was_held, is_held) = (before != Told::default(), told != Told::default());
        // It is held before it is here, and until it is not: what nobody holds is not kept.
        let changes = [
            (!was_held && is_held).then_some(Change::Held { object }),
            (!before.located && told.located).then_some(Change::CopyMade { object, bytes }),
            (before.located && !told.located).then_some(Change::CopyDropped { object }),
            (was_held && !is_held).then_some(Change::Released { object }),
        ];
        out.extend(changes.into_iter().flatten().map(|change| NodeEffect::ChangeTables { change }));
    }

    /// The object is not known here any more.
    pub(super) fn forget_record(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        if let Some(&told) = self.records.objects.get(&object) {
            self.tell_object(object, Told { claimed: false, ..told }, 0, out);
        }
        let unused = |record: &Record| !makes_known(&self.directory, &record.task);
        if self.records.tasks.get(&object.task()).is_some_and(unused)
            && self.records.remove(object.task()).is_some_and(|record| record.told)
        {
            out.push(NodeEffect::ChangeTables { change: Change::TaskForgotten { task: object.task() } });
        }
    }

    /// The node that had named this object to this one is dead, and somebody here still knows it.
    pub(super) fn claim(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        if self.places.is_clustered() {
            let told = self.records.objects.get(&object).copied().unwrap_or_default();
            self.tell_object(object, Told { claimed: true, ..told }, 0, out);
        }
    }

    /// The cluster has given this node up meanwhile, and forgotten what it had told it.
    pub(super) fn on_membership_lost(&mut self, out: &mut Effects<NodeEffect>) {
        let told =
            self.records.tasks.values().filter(|record| record.told).map(|record| recorded(&record.task));
        let held = self.records.objects.keys().map(|&object| Change::Held { object });
        let located = self.records.objects.iter().filter(|(_, told)| told.located);
        let located = located.filter_map(|(&object, _)| {
            Some(Change::CopyMade { object, bytes: self.memory.copies.bytes_here(object)? })
        });
        out.extend(told.chain(held).chain(located).map(|change| NodeEffect::ChangeTables { change }));
    }

    pub(super) fn check_records(&self) {
        self.records.check(&self.directory, &self.memory.copies);
    }
}
