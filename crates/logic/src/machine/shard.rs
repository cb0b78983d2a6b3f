//! One shard of the control store: the tables of its slots, made durable, published, and freed of what nobody needs.
//!
//! Its parts, each in a file of its own:
//!
//! - `tables` and `slot`: what is known, and the changes to it; `nodes`: nodes as small numbers;
//! - `senders`: who has written how far, so that a repeated batch changes nothing;
//! - `subscriptions`: who wants to be told of what;
//! - `recovery`: how a shard is saved in pieces, and made again from them and the log.
//!
//! 1. What leaves the shard (an answer, a notice, an order to free) says nothing that is not on disk.
//! 2. A batch is made at most once, whole, and in the order of its sender.
//! 3. No object is freed while a node holds it; one that nobody holds is freed wherever there is a copy, and the
//!    order is repeated until the copies are gone.
//!
//! What the caller guarantees: what is ordered by `Persist` is written in order, and `Persisted` says how far.

mod nodes;
mod recovery;
mod senders;
mod slot;
mod subscriptions;
mod tables;

use crate::planted::{Planted, ShardBug};
use crate::{Effects, Machine, Time};
use aktis_protocol::records::{Record, encode};
use aktis_protocol::tables::{
    Answer, Batch, Change, Filter, Key, Notice, Query, Refusal, Rejection, Sender, Table,
};
use aktis_protocol::{NodeId, ObjectId, limits};
use senders::{Senders, Verdict};
use slot::Fate;
use std::collections::VecDeque;
use std::ops::Bound;
use subscriptions::Subscriptions;
use tables::{Mode, Tables, Touched};

pub use recovery::Recovery;
pub use subscriptions::SubscriptionId;

/// After how long an order to free is repeated, if the copies are still there.
pub const FREE_AGAIN_MICROSECONDS: u64 = 5_000_000;

/// What a shard is told. A `T` is the caller's own mark on a question, given back with the answer.
#[derive(Clone, Debug)]
pub enum ShardInput<T> {
    /// A batch arrived. Answer: [`Answer::Applied`] or [`Answer::Rejected`].
    Received {
        /// Whom to answer.
        ticket: T,
        /// The batch.
        batch: Batch,
    },
    /// A question arrived.
    Asked {
        /// Whom to answer.
        ticket: T,
        /// The question.
        query: Query,
    },
    /// A node's life is over, and those before it. Answer: as for a batch.
    NodeLeft {
        /// Whom to answer.
        ticket: T,
        /// Which life.
        sender: Sender,
    },
    /// Somebody wants to be told of something. Answer: [`ShardEffect::SubscriptionRefused`] if there is no room.
    Subscribed {
        /// How the caller names it.
        subscription: SubscriptionId,
        /// Of what.
        filter: Filter,
    },
    /// Somebody does not want to be told any more.
    Unsubscribed {
        /// Which.
        subscription: SubscriptionId,
    },
    /// All records up to this one are on disk.
    Persisted {
        /// The last of them.
        up_to: u64,
    },
    /// Time has passed.
    Ticked,
}

/// What a shard orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardEffect<T> {
    /// Append a record to the log. The numbers follow each other.
    Persist {
        /// Its number.
        sequence: u64,
        /// A [`Record`], encoded.
        bytes: Vec<u8>,
    },
    /// Answer.
    Reply {
        /// Whom.
        ticket: T,
        /// What.
        answer: Answer,
    },
    /// Tell subscribers.
    Publish {
        /// Whom.
        to: Vec<SubscriptionId>,
        /// What.
        notice: Notice,
    },
    /// There is no room for this subscription.
    SubscriptionRefused {
        /// Which.
        subscription: SubscriptionId,
    },
    /// Have these nodes free their copies of the object. They say [`Change::CopyDropped`].
    Free {
        /// The object.
        object: ObjectId,
        /// The nodes.
        on: Vec<NodeId>,
    },
}

