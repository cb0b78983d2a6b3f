//! The programs whose workers a node starts: where they come from, and the copies that it keeps of executables.
//!
//! Invariants:
//! 1. A copy is complete under its name, which is a hash of its content: it is written beside and renamed.
//! 2. An executable is known by an open descriptor, not by its path: what lies there may be another build by now.

use crate::template::{TemplateProgram, TemplateStatus};
use aktis_protocol::limits::PROGRAM_BYTES_MAX;
use aktis_protocol::{ProgramId, ProgramKind, ProgramSpec, control};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const COPY_BYTES: usize = 1 << 20;

/// How the workers of a program are started.
#[derive(Clone)]
pub(crate) enum Launch {
    /// As the program of this very process.
    ThisProgram,
    /// From this copy.
    Copy(Arc<Path>),
    /// As forks of a template.
    Template { program: Arc<TemplateProgram>, status: Arc<TemplateStatus> },
}

/// Why a program cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It is for another machine or another version.
    #[error("{0}")]
    Unfit(String),
    /// Its executable did not come, or is not what its name says.
    #[error("the executable of program {0} is missing or was changed\nhint: start the driver again")]
    NotIt(ProgramId),
    /// It is too large.
    #[error(
        "the executable has {0} bytes, more than {PROGRAM_BYTES_MAX}\nhint: strip it (strip = true in the profile)"
    )]
    TooLarge(u64),
    /// It cannot be read or copied.
    #[error(
        "the executable cannot be copied to {path}: {source}\nhint: make room there, or choose another directory"
    )]
    Copy {
        /// Where to.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A program and what a node needs in order to start workers of it.
#[derive(Debug)]
pub struct ProgramSource {
    /// What it is.
    pub spec: ProgramSpec,
    /// The executable of a Rust program.
    pub executable: Option<File>,
}

impl ProgramSource {
    /// The program that this process runs.
    pub fn this_program() -> io::Result<Self> {
        static THIS: OnceLock<ProgramId> = OnceLock::new();
        let executable = File::open("/proc/self/exe")?;
        let bytes = executable.metadata()?.len();
        let id = match THIS.get() {
            Some(id) => *id,
            None => *THIS.get_or_init(|| hash_of(&executable).unwrap_or_default()),
        };
        if id == ProgramId::default() {
            return Err(io::Error::other("the program's own executable cannot be read"));
        }
        let spec = ProgramSpec::here(id, ProgramKind::Rust { bytes });
        Ok(Self { spec, executable: Some(executable) })
    }

    /// Python, as this template of workers; the version is that of the interpreter.
    pub fn python(command: Vec<OsString>, environment: Vec<(OsString, OsString)>, version: String) -> Self {
        let kind = ProgramKind::Python { command, environment, version };
        let hash = blake3::hash(&control::encode(&kind));
        Self { spec: ProgramSpec::here(id_of(&hash), kind), executable: None }
    }
}

fn id_of(hash: &blake3::Hash) -> ProgramId {
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    ProgramId::from_hash(*first)
}

/// The name of an executable.
fn hash_of(file: &File) -> io::Result<ProgramId> {
    let mut hasher = blake3::Hasher::new();
    read_all(file, |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(id_of(&hasher.finalize()))
}

/// Reads a file from its start, whatever its other users do with the position that they share.
fn read_all(file: &File, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut position = 0;
    loop {
        let length = match file.read_at(&mut buffer, position) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if length == 0 {
            return Ok(());
        }
        take(&buffer[..length])?;
        position += length as u64;
    }
}

/// The variable by which workers know the directory of their node, if that is not embedded in a driver.
pub const NODE_VARIABLE: &str = "AKTIS_NODE_DIRECTORY";

/// How workers of a program are started; its executable is copied into the directory if it is not there.
pub(crate) fn launch_of(source: &ProgramSource, directory: &Path) -> Result<Launch, ProgramError> {
    if let Some(obstacle) = source.spec.obstacle() {
        return Err(ProgramError::Unfit(obstacle));
    }
    match &source.spec.kind {
        ProgramKind::Rust { bytes } if *bytes > PROGRAM_BYTES_MAX => Err(ProgramError::TooLarge(*bytes)),
        ProgramKind::Rust { .. } => {
            let path = directory.join(source.spec.id.to_string());
            if !path.exists() {
                copy(source, &path)?;
            }
            Ok(Launch::Copy(path.into()))
        }
        ProgramKind::Python { command, environment, .. } => {
            // Workers can ask the daemon of their own node, wherever the driver is.
            let node = directory.parent().unwrap_or(directory).as_os_str().to_owned();
            let mut environment = environment.clone();
            environment.push((NODE_VARIABLE.into(), node));
            let program = TemplateProgram { command: command.clone(), environment };
            Ok(Launch::Template { program: Arc::new(program), status: Arc::default() })
        }
    }
}

fn copy(source: &ProgramSource, path: &Path) -> Result<(), ProgramError> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let id = source.spec.id;
    let executable = source.executable.as_ref().ok_or(ProgramError::NotIt(id))?;
    let refused = |source| ProgramError::Copy { path: path.to_owned(), source };
    let beside = path.with_extension(format!("{}", COPIES.fetch_add(1, Ordering::Relaxed)));
    let copied = copy_to(executable, &beside).map_err(refused);
    let outcome = match copied {
        Ok(found) if found == id => std::fs::rename(&beside, path).map_err(refused),
        Ok(_) => Err(ProgramError::NotIt(id)),
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    outcome
}

/// Copies an executable; gives the name of what was written.
fn copy_to(executable: &File, path: &Path) -> io::Result<ProgramId> {
    let mut options = File::options();
    let mut copy = options.write(true).create(true).truncate(true).mode(0o700).open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut bytes = 0;
    read_all(executable, |part| {
        bytes += part.len() as u64;
        if bytes > PROGRAM_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        hasher.update(part);
        copy.write_all(part)
    })?;
    Ok(id_of(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(content: &[u8], directory: &Path) -> ProgramSource {
        let path = directory.join("original");
        std::fs::write(&path, content).expect("written");
        let file = File::open(&path).expect("opened");
        let id = hash_of(&file).expect("read");
        let spec = ProgramSpec::here(id, ProgramKind::Rust { bytes: content.len() as u64 });
        ProgramSource { spec, executable: Some(file) }
    }

    #[test]
    fn a_copy_is_what_its_name_says_or_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut source = source(b"machine code", directory.path());
        let programs = directory.path().join("programs");
        std::fs::create_dir(&programs).expect("made");
        assert!(matches!(launch_of(&source, &programs), Ok(Launch::Copy(_))));
        let copy = programs.join(source.spec.id.to_string());
        assert_eq!(std::fs::read(&copy).expect("read"), b"machine code");

        source.spec.id = ProgramId::from_words([7, 7]);
        assert!(matches!(launch_of(&source, &programs), Err(ProgramError::NotIt(_))), "another hash");
        source.executable = None;
        assert!(matches!(launch_of(&source, &programs), Err(ProgramError::NotIt(_))), "no executable");
        let left = std::fs::read_dir(&programs).expect("read").count();
        assert_eq!(left, 1, "nothing incomplete stays");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut large = source(b"x", directory.path());
        large.spec.kind = ProgramKind::Rust { bytes: PROGRAM_BYTES_MAX + 1 };
        assert!(matches!(launch_of(&large, directory.path()), Err(ProgramError::TooLarge(_))));
        let mut old = source(b"x", directory.path());
        old.spec.layout ^= 1;
        assert!(matches!(launch_of(&old, directory.path()), Err(ProgramError::Unfit(_))));
    }

    #[test]
    fn python_is_named_by_all_that_its_template_is_started_with() {
        let python =
            |version: &str| ProgramSource::python(vec!["p".into()], Vec::new(), version.into()).spec.id;
        assert_eq!(python("3.12"), python("3.12"));
        assert_ne!(python("3.12"), python("3.13"));
    }
}
