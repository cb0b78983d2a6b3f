//! Signals: the one that Rust's own start-up changes, for processes that skip it, and the one of Ctrl-C.

#![allow(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
}

const SIGPIPE: c_int = 13;
const IGNORE: usize = 1;

/// Makes writing to a pipe without a reader an error, as it is in every Rust program from `main` on. A process
/// that does its work before `main` would be killed instead.
pub fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal runs no code of ours; the kernel keeps the setting, nothing is borrowed.
    unsafe { signal(SIGPIPE, IGNORE) };
}

/// Sends this process the signal that Ctrl-C does.
pub fn interrupt_this_process() -> std::io::Result<()> {
    let this = rustix::process::getpid();
    Ok(rustix::process::kill_process(this, rustix::process::Signal::INT)?)
}