/// The machine.
#[derive(Debug)]
pub struct Shard<T> {
    tables: Tables,
    senders: Senders,
    subscriptions: Subscriptions,
    /// The last record that was made.
    made: u64,
    /// The last record that is on disk.
    persisted: u64,
    /// What may leave when the record before it is on disk.
    outbox: VecDeque<(u64, ShardEffect<T>)>,
    /// Objects that were ordered to be freed, and when to look again.
    freeing: VecDeque<(Time, ObjectId)>,
    /// Objects that a batch has touched, and whether they may be free; kept for its memory.
    touched: Vec<(ObjectId, bool)>,
    /// The bug that a test has planted, if any.
    pub planted: Planted<ShardBug>,
}

impl<T> Shard<T> {
    /// The last record that was made.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// The last record that is on disk.
    pub fn persisted(&self) -> u64 {
        self.persisted
    }

    fn on_received(&mut self, now: Time, ticket: T, batch: Batch, out: &mut Effects<ShardEffect<T>>) {
        let Batch { sender, sequence, changes } = batch;
        let bytes: usize = changes.iter().map(Change::bytes).sum();
        if changes.len() > limits::BATCH_CHANGES_MAX || bytes > limits::BATCH_BYTES_MAX {
            return self.reply(ticket, Answer::Rejected(Rejection::TooLarge), out);
        }
        match self.senders.judge(sender, sequence) {
            Verdict::New => {}
            Verdict::NewLife { before } => self.leave(now, before, out),
            Verdict::Repeated { .. } if self.planted.has(ShardBug::RepeatedBatch) => {}
            Verdict::Stale { .. } if self.planted.has(ShardBug::StaleEpoch) => {}
            Verdict::Repeated { refused } => return self.reply(ticket, Answer::Applied { refused }, out),
            Verdict::Stale { epoch } => {
                return self.reply(ticket, Answer::Rejected(Rejection::Stale { epoch }), out);
            }
            Verdict::TooMany => {
                return self.reply(ticket, Answer::Rejected(Rejection::TooManyNodes), out);
            }
        }
        match self.make(now, sender, sequence, changes, out) {
            Some(refused) => self.reply(ticket, Answer::Applied { refused }, out),
            None => self.reply(ticket, Answer::Rejected(Rejection::TooManyNodes), out),
        }
    }

