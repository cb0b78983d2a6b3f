//! What this node knows by itself, for its own command line and for those of other nodes.

use super::Parts;
use crate::admin::Refusal;
use aktis_protocol::GroupState;
use aktis_protocol::admin::{
    Account, AccountKind, IdPrefix, ListKind, ListQuery, Listing, LogLine, LogPart, LogQuery, NodeAnswer,
    NodeQuestion, NodeRow, NodeState, NodeStatus, OnNode, Rows, TaskRow,
};
use aktis_protocol::limits::LISTED_ROWS_MAX;
use aktis_protocol::questions::{ProcessAnswer, ProcessQuestion};
use aktis_protocol::state::{
    ActorRow, ActorState, DemandRow, GroupRow, ObjectRow, StateKind, StateRows, StoreRow,
};
use aktis_protocol::text::one_line;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long processes of this node may take to say what they have submitted.
const PROCESS_PATIENCE: Duration = Duration::from_millis(500);

impl Parts {
    /// Answers a question of another node.
    pub(super) fn answer(self: &Arc<Self>, question: NodeQuestion) -> NodeAnswer {
        let refused = |refusal: Refusal| NodeAnswer::Refused(refusal.message);
        match question {
            NodeQuestion::Status => NodeAnswer::Status(Box::new(self.own_status())),
            NodeQuestion::List(query) => self.own_list(&query).map_or_else(refused, NodeAnswer::Listing),
            NodeQuestion::Explain(id) => self.own_accounts(&id).map_or_else(refused, NodeAnswer::Accounts),
            NodeQuestion::Logs { query, position } => NodeAnswer::Logs(self.own_logs(&query, position)),
            NodeQuestion::Kill(target) => NodeAnswer::Killed(self.kill(&target)),
            NodeQuestion::Drain { patience_milliseconds } => self
                .drain(patience_milliseconds.map(Duration::from_millis))
                .map_or_else(refused, |()| NodeAnswer::Draining),
            NodeQuestion::TakeObjects { objects } => {
                NodeAnswer::Taken { objects: self.taking.take(self.host.own(), objects) }
            }
            NodeQuestion::Stop => {
                self.stop_machine();
                NodeAnswer::Stopping
            }
        }
    }

    pub(super) fn own_status(&self) -> NodeStatus {
        let demand = match self.state(StateKind::Demand) {
            Ok((StateRows::Demand(rows), _)) => rows,
            _ => Vec::<DemandRow>::new(),
        };
        let row = self.own_row();
        NodeStatus { drivers: row.drivers.len() as u32, row, demand }
    }

    /// The processes of attached programs.
    fn drivers(&self) -> Vec<u32> {
        match self.state(StateKind::Drivers) {
            Ok((StateRows::Drivers(rows), _)) => rows.iter().map(|row| row.pid).collect(),
            _ => Vec::new(),
        }
    }

