//! Random runs. A failing one prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test chaos`
//! runs that one alone and shows what the node saw and ordered.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SEEDS: u64 = 250;
const STEPS: u32 = 1200;

#[test]
fn nothing_goes_wrong_in_any_order() {
    let chosen = std::env::var("AKTIS_SEED").ok().map(|seed| seed.parse().expect("AKTIS_SEED is a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let run = || aktis_virtual_cluster::chaos::run(seed, STEPS, chosen.is_some());
        let outcome = catch_unwind(AssertUnwindSafe(run));
        if let Err(panic) = outcome {
            eprintln!("seed {seed} failed; run it alone with AKTIS_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
