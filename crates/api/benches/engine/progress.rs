//! One line on standard error that says what is going on; it stays out of the table.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};

/// Says what happens now. On a terminal it takes the place of what was said before.
pub(crate) fn say(what: Arguments<'_>) {
    let mut stderr = std::io::stderr().lock();
    let _ = if stderr.is_terminal() { write!(stderr, "\r\x1b[K{what}") } else { writeln!(stderr, "{what}") };
    let _ = stderr.flush();
}

/// Takes away what was said.
pub(crate) fn clear() {
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K");
    }
}
