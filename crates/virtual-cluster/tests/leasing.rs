//! Random runs. A failing one prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test leasing`
//! runs that one alone and shows what the node saw and ordered.

mod support;

use aktis_virtual_cluster::leasing::{self, Summary};
use support::Seeds;

const SEEDS: u64 = 100;
/// Of half a millisecond.
const STEPS: u32 = 20_000;

#[test]
fn what_can_run_does_run_whatever_crosses_on_the_way() {
    let seeds = Seeds::new(SEEDS, &[]);
    let mut all = Summary::default();
    for summary in seeds.run(|seed, trace| leasing::run(seed, STEPS, trace), |_| {}) {
        all.started += summary.started;
        all.crossings += summary.crossings;
        all.waits += summary.waits;
    }
    if !seeds.is_single {
        println!("{all:?}");
        assert!(all.started > 10_000 && all.waits > 1_000 && all.crossings > 100, "{all:?}");
    }
}
