//! How long tasks run, by function: a sketch of fixed size from which the mean and every quantile can be read.
//!
//! A sketch counts run times in buckets of a quarter of an octave, so that a bucket's middle is off by an eighth at
//! most. What is old fades: whenever a sketch is full, all counts are halved.
//!
//! Invariants:
//! 1. A sketch has the same size however much it has seen, and the weights of its buckets add up to its total.
//! 2. There are at most `FUNCTIONS_MAX` sketches; the one that was not fed for longest makes room.

use aktis_protocol::FunctionId;
use aktis_protocol::placement::RunTimes;
use std::collections::BTreeMap;

/// Buckets of a sketch: from nothing to more than two hours, in microseconds.
pub const BUCKETS: usize = 128;
/// Functions that have an estimate of their own.
pub const FUNCTIONS_MAX: usize = 4096;
/// What one run adds to its bucket: more than one, so that halving keeps fractions.
const WEIGHT: u64 = 256;
/// Runs after which what was seen counts half.
const RUNS_MAX: u64 = 512;

/// How long a task is expected to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// On average: what so many of them add up to.
    pub mean_microseconds: u64,
    /// Longer than half of them: what one takes that is not kept from running, though some are.
    pub median_microseconds: u64,
    /// At least the mean, and longer than nine of ten: what may be relied on.
    pub cautious_microseconds: u64,
}

/// The bucket that a run time belongs to.
pub fn bucket(microseconds: u64) -> u8 {
    if microseconds < 4 {
        return microseconds as u8;
    }
    let octave = microseconds.ilog2();
    let quarter = (microseconds >> (octave - 2)) & 3;
    ((u64::from(octave) - 1) * 4 + quarter).min(BUCKETS as u64 - 1) as u8
}

/// The middle of a bucket, in microseconds.
pub fn middle(bucket: u8) -> u64 {
    if bucket < 4 {
        return u64::from(bucket);
    }
    let (octave, quarter) = (u64::from(bucket) / 4 + 1, u64::from(bucket) % 4);
    let width = 1 << (octave - 2);
    (4 + quarter) * width + width / 2
}

/// The run times of one function.
#[derive(Clone, Debug)]
pub struct Sketch {
    weights: [u32; BUCKETS],
    total: u64,
    /// Read often, and changed by `add` only.
    expectation: Expectation,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { weights: [0; BUCKETS], total: 0, expectation: Expectation::default() }
    }
}

impl Sketch {
    /// Whether nothing has been seen.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// One task has run so long.
    pub fn record(&mut self, microseconds: u64) {
        self.add(&[(bucket(microseconds), 1)]);
    }

    /// Tasks have run so long: buckets, and how many fell into each.
    pub fn add(&mut self, buckets: &[(u8, u32)]) {
        for &(bucket, count) in buckets {
            let place = usize::from(bucket).min(BUCKETS - 1);
            let weight = u64::from(count).min(RUNS_MAX) * WEIGHT;
            self.weights[place] += weight as u32;
            self.total += weight;
            if self.total >= RUNS_MAX * WEIGHT {
                self.fade();
            }
        }
        self.expectation = self.expect();
    }

    fn fade(&mut self) {
        self.weights.iter_mut().for_each(|weight| *weight /= 2);
        self.total = self.weights.iter().map(|weight| u64::from(*weight)).sum();
    }

    fn expect(&self) -> Expectation {
        let mean_microseconds = self.mean();
        let cautious_microseconds = self.quantile(90).max(mean_microseconds);
        Expectation { mean_microseconds, median_microseconds: self.quantile(50), cautious_microseconds }
    }

    fn mean(&self) -> u64 {
        let parts = self.weights.iter().zip(0..).map(|(weight, bucket)| u64::from(*weight) * middle(bucket));
        parts.sum::<u64>().checked_div(self.total).unwrap_or(0)
    }

    /// The run time that so many of a hundred do not exceed; 0 if nothing has been seen.
    pub fn quantile(&self, percent: u64) -> u64 {
        let mut below = 0;
        for (weight, bucket) in self.weights.iter().zip(0..) {
            below += u64::from(*weight);
            if *weight > 0 && below * 100 >= self.total * percent {
                return middle(bucket);
            }
        }
        0
    }

    /// How long the next one is expected to run, if anything has been seen.
    pub fn expectation(&self) -> Option<Expectation> {
        (!self.is_empty()).then_some(self.expectation)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        let sum: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        assert_eq!(sum, self.total, "estimate invariant 1");
        assert!(self.total < RUNS_MAX * WEIGHT * 2, "estimate invariant 1: old runs fade");
    }
}

#[derive(Clone, Debug)]
struct Fed {
    sketch: Sketch,
    fed_at: u64,
}

