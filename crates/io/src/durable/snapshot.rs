//! Snapshots: all parts of a shard in one file, written beside by a thread of its own and then moved into place.
//!
//! A file has a head, a record for each piece, and an end that says how many there are.
//!
//! 1. A snapshot that has its name is whole and on disk.
//! 2. What it replaces (older snapshots, segments of the log) is removed after that, and may be there still.

use super::{DurableError, files, frames, log};
use aktis_protocol::records::{Piece, decode, encode};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

const PREFIX: &str = "snapshot";
const BESIDE: &str = "snapshot.part";
const MAGIC: &[u8] = b"AKTISNAP 2";
const END: &[u8] = b"END";
/// Pieces that wait to be written.
const PIECES_WAITING_MAX: usize = 4;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// How a snapshot ended: how large it is.
pub(super) type OnDone = Box<dyn FnOnce(Result<u64, DurableError>) + Send>;

/// A snapshot that is being written. Dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// `None` at its end.
    pieces: Option<SyncSender<Step>>,
    thread: Option<JoinHandle<()>>,
}

enum Step {
    Piece(Piece),
    Finish,
}

/// The writer cannot take more now.
#[derive(Debug)]
pub(super) struct Busy(pub(super) Option<Piece>);

impl Snapshot {
    /// Begins one that replaces all records of the log up to `from`.
    pub(super) fn begin(folder: &Path, from: u64, on_done: OnDone) -> Result<Self, DurableError> {
        let (sender, receiver) = sync_channel(PIECES_WAITING_MAX);
        let path = folder.to_owned();
        let work = move || {
            let written = write(&path, from, &receiver);
            if !matches!(written, Ok(Some(_))) {
                // What is left of it means nothing; the next one begins with the same name.
                let _ = fs::remove_file(path.join(BESIDE));
            }
            if let Some(outcome) = written.transpose() {
                on_done(outcome);
            }
        };
        let spawned = std::thread::Builder::new().name("aktis-snapshot".to_owned()).spawn(work);
        let thread = spawned.map_err(DurableError::disk("start a thread for", folder))?;
        Ok(Self { pieces: Some(sender), thread: Some(thread) })
    }

    /// Adds a piece, if the writer can take it. A writer that has failed takes everything.
    pub(super) fn add(&self, piece: Piece) -> Result<(), Busy> {
        self.send(Step::Piece(piece))
    }

    /// All pieces are there, and the log is on disk as far as they go.
    pub(super) fn finish(&self) -> Result<(), Busy> {
        self.send(Step::Finish)
    }

    fn send(&self, step: Step) -> Result<(), Busy> {
        match self.pieces.as_ref().map(|pieces| pieces.try_send(step)) {
            Some(Err(TrySendError::Full(Step::Piece(piece)))) => Err(Busy(Some(piece))),
            Some(Err(TrySendError::Full(Step::Finish))) => Err(Busy(None)),
            Some(Ok(()) | Err(TrySendError::Disconnected(_))) | None => Ok(()),
        }
    }
}

impl Drop for Snapshot {
    /// Waits for the writer: nothing may happen in the folder after the store was closed.
    fn drop(&mut self) {
        self.pieces = None;
        if let Some(thread) = self.thread.take() {
            // It panics only if its caller's function does, which is reported on its own.
            let _ = thread.join();
        }
    }
}

/// Writes what comes; `None` if it was given up before its end.
fn write(folder: &Path, from: u64, steps: &Receiver<Step>) -> Result<Option<u64>, DurableError> {
    let beside = folder.join(BESIDE);
    let mut file = File::create(&beside).map_err(DurableError::disk("create", &beside))?;
    let (mut buffer, mut number, mut bytes) = (Vec::new(), 0, 0);
    let mut flush = |buffer: &mut Vec<u8>| {
        bytes += buffer.len() as u64;
        let written = file.write_all(buffer);
        buffer.clear();
        written.map(|()| bytes).map_err(DurableError::disk("write to", &beside))
    };
    frames::push(&mut buffer, number, &encode(&(MAGIC, from)));
    loop {
        number += 1;
        match steps.recv() {
            Ok(Step::Piece(piece)) => frames::push(&mut buffer, number, &encode(&piece)),
            Ok(Step::Finish) => break,
            Err(_) => return Ok(None),
        }
        if buffer.len() >= WRITE_BYTES {
            flush(&mut buffer)?;
        }
    }
    frames::push(&mut buffer, number, END);
    let bytes = flush(&mut buffer)?;
    file.sync_all().map_err(DurableError::disk("flush", &beside))?;
    let place = files::numbered_path(folder, PREFIX, from);
    fs::rename(&beside, &place).map_err(DurableError::disk("rename", &beside))?;
    files::sync_folder(folder)?;
    for (older, path) in files::numbered(folder, PREFIX)? {
        if older < from {
            files::remove(&path)?;
        }
    }
    log::forget_until(folder, from)?;
    Ok(Some(bytes))
}

/// What a snapshot says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// All records up to this one are in it.
    pub(super) from: u64,
    /// Its size.
    pub(super) bytes: u64,
}

/// Reads the latest snapshot; nothing, if there is none. What was being written when the process ended is removed.
pub(super) fn read(
    folder: &Path,
    mut piece: impl FnMut(Piece) -> Result<(), DurableError>,
) -> Result<Found, DurableError> {
    let beside = folder.join(BESIDE);
    if beside.exists() {
        files::remove(&beside)?;
    }
    let Some((from, path)) = files::numbered(folder, PREFIX)?.pop() else { return Ok(Found::default()) };
    let bytes = fs::read(&path).map_err(DurableError::disk("read", &path))?;
    let mut frames = frames::Frames::new(&bytes, 0, 0);
    let head = encode(&(MAGIC, from));
    let mut next = || frames.next().map_err(|torn| damaged(&path, torn.at, "a piece is not whole"));
    if next()?.is_none_or(|(_, bytes)| bytes != head) {
        return Err(damaged(&path, 0, "it does not begin as a snapshot does"));
    }
    loop {
        match next()? {
            Some((_, END)) => return Ok(Found { from, bytes: bytes.len() as u64 }),
            Some((number, bytes)) => {
                let what = |_| damaged(&path, number, "a piece cannot be read");
                piece(decode(bytes, "piece").map_err(what)?)?;
            }
            None => return Err(damaged(&path, bytes.len() as u64, "its end is missing")),
        }
    }
}

fn damaged(path: &Path, at: u64, what: &str) -> DurableError {
    DurableError::Damaged { path: PathBuf::from(path), at, what: what.to_owned() }
}
