//! What can be wrong with what callers give.

use thiserror::Error;

/// Why a request of a caller was refused. Each message ends with a hint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// No built-in environment has this id.
    #[error("there is no built-in environment {id:?}\nhint: the built-in ones are {}", .builtin.join(", "))]
    UnknownEnvironment {
        /// What was asked for.
        id: String,
        /// What there is.
        builtin: Vec<String>,
    },
    /// A number of environments, steps or episodes is out of range.
    #[error("{what} must be at least 1 and at most {max}, got {count}\nhint: {hint}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many were given.
        count: usize,
        /// The most.
        max: usize,
        /// What to do.
        hint: &'static str,
    },
    /// An action that its space does not have.
    #[error("the action of environment {environment} is {action}\nhint: {hint}")]
    Action {
        /// The environment's place in the batch.
        environment: usize,
        /// The action.
        action: String,
        /// What would be right.
        hint: String,
    },
    /// Something has another length or another type than it must have.
    #[error("{what}: {problem}\nhint: {hint}")]
    Shape {
        /// What is wrong.
        what: String,
        /// In what respect.
        problem: String,
        /// What would be right.
        hint: String,
    },
    /// A weight, a bias, or what a network computed, is not a finite number.
    #[error("{place} is {value}\nhint: {hint}")]
    NotFinite {
        /// Where it was found.
        place: String,
        /// NaN or an infinity.
        value: String,
        /// What to do.
        hint: &'static str,
    },
    /// Bytes that are not a saved state, or one of something else.
    #[error("the bytes are not a state of these environments: {problem}\nhint: {hint}")]
    State {
        /// In what they differ.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
}

impl Error {
    pub(crate) fn shape(
        what: impl Into<String>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Shape { what: what.into(), problem: problem.into(), hint: hint.into() }
    }
}
