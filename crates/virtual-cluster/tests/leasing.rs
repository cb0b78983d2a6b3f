//! Random runs. A failing one prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test leasing`
//! runs that one alone and shows what the node saw and ordered.

use aktis_virtual_cluster::leasing::{self, Summary};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SEEDS: u64 = 100;
/// Of half a millisecond.
const STEPS: u32 = 20_000;

#[test]
fn what_can_run_does_run_whatever_crosses_on_the_way() {
    let chosen = std::env::var("AKTIS_SEED").ok().map(|seed| seed.parse().expect("AKTIS_SEED is a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let mut all = Summary::default();
    for seed in seeds {
        let run = || leasing::run(seed, STEPS, chosen.is_some());
        let summary = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            eprintln!("seed {seed} failed; run it alone with AKTIS_SEED={seed}");
            resume_unwind(panic);
        });
        all.started += summary.started;
        all.crossings += summary.crossings;
        all.waits += summary.waits;
    }
    if chosen.is_none() {
        println!("{all:?}");
        assert!(all.started > 10_000 && all.waits > 1_000 && all.crossings > 100, "{all:?}");
    }
}
