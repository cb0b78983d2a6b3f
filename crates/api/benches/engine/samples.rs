//! Repeated measurements of one thing, and what is said about them.

use std::time::{Duration, Instant};

/// Measurements, in order of size.
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Takes the measurements, of which there is at least one.
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "something was measured");
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The smallest value that is not below this part of all.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let last = self.0.len() - 1;
        self.0[((last as f64 * part).round() as usize).min(last)]
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn least(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn most(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

/// How long something takes.
pub(crate) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(Duration, T), E> {
    let begin = Instant::now();
    let value = work()?;
    Ok((begin.elapsed(), value))
}

/// How often per second, if `count` of them take this long.
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// A duration in microseconds.
pub(crate) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
