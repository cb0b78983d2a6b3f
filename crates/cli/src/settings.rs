//! The configuration file of `aktis start`: its options, one in a line, without the dashes before them.
//!
//! Invariants:
//! 1. The file says nothing that the command line could not: its lines become options before they are parsed.
//! 2. An option on the command line takes the place of the same option in the file.
//! 3. An error in the file names the file and the line.

use crate::arguments::Arguments;
use crate::failed::Failed;
use clap::{ArgAction, Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longer files are no configuration.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Options that a file cannot have: they are about one command, not about the daemon.
const NOT_IN_FILES: [&str; 5] = ["config", "background", "help", "version", "json"];

/// The options that a file adds to those of a command line.
pub(crate) fn options_of(file: &Path, given: &[OsString]) -> Result<Vec<OsString>, Failed> {
    let text = read(file)?;
    let root = Arguments::command();
    let start = root.find_subcommand("start").expect("there is such a command");
    let mut options = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: String| Failed::Settings { file: file.to_owned(), line: number, what };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let (name, value) = (name.trim(), value.trim());
        let Some(option) = option(&root, start, name, value).map_err(wrong)? else { continue };
        if !is_given(given, name) {
            check(name, &option).map_err(wrong)?;
            options.push(option);
        }
    }
    Ok(options)
}

fn read(file: &Path) -> Result<String, Failed> {
    let unread = |source| Failed::SettingsFile { file: file.to_owned(), source };
    let mut text = String::new();
    File::open(file).map_err(unread)?.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(unread)?;
    Ok(text)
}

/// The option that a line means; none if it switches one off.
fn option(root: &Command, start: &Command, name: &str, value: &str) -> Result<Option<OsString>, String> {
    let all = || {
        let all = start.get_arguments().chain(root.get_arguments());
        all.filter(|argument| !argument.is_hide_set())
            .filter_map(|argument| Some((argument.get_long()?, argument)))
            .filter(|(long, _)| !NOT_IN_FILES.contains(long))
    };
    let Some((_, argument)) = all().find(|(long, _)| *long == name) else {
        let known: Vec<&str> = all().map(|(long, _)| long).collect();
        return Err(format!("there is no option `{name}`\nhint: there are {}", known.join(", ")));
    };
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
    match (is_switch, value) {
        (true, "true") => Ok(Some(format!("--{name}").into())),
        (true, "false") => Ok(None),
        (true, _) => Err(format!("`{name}` must be true or false, got `{value}`")),
        (false, "") => Err(format!("`{name}` needs a value\nhint: write `{name} = VALUE`")),
        (false, value) => Ok(Some(format!("--{name}={value}").into())),
    }
}

/// Whether the command line has the option itself. Those that can be repeated are added to.
fn is_given(given: &[OsString], name: &str) -> bool {
    let is_it = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        let rest = argument.strip_prefix("--").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    !matches!(name, "resource" | "label") && given.iter().any(is_it)
}

/// Refuses a value that the option does not take, with the words of the command line.
fn check(name: &str, option: &OsString) -> Result<(), String> {
    let role = if name == "address" || name == "token" { "--address=h:1" } else { "--head" };
    let mut words: Vec<OsString> = ["aktis", "start"].map(OsString::from).into();
    words.extend((name != "address" && name != "head").then(|| role.into()));
    words.push(option.clone());
    match Arguments::try_parse_from(words) {
        Err(error) if error.kind() != clap::error::ErrorKind::ArgumentConflict => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        }
        _ => Ok(()),
    }
}

/// A command line with the options of its configuration file in the place of that file, if it names one.
pub(crate) fn expand(given: &[OsString]) -> Result<Vec<OsString>, Failed> {
    let mut expanded = Vec::with_capacity(given.len());
    let mut arguments = given.iter();
    let mut file = None;
    // Another command has no such option, which its parser says.
    if !given.iter().any(|argument| argument == "start") {
        return Ok(given.to_vec());
    }
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--config") => file = arguments.next().cloned(),
            Some(text) if text.starts_with("--config=") => file = Some(text["--config=".len()..].into()),
            _ => expanded.push(argument.clone()),
        }
    }
    if let Some(file) = file {
        let options = options_of(Path::new(&file), &expanded)?;
        expanded.extend(options);
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str, given: &[&str]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("aktis.conf");
        std::fs::write(&file, text).unwrap();
        let mut words: Vec<OsString> = ["start", "--config"].map(OsString::from).into();
        words.push(file.clone().into());
        words.extend(given.iter().map(OsString::from));
        let text =
            |options: Vec<OsString>| options.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let place = file.display().to_string();
        expand(&words).map(text).map_err(|failed| failed.to_string().replace(&place, "FILE"))
    }

    #[test]
    fn lines_become_options_unless_the_command_line_has_them() {
        let text =
            "# the head\nhead = true\ndetach=false\n\n  cpus = 0\nlabel = zone=a\nstore-bytes = 1GiB\n";
        let all = expanded(text, &[]).unwrap();
        assert_eq!(all, ["start", "--head", "--cpus=0", "--label=zone=a", "--store-bytes=1GiB"]);
        let less = expanded(text, &["--cpus", "4", "--label=disk=fast", "--head"]).unwrap();
        let expected =
            ["start", "--cpus", "4", "--label=disk=fast", "--head", "--label=zone=a", "--store-bytes=1GiB"];
        assert_eq!(less, expected);
        assert_eq!(expanded("address = head:6388\n", &[]).unwrap(), ["start", "--address=head:6388"]);
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (text, expected) in [
            (
                "head = true\ncpu = 4\n",
                "FILE, line 2: there is no option `cpu`\nhint: there are head, address, ",
            ),
            ("head = yes", "FILE, line 1: `head` must be true or false, got `yes`"),
            ("\ncpus =", "FILE, line 2: `cpus` needs a value"),
            ("cpus = -1", "FILE, line 1: invalid value '-1' for '--cpus <NUMBER>'"),
            ("address = nowhere", "FILE, line 1: invalid value 'nowhere' for '--address <HOST:PORT>'"),
            ("config = other", "FILE, line 1: there is no option `config`"),
        ] {
            let told = expanded(text, &[]).unwrap_err();
            assert!(told.starts_with(expected), "{told}");
        }
        let missing = expand(&["start", "--config=/no/such/file"].map(OsString::from)).unwrap_err();
        assert!(missing.to_string().starts_with("cannot read /no/such/file: "), "{missing}");
    }
}
