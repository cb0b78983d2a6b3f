//! The control store with its files: several shards, opening it again, subscriptions, snapshots, a second process.

use aktis_io::durable::{ControlStore, DurableError, StoreConfig, StoreError, StoreEvents};
use aktis_protocol::slots::SlotIndex;
use aktis_protocol::tables::{
    Answer, Batch, Change, Counts, Filter, Key, Notice, Query, Refusal, RefusalKind, Sender, Table,
};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const A: Sender = Sender { node: NodeId::from_words([1, 0]), epoch: 1 };
const B: Sender = Sender { node: NodeId::from_words([2, 0]), epoch: 1 };

/// What the store has ordered and told.
#[derive(Default)]
struct Seen {
    freed: Mutex<Vec<(ObjectId, Vec<NodeId>)>>,
    stopped: Mutex<Vec<String>>,
}

impl StoreEvents for Seen {
    fn free(&self, object: ObjectId, on: &[NodeId]) {
        self.freed.lock().unwrap().push((object, on.to_vec()));
    }

    fn on_stopped(&self, error: &DurableError) {
        self.stopped.lock().unwrap().push(error.to_string());
    }

    fn on_full(&self, error: Option<&DurableError>) {
        panic!("{error:?}");
    }

    fn on_snapshot_failed(&self, error: &DurableError) {
        panic!("{error}");
    }
}

fn open(directory: &Path, shards: u16) -> ControlStore {
    ControlStore::open(directory, shards, Arc::new(Seen::default())).expect("a store")
}

fn wait(
    begin: impl FnOnce(Box<dyn FnOnce(Result<Answer, StoreError>) + Send>),
) -> Result<Answer, StoreError> {
    let (sender, receiver) = channel();
    begin(Box::new(move |answer| sender.send(answer).expect("somebody waits")));
    receiver.recv().expect("an answer comes")
}

fn apply(store: &ControlStore, sender: Sender, sequence: u64, changes: Vec<Change>) -> Answer {
    wait(|done| store.apply(Batch { sender, sequence, changes }, done)).expect("an answer")
}

fn ask(store: &ControlStore, query: Query) -> Answer {
    wait(|done| store.query(query, done)).expect("an answer")
}

fn put(key: &str, value: &str) -> Change {
    let value = value.as_bytes().to_vec();
    Change::RowPut { table: Table::Keys, key: key.into(), value, overwrite: false }
}

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

fn rows(store: &ControlStore, limit: u32) -> (Vec<String>, bool) {
    let query = Query::Rows { table: Table::Keys, prefix: Key(vec![]), after: None, limit, values: true };
    let Answer::Rows { rows, more } = ask(store, query) else { panic!("no rows") };
    (rows.into_iter().map(|(key, _)| String::from_utf8(key.0).expect("text")).collect(), more)
}

fn counts(store: &ControlStore) -> Counts {
    let Answer::Counts(counts) = ask(store, Query::Counts) else { panic!("no counts") };
    counts
}

#[test]
fn several_shards_answer_as_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let keys: Vec<String> = (0..200).map(|number| format!("{number:04}")).collect();
    {
        let store = open(directory.path(), 4);
        assert_eq!(apply(&store, B, 1, vec![put("0150", "taken")]), Answer::Applied { refused: vec![] });
        let mut changes: Vec<Change> = keys.iter().map(|key| put(key, "value")).collect();
        changes.push(Change::Held { object: object(1) });
        let refused = vec![Refusal { change: 150, why: RefusalKind::Exists }];
        for _ in 0..2 {
            let answer = apply(&store, A, 1, changes.clone());
            assert_eq!(answer, Answer::Applied { refused: refused.clone() }, "and again");
        }
    }
    // The number of shards was decided when the store was made.
    let store = open(directory.path(), 2);
    assert_eq!(rows(&store, 1000), (keys.clone(), false));
    assert_eq!(rows(&store, 50), (keys[..50].to_vec(), true));
    assert_eq!((counts(&store).rows, counts(&store).objects), (200, 1));
    let left = wait(|done| store.node_left(A, done));
    assert_eq!(left, Ok(Answer::Applied { refused: vec![] }));
    assert_eq!(counts(&store).objects, 0);
}

