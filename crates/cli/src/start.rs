//! `aktis start`: the daemon in this process, or in one in the background.

use crate::arguments::Start;
use crate::failed::Failed;
use crate::{Restart, background, rows};
use aktis_cluster::{Daemon, DaemonConfig, Role, Termination};
use aktis_protocol::resources;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

/// What asks for the token on the standard input.
pub(crate) const FROM_INPUT: &str = "-";
/// Longer lines are no tokens.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Starts the daemon, and in the foreground waits for its end.
pub(crate) fn start(
    output: &mut dyn Write,
    arguments: Start,
    directory: PathBuf,
    given: &[OsString],
    restart: &Restart,
) -> Result<(), Failed> {
    let (detach, in_background) = (arguments.detach, arguments.background);
    let config = config(arguments, directory)?;
    match (in_background, detach) {
        (true, _) => background::run(config),
        (false, true) => {
            let words = background::start(&config, given, restart)?;
            output.write_all(words.as_bytes()).map_err(Failed::Output)
        }
        (false, false) => run(config, |words| {
            write!(output, "{words}\nit runs until Ctrl-C or `aktis stop`\n").and_then(|()| output.flush())
        }),
    }
}

/// Runs a daemon until it is stopped; `on_ready` is told what to print.
pub(crate) fn run(config: DaemonConfig, on_ready: impl FnOnce(&str) -> io::Result<()>) -> Result<(), Failed> {
    let system = |what| move |source| Failed::System { what, source };
    let directory = config.directory.clone();
    let termination = Termination::catch().map_err(system("to catch signals"))?;
    let daemon = Daemon::start(config)?;
    on_ready(&greeting(&daemon, &directory)).map_err(Failed::Output)?;
    let stopper = daemon.stopper();
    let wait = move || {
        // If it cannot wait for signals it must not ignore them either.
        if let Err(error) = termination.wait() {
            eprintln!("aktis: cannot wait for signals: {error}");
        }
        stopper.stop();
    };
    let thread = std::thread::Builder::new().name("aktis-signals".to_owned()).spawn(wait);
    thread.map_err(system("a thread"))?;
    daemon.wait();
    drop(daemon);
    Ok(())
}

fn greeting(daemon: &Daemon, directory: &std::path::Path) -> String {
    let mut words = format!("node {} runs in {}\n", rows::short(daemon.node()), directory.display());
    if let Some(address) = daemon.address() {
        let reach = if address.ip().is_loopback() { ", which only this machine can reach" } else { "" };
        let _ = writeln!(words, "it listens on {address}{reach}");
    }
    if let Some(command) = daemon.join_command() {
        let _ = writeln!(words, "to add a machine, run there:\n  {command}");
    }
    words
}

fn config(arguments: Start, directory: PathBuf) -> Result<DaemonConfig, Failed> {
    let role = match arguments.address {
        None => Role::Head,
        Some(address) => Role::Member { address, token: token(arguments.token)? },
    };
    let named = [
        (resources::CPU, arguments.cpus),
        (resources::GPU, arguments.gpus),
        (resources::MEMORY, arguments.memory),
    ];
    let named = named.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?)));
    Ok(DaemonConfig {
        directory,
        role,
        listen: arguments.listen,
        resources: named.chain(arguments.resources).collect(),
        labels: BTreeMap::from_iter(arguments.labels),
        store_bytes: arguments.store_bytes,
    })
}

/// The token as it was given, or the first line of the standard input.
fn token(given: Option<String>) -> Result<String, Failed> {
    let token = match given {
        Some(word) if word == FROM_INPUT => {
            let mut line = String::new();
            let mut input = io::stdin().lock().take(TOKEN_BYTES_MAX);
            input.read_line(&mut line).map_err(Failed::TokenInput)?;
            line
        }
        given => given.unwrap_or_default(),
    };
    let token = token.trim();
    if token.is_empty() { Err(Failed::NoToken) } else { Ok(token.to_owned()) }
}
