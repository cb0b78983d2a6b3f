//! What nodes ask the control process. All of it may be asked again: what is to be changed is changed once.

use super::send;
use super::state::State;
use aktis_io::Link;
use aktis_io::durable::StoreError;
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use aktis_protocol::member::{FromControl, Question, Reply};
use aktis_protocol::tables::{Answer, Batch, Change, Key, Query, RefusalKind, Sender, Table};
use aktis_protocol::{Failure, FailureKind, NodeId, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever asked, and the number of his question.
#[derive(Clone)]
struct Asker {
    link: Link,
    number: u64,
}

impl Asker {
    fn answer(&self, reply: Reply) {
        send(&self.link, &FromControl::Answered { number: self.number, reply });
    }

    /// What the tables say. If they say nothing, the process ends, and the question is asked again.
    fn answer_from_tables(&self, answer: Result<Answer, StoreError>) {
        if let Ok(answer) = answer {
            self.answer(Reply::Table(answer));
        }
    }
}

impl State {
    pub(super) fn on_asked(&mut self, from: NodeId, link: &Link, number: u64, question: Question) {
        let asker = Asker { link: link.clone(), number };
        let Some(tables) = &self.tables else { return };
        match question {
            Question::Name(name) => asker.answer(Reply::NameFound(self.names.find(&name))),
            Question::Names => asker.answer(Reply::Names(self.names.all())),
            Question::Key(question) => self.on_key_asked(from, asker, question),
            Question::Change(changes) if changes.iter().any(is_reserved) => {
                let why = "nodes do not write the tables of nodes, actors and groups";
                link.close(why);
            }
            Question::Change(changes) => {
                let Some(sender) = self.sender(from) else { return };
                let batch = Batch { sender, sequence: number, changes };
                tables.apply(batch, move |answer| asker.answer_from_tables(answer));
            }
            Question::Query(query) => tables.query(query, move |answer| asker.answer_from_tables(answer)),
        }
    }

    /// The node in its present membership. If it is in none, it will be told, and ask again in the next.
    fn sender(&self, node: NodeId) -> Option<Sender> {
        self.membership.epoch(node).map(|epoch| Sender { node, epoch: epoch.0 })
    }

    fn on_key_asked(&mut self, from: NodeId, asker: Asker, question: KeyQuestion) {
        let Some(tables) = &self.tables else { return };
        match question {
            KeyQuestion::Get { key } => {
                tables.query(Query::Row { table: Table::Keys, key: Key(key) }, move |answer| {
                    if let Ok(Answer::Row(value)) = answer {
                        asker.answer(Reply::Key(Ok(KeyAnswer::Value(value))));
                    }
                });
            }
            KeyQuestion::List { prefix } => {
                let query = Query::Rows {
                    table: Table::Keys,
                    prefix: Key(prefix),
                    after: None,
                    limit: limits::ANSWER_ROWS_MAX,
                    values: false,
                };
                tables.query(query, move |answer| {
                    if let Ok(Answer::Rows { rows, more }) = answer {
                        asker.answer(Reply::Key(Ok(listing(rows, more))));
                    }
                });
            }
            KeyQuestion::Put { key, value, overwrite } => {
                let change = Change::RowPut { table: Table::Keys, key: Key(key), value, overwrite };
                self.change_key(from, asker, change);
            }
            KeyQuestion::Delete { key } => {
                let change = Change::RowDeleted { table: Table::Keys, key: Key(key) };
                self.change_key(from, asker, change);
            }
        }
    }

    /// Changes the value of a key, and says whether there was one. Nobody else can change it in between: whoever does has
    /// this state to himself.
    fn change_key(&mut self, from: NodeId, asker: Asker, change: Change) {
        let (Some(sender), Some(tables)) = (self.sender(from), &self.tables) else { return };
        let existed = Arc::new(AtomicBool::new(false));
        // What may not be overwritten is refused if it is there, which is known also when the change is asked for again.
        if let Change::RowPut { key, overwrite: true, .. } | Change::RowDeleted { key, .. } = &change {
            let found = existed.clone();
            tables.query(Query::Row { table: Table::Keys, key: key.clone() }, move |answer| {
                found.store(matches!(answer, Ok(Answer::Row(Some(_)))), Ordering::Relaxed);
            });
        }
        let batch = Batch { sender, sequence: asker.number, changes: vec![change] };
        tables.apply(batch, move |answer| match answer {
            Ok(Answer::Applied { refused }) => {
                let why = refused.first().map(|refusal| refusal.why);
                let answer = match why {
                    None => Ok(KeyAnswer::Existed(existed.load(Ordering::Relaxed))),
                    Some(RefusalKind::Exists) => Ok(KeyAnswer::Existed(true)),
                    Some(why) => Err(Failure::new(FailureKind::Refused, refusal_text(why))),
                };
                asker.answer(Reply::Key(answer));
            }
            Ok(Answer::Rejected(why)) => {
                let text = format!("the control process has not kept the value: {why}");
                asker.answer(Reply::Key(Err(Failure::new(FailureKind::Refused, text))));
            }
            _ => {}
        });
    }
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

/// Whether only the control process itself makes such changes.
fn is_reserved(change: &Change) -> bool {
    let (Change::RowPut { table, .. } | Change::RowDeleted { table, .. }) = change else { return false };
    matches!(table, Table::Nodes | Table::Actors | Table::Groups)
}
