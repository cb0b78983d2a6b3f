//! The thread of one shard: steps the machine with all that waits, has the log write it, and saves pieces in between.
//!
//! 1. Whoever finds work drains all of it: no timer makes groups.
//! 2. A snapshot is taken a piece at a time, so that nobody waits for it.
//! 3. A shard whose log has failed answers nothing any more.

use super::completion::Completion;
use super::log::{Hooks, Log};
use super::queue::{Errand, News, Queue, Subscriber};
use super::snapshot::{self, Busy, Found, Snapshot};
use super::{DurableError, StoreConfig, StoreEvents, files};
use aktis_logic::machine::shard::{Recovery, Shard, ShardEffect, ShardInput, SubscriptionId};
use aktis_logic::{Effects, Machine, Time};
use aktis_protocol::records::{Part, Piece};
use aktis_protocol::slots::SlotIndex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a piece waits that the snapshot's writer could not take.
const PIECE_AGAIN: Duration = Duration::from_millis(2);

/// A shard and its log, run by one thread.
pub(super) struct ShardThread {
    folder: PathBuf,
    config: StoreConfig,
    events: Arc<dyn StoreEvents>,
    queue: Arc<Queue>,
    begin: Instant,
    machine: Shard<Completion>,
    log: Log,
    subscribers: BTreeMap<SubscriptionId, Subscriber>,
    saving: Saving,
    /// Bytes of records since the last snapshot began.
    log_bytes: u64,
    /// Bytes of the last snapshot.
    snapshot_bytes: u64,
}

/// How far a snapshot is.
enum Saving {
    Idle,
    /// These parts are to be saved, and perhaps a piece to be handed over.
    Pieces {
        snapshot: Snapshot,
        parts: Vec<Part>,
        piece: Option<Piece>,
    },
    /// All pieces are handed over; the log is to reach this record first.
    Waiting {
        snapshot: Snapshot,
        until: u64,
    },
    /// It is being moved into its place.
    Finishing {
        _snapshot: Snapshot,
    },
}

impl ShardThread {
    /// Reads what is on disk.
    pub(super) fn open(
        folder: PathBuf,
        slots: Vec<SlotIndex>,
        config: StoreConfig,
        events: Arc<dyn StoreEvents>,
        queue: Arc<Queue>,
    ) -> Result<Self, DurableError> {
        files::make_folder(&folder)?;
        let mut recovery = Recovery::new(slots);
        let unreadable = |folder: &Path, at, error: &dyn std::fmt::Display| DurableError::Damaged {
            path: folder.to_owned(),
            at,
            what: error.to_string(),
        };
        let found: Found = snapshot::read(&folder, |piece| {
            recovery.restore(&piece).map_err(|error| unreadable(&folder, piece.position, &error))
        })?;
        let mut log_bytes = 0;
        let replay = |number, bytes: &[u8]| {
            log_bytes += bytes.len() as u64;
            recovery.replay(number, bytes).map_err(|error| unreadable(&folder, number, &error))
        };
        let to = queue.clone();
        let on_persisted = Box::new(move |outcome| {
            to.tell(|news| match outcome {
                Ok(up_to) => news.persisted = Some(up_to),
                Err(error) => news.failed = Some(error),
            });
        });
        let (told, to) = (events.clone(), queue.clone());
        let hooks = Hooks {
            on_persisted,
            on_full: Box::new(move |error| told.on_full(error)),
            is_closing: Box::new(move || to.is_closing()),
        };
        let log = Log::open(&folder, config.segment_bytes_max, found.from, replay, hooks)?;
        let machine: Shard<Completion> = recovery.finish(Time(0));
        if machine.made() + 1 != log.next() {
            let (directory, first, wanted) = (folder, log.next(), machine.made() + 1);
            return Err(DurableError::Missing { directory, first, wanted });
        }
        Ok(Self {
            folder,
            config,
            events,
            queue,
            begin: Instant::now(),
            machine,
            log,
            subscribers: BTreeMap::new(),
            saving: Saving::Idle,
            log_bytes,
            snapshot_bytes: found.bytes,
        })
    }