    /// Makes a batch, but for what is refused; `None` if there are too many nodes.
    fn make(
        &mut self,
        now: Time,
        sender: Sender,
        sequence: u64,
        mut changes: Vec<Change>,
        out: &mut Effects<ShardEffect<T>>,
    ) -> Option<Vec<Refusal>> {
        let node = self.tables.nodes.intern(sender.node)?;
        self.made += 1;
        let mut refused: Vec<Refusal> = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            match self.tables.make(node, change, Mode::Asked) {
                Ok(Touched::Nothing) => {}
                Ok(Touched::Object { object, suspect }) => {
                    if suspect || self.subscriptions.watch_objects() {
                        // The loss of one copy is no reason to order anew that the others be freed.
                        let may_be_free = suspect && !matches!(change, Change::CopyDropped { .. });
                        self.touched.push((object, may_be_free));
                    }
                }
                Ok(Touched::Row | Touched::Event) => self.publish_change(change, out),
                Err(why) => refused.push(Refusal { change: place as u32, why }),
            }
        }
        self.senders.record(sender, sequence, &refused);
        if !refused.is_empty() {
            changes = without(changes, &refused);
        }
        let record = Record::Batch { sender, sequence, changes, refused };
        out.push(ShardEffect::Persist { sequence: self.made, bytes: encode(&record) });
        self.settle(now, out);
        let Record::Batch { refused, .. } = record else { unreachable!("it was just made") };
        Some(refused)
    }

    fn on_node_left(&mut self, now: Time, ticket: T, sender: Sender, out: &mut Effects<ShardEffect<T>>) {
        let answer = match self.senders.last_life(sender.node) {
            Some((epoch, _)) if sender.epoch < epoch => Answer::Rejected(Rejection::Stale { epoch }),
            Some((epoch, true)) if sender.epoch == epoch => Answer::Applied { refused: Vec::new() },
            _ => {
                self.leave(now, sender, out);
                Answer::Applied { refused: Vec::new() }
            }
        };
        self.reply(ticket, answer, out);
    }

    /// A life of a node is over.
    fn leave(&mut self, now: Time, sender: Sender, out: &mut Effects<ShardEffect<T>>) {
        self.made += 1;
        let bytes = encode(&Record::NodeLeft { sender });
        out.push(ShardEffect::Persist { sequence: self.made, bytes });
        self.senders.leave(sender);
        let Some(node) = self.tables.nodes.find(sender.node) else { return };
        let touched = self.tables.forget_node(node, |_| true);
        self.touched.extend(touched.into_iter().map(|object| (object, true)));
        self.settle(now, out);
        self.tables.nodes.free(node);
    }

    /// Frees what nobody holds of the objects that were touched, and tells of the others.
    fn settle(&mut self, now: Time, out: &mut Effects<ShardEffect<T>>) {
        let mut touched = std::mem::take(&mut self.touched);
        if touched.len() > 1 {
            // Each object once, with the last word about it, which is `true` if any is.
            touched.sort_unstable();
            touched.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                kept.1 |= same && next.1;
                same
            });
        }
        for (object, may_be_free) in touched.drain(..) {
            if self.tables.settle(object) == Fate::Unheld && may_be_free {
                self.free(now, object, out);
            }
            if self.subscriptions.watch_objects() {
                self.publish_object(object, out);
            }
        }
        self.touched = touched;
    }

    fn free(&mut self, now: Time, object: ObjectId, out: &mut Effects<ShardEffect<T>>) {
        let Some(known) = self.tables.object(object) else { return };
        let on = self.tables.nodes.ids(&known.copies);
        self.emit(ShardEffect::Free { object, on }, out);
        self.freeing.push_back((Time(now.0 + FREE_AGAIN_MICROSECONDS), object));
    }

    /// Orders again what was ordered long ago, and is not done.
    fn on_time(&mut self, now: Time, out: &mut Effects<ShardEffect<T>>) {
        while self.freeing.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, object)) = self.freeing.pop_front() else { return };
            if self.tables.object(object).is_some_and(|known| known.holders.is_empty()) {
                self.free(now, object, out);
            }
        }
    }

    fn on_subscribed(&mut self, id: SubscriptionId, filter: Filter, out: &mut Effects<ShardEffect<T>>) {
        if !self.subscriptions.add(id, filter.clone()) {
            return self.emit(ShardEffect::SubscriptionRefused { subscription: id }, out);
        }
        let mut first = Vec::new();
        match filter {
            Filter::Row { table, key } => {
                let value = self.tables.row(table, &key).cloned();
                first.extend(value.map(|value| Notice::Row { table, key, value: Some(value) }));
            }
            Filter::Rows { table, prefix } => first = self.rows_as_notices(table, &prefix),
            Filter::Object(object) => {
                let row = self.tables.object_row(object);
                first.extend(row.map(|row| Notice::Object { object, row: Some(row) }));
            }
            Filter::Events => {}
        }
        for notice in first {
            self.emit(ShardEffect::Publish { to: vec![id], notice }, out);
        }
    }

    fn rows_as_notices(&self, table: Table, prefix: &Key) -> Vec<Notice> {
        let from = (Bound::Included(prefix.0.as_slice()), Bound::Unbounded);
        let rows = self.tables.slots().flat_map(|(_, slot)| {
            let rows = slot.rows(table).range::<[u8], _>(from);
            rows.take_while(|(key, _)| key.starts_with(&prefix.0))
        });
        let notice = |(key, value): (&Vec<u8>, &Vec<u8>)| Notice::Row {
            table,
            key: Key(key.clone()),
            value: Some(value.clone()),
        };
        rows.map(notice).collect()
    }

    fn publish_change(&mut self, change: &Change, out: &mut Effects<ShardEffect<T>>) {
        let (to, notice) = match change {
            Change::RowPut { table, key, value, .. } => {
                let to = self.subscriptions.for_row(*table, key);
                (to, Notice::Row { table: *table, key: key.clone(), value: Some(value.clone()) })
            }
            Change::RowDeleted { table, key } => {
                let to = self.subscriptions.for_row(*table, key);
                (to, Notice::Row { table: *table, key: key.clone(), value: None })
            }
            Change::EventNoted(event) => (self.subscriptions.for_events(), Notice::Event(event.clone())),
            _ => return,
        };
        self.publish(to, notice, out);
    }

    fn publish_object(&mut self, object: ObjectId, out: &mut Effects<ShardEffect<T>>) {
        let to = self.subscriptions.for_object(object);
        if !to.is_empty() {
            let row = self.tables.object_row(object);
            self.publish(to, Notice::Object { object, row }, out);
        }
    }

    fn publish(&mut self, to: Vec<SubscriptionId>, notice: Notice, out: &mut Effects<ShardEffect<T>>) {
        if !to.is_empty() {
            self.emit(ShardEffect::Publish { to, notice }, out);
        }
    }

    fn reply(&mut self, ticket: T, answer: Answer, out: &mut Effects<ShardEffect<T>>) {
        self.emit(ShardEffect::Reply { ticket, answer }, out);
    }

    /// Lets something leave, once all that it can know of is on disk.
    fn emit(&mut self, effect: ShardEffect<T>, out: &mut Effects<ShardEffect<T>>) {
        let waits = self.persisted < self.made && !self.planted.has(ShardBug::EarlyAnswer);
        match waits {
            true => self.outbox.push_back((self.made, effect)),
            false => out.push(effect),
        }
    }

    fn on_persisted(&mut self, up_to: u64, out: &mut Effects<ShardEffect<T>>) {
        self.persisted = self.persisted.max(up_to);
        while self.outbox.front().is_some_and(|(after, _)| *after <= self.persisted) {
            out.extend(self.outbox.pop_front().map(|(_, effect)| effect));
        }
    }
}

