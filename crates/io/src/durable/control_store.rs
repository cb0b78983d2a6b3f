//! The control store: a cheap handle to its shards. Callbacks run on the shards' threads, and must not block.

use super::completion::Completion;
use super::lock::Lock;
use super::merge::{self, Gather};
use super::queue::{Errand, Queue, Subscriber};
use super::shard_thread::ShardThread;
use super::{DurableError, StoreError, files, frames};
use aktis_logic::machine::shard::{ShardInput, SubscriptionId};
use aktis_protocol::slots::{SlotIndex, SlotMap};
use aktis_protocol::tables::{Answer, Batch, Change, Filter, Notice, Query, Rejection, Sender};
use aktis_protocol::{NodeId, ObjectId, limits};
use parking_lot::Mutex;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

const SLOTS_FILE: &str = "slots";

/// What a store orders of those who have it, and tells them.
pub trait StoreEvents: Send + Sync {
    /// These nodes are to free their copies of an object that nobody holds.
    fn free(&self, object: ObjectId, on: &[NodeId]);
    /// A shard could not write its log, and answers nothing any more. The process has to be started again.
    fn on_stopped(&self, error: &DurableError);
    /// The disk is full: a shard keeps what it has, and answers changes when there is room. Nothing: there is room again.
    fn on_full(&self, error: Option<&DurableError>);
    /// A shard could not be saved. Nothing is lost: the log has everything, and grows.
    fn on_snapshot_failed(&self, error: &DurableError);
}

/// How a store is kept.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Shards of a new store. An existing one has those that it was made with.
    pub shards: u16,
    /// Bytes after which a log goes on in another file.
    pub segment_bytes_max: u64,
    /// Bytes of log after which a shard is saved; more, if the last snapshot was larger.
    pub snapshot_log_bytes_min: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { shards: 1, segment_bytes_max: 64 << 20, snapshot_log_bytes_min: 128 << 20 }
    }
}

/// A handle; the store is closed with the last one.
#[derive(Clone, Debug)]
pub struct ControlStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    slots: SlotMap,
    queues: Vec<Arc<Queue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_subscription: AtomicU64,
    subscriptions: AtomicUsize,
    /// Given back after the threads have ended.
    _lock: Lock,
}

impl ControlStore {
    /// Opens the store in `directory`, or makes a new one with so many shards.
    pub fn open(directory: &Path, shards: u16, events: Arc<dyn StoreEvents>) -> Result<Self, DurableError> {
        Self::open_with(directory, StoreConfig { shards, ..StoreConfig::default() }, events)
    }

