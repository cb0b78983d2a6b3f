//! `aktis debug`: connects this terminal to a task that waits at a breakpoint.
//!
//! Workers of Python wait in a private directory of their user: for each waiting task there is a socket, and a file that says
//! which task it is (`python/aktis/_debugger.py`).

use crate::arguments::Form;
use crate::failed::Failed;
use crate::record::Record;
use crate::terminal::note;
use crate::{show, table};
use aktis_daemon::directory;
use clap::Args;
use serde::Deserialize;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

/// Breakpoints that are looked at.
const BREAKPOINTS_MAX: usize = 1000;
const PIECE_BYTES: usize = 4096;

/// Debug a task or call that waits at a breakpoint on this machine
#[derive(Args, Debug)]
#[command(after_help = "\
A task of Python waits at `breakpoint()` until this command connects to it. Then pdb reads commands
from here: `c` and the end of the input (Ctrl-D) let the task go on, `q` fails it. Only the user
whose task it is can connect.")]
pub(crate) struct Debug {
    /// The worker process in which the task waits [default: the only one in which one does]
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    /// Show which tasks wait, and connect to none
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    form: Form,
}

/// A task that waits.
#[derive(Debug, Deserialize)]
struct Breakpoint {
    pid: u32,
    task: Option<String>,
    name: String,
    place: String,
    #[serde(skip)]
    socket: PathBuf,
}

/// Does what was asked.
pub(crate) fn run(output: &mut dyn Write, wanted: Debug) -> Result<(), Failed> {
    let path = PathBuf::from(format!("/tmp/aktis-{}-breakpoints", rustix::process::geteuid().as_raw()));
    let mut found = if path.symlink_metadata().is_ok() { breakpoints(&path)? } else { Vec::new() };
    if wanted.list || wanted.form.json {
        return list(output, &found, wanted.form);
    }
    if let Some(pid) = wanted.pid {
        found.retain(|waiting| waiting.pid == pid);
    }
    match &found[..] {
        [] => Err(Failed::NoBreakpoint(wanted.pid)),
        [waiting] => attach(output, waiting),
        several => {
            list(output, several, wanted.form)?;
            Err(Failed::SeveralBreakpoints)
        }
    }
}

/// The tasks that wait, those that have waited for longest first. Files of processes that were killed are removed.
fn breakpoints(home: &Path) -> Result<Vec<Breakpoint>, Failed> {
    directory::prepare(home)?;
    let look = |source| Failed::System { what: "to list the breakpoints", source };
    let mut files = Vec::new();
    for entry in home.read_dir().map_err(look)?.take(BREAKPOINTS_MAX) {
        let path = entry.map_err(look)?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files.iter().filter_map(|file| read(file)).collect())
}

fn read(file: &Path) -> Option<Breakpoint> {
    let text = std::fs::read(file).ok()?;
    let socket = file.with_extension("socket");
    let waiting: Breakpoint = serde_json::from_slice(&text).ok()?;
    if Path::new(&format!("/proc/{}", waiting.pid)).exists() {
        return Some(Breakpoint { socket, ..waiting });
    }
    for left in [file, &socket] {
        // Another look may have removed it.
        let _ = std::fs::remove_file(left);
    }
    // Only if nothing is left in it.
    let _ = file.parent().map(std::fs::remove_dir);
    None
}

fn list(output: &mut dyn Write, found: &[Breakpoint], form: Form) -> Result<(), Failed> {
    let record = |waiting: &Breakpoint| {
        Record::default()
            .both("pid", "PID", waiting.pid)
            .both("name", "TASK", waiting.name.clone())
            .both("place", "PLACE", waiting.place.clone())
            .field("task", waiting.task.clone())
    };
    let records: Vec<Record> = found.iter().map(record).collect();
    if form.json {
        return show::json(output, &Record::default().records("breakpoints", records));
    }
    if records.is_empty() {
        note("no task waits at a breakpoint");
    }
    table::write(output, &records).map_err(Failed::Output)
}

/// Joins this terminal and the task, until one of both ends.
fn attach(output: &mut dyn Write, waiting: &Breakpoint) -> Result<(), Failed> {
    let refused = |source| Failed::System { what: "to connect to the task", source };
    let mut connection = UnixStream::connect(&waiting.socket).map_err(refused)?;
    note(&format!("{} in process {}; `h` lists commands, `c` lets it go on", waiting.name, waiting.pid));
    let mut commands = connection.try_clone().map_err(refused)?;
    // Not joined: it may wait for a line that nobody writes any more.
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut commands);
        let _ = commands.shutdown(Shutdown::Write);
    });
    let mut piece = [0; PIECE_BYTES];
    loop {
        match connection.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                output.write_all(&piece[..length]).and_then(|()| output.flush()).map_err(Failed::Output)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The task's process has ended with something unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(refused(error)),
        }
    }
}
