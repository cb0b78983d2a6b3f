//! What the daemons of two nodes say to each other, over a link that keeps the order.
//!
//! Each side stands for its node. A *ticket* names a task or call, among those that its sender has sent over this
//! link. Counts of references: a side that names an object to the other holds it until the other has released it as
//! often as it was named.

use crate::actors::{ActorSpec, Away};
use crate::admin::{LogLine, NodeAnswer, NodeQuestion};
use crate::failure::{DeathCause, Failure, FailureKind};
use crate::ids::{ActorId, FunctionId, ObjectId, ProgramId, ShapeId, TaskId};
use crate::program::ProgramSpec;
use crate::resources::Shape;
use crate::{control, limits};
use serde::{Deserialize, Serialize};

/// A task or call that was sent over a link, by its sender's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// A value on its way to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerValue {
    /// The encoded value, with what is inside it.
    Inline {
        /// The object that it is the value of.
        object: ObjectId,
        /// The bytes.
        bytes: Vec<u8>,
        /// References inside.
        inside: Inside,
    },
    /// In the sender's object store: it is copied when somebody wants to read it.
    Stored {
        /// The object that it is the value of.
        object: ObjectId,
        /// Its size.
        bytes: u64,
        /// References inside.
        inside: Inside,
    },
    /// There is none.
    Failed(Failure),
}

/// The references inside a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Objects.
    pub objects: Vec<ObjectId>,
    /// Actors.
    pub actors: Vec<ActorId>,
}

impl Inside {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.objects.len() + self.actors.len()
    }
}

/// One argument of a task or call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerArgument {
    /// Its encoded value, with what is inside it.
    Value {
        /// The bytes.
        bytes: Vec<u8>,
        /// References inside.
        inside: Inside,
    },
    /// The value of an object that the sender knows.
    Object(ObjectId),
}

/// What a task or call is, whatever it is called on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerCall {
    /// The task.
    pub task: TaskId,
    /// What to run.
    pub function: FunctionId,
    /// How often it was started before.
    pub attempt: u32,
    /// How far it may be ahead of its consumer, if it streams; else 0.
    pub stream_ahead: u32,
    /// How many values it returns.
    pub returns: u32,
    /// Which of the things that the function does, if it does several.
    pub kind: u32,
    /// What it is given.
    pub arguments: Vec<PeerArgument>,
}

