//! How the tasks of this process stand, for people: rows, and sentences about one of them.
//!
//! Invariant: nothing here asks the node, but for [`Inner::explain_pending`] and [`Runtime::explain_lane`]. The node's own questions are answered on the
//! thread that would have to bring its answers.

use crate::entry::{Entry, Later, Outcome};
use crate::handle::Handle;
use crate::payload::{Payload, Returns, Verb};
use crate::runtime::{Inner, Runtime};
use crate::submit::Shell;
use aktis_logic::machine::submitter::{Place, Record, Route, Stage};
use aktis_protocol::admin::{IdPrefix, TaskKind, TaskRow, TaskState};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::questions::{ProcessAnswer, ProcessQuestion, TaskAccount};
use aktis_protocol::text::one_line;
use aktis_protocol::{Failure, LaneId, ObjectId, ProcessSlot, TaskId, TaskKey, limits, state};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Tasks that are described if several have ids that begin alike: people can say more of the one they mean.
const ACCOUNTS_MAX: usize = 16;
/// Bytes of an account; the rest is cut.
const ACCOUNT_BYTES_MAX: usize = 4096;

/// Failures that are remembered, though their tasks are not on record any more.
const FAILURES_KEPT: usize = 256;

/// The last failures of tasks of this process, for people who ask afterwards.
#[derive(Default)]
pub(crate) struct Failures(Mutex<VecDeque<(ObjectId, Arc<Failure>)>>);

impl Failures {
    pub(crate) fn note(&self, object: ObjectId, failure: &Arc<Failure>) {
        let mut kept = self.0.lock();
        if kept.len() == FAILURES_KEPT {
            kept.pop_front();
        }
        kept.push_back((object, failure.clone()));
    }

    /// The last one of an object.
    pub(crate) fn last_of(&self, object: ObjectId) -> Option<Arc<Failure>> {
        let kept = self.0.lock();
        kept.iter().rev().find(|(failed, _)| *failed == object).map(|(_, failure)| failure.clone())
    }

    /// Those of objects that are meant, by the tasks that should have made them.
    fn of(&self, id: &IdPrefix) -> BTreeMap<TaskId, String> {
        let kept = self.0.lock();
        let meant = kept.iter().filter(|(object, _)| id.is_start_of_words(object.to_words()));
        meant.map(|(object, failure)| (object.task(), failure.to_string())).collect()
    }
}

/// Where a pending task stands.
enum Standing {
    Waiting { inputs: Vec<ObjectId> },
    InLane { lane: LaneId, ahead: u64, claimed: bool },
    Taken,
    WithActor(Place),
}

/// Who knows more about a pending task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    /// Nobody.
    Nobody,
    /// The node, about the lane that it waits in.
    Node(LaneId),
    /// Another node, which has it.
    OtherNode(TaskId),
}

impl Runtime {
    /// The tasks and calls of this process that are on record.
    pub fn tasks(&self) -> Vec<TaskRow> {
        self.0.task_rows(usize::MAX, |_| true).0
    }

    /// What the node knows about what waits in a lane.
    pub fn explain_lane(&self, lane: LaneId) -> String {
        match self.0.request(|request| ToNode::ShapeQuestion { request, lane }) {
            Ok(FromNode::ShapeExplained { text, .. }) => text,
            Ok(_) | Err(_) => String::new(),
        }
    }

    /// What this process knows; it does not ask the node.
    pub fn answer(&self, question: &ProcessQuestion) -> ProcessAnswer {
        self.0.answer(question)
    }
}

impl Inner {
    pub(crate) fn answer(self: &Arc<Self>, question: &ProcessQuestion) -> ProcessAnswer {
        match question {
            ProcessQuestion::Tasks { limit, state, name } => {
                let means = |row: &TaskRow| {
                    state.as_ref().is_none_or(|state| state == row.state.word() || row.is_away())
                        // What another node has submitted has no name here.
                        && name.as_ref().is_none_or(|name| *name == row.name || row.is_foreign)
                };
                let (rows, more) = self.task_rows((*limit).min(limits::LISTED_ROWS_MAX) as usize, means);
                let (tasks, left_out) = state::page(rows.into_iter(), |row| row);
                ProcessAnswer { tasks, left_out: left_out + more, ..ProcessAnswer::default() }
            }
            ProcessQuestion::Cancel { task, force } => {
                // What stands for another node has submitted the tasks of that node, which cancels them itself.
                let cancelled = self.bridge.get().is_none() && self.cancel_task(*task, *force, true);
                ProcessAnswer { cancelled, ..ProcessAnswer::default() }
            }
            ProcessQuestion::Explain(id) => {
                ProcessAnswer { accounts: self.accounts(id), ..ProcessAnswer::default() }
            }
        }
    }