#[test]
fn a_second_opener_is_told_who_has_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 2);
    let refused = ControlStore::open(directory.path(), 2, Arc::new(Seen::default())).expect_err("it is open");
    let text = refused.to_string();
    assert!(text.starts_with(&format!("process {} has the control store in", std::process::id())), "{text}");
    assert!(text.contains("hint: stop that one first"), "{text}");
    let clone = store.clone();
    drop(store);
    assert_eq!(rows(&clone, 1), (vec![], false), "it is open while there is a handle");
    drop(clone);
    open(directory.path(), 2);
}

#[test]
fn subscribers_of_all_shards_are_told_until_they_let_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 3);
    apply(&store, A, 1, vec![put("before", "1")]);
    let (sender, notices): (_, Receiver<Notice>) = channel();
    let filter = Filter::Rows { table: Table::Keys, prefix: Key(vec![]) };
    let subscription = store.subscribe(filter, move |notice| sender.send(notice.clone()).expect("a reader"));
    let keys: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    apply(&store, A, 2, keys.iter().map(|key| put(key, "2")).collect());
    let mut seen: Vec<String> = (0..21)
        .map(|_| match notices.recv().expect("a notice") {
            Notice::Row { key, value: Some(_), .. } => String::from_utf8(key.0).expect("text"),
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort();
    assert_eq!(seen, [keys, vec!["before".to_owned()]].concat());
    drop(subscription);
    apply(&store, A, 3, vec![put("after", "3")]);
    assert!(notices.recv().is_err(), "the subscriber was dropped, and told nothing more");
}

#[test]
fn unheld_objects_are_freed_and_freed_again_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = |number| Change::CopyMade { object: object(number), bytes: 8 };
    let expected = vec![(object(1), vec![A.node])];
    let seen = Arc::new(Seen::default());
    let store = ControlStore::open(directory.path(), 2, seen.clone()).expect("a store");
    let held = |number| Change::Held { object: object(number) };
    apply(&store, A, 1, vec![made(1), made(2), held(1), held(2)]);
    apply(&store, A, 2, vec![Change::Released { object: object(1) }]);
    assert_eq!(*seen.freed.lock().unwrap(), expected, "ordered before the answer");
    drop(store);
    let seen = Arc::new(Seen::default());
    let store = ControlStore::open(directory.path(), 2, seen.clone()).expect("a store");
    // Nobody has asked for anything: the order comes when the shard gets to it.
    let deadline = Instant::now() + Duration::from_secs(20);
    while seen.freed.lock().unwrap().is_empty() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(*seen.freed.lock().unwrap(), expected);
    apply(&store, A, 3, vec![Change::CopyDropped { object: object(1) }]);
    assert_eq!(counts(&store).objects, 1);
}

#[test]
fn close_writes_what_came_before_though_other_handles_are_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 2);
    let other = store.clone();
    let (sender, answers) = channel();
    for sequence in 1..=100 {
        let (answer, handle) = (sender.clone(), store.clone());
        let batch = Batch { sender: A, sequence, changes: vec![put(&format!("key {sequence}"), "value")] };
        store.apply(batch, move |outcome| {
            answer.send(outcome).expect("the test listens");
            drop(handle);
        });
    }
    store.close();
    let made = answers.try_iter().filter(|answer| *answer == Ok(Answer::Applied { refused: Vec::new() }));
    assert_eq!(made.count(), 100, "each was answered before the return");
    let late = Batch { sender: A, sequence: 101, changes: vec![put("late", "value")] };
    assert_eq!(wait(|done| other.apply(late, done)), Err(StoreError::Stopped));
    drop((store, other));
    assert_eq!(rows(&open(directory.path(), 2), 200).0.len(), 100);
}

