//! The tables of the virtual control process: real shards, on disks that lag behind and lose what was not synced.

use aktis_logic::machine::shard::{Recovery, Shard, ShardEffect, ShardInput, SubscriptionId};
use aktis_logic::{Effects, Machine, Time};
use aktis_protocol::slots::SlotMap;
use aktis_protocol::tables::{Answer, Batch, Change, Filter, Key, Notice, Query, Refusal, Sender, Table};
use std::collections::BTreeMap;

/// One shard, and its log. All records up to the shard's last persisted one survive a crash.
struct Disk {
    shard: Shard<u64>,
    log: Vec<Vec<u8>>,
    /// Whether a sync is under way.
    is_syncing: bool,
}

/// A question that several shards answer.
struct Gathering<C> {
    completion: C,
    parts_left: usize,
    limit: usize,
    answer: Option<Answer>,
    /// For each part of a batch, the places of its changes in the whole.
    places_by_ticket: BTreeMap<u64, Vec<u32>>,
}

/// What the store tells.
pub(super) enum Told<C> {
    /// An answer.
    Answer(C, Answer),
    /// A row of the table of nodes is so, on disk.
    Notice(Notice),
}

/// See the module. Each question carries a `C` of the caller, which comes back with the answer.
pub(super) struct Store<C> {
    slots: SlotMap,
    disks: Vec<Disk>,
    gatherings: BTreeMap<u64, Gathering<C>>,
    /// Which question a ticket of a shard belongs to.
    gathering_by_ticket: BTreeMap<u64, u64>,
    tickets: u64,
    /// The number of the last batch of the head's own.
    own_sequence: u64,
    own: Sender,
    told: Vec<Told<C>>,
}

impl<C> Store<C> {
    pub(super) fn new(shards: u16) -> Self {
        let slots = SlotMap::even(shards);
        let disk = |shard| {
            let shard = Recovery::new(slots.slots_of(shard)).finish(Time(0));
            Disk { shard, log: Vec::new(), is_syncing: false }
        };
        Self {
            disks: (0..shards).map(disk).collect(),
            slots,
            gatherings: BTreeMap::new(),
            gathering_by_ticket: BTreeMap::new(),
            tickets: 0,
            own_sequence: 0,
            own: Sender { node: Default::default(), epoch: 0 },
            told: Vec::new(),
        }
    }

    /// The process that had the store open was killed, and another one opens it. `own` writes from now on.
    pub(super) fn recover(&mut self, now: Time) {
        self.gatherings.clear();
        self.gathering_by_ticket.clear();
        self.told.clear();
        for (index, disk) in self.disks.iter_mut().enumerate() {
            disk.log.truncate(disk.shard.persisted() as usize);
            let mut recovery = Recovery::new(self.slots.slots_of(index as u16));
            for (place, record) in disk.log.iter().enumerate() {
                recovery.replay(place as u64 + 1, record).expect("the log can be read");
            }
            disk.shard = recovery.finish(now);
            disk.is_syncing = false;
        }
    }

    /// Sets who writes for the head, and has rows of nodes told.
    pub(super) fn open(&mut self, now: Time, own: Sender) {
        (self.own, self.own_sequence) = (own, 0);
        for shard in 0..self.disks.len() {
            let filter = Filter::Rows { table: Table::Nodes, prefix: Key(Vec::new()) };
            self.step(now, shard, ShardInput::Subscribed { subscription: SubscriptionId(1), filter });
        }
    }

    /// All rows of a table, as they are known to the shards.
    pub(super) fn rows(&mut self, now: Time, table: Table) -> Vec<(Key, Vec<u8>)> {
        assert!(self.disks.iter().all(|disk| disk.shard.made() == disk.shard.persisted()), "all is on disk");
        let query =
            Query::Rows { table, prefix: Key(Vec::new()), after: None, limit: u32::MAX, values: true };
        let mut all = Vec::new();
        for disk in &mut self.disks {
            let mut effects = Effects::new();
            disk.shard.step(now, ShardInput::Asked { ticket: 0, query: query.clone() }, &mut effects);
            for effect in effects {
                if let ShardEffect::Reply { answer: Answer::Rows { rows, .. }, .. } = effect {
                    all.extend(rows);
                }
            }
        }
        all.sort();
        all
    }

    /// The answer of one shard to a question that it can answer alone.
    pub(super) fn answer_now(&mut self, now: Time, query: Query) -> Answer {
        let shard = self.shard_of(query.slot().expect("one shard has the answer"));
        let mut effects = Effects::new();
        self.disks[shard].shard.step(now, ShardInput::Asked { ticket: 0, query }, &mut effects);
        let answer = effects.into_iter().find_map(|effect| match effect {
            ShardEffect::Reply { answer, .. } => Some(answer),
            _ => None,
        });
        answer.expect("all is on disk")
    }

    /// How many tasks all shards have on record.
    pub(super) fn tasks_on_record(&mut self, now: Time) -> u64 {
        let mut tasks = 0;
        for disk in &mut self.disks {
            let mut effects = Effects::new();
            disk.shard.step(now, ShardInput::Asked { ticket: 0, query: Query::Counts }, &mut effects);
            for effect in effects {
                if let ShardEffect::Reply { answer: Answer::Counts(counts), .. } = effect {
                    tasks += counts.tasks;
                }
            }
        }
        tasks
    }

    /// Writes changes of the head.
    pub(super) fn write(&mut self, now: Time, changes: Vec<Change>, completion: C) {
        self.own_sequence += 1;
        let (sender, sequence) = (self.own, self.own_sequence);
        self.apply(now, Batch { sender, sequence, changes }, completion);
    }

