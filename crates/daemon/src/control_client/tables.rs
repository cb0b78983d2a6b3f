//! Questions to the tables of the cluster, by threads of this process that wait for the answers.

use super::{ControlClient, Order};
use aktis_logic::machine::control_client::ControlClientInput;
use aktis_logic::machine::head::Job;
use aktis_node::journal;
use aktis_protocol::admin::{OnNode, ProgramRow};
use aktis_protocol::control::decode;
use aktis_protocol::limits;
use aktis_protocol::tables::{Answer, Change, Event, EventKind, Key, Query, Table};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A row of the table of programs.
type ServedProgram = OnNode<ProgramRow>;

impl ControlClient {
    /// Asks the tables something, and waits for the answer; nothing if the control process is away.
    pub(crate) fn query_tables(self: &Arc<Self>, query: Query, patience: Duration) -> Option<Answer> {
        let (sender, receiver) = channel();
        let mut askers = self.askers.lock();
        askers.last += 1;
        let asker = askers.last;
        askers.answers_by_asker.insert(asker, sender);
        drop(askers);
        self.step(ControlClientInput::QueryWanted { asker, query });
        let answer = receiver.recv_timeout(patience).ok();
        self.askers.lock().answers_by_asker.remove(&asker);
        answer
    }

    /// This node has refused somebody: for the audit log of the cluster.
    pub(crate) fn note_refusal(&self, line: &str) {
        let at_microseconds = journal::unix_milliseconds() * 1000;
        let text = line[..line.floor_char_boundary(limits::EVENT_BYTES_MAX)].to_owned();
        let event = Event { at_microseconds, subject: self.me.into(), kind: EventKind::Refused, text };
        let change = Change::EventNoted(event);
        let _ = self.orders.send(Order::Input(ControlClientInput::ChangeWanted { change }));
    }

    /// The tables have answered a thread, or will not.
    pub(super) fn answer(&self, asker: u64, answer: Option<Answer>) {
        let waiting = self.askers.lock().answers_by_asker.remove(&asker);
        if let (Some(waiting), Some(answer)) = (waiting, answer) {
            let _ = waiting.send(answer);
        }
    }

    /// All rows of a table, in the order of their keys; nothing if the control process does not answer.
    fn all_rows<Row: DeserializeOwned>(
        self: &Arc<Self>,
        table: Table,
        patience: Duration,
    ) -> Option<Vec<Row>> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let (prefix, limit) = (Key(Vec::new()), limits::ANSWER_ROWS_MAX);
            let query = Query::Rows { table, prefix, after, limit, values: true };
            let Answer::Rows { rows, more } = self.query_tables(query, patience)? else { return None };
            after = rows.last().map(|(key, _)| key.clone());
            all.extend(rows.iter().filter_map(|(_, value)| decode(value).ok()));
            if !more {
                return Some(all);
            }
        }
    }

    /// The programs that are attached to this node.
    pub(crate) fn own_jobs(&self) -> Vec<Job> {
        self.core.lock().client.own_jobs()
    }

    /// The jobs of the whole cluster, the oldest first, as the tables know them; nothing if they do not answer.
    pub(crate) fn all_jobs(self: &Arc<Self>, patience: Duration) -> Option<Vec<Job>> {
        let mut all: Vec<Job> = self.all_rows(Table::Jobs, patience)?;
        // What this node knows of its own jobs may not be on disk yet.
        for own in self.own_jobs() {
            if !all.iter().any(|job| job.row.job == own.row.job) {
                all.push(own);
            }
        }
        Some(all)
    }

    /// The programs that this node serves.
    pub(crate) fn own_programs(&self) -> Vec<ServedProgram> {
        self.core.lock().client.own_programs()
    }

    /// What all nodes serve, node by node, as the tables know it; nothing if they do not answer.
    pub(crate) fn all_programs(self: &Arc<Self>, patience: Duration) -> Option<Vec<ServedProgram>> {
        let mut all: Vec<ServedProgram> = self.all_rows(Table::Programs, patience)?;
        // What this node knows of itself may not be on disk yet, or be gone.
        all.retain(|served| served.node != self.me);
        all.extend(self.own_programs());
        all.sort_by_key(|served| (served.node, served.row.program));
        Some(all)
    }
}
