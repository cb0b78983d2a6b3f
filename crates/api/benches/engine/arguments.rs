//! The command line of the benchmark.

use crate::Failure;
use crate::peer::Call;
use crate::rows::Row;
use std::path::PathBuf;

/// The first argument of a process that measures one row.
pub(crate) const ROW: &str = "--measure-row";
/// The first argument of a process at the other end of a round trip.
pub(crate) const PEER: &str = "--round-trip-peer";

const HELP: &str = "\
Measure the engine on this machine, and the machine's own limits beside it.

usage: cargo bench -p aktis --bench engine -- [--quick] [--full] [--json FILE] [FILTER...]

  --quick        smaller numbers: a look, not a figure to quote
  --full         also the rows that take minutes or many gigabytes
  --json FILE    also write the figures to FILE, one object in each line
  FILTER...      only the rows whose names contain one of these";

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// A look.
    Quick,
    /// The figures that are quoted.
    Usual,
    /// Those, and rows that ask much of the machine.
    Full,
}

impl Scale {
    /// One of two amounts: the first for a look.
    pub(crate) fn pick<T>(self, quick: T, usual: T) -> T {
        if self == Self::Quick { quick } else { usual }
    }

    /// The argument that stands for it.
    pub(crate) fn argument(self) -> Option<&'static str> {
        match self {
            Self::Quick => Some("--quick"),
            Self::Usual => None,
            Self::Full => Some("--full"),
        }
    }
}

/// What this process is to do.
pub(crate) enum Part {
    /// Go through the rows.
    Table(Arguments),
    /// Measure one row.
    Row { name: String, scale: Scale },
    /// Answer another process.
    Peer(Call),
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
        if let Some((PEER, rest)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
            return Ok(Part::Peer(Call::parse(rest)?));
        }
        let mut arguments = Self { scale: Scale::Usual, json: None, filters: Vec::new() };
        let (mut row, mut from_cargo) = (None, false);
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                ROW => row = Some(words.next().ok_or("which row?")?),
                "--quick" => arguments.scale = Scale::Quick,
                "--full" => arguments.scale = Scale::Full,
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
            return Ok(Part::Nothing("nothing to test here: run `cargo xtask bench engine`".to_owned()));
        }
        Ok(Part::Table(arguments))
    }

    /// Whether a row is to be measured.
    pub(crate) fn wants(&self, row: &Row) -> bool {
        let named = self.filters.iter().any(|filter| row.name.contains(filter.as_str()));
        (named || self.filters.is_empty()) && (!row.only_full || self.scale == Scale::Full)
    }
}
