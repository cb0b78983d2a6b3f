//! The command line of the benchmark.

use crate::Failure;
use crate::rows::Row;
use std::path::PathBuf;

/// The first argument of a process that measures one row.
pub(crate) const ROW: &str = "--measure-row";
/// The first argument of a process that keeps a namespace.
pub(crate) const HOLD: &str = "--hold-namespace";
/// The first argument of a process that enters a namespace and becomes another program.
pub(crate) const ENTER: &str = "--enter-namespace";
/// The first argument of the answering end of plain TCP round trips.
pub(crate) const ECHO: &str = "--tcp-echo";
/// The first argument of the asking end.
pub(crate) const ASK: &str = "--tcp-ask";
/// The first argument of a process that reads what is on the wire.
pub(crate) const CAPTURE: &str = "--capture";

const HELP: &str = "\
Measure a cluster on this machine, its nodes being network namespaces. It has to run as root.

usage: cargo bench -p aktis-cli --bench cluster -- [--quick] [--json FILE] [FILTER...]

  --quick        smaller numbers: a look, not a figure to quote
  --json FILE    also write the figures to FILE, one object in each line
  FILTER...      only the rows whose names contain one of these

environment:
  AKTIS_BENCH_PYTHON    an interpreter that has the package `aktis`, for the row that needs it
  AKTIS_BENCH_PLOTS     a folder into which plots are written";

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// A look.
    Quick,
    /// The figures that are quoted.
    Usual,
}

impl Scale {
    /// One of two amounts: the first for a look.
    pub(crate) fn pick<T>(self, quick: T, usual: T) -> T {
        if self == Self::Quick { quick } else { usual }
    }

    /// The argument that stands for it.
    pub(crate) fn argument(self) -> Option<&'static str> {
        (self == Self::Quick).then_some("--quick")
    }
}

/// What this process is to do.
pub(crate) enum Part {
    /// Go through the rows.
    Table(Arguments),
    /// Measure one row.
    Row { name: String, scale: Scale },
    /// Keep a namespace.
    Hold,
    /// Enter the namespace of a process, and become another program.
    Enter { namespace: String, command: Vec<String> },
    /// Send back whatever comes to this address.
    Echo(String),
    /// Measure round trips to this address.
    Ask { address: String, count: usize },
    /// Look for words on the wire.
    Capture,
    /// Only say something.
    Nothing(String),
}

/// What the table is to have in it.
pub(crate) struct Arguments {
    pub(crate) scale: Scale,
    pub(crate) json: Option<PathBuf>,
    filters: Vec<String>,
}

impl Arguments {
    /// Reads the command line.
    pub(crate) fn part(words: impl Iterator<Item = String>) -> Result<Part, Failure> {
        let words: Vec<String> = words.collect();
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        match text[..] {
            [HOLD] => Ok(Part::Hold),
            [ENTER, namespace, ..] => {
                Ok(Part::Enter { namespace: namespace.to_owned(), command: words[2..].to_vec() })
            }
            [ECHO, address] => Ok(Part::Echo(address.to_owned())),
            [ASK, address, count] => Ok(Part::Ask { address: address.to_owned(), count: count.parse()? }),
            [CAPTURE] => Ok(Part::Capture),
            _ => Self::table(words),
        }
    }

    fn table(words: Vec<String>) -> Result<Part, Failure> {
        let mut arguments = Self { scale: Scale::Usual, json: None, filters: Vec::new() };
        let (mut row, mut from_cargo) = (None, false);
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                ROW => row = Some(words.next().ok_or("which row?")?),
                "--quick" => arguments.scale = Scale::Quick,
                "--json" => {
                    arguments.json = Some(words.next().ok_or("`--json` wants the name of a file")?.into());
                }
                "--bench" => from_cargo = true,
                "--help" | "-h" => return Ok(Part::Nothing(HELP.to_owned())),
                // A test runner looks for tests.
                "--list" => return Ok(Part::Nothing(String::new())),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option `{option}`\nhint: `--help` shows them").into());
                }
                _ => arguments.filters.push(word),
            }
        }
        if let Some(name) = row {
            return Ok(Part::Row { name, scale: arguments.scale });
        }
        if cfg!(debug_assertions) && !from_cargo {
            // `cargo test --all-targets` runs benchmarks too, in a build whose figures mean nothing.
            return Ok(Part::Nothing("nothing to test here: run `cargo xtask bench cluster`".to_owned()));
        }
        Ok(Part::Table(arguments))
    }

    /// Whether a row is to be measured.
    pub(crate) fn wants(&self, row: &Row) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| row.name.contains(filter.as_str()))
    }
}
