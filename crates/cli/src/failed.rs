//! Why a command was not done.

use aktis_daemon::admin::ClientError;
use aktis_daemon::{ControlError, DaemonError, DirectoryError};
use std::io;
use std::path::PathBuf;

/// Why a command was not done, as its user is told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(
        "node {node} has left at its deadline, and not all was done: {left}\n\
         hint: what ran there runs again elsewhere, if it may; a longer --deadline waits for it"
    )]
    NotDrained { node: String, left: String },
    #[error(
        "node {node} is gone: {reason}\nhint: it did not leave by itself; `aktis explain {node}` says more"
    )]
    LostWhileDrained { node: String, reason: String },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot print the answer: {0}")]
    Output(io::Error),
    #[error("{} is no path: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error("{0} have no {1}\nhint: leave out {2}")]
    NoSuchFilter(&'static str, &'static str, &'static str),
    #[error("{what} are never `{word}`\nhint: they are {}", words.join(", "))]
    NoSuchState { what: &'static str, word: String, words: &'static [&'static str] },
    #[error("{what} have no field `{field}`\nhint: they have {}", fields.join(", "))]
    NoSuchField { what: &'static str, field: String, fields: &'static [&'static str] },
    #[error("{}, line {line}: {what}", file.display())]
    Settings { file: PathBuf, line: u32, what: String },
    #[error("cannot read {}: {source}\nhint: --config names a file with options of `aktis start`", file.display())]
    SettingsFile { file: PathBuf, source: io::Error },
    #[error(
        "no control process was ever started in {}\nhint: run this on the head's machine, with its --directory",
        .0.display()
    )]
    NoControl(PathBuf),
    #[error("cannot write the backup {}: {source}\nhint: name a file that does not exist, with room for it", file.display())]
    Backup { file: PathBuf, source: io::Error },
    #[error("cannot restore from {}: {source}\nhint: name a file that `aktis backup` has written", file.display())]
    Restore { file: PathBuf, source: io::Error },
    #[error(
        "there is something in {} already\nhint: name another --directory; a cluster that is there would be lost",
        .0.display()
    )]
    NotEmpty(PathBuf),
    #[error("{option} names {name} more than once\nhint: give it once, with the value that you mean")]
    Repeated { option: &'static str, name: String },
    #[error("there is no key {0}\nhint: `aktis kv list` shows which there are")]
    NoSuchKey(String),
    #[error("nobody can be asked whether that is wanted: this is no terminal\nhint: give --yes")]
    Unconfirmed,
    #[error("nothing was done")]
    NotWanted,
    #[error("cannot read the answer: {0}")]
    Answer(io::Error),
    #[error(
        "no task waits at a breakpoint{}\nhint: `aktis debug --list` shows those of this user on this machine",
        .0.map_or(String::new(), |pid| format!(" in process {pid}"))
    )]
    NoBreakpoint(Option<u32>),
    #[error("several tasks wait at breakpoints\nhint: name the process of one: `aktis debug PID`")]
    SeveralBreakpoints,
    #[error("no token was given\nhint: `aktis token` prints one, on the machine of the head")]
    NoToken,
    #[error("cannot read the token from the standard input: {0}")]
    TokenInput(io::Error),
    #[error("the system refused {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("{0}\nhint: `aktis logs --since 10m` has what the nodes that answer say about it")]
    Unwell(String),
    /// What the daemon in the background said itself.
    #[error("{0}")]
    Background(String),
    #[error("the daemon ended before it was ready: {status}\nhint: its log is {}", log.display())]
    BackgroundEnded { status: String, log: PathBuf },
    #[error(
        "the daemon has not ended within {} s\nhint: wait for longer with --timeout; its log is {}",
        seconds, log.display()
    )]
    StillThere { seconds: u64, log: PathBuf },
}

impl Failed {
    /// 2 if the command line makes no sense, 3 if the cluster is not well, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NoSuchFilter(..)
            | Self::NoSuchState { .. }
            | Self::NoSuchField { .. }
            | Self::Repeated { .. }
            | Self::Settings { .. }
            | Self::SettingsFile { .. }
            | Self::Unconfirmed
            | Self::NoToken => 2,
            Self::Unwell(_) => 3,
            _ => 1,
        }
    }
}
