//! Objects that several processes know: sealed, escaped, held, contained, awaited, released.

use super::{Node, NodeEffect};
use crate::directory::{Freed, Value};
use crate::planted::NodeBug;
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, ObjectCancel, SharedValue};
use aktis_protocol::{ActorId, DeathCause, EntryRef, Failure, FailureKind, ObjectId, ProcessSlot};

/// How long an object that somebody asks for, and that nobody alive has promised, stays pending: a task
/// that runs again may promise it again.
const ORPHAN_MICROSECONDS_MAX: u64 = 1_000_000;

impl Node {
    pub(super) fn on_sealed(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        holder: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.memory.on_sealed(now, from, object, out) {
            return;
        }
        if self.process_table.is_live(holder) {
            self.directory.hold_as_maker(object, holder);
        } else if !self.directory.knows(object) {
            // The one who wanted it died meanwhile.
            self.memory.forget(now, object, out);
        }
        self.let_go_of_namer(object, out);
    }

    pub(super) fn on_restored(
        &mut self,
        now: Time,
        entry: EntryRef,
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) {
        if let Some((object, failure)) = self.memory.on_restored(now, entry, outcome, out) {
            self.on_value_lost(now, object, failure, out);
        }
    }

    pub(super) fn on_reserved(
        &mut self,
        now: Time,
        entry: EntryRef,
        outcome: Result<(), String>,
        out: &mut Effects<NodeEffect>,
    ) {
        if let Some((object, failure)) = self.memory.on_reserved(now, entry, outcome, out) {
            self.on_value_lost(now, object, failure, out);
        }
    }

    pub(super) fn on_escaped(
        &mut self,
        from: ProcessSlot,
        object: ObjectId,
        value: Option<SharedValue>,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.is_reconstructed_by(from, object) && self.is_gone(object, value.as_ref()) {
            // The owner exports the object before its new value is there. Its waiters would only ask again.
            return self.directory.hold(object, from);
        }
        self.orphans.remove(&object);
        self.losses.end_search(object);
        let waiting = self.directory.escape(object, from, value);
        self.tell_value(object, waiting, out);
    }

    /// Whether this process is to say the value of an object, which was lost.
    fn is_reconstructed_by(&self, owner: ProcessSlot, object: ObjectId) -> bool {
        self.losses.is_sought(object)
            && self.directory.value(object) == Some(&Value::Pending { owner: Some(owner) })
    }

    /// Whether a value is said to be in a copy that the node has given up.
    fn is_gone(&self, object: ObjectId, value: Option<&SharedValue>) -> bool {
        match value {
            Some(SharedValue::Stored { entry, .. }) => !self.memory.copies.readable(object).contains(entry),
            Some(SharedValue::Inline { .. } | SharedValue::Failed(_)) | None => false,
        }
    }

    pub(super) fn on_resolved(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        value: SharedValue,
        out: &mut Effects<NodeEffect>,
    ) {
        if let SharedValue::Failed(failure) = &value
            && failure.kind == FailureKind::Lost
            && self.on_said_lost(now, from, object, failure, out)
        {
            return;
        }
        self.orphans.remove(&object);
        if let SharedValue::Failed(failure) = &value
            && failure.kind == FailureKind::Lost
            && self.directory.is_with_maker(object)
        {
            // It knows nothing of the task any more. Others may have a copy, or know more.
            self.directory.forget_maker(object);
            return self.on_value_lost(now, object, failure.clone(), out);
        }
        self.losses.end_search(object);
        let waiting = self.directory.resolve(object, value);
        self.tell_value(object, waiting, out);
        let freed = self.directory.collect(vec![object]);
        self.free(now, freed, out);
    }

    pub(super) fn on_held(&mut self, from: ProcessSlot, object: ObjectId, out: &mut Effects<NodeEffect>) {
        self.directory.hold(object, from);
        self.note_abroad(object, from, out);
        self.memory.touch(object);
    }

    /// A borrower cancels the task that makes an object. Only the object's owner knows the task. A value that is known
    /// stays, as does one whose owner is dead.
    pub(super) fn on_cancel_wanted(
        &mut self,
        from: ProcessSlot,
        cancel: ObjectCancel,
        out: &mut Effects<NodeEffect>,
    ) {
        if let Some(&Value::Pending { owner: Some(owner) }) = self.directory.value(cancel.object)
            && owner != from
        {
            self.send(owner, FromNode::CancelWanted(cancel), out);
        }
    }

    pub(super) fn on_released(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        let freed = self.directory.release(object, from);
        self.free(now, freed, out);
    }

    pub(super) fn on_left_to_others(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        let freed = self.directory.leave(object, from);
        self.free(now, freed, out);
    }

