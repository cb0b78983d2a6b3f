//! A process that writes to the control store is killed at any instant: what it was told is on disk is there, and
//! no batch is there in part.
//!
//! The test starts its own program again: that process opens the store, writes batches without a pause, and prints the
//! number of each that was answered. The test kills it, opens the store itself, and judges.

use aktis_io::durable::{ControlStore, DurableError, StoreConfig, StoreError, StoreEvents};
use aktis_protocol::tables::{Answer, Batch, Change, Key, Query, Sender, Table};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PART: &str = "AKTIS_TEST_PART";
const TEST: &str = "what_was_answered_survives_and_nothing_is_there_in_part";
const ROUNDS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(6);
/// Rounds that it takes at least, however slow the machine is.
const ROUNDS_MIN: u64 = 10;

const ROWS: u64 = 5;
/// So many batches stay; what is older is deleted by a later one.
const KEPT: u64 = 40;
/// Batches that wait for their answers at the same time.
const IN_FLIGHT: u64 = 16;

struct Quiet;

impl StoreEvents for Quiet {
    fn free(&self, _: ObjectId, _: &[NodeId]) {}

    fn on_stopped(&self, error: &DurableError) {
        panic!("{error}");
    }

    fn on_full(&self, error: Option<&DurableError>) {
        panic!("{error:?}");
    }

    fn on_snapshot_failed(&self, error: &DurableError) {
        panic!("{error}");
    }
}

/// Small files, so that kills meet their ends and snapshots as well.
fn open(directory: &Path, shards: u16) -> ControlStore {
    let config = StoreConfig { shards, segment_bytes_max: 5_000, snapshot_log_bytes_min: 20_000 };
    ControlStore::open_with(directory, config, Arc::new(Quiet)).unwrap_or_else(|error| panic!("{error}"))
}

fn key(number: u64, row: u64) -> Key {
    format!("{number:010}/{row}").as_str().into()
}

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

/// Batch number `number`: some rows and an object, and the end of those of an earlier one.
fn changes(number: u64) -> Vec<Change> {
    let put = |row| {
        let value = format!("{number} {}", "x".repeat((number * 37 % 200) as usize)).into_bytes();
        Change::RowPut { table: Table::Jobs, key: key(number, row), value, overwrite: false }
    };
    let mut changes: Vec<Change> = (0..ROWS).map(put).collect();
    changes.push(Change::Held { object: object(number) });
    if let Some(old) = number.checked_sub(KEPT) {
        changes.extend((0..ROWS).map(|row| Change::RowDeleted { table: Table::Jobs, key: key(old, row) }));
        changes.push(Change::Released { object: object(old) });
    }
    changes
}

/// Writes batches from `first` on, until it is killed.
fn write_for_ever(part: &str) -> ! {
    let words: Vec<&str> = part.split(' ').collect();
    let [directory, shards, epoch, first] = words[..] else { panic!("four words") };
    let number = |word: &str| -> u64 { word.parse().expect("a number") };
    let store = open(Path::new(directory), number(shards) as u16);
    let sender = Sender { node: NodeId::from_words([1, 1]), epoch: number(epoch) };
    let (told, answers) = channel();
    let first = number(first);
    let mut next = first;
    loop {
        while next < first + IN_FLIGHT || answers.try_recv().is_ok() {
            let told = told.clone();
            let (sequence, answered) = (next, next);
            store.apply(Batch { sender, sequence, changes: changes(next) }, move |answer| {
                assert_eq!(answer, Ok(Answer::Applied { refused: vec![] }));
                // One write for each line: it is there whole, or not at all.
                std::io::stdout().write_all(format!("\nanswered {answered}\n").as_bytes()).expect("a reader");
                told.send(()).expect("somebody waits");
            });
            next += 1;
        }
        answers.recv().expect("answers come");
        told.send(()).expect("ourselves");
    }
}