#[test]
fn the_log_stays_short_though_much_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = StoreConfig { shards: 2, segment_bytes_max: 20_000, snapshot_log_bytes_min: 40_000 };
    let bytes_on_disk = || -> u64 {
        let shards = (0..2).map(|shard| directory.path().join(format!("shard-{shard:04}")));
        let files = shards.flat_map(|shard| std::fs::read_dir(shard).expect("a folder"));
        // A file may be removed between the list and the look.
        files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
    };
    let key = |number: u64| format!("{:03}", number % 100);
    let mut store =
        ControlStore::open_with(directory.path(), config, Arc::new(Seen::default())).expect("a store");
    for number in 1..=3000 {
        let (table, key) = (Table::Actors, Key::from(key(number).as_str()));
        let value = format!("{number}-{}", "x".repeat(100)).into_bytes();
        apply(&store, A, number, vec![Change::RowPut { table, key, value, overwrite: true }]);
        if number % 700 == 0 {
            drop(store);
            store = ControlStore::open_with(directory.path(), config, Arc::new(Seen::default()))
                .expect("a store");
        }
    }
    // Closing waits for a snapshot that is being written.
    drop(store);
    assert!(bytes_on_disk() < 200_000, "{} bytes of 400,000 are left", bytes_on_disk());
    let store =
        ControlStore::open_with(directory.path(), config, Arc::new(Seen::default())).expect("a store");
    for number in 2901..=3000 {
        let query = Query::Row { table: Table::Actors, key: key(number).as_str().into() };
        let Answer::Row(Some(value)) = ask(&store, query) else { panic!("row {number} is lost") };
        assert!(value.starts_with(format!("{number}-").as_bytes()));
    }
    let (table, key) = (Table::Actors, Key::from(key(3000).as_str()));
    let repeated = Change::RowPut { table, key: key.clone(), value: vec![], overwrite: true };
    assert_eq!(apply(&store, A, 3000, vec![repeated]), Answer::Applied { refused: vec![] });
    let Answer::Row(Some(value)) = ask(&store, Query::Row { table, key }) else { panic!("it is lost") };
    assert!(!value.is_empty(), "a repeated batch is recognised");
}

#[test]
fn a_shard_that_cannot_write_stops_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = StoreConfig { shards: 1, segment_bytes_max: 1, ..StoreConfig::default() };
    let seen = Arc::new(Seen::default());
    let store = ControlStore::open_with(directory.path(), config, seen.clone()).expect("a store");
    apply(&store, A, 1, vec![put("a", "1")]);
    std::fs::remove_dir_all(directory.path().join("shard-0000")).expect("removed");
    let batch = |sequence| Batch { sender: A, sequence, changes: vec![put("b", "1")] };
    assert_eq!(wait(|done| store.apply(batch(2), done)), Err(StoreError::Stopped));
    assert_eq!(wait(|done| store.apply(batch(3), done)), Err(StoreError::Stopped));
    assert_eq!(wait(|done| store.query(Query::Counts, done)), Err(StoreError::Stopped));
    let stopped = seen.stopped.lock().unwrap().clone();
    assert!(stopped.len() == 1 && stopped[0].starts_with("cannot create "), "{stopped:?}");
}

#[test]
fn damaged_files_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open(directory.path(), 1));
    let refusal = || match ControlStore::open(directory.path(), 1, Arc::new(Seen::default())) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let slots = directory.path().join("slots");
    let whole = std::fs::read(&slots).expect("a file");
    std::fs::write(&slots, &whole[..whole.len() / 2]).expect("written");
    assert!(refusal().contains("slots is damaged at byte 0: it is not a map of slots"), "{}", refusal());
    std::fs::write(&slots, whole).expect("written");
    let snapshot = directory.path().join("shard-0000/snapshot-00000000000000000000");
    std::fs::write(&snapshot, b"nonsense").expect("written");
    assert!(refusal().contains("is damaged at byte 0: a piece is not whole"), "{}", refusal());
    std::fs::remove_file(&snapshot).expect("removed");
    drop(open(directory.path(), 1));
}

#[test]
fn a_writer_numbers_its_batches_and_callbacks_may_use_the_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 2);
    let writer = Arc::new(store.writer(A));
    let (sender, receiver) = channel();
    let again = writer.clone();
    // The callback runs on a shard's own thread.
    writer.apply(vec![put("a", "1")], move |_| {
        again.apply(vec![put("b", "1")], move |answer| sender.send(answer).expect("somebody waits"));
    });
    assert_eq!(receiver.recv().expect("an answer"), Ok(Answer::Applied { refused: vec![] }));
    assert_eq!(rows(&store, 10).0, ["a", "b"]);
    assert_ne!(SlotIndex::of_key(b"a").0 % 2, SlotIndex::of_key(b"b").0 % 2, "in different shards");
}
