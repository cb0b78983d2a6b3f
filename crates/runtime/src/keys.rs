//! Small values under keys, for all processes of a session.

use crate::error::Error;
use crate::runtime::Runtime;
use aktis_protocol::control::{FromNode, RequestId, ToNode};

impl Runtime {
    /// Keeps a value under a key; true if there was none before. Without `overwrite`, one that is there stays.
    pub fn key_put(&self, key: &[u8], value: &[u8], overwrite: bool) -> Result<bool, Error> {
        let (key, value) = (key.to_vec(), value.to_vec());
        match self.ask(|request| ToNode::KeyPut { request, key, value, overwrite })? {
            FromNode::KeyStored { existed, .. } => Ok(!existed?),
            other => Err(unexpected(&other)),
        }
    }

    /// The value under a key.
    pub fn key_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let key = key.to_vec();
        match self.ask(|request| ToNode::KeyGet { request, key })? {
            FromNode::KeyFound { value, .. } => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    /// Forgets the value under a key; true if there was one.
    pub fn key_delete(&self, key: &[u8]) -> Result<bool, Error> {
        let key = key.to_vec();
        match self.ask(|request| ToNode::KeyDelete { request, key })? {
            FromNode::KeyDeleted { existed, .. } => Ok(existed),
            other => Err(unexpected(&other)),
        }
    }

    /// The keys that begin like this, in order, as many as one answer of the node holds.
    pub fn key_list(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let prefix = prefix.to_vec();
        match self.ask(|request| ToNode::KeyList { request, prefix })? {
            FromNode::Keys { keys, .. } => Ok(keys),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, question: impl FnOnce(RequestId) -> ToNode) -> Result<FromNode, Error> {
        self.0.check_usable()?;
        self.0.request(question)
    }
}

fn unexpected(answer: &FromNode) -> Error {
    Error::System(format!("the node answered {answer:?} to a question about a key"))
}
