//! A row in a process of its own: its memory is fresh, and its failure is its own.
//!
//! Invariants:
//! 1. The row's process writes its figures to its standard output and nothing else.
//! 2. A row that does not end is ended, and its workers with it.

use crate::Failure;
use crate::arguments::{ROW, Scale};
use crate::figure::Figure;
use crate::rows::{self, Row};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a row may take.
const ROW_TIME_MAX: Duration = Duration::from_secs(900);

/// Starts a process that measures the row, and gives its figures.
pub(crate) fn measure(row: &Row, scale: Scale) -> Result<Vec<Figure>, Failure> {
    let mut child = Command::new("/proc/self/exe")
        .args([ROW, row.name])
        .args(scale.argument())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().ok_or("its output is not a pipe")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let outcome = stdout.read_to_end(&mut bytes).map(|_| bytes);
        // Nobody listens any more if the time was over.
        let _ = sender.send(outcome);
    });
    let Ok(outcome) = receiver.recv_timeout(ROW_TIME_MAX) else {
        child.kill()?;
        child.wait()?;
        return Err(format!("not done after {} s", ROW_TIME_MAX.as_secs()).into());
    };
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("its process ended with {status}").into());
    }
    Ok(postcard::from_bytes(&outcome?)?)
}

/// Measures the row in this process, and writes its figures to standard output.
pub(crate) fn measure_here(name: &str, scale: Scale) -> Result<(), Failure> {
    die_with_parent()?;
    let row = rows::ALL.iter().find(|row| row.name == name).ok_or("there is no such row")?;
    let figures = (row.measure)(scale)?;
    std::io::stdout().write_all(&postcard::to_stdvec(&figures)?)?;
    Ok(())
}

/// Makes the kernel end this process when the one that started it ends.
pub(crate) fn die_with_parent() -> Result<(), Failure> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}
