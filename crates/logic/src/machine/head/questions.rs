//! What nodes ask of the tables. All of it may be asked again: a change is made once.

use super::{Head, HeadEffect};
use crate::{Effects, LinkId};
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use aktis_protocol::member::{FromControl, Question, Reply};
use aktis_protocol::tables::{Answer, Batch, Change, Key, Query, RefusalKind, Sender, Table};
use aktis_protocol::{Failure, FailureKind, NodeId, limits};

/// What to ask of the tables for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableRequest {
    /// A question. [`QueryReply::reply`] makes the reply of its answer.
    Query {
        /// What.
        query: Query,
        /// What kind of reply the node expects.
        reply: QueryReply,
    },
    /// Changes, which are made once, however often they are asked for. The answer is the reply.
    Change(Batch),
    /// A change of one key. [`reply_to_key_change`] makes the reply of its answer.
    KeyChange {
        /// The change.
        batch: Batch,
        /// If there is one: the row to look up before the change, since the reply says whether it was there.
        row_before: Option<Key>,
    },
}

/// What kind of reply a node expects to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryReply {
    /// The answer of the tables.
    Table,
    /// The value of a key.
    KeyValue,
    /// As many keys as a message holds.
    KeyListing,
}

impl QueryReply {
    /// The reply, from the answer of the tables.
    pub fn reply(self, answer: Answer) -> Option<Reply> {
        match (self, answer) {
            (Self::Table, answer) => Some(Reply::Table(answer)),
            (Self::KeyValue, Answer::Row(value)) => Some(Reply::Key(Ok(KeyAnswer::Value(value)))),
            (Self::KeyListing, Answer::Rows { rows, more }) => Some(Reply::Key(Ok(listing(rows, more)))),
            (Self::KeyValue | Self::KeyListing, _) => None,
        }
    }
}

/// The reply to the change of a key, from the answer of the tables, and whether there was a row before.
pub fn reply_to_key_change(existed: bool, answer: Answer) -> Option<Reply> {
    let refused = |text: String| Some(Reply::Key(Err(Failure::new(FailureKind::Refused, text))));
    match answer {
        Answer::Applied { refused: refusals } => match refusals.first().map(|refusal| refusal.why) {
            None => Some(Reply::Key(Ok(KeyAnswer::Existed(existed)))),
            Some(RefusalKind::Exists) => Some(Reply::Key(Ok(KeyAnswer::Existed(true)))),
            Some(why) => refused(refusal_text(why)),
        },
        Answer::Rejected(why) => refused(format!("the control process has not kept the value: {why}")),
        _ => None,
    }
}

impl Head {
    pub(super) fn on_asked(
        &mut self,
        from: NodeId,
        link: LinkId,
        number: u64,
        question: Question,
        out: &mut Effects<HeadEffect>,
    ) {
        let request = match question {
            Question::Name(name) => {
                let reply = Reply::NameFound(self.names.find(&name));
                return out.push(answered(link, number, reply));
            }
            Question::Names => return out.push(answered(link, number, Reply::Names(self.names.all()))),
            Question::Key(question) => self.key_request(from, number, question),
            Question::Change(changes) if changes.iter().any(|change| is_reserved(from, change)) => {
                let why =
                    "nodes do not write the tables of nodes, actors and groups, nor of others".to_owned();
                return out.push(HeadEffect::Close { link, why });
            }
            Question::Change(changes) => self.batch(from, number, changes).map(TableRequest::Change),
            Question::Query(query) => Some(TableRequest::Query { query, reply: QueryReply::Table }),
        };
        out.extend(request.map(|request| HeadEffect::AskTables { link, number, request }));
    }

    /// Changes of a node in its present membership. If it is in none, it will be told, and asks again in the next.
    fn batch(&self, node: NodeId, sequence: u64, changes: Vec<Change>) -> Option<Batch> {
        let epoch = self.membership.epoch(node)?.0;
        Some(Batch { sender: Sender { node, epoch }, sequence, changes })
    }

    fn key_request(&self, from: NodeId, number: u64, question: KeyQuestion) -> Option<TableRequest> {
        let table = Table::Keys;
        match question {
            KeyQuestion::Get { key } => {
                let query = Query::Row { table, key: Key(key) };
                Some(TableRequest::Query { query, reply: QueryReply::KeyValue })
            }
            KeyQuestion::List { prefix } => {
                let (prefix, limit) = (Key(prefix), limits::ANSWER_ROWS_MAX);
                let query = Query::Rows { table, prefix, after: None, limit, values: false };
                Some(TableRequest::Query { query, reply: QueryReply::KeyListing })
            }
            KeyQuestion::Put { key, value, overwrite } => {
                let key = Key(key);
                // A row that may not be overwritten refuses the change, also when it is asked for again.
                let row_before = overwrite.then(|| key.clone());
                let batch =
                    self.batch(from, number, vec![Change::RowPut { table, key, value, overwrite }])?;
                Some(TableRequest::KeyChange { batch, row_before })
            }
            KeyQuestion::Delete { key } => {
                let key = Key(key);
                let row_before = Some(key.clone());
                let batch = self.batch(from, number, vec![Change::RowDeleted { table, key }])?;
                Some(TableRequest::KeyChange { batch, row_before })
            }
        }
    }
}

fn answered(link: LinkId, number: u64, reply: Reply) -> HeadEffect {
    HeadEffect::Send { link, message: FromControl::Answered { number, reply } }
}

/// As many of the keys as a message holds. If there are more rows, nobody has counted them: it is at least one.
fn listing(rows: Vec<(Key, Vec<u8>)>, more: bool) -> KeyAnswer {
    match KeyAnswer::listing(rows.into_iter().map(|(key, _)| key.0)) {
        KeyAnswer::Keys { keys, left_out } => KeyAnswer::Keys { keys, left_out: left_out + u32::from(more) },
        other => other,
    }
}

fn refusal_text(why: RefusalKind) -> String {
    match why {
        RefusalKind::Full => "the keys and values of this cluster take as much room as they may\n\
                              hint: delete keys that are not needed any more"
            .to_owned(),
        why => format!("the value was not kept: {why}"),
    }
}

/// Whether only the control process itself makes such changes, or another node.
fn is_reserved(from: NodeId, change: &Change) -> bool {
    if let Change::EventNoted(event) = change {
        return event.subject != from.into() || !event.kind.is_of_nodes();
    }
    let (Change::RowPut { table, .. } | Change::RowDeleted { table, .. }) = change else { return false };
    matches!(table, Table::Nodes | Table::Actors | Table::Groups)
}
