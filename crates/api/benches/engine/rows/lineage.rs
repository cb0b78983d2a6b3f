//! What it costs to keep finished tasks on record: the same tasks in two sessions, with and without.
//!
//! A third session, with lineage like the first, is the control: how far apart those two come out is how little
//! the comparison can be trusted.

use super::{CPUS, Outcome, tasks};
use crate::Failure;
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::progress;
use crate::samples::Samples;
use aktis::Session;

const WITH: usize = 0;
const WITHOUT: usize = 1;
const CONTROL: usize = 2;

/// Rounds of empty tasks, by turns in all sessions; each turn is compared by itself.
pub(super) fn measure(scale: Scale) -> Outcome {
    let start = |lineage| Session::builder().cpus(CPUS).lineage(lineage).start();
    let sessions = [start(true)?, start(false)?, start(true)?];
    // Short rounds, many of them: the machine's mood changes within seconds, and a pair must share it.
    let (count, turns) = scale.pick((20_000, 45), (50_000, 300));
    let round = |session: &Session| -> Result<f64, Failure> {
        let _entered = session.enter();
        tasks::round(count)
    };
    for session in &sessions {
        round(session)?;
    }
    let mut rates: [Vec<f64>; 3] = Default::default();
    for turn in 0..turns {
        // Whoever comes later may find warmer memory: each is first, second and third as often.
        for place in 0..sessions.len() {
            let session = (turn + place) % sessions.len();
            rates[session].push(round(&sessions[session])?);
        }
        if (turn + 1) % 15 == 0 {
            progress::say(format_args!("  turn {} of {turns}", turn + 1));
        }
    }
    let overhead = |other: usize| {
        let pairs = rates[WITH].iter().zip(&rates[other]);
        Samples::new(pairs.map(|(with, other)| (other / with - 1.0) * 100.0).collect())
    };
    let (lineage, control) = (overhead(WITHOUT), overhead(CONTROL));
    let best = rates.map(|rates| Samples::new(rates).most());
    Ok(vec![
        Figure::new("lineage on against off, overhead", lineage.median(), Unit::Percent)
            .wanted(Bound::AtMost(5.0))
            .detail(format!(
                "median of {turns} x {count}, quartiles {:.1} and {:.1}; best round against best {:.1}; \
                 on against on {:.1}",
                lineage.quantile(0.25),
                lineage.quantile(0.75),
                (best[WITHOUT] / best[WITH] - 1.0) * 100.0,
                control.median(),
            )),
    ])
}
