//! The control store on a disk that is full: it keeps what it has, answers nothing that it cannot keep, and goes on when there
//! is room. The disk is a small one in a namespace of its own, in which the test starts itself again.

use aktis_io::durable::{ControlStore, DurableError, StoreError, StoreEvents};
use aktis_protocol::NodeId;
use aktis_protocol::tables::{Answer, Batch, Change, Query, Sender, Table};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Channel, channel};
use std::time::Duration;

/// Names the disk to the process that is started again.
const DISK: &str = "AKTIS_TEST_DISK";
const PATIENCE: Duration = Duration::from_secs(30);
const DISK_KILOBYTES: u64 = 1024;
const VALUE_BYTES: usize = 64 << 10;
const ME: Sender = Sender { node: NodeId::from_words([1, 0]), epoch: 1 };

/// Tells when the disk is full, and when it is not any more.
struct Events(Channel<bool>);

impl StoreEvents for Events {
    fn free(&self, _: aktis_protocol::ObjectId, _: &[NodeId]) {}

    fn on_stopped(&self, error: &DurableError) {
        eprintln!("stopped: {error}");
    }

    fn on_full(&self, error: Option<&DurableError>) {
        if let Some(error) = error {
            eprintln!("full: {error}");
        }
        let _ = self.0.send(error.is_some());
    }

    fn on_snapshot_failed(&self, error: &DurableError) {
        panic!("{error}");
    }
}

fn open(directory: &Path) -> (ControlStore, Receiver<bool>) {
    let (sender, full) = channel();
    (ControlStore::open(directory, 1, Arc::new(Events(sender))).expect("a store"), full)
}

type Outcome = Receiver<Result<Answer, StoreError>>;

/// Puts a row that takes a part of the disk.
fn put(store: &ControlStore, number: u64) -> Outcome {
    let (sender, outcome) = channel();
    let change = Change::RowPut {
        table: Table::Keys,
        key: number.to_string().as_str().into(),
        value: vec![number as u8; VALUE_BYTES],
        overwrite: false,
    };
    let batch = Batch { sender: ME, sequence: number, changes: vec![change] };
    store.apply(batch, Box::new(move |answer| drop(sender.send(answer))));
    outcome
}

fn rows(store: &ControlStore) -> usize {
    let (sender, answer) = channel();
    let query =
        Query::Rows { table: Table::Keys, prefix: "".into(), after: None, limit: 1000, values: false };
    store.query(query, Box::new(move |answer| drop(sender.send(answer))));
    match answer.recv_timeout(PATIENCE).expect("an answer comes") {
        Ok(Answer::Rows { rows, .. }) => rows.len(),
        other => panic!("{other:?}"),
    }
}

fn on_a_full_disk(disk: &Path) {
    let filler = disk.join("filler");
    let directory = disk.join("control");
    let (store, full) = open(&directory);
    assert!(put(&store, 1).recv_timeout(PATIENCE).expect("an answer comes").is_ok());
    // All but a part of one row.
    std::fs::write(&filler, vec![0; (DISK_KILOBYTES << 10) as usize - 2 * VALUE_BYTES - VALUE_BYTES / 2])
        .expect("room");
    let waits: Vec<Outcome> = (2..5).map(|number| put(&store, number)).collect();
    assert_eq!(full.recv_timeout(PATIENCE), Ok(true), "it says so");
    let early = waits[2].recv_timeout(Duration::from_millis(500));
    assert!(matches!(early, Err(RecvTimeoutError::Timeout)), "not kept, not answered: {early:?}");
    std::fs::remove_file(&filler).expect("it is there");
    for outcome in &waits {
        assert!(outcome.recv_timeout(PATIENCE).expect("an answer comes").is_ok());
    }
    assert_eq!(full.recv_timeout(PATIENCE), Ok(false), "it says that there is room");
    assert_eq!(rows(&store), 4);
    // A store that is closed meanwhile has all that it has answered, and does not wait for room.
    let used = 5 * VALUE_BYTES;
    std::fs::write(&filler, vec![0; (DISK_KILOBYTES << 10) as usize - used]).expect("room");
    let lost = put(&store, 5);
    assert_eq!(full.recv_timeout(PATIENCE), Ok(true));
    drop(store);
    assert!(lost.recv_timeout(PATIENCE).is_ok_and(|answer| answer.is_err()));
    std::fs::remove_file(&filler).expect("it is there");
    let (store, _full) = open(&directory);
    assert_eq!(rows(&store), 4);
    println!("all is well");
}

#[test]
fn a_full_disk_stops_the_store_until_there_is_room() {
    if let Some(disk) = std::env::var_os(DISK) {
        return on_a_full_disk(Path::new(&disk));
    }
    let disk = tempfile::tempdir().expect("a directory");
    let in_namespace = |then: &str| {
        let mount = format!("mount -t tmpfs -o size={DISK_KILOBYTES}k none \"${DISK}\" && {then}");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"]);
        command.env(DISK, disk.path());
        command
    };
    // Where namespaces are forbidden, there is no such disk.
    if !in_namespace("true").status().is_ok_and(|status| status.success()) {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let test = "exec \"$1\" --exact a_full_disk_stops_the_store_until_there_is_room --nocapture";
    let output = in_namespace(test).arg(program).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("all is well"), "{text}");
    assert!(text.contains("full: cannot write to "), "{text}");
}
