//! What the control process keeps on disk: nodes, names of actors, placement groups, and what nodes have it keep: keys, jobs,
//! and how tasks can be run again without the nodes that submitted them.
//!
//! | table | key | value |
//! |---|---|---|
//! | nodes | the node's id | [`NodeInfo`] |
//! | nodes | `epoch` | the next epoch |
//! | nodes | `left/` and a number | a [`Sender`] whose membership is over, and whose records are still kept |
//! | nodes | `dead/`, the time and a number | a [`DeadNode`], of the last that there are |
//! | actors | `name/` and the name | the node in whose care the actor lives, and [`FoundActor`] |
//! | groups | the group's id | [`GroupRow`] |
//! | all others | as those say who write them | |
//!
//! All rows of the table of nodes are in one shard: a node's row and the epoch after it, or its end and its row under `left/`,
//! are on disk together, or neither is.

use super::clock::{Clock, FromTables};
use super::files::Files;
use super::{ControlError, names::Home};
use crate::elsewhere::jobs::NodesLeft;
use crate::elsewhere::programs::programs_of;
use aktis_io::durable::{
    ControlStore, DurableError, StoreConfig, StoreError, StoreEvents, StoreWriter, Subscription,
};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::member::{DEAD_PREFIX, DeadNode, Departure};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::tables::{Answer, Batch, Change, Event, Filter, Key, Query, Sender, Table};
use aktis_protocol::{Epoch, GroupId, GroupRow, NodeId, ObjectId, limits};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{SystemTime, UNIX_EPOCH};

const EPOCH_KEY: &str = "epoch";
const LEFT_PREFIX: &str = "left/";
const NAME_PREFIX: &str = "name/";
/// Names that are longer are granted to nobody.
pub(super) const NAME_BYTES_MAX: usize = limits::KEY_BYTES_MAX - NAME_PREFIX.len();
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

/// What was found on disk.
pub(super) struct Found {
    pub(super) nodes: Vec<NodeInfo>,
    pub(super) names: Vec<(String, Home)>,
    pub(super) groups: Vec<GroupRow>,
    /// Higher than all that were given.
    pub(super) next_epoch: Epoch,
    /// Those whose memberships are over, and whose records are still kept.
    pub(super) left: Vec<Sender>,
}

impl Tables {
    /// Opens them for the control process `own`.
    pub(super) fn open(
        files: &Files,
        own: NodeId,
        clock: &Arc<Clock>,
    ) -> Result<(Self, Found), ControlError> {
        let path = files.store();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (processors / PROCESSORS_PER_SHARD).clamp(1, SHARDS_MAX) as u16;
        let config = StoreConfig { shards, ..StoreConfig::default() };
        let store = ControlStore::open_with(&path, config, Arc::new(Events(clock.clone())))?;
        let found = find(&store, &path)?;
        // This life of the control process gets an epoch like any node's.
        let life = found.next_epoch;
        let writer = Arc::new(store.writer(Sender { node: own, epoch: life.0 }));
        let found = Found { next_epoch: Epoch(life.0 + 1), ..found };
        let all = Filter::Rows { table: Table::Nodes, prefix: Key(Vec::new()) };
        let told = clock.clone();
        let nodes = store.subscribe(all, move |notice| told.tell(FromTables::Published(notice.clone())));
        let tables = Self { store, writer, clock: clock.clone(), _nodes: nodes.expect("the first one") };
        // On disk before anything else of this life: the next one must not take the same epoch.
        let (sender, receiver) = channel();
        tables.writer.apply(vec![keep_epoch(found.next_epoch)], move |answer| {
            let _ = sender.send(answer);
        });
        let Ok(Ok(Answer::Applied { .. })) = receiver.recv() else {
            return Err(ControlError::Row { path, what: "the store has stopped" });
        };
        tables.change(vec![event(own.into(), "the control process has started")]);
        Ok((tables, found))
    }

