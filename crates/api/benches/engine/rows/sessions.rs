//! Sessions: how long they take to start, to give a first result, and to end.

use super::tasks::empty;
use super::{Outcome, check, session};
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::samples::{Samples, milliseconds};
use std::time::Instant;

/// Starts and ends sessions, one after another.
pub(super) fn measure(scale: Scale) -> Outcome {
    let rounds = scale.pick(5, 20);
    let (mut starts, mut results, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begin = Instant::now();
        let session = session()?;
        starts.push(milliseconds(begin.elapsed()));
        let entered = session.enter();
        check("a first task", empty::remote().get()?, 1)?;
        results.push(milliseconds(begin.elapsed()));
        drop(entered);
        let begin = Instant::now();
        session.shutdown();
        ends.push(milliseconds(begin.elapsed()));
    }
    let figure = |name, times, most| {
        let times = Samples::new(times);
        Figure::new(name, times.median(), Unit::Milliseconds)
            .wanted(Bound::AtMost(most))
            .detail(format!("median of {rounds}; most {:.1}", times.most()))
    };
    Ok(vec![
        figure("init", starts, 30.0),
        figure("init and first task result", results, 30.0),
        figure("shutdown", ends, 100.0),
    ])
}
