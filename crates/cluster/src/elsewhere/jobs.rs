//! The programs that use this node: rows in the tables of the cluster, which outlive the programs and the node.
//!
//! | table | key | value |
//! |---|---|---|
//! | jobs | the job's number | [`Job`] |

use super::Elsewhere;
use aktis_logic::machine::head::job_key;
use aktis_protocol::admin::{JobRow, JobState, OnNode};
use aktis_protocol::control::encode;
use aktis_protocol::limits::JOBS_KEPT;
use aktis_protocol::tables::{Change, Table};
use aktis_protocol::{ProcessSlot, ProgramId};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use aktis_logic::machine::head::Job;

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
