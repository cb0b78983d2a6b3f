//! The GPUs of this machine, as a daemon offers them unless it is told otherwise.

use std::path::Path;

/// Where the driver of the GPUs has a directory for each of them.
const DRIVER: &str = "/proc/driver/nvidia/gpus";
/// What stands for no GPU among those that are chosen.
const NONE: [&str; 3] = ["", "-1", "NoDevFiles"];

/// How many GPUs this process may use: those that `CUDA_VISIBLE_DEVICES` names, or else all.
pub(crate) fn count() -> u64 {
    let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    count_of(chosen.as_deref(), Path::new(DRIVER))
}

fn count_of(chosen: Option<&str>, driver: &Path) -> u64 {
    match chosen {
        Some(names) => names.split(',').filter(|name| !NONE.contains(&name.trim())).count() as u64,
        None => std::fs::read_dir(driver).map_or(0, |devices| devices.flatten().count() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_chosen_count_and_else_all() {
        let driver = tempfile::tempdir().expect("a directory");
        assert_eq!(count_of(None, &driver.path().join("missing")), 0);
        for device in ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"] {
            std::fs::create_dir(driver.path().join(device)).expect("made");
        }
        assert_eq!(count_of(None, driver.path()), 3);
        for (chosen, count) in [("", 0), ("-1", 0), ("NoDevFiles", 0), ("0, GPU-7f", 2), ("2", 1)] {
            assert_eq!(count_of(Some(chosen), driver.path()), count, "{chosen:?}");
        }
    }
}
