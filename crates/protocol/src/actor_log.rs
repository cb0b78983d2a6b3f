//! The log and the checkpoint of an actor, as they lie on disk.
//!
//! An actor with checkpoints has a directory with three files. The process that runs the actor holds a lock on `lock`, so that
//! a life on another node waits until this process has ended. `log` has one record for each call that the actor has run
//! since its checkpoint:
//!
//! ```text
//! record    body bytes u32 | version u32 | sequence u64 | checksum of those u32 | checksum of the body u32 |
//!           body: a postcard `LoggedCall`
//! ```
//!
//! `checkpoint` is written as a whole and renamed into place:
//!
//! ```text
//! CHECKPOINT_MAGIC | version u32 | 0 u32 | actor 16 bytes | body bytes u64 | checksum u64 | body: a postcard `Checkpoint`
//! ```

use crate::ids::{ActorId, FunctionId, TaskId};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of both files.
pub const VERSION: u32 = 1;
/// How a checkpoint begins.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"AKTISCKP";
/// Bytes of a log. An actor whose log has no room for the next call takes a checkpoint.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Bytes of one record: an actor takes a checkpoint after a call with larger arguments or a larger answer.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Bytes of an actor's state in a checkpoint.
pub const STATE_BYTES_MAX: usize = 256 << 20;
/// Answers that a checkpoint keeps for callers that may ask again; the oldest are dropped first.
pub const KEPT_ANSWERS_MAX: usize = 16_384;
/// Bytes of those answers.
pub const KEPT_BYTES_MAX: usize = 8 << 20;
/// The bytes before the body of a checkpoint.
pub const CHECKPOINT_HEAD_BYTES: usize = 48;

/// How an actor remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSpec {
    /// The actor takes a checkpoint after this number of logged calls; 0 if the number does not matter.
    pub every_calls: u32,
    /// The actor takes a checkpoint after the first logged call that ends this many milliseconds after the checkpoint
    /// before; 0 if time does not matter.
    pub every_milliseconds: u64,
    /// The directory that holds the actor's own; empty for the one of its node.
    pub directory: String,
    /// Whether the files must outlive the machine: then a call is answered when the disk has its record.
    pub synced: bool,
    /// Whether the actor has taken calls before: then its checkpoint must exist.
    pub started: bool,
}

/// A call that an actor has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedCall {
    /// The call.
    pub task: TaskId,
    /// The method.
    pub function: FunctionId,
    /// Its concurrency group.
    pub group: u16,
    /// The encoded arguments.
    pub arguments: Vec<u8>,
    /// What it answered.
    pub answer: KeptAnswer,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHead {
    /// Bytes of the body.
    pub bytes: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Its number; the next record has the next one, also after a checkpoint.
    pub sequence: u64,
    /// Of the three above: a head that is right and lacks a part of its body is the last one of its log.
    pub head_checksum: u32,
    /// Of the body.
    pub body_checksum: u32,
}

impl RecordHead {
    /// The head of a record with this body.
    pub fn new(sequence: u64, body: &[u8]) -> Self {
        let (bytes, version) = (body.len() as u32, VERSION);
        let head_checksum = Self::sum(bytes, version, sequence);
        Self { bytes, version, sequence, head_checksum, body_checksum: checksum(sequence, body) as u32 }
    }

    fn sum(bytes: u32, version: u32, sequence: u64) -> u32 {
        let mut words = [0; 16];
        words[..4].copy_from_slice(&bytes.to_le_bytes());
        words[4..8].copy_from_slice(&version.to_le_bytes());
        words[8..].copy_from_slice(&sequence.to_le_bytes());
        checksum(0, &words) as u32
    }

    fn is_whole(&self) -> bool {
        self.head_checksum == Self::sum(self.bytes, self.version, self.sequence)
    }
}

impl LoggedCall {
    /// The whole record.
    pub fn to_record(&self, sequence: u64) -> Vec<u8> {
        let body = crate::control::encode(self);
        let mut record = Vec::with_capacity(size_of::<RecordHead>() + body.len());
        record.extend_from_slice(RecordHead::new(sequence, &body).as_bytes());
        record.extend_from_slice(&body);
        record
    }
}