/// Lets a process write for a while, kills it, and gives the batches that were answered.
fn write_and_kill(directory: &Path, shards: u16, epoch: u64, first: u64, pause: Duration) -> Vec<u64> {
    let part = format!("{} {shards} {epoch} {first}", directory.display());
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut answered = Vec::new();
    let mut read = |lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
        let number = lines.next()?.ok()?.strip_prefix("answered ").map(|number| number.parse::<u64>());
        answered.extend(number.map(|number| number.expect("a number")));
        Some(())
    };
    // Some are killed while they open the store, the others once they write.
    let begin = Instant::now();
    if !epoch.is_multiple_of(4) {
        while begin.elapsed() < pause && read(&mut lines).is_some() {}
    } else {
        std::thread::sleep(pause);
    }
    child.kill().expect("killed");
    while read(&mut lines).is_some() {}
    child.wait().expect("buried");
    answered
}

fn ask(store: &ControlStore, query: Query) -> Answer {
    let (sender, receiver) = channel::<Result<Answer, StoreError>>();
    store.query(query, move |answer| sender.send(answer).expect("somebody waits"));
    receiver.recv().expect("an answer comes").expect("an answer")
}

/// How much of a batch is there: its rows with their right values, and its object.
fn rows_of(store: &ControlStore, number: u64) -> u64 {
    let Answer::Rows { rows, .. } = ask(
        store,
        Query::Rows {
            table: Table::Jobs,
            prefix: format!("{number:010}/").as_str().into(),
            after: None,
            limit: 100,
            values: true,
        },
    ) else {
        panic!("no rows")
    };
    let right = |value: &[u8]| value.starts_with(format!("{number} ").as_bytes());
    assert!(rows.iter().all(|(_, value)| right(value)), "a row of batch {number} has a wrong value");
    rows.len() as u64
}

/// What was not answered may be there or not, but not in part, and not without what came before it.
fn check_the_rest(store: &ControlStore, answered: &[u64], sent: Range<u64>) {
    let mut gap = false;
    for number in answered.last().map_or(sent.start, |last| last + 1)..sent.end {
        let rows = rows_of(store, number);
        assert!(rows == 0 || rows == ROWS, "{rows} rows of batch {number} are there");
        assert!(rows == 0 || !gap, "batch {number} is there, and one before it is not");
        gap |= rows == 0;
    }
}

#[test]
fn what_was_answered_survives_and_nothing_is_there_in_part() {
    if let Ok(part) = std::env::var(PART) {
        write_for_ever(&part);
    }
    let directories = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let (begin, mut random) = (Instant::now(), 88_172_645_463_325_252_u64);
    let mut next = [KEPT; 2];
    let (mut answered_in_all, mut rounds) = (0, 0);
    for round in 1..=ROUNDS {
        if round > ROUNDS_MIN && begin.elapsed() > PATIENCE {
            break;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // One store with a single shard, in which a batch is whole; one with three, in which its parts are.
        let which = (round % 2) as usize;
        let (directory, shards) = (directories[which].path(), [1, 3][which]);
        let pause = Duration::from_micros(random % 30_000);
        let first = next[which];
        let answered = write_and_kill(directory, shards, round, first, pause);
        let store = open(directory, shards);
        // Nobody has sent as many as that, nor deleted what is this much older.
        let end = first + answered.len() as u64 + IN_FLIGHT;
        for number in answered.iter().copied().filter(|number| number + KEPT >= end) {
            let rows = rows_of(&store, number);
            assert_eq!(rows, ROWS, "batch {number} was answered, and {rows} of its rows are there");
            let Answer::Object(known) = ask(&store, Query::Object(object(number))) else {
                panic!("no object")
            };
            assert!(known.is_some(), "batch {number} was answered, and its object is not there");
        }
        if shards == 1 {
            check_the_rest(&store, &answered, first..end);
        }
        answered_in_all += answered.len();
        rounds += 1;
        next[which] = end + KEPT;
    }
    println!("{rounds} rounds, {answered_in_all} batches answered, in {:?}", begin.elapsed());
    assert!(answered_in_all > 0, "no process lived long enough to write");
}