    /// A node is a member from now on.
    pub(super) fn keep_node(&self, info: &NodeInfo, next_epoch: Epoch) {
        let key = Key::from(info.node);
        let text = format!("it has joined, with epoch {}", info.epoch.0);
        self.change(vec![
            Change::RowPut { table: Table::Nodes, key: key.clone(), value: encode(info), overwrite: true },
            keep_epoch(next_epoch),
            event(key, &text),
        ]);
    }

    /// A membership is over. What the node has told of objects and tasks stays until [`Self::forget_records`].
    pub(super) fn forget_node(&self, sender: Sender) {
        let Sender { node, epoch } = sender;
        let text = format!("its membership with epoch {epoch} is over");
        let gone = Change::RowDeleted { table: Table::Nodes, key: node.into() };
        let (table, key, value) = (Table::Nodes, left_key(sender), encode(&sender));
        let left = Change::RowPut { table, key, value, overwrite: true };
        self.change(vec![gone, left, event(node.into(), &text)]);
    }

    /// A node that was a member is told of for a while; older ones make room.
    pub(super) fn keep_dead_node(&self, info: &NodeInfo, why: Departure) {
        let unix_milliseconds = unix_microseconds() / 1000;
        let dead = DeadNode { info: info.clone(), unix_milliseconds, why };
        // In the order of their deaths.
        let parts = [DEAD_PREFIX.as_bytes(), &unix_milliseconds.to_be_bytes(), &info.epoch.0.to_be_bytes()];
        let key = Key(parts.concat());
        self.change(vec![Change::RowPut { table: Table::Nodes, key, value: encode(&dead), overwrite: true }]);
        let rows = (Table::Nodes, DEAD_PREFIX.into(), None);
        revise_rows(&self.store, &self.writer, rows, |mut rows| {
            rows.truncate(rows.len().saturating_sub(limits::DEAD_NODES_KEPT));
            let gone = |(key, _)| Change::RowDeleted { table: Table::Nodes, key };
            rows.into_iter().map(gone).collect()
        });
    }

    /// The drivers on nodes that have left are lost, and these serve no programs any more.
    pub(super) fn end_programs(&self, left: BTreeSet<NodeId>, members: BTreeSet<NodeId>) {
        for node in &left {
            let gone = |(key, _)| Change::RowDeleted { table: Table::Programs, key };
            let revise = move |rows: Vec<_>| rows.into_iter().map(gone).collect();
            revise_rows(&self.store, &self.writer, (Table::Programs, programs_of(*node), None), revise);
        }
        let mut jobs = NodesLeft::new(left, members);
        let all = (Table::Jobs, Key(Vec::new()), None);
        revise_rows(&self.store, &self.writer, all, move |rows| jobs.on_rows(rows));
    }

    /// What a node has told of objects and tasks, and nobody has claimed since it left, goes.
    pub(super) fn forget_records(&self, sender: Sender) {
        let writer = self.writer.clone();
        self.store.node_left(sender, move |_| {
            // Not before: if this process dies meanwhile, the next one has to do it.
            let done = Change::RowDeleted { table: Table::Nodes, key: left_key(sender) };
            writer.apply(vec![done], |_| ());
        });
    }

    /// An actor has a name; `done` is told whether that is kept.
    pub(super) fn keep_name(&self, name: &str, home: &Home, done: impl FnOnce(bool) + Send + 'static) {
        let (key, value) = (name_key(name), encode(home));
        let put = Change::RowPut { table: Table::Actors, key, value, overwrite: true };
        self.writer.apply(vec![put], move |answer| match answer {
            Ok(Answer::Applied { refused }) => done(refused.is_empty()),
            Ok(_) => done(false),
            // The process ends, and the name is claimed again when it is back.
            Err(StoreError::Stopped | StoreError::TooManySubscriptions) => {}
        });
    }

