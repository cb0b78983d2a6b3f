//! Values that were lost, with the node that had them: made again by running their tasks again, when somebody wants them.
//!
//! Whoever finds that a value is gone waits for it as for one that is not there yet ([`Inner::renew`]). The node asks
//! the process that submitted its task ([`Inner::on_rebuild`]). Inputs that are gone as well are made again first, and so
//! are objects that arguments refer to.

use crate::entry::{Entry, Later, Outcome};
use crate::handle::{ActorHandle, Handle};
use crate::runtime::{IdMap, Inner};
use crate::shards::Shard;
use crate::submit::{Reopen, Shell};
use aktis_logic::machine::submitter::{Input, LaneIndex, Repeat, Route};
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::{ActorId, Failure, FailureKind, NotRebuilt, ObjectId, Shape, ShardIndex, TaskKey};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// What is kept for values that may have to be made again.
#[derive(Default)]
pub(crate) struct Rebuilds {
    /// Those that are made again when there is a lane for their tasks.
    waiting: Mutex<Vec<(ShardIndex, Arc<Shape>, ObjectId)>>,
    /// Those that nobody here refers to, but others may, and the tasks that make them.
    left: Mutex<IdMap<ObjectId, TaskKey>>,
}

/// An object that a task needs, and the task that makes it, as far as that is on record here.
#[derive(Clone, Copy)]
struct Needed {
    object: ObjectId,
    producer: Option<TaskKey>,
}

/// What a task needs to run again.
struct Needs {
    /// The values that are its arguments.
    arguments: Vec<Needed>,
    /// Objects and actors to which its arguments refer.
    inside: Vec<Needed>,
    actors: Vec<ActorId>,
}

impl Needs {
    fn all(&self) -> impl Iterator<Item = &Needed> {
        self.arguments.iter().chain(&self.inside)
    }
}

/// A task to be run again.
struct Step {
    key: TaskKey,
    lane: LaneIndex,
    needs: Needs,
}

/// Why a task is not run again at once.
enum Obstacle {
    /// It never will be.
    Refused(Failure),
    /// The lane that it went through was given up: there has to be another for its shape.
    Lane(Arc<Shape>),
}

/// What is held for those that run again, and is not made by them.
#[derive(Default)]
struct Held {
    objects: IdMap<ObjectId, Handle>,
    actors: IdMap<ActorId, ActorHandle>,
}

impl Held {
    fn lacks(&self, steps: &[Step]) -> (Vec<ObjectId>, Vec<ActorId>) {
        let needs = || steps.iter().map(|step| &step.needs);
        let foreign = needs().flat_map(Needs::all).filter(|needed| needed.producer.is_none());
        let objects = foreign.map(|needed| needed.object);
        let actors = needs().flat_map(|needs| needs.actors.iter().copied());
        (
            objects.filter(|object| !self.objects.contains_key(object)).collect(),
            actors.filter(|actor| !self.actors.contains_key(actor)).collect(),
        )
    }
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
    pub(crate) fn is_gone(&self, entry: &Entry) -> bool {
        match entry.outcome() {
            Some(Outcome::Stored { place, .. }) => self.arena.size_of(place.get()).is_none(),
            _ => false,
        }
    }

    /// How many bytes a value takes in the store, if it is there.
    pub(crate) fn stored_bytes(&self, entry: &Entry) -> Option<u64> {
        match entry.outcome() {
            Some(Outcome::Stored { place, .. }) => self.arena.size_of(place.get()),
            _ => None,
        }
    }

    /// Whether another node alone has the value.
    pub(crate) fn is_value_elsewhere(&self, entry: &Entry) -> bool {
        match entry.outcome() {
            Some(Outcome::Stored { place, .. }) => self.arena.elsewhere(place.get()).is_some(),
            _ => false,
        }
    }

