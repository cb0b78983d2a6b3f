//! Random runs. A failing one prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test chaos`
//! runs that one alone and shows what the node saw and ordered.

mod support;

use aktis_virtual_cluster::chaos;
use support::Seeds;

const SEEDS: u64 = 250;
const STEPS: u32 = 1200;
/// Seeds beyond those that once failed: a process left an object to others, and got a reference to the object back from a
/// process that then died.
const REGRESSIONS: [u64; 3] = [2157, 2993, 3848];

#[test]
fn nothing_goes_wrong_in_any_order() {
    let seeds = Seeds::new(SEEDS, &REGRESSIONS);
    seeds.run(|seed, trace| chaos::run(seed, STEPS, trace), |_| {});
}
