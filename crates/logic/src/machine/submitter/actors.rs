//! Actors as a caller sees them: where each is, and its calls in their order.

use super::{Out, Record, Stage, Submitter, SubmitterEffect};
use crate::planted::SubmitterBug;
use crate::slab::Slab;
use aktis_protocol::{DeathCause, Failure, FailureKind, ProcessSlot, TaskKey};
use std::collections::VecDeque;

/// An actor in its caller's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorIndex(pub u32);

/// Where an actor is, as its caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not known yet, being made, or being restarted: calls wait.
    Pending,
    /// In this process.
    Alive(ProcessSlot),
    /// Gone: calls fail.
    Dead(Box<Failure>),
}

/// Finished calls behind one that takes long are forgotten when this many were sent, or twice as many as are
/// unfinished: often enough to bound memory, seldom enough to cost nothing.
const FORGET_AT_MIN: u32 = 64;

pub(super) struct Actor {
    pub(super) place: Place,
    pub(super) queue: VecDeque<TaskKey>,
    pub(super) sent: VecDeque<TaskKey>,
    /// When this many are `sent`, those among them that are finished are forgotten.
    forget_at: u32,
    /// Nobody will call it again: its place is free as soon as its calls are finished.
    closing: bool,
    /// The actor knows which calls it has run: those without an answer are sent again, whatever their retries.
    remembers: bool,
}

impl Actor {
    fn new(place: Place) -> Self {
        let (queue, sent) = (VecDeque::new(), VecDeque::new());
        Self { place, queue, sent, forget_at: FORGET_AT_MIN, closing: false, remembers: false }
    }

    /// Forgets calls at the front of the sent ones that are finished.
    pub(super) fn forget_finished<P>(&mut self, tasks: &Slab<Record<P>>) {
        while let Some(&key) = self.sent.front() {
            if tasks.get(key).is_some_and(is_unfinished) {
                break;
            }
            self.sent.pop_front();
        }
    }
}

fn is_unfinished<P>(record: &Record<P>) -> bool {
    record.stage != Stage::Finished
}

/// With more actors than this, idle ones keep no memory for calls to come.
const MANY: usize = 256;

impl<P> Submitter<P> {
    /// Gives back the memory of an actor without calls, where there are many actors.
    fn slim(&mut self, index: ActorIndex) {
        if self.actors.len() > MANY {
            let actor = &mut self.actors[index.0 as usize];
            if actor.queue.is_empty() && actor.sent.is_empty() {
                (actor.queue, actor.sent) = Default::default();
            }
        }
    }

    /// Adds an actor.
    pub fn open_actor(&mut self, place: Place) -> ActorIndex {
        let actor = Box::new(Actor::new(place));
        match self.free_actors.pop() {
            Some(index) => {
                self.actors[index as usize] = actor;
                ActorIndex(index)
            }
            None => {
                self.actors.push(actor);
                ActorIndex(self.actors.len() as u32 - 1)
            }
        }
    }

    /// Nobody will call this actor again: it goes when its calls are finished.
    pub fn close_actor(&mut self, actor: ActorIndex, out: &mut Out<P>) {
        self.actors[actor.0 as usize].closing = true;
        self.free_if_closed(actor, out);
    }

    /// Somebody calls this actor again after all, before it went.
    pub fn reopen_actor(&mut self, actor: ActorIndex) {
        self.actors[actor.0 as usize].closing = false;
    }

    /// The actors that live in a process.
    pub fn actors_in(&self, process: ProcessSlot) -> Vec<ActorIndex> {
        let lives_there = |actor: &Actor| actor.place == Place::Alive(process);
        let indices = (0..self.actors.len() as u32).map(ActorIndex);
        indices.filter(|index| lives_there(&self.actors[index.0 as usize])).collect()
    }

    /// A call is finished: those behind it may be sendable now if it was waiting, and the actor may go.
    pub(super) fn on_call_finished(&mut self, index: ActorIndex, was_waiting: bool, out: &mut Out<P>) {
        let actor = &mut self.actors[index.0 as usize];
        actor.forget_finished(&self.tasks);
        if was_waiting && matches!(actor.place, Place::Alive(_)) {
            out.push(SubmitterEffect::Flush(index));
        }
        self.slim(index);
        self.free_if_closed(index, out);
    }