    pub(super) fn apply(&mut self, now: Time, batch: Batch, completion: C) {
        let Batch { sender, sequence, changes } = batch;
        let mut parts: BTreeMap<usize, (Vec<u32>, Vec<Change>)> = BTreeMap::new();
        for (place, change) in changes.into_iter().enumerate() {
            let (places, changes) = parts.entry(self.shard_of(change.slot())).or_default();
            places.push(place as u32);
            changes.push(change);
        }
        let gathering = self.gather(parts.len(), usize::MAX, completion);
        for (shard, (places, changes)) in parts {
            let ticket = self.ticket(gathering);
            let open = self.gatherings.get_mut(&gathering).expect("just begun");
            open.places_by_ticket.insert(ticket, places);
            let batch = Batch { sender, sequence, changes };
            self.step(now, shard, ShardInput::Received { ticket, batch });
        }
    }

    pub(super) fn query(&mut self, now: Time, query: Query, completion: C) {
        let shards = match query.slot() {
            Some(slot) => vec![self.shard_of(slot)],
            None => (0..self.disks.len()).collect(),
        };
        let limit = if let Query::Rows { limit, .. } = &query { *limit as usize } else { usize::MAX };
        let gathering = self.gather(shards.len(), limit, completion);
        for shard in shards {
            let ticket = self.ticket(gathering);
            self.step(now, shard, ShardInput::Asked { ticket, query: query.clone() });
        }
    }

    pub(super) fn node_left(&mut self, now: Time, sender: Sender, completion: C) {
        let gathering = self.gather(self.disks.len(), usize::MAX, completion);
        for shard in 0..self.disks.len() {
            let ticket = self.ticket(gathering);
            self.step(now, shard, ShardInput::NodeLeft { ticket, sender });
        }
    }

    /// The shards for which a sync is to begin: they have records that are not on disk.
    pub(super) fn begin_syncs(&mut self) -> Vec<(usize, u64)> {
        let mut begun = Vec::new();
        for (index, disk) in self.disks.iter_mut().enumerate() {
            if !disk.is_syncing && disk.shard.made() > disk.shard.persisted() {
                disk.is_syncing = true;
                begun.push((index, disk.shard.made()));
            }
        }
        begun
    }

    /// Records up to this one are on disk.
    pub(super) fn on_synced(&mut self, now: Time, shard: usize, up_to: u64) {
        self.disks[shard].is_syncing = false;
        self.step(now, shard, ShardInput::Persisted { up_to });
    }

    pub(super) fn is_synced(&self) -> bool {
        self.disks.iter().all(|disk| disk.shard.made() == disk.shard.persisted())
    }

    /// What the store has told since the last time.
    pub(super) fn take_told(&mut self) -> Vec<Told<C>> {
        std::mem::take(&mut self.told)
    }

    fn shard_of(&self, slot: aktis_protocol::slots::SlotIndex) -> usize {
        usize::from(self.slots.shard_of(slot))
    }

    fn gather(&mut self, parts_left: usize, limit: usize, completion: C) -> u64 {
        self.tickets += 1;
        let places_by_ticket = BTreeMap::new();
        let gathering = Gathering { completion, parts_left, limit, answer: None, places_by_ticket };
        self.gatherings.insert(self.tickets, gathering);
        self.tickets
    }

    fn ticket(&mut self, gathering: u64) -> u64 {
        self.tickets += 1;
        self.gathering_by_ticket.insert(self.tickets, gathering);
        self.tickets
    }

    fn step(&mut self, now: Time, shard: usize, input: ShardInput<u64>) {
        let mut effects = Effects::new();
        self.disks[shard].shard.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                ShardEffect::Persist { sequence, bytes } => {
                    self.disks[shard].log.push(bytes);
                    assert_eq!(self.disks[shard].log.len() as u64, sequence);
                }
                ShardEffect::Reply { ticket, answer } => self.on_part(ticket, answer),
                ShardEffect::Publish { notice, .. } => self.told.push(Told::Notice(notice)),
                ShardEffect::SubscriptionRefused { .. } => panic!("there is room for one subscription"),
                // Nodes free copies by themselves.
                ShardEffect::Free { .. } => {}
            }
        }
    }

    fn on_part(&mut self, ticket: u64, answer: Answer) {
        let Some(number) = self.gathering_by_ticket.remove(&ticket) else { return };
        let gathering = self.gatherings.get_mut(&number).expect("it waits for this part");
        let places = gathering.places_by_ticket.remove(&ticket);
        let part = match (answer, places) {
            (Answer::Applied { refused }, Some(places)) => {
                let moved = |refusal: Refusal| Refusal { change: places[refusal.change as usize], ..refusal };
                Answer::Applied { refused: refused.into_iter().map(moved).collect() }
            }
            (answer, _) => answer,
        };
        gathering.answer = Some(match (gathering.answer.take(), part) {
            (None, part) => part,
            (Some(Answer::Applied { refused: mut all }), Answer::Applied { refused }) => {
                all.extend(refused);
                Answer::Applied { refused: all }
            }
            (Some(Answer::Rows { rows: mut all, more: one }), Answer::Rows { rows, more: other }) => {
                all.extend(rows);
                all.sort();
                let more = one || other || all.len() > gathering.limit;
                all.truncate(gathering.limit);
                Answer::Rows { rows: all, more }
            }
            (Some(Answer::Rejected(why)), _) | (_, Answer::Rejected(why)) => Answer::Rejected(why),
            (Some(first), _) => first,
        });
        gathering.parts_left -= 1;
        if gathering.parts_left == 0 {
            let done = self.gatherings.remove(&number).expect("it is there");
            let answer = done.answer.expect("a part has come");
            self.told.push(Told::Answer(done.completion, answer));
        }
    }
}
