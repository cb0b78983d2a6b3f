//! All machines of the product together. A failing run prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster
//! --test whole` runs that one alone, and prints one line per event. `AKTIS_SEEDS=0..10000` runs a range, and goes on after
//! a failure.

mod support;

use aktis_virtual_cluster::whole;
use support::Seeds;

const SEEDS: u64 = 40;

#[test]
fn tasks_end_and_nothing_is_left_in_any_order_of_faults() {
    let seeds = Seeds::new(SEEDS, &[]);
    let runs = seeds.run(whole::run, |_| {});
    let submitted: u64 = runs.iter().map(|run| run.submitted).sum();
    let finished: u64 = runs.iter().map(|run| run.finished).sum();
    let frames: u64 = runs.iter().map(|run| run.frames).sum();
    let lost: u64 = runs.iter().map(|run| run.memberships_lost).sum();
    println!("{submitted} tasks of drivers, {finished} in all, {frames} frames, {lost} lost memberships");
    if seeds.is_whole {
        assert!(runs.iter().any(|run| !run.has_faults) && runs.iter().any(|run| run.has_faults));
        assert!(frames > 0 && finished > submitted / 2);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (first, second, other) = (whole::run(3, false), whole::run(3, false), whole::run(4, false));
    assert_eq!(first, second);
    assert_ne!(first.hash, other.hash);
}
