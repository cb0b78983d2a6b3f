//! A daemon in the background: this command once more, as a process of its own, and how it says that it is ready.
//!
//! Invariants:
//! 1. The command that starts it returns when the daemon is ready or has failed, and says which and why.
//! 2. The token is in no command line and no environment: it comes through the standard input.
//! 3. Afterwards nothing ties the daemon to the terminal, the pipes or the directory that it was started from.

use crate::failed::Failed;
use crate::{Restart, start};
use aktis_cluster::{DaemonConfig, Role, directory};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The first line of what the daemon says: all is well.
const READY: &str = "ready\n";
/// The first line of what the daemon says: it failed, and why follows.
const FAILED: &str = "failed\n";
/// It says no more than this.
const REPORT_BYTES_MAX: u64 = 64 * 1024;

/// Starts this command once more, waits until the daemon is ready, and returns what is to be printed.
pub(crate) fn start(config: &DaemonConfig, given: &[OsString], restart: &Restart) -> Result<String, Failed> {
    let system = |what| move |source| Failed::System { what, source };
    directory::prepare(&config.directory)?;
    let log = directory::open_log(&config.directory)?;
    let log_path = config.directory.join(directory::LOG_NAME);
    let mut command = Command::new(&restart.program);
    command.args(&restart.arguments).args(without_token(given)).arg("--background");
    let token = match &config.role {
        Role::Head => None,
        Role::Member { token, .. } => Some(token),
    };
    let input = match token {
        None => Stdio::null(),
        Some(_) => {
            command.args(["--token", start::FROM_INPUT]);
            Stdio::piped()
        }
    };
    command.stdin(input).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(system("another process"))?;
    if let (Some(token), Some(mut input)) = (token, child.stdin.take()) {
        // If it is gone already, the end of its output tells more than this error.
        let _ = writeln!(input, "{token}");
    }
    let mut report = String::new();
    let reported =
        child.stdout.take().expect("it is a pipe").take(REPORT_BYTES_MAX).read_to_string(&mut report);
    reported.map_err(system("to read what the daemon says"))?;
    if let Some(words) = report.strip_prefix(READY) {
        let (pid, log) = (child.id(), log_path.display());
        return Ok(format!("{words}it runs in the background as process {pid}; its log is {log}\n"));
    }
    let status = child.wait().map_err(system("to wait for the daemon"))?;
    match report.strip_prefix(FAILED) {
        Some(reason) => Err(Failed::Background(reason.trim_end().to_owned())),
        None => Err(Failed::BackgroundEnded { status: status.to_string(), log: log_path }),
    }
}

/// The arguments without the token.
fn without_token(given: &[OsString]) -> Vec<&OsStr> {
    let mut kept = Vec::new();
    let mut given = given.iter();
    while let Some(argument) = given.next() {
        if argument == "--token" {
            given.next();
        } else if !argument.as_encoded_bytes().starts_with(b"--token=") {
            kept.push(argument.as_os_str());
        }
    }
    kept
}

/// Runs the daemon in this process, which is the one in the background.
pub(crate) fn run(config: DaemonConfig) -> Result<(), Failed> {
    let outcome =
        leave_terminal(&config.directory).and_then(|()| start::run(config, |words| report(READY, words)));
    if let Err(failed) = &outcome {
        // After it was ready, this goes into the log as well.
        let _ = report(FAILED, &failed.to_string());
    }
    outcome
}

fn leave_terminal(directory: &Path) -> Result<(), Failed> {
    let system = |what| move |source| Failed::System { what, source };
    rustix::process::setsid().map_err(|error| system("a session of its own")(error.into()))?;
    directory::prepare(directory)?;
    std::env::set_current_dir(directory).map_err(system("to change the directory"))
}

/// Tells the command that waits, and lets go of its pipe: from now on, the standard output goes into the log too.
fn report(first_line: &str, words: &str) -> io::Result<()> {
    let mut output = io::stdout();
    output.write_all(first_line.as_bytes())?;
    output.write_all(words.as_bytes())?;
    output.flush()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_in_no_command_line() {
        let given = |words: &str| words.split(' ').map(OsString::from).collect::<Vec<_>>();
        for words in ["start --address a:1 --token T --detach", "start --token=T --address a:1 --detach"] {
            assert_eq!(without_token(&given(words)), ["start", "--address", "a:1", "--detach"]);
        }
    }
}
