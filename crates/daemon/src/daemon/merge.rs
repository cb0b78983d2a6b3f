//! Rows of many nodes as rows of the cluster: what several nodes know is told once, by the one that knows best.

use aktis_protocol::admin::{Account, ListKind, ListQuery, Listing, OnNode, Rows, TaskRow, TaskState};
use aktis_protocol::state::{ActorRow, ActorState, DemandRow, GroupRow};
use aktis_protocol::{ActorId, GroupId, GroupState, NodeId, Resources, TaskId};
use std::collections::BTreeMap;

/// One listing of those of all nodes. Each has been selected by the same query.
pub(super) fn listings(query: &ListQuery, parts: Vec<Listing>, silent: Vec<NodeId>) -> Listing {
    let mut left_out = parts.iter().map(|part| part.left_out).sum();
    let (mut tasks, mut actors, mut objects, mut nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut workers, mut jobs, mut programs, mut groups) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        match part.rows {
            Rows::Tasks(rows) => tasks.extend(rows),
            Rows::Actors(rows) => actors.extend(rows),
            Rows::Objects(rows) => objects.extend(rows),
            Rows::Nodes(rows) => nodes.extend(rows),
            Rows::Workers(rows) => workers.extend(rows),
            Rows::Jobs(rows) => jobs.extend(rows),
            Rows::Programs(rows) => programs.extend(rows),
            Rows::Groups(rows) => groups.extend(rows),
        }
    }
    let (rows, more) = match query.what {
        ListKind::Tasks => wrap(query.select(best_tasks(query, tasks)), Rows::Tasks),
        ListKind::Actors => wrap(query.select(best_actors(actors)), Rows::Actors),
        ListKind::Objects => wrap(query.select(objects), Rows::Objects),
        ListKind::Nodes => wrap(query.select(nodes), Rows::Nodes),
        ListKind::Workers => wrap(query.select(workers), Rows::Workers),
        ListKind::Jobs => wrap(query.select(jobs), Rows::Jobs),
        ListKind::Programs => wrap(query.select(programs), Rows::Programs),
        ListKind::Groups => wrap(query.select(best_groups(groups)), Rows::Groups),
    };
    left_out += more;
    Listing { rows, left_out, silent }
}

fn wrap<Row>((rows, left_out): (Vec<Row>, u64), kind: fn(Vec<Row>) -> Rows) -> (Rows, u64) {
    (kind(rows), left_out)
}

/// A task that was sent to another node is known there too, and there it is known how far it is.
fn best_tasks(query: &ListQuery, rows: Vec<OnNode<TaskRow>>) -> Vec<OnNode<TaskRow>> {
    let rank = |row: &TaskRow| match (row.pid.is_some(), row.is_foreign) {
        (true, _) => 3,
        // Where it was submitted, its end is known.
        (false, false) if matches!(row.state, TaskState::Finished | TaskState::Failed) => 3,
        (false, true) => 2,
        (false, false) => 1,
    };
    let mut best = BTreeMap::<TaskId, OnNode<TaskRow>>::new();
    for row in rows {
        let Some(known) = best.get_mut(&row.row.task) else {
            best.insert(row.row.task, row);
            continue;
        };
        let name = [&known.row.name, &row.row.name].into_iter().find(|name| !name.is_empty()).cloned();
        if rank(&known.row) < rank(&row.row) {
            *known = row;
        }
        // Only the node where it was submitted knows that.
        known.row.name = name.unwrap_or_default();
    }
    // How far it is can be said by the node that has it alone.
    best.into_values().filter(|row| query.state.is_none() || !row.row.is_away()).collect()
}

/// An actor is known to all nodes that hold handles of it; the one where it lives knows best.
fn best_actors(rows: Vec<OnNode<ActorRow>>) -> Vec<OnNode<ActorRow>> {
    let rank = |row: &ActorRow| match row.state {
        ActorState::Alive if row.pid != 0 => 4,
        ActorState::Pending | ActorState::Restarting => 3,
        ActorState::Alive if !row.type_name.is_empty() => 2,
        ActorState::Dead | ActorState::Alive => 1,
    };
    let mut best = BTreeMap::<ActorId, OnNode<ActorRow>>::new();
    for mut row in rows {
        let Some(known) = best.get_mut(&row.row.actor) else {
            best.insert(row.row.actor, row);
            continue;
        };
        if rank(&known.row) < rank(&row.row) {
            std::mem::swap(known, &mut row);
        }
        // What it was created as is known to the node that restarts it.
        let (known, other) = (&mut known.row, row.row);
        known.name = known.name.take().or(other.name);
        known.restarts = known.restarts.max(other.restarts);
        known.detached |= other.detached;
    }
    best.into_values().collect()
}

/// A group is known where it was asked for, and where it has bundles: the node that knows of more tells of it.
fn best_groups(rows: Vec<OnNode<GroupRow>>) -> Vec<OnNode<GroupRow>> {
    let rank = |row: &GroupRow| match row.state {
        GroupState::Removed(_) => 3,
        GroupState::Ready => 2,
        GroupState::Pending(_) => 1,
    };
    let mut best = BTreeMap::<GroupId, OnNode<GroupRow>>::new();
    for row in rows {
        let known = best.entry(row.row.group).or_insert_with(|| row.clone());
        if rank(&known.row) < rank(&row.row) {
            *known = row;
        }
    }
    best.into_values().collect()
}

