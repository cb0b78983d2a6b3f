//! A directory that child processes cannot see: they begin in a mount namespace in which an empty one lies over it.
//!
//! Invariants:
//! 1. A child process that cannot be kept from the directory does not begin.
//! 2. What begins so cannot take the empty directory away, nor look into processes that see what is below: it is in a user
//!    namespace of its own, or, as root, without the capabilities for that.
//! 3. The directory is known by a descriptor, not by its path: what is put in its place changes nothing. A directory of the
//!    same file system that was put there is covered, too.

#![allow(unsafe_code)]

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{CapabilitySet, UnshareFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// What root must not have, or it could uncover the directory, or read it from processes, disks or the kernel's memory.
const UNCOVERING: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::MKNOD);

/// The empty directory.
const TMPFS: &CStr = c"size=4k,mode=700";

/// How a probe says that all went well, instead of becoming another program.
const PROBED: Errno = Errno::CANCELED;

/// A directory that children do not see.
#[derive(Clone)]
pub struct Hidden(Arc<Steps>);

/// All that a child needs: it must not allocate before it is another program.
struct Steps {
    directory: OwnedFd,
    path: CString,
    /// Where this process is, and the child is to be.
    place: CString,
    /// How user and group are called in the namespace; root needs none.
    names: Option<[CString; 2]>,
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hidden({:?})", self.0.path)
    }
}

impl Hidden {
    /// Looks whether children of this process can be kept from the directory, by a child that ends at once.
    pub fn new(path: &Path) -> io::Result<Self> {
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let same = |id: u32| CString::new(format!("{id} {id} 1")).expect("digits");
        let names = (!user.is_root()).then(|| [same(user.as_raw()), same(group.as_raw())]);
        let place = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let steps = Steps { directory, path: text(&path.canonicalize()?)?, place: text(&place)?, names };
        let hidden = Self(Arc::new(steps));
        hidden.probe()?;
        Ok(hidden)
    }

    fn probe(&self) -> io::Result<()> {
        let steps = self.0.clone();
        let mut command = Command::new("/");
        let begin = move || -> io::Result<()> {
            steps.hide()?;
            let (below, seen) = (rustix::fs::fstat(&steps.directory)?, rustix::fs::stat(&*steps.path)?);
            Err(if below.st_dev == seen.st_dev { Errno::BUSY } else { PROBED }.into())
        };
        // SAFETY: as in `hide_from`.
        unsafe { command.pre_exec(begin) };
        match command.spawn() {
            Err(error) if Errno::from_io_error(&error) == Some(PROBED) => Ok(()),
            Err(error) => Err(error),
            Ok(mut child) => child.wait().and(Err(io::Error::other("the probe became a program"))),
        }
    }

    /// The command's process will not see the directory.
    pub fn hide_from(&self, command: &mut Command) {
        let steps = self.0.clone();
        // SAFETY: what runs between fork and exec makes system calls only; it neither allocates nor takes locks.
        unsafe { command.pre_exec(move || Ok(steps.hide()?)) };
    }
}

impl Steps {
    fn hide(&self) -> rustix::io::Result<()> {
        // A new namespace takes the working directory along, and no other descriptor.
        rustix::process::fchdir(&self.directory)?;
        let user = if self.names.is_some() { UnshareFlags::NEWUSER } else { UnshareFlags::empty() };
        // SAFETY: descriptors stay as they are.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | user)? };
        if let Some([user, group]) = &self.names {
            write(c"/proc/self/setgroups", c"deny")?;
            write(c"/proc/self/uid_map", user)?;
            write(c"/proc/self/gid_map", group)?;
        }
        // What is mounted later outside comes in, and nothing goes out.
        rustix::mount::mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        match rustix::mount::mount(c"aktis-hidden", c".", c"tmpfs", flags, TMPFS) {
            // It was removed meanwhile, with all that was below it.
            Err(Errno::NOENT) => {}
            mounted => mounted?,
        }
        if let Some(other) = self.other_in_its_place()? {
            rustix::process::fchdir(&other)?;
            rustix::mount::mount(c"aktis-hidden", c".", c"tmpfs", flags, TMPFS)?;
        }
        // Until here the working directory was below of what was mounted.
        rustix::process::chdir(&*self.place).or_else(|_| rustix::process::chdir(c"/"))?;
        if self.names.is_none() {
            let mut sets = rustix::thread::capabilities(None)?;
            sets.inheritable &= !UNCOVERING;
            rustix::thread::set_capabilities(None, sets)?;
            for capability in UNCOVERING {
                rustix::thread::remove_capability_from_bounding_set(capability)?;
            }
        }
        Ok(())
    }

