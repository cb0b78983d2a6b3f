//! What strangers' peers send, for fuzzers: members of a cluster, workers, command lines and files on disk. Each target takes
//! any bytes, and must neither panic nor want much memory.
//!
//! Also part of the tests, on mutations of good inputs; `cargo xtask fuzz` runs those for longer, and `fuzz/` is for a real
//! fuzzer.

use crate::admin::{AdminReply, AdminRequest, IdPrefix};
use crate::control::{FromNode, ToNode, decode, encode};
use crate::member::{FromControl, ToControl};
use crate::peer::Frame;
use crate::program::ProgramSpec;
use crate::questions::{ProcessAnswer, ProcessQuestion};
use crate::records::{self, Piece};
use crate::template::{ForkRequest, FromTemplate};
use crate::text;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// Messages between daemons and their control process.
pub fn members(bytes: &[u8]) {
    again::<ToControl>(bytes);
    again::<FromControl>(bytes);
    again::<Frame>(bytes);
}

/// Messages between a node and its workers, drivers and templates.
pub fn workers(bytes: &[u8]) {
    again::<ToNode>(bytes);
    again::<FromNode>(bytes);
    again::<ProcessQuestion>(bytes);
    again::<ProcessAnswer>(bytes);
    again::<ProgramSpec>(bytes);
    again::<ForkRequest>(bytes);
    again::<FromTemplate>(bytes);
}

/// Messages between a daemon and its command lines, and what people write and read there.
pub fn commands(bytes: &[u8]) {
    again::<AdminRequest>(bytes);
    again::<AdminReply>(bytes);
    let written = String::from_utf8_lossy(bytes);
    if let Ok(prefix) = written.parse::<IdPrefix>() {
        assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }
    let _ = text::parse_rfc3339(&written);
    let is_order = |character: char| character != '\n' && text::is_order(character);
    for shown in [text::lines(&written), text::one_line(&written), text::json(&written)] {
        assert!(!shown.contains(is_order));
    }
}

/// Pieces of a snapshot, as they are on disk.
pub fn disk(bytes: &[u8]) {
    let _ = records::decode::<Piece>(bytes, "a piece");
}

/// What is read means the same when it is written and read again.
fn again<Message: Serialize + DeserializeOwned + PartialEq>(bytes: &[u8]) {
    if let Ok(message) = decode::<Message>(bytes) {
        assert!(decode::<Message>(&encode(&message)).is_ok_and(|same| same == message));
    }
}

/// Changes of good inputs: the same seed gives the same ones (xorshift).
pub struct Mutations(u64);

impl Mutations {
    /// Changes from a seed; zero is none.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// The seed of the environment (`AKTIS_SEED`), or always the same one.
    pub fn of_tests() -> Self {
        let seed = std::env::var("AKTIS_SEED").ok().and_then(|seed| seed.parse().ok());
        Self::new(seed.unwrap_or(2026))
    }

    /// A number below a bound, or zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Changes a few bytes, cuts, repeats or inserts some.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
                2 => bytes.extend_from_within(..at),
                3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                4 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                _ => bytes.insert(at, self.below(256) as u8),
            }
        }
    }
}