    /// The node wants a lost value made again that a task of this process has made.
    pub(crate) fn on_rebuild(self: &Arc<Self>, object: ObjectId) {
        let begun = match self.maker_of(object) {
            Some(key) => self.run_again(key, object),
            // Others may know more: this does not say that it cannot be made again.
            None => Err(Obstacle::Refused(Failure::new(
                FailureKind::Lost,
                format!(
                    "the value of object {object} was lost with the node that had it, and cannot be made again: it was \
                     put, or its task is not on record"
                ),
            ))),
        };
        match begun {
            Ok(()) => {}
            Err(Obstacle::Refused(failure)) => {
                // A task that could not be run again is not on record after that: the first failure says why.
                let is_forgotten = failure.kind == FailureKind::NotRebuilt(NotRebuilt::NotOnRecord);
                let first = self.failures.last_of(object).filter(|_| is_forgotten);
                self.give_up_rebuild(object, first.map_or(failure, |first| (*first).clone()));
            }
            Err(Obstacle::Lane(shape)) => {
                let shard = self.maker_of(object).map_or(ShardIndex::default(), TaskKey::shard);
                self.rebuilds.waiting.lock().push((shard, shape.clone(), object));
                self.foresee_lane(shard, shape);
                self.flush_outbox();
            }
        }
    }

    fn give_up_rebuild(&self, object: ObjectId, failure: Failure) {
        self.send_to_node(ToNode::Resolved { object, value: SharedValue::Failed(failure) });
    }

    /// There is a lane for a shape, or there will be none: what waits for it is made again, or is not.
    pub(crate) fn on_lane_for_rebuilds(
        self: &Arc<Self>,
        shard: ShardIndex,
        shape: &Arc<Shape>,
        problem: Option<&Failure>,
    ) {
        let mut rebuilds = self.rebuilds.waiting.lock();
        let waiting: Vec<_> =
            rebuilds.extract_if(.., |(of, wanted, _)| *of == shard && wanted == shape).collect();
        drop(rebuilds);
        for (_, _, object) in waiting {
            match problem {
                None => self.on_rebuild(object),
                Some(problem) => {
                    self.give_up_rebuild(object, not_rebuilt(NotRebuilt::Other, &problem.message));
                }
            }
        }
    }

    /// The last reference to an object goes that a task of this process has made, and that others may refer to: the task
    /// stays on record while they do.
    pub(crate) fn leave_object(self: &Arc<Self>, object: ObjectId, key: TaskKey, entry: &Entry) {
        let mut known = self.known.lock();
        let listed = known.get(&object);
        if listed.is_some_and(|other| !std::ptr::eq(other.as_ptr(), entry)) {
            // A newer entry holds it on.
            drop(known);
            return self.on_handle_dropped(key);
        }
        known.remove(&object);
        let before = self.rebuilds.left.lock().insert(object, key);
        self.outbox.push(ToNode::LeftToOthers { object });
        drop(known);
        self.flush_outbox();
        if let Some(key) = before {
            self.on_handle_dropped(key);
        }
    }

    /// Nobody can ask any more for an object that was left to others.
    pub(crate) fn on_left_object_freed(self: &Arc<Self>, object: ObjectId) {
        let key = self.rebuilds.left.lock().remove(&object);
        if let Some(key) = key {
            self.on_handle_dropped(key);
        }
    }

    /// The task of this process that makes an object, if it is on record.
    fn maker_of(self: &Arc<Self>, object: ObjectId) -> Option<TaskKey> {
        let entry = self.known.lock().get(&object).and_then(Weak::upgrade);
        if let Some(key) = entry.as_ref().and_then(|entry| entry.record_key()) {
            return Some(key);
        }
        if let Some(key) = self.rebuilds.left.lock().get(&object) {
            return Some(*key);
        }
        // The reference here came from elsewhere, but other references, or tasks, may have kept the task on record.
        let found = self.submitter.all().iter().find_map(|shard| {
            let shell = shard.lock();
            let made_it = |key: &TaskKey| {
                shell.machine.record(*key).is_some_and(|record| record.task() == object.task())
            };
            shell.machine.records().map(|(key, _)| key).find(made_it)
        });
        self.run_deferred();
        found
    }