/// Reads a log: its calls from `position` on, and how many of its bytes are whole records. A record that was cut off at the
/// end is left out: its call was not answered. Whole records that are missing at the end are not noticed.
pub fn read_log(position: u64, log: &[u8]) -> Result<(Vec<LoggedCall>, usize), CheckpointFault> {
    let (mut calls, mut rest, mut expected) = (Vec::new(), log, None);
    while let Ok((head, after)) = RecordHead::read_from_prefix(rest) {
        let damaged = || {
            let at = log.len() - rest.len();
            CheckpointFault::Damaged(format!("the record at byte {at} of the log is not as it was written"))
        };
        if !head.is_whole() || expected.is_some_and(|next| next != head.sequence) {
            return Err(damaged());
        }
        if head.version != VERSION {
            return Err(CheckpointFault::OtherVersion(head.version));
        }
        let Some((body, after)) = after.split_at_checked(head.bytes as usize) else { break };
        if RecordHead::new(head.sequence, body) != head {
            return Err(damaged());
        }
        if head.sequence >= position {
            if calls.is_empty() && head.sequence != position {
                let text = format!("the log begins with call {} instead of {position}", head.sequence);
                return Err(CheckpointFault::Damaged(text));
            }
            let call = crate::control::decode(body);
            calls.push(call.map_err(|error| CheckpointFault::Damaged(error.to_string()))?);
        }
        expected = Some(head.sequence + 1);
        rest = after;
    }
    Ok((calls, log.len() - rest.len()))
}

/// The answer of a call that its caller may ask for again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeptAnswer {
    /// Its encoded values.
    Values(Vec<Vec<u8>>),
    /// Its encoded failure.
    Failed(Vec<u8>),
    /// The call failed, and its caller wants it to run again.
    RunAgain,
    /// The call ran, but its values are too large or hold references, and were not kept.
    NotKept,
}

impl KeptAnswer {
    /// How much of the bound it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Values(values) => values.iter().map(Vec::len).sum(),
            Self::Failed(bytes) => bytes.len(),
            Self::RunAgain | Self::NotKept => 0,
        }
    }
}

/// One answer that a checkpoint keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCall {
    /// The call.
    pub task: TaskId,
    /// Its answer.
    pub answer: KeptAnswer,
}

/// The body of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The sequence number of the first record that it does not cover.
    pub position: u64,
    /// Answers that callers may ask for again.
    pub kept: Vec<KeptCall>,
    /// The actor's state, as its class has written it.
    pub state: Vec<u8>,
}

/// Why a checkpoint cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointFault {
    /// It ends early, or its bytes are not those that were written.
    Damaged(String),
    /// Another version of Aktis wrote it.
    OtherVersion(u32),
    /// It belongs to another actor.
    OtherActor,
}

impl std::fmt::Display for CheckpointFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged(how) => write!(f, "it is damaged: {how}"),
            Self::OtherVersion(version) => {
                write!(f, "it has version {version}, and this version of Aktis reads version {VERSION}")
            }
            Self::OtherActor => write!(f, "it belongs to another actor"),
        }
    }
}

impl Checkpoint {
    /// The whole file.
    pub fn to_file(&self, actor: ActorId) -> Vec<u8> {
        let body = crate::control::encode(self);
        let mut file = Vec::with_capacity(CHECKPOINT_HEAD_BYTES + body.len());
        file.extend_from_slice(&CHECKPOINT_MAGIC);
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&[0; 4]);
        file.extend_from_slice(actor.as_bytes());
        file.extend_from_slice(&(body.len() as u64).to_le_bytes());
        file.extend_from_slice(&checksum(u64::from(VERSION), &body).to_le_bytes());
        file.extend_from_slice(&body);
        file
    }

    /// Reads a whole file.
    pub fn from_file(actor: ActorId, file: &[u8]) -> Result<Self, CheckpointFault> {
        let damaged = |how: String| CheckpointFault::Damaged(how);
        let (head, body) = file
            .split_at_checked(CHECKPOINT_HEAD_BYTES)
            .ok_or_else(|| damaged(format!("it has {} bytes, fewer than its head", file.len())))?;
        if head[..8] != CHECKPOINT_MAGIC {
            return Err(damaged("it does not begin as a checkpoint does".to_owned()));
        }
        let version = u32::from_le_bytes(head[8..12].try_into().unwrap_or_default());
        if version != VERSION {
            return Err(CheckpointFault::OtherVersion(version));
        }
        if head[16..32] != *actor.as_bytes() {
            return Err(CheckpointFault::OtherActor);
        }
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        if body.len() as u64 != word(32) {
            return Err(damaged(format!(
                "it has {} bytes after its head instead of {}",
                body.len(),
                word(32)
            )));
        }
        if checksum(u64::from(VERSION), body) != word(40) {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        crate::control::decode(body).map_err(|error| damaged(error.to_string()))
    }
}

