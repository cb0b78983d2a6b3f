//! Small values under names, for all processes of the session. In a cluster its control process has them.
//!
//! Invariant: `bytes` is what all keys and values take together, and at most [`limits::KEY_SPACE_BYTES_MAX`].

use super::{Node, NodeEffect};
use crate::Effects;
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use aktis_protocol::{Failure, FailureKind, ProcessSlot, limits};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What an entry takes besides its bytes: many empty ones are bounded, too.
const ENTRY_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Keys {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Keys {
    /// Stores a value, unless there is one that is to stay; tells whether there was one.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>, overwrite: bool) -> Result<bool, String> {
        let old = self.values.get(&key).map(|old| entry_bytes(&key, old));
        if old.is_some() && !overwrite {
            return Ok(true);
        }
        let bytes = self.bytes - old.unwrap_or(0) + entry_bytes(&key, &value);
        if bytes > limits::KEY_SPACE_BYTES_MAX {
            return Err(format!(
                "the keys and values of this session take {} bytes, and may take {} in all\n\
                 hint: delete keys that are not needed any more",
                self.bytes,
                limits::KEY_SPACE_BYTES_MAX
            ));
        }
        self.bytes = bytes;
        self.values.insert(key, value);
        Ok(old.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let old = self.values.remove(key);
        self.bytes -= old.as_ref().map_or(0, |old| entry_bytes(key, old));
        old.is_some()
    }

    /// The keys with this beginning, in order.
    fn list<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a Vec<u8>> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.values.range::<[u8], _>(from).map(|(key, _)| key).take_while(move |key| key.starts_with(prefix))
    }

    pub(super) fn check(&self) {
        let bytes: usize = self.values.iter().map(|(key, value)| entry_bytes(key, value)).sum();
        assert_eq!(self.bytes, bytes, "keys invariant");
        assert!(bytes <= limits::KEY_SPACE_BYTES_MAX, "keys invariant");
    }
}

fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

/// Why a key or value is not kept anywhere.
fn judge(key: &[u8], value: &[u8]) -> Result<(), String> {
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(format!("a key of {} bytes is longer than {}", key.len(), limits::KEY_BYTES_MAX));
    }
    if value.len() > limits::KEY_VALUE_BYTES_MAX {
        return Err(format!(
            "a value of {} bytes is larger than {}\n\
             hint: put it into the object store, and only a reference here",
            value.len(),
            limits::KEY_VALUE_BYTES_MAX
        ));
    }
    Ok(())
}

impl Node {
    /// In a cluster the keys are those of all nodes.
    pub(super) fn on_key_asked(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        question: KeyQuestion,
        out: &mut Effects<NodeEffect>,
    ) {
        if let KeyQuestion::Put { key, value, .. } = &question
            && let Err(text) = judge(key, value)
        {
            let answer = Err(Failure::new(FailureKind::Refused, text));
            return self.send(from, FromNode::KeyAnswered { request, answer }, out);
        }
        if self.places.is_clustered() {
            return out.push(NodeEffect::AskKey { to: from, request, question });
        }
        let answer = match question {
            KeyQuestion::Put { key, value, overwrite } => match self.keys.put(key, value, overwrite) {
                Ok(existed) => Ok(KeyAnswer::Existed(existed)),
                Err(text) => Err(Failure::new(FailureKind::Refused, text)),
            },
            KeyQuestion::Get { key } => Ok(KeyAnswer::Value(self.keys.values.get(&key).cloned())),
            KeyQuestion::Delete { key } => Ok(KeyAnswer::Existed(self.keys.delete(&key))),
            KeyQuestion::List { prefix } => Ok(KeyAnswer::listing(self.keys.list(&prefix).cloned())),
        };
        self.send(from, FromNode::KeyAnswered { request, answer }, out);
    }

    /// The cluster has answered.
    pub(super) fn on_key_answered(
        &mut self,
        to: ProcessSlot,
        request: RequestId,
        answer: Result<KeyAnswer, Failure>,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.process_table.is_live(to) {
            self.send(to, FromNode::KeyAnswered { request, answer }, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn a_value_stays_unless_it_is_to_be_overwritten() {
        let mut keys = Keys::default();
        assert_eq!(keys.put(bytes("a"), bytes("one"), false), Ok(false));
        assert_eq!(keys.put(bytes("a"), bytes("two"), false), Ok(true));
        assert_eq!(keys.values[&bytes("a")], bytes("one"));
        assert_eq!(keys.put(bytes("a"), bytes("three"), true), Ok(true));
        assert_eq!(keys.values[&bytes("a")], bytes("three"));
        keys.check();
        assert!(keys.delete(b"a") && !keys.delete(b"a"));
        assert_eq!(keys.bytes, 0);
    }

    #[test]
    fn keys_are_listed_by_their_beginning() {
        let mut keys = Keys::default();
        for key in ["b/2", "a", "b", "b/1", "c"] {
            assert_eq!(keys.put(bytes(key), Vec::new(), false), Ok(false));
        }
        let listed = |prefix: &str| keys.list(prefix.as_bytes()).cloned().collect::<Vec<_>>();
        assert_eq!(listed("b/"), [bytes("b/1"), bytes("b/2")]);
        assert_eq!(listed("").len(), 5);
        assert!(listed("d").is_empty());
    }

    #[test]
    fn values_are_bounded_each_and_in_all() {
        let mut keys = Keys::default();
        let largest = vec![0; limits::KEY_VALUE_BYTES_MAX];
        let refused = judge(b"a", &vec![0; limits::KEY_VALUE_BYTES_MAX + 1]);
        assert!(refused.unwrap_err().contains("is larger than"));
        assert!(judge(&vec![0; limits::KEY_BYTES_MAX + 1], &[]).is_err());
        assert_eq!(judge(&vec![0; limits::KEY_BYTES_MAX], &largest), Ok(()));
        let mut count = 0_u32;
        let refused = loop {
            match keys.put(count.to_be_bytes().to_vec(), largest.clone(), false) {
                Ok(existed) => assert!(!existed),
                Err(text) => break text,
            }
            count += 1;
        };
        assert!(refused.contains("hint: delete keys"), "{refused}");
        assert_eq!(
            count as usize,
            limits::KEY_SPACE_BYTES_MAX / (limits::KEY_VALUE_BYTES_MAX + 4 + ENTRY_BYTES)
        );
        keys.check();
        // What replaces another needs no more room than it takes.
        assert_eq!(keys.put(0_u32.to_be_bytes().to_vec(), largest, true), Ok(true));
        keys.check();
    }
}
