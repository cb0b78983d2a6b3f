//! What is measured: records per second, bytes for each object, and seconds until a store is open again.

use crate::Failure;
use crate::figure::{Bound, Figure};
use aktis_io::durable::{ControlStore, DurableError, StoreConfig, StoreError, StoreEvents};
use aktis_protocol::tables::{Answer, Batch, Change, Counts, Query, Sender};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId};
use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

/// A row of the benchmark.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(bool) -> Result<Vec<Figure>, Failure>,
}

/// All of them.
pub(crate) const ALL: &[Row] = &[
    Row { name: "durable-records", measure: durable_records },
    Row { name: "live-objects", measure: live_objects },
    Row { name: "restart", measure: restart },
];

/// Nodes that write by turns.
const NODES: u64 = 8;
/// Batches of all nodes that wait for their answers at the same time: 64 of each.
const IN_FLIGHT: usize = 64 * NODES as usize;

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

fn open(directory: &Path, snapshots: bool) -> Result<ControlStore, Failure> {
    let snapshot_log_bytes_min = if snapshots { 64 << 20 } else { u64::MAX };
    let config = StoreConfig { shards: 1, snapshot_log_bytes_min, ..StoreConfig::default() };
    Ok(ControlStore::open_with(directory, config, Arc::new(Quiet))?)
}

/// This process, and what it starts, has one core from now on.
fn stay_on_one_core() -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).ok_or("no core")?;
    let mut one = CpuSet::new();
    one.set(first);
    Ok(sched_setaffinity(None, &one)?)
}

/// Change number `number`: every second one makes an object known, the other has it held.
fn change(number: u64) -> Change {
    let object = TaskId::root(SessionId(1)).child(number / 2).returns(0);
    if number.is_multiple_of(2) { Change::CopyMade { object, bytes: 1000 } } else { Change::Held { object } }
}

/// Batches that are under way.
#[derive(Default)]
struct Flight {
    batches: Mutex<usize>,
    landed: Condvar,
}

impl Flight {
    fn wait_until(&self, fewer_than: usize) {
        let mut batches = self.batches.lock();
        self.landed.wait_while(&mut batches, |batches| *batches >= fewer_than);
    }

    fn begin(self: &Arc<Self>) -> impl FnOnce(Result<Answer, StoreError>) + Send + 'static {
        self.wait_until(IN_FLIGHT);
        *self.batches.lock() += 1;
        let flight = self.clone();
        move |answer| {
            assert_eq!(answer, Ok(Answer::Applied { refused: vec![] }), "a wrong answer has no speed");
            let mut batches = flight.batches.lock();
            *batches -= 1;
            // Wake the sender for half a flight, and not for every batch.
            if *batches == 0 || *batches == IN_FLIGHT / 2 {
                flight.landed.notify_one();
            }
        }
    }
}

/// Writes changes number `from` to `to` in batches, from several senders by turns; gives the seconds until all are on
/// disk.
fn write(store: &ControlStore, (from, to): (u64, u64), batch: u64) -> f64 {
    let flight = Arc::new(Flight::default());
    let begin = Instant::now();
    for first in (from..to).step_by(batch as usize) {
        let changes = (first..(first + batch).min(to)).map(change).collect();
        let node = NodeId::from_words([first / batch % NODES, 1]);
        let batch = Batch { sender: Sender { node, epoch: 1 }, sequence: first, changes };
        store.apply(batch, flight.begin());
    }
    flight.wait_until(1);
    begin.elapsed().as_secs_f64()
}

fn counts(store: &ControlStore) -> Result<Counts, Failure> {
    let (sender, receiver) = channel();
    store.query(Query::Counts, move |answer| sender.send(answer).expect("somebody waits"));
    match receiver.recv()?? {
        Answer::Counts(counts) => Ok(counts),
        other => Err(format!("{other:?} is no answer").into()),
    }
}

fn check_objects(store: &ControlStore, changes: u64) -> Result<(), Failure> {
    let objects = counts(store)?.objects;
    if objects == changes.div_ceil(2) { Ok(()) } else { Err(format!("{objects} objects are there").into()) }
}

