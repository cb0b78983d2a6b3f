//! Objects that both nodes know: named, promised, asked for, and released.

use super::Peer;
use super::received::Received;
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::peer::{Frame, Inside, PeerArgument, PeerValue};
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot, limits};
use aktis_runtime::Handle;
use aktis_runtime::bridge::{BridgeAnswer, inside_of};

/// How often a value is asked for anew, one time after the other, that is gone whenever it has come.
const RENEWALS_MAX: u32 = 8;

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
        inside.actors.iter().for_each(|actor| self.name_actor(*actor));
    }

    fn name_object(&mut self, object: ObjectId) {
        let known = self.doorway.lent.lock().name_again(object);
        if !known {
            self.lend(object, self.bridge.hold(object));
        }
        self.keep_named_return(object);
    }

    /// The other side knows this object from now on.
    fn lend(&self, object: ObjectId, handle: Handle) {
        // What is given back is dropped when the lock is free: that has the node told.
        let spare = self.doorway.lent.lock().name(object, handle);
        drop(spare);
    }

    /// The other side has let go of an object that was named to it so often; it may have been named again since.
    pub(super) fn on_released(&mut self, object: ObjectId, count: u64) {
        let last = self.doorway.lent.lock().on_released(object, count);
        drop(last);
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
                let value = self.stored(stored.object, &handle);
                if matches!(value, PeerValue::Stored { .. }) {
                    self.lend(stored.object, handle);
                }
                value
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

    /// A task or call of the other side ended before its last return values, which may be in the store, and nobody will ask for.
    pub(super) fn release_unanswered(&mut self, received: &Received) {
        // What was named to either side is let go of with its handle.
        let unanswered =
            received.unanswered().into_iter().filter(|object| self.bridge.handle_of(*object).is_none());
        unanswered.for_each(|object| self.bridge.send(ToNode::Released { object }));
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
        // The node knows what is inside; the value itself may be on disk, or on yet another node.
        match self.bridge.contents_of(object) {
            Ok(inside) if inside.len() > limits::PEER_REFERENCES_MAX => {
                PeerValue::Failed(Failure::new(FailureKind::Codec, too_many_references(inside.len())))
            }
            Ok(inside) => {
                self.name_inside(&inside);
                PeerValue::Stored { object, bytes, inside }
            }
            Err(error) => PeerValue::Failed(Failure::new(FailureKind::Lost, error.to_string())),
        }
    }

    /// The other side asks for the value of an object that was named to it. If the link has no room, it is said later: one
    /// side can ask for more than a link holds.
    pub(super) fn on_value_wanted(&mut self, object: ObjectId) {
        if !self.values_wanted.is_empty() || !self.wire.has_room() {
            return self.values_wanted.push_back(object);
        }
        self.say_wanted_value(object);
    }

    /// Says the next value that the link had no room for, which it has now; false if there is none.
    pub(super) fn say_next_value(&mut self) -> bool {
        let next = self.values_wanted.pop_front();
        next.into_iter().for_each(|object| self.say_wanted_value(object));
        next.is_some()
    }

    fn say_wanted_value(&mut self, object: ObjectId) {
        if self.bridge.origin_of(object) == Some(self.me()) {
            // Each of the two nodes would wait for the other to say it.
            return self.wire.send(&Frame::Value { object, value: unknown(object) });
        }
        // Who asks again has found that the value is gone.
        if let Some(handle) = self.lent_handle(object) {
            self.renew(object, &handle);
        }
        self.say_value(object);
    }

    /// Has the value of an object made again, or asked for anew, if it was lost; gives whether it was.
    fn renew(&mut self, object: ObjectId, handle: &Handle) -> bool {
        let Some(renewed) = self.bridge.renew(handle) else { return false };
        // It keeps the one whose place it takes.
        let replaced = self.doorway.lent.lock().replace(object, renewed);
        drop(replaced);
        true
    }

    pub(super) fn lent_handle(&self, object: ObjectId) -> Option<Handle> {
        self.doorway.lent.lock().get(object).cloned()
    }

    /// Says the value of an object that was named to the other side, now or when it is there.
    fn say_value(&mut self, object: ObjectId) {
        let mut renewals = 0;
        let value = loop {
            let Some(handle) = self.lent_handle(object) else { break unknown(object) };
            let Some(value) = self.bridge.value_of(&handle) else {
                return self.doorway.lent.lock().on_wanted(object);
            };
            match value {
                SharedValue::Inline { bytes, .. } => break self.inline(object, &bytes),
                // It was lost since: the other side waits on, as those here do.
                SharedValue::Stored { .. } if self.renew(object, &handle) => renewals += 1,
                SharedValue::Stored { .. } => break self.stored(object, &handle),
                SharedValue::Failed(failure) => break PeerValue::Failed(failure),
            }
            if renewals >= RENEWALS_MAX {
                let text = format!("the object {object} is lost as often as it is made again");
                break PeerValue::Failed(Failure::new(FailureKind::Lost, text));
            }
        };
        self.wire.send(&Frame::Value { object, value: value.fitting() });
    }

    /// An object has an outcome that somebody may wait for.
    pub(super) fn on_ready(&mut self, object: ObjectId) {
        let wanted = self.doorway.lent.lock().take_wanted(object);
        if wanted {
            self.say_value(object);
        }
        self.host_what_is_ready();
    }

    /// The other side seeks an object.
    pub(super) fn on_sought(&mut self, object: ObjectId) {
        match self.bridge.look_up(object) {
            Ok(Some(handle)) => {
                self.lend(object, handle);
                self.keep_named_return(object);
                self.wire.send(&Frame::Known { object });
            }
            _ => self.wire.send(&Frame::Unknown { object }),
        }
    }

    // Objects that the other side has named.

    /// The other side has named an object: it is asked when somebody here wants its value. The caller has this process
    /// hold it.
    pub(super) fn note_object(&mut self, object: ObjectId) {
        self.bridge.send(ToNode::Promised { object, holder: self.me(), found: false });
        self.keep_named_return(object);
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
        self.bridge.send(ToNode::Promised { object, holder: self.me(), found: true });
        self.keep_named_return(object);
        // Whoever seeks it holds it.
        drop(self.bridge.hold(object));
    }

    /// The other side does not know an object that somebody here seeks.
    pub(super) fn on_unknown(&mut self, object: ObjectId) {
        self.bridge.send(ToNode::NotKnown { object });
    }

    /// Nobody here knows the object any more.
    pub(super) fn release_import(&mut self, object: ObjectId, count: u64) {
        self.wire.send(&Frame::Released { object, count });
    }

    /// The value of an object that this side has asked for.
    pub(super) fn on_value(&mut self, object: ObjectId, value: PeerValue) {
        self.keep_named_return(object);
        let handle = self.bridge.hold(object);
        let me = self.me();
        let value = match value {
            PeerValue::Inline { bytes, inside, .. } => {
                let contains = !inside.is_empty();
                self.contain(object, me, inside);
                SharedValue::Inline { bytes, contains }
            }
            PeerValue::Stored { bytes, inside, .. } => match self.bridge.import(object, bytes, me, false) {
                Ok(entry) => {
                    let contains = !inside.is_empty();
                    self.contain(object, me, inside);
                    SharedValue::Stored { entry, contains }
                }
                Err(error) => {
                    self.turn_down_inside(&inside);
                    SharedValue::Failed(Failure::new(FailureKind::Store, error.to_string()))
                }
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

fn too_many_references(count: usize) -> String {
    format!(
        "a value with {count} references inside cannot be read on another node: {} are allowed\n\
         hint: put the references into several values, and refer to those",
        limits::PEER_REFERENCES_MAX
    )
}

/// The answer to who asks for an object that this node knows nothing of.
fn unknown(object: ObjectId) -> PeerValue {
    let text = format!("object {object} is not known on the node that was asked for it");
    PeerValue::Failed(Failure::new(FailureKind::Lost, text))
}