/// The changes that were not refused.
fn without(changes: Vec<Change>, refused: &[Refusal]) -> Vec<Change> {
    let mut refused = refused.iter().map(|refusal| refusal.change as usize).peekable();
    let mut made = Vec::with_capacity(changes.len());
    for (place, change) in changes.into_iter().enumerate() {
        if refused.next_if_eq(&place).is_none() {
            made.push(change);
        }
    }
    made
}

impl<T> Machine for Shard<T> {
    type Input = ShardInput<T>;
    type Effect = ShardEffect<T>;

    fn step(&mut self, now: Time, input: ShardInput<T>, out: &mut Effects<ShardEffect<T>>) {
        match input {
            ShardInput::Received { ticket, batch } => self.on_received(now, ticket, batch, out),
            ShardInput::Asked { ticket, query } => {
                let answer = self.tables.answer(query);
                self.reply(ticket, answer, out);
            }
            ShardInput::NodeLeft { ticket, sender } => self.on_node_left(now, ticket, sender, out),
            ShardInput::Subscribed { subscription, filter } => self.on_subscribed(subscription, filter, out),
            ShardInput::Unsubscribed { subscription } => self.subscriptions.remove(subscription),
            ShardInput::Persisted { up_to } => self.on_persisted(up_to, out),
            ShardInput::Ticked => {}
        }
        self.on_time(now, out);
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.freeing.front().map(|(due, _)| *due)
    }

    fn check(&self) {
        self.tables.check();
        self.senders.check();
        self.subscriptions.check();
        assert!(self.persisted <= self.made, "what was never made is on disk");
        let mut before = self.persisted;
        for (after, effect) in &self.outbox {
            assert!(*after > self.persisted && *after >= before && *after <= self.made, "shard invariant 1");
            assert!(!matches!(effect, ShardEffect::Persist { .. }), "records do not wait for themselves");
            before = *after;
        }
        assert!(self.touched.is_empty(), "a batch is done when it is made");
        let unheld = self.tables.slots().flat_map(|(_, slot)| slot.objects());
        let unheld = unheld.filter(|(_, known)| known.holders.is_empty()).map(|(object, _)| object);
        let freeing: std::collections::BTreeSet<_> = self.freeing.iter().map(|(_, object)| *object).collect();
        for object in unheld {
            assert!(freeing.contains(&object), "shard invariant 3: nobody frees {object}");
        }
    }
}
