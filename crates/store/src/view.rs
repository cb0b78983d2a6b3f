//! One object of the spill file, mapped into this process: how values are written and read that have no room in memory.

#![allow(unsafe_code)]

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;

/// A range of a file in this process's memory, for as long as this value lives.
pub(crate) struct FileView {
    base: NonNull<u8>,
    mapped_len: usize,
    /// Bytes before the range: mappings begin at pages of the system, which may be larger than those of the file.
    skipped: usize,
    len: usize,
}

// SAFETY: the mapping is plain memory; the protocol of the index says who reads and writes it.
unsafe impl Send for FileView {}
// SAFETY: as above.
unsafe impl Sync for FileView {}

/// What is done with a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl FileView {
    /// Maps `bytes` bytes at `offset` of a file that is at least so long.
    pub(crate) fn map(file: impl AsFd, offset: u64, bytes: u64, access: Access) -> rustix::io::Result<Self> {
        let (offset, len) = (usize_of(offset)?, usize_of(bytes)?);
        let skipped = offset % rustix::param::page_size();
        let mapped_len = len.checked_add(skipped).ok_or(Errno::OVERFLOW)?.max(1);
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let start = (offset - skipped) as u64;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), mapped_len, protection, MapFlags::SHARED, file, start)?
        };
        let base = NonNull::new(base.cast()).expect("mmap does not give null");
        Ok(Self { base, mapped_len, skipped, len })
    }

    /// Brings the pages in ahead of use: a fault for each costs more, and one that fails kills the process.
    pub(crate) fn populate(&self, access: Access) -> rustix::io::Result<()> {
        let advice = match access {
            Access::Read => Advice::LinuxPopulateRead,
            Access::Write => Advice::LinuxPopulateWrite,
        };
        // SAFETY: the range is mapped; these advices leave the contents as they are.
        match unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.mapped_len, advice) } {
            // An old kernel cannot; then there is a fault for each page.
            Err(Errno::INVAL) => Ok(()),
            // The system says so where touching the page would have killed the process.
            Err(Errno::FAULT) => Err(Errno::IO),
            other => other,
        }
    }

    /// The bytes, which the protocol of the index keeps unchanged while they are borrowed.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: in bounds of the mapping; nobody writes to a sealed object while it is pinned.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.skipped), self.len) }
    }

    /// The bytes, to be written. The view was made for that, by the only one who may write this object.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: in bounds of the mapping; the index admits one writer for each grant, and no reader before the seal.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.skipped), self.len) }
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mapping any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_len) };
    }
}

fn usize_of(number: u64) -> rustix::io::Result<usize> {
    usize::try_from(number).map_err(|_| Errno::OVERFLOW)
}
