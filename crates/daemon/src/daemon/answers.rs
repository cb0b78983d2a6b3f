//! What the daemon answers the command line: what it knows, and what the other nodes say.

use super::{Parts, merge};
use crate::admin::{Admin, Client, LogPage, LogPosition, Refusal};
use crate::control::{control_directory, last_words};
use aktis_io::Link;
use aktis_protocol::admin::{
    Account, AccountKind, ClusterStatus, DrainOrder, IdPrefix, KeyReply, KeyRequest, KillOrder, Killed,
    ListKind, ListQuery, Listing, LogPart, LogQuery, NodeAnswer, NodeQuestion, NodeRow, NodeState,
    NodeStatus, Rows, StopScope,
};
use aktis_protocol::control::decode;
use aktis_protocol::limits::{ANSWER_ROWS_MAX, DEAD_NODES_KEPT, LOG_LINES_MAX};
use aktis_protocol::member::{DEAD_PREFIX, DeadNode};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::state::ResourceRow;
use aktis_protocol::tables::{Answer, Counts, Query, Table};
use aktis_protocol::trust::{TrustReply, TrustRequest};
use aktis_protocol::{Amount, NodeId, Resources};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long the end of other nodes is waited for before this one ends.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two looks whether they are gone.
const STOP_AGAIN: Duration = Duration::from_millis(20);

/// How long the control process may take to say how much it keeps, or which nodes are dead.
const COUNTS_PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to say which programs there are.
pub(super) const TABLES_PATIENCE: Duration = Duration::from_secs(10);

/// Answers from the parts of a daemon.
pub(super) struct Answers(pub(super) Arc<Parts>);

/// What nodes have said to one question.
pub(super) struct Told {
    pub(super) answers: BTreeMap<NodeId, NodeAnswer>,
    /// Those who are members, and have not said anything.
    pub(super) silent: Vec<NodeId>,
}

impl Parts {
    /// Asks all other members.
    pub(super) fn ask(&self, question: &NodeQuestion) -> Told {
        let members: Vec<NodeId> = self.others().iter().map(|info| info.node).collect();
        let links: Vec<_> = self.links_of(&members);
        let answers = self.inquiries.ask(&links, |_| question.clone());
        let silent = members.into_iter().filter(|node| !answers.contains_key(node)).collect();
        Told { answers, silent }
    }

    pub(super) fn links_of(&self, nodes: &[NodeId]) -> Vec<(NodeId, Link)> {
        self.neighbours.links().into_iter().filter(|(node, _)| nodes.contains(node)).collect()
    }

    fn others(&self) -> Vec<NodeInfo> {
        self.client.nodes().into_iter().filter(|info| info.node != self.node).collect()
    }

    /// How all nodes stand, this one first, and those that are silent as far as they are known here.
    fn statuses(&self) -> Vec<NodeStatus> {
        let mut told = self.ask(&NodeQuestion::Status);
        let mut statuses = vec![self.own_status()];
        for info in self.others() {
            statuses.push(match told.answers.remove(&info.node) {
                Some(NodeAnswer::Status(status)) => *status,
                _ => NodeStatus { row: silent_row(&info), ..NodeStatus::default() },
            });
        }
        statuses
    }

    /// How much the control process keeps, if it says so.
    fn kept(&self) -> Option<Counts> {
        self.client.away().is_none().then_some(())?;
        match self.client.query_tables(Query::Counts, COUNTS_PATIENCE)? {
            Answer::Counts(counts) => Some(counts),
            _ => None,
        }
    }

    /// The last nodes that are no members any more, if the control process says so.
    fn dead_nodes(&self) -> Vec<DeadNode> {
        if self.client.away().is_some() {
            return Vec::new();
        }
        let query = Query::Rows {
            table: Table::Nodes,
            prefix: DEAD_PREFIX.into(),
            after: None,
            limit: ANSWER_ROWS_MAX,
            values: true,
        };
        let Some(Answer::Rows { rows, .. }) = self.client.query_tables(query, COUNTS_PATIENCE) else {
            return Vec::new();
        };
        let mut last = BTreeMap::new();
        for dead in rows.iter().filter_map(|(_, value)| decode::<DeadNode>(value).ok()) {
            last.insert(dead.info.node, dead);
        }
        // It may have joined again.
        last.remove(&self.node);
        self.others().iter().for_each(|info| drop(last.remove(&info.node)));
        let mut dead: Vec<DeadNode> = last.into_values().collect();
        dead.sort_by_key(|dead| (dead.unix_milliseconds, dead.info.epoch));
        dead.split_off(dead.len().saturating_sub(DEAD_NODES_KEPT))
    }

