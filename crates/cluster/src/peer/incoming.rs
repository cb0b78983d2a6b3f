//! What the other node says.

use super::Peer;
use super::programs::PutOff;
use super::received::Received;
use super::unsent::About;
use aktis_protocol::hot::{MessageKind, Stored, ValueForm};
use aktis_protocol::peer::{Frame, Inside, PeerCall, PeerValue, Ticket};
use aktis_protocol::{Failure, FailureKind, ProcessSlot, Shape, Strategy, TaskKey, control};
use aktis_runtime::Error;
use aktis_runtime::bridge::Bridge;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

impl Peer {
    pub(super) fn on_frame(&mut self, frame: Frame) {
        match frame {
            Frame::ProgramWanted { program } => self.on_program_wanted(program),
            Frame::Program { program, spec } => self.on_program(program, spec),
            Frame::ProgramPart { program, bytes, last } => self.on_program_part(program, &bytes, last),
            Frame::Shape { shape, definition } => {
                // It was chosen for this node: where else it might go is settled.
                let here = Shape { strategy: Strategy::Default, near: None, ..definition };
                self.shapes.insert(shape, here.into());
            }
            Frame::Task { ticket, shape, call } => match self.shapes.get(&shape).cloned() {
                Some(shape) => self.put_off(PutOff::Task { ticket, shape, call }),
                None => self.refuse_task(ticket, FailureKind::Store, "its shape is not known".to_owned()),
            },
            Frame::Call { ticket, actor, group, aways, call } => {
                self.note_arguments(&call.arguments);
                match self.actor_for(actor, aways) {
                    Some(handle) => {
                        let named = self.named_returns(&call);
                        let key = self.bridge.call(ticket, &handle, group, &call);
                        self.note_received(ticket, key, Some(actor), &call, named);
                    }
                    // The other side hears that the actor is gone or was away, and has given this call up by then. What it
                    // names is held, and let go.
                    None => drop(self.bridge.arguments(&call.arguments)),
                }
            }
            Frame::Returned { ticket, index, value } => self.on_returned(ticket, index, value),
            Frame::StreamItem { ticket, index, value } => {
                let sent = self.sent.get(&ticket);
                match sent.and_then(|sent| Some((sent.from?, sent.key, sent.about(false)))) {
                    Some((from, key, about)) => {
                        self.deliver(from, key, MessageKind::StreamItem, index, value, about);
                    }
                    None => self.turn_down(&value),
                }
            }
            Frame::StreamEnded { ticket, index, failure } => self.on_stream_ended(ticket, index, failure),
            Frame::TaskLost { ticket, cause } => {
                if let Some(sent) = self.settle_sent(ticket) {
                    if let (None, Some((shape, _))) = (&cause, sent.lease) {
                        self.return_leases(shape);
                    }
                    self.lose(&sent, cause);
                }
            }
            Frame::StreamCredit { ticket, index } => {
                self.tell_producer(ticket, MessageKind::StreamCredit, index)
            }
            Frame::StreamClosed { ticket } => self.tell_producer(ticket, MessageKind::StreamClosed, 0),
            Frame::Cancel { ticket, recursive, force } => self.on_cancel(ticket, recursive, force),
            Frame::ValueWanted { object } => self.on_value_wanted(object),
            Frame::Value { object, value } => self.on_value(object, value),
            Frame::Sought { object } => self.on_sought(object),
            Frame::Known { object } => self.on_known(object),
            Frame::Unknown { object } => self.on_unknown(object),
            Frame::Released { object, count } => self.on_released(object, count),
            Frame::HostActor { spec, arguments, incarnation } => {
                self.put_off(PutOff::Actor { spec, arguments, incarnation });
            }
            Frame::ActorStarted { actor, incarnation } => self.on_actor_started(actor, incarnation),
            Frame::ActorEnded { actor, incarnation, failure } => {
                self.on_actor_ended(actor, incarnation, failure);
            }
            Frame::ActorLost { actor, incarnation, cause } => self.on_actor_lost(actor, incarnation, cause),
            Frame::EndActor { actor, now } => self.on_end_actor(actor, now),
            Frame::KillActor { actor, restart } => self.on_kill_actor(actor, restart),
            Frame::ActorAway { actor, reason } => self.on_actor_away(actor, reason),
            Frame::ActorBack { actor } => self.on_actor_back(actor),
            Frame::ActorGone { actor, failure } => self.on_actor_gone(actor, failure),
            Frame::ActorSought { actor } => self.on_actor_sought(actor),
            Frame::ActorKnown { actor } => self.on_actor_known(actor),
            Frame::ActorInherited { actor } => self.on_actor_inherited(actor),
            Frame::ActorReleased { actor, count } => self.on_actor_released(actor, count),
            // They do not come this way.
            Frame::Asked { .. } | Frame::Told { .. } | Frame::Listening { .. } | Frame::Printed { .. } => {}
        }
    }

