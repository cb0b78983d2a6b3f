//! An append-only log in segments, written by a thread of its own: all that waits is written and flushed at once.
//!
//! A segment begins with a magic word, a version and the number of its first record.
//!
//! 1. Records are numbered without gaps, across segments.
//! 2. A segment is on disk, whole, before the next one begins. So only the last can end in the middle of a record:
//!    that tail was never reported as persisted, and is cut.
//! 3. While the disk is full, the writer tries the same records again and again, from the same place of the file. They are
//!    not reported as persisted until all of them are on disk. After any other failure nothing is tried again: what is on
//!    disk then is known only to the next reader.

use super::{DurableError, files, frames};
use aktis_protocol::limits;
use parking_lot::{Condvar, Mutex};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const PREFIX: &str = "log";
const MAGIC: [u8; 8] = *b"AKTISLOG";
const VERSION: u32 = 3;
const HEAD: usize = 20;
/// A buffer that has grown larger than this is not kept.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// The pause before a full disk is tried again.
const FULL_AGAIN: Duration = Duration::from_millis(200);

/// How far the log is on disk, or why it never will be.
pub(super) type OnPersisted = Box<dyn Fn(Result<u64, DurableError>) + Send>;
/// The disk is full, and nothing is written until there is room; or there is room again.
pub(super) type OnFull = Box<dyn Fn(Option<&DurableError>) + Send>;

/// What a log tells, and asks, whoever uses it.
pub(super) struct Hooks {
    pub(super) on_persisted: OnPersisted,
    pub(super) on_full: OnFull,
    /// Whether the log is about to be closed: then nobody waits for room on the disk.
    pub(super) is_closing: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The end of a log.
pub(super) struct Log {
    shared: Arc<Shared>,
    is_closing: IsClosing,
    thread: Option<JoinHandle<()>>,
    /// Records that were not handed over yet.
    buffer: Vec<u8>,
    next: u64,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Something waits, or the end has come.
    work: Condvar,
    /// What waited has been taken.
    room: Condvar,
}

/// Records that wait to be written.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// The number after the last of them.
    next: u64,
    closed: bool,
    failed: bool,
}

type IsClosing = Arc<dyn Fn() -> bool + Send + Sync>;

impl Log {
    /// Reads a log and goes on writing at its end. `record` is given all records after `from`, which are in a snapshot.
    pub(super) fn open(
        folder: &Path,
        segment_bytes_max: u64,
        from: u64,
        record: impl FnMut(u64, &[u8]) -> Result<(), DurableError>,
        hooks: Hooks,
    ) -> Result<Self, DurableError> {
        let segment = match read(folder, from, record)? {
            Some(segment) => segment,
            None => Segment::create(folder, from + 1)?,
        };
        let next = segment.next;
        let shared = Arc::new(Shared::default());
        let Hooks { on_persisted, on_full, is_closing } = hooks;
        let is_closing: IsClosing = Arc::from(is_closing);
        let writer = Writer {
            folder: folder.to_owned(),
            segment,
            segment_bytes_max,
            shared: shared.clone(),
            on_persisted,
            on_full,
            is_closing: is_closing.clone(),
        };
        let spawned = std::thread::Builder::new().name("aktis-log".to_owned()).spawn(move || writer.run());
        let thread = spawned.map_err(DurableError::disk("start a thread for", folder))?;
        Ok(Self { shared, is_closing, thread: Some(thread), buffer: Vec::new(), next })
    }