/// The run times of all functions.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    functions: BTreeMap<FunctionId, Fed>,
    /// When each was fed last, oldest first.
    fed: BTreeMap<u64, FunctionId>,
    /// Of all functions together, for those of which nothing is known.
    all: Sketch,
    feedings: u64,
}

impl Estimates {
    /// Tasks of a function have run.
    pub fn on_run(&mut self, run_times: &RunTimes) {
        let RunTimes { function, buckets } = run_times;
        self.all.add(buckets);
        self.feedings += 1;
        let mut fed = match self.functions.remove(function) {
            Some(fed) => {
                self.fed.remove(&fed.fed_at);
                fed
            }
            None => Fed { sketch: Sketch::default(), fed_at: 0 },
        };
        if self.functions.len() >= FUNCTIONS_MAX
            && let Some((_, oldest)) = self.fed.pop_first()
        {
            self.functions.remove(&oldest);
        }
        fed.sketch.add(buckets);
        fed.fed_at = self.feedings;
        self.fed.insert(self.feedings, *function);
        self.functions.insert(*function, fed);
    }

    /// How long a task of this function is expected to run: as those before it, or else as anything does.
    pub fn expectation(&self, function: FunctionId) -> Option<Expectation> {
        let own = self.functions.get(&function).and_then(|fed| fed.sketch.expectation());
        own.or_else(|| self.all.expectation())
    }

    /// What is known about one function.
    pub fn sketch(&self, function: FunctionId) -> Option<&Sketch> {
        self.functions.get(&function).map(|fed| &fed.sketch)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.functions.len() <= FUNCTIONS_MAX, "estimate invariant 2");
        assert_eq!(self.functions.len(), self.fed.len(), "estimate invariant 2");
        self.all.check();
        for (function, fed) in &self.functions {
            assert_eq!(self.fed.get(&fed.fed_at), Some(function), "estimate invariant 2");
            fed.sketch.check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_middle_and_is_off_by_an_eighth_at_most() {
        for bucket_of in 0..BUCKETS as u8 {
            assert_eq!(bucket(middle(bucket_of)), bucket_of);
        }
        let mut last = 0;
        for power in 0..33 {
            for offset in [0, 1, 7, 100] {
                let time = (1_u64 << power) + (offset << power) / 128;
                let off = middle(bucket(time)).abs_diff(time);
                assert!(off * 8 <= time, "{time} is taken for {}", middle(bucket(time)));
                assert!(bucket(time) >= last, "buckets are in order");
                last = bucket(time);
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS as u8 - 1);
    }

    #[test]
    fn mean_and_quantiles_of_two_kinds_of_runs() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.expectation(), None);
        for _ in 0..95 {
            sketch.record(1_000);
        }
        for _ in 0..5 {
            sketch.record(1_000_000);
        }
        assert!(sketch.quantile(50).abs_diff(1_000) <= 125);
        assert!(sketch.quantile(99).abs_diff(1_000_000) <= 125_000);
        let expected = sketch.expectation().unwrap();
        assert!(expected.mean_microseconds.abs_diff(50_950) <= 6_400, "{expected:?}");
        assert_eq!(
            expected.cautious_microseconds, expected.mean_microseconds,
            "the mean is above nine of ten"
        );
        sketch.check();
    }

    #[test]
    fn old_runs_fade() {
        let mut sketch = Sketch::default();
        sketch.add(&[(bucket(1_000_000), 100_000)]);
        for _ in 0..10 * RUNS_MAX {
            sketch.record(1_000);
            sketch.check();
        }
        assert!(sketch.expectation().unwrap().mean_microseconds < 2_000, "{sketch:?}");
    }

    #[test]
    fn the_function_that_was_not_seen_for_longest_is_forgotten() {
        let mut estimates = Estimates::default();
        let run = |function, microseconds| RunTimes {
            function: FunctionId(function),
            buckets: vec![(bucket(microseconds), 1)],
        };
        assert_eq!(estimates.expectation(FunctionId(0)), None);
        for function in 0..FUNCTIONS_MAX as u64 {
            estimates.on_run(&run(function, 4));
        }
        estimates.on_run(&run(0, 4));
        estimates.on_run(&run(FUNCTIONS_MAX as u64, 5));
        estimates.check();
        assert!(estimates.sketch(FunctionId(0)).is_some() && estimates.sketch(FunctionId(1)).is_none());
        assert_eq!(estimates.expectation(FunctionId(1)).unwrap().mean_microseconds, 4, "as anything does");
        assert_eq!(estimates.expectation(FunctionId(FUNCTIONS_MAX as u64)).unwrap().mean_microseconds, 5);
    }
}
