//! The virtual control process: the shell of the head, with its tables.

use super::store::Told;
use super::{Cluster, Event};
use aktis_logic::machine::head::{
    Head, HeadEffect, HeadInput, HeadWrite, NameClaim, NodesLeft, QueryReply, Restored, TableRequest,
    keep_epoch, node_in, programs_of, reply_to_key_change,
};
use aktis_logic::{LinkId, Machine, Time};
use aktis_protocol::control::decode;
use aktis_protocol::member::{FromControl, Reply};
use aktis_protocol::tables::{Answer, Change, Key, Notice, Query, Sender, Table};
use aktis_protocol::{Epoch, GroupId, NodeId, limits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The id of the control process.
const OWN: NodeId = NodeId::from_words([0, 7]);

/// What an answer of the tables is for.
pub(super) enum Completion {
    Nothing,
    Name(NameClaim),
    Group(GroupId, u64),
    Query(LinkId, u64, QueryReply),
    Change(LinkId, u64),
    /// Whether there was a row before the change of a key.
    Existed(LinkId, u64),
    KeyChange(LinkId, u64),
    RecordsForgotten(Sender),
    /// Rows of programs that go.
    Programs(u64),
    /// Rows of jobs, and the next page of them.
    Jobs(u64, NodesLeft),
}

/// One life of it.
pub(super) struct Process {
    pub(super) head: Head,
    /// What the tables have told, until the thread acts on it.
    told: VecDeque<HeadInput>,
    existed: BTreeMap<(LinkId, u64), bool>,
    ended_links: BTreeSet<LinkId>,
    tick_at: Option<Time>,
    /// Departures whose programs are being ended: the nodes, and how many tables are to be gone through.
    endings: BTreeMap<u64, (BTreeSet<NodeId>, usize)>,
    last_ending: u64,
}

impl Process {
    /// Whether the head was told that a link is over.
    pub(super) fn has_ended(&self, link: LinkId) -> bool {
        self.ended_links.contains(&link)
    }
}

impl Cluster {
    pub(super) fn start_head(&mut self) {
        self.lives += 1;
        let (life, now) = (self.lives, self.now);
        self.store.recover(now);
        let mut restored = Restored::default();
        for table in [Table::Nodes, Table::Actors, Table::Groups] {
            for (key, value) in self.store.rows(now, table) {
                restored.on_row(table, &key, &value).expect("a row");
            }
        }
        // This life gets an epoch like any node's, which is on disk before anything else.
        let epoch = restored.next_epoch;
        restored.next_epoch = Epoch(epoch.0 + 1);
        self.store.open(now, Sender { node: OWN, epoch: epoch.0 });
        self.store.write(now, vec![keep_epoch(restored.next_epoch)], Completion::Nothing);
        for (shard, up_to) in self.store.begin_syncs() {
            self.store.on_synced(now, shard, up_to);
        }
        drop(self.store.take_told());
        let members = restored.nodes.len();
        self.note(format_args!("control process {life} starts with {members} members"));
        let mut effects = Vec::new();
        let mut head = Head::new(now, restored, &mut effects);
        head.planted.plant(self.planted);
        self.process = Some(Process {
            head,
            told: VecDeque::new(),
            existed: BTreeMap::new(),
            ended_links: BTreeSet::new(),
            tick_at: None,
            endings: BTreeMap::new(),
            last_ending: 0,
        });
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        self.schedule_tick();
    }

    pub(super) fn kill_head(&mut self) {
        if self.process.take().is_some() {
            self.note(format_args!("the control process is killed"));
            self.break_all_links();
            let pause = self.random.below(4_000_000);
            self.after(pause, Event::HeadStarted);
        }
    }

    pub(super) fn step_head(&mut self, input: HeadInput) {
        let now = self.now;
        let Some(process) = &mut self.process else { return };
        if let HeadInput::LinkEnded { link, .. } = &input {
            process.ended_links.insert(*link);
        }
        let is_tick = matches!(input, HeadInput::Ticked);
        let mut effects = Vec::new();
        process.head.step(now, input.clone(), &mut effects);
        process.head.check();
        self.summary.steps += 1;
        if !is_tick || !effects.is_empty() {
            self.note(format_args!("head {input:?} -> {effects:?}"));
        }
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        self.schedule_tick();
    }

    fn schedule_tick(&mut self) {
        let (now, life) = (self.now, self.lives);
        let Some(process) = &mut self.process else { return };
        let due = process.head.next_wakeup().map_or(now.0 + 500_000, |due| due.0);
        let due = Time(due.clamp(now.0 + 1_000, now.0 + 500_000));
        if process.tick_at.is_none_or(|at| due < at || at <= now) {
            process.tick_at = Some(due);
            self.at(due, Event::HeadTicked(life));
        }
    }

    pub(super) fn on_head_ticked(&mut self) {
        if let Some(process) = &mut self.process {
            process.tick_at = None;
            self.step_head(HeadInput::Ticked);
        }
    }

    fn carry_out(&mut self, effect: HeadEffect) {
        let now = self.now;
        match effect {
            HeadEffect::Send { link, message } => {
                if let FromControl::NameClaimed { name, actor, granted: true } = &message {
                    let head = &self.process.as_ref().expect("it sends").head;
                    let found = head.find_name(name).map(|(_, found)| found.actor);
                    assert_eq!(found, Some(*actor), "{name} is granted to an actor that has it not");
                }
                self.send_to_node(link, message);
            }
            HeadEffect::Close { link, .. } => self.break_link(link, false),
            HeadEffect::Certify { .. } => {}
            HeadEffect::Write(write) => {
                let changes = write.changes(now.0);
                let completion = match write {
                    HeadWrite::Name { claim, .. } => Completion::Name(claim),
                    HeadWrite::Group { group, write, .. } => Completion::Group(group, write),
                    HeadWrite::NodeJoined { .. }
                    | HeadWrite::NodeLeft { .. }
                    | HeadWrite::NodeDied { .. }
                    | HeadWrite::RecordsForgotten { .. }
                    | HeadWrite::Token { .. }
                    | HeadWrite::PutOut { .. }
                    | HeadWrite::TrustForgotten { .. }
                    | HeadWrite::Noted { .. }
                    | HeadWrite::NamesFreed { .. } => Completion::Nothing,
                };
                self.store.write(now, changes, completion);
            }
            HeadEffect::AskTables { link, number, request } => self.ask_tables(link, number, request),
            HeadEffect::EndPrograms { left, members } => {
                let process = self.process.as_mut().expect("it orders this");
                process.last_ending += 1;
                let ending = process.last_ending;
                process.endings.insert(ending, (left.clone(), left.len() + 1));
                for node in &left {
                    let query = rows_of(Table::Programs, programs_of(*node));
                    self.store.query(now, query, Completion::Programs(ending));
                }
                let jobs = Completion::Jobs(ending, NodesLeft::new(left, members));
                self.store.query(now, rows_of(Table::Jobs, Key(Vec::new())), jobs);
            }
            HeadEffect::ForgetRecords { sender } => {
                self.store.node_left(now, sender, Completion::RecordsForgotten(sender));
            }
        }
        self.after_store();
    }

    fn ask_tables(&mut self, link: LinkId, number: u64, request: TableRequest) {
        let now = self.now;
        match request {
            TableRequest::Query { query, reply } => {
                self.store.query(now, query, Completion::Query(link, number, reply));
            }
            TableRequest::Change(batch) => {
                self.store.apply(now, batch, Completion::Change(link, number));
            }
            TableRequest::KeyChange { batch, row_before } => {
                if let Some(key) = row_before {
                    let query = Query::Row { table: Table::Keys, key };
                    self.store.query(now, query, Completion::Existed(link, number));
                }
                self.store.apply(now, batch, Completion::KeyChange(link, number));
            }
        }
    }

    /// The store was used: what it tells is acted on, and its disks get to work.
    pub(super) fn after_store(&mut self) {
        loop {
            let told = self.store.take_told();
            if told.is_empty() {
                break;
            }
            for told in told {
                match told {
                    Told::Answer(completion, answer) => self.on_completed(completion, answer),
                    Told::Notice(notice) => self.tell_head(node_written(&notice)),
                }
            }
        }
        for (shard, up_to) in self.store.begin_syncs() {
            let slow = self.swarm.is_disk_slow && self.random.chance(10);
            let takes = self.random.below(if slow { 800_000 } else { 3_000 });
            let life = self.lives;
            self.after(takes, Event::Synced(life, shard, up_to));
        }
    }

    fn tell_head(&mut self, input: Option<HeadInput>) {
        let (pause, life) = (self.random.below(200), self.lives);
        let (Some(process), Some(input)) = (&mut self.process, input) else { return };
        process.told.push_back(input);
        self.after(pause, Event::HeadTold(life));
    }

    pub(super) fn on_told(&mut self) {
        let told = self.process.as_mut().map(|process| std::mem::take(&mut process.told));
        told.into_iter().flatten().for_each(|input| self.step_head(input));
    }

    fn on_completed(&mut self, completion: Completion, answer: Answer) {
        let now = self.now;
        let is_made = matches!(&answer, Answer::Applied { refused } if refused.is_empty());
        match completion {
            Completion::Nothing => {}
            Completion::Name(claim) => {
                self.tell_head(Some(HeadInput::NameWritten { claim, is_kept: is_made }));
            }
            Completion::Group(group, write) => {
                let outcome = if is_made { Ok(()) } else { Err("refused".to_owned()) };
                self.tell_head(Some(HeadInput::GroupWritten { group, write, outcome }));
            }
            Completion::Query(link, number, form) => self.reply(link, number, form.reply(answer)),
            Completion::Change(link, number) => self.reply(link, number, Some(Reply::Table(answer))),
            Completion::Existed(link, number) => {
                let existed = matches!(answer, Answer::Row(Some(_)));
                let process = self.process.as_mut().expect("it has asked");
                process.existed.insert((link, number), existed);
            }
            Completion::KeyChange(link, number) => {
                let process = self.process.as_mut().expect("it has asked");
                let existed = process.existed.remove(&(link, number)).unwrap_or(false);
                self.reply(link, number, reply_to_key_change(existed, answer));
            }
            Completion::RecordsForgotten(sender) => {
                let changes = HeadWrite::RecordsForgotten { sender }.changes(now.0);
                self.store.write(now, changes, Completion::Nothing);
            }
            Completion::Programs(ending) => {
                let Answer::Rows { rows, .. } = answer else { return };
                let gone = |(key, _)| Change::RowDeleted { table: Table::Programs, key };
                self.write_if_any(rows.into_iter().map(gone).collect());
                self.on_table_ended(ending);
            }
            Completion::Jobs(ending, mut jobs) => {
                let Answer::Rows { rows, more } = answer else { return };
                let last = rows.last().map(|(key, _)| key.clone()).filter(|_| more);
                let changes = jobs.on_rows(rows, now.0 / 1000);
                self.write_if_any(changes);
                if last.is_none() {
                    self.on_table_ended(ending);
                } else {
                    let (table, prefix, limit) = (Table::Jobs, Key(Vec::new()), limits::ANSWER_ROWS_MAX);
                    let query = Query::Rows { table, prefix, after: last, limit, values: true };
                    self.store.query(now, query, Completion::Jobs(ending, jobs));
                }
            }
        }
    }

    fn write_if_any(&mut self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.store.write(self.now, changes, Completion::Nothing);
        }
    }

    /// One table was gone through for nodes that have left.
    fn on_table_ended(&mut self, ending: u64) {
        let process = self.process.as_mut().expect("it has asked");
        let (left, tables) = process.endings.get_mut(&ending).expect("it is under way");
        *tables -= 1;
        if *tables == 0 {
            let left = std::mem::take(left);
            process.endings.remove(&ending);
            self.tell_head(Some(HeadInput::ProgramsEnded { left }));
        }
    }

    fn reply(&mut self, link: LinkId, number: u64, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.send_to_node(link, FromControl::Answered { number, reply });
        }
    }
}

fn rows_of(table: Table, prefix: Key) -> Query {
    Query::Rows { table, prefix, after: None, limit: limits::ANSWER_ROWS_MAX, values: true }
}

fn node_written(notice: &Notice) -> Option<HeadInput> {
    let Notice::Row { table: Table::Nodes, key, value } = notice else { return None };
    let node = node_in(key)?;
    let info = value.as_ref().map(|value| decode(value).expect("a node"));
    Some(HeadInput::NodeWritten { node, info })
}
