//! Programs that behave with Aktis as they do with Ray: all of them, beside Ray itself where that is installed.

use crate::{Failed, command, python};
use std::path::Path;

const HELP: &str = "\
Run the programs below python/tests/compat/programs with Aktis, and compare what they report with what Ray does.

usage: cargo xtask compat [--ray-python PATH [--record]] [PROGRAM ...]

  --ray-python PATH   a Python that has Ray; without, the outcomes on record count
  --record            write down what Ray does

The package has to be installed: see `cargo xtask python`. Differences that are known, with their reasons, are
in python/tests/compat/compare.py.";

/// Compares the programs.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    let unknown = arguments.iter().find(|argument| {
        argument.starts_with('-') && !matches!(argument.as_str(), "--ray-python" | "--record")
    });
    if let Some(unknown) = unknown {
        return Err(Failed::Usage(format!(
            "`compat` does not know `{unknown}`\nhint: see `cargo xtask compat --help`"
        )));
    }
    let mut words = vec!["python/tests/compat/compare.py"];
    words.extend(arguments.iter().map(String::as_str));
    if command::run(python::python(root, &words)) { Ok(()) } else { Err(Failed::Check) }
}
