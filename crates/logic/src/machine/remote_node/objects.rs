//! Objects that both nodes know: exported, imported, asked for, and released.

use super::received::Received;
use super::{LocalAnswer, LocalNode, PlantedBug, RemoteNode};
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::peer::{Frame, Inside, PeerArgument, PeerValue};
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot, limits};

/// Consecutive reconstructions of one value before giving up.
const RENEWALS_MAX: u32 = 8;

impl<N: LocalNode> RemoteNode<N> {
    // Objects that this side exports.

    /// The arguments are about to be sent: the proxy holds all that they refer to for the other side.
    pub(super) fn export_arguments(&mut self, arguments: &[PeerArgument]) {
        for argument in arguments {
            match argument {
                PeerArgument::Value { inside, .. } => self.export_inside(inside),
                PeerArgument::Object(object) => self.export_object(*object),
            }
        }
    }

    /// The references inside a value are about to be sent.
    pub fn export_inside(&mut self, inside: &Inside) {
        inside.objects.iter().for_each(|object| self.export_object(*object));
        inside.actors.iter().for_each(|actor| self.export_actor(*actor));
    }

    fn export_object(&mut self, object: ObjectId) {
        if !self.exports.add_again(object) {
            let reference = self.node.hold(object);
            self.add_export(object, reference);
        }
        self.keep_exported_return(object);
    }

    /// The other side knows this object from now on.
    fn add_export(&mut self, object: ObjectId, reference: N::Object) {
        drop(self.exports.add(object, reference));
    }

    /// The other side has released an object that was exported to it so often; it may have been exported again since.
    pub(super) fn on_released(&mut self, object: ObjectId, count: u64) {
        let count = if self.has_bug(PlantedBug::ReleaseAllExports) { u64::MAX } else { count };
        drop(self.exports.on_released(object, count));
    }

    /// A worker's answer, as the other side gets it.
    pub(super) fn value_to_send(&mut self, answer: LocalAnswer) -> PeerValue {
        match &answer {
            LocalAnswer::Inline(bytes, None) => {
                let (object, inside) = (ObjectId::default(), Inside::default());
                PeerValue::Inline { object, bytes: bytes.clone(), inside }
            }
            LocalAnswer::Inline(bytes, Some(object)) => {
                // It holds what is inside until that has been exported.
                let container = self.node.take_result(*object, &answer);
                let value = self.inline(*object, bytes);
                drop(container);
                value
            }
            LocalAnswer::Stored(stored, _) => {
                let handle = self.node.take_result(stored.object, &answer);
                let value = self.stored(stored.object, &handle);
                if matches!(value, PeerValue::Stored { .. }) {
                    self.add_export(stored.object, handle);
                }
                value
            }
            LocalAnswer::Failed(failure) => PeerValue::Failed(failure.clone()),
        }
    }

    /// The other side does not want this answer: the node need not count this process as a holder.
    pub(super) fn drop_answer(&self, answer: &LocalAnswer) {
        match answer {
            LocalAnswer::Inline(_, Some(object)) => drop(self.node.take_result(*object, answer)),
            LocalAnswer::Stored(stored, _) => drop(self.node.take_result(stored.object, answer)),
            LocalAnswer::Inline(_, None) | LocalAnswer::Failed(_) => {}
        }
    }

    /// A task or call of the other side ended before its last return values, which may be in the store, and which no process
    /// will ask for.
    pub(super) fn release_unanswered(&self, received: &Received<N::Object>) {
        // An object that either side has exported is released with the reference to it.
        let unanswered = received.unanswered().into_iter().filter(|object| self.node.held(*object).is_none());
        unanswered.for_each(|object| self.node.tell(ToNode::Released { object }));
    }

    fn inline(&mut self, object: ObjectId, bytes: &[u8]) -> PeerValue {
        match self.node.references_in(bytes) {
            Ok(inside) => {
                self.export_inside(&inside);
                PeerValue::Inline { object, bytes: bytes.to_vec(), inside }
            }
            Err(problem) => PeerValue::Failed(Failure::new(FailureKind::Codec, problem)),
        }
    }

    fn stored(&mut self, object: ObjectId, reference: &N::Object) -> PeerValue {
        let bytes = match self.node.size_of(reference) {
            Ok((bytes, false)) => {
                return PeerValue::Stored { object, bytes, inside: Inside::default() };
            }
            Ok((bytes, true)) => bytes,
            Err(error) => return PeerValue::Failed(Failure::new(FailureKind::Lost, error)),
        };
        // The node knows what is inside; the value itself may be on disk, or on yet another node.
        match self.node.contents_of(object) {
            Ok(inside) if inside.len() > limits::PEER_REFERENCES_MAX => {
                PeerValue::Failed(Failure::new(FailureKind::Codec, too_many_references(inside.len())))
            }
            Ok(inside) => {
                self.export_inside(&inside);
                PeerValue::Stored { object, bytes, inside }
            }
            Err(error) => PeerValue::Failed(Failure::new(FailureKind::Lost, error)),
        }
    }

    /// The other side asks for the value of an object that was exported to it. The value is sent when the link has room: one
    /// side can ask for more than a link holds.
    pub(super) fn on_value_wanted(&mut self, object: ObjectId) {
        self.values_wanted.push_back(object);
    }

    /// Sends the next value that the other side wants; false if there is none.
    pub(super) fn send_next_value(&mut self) -> bool {
        let next = self.values_wanted.pop_front();
        next.into_iter().for_each(|object| self.send_wanted_value(object));
        next.is_some()
    }

    fn send_wanted_value(&mut self, object: ObjectId) {
        if self.node.origin_of(object) == Some(self.node.process()) {
            // Each of the two nodes would wait for the other to say it.
            return self.send(Frame::Value { object, value: unknown(object) });
        }
        // A node that asks again has found that the value is gone.
        if let Some(reference) = self.exports.get(object).cloned() {
            self.renew(object, &reference);
        }
        self.send_value(object);
    }

