//! One shard of the control store under faults from a seed: batches that come twice or late, nodes that leave and come
//! back, a disk that lags behind, snapshots of many moments, and crashes. A naive model (`model`) says what is right.
//!
//! Every ticket carries the answer that the model gives at that moment, so each answer is compared when it comes.

mod model;

use crate::random::Random;
use aktis_logic::machine::shard::{Recovery, Shard, ShardEffect, ShardInput};
use aktis_logic::planted::ShardBug;
use aktis_logic::{Effects, Machine, Time};
use aktis_protocol::records::{Part, Piece};
use aktis_protocol::slots::{SlotIndex, SlotMap};
use aktis_protocol::tables::{Answer, Batch, Change, Event, EventKind, Key, ObjectRow, Query, Sender, Table};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId};
use model::Model;
use std::collections::BTreeSet;
use std::collections::VecDeque;

const NODES: u64 = 9;
const TASKS: u64 = 6;
const KEYS: u64 = 5;

/// What a question is marked with.
#[derive(Clone, Debug, PartialEq)]
struct Ticket {
    expected: Answer,
    /// The last record that the answer can know of.
    position: u64,
}

/// A virtual node: it sends batches in order, and keeps those that were not answered.
struct Node {
    sender: Sender,
    next: u64,
    unanswered: VecDeque<Batch>,
    /// Copies that it was told to free.
    condemned: BTreeSet<ObjectId>,
}

/// A snapshot that is being taken.
struct Saving {
    from: u64,
    parts: Vec<Part>,
    pieces: Vec<Piece>,
}

struct Trial {
    random: Random,
    now: Time,
    machine: Shard<Ticket>,
    model: Model,
    /// The model after each record that may be lost, the last one that is on disk included.
    history: VecDeque<(u64, Model)>,
    slots: Vec<SlotIndex>,
    /// The log, from its first record on; all of it up to `persisted` is on disk.
    log: Vec<Vec<u8>>,
    persisted: u64,
    saving: Option<Saving>,
    snapshot: Vec<Piece>,
    nodes: Vec<Node>,
    /// A bug that the shard has, after each crash too.
    planted: Option<ShardBug>,
    trace: bool,
}

/// Runs a shard for so many steps, and then lets everything come to its end. Panics if something is wrong.
pub fn run(seed: u64, steps: u32, trace: bool) {
    run_with(seed, steps, trace, None);
}

/// The same, with a bug in the shard.
pub fn run_with(seed: u64, steps: u32, trace: bool, planted: Option<ShardBug>) {
    let mut random = Random::new(seed);
    // Mostly all slots: changes of others are only refused.
    let shards = if random.chance(20) { 2 } else { 1 };
    let slots: Vec<SlotIndex> = SlotMap::even(shards).slots_of(0).collect();
    let node = |number| Node {
        sender: Sender { node: NodeId::from_words([number, 7]), epoch: 1 },
        next: 1,
        unanswered: VecDeque::new(),
        condemned: BTreeSet::new(),
    };
    let mut trial = Trial {
        machine: Recovery::new(slots.iter().copied()).finish(Time(0)),
        model: Model::new(&slots),
        history: VecDeque::from([(0, Model::new(&slots))]),
        now: Time(0),
        slots,
        log: Vec::new(),
        persisted: 0,
        saving: None,
        snapshot: Vec::new(),
        nodes: (0..NODES).map(node).collect(),
        random,
        planted,
        trace,
    };
    trial.machine.planted.plant(planted);
    for _ in 0..steps {
        trial.step();
    }
    trial.finish();
}

impl Trial {
    fn step(&mut self) {
        match self.random.below(100) {
            0..40 => self.send(),
            40..46 => self.repeat(),
            46..49 => self.send_from_the_past(),
            49..52 => self.leave(),
            52..55 => self.rejoin(),
            55..70 => self.persist(),
            70..80 => self.save(),
            80..83 => self.crash(),
            83..88 => self.pass_time(),
            88..92 => self.obey(),
            _ => self.ask(),
        }
    }

