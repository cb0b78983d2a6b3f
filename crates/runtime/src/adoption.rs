//! Tasks that outlive the process which submitted them.
//!
//! When a result of a task leaves this process, the node is told how the task can be run again without it
//! ([`Inner::tell_lineage`]). A process that waits for a value which nobody has any more adopts the task of a dead one
//! ([`Inner::on_adopt`]): it runs it as its own, under the same id, so that all who hold its results get their values.

use crate::codec::{Arguments, ToldItem, inside, told_items};
use crate::entry::Entry;
use crate::handle::Handle;
use crate::payload::{Payload, Returns, Verb};
use crate::rebuild::no_retry_left;
use crate::registry::{self, FunctionBody};
use crate::runtime::Inner;
use crate::submit::Shell;
use aktis_logic::machine::submitter::Route;
use aktis_protocol::control::{SharedValue, ToNode, decode, encode};
use aktis_protocol::lineage::{Lineage, RecordedTask, TaskRecord};
use aktis_protocol::{Failure, FailureKind, NotRebuilt, ObjectId, ProgramId, TaskId, TaskKey, limits};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

/// What the fields of a [`TaskRecord`] take, its arguments aside: about so much.
const RECORD_HEAD_BYTES: usize = 128;

/// Most bytes of one message about tasks.
const MESSAGE_BYTES: usize = limits::CONTROL_MESSAGE_BYTES_MAX / 2;

/// Why a task of a dead process is not adopted.
struct Refusal {
    kind: NotRebuilt,
    why: String,
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self { kind: NotRebuilt::Other, why: why.into() }
    }
}

impl Inner {
    /// Whether others may want to run tasks of this process: not where the node ends with the driver.
    pub(crate) fn tells_lineage(&self) -> bool {
        self.program != ProgramId::default() && self.tuning.lineage_bytes_max > 0
    }

    /// Results of these tasks leave this process. The caller holds no lock.
    pub(crate) fn tell_lineage(self: &Arc<Self>, keys: &[TaskKey]) {
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        for &key in keys {
            let told = self.recorded(&self.submitter.of(key).lock(), key);
            let Some(task) = told else { continue };
            if bytes + task.lineage.len() > MESSAGE_BYTES && !tasks.is_empty() {
                self.outbox.push(ToNode::Recorded { tasks: std::mem::take(&mut tasks) });
                bytes = 0;
            }
            bytes += task.lineage.len() + RECORD_HEAD_BYTES;
            tasks.push(task);
        }
        if !tasks.is_empty() {
            self.outbox.push(ToNode::Recorded { tasks });
        }
        self.run_deferred();
        self.flush_outbox();
    }

    /// How a task can be run again by others, with those that have made what it needs; nothing if it cannot.
    fn recorded(&self, shell: &Shell, key: TaskKey) -> Option<RecordedTask> {
        let first = self.task_record(shell, key)?;
        if first.retries == 0 {
            return None;
        }
        let (task, returns, program) = (first.task, first.returns, first.program);
        let mut bytes = first.arguments.len() + RECORD_HEAD_BYTES;
        let mut lineage = Lineage { tasks: vec![first] };
        let (mut found, mut queue) = (BTreeSet::from([key]), VecDeque::from([key]));
        while let Some(key) = queue.pop_front() {
            for &producer in shell.machine.producers(key) {
                if !found.insert(producer) {
                    continue;
                }
                let Some(record) = self.task_record(shell, producer) else { continue };
                bytes += record.arguments.len() + RECORD_HEAD_BYTES;
                if bytes > limits::TOLD_LINEAGE_BYTES_MAX {
                    queue.clear();
                    break;
                }
                lineage.tasks.push(record);
                queue.push_back(producer);
            }
        }
        let lineage = encode(&lineage);
        let fits = lineage.len() <= limits::TOLD_LINEAGE_BYTES_MAX;
        fits.then_some(RecordedTask { task, returns, program, lineage })
    }

    fn task_record(&self, shell: &Shell, key: TaskKey) -> Option<TaskRecord> {
        let record = shell.machine.record(key)?;
        let payload = record.payload().filter(|payload| payload.verb == Verb::Task)?;
        if !matches!(payload.returns, Returns::One(_) | Returns::Several(_)) {
            return None;
        }
        Some(TaskRecord {
            task: record.task(),
            program: self.program,
            function: payload.function?.id,
            name: payload.name.as_deref().map(str::to_owned),
            shape: shell.definition_of(key)?,
            returns: record.returns(),
            retries: record.retries(),
            attempt: record.attempt(),
            arguments: payload.arguments.told(),
        })
    }