    /// Has the value of an object reconstructed, or asked for again, if it was lost; gives whether it was.
    fn renew(&mut self, object: ObjectId, reference: &N::Object) -> bool {
        let Some(renewed) = self.node.renew(reference) else { return false };
        // The new reference holds the one whose place it takes.
        drop(self.exports.replace(object, renewed));
        true
    }

    /// Sends the value of an object that was exported to the other side, now or when it is known.
    fn send_value(&mut self, object: ObjectId) {
        let mut renewals = 0;
        let value = loop {
            let Some(reference) = self.exports.get(object).cloned() else { break unknown(object) };
            let Some(value) = self.node.value_of(&reference) else {
                if !self.has_bug(PlantedBug::ForgottenWaiter) {
                    self.exports.on_wanted(object);
                }
                return;
            };
            match value {
                SharedValue::Inline { bytes, .. } => break self.inline(object, &bytes),
                // It was lost since: the other side waits on, as those here do.
                SharedValue::Stored { .. } if self.renew(object, &reference) => renewals += 1,
                SharedValue::Stored { .. } => break self.stored(object, &reference),
                SharedValue::Failed(failure) => break PeerValue::Failed(failure),
            }
            if renewals >= RENEWALS_MAX {
                let text = format!("the object {object} is lost as often as it is made again");
                break PeerValue::Failed(Failure::new(FailureKind::Lost, text));
            }
        };
        self.send(Frame::Value { object, value: value.fitting() });
    }

    /// An object has an outcome that the other side may wait for.
    pub(super) fn on_ready(&mut self, object: ObjectId) {
        let wanted = self.exports.take_wanted(object);
        if wanted {
            self.send_value(object);
        }
        self.host_ready_actors();
    }

    /// The other side asks whether this node knows an object.
    pub(super) fn on_sought(&mut self, object: ObjectId) {
        match self.node.look_up(object) {
            Some(reference) => {
                self.add_export(object, reference);
                self.keep_exported_return(object);
                self.send(Frame::Known { object });
            }
            None => self.send(Frame::Unknown { object }),
        }
    }

    // Objects that the other side exports.

    /// The other side has exported an object: it is asked when a process here wants the value. The caller has this process
    /// hold the object.
    pub(super) fn import_object(&mut self, object: ObjectId) {
        self.node.tell(ToNode::Promised { object, holder: self.node.process(), found: false });
        self.keep_exported_return(object);
    }

    /// The other side has exported the references inside a value.
    pub fn import_inside(&mut self, inside: &Inside) {
        inside.objects.iter().for_each(|object| self.import_object(*object));
        inside.actors.iter().for_each(|actor| self.import_actor(*actor));
    }

    pub(super) fn import_arguments(&mut self, arguments: &[PeerArgument]) {
        for argument in arguments {
            match argument {
                PeerArgument::Value { inside, .. } => self.import_inside(inside),
                PeerArgument::Object(object) => self.import_object(*object),
            }
        }
    }

    /// The other side knows an object that a process here looks for.
    pub(super) fn on_known(&mut self, object: ObjectId) {
        self.node.tell(ToNode::Promised { object, holder: self.node.process(), found: true });
        self.keep_exported_return(object);
        // The process that looks for it holds it.
        drop(self.node.hold(object));
    }

    /// The other side does not know an object that a process here looks for.
    pub(super) fn on_unknown(&mut self, object: ObjectId) {
        self.node.tell(ToNode::NotKnown { object });
    }

    /// No process here holds the object any more.
    pub(super) fn release_import(&mut self, object: ObjectId, count: u64) {
        self.send(Frame::Released { object, count });
    }

    /// The value of an object that this side has asked for.
    pub(super) fn on_value(&mut self, object: ObjectId, value: PeerValue) {
        self.keep_exported_return(object);
        let handle = self.node.hold(object);
        let me = self.node.process();
        let value = match value {
            PeerValue::Inline { bytes, inside, .. } => {
                let contains = !inside.is_empty();
                self.contain(object, me, inside);
                SharedValue::Inline { bytes, contains }
            }
            PeerValue::Stored { bytes, inside, .. } => match self.node.import(object, bytes, me, false) {
                Ok(entry) => {
                    let contains = !inside.is_empty();
                    self.contain(object, me, inside);
                    SharedValue::Stored { entry, contains }
                }
                Err(error) => {
                    self.release_inside(&inside);
                    SharedValue::Failed(Failure::new(FailureKind::Store, error))
                }
            },
            PeerValue::Failed(failure) => SharedValue::Failed(failure),
        };
        self.node.tell(ToNode::Resolved { object, value });
        drop(handle);
    }

    /// The objects and actors inside a value from the other side are held as long as the value is here.
    pub(super) fn contain(&mut self, container: ObjectId, holder: ProcessSlot, inside: Inside) {
        if inside.is_empty() {
            return;
        }
        self.import_inside(&inside);
        let objects: Vec<N::Object> = inside.objects.iter().map(|object| self.node.hold(*object)).collect();
        let actors: Vec<_> = inside.actors.iter().map(|actor| self.node.hold_actor(*actor)).collect();
        let Inside { objects: object_ids, actors: actor_ids } = inside;
        let contains = ToNode::Contains { container, holder, objects: object_ids, actors: actor_ids };
        self.node.tell(contains);
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

/// The answer for an object that this node does not know.
fn unknown(object: ObjectId) -> PeerValue {
    let text = format!("object {object} is not known on the node that was asked for it");
    PeerValue::Failed(Failure::new(FailureKind::Lost, text))
}