    /// What the whole cluster knows about something.
    pub(super) fn explain(&self, id: &IdPrefix) -> Result<String, Refusal> {
        let mut accounts = self.own_accounts(id)?;
        let told = self.ask(&NodeQuestion::Explain(id.clone()));
        accounts.extend(accounts_of(told.answers));
        let dead = self.dead_nodes().into_iter().filter(|dead| id.is_start_of(&dead.info.node));
        accounts.extend(dead.map(|dead| dead_account(&dead, self.node)));
        let silent = told.silent;
        let text = merge::accounts(accounts).map_err(|others| unclear(id, &others, &silent))?;
        let missing = silent.iter().map(|node| format!("\nnode {node} has not answered"));
        Ok(text + &missing.collect::<String>())
    }

    /// What other nodes know about something, for a process that has asked.
    pub(super) fn explain_elsewhere(&self, id: &IdPrefix) -> String {
        let told = self.ask(&NodeQuestion::Explain(id.clone()));
        let texts = accounts_of(told.answers)
            .map(|account| format!("node {} says: {}", &account.node.to_string()[..12], account.text));
        let mut texts: Vec<String> = texts.collect();
        texts.extend(told.silent.iter().map(|node| format!("node {node} has not answered")));
        if texts.is_empty() { "no other node says more".to_owned() } else { texts.join("; ") }
    }

    /// Ends all nodes: members first, then the head, and this one when the others are gone.
    fn stop_cluster(&self) {
        let is_head = |status: &NodeStatus| status.row.is_head;
        let (heads, members): (Vec<_>, Vec<_>) = self.statuses().into_iter().skip(1).partition(is_head);
        for statuses in [members, heads] {
            let nodes: Vec<NodeId> = statuses.iter().map(|status| status.row.node).collect();
            self.inquiries.ask(&self.links_of(&nodes), |_| NodeQuestion::Stop);
            let until = Instant::now() + STOP_PATIENCE;
            while !self.links_of(&nodes).is_empty() && Instant::now() < until {
                std::thread::sleep(STOP_AGAIN);
            }
        }
        self.stop_machine();
    }

    /// Ends this node, and the control process if it is on this machine.
    pub(super) fn stop_machine(&self) {
        if self.is_head {
            // If it is down, or is about to end, that is as good.
            let _ = Client::connect_to_control(&self.directory).and_then(Client::begin_stop);
        }
        self.stop();
    }
}

impl Admin for Answers {
    fn status(&self) -> Result<ClusterStatus, Refusal> {
        let parts = &self.0;
        let head_lost = parts.client.away().map(|away| {
            let last_words = last_words::read(&control_directory(&parts.directory));
            let last_words = last_words.map_or(String::new(), |words| format!("; its last words: {}", words.replace('\n', "; ")));
            format!(
                "it has been away for {} s; work goes on, but no node can join, and no name or key be given{last_words}",
                away.as_secs()
            )
        });
        let statuses = parts.statuses();
        let drivers = statuses.iter().map(|status| status.drivers).sum();
        let totals: Vec<Resources> = statuses.iter().map(|status| totals(&status.row)).collect();
        let (mut nodes, mut demand) = (Vec::new(), Vec::new());
        for status in statuses {
            nodes.push(status.row);
            demand.extend(status.demand);
        }
        Ok(ClusterStatus {
            node: parts.node,
            address: Some(parts.head.to_string()),
            head_lost,
            nodes,
            dead: parts.dead_nodes().iter().map(dead_row).collect(),
            drivers,
            demand: merge::demands(demand, &totals),
            kept: parts.kept(),
        })
    }