    /// Runs a finished task again, for this value of it, and before it those that made what it needs, if that is gone.
    fn run_again(self: &Arc<Self>, key: TaskKey, object: ObjectId) -> Result<(), Obstacle> {
        let shard = self.submitter.of(key);
        let (mut later, mut held) = (Later::default(), Held::default());
        loop {
            let mut shell = shard.lock();
            if let Some(value) = self.value_by_now(&shell, key, object, &mut later) {
                drop(shell);
                later.messages.push(ToNode::Resolved { object, value });
                later.run(self);
                return Ok(());
            }
            let steps = self.steps_to(&shell, key, &mut later);
            let (objects, actors) =
                steps.as_deref().map_or_else(|_| Default::default(), |steps| held.lacks(steps));
            match steps {
                Ok(steps) if objects.is_empty() && actors.is_empty() => {
                    let wanted = self.result_of(&mut shell, key, object).entry;
                    // It is to be told, whoever lets go of it meanwhile.
                    later.entries.extend(wanted.outcome().is_some().then(|| wanted.renew(&wanted, self).0));
                    self.promise_again(&wanted, &mut later);
                    later.entries.push(wanted);
                    for step in steps {
                        self.repeat(shard, &mut shell, step, &held, &mut later);
                    }
                    shell.flush(self, &mut later);
                    drop(shell);
                    later.run(self);
                    self.pump.want_now();
                    return Ok(());
                }
                Ok(_) => {}
                Err(obstacle) => {
                    drop(shell);
                    later.run(self);
                    return Err(obstacle);
                }
            }
            drop(shell);
            later.run(self);
            // What others have made is asked for while no lock is held; then all is looked at again.
            held.objects.extend(objects.into_iter().map(|object| (object, self.ask_for(object))));
            held.actors.extend(actors.into_iter().map(|actor| (actor, self.adopt_actor(actor))));
        }
    }

    /// A reference to a value that another process has made, which is about to be needed.
    fn ask_for(self: &Arc<Self>, object: ObjectId) -> Handle {
        self.ask_for_held(self.hold_object(object))
    }

    /// A reference by which the value is waited for, which is about to be needed.
    pub(crate) fn ask_for_held(self: &Arc<Self>, handle: Handle) -> Handle {
        self.announce(&handle.entry);
        match self.is_gone(&handle.entry) {
            true => Handle { entry: self.renew(&handle.entry) },
            false => handle,
        }
    }

    /// The tasks that have to run again, those that make inputs before those that need them.
    fn steps_to(&self, shell: &Shell, key: TaskKey, later: &mut Later) -> Result<Vec<Step>, Obstacle> {
        let lost_inputs = |key: TaskKey| {
            let needs = needs_of(shell, key);
            let producer = |needed: &Needed| {
                needed.producer.filter(|producer| self.is_missing(shell, *producer, needed.object, later))
            };
            needs.all().filter_map(producer).collect()
        };
        let steps = shell.machine.steps_to(key, lost_inputs);
        let steps = steps.map_err(|(key, why)| Obstacle::Refused(refusal(shell, key, why)))?;
        steps.into_iter().map(|key| step_of(shell, key)).collect()
    }

    /// The value of an object, if its task has run again since the node found that it was lost: the node frees the entry of
    /// a lost copy before it asks.
    fn value_by_now(
        &self,
        shell: &Shell,
        key: TaskKey,
        object: ObjectId,
        later: &mut Later,
    ) -> Option<SharedValue> {
        let entry = self.find_result(shell, key, object)?;
        let outcome = entry.outcome().filter(|outcome| matches!(outcome, Outcome::Stored { .. }));
        let value = outcome.filter(|_| !self.is_gone(&entry)).map(Outcome::to_shared);
        later.entries.push(entry);
        value
    }