    /// As many rows as are wanted of the tasks and calls on record that are meant, and how many there are besides.
    fn task_rows(self: &Arc<Self>, limit: usize, means: impl Fn(&TaskRow) -> bool) -> (Vec<TaskRow>, u64) {
        let (mut rows, mut left_out, mut later) = (Vec::new(), 0, Later::default());
        let running = self.all_running();
        for shard in self.submitter.all() {
            let shell = shard.lock();
            for (key, record) in shell.machine.records() {
                let Some(mut row) = self.task_row(&shell, record, &mut later) else { continue };
                if row.state == TaskState::Queued
                    && let Some(process) = running.get(&key)
                {
                    row.state = TaskState::Running;
                    row.pid = (!self.is_elsewhere(*process)).then(|| self.control.pid(*process));
                }
                match (means(&row), rows.len() < limit) {
                    (true, true) => rows.push(row),
                    (true, false) => left_out += 1,
                    (false, _) => {}
                }
            }
        }
        later.run(self);
        (rows, left_out)
    }

    fn task_row(&self, shell: &Shell, record: &Record<Payload>, later: &mut Later) -> Option<TaskRow> {
        let payload = record.payload()?;
        let (actor, kind) = match (record.route(), payload.verb) {
            (Route::Lane(_), _) => (None, TaskKind::Function),
            (Route::Actor(index), Verb::Create) => (Some(index), TaskKind::Constructor),
            (Route::Actor(index), _) => (Some(index), TaskKind::Method),
        };
        let error = failure_of(payload, later);
        let home = actor.filter(|_| matches!(record.stage(), Stage::Sent { .. }));
        let home = home.and_then(|index| match shell.machine.actor_place(index) {
            Place::Alive(process) => Some(*process),
            Place::Pending | Place::Dead(_) => None,
        });
        let runs_here = (record.stage() == Stage::Taken).then_some(self.me);
        let state = match record.stage() {
            Stage::Waiting => TaskState::Waiting,
            // What it does with it, its host does not write down for others: calls are many.
            Stage::Sent { .. } if home.is_some() => TaskState::Sent,
            Stage::Queued | Stage::Resting | Stage::Sent { .. } => TaskState::Queued,
            Stage::Taken => TaskState::Running,
            Stage::Finished if error.is_some() => TaskState::Failed,
            Stage::Finished => TaskState::Finished,
        };
        Some(TaskRow {
            task: record.task(),
            name: payload.name().to_owned(),
            kind,
            state,
            attempt: record.attempt(),
            pid: home
                .or(runs_here)
                .filter(|host| !self.is_elsewhere(*host))
                .map(|host| self.control.pid(host)),
            actor: actor.map(|index| shell.actors[index.0 as usize].id),
            error,
            is_foreign: matches!(payload.returns, Returns::Foreign(..)),
        })
    }

    /// What is known here about a task, or about the one that makes an object.
    fn accounts(self: &Arc<Self>, id: &IdPrefix) -> Vec<TaskAccount> {
        let (mut later, mut ended, mut pending) = (Later::default(), Vec::new(), Vec::new());
        for shard in self.submitter.all() {
            let shell = shard.lock();
            for (key, record) in shell.machine.records().filter(|(_, record)| is_meant(record, id)) {
                if record.stage() != Stage::Finished {
                    pending.push((key, record.task()));
                    continue;
                }
                let failure = record.payload().and_then(|payload| failure_of(payload, &mut later));
                let name = one_line(record.payload().map_or("it", Payload::name));
                ended.push((record.task(), name, failure));
            }
        }
        later.run(self);
        // After the records: a task that fails in between has its failure here.
        let mut failures = self.failures.of(id);
        for (task, _, failure) in &mut ended {
            *failure = failures.remove(task).or(failure.take());
        }
        ended.extend(failures.into_iter().map(|(task, failure)| (task, "it".to_owned(), Some(failure))));
        let ended = ended.into_iter().map(|(task, name, failure)| match failure {
            Some(failure) => (task, format!("{name} has failed: {failure}"), None),
            None => (task, format!("{name} has finished"), None),
        });
        let pending = pending.into_iter().filter_map(|(key, task)| {
            let (text, knows) = self.standing_of(key)?;
            Some((task, text, if let Knows::Node(lane) = knows { Some(lane) } else { None }))
        });
        let account = |(task, mut text, lane): (TaskId, String, Option<LaneId>)| {
            cut(&mut text, ACCOUNT_BYTES_MAX);
            let pid = self.control.pid(self.me);
            TaskAccount { task, text: format!("{text} (submitted by process {pid})"), lane }
        };
        ended.chain(pending).take(ACCOUNTS_MAX).map(account).collect()
    }

