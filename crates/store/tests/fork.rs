//! A process that was forked from one with a session knows that it is not the one.

#![allow(unsafe_code)]

use aktis_store::ForkMark;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> *const c_void;
}

/// Runs `code` in a forked child and gives its exit code.
fn in_child(code: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the child only calls `code`, which must not allocate or lock, and `_exit`.
    let pid = unsafe { fork() };
    if pid == 0 {
        let status = code();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { _exit(status) };
    }
    assert!(pid > 0, "forked");
    let mut status = 0;
    // SAFETY: `status` lives until the call returns.
    assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status & 0x7f, 0, "it exited by itself");
    status >> 8
}

#[test]
fn a_fork_is_noticed_and_the_original_stays_what_it_is() {
    let mark = ForkMark::new().expect("a page");
    assert!(!mark.is_forked());
    assert_eq!(in_child(|| c_int::from(mark.is_forked())), 1);
    // Also a fork of a fork.
    assert_eq!(in_child(|| in_child(|| c_int::from(mark.is_forked()))), 1);
    assert!(!mark.is_forked());
}
