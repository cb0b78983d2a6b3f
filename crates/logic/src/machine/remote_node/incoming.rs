//! Frames from the other node.

use super::backlog::About;
use super::local_node::{SubmitError, answer_message};
use super::programs::ProgramWork;
use super::received::Received;
use super::{LocalNode, PlantedBug, RemoteNode};
use crate::Time;
use aktis_protocol::hot::{MessageKind, Stored, ValueForm, payload_with_references};
use aktis_protocol::peer::{Frame, Inside, PeerCall, PeerValue, Ticket};
use aktis_protocol::{Failure, FailureKind, ProcessSlot, Shape, Strategy, TaskKey, control};
use std::sync::Arc;

impl<N: LocalNode> RemoteNode<N> {
    /// A frame has arrived.
    pub fn on_frame(&mut self, now: Time, frame: Frame) {
        self.now = now;
        match frame {
            Frame::ProgramWanted { program } => self.on_program_wanted(program),
            Frame::Program { program, spec } => self.on_program(program, spec),
            Frame::ProgramPart { program, bytes, last } => self.on_program_part(program, &bytes, last),
            Frame::Shape { shape, definition } => {
                // The placer has chosen this node: the task goes nowhere else.
                let here = Shape { strategy: Strategy::Default, near: None, ..definition };
                self.shapes.insert(shape, here.into());
            }
            Frame::Task { ticket, shape, call } => match self.shapes.get(&shape).cloned() {
                Some(shape) => self.await_program(ProgramWork::Task { ticket, shape, call }),
                None => self.refuse_task(ticket, FailureKind::Store, "its shape is not known".to_owned()),
            },
            Frame::Call { ticket, actor, group, aways, call } => {
                self.import_arguments(&call.arguments);
                match self.actor_for(actor, aways) {
                    Some(handle) => {
                        let known = self.known_returns(&call);
                        let key = self.node.call(ticket, &handle, group, &call);
                        self.add_received(ticket, key, Some(actor), &call, known);
                    }
                    // The other side hears that the actor is gone or was away, and has given this call up by then. The
                    // references in it are held once, and released.
                    None => drop(self.node.arguments(&call.arguments)),
                }
            }
            Frame::Returned { ticket, index, value } => self.on_returned(ticket, index, value),
            Frame::StreamItem { ticket, index, value } => {
                let sent = self.sent.get(&ticket);
                match sent.and_then(|sent| Some((sent.from?, sent.key, sent.about(false)))) {
                    Some((from, key, about)) => {
                        self.deliver(from, key, MessageKind::StreamItem, index, value, about);
                    }
                    None => self.release_value(&value),
                }
            }
            Frame::StreamEnded { ticket, index, failure } => self.on_stream_ended(ticket, index, failure),
            Frame::TaskLost { ticket, cause } => {
                if let Some(sent) = self.settle_sent(ticket) {
                    if let (None, Some(held)) = (&cause, &sent.lease) {
                        self.return_idle_leases(held.shape);
                    }
                    self.lose(&sent, cause);
                }
            }
            Frame::StreamCredit { ticket, index } => {
                self.tell_producer(ticket, MessageKind::StreamCredit, index)
            }
            Frame::StreamClosed { ticket } => self.tell_producer(ticket, MessageKind::StreamClosed, 0),
            Frame::Cancel { ticket, recursive, force } => self.on_cancel(ticket, recursive, force),
            Frame::CancelObject(cancel) => self.node.tell(control::ToNode::CancelWanted(cancel)),
            Frame::ValueWanted { object } => self.on_value_wanted(object),
            Frame::Value { object, value } => self.on_value(object, value),
            Frame::Sought { object } => self.on_sought(object),
            Frame::Known { object } => self.on_known(object),
            Frame::Unknown { object } => self.on_unknown(object),
            Frame::Released { object, count } => self.on_released(object, count),
            Frame::HostActor { spec, arguments, incarnation } => {
                self.await_program(ProgramWork::Actor { spec, arguments, incarnation });
            }
            Frame::ActorStarted { actor, incarnation } => self.on_actor_started(actor, incarnation),
            Frame::ActorEnded { actor, incarnation, failure } => {
                self.on_actor_ended(actor, incarnation, failure);
            }
            Frame::ActorLost { actor, incarnation, cause } => self.on_actor_lost(actor, incarnation, cause),
            Frame::EndActor { actor, now } => self.on_end_actor(actor, now),
            Frame::KillActor { actor, restart } => self.on_kill_actor(actor, restart),
            Frame::ActorAway { actor, away } => self.on_actor_away(actor, away),
            Frame::ActorBack { actor } => self.on_actor_back(actor),
            Frame::ActorGone { actor, failure } => self.on_actor_gone(actor, failure),
            Frame::ActorSought { actor } => self.on_actor_sought(actor),
            Frame::ActorKnown { actor } => self.on_actor_known(actor),
            Frame::ActorInherited { actor } => self.on_actor_inherited(actor),
            Frame::ActorReleased { actor, count } => self.on_actor_released(actor, count),
            // The shell deals with these.
            Frame::Asked { .. } | Frame::Told { .. } | Frame::Listening { .. } | Frame::Printed { .. } => {}
        }
    }

