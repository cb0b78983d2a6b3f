//! How run times are estimated: as the product does it, or in other ways to compare it with.

use aktis_logic::estimate;
use aktis_protocol::FunctionId;
use aktis_protocol::placement::NodeReport;
use std::collections::{BTreeMap, VecDeque};

/// Runs that a sliding mean is made of.
const SLIDING_RUNS: usize = 64;
/// So many that what is told counts for half of what is known.
const WEIGHT: u32 = 100_000;

/// A way to estimate run times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimator {
    /// A sketch of quantiles for each function: the product's.
    #[default]
    Sketches,
    /// One exponential average for all functions.
    OneAverage,
    /// An exponential average for each function.
    Averages,
    /// The mean of the last runs of each function.
    SlidingMeans,
    /// Nothing is known of run times.
    Nothing,
    /// Each task's own run time is known before it runs, to an eighth.
    Oracle,
}

impl Estimator {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Sketches, Self::OneAverage, Self::Averages, Self::SlidingMeans, Self::Nothing, Self::Oracle];

    /// What it is, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sketches => "sketch per function",
            Self::OneAverage => "one average",
            Self::Averages => "average per function",
            Self::SlidingMeans => "sliding mean per function",
            Self::Nothing => "nothing",
            Self::Oracle => "oracle",
        }
    }

    /// What a task of this function, which runs for so long, is told apart by.
    pub(super) fn class(self, function: FunctionId, microseconds: u64) -> FunctionId {
        match self {
            Self::Sketches | Self::Averages | Self::SlidingMeans => function,
            Self::OneAverage | Self::Nothing => FunctionId::default(),
            Self::Oracle => FunctionId(1_000 + u64::from(estimate::bucket(microseconds))),
        }
    }
}

/// What an [`Estimator`] has seen.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    averages: BTreeMap<FunctionId, u64>,
    last_runs: BTreeMap<FunctionId, VecDeque<u64>>,
}

impl Estimates {
    /// Replaces the run times of a report by what the estimator makes of them.
    pub(super) fn rewrite(&mut self, estimator: Estimator, report: &mut NodeReport) {
        match estimator {
            Estimator::Sketches | Estimator::Oracle => return,
            Estimator::Nothing => return report.run_times.clear(),
            Estimator::OneAverage | Estimator::Averages | Estimator::SlidingMeans => {}
        }
        for told in &mut report.run_times {
            for (bucket, count) in std::mem::take(&mut told.buckets) {
                for _ in 0..count {
                    self.add(told.function, estimate::middle(bucket));
                }
            }
            let expected = match estimator {
                Estimator::SlidingMeans => {
                    let runs = &self.last_runs[&told.function];
                    runs.iter().sum::<u64>() / runs.len() as u64
                }
                _ => self.averages[&told.function],
            };
            told.buckets = vec![(estimate::bucket(expected), WEIGHT)];
        }
    }

    fn add(&mut self, function: FunctionId, seen: u64) {
        let average = self.averages.entry(function).or_insert(seen);
        *average = (*average * 4 + seen) / 5;
        let runs = self.last_runs.entry(function).or_default();
        runs.push_back(seen);
        if runs.len() > SLIDING_RUNS {
            runs.pop_front();
        }
    }
}
