//! Very many tasks through one driver, with a window of them in flight: memory must not grow.

use super::{Outcome, check, session};
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::memory::bytes_of_all_processes;
use crate::progress;
use crate::samples::{Samples, rate};
use aktis::prelude::*;
use std::collections::VecDeque;
use std::time::Instant;

const MILLION: u64 = 1_000_000;
const WINDOW: usize = 10_000;
/// Megabytes of growth that are the allocator's and not a leak's, unless a twentieth is more. If each task left
/// one byte behind, 49 million would be far above it.
const GROWTH_MAX: f64 = 4.0;

/// Gives what it got.
#[remote]
pub(super) fn echo(x: u64) -> u64 {
    x
}

/// Submits tasks through a sliding window, and looks at the memory after each million.
pub(super) fn measure(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let millions = scale.pick(5, 50);
    let mut window = VecDeque::with_capacity(WINDOW);
    let mut memory = Vec::new();
    let mut sum = 0;
    let begin = Instant::now();
    for task in 0..millions * MILLION {
        if window.len() == WINDOW {
            sum += window.pop_front().map_or(Ok(0), |oldest: ObjectRef<u64>| oldest.get())?;
        }
        window.push_back(echo::remote(task));
        if (task + 1).is_multiple_of(MILLION) {
            memory.push(bytes_of_all_processes()? as f64 / 1e6);
            let megabytes = memory[memory.len() - 1];
            progress::say(format_args!("  {} of {millions} million tasks, {megabytes:.1} MB", memory.len()));
        }
    }
    for task in window {
        sum += task.get()?;
    }
    let tasks = millions * MILLION;
    let time = begin.elapsed();
    check("adding up all tasks", sum, tasks * (tasks - 1) / 2)?;
    // A single look finds the allocators at any point of their breathing: compare many early ones with many late.
    let later = &memory[1..];
    let few = later.len().div_ceil(4);
    let median = |some: &[f64]| Samples::new(some.to_vec()).median();
    let (first, last) = (median(&later[..few]), median(&later[later.len() - few..]));
    let most = memory.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Figure::new(
            format!("{millions} million tasks through one driver"),
            rate(tasks, time),
            Unit::PerSecond,
        )
        .detail(format!("{WINDOW} in flight")),
        Figure::new("memory growth after the first million", last - first, Unit::Megabytes)
            .wanted(Bound::AtMost(GROWTH_MAX.max(first / 20.0)))
            .detail(format!(
                "all processes: median of the next {few} million {first:.1} MB, of the last {last:.1}; most {most:.1}"
            )),
    ])
}
