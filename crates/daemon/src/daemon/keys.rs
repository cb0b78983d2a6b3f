//! Keys of the cluster, for commands: an operator sees what fills the key-value space, and can clear it.

use super::Parts;
use crate::admin::Refusal;
use aktis_protocol::admin::{KeyReply, KeyRequest, KeyRow};
use aktis_protocol::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX, KEY_VALUE_BYTES_MAX, LISTED_ROWS_MAX};
use aktis_protocol::tables::{Answer, Key, Query, Table};
use std::time::Duration;

/// How long the control process may take for one answer.
const KEYS_PATIENCE: Duration = Duration::from_secs(10);
/// Keys that are asked for at a time. They come with their values, and all of that is one message, however large they are.
const PAGE_ROWS: usize = FRAME_BYTES_MAX / 2 / (KEY_VALUE_BYTES_MAX + KEY_BYTES_MAX);

impl Parts {
    /// Answers a command about keys from the control process, which has them.
    pub(super) fn keys(&self, request: KeyRequest) -> Result<KeyReply, Refusal> {
        if self.client.away().is_some() {
            return Err(no_answer());
        }
        match request {
            KeyRequest::List { prefix, limit } => self.list_keys(Key(prefix), limit.min(LISTED_ROWS_MAX)),
            KeyRequest::Get { key } => {
                match self
                    .client
                    .query_tables(Query::Row { table: Table::Keys, key: Key(key) }, KEYS_PATIENCE)
                {
                    Some(Answer::Row(value)) => Ok(KeyReply::Value(value)),
                    _ => Err(no_answer()),
                }
            }
            KeyRequest::Delete { key } => {
                let deleted = self.host.own().key_delete(&key);
                deleted.map(KeyReply::Deleted).map_err(|error| Refusal::new(error.to_string()))
            }
        }
    }

    fn list_keys(&self, prefix: Key, limit: u32) -> Result<KeyReply, Refusal> {
        let mut keys: Vec<KeyRow> = Vec::new();
        let mut after = None;
        loop {
            let page = (limit as usize - keys.len()).min(PAGE_ROWS) as u32;
            let (table, prefix) = (Table::Keys, prefix.clone());
            // With the values, whose sizes are told.
            let query = Query::Rows { table, prefix, after, limit: page, values: true };
            let Some(Answer::Rows { rows, more }) = self.client.query_tables(query, KEYS_PATIENCE) else {
                return Err(no_answer());
            };
            after = rows.last().map(|(key, _)| key.clone());
            keys.extend(rows.into_iter().map(|(Key(key), value)| KeyRow { key, bytes: value.len() as u64 }));
            if !more || keys.len() >= limit as usize || after.is_none() {
                return Ok(KeyReply::Keys { keys, more });
            }
        }
    }
}

fn no_answer() -> Refusal {
    Refusal::new("the control process, which has the keys of the cluster, does not answer")
        .with_hint("`aktis status` says whether it is down")
}