/// What all nodes wait for together. Infeasible is only what none of them, with these totals, could give.
pub(super) fn demands(rows: Vec<DemandRow>, totals: &[Resources]) -> Vec<DemandRow> {
    let mut merged = BTreeMap::<Resources, DemandRow>::new();
    for mut row in rows {
        let possible =
            totals.iter().any(|total| row.resources.iter().all(|(name, amount)| total.get(name) >= amount));
        if row.infeasible && possible {
            row.reason = "its node cannot give this; it waits for a place on another".to_owned();
        }
        row.infeasible &= !possible;
        match merged.get_mut(&row.resources) {
            None => drop(merged.insert(row.resources.clone(), row)),
            Some(known) => known.waiting += row.waiting,
        }
    }
    merged.into_values().collect()
}

/// Accounts of one thing as a text; or which other things they are about besides.
pub(super) fn accounts(mut accounts: Vec<Account>) -> Result<String, Vec<String>> {
    accounts.sort_by(|left, right| (&left.id, left.kind).cmp(&(&right.id, right.kind)));
    let mut ids: Vec<String> = accounts.iter().map(|account| task_digits(&account.id)).collect();
    ids.dedup();
    if ids.len() != 1 {
        return Err(accounts
            .iter()
            .map(|account| format!("{} {}", account.kind.word(), account.id))
            .collect());
    }
    let mut text = String::new();
    for of_kind in accounts.chunk_by(|left, right| left.kind == right.kind && left.id == right.id) {
        let kind = of_kind[0].kind.word();
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{kind} {}", of_kind[0].id);
        for account in of_kind {
            // Marked, so that nothing in a name or an error reads as another account.
            text += &format!(
                "\n  node {}: {}",
                &account.node.to_string()[..12],
                account.text.replace('\n', "\n    | ")
            );
        }
    }
    Ok(text)
}

/// A task and the objects that it makes differ in the last digits of their ids: they are one thing to people.
fn task_digits(id: &str) -> String {
    let index_digits = 8;
    id[..id.len().saturating_sub(index_digits)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::Amount;
    use aktis_protocol::admin::{AccountKind, TaskKind};

    const HERE: NodeId = NodeId::from_words([1, 0]);
    const THERE: NodeId = NodeId::from_words([2, 0]);

    fn query() -> ListQuery {
        ListQuery {
            what: ListKind::Tasks,
            limit: 10,
            node: None,
            state: None,
            name: None,
            filters: Vec::new(),
        }
    }

    fn task(node: NodeId, state: TaskState, pid: Option<u32>, is_foreign: bool) -> OnNode<TaskRow> {
        let row = TaskRow {
            task: TaskId::from_words([7, 0]),
            name: if is_foreign { String::new() } else { "f".into() },
            kind: TaskKind::Function,
            state,
            attempt: 0,
            pid,
            actor: None,
            error: None,
            is_foreign,
        };
        OnNode { node, row }
    }

    #[test]
    fn a_task_is_told_by_the_node_that_has_it() {
        let here = task(HERE, TaskState::Running, None, false);
        for there in
            [task(THERE, TaskState::Queued, None, true), task(THERE, TaskState::Running, Some(9), true)]
        {
            let best = best_tasks(&query(), vec![there.clone(), here.clone()]);
            let [best] = &best[..] else { panic!("one task: {best:?}") };
            assert_eq!((best.node, best.row.state, best.row.pid), (THERE, there.row.state, there.row.pid));
            assert_eq!(best.row.name, "f");
        }
        let ended = task(HERE, TaskState::Finished, None, false);
        let late = task(THERE, TaskState::Queued, None, true);
        assert_eq!(best_tasks(&query(), vec![late, ended.clone()]), [ended]);
        let running = ListQuery { state: Some("running".into()), ..query() };
        assert_eq!(best_tasks(&running, vec![here]), [], "it may be queued there");
    }

    #[test]
    fn demand_that_some_node_can_serve_is_not_infeasible() {
        let wanted = |cpus| Resources::none().with("CPU", Amount::units(cpus));
        let row =
            |cpus| DemandRow { resources: wanted(cpus), waiting: 2, infeasible: true, reason: "no".into() };
        let merged = demands(vec![row(1), row(9), row(1)], &[Resources::none(), wanted(4)]);
        let found: Vec<_> = merged.iter().map(|row| (row.waiting, row.infeasible)).collect();
        assert_eq!(found, [(4, false), (2, true)]);
        assert!(merged[0].reason.contains("another"), "{}", merged[0].reason);
    }

    #[test]
    fn accounts_of_several_things_are_not_one() {
        let account = |kind, words, text: &str| Account {
            kind,
            id: TaskId::from_words(words).to_string(),
            node: HERE,
            text: text.into(),
        };
        let task = account(AccountKind::Task, [7, 0], "f is running");
        let object = account(AccountKind::Object, [7, 1], "it is not there");
        let text = accounts(vec![object.clone(), task.clone(), task]).expect("one thing");
        assert_eq!(text.lines().count(), 5, "{text}");
        let forged = account(AccountKind::Task, [7, 0], "f has failed: boom\ntask 0000 is fine");
        let text = accounts(vec![forged]).expect("one thing");
        assert!(text.ends_with("boom\n    | task 0000 is fine"), "{text}");
        let others = accounts(vec![object, account(AccountKind::Actor, [8, 0], "")]).expect_err("two things");
        assert_eq!(others.len(), 2);
        assert_eq!(accounts(Vec::new()), Err(Vec::new()));
    }
}
