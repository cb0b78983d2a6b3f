//! Files of keys: private to their user, and written whole or not at all.

use crate::identity::IdentityError;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// What others than the user may do with a file or directory.
const OTHERS: u32 = 0o077;

/// Makes a directory that only its user can enter, or makes sure that it is one.
pub(crate) fn create_private_directory(path: &Path) -> Result<(), IdentityError> {
    let create = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    create.map_err(|error| IdentityError::file(path, error))?;
    check_private(path)
}

/// Writes a file that only its user can read, in place of one that is there.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    replace(path, bytes).map_err(|error| IdentityError::file(path, error))
}

/// Reads such a file.
pub(crate) fn read_private(path: &Path) -> Result<Vec<u8>, IdentityError> {
    check_private(path)?;
    read(path)
}

/// Reads a file that anybody may read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|error| IdentityError::file(path, error))
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), IdentityError> {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_directory_of(path)),
    };
    removed.map_err(|error| IdentityError::file(path, error))
}

/// Moves a file to another name in its directory, in place of one that is there.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), IdentityError> {
    let renamed = fs::rename(from, to).and_then(|()| sync_directory_of(to));
    renamed.map_err(|error| IdentityError::file(from, error))
}

/// Refuses what others than the user can read or change: it may be known to them already.
fn check_private(path: &Path) -> Result<(), IdentityError> {
    let metadata = fs::metadata(path).map_err(|error| IdentityError::file(path, error))?;
    if metadata.permissions().mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(IdentityError::Open { path: path.to_owned(), private: if metadata.is_dir() { 0o700 } else { 0o600 } })
}

/// Files that are written beside their places have the same names each time: one writer at a time.
static REPLACING: Mutex<()> = Mutex::new(());

/// Writes beside the file, and moves it into place when it is on the disk.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _alone = REPLACING.lock();
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    sync_directory_of(path)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_that_write_the_same_file_do_not_meet() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.key");
        std::thread::scope(|scope| {
            for text in [b"one", b"two"] {
                let file = &file;
                scope.spawn(move || (0..50).for_each(|_| write_private(file, text).expect("written")));
            }
        });
        assert!([b"one", b"two"].iter().any(|text| read_private(&file).expect("read") == *text));
    }

    #[test]
    fn what_is_written_is_private_and_replaces_what_was_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deep/keys");
        create_private_directory(&path).expect("a private directory");
        let file = path.join("a.key");
        write_private(&file, b"one").expect("written");
        write_private(&file, b"two").expect("written again");
        assert_eq!(read_private(&file).expect("read"), b"two");
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&path)), (0o600, 0o700));
        assert_eq!(fs::read_dir(&path).expect("a directory").count(), 1);
    }

    #[test]
    fn what_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.key");
        write_private(&file, b"one").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("opened up");
        let shown = read_private(&file).expect_err("refused").to_string();
        assert!(shown.contains("a.key can be read") && shown.contains("hint: chmod 600"), "{shown}");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("opened up");
        let shown = create_private_directory(directory.path()).expect_err("refused").to_string();
        assert!(shown.contains("hint: chmod 700"), "{shown}");
    }
}
