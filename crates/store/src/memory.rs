//! The memory that this process may use: the machine's, or less if a control group limits it, as in a container.

use std::path::{Path, PathBuf};

/// Where control groups are shown.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process can have at most.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    memory_within(machine, &limit_files(Path::new(GROUPS), &own), |path| std::fs::read_to_string(path).ok())
}

/// The least of the machine's memory and the limits in these files. A file that is not there, or says `max`, is none.
fn memory_within(machine: u64, files: &[PathBuf], read: impl Fn(&Path) -> Option<String>) -> u64 {
    let limits = files.iter().filter_map(|path| read(path)?.trim().parse().ok());
    limits.fold(machine, u64::min)
}

/// The files with the limits of a process's control group and of all above it. `own` is what the system says of the
/// process (`/proc/self/cgroup`). In a container, that path may be the one outside; the group itself is the root then.
fn limit_files(groups: &Path, own: &str) -> Vec<PathBuf> {
    let mut files = vec![groups.join("memory.max"), groups.join("memory/memory.limit_in_bytes")];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, name) = match controllers {
            "" => (groups.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (groups.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        if path.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
            let above = path.ancestors().filter(|group| !group.as_os_str().is_empty());
            files.extend(above.map(|group| root.join(group).join(name)));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let memory = |limits: &[(&str, &str)]| {
            let read = |path: &Path| {
                let found = limits.iter().find(|(name, _)| Path::new("/g").join(name) == path);
                found.map(|(_, text)| format!("{text}\n"))
            };
            memory_within(1 << 40, &limit_files(Path::new("/g"), "0::/a/b\n"), read)
        };
        assert_eq!(memory(&[]), 1 << 40, "no group has a limit");
        assert_eq!(memory(&[("a/b/memory.max", "max")]), 1 << 40);
        assert_eq!(memory(&[("a/b/memory.max", "max"), ("a/memory.max", "2147483648")]), 2 << 30);
        assert_eq!(memory(&[("memory.max", "1073741824")]), 1 << 30, "in a container the group is the root");
        assert_eq!(memory(&[("a/b/memory.max", "4096"), ("memory.max", "8192")]), 4096);
    }

    #[test]
    fn both_versions_of_control_groups_are_understood() {
        let own = "12:cpu,memory:/docker/1\n3:cpuset:/x\n0::/user.slice\n7:memory:/../..\nnonsense\n";
        let files = limit_files(Path::new("/g"), own);
        let shown: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(
            shown,
            [
                "/g/memory.max",
                "/g/memory/memory.limit_in_bytes",
                "/g/memory/docker/1/memory.limit_in_bytes",
                "/g/memory/docker/memory.limit_in_bytes",
                "/g/user.slice/memory.max",
            ]
        );
    }
}
