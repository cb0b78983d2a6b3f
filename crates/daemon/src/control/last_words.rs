//! Why a control process could not go on, kept for the next command that asks.
//!
//! The disk may be full by then, and its log lies on that disk. So room is set aside at the start, and written over.

use crate::directory::{self, DirectoryError};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "last-words";
/// Longer words are cut.
const BYTES: usize = 4096;

fn place(control: &Path) -> PathBuf {
    control.join(FILE)
}

/// Sets room aside, and forgets the words of an earlier control process.
pub(super) fn prepare(control: &Path) -> Result<(), DirectoryError> {
    let path = place(control);
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    opened.and_then(|file| write(file, &[])).map_err(directory::system("write to", &path))
}

/// Keeps the words; nobody can be told if that fails too.
pub(super) fn keep(control: &Path, words: &str) -> io::Result<()> {
    let end = words.floor_char_boundary(BYTES);
    write(OpenOptions::new().write(true).open(place(control))?, &words.as_bytes()[..end])
}

/// Writes all of the room, in place.
fn write(mut file: File, words: &[u8]) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    bytes[..words.len()].copy_from_slice(words);
    file.write_all(&bytes)?;
    file.sync_data()
}

/// The words of the control process that had this directory last, if it could not go on.
pub(crate) fn read(control: &Path) -> Option<String> {
    let bytes = std::fs::read(place(control)).ok()?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let words = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_until_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path();
        assert_eq!(read(control), None);
        prepare(control).unwrap();
        assert_eq!(read(control), None);
        keep(control, "cannot go on: the disk is full").unwrap();
        assert_eq!(read(control).as_deref(), Some("cannot go on: the disk is full"));
        keep(control, &"ö".repeat(BYTES)).unwrap();
        assert_eq!(read(control), Some("ö".repeat(BYTES / 2)));
        assert_eq!(std::fs::metadata(place(control)).unwrap().len(), BYTES as u64, "it needs no more room");
        prepare(control).unwrap();
        assert_eq!(read(control), None);
    }
}
