//! How many references this process has to which objects, for people who look for leaks.

use crate::entry::{Entry, Later};
use crate::payload::{Payload, Returns};
use crate::runtime::Inner;
use aktis_logic::machine::submitter::{Record, Stage};
use aktis_protocol::ObjectId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Objects that are in no other table: small values that nobody else knows. Those that are gone are forgotten when there are
/// as many of them as of others.
#[derive(Default)]
pub(crate) struct Unlisted {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    entries: Vec<Weak<Entry>>,
    /// How many there are when those that are gone are looked for again.
    sweep_at: usize,
}

/// So few that are gone are worth no look. Not more: what they are kept in is the memory that the next ones would be made in.
const SWEEP_MIN: usize = 7;

impl Unlisted {
    pub(crate) fn add(&self, entry: &Arc<Entry>) {
        let mut list = self.list.lock();
        if list.entries.len() >= list.sweep_at {
            list.sweep();
        }
        list.entries.push(Arc::downgrade(entry));
    }
}

impl List {
    fn sweep(&mut self) {
        self.entries.retain(|entry| entry.strong_count() > 0);
        self.sweep_at = (2 * self.entries.len()).max(SWEEP_MIN);
        self.entries.shrink_to(2 * self.sweep_at);
    }
}

/// References of this process to one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceCount {
    /// The object.
    pub object: ObjectId,
    /// References that user code has.
    pub local: usize,
    /// Tasks and calls of this process that are not finished and have it among their arguments.
    pub submitted: usize,
}

/// What is found about one object.
#[derive(Default)]
struct Found {
    /// The object, as often as it was found: these references are our own.
    entries: Vec<Arc<Entry>>,
    /// References that are counted though the object itself is out of reach.
    at_least: usize,
    submitted: usize,
}

#[derive(Default)]
struct Census(BTreeMap<ObjectId, Found>);

impl Census {
    fn add(&mut self, entry: Option<Arc<Entry>>) {
        if let Some(entry) = entry {
            self.0.entry(entry.id).or_default().entries.push(entry);
        }
    }

    fn add_record(&mut self, record: &Record<Payload>) {
        let Some(payload) = record.payload() else {
            // A call that is finished and cannot be made again. With several returns, nobody knows which are meant.
            if record.handles() == record.returns() {
                for index in 0..record.returns() {
                    self.0.entry(record.task().returns(index)).or_default().at_least = 1;
                }
            }
            return;
        };
        match &payload.returns {
            Returns::One(entry) => self.add(entry.upgrade()),
            Returns::Several(entries) => entries.iter().for_each(|entry| self.add(entry.upgrade())),
            Returns::Stream(..) | Returns::Foreign(..) | Returns::Nothing => {}
        }
        if record.stage() != Stage::Finished {
            for handle in payload.arguments.handles() {
                self.add(Some(handle.entry.clone()));
                self.0.entry(handle.entry.id).or_default().submitted += 1;
            }
        }
    }
}

impl Found {
    fn local(&self) -> usize {
        let others = |entry: &Arc<Entry>| Arc::strong_count(entry) - self.entries.len() - self.submitted;
        self.entries.first().map_or(self.at_least, others)
    }
}

impl Inner {
    /// How many references this process has to each object that it refers to.
    pub(crate) fn reference_counts(self: &Arc<Self>) -> Vec<ReferenceCount> {
        let mut census = Census::default();
        self.known.lock().values().for_each(|entry| census.add(entry.upgrade()));
        self.unlisted.list.lock().entries.iter().for_each(|entry| census.add(entry.upgrade()));
        for shard in self.submitter.all() {
            shard.lock().machine.records().for_each(|(_, record)| census.add_record(record));
        }
        let counts = census.0.iter().map(|(&object, found)| ReferenceCount {
            object,
            local: found.local(),
            submitted: found.submitted,
        });
        let counts = counts.filter(|count| count.local + count.submitted > 0).collect();
        // Those of which ours is the last reference by now go where no lock is held.
        let mut later = Later::default();
        later.entries.extend(census.0.into_values().flat_map(|found| found.entries));
        later.run(self);
        counts
    }
}
