//! Values that were lost, with the node that had them: made again by running their tasks again, when somebody wants them.
//!
//! Whoever finds that a value is gone waits for it as for one that is not there yet ([`Inner::renew`]). The node asks
//! the process that submitted its task ([`Inner::on_rebuild`]). Inputs that are gone as well are made again first.

use crate::entry::{Entry, Later, Outcome};
use crate::handle::Handle;
use crate::payload::Returns;
use crate::runtime::{IdMap, Inner};
use crate::shards::Shard;
use crate::submit::Shell;
use aktis_logic::machine::submitter::Repeat;
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::{Failure, FailureKind, ObjectId, TaskKey};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

/// A task to be run again, with what it needs.
struct Step {
    key: TaskKey,
    /// The values that it needs, and the tasks that make them, as far as these are on record here.
    inputs: Vec<(ObjectId, Option<TaskKey>)>,
}

impl Inner {
    /// The entry by which the lost value of this one is waited for.
    pub(crate) fn renew(self: &Arc<Self>, lost: &Arc<Entry>) -> Arc<Entry> {
        let origin = lost.origin();
        // What the node says comes to the entry that is listed.
        let mut known = self.known.lock();
        let listed = known.get(&lost.id).and_then(Weak::upgrade);
        if listed.is_none() {
            known.insert(lost.id, Arc::downgrade(&origin));
        }
        drop(known);
        let (renewal, is_new) = listed.as_ref().unwrap_or(&origin).renew(lost, self);
        if is_new {
            self.send_to_node(ToNode::Subscribed { object: lost.id });
        }
        renewal
    }

    /// Has all values made again that are lost, of those that somebody is about to read one after another.
    pub(crate) fn renew_lost(self: &Arc<Self>, handles: &[Handle]) {
        for handle in handles.iter().filter(|handle| self.is_gone(&handle.entry)) {
            self.renew(&handle.entry);
        }
    }

    /// Whether the value is in the store no more, as far as can be seen.
    fn is_gone(&self, entry: &Entry) -> bool {
        match entry.outcome() {
            Some(Outcome::Stored { place, .. }) => self.arena.size_of(place.get()).is_none(),
            _ => false,
        }
    }

    /// The node wants a lost value made again that a task of this process has made.
    pub(crate) fn on_rebuild(self: &Arc<Self>, object: ObjectId) {
        let entry = self.known.lock().get(&object).and_then(Weak::upgrade);
        let begun = match entry.as_ref().and_then(|entry| entry.key()) {
            Some(key) => self.run_again(key),
            None => Err(Failure::new(
                FailureKind::Lost,
                format!(
                    "the value of object {object} was lost with the node that had it, and cannot be made again: \
                     it is no result of a task, but was put, or came from an actor or a stream"
                ),
            )),
        };
        drop(entry);
        if let Err(failure) = begun {
            self.send_to_node(ToNode::Resolved { object, value: SharedValue::Failed(failure) });
        }
    }

    /// Runs a finished task again, and before it those that made what it needs, if that is gone.
    fn run_again(self: &Arc<Self>, key: TaskKey) -> Result<(), Failure> {
        let mut later = Later::default();
        let shard = self.submitter.of(key);
        let steps = self.steps_to(&shard.lock(), key, &mut later);
        later.run(self);
        let steps = steps?;
        // Values that others have made are asked for while no lock is held.
        let foreign = steps.iter().flat_map(|step| &step.inputs).filter(|(_, producer)| producer.is_none());
        let held: IdMap<ObjectId, Handle> =
            foreign.map(|&(object, _)| (object, self.ask_for(object))).collect();
        let mut shell = shard.lock();
        for step in &steps {
            self.repeat(shard, &mut shell, step, &held, &mut later);
        }
        shell.flush(self, &mut later);
        drop(shell);
        later.run(self);
        self.pump.want_now();
        Ok(())
    }

    /// A reference to a value that another process has made, which is about to be needed.
    fn ask_for(self: &Arc<Self>, object: ObjectId) -> Handle {
        let handle = self.hold_object(object);
        self.announce(&handle.entry);
        match self.is_gone(&handle.entry) {
            true => Handle { entry: self.renew(&handle.entry) },
            false => handle,
        }
    }