/// Changes per second, all threads of the store and the one that writes on one core together.
fn durable_records(quick: bool) -> Result<Vec<Figure>, Failure> {
    stay_on_one_core()?;
    let mut figures = Vec::new();
    for (batch, records) in [(100, 2_000_000), (10, 1_000_000), (1, 300_000)] {
        let records = if quick { records / 10 } else { records };
        let mut rates: Vec<f64> = Vec::new();
        for _ in 0..5 {
            let directory = tempfile::tempdir_in(scratch())?;
            let store = open(directory.path(), true)?;
            rates.push(records as f64 / write(&store, (0, records), batch));
            check_objects(&store, records)?;
        }
        rates.sort_by(f64::total_cmp);
        // What is asked is asked of batches as nodes send them.
        let wanted = if batch > 1 { Bound::AtLeast(200_000.0) } else { Bound::Nothing };
        let name = format!("durable records on one core, {batch} in a batch");
        let detail = format!("median of 5; {:.0} to {:.0}", rates[0], rates[4]);
        figures.push(Figure::new(&name, rates[2], "/s", wanted, detail));
    }
    figures.push(flushes()?);
    Ok(figures)
}

/// What a flush of the disk costs here: the limit of a store without groups.
fn flushes() -> Result<Figure, Failure> {
    let directory = tempfile::tempdir_in(scratch())?;
    let mut file = std::fs::File::create(directory.path().join("file"))?;
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..300 {
        let begin = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let detail = format!("median; one in a hundred takes {:.0} µs", times[297]);
    Ok(Figure::new("append 4 KiB and flush, without the store", times[150], "µs", Bound::Nothing, detail))
}

/// Memory of each object that has a copy and a holder, at many sizes of the tables.
fn live_objects(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (most, step) = if quick { (1_000_000, 100_000) } else { (5_000_000, 100_000) };
    let directory = tempfile::tempdir_in(scratch())?;
    let store = open(directory.path(), true)?;
    let before = memory_bytes()?;
    let (mut worst, mut last) = ((0.0, 0), 0.0);
    for objects in (step..=most).step_by(step as usize) {
        write(&store, (2 * (objects - step), 2 * objects), 10);
        check_objects(&store, 2 * objects)?;
        last = (memory_bytes()? - before) / objects as f64;
        // Of fewer objects, the tables of other things are a larger part.
        if objects >= most / 5 && last > worst.0 {
            worst = (last, objects);
        }
    }
    let detail = format!("the worst of many looks, at {}; {last:.0} at {most}", worst.1);
    Ok(vec![Figure::new("memory of a live object", worst.0, "B", Bound::AtMost(200.0), detail)])
}

/// How long it takes to open a store with five million records: all of them in the log, or most in a snapshot.
fn restart(quick: bool) -> Result<Vec<Figure>, Failure> {
    let records = if quick { 500_000 } else { 5_000_000 };
    let mut figures = Vec::new();
    for (snapshots, name) in [(false, "open again, from the log alone"), (true, "open again, with snapshots")]
    {
        let directory = tempfile::tempdir_in(scratch())?;
        let store = open(directory.path(), snapshots)?;
        write(&store, (0, records), 100);
        drop(store);
        let (begin, busy) = (Instant::now(), cpu_seconds());
        let store = open(directory.path(), snapshots)?;
        check_objects(&store, records)?;
        let (seconds, busy) = (begin.elapsed().as_secs_f64(), cpu_seconds() - busy);
        let megabytes = bytes_below(directory.path())? as f64 / 1e6;
        let detail = format!("{records} records, {megabytes:.0} MB on disk; {busy:.2} s of a core");
        figures.push(Figure::new(name, seconds, "s", Bound::AtMost(10.0), detail));
    }
    Ok(figures)
}

/// A folder on a real disk: temporary files may lie in memory, where a flush costs nothing.
fn scratch() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_TMPDIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), Into::into)
}

/// Time that cores have worked for this process.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn memory_bytes() -> Result<f64, Failure> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let share = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = share.and_then(|share| share.split_whitespace().next()).ok_or("no `Pss`")?;
    Ok(kilobytes.parse::<f64>()? * 1024.0)
}

fn bytes_below(folder: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
