//! Random runs of several nodes. A failing one prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test
//! cluster` runs that one alone and shows what the nodes saw and ordered.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SEEDS: u64 = 300;
const STEPS: u32 = 3000;

#[test]
fn nothing_is_freed_early_and_nothing_is_left_in_any_order() {
    let chosen = std::env::var("AKTIS_SEED").ok().map(|seed| seed.parse().expect("AKTIS_SEED is a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let run = || aktis_virtual_cluster::cluster::run(seed, STEPS, chosen.is_some());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            eprintln!("seed {seed} failed; run it alone with AKTIS_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