    /// The tasks that have to run again, those that make inputs before those that need them.
    fn steps_to(&self, shell: &Shell, key: TaskKey, later: &mut Later) -> Result<Vec<Step>, Failure> {
        let (mut steps, mut found, mut queue) = (Vec::new(), BTreeSet::from([key]), VecDeque::from([key]));
        while let Some(key) = queue.pop_front() {
            let Some(step) = step_of(shell, key)? else { continue };
            for &(object, producer) in &step.inputs {
                let Some(producer) = producer else { continue };
                if self.is_missing(shell, producer, object, later) && found.insert(producer) {
                    queue.push_back(producer);
                }
            }
            steps.push(step);
        }
        steps.reverse();
        Ok(steps)
    }

    /// Whether the value that a finished task made is not there any more.
    fn is_missing(&self, shell: &Shell, producer: TaskKey, object: ObjectId, later: &mut Later) -> bool {
        let payload = shell.machine.record(producer).and_then(|record| record.payload());
        let entry = payload.and_then(|payload| payload.returns.entry(object.index()));
        let missing = entry.as_ref().is_none_or(|entry| self.is_gone(entry));
        later.entries.extend(entry);
        missing
    }

    /// Queues a task again, once its inputs are there.
    fn repeat(
        self: &Arc<Self>,
        shard: &Shard,
        shell: &mut Shell,
        step: &Step,
        held: &IdMap<ObjectId, Handle>,
        later: &mut Later,
    ) {
        if shell.machine.repeat(step.key) != Repeat::Possible {
            return;
        }
        let mut handles = Vec::with_capacity(step.inputs.len());
        for (object, producer) in &step.inputs {
            handles.extend(match producer {
                Some(producer) => self.result_of(shell, *producer, *object),
                None => held.get(object).cloned(),
            });
        }
        if handles.len() < step.inputs.len() {
            return later.entries.extend(handles.into_iter().map(|handle| handle.entry));
        }
        let inputs = Self::inputs_of(shard.index, &handles);
        let failed = handles.iter().any(|handle| handle.entry.outcome().is_some_and(Outcome::is_failed));
        if let Some(payload) = shell.machine.payload_mut(step.key) {
            payload.arguments.hold_again(handles);
        }
        shell.step(self, later, |machine, out| {
            machine.on_values_lost(step.key, &inputs, out);
            if failed {
                machine.on_input_failed(step.key, out);
            }
        });
    }

    /// A reference to what a task of this process has made, or makes again, though nobody had one any more.
    fn result_of(self: &Arc<Self>, shell: &mut Shell, producer: TaskKey, object: ObjectId) -> Option<Handle> {
        let payload = shell.machine.payload_mut(producer)?;
        if let Some(entry) = payload.returns.entry(object.index()) {
            return Some(Handle { entry });
        }
        let entry = Arc::new(Entry::new(object, self.clone()));
        if !payload.returns.set_entry(object.index(), &entry) {
            return None;
        }
        entry.set_key(producer);
        shell.machine.on_handle_added(producer);
        Some(Handle { entry })
    }
}

/// What a task needs to run again; nothing if it is about to.
fn step_of(shell: &Shell, key: TaskKey) -> Result<Option<Step>, Failure> {
    let record = shell.machine.record(key);
    let refuse = |why: &str| {
        let text = format!("its value was lost with the node that had it, and {why}");
        let failure = Failure::new(FailureKind::NotRebuilt, text);
        let name = record.and_then(|record| record.payload()).map_or("", |payload| payload.name());
        Err(match record {
            Some(record) => failure.at(name, record.task()),
            None => failure,
        })
    };
    match shell.machine.repeat(key) {
        Repeat::Possible => {}
        Repeat::UnderWay => return Ok(None),
        Repeat::NoRetryLeft { runs } => {
            return refuse(&format!("no retry is left after {runs} runs of its task"));
        }
        Repeat::Forgotten => {
            return refuse("its task is not on record any more (see lineage_bytes_max)");
        }
    }
    let Some(payload) = record.and_then(|record| record.payload()) else { return Ok(None) };
    if let Returns::Stream(_) = payload.returns {
        return refuse("the items of a stream are not made again");
    }
    let producer_of = |object: &ObjectId| {
        let makes_it = |producer: &&TaskKey| {
            let record = shell.machine.record(**producer);
            record.is_some_and(|record| record.task() == object.task() && record.payload().is_some())
        };
        shell.machine.producers(key).iter().find(makes_it).copied()
    };
    let objects = payload.arguments.objects();
    let inputs = objects.iter().map(|object| (*object, producer_of(object))).collect();
    Ok(Some(Step { key, inputs }))
}
