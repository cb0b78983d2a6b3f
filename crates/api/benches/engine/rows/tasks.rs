//! Empty tasks, as many as the engine can take.

use super::{Outcome, check, session};
use crate::Failure;
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::samples::{Samples, rate, timed};
use aktis::prelude::*;

const WANTED: Bound = Bound::AtLeast(1_000_000.0);
const GOAL: Bound = Bound::AtLeast(1_800_000.0);
const SUBMITTERS: u64 = 4;

/// A task that does nothing. What it gives is counted, so that none can be missing.
#[remote]
pub(super) fn empty() -> u64 {
    1
}

/// A task that submits empty tasks, holds on to all of them, and counts what they give.
#[remote]
fn submit_children(count: u64) -> aktis::Result<u64> {
    run_all(count)
}

/// Submits tasks, holds on to all of them, then takes what they give, and lets each go.
fn run_all(count: u64) -> aktis::Result<u64> {
    let tasks: Vec<_> = (0..count).map(|_| empty::remote()).collect();
    tasks.into_iter().map(|task| task.get()).sum()
}

/// Tasks per second of one round, in the session that was entered.
pub(super) fn round(count: u64) -> Result<f64, Failure> {
    let (time, sum) = timed(|| run_all(count))?;
    check("counting empty tasks", sum, count)?;
    Ok(rate(count, time))
}

/// One submitter.
pub(super) fn in_flight(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    measure("empty tasks in flight, one submitter", scale, round)
}

/// Four submitters, which are tasks themselves.
pub(super) fn nested(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    measure("empty tasks submitted by 4 tasks", scale, |count| {
        let each = count / SUBMITTERS;
        let (time, sum) = timed(|| {
            let submitters: Vec<_> = (0..SUBMITTERS).map(|_| submit_children::remote(each)).collect();
            submitters.into_iter().map(|task| task.get()).sum::<aktis::Result<u64>>()
        })?;
        check("counting tasks of tasks", sum, each * SUBMITTERS)?;
        Ok(rate(sum, time))
    })
}

/// Takes one finished task after the other out of a long list.
pub(super) fn wait_one_by_one(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let (count, rounds) = scale.pick((20_000, 3), (100_000, 5));
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut left: Vec<_> = (0..count).map(|_| empty::remote()).collect();
        session.get_all(&left)?;
        let (time, taken) = timed(|| -> aktis::Result<u64> {
            let mut taken = 0;
            while !left.is_empty() {
                let (ready, rest) = session.wait(std::mem::take(&mut left), 1, None)?;
                taken += ready.len() as u64;
                left = rest;
            }
            Ok(taken)
        })?;
        check("waiting for one after the other", taken, count)?;
        times.push(time.as_secs_f64());
    }
    let times = Samples::new(times);
    let detail = format!("median of {rounds} x {count}");
    let each = times.median() * 1e6 / count as f64;
    let figure = Figure::new("wait for one of many finished tasks", each, Unit::Microseconds);
    // A second for 100,000 of them.
    Ok(vec![figure.detail(detail).wanted(Bound::AtMost(10.0))])
}

fn measure(name: &str, scale: Scale, mut round: impl FnMut(u64) -> Result<f64, Failure>) -> Outcome {
    let (count, rounds) = scale.pick((200_000, 5), (1_000_000, 9));
    round(count)?; // The first one finds cold memory.
    let rates = Samples::new((0..rounds).map(|_| round(count)).collect::<Result<_, _>>()?);
    let detail = format!("median of {rounds} x {count}; best {:.0}", rates.most());
    Ok(vec![Figure::new(name, rates.median(), Unit::PerSecond).detail(detail).wanted(WANTED).goal(GOAL)])
}
