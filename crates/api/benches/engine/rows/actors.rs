//! Actors: calls of one in flight, and very many of them alive.

use super::{Outcome, check, session};
use crate::Failure;
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::memory::bytes_of_all_processes;
use crate::progress;
use crate::samples::{Samples, rate, timed};
use aktis::prelude::*;

/// How many actors are created before their first answers are taken. Few against all of them, so that what
/// is measured is the memory of actors and not that of calls in flight.
const TOGETHER: u64 = 10_000;

/// An actor that counts.
pub(super) struct Counter {
    total: u64,
}

#[actor]
impl Counter {
    fn new(start: u64) -> Self {
        Self { total: start }
    }

    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }
}

/// Calls of one actor, which run one after another.
pub(super) fn calls_in_flight(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let (count, rounds) = scale.pick((200_000, 5), (1_000_000, 9));
    let round = || -> Result<f64, Failure> {
        let counter = Counter::remote(0);
        check("a new actor", counter.add(0).get()?, 0)?;
        let (time, sum) = timed(|| {
            let calls: Vec<_> = (0..count).map(|_| counter.add(1)).collect();
            calls.into_iter().map(|call| call.get()).sum::<aktis::Result<u64>>()
        })?;
        // The sum of 1, 2, 3 and so on is right only if no call was lost, and none ran twice.
        check("counting calls", sum, count * (count + 1) / 2)?;
        Ok(rate(count, time))
    };
    round()?;
    let rates = Samples::new((0..rounds).map(|_| round()).collect::<Result<_, _>>()?);
    Ok(vec![
        Figure::new("actor calls in flight", rates.median(), Unit::PerSecond)
            .detail(format!("median of {rounds} x {count}; best {:.0}", rates.most()))
            .wanted(Bound::AtLeast(1_000_000.0))
            .goal(Bound::AtLeast(2_000_000.0)),
    ])
}

/// As many live actors as are asked for.
pub(super) fn hundred_thousand(_: Scale) -> Outcome {
    live(100_000, "100,000 live actors")
}

/// As many live actors as are the goal.
pub(super) fn million(_: Scale) -> Outcome {
    live(1_000_000, "1,000,000 live actors")
}

/// Creates actors, takes a first answer from each, and keeps them all.
fn live(count: u64, name: &str) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    check("a first actor", Counter::remote(7).add(0).get()?, 7)?;
    let before = bytes_of_all_processes()?;
    let (time, actors) = timed(|| create(count))?;
    let bytes = bytes_of_all_processes()?.saturating_sub(before) as f64 / count as f64;
    // All of them are still alive, and each still is who it was.
    let answers: Vec<_> = actors.iter().step_by(97).map(|actor| actor.add(1)).collect();
    for (start, answer) in (0..count).step_by(97).zip(answers) {
        check("an actor's second answer", answer.get()?, start + 2)?;
    }
    Ok(vec![
        Figure::new(format!("{name}, creation with first answer"), rate(count, time), Unit::PerSecond)
            .wanted(Bound::AtLeast(100_000.0)),
        Figure::new(format!("{name}, memory of each"), bytes, Unit::Bytes)
            .wanted(Bound::AtMost(1000.0))
            .detail("all processes"),
    ])
}

fn create(count: u64) -> Result<Vec<CounterHandle>, Failure> {
    let mut actors = Vec::with_capacity(count as usize);
    let mut answers = Vec::with_capacity(TOGETHER as usize);
    while (actors.len() as u64) < count {
        let first = actors.len() as u64;
        for start in first..count.min(first + TOGETHER) {
            let actor = Counter::remote(start);
            answers.push(actor.add(1));
            actors.push(actor);
        }
        for (start, answer) in (first..).zip(answers.drain(..)) {
            check("an actor's first answer", answer.get()?, start + 1)?;
        }
        progress::say(format_args!("  {} of {count} actors live", actors.len()));
    }
    Ok(actors)
}
