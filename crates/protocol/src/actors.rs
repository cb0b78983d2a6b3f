//! Actors, as nodes speak of them.

use crate::actor_log::LogSpec;
use crate::failure::Failure;
use crate::groups::GroupPlace;
use crate::ids::{ActorId, FunctionId, ProcessSlot, ProgramId};
use crate::placement::{Near, Strategy};
use crate::resources::Resources;
use serde::{Deserialize, Serialize};

/// How the namespaces of jobs begin that were given none: such a namespace is a random number, which follows.
const PRIVATE_NAMESPACE: &str = "~";
/// The digits of the random number.
const PRIVATE_DIGITS: usize = 32;

/// Whether an actor's name is one of a namespace that a job did not choose, but was given: only that job is to find it.
///
/// ```
/// use aktis_protocol::actors::is_private;
/// assert!(is_private("~00112233445566778899aabbccddeeff/counter"));
/// assert!(!is_private("shop/counter") && !is_private("~home/counter"));
/// ```
pub fn is_private(name: &str) -> bool {
    let namespace = name.strip_prefix(PRIVATE_NAMESPACE).and_then(|rest| rest.split_once('/'));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    namespace.is_some_and(|(number, _)| number.len() == PRIVATE_DIGITS && is_number(number))
}

/// Where an actor is, as the node tells those who hold a handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorPlace {
    /// Not constructed yet, or being restarted: calls wait. The text says for what.
    Pending(String),
    /// In this process; `incarnation` counts its lives.
    Alive {
        /// The process.
        process: ProcessSlot,
        /// 0 for the first life.
        incarnation: u32,
        /// Whether it remembers its state and its calls: after a restart, callers send unanswered calls again.
        remembers: bool,
    },
    /// About to live elsewhere: calls wait. It has answered every call that it began, so no other has begun.
    Moved(String),
    /// Gone for good.
    Dead(Failure),
}

/// Why an actor owned by another node takes no calls for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// Why.
    pub reason: String,
    /// Whether no call without an answer has begun; see [`ActorPlace::Moved`].
    pub is_moved: bool,
}

/// How a process ends an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// After the calls it has.
    AfterCalls,
    /// At once, dropping the calls it has.
    Now,
    /// After the calls it has. Later ones get no answer: their callers send them to where it lives next.
    ToMove,
}

/// What the node must know in order to start an actor, and to start it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorSpec {
    /// The actor.
    pub actor: ActorId,
    /// The program whose workers it lives in; a process that names none means its own.
    pub program: ProgramId,
    /// Its constructor.
    pub constructor: FunctionId,
    /// The constructor's encoded arguments.
    pub arguments: Vec<u8>,
    /// The type's name, for people.
    pub type_name: String,
    /// A name under which others find it.
    pub name: Option<String>,
    /// Resources held for its whole life.
    pub resources: Resources,
    /// Resources that must be free when its place is chosen, and are not held; of those held as well, the larger
    /// amount counts.
    pub placement: Resources,
    /// How its process has to be set up before it is constructed; only the process understands it.
    pub environment: String,
    /// Whether it wants a process of its own.
    pub isolated: bool,
    /// Whether it lives until the session ends, even without handles.
    pub detached: bool,
    /// Whether it ends with the process that created it, whoever else holds a handle.
    pub ends_with_creator: bool,
    /// Whether it is not to be placed before its creator says that the arguments of the constructor are ready.
    pub awaits_arguments: bool,
    /// How often it may be started again after its process died; [`FOR_EVER`](crate::limits::FOR_EVER) is no limit.
    pub restarts_max: u32,
    /// For one that lives here for another node: whether that node lets it end here, to live elsewhere.
    pub may_move: bool,
    /// How often it lived before, as far as its creator knows.
    pub lives: u32,
    /// The placement group whose resources it uses; the node's own if none is named.
    pub group: Option<GroupPlace>,
    /// On which nodes it may live, and which of them it prefers.
    pub strategy: Strategy,
    /// Where most of what its constructor reads lies, if that is much.
    pub near: Option<Near>,
    /// Those with a higher one get a place first; 0 is the usual one.
    pub priority: i32,
    /// How many of its calls may run at once.
    pub concurrency: u32,
    /// Groups of its calls that are counted by themselves: the number of each, and how many may run at once.
    pub groups: Vec<(u16, u32)>,
    /// Whether its calls all run on the main thread of its process, however many run at once.
    pub looped: bool,
    /// What its creator wants those to know who find it by its name.
    pub details: Vec<u8>,
    /// How it remembers its state over restarts; without it, a restart begins with the constructor.
    pub log: Option<LogSpec>,
    /// What the node that it lives on needs to have it as their owner one day.
    pub takeover: Option<Box<Takeover>>,
}

/// What comes with a detached actor to a node where it lives for another one: by this it goes on when that has left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takeover {
    /// Its name.
    pub name: Option<String>,
    /// How often it may be started again in all.
    pub restarts_max: u32,
    /// How often of that from now on.
    pub restarts_left: u32,
    /// On which nodes it may live, and which of them it prefers.
    pub strategy: Strategy,
}

/// An actor that was found by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundActor {
    /// The actor.
    pub actor: ActorId,
    /// The name of its type.
    pub type_name: String,
    /// What its creator said about it.
    pub details: Vec<u8>,
    /// Whether it is detached, and lives on another node than the one that owns it: that has it in its own one day.
    pub abroad: bool,
}
