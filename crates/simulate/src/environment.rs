//! The trait of environments: the rules of one environment, from which a [`Batch`](crate::Batch) makes many.

use crate::error::Error;
use crate::random::Pcg64;

/// Environments of a batch are stepped in blocks of this many: their state stays in the first-level cache.
pub(crate) const BLOCK: usize = 64;

/// The rules of an environment. A value of the type holds its parameters; states live in the batch.
///
/// The functions describe one environment. [`Batch`](crate::Batch) calls them for all of its environments in a loop,
/// which the compiler turns into vector instructions if `step` and `observe` have no branches and call no functions
/// that are not inlined: [`sin_cos`](crate::sin_cos) is there for that. Mark both `#[inline(always)]`.
///
/// ```
/// use aktis_simulate::{Batch, ActionSpace, Actions, AnyBatch, Autoreset, Environment, ObservationSpace, Pcg64, Step};
///
/// /// A walk along a line: reach +10 before 50 steps are over.
/// #[derive(Clone)]
/// struct Walk;
///
/// impl Environment for Walk {
///     type State = [f64; 1];
///     type Observation = [f32; 1];
///     type Action = i64;
///
///     fn id(&self) -> &str {
///         "Walk-v0"
///     }
///     fn observation_space(&self) -> ObservationSpace {
///         ObservationSpace { low: vec![-50.0], high: vec![50.0] }
///     }
///     fn action_space(&self) -> ActionSpace {
///         ActionSpace::Discrete(2)
///     }
///     fn steps_max(&self) -> u32 {
///         50
///     }
///     fn reset(&self, _random: &mut Pcg64) -> [f64; 1] {
///         [0.0]
///     }
///     #[inline(always)]
///     fn step(&self, state: &mut [f64; 1], action: i64) -> Step {
///         state[0] += if action == 1 { 1.0 } else { -1.0 };
///         Step { reward: -1.0, terminated: state[0] >= 10.0 }
///     }
///     #[inline(always)]
///     fn observe(&self, state: &[f64; 1]) -> [f32; 1] {
///         [state[0] as f32]
///     }
/// }
///
/// let mut walks = Batch::new(Walk, 3, 0, Autoreset::SameStep)?;
/// for _ in 0..10 {
///     walks.step(Actions::Discrete(&[1, 1, 0]))?;
/// }
/// assert_eq!(walks.outcome().terminated, [true, true, false]);
/// assert_eq!(walks.outcome().observations, [0.0, 0.0, -10.0], "two have begun again");
/// # Ok::<(), aktis_simulate::Error>(())
/// ```
pub trait Environment: Send + 'static {
    /// All that changes from step to step: `[f64; N]`.
    type State: Row<f64>;
    /// What an agent sees: `[f32; N]`.
    type Observation: Row<f32>;
    /// What an agent does: `i64` for one of several choices, `[f32; N]` for numbers.
    type Action: Action;

    /// A name such as `CartPole-v1`.
    fn id(&self) -> &str;

    /// The bounds of observations.
    fn observation_space(&self) -> ObservationSpace;

    /// What actions there are.
    fn action_space(&self) -> ActionSpace;

    /// An episode is truncated after this many steps.
    fn steps_max(&self) -> u32;

    /// The state at the start of an episode.
    fn reset(&self, random: &mut Pcg64) -> Self::State;

    /// One step. The time limit is not its business.
    fn step(&self, state: &mut Self::State, action: Self::Action) -> Step;

    /// What an agent sees of a state.
    fn observe(&self, state: &Self::State) -> Self::Observation;
}

/// What a step results in, beside the next state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The reward.
    pub reward: f64,
    /// Whether the episode has ended by the environment's own rules.
    pub terminated: bool,
}

/// The bounds of each component of an observation.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservationSpace {
    /// The lowest values.
    pub low: Vec<f32>,
    /// The highest values.
    pub high: Vec<f32>,
}

/// What actions there are.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionSpace {
    /// One of `0..n`.
    Discrete(u32),
    /// Numbers; environments clip those beyond the bounds.
    Continuous {
        /// The lowest value of each.
        low: Vec<f32>,
        /// The highest value of each.
        high: Vec<f32>,
    },
}

impl ActionSpace {
    /// How many numbers one action is.
    pub fn width(&self) -> usize {
        match self {
            Self::Discrete(_) => 1,
            Self::Continuous { low, .. } => low.len(),
        }
    }

    /// How many outputs a policy has: one for each choice, or one mean for each number.
    pub fn policy_outputs(&self) -> usize {
        match self {
            Self::Discrete(choices) => *choices as usize,
            Self::Continuous { low, .. } => low.len(),
        }
    }
}

