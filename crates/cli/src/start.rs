//! `aktis start`: the daemon in this process, or in one in the background.

use crate::arguments::{HideWhen, Start};
use crate::failed::Failed;
use crate::greeting::Greeting;
use crate::{Restart, background, head, notify, show};
use aktis_daemon::journal;
use aktis_daemon::{Daemon, DaemonConfig, HideControl, Role, Stopper, Termination};
use aktis_protocol::resources;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

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
    let (detach, in_background, form) = (arguments.detach, arguments.background, arguments.form);
    let (node_port, node_timeout) = (arguments.node_port.unwrap_or(0), arguments.node_timeout);
    let config = config(arguments, directory)?;
    let directory = config.directory.clone();
    if detach && !in_background {
        let arguments: Vec<&OsStr> = given.iter().map(AsRef::as_ref).collect();
        let (greeting, child) = background::start(&config, &arguments, restart)?;
        let (pid, log) = (child.id(), directory.join(aktis_daemon::directory::LOG_NAME));
        if form.json {
            return show::json(output, &greeting.record(pid));
        }
        let where_to = format!("it runs in the background as process {pid}; its log is {}\n", log.display());
        return write!(output, "{}{where_to}", greeting.text()).map_err(Failed::Output);
    }
    let notice: fn(&str) = if in_background { background::notice } else { |words| journal::warn(words) };
    let run = |on_ready: &mut dyn FnMut(&Greeting) -> io::Result<()>| match config.role {
        Role::Head => head::run(&config, node_port, node_timeout, given, restart, on_ready, notice),
        Role::Member { .. } | Role::Returning { .. } => run(config, on_ready, notice),
    };
    match in_background {
        true => background::run(&directory, |mut report| run(&mut report)),
        false => run(&mut |greeting| {
            if form.json {
                let record = greeting.record(std::process::id());
                show::json(output, &record).map_err(io::Error::other)?;
            } else {
                write!(output, "{}\nit runs until Ctrl-C or `aktis stop`\n", greeting.text())?;
            }
            output.flush()?;
            notify::tell("READY=1");
            Ok(())
        }),
    }
}

/// Runs a daemon until it is stopped; `on_ready` is told what to print, and `notice` what it waits for before.
pub(crate) fn run(
    config: DaemonConfig,
    on_ready: impl FnOnce(&Greeting) -> io::Result<()>,
    notice: fn(&str),
) -> Result<(), Failed> {
    journal::begin("node");
    let directory = config.directory.clone();
    let stopper = Arc::new(OnceLock::<Stopper>::new());
    let stop = stopper.clone();
    on_termination(move || match stop.get() {
        Some(stopper) => stopper.stop(),
        // It is about to start, or waits for the control process of its cluster: there is nothing to end.
        None => std::process::exit(1),
    })?;
    let daemon = Daemon::start_with(config, notice)?;
    let _ = stopper.set(daemon.stopper());
    daemon.keep_journal();
    journal::info(format_args!("{} started, version {}", daemon.node(), env!("CARGO_PKG_VERSION")));
    let (node, address) = (daemon.node(), daemon.address());
    on_ready(&Greeting { node, directory, address, control: None }).map_err(Failed::Output)?;
    daemon.wait();
    journal::info("it ends");
    notify::tell("STOPPING=1");
    drop(daemon);
    Ok(())
}

/// Does something when a signal asks this process to end.
pub(crate) fn on_termination(ask: impl FnOnce() + Send + 'static) -> Result<(), Failed> {
    let system = |what| move |source| Failed::System { what, source };
    let termination = Termination::catch().map_err(system("to catch signals"))?;
    let wait = move || {
        // If it cannot wait for signals it must not ignore them either.
        if let Err(error) = termination.wait() {
            journal::warn(format_args!("cannot wait for signals: {error}"));
        }
        ask();
    };
    let thread = std::thread::Builder::new().name("aktis-signals".to_owned()).spawn(wait);
    thread.map(|_| ()).map_err(system("a thread"))
}

fn config(arguments: Start, directory: PathBuf) -> Result<DaemonConfig, Failed> {
    let role = match arguments.address {
        None => Role::Head,
        Some(address) if arguments.token.is_none() && aktis_daemon::can_return(&directory) => {
            Role::Returning { address }
        }
        Some(address) => Role::Member { address, token: token(arguments.token)? },
    };
    let named = [
        (resources::CPU, arguments.cpus),
        (resources::GPU, arguments.gpus),
        (resources::MEMORY, arguments.memory),
    ];
    let mut resources = once("--resource", arguments.resources)?;
    resources.extend(named.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))));
    Ok(DaemonConfig {
        directory,
        role,
        listen: arguments.listen,
        resources,
        labels: once("--label", arguments.labels)?,
        store_bytes: arguments.store_bytes,
        spill_directory: arguments.spill_directory,
        spill_bytes_max: arguments.spill_bytes,
        hide_control: match arguments.hide_control {
            HideWhen::Auto => HideControl::Auto,
            HideWhen::Always => HideControl::Always,
            HideWhen::Never => HideControl::Never,
        },
    })
}

/// What an option that can be repeated has said, about each thing once.
fn once<Value>(option: &'static str, pairs: Vec<(String, Value)>) -> Result<BTreeMap<String, Value>, Failed> {
    let mut said = BTreeMap::new();
    for (name, value) in pairs {
        match said.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(entry) => return Err(Failed::Repeated { option, name: entry.key().clone() }),
        }
    }
    Ok(said)
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
