//! Processes that the kernel has killed because memory ran out, as it counts them for the group of this process.
//!
//! The kernel does not say whom it has killed. A worker that died by SIGKILL while the count went up was it: the count is
//! looked at when workers start and when they die.

use std::path::PathBuf;

/// How much more the kernel prefers a worker than its node, of [`SCORE_MAX`].
const WORKER_SCORE: i32 = 500;
/// The most that the kernel knows.
const SCORE_MAX: i32 = 1000;

/// The count, and how much of it is explained.
pub(crate) struct Kills {
    counted_in: Option<PathBuf>,
    explained: u64,
}

impl Kills {
    /// As the kernel counts for the group that this process is in; for the whole machine if there is none.
    pub(crate) fn of_this_group() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let places = groups.lines().filter_map(place_of).chain([PathBuf::from("/proc/vmstat")]);
        Self::counted_in(places)
    }

    /// The first of these that tells.
    fn counted_in(places: impl IntoIterator<Item = PathBuf>) -> Self {
        let counted_in = places.into_iter().find(|place| read(place).is_some());
        let mut kills = Self { counted_in, explained: 0 };
        kills.forget();
        kills
    }

    /// What has happened so far was not about workers.
    pub(crate) fn forget(&mut self) {
        self.explained = self.count();
    }

    /// Whether there was a kill that no other death explains. Then this one does.
    pub(crate) fn explain_one(&mut self) -> bool {
        let is_new = self.count() > self.explained;
        self.explained += u64::from(is_new);
        is_new
    }

    fn count(&self) -> u64 {
        self.counted_in.as_ref().and_then(read).unwrap_or_default()
    }
}

/// Where the kernel counts for a group, by its line in `/proc/self/cgroup`: version 2 first, then 1.
fn place_of(line: &str) -> Option<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (kinds, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
    match kinds {
        "" => Some(["/sys/fs/cgroup", path, "memory.events"].iter().collect()),
        _ if kinds.split(',').any(|kind| kind == "memory") => {
            Some(["/sys/fs/cgroup/memory", path, "memory.oom_control"].iter().collect())
        }
        _ => None,
    }
}

fn read(place: &PathBuf) -> Option<u64> {
    let text = std::fs::read_to_string(place).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Makes the kernel take that process before this one when memory runs out: a worker's tasks can run again, and a node that
/// is gone takes all its workers along.
pub(crate) fn take_first(pid: u32) {
    let score = (score_of("self").unwrap_or(0) + WORKER_SCORE).min(SCORE_MAX);
    // If the system refuses, or the process is gone, the kernel chooses by size alone.
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string());
}

fn score_of(process: &str) -> Option<i32> {
    std::fs::read_to_string(format!("/proc/{process}/oom_score_adj")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_workers_before_their_node() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it runs");
        take_first(child.id());
        let scores = (score_of("self"), score_of(&child.id().to_string()));
        child.kill().and_then(|()| child.wait()).expect("ended");
        let own = scores.0.expect("a number");
        assert_eq!(scores.1, Some((own + WORKER_SCORE).min(SCORE_MAX)));
    }

    #[test]
    fn each_kill_explains_one_death() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("memory.events");
        let write = |kills: u64| {
            std::fs::write(&place, format!("low 0\noom 7\noom_kill {kills}\noom_group_kill 0\n"))
                .expect("a file");
        };
        write(3);
        let mut kills = Kills::counted_in([folder.path().join("nothing"), place.clone()]);
        assert!(!kills.explain_one(), "those before do not count");
        write(5);
        assert!(kills.explain_one());
        assert!(kills.explain_one());
        assert!(!kills.explain_one(), "the third death had another reason");
        write(6);
        kills.forget();
        assert!(!kills.explain_one(), "somebody else was killed");
    }

    #[test]
    fn without_a_count_nothing_is_explained() {
        assert!(!Kills::counted_in([PathBuf::from("/nowhere")]).explain_one());
    }

    #[test]
    fn both_versions_of_groups_are_known() {
        let place = |line| place_of(line).map(|place| place.display().to_string());
        assert_eq!(place("0::/a/b"), Some("/sys/fs/cgroup/a/b/memory.events".into()));
        assert_eq!(place("0::/"), Some("/sys/fs/cgroup/memory.events".into()));
        assert_eq!(place("4:memory:/a"), Some("/sys/fs/cgroup/memory/a/memory.oom_control".into()));
        assert_eq!(place("1:cpu:/"), None);
        assert_eq!(place(""), None);
    }
}
