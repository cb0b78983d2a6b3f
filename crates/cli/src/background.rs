//! A daemon in the background: this command once more, as a process of its own, and how it says that it is ready.
//!
//! Invariants:
//! 1. The command that starts it returns when the daemon is ready or has failed, and says which and why.
//! 2. The token is in no command line and no environment: it comes through the standard input.
//! 3. Afterwards nothing ties the daemon to the terminal, the pipes or the directory that it was started from.

use crate::failed::Failed;
use crate::{Restart, start};
use aktis_cluster::{DaemonConfig, Role, directory};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The first line of what the daemon says: all is well.
const READY: &str = "ready\n";
/// The first line of what the daemon says: it failed, and why follows.
const FAILED: &str = "failed\n";
/// It says no more than this.
const REPORT_BYTES_MAX: u64 = 64 * 1024;

/// Starts this command once more with these arguments, and waits until the daemon is ready; gives what it says.
pub(crate) fn start(
    config: &DaemonConfig,
    arguments: &[&OsStr],
    restart: &Restart,
) -> Result<(String, Child), Failed> {
    let system = |what| move |source| Failed::System { what, source };
    directory::prepare(&config.directory)?;
    let log = directory::open_log(&config.directory)?;
    let log_path = config.directory.join(directory::LOG_NAME);
    let mut command = Command::new(&restart.program);
    // It does not stay where this process is: paths are given to it whole.
    let given = without(arguments, &[], &["--token", "--directory", "--spill-directory"]);
    command.args(&restart.arguments).args(given).arg("--background");
    command.arg("--directory").arg(&config.directory);
    if let Some(spill_directory) = &config.spill_directory {
        command.arg("--spill-directory").arg(spill_directory);
    }
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
        return Ok((words.to_owned(), child));
    }
    let status = child.wait().map_err(system("to wait for the daemon"))?;
    match report.strip_prefix(FAILED) {
        Some(reason) => Err(Failed::Background(reason.trim_end().to_owned())),
        None => Err(Failed::BackgroundEnded { status: status.to_string(), log: log_path }),
    }
}

/// Arguments without some: flags, and options with their values.
pub(crate) fn without<'a>(
    given: &'a [impl AsRef<OsStr>],
    flags: &[&str],
    options: &[&str],
) -> Vec<&'a OsStr> {
    let is_set = |argument: &OsStr, option: &str| {
        argument.as_encoded_bytes().strip_prefix(option.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    let mut kept = Vec::new();
    let mut given = given.iter().map(AsRef::as_ref);
    while let Some(argument) = given.next() {
        if options.iter().any(|option| argument == *option) {
            given.next();
        } else if !flags.iter().any(|flag| argument == *flag)
            && !options.iter().any(|option| is_set(argument, option))
        {
            kept.push(argument);
        }
    }
    kept
}

/// Runs `run` in this process, which is the one in the background; it is given what tells the command that waits.
pub(crate) fn run(
    directory: &Path,
    run: impl FnOnce(fn(&str) -> io::Result<()>) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let outcome = leave_terminal(directory).and_then(|()| run(|words| report(READY, words)));
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
    use std::ffi::OsString;

    #[test]
    fn the_token_is_in_no_command_line() {
        let given = |words: &str| words.split(' ').map(OsString::from).collect::<Vec<_>>();
        for words in ["start --address a:1 --token T --detach", "start --token=T --address a:1 --detach"] {
            assert_eq!(without(&given(words), &[], &["--token"]), ["start", "--address", "a:1", "--detach"]);
        }
    }
}
