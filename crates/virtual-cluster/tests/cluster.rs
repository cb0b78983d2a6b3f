//! Random runs of several nodes. A failing one prints its seed; `AKTIS_SEED=… cargo test -p aktis-virtual-cluster --test
//! cluster` runs that one alone and shows what the nodes saw and ordered. `AKTIS_SEEDS=0..10000` runs a range, and goes on
//! after a failure.

mod support;

use aktis_virtual_cluster::cluster::{self, Frames};
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::Seeds;

const SEEDS: u64 = 300;
const STEPS: u32 = 3000;
/// Seeds beyond those that once failed. 427 to 1500: a proxy sent a call after it had heard of the actor's end, and kept the
/// call. 5144: a proxy released all imports of an actor when the node had answered the first of them. 5061: a virtual node was
/// asked for a value before it had read that the value was sealed. 8549: a proxy released imports of an actor that had ended,
/// and the node had released them already.
const REGRESSIONS: [u64; 7] = [427, 464, 941, 1500, 5061, 5144, 8549];

/// Frames that every whole run of this test has to have seen.
const KINDS: &[&str] = &[
    "ActorAway",
    "ActorBack",
    "ActorGone",
    "ActorKnown",
    "ActorReleased",
    "ActorSought",
    "Call",
    "Cancel",
    "Known",
    "Program",
    "ProgramPart",
    "ProgramWanted",
    "Released",
    "Returned",
    "Shape",
    "Sought",
    "Task",
    "TaskLost",
    "Unknown",
    "Value",
    "ValueWanted",
];

#[test]
fn nothing_is_freed_early_and_nothing_is_left_in_any_order() {
    let seeds = Seeds::new(SEEDS, &REGRESSIONS);
    let mut crossed = Frames::new();
    for summary in seeds.run(|seed, trace| cluster::run(seed, STEPS, trace), show_shortest) {
        let frames = summary.frames.into_iter();
        frames.for_each(|(kind, count)| *crossed.entry(kind).or_default() += count);
    }
    println!("{crossed:#?}");
    let missing: Vec<_> = KINDS.iter().filter(|kind| !crossed.contains_key(**kind)).collect();
    assert!(!seeds.is_whole || missing.is_empty(), "never seen: {missing:?}, of {crossed:?}");
}

/// Shows the events of a run that fails, one per line, with as few steps as fail.
fn show_shortest(seed: u64) {
    let fails = |steps, trace| catch_unwind(AssertUnwindSafe(|| cluster::run(seed, steps, trace))).is_err();
    std::panic::set_hook(Box::new(|_| {}));
    let steps = support::shortest(STEPS, |steps| fails(steps, false));
    let _ = std::panic::take_hook();
    println!("seed {seed} fails after {steps} steps:");
    fails(steps, true);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| cluster::run(seed, STEPS, false);
    for seed in [1, 2, 3] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(3).hash(), run(4).hash());
}