/// Gives changes of good inputs to a target: so many, or for so many seconds as `AKTIS_FUZZ_SECONDS` says.
pub fn run(good: &[Vec<u8>], inputs: usize, target: impl Fn(&[u8])) {
    let seconds = std::env::var("AKTIS_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut mutations = Mutations::of_tests();
    good.iter().for_each(|input| target(input));
    for number in 0.. {
        if deadline.map_or(number >= inputs, |deadline| Instant::now() >= deadline) {
            return;
        }
        let mut input = good[mutations.below(good.len())].clone();
        mutations.mutate(&mut input);
        target(&input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::FoundActor;
    use crate::admin::{
        IdPrefix, ListKind, ListQuery, Listing, LogLine, LogStream, NodeAnswer, NodeQuestion, NodeRow, Rows,
        TaskKind, TaskRow, TaskState,
    };
    use crate::member::NamedActor;
    use crate::peer::{PeerValue, Ticket};
    use crate::placement::{NodeInfo, NodeReport, ToPlacer};
    use crate::program::ProgramKind;
    use crate::{
        ActorId, Amount, Epoch, Failure, FailureKind, NodeId, ObjectId, ProcessSlot, ProgramId, Resources,
        TaskId,
    };
    use std::collections::BTreeMap;

    /// Inputs of one run: a second or two.
    const INPUTS: usize = 60_000;

    fn good_inputs() -> Vec<Vec<u8>> {
        let resources = Resources::none().with("CPU", Amount::units(4)).with("licence", Amount::ONE);
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let address = "10.0.0.1:6380".parse().expect("an address");
        let node = NodeId::from_words([1, 2]);
        let found = FoundActor {
            actor: ActorId::from_words([3, 4]),
            type_name: "Counter".to_owned(),
            details: vec![1, 2],
            abroad: true,
        };
        let named = NamedActor { name: "hits".to_owned(), found: found.clone() };
        let info =
            NodeInfo { node, epoch: Epoch(7), address, labels: labels.clone(), resources: resources.clone() };
        let query = ListQuery {
            what: ListKind::Tasks,
            limit: 100,
            node: None,
            state: Some("running".to_owned()),
            name: None,
            filters: vec![("pid".to_owned(), "1".to_owned())],
        };
        let listing =
            Listing { rows: Rows::Nodes(vec![NodeRow::default()]), left_out: 1, silent: vec![node] };
        let line = LogLine {
            node,
            pid: 7,
            name: "f".to_owned(),
            stream: LogStream::Output,
            unix_milliseconds: 1 << 40,
            text: "words".to_owned(),
        };
        let failure = Failure::new(FailureKind::Store, "why".to_owned());
        let report = NodeReport { available: resources.clone(), ..NodeReport::default() };
        let prefix = "abcdef".parse::<IdPrefix>().expect("digits");
        vec![
            encode(&ToControl::Joined {
                held: Some(Epoch(6)),
                address,
                labels,
                resources,
                names: vec![named],
            }),
            encode(&ToControl::Placer { epoch: Epoch(7), message: ToPlacer::Reported { report } }),
            encode(&FromControl::Welcome { epoch: Epoch(7), nodes: vec![info] }),
            encode(&FromControl::NameClaimed { name: "hits".to_owned(), actor: found.actor, granted: true }),
            encode(&Frame::Returned { ticket: Ticket(1), index: 0, value: PeerValue::Failed(failure) }),
            encode(&Frame::Released { object: ObjectId::from_words([5, 6]), count: 9 }),
            encode(&Frame::Asked { question: 1, what: NodeQuestion::List(query.clone()) }),
            encode(&Frame::Told { question: 1, answer: NodeAnswer::Listing(listing.clone()) }),
            encode(&Frame::Printed { program: ProgramId::default(), lines: vec![line.clone()], missed: 1 }),
            encode(&AdminRequest::List(query)),
            encode(&AdminRequest::Explain(prefix)),
            encode(&AdminReply::Listing(listing)),
            encode(&AdminReply::LogLines { lines: vec![line], missed: 2, more: true }),
        ]
    }

    fn good_of_workers() -> Vec<Vec<u8>> {
        let failure = Failure::new(FailureKind::Store, "why".to_owned());
        let task = TaskId::from_words([7, 0]);
        let row = TaskRow {
            task,
            name: "f".to_owned(),
            kind: TaskKind::Method,
            state: TaskState::Running,
            attempt: 1,
            pid: Some(7),
            actor: Some(ActorId::from_words([3, 4])),
            error: Some(failure.to_string()),
            is_foreign: false,
        };
        let kind = ProgramKind::Python {
            command: vec!["python3".into(), "-c".into()],
            environment: vec![("A".into(), "b".into())],
            version: "3.12.1".to_owned(),
        };
        let fork = ForkRequest {
            process: ProcessSlot(3),
            arguments: "1,2,3".to_owned(),
            environment: "{}".to_owned(),
            variables: vec![("A".to_owned(), "b".to_owned())],
        };
        vec![
            encode(&ToNode::ActorKilled {
                actor: ActorId::from_words([3, 4]),
                restart: true,
                request: Some(1),
            }),
            encode(&ToNode::WorkerKilled { process: ProcessSlot(3), task }),
            encode(&FromNode::Names { request: 9, names: vec!["a".to_owned()], left_out: 0 }),
            encode(&ProcessQuestion::Cancel { task, force: true }),
            encode(&ProcessAnswer { tasks: vec![row], left_out: 3, ..ProcessAnswer::default() }),
            encode(&ProgramSpec::here(ProgramId::from_words([1, 2]), kind)),
            encode(&fork),
            encode(&FromTemplate::Ended { pid: 7, signal: Some(9), exit_code: None }),
        ]
    }

    #[test]
    fn nothing_that_members_send_does_harm() {
        run(&good_inputs(), INPUTS, members);
    }

    #[test]
    fn nothing_that_workers_send_does_harm() {
        run(&good_of_workers(), INPUTS, workers);
    }

    #[test]
    fn nothing_that_commands_send_does_harm() {
        let words = ["abcdef", "2026-01-31T08:00Z", "name\u{202e}\x1b[31m\n"];
        let good = good_inputs().into_iter().chain(words.map(|word| word.as_bytes().to_vec()));
        run(&good.collect::<Vec<_>>(), INPUTS, commands);
    }

    #[test]
    fn nothing_on_disk_does_harm() {
        run(&good_inputs(), INPUTS, disk);
    }
}
