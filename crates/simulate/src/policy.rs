//! From a network's outputs to actions and the logarithms of their probabilities.

use crate::dispatch::{Kernel, dispatch};
use crate::environment::{ActionSpace, BLOCK};
use crate::error::Error;
use crate::functions::{exp, ln};
use crate::network::{Column, Network, Scratch};
use crate::random::Xoshiro;

/// How actions follow from the outputs of a network.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// A choice, drawn with the outputs as logits.
    Categorical,
    /// Numbers, drawn around the outputs with these logarithms of standard deviations.
    Gaussian {
        /// One for each number of an action.
        log_std: Vec<f32>,
    },
    /// The choice with the highest output, or the outputs themselves as numbers.
    Greedy,
    /// With this probability any choice, else the one with the highest output.
    EpsilonGreedy {
        /// From 0 to 1.
        epsilon: f32,
    },
}

/// A network and how its outputs become actions.
#[derive(Clone, Debug)]
pub struct Policy {
    network: Network,
    distribution: Distribution,
}

/// Memory for one action of each environment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionBuffer {
    Discrete(Vec<i64>),
    Continuous(Vec<f32>),
}

impl Policy {
    /// A policy for environments with these observations and actions.
    pub fn new(
        network: Network,
        distribution: Distribution,
        observation_width: usize,
        space: &ActionSpace,
    ) -> Result<Self, Error> {
        check_width("actor: inputs", network.input_width(), observation_width, "the width of observations")?;
        let outputs = space.policy_outputs();
        let meaning = match space {
            ActionSpace::Discrete(_) => "one output for each choice",
            ActionSpace::Continuous { .. } => "one output for each number of an action",
        };
        check_width("actor: outputs", network.output_width(), outputs, meaning)?;
        let mismatch = |given: &str, hint: &str| {
            Err(Error::shape("distribution", format!("{given} does not fit these actions"), hint))
        };
        match (&distribution, space) {
            (Distribution::Categorical, ActionSpace::Continuous { .. }) => {
                return mismatch("categorical", "actions are numbers: use gaussian or greedy");
            }
            (Distribution::EpsilonGreedy { .. }, ActionSpace::Continuous { .. }) => {
                return mismatch("epsilon_greedy", "actions are numbers: use gaussian or greedy");
            }
            (Distribution::Gaussian { .. }, ActionSpace::Discrete(_)) => {
                return mismatch(
                    "gaussian",
                    "actions are choices: use categorical, greedy or epsilon_greedy",
                );
            }
            (Distribution::Gaussian { log_std }, _) => {
                check_width("log_std", log_std.len(), outputs, "one for each number of an action")?;
                if let Some(at) = log_std.iter().position(|number| !number.is_finite()) {
                    let hint = "training has diverged, or it was never set";
                    let place = format!("log_std[{at}]");
                    return Err(Error::NotFinite { place, value: log_std[at].to_string(), hint });
                }
            }
            (Distribution::EpsilonGreedy { epsilon }, _) if !(0.0..=1.0).contains(epsilon) => {
                let problem = format!("must be from 0 to 1, got {epsilon}");
                return Err(Error::shape("epsilon", problem, "it is a probability"));
            }
            _ => {}
        }
        Ok(Self { network, distribution })
    }

    /// Chooses actions for the environments from `first` on, whose observations are `rows`: at most a block. Returns
    /// the place of an environment for which the network's output is not finite.
    pub(crate) fn act(
        &self,
        rows: &[f32],
        first: usize,
        random: &mut Xoshiro,
        scratch: &mut Scratch,
        actions: &mut ActionBuffer,
        log_probs: &mut [f32],
    ) -> Result<(), usize> {
        let outputs = self.network.output_width();
        let lanes = rows.len() / self.network.input_width();
        let columns = &self.network.forward(rows, scratch)[..outputs];
        let finite = columns.iter().fold(true, |all, column| {
            column[..lanes].iter().fold(all, |all, number| all & number.is_finite())
        });
        if !finite {
            let is_bad = |lane: &usize| columns.iter().any(|column| !column[*lane].is_finite());
            return Err(first + (0..lanes).find(is_bad).unwrap_or_default());
        }
        let log_probs = &mut log_probs[..lanes];
        match (&self.distribution, actions) {
            (Distribution::Categorical, ActionBuffer::Discrete(choices)) => {
                let mut units = [0.0; BLOCK];
                units[..lanes].iter_mut().for_each(|unit| *unit = random.open_unit());
                let choices = &mut choices[first..first + lanes];
                dispatch(Categorical { columns, units, choices, log_probs });
            }
            (Distribution::Greedy, ActionBuffer::Discrete(choices)) => {
                for (lane, choice) in choices[first..first + lanes].iter_mut().enumerate() {
                    *choice = highest(columns, lane);
                }
                log_probs.fill(0.0);
            }
            (Distribution::EpsilonGreedy { epsilon }, ActionBuffer::Discrete(choices)) => {
                let share = epsilon / outputs as f32;
                for (lane, choice) in choices[first..first + lanes].iter_mut().enumerate() {
                    let best = highest(columns, lane);
                    let explores = random.open_unit() < *epsilon;
                    *choice = if explores { i64::from(random.below(outputs as u32)) } else { best };
                    let probability = if *choice == best { share + (1.0 - epsilon) } else { share };
                    log_probs[lane] = probability.ln();
                }
            }
            (Distribution::Gaussian { log_std }, ActionBuffer::Continuous(numbers)) => {
                let numbers = &mut numbers[first * outputs..(first + lanes) * outputs];
                draw_gaussian(columns, log_std, random, numbers, log_probs);
            }
            (_, ActionBuffer::Continuous(numbers)) => {
                let rows = numbers[first * outputs..(first + lanes) * outputs].chunks_exact_mut(outputs);
                for (lane, row) in rows.enumerate() {
                    row.iter_mut().zip(columns).for_each(|(number, column)| *number = column[lane]);
                }
                log_probs.fill(0.0);
            }
            (Distribution::Gaussian { .. }, ActionBuffer::Discrete(_)) => {
                unreachable!("a policy is checked against its space")
            }
        }
        Ok(())
    }
}

