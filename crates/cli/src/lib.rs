//! The command `aktis`: start, look at and end a cluster.
//!
//! It is a library with one function, so that other programs than its own can be this command too.
//!
//! Invariants:
//! 1. What was asked for goes to standard output, all else to standard error.
//! 2. The exit code is 0 if it was done, 1 if it failed, 2 if the command line makes no sense.
//! 3. Every error says what to do about it, where anything can be done.

mod archive;
mod arguments;
mod background;
mod backup;
mod confirm;
mod debug;
mod drain;
mod failed;
mod greeting;
mod head;
mod kv;
mod notify;
mod record;
mod rows;
mod settings;
mod show;
mod start;
mod status;
mod table;
mod terminal;
mod trust;
mod values;

use aktis_daemon::admin::Client;
use aktis_daemon::{directory, journal};
use arguments::{Arguments, Command, Form};
use clap::{CommandFactory, Parser};
use failed::Failed;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use terminal::Screen;

/// How to start this command once more: a daemon in the background is a process of its own.
#[derive(Clone, Debug)]
pub struct Restart {
    /// The program.
    pub program: OsString,
    /// What it is given before the arguments of the command.
    pub arguments: Vec<OsString>,
}

impl Restart {
    /// For a program that is nothing but this command.
    pub fn this_program() -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?.into(), arguments: Vec::new() })
    }
}

/// Does what the arguments say, of which the first is the name of the program; gives the exit code.
pub fn run(arguments: Vec<OsString>, restart: &Restart) -> u8 {
    let (program, given) = arguments.split_at(arguments.len().min(1));
    let given = match settings::expand(given) {
        Ok(given) => given,
        Err(failed) => {
            terminal::note(&format!("error: {failed}"));
            return failed.exit_code();
        }
    };
    let arguments = match Arguments::try_parse_from(program.iter().chain(&given)) {
        Ok(arguments) => arguments,
        Err(usage) => {
            // Help goes to standard output, mistakes to standard error; if that is closed, nobody wants to know.
            let _ = usage.print();
            return if usage.use_stderr() { 2 } else { 0 };
        }
    };
    let in_background = given.iter().any(|argument| argument == "--background");
    match carry_out(arguments, &given, restart) {
        Ok(()) => 0,
        // Whoever read our output has enough of it.
        Err(Failed::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(failed) if in_background => {
            journal::error(&failed);
            failed.exit_code()
        }
        Err(failed) => {
            terminal::note(&format!("error: {failed}"));
            failed.exit_code()
        }
    }
}

fn carry_out(arguments: Arguments, given: &[OsString], restart: &Restart) -> Result<(), Failed> {
    let directory = absolute(arguments.directory.unwrap_or_else(directory::default_directory))?;
    let connect = || Client::connect(&directory);
    let connect_to_control = || Client::connect_to_control(&directory);
    // Not locked: a daemon in this process may print as well, on other threads.
    let mut output = Screen::new(io::BufWriter::new(io::stdout()));
    match arguments.command {
        Command::Start(arguments) => start::start(&mut output, *arguments, directory, given, restart)?,
        Command::Status(form) => {
            let status = connect()?.status()?;
            status::show(&mut output, &status, form)?;
            output.flush().map_err(Failed::Output)?;
            status::health(&status)?;
        }
        Command::List(arguments) => {
            let form = arguments.form;
            let query = arguments.query()?;
            show::listing(&mut output, connect()?.list(query)?, form)?;
        }
        Command::Explain { id, form } => {
            let text = connect()?.explain(id.clone())?;
            show::explanation(&mut output, &id, &text, form)?;
        }
        Command::Logs(arguments) => {
            let form = Form { json: arguments.json };
            show::logs(&mut output, connect()?, arguments.query(), form)?;
        }
        Command::Kv(arguments) => kv::run(&mut output, connect()?, arguments.command)?,
        Command::Token(arguments) => trust::token(&mut output, connect_to_control()?, arguments)?,
        Command::Nodes(arguments) => trust::nodes(&mut output, connect_to_control()?, arguments.command)?,
        Command::Rotate(arguments) => trust::rotate(&mut output, connect_to_control()?, arguments.form)?,
        Command::Audit(arguments) => trust::audit(&mut output, connect_to_control()?, arguments)?,
        Command::Kill(arguments) => {
            let form = arguments.form;
            show::killed(&mut output, &connect()?.kill(arguments.order())?, form)?;
        }
        Command::Drain(wanted) => drain::run(&mut output, connect, wanted)?,
        Command::Debug(wanted) => debug::run(&mut output, wanted)?,
        Command::Stop { cluster, patience, form } => {
            show::stop(&mut output, &directory, cluster, patience, form)?;
        }
        Command::Backup { file, form } => backup::backup(&mut output, &directory, &absolute(file)?, form)?,
        Command::Restore { file, form } => backup::restore(&mut output, &directory, &absolute(file)?, form)?,
        Command::Completions { shell } => {
            // Not to the screen, which has no tabs: nothing in it comes from others.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "aktis", &mut script);
            io::stdout().write_all(&script).map_err(Failed::Output)?;
        }
    }
    output.flush().map_err(Failed::Output)
}

fn absolute(path: PathBuf) -> Result<PathBuf, Failed> {
    std::path::absolute(&path).map_err(|source| Failed::Path { path, source })
}