    /// The number of the next record.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a record. It is written after the next `commit`.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        frames::push(&mut self.buffer, self.next, bytes);
        self.next += 1;
    }

    /// Hands all records to the writer. Waits if too much waits there already.
    pub(super) fn commit(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let mut waiting = self.shared.waiting.lock();
        while waiting.bytes.len() > limits::LOG_QUEUE_BYTES_MAX && !waiting.failed && !(self.is_closing)() {
            // The writer may wait for a full disk while the end comes.
            self.shared.room.wait_for(&mut waiting, FULL_AGAIN);
        }
        waiting.next = self.next;
        match waiting.bytes.is_empty() {
            true => std::mem::swap(&mut waiting.bytes, &mut self.buffer),
            false => waiting.bytes.extend_from_slice(&self.buffer),
        }
        drop(waiting);
        self.buffer.clear();
        self.shared.work.notify_one();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

impl Log {
    /// Writes what waits, and ends. Afterwards nothing more is reported.
    pub(super) fn close(&mut self) {
        self.commit();
        self.shared.waiting.lock().closed = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // It panics only if its caller's function does, which is reported on its own.
            let _ = thread.join();
        }
    }
}

/// Removes the segments of which no record after `from` is left.
pub(super) fn forget_until(folder: &Path, from: u64) -> Result<(), DurableError> {
    let segments = files::numbered(folder, PREFIX)?;
    for pair in segments.windows(2) {
        if pair[1].0 <= from + 1 {
            files::remove(&pair[0].1)?;
        }
    }
    Ok(())
}

struct Writer {
    folder: PathBuf,
    segment: Segment,
    segment_bytes_max: u64,
    shared: Arc<Shared>,
    on_persisted: OnPersisted,
    on_full: OnFull,
    is_closing: IsClosing,
}

impl Writer {
    fn run(mut self) {
        let mut group = Vec::new();
        while let Some(next) = self.take(&mut group) {
            match self.write_when_there_is_room(&group, next) {
                Ok(()) => (self.on_persisted)(Ok(next - 1)),
                Err(error) => {
                    self.shared.waiting.lock().failed = true;
                    self.shared.room.notify_all();
                    return (self.on_persisted)(Err(error));
                }
            }
            group.clear();
            if group.capacity() > BUFFER_BYTES_KEPT {
                group = Vec::new();
            }
        }
    }

    /// Takes all that waits; `None` at the end.
    fn take(&self, group: &mut Vec<u8>) -> Option<u64> {
        let mut waiting = self.shared.waiting.lock();
        while waiting.bytes.is_empty() {
            if waiting.closed {
                return None;
            }
            self.shared.work.wait(&mut waiting);
        }
        std::mem::swap(&mut waiting.bytes, group);
        self.shared.room.notify_all();
        Some(waiting.next)
    }

    /// Writes the records, and waits as long as the disk is full.
    fn write_when_there_is_room(&mut self, group: &[u8], next: u64) -> Result<(), DurableError> {
        let mut was_full = false;
        loop {
            match self.write(group, next) {
                Err(error) if error.is_full_disk() && !self.is_about_to_end() => {
                    if !std::mem::replace(&mut was_full, true) {
                        (self.on_full)(Some(&error));
                    }
                    // The next attempt begins where this one did.
                    self.segment.cut()?;
                    std::thread::sleep(FULL_AGAIN);
                }
                written => {
                    if was_full && written.is_ok() {
                        (self.on_full)(None);
                    }
                    return written;
                }
            }
        }
    }

    fn is_about_to_end(&self) -> bool {
        (self.is_closing)() || self.shared.waiting.lock().closed
    }

    fn write(&mut self, group: &[u8], next: u64) -> Result<(), DurableError> {
        if self.segment.bytes >= self.segment_bytes_max {
            self.segment = Segment::create(&self.folder, self.segment.next)?;
        }
        let Segment { file, path, .. } = &mut self.segment;
        let written = file.write_all(group).and_then(|()| file.sync_data());
        written.map_err(DurableError::disk("write to", path))?;
        self.segment.bytes += group.len() as u64;
        self.segment.next = next;
        Ok(())
    }
}

/// The segment that is written to.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The number of the next record.
    next: u64,
}

impl Segment {
    fn create(folder: &Path, first: u64) -> Result<Self, DurableError> {
        let path = files::numbered_path(folder, PREFIX, first);
        let create = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(&head(first))?;
            file.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(DurableError::disk("create", &path))?;
        files::sync_folder(folder)?;
        Ok(Self { path, file, bytes: HEAD as u64, next: first })
    }

