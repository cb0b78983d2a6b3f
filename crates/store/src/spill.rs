//! Objects on disk: one unlinked file that holds what does not fit into memory.
//!
//! Invariants:
//! 1. The file has no name: whatever way the node ends, nothing is left on the disk.
//! 2. A spilled object's memory is taken away only after its bytes are in the file.
//! 3. Where an object lies in the file is the node's decision; what it frees is given back to the disk.

use crate::arena::{Arena, EXTENT_ALIGNMENT};
use crate::error::StoreError;
use aktis_protocol::EntryRef;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes written or read between two looks at whether the session closes.
const CHUNK_BYTES: usize = 4 << 20;

/// Why an object was not spilled.
#[derive(Debug, thiserror::Error)]
pub enum SpillRefused {
    /// Somebody reads it.
    #[error("the object is being read")]
    Pinned,
    /// The disk did not take it.
    #[error(transparent)]
    Disk(#[from] StoreError),
}

/// A file without a name that holds spilled objects.
pub struct SpillFile {
    file: Arc<OwnedFd>,
    directory: PathBuf,
    closing: Arc<AtomicBool>,
}

impl SpillFile {
    /// Makes the file in `directory`, which must exist. Work on it is given up soon after `closing` is set.
    pub fn create(directory: &Path, closing: Arc<AtomicBool>) -> Result<Self, StoreError> {
        let file = unnamed_file(directory).map_err(|errno| StoreError::Disk {
            action: "keep",
            directory: directory.to_owned(),
            source: errno.into(),
        })?;
        Ok(Self { file: Arc::new(file), directory: directory.to_owned(), closing })
    }

    /// The descriptor, for those who map objects that lie in the file.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        self.file.clone()
    }

    /// Sets room aside for `bytes` bytes at `offset` that are to be written through a mapping: a page for which the
    /// disk has none would kill its writer.
    pub fn reserve(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        self.check_limit(offset, bytes)?;
        self.check_closing()?;
        let reserved = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, bytes.max(1))
        });
        match reserved {
            Ok(()) => Ok(()),
            // This file system gives room only for what is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(offset, bytes),
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                // A part may have been set aside.
                self.free(offset, bytes);
                Err(self.full(bytes))
            }
            Err(errno) => Err(self.failed("keep", errno)),
        }
    }

    fn write_zeros(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let zeros = vec![0; CHUNK_BYTES.min(bytes as usize)];
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(CHUNK_BYTES as u64);
            if let Err(error) = self.write(offset + done, &zeros[..part as usize]) {
                self.free(offset, bytes);
                return Err(error);
            }
            done += part;
        }
        Ok(())
    }

    /// Beyond the limit on the size of files, writing would not fail but kill this process by SIGXFSZ.
    fn check_limit(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        let end = offset.saturating_add(bytes);
        if limit.is_some_and(|limit| end > limit) { Err(self.full(bytes)) } else { Ok(()) }
    }

    /// Writes `bytes` at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_limit(offset, bytes.len() as u64)?;
        let mut done = 0;
        while done < bytes.len() {
            self.check_closing()?;
            let part = &bytes[done..bytes.len().min(done + CHUNK_BYTES)];
            match rustix::io::pwrite(&self.file, part, offset + done as u64) {
                Ok(0) | Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                    return Err(self.full(bytes.len() as u64));
                }
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("write", errno)),
            }
        }
        Ok(())
    }

    /// Fills `bytes` from what was written at `offset`.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let len = bytes.len();
        let mut done = 0;
        while done < len {
            self.check_closing()?;
            let part = &mut bytes[done..len.min(done + CHUNK_BYTES)];
            match rustix::io::pread(&self.file, part, offset + done as u64) {
                // The file is shorter than what was written to it: the disk lost it.
                Ok(0) => return Err(self.failed("read", Errno::IO)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        Ok(())
    }

    /// Gives the disk back what was written there.
    pub fn free(&self, offset: u64, bytes: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A part of a page would stay in use; extents are whole pages.
        let bytes = bytes.max(1).next_multiple_of(EXTENT_ALIGNMENT);
        // Some file systems cannot; then the room is used again by later objects only.
        let _ = rustix::fs::fallocate(&self.file, flags, offset, bytes);
    }

    fn check_closing(&self) -> Result<(), StoreError> {
        if self.closing.load(Ordering::Relaxed) { Err(StoreError::Closing) } else { Ok(()) }
    }

    fn full(&self, bytes: u64) -> StoreError {
        StoreError::DiskFull { directory: self.directory.clone(), bytes }
    }

    fn failed(&self, action: &'static str, errno: Errno) -> StoreError {
        StoreError::Disk { action, directory: self.directory.clone(), source: errno.into() }
    }
}

impl Arena {
    /// Copies a sealed object to disk and takes its memory away, unless somebody has it pinned. Only the node calls this.
    pub fn spill(
        self: &Arc<Self>,
        entry: EntryRef,
        file: &SpillFile,
        offset: u64,
    ) -> Result<(), SpillRefused> {
        if self.is_pinned(entry) {
            return Err(SpillRefused::Pinned);
        }
        let pin = self.pin(entry).map_err(|_| SpillRefused::Pinned)?;
        let bytes = pin.len() as u64;
        let written = file.write(offset, &pin);
        // The node's own pin must not be in its way.
        drop(pin);
        let outcome = match written {
            Err(error) => Err(error.into()),
            Ok(()) if self.begin_spill(entry) => {
                self.finish_spill(entry);
                Ok(())
            }
            Ok(()) => Err(SpillRefused::Pinned),
        };
        if outcome.is_err() {
            // What the attempt has written is of no use to anybody.
            file.free(offset, bytes);
        }
        outcome
    }

    /// Brings a spilled object back from disk to `offset` in the arena, a place that the node has set aside for
    /// it, and makes it readable again. Only the node calls this.
    pub fn restore(
        &self,
        entry: EntryRef,
        file: &SpillFile,
        file_offset: u64,
        offset: u64,
    ) -> Result<(), StoreError> {
        self.refill(entry, offset, |place| file.read(file_offset, place))
    }
}

/// Opens a file that has no name, or loses it at once where the file system knows no such files.
fn unnamed_file(directory: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        other => return other,
    }
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let path = directory.join(format!(".aktis-spill-{:016x}", u64::from_ne_bytes(random)));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&path)?;
    Ok(file)
}