    /// A task of the other side, whose program is here, and whose arguments were noted.
    pub(super) fn on_task(&mut self, ticket: Ticket, shape: &Arc<Shape>, call: &PeerCall) {
        let named = self.named_returns(call);
        match self.bridge.submit(ticket, call, shape) {
            Ok(key) => self.note_received(ticket, key, None, call, named),
            Err(error) => {
                // What it names is held, and let go.
                drop(self.bridge.arguments(&call.arguments));
                match error {
                    Error::Failed(failure) if failure.kind == FailureKind::Refused => {
                        self.full.push_back((Instant::now(), ticket));
                    }
                    error => self.refuse_task(ticket, FailureKind::Store, error.to_string()),
                }
            }
        }
    }

    /// A task of the other side cannot run here.
    pub(super) fn refuse_task(&self, ticket: Ticket, kind: FailureKind, problem: String) {
        let value = PeerValue::Failed(Failure::new(kind, problem));
        self.wire.send(&Frame::Returned { ticket, index: 0, value: value.fitting() });
    }

    fn on_returned(&mut self, ticket: Ticket, index: u32, value: PeerValue) {
        let Some(sent) = self.sent.get_mut(&ticket) else { return self.turn_down(&value) };
        sent.returns_left = sent.returns_left.saturating_sub(1);
        let done = sent.returns_left == 0 || matches!(value, PeerValue::Failed(_));
        let (from, key, about) = (sent.from, sent.key, sent.about(done));
        let kind = if sent.streams { MessageKind::StreamEnded } else { MessageKind::Returned };
        if done {
            self.settle_sent(ticket);
        }
        match from {
            Some(from) => self.deliver(from, key, kind, index, value, about),
            None => self.turn_down(&value),
        }
    }

    /// Nobody wants a value from the other side any more: what it has named is released at once.
    fn turn_down(&self, value: &PeerValue) {
        let (object, inside) = match value {
            PeerValue::Inline { inside, .. } => (None, inside),
            PeerValue::Stored { object, inside, .. } => (Some(object), inside),
            PeerValue::Failed(_) => return,
        };
        if let Some(&object) = object {
            self.wire.send(&Frame::Released { object, count: 1 });
        }
        self.turn_down_inside(inside);
    }

    /// The same, for what is inside a value.
    pub(super) fn turn_down_inside(&self, inside: &Inside) {
        for &object in &inside.objects {
            self.wire.send(&Frame::Released { object, count: 1 });
        }
        for &actor in &inside.actors {
            self.wire.send(&Frame::ActorReleased { actor, count: 1 });
        }
    }

    fn on_stream_ended(&mut self, ticket: Ticket, index: u32, failure: Option<Failure>) {
        let sent = self.settle_sent(ticket);
        let Some((from, sent)) = sent.and_then(|sent| Some((sent.from?, sent))) else { return };
        let (form, bytes) = match failure {
            Some(failure) => (ValueForm::Failed, control::encode(&failure)),
            None => (ValueForm::Inline, Vec::new()),
        };
        let message = Bridge::answer_message(MessageKind::StreamEnded, form, false, index, sent.key);
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
        let message = |form, contains| Bridge::answer_message(kind, form, contains, index, key);
        match value {
            PeerValue::Inline { bytes, inside, .. } if inside.is_empty() => {
                self.post(to, message(ValueForm::Inline, false), bytes, about);
            }
            PeerValue::Inline { object, bytes, inside } => {
                self.contain(object, to, inside);
                let payload = [object.as_bytes(), &bytes].concat();
                self.post(to, message(ValueForm::Inline, true), payload, about);
            }
            PeerValue::Stored { object, bytes, inside } => {
                match self.bridge.import(object, bytes, to, true) {
                    Ok(entry) => {
                        let contains = !inside.is_empty();
                        self.contain(object, to, inside);
                        let stored = Stored { object, entry };
                        let bytes = stored.as_bytes().to_vec();
                        self.post(to, message(ValueForm::Stored, contains), bytes, about);
                    }
                    Err(error) => {
                        // The node gives the object itself back.
                        self.turn_down_inside(&inside);
                        let failure = Failure::new(FailureKind::Store, error.to_string());
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
        let (message, producer) =
            (Bridge::answer_message(kind, ValueForm::Inline, false, index, *key), *producer);
        self.post(producer, message, Vec::new(), About::Nothing);
    }
}
