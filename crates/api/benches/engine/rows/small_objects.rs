//! Small values: made into objects, and read again.

use super::{Outcome, check, session};
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::samples::{Samples, rate, timed};

/// Puts numbers, holds on to all of them, then gets each.
pub(super) fn measure(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let (count, rounds) = scale.pick((200_000, 5), (1_000_000, 9));
    let (mut puts, mut gets) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (put, objects) = timed(|| (0..count).map(aktis::put).collect::<aktis::Result<Vec<_>>>())?;
        let (get, sum) = timed(|| objects.iter().map(|object| object.get()).sum::<aktis::Result<u64>>())?;
        check("adding up objects", sum, count * (count - 1) / 2)?;
        if round > 0 {
            puts.push(rate(count, put));
            gets.push(rate(count, get));
        }
    }
    let figure = |name, rates, least| {
        let rates = Samples::new(rates);
        Figure::new(name, rates.median(), Unit::PerSecond)
            .wanted(Bound::AtLeast(least))
            .detail(format!("median of {rounds} x {count}; best {:.0}", rates.most()))
    };
    Ok(vec![
        figure("put of a small value", puts, 1_000_000.0),
        figure("get of a small value", gets, 3_000_000.0),
    ])
}
