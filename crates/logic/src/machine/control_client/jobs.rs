//! The programs that use this node: rows in the tables of the cluster, which outlive the programs and the node.

use super::ControlClient;
use crate::machine::head::{Job, job_key};
use aktis_protocol::admin::{JobRow, JobState, OnNode};
use aktis_protocol::control::encode;
use aktis_protocol::limits::JOBS_KEPT;
use aktis_protocol::tables::{Change, Event, EventKind, Table};
use aktis_protocol::{ProcessSlot, ProgramId};
use std::collections::{BTreeMap, VecDeque};

/// The lowest bits of a job's number tell its node, so that two nodes do not give the same.
const NODE_BITS: u32 = 12;
/// As much of a driver's command as the audit log has.
const COMMAND_BYTES_NOTED: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    running: BTreeMap<ProcessSlot, JobRow>,
    /// The numbers of those that have left, the oldest first.
    ended: VecDeque<u64>,
    last: u64,
}

impl ControlClient {
    pub(super) fn on_job_began(
        &mut self,
        process: ProcessSlot,
        (pid, program, command): (u32, ProgramId, String),
        unix_microseconds: u64,
    ) {
        let node_bits = self.me().to_words()[0] & ((1 << NODE_BITS) - 1);
        let number = unix_microseconds << NODE_BITS | node_bits;
        let jobs = &mut self.jobs;
        // Two that come in the same microsecond are numbered in turn.
        jobs.last = number.max(jobs.last + (1 << NODE_BITS));
        let row = JobRow {
            job: jobs.last,
            program,
            command,
            pid,
            began_unix_milliseconds: unix_microseconds / 1000,
            ended_unix_milliseconds: None,
            state: JobState::Running,
        };
        jobs.running.insert(process, row.clone());
        self.note_job(EventKind::Attached, unix_microseconds, &row);
        self.put_job(row);
    }

    pub(super) fn on_job_ended(&mut self, process: ProcessSlot, unix_milliseconds: u64) {
        let jobs = &mut self.jobs;
        let Some(row) = jobs.running.remove(&process) else { return };
        jobs.ended.push_back(row.job);
        let oldest = if jobs.ended.len() > JOBS_KEPT { jobs.ended.pop_front() } else { None };
        let ended_unix_milliseconds = Some(unix_milliseconds);
        self.note_job(EventKind::Detached, unix_milliseconds * 1000, &row);
        self.put_job(JobRow { ended_unix_milliseconds, state: JobState::Ended, ..row });
        if let Some(job) = oldest {
            self.records.add(Change::RowDeleted { table: Table::Jobs, key: job_key(job) });
        }
    }

    /// For the audit log, in which a driver is its process and the beginning of its command.
    fn note_job(&mut self, kind: EventKind, at_microseconds: u64, row: &JobRow) {
        let command = &row.command[..row.command.floor_char_boundary(COMMAND_BYTES_NOTED)];
        let text = format!("job {:016x}, process {}: {command}", row.job, row.pid);
        let subject = self.me().into();
        self.records.add(Change::EventNoted(Event { at_microseconds, subject, kind, text }));
    }

    fn put_job(&mut self, row: JobRow) {
        let (key, value) = (job_key(row.job), encode(&OnNode { node: self.me(), row }));
        self.records.add(Change::RowPut { table: Table::Jobs, key, value, overwrite: true });
    }

    /// The programs that are attached to this node.
    pub fn own_jobs(&self) -> Vec<Job> {
        let node = self.me();
        self.jobs.running.values().map(|row| OnNode { node, row: row.clone() }).collect()
    }

    /// The drivers of this node live, though the cluster had taken them for lost with it.
    pub(super) fn put_jobs_again(&mut self) {
        let running: Vec<_> = self.jobs.running.values().cloned().collect();
        running.into_iter().for_each(|row| self.put_job(row));
    }
}