    /// The directory that lies at the path now, if that is not the empty one: it was restored from a copy, say.
    fn other_in_its_place(&self) -> rustix::io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(other) = rustix::fs::openat(CWD, &*self.path, flags, Mode::empty()) else { return Ok(None) };
        let is_covered = rustix::fs::fstat(&other)?.st_dev != rustix::fs::fstat(&self.directory)?.st_dev;
        Ok((!is_covered).then_some(other))
    }
}

fn write(path: &CStr, text: &CStr) -> rustix::io::Result<()> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.to_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Stdio;

    /// What a shell prints that cannot see the directory.
    fn told(hidden: &Hidden, script: &str) -> String {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stderr(Stdio::null());
        hidden.hide_from(&mut command);
        String::from_utf8(command.output().expect("it begins").stdout).expect("text")
    }

    /// None where the system refuses such namespaces; the daemon says so then.
    fn hidden(path: &Path) -> Option<Hidden> {
        match Hidden::new(path) {
            Ok(hidden) => Some(hidden),
            Err(error) => {
                eprintln!("not tried: {error}");
                None
            }
        }
    }

    #[test]
    fn children_see_an_empty_directory_and_cannot_uncover_it() {
        let outside = tempfile::tempdir().expect("a directory");
        let (secret, beside) = (outside.path().join("secret"), outside.path().join("beside"));
        fs::create_dir(&secret).expect("made");
        fs::write(secret.join("key"), "hunter2").expect("written");
        fs::write(&beside, "open").expect("written");
        let Some(hidden) = hidden(&secret) else { return };
        let (at, out) = (secret.display(), outside.path().display());
        assert_eq!(told(&hidden, &format!("cat {at}/key {out}/beside; ls -A {at}")), "open");
        let place = told(&hidden, "pwd; cat ./key ../key");
        assert_eq!(Path::new(place.trim()), std::env::current_dir().expect("a place"));
        let me = std::process::id();
        for attempt in [
            format!("umount {at}; umount -l {at}; cat {at}/key"),
            format!("unshare -Urm sh -c 'umount -l {at}; cat {at}/key'"),
            format!("unshare -Urm sh -c 'mount --bind {out} /mnt; cat /mnt/secret/key'"),
            format!("mount --bind {out} /mnt; cat /mnt/secret/key"),
            format!("cat /proc/{me}/root{at}/key; cat /proc/{me}/fd/*/key"),
            format!("nsenter -t {me} -m cat {at}/key; nsenter -t {me} -U -m cat {at}/key"),
            format!("mv {at} {out}/moved; cat {out}/moved/key"),
        ] {
            assert_eq!(told(&hidden, &attempt), "", "{attempt}");
        }
        assert_eq!(
            fs::read_to_string(secret.join("key")).expect("read"),
            "hunter2",
            "outside all is as before"
        );
    }

    #[test]
    fn a_decoy_in_the_place_of_the_directory_reveals_nothing() {
        let outside = tempfile::tempdir().expect("a directory");
        let parent = outside.path().join("parent");
        let secret = parent.join("secret");
        fs::create_dir_all(&secret).expect("made");
        fs::write(secret.join("key"), "hunter2").expect("written");
        let Some(hidden) = hidden(&secret) else { return };
        let moved = outside.path().join("moved");
        told(&hidden, &format!("mv {} {}; mkdir -p {}", parent.display(), moved.display(), secret.display()));
        assert!(secret.exists() && moved.exists(), "a child can rename what is above");
        assert_eq!(told(&hidden, &format!("cat {}/secret/key", moved.display())), "");
    }

    #[test]
    fn what_is_no_directory_cannot_be_hidden() {
        assert!(Hidden::new(Path::new("/nowhere")).is_err());
        assert!(Hidden::new(Path::new("/proc/self/exe")).is_err());
    }
}
