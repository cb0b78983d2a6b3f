//! How many files a daemon may have open: each worker and each other node costs some.

use crate::control::ControlError;
use crate::daemon::DaemonError;
use aktis_protocol::{Resources, resources};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of a daemon that has neither workers nor other nodes, with room for drivers and commands.
const ALONE: u64 = 64;
/// Files for each worker: its two outputs, its socket, and its process; one more while it starts.
const PER_WORKER: u64 = 5;

/// Raises the limit of this process as far as it may, and says whether that is enough for what the node offers.
///
/// Other nodes are not counted: how many there will be is not known, and each costs a handful.
pub(crate) fn raise_limit_for(offered: &Resources) -> Result<(), DaemonError> {
    raise_limit();
    enough(getrlimit(Resource::Nofile).current, workers(offered))
}

/// The same for a control process.
pub(crate) fn raise_limit_of_control() -> Result<(), ControlError> {
    raise_limit();
    enough_for_control(getrlimit(Resource::Nofile).current)
}

/// Raises the limit of this process as far as it may.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If that is refused, what there is may be enough.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// As many workers as run at the same time, one for each CPU.
fn workers(offered: &Resources) -> u64 {
    offered.get(resources::CPU).0.div_ceil(aktis_protocol::Amount::ONE.0)
}

fn enough(limit: Option<u64>, workers: u64) -> Result<(), DaemonError> {
    let wanted = ALONE + workers * PER_WORKER;
    match limit.filter(|limit| *limit < wanted) {
        Some(limit) => Err(DaemonError::OpenFiles { limit, wanted, workers }),
        None => Ok(()),
    }
}

fn enough_for_control(limit: Option<u64>) -> Result<(), ControlError> {
    match limit.filter(|limit| *limit < ALONE) {
        Some(limit) => Err(ControlError::OpenFiles { limit, wanted: ALONE }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enough_depends_on_the_workers() {
        assert!(enough(None, 10_000).is_ok(), "there is no limit");
        assert!(enough(Some(1024), 8).is_ok());
        let error = enough(Some(1024), 1000).expect_err("too few").to_string();
        assert!(error.contains("1024") && error.contains("5064") && error.contains("hint: "), "{error}");
        assert!(enough_for_control(None).is_ok() && enough_for_control(Some(ALONE)).is_ok());
        let error = enough_for_control(Some(16)).expect_err("too few").to_string();
        assert!(error.contains("ulimit -n 64"), "{error}");
    }
}