    fn stop(&self, scope: StopScope) -> Result<(), Refusal> {
        match scope {
            StopScope::Node => self.0.stop(),
            StopScope::Cluster => {
                let parts = self.0.clone();
                let run = move || parts.stop_cluster();
                let spawned = std::thread::Builder::new().name("aktis-stop".into()).spawn(run);
                spawned.map_err(|error| Refusal::new(format!("there is no thread for it: {error}")))?;
            }
        }
        Ok(())
    }

    fn list(&self, query: &ListQuery) -> Result<Listing, Refusal> {
        if query.what == ListKind::Nodes {
            let members = self.0.statuses().into_iter().map(|status| status.row);
            let (rows, left_out) = query.select(members.chain(self.0.dead_nodes().iter().map(dead_row)));
            return Ok(Listing { rows: Rows::Nodes(rows), left_out, silent: Vec::new() });
        }
        let no_answer = || {
            Refusal::new("the control process, which knows the programs of the cluster, does not answer")
                .with_hint("`aktis status` says whether it is down")
        };
        if query.what == ListKind::Jobs {
            let jobs = self.0.client.all_jobs(TABLES_PATIENCE).ok_or_else(no_answer)?;
            let (rows, left_out) = query.select(jobs);
            return Ok(Listing { rows: Rows::Jobs(rows), left_out, silent: Vec::new() });
        }
        if query.what == ListKind::Programs {
            let programs = self.0.client.all_programs(TABLES_PATIENCE).ok_or_else(no_answer)?;
            let (rows, left_out) = query.select(programs);
            return Ok(Listing { rows: Rows::Programs(rows), left_out, silent: Vec::new() });
        }
        let mut parts = vec![self.0.own_list(query)?];
        let mut told = self.0.ask(&NodeQuestion::List(query.clone()));
        for (node, answer) in std::mem::take(&mut told.answers) {
            match answer {
                NodeAnswer::Listing(listing) => parts.push(listing),
                _ => told.silent.push(node),
            }
        }
        let meant = |node: &NodeId| query.node.as_ref().is_none_or(|prefix| prefix.is_start_of(node));
        told.silent.retain(meant);
        Ok(merge::listings(query, parts, told.silent))
    }

    fn explain(&self, id: &IdPrefix) -> Result<String, Refusal> {
        self.0.explain(id)
    }

    fn logs(
        &self,
        query: &LogQuery,
        position: Option<LogPosition>,
        patience: Duration,
    ) -> Result<LogPage, Refusal> {
        let parts = &self.0;
        let first = position.is_none();
        let position = position.unwrap_or_default();
        let meant = |node: NodeId| query.node.as_ref().is_none_or(|prefix| prefix.is_start_of(&node));
        if let Some(own) = position.0.get(&parts.node) {
            parts.log.wait(*own, patience);
        }
        let mut pages = Vec::new();
        if meant(parts.node) {
            let own = position.0.get(&parts.node).copied();
            pages.push((parts.node, parts.own_logs(query, own)));
        }
        let others: Vec<NodeId> =
            parts.others().iter().map(|info| info.node).filter(|node| meant(*node)).collect();
        let told = parts.inquiries.ask(&parts.links_of(&others), |node| {
            // Of those who come later, all is new.
            let from = position.0.get(&node).copied().or((!first).then_some(0));
            NodeQuestion::Logs { query: query.clone(), position: from }
        });
        pages.extend(told.into_iter().filter_map(|(node, answer)| match answer {
            NodeAnswer::Logs(part) => Some((node, part)),
            _ => None,
        }));
        if first && pages.is_empty() {
            let hint = "`aktis list nodes` shows which there are";
            return Err(Refusal::new("there is no such node, or it does not answer").with_hint(hint));
        }
        Ok(log_page(query, first, position, pages))
    }

    fn keys(&self, request: KeyRequest) -> Result<KeyReply, Refusal> {
        self.0.keys(request)
    }

    fn kill(&self, order: &KillOrder) -> Result<Killed, Refusal> {
        self.carry_out(order)
    }

    fn drain(&self, order: &DrainOrder) -> Result<NodeId, Refusal> {
        self.have_drained(order)
    }

