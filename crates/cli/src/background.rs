//! A daemon in the background: this command once more, as a process of its own, and how it says that it is ready.
//!
//! Invariants:
//! 1. The command that starts it returns when the daemon is ready or has failed, and says which and why.
//! 2. The token is in no command line and no environment: it comes through the standard input.
//! 3. Afterwards nothing ties the daemon to the terminal, the pipes or the directory that it was started from.
//! 4. If the command that waits ends before the daemon is ready, so does the daemon: nobody knows of it.
//! 5. The log does not grow beyond its bound, however long the daemon runs.

use crate::failed::Failed;
use crate::greeting::Greeting;
use crate::{Restart, start, terminal};
use aktis_daemon::journal;
use aktis_daemon::{DaemonConfig, Role, directory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The line before what the daemon says when all is well.
const READY: &str = "ready\n";
/// The line before what the daemon says when it has failed.
const FAILED: &str = "failed\n";
/// What lines begin with that come before.
const NOTICE: &str = "notice ";
/// It says no more than this.
const REPORT_BYTES_MAX: u64 = 64 * 1024;
/// How often the daemon looks whether the command that waits is there, and how long its log is.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// Starts this command once more with these arguments, and waits until the daemon is ready; gives what it says.
pub(crate) fn start(
    config: &DaemonConfig,
    arguments: &[&OsStr],
    restart: &Restart,
) -> Result<(Greeting, Child), Failed> {
    let system = |what| move |source| Failed::System { what, source };
    directory::prepare(&config.directory)?;
    let log = directory::open_log(&config.directory)?;
    let log_path = config.directory.join(directory::LOG_NAME);
    let mut command = Command::new(&restart.program);
    // It does not stay where this process is: paths are given to it whole.
    let given = without(arguments, &["--json"], &["--token", "--directory", "--spill-directory"]);
    command.args(&restart.arguments).args(given).arg("--background");
    command.arg("--directory").arg(&config.directory);
    if let Some(spill_directory) = &config.spill_directory {
        command.arg("--spill-directory").arg(spill_directory);
    }
    let token = match &config.role {
        Role::Head | Role::Returning { .. } => None,
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
    let report = child.stdout.take().expect("it is a pipe").take(REPORT_BYTES_MAX);
    let (first_line, words) = read(BufReader::new(report)).map_err(system("to read what the daemon says"))?;
    if first_line == READY {
        return Ok((Greeting::from_line(&words)?, child));
    }
    let status = child.wait().map_err(system("to wait for the daemon"))?;
    match first_line.as_str() {
        FAILED => Err(Failed::Background(words.trim_end().to_owned())),
        _ => Err(Failed::BackgroundEnded { status: status.to_string(), log: log_path }),
    }
}

/// How the daemon fares, in one line, and what it says then. Its notices are passed on as they come.
fn read(mut report: impl BufRead) -> io::Result<(String, String)> {
    let mut line = String::new();
    loop {
        line.clear();
        report.read_line(&mut line)?;
        let Some(notice) = line.strip_prefix(NOTICE) else { break };
        terminal::note(notice.trim_end_matches('\n'));
    }
    let mut words = String::new();
    report.read_to_string(&mut words)?;
    Ok((line, words))
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
    run: impl FnOnce(fn(&Greeting) -> io::Result<()>) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let outcome = leave_terminal(directory)
        .and_then(|()| watch(directory))
        .and_then(|()| run(|greeting| report(READY, &greeting.to_line())));
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

/// Tells the command that waits what this process waits for.
pub(crate) fn notice(words: &str) {
    journal::warn(words);
    let lines: String = words.lines().map(|line| format!("{NOTICE}{line}\n")).collect();
    let mut output = io::stdout();
    // If nobody reads it, this process ends.
    let _ = output.write_all(lines.as_bytes()).and_then(|()| output.flush());
}

/// Ends this process if the command that waits for it ends, and keeps its log short.
fn watch(directory: &Path) -> Result<(), Failed> {
    let directory = directory.to_owned();
    let thread = std::thread::Builder::new().name("aktis-background".to_owned());
    let spawned = thread.spawn(move || keep_watch(&directory));
    spawned.map(|_| ()).map_err(|source| Failed::System { what: "a thread", source })
}

fn keep_watch(directory: &Path) {
    let mut log_failed = false;
    loop {
        std::thread::sleep(WATCH_AGAIN);
        if is_given_up() {
            journal::warn(format_args!(
                "the command that waited for this process has ended, and so does this process"
            ));
            // As if it were told to: who has begun something ends it first.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
            return;
        }
        let bounded = directory::bound_log(directory);
        if let Err(error) = &bounded
            && !log_failed
        {
            journal::warn(error);
        }
        log_failed = bounded.is_err();
    }
}

/// Whether nobody reads what this process reports. When it is ready, that is no pipe any more.
fn is_given_up() -> bool {
    let mut output = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut output, Some(&at_once)).is_ok() && output[0].revents().contains(PollFlags::ERR)
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
