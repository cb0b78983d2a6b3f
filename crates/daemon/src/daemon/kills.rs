//! Tasks, actors and jobs that a command line ends, wherever in the cluster they are.
//!
//! Invariants:
//! 1. An order whose digits mean several things ends none of them.
//! 2. A driver is ended only if the process with its number is still the driver that was meant.

use super::Parts;
use super::answers::{Answers, TABLES_PATIENCE, accounts_of, unclear};
use crate::admin::{Admin, Refusal};
use aktis_logic::machine::head::Job;
use aktis_protocol::admin::{
    Account, AccountKind, JobState, KillOrder, KillTarget, Killed, ListKind, ListQuery, NodeAnswer,
    NodeQuestion, OnNode, Rows,
};
use aktis_protocol::limits::LISTED_ROWS_MAX;
use aktis_protocol::questions::ProcessQuestion;
use aktis_protocol::state::{ActorRow, ActorState, StateKind, StateRows};
use aktis_protocol::{NodeId, ProgramId};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;

/// Something that an order may mean.
enum Meant {
    /// A task, and the nodes that have told of it.
    Task(Account, Vec<NodeId>),
    Actor(OnNode<ActorRow>),
    Job(Job),
}

impl Meant {
    fn kind(&self) -> AccountKind {
        match self {
            Self::Task(..) => AccountKind::Task,
            Self::Actor(_) => AccountKind::Actor,
            Self::Job(_) => AccountKind::Job,
        }
    }

    fn id(&self) -> String {
        match self {
            Self::Task(account, _) => account.id.clone(),
            Self::Actor(actor) => actor.row.actor.to_string(),
            Self::Job(job) => format!("{:016x}", job.row.job),
        }
    }
}

impl Answers {
    /// Ends what the order means, if that is one thing.
    pub(super) fn carry_out(&self, order: &KillOrder) -> Result<Killed, Refusal> {
        let mut meant = self.actors_meant(order)?;
        let (tasks, silent) = self.tasks_meant(order)?;
        // The task that makes an actor has the actor's id: the actor is meant.
        let is_actor = |id: &str| meant.iter().any(|actor| actor.id() == id);
        let tasks: Vec<Meant> = tasks.into_iter().filter(|task| !is_actor(&task.id())).collect();
        meant.extend(tasks);
        meant.extend(self.jobs_meant(order));
        let one = match <[Meant; 1]>::try_from(meant) {
            Ok([one]) => one,
            Err(several) => {
                let told: Vec<String> =
                    several.iter().map(|meant| format!("{} {}", meant.kind().word(), meant.id())).collect();
                return Err(unclear(&order.id, &told, &silent));
            }
        };
        let (kind, id) = (one.kind(), one.id());
        let (nodes, target) = target(one, order)?;
        let node = self.0.have_killed(&nodes, &target).ok_or_else(|| not_there(kind, &id))?;
        Ok(Killed { kind, id, node })
    }

    fn actors_meant(&self, order: &KillOrder) -> Result<Vec<Meant>, Refusal> {
        let query = ListQuery {
            what: ListKind::Actors,
            limit: LISTED_ROWS_MAX,
            node: None,
            state: None,
            name: None,
            filters: Vec::new(),
        };
        let Rows::Actors(rows) = self.list(&query)?.rows else { return Ok(Vec::new()) };
        let meant = rows.into_iter().filter(|row| order.id.is_start_of_words(row.row.actor.to_words()));
        Ok(meant.map(Meant::Actor).collect())
    }

    /// The tasks that are meant, and the nodes that did not answer.
    fn tasks_meant(&self, order: &KillOrder) -> Result<(Vec<Meant>, Vec<NodeId>), Refusal> {
        let mut accounts = self.0.own_accounts(&order.id)?;
        let told = self.0.ask(&NodeQuestion::Explain(order.id.clone()));
        accounts.extend(accounts_of(told.answers));
        let mut tasks = BTreeMap::<String, (Account, Vec<NodeId>)>::new();
        for account in accounts.into_iter().filter(|account| account.kind == AccountKind::Task) {
            let node = account.node;
            tasks.entry(account.id.clone()).or_insert((account, Vec::new())).1.push(node);
        }
        let tasks = tasks.into_values().map(|(account, nodes)| Meant::Task(account, nodes)).collect();
        Ok((tasks, told.silent))
    }