/// A checksum that finds torn and damaged records. It is no protection against intent.
#[inline]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(seed, bytes.len() as u64);
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(sum, u64::from_le_bytes(last)), FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor() -> ActorId {
        ActorId::from_words([3, 4])
    }

    fn file() -> Vec<u8> {
        let answer = KeptAnswer::Values(vec![vec![1, 2]]);
        let kept = vec![KeptCall { task: TaskId::default(), answer }];
        Checkpoint { position: 7, kept, state: vec![9; 100] }.to_file(actor())
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written() {
        let read = Checkpoint::from_file(actor(), &file()).expect("it is whole");
        assert_eq!((read.position, read.state.len(), read.kept.len()), (7, 100, 1));
    }

    #[test]
    fn a_checkpoint_that_is_cut_anywhere_is_refused() {
        let whole = file();
        for bytes in 0..whole.len() {
            let read = Checkpoint::from_file(actor(), &whole[..bytes]);
            assert!(matches!(read, Err(CheckpointFault::Damaged(_))), "{bytes}: {read:?}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_in_a_checkpoint_is_found() {
        for at in (0..file().len()).filter(|at| !(12..16).contains(at)) {
            let mut damaged = file();
            damaged[at] ^= 1;
            assert!(Checkpoint::from_file(actor(), &damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn other_versions_and_other_actors_are_told_apart_from_damage() {
        let mut newer = file();
        newer[8] = 2;
        assert_eq!(Checkpoint::from_file(actor(), &newer), Err(CheckpointFault::OtherVersion(2)));
        let other = ActorId::from_words([3, 5]);
        assert_eq!(Checkpoint::from_file(other, &file()), Err(CheckpointFault::OtherActor));
    }

    fn call(number: u8) -> LoggedCall {
        let answer = KeptAnswer::Values(vec![vec![number]]);
        let (task, function) = (TaskId::default(), FunctionId::default());
        LoggedCall { task, function, group: 0, arguments: vec![number; 20], answer }
    }

    fn log() -> Vec<u8> {
        (5..8_u8).flat_map(|number| call(number).to_record(u64::from(number))).collect()
    }

    #[test]
    fn a_log_gives_the_calls_after_the_checkpoint() {
        let (calls, bytes) = read_log(6, &log()).expect("the log is whole");
        assert_eq!((calls, bytes), (vec![call(6), call(7)], log().len()));
    }

    #[test]
    fn a_record_that_is_cut_off_at_the_end_is_left_out() {
        let (whole, two) = (log(), call(5).to_record(5).len() + call(6).to_record(6).len());
        for bytes in two..whole.len() {
            let (calls, kept) = read_log(5, &whole[..bytes]).expect("the first two records are whole");
            assert_eq!((calls.len(), kept), (2, two), "{bytes}");
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_record_in_a_log_is_found() {
        let first = call(5).to_record(5).len();
        for (at, bit) in (0..first).flat_map(|at| [(at, 1), (at, 64)]) {
            let mut damaged = log();
            damaged[at] ^= bit;
            assert!(matches!(read_log(5, &damaged), Err(CheckpointFault::Damaged(_))), "byte {at}");
        }
        assert!(matches!(read_log(5, &log()[first..]), Err(CheckpointFault::Damaged(_))));
    }
}