pub(crate) fn check_width(what: &str, given: usize, wanted: usize, meaning: &str) -> Result<(), Error> {
    if given == wanted {
        return Ok(());
    }
    Err(Error::shape(what, format!("{given}, and {wanted} are needed"), format!("it is {meaning}")))
}

/// The first of the highest outputs.
fn highest(columns: &[Column], lane: usize) -> i64 {
    let mut best = 0;
    for (choice, column) in columns.iter().enumerate() {
        if column[lane] > columns[best][lane] {
            best = choice;
        }
    }
    best as i64
}

/// Draws choices by inverting the cumulated probabilities.
struct Categorical<'a> {
    columns: &'a [Column],
    /// A random number for each environment.
    units: Column,
    choices: &'a mut [i64],
    log_probs: &'a mut [f32],
}

impl Kernel for Categorical<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let mut highest = self.columns[0];
        for column in &self.columns[1..] {
            for lane in 0..BLOCK {
                highest[lane] = highest[lane].max(column[lane]);
            }
        }
        let mut sums = [0.0f32; BLOCK];
        for column in self.columns {
            for lane in 0..BLOCK {
                sums[lane] += exp::<FUSED>(column[lane] - highest[lane]);
            }
        }
        // The choice is the number of cumulated sums that do not exceed the threshold.
        let mut cumulated = [0.0f32; BLOCK];
        let mut choices = [0i32; BLOCK];
        let mut chosen = self.columns[0];
        let last = self.columns.len() - 1;
        for (column, next) in self.columns[..last].iter().zip(&self.columns[1..]) {
            for lane in 0..BLOCK {
                cumulated[lane] += exp::<FUSED>(column[lane] - highest[lane]);
                let beyond = cumulated[lane] <= self.units[lane] * sums[lane];
                choices[lane] += i32::from(beyond);
                chosen[lane] = if beyond { next[lane] } else { chosen[lane] };
            }
        }
        let mut log_probs = [0.0f32; BLOCK];
        for lane in 0..BLOCK {
            log_probs[lane] = (chosen[lane] - highest[lane]) - ln::<FUSED>(sums[lane]);
        }
        self.log_probs.copy_from_slice(&log_probs[..self.choices.len()]);
        self.choices.iter_mut().zip(choices).for_each(|(choice, drawn)| *choice = i64::from(drawn));
    }
}

fn draw_gaussian(
    columns: &[Column],
    log_std: &[f32],
    random: &mut Xoshiro,
    numbers: &mut [f32],
    log_probs: &mut [f32],
) {
    const HALF_LN_TAU: f32 = 0.918_938_5;
    let deviations: Vec<f32> = log_std.iter().map(|number| number.exp()).collect();
    let constant: f32 = log_std.iter().map(|number| number + HALF_LN_TAU).sum();
    let width = columns.len();
    let mut spare = None;
    for (lane, (row, log_prob)) in numbers.chunks_exact_mut(width).zip(log_probs).enumerate() {
        *log_prob = -constant;
        for (index, number) in row.iter_mut().enumerate() {
            let noise = spare.take().unwrap_or_else(|| {
                let [first, second] = random.normals();
                spare = Some(second);
                first
            });
            *number = columns[index][lane] + deviations[index] * noise;
            *log_prob -= 0.5 * noise * noise;
        }
    }
}