    fn jobs_meant(&self, order: &KillOrder) -> Vec<Meant> {
        let client = &self.0.client;
        let all = client.away().is_none().then(|| client.all_jobs(TABLES_PATIENCE)).flatten();
        let jobs = all.unwrap_or_else(|| client.own_jobs());
        let meant = jobs.into_iter().map(Meant::Job).filter(|job| order.id.is_start_of(&job.id()));
        meant.collect()
    }
}

/// Which nodes are to end what.
fn target(meant: Meant, order: &KillOrder) -> Result<(Vec<NodeId>, KillTarget), Refusal> {
    let id = meant.id();
    match meant {
        Meant::Task(_, nodes) => {
            let task = id.parse().map_err(|_| Refusal::new(format!("{id} is no task")))?;
            Ok((nodes, KillTarget::Task { task, force: order.force }))
        }
        Meant::Actor(OnNode { row, .. }) if row.state == ActorState::Dead => {
            Err(Refusal::new(format!("actor {id} is dead already: {}", row.reason)))
        }
        // Every node that knows the actor passes the order on to the one that decides about it.
        Meant::Actor(OnNode { node, row }) => {
            Ok((vec![node], KillTarget::Actor { actor: row.actor, restart: order.restart }))
        }
        Meant::Job(job) if job.row.state != JobState::Running => {
            Err(Refusal::new(format!("job {id} has ended already")))
        }
        Meant::Job(Job { node, row }) => {
            let (pid, program, force) = (row.pid, row.program, order.force);
            Ok((vec![node], KillTarget::Job { pid, program, force }))
        }
    }
}

fn not_there(kind: AccountKind, id: &str) -> Refusal {
    Refusal::new(format!("{} {id} has ended meanwhile, or its node does not answer", kind.word()))
        .with_hint("`aktis status` shows which nodes answer")
}

impl Parts {
    /// Has these nodes end something; gives the first that says that it does.
    fn have_killed(&self, nodes: &[NodeId], target: &KillTarget) -> Option<NodeId> {
        if nodes.contains(&self.node) && self.kill(target) {
            return Some(self.node);
        }
        let others: Vec<NodeId> = nodes.iter().copied().filter(|node| *node != self.node).collect();
        let answers = self.inquiries.ask(&self.links_of(&others), |_| NodeQuestion::Kill(target.clone()));
        answers.into_iter().find(|(_, answer)| *answer == NodeAnswer::Killed(true)).map(|(node, _)| node)
    }

    /// Ends something of this node; false if there is no such thing any more.
    pub(super) fn kill(&self, target: &KillTarget) -> bool {
        match *target {
            KillTarget::Task { task, force } => {
                let told = self.ask_processes(&ProcessQuestion::Cancel { task, force });
                told.iter().any(|answer| answer.cancelled)
            }
            KillTarget::Actor { actor, restart } => self.host.own().adopt_actor(actor).kill(restart).is_ok(),
            KillTarget::Job { pid, program, force } => self.kill_driver(pid, program, force),
        }
    }

    fn kill_driver(&self, pid: u32, program: ProgramId, force: bool) -> bool {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return false };
        // While the node has the driver as attached, the descriptor is of that very process.
        let is_attached = match self.state(StateKind::Drivers) {
            Ok((StateRows::Drivers(rows), _)) => {
                rows.iter().any(|row| (row.pid, row.program) == (pid, program))
            }
            _ => false,
        };
        let signal = if force { Signal::KILL } else { Signal::TERM };
        is_attached && pidfd_send_signal(process, signal).is_ok()
    }
}