/// One action for each environment of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Actions<'a> {
    /// A choice for each.
    Discrete(&'a [i64]),
    /// The numbers of the first environment, then those of the second, and so on.
    Continuous(&'a [f32]),
}

/// A fixed number of numbers, and how a block of environments keeps them: each component in an array of its own.
pub trait Row<T>: Copy + Send + 'static {
    /// How many numbers.
    const LENGTH: usize;
    /// The numbers of [a block](crate::Batch) of environments.
    type Block: Copy + Send + AsRef<[[T; BLOCK]]> + AsMut<[[T; BLOCK]]>;

    /// A block of zeros.
    fn empty_block() -> Self::Block;
    /// The numbers of the environment at `lane`.
    fn gather(block: &Self::Block, lane: usize) -> Self;
    /// Writes the numbers of the environment at `lane`.
    fn scatter(self, block: &mut Self::Block, lane: usize);
    /// The numbers one after another.
    fn as_slice(&self) -> &[T];
    /// The same, from a slice of that length.
    fn from_slice(numbers: &[T]) -> Self;
}

impl<T: Copy + Default + Send + 'static, const N: usize> Row<T> for [T; N] {
    const LENGTH: usize = N;
    type Block = [[T; BLOCK]; N];

    fn empty_block() -> Self::Block {
        [[T::default(); BLOCK]; N]
    }

    #[inline(always)]
    fn gather(block: &Self::Block, lane: usize) -> Self {
        let mut row = [T::default(); N];
        for (value, column) in row.iter_mut().zip(block) {
            *value = column[lane];
        }
        row
    }

    #[inline(always)]
    fn scatter(self, block: &mut Self::Block, lane: usize) {
        for (value, column) in self.into_iter().zip(block) {
            column[lane] = value;
        }
    }

    fn as_slice(&self) -> &[T] {
        self
    }

    fn from_slice(numbers: &[T]) -> Self {
        std::array::from_fn(|index| numbers[index])
    }
}

/// A kind of action: `i64`, one of several choices, or `[f32; N]`, so many numbers.
pub trait Action: Copy + Send + 'static {
    /// What a slice of actions consists of.
    type Element: Copy;

    /// The slice of `actions`, of which there must be `count`, all within `space`.
    fn checked<'a>(
        actions: Actions<'a>,
        count: usize,
        space: &ActionSpace,
    ) -> Result<&'a [Self::Element], Error>;

    /// The action at `index`.
    fn load(elements: &[Self::Element], index: usize) -> Self;
}

impl Action for i64 {
    type Element = i64;

    fn checked<'a>(actions: Actions<'a>, count: usize, space: &ActionSpace) -> Result<&'a [i64], Error> {
        let (Actions::Discrete(choices), ActionSpace::Discrete(bound)) = (actions, space) else {
            return Err(Error::shape(
                "actions",
                "numbers, where each is one of several choices",
                "pass integers",
            ));
        };
        check_count(choices.len(), count, 1)?;
        // One pass without a way out, since it is vectorised; the search is for the message.
        let bound = u64::from(*bound);
        if choices.iter().fold(false, |bad, choice| bad | (*choice as u64 >= bound)) {
            let environment = choices.iter().position(|choice| *choice as u64 >= bound).unwrap_or_default();
            let hint = format!("actions are integers from 0 to {}", bound - 1);
            return Err(Error::Action { environment, action: choices[environment].to_string(), hint });
        }
        Ok(choices)
    }

    #[inline(always)]
    fn load(elements: &[i64], index: usize) -> Self {
        elements[index]
    }
}

impl<const N: usize> Action for [f32; N] {
    type Element = f32;

    fn checked<'a>(actions: Actions<'a>, count: usize, _space: &ActionSpace) -> Result<&'a [f32], Error> {
        let Actions::Continuous(numbers) = actions else {
            return Err(Error::shape("actions", "choices, where each is an array of numbers", "pass floats"));
        };
        check_count(numbers.len(), count, N)?;
        if numbers.iter().fold(false, |bad, number| bad | !number.is_finite()) {
            let index = numbers.iter().position(|number| !number.is_finite()).unwrap_or_default();
            let hint = "actions must be finite; numbers beyond the bounds are clipped".to_owned();
            return Err(Error::Action { environment: index / N, action: numbers[index].to_string(), hint });
        }
        Ok(numbers)
    }

    #[inline(always)]
    fn load(elements: &[f32], index: usize) -> Self {
        let mut action = [0.0; N];
        for (number, source) in action.iter_mut().zip(&elements[index * N..]) {
            *number = *source;
        }
        action
    }
}

fn check_count(given: usize, environments: usize, width: usize) -> Result<(), Error> {
    if given == environments * width {
        return Ok(());
    }
    let problem = format!("{given} numbers for {environments} environments");
    Err(Error::shape("actions", problem, format!("pass {width} for each environment")))
}
