//! `map` over many short items, by turns with rayon's parallel iterator over the same items.
//!
//! rayon calls a function on threads of this process. `map` calls it in the worker process, and sends items and results.
//! So rayon's time is the limit of a parallel loop on this machine.

use super::{CPUS, Outcome, check, session};
use crate::Failure;
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::samples::{Samples, microseconds, milliseconds, timed};
use aktis::prelude::*;
use rayon::prelude::*;
use std::time::Instant;

/// What one item takes.
const ITEM_MICROSECONDS: f64 = 3.0;

/// A number that costs so many steps to get.
#[remote]
fn mix(number: u64, steps: u32) -> u64 {
    (0..steps).fold(number, |mixed, _| {
        std::hint::black_box(mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
    })
}

/// The steps that take an item's time on this machine: from the fastest of many trials.
fn steps_per_item() -> u32 {
    const TRIAL: u32 = 100_000;
    let trial = |number| {
        let begin = Instant::now();
        std::hint::black_box(mix(number, TRIAL));
        microseconds(begin.elapsed())
    };
    let fastest = Samples::new((0..200).map(trial).collect()).least();
    (f64::from(TRIAL) * ITEM_MICROSECONDS / fastest) as u32
}

/// A session and a pool of rayon with a thread for each of its CPUs.
pub(super) fn measure(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(CPUS as usize).build()?;
    let (items, rounds) = scale.pick((100_000, 9), (100_000, 41));
    let steps = steps_per_item();
    let by_rayon = || {
        let sum = pool.install(|| {
            (0..items).into_par_iter().map(|number| mix(number, steps)).reduce(|| 0, u64::wrapping_add)
        });
        Ok::<u64, Failure>(sum)
    };
    let by_map = || -> Result<u64, Failure> {
        let mut numbers = mix::map((0..items).map(|number| (number, steps)));
        numbers.try_fold(0, |sum: u64, number| Ok(sum.wrapping_add(number?)))
    };
    let expected = by_rayon()?;
    check("map", by_map()?, expected)?;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (rayon_time, sum) = timed(by_rayon)?;
        check("rayon", sum, expected)?;
        let (map_time, sum) = timed(by_map)?;
        check("map", sum, expected)?;
        ratios.push((map_time.as_secs_f64() / rayon_time.as_secs_f64() - 1.0) * 100.0);
        ours.push(milliseconds(map_time));
        theirs.push(milliseconds(rayon_time));
    }
    let (ours, theirs, ratios) = (Samples::new(ours), Samples::new(theirs), Samples::new(ratios));
    let detail = format!(
        "median of {rounds}; map {:.0} ms, rayon {:.0} ms; quartiles {:.1} and {:.1}",
        ours.median(),
        theirs.median(),
        ratios.quantile(0.25),
        ratios.quantile(0.75),
    );
    let figure =
        Figure::new("map of 100,000 items of 3 µs, more time than rayon", ratios.median(), Unit::Percent);
    Ok(vec![figure.detail(detail).wanted(Bound::AtMost(10.0))])
}