    /// Removes what an attempt to write has left behind its end.
    fn cut(&mut self) -> Result<(), DurableError> {
        let cut = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
        cut.map(drop).map_err(DurableError::disk("cut", &self.path))
    }

    /// An existing one, cut to `bytes`.
    fn reopen(path: PathBuf, bytes: u64, next: u64) -> Result<Self, DurableError> {
        let open = || {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            if file.metadata()?.len() != bytes {
                file.set_len(bytes)?;
                file.sync_all()?;
            }
            file.seek(SeekFrom::Start(bytes))?;
            Ok(file)
        };
        let file = open().map_err(DurableError::disk("open", &path))?;
        Ok(Self { path, file, bytes, next })
    }
}

fn head(first: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..].copy_from_slice(&first.to_le_bytes());
    head
}

/// Reads all segments, and gives the last one, cut after its last record; `None` if there is no log yet.
fn read(
    folder: &Path,
    from: u64,
    mut record: impl FnMut(u64, &[u8]) -> Result<(), DurableError>,
) -> Result<Option<Segment>, DurableError> {
    let segments = files::numbered(folder, PREFIX)?;
    let Some(first) = segments.first().map(|(first, _)| *first) else {
        let missing = DurableError::Missing { directory: folder.to_owned(), first: 0, wanted: from };
        return if from == 0 { Ok(None) } else { Err(missing) };
    };
    let mut next = first;
    if first > from + 1 {
        return Err(DurableError::Missing { directory: folder.to_owned(), first, wanted: from + 1 });
    }
    for (index, (number, path)) in segments.iter().enumerate() {
        if *number != next {
            return Err(DurableError::Missing { directory: folder.to_owned(), first: *number, wanted: next });
        }
        let is_last = index + 1 == segments.len();
        let bytes = std::fs::read(path).map_err(DurableError::disk("read", path))?;
        let damaged =
            |at, what: &str| DurableError::Damaged { path: path.clone(), at, what: what.to_owned() };
        if bytes.get(..HEAD) != Some(&head(*number)) {
            // The last one may have been cut off while it was created, before anything was written to it.
            if is_last && bytes.len() <= HEAD && (index > 0 || *number == from + 1) {
                return Segment::create(folder, next).map(Some);
            }
            return Err(damaged(0, "it does not begin as a log does"));
        }
        let mut frames = frames::Frames::new(&bytes, HEAD, *number);
        let end = loop {
            match frames.next() {
                Ok(Some((number, bytes))) if number > from => record(number, bytes)?,
                Ok(Some(_)) => {}
                Ok(None) => break bytes.len() as u64,
                Err(torn) if is_last => break torn.at,
                Err(torn) => return Err(damaged(torn.at, "there is no record, and more files follow")),
            }
        };
        next = frames.number();
        if is_last {
            return Segment::reopen(path.clone(), end, next).map(Some);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    type Records = Vec<(u64, Vec<u8>)>;

    fn open(folder: &Path, from: u64) -> Result<(Log, Records, Receiver<u64>), DurableError> {
        let (sender, receiver) = channel();
        let mut records = Vec::new();
        let record = |number, bytes: &[u8]| {
            records.push((number, bytes.to_vec()));
            Ok(())
        };
        let on_persisted = Box::new(move |outcome: Result<u64, _>| {
            let _ = outcome.map(|up_to| sender.send(up_to));
        });
        let hooks = Hooks { on_persisted, on_full: Box::new(|_| {}), is_closing: Box::new(|| false) };
        let log = Log::open(folder, 100, from, record, hooks)?;
        Ok((log, records, receiver))
    }

    fn text(number: u64) -> Vec<u8> {
        format!("record {number}").into_bytes()
    }

    /// A log with so many records, in groups of three, which are on disk.
    fn filled(folder: &Path, records: u64) {
        let (mut log, found, persisted) = open(folder, 0).expect("a log");
        assert_eq!(found, []);
        for number in 1..=records {
            assert_eq!(log.next(), number);
            log.append(&text(number));
            if number % 3 == 0 || number == records {
                log.commit();
                while persisted.recv().expect("it is written") < number {}
            }
        }
    }

    fn last_segment(folder: &Path) -> PathBuf {
        files::numbered(folder, PREFIX).expect("a folder").pop().expect("a segment").1
    }

    fn is_as_written(records: &[(u64, Vec<u8>)], first: u64) -> bool {
        records.iter().zip(first..).all(|((found, bytes), number)| *found == number && *bytes == text(number))
    }

    #[test]
    fn records_are_found_again_across_segments() {
        let folder = tempfile::tempdir().expect("a folder");
        filled(folder.path(), 100);
        assert!(files::numbered(folder.path(), PREFIX).expect("a folder").len() > 10);
        for from in [0, 7, 99, 100] {
            let (log, records, _) = open(folder.path(), from).expect("a log");
            assert_eq!((records.len() as u64, log.next()), (100 - from, 101));
            assert!(is_as_written(&records, from + 1), "invariant 1");
        }
    }

    #[test]
    fn a_tail_that_is_torn_anywhere_is_cut_and_written_over() {
        let original = tempfile::tempdir().expect("a folder");
        filled(original.path(), 10);
        let name = last_segment(original.path()).file_name().expect("a name").to_owned();
        let length = std::fs::metadata(original.path().join(&name)).expect("a file").len();
        for cut in 0..length {
            let folder = tempfile::tempdir().expect("a folder");
            for (_, path) in files::numbered(original.path(), PREFIX).expect("a folder") {
                std::fs::copy(&path, folder.path().join(path.file_name().expect("a name"))).expect("copied");
            }
            let file = OpenOptions::new().write(true).open(folder.path().join(&name)).expect("a file");
            file.set_len(cut).expect("cut");
            // What was never flushed may also be there as zeros.
            file.set_len(cut + cut % 3).expect("longer again");
            let (mut log, records, _) = open(folder.path(), 0).expect("a log");
            assert!(records.len() < 10 && is_as_written(&records, 1), "cut at {cut}");
            let next = log.next();
            log.append(b"instead");
            drop(log);
            let (_, records, _) = open(folder.path(), 0).expect("a log");
            assert_eq!(records.last(), Some(&(next, b"instead".to_vec())), "cut at {cut}");
            assert!(is_as_written(&records[..records.len() - 1], 1), "cut at {cut}");
        }
    }

    #[test]
    fn damage_before_the_last_segment_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        filled(folder.path(), 30);
        let (_, path) = files::numbered(folder.path(), PREFIX).expect("a folder")[1].clone();
        let whole = std::fs::read(&path).expect("a file");
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).expect("written");
            let error = open(folder.path(), 0).map(|_| ()).expect_err("invariant 2 of the store");
            assert!(matches!(error, DurableError::Damaged { .. }), "{error}");
        }
        std::fs::remove_file(&path).expect("removed");
        let error = open(folder.path(), 0).map(|_| ()).expect_err("a segment is missing");
        assert!(matches!(error, DurableError::Missing { .. }), "{error}");
    }

    #[test]
    fn segments_are_forgotten_when_nothing_in_them_is_needed() {
        let folder = tempfile::tempdir().expect("a folder");
        filled(folder.path(), 100);
        let before = files::numbered(folder.path(), PREFIX).expect("a folder").len();
        forget_until(folder.path(), 50).expect("forgotten");
        let after = files::numbered(folder.path(), PREFIX).expect("a folder");
        assert!(after.len() < before && after[0].0 <= 51 && after[1].0 > 51);
        let (_, records, _) = open(folder.path(), 50).expect("a log");
        assert!(records.len() == 50 && is_as_written(&records, 51));
        let error = open(folder.path(), 40).map(|_| ()).expect_err("forgotten");
        assert!(matches!(error, DurableError::Missing { wanted: 41, .. }), "{error}");
        forget_until(folder.path(), 1000).expect("forgotten");
        assert_eq!(files::numbered(folder.path(), PREFIX).expect("a folder").len(), 1, "the last one stays");
    }
}
