//! Two jobs on one node. A failing seed is printed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test rights`
//! runs that one alone.

mod support;

use aktis_virtual_cluster::jobs;
use support::Seeds;

const SEEDS: u64 = 100;
const STEPS: u32 = 600;

#[test]
fn a_hostile_job_neither_learns_nor_changes_anything_of_another() {
    let seeds = Seeds::new(SEEDS, &[]);
    let summaries = seeds.run(|seed, _| jobs::run(seed, STEPS), |_| {});
    let attacks: u64 = summaries.iter().map(|summary| summary.attacks).sum();
    let made: u64 = summaries.iter().map(|summary| summary.made).sum();
    if seeds.is_whole {
        assert!(attacks > 10_000 && made > 5_000, "{attacks} attacks, {made} things");
    }
}
