//! Objects that both nodes know: named, promised, asked for, and released.

use super::Peer;
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::peer::{Frame, Inside, PeerArgument, PeerValue};
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot, TaskId};
use aktis_runtime::Handle;
use aktis_runtime::bridge::{BridgeAnswer, inside_of};
use std::collections::HashSet;

/// An object of this node that the other one knows.
pub(crate) struct Lent {
    /// Keeps it.
    pub(crate) handle: Handle,
    /// How often it was named to the other node.
    count: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct ObjectsAcross {
    /// Objects whose values the other node waits for.
    awaited: HashSet<ObjectId>,
}

impl Peer {
    // Naming objects to the other side.

    /// The arguments are about to be sent: all that they refer to is kept for the other side.
    pub(super) fn name_arguments(&mut self, arguments: &[PeerArgument]) {
        for argument in arguments {
            match argument {
                PeerArgument::Value { inside, .. } => self.name_inside(inside),
                PeerArgument::Object(object) => self.name_object(*object),
            }
        }
    }

    pub(super) fn name_inside(&mut self, inside: &Inside) {
        inside.objects.iter().for_each(|object| self.name_object(*object));
        for actor in &inside.actors {
            self.name_actor(*actor);
        }
    }

    fn name_object(&mut self, object: ObjectId) {
        if let Some(lent) = self.doorway.lent.lock().get_mut(&object) {
            lent.count += 1;
            return;
        }
        let handle = self.bridge.hold(object);
        self.lend(object, handle);
    }

    /// The other side knows this object from now on.
    fn lend(&mut self, object: ObjectId, handle: Handle) {
        let mut lent = self.doorway.lent.lock();
        lent.entry(object).or_insert(Lent { handle, count: 0 }).count += 1;
    }

    /// The other side has let go of an object that was named to it so often; it may have been named again since.
    pub(super) fn on_released(&mut self, object: ObjectId, count: u64) {
        let mut lent = self.doorway.lent.lock();
        let Some(known) = lent.get_mut(&object) else { return };
        known.count = known.count.saturating_sub(count);
        // Dropped when the lock is free: that has the node told.
        let dropped = if known.count == 0 { lent.remove(&object) } else { None };
        drop(lent);
        drop(dropped);
    }

    /// A worker's answer, as the other side gets it.
    pub(super) fn value_to_send(&mut self, answer: BridgeAnswer) -> PeerValue {
        match &answer {
            BridgeAnswer::Inline(bytes, None) => {
                let (object, inside) = (ObjectId::default(), Inside::default());
                PeerValue::Inline { object, bytes: bytes.clone(), inside }
            }
            BridgeAnswer::Inline(bytes, Some(object)) => {
                // It keeps what is inside until that has been named.
                let container = self.bridge.take_result(*object, &answer);
                let value = self.inline(*object, bytes);
                drop(container);
                value
            }
            BridgeAnswer::Stored(stored, _) => {
                let handle = self.bridge.take_result(stored.object, &answer);
                self.lend(stored.object, handle.clone());
                self.stored(stored.object, &handle)
            }
            BridgeAnswer::Failed(failure) => PeerValue::Failed(failure.clone()),
        }
    }

    /// Nobody wants this answer: the node need not count this process as a holder.
    pub(super) fn drop_answer(&self, answer: &BridgeAnswer) {
        match answer {
            BridgeAnswer::Inline(_, Some(object)) => drop(self.bridge.take_result(*object, answer)),
            BridgeAnswer::Stored(stored, _) => drop(self.bridge.take_result(stored.object, answer)),
            BridgeAnswer::Inline(_, None) | BridgeAnswer::Failed(_) => {}
        }
    }

    /// A task of the other side ended before its last return values, which may be in the store, and nobody will ask for.
    pub(super) fn release_unanswered(&mut self, task: TaskId, returns: u32) {
        let lent = self.doorway.lent.lock();
        let objects =
            (0..returns).map(|index| task.returns(index)).filter(|object| !lent.contains_key(object));
        let unanswered: Vec<_> = objects.collect();
        drop(lent);
        unanswered.into_iter().for_each(|object| self.bridge.send(ToNode::Released { object }));
    }

    fn inline(&mut self, object: ObjectId, bytes: &[u8]) -> PeerValue {
        match inside_of(bytes) {
            Ok(inside) => {
                self.name_inside(&inside);
                PeerValue::Inline { object, bytes: bytes.to_vec(), inside }
            }
            Err(problem) => PeerValue::Failed(Failure::new(FailureKind::Codec, problem)),
        }
    }

