//! A figure: what was measured, what is wanted, and the physical limit that it runs into.

use serde::{Deserialize, Serialize};

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) measured: f64,
    pub(crate) unit: Unit,
    /// More about the measurement, in words.
    pub(crate) detail: String,
    pub(crate) wanted: Option<Bound>,
    pub(crate) goal: Option<Bound>,
    pub(crate) limit: Option<Limit>,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    PerSecond,
    Microseconds,
    Milliseconds,
    /// Billions of bytes in a second.
    GigabytesPerSecond,
    Bytes,
    /// Millions of bytes.
    Megabytes,
    Percent,
    /// So many, of what the figure's name says.
    Count,
}

/// A number that is to be reached, or not to be passed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// What the machine itself can do, measured in the same run and in the same unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) measured: f64,
}

/// How a figure compares with what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing is asked of it.
    Unasked,
    Missed,
    Reached,
    /// It reached the goal as well.
    Goal,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, measured: f64, unit: Unit) -> Self {
        let detail = String::new();
        Self { name: name.into(), measured, unit, detail, wanted: None, goal: None, limit: None }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn wanted(mut self, bound: Bound) -> Self {
        self.wanted = Some(bound);
        self
    }

    pub(crate) fn goal(mut self, bound: Bound) -> Self {
        self.goal = Some(bound);
        self
    }

    pub(crate) fn limit(mut self, name: &str, measured: f64) -> Self {
        self.limit = Some(Limit { name: name.to_owned(), measured });
        self
    }

    pub(crate) fn mark(&self) -> Mark {
        let holds = |bound: Option<Bound>| bound.map(|bound| bound.holds(self.measured));
        match (holds(self.wanted), holds(self.goal)) {
            (Some(false), _) => Mark::Missed,
            (_, Some(true)) => Mark::Goal,
            (Some(true), _) => Mark::Reached,
            (None, Some(false)) => Mark::Missed,
            (None, None) => Mark::Unasked,
        }
    }
}

impl Bound {
    fn holds(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::AtMost(most) => measured <= most,
        }
    }
}

impl Unit {
    /// As the table and the file show it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::GigabytesPerSecond => "GB/s",
            Self::Bytes => "B",
            Self::Megabytes => "MB",
            Self::Percent => "%",
            Self::Count => "",
        }
    }
}

impl Mark {
    /// As the table and the file show it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unasked => "",
            Self::Missed => "MISSED",
            Self::Reached => "ok",
            Self::Goal => "goal",
        }
    }
}