    fn input(&mut self, input: ShardInput<Ticket>) {
        if self.trace {
            println!("{input:?}");
        }
        let mut effects = Effects::new();
        let before = self.persisted;
        if let ShardInput::Persisted { up_to } = &input {
            self.persisted = *up_to;
        }
        self.machine.step(self.now, input, &mut effects);
        self.machine.check();
        for effect in effects {
            if self.trace {
                println!("    {effect:?}");
            }
            self.carry_out(effect, before);
        }
        assert_eq!(self.machine.made(), self.log.len() as u64);
    }

    fn carry_out(&mut self, effect: ShardEffect<Ticket>, before: u64) {
        match effect {
            ShardEffect::Persist { sequence, bytes } => {
                self.log.push(bytes);
                assert_eq!(sequence, self.log.len() as u64, "records are numbered without gaps");
            }
            ShardEffect::Reply { ticket, answer } => {
                assert!(
                    ticket.position <= self.persisted,
                    "an answer left before it was on disk: {answer:?}"
                );
                assert_eq!(answer, ticket.expected);
            }
            ShardEffect::Free { object, on } => self.on_free(object, on, before),
            ShardEffect::Publish { .. } | ShardEffect::SubscriptionRefused { .. } => {
                panic!("nobody has subscribed")
            }
        }
    }

    /// At one of the moments that have come to disk, nobody held the object, and the copies were there.
    fn on_free(&mut self, object: ObjectId, on: Vec<NodeId>, before: u64) {
        let states = self.history.iter().filter(|(at, _)| *at >= before && *at <= self.persisted);
        let mut was_so = states.filter_map(|(_, model)| model.row(object));
        let is_right = |row: ObjectRow| row.holders.is_empty() && row.copies == on;
        assert!(was_so.any(is_right), "{object} is freed on {on:?} though somebody holds it");
        for node in &mut self.nodes {
            if on.contains(&node.sender.node) {
                node.condemned.insert(object);
            }
        }
    }

    /// The machine has as many records now as the model says; the last one made the model what it is.
    fn remember(&mut self, position: u64) {
        assert_eq!(self.log.len() as u64, position, "records");
        if self.history.back().is_none_or(|(at, _)| *at < position) {
            self.history.push_back((position, self.model.clone()));
        }
    }

    fn deliver(&mut self, batch: Batch) {
        if self.model.end_life_before(batch.sender) {
            // That is a record of its own, before the batch's.
            self.history.push_back((self.log.len() as u64 + 1, self.model.clone()));
        }
        let last = self.history.back().map_or(0, |(at, _)| *at);
        let (expected, made) = self.model.on_batch(&batch);
        let position = last + u64::from(made);
        self.input(ShardInput::Received { ticket: Ticket { expected, position }, batch });
        self.remember(position);
    }

    fn send(&mut self) {
        let index = self.random.below(NODES) as usize;
        let changes = (0..self.random.below(7)).map(|_| self.change(index)).collect();
        let node = &mut self.nodes[index];
        let batch = Batch { sender: node.sender, sequence: node.next, changes };
        node.next += 1 + self.random.below(3);
        node.unanswered.push_back(batch.clone());
        if node.unanswered.len() > 5 {
            node.unanswered.pop_front();
        }
        self.deliver(batch);
    }