    /// The node has found nobody who has the value of this object, which this process waits for, and who could have it
    /// made again.
    pub(crate) fn on_adopt(self: &Arc<Self>, object: ObjectId, lineage: Vec<u8>) {
        let runtime = self.clone();
        // Lanes are asked for: not by the thread that takes the node's answers in.
        let run = move || {
            let adopted =
                decode(&lineage).map_err(|_| "what is known about its task could not be read".into());
            if let Err(refusal) = adopted.and_then(|lineage| runtime.adopt(object, lineage)) {
                runtime.refuse_adoption(object, &refusal);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("aktis-adopt".into()).spawn(run) {
            self.refuse_adoption(object, &format!("there is no thread for it: {error}").into());
        }
    }

    fn refuse_adoption(&self, object: ObjectId, refusal: &Refusal) {
        let Refusal { kind, why } = refusal;
        let text = format!("its value was lost, and so was the process that submitted its task; {why}");
        let failure = Failure::new(FailureKind::NotRebuilt(*kind), text);
        self.send_to_node(ToNode::Resolved { object, value: SharedValue::Failed(failure) });
    }

    /// Runs a task of a dead process as one of this process.
    fn adopt(self: &Arc<Self>, object: ObjectId, lineage: Lineage) -> Result<(), Refusal> {
        let Lineage { mut tasks } = lineage;
        let position = tasks.iter().position(|task| task.task == object.task());
        let forgotten = || Refusal { kind: NotRebuilt::NotOnRecord, why: "its task is not on record".into() };
        let mut task = tasks.remove(position.ok_or_else(forgotten)?);
        let runs = task.attempt + 1;
        if task.retries == 0 {
            return Err(Refusal { kind: NotRebuilt::NoRetryLeft, why: no_retry_left(runs) });
        }
        task.retries -= u32::from(task.retries != limits::FOR_EVER);
        task.attempt = runs;
        let function = registry::find(task.function)
            .filter(|function| matches!(function.body, FunctionBody::Task(_) | FunctionBody::Several(_)))
            .ok_or("this program does not know its function")?;
        let entries = self.adopted_entries(task.task, task.returns);
        if entries.iter().all(Option::is_none) {
            return Err("nobody waits for it any more".into());
        }
        // Before its inputs: for these, too, somebody may have to know.
        self.tell_adopted(task.clone(), &tasks);
        let arguments = self.adopted_arguments(&task, &tasks)?;
        let slots = entries.iter().map(|entry| entry.as_ref().map_or_else(Weak::new, Arc::downgrade));
        let returns = match function.body {
            FunctionBody::Several(_) => Returns::Several(slots.collect()),
            _ => Returns::One(slots.into_iter().next().ok_or("it has no result")?),
        };
        let payload = Payload {
            function: Some(function),
            arguments,
            returns,
            name: task.name.as_deref().map(Arc::from),
            verb: Verb::Task,
            group: 0,
            // Not on record: it tells run times apart, and nothing else.
            kind: 0,
            number: 0,
        };
        let shard = self.submitter.first();
        let lane = self.lane_of(shard, &Arc::new(task.shape)).map_err(|error| error.to_string())?;
        let (route, attempt) = (Route::Lane(lane), task.attempt);
        let flush = |shell: &mut Shell, later: &mut _| shell.flush_lane(self, lane, later);
        let key =
            self.record_in(shard, task.task, route, payload, task.returns, (task.retries, attempt), flush);
        for entry in &entries {
            match entry {
                Some(entry) => {
                    let before = entry.key();
                    entry.set_key(key);
                    before.into_iter().for_each(|before| self.on_handle_dropped(before));
                }
                // Nobody here refers to it.
                None => self.on_handle_dropped(key),
            }
        }
        self.pump.want_now();
        Ok(())
    }

    /// The results of a task that this process refers to. The node is told when they have values.
    fn adopted_entries(&self, task: TaskId, returns: u32) -> Vec<Option<Arc<Entry>>> {
        let known = self.known.lock();
        let entry = |index| known.get(&task.returns(index)).and_then(Weak::upgrade);
        let entries: Vec<_> = (0..returns).map(entry).collect();
        drop(known);
        for entry in entries.iter().flatten() {
            entry.escape_value();
        }
        entries
    }

    /// Whoever runs the task after this process has one retry less.
    fn tell_adopted(&self, task: TaskRecord, others: &[TaskRecord]) {
        let (id, returns, program) = (task.task, task.returns, task.program);
        let tasks = std::iter::once(task).chain(others.iter().cloned()).collect();
        let lineage = encode(&Lineage { tasks });
        self.send_to_node(ToNode::Recorded {
            tasks: vec![RecordedTask { task: id, returns, program, lineage }],
        });
    }

    /// The arguments of an adopted task, held by this process. What is gone of them is made again, if it can be.
    fn adopted_arguments(
        self: &Arc<Self>,
        task: &TaskRecord,
        others: &[TaskRecord],
    ) -> Result<Arguments, String> {
        let mut arguments = Arguments::new();
        for item in told_items(&task.arguments)? {
            match item {
                ToldItem::Value(bytes) => {
                    let inside = inside(bytes)?;
                    let handles = inside.objects.iter().map(|object| self.hold_told(*object, others));
                    let handles: Vec<Handle> = handles.collect();
                    let actors = inside.actors.iter().map(|actor| self.adopt_actor(*actor)).collect();
                    arguments.push_foreign(bytes, handles, actors);
                }
                ToldItem::Object(object) => {
                    let handle = self.hold_told(object, others);
                    arguments.push_handle(self.ask_for_held(handle));
                }
            }
        }
        Ok(arguments)
    }

    /// Holds an object, and says how it is made if it is one of these tasks that does.
    fn hold_told(self: &Arc<Self>, object: ObjectId, tasks: &[TaskRecord]) -> Handle {
        let handle = self.hold_object(object);
        if let Some(position) = tasks.iter().position(|task| task.task == object.task()) {
            let others = [&tasks[..position], &tasks[position + 1..]].concat();
            self.tell_adopted(tasks[position].clone(), &others);
        }
        handle
    }
}
