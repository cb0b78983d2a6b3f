//! What the control process keeps on disk: the rows of its [`Head`](aktis_logic::machine::head::Head), and what nodes have it
//! keep: keys, jobs, programs, and how tasks can be run again without the nodes that submitted them.

use super::ControlError;
use super::clock::Clock;
use super::files::Files;
use aktis_io::durable::{
    ControlStore, DurableError, StoreConfig, StoreError, StoreEvents, StoreWriter, Subscription,
};
use aktis_logic::machine::head::{
    HeadInput, HeadWrite, NodesLeft, Restored, TableRequest, keep_epoch, node_in, programs_of,
    reply_to_key_change, started,
};
use aktis_node::journal;
use aktis_protocol::control::decode;
use aktis_protocol::member::{DEAD_PREFIX, Reply};
use aktis_protocol::tables::{Answer, Batch, Change, Event, Filter, Key, Notice, Query, Sender, Table};
use aktis_protocol::{Epoch, NodeId, ObjectId, limits};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// Processors for each shard: it has two threads, and is idle most of the time.
const PROCESSORS_PER_SHARD: usize = 4;
const SHARDS_MAX: usize = 16;

/// See the module.
pub(super) struct Tables {
    store: ControlStore,
    writer: Arc<StoreWriter>,
    clock: Arc<Clock>,
    /// Says which nodes are members, when that is on disk.
    _nodes: Subscription,
}

impl Tables {
    /// Opens them for the control process `own`.
    pub(super) fn open(
        files: &Files,
        own: NodeId,
        clock: &Arc<Clock>,
    ) -> Result<(Self, Restored), ControlError> {
        let path = files.store();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (processors / PROCESSORS_PER_SHARD).clamp(1, SHARDS_MAX) as u16;
        let config = StoreConfig { shards, ..StoreConfig::default() };
        let store = ControlStore::open_with(&path, config, Arc::new(Events(clock.clone())))?;
        let mut restored = find(&store, &path)?;
        // This life of the control process gets an epoch like any node's.
        let life = restored.next_epoch;
        let writer = Arc::new(store.writer(Sender { node: own, epoch: life.0 }));
        restored.next_epoch = Epoch(life.0 + 1);
        let all = Filter::Rows { table: Table::Nodes, prefix: Key(Vec::new()) };
        let told = clock.clone();
        let nodes = store.subscribe(all, move |notice| {
            node_written(notice).into_iter().for_each(|input| told.tell(input))
        });
        let tables = Self { store, writer, clock: clock.clone(), _nodes: nodes.expect("the first one") };
        // On disk before anything else of this life: the next one must not take the same epoch.
        let (sender, receiver) = channel();
        tables.writer.apply(vec![keep_epoch(restored.next_epoch)], move |answer| {
            let _ = sender.send(answer);
        });
        let Ok(Ok(Answer::Applied { .. })) = receiver.recv() else {
            return Err(ControlError::Row { path, what: "the store has stopped" });
        };
        tables.change(vec![started(own, unix_microseconds())]);
        Ok((tables, restored))
    }

    /// Has everything written, and waits for it: callbacks that are still to come have handles of the store.
    pub(super) fn close(self) {
        self.store.close();
    }

    /// Writes rows of the head, and tells it when those are on disk that it waits for.
    pub(super) fn write(&self, write: &HeadWrite) {
        let changes = write.changes(unix_microseconds());
        let clock = self.clock.clone();
        match write.clone() {
            HeadWrite::Name { claim, .. } => self.writer.apply(changes, move |answer| {
                // If the process ends, the name is claimed again when it is back.
                if let Ok(answer) = answer {
                    let is_kept = outcome_of(answer).is_ok();
                    clock.tell(HeadInput::NameWritten { claim, is_kept });
                }
            }),
            HeadWrite::Group { group, write, .. } => self.writer.apply(changes, move |answer| {
                if let Ok(answer) = answer {
                    let outcome = outcome_of(answer);
                    clock.tell(HeadInput::GroupWritten { group, write, outcome });
                }
            }),
            HeadWrite::NodeDied { .. } => {
                self.change(changes);
                self.trim_dead_nodes();
            }
            // The subscription tells of the rows of nodes.
            HeadWrite::NodeJoined { .. }
            | HeadWrite::NodeLeft { .. }
            | HeadWrite::RecordsForgotten { .. }
            | HeadWrite::Token { .. }
            | HeadWrite::PutOut { .. }
            | HeadWrite::TrustForgotten { .. }
            | HeadWrite::Noted { .. }
            | HeadWrite::NamesFreed { .. } => self.change(changes),
        }
    }