/// One message over a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// What the sender means by this number of a shape.
    Shape {
        /// The number.
        shape: ShapeId,
        /// The shape.
        definition: Shape,
    },
    /// What is this program? Answer: [`Frame::Program`], and [`Frame::ProgramPart`]s if it has an executable.
    ProgramWanted {
        /// The program.
        program: ProgramId,
    },
    /// What a program is, or why that cannot be said. The parts of its executable follow.
    Program {
        /// The program.
        program: ProgramId,
        /// What it is.
        spec: Result<ProgramSpec, String>,
    },
    /// Some bytes of a program's executable, in order.
    ProgramPart {
        /// The program.
        program: ProgramId,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether these are the last.
        last: bool,
    },
    /// Run this task.
    Task {
        /// Names it in answers.
        ticket: Ticket,
        /// What it needs.
        shape: ShapeId,
        /// What it is.
        call: PeerCall,
    },
    /// Call this actor, which lives on the receiver's side, or which the receiver knows how to reach.
    Call {
        /// Names it in answers.
        ticket: Ticket,
        /// The actor.
        actor: ActorId,
        /// The group of its calls that it is counted in.
        group: u16,
        /// How many [`Frame::ActorAway`] the sender has heard: one that it had not heard has ended this call.
        aways: u64,
        /// What it is.
        call: PeerCall,
    },
    /// Return value number `index` of a task or call; or a failure in the place of all.
    Returned {
        /// The task.
        ticket: Ticket,
        /// Which.
        index: u32,
        /// The value.
        value: PeerValue,
    },
    /// Item number `index` of a streaming task or call.
    StreamItem {
        /// The task.
        ticket: Ticket,
        /// Which.
        index: u32,
        /// The value.
        value: PeerValue,
    },
    /// A streaming task or call has given all its `index` items, or has failed.
    StreamEnded {
        /// The task.
        ticket: Ticket,
        /// How many there were.
        index: u32,
        /// Why it failed, if it did.
        failure: Option<Failure>,
    },
    /// The process of a task died, with what the task had not returned; or the task is handed back, since it would not
    /// begin soon.
    TaskLost {
        /// The task.
        ticket: Ticket,
        /// How the process died; nothing if the task has not begun.
        cause: Option<DeathCause>,
    },
    /// The consumer of a stream has taken so many items.
    StreamCredit {
        /// The task.
        ticket: Ticket,
        /// How many.
        index: u32,
    },
    /// Nobody wants the items of a stream any more.
    StreamClosed {
        /// The task.
        ticket: Ticket,
    },
    /// End a task or call.
    Cancel {
        /// The task.
        ticket: Ticket,
        /// Whether what it has submitted is cancelled too.
        recursive: bool,
        /// Whether to kill its process.
        force: bool,
    },
    /// A borrower on my node cancels the task that makes an object which you have exported to me.
    CancelObject(control::ObjectCancel),

    /// Say the value of this object, which you have named to me.
    ValueWanted {
        /// The object.
        object: ObjectId,
    },
    /// The value of an object.
    Value {
        /// The object.
        object: ObjectId,
        /// Its value.
        value: PeerValue,
    },
    /// Do you know this object? Answer: [`Frame::Known`] or [`Frame::Unknown`].
    Sought {
        /// The object.
        object: ObjectId,
    },
    /// I know this object, and hold it for you.
    Known {
        /// The object.
        object: ObjectId,
    },
    /// I do not know this object.
    Unknown {
        /// The object.
        object: ObjectId,
    },
    /// Nobody here knows this object any more, which you have named so often.
    Released {
        /// The object.
        object: ObjectId,
        /// How often it was named.
        count: u64,
    },

    /// Construct this actor.
    HostActor {
        /// What to construct; the arguments are in `arguments`.
        spec: Box<ActorSpec>,
        /// What its constructor is given.
        arguments: Vec<PeerArgument>,
        /// Which life.
        incarnation: u32,
    },
    /// The actor takes calls.
    ActorStarted {
        /// The actor.
        actor: ActorId,
        /// Which life.
        incarnation: u32,
    },
    /// The actor has ended by itself, or could not be constructed.
    ActorEnded {
        /// The actor.
        actor: ActorId,
        /// Which life.
        incarnation: u32,
        /// Why.
        failure: Failure,
    },
    /// The actor's process died; or the actor is handed back, since it would not be constructed soon.
    ActorLost {
        /// The actor.
        actor: ActorId,
        /// Which life.
        incarnation: u32,
        /// How; nothing if that life has not begun.
        cause: Option<DeathCause>,
    },
    /// End an actor that you host for me: after the calls it has, or now.
    EndActor {
        /// The actor.
        actor: ActorId,
        /// At once.
        now: bool,
    },
    /// End this actor now, which you own.
    KillActor {
        /// The actor.
        actor: ActorId,
        /// Whether it may be started again.
        restart: bool,
    },
    /// This actor, which I have named to you, takes no calls for now. Those that I have not answered are lost.
    ActorAway {
        /// The actor.
        actor: ActorId,
        /// Why, and what that means for calls.
        away: Away,
    },
    /// It takes calls again.
    ActorBack {
        /// The actor.
        actor: ActorId,
    },
    /// This actor, which I have named to you, is gone for good, with the calls that I have not answered.
    ActorGone {
        /// The actor.
        actor: ActorId,
        /// Why.
        failure: Failure,
    },
    /// I want to know this actor, which you own. Answer: [`Frame::ActorKnown`].
    ActorSought {
        /// The actor.
        actor: ActorId,
    },
    /// I name this actor to you by this, and hold it for you.
    ActorKnown {
        /// The actor.
        actor: ActorId,
    },
    /// The same, and I own it now: the node is no member any more that owned it.
    ActorInherited {
        /// The actor.
        actor: ActorId,
    },
    /// Nobody here holds a handle of this actor any more, which you have named so often.
    ActorReleased {
        /// The actor.
        actor: ActorId,
        /// How often it was named.
        count: u64,
    },

    /// A question for a command line. Answer: [`Frame::Told`].
    Asked {
        /// Matches the answer.
        question: u64,
        /// What.
        what: NodeQuestion,
    },
    /// The answer to [`Frame::Asked`].
    Told {
        /// Matches the question.
        question: u64,
        /// What.
        answer: NodeAnswer,
    },
    /// The programs of which the sender has drivers that want to be told what workers print: these, and no others.
    Listening {
        /// The programs.
        programs: Vec<ProgramId>,
    },
    /// Workers of a program have printed this.
    Printed {
        /// The program.
        program: ProgramId,
        /// The lines, oldest first.
        lines: Vec<LogLine>,
        /// How many before them were not sent, since there was no room.
        missed: u64,
    },
}

impl Frame {
    /// What is wrong with a frame that no node sends: its receiver could not pass it on.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Task { call, .. } | Self::Call { call, .. } => call.check(),
            Self::Returned { value, .. } | Self::StreamItem { value, .. } | Self::Value { value, .. } => {
                value.check()
            }
            Self::StreamEnded { failure: Some(failure), .. } => check_failure(failure),
            _ => Ok(()),
        }
    }
}