    /// Why an object has no value yet, as far as this process and the node know.
    pub(crate) fn explain_pending(self: &Arc<Self>, entry: &Entry) -> String {
        let Some(key) = entry.key() else {
            return "it is made by another process, which has not said that it is done".to_owned();
        };
        let Some((text, knows)) = self.standing_of(key) else {
            return match entry.outcome() {
                Some(_) => "it has just come".to_owned(),
                None => "its task is not on record any more".to_owned(),
            };
        };
        let more = match knows {
            Knows::Nobody => return text,
            Knows::Node(lane) => self.request(|request| ToNode::ShapeQuestion { request, lane }),
            Knows::OtherNode(task) => {
                self.request(|request| ToNode::ExplainWanted { request, id: IdPrefix::of(task.to_words()) })
            }
        };
        match more {
            Ok(FromNode::ShapeExplained { text: reason, .. }) => format!("{text}: {reason}"),
            _ => text,
        }
    }

    /// How a pending task stands, and who knows more; nothing if it is not on record.
    fn standing_of(self: &Arc<Self>, key: TaskKey) -> Option<(String, Knows)> {
        let found = {
            let shell = self.submitter.of(key).lock();
            shell.machine.record(key).map(|record| {
                let name = record.payload().map_or(String::new(), |payload| one_line(payload.name()));
                (name, record.task(), self.standing(&shell, key, record))
            })
        };
        self.run_deferred();
        let (name, task, standing) = found?;
        // What another node has submitted has its name there.
        let name = if name.is_empty() { "it" } else { &name };
        let here = |text: String| (text, Knows::Nobody);
        let (text, knows) = match standing {
            Standing::Waiting { inputs } => {
                let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
                here(format!("waits for {} of its inputs: {}", inputs.len(), inputs.join(", ")))
            }
            Standing::InLane { lane, ahead, claimed } => match self.who_runs(key) {
                Some(process) if self.is_elsewhere(process) => {
                    ("is on another node".to_owned(), Knows::OtherNode(task))
                }
                Some(process) => here(format!("is running in worker process {}", self.control.pid(process))),
                None if claimed && self.control.lane_queued(lane) == 0 => {
                    here("has just been taken by a worker".to_owned())
                }
                None => (format!("is queued behind {ahead} others"), Knows::Node(lane)),
            },
            Standing::Taken => here("is running in this process, on a thread that waits for it".to_owned()),
            Standing::WithActor(Place::Pending) => {
                here("waits for its actor, which is not running yet".to_owned())
            }
            Standing::WithActor(Place::Alive(process)) if self.is_elsewhere(process) => {
                ("is with its actor, on another node".to_owned(), Knows::OtherNode(task))
            }
            Standing::WithActor(Place::Alive(process)) => {
                here(format!("is with its actor, in process {}", self.control.pid(process)))
            }
            Standing::WithActor(Place::Dead(failure)) => here(format!("cannot run: {failure}")),
        };
        Some((format!("{name} {text}"), knows))
    }

    fn standing(&self, shell: &Shell, key: TaskKey, record: &Record<Payload>) -> Standing {
        match (record.route(), record.stage()) {
            (_, Stage::Waiting) => {
                let handles = record.payload().map_or(&[][..], |payload| payload.arguments.handles());
                let missing = handles.iter().filter(|handle| !handle.has_outcome());
                Standing::Waiting { inputs: missing.map(Handle::id).collect() }
            }
            (Route::Lane(lane), Stage::Sent { position }) => {
                let (lane, ahead) = shell.lane_position(lane, position);
                Standing::InLane { lane, ahead, claimed: ahead == 0 }
            }
            (_, Stage::Taken) => Standing::Taken,
            (Route::Lane(lane), _) => {
                let ahead = shell.machine.lane_position(lane, key).unwrap_or(0) as u64;
                let (id, queue) = (shell.lane_id(lane), self.control.lane_queued(shell.lane_id(lane)));
                Standing::InLane { lane: id, ahead: ahead + u64::from(queue), claimed: false }
            }
            (Route::Actor(actor), _) => Standing::WithActor(shell.machine.actor_place(actor).clone()),
        }
    }

    /// Whether a process stands for another node, and is not this one.
    pub(crate) fn is_elsewhere(&self, process: ProcessSlot) -> bool {
        process != self.me && self.control.is_elsewhere(process)
    }
}

/// Whether the id is that of the task, or of an object that it makes.
fn is_meant(record: &Record<Payload>, id: &IdPrefix) -> bool {
    (0..record.returns().max(1)).any(|index| id.is_start_of_words(record.task().returns(index).to_words()))
}

/// Why a task failed, if it did.
fn failure_of(payload: &Payload, later: &mut Later) -> Option<String> {
    let Returns::One(entry) = &payload.returns else { return None };
    let entry = entry.upgrade()?;
    let failure = entry.outcome().and_then(Outcome::failure).map(|failure| failure.to_string());
    later.entries.push(entry);
    failure
}

/// Cuts a text that is too long, between two characters.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str(" ..");
    }
}