    /// Whether the value that a task made is not there any more.
    fn is_missing(&self, shell: &Shell, producer: TaskKey, object: ObjectId, later: &mut Later) -> bool {
        let entry = self.find_result(shell, producer, object);
        let missing = entry.as_ref().is_none_or(|entry| self.is_gone(entry));
        later.entries.extend(entry);
        missing
    }

    /// What a task of this process has made or makes, if something refers to it.
    fn find_result(&self, shell: &Shell, producer: TaskKey, object: ObjectId) -> Option<Arc<Entry>> {
        let payload = shell.machine.record(producer).and_then(|record| record.payload());
        let entry = payload.and_then(|payload| payload.returns.entry(object.index()));
        entry.or_else(|| self.known.lock().get(&object).and_then(Weak::upgrade))
    }

    /// Queues a task again, once its inputs are there.
    fn repeat(
        self: &Arc<Self>,
        shard: &Shard,
        shell: &mut Shell,
        step: Step,
        held: &Held,
        later: &mut Later,
    ) {
        let Step { key, lane, needs } = step;
        let mut find = |needed: &Needed| match needed.producer {
            Some(producer) => self.result_of(shell, producer, needed.object),
            None => held.objects[&needed.object].clone(),
        };
        let arguments: Vec<Handle> = needs.arguments.iter().map(&mut find).collect();
        let inside: Vec<Handle> = needs.inside.iter().map(&mut find).collect();
        let actors = needs.actors.iter().map(|actor| held.actors[actor].clone()).collect();
        let own = needs.inside.iter().zip(&inside).filter(|(needed, _)| needed.producer.is_some());
        own.for_each(|(_, handle)| self.promise_again(&handle.entry, later));
        let mut inputs = Self::inputs_of(shard.index, &arguments);
        inputs.extend(needs.inside.iter().filter_map(|needed| needed.producer).map(Input::Inside));
        let failed = arguments.iter().any(|handle| handle.entry.outcome().is_some_and(Outcome::is_failed));
        if let Some(payload) = shell.machine.payload_mut(key) {
            payload.arguments.hold_again(arguments, inside, actors);
        }
        shell.step(self, later, |machine, out| {
            machine.on_values_lost(key, lane, &inputs, out);
            if failed {
                machine.on_input_failed(key, out);
            }
        });
    }

    /// A reference to what a task of this process has made, or makes again, though nobody had one any more.
    fn result_of(self: &Arc<Self>, shell: &mut Shell, producer: TaskKey, object: ObjectId) -> Handle {
        let found = self.find_result(shell, producer, object);
        let entry = found.unwrap_or_else(|| Arc::new(Entry::new(object, self.clone())));
        if let Some(stream) = shell.stream_again(self, producer) {
            if entry.outcome().is_none() || self.is_gone(&entry) {
                stream.await_again(object.index());
            }
            if entry.record_key().is_none() {
                entry.set_stream_key(producer);
                shell.machine.on_handle_added(producer);
            }
            return Handle { entry };
        }
        // One that came from elsewhere becomes the one that the task's answer goes to.
        if entry.key().is_none()
            && let Some(payload) = shell.machine.payload_mut(producer)
            && payload.returns.set_entry(object.index(), &entry)
        {
            entry.set_key(producer);
            shell.machine.on_handle_added(producer);
        }
        Handle { entry }
    }