impl PeerCall {
    /// What is wrong with a call that cannot be sent: its receiver could not pass it on.
    pub fn check(&self) -> Result<(), &'static str> {
        let bytes = |argument: &PeerArgument| match argument {
            PeerArgument::Value { bytes, .. } => bytes.len(),
            PeerArgument::Object(_) => size_of::<ObjectId>(),
        };
        if self.returns > limits::TASK_RETURNS_MAX {
            return Err("a call has more return values than there may be");
        }
        let sum: usize = self.arguments.iter().map(bytes).sum();
        if sum > limits::TASK_PAYLOAD_BYTES_MAX {
            return Err("the arguments of a call are too large");
        }
        Ok(())
    }
}

impl PeerValue {
    /// The value as it can be sent: a failure in the place of one that is too large.
    pub fn fitting(self) -> Self {
        match (self.check(), self) {
            (Ok(()), value) => value,
            (Err(_), Self::Failed(failure)) => Self::Failed(fitting(failure)),
            (Err(problem), _) => Self::Failed(Failure::new(FailureKind::Codec, problem)),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Inline { bytes, .. } if bytes.len() > limits::PEER_VALUE_BYTES_MAX => {
                Err("a value is too large for a message")
            }
            Self::Stored { inside, .. } if inside.len() > limits::PEER_REFERENCES_MAX => {
                Err("a value has more references inside than there may be")
            }
            Self::Inline { .. } | Self::Stored { .. } => Ok(()),
            Self::Failed(failure) => check_failure(failure),
        }
    }
}

/// A failure as it can be sent: without its cause, and with the beginning of what it says, if it is too large.
pub fn fitting(failure: Failure) -> Failure {
    if check_failure(&failure).is_ok() {
        return failure;
    }
    let end = failure.message.floor_char_boundary(limits::PEER_VALUE_BYTES_MAX / 4);
    let shorter = Failure { message: failure.message[..end].to_owned(), cause: None, ..failure };
    match check_failure(&shorter) {
        Ok(()) => shorter,
        Err(_) => Failure::new(FailureKind::Codec, shorter.message),
    }
}

fn check_failure(failure: &Failure) -> Result<(), &'static str> {
    match control::encode(failure).len() > limits::PEER_VALUE_BYTES_MAX {
        true => Err("a failure is too large for a message"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_could_not_take_is_refused() {
        let call = |returns, bytes: usize| {
            let arguments = vec![PeerArgument::Value { bytes: vec![0; bytes], inside: Inside::default() }];
            let (task, function) = (TaskId::default(), FunctionId::default());
            let call = PeerCall { task, function, attempt: 0, stream_ahead: 0, returns, kind: 0, arguments };
            Frame::Task { ticket: Ticket(1), shape: ShapeId(1), call }
        };
        assert_eq!(call(limits::TASK_RETURNS_MAX, limits::TASK_PAYLOAD_BYTES_MAX).check(), Ok(()));
        assert!(call(u32::MAX, 0).check().is_err());
        assert!(call(1, limits::TASK_PAYLOAD_BYTES_MAX + 1).check().is_err());

        let returned = |value| Frame::Returned { ticket: Ticket(1), index: 0, value };
        let bytes = vec![0; limits::PEER_VALUE_BYTES_MAX + 1];
        let (object, inside) = (ObjectId::default(), Inside::default());
        assert!(returned(PeerValue::Inline { object, bytes, inside }).check().is_err());
        let stored = |count| {
            let objects = vec![ObjectId::from_words([u64::MAX; 2]); count];
            let inside = Inside { objects, actors: Vec::new() };
            returned(PeerValue::Stored { object, bytes: u64::MAX, inside })
        };
        let largest = stored(limits::PEER_REFERENCES_MAX);
        assert_eq!(largest.check(), Ok(()));
        assert!(control::encode(&largest).len() <= limits::FRAME_BYTES_MAX);
        assert!(stored(limits::PEER_REFERENCES_MAX + 1).check().is_err());
        let long = Failure::new(FailureKind::Lost, "x".repeat(limits::PEER_VALUE_BYTES_MAX));
        assert!(returned(PeerValue::Failed(long.clone())).check().is_err());
        let shorter = PeerValue::Failed(long).fitting();
        assert!(matches!(&shorter, PeerValue::Failed(failure) if failure.kind == FailureKind::Lost));
        assert!(returned(shorter).check().is_ok());
        assert!(returned(PeerValue::Failed(Failure::new(FailureKind::Codec, "x"))).check().is_ok());
    }
}
