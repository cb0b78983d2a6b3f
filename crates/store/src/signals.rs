//! Signals: the one that Rust's own start-up changes, for processes that skip it, the one of Ctrl-C, and those that ask a
//! program to end.

#![allow(unsafe_code)]

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
}

const SIGPIPE: c_int = 13;
/// The end of the terminal, Ctrl-C, and what `kill` sends.
const TERMINATION: [c_int; 3] = [1, 2, 15];
const DEFAULT: usize = 0;
const IGNORE: usize = 1;
const REFUSED: usize = usize::MAX;

/// Makes writing to a pipe without a reader an error, as it is in every Rust program from `main` on. A process
/// that does its work before `main` would be killed instead.
pub fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal runs no code of ours; the kernel keeps the setting, nothing is borrowed.
    unsafe { signal(SIGPIPE, IGNORE) };
}

/// Sends this process the signal that Ctrl-C does.
pub fn interrupt_this_process() -> io::Result<()> {
    let this = rustix::process::getpid();
    Ok(rustix::process::kill_process(this, rustix::process::Signal::INT)?)
}

/// The eventfd that [`on_termination`] writes to. It is never closed.
static ASKED: OnceLock<RawFd> = OnceLock::new();

/// The signals that ask this process to end, as an event. Processes that it starts get the signals as ever: what is caught
/// here is reset when another program is executed, which a blocked signal is not.
#[derive(Debug)]
pub struct Termination(());

impl Termination {
    /// From now on the signals do not end the process.
    pub fn catch() -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // If it is caught a second time, the first event serves for both and this one is closed.
        if ASKED.get().is_none() {
            let _ = ASKED.set(eventfd.into_raw_fd());
        }
        set_handlers(on_termination as *const () as usize)?;
        Ok(Self(()))
    }

    /// Waits until one of them has come. From then on they end the process at once, so that an impatient second Ctrl-C is
    /// obeyed.
    pub fn wait(self) -> io::Result<()> {
        let Some(asked) = asked() else { return Ok(()) };
        loop {
            match rustix::event::poll(&mut [PollFd::from_borrowed_fd(asked, PollFlags::IN)], None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        rustix::io::read(asked, &mut [0; 8])?;
        set_handlers(DEFAULT)
    }
}

fn asked() -> Option<BorrowedFd<'static>> {
    // SAFETY: the descriptor was open when it was put there, and nobody closes it.
    ASKED.get().map(|descriptor| unsafe { BorrowedFd::borrow_raw(*descriptor) })
}

/// Runs in the middle of anything: an atomic load and one system call, which does not touch `errno` as rustix makes it.
extern "C" fn on_termination(_: c_int) {
    if let Some(asked) = asked() {
        let _ = rustix::io::write(asked, &1_u64.to_ne_bytes());
    }
}

fn set_handlers(handler: usize) -> io::Result<()> {
    for number in TERMINATION {
        // SAFETY: the handler is one of the system's own, or `on_termination`, which may run at any instant.
        if unsafe { signal(number, handler) } == REFUSED {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_caught_can_be_waited_for() {
        let termination = Termination::catch().expect("caught");
        interrupt_this_process().expect("sent");
        termination.wait().expect("it has come");
        let again = Termination::catch().expect("caught again");
        interrupt_this_process().expect("sent");
        again.wait().expect("it has come again");
    }
}
