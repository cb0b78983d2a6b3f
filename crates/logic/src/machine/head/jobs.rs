//! The jobs of nodes that have left: rows in the tables of the cluster, which outlive the programs and their nodes.
//!
//! | table | key | value |
//! |---|---|---|
//! | jobs | the job's number | [`Job`] |

use aktis_protocol::NodeId;
use aktis_protocol::admin::{JobRow, JobState, OnNode};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::limits::JOBS_OF_LEFT_NODES_KEPT;
use aktis_protocol::tables::{Change, Key, Table};
use std::collections::{BTreeSet, VecDeque};

/// A row of the table.
pub type Job = OnNode<JobRow>;

/// The key of a job.
pub fn job_key(job: u64) -> Key {
    Key(job.to_be_bytes().to_vec())
}

/// Changes the rows when nodes have left: their running jobs are lost with them. Of the jobs of all nodes that are no
/// members, the oldest are deleted.
pub struct NodesLeft {
    left: BTreeSet<NodeId>,
    members: BTreeSet<NodeId>,
    /// The rows of nodes that are no members, the oldest first.
    kept: VecDeque<Key>,
}

impl NodesLeft {
    /// The nodes `left` have left, and `members` are there now.
    pub fn new(left: BTreeSet<NodeId>, members: BTreeSet<NodeId>) -> Self {
        Self { left, members, kept: VecDeque::new() }
    }

    /// Takes the next rows, in the order of their keys, at this time since 1970, and gives the changes to make.
    pub fn on_rows(&mut self, rows: Vec<(Key, Vec<u8>)>, unix_milliseconds: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for (key, value) in rows {
            let Ok(mut job) = decode::<Job>(&value) else { continue };
            if self.left.contains(&job.node) && job.row.state == JobState::Running {
                job.row.ended_unix_milliseconds = Some(unix_milliseconds);
                job.row.state = JobState::Lost;
                let (key, value) = (key.clone(), encode(&job));
                changes.push(Change::RowPut { table: Table::Jobs, key, value, overwrite: true });
            }
            if job.row.state != JobState::Running && !self.members.contains(&job.node) {
                self.kept.push_back(key);
            }
            // No node deletes them.
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
    use aktis_protocol::ProgramId;

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
    fn the_last_jobs_of_all_departed_nodes_are_kept() {
        let kept = JOBS_OF_LEFT_NODES_KEPT as u64;
        let mut left = NodesLeft::new(BTreeSet::from([node(2)]), BTreeSet::from([node(1)]));
        // One ended on each of many nodes that left long ago; a member has as many.
        let old = (1..=kept).map(|job| row(2 * job, 100 + job, JobState::Ended));
        let members = (1..=kept).map(|job| row(2 * job + 1, 1, JobState::Ended));
        assert_eq!(left.on_rows(old.collect(), 1), [], "as many as may be");
        assert_eq!(left.on_rows(members.collect(), 1), []);
        let (lost, running) = (row(3 * kept, 2, JobState::Running), row(3 * kept + 1, 1, JobState::Running));
        let changes = left.on_rows(vec![lost, running], 1);
        let [Change::RowPut { key, value, .. }, gone] = changes.as_slice() else { panic!("{changes:?}") };
        let job: Job = decode(value).expect("a job");
        assert!(*key == job_key(3 * kept) && job.row.state == JobState::Lost, "{job:?}");
        assert_eq!(*gone, Change::RowDeleted { table: Table::Jobs, key: job_key(2) }, "the oldest");
    }
}