    /// Says when all is on disk that was written to the table of nodes so far: a shard answers in order, and what it answers is
    /// on disk.
    pub(super) fn after_writes(&self, done: mpsc::Sender<()>) {
        let query = Query::Counts;
        self.query(query, move |answer| {
            if answer.is_ok() {
                let _ = done.send(());
            }
        });
    }

    /// The last events, the oldest first.
    pub(super) fn ask_events(&self, limit: u32, done: mpsc::Sender<Vec<Event>>) {
        let query = Query::Events { limit: limit.min(limits::ANSWER_ROWS_MAX) };
        self.query(query, move |answer| {
            if let Ok(Answer::Events(events)) = answer {
                let _ = done.send(events);
            }
        });
    }

    /// Deletes the rows of all dead nodes but the last.
    fn trim_dead_nodes(&self) {
        let rows = (Table::Nodes, DEAD_PREFIX.into(), None);
        revise_rows(&self.store, &self.writer, rows, |mut rows| {
            rows.truncate(rows.len().saturating_sub(limits::DEAD_NODES_KEPT));
            let gone = |(key, _)| Change::RowDeleted { table: Table::Nodes, key };
            rows.into_iter().map(gone).collect()
        });
    }

    /// The running jobs of nodes that have left are lost, and the rows of their programs go.
    /// The head is told when that is done.
    pub(super) fn end_programs(&self, left: &BTreeSet<NodeId>, members: BTreeSet<NodeId>) {
        let ended = Arc::new(ProgramsEnded { clock: self.clock.clone(), left: left.clone() });
        for node in left {
            let ended = ended.clone();
            let gone = |(key, _)| Change::RowDeleted { table: Table::Programs, key };
            let revise = move |rows: Vec<_>| {
                let _ = &ended;
                rows.into_iter().map(gone).collect()
            };
            revise_rows(&self.store, &self.writer, (Table::Programs, programs_of(*node), None), revise);
        }
        let mut jobs = NodesLeft::new(left.clone(), members);
        let all = (Table::Jobs, Key(Vec::new()), None);
        let revise = move |rows| {
            let _ = &ended;
            jobs.on_rows(rows, unix_microseconds() / 1000)
        };
        revise_rows(&self.store, &self.writer, all, revise);
    }

    /// Drops the records of objects and tasks of a membership that is over, as far as no other node has claimed them.
    pub(super) fn forget_records(&self, sender: Sender) {
        let writer = self.writer.clone();
        self.store.node_left(sender, move |_| {
            // Not before: if this process dies meanwhile, the next one has to do it.
            let forgotten = HeadWrite::RecordsForgotten { sender };
            writer.apply(forgotten.changes(unix_microseconds()), |_| ());
        });
    }

    /// Asks for a node, and gives the reply. If the store stops, there is none: the process ends, and the question is asked
    /// again.
    pub(super) fn ask(&self, request: TableRequest, reply: impl Fn(Reply) + Send + 'static) {
        match request {
            TableRequest::Query { query, reply: form } => self.query(query, move |answer| {
                answer.ok().and_then(|answer| form.reply(answer)).into_iter().for_each(reply);
            }),
            TableRequest::Change(batch) => self.apply(batch, move |answer| {
                answer.ok().map(Reply::Table).into_iter().for_each(reply);
            }),
            TableRequest::KeyChange { batch, row_before } => {
                // No other change comes in between: the head's lock is held.
                let existed = Arc::new(AtomicBool::new(false));
                if let Some(key) = row_before {
                    let found = existed.clone();
                    self.query(Query::Row { table: Table::Keys, key }, move |answer| {
                        found.store(matches!(answer, Ok(Answer::Row(Some(_)))), Ordering::Relaxed);
                    });
                }
                self.apply(batch, move |answer| {
                    let existed = existed.load(Ordering::Relaxed);
                    let made = answer.ok().and_then(|answer| reply_to_key_change(existed, answer));
                    made.into_iter().for_each(reply);
                });
            }
        }
    }

    /// Makes changes of a node, once, however often they are sent.
    fn apply(&self, batch: Batch, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
        self.store.apply(batch, done);
    }

    pub(super) fn query(&self, query: Query, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
        self.store.query(query, done);
    }