    fn free_if_closed(&mut self, index: ActorIndex, out: &mut Out<P>) {
        let actor = &mut self.actors[index.0 as usize];
        if !actor.closing {
            return;
        }
        actor.forget_finished(&self.tasks);
        actor.queue.retain(|key| self.tasks.get(*key).is_some_and(is_unfinished));
        if actor.queue.is_empty() && actor.sent.is_empty() {
            **actor = Actor::new(Place::Pending);
            self.free_actors.push(index.0);
            out.push(SubmitterEffect::Closed(index));
        }
    }

    /// Where an actor is.
    pub fn actor_place(&self, actor: ActorIndex) -> &Place {
        &self.actors[actor.0 as usize].place
    }

    /// The next call of an actor to be sent, and to which process, without taking it.
    pub fn next_call(&mut self, index: ActorIndex) -> Option<(TaskKey, ProcessSlot)> {
        let actor = &mut self.actors[index.0 as usize];
        let Place::Alive(process) = actor.place else { return None };
        while let Some(&key) = actor.queue.front() {
            match self.tasks.get(key).map(Record::stage) {
                Some(Stage::Queued) => return Some((key, process)),
                Some(Stage::Waiting | Stage::Resting) => return None,
                Some(Stage::Sent { .. } | Stage::Taken | Stage::Finished) | None => actor.queue.pop_front(),
            };
        }
        None
    }

    /// The next call of the actor was sent.
    pub fn on_call_sent(&mut self, index: ActorIndex, key: TaskKey) {
        let actor = &mut self.actors[index.0 as usize];
        let front = actor.queue.pop_front();
        debug_assert_eq!(front, Some(key));
        actor.sent.push_back(key);
        if actor.sent.len() >= actor.forget_at as usize {
            actor.sent.retain(|key| self.tasks.get(*key).is_some_and(is_unfinished));
            actor.forget_at = (2 * actor.sent.len() as u32).max(FORGET_AT_MIN);
        }
        if let Some(record) = self.tasks.get_mut(key) {
            record.stage = Stage::Sent { position: 0 };
        }
    }

    /// The actor is in this process now: calls go on.
    pub fn on_actor_alive(&mut self, index: ActorIndex, process: ProcessSlot, out: &mut Out<P>) {
        self.actors[index.0 as usize].place = Place::Alive(process);
        out.push(SubmitterEffect::Flush(index));
    }

    /// Whether the actor has checkpoints, and so knows which calls it has run.
    pub fn set_remembers(&mut self, index: ActorIndex, remembers: bool) {
        self.actors[index.0 as usize].remembers = remembers;
    }

    /// The actor's process died, and it is started again: calls that were with it are sent again in their
    /// order if they have retries left, else fail.
    pub fn on_actor_restarting(&mut self, index: ActorIndex, cause: &Failure, out: &mut Out<P>) {
        let actor = &mut self.actors[index.0 as usize];
        actor.place = Place::Pending;
        let (sent, remembers) = (std::mem::take(&mut actor.sent), actor.remembers);
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        for key in sent {
            let Some(record) = self.tasks.get_mut(key) else { continue };
            if !matches!(record.stage, Stage::Sent { .. }) {
                continue;
            }
            if record.try_again(remembers) { again.push(key) } else { lost.push(key) }
        }
        if self.planted.has(SubmitterBug::ReversedCalls) {
            again.reverse();
        }
        // First what stays: an actor that is being closed goes when no call of it is left.
        for key in again.into_iter().rev() {
            self.actors[index.0 as usize].queue.push_front(key);
        }
        for key in lost {
            self.fail(key, cause.clone(), out);
        }
    }

    /// A call is sent once more: before those that were not sent yet.
    pub(super) fn call_again(&mut self, index: ActorIndex, key: TaskKey, out: &mut Out<P>) {
        let actor = &mut self.actors[index.0 as usize];
        actor.sent.retain(|sent| *sent != key);
        actor.queue.push_front(key);
        out.push(SubmitterEffect::Flush(index));
    }

    /// The actor is gone for good: its calls fail.
    pub fn on_actor_dead(&mut self, index: ActorIndex, failure: &Failure, out: &mut Out<P>) {
        let actor = &mut self.actors[index.0 as usize];
        actor.place = Place::Dead(Box::new(failure.clone()));
        let calls = std::mem::take(&mut actor.sent).into_iter().chain(std::mem::take(&mut actor.queue));
        for key in calls.collect::<Vec<_>>() {
            self.fail(key, failure.clone(), out);
        }
    }

    /// The failure of calls whose actor died with its process. `restarts`, if it is over, is how often it has lived again.
    pub fn actor_failure(cause: &DeathCause, restarts: Option<u32>) -> Failure {
        Failure::new(FailureKind::ActorCrashed(restarts), format!("its actor died: {cause}"))
    }
}