    fn change(&mut self, node: usize) -> Change {
        let random = &mut self.random;
        let task = TaskId::root(SessionId(1)).child(random.below(TASKS));
        let object = task.returns(random.below(2) as u32);
        let key: Key = format!("key {}", random.below(KEYS)).as_str().into();
        let table = Table::ALL[random.below(2) as usize];
        let value = vec![node as u8; random.below(4) as usize];
        match random.below(20) {
            0..4 => Change::CopyMade { object, bytes: random.below(3) },
            4..6 => Change::CopyDropped { object },
            6..10 => Change::Held { object },
            10..14 => Change::Released { object },
            14 | 15 => Change::RowPut { table, key, value, overwrite: random.chance(70) },
            16 => Change::RowDeleted { table, key },
            17 => Change::TaskRecorded { task, returns: random.below(3) as u32, record: value },
            18 => Change::TaskForgotten { task },
            _ => Change::EventNoted(Event {
                at_microseconds: self.now.0,
                subject: key,
                kind: EventKind::Attached,
                text: format!("{}", random.below(1000)),
            }),
        }
    }

    /// A node repeats all that it does not know to be answered, in order, as after a reconnect.
    fn repeat(&mut self) {
        let index = self.random.below(NODES) as usize;
        for batch in self.nodes[index].unanswered.clone() {
            self.deliver(batch);
        }
    }

    fn send_from_the_past(&mut self) {
        let index = self.random.below(NODES) as usize;
        let changes = vec![self.change(index)];
        let sender = self.nodes[index].sender;
        let sender = Sender { epoch: sender.epoch.saturating_sub(1), ..sender };
        self.deliver(Batch { sender, sequence: 1_000_000, changes });
    }

    fn leave(&mut self) {
        let index = self.random.below(NODES) as usize;
        let mut sender = self.nodes[index].sender;
        sender.epoch -= u64::from(self.random.chance(10));
        let (expected, made) = self.model.on_left(sender);
        let position = self.log.len() as u64 + u64::from(made);
        self.input(ShardInput::NodeLeft { ticket: Ticket { expected, position }, sender });
        self.remember(position);
    }

    fn rejoin(&mut self) {
        let index = self.random.below(NODES) as usize;
        let node = &mut self.nodes[index];
        node.sender.epoch += 1;
        node.next = 1;
        node.unanswered.clear();
        node.condemned.clear();
    }

    fn persist(&mut self) {
        let lag = self.log.len() as u64 - self.persisted;
        let up_to = self.persisted + self.random.below(lag + 1);
        self.persist_to(up_to);
    }

    fn persist_to(&mut self, up_to: u64) {
        self.input(ShardInput::Persisted { up_to });
        // The last state that is on disk stays: it is what a crash goes back to.
        while self.history.get(1).is_some_and(|(at, _)| *at <= up_to) {
            self.history.pop_front();
        }
    }

    /// Saves some parts; the last of them makes the snapshot, once the log is far enough.
    fn save(&mut self) {
        let Some(saving) = &mut self.saving else {
            let (from, parts) = (self.machine.made(), self.machine.parts());
            self.saving = Some(Saving { from, parts, pieces: Vec::new() });
            return;
        };
        for _ in 0..self.random.below(800) {
            let Some(part) = saving.parts.pop() else { break };
            saving.pieces.push(self.machine.save(part));
        }
        let until = saving.pieces.iter().map(|piece| piece.position).max().unwrap_or(0);
        if saving.parts.is_empty() && until <= self.persisted {
            assert!(saving.from <= until);
            self.snapshot = std::mem::take(&mut saving.pieces);
            self.saving = None;
        }
    }

    /// The process dies: what was not on disk may be there or not, from some record on.
    fn crash(&mut self) {
        let lag = self.log.len() as u64 - self.persisted;
        let survives = self.persisted + self.random.below(lag + 1);
        if self.trace {
            println!("a crash, {survives} of {} records survive", self.log.len());
        }
        self.log.truncate(survives as usize);
        let mut recovery = Recovery::new(self.slots.iter().copied());
        for piece in &self.snapshot {
            recovery.restore(piece).expect("a piece");
        }
        let from = self.snapshot.iter().map(|piece| piece.position).min().unwrap_or(0);
        for (index, record) in self.log.iter().enumerate().skip(from as usize) {
            recovery.replay(index as u64 + 1, record).expect("a record");
        }
        self.machine = recovery.finish(self.now);
        self.machine.planted.plant(self.planted);
        self.machine.check();
        self.persisted = survives;
        self.history.retain(|(at, _)| *at == survives);
        self.model = self.history.front().expect("the state that survives").1.clone();
        self.saving = None;
        self.compare_all();
        for index in 0..self.nodes.len() {
            for batch in self.nodes[index].unanswered.clone() {
                self.deliver(batch);
            }
        }
    }