    /// Makes changes that nobody waits for.
    fn change(&self, mut changes: Vec<Change>) {
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(limits::BATCH_CHANGES_MAX));
            self.writer.apply(changes, |_| ());
            changes = rest;
        }
    }
}

/// What the head is told of a row that is on disk, if it is a node's.
fn node_written(notice: &Notice) -> Option<HeadInput> {
    let Notice::Row { table: Table::Nodes, key, value } = notice else { return None };
    let info = value.as_ref().and_then(|value| decode(value).ok());
    Some(HeadInput::NodeWritten { node: node_in(key)?, info })
}

/// Whether a change that was alone in its batch was made.
fn outcome_of(answer: Answer) -> Result<(), String> {
    match answer {
        Answer::Applied { refused } => refused.first().map_or(Ok(()), |refusal| Err(refusal.why.to_string())),
        Answer::Rejected(why) => Err(why.to_string()),
        other => Err(format!("the store has answered {other:?}")),
    }
}

fn unix_microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn find(store: &ControlStore, path: &Path) -> Result<Restored, ControlError> {
    let mut restored = Restored::default();
    for table in [Table::Nodes, Table::Actors, Table::Groups] {
        for (key, value) in rows(store, path, table)? {
            let read = restored.on_row(table, &key, &value);
            read.map_err(|row| ControlError::Row { path: path.to_owned(), what: row.0 })?;
        }
    }
    Ok(restored)
}

/// All rows of a table.
fn rows(store: &ControlStore, path: &Path, table: Table) -> Result<Vec<(Key, Vec<u8>)>, ControlError> {
    let mut all: Vec<(Key, Vec<u8>)> = Vec::new();
    loop {
        let (sender, receiver) = channel();
        let after = all.last().map(|(key, _)| key.clone());
        let query = Query::Rows {
            table,
            prefix: Key(Vec::new()),
            after,
            limit: limits::ANSWER_ROWS_MAX,
            values: true,
        };
        store.query(query, move |answer| {
            let _ = sender.send(answer);
        });
        let Ok(Ok(Answer::Rows { rows, more })) = receiver.recv() else {
            return Err(ControlError::Row { path: path.to_owned(), what: "the store has stopped" });
        };
        all.extend(rows);
        if !more {
            return Ok(all);
        }
    }
}

/// Makes the changes that follow from rows of a table: those whose keys begin so and come after that one, page by page.
fn revise_rows(
    store: &ControlStore,
    writer: &Arc<StoreWriter>,
    (table, prefix, after): (Table, Key, Option<Key>),
    mut revise: impl FnMut(Vec<(Key, Vec<u8>)>) -> Vec<Change> + Send + 'static,
) {
    let limit = limits::ANSWER_ROWS_MAX;
    let query = Query::Rows { table, prefix: prefix.clone(), after, limit, values: true };
    let (next, writer) = (store.clone(), writer.clone());
    store.query(query, move |answer| {
        let Ok(Answer::Rows { rows, more }) = answer else { return };
        let last = rows.last().map(|(key, _)| key.clone()).filter(|_| more);
        let changes = revise(rows);
        if !changes.is_empty() {
            writer.apply(changes, |_| ());
        }
        if last.is_some() {
            revise_rows(&next, &writer, (table, prefix, last), revise);
        }
    });
}

/// Tells the head that programs are ended, when the last change for that was made and this is dropped.
struct ProgramsEnded {
    clock: Arc<Clock>,
    left: BTreeSet<NodeId>,
}

impl Drop for ProgramsEnded {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.left);
        self.clock.tell(HeadInput::ProgramsEnded { left });
    }
}

struct Events(Arc<Clock>);

impl StoreEvents for Events {
    /// Nodes tell of what they hold, and free copies by themselves.
    fn free(&self, _object: ObjectId, _on: &[NodeId]) {}

    fn on_stopped(&self, error: &DurableError) {
        self.0.fail(error.to_string());
    }

    fn on_full(&self, error: Option<&DurableError>) {
        match error {
            Some(error) => journal::error(format_args!(
                "nothing new is kept until there is room on the disk: {error}\n\
                 hint: make room; what was accepted is there, and what waits is accepted then"
            )),
            None => journal::warn("there is room on the disk again: what has waited is kept"),
        }
    }

    fn on_snapshot_failed(&self, error: &DurableError) {
        journal::warn(format_args!("the tables could not be saved, and their log grows: {error}"));
    }
}

#[cfg(test)]
mod tests;
