//! Files in one file, in the format of `tar` (POSIX.1-1988, "ustar"): what a backup is.
//!
//! Invariants:
//! 1. An archive that is not whole is refused: its end says that it is.
//! 2. What is unpacked stays in its folder, is readable for its owner alone, and takes the place of nothing.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path};

const BLOCK: usize = 512;
/// Where a header has its checksum, which is computed as if there were spaces.
const CHECKSUM: std::ops::Range<usize> = 148..156;
const NAME_BYTES_MAX: usize = 100;
/// An octal number of eleven digits.
const FILE_BYTES_MAX: u64 = (1 << 33) - 1;

/// Adds a file: the first `bytes` of its content.
pub(crate) fn add(
    archive: &mut impl Write,
    name: &str,
    content: &mut impl Read,
    bytes: u64,
) -> io::Result<()> {
    archive.write_all(&header(name, bytes)?)?;
    let copied = io::copy(&mut content.take(bytes), archive)?;
    if copied != bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{name} has become shorter")));
    }
    let padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
    archive.write_all(&[0; BLOCK][..padding as usize])
}

/// Ends an archive.
pub(crate) fn finish(archive: &mut impl Write) -> io::Result<()> {
    archive.write_all(&[0; 2 * BLOCK])
}

fn header(name: &str, bytes: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > NAME_BYTES_MAX || bytes > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("{name} is too large for an archive, or its name is too long")));
    }
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, "00000000000\0");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum = checksum(&block);
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

fn checksum(block: &[u8; BLOCK]) -> u32 {
    let spaces = CHECKSUM.len() as u32 * u32::from(b' ');
    let all: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    all - block[CHECKSUM].iter().map(|byte| u32::from(*byte)).sum::<u32>() + spaces
}

/// Unpacks an archive into a folder that is empty; gives the number of files.
pub(crate) fn unpack(archive: &mut impl Read, folder: &Path) -> io::Result<u64> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut files = 0;
    loop {
        let mut block = [0; BLOCK];
        archive.read_exact(&mut block)?;
        if block == [0; BLOCK] {
            return Ok(files);
        }
        if octal(&block[CHECKSUM]) != Some(checksum(&block).into()) || block[156] != b'0' {
            return Err(wrong(format!("it is no backup, or damaged, after {files} files")));
        }
        let name = text(&block[..NAME_BYTES_MAX]).ok_or_else(|| wrong("a name is no text".into()))?;
        let bytes = octal(&block[124..136]).ok_or_else(|| wrong(format!("{name} has no size")))?;
        if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(wrong(format!("`{name}` leads out of the folder")));
        }
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        if io::copy(&mut archive.take(bytes), &mut file)? != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.sync_all()?;
        let padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
        io::copy(&mut archive.take(padding), &mut io::sink())?;
        files += 1;
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).ok()
}

fn octal(bytes: &[u8]) -> Option<u64> {
    u64::from_str_radix(text(bytes)?.trim(), 8).ok()
}

/// A new file that nobody else can read.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = Vec::new();
        for (name, content) in files {
            add(&mut archive, name, &mut &content[..], content.len() as u64).unwrap();
        }
        finish(&mut archive).unwrap();
        archive
    }

    #[test]
    fn files_come_back_as_they_were() {
        let large = vec![7; 3 * BLOCK];
        let files: [(&str, &[u8]); 3] = [("address", b"a:1\n"), ("store/0/log-1", &large), ("empty", b"")];
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(unpack(&mut &archive(&files)[..], folder.path()).unwrap(), 3);
        for (name, content) in files {
            assert_eq!(fs::read(folder.path().join(name)).unwrap(), content, "{name}");
        }
    }

    #[test]
    fn archives_that_are_cut_damaged_or_hostile_are_refused() {
        let fine = archive(&[("address", b"a:1\n")]);
        for length in (0..fine.len() - BLOCK).step_by(97) {
            let folder = tempfile::tempdir().unwrap();
            assert!(unpack(&mut &fine[..length], folder.path()).is_err(), "{length} bytes");
        }
        for place in [0, 30, 99, 124, 130, 148, 156, 300] {
            let mut damaged = fine.clone();
            damaged[place] ^= 1;
            let folder = tempfile::tempdir().unwrap();
            assert!(unpack(&mut &damaged[..], folder.path()).is_err(), "byte {place}");
        }
        for name in ["../out", "/etc/out", "a/../../out", "./a", ""] {
            let folder = tempfile::tempdir().unwrap();
            let refused = unpack(&mut &archive(&[(name, b"x")])[..], folder.path());
            assert!(refused.is_err() && !folder.path().with_file_name("out").exists(), "{name}");
        }
        assert!(
            unpack(&mut &archive(&[("a", b"1"), ("a", b"2")])[..], tempfile::tempdir().unwrap().path())
                .is_err()
        );
    }
}