    pub(super) fn on_contains(
        &mut self,
        now: Time,
        container: ObjectId,
        holder: ProcessSlot,
        objects: Vec<ObjectId>,
        actors: Vec<ActorId>,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.process_table.is_live(holder) {
            self.directory.hold(container, holder);
        }
        let objects = if self.planted.has(NodeBug::UnheldContents) { Vec::new() } else { objects };
        for actor in self.directory.contain(container, objects, actors) {
            self.actors.contain(actor);
        }
        let freed = self.directory.collect(vec![container]);
        self.free(now, freed, out);
    }

    pub(super) fn on_subscribed(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        self.note_stored_value(object, out);
        self.note_moved_value(object);
        self.note_lost_value(object);
        if self.directory.is_lost(object) {
            // Whoever waits may be the one who makes it again.
            self.directory.await_lost(object, from);
            return self.make_again(now, object, out);
        }
        if let Some(value) = self.directory.subscribe(object, from) {
            return self.send(from, FromNode::ObjectResolved { object, value }, out);
        }
        if self.directory.value(object) != Some(&Value::Pending { owner: None }) {
            self.ask_namer(object, out);
        } else if self.losses.is_sought(object) || self.orphans.contains_key(&object) {
            // It is sought already.
        } else if self.process_table.live().any(|process| self.is_peer(process)) {
            self.seek_unknown(now, object, out);
        } else {
            self.orphans.insert(object, Time(now.0 + ORPHAN_MICROSECONDS_MAX));
        }
    }

    /// The value of an object that is in the store need not be said by anybody. Those who know where it is there have
    /// not said so, since they pass that on by themselves; another node has to ask.
    pub(super) fn note_stored_value(&mut self, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let unsaid = |value: &Value| *value == Value::Pending { owner: None };
        if !self.directory.value(object).is_none_or(unsaid) && !self.directory.is_lost(object) {
            return;
        }
        if let Some(&entry) = self.memory.copies.readable(object).first() {
            let contains = self.directory.contains_something(object);
            self.losses.end_search(object);
            self.orphans.remove(&object);
            let waiting = self.directory.resolve(object, SharedValue::Stored { entry, contains });
            self.tell_value(object, waiting, out);
        }
    }

    /// The copy in which the value of an object was is gone, and there is another: its task ran again, or somebody has brought
    /// it from another node.
    fn note_moved_value(&mut self, object: ObjectId) {
        let Some(Value::Known(SharedValue::Stored { entry, .. })) = self.directory.value(object) else {
            return;
        };
        let readable = self.memory.copies.readable(object);
        if let Some(&by_now) = readable.first().filter(|_| !readable.contains(entry)) {
            self.directory.move_value(object, by_now);
        }
    }

    /// What the dead process held, it holds no more; what it was to make is lost, unless it is made again.
    pub(super) fn on_holder_died(
        &mut self,
        now: Time,
        dead: ProcessSlot,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        self.peers.forget_process(dead);
        self.places.forget_process(dead);
        self.warnings.forget_process(dead);
        let mut owed = self.directory.owed_by(dead);
        if self.planted.has(NodeBug::SilentOwner) {
            owed.clear();
        }
        let freed = self.directory.forget_process(dead);
        self.free(now, freed, out);
        self.forget_silent(now, dead, out);
        for object in owed {
            let text = format!("the process that was to make it died: {cause}");
            self.on_value_lost(now, object, Failure::new(FailureKind::Lost, text), out);
        }
        for actor in self.actors.forget_holder(dead) {
            self.end_if_unreachable(now, actor, out);
        }
    }

    pub(super) fn tell_value(
        &mut self,
        object: ObjectId,
        to: Vec<ProcessSlot>,
        out: &mut Effects<NodeEffect>,
    ) {
        self.note_moved_value(object);
        let Some(Value::Known(value)) = self.directory.value(object) else { return };
        for process in to {
            self.send(process, FromNode::ObjectResolved { object, value: value.clone() }, out);
        }
    }

    pub(super) fn free(&mut self, now: Time, freed: Freed, out: &mut Effects<NodeEffect>) {
        for object in freed.objects {
            self.orphans.remove(&object);
            self.losses.forget_object(object);
            self.forget_record(object, out);
            if let Some((peer, count)) = self.peers.forget_object(object) {
                self.send(peer, FromNode::Freed { object, count }, out);
            }
            self.memory.forget(now, object, out);
        }
        for (object, maker) in freed.makers {
            self.send(maker, FromNode::Freed { object, count: 0 }, out);
        }
        for actor in freed.actors {
            self.actors.uncontain(actor);
            self.end_if_unreachable(now, actor, out);
        }
    }
}