    fn pass_time(&mut self) {
        self.now.0 += self.random.below(8_000_000);
        self.input(ShardInput::Ticked);
    }

    /// A node frees what it was told to free.
    fn obey(&mut self) {
        let index = self.random.below(NODES) as usize;
        let changes = std::mem::take(&mut self.nodes[index].condemned);
        let changes = changes.into_iter().map(|object| Change::CopyDropped { object }).collect();
        let node = &mut self.nodes[index];
        let batch = Batch { sender: node.sender, sequence: node.next, changes };
        node.next += 1;
        self.deliver(batch);
    }

    fn ask(&mut self) {
        let task = TaskId::root(SessionId(1)).child(self.random.below(TASKS));
        let key: Key = format!("key {}", self.random.below(KEYS)).as_str().into();
        let table = Table::ALL[self.random.below(2) as usize];
        let query = match self.random.below(6) {
            0 => Query::Row { table, key },
            1 => Query::Object(task.returns(self.random.below(2) as u32)),
            2 => Query::Task(task),
            3 => Query::Rows { table, prefix: "key".into(), after: Some(key), limit: 2, values: true },
            4 => Query::Events { limit: 3 },
            _ => return self.compare_all(),
        };
        self.compare(query);
    }

    fn compare(&mut self, query: Query) {
        let expected = self.model.answer(&query);
        let position = self.log.len() as u64;
        self.input(ShardInput::Asked { ticket: Ticket { expected, position }, query });
    }

    fn compare_all(&mut self) {
        for table in Table::ALL {
            self.compare(Query::Rows { table, prefix: Key(vec![]), after: None, limit: 1000, values: true });
        }
        self.compare(Query::Objects { node: None, limit: 1000 });
        self.compare(Query::Objects { node: Some(self.nodes[0].sender.node), limit: 1000 });
        self.compare(Query::Events { limit: 10_000 });
        self.compare(Query::Counts);
        for task in 0..TASKS {
            self.compare(Query::Task(TaskId::root(SessionId(1)).child(task)));
        }
    }

    /// Everybody lets go, and frees what it is told to: then no object is left.
    fn finish(&mut self) {
        let objects: Vec<ObjectId> = (0..TASKS)
            .flat_map(|task| [0, 1].map(|index| TaskId::root(SessionId(1)).child(task).returns(index)))
            .collect();
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            node.sender.epoch += u64::from(self.random.chance(50));
            let changes = objects.iter().map(|object| Change::Released { object: *object }).collect();
            node.next += 1;
            let batch = Batch { sender: node.sender, sequence: node.next, changes };
            self.deliver(batch);
        }
        for _ in 0..2 {
            self.persist_to(self.log.len() as u64);
            self.now.0 += 10_000_000;
            self.input(ShardInput::Ticked);
            for index in 0..self.nodes.len() {
                let node = &mut self.nodes[index];
                let condemned = std::mem::take(&mut node.condemned);
                let changes = condemned.into_iter().map(|object| Change::CopyDropped { object }).collect();
                node.next += 1;
                let batch = Batch { sender: node.sender, sequence: node.next, changes };
                self.deliver(batch);
            }
        }
        self.persist_to(self.log.len() as u64);
        self.compare_all();
        let Answer::Counts(counts) = self.model.answer(&Query::Counts) else { panic!("no counts") };
        assert_eq!(counts.objects, 0, "objects are left that nobody holds");
    }
}
