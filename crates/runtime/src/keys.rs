//! Small values under keys, for all processes of a session.

use crate::error::Error;
use crate::runtime::Runtime;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use std::time::Duration;

impl Runtime {
    /// From now on questions about keys, names and the state have answers within this time in all, or fail with
    /// [`Error::TimedOut`]; with `None` they wait for as long as it takes.
    pub fn answer_within(&self, patience: Option<Duration>) {
        self.0.replies.answer_within(patience);
    }

    /// Keeps a value under a key; true if there was none before. Without `overwrite`, one that is there stays.
    pub fn key_put(&self, key: &[u8], value: &[u8], overwrite: bool) -> Result<bool, Error> {
        match self.ask(KeyQuestion::Put { key: key.to_vec(), value: value.to_vec(), overwrite })? {
            KeyAnswer::Existed(existed) => Ok(!existed),
            other => Err(unexpected(&other)),
        }
    }

    /// The value under a key.
    pub fn key_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.ask(KeyQuestion::Get { key: key.to_vec() })? {
            KeyAnswer::Value(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    /// Forgets the value under a key; true if there was one.
    pub fn key_delete(&self, key: &[u8]) -> Result<bool, Error> {
        match self.ask(KeyQuestion::Delete { key: key.to_vec() })? {
            KeyAnswer::Existed(existed) => Ok(existed),
            other => Err(unexpected(&other)),
        }
    }

    /// The keys that begin like this, in order, as many as one answer of the node holds.
    pub fn key_list(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        match self.ask(KeyQuestion::List { prefix: prefix.to_vec() })? {
            KeyAnswer::Keys { keys, .. } => Ok(keys),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, question: KeyQuestion) -> Result<KeyAnswer, Error> {
        self.0.check_usable()?;
        match self.0.ask(|request| ToNode::KeyAsked { request, question })? {
            FromNode::KeyAnswered { answer, .. } => Ok(answer?),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(answer: &impl std::fmt::Debug) -> Error {
    Error::System(format!("the node answered {answer:?} to a question about a key"))
}
