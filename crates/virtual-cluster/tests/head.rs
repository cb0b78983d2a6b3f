//! The head and its clients in a virtual cluster. A failing run prints its seed; `AKTIS_SEED=… cargo test
//! -p aktis-virtual-cluster --test head` runs that one alone, and prints one line per event.

mod support;

use aktis_virtual_cluster::head;
use support::Seeds;

const SEEDS: u64 = 80;
const NODES: usize = 4;

#[test]
fn names_questions_records_and_jobs_survive_any_order_of_faults() {
    let seeds = Seeds::new(SEEDS, &[]);
    let (mut steps, mut questions, mut lives, mut lost, mut ghosts) = (0, 0, 0, 0, 0);
    for summary in seeds.run(|seed, trace| head::run(seed, NODES, trace), |_| {}) {
        steps += summary.steps;
        questions += summary.questions;
        lives += summary.lives;
        lost += summary.memberships_lost;
        ghosts += summary.ghosts;
    }
    println!(
        "{steps} steps, {questions} questions, {lives} lives of the control process, {lost} lost memberships, \
         {ghosts} late messages"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (first, second, other) =
        (head::run(3, NODES, false), head::run(3, NODES, false), head::run(4, NODES, false));
    assert_eq!(first, second);
    assert_ne!(first.hash, other.hash);
}