    fn trust(&self, _: TrustRequest) -> Result<TrustReply, Refusal> {
        let (what, hint) = match self.0.is_head {
            true => (
                "the control process, which decides who is let in, is down",
                "start it with `aktis start --head`",
            ),
            false => {
                ("only the control process decides who is let in", "run this command on the head's machine")
            }
        };
        Err(Refusal::new(what).with_hint(hint))
    }
}

/// Lines of several nodes, in the order in which they were read.
fn log_page(
    query: &LogQuery,
    first: bool,
    mut position: LogPosition,
    pages: Vec<(NodeId, LogPart)>,
) -> LogPage {
    let (mut lines, mut missed, mut is_last) = (Vec::new(), 0, true);
    for (node, part) in pages {
        position.0.insert(node, part.next);
        missed += part.missed;
        is_last &= part.is_last;
        lines.extend(part.lines);
    }
    lines.sort_by_key(|line| line.unix_milliseconds);
    if let Some(tail) = query.tail.filter(|_| first) {
        lines.drain(..lines.len().saturating_sub(tail as usize));
    }
    debug_assert!(lines.len() <= LOG_LINES_MAX * position.0.len().max(1));
    LogPage { lines, missed, next: position, is_last }
}

pub(super) fn accounts_of(answers: BTreeMap<NodeId, NodeAnswer>) -> impl Iterator<Item = Account> {
    answers.into_values().flat_map(|answer| match answer {
        NodeAnswer::Accounts(accounts) => accounts,
        _ => Vec::new(),
    })
}

pub(super) fn unclear(id: &IdPrefix, others: &[String], silent: &[NodeId]) -> Refusal {
    if others.is_empty() {
        let silent: String = silent.iter().map(|node| format!("; node {node} has not answered")).collect();
        let message = format!("nothing with an id that begins with {id} is known{silent}");
        return Refusal::new(message)
            .with_hint("`aktis list tasks` (or actors, objects, groups, jobs, nodes) shows what is there");
    }
    let message = format!("{} things have ids that begin with {id}: {}", others.len(), others.join(", "));
    Refusal::new(message).with_hint("give more digits")
}

/// Digits that mean no node, or several.
pub(super) fn unclear_node(id: &IdPrefix, meant: &[NodeId]) -> Refusal {
    if meant.is_empty() {
        return Refusal::new(format!("no node has an id that begins with {id}"))
            .with_hint("`aktis list nodes` shows which there are");
    }
    let ids: Vec<String> = meant.iter().map(ToString::to_string).collect();
    Refusal::new(format!("{} nodes have ids that begin with {id}: {}", ids.len(), ids.join(", ")))
        .with_hint("give more digits")
}

/// A node that has not answered, as far as it is known here.
fn silent_row(info: &NodeInfo) -> NodeRow {
    let resource =
        |(name, total): (&str, Amount)| ResourceRow { name: name.to_owned(), total, available: total };
    NodeRow {
        node: info.node,
        is_head: false,
        state: NodeState::Silent,
        address: info.address.to_string(),
        labels: info.labels.clone(),
        resources: info.resources.iter().map(resource).collect(),
        ..NodeRow::default()
    }
}

/// A node that is no member any more.
fn dead_row(dead: &DeadNode) -> NodeRow {
    NodeRow {
        state: NodeState::Dead,
        died_unix_milliseconds: Some(dead.unix_milliseconds),
        reason: Some(dead.why.to_string()),
        ..silent_row(&dead.info)
    }
}

fn dead_account(dead: &DeadNode, told_by: NodeId) -> Account {
    let died = UNIX_EPOCH + Duration::from_millis(dead.unix_milliseconds);
    let ago = died.elapsed().unwrap_or_default().as_secs();
    let text = format!("it is dead: {}; that was {ago} s ago, and it was at {}", dead.why, dead.info.address);
    Account { kind: AccountKind::Node, id: dead.info.node.to_string(), node: told_by, text }
}

fn totals(row: &NodeRow) -> Resources {
    row.resources.iter().fold(Resources::none(), |all, resource| all.with(&resource.name, resource.total))
}
