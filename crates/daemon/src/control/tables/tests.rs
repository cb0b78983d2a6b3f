//! What is on disk after a crash at which some shards were further than others.

use super::*;
use crate::control::shell::HeadShell;
use aktis_logic::machine::head::job_key;
use aktis_protocol::admin::{JobRow, JobState, OnNode};
use aktis_protocol::control::encode;
use aktis_protocol::member::Departure;
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::{Labels, ProgramId, Resources};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SHARDS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(20);
const OWN: NodeId = NodeId::from_words([7, 7]);

fn info(node: u64, epoch: u64) -> NodeInfo {
    let (labels, resources) = (Labels::default(), Resources::none());
    let (node, address) = (NodeId::from_words([node, 0]), ([127, 0, 0, 1], 1).into());
    NodeInfo { node, epoch: Epoch(epoch), address, labels, resources }
}

fn open(files: &Files) -> (Tables, Restored) {
    Tables::open(files, OWN, &Arc::default()).expect("opened")
}

/// Files with an empty store of several shards, however few processors there are.
fn files(directory: &Path) -> Files {
    let files = Files::claim(directory).expect("claimed");
    let clock = Arc::new(Events(Arc::default()));
    drop(ControlStore::open(&files.store(), SHARDS, clock).expect("a store"));
    files
}

fn ask(tables: &Tables, query: Query) -> Answer {
    let (sender, receiver) = channel();
    tables.query(query, move |answer| drop(sender.send(answer)));
    receiver.recv().expect("an answer").expect("the store goes on")
}

fn keep_node(tables: &Tables, info: NodeInfo, next_epoch: Epoch) {
    tables.write(&HeadWrite::NodeJoined { info, next_epoch, key: [1; 32], key_forgotten: None });
}

/// All that was changed is on disk.
fn settle(tables: &Tables) {
    ask(tables, Query::Counts);
}

/// The files of a store as they are now: what would be found if the process were killed.
fn copy(files: &Files, to: PathBuf) -> PathBuf {
    copy_folder(&files.store(), &to);
    to
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        match entry.file_type().expect("known").is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied")),
        }
    }
}

/// What the next life finds if one shard was killed early and the others late, for each of them.
fn mixed(files: &Files, early: &Path, late: &Path) -> Vec<Restored> {
    let mix = |shard: u16| {
        std::fs::remove_dir_all(files.store()).expect("removed");
        copy_folder(late, &files.store());
        let lagging = format!("shard-{shard:04}");
        std::fs::remove_dir_all(files.store().join(&lagging)).expect("removed");
        copy_folder(&early.join(&lagging), &files.store().join(&lagging));
        open(files).1
    };
    (0..SHARDS).map(mix).collect()
}

#[test]
fn a_shard_that_lags_at_a_crash_takes_no_epoch_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = files(&directory.path().join("head"));
    let (tables, found) = open(&files);
    let first = found.next_epoch.0;
    for number in 0..4 {
        keep_node(&tables, info(number, first + number), Epoch(first + number + 1));
    }
    settle(&tables);
    let early = copy(&files, directory.path().join("early"));
    for number in 4..8 {
        keep_node(&tables, info(number, first + number), Epoch(first + number + 1));
    }
    settle(&tables);
    let late = copy(&files, directory.path().join("late"));
    drop(tables);
    for found in mixed(&files, &early, &late) {
        assert!([4, 8].contains(&found.nodes.len()), "{:?}", found.nodes);
        assert!(found.nodes.iter().all(|info| info.epoch < found.next_epoch), "{:?}", found.next_epoch);
    }
}

#[test]
fn a_shard_that_lags_at_a_crash_does_not_halve_the_end_of_a_membership() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = files(&directory.path().join("head"));
    let (tables, _) = open(&files);
    (0..4).for_each(|number| keep_node(&tables, info(number, 10 + number), Epoch(11 + number)));
    settle(&tables);
    let early = copy(&files, directory.path().join("early"));
    let sender = |info: NodeInfo| Sender { node: info.node, epoch: info.epoch.0 };
    (0..4).for_each(|number| {
        tables.write(&HeadWrite::NodeLeft { sender: sender(info(number, 10 + number)), why: Departure::Left })
    });
    settle(&tables);
    let late = copy(&files, directory.path().join("late"));
    drop(tables);
    for found in mixed(&files, &early, &late) {
        let members: Vec<Sender> = found.nodes.into_iter().map(sender).collect();
        assert_eq!(members.len() + found.departed.len(), 4, "{members:?} {:?}", found.departed);
        assert!(
            !members.iter().any(|member| found.departed.contains(member)),
            "{members:?} {:?}",
            found.departed
        );
    }
}

#[test]
fn no_two_lives_have_the_same_epoch() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = files(&directory.path().join("head"));
    let mut last = Epoch(0);
    for life in 0..10 {
        let (tables, found) = open(&files);
        assert!(found.next_epoch > last, "{:?} {last:?}", found.next_epoch);
        last = found.next_epoch;
        // It is killed at once.
        let killed = copy(&files, directory.path().join(life.to_string()));
        drop(tables);
        std::fs::remove_dir_all(files.store()).expect("removed");
        copy_folder(&killed, &files.store());
    }
}

fn job(number: u64, node: NodeId, state: JobState) -> Change {
    let row = JobRow {
        job: number,
        program: ProgramId::from_hash([1; 16]),
        command: String::new(),
        pid: 1,
        began_unix_milliseconds: 1,
        ended_unix_milliseconds: None,
        state,
    };
    let (key, value) = (job_key(number), encode(&OnNode { node, row }));
    Change::RowPut { table: Table::Jobs, key, value, overwrite: true }
}

#[test]
fn the_programs_of_a_node_end_though_the_process_was_killed_when_it_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = files(&directory.path().join("head"));
    let (tables, found) = open(&files);
    let first = found.next_epoch.0;
    let (left, member) = (info(1, first), info(2, first + 1));
    keep_node(&tables, left.clone(), Epoch(first + 1));
    keep_node(&tables, member.clone(), Epoch(first + 2));
    let last = u64::from(limits::ANSWER_ROWS_MAX) + 1;
    let mut changes: Vec<_> = (1..last).map(|number| job(number, member.node, JobState::Ended)).collect();
    changes.push(job(last, left.node, JobState::Running));
    let (table, key) = (Table::Programs, programs_of(left.node));
    changes.push(Change::RowPut { table, key: key.clone(), value: Vec::new(), overwrite: true });
    let sender = Sender { node: left.node, epoch: first };
    tables.apply(Batch { sender, sequence: 1, changes }, |answer| drop(answer.expect("made")));
    tables.write(&HeadWrite::NodeLeft { sender, why: Departure::Left });
    settle(&tables);
    drop(tables);

    let authority = Arc::new(files.authority().expect("made"));
    let shell = HeadShell::load(&files, &authority, OWN, &Arc::default(), None).expect("loaded");
    let tables = shell.tables();
    let row_of = |table, key| match ask(tables, Query::Row { table, key }) {
        Answer::Row(row) => row,
        other => panic!("{other:?}"),
    };
    let state_of = |number| {
        let job: OnNode<JobRow> =
            decode(&row_of(Table::Jobs, job_key(number)).expect("it is kept")).expect("a job");
        job.row.state
    };
    let deadline = Instant::now() + PATIENCE;
    while state_of(last) != JobState::Lost || row_of(Table::Programs, key.clone()).is_some() {
        assert!(Instant::now() < deadline, "{:?}", state_of(last));
    }
    assert_eq!(state_of(1), JobState::Ended, "its node is a member");
}
