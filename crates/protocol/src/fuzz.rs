//! What members of a cluster and command lines can send, for fuzzers: any bytes, which must neither panic nor want much
//! memory.
//!
//! Also part of the tests, on mutations of good inputs; and `fuzz/` is for a real fuzzer.

use crate::admin::{AdminReply, AdminRequest};
use crate::control::{FromNode, ToNode, decode, encode};
use crate::member::{FromControl, ToControl};
use crate::peer::Frame;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// All messages between daemons, their control process, their command lines and their processes.
pub fn members(bytes: &[u8]) {
    again::<ToControl>(bytes);
    again::<FromControl>(bytes);
    again::<Frame>(bytes);
    again::<AdminRequest>(bytes);
    again::<AdminReply>(bytes);
    again::<ToNode>(bytes);
    again::<FromNode>(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::FoundActor;
    use crate::admin::{
        IdPrefix, ListKind, ListQuery, Listing, LogLine, LogStream, NodeAnswer, NodeQuestion, NodeRow, Rows,
    };
    use crate::member::NamedActor;
    use crate::peer::{PeerValue, Ticket};
    use crate::placement::{NodeInfo, NodeReport, ToPlacer};
    use crate::{ActorId, Amount, Epoch, Failure, FailureKind, NodeId, ObjectId, ProgramId, Resources};
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

    #[test]
    fn nothing_that_members_send_does_harm() {
        let (mut mutations, good) = (Mutations::of_tests(), good_inputs());
        good.iter().for_each(|input| members(input));
        for _ in 0..INPUTS {
            let mut input = good[mutations.below(good.len())].clone();
            mutations.mutate(&mut input);
            members(&input);
        }
    }
}
