//! Bugs that are planted into the machines: random runs have to find each of them. A bounded range of seeds is run for
//! each; the other tests show that these seeds find nothing without a planted bug.
#![cfg(debug_assertions)]

use aktis_logic::machine::remote_node::PlantedBug;
use aktis_logic::planted::{HeadBug, NodeBug, PlacerBug, ShardBug, SubmitterBug};
use aktis_virtual_cluster::placement::trial::{self, Size};
use aktis_virtual_cluster::{chaos, cluster, head, leasing, shard, submitter};
use std::cell::Cell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether panics of this thread are expected: their messages are of no use.
    static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// Runs seeds from 0 on until one fails, for each bug. Panics if a bug is not found below `seeds_max`.
fn assert_found<B: Copy + Debug, R>(bugs: &[B], seeds_max: u64, run: impl Fn(u64, B) -> R) {
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTS_PANICS.get() {
                default(info);
            }
        }));
    });
    EXPECTS_PANICS.set(true);
    let fails = |seed, bug| catch_unwind(AssertUnwindSafe(|| run(seed, bug))).is_err();
    let first_seed = |bug: &B| (*bug, (0..seeds_max).find(|seed| fails(*seed, *bug)));
    let found: Vec<_> = bugs.iter().map(first_seed).collect();
    EXPECTS_PANICS.set(false);
    println!("{found:?}");
    let missed: Vec<_> = found.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "no seed below {seeds_max} finds {missed:?}");
}

#[test]
fn planted_bugs_of_proxies_are_found() {
    // The other bugs of the enum need rarer interleavings.
    let bugs = [
        PlantedBug::LateImports,
        PlantedBug::ReleaseAllActorImports,
        PlantedBug::ReleaseAllExports,
        PlantedBug::UnseenTasks,
        PlantedBug::ForgottenWaiter,
        PlantedBug::SilentCancel,
    ];
    assert_found(&bugs, 300, |seed, bug| cluster::run_with(seed, 3000, false, Some(bug)));
}

#[test]
fn planted_bugs_of_references_and_recovery_are_found() {
    let bugs = [NodeBug::UnheldContents, NodeBug::SilentOwner];
    assert_found(&bugs, 250, |seed, bug| chaos::run_with(seed, 1200, false, Some(bug)));
}

#[test]
fn planted_bugs_of_leases_are_found() {
    let bugs = [NodeBug::LeakedLease];
    assert_found(&bugs, 20, |seed, bug| leasing::run_with(seed, 20_000, false, Some(bug)));
}

#[test]
fn planted_bugs_of_names_and_links_are_found() {
    let bugs = [HeadBug::StaleLink, HeadBug::OvertakenClaim, HeadBug::KeptNames];
    assert_found(&bugs, 300, |seed, bug| head::run_with(seed, 4, false, Some(bug)));
}

#[test]
fn planted_bugs_of_placement_are_found() {
    let size = Size { nodes: 8, tasks: 150, groups: 8, check_every: 1 };
    let bugs = [PlacerBug::StaleEpoch, PlacerBug::LostReturn];
    assert_found(&bugs, 60, |seed, bug| trial::run_with(seed, size, Some(bug)));
}

#[test]
fn planted_bugs_of_the_control_store_are_found() {
    let bugs = [ShardBug::EarlyAnswer, ShardBug::RepeatedBatch, ShardBug::StaleEpoch];
    assert_found(&bugs, 50, |seed, bug| shard::run_with(seed, 300, false, Some(bug)));
}

#[test]
fn planted_bugs_of_submitters_are_found() {
    let bugs = [SubmitterBug::ReversedCalls, SubmitterBug::StaleAttempt];
    assert_found(&bugs, 400, |seed, bug| submitter::run_with(seed, 500, false, Some(bug)));
}
