//! Names of things: one newtype each, all plain integers.
//!
//! Task ids are derived from their parent's id and a counter, so that re-running a parent names the
//! same children again. An object id is its task's id plus the index of the return value.

use crate::limits;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! small_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
            FromBytes, IntoBytes, Immutable, KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:x})"), self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
    };
}

small_id!(
    /// A remote function or actor constructor: a hash of its path and signature.
    FunctionId(u64)
);
small_id!(
    /// A process of this node, by its place in the shared process table.
    ProcessSlot(u32)
);
small_id!(
    /// A queue of tasks of one shape from one submitting process.
    LaneId(u32)
);
small_id!(
    /// An interned [`Shape`](crate::Shape).
    ShapeId(u32)
);
small_id!(
    /// A grant to run one task of a shape at a time.
    LeaseId(u64)
);
small_id!(
    /// One life of an engine, from `init` to `shutdown`.
    SessionId(u64)
);
small_id!(
    /// One membership of a node in its cluster: higher than that of every node that joined before.
    Epoch(u64)
);

impl FunctionId {
    /// The id of a function, from its module path, name and signature. Usable in constants.
    ///
    /// ```
    /// use aktis_protocol::FunctionId;
    /// const SQUARE: FunctionId = FunctionId::of("app::square", "(u64) -> u64");
    /// assert_ne!(SQUARE, FunctionId::of("app::square", "(u32) -> u32"));
    /// ```
    pub const fn of(path: &str, signature: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let parts = [path.as_bytes(), b"\0", signature.as_bytes()];
        let mut part = 0;
        while part < parts.len() {
            let mut i = 0;
            while i < parts[part].len() {
                hash = (hash ^ parts[part][i] as u64).wrapping_mul(0x0100_0000_01b3);
                i += 1;
            }
            part += 1;
        }
        Self(hash)
    }
}

macro_rules! wide_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
            FromBytes, IntoBytes, Immutable, KnownLayout,
        )]
        #[repr(C)]
        pub struct $name {
            high: u64,
            low: u64,
        }

        impl $name {
            /// The id as two words, for headers in shared memory.
            pub const fn to_words(self) -> [u64; 2] {
                [self.high, self.low]
            }

            /// The id from its two words.
            pub const fn from_words(words: [u64; 2]) -> Self {
                Self { high: words[0], low: words[1] }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:016x}{:016x}", self.high, self.low)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if text.len() != 32 || !text.is_ascii() {
                    return Err(ParseIdError);
                }
                let word = |part| u64::from_str_radix(part, 16).map_err(|_| ParseIdError);
                Ok(Self { high: word(&text[..16])?, low: word(&text[16..])? })
            }
        }
    };
}

/// The text is not an id: 32 hexadecimal digits were expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected 32 hexadecimal digits")]
pub struct ParseIdError;

wide_id!(
    /// One task, actor call or actor creation. The low 32 bits are zero.
    TaskId
);
wide_id!(
    /// One immutable value: the task that makes it, and the index among its returns.
    ObjectId
);
wide_id!(
    /// One logical actor, across restarts: the id of the task that created it.
    ActorId
);

wide_id!(
    /// One placement group: the id of the task that created it.
    GroupId
);

wide_id!(
    /// One program that workers run: a hash of its content. All zeros are the program of the driver that a node is
    /// embedded in.
    ProgramId
);

wide_id!(
    /// One machine's daemon, or a driver's seat at one: random, and named by its certificate.
    NodeId
);

impl NodeId {
    /// The node that has this session. Whoever knows a process's session knows on which node it is.
    pub const fn of_session(session: SessionId) -> Self {
        Self::from_words([session.0, 0])
    }

    /// The session of this node.
    pub const fn session(self) -> SessionId {
        SessionId(self.to_words()[0])
    }
}
wide_id!(
    /// One cluster: the beginning of the fingerprint of its authority's certificate.
    ClusterId
);

const INDEX_MASK: u64 = 0xffff_ffff;

impl TaskId {
    /// The root of a session: the driver's own "task".
    pub const fn root(session: SessionId) -> Self {
        Self { high: session.0, low: 0 }
    }

    /// The id of this task's `counter`-th child; the same arguments always give the same id.
    ///
    /// ```
    /// use aktis_protocol::{SessionId, TaskId};
    /// let root = TaskId::root(SessionId(7));
    /// assert_eq!(root.child(1), root.child(1));
    /// assert_ne!(root.child(1), root.child(2));
    /// ```
    #[inline]
    pub const fn child(self, counter: u64) -> Self {
        let a = mix(self.high ^ counter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let b = mix(self.low ^ a.rotate_left(29) ^ counter);
        Self { high: a ^ b.rotate_left(17), low: b & !INDEX_MASK }
    }

    /// The id of this task's return value number `index`.
    #[inline]
    pub const fn returns(self, index: u32) -> ObjectId {
        ObjectId { high: self.high, low: self.low | index as u64 }
    }
}

const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl ObjectId {
    /// The task that makes this object.
    #[inline]
    pub const fn task(self) -> TaskId {
        TaskId { high: self.high, low: self.low & !INDEX_MASK }
    }

    /// Which of its task's returns this object is.
    #[inline]
    pub const fn index(self) -> u32 {
        (self.low & INDEX_MASK) as u32
    }
}

impl ActorId {
    /// The actor that `task` creates.
    pub const fn created_by(task: TaskId) -> Self {
        Self { high: task.high, low: task.low }
    }
}

impl ProgramId {
    /// The id from a hash of the program's content.
    pub const fn from_hash(hash: [u8; 16]) -> Self {
        let [high, low] = [u128::from_be_bytes(hash) >> 64, u128::from_be_bytes(hash)];
        Self { high: high as u64, low: low as u64 }
    }
}

impl GroupId {
    /// The placement group that `task` creates.
    pub const fn created_by(task: TaskId) -> Self {
        Self { high: task.high, low: task.low }
    }
}

/// A task in its submitter's table: a place and the generation of that place.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub struct TaskKey {
    /// The shard of the submitter in its highest bits, and the place in that shard's table.
    pub index: u32,
    /// How often the place has been reused: a late answer for an earlier task is recognised by it.
    pub generation: u32,
}

impl TaskKey {
    /// Which of its process's submitters the task belongs to.
    #[inline]
    pub fn shard(self) -> ShardIndex {
        ShardIndex(self.index >> (u32::BITS - limits::SHARD_BITS))
    }
}

/// One of the submitters of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ShardIndex(pub u32);

impl ShardIndex {
    /// The bits that the shard's keys have in their index.
    #[inline]
    pub fn tag(self) -> u32 {
        self.0 << (u32::BITS - limits::SHARD_BITS)
    }
}

/// A stored object's entry in the node's shared index.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub struct EntryRef {
    /// The place in the index.
    pub index: u32,
    /// How often the place has been reused.
    pub generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_different_parents_and_counters_differ() {
        let mut seen = std::collections::HashSet::new();
        let root = TaskId::root(SessionId(1));
        for parent in 0..100 {
            let parent = root.child(parent);
            assert!(seen.insert(parent));
            for counter in 0..1000 {
                assert!(seen.insert(parent.child(counter)));
            }
        }
    }

    #[test]
    fn an_object_id_gives_back_its_task_and_index() {
        let task = TaskId::root(SessionId(99)).child(3);
        for index in [0, 1, 77, u32::MAX] {
            let object = task.returns(index);
            assert_eq!(object.task(), task);
            assert_eq!(object.index(), index);
            assert_eq!(object.to_string().parse(), Ok(object));
        }
    }
}