    pub(super) fn free_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let free = |name| Change::RowDeleted { table: Table::Actors, key: name_key(name) };
        self.change(names.into_iter().map(free).collect());
    }

    /// A group is so, or is there no more; [`FromTables::GroupWritten`] says when that is on disk.
    pub(super) fn write_group(&self, group: GroupId, row: Option<&GroupRow>, write: u64) {
        let (table, key) = (Table::Groups, Key::from(group));
        let change = match row {
            Some(row) => Change::RowPut { table, key, value: encode(row), overwrite: true },
            None => Change::RowDeleted { table, key },
        };
        let clock = self.clock.clone();
        self.writer.apply(vec![change], move |answer| {
            let outcome = match answer {
                Ok(Answer::Applied { refused }) => {
                    refused.first().map_or(Ok(()), |refusal| Err(refusal.why.to_string()))
                }
                Ok(Answer::Rejected(why)) => Err(why.to_string()),
                // The process ends.
                _ => return,
            };
            clock.tell(FromTables::GroupWritten { group, write, outcome });
        });
    }

    /// Makes changes of a node, once, however often they are sent.
    pub(super) fn apply(&self, batch: Batch, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
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

fn keep_epoch(epoch: Epoch) -> Change {
    Change::RowPut { table: Table::Nodes, key: EPOCH_KEY.into(), value: encode(&epoch), overwrite: true }
}

fn event(subject: Key, text: &str) -> Change {
    Change::EventNoted(Event { at_microseconds: unix_microseconds(), subject, text: text.to_owned() })
}

fn unix_microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Epochs are given once.
fn left_key(sender: Sender) -> Key {
    Key([LEFT_PREFIX.as_bytes(), &sender.epoch.to_be_bytes()].concat())
}

fn name_key(name: &str) -> Key {
    Key([NAME_PREFIX.as_bytes(), name.as_bytes()].concat())
}

/// A node in its row; `None` for the other row of that table.
pub(super) fn node_in(key: &Key) -> Option<NodeId> {
    let bytes: [u8; 16] = key.0.as_slice().try_into().ok()?;
    let (first, second) = bytes.split_at(8);
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    Some(NodeId::from_words([word(first), word(second)]))
}

fn find(store: &ControlStore, path: &Path) -> Result<Found, ControlError> {
    let unreadable = |what| ControlError::Row { path: path.to_owned(), what };
    let mut found = Found {
        nodes: Vec::new(),
        names: Vec::new(),
        groups: Vec::new(),
        next_epoch: Epoch(1),
        left: Vec::new(),
    };
    for (key, value) in rows(store, path, Table::Nodes)? {
        if node_in(&key).is_some() {
            found.nodes.push(decode(&value).map_err(|_| unreadable("a node"))?);
        } else if key == EPOCH_KEY.into() {
            found.next_epoch = decode(&value).map_err(|_| unreadable("the epoch"))?;
        } else if key.0.starts_with(LEFT_PREFIX.as_bytes()) {
            found.left.push(decode(&value).map_err(|_| unreadable("a node that has left"))?);
        }
    }
    for (key, value) in rows(store, path, Table::Actors)? {
        let Some(name) = key.0.strip_prefix(NAME_PREFIX.as_bytes()) else { continue };
        let name = String::from_utf8(name.to_vec()).map_err(|_| unreadable("a name"))?;
        found.names.push((name, decode(&value).map_err(|_| unreadable("a named actor"))?));
    }
    for (_, value) in rows(store, path, Table::Groups)? {
        found.groups.push(decode(&value).map_err(|_| unreadable("a placement group"))?);
    }
    Ok(found)
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

struct Events(Arc<Clock>);

impl StoreEvents for Events {
    /// Nodes tell of what they hold, and free copies by themselves.
    fn free(&self, _object: ObjectId, _on: &[NodeId]) {}

    fn on_stopped(&self, error: &DurableError) {
        self.0.fail(error.to_string());
    }

    fn on_snapshot_failed(&self, error: &DurableError) {
        eprintln!("aktis: the tables could not be saved, and their log grows: {error}");
    }
}

#[cfg(test)]
mod tests;