    /// The same, with more said about how it is kept.
    pub fn open_with(
        directory: &Path,
        config: StoreConfig,
        events: Arc<dyn StoreEvents>,
    ) -> Result<Self, DurableError> {
        files::make_folder(directory)?;
        let lock = Lock::take(directory)?;
        let slots = slot_map(directory, config.shards)?;
        let queues: Vec<Arc<Queue>> = (0..slots.shards()).map(|_| Arc::default()).collect();
        let shards = open_shards(directory, &slots, &queues, config, &events)?;
        // The folders of a new store are to be found again, too.
        files::sync_folder(directory)?;
        files::sync_folder(&directory.join(".."))?;
        let mut inner = Inner {
            slots,
            queues,
            threads: Mutex::default(),
            next_subscription: AtomicU64::new(0),
            subscriptions: AtomicUsize::new(0),
            _lock: lock,
        };
        for (number, shard) in shards.into_iter().enumerate() {
            let name = format!("aktis-shard-{number}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || shard.run());
            let thread = spawned.map_err(DurableError::disk("start a thread for", directory))?;
            inner.threads.get_mut().push(thread);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes a batch. `done` is called when it is on disk, with [`Answer::Applied`] or [`Answer::Rejected`].
    ///
    /// A batch is made whole in each shard that it concerns; whoever gets no answer sends it again. The caller waits
    /// while too much waits for a shard, and should hold no lock that a callback wants.
    pub fn apply(&self, batch: Batch, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
        self.wait_for_room();
        self.apply_now(batch, done);
    }

    fn wait_for_room(&self) {
        self.inner.queues.iter().for_each(|queue| queue.wait_for_room());
    }

    fn apply_now(&self, batch: Batch, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
        let completion = Completion::new(done);
        let bytes: usize = batch.changes.iter().map(Change::bytes).sum();
        if batch.changes.len() > limits::BATCH_CHANGES_MAX || bytes > limits::BATCH_BYTES_MAX {
            return completion.answer(Answer::Rejected(Rejection::TooLarge));
        }
        let first = batch.changes.first().map_or(0, |change| self.inner.slots.shard_of(change.slot()));
        let is_elsewhere = |change: &Change| self.inner.slots.shard_of(change.slot()) != first;
        if self.inner.queues.len() == 1 || !batch.changes.iter().any(is_elsewhere) {
            return self.push(first, ShardInput::Received { ticket: completion, batch });
        }
        self.apply_split(batch, completion);
    }

    /// Makes a batch that concerns several shards.
    fn apply_split(&self, batch: Batch, completion: Completion) {
        let Batch { sender, sequence, changes } = batch;
        let mut parts: Vec<(Vec<Change>, Vec<u32>)> = Vec::new();
        parts.resize_with(self.inner.queues.len(), Default::default);
        for (place, change) in changes.into_iter().enumerate() {
            let (changes, places) = &mut parts[usize::from(self.inner.slots.shard_of(change.slot()))];
            changes.push(change);
            places.push(place as u32);
        }
        let concerned = parts.iter().filter(|(changes, _)| !changes.is_empty()).count();
        let gather = Gather::new(concerned, usize::MAX, completion);
        for (shard, (changes, places)) in parts.into_iter().enumerate() {
            if changes.is_empty() {
                continue;
            }
            let ticket = gather.part(move |answer| {
                if let Answer::Applied { refused } = answer {
                    refused.iter_mut().for_each(|refusal| refusal.change = places[refusal.change as usize]);
                }
            });
            let batch = Batch { sender, sequence, changes };
            self.push(shard as u16, ShardInput::Received { ticket, batch });
        }
    }

    /// A node's life is over: its copies and holdings go. `done` is called when that is on disk.
    pub fn node_left(&self, sender: Sender, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
        let gather = Gather::new(self.inner.queues.len(), usize::MAX, Completion::new(done));
        for shard in 0..self.inner.slots.shards() {
            let ticket = gather.part(|_| ());
            self.push(shard, ShardInput::NodeLeft { ticket, sender });
        }
    }

    /// Answers a question. What the answer says is on disk.
    pub fn query(&self, query: Query, done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) {
        let completion = Completion::new(done);
        if let Some(slot) = query.slot() {
            let shard = self.inner.slots.shard_of(slot);
            return self.push(shard, ShardInput::Asked { ticket: completion, query });
        }
        let gather = Gather::new(self.inner.queues.len(), merge::limit_of(&query), completion);
        for shard in 0..self.inner.slots.shards() {
            let ticket = gather.part(|_| ());
            self.push(shard, ShardInput::Asked { ticket, query: query.clone() });
        }
    }

    /// Calls `subscriber` with how things are and whenever they change, until the subscription is dropped.
    pub fn subscribe(
        &self,
        filter: Filter,
        subscriber: impl Fn(&Notice) + Send + Sync + 'static,
    ) -> Result<Subscription, StoreError> {
        if self.inner.subscriptions.fetch_add(1, Ordering::Relaxed) >= limits::SUBSCRIPTIONS_MAX {
            self.inner.subscriptions.fetch_sub(1, Ordering::Relaxed);
            return Err(StoreError::TooManySubscriptions);
        }
        let id = SubscriptionId(self.inner.next_subscription.fetch_add(1, Ordering::Relaxed));
        let subscriber: Subscriber = Arc::new(subscriber);
        let slot = filter.slot();
        for shard in self.shards_of(slot) {
            let (filter, subscriber) = (filter.clone(), subscriber.clone());
            let errand = Errand::Subscribe { subscription: id, filter, subscriber };
            self.inner.queues[usize::from(shard)].push(errand);
        }
        Ok(Subscription { store: self.clone(), id, slot })
    }

    /// A writer for one life of a node, which numbers its batches. There may be only one for each.
    pub fn writer(&self, sender: Sender) -> StoreWriter {
        StoreWriter { store: self.clone(), sender, next: Mutex::new(1) }
    }

    fn shards_of(&self, slot: Option<SlotIndex>) -> impl Iterator<Item = u16> + use<> {
        let one = slot.map(|slot| self.inner.slots.shard_of(slot));
        (0..self.inner.slots.shards()).filter(move |shard| one.is_none_or(|one| one == *shard))
    }

    fn push(&self, shard: u16, input: ShardInput<Completion>) {
        self.inner.queues[usize::from(shard)].push(Errand::Input(input));
    }

    /// Has everything written that was asked for before, and waits for it; whatever comes later gets
    /// [`StoreError::Stopped`].
    ///
    /// The last handle does this when it is dropped. But callbacks may have handles, and a process that ends does not wait
    /// for them.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        for queue in &self.queues {
            queue.tell(|news| news.closed = true);
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last handle may go in a callback, on one of these threads.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Which shard has which slot: as it was decided when the store was made.
fn slot_map(directory: &Path, shards: u16) -> Result<SlotMap, DurableError> {
    let path = directory.join(SLOTS_FILE);
    if !path.exists() {
        let map = SlotMap::even(shards);
        let mut bytes = Vec::new();
        frames::push(&mut bytes, 0, &map.to_bytes());
        files::write_whole(directory, SLOTS_FILE, &bytes)?;
        return Ok(map);
    }
    let bytes = std::fs::read(&path).map_err(DurableError::disk("read", &path))?;
    let map = frames::Frames::new(&bytes, 0, 0).next();
    let map = map.ok().flatten().and_then(|(_, bytes)| SlotMap::from_bytes(bytes).ok());
    map.ok_or_else(|| DurableError::Damaged { path, at: 0, what: "it is not a map of slots".to_owned() })
}

/// Reads all shards, at the same time.
fn open_shards(
    directory: &Path,
    slots: &SlotMap,
    queues: &[Arc<Queue>],
    config: StoreConfig,
    events: &Arc<dyn StoreEvents>,
) -> Result<Vec<ShardThread>, DurableError> {
    std::thread::scope(|scope| {
        let open = |(shard, queue): (usize, &Arc<Queue>)| {
            let folder: PathBuf = directory.join(format!("shard-{shard:04}"));
            let owned: Vec<SlotIndex> = slots.slots_of(shard as u16).collect();
            let (events, queue) = (events.clone(), queue.clone());
            scope.spawn(move || ShardThread::open(folder, owned, config, events, queue))
        };
        let opening: Vec<_> = queues.iter().enumerate().map(open).collect();
        opening
            .into_iter()
            .map(|shard| shard.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Ends when it is dropped; a notice that is under way may still come.
#[derive(Debug)]
pub struct Subscription {
    store: ControlStore,
    id: SubscriptionId,
    slot: Option<SlotIndex>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for shard in self.store.shards_of(self.slot) {
            self.store.push(shard, ShardInput::Unsubscribed { subscription: self.id });
        }
        self.store.inner.subscriptions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Writes for one life of a node, and numbers the batches.
pub struct StoreWriter {
    store: ControlStore,
    sender: Sender,
    next: Mutex<u64>,
}

impl StoreWriter {
    /// Makes changes together; see [`ControlStore::apply`].
    pub fn apply(
        &self,
        changes: Vec<Change>,
        done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static,
    ) {
        // Not under the lock: a callback may write, too.
        self.store.wait_for_room();
        // Numbers must reach the shards in their order.
        let mut next = self.next.lock();
        let batch = Batch { sender: self.sender, sequence: *next, changes };
        *next += 1;
        self.store.apply_now(batch, done);
    }
}

impl fmt::Debug for StoreWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreWriter").field("sender", &self.sender).finish_non_exhaustive()
    }
}
