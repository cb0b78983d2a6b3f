//! Maps a memfd and hands out references to what lies in it: the lowest layer of shared memory.

#![allow(unsafe_code)]

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Types that may lie in memory shared with other processes.
///
/// # Safety
/// All bit patterns are valid, also all zeroes; every field is an atomic (or bytes behind `UnsafeCell`),
/// so that a shared reference never promises that the memory stands still.
pub unsafe trait Shared {}

// SAFETY: atomics accept every bit pattern and are meant for concurrent change.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}
// SAFETY: an array of such is such.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// A memfd mapped into this process, readable and writable, for as long as this value lives.
pub struct Mapping {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory; access goes through atomics or through the owners' protocols.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a memfd of `bytes` bytes, all zero and without memory behind them yet, and maps it.
    pub fn create(name: &str, bytes: u64) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, bytes)?;
        Self::from_fd(fd)
    }

    /// Maps a memfd that another process made.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let len = usize::try_from(rustix::fs::fstat(&fd)?.st_size).map_err(io::Error::other)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).expect("mmap does not give null");
        Ok(Self { fd, base, len })
    }

    /// The memfd, to be sent to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The size of the mapping.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// What lies at `offset`.
    #[inline]
    pub(crate) fn at<T: Shared>(&self, offset: usize) -> &T {
        &self.slice(offset, 1)[0]
    }

    /// The `count` values that lie at `offset`.
    #[inline]
    pub(crate) fn slice<T: Shared>(&self, offset: usize, count: usize) -> &[T] {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len), "inside the mapping");
        assert_eq!(offset % align_of::<T>(), 0, "aligned");
        // SAFETY: in bounds and aligned (checked above; the base is page-aligned), valid for every bit
        // pattern and for concurrent change (`Shared`), and mapped for as long as `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), count) }
    }

    /// Copies `bytes` to `offset`. The caller owns that range, as its protocol says.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds; the caller's protocol makes this process the only one that touches the
        // range until it is published.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len());
        }
    }

    /// The bytes at `offset`, which the caller's protocol keeps unchanged while they are borrowed.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds; nobody writes to a range that was published until its reader gives it back.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Gives the memory behind a range back to the system; it reads as zeroes afterwards.
    pub(crate) fn punch(&self, offset: usize, len: usize) {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A failure only means that the memory stays in use until the session ends.
        let _ = fallocate(&self.fd, flags, offset as u64, len as u64);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mapping any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
