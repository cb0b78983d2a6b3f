//! The programs that use this node: rows in the tables of the cluster, which outlive the programs and the node.
//!
//! | table | key | value |
//! |---|---|---|
//! | jobs | the job's number | [`Job`] |

use super::Elsewhere;
use aktis_protocol::admin::{JobRow, JobState, OnNode};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::limits::{JOBS_KEPT, JOBS_OF_LEFT_NODES_KEPT};
use aktis_protocol::tables::{Change, Key, Table};
use aktis_protocol::{NodeId, ProcessSlot, ProgramId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A row of the table.
pub(crate) type Job = OnNode<JobRow>;

/// Bytes of a command that are kept.
const COMMAND_BYTES_MAX: usize = 200;

/// The lowest bits of a job's number tell its node, so that two nodes do not give the same.
const NODE_BITS: u32 = 12;

/// See the module.
#[derive(Default)]
pub(super) struct Jobs {
    running: BTreeMap<ProcessSlot, JobRow>,
    /// The numbers of those that have left, the oldest first.
    ended: VecDeque<u64>,
    last: u64,
}

/// The key of a job.
pub(crate) fn job_key(job: u64) -> Key {
    Key(job.to_be_bytes().to_vec())
}

pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How people would start the program of a process.
fn command_of(pid: u32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let mut text = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    text.truncate(text.floor_char_boundary(COMMAND_BYTES_MAX));
    text
}

impl Elsewhere {
    pub(super) fn begin_job(&self, process: ProcessSlot, pid: u32, program: ProgramId) {
        let (now, mut jobs) = (since_1970(), self.jobs.lock());
        let number = (now.as_micros() as u64) << NODE_BITS | self.me.to_words()[0] & ((1 << NODE_BITS) - 1);
        // Two that come in the same microsecond are numbered in turn.
        jobs.last = number.max(jobs.last + (1 << NODE_BITS));
        let row = JobRow {
            job: jobs.last,
            program,
            command: command_of(pid),
            pid,
            began_unix_milliseconds: now.as_millis() as u64,
            ended_unix_milliseconds: None,
            state: JobState::Running,
        };
        jobs.running.insert(process, row.clone());
        drop(jobs);
        self.put_job(row);
    }

    pub(super) fn end_job(&self, process: ProcessSlot) {
        let mut jobs = self.jobs.lock();
        let Some(row) = jobs.running.remove(&process) else { return };
        jobs.ended.push_back(row.job);
        let oldest = if jobs.ended.len() > JOBS_KEPT { jobs.ended.pop_front() } else { None };
        drop(jobs);
        let ended = Some(since_1970().as_millis() as u64);
        self.put_job(JobRow { ended_unix_milliseconds: ended, state: JobState::Ended, ..row });
        if let Some(job) = oldest {
            self.change_tables(Change::RowDeleted { table: Table::Jobs, key: job_key(job) });
        }
    }

    fn put_job(&self, row: JobRow) {
        let (key, value) = (job_key(row.job), encode(&OnNode { node: self.me, row }));
        self.change_tables(Change::RowPut { table: Table::Jobs, key, value, overwrite: true });
    }

    /// The programs that are attached to this node.
    pub(crate) fn own_jobs(&self) -> Vec<Job> {
        let node = self.me;
        self.jobs.lock().running.values().map(|row| OnNode { node, row: row.clone() }).collect()
    }

    /// The drivers of this node live, though the cluster had taken them for lost with it.
    pub(super) fn put_jobs_again(&self) {
        let running: Vec<_> = self.jobs.lock().running.values().cloned().collect();
        running.into_iter().for_each(|row| self.put_job(row));
        self.flush_tables();
    }

    /// The programs of the whole cluster, the oldest first, as the tables know them; nothing if they do not answer.
    pub(crate) fn all_jobs(&self, patience: Duration) -> Option<Vec<Job>> {
        let mut all: Vec<Job> = self.all_rows(Table::Jobs, patience)?;
        // What this node knows of its own programs may not be on disk yet.
        for own in self.own_jobs() {
            if !all.iter().any(|job| job.row.job == own.row.job) {
                all.push(own);
            }
        }
        Some(all)
    }
}

/// What becomes of the rows when nodes have left: their programs are lost with them, and of all that are nobody's any more
/// the oldest go.
pub(crate) struct NodesLeft {
    left: BTreeSet<NodeId>,
    members: BTreeSet<NodeId>,
    /// The rows of nodes that are no members, the oldest first.
    kept: VecDeque<Key>,
}

impl NodesLeft {
    /// `left` have left, and `members` are there now.
    pub(crate) fn new(left: BTreeSet<NodeId>, members: BTreeSet<NodeId>) -> Self {
        Self { left, members, kept: VecDeque::new() }
    }

    /// The next rows, in the order of their keys.
    pub(crate) fn on_rows(&mut self, rows: Vec<(Key, Vec<u8>)>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (key, value) in rows {
            let Ok(mut job) = decode::<Job>(&value) else { continue };
            if self.left.contains(&job.node) && job.row.state == JobState::Running {
                job.row.ended_unix_milliseconds = Some(since_1970().as_millis() as u64);
                job.row.state = JobState::Lost;
                let (key, value) = (key.clone(), encode(&job));
                changes.push(Change::RowPut { table: Table::Jobs, key, value, overwrite: true });
            }
            if job.row.state != JobState::Running && !self.members.contains(&job.node) {
                self.kept.push_back(key);
            }
            // Nobody else takes them away.
            if self.kept.len() > JOBS_OF_LEFT_NODES_KEPT {
                let gone = self.kept.pop_front();
                changes.extend(gone.map(|key| Change::RowDeleted { table: Table::Jobs, key }));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::from_words([number, 0])
    }

    fn row(job: u64, on: u64, state: JobState) -> (Key, Vec<u8>) {
        let row = JobRow {
            job,
            program: ProgramId::from_hash([1; 16]),
            command: String::new(),
            pid: 1,
            began_unix_milliseconds: 1,
            ended_unix_milliseconds: None,
            state,
        };
        (job_key(job), encode(&OnNode { node: node(on), row }))
    }

    #[test]
    fn of_all_nodes_that_are_gone_together_the_last_programs_are_kept() {
        let kept = JOBS_OF_LEFT_NODES_KEPT as u64;
        let mut left = NodesLeft::new(BTreeSet::from([node(2)]), BTreeSet::from([node(1)]));
        // One ended on each of many nodes that left long ago; a member has as many.
        let old = (1..=kept).map(|job| row(2 * job, 100 + job, JobState::Ended));
        let members = (1..=kept).map(|job| row(2 * job + 1, 1, JobState::Ended));
        assert_eq!(left.on_rows(old.collect()), [], "as many as may be");
        assert_eq!(left.on_rows(members.collect()), []);
        let (lost, running) = (row(3 * kept, 2, JobState::Running), row(3 * kept + 1, 1, JobState::Running));
        let changes = left.on_rows(vec![lost, running]);
        let [Change::RowPut { key, value, .. }, gone] = changes.as_slice() else { panic!("{changes:?}") };
        let job: Job = decode(value).expect("a job");
        assert!(*key == job_key(3 * kept) && job.row.state == JobState::Lost, "{job:?}");
        assert_eq!(*gone, Change::RowDeleted { table: Table::Jobs, key: job_key(2) }, "the oldest");
    }
}
