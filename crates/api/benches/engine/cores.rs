//! Keeps a thread on one core: a round trip in which somebody sleeps takes many times longer between two cores than on
//! one, and left to itself the kernel chooses either, from run to run.

use crate::Failure;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the two ends of a round trip are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Both on the same core: who goes to sleep makes room for the other.
    OneCore,
    /// Each on a core of its own, if there are two.
    TwoCores,
}

impl Placement {
    /// The cores of the near and the far end.
    pub(crate) fn cores(self) -> Result<(usize, usize), Failure> {
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let near = cores.next().ok_or("there is no core to run on")?;
        let far = if self == Self::OneCore { near } else { cores.next().unwrap_or(near) };
        Ok((near, far))
    }
}

/// While this lives, the thread that made it stays on one core.
pub(crate) struct OnCore {
    before: CpuSet,
}

impl OnCore {
    /// Moves this thread to the core. Processes that it starts begin there, too, and stay.
    pub(crate) fn enter(core: usize) -> Result<Self, Failure> {
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only)?;
        Ok(Self { before })
    }
}

impl Drop for OnCore {
    fn drop(&mut self) {
        // It was allowed before, so it can only fail if the machine's cores have changed.
        let _ = sched_setaffinity(None, &self.before);
    }
}
