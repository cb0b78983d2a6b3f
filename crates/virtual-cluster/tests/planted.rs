//! Bugs that are planted into the proxies of the virtual cluster: random runs have to find each of them.

use aktis_logic::machine::remote_node::PlantedBug;
use aktis_virtual_cluster::cluster;
use std::panic::{AssertUnwindSafe, catch_unwind};

const STEPS: u32 = 3000;
/// Seeds within which each planted bug has to be found.
const PLANTED_SEEDS: u64 = 300;

/// The bugs that those seeds find. The others need rarer interleavings.
const FOUND: [PlantedBug; 6] = [
    PlantedBug::LateImports,
    PlantedBug::ReleaseAllActorImports,
    PlantedBug::ReleaseAllExports,
    PlantedBug::UnseenTasks,
    PlantedBug::ForgottenWaiter,
    PlantedBug::SilentCancel,
];

#[test]
fn planted_bugs_are_found() {
    // Thousands of expected panics: their messages are of no use.
    std::panic::set_hook(Box::new(|_| {}));
    let is_wrong = |bug, seed| {
        catch_unwind(AssertUnwindSafe(|| cluster::run_with(seed, STEPS, false, Some(bug)))).is_err()
    };
    let found = FOUND.map(|bug| (bug, (0..PLANTED_SEEDS).find(|seed| is_wrong(bug, *seed))));
    let _ = std::panic::take_hook();
    println!("{found:#?}");
    let missed: Vec<_> = found.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "no seed below {PLANTED_SEEDS} finds {missed:?}");
}
