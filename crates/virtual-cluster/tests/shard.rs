//! Random runs of a shard of the control store. A failing one prints its seed; `AKTIS_SEED=… cargo test
//! -p aktis-virtual-cluster --test shard -- --nocapture` runs that one alone and shows all events.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SEEDS: u64 = 50;
const STEPS: u32 = 300;

#[test]
fn a_shard_does_as_the_model_says_whatever_fails() {
    let chosen = std::env::var("AKTIS_SEED").ok().map(|seed| seed.parse().expect("AKTIS_SEED is a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let run = || aktis_virtual_cluster::shard::run(seed, STEPS, chosen.is_some());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            eprintln!("seed {seed} failed; run it alone with AKTIS_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
