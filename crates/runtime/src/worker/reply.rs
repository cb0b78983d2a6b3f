//! Answers: from an encoded result to the submitter's memory.

use crate::codec::{Encoded, Value};
use crate::error::Error;
use crate::inbound::Arrived;
use crate::objects::{Placed, inner_references};
use crate::runtime::Inner;
use crate::worker::Executor;
use aktis_protocol::control::{ToNode, encode};
use aktis_protocol::hot::{Message, MessageKind, Stored, ValueForm};
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot, TaskKey};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// An answer that is ready to be sent: large values are in the store already.
pub(crate) struct Answer {
    body: Body,
    contains: bool,
    object: ObjectId,
}

enum Body {
    Nothing,
    Inline(Encoded),
    Stored(Stored),
    Failed(Vec<u8>),
}

/// A failure longer than this travels without the user's encoded error.
const FAILURE_BYTES_MAX: usize = 64 * 1024;
/// References named in one message to the node.
const REFERENCES_PER_MESSAGE: usize = 2000;

impl Answer {
    /// An answer without a value.
    pub(crate) fn nothing(object: ObjectId) -> Self {
        Self { body: Body::Nothing, contains: false, object }
    }

    /// Places a result where its holder, the process `to`, finds it.
    pub(crate) fn new(
        runtime: &Arc<Inner>,
        to: ProcessSlot,
        object: ObjectId,
        result: Result<Encoded, Failure>,
    ) -> Self {
        let value = match result {
            Ok(value) => value,
            Err(failure) => return Self::failed(object, failure),
        };
        let contains = value.contains();
        if contains {
            runtime.tell_contents(object, to, &value);
        }
        let body = match runtime.place(object, to, value) {
            Ok(Placed::Inline(value)) => Body::Inline(value),
            Ok(Placed::Stored(stored)) => Body::Stored(stored),
            Err(error) => return Self::failed(object, store_failure(error)),
        };
        Self { body, contains, object }
    }

    pub(crate) fn failed(object: ObjectId, mut failure: Failure) -> Self {
        failure.pid = failure.pid.or(Some(std::process::id()));
        let mut bytes = encode(&failure);
        if bytes.len() > FAILURE_BYTES_MAX {
            if let FailureKind::Returned { encoded, .. } = &mut failure.kind {
                encoded.clear();
            }
            let end = failure.message.floor_char_boundary(FAILURE_BYTES_MAX / 2);
            failure.message.truncate(end);
            failure.cause = None;
            bytes = encode(&failure);
        }
        Self { body: Body::Failed(bytes), contains: false, object }
    }

    /// The value, if it is one that needs nobody to be told.
    pub(crate) fn as_plain(&self) -> Option<Value> {
        match &self.body {
            Body::Inline(value) if !self.contains => value.as_plain().map(Value::inline),
            _ => None,
        }
    }

    /// Sends the answer.
    pub(crate) fn send(
        self,
        runtime: &Arc<Inner>,
        to: ProcessSlot,
        kind: MessageKind,
        key: TaskKey,
        index: u32,
    ) {
        let whole;
        let (form, bytes): (ValueForm, &[u8]) = match &self.body {
            Body::Nothing => (ValueForm::Inline, &[]),
            Body::Inline(value) => match value.as_plain() {
                Some(bytes) => (ValueForm::Inline, bytes),
                None => {
                    whole = value.to_vec();
                    (ValueForm::Inline, &whole)
                }
            },
            Body::Stored(stored) => (ValueForm::Stored, stored.as_bytes()),
            Body::Failed(bytes) => (ValueForm::Failed, bytes),
        };
        let id_first = self.contains && form == ValueForm::Inline;
        let prefix: &[u8] = if id_first { self.object.as_bytes() } else { &[] };
        if to == runtime.me {
            let joined;
            let payload = match prefix {
                [] => bytes,
                _ => {
                    joined = [prefix, bytes].concat();
                    &joined
                }
            };
            let contains = self.contains;
            let arrived = Arrived { from: to, kind, key, index, form, contains, payload };
            return runtime.answer_locally(&arrived);
        }
        let (form, contains) = (form as u8, u8::from(self.contains));
        let message = Message { kind: kind as u8, form, contains, reserved: 0, index, key };
        while !runtime.push_message(to, &message, &[prefix, bytes]) {
            if !runtime.control.is_alive(to) {
                return;
            }
            // The receiver is behind, or sleeps and is owed a wake-up. It may itself wait for room towards this process: take
            // that in.
            runtime.control.remind(to);
            runtime.flush_outbox();
            if !runtime.drain() {
                std::thread::yield_now();
            }
        }
        if kind == MessageKind::Returned {
            let executor = runtime.executor.as_ref();
            let later = || executor.is_some_and(|executor| executor.owes_wake_up(runtime, to));
            runtime.control.notify_unless(to, later);
        } else {
            // What comes next may take its time. If an answer before it has not woken the receiver, this does.
            runtime.control.notify(to);
            Executor::pay(runtime);
        }
    }
}

/// The failure of a result that could not be placed.
fn store_failure(error: Error) -> Failure {
    match error {
        Error::Failed(failure) => (*failure).clone(),
        other => Failure::new(FailureKind::Store, other.to_string()),
    }
}

impl Inner {
    /// Tells the node which references a value holds: they live as long as it does.
    pub(crate) fn tell_contents(&self, container: ObjectId, holder: ProcessSlot, value: &Encoded) {
        let (mut objects, mut actors) = inner_references(value);
        while !objects.is_empty() || !actors.is_empty() {
            let rest_of_objects = objects.split_off(objects.len().min(REFERENCES_PER_MESSAGE));
            let rest_of_actors = actors.split_off(actors.len().min(REFERENCES_PER_MESSAGE));
            self.outbox.push(ToNode::Contains { container, holder, objects, actors });
            (objects, actors) = (rest_of_objects, rest_of_actors);
        }
        self.flush_outbox();
    }
}
