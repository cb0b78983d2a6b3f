//! A question before something is done that cannot be undone.

use crate::failed::Failed;
use aktis_protocol::text;
use std::io::{self, BufRead, IsTerminal, Write};

/// Asks on the terminal whether to go on; a command that has nobody to ask needs `--yes`.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Failed> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failed::Unconfirmed);
    }
    let mut errors = io::stderr();
    write!(errors, "{} [y/N] ", text::lines(question))
        .and_then(|()| errors.flush())
        .map_err(Failed::Output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failed::Answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failed::NotWanted),
    }
}