    /// A task of the other side, whose program is here, and whose arguments were imported.
    pub(super) fn on_task(&mut self, ticket: Ticket, shape: &Arc<Shape>, call: &PeerCall) {
        let known = self.known_returns(call);
        match self.node.submit(ticket, call, shape) {
            Ok(key) => self.add_received(ticket, key, None, call, known),
            Err(error) => {
                // The references in its arguments are held once, and released.
                drop(self.node.arguments(&call.arguments));
                match error {
                    SubmitError::NoQueue => self.unqueued.push_back((self.now, ticket)),
                    SubmitError::Failed(problem) => self.refuse_task(ticket, FailureKind::Store, problem),
                }
            }
        }
    }

    /// A task of the other side cannot run here.
    pub(super) fn refuse_task(&mut self, ticket: Ticket, kind: FailureKind, problem: String) {
        let value = PeerValue::Failed(Failure::new(kind, problem));
        self.send(Frame::Returned { ticket, index: 0, value: value.fitting() });
    }

    fn on_returned(&mut self, ticket: Ticket, index: u32, value: PeerValue) {
        let Some(sent) = self.sent.get_mut(&ticket) else { return self.release_value(&value) };
        sent.returns_left = sent.returns_left.saturating_sub(1);
        let done = sent.returns_left == 0 || matches!(value, PeerValue::Failed(_));
        let (from, key, about) = (sent.from, sent.key, sent.about(done));
        let kind = if sent.streams { MessageKind::StreamEnded } else { MessageKind::Returned };
        if done {
            self.settle_sent(ticket);
        }
        match from {
            Some(from) => self.deliver(from, key, kind, index, value, about),
            None => self.release_value(&value),
        }
    }

    /// No process wants a value from the other side any more: what that has exported with it is released at once.
    fn release_value(&mut self, value: &PeerValue) {
        if self.has_bug(PlantedBug::KeptValues) {
            return;
        }
        let (object, inside) = match value {
            PeerValue::Inline { inside, .. } => (None, inside),
            PeerValue::Stored { object, inside, .. } => (Some(object), inside),
            PeerValue::Failed(_) => return,
        };
        if let Some(&object) = object {
            self.send(Frame::Released { object, count: 1 });
        }
        self.release_inside(inside);
    }

    /// The same, for what is inside a value.
    pub(super) fn release_inside(&mut self, inside: &Inside) {
        for &object in &inside.objects {
            self.send(Frame::Released { object, count: 1 });
        }
        for &actor in &inside.actors {
            self.send(Frame::ActorReleased { actor, count: 1 });
        }
    }

    fn on_stream_ended(&mut self, ticket: Ticket, index: u32, failure: Option<Failure>) {
        let sent = self.settle_sent(ticket);
        let Some((from, sent)) = sent.and_then(|sent| Some((sent.from?, sent))) else { return };
        let (form, bytes) = match failure {
            Some(failure) => (ValueForm::Failed, control::encode(&failure)),
            None => (ValueForm::Inline, Vec::new()),
        };
        let message = answer_message(MessageKind::StreamEnded, form, false, index, sent.key);
        self.post(from, message, bytes, sent.about(true));
    }

    /// Gives a value from the other side to the local process that waits for it.
    fn deliver(
        &mut self,
        to: ProcessSlot,
        key: TaskKey,
        kind: MessageKind,
        index: u32,
        value: PeerValue,
        about: About,
    ) {
        let message = |form, contains| answer_message(kind, form, contains, index, key);
        match value {
            PeerValue::Inline { bytes, inside, .. } if inside.is_empty() => {
                self.post(to, message(ValueForm::Inline, false), bytes, about);
            }
            PeerValue::Inline { object, bytes, inside } => {
                self.contain(object, to, inside);
                let payload = payload_with_references(object, &bytes);
                self.post(to, message(ValueForm::Inline, true), payload, about);
            }
            PeerValue::Stored { object, bytes, inside } => {
                match self.node.import(object, bytes, to, true) {
                    Ok(entry) => {
                        let contains = !inside.is_empty();
                        self.contain(object, to, inside);
                        let stored = Stored { object, entry };
                        let bytes = stored.payload();
                        self.post(to, message(ValueForm::Stored, contains), bytes, about);
                    }
                    Err(error) => {
                        // The node releases the object itself.
                        self.release_inside(&inside);
                        let failure = Failure::new(FailureKind::Store, error);
                        self.post(to, message(ValueForm::Failed, false), control::encode(&failure), about);
                    }
                }
            }
            PeerValue::Failed(failure) => {
                self.post(to, message(ValueForm::Failed, false), control::encode(&failure), about);
            }
        }
    }

    fn tell_producer(&mut self, ticket: Ticket, kind: MessageKind, index: u32) {
        let Some(Received { key, producer: Some(producer), .. }) = self.received.get(ticket) else { return };
        let (message, producer) = (answer_message(kind, ValueForm::Inline, false, index, *key), *producer);
        self.post(producer, message, Vec::new(), About::Nothing);
    }
}
