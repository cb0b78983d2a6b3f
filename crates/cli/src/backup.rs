//! `aktis backup` and `aktis restore`: the directory of a control process in one file, and back.
//!
//! A control process may run meanwhile. Its files are logs, which grow, and whole files that are moved into place.
//!
//! Invariants:
//! 1. A backup is what a control process could find after the machine had lost power: the beginning of each log, all as of one
//!    moment.
//! 2. A directory in which a cluster was begun is never written to.

use crate::arguments::Form;
use crate::failed::Failed;
use crate::record::Record;
use crate::{archive, rows, show};
use aktis_daemon::control::control_directory;
use aktis_daemon::{ControlConfig, directory};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Looks at the files until two in a row are the same: nothing was written between these.
const LOOKS_MAX: u32 = 2000;
/// The pause after a look during which something was written.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Copies that are begun anew because a file was removed meanwhile: its content is in a newer one.
const COPIES_MAX: u32 = 20;
/// Folders within each other in a directory; deeper ones are none of a control process.
const DEPTH_MAX: u32 = 8;

/// Writes a backup into a file that is new.
pub(crate) fn backup(output: &mut dyn Write, daemon: &Path, file: &Path, form: Form) -> Result<(), Failed> {
    if !ControlConfig::is_begun(daemon) {
        return Err(Failed::NoControl(control_directory(daemon)));
    }
    let place = control_directory(daemon);
    let failed = |source| Failed::Backup { file: file.to_owned(), source };
    let draft = beside(file);
    let copied = copy(&place, &draft);
    let (files, bytes) = match copied {
        Ok(copied) => copied,
        Err(error) => {
            let _ = fs::remove_file(&draft);
            return Err(failed(error));
        }
    };
    // A link fails if there is such a file already; a rename would replace it.
    let linked = fs::hard_link(&draft, file);
    let _ = fs::remove_file(&draft);
    linked.map_err(failed)?;
    if form.json {
        let path = file.to_string_lossy();
        return show::json(
            output,
            &Record::default().field("file", path).field("files", files).field("bytes", bytes),
        );
    }
    let size = rows::bytes_text(bytes);
    writeln!(output, "{files} files, {size}, are in {}; it has the keys of the cluster", file.display())
        .map_err(Failed::Output)
}

/// Puts a backup into the place of a control process that is to be.
pub(crate) fn restore(output: &mut dyn Write, daemon: &Path, file: &Path, form: Form) -> Result<(), Failed> {
    let place = control_directory(daemon);
    let failed = |source| Failed::Restore { file: file.to_owned(), source };
    if fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failed::NotEmpty(place));
    }
    directory::prepare(daemon)?;
    let draft = daemon.join(format!("control.{}.new", std::process::id()));
    let unpacked = File::open(file).and_then(|archive| {
        DirBuilder::new().mode(0o700).create(&draft)?;
        let files = archive::unpack(&mut BufReader::new(archive), &draft)?;
        fs::rename(&draft, &place)?;
        Ok(files)
    });
    let files = match unpacked {
        Ok(files) => files,
        Err(error) => {
            let _ = fs::remove_dir_all(&draft);
            return Err(failed(error));
        }
    };
    if form.json {
        let place = place.to_string_lossy();
        return show::json(output, &Record::default().field("directory", place).field("files", files));
    }
    writeln!(output, "{files} files are in {}; `aktis start --head` goes on from there", place.display())
        .map_err(Failed::Output)
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    file.with_file_name(name)
}

/// Copies all files as of one moment; gives their number and size.
fn copy(place: &Path, to: &Path) -> io::Result<(usize, u64)> {
    for _ in 0..COPIES_MAX {
        let moment = moment(place)?;
        match write(place, &moment, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_file(to)?,
            written => return written.map(|()| (moment.len(), moment.values().sum())),
        }
    }
    Err(io::Error::other("the control process removes files faster than they are copied"))
}

/// The files and their sizes as of one moment, as far as there is one between two writes.
fn moment(place: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut last = look(place)?;
    for _ in 0..LOOKS_MAX {
        let next = look(place)?;
        if next == last {
            break;
        }
        last = next;
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(last)
}

fn look(place: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    collect(place, "", DEPTH_MAX, &mut files)?;
    Ok(files)
}

fn collect(folder: &Path, name: &str, depth: u32, files: &mut BTreeMap<String, u64>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(last) = entry.file_name().into_string() else { continue };
        let name = if name.is_empty() { last.clone() } else { format!("{name}/{last}") };
        let about = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            about => about?,
        };
        if about.is_dir() && depth > 0 {
            collect(&entry.path(), &name, depth - 1, files)?;
        } else if about.is_file() && is_kept(&last) {
            files.insert(name, about.len());
        }
    }
    Ok(())
}

/// Whether the next control process needs a file: not what tells who runs, what was printed, or what is not whole yet.
fn is_kept(name: &str) -> bool {
    let is_log = name.starts_with(directory::LOG_NAME);
    !matches!(name, "lock" | "last-words") && !is_log && !name.ends_with(".part") && !name.ends_with(".new")
}

fn write(place: &Path, files: &BTreeMap<String, u64>, to: &Path) -> io::Result<()> {
    let mut archive = BufWriter::new(archive::create(to)?);
    for (name, bytes) in files {
        archive::add(&mut archive, name, &mut File::open(place.join(name))?, *bytes)?;
    }
    archive::finish(&mut archive)?;
    archive.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_and_what_is_not_whole_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("store/shard-0")).unwrap();
        let kept = ["address", "store/shard-0/log.1", "store/shard-0/snapshot.7"];
        let left_out = [
            "lock",
            "last-words",
            "daemon.log",
            "daemon.log.old",
            "store/shard-0/snapshot.part",
            "address.new",
        ];
        for name in kept.iter().chain(&left_out) {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let found = look(folder.path()).unwrap();
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), kept);
        assert_eq!(found["address"], 7);
    }
}