    fn stored(&mut self, object: ObjectId, handle: &Handle) -> PeerValue {
        let bytes = match self.bridge.size_of(handle) {
            Ok((bytes, false)) => {
                return PeerValue::Stored { object, bytes, inside: Inside::default() };
            }
            Ok((bytes, true)) => bytes,
            Err(error) => return PeerValue::Failed(Failure::new(FailureKind::Lost, error.to_string())),
        };
        let inside = self.bridge.open(handle).map_err(|error| error.to_string());
        match inside.and_then(|value| inside_of(value.bytes())) {
            Ok(inside) => {
                self.name_inside(&inside);
                PeerValue::Stored { object, bytes, inside }
            }
            Err(problem) => PeerValue::Failed(Failure::new(FailureKind::Lost, problem)),
        }
    }

    /// The other side asks for the value of an object that was named to it.
    pub(super) fn on_value_wanted(&mut self, object: ObjectId) {
        let handle = self.doorway.lent.lock().get(&object).map(|lent| lent.handle.clone());
        let Some(handle) = handle else {
            let text = format!("object {object} is not known on the node that was asked for it");
            let value = PeerValue::Failed(Failure::new(FailureKind::Lost, text));
            return self.wire.send(&Frame::Value { object, value });
        };
        let Some(value) = self.bridge.value_of(&handle) else {
            self.objects.awaited.insert(object);
            return;
        };
        self.objects.awaited.remove(&object);
        let value = match value {
            SharedValue::Inline { bytes, .. } => self.inline(object, &bytes),
            SharedValue::Stored { .. } => self.stored(object, &handle),
            SharedValue::Failed(failure) => PeerValue::Failed(failure),
        };
        self.wire.send(&Frame::Value { object, value });
    }

    /// An object has an outcome that somebody may wait for.
    pub(super) fn on_ready(&mut self, object: ObjectId) {
        if self.objects.awaited.contains(&object) {
            self.on_value_wanted(object);
        }
        self.host_what_is_ready();
    }

    /// The other side seeks an object.
    pub(super) fn on_sought(&mut self, object: ObjectId) {
        if let Ok(Some(handle)) = self.bridge.look_up(object) {
            self.lend(object, handle);
            self.wire.send(&Frame::Known { object });
        }
    }

    // Objects that the other side has named.

    /// The other side has named an object: it is asked when somebody here wants its value. The caller has this process
    /// hold it.
    pub(super) fn note_object(&mut self, object: ObjectId) {
        self.bridge.send(ToNode::Promised { object, holder: self.me() });
    }

    pub(super) fn note_inside(&mut self, inside: &Inside) {
        inside.objects.iter().for_each(|object| self.note_object(*object));
        inside.actors.iter().for_each(|actor| self.note_actor(*actor));
    }

    pub(super) fn note_arguments(&mut self, arguments: &[PeerArgument]) {
        for argument in arguments {
            match argument {
                PeerArgument::Value { inside, .. } => self.note_inside(inside),
                PeerArgument::Object(object) => self.note_object(*object),
            }
        }
    }

    /// The other side has an object that somebody here seeks.
    pub(super) fn on_known(&mut self, object: ObjectId) {
        self.note_object(object);
        // Whoever seeks it holds it.
        drop(self.bridge.hold(object));
    }

    /// Nobody here knows the object any more.
    pub(super) fn release_import(&mut self, object: ObjectId, count: u64) {
        self.wire.send(&Frame::Released { object, count });
    }

    /// The value of an object that this side has asked for.
    pub(super) fn on_value(&mut self, object: ObjectId, value: PeerValue) {
        let handle = self.bridge.hold(object);
        let me = self.me();
        let value = match value {
            PeerValue::Inline { bytes, inside, .. } => {
                let contains = !inside.is_empty();
                self.contain(object, me, inside);
                SharedValue::Inline { bytes, contains }
            }
            PeerValue::Stored { bytes, inside, .. } => match self.bridge.import(object, bytes, me) {
                Ok(entry) => {
                    let contains = !inside.is_empty();
                    self.contain(object, me, inside);
                    SharedValue::Stored { entry, contains }
                }
                Err(error) => SharedValue::Failed(Failure::new(FailureKind::Store, error.to_string())),
            },
            PeerValue::Failed(failure) => SharedValue::Failed(failure),
        };
        self.bridge.send(ToNode::Resolved { object, value });
        drop(handle);
    }

    /// What is inside a value from the other side lives as long as the value does here.
    pub(super) fn contain(&mut self, container: ObjectId, holder: ProcessSlot, inside: Inside) {
        if inside.is_empty() {
            return;
        }
        self.note_inside(&inside);
        let objects: Vec<Handle> = inside.objects.iter().map(|object| self.bridge.hold(*object)).collect();
        let actors: Vec<_> = inside.actors.iter().map(|actor| self.bridge.adopt_actor(*actor)).collect();
        let Inside { objects: object_ids, actors: actor_ids } = inside;
        let contains = ToNode::Contains { container, holder, objects: object_ids, actors: actor_ids };
        self.bridge.send(contains);
        drop((objects, actors));
    }
}
