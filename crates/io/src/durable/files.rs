//! Folders, and files that appear whole or not at all.

use super::DurableError;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Makes a folder that only this user can look into, if it is not there.
pub(super) fn make_folder(path: &Path) -> Result<(), DurableError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(DurableError::disk("make the folder", path))
}

/// Has the names in a folder on disk.
pub(super) fn sync_folder(path: &Path) -> Result<(), DurableError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(DurableError::disk("flush the folder", path))
}

/// Writes a file beside its place, and moves it there when it is on disk.
pub(super) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
    let beside = folder.join(format!("{name}.part"));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(DurableError::disk("write", &beside))?;
    fs::rename(&beside, folder.join(name)).map_err(DurableError::disk("rename", &beside))?;
    sync_folder(folder)
}

/// Removes a file that is not needed any more.
pub(super) fn remove(path: &Path) -> Result<(), DurableError> {
    fs::remove_file(path).map_err(DurableError::disk("remove", path))
}

/// The files `PREFIX-NUMBER` of a folder with their numbers, in order.
pub(super) fn numbered(folder: &Path, prefix: &str) -> Result<Vec<(u64, PathBuf)>, DurableError> {
    let list = || -> std::io::Result<Vec<_>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
            let number = number.and_then(|number| number.parse().ok());
            found.extend(number.map(|number: u64| (number, entry.path())));
        }
        found.sort();
        Ok(found)
    };
    list().map_err(DurableError::disk("list", folder))
}

/// The path of such a file. Numbers have a fixed width, so that names are in the order of numbers.
pub(super) fn numbered_path(folder: &Path, prefix: &str, number: u64) -> PathBuf {
    folder.join(format!("{prefix}-{number:020}"))
}
