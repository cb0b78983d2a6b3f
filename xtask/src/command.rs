//! Child processes: started in the workspace, their output passed on as it comes.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// A `cargo` command in the workspace, without standard input.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// Runs the command with our own standard output and error; whether it succeeded.
pub(crate) fn run(mut command: Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: could not start {}: {error}", command.get_program().display());
            false
        }
    }
}

/// Runs the command, passes its output on line by line and shows each line to `look`; whether it succeeded.
pub(crate) fn run_watched(mut command: Command, look: impl FnMut(&str) + Send) -> bool {
    // The child writes into a pipe, and would leave out the colours that our own terminal can show.
    if std::io::stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("error: could not start {}: {error}", command.get_program().display());
            return false;
        }
    };
    let look = Mutex::new(look);
    let output = child.stdout.take().expect("the output is piped");
    let errors = child.stderr.take().expect("the errors are piped");
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(output, std::io::stdout(), &look));
        scope.spawn(|| pass_on(errors, std::io::stderr(), &look));
    });
    child.wait().is_ok_and(|status| status.success())
}

fn pass_on(from: impl Read, mut to: impl Write, look: &Mutex<impl FnMut(&str)>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        // If nobody reads our output any more, the child's must still be drained, or it would block.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = without_colours(&String::from_utf8_lossy(&line));
        (look.lock().expect("no reader panicked"))(text.trim_end());
        line.clear();
    }
}

/// The text without terminal escape sequences.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
            continue;
        }
        // An escape sequence ends with its first letter.
        characters.by_ref().find(char::is_ascii_alphabetic);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_watched_command_shows_both_streams_and_its_end() {
        let mut lines = Vec::new();
        assert!(run_watched(shell("echo one; echo two >&2"), |line| lines.push(line.to_owned())));
        lines.sort();
        assert_eq!(lines, ["one", "two"]);
        assert!(!run_watched(shell("exit 3"), |_| ()));
        assert!(!run_watched(Command::new("no-such-program"), |_| ()));
    }

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(without_colours("\u{1b}[32;1m  Summary\u{1b}[0m [1s]"), "  Summary [1s]");
    }
}
