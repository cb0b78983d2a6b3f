//! What a task is, for the runtime: what to run, with what, and where its values go.

use crate::bridge::BridgeQueue;
use crate::codec::{Arguments, Resolved};
use crate::entry::{Entry, Later, Outcome};
use crate::handle::Handle;
use crate::registry::Function;
use crate::standing::Failures;
use crate::stream::StreamState;
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_logic::machine::submitter::Record;
use aktis_protocol::hot::{Stored, TaskHeader};
use aktis_protocol::peer::Ticket;
use aktis_protocol::{Failure, FailureKind, TaskKey};
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// Where a task's return values go.
pub(crate) enum Returns {
    /// To one object.
    One(Weak<Entry>),
    /// To several.
    Several(Box<[Weak<Entry>]>),
    /// To a stream; so many items have come.
    Stream(Weak<StreamState>, u32),
    /// To another node, on whose behalf it was submitted, after so many attempts.
    Foreign(Arc<BridgeQueue>, Ticket, u32),
    /// Nowhere.
    Nothing,
}

/// What a message to an actor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Run a task (not an actor's).
    Task,
    /// Construct the actor.
    Create,
    /// Call a method.
    Call,
    /// End it after the calls before.
    Release,
}

/// What a task is, for the runtime; the machine only carries it.
pub(crate) struct Payload {
    pub(crate) function: Option<&'static Function>,
    pub(crate) arguments: Arguments,
    pub(crate) returns: Returns,
    /// Whose name it bears, if not the function's.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) verb: Verb,
    /// For a call: the group that it is counted in.
    pub(crate) group: u16,
    /// For a task: which of the things that its function does.
    pub(crate) kind: u32,
    /// For a stream: how far ahead it may be. For a creation: how many calls may run at once.
    pub(crate) number: u32,
}

impl Payload {
    /// The creation of an actor that runs `concurrency` calls at once.
    pub(crate) fn creation(constructor: &'static Function, arguments: Arguments, concurrency: u32) -> Self {
        Self {
            function: Some(constructor),
            arguments,
            returns: Returns::Nothing,
            name: None,
            verb: Verb::Create,
            group: 0,
            kind: 0,
            number: concurrency.max(1),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.function.map_or("", |function| function.name))
    }

    /// The bytes of the arguments, with the values of references in their place; nothing if an input has none.
    pub(crate) fn final_bytes(&self) -> Option<Cow<'_, [u8]>> {
        if let Some(bytes) = self.arguments.as_final() {
            return Some(Cow::Borrowed(bytes));
        }
        let handles = self.arguments.handles();
        let resolved = self.arguments.resolve(|index| {
            let handle = handles.get(index)?;
            match handle.entry.outcome()? {
                Outcome::Inline(value) => Some(Resolved::Inline(value)),
                Outcome::Stored { place, .. } => {
                    Some(Resolved::Stored(Stored { object: handle.entry.id, entry: place.get() }))
                }
                Outcome::Failed(_) | Outcome::Refused(_) => None,
            }
        });
        resolved.map(Cow::Owned)
    }

    pub(crate) fn task_header(&self, key: TaskKey, record: &Record<Self>) -> TaskHeader {
        TaskHeader {
            task: record.task(),
            function: self.function.expect("a task has a function").id,
            key,
            attempt: record.attempt(),
            stream_ahead: self.number,
            returns: record.returns(),
            kind: self.kind,
        }
    }

    /// Says which input failed. One that had a value, and could not be made again, is among the last failures.
    pub(crate) fn input_failure(&self, failures: &Failures) -> Failure {
        let handles = self.arguments.handles();
        let first = |handle: &Handle| Some((handle.id(), handle.entry.outcome()?.failure()?));
        let again = |handle: &Handle| Some((handle.id(), (*failures.last_of(handle.id())?).clone()));
        match handles.iter().find_map(first).or_else(|| handles.iter().find_map(again)) {
            Some((_, failure)) if failure.kind == FailureKind::SessionClosed => failure,
            Some((object, failure)) => Failure::of_input(object, failure),
            None => Failure::new(FailureKind::InputFailed, "one of its inputs failed"),
        }
    }
}

impl Returns {
    /// How often the task was sent before it was submitted here.
    pub(crate) fn attempts_before(&self) -> u32 {
        match self {
            Self::Foreign(.., attempts) => *attempts,
            _ => 0,
        }
    }

    /// The entry of one of the objects that values go to, if it is referenced.
    pub(crate) fn entry(&self, index: u32) -> Option<Arc<Entry>> {
        self.slot(index)?.upgrade()
    }

    fn slot(&self, index: u32) -> Option<&Weak<Entry>> {
        match self {
            Self::One(entry) => Some(entry).filter(|_| index == 0),
            Self::Several(entries) => entries.get(index as usize),
            Self::Stream(..) | Self::Foreign(..) | Self::Nothing => None,
        }
    }

    /// One of the values goes to this entry from now on; false if there is no such value.
    pub(crate) fn set_entry(&mut self, index: u32, entry: &Arc<Entry>) -> bool {
        let slot = match self {
            Self::One(slot) if index == 0 => slot,
            Self::Several(slots) if (index as usize) < slots.len() => &mut slots[index as usize],
            _ => return false,
        };
        *slot = Arc::downgrade(entry);
        true
    }

    /// The process that ran the task died, maybe after it had given a return value to the store, held by
    /// this process: the node is told when it is not wanted any more.
    pub(crate) fn hold(&self, later: &mut Later) {
        let entries = match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Several(entries) => entries,
            Self::Stream(stream, _) => {
                if let Some(stream) = stream.upgrade() {
                    stream.forget_producer();
                    later.streams.push(stream);
                }
                &[]
            }
            Self::Foreign(..) | Self::Nothing => &[],
        };
        for entry in entries.iter().filter_map(Weak::upgrade) {
            entry.set_known();
            later.entries.push(entry);
        }
    }

    /// Gives every return that has no value yet this failure.
    pub(crate) fn fail(&self, failure: &Arc<Failure>, later: &mut Later) {
        let mut fail = |entry: &Weak<Entry>| {
            if let Some(entry) = entry.upgrade() {
                entry.resolve(Outcome::Failed(failure.clone()), later);
                later.entries.push(entry);
            }
        };
        match self {
            Self::One(entry) => fail(entry),
            Self::Several(entries) => entries.iter().for_each(fail),
            Self::Stream(stream, _) => {
                if let Some(stream) = stream.upgrade() {
                    stream.fail(failure, later);
                    later.streams.push(stream);
                }
            }
            Self::Foreign(queue, ticket, _) => {
                let failure = (**failure).clone();
                queue.push(LocalEvent::Failed { ticket: *ticket, failure });
            }
            Self::Nothing => {}
        }
    }
}
