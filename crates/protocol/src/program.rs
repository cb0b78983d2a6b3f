//! Programs: what worker processes run. A node serves many, each for the drivers that are it.
//!
//! A Rust program is its executable; a Python one is an interpreter and what it loads before it forks workers.

use crate::ids::{FunctionId, ProgramId};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// The version of all layouts in memory that processes of one node share, and of the messages between them.
///
/// Drivers and the node's daemon may be different builds: they go together if this is the same. The number is raised
/// by whoever changes a layout.
pub const LAYOUT: u64 = FunctionId::of(env!("CARGO_PKG_VERSION"), "layout 6").0;

/// A program, as its driver describes it and as nodes describe it to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    /// Its name: a hash of its content.
    pub id: ProgramId,
    /// How its workers are started.
    pub kind: ProgramKind,
    /// The processor that it is for, as [`std::env::consts::ARCH`] names it.
    pub architecture: String,
    /// The [`LAYOUT`] that it was built with.
    pub layout: u64,
    /// Whether other jobs may use its actors and objects.
    pub shares: bool,
}

/// How the workers of a program are started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramKind {
    /// Its executable is started again with an argument. One worker is shared by many tasks and actors.
    Rust {
        /// The size of the executable.
        bytes: u64,
    },
    /// They are forked from a template process. Each runs one thing at a time.
    Python {
        /// The interpreter that becomes the template, and its arguments.
        command: Vec<OsString>,
        /// Environment variables that it gets besides the node's own.
        environment: Vec<(OsString, OsString)>,
        /// The interpreter's version: what one has pickled, only its like can read.
        version: String,
    },
}

impl ProgramSpec {
    /// The description of a program on this machine, in this build.
    pub fn here(id: ProgramId, kind: ProgramKind) -> Self {
        Self { id, kind, architecture: std::env::consts::ARCH.to_owned(), layout: LAYOUT, shares: false }
    }

    /// Whether one worker of it runs tasks and actors on many threads.
    pub fn has_shared_worker(&self) -> bool {
        matches!(self.kind, ProgramKind::Rust { .. })
    }

    /// Why it cannot run here, if so.
    pub fn obstacle(&self) -> Option<String> {
        if self.architecture != std::env::consts::ARCH {
            let here = std::env::consts::ARCH;
            return Some(format!(
                "the program is for {} processors, and this machine has {here}\n\
                 hint: build it for {here}",
                self.architecture
            ));
        }
        (self.layout != LAYOUT).then(|| {
            format!(
                "the program and this node were built from different versions of aktis (layouts {:x} and {LAYOUT:x})\n\
                 hint: build the program with the version of aktis that the node has, or start the node anew",
                self.layout
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_or_processor_is_an_obstacle_that_is_named() {
        let spec = ProgramSpec::here(ProgramId::default(), ProgramKind::Rust { bytes: 1 });
        assert_eq!(spec.obstacle(), None);
        let other_build = ProgramSpec { layout: LAYOUT ^ 1, ..spec.clone() };
        assert!(other_build.obstacle().is_some_and(|text| text.contains("different versions")));
        let other_processor = ProgramSpec { architecture: "abacus".into(), ..spec };
        assert!(other_processor.obstacle().is_some_and(|text| text.contains("abacus")));
    }

    #[test]
    fn a_description_survives_its_encoding() {
        let kind = ProgramKind::Python {
            command: vec!["python3".into(), "-m".into()],
            environment: vec![("A".into(), "b".into())],
            version: "3.12.1".into(),
        };
        let spec = ProgramSpec::here(ProgramId::from_words([1, 2]), kind);
        let encoded = crate::control::encode(&spec);
        assert_eq!(crate::control::decode::<ProgramSpec>(&encoded), Ok(spec));
    }
}
