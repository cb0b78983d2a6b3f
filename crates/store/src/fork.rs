//! Forking, and noticing that this process is a fork of the one that started the session.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// A page that the kernel wipes in a forked child: one load tells parent from child.
pub struct ForkMark {
    page: *const AtomicU32,
}

// SAFETY: the page is only read, atomically, until it is unmapped.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

unsafe extern "C" {
    #[link_name = "fork"]
    fn system_fork() -> c_int;
}

/// Forks this process, which must have one thread only: gives the child's process id, and `None` in the child.
pub fn fork() -> io::Result<Option<u32>> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process with {threads} threads cannot be forked safely")));
    }
    // SAFETY: this is the only thread, so nobody can be inside an allocation or hold a lock: the child is as
    // able to go on as the parent.
    match unsafe { system_fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

const PAGE: usize = 4096;

impl ForkMark {
    /// Marks this process.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a fresh private mapping of one page; the advice applies to that page alone.
        let page = unsafe {
            let page = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?;
            rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork)?;
            page.cast::<AtomicU32>()
        };
        // SAFETY: the page is mapped, aligned and large enough.
        unsafe { (*page).store(1, Ordering::Relaxed) };
        Ok(Self { page })
    }

    /// Whether this is a forked child of the process that was marked.
    #[inline]
    pub fn is_forked(&self) -> bool {
        // SAFETY: the page stays mapped while `self` lives, in the child too.
        unsafe { (*self.page).load(Ordering::Relaxed) == 0 }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the page.
        let _ = unsafe { rustix::mm::munmap(self.page.cast_mut().cast(), PAGE) };
    }
}
