//! Which seeds a test runs, and what it says about those that fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds of a test: its own, one that a person has chosen with `AKTIS_SEED`, or a range: `AKTIS_SEEDS=10000` or
/// `AKTIS_SEEDS=500..10000`.
pub(crate) struct Seeds {
    seeds: Vec<u64>,
    /// Whether a person has chosen a single seed and wants to see its events.
    pub(crate) is_single: bool,
    /// Whether all of the test's own seeds run.
    #[allow(dead_code, reason = "not every test counts what its seeds have seen")]
    pub(crate) is_whole: bool,
}

impl Seeds {
    pub(crate) fn new(count: u64, regressions: &[u64]) -> Self {
        let single = std::env::var("AKTIS_SEED").ok();
        let range = std::env::var("AKTIS_SEEDS").ok();
        let seeds = match (&single, &range) {
            (Some(seed), _) => vec![seed.parse().expect("AKTIS_SEED must be a number")],
            (None, Some(range)) => parse_range(range).collect(),
            (None, None) => (0..count).chain(regressions.iter().copied()).collect(),
        };
        Self { seeds, is_single: single.is_some(), is_whole: single.is_none() && range.is_none() }
    }

    /// Runs all seeds, each with whether its events are shown; gives what those gave that hold. Panics at the end if one failed,
    /// with `explain` for the first of them.
    pub(crate) fn run<T>(&self, run: impl Fn(u64, bool) -> T, explain: impl Fn(u64)) -> Vec<T> {
        let (mut held, mut failed) = (Vec::new(), Vec::new());
        for &seed in &self.seeds {
            match catch_unwind(AssertUnwindSafe(|| run(seed, self.is_single))) {
                Ok(summary) => held.push(summary),
                Err(_) => {
                    eprintln!("seed {seed} failed; run it alone with AKTIS_SEED={seed}");
                    failed.push(seed);
                }
            }
        }
        if let (Some(&first), false) = (failed.first(), self.is_single) {
            explain(first);
        }
        assert!(failed.is_empty(), "{} of {} seeds failed: {failed:?}", failed.len(), self.seeds.len());
        held
    }
}

fn parse_range(text: &str) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse().expect("AKTIS_SEEDS must be a number, or two like 0..1000");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(text),
    }
}

/// The smallest number of steps after which a run still fails, as far as halving finds it: fewer events to read.
#[allow(dead_code, reason = "not every test that includes this module can shorten its runs")]
pub(crate) fn shortest(steps: u32, fails: impl Fn(u32) -> bool) -> u32 {
    let (mut holds, mut fails_at) = (0, steps);
    while fails_at - holds > 1 {
        let middle = holds + (fails_at - holds) / 2;
        match fails(middle) {
            true => fails_at = middle,
            false => holds = middle,
        }
    }
    fails_at
}
