//! What commands print, as one text that is compared with a file.

use crate::fixed::{Fixed, Served};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands, and what they have printed.
pub(crate) struct Transcript {
    parent: tempfile::TempDir,
    _served: Option<Served>,
    text: String,
    exit_codes: Vec<i32>,
}

impl Transcript {
    /// With nobody to ask.
    pub(crate) fn without_daemon() -> Self {
        let parent = tempfile::tempdir().expect("a directory");
        Self { parent, _served: None, text: String::new(), exit_codes: Vec::new() }
    }

    /// With somebody who answers from fixed data.
    pub(crate) fn with(fixed: Fixed) -> Self {
        let mut transcript = Self::without_daemon();
        transcript._served = Some(Served::start(&transcript.directory(), fixed));
        transcript
    }

    fn directory(&self) -> PathBuf {
        self.parent.path().join("aktis")
    }

    /// The command, without a word of what it is to do.
    pub(crate) fn command(&self) -> Command {
        aktis(&self.directory())
    }

    /// Runs a command, writes down what it prints, and returns its standard output.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("it runs");
        let code = output.status.code().expect("it was not killed");
        let directory = self.directory().display().to_string();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").replace(&directory, "DIRECTORY");
        let (printed, errors) = (text(output.stdout), text(output.stderr));
        let command = std::iter::once(&"aktis").chain(arguments).copied().collect::<Vec<_>>().join(" ");
        self.text += &format!("$ {command}\n{printed}");
        if !errors.is_empty() {
            self.text += &format!("-- standard error\n{errors}");
        }
        self.text += &if code == 0 { "\n".to_owned() } else { format!("-- exit code {code}\n\n") };
        self.exit_codes.push(code);
        printed
    }

    pub(crate) fn exit_codes(&self) -> &[i32] {
        &self.exit_codes
    }

    /// Compares all that was printed with a snapshot.
    pub(crate) fn compare(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
        if std::env::var_os("AKTIS_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &self.text).expect("written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = expected.lines().zip(self.text.lines()).enumerate();
        let differing = lines.find(|(_, (expected, actual))| expected != actual);
        assert!(
            expected == self.text,
            "{} has other words{}\nhint: if the new ones are meant, run with AKTIS_UPDATE_SNAPSHOTS=1\n\n{}",
            path.display(),
            differing.map_or(String::new(), |(index, (expected, actual))| {
                format!(", first in line {}:\n  expected: {expected}\n  actual:   {actual}", index + 1)
            }),
            self.text
        );
    }
}

/// The command, for the daemon in `directory`, and with nothing of this machine's settings.
pub(crate) fn aktis(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aktis"));
    command.env_clear().env("AKTIS_DIRECTORY", directory).stdin(Stdio::null());
    command
}