    /// Others may ask for an object that a task of this process has made, or makes again: the node is told its value, also
    /// if nobody here refers to it any more by then.
    fn promise_again(self: &Arc<Self>, entry: &Arc<Entry>, later: &mut Later) {
        let is_gone = self.is_gone(entry);
        if is_gone {
            let (renewal, _) = entry.renew(entry, self);
            later.entries.push(renewal);
        }
        // The place of a value that is gone is of no use to others: they are told the next one.
        let value = entry.escape_value().filter(|_| !is_gone);
        if !entry.set_escaped() {
            return;
        }
        let mut known = self.known.lock();
        let listed = known.get(&entry.id).and_then(Weak::upgrade);
        if listed.is_none() {
            known.insert(entry.id, Arc::downgrade(entry));
        }
        drop(known);
        later.entries.extend(listed);
        entry.set_known();
        later.messages.push(ToNode::Escaped { object: entry.id, value });
    }
}

/// What a task needs to run again.
fn needs_of(shell: &Shell, key: TaskKey) -> Needs {
    let Some(payload) = shell.machine.record(key).and_then(|record| record.payload()) else {
        return Needs { arguments: Vec::new(), inside: Vec::new(), actors: Vec::new() };
    };
    let needed = |object: ObjectId| {
        let makes_it = |producer: &&TaskKey| {
            shell.machine.record(**producer).is_some_and(|record| record.task() == object.task())
        };
        Needed { object, producer: shell.machine.producers(key).iter().find(makes_it).copied() }
    };
    let inside = payload.arguments.inside();
    Needs {
        arguments: payload.arguments.objects().into_iter().map(needed).collect(),
        inside: inside.objects.into_iter().map(needed).collect(),
        actors: inside.actors,
    }
}

/// How a task is run again that can be.
fn step_of(shell: &Shell, key: TaskKey) -> Result<Step, Obstacle> {
    let refuse = |why: &str| Err(Obstacle::Refused(refused(shell, key, NotRebuilt::Other, why)));
    let record = shell.machine.record(key);
    let (Some(Route::Lane(lane)), Some(payload)) =
        (record.map(|record| record.route()), record.and_then(|record| record.payload()))
    else {
        return Err(Obstacle::Refused(refusal(shell, key, Repeat::Forgotten)));
    };
    if payload.arguments.lacks_value() {
        return refuse(
            "its task got a large argument by value, which was too large to be kept, or gave way to later ones\n\
             hint: put such a value, pass the reference, and keep that",
        );
    }
    let lane = match shell.reopen(lane) {
        Reopen::Open(lane) => lane,
        Reopen::Wanted(shape) => return Err(Obstacle::Lane(shape)),
        Reopen::Gone => return refuse("the placement group that its task ran in was removed"),
    };
    Ok(Step { key, lane, needs: needs_of(shell, key) })
}

fn refusal(shell: &Shell, key: TaskKey, why: Repeat) -> Failure {
    match why {
        Repeat::NoRetryLeft { runs } => refused(shell, key, NotRebuilt::NoRetryLeft, &no_retry_left(runs)),
        Repeat::Call => refused(shell, key, NotRebuilt::Other, "calls of actors are not made again"),
        Repeat::Possible | Repeat::UnderWay | Repeat::Forgotten => {
            let why = "its task is not on record any more: records of finished tasks are bounded, or turned off\n\
                       hint: keep fewer references to results of old tasks";
            refused(shell, key, NotRebuilt::NotOnRecord, why)
        }
    }
}

/// What is said of a task that has run as often as it may.
pub(crate) fn no_retry_left(runs: u32) -> String {
    let plural = if runs == 1 { "" } else { "s" };
    format!("no retry is left after {runs} run{plural} of its task")
}

fn not_rebuilt(kind: NotRebuilt, why: &str) -> Failure {
    let text = format!("its value was lost with the node that had it, and {why}");
    Failure::new(FailureKind::NotRebuilt(kind), text)
}

fn refused(shell: &Shell, key: TaskKey, kind: NotRebuilt, why: &str) -> Failure {
    let failure = not_rebuilt(kind, why);
    match shell.machine.record(key) {
        Some(record) => failure.at(record.payload().map_or("", |payload| payload.name()), record.task()),
        None => failure,
    }
}