    /// Runs until the store is closed; what came before that is answered, if the log works.
    pub(super) fn run(mut self) {
        Queue::adopt();
        let (mut errands, mut effects) = (Vec::new(), Effects::new());
        loop {
            let news = self.queue.take(&mut errands, self.deadline());
            if let Some(error) = &news.failed {
                drop(errands);
                return self.fail(error, news.closed);
            }
            let closed = self.on_news(news, &mut effects);
            let now = Time(self.begin.elapsed().as_micros() as u64);
            for errand in errands.drain(..) {
                let input = self.accept(errand);
                self.machine.step(now, input, &mut effects);
                self.carry_out(&mut effects);
            }
            self.machine.step(now, ShardInput::Ticked, &mut effects);
            self.carry_out(&mut effects);
            self.log.commit();
            if closed {
                return self.close();
            }
            self.save_some();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let wakeup = self.machine.next_wakeup().map(|due| self.begin + Duration::from_micros(due.0));
        let saving = match &self.saving {
            Saving::Pieces { piece: Some(_), .. } => Some(Instant::now() + PIECE_AGAIN),
            Saving::Pieces { .. } => Some(Instant::now()),
            // The writer could not take the end when the log was far enough.
            Saving::Waiting { until, .. } if self.machine.persisted() >= *until => {
                Some(Instant::now() + PIECE_AGAIN)
            }
            _ => None,
        };
        wakeup.into_iter().chain(saving).min()
    }

    fn accept(&mut self, errand: Errand) -> ShardInput<Completion> {
        match errand {
            Errand::Subscribe { subscription, filter, subscriber } => {
                self.subscribers.insert(subscription, subscriber);
                ShardInput::Subscribed { subscription, filter }
            }
            Errand::Input(input) => {
                if let ShardInput::Unsubscribed { subscription } = &input {
                    self.subscribers.remove(subscription);
                }
                input
            }
        }
    }

    fn carry_out(&mut self, effects: &mut Effects<ShardEffect<Completion>>) {
        for effect in effects.drain(..) {
            match effect {
                ShardEffect::Persist { sequence, bytes } => {
                    debug_assert_eq!(sequence, self.log.next(), "records are numbered without gaps");
                    self.log_bytes += bytes.len() as u64;
                    self.log.append(&bytes);
                }
                ShardEffect::Reply { ticket, answer } => ticket.answer(answer),
                ShardEffect::Publish { to, notice } => {
                    for subscriber in to.iter().filter_map(|id| self.subscribers.get(id)) {
                        subscriber(&notice);
                    }
                }
                ShardEffect::SubscriptionRefused { subscription } => {
                    self.subscribers.remove(&subscription);
                }
                ShardEffect::Free { object, on } => self.events.free(object, &on),
            }
        }
    }

    /// Takes in what the writers say; whether the store is to be closed.
    fn on_news(&mut self, news: News, effects: &mut Effects<ShardEffect<Completion>>) -> bool {
        if let Some(up_to) = news.persisted {
            let now = Time(self.begin.elapsed().as_micros() as u64);
            self.machine.step(now, ShardInput::Persisted { up_to }, effects);
            self.carry_out(effects);
        }
        match news.snapshot {
            Some(Ok(bytes)) => {
                self.snapshot_bytes = bytes;
                self.saving = Saving::Idle;
            }
            Some(Err(error)) => {
                // The log still has everything. The next attempt comes with more of it.
                self.events.on_snapshot_failed(&error);
                self.log_bytes = 0;
                self.saving = Saving::Idle;
            }
            None => {}
        }
        news.closed
    }

    /// Goes on with a snapshot, or begins one if the log has become longer than the state is.
    fn save_some(&mut self) {
        let saving = std::mem::replace(&mut self.saving, Saving::Idle);
        self.saving = match saving {
            Saving::Idle if self.log_bytes > self.config.snapshot_log_bytes_min.max(self.snapshot_bytes) => {
                self.begin_snapshot()
            }
            Saving::Pieces { snapshot, mut parts, piece } => {
                let piece = piece.or_else(|| parts.pop().map(|part| self.machine.save(part)));
                match piece.map(|piece| snapshot.add(piece)) {
                    Some(Ok(())) => Saving::Pieces { snapshot, parts, piece: None },
                    Some(Err(Busy(piece))) => Saving::Pieces { snapshot, parts, piece },
                    None => Saving::Waiting { snapshot, until: self.machine.made() },
                }
            }
            Saving::Waiting { snapshot, until } if self.machine.persisted() >= until => {
                match snapshot.finish() {
                    Ok(()) => Saving::Finishing { _snapshot: snapshot },
                    Err(Busy(_)) => Saving::Waiting { snapshot, until },
                }
            }
            other => other,
        };
    }

    fn begin_snapshot(&mut self) -> Saving {
        self.log_bytes = 0;
        let to = self.queue.clone();
        let on_done = Box::new(move |outcome| to.tell(|news| news.snapshot = Some(outcome)));
        match Snapshot::begin(&self.folder, self.machine.made(), on_done) {
            Ok(snapshot) => Saving::Pieces { snapshot, parts: self.machine.parts(), piece: None },
            Err(error) => {
                self.events.on_snapshot_failed(&error);
                Saving::Idle
            }
        }
    }

    /// Has everything written, and answers what waits for that.
    fn close(mut self) {
        self.log.close();
        let news = self.queue.take(&mut Vec::new(), Some(Instant::now()));
        if let Some(error) = &news.failed {
            self.events.on_stopped(error);
        }
        self.on_news(news, &mut Effects::new());
        self.queue.end();
    }

    /// The log has failed: nobody gets an answer any more, but for the news that there is none.
    fn fail(self, error: &DurableError, mut closed: bool) {
        self.events.on_stopped(error);
        let queue = self.queue.clone();
        drop(self);
        while !closed {
            closed = queue.take(&mut Vec::new(), None).closed;
        }
        queue.end();
    }
}