    fn own_row(&self) -> NodeRow {
        let store = match self.state(StateKind::Store) {
            Ok((StateRows::Store(row), _)) => row,
            _ => StoreRow::default(),
        };
        let workers = match self.state(StateKind::Workers) {
            Ok((StateRows::Workers(rows), left_out)) => rows.len() as u32 + left_out as u32,
            _ => 0,
        };
        let drain = self.host.drain_progress();
        NodeRow {
            node: self.node,
            is_head: self.is_head,
            state: if drain.is_some() { NodeState::Draining } else { NodeState::Alive },
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            address: self.about.address.to_string(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.about.labels.clone(),
            resources: self.host.resources(),
            store,
            workers,
            drivers: self.drivers(),
            died_unix_milliseconds: None,
            reason: drain.map(|drain| format!("drained: {}", drain.left)),
        }
    }

    /// What there is on this node; rows of others that it knows of are marked so.
    pub(super) fn own_list(&self, query: &ListQuery) -> Result<Listing, Refusal> {
        let (rows, left_out) = match query.what {
            ListKind::Nodes => {
                let (rows, left_out) = query.select([self.own_row()]);
                (Rows::Nodes(rows), left_out)
            }
            ListKind::Workers => {
                let (StateRows::Workers(rows), more) = self.state(StateKind::Workers)? else {
                    return Err(confused());
                };
                let (rows, left_out) = query.select(self.on_this_node(rows));
                (Rows::Workers(rows), left_out + more)
            }
            ListKind::Jobs => {
                let (rows, left_out) = query.select(self.client.own_jobs());
                (Rows::Jobs(rows), left_out)
            }
            ListKind::Programs => {
                let (rows, left_out) = query.select(self.client.own_programs());
                (Rows::Programs(rows), left_out)
            }
            ListKind::Groups => {
                let (rows, more) = self.groups()?;
                // How far a group is, the node that asked for it knows best: others may have parts of it.
                let every_state = ListQuery { state: None, ..for_others(query) };
                let (rows, left_out) = every_state.select(self.on_this_node(rows));
                (Rows::Groups(rows), left_out + more)
            }
            ListKind::Actors => {
                let (rows, more) = self.actors()?;
                let (rows, left_out) = for_others(query).select(self.on_this_node(rows));
                (Rows::Actors(rows), left_out + more)
            }
            ListKind::Objects => {
                let (rows, more) = self.objects()?;
                let (rows, left_out) = query.select(self.on_this_node(rows));
                (Rows::Objects(rows), left_out + more)
            }
            ListKind::Tasks => {
                let (rows, more) = self.tasks(query);
                // How far those are that another node has is not known here.
                let (away, here): (Vec<_>, Vec<_>) = rows.into_iter().partition(TaskRow::is_away);
                let (mut rows, left_out) = for_others(query).select(self.on_this_node(here));
                rows.extend(self.on_this_node(away));
                (Rows::Tasks(rows), left_out + more)
            }
        };
        Ok(Listing { rows, left_out, silent: Vec::new() })
    }

    fn on_this_node<Row>(&self, rows: Vec<Row>) -> impl Iterator<Item = OnNode<Row>> {
        let node = self.node;
        rows.into_iter().map(move |row| OnNode { node, row })
    }

    pub(super) fn state(&self, kind: StateKind) -> Result<(StateRows, u64), Refusal> {
        self.host.own().state(kind).map_err(|error| Refusal::new(error.to_string()))
    }

    fn actors(&self) -> Result<(Vec<ActorRow>, u64), Refusal> {
        let (StateRows::Actors(mut rows), more) = self.state(StateKind::Actors)? else {
            return Err(confused());
        };
        // Those that live on another node are with a process that stands for it, which is in this one.
        for row in rows.iter_mut().filter(|row| row.pid == std::process::id()) {
            (row.pid, row.process) = (0, None);
        }
        Ok((rows, more))
    }

    fn groups(&self) -> Result<(Vec<GroupRow>, u64), Refusal> {
        match self.state(StateKind::Groups)? {
            (StateRows::Groups(rows), more) => Ok((rows, more)),
            _ => Err(confused()),
        }
    }

    fn objects(&self) -> Result<(Vec<ObjectRow>, u64), Refusal> {
        match self.state(StateKind::Objects)? {
            (StateRows::Objects(rows), more) => Ok((rows, more)),
            _ => Err(confused()),
        }
    }

    /// What the processes of this node, and those that stand for other nodes, have submitted.
    fn tasks(&self, query: &ListQuery) -> (Vec<TaskRow>, u64) {
        let question = ProcessQuestion::Tasks {
            limit: for_others(query).limit,
            state: query.state.clone(),
            name: query.name.clone(),
        };
        let answers = self.ask_processes(&question);
        let left_out = answers.iter().map(|answer| answer.left_out).sum();
        (answers.into_iter().flat_map(|answer| answer.tasks).collect(), left_out)
    }

    pub(super) fn ask_processes(&self, question: &ProcessQuestion) -> Vec<ProcessAnswer> {
        let mut answers: Vec<_> =
            self.neighbours.runtimes().iter().map(|runtime| runtime.answer(question)).collect();
        let told = self.host.host().ask_processes(question, PROCESS_PATIENCE);
        answers.extend(told.into_iter().map(|(_, answer)| answer));
        answers
    }

    /// What is known here about something.
    pub(super) fn own_accounts(&self, id: &IdPrefix) -> Result<Vec<Account>, Refusal> {
        let account = |kind, id: String, text| Account { kind, id, node: self.node, text };
        let mut accounts = Vec::new();
        if id.is_start_of_words(self.node.to_words()) {
            let status = self.own_status();
            let text = format!(
                "it is alive, on {} at {}, with {} workers and {} programs attached",
                status.row.host, status.row.address, status.row.workers, status.drivers
            );
            accounts.push(account(AccountKind::Node, self.node.to_string(), text));
        }
        for row in self.actors()?.0.iter().filter(|row| id.is_start_of_words(row.actor.to_words())) {
            accounts.push(account(AccountKind::Actor, row.actor.to_string(), actor_text(row)));
        }
        for row in self.groups()?.0.iter().filter(|row| id.is_start_of_words(row.group.to_words())) {
            accounts.push(account(AccountKind::Group, row.group.to_string(), group_text(row)));
        }
        for row in self.objects()?.0.iter().filter(|row| id.is_start_of_words(row.object.to_words())) {
            accounts.push(account(AccountKind::Object, row.object.to_string(), object_text(row)));
        }
        let told = self.ask_processes(&ProcessQuestion::Explain(id.clone()));
        for task in told.into_iter().flat_map(|answer| answer.accounts) {
            let reason = task.lane.map(|lane| self.host.own().explain_lane(lane));
            let reason = reason.filter(|reason| !reason.is_empty());
            let text = reason.map_or(task.text.clone(), |reason| format!("{}: {reason}", task.text));
            accounts.push(account(AccountKind::Task, task.task.to_string(), text));
        }
        Ok(accounts)
    }

    pub(super) fn own_logs(&self, query: &LogQuery, position: Option<u64>) -> LogPart {
        let pids = self.pids_of(query);
        let means = |line: &LogLine| {
            query.is_since(line)
                && query.pid.is_none_or(|pid| pid == line.pid)
                && pids.as_ref().is_none_or(|pids| pids.contains(&line.pid))
        };
        self.log.read(position, query.tail, means)
    }

    /// The processes of the actor or task whose lines are asked for, if it is about one.
    fn pids_of(&self, query: &LogQuery) -> Option<BTreeSet<u32>> {
        let mut pids = BTreeSet::new();
        if let Some(actor) = &query.actor {
            let rows = self.actors().map(|(rows, _)| rows).unwrap_or_default();
            let meant = rows.iter().filter(|row| actor.is_start_of_words(row.actor.to_words()));
            pids.extend(meant.map(|row| row.pid).filter(|pid| *pid != 0));
        }
        if let Some(task) = &query.task {
            let question =
                ProcessQuestion::Tasks { limit: u32::MAX, state: Some("running".into()), name: None };
            let rows = self.ask_processes(&question).into_iter().flat_map(|answer| answer.tasks);
            let meant = rows.filter(|row| task.is_start_of_words(row.task.to_words()));
            pids.extend(meant.filter_map(|row| row.pid));
        }
        (query.actor.is_some() || query.task.is_some()).then_some(pids)
    }
}

/// What one node can select by of what several know: how far it is. Its name, for instance, is known where it was
/// submitted, and its process where it runs; so the rest is for whoever puts the rows together.
///
/// Its limit is for the rows that are left when those of all nodes are one: several nodes know the same task.
fn for_others(query: &ListQuery) -> ListQuery {
    ListQuery { limit: LISTED_ROWS_MAX, node: None, name: None, filters: Vec::new(), ..query.clone() }
}

fn actor_text(row: &ActorRow) -> String {
    let name = row.name.as_ref().map_or(String::new(), |name| format!(" `{}`", one_line(name)));
    let restarts = match row.restarts {
        0 => String::new(),
        1 => ", restarted once".to_owned(),
        times => format!(", restarted {times} times"),
    };
    let text = match row.state {
        ActorState::Alive if row.pid == 0 => "it lives on another node".to_owned(),
        ActorState::Alive => format!("it lives in process {}", row.pid),
        ActorState::Pending => format!("it is not running: {}", row.reason),
        ActorState::Restarting => format!("it is being started again: {}", row.reason),
        ActorState::Dead => format!("it is dead: {}", row.reason),
    };
    format!("{}{name}: {text}{restarts}", one_line(&row.type_name))
}

fn group_text(row: &GroupRow) -> String {
    let name = row.name.as_ref().map_or(String::new(), |name| format!(" `{}`", one_line(name)));
    let bundles: Vec<String> = row.bundles.iter().map(|bundle| format!("{{{bundle}}}")).collect();
    let bundles = format!("{} bundles ({}): {}", bundles.len(), row.strategy.word(), bundles.join(", "));
    let text = match &row.state {
        GroupState::Pending(reason) => format!("it waits: {reason}"),
        GroupState::Removed(reason) => format!("it is removed: {reason}"),
        GroupState::Ready => {
            let nodes: BTreeSet<String> =
                row.nodes.iter().map(|node| node.to_string()[..12].to_owned()).collect();
            format!("it is ready, on {}", nodes.into_iter().collect::<Vec<_>>().join(", "))
        }
    };
    format!("placement group{name} of {bundles}; {text}")
}

fn object_text(row: &ObjectRow) -> String {
    let pinned = if row.pinned { ", which somebody reads" } else { "" };
    let place = row.place().word();
    let holders = match row.holders.len() {
        1 => "1 process".to_owned(),
        holders => format!("{holders} processes"),
    };
    format!("{} bytes ({place}){pinned}, held by {holders}", row.bytes)
}

fn confused() -> Refusal {
    Refusal::new("the node gave other rows than it was asked for".to_owned())
}
