//! Rollouts: environments driven by a policy, without leaving Rust between steps.
//!
//! Invariants:
//! 1. The same seed, weights and numbers of steps give the same bytes, however the steps are divided into calls.
//! 2. Whatever a failed call had simulated until then stays: environments are in a valid state, and the next call goes on.

use crate::batch::{AnyBatch, Autoreset};
use crate::builtin::builtin;
use crate::environment::{ActionSpace, Actions, BLOCK};
use crate::error::Error;
use crate::network::{Network, Scratch};
use crate::policy::{ActionBuffer, Policy, check_width};
use crate::random::Xoshiro;

/// The most episodes of one evaluation.
pub const EPISODES_MAX: usize = 1 << 20;

const OUTPUT_HINT: &str = "training has diverged: lower the learning rate, or clip gradients";

/// Environments that a policy acts in.
pub struct Rollouts {
    batch: Box<dyn AnyBatch>,
    random: Xoshiro,
    actions: ActionBuffer,
    scratch: Scratch,
    values: Vec<f32>,
}

/// Where the results of [`Rollouts::collect`] go. With `T` steps of `N` environments, each slice has `T × N` rows, the
/// environments of the first step first. Slices that are not wanted may be empty.
#[derive(Debug, Default)]
pub struct Fragment<'a> {
    /// What the policy saw.
    pub observations: &'a mut [f32],
    /// What it did, where actions are choices.
    pub choices: &'a mut [i64],
    /// What it did, where actions are numbers.
    pub numbers: &'a mut [f32],
    /// The logarithms of the actions' probabilities.
    pub log_probs: &'a mut [f32],
    /// The rewards.
    pub rewards: &'a mut [f32],
    /// Where the episode ended by the environment's rules.
    pub terminations: &'a mut [bool],
    /// Where the episode reached its time limit.
    pub truncations: &'a mut [bool],
    /// The critic's values of the observations.
    pub values: &'a mut [f32],
    /// The critic's values of the true successors of the observations; 0 after a termination.
    pub next_values: &'a mut [f32],
    /// The true successors of the observations: at the end of an episode, its last observation.
    pub next_observations: &'a mut [f32],
    /// What the policy sees next, one row for each environment.
    pub last_observations: &'a mut [f32],
}

/// Episodes that have ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Episodes {
    /// The sums of rewards.
    pub returns: Vec<f64>,
    /// The numbers of steps.
    pub lengths: Vec<u32>,
}

impl Fragment<'_> {
    fn check(&self, steps: usize, batch: &dyn AnyBatch) -> Result<(), Error> {
        let rows = steps * batch.count();
        let (width, action_width) = (batch.observation_width(), batch.action_space().width());
        let lengths = [
            ("observations", self.observations.len(), rows * width),
            ("choices", self.choices.len(), rows),
            ("numbers", self.numbers.len(), rows * action_width),
            ("log_probs", self.log_probs.len(), rows),
            ("rewards", self.rewards.len(), rows),
            ("terminations", self.terminations.len(), rows),
            ("truncations", self.truncations.len(), rows),
            ("values", self.values.len(), rows),
            ("next_values", self.next_values.len(), rows),
            ("next_observations", self.next_observations.len(), rows * width),
            ("last_observations", self.last_observations.len(), batch.count() * width),
        ];
        match lengths.into_iter().find(|(_, given, wanted)| *given != 0 && given != wanted) {
            Some((name, given, wanted)) => {
                let problem = format!("{given} elements, and {wanted} are needed");
                Err(Error::shape(name, problem, "a slice has rows for all steps, or is empty"))
            }
            None => Ok(()),
        }
    }
}

impl Rollouts {
    /// `count` environments of a built-in kind.
    pub fn builtin(id: &str, count: usize, seed: u64) -> Result<Self, Error> {
        Ok(Self::new(builtin(id, count, seed, Autoreset::SameStep)?, seed))
    }

    /// Environments that begin again in the same step ([`Autoreset::SameStep`]).
    pub fn new(batch: Box<dyn AnyBatch>, seed: u64) -> Self {
        let count = batch.count();
        let actions = match batch.action_space() {
            ActionSpace::Discrete(_) => ActionBuffer::Discrete(vec![0; count]),
            space => ActionBuffer::Continuous(vec![0.0; count * space.width()]),
        };
        let values = vec![0.0; count];
        // Another stream than those of the environments, whose seeds begin with the same number.
        let random = Xoshiro::seeded(seed ^ 0x7f4a_7c15_0bad_cafe);
        Self { batch, random, actions, scratch: Scratch::default(), values }
    }

    /// The environments.
    pub fn batch(&self) -> &dyn AnyBatch {
        &*self.batch
    }

    /// Steps all environments `steps` times. Returns the episodes that have ended.
    pub fn collect(
        &mut self,
        steps: usize,
        policy: &Policy,
        critic: Option<&Network>,
        mut fragment: Fragment<'_>,
    ) -> Result<Episodes, Error> {
        let (count, width) = (self.batch.count(), self.batch.observation_width());
        if let Some(critic) = critic {
            check_width("critic: inputs", critic.input_width(), width, "the width of observations")?;
            check_width("critic: outputs", critic.output_width(), 1, "the value")?;
        }
        fragment.check(steps, &*self.batch)?;
        let mut episodes = Episodes::default();
        let mut log_probs = vec![0.0; count];
        if let Some(critic) = critic {
            self.evaluate_critic(critic, 0)?;
        }
        for step in 0..steps {
            let rows = step * count..(step + 1) * count;
            copy(fragment.observations, &rows, width, &self.batch.outcome().observations);
            self.act(policy, step, &mut log_probs)?;
            copy(fragment.log_probs, &rows, 1, &log_probs);
            match &self.actions {
                ActionBuffer::Discrete(choices) => copy(fragment.choices, &rows, 1, choices),
                ActionBuffer::Continuous(numbers) => {
                    copy(fragment.numbers, &rows, numbers.len() / count, numbers);
                }
            }
            self.batch.step(self.actions.as_actions())?;
            let outcome = self.batch.outcome();
            if !fragment.rewards.is_empty() {
                let target = &mut fragment.rewards[rows.clone()];
                target.iter_mut().zip(&outcome.rewards).for_each(|(target, reward)| *target = *reward as f32);
            }
            copy(fragment.terminations, &rows, 1, &outcome.terminated);
            copy(fragment.truncations, &rows, 1, &outcome.truncated);
            if !fragment.next_observations.is_empty() {
                copy(fragment.next_observations, &rows, width, &outcome.observations);
                let ends = outcome.final_observations.chunks_exact(width);
                for (index, end) in outcome.ended.iter().zip(ends) {
                    fragment.next_observations[(rows.start + index) * width..][..width].copy_from_slice(end);
                }
            }
            episodes.returns.extend_from_slice(&outcome.episode_returns);
            episodes.lengths.extend_from_slice(&outcome.episode_lengths);
            if let Some(critic) = critic {
                copy(fragment.values, &rows, 1, &self.values);
                self.evaluate_critic(critic, step + 1)?;
                self.write_next_values(critic, step, &mut fragment, rows)?;
            }
        }
        if !fragment.last_observations.is_empty() {
            fragment.last_observations.copy_from_slice(&self.batch.outcome().observations);
        }
        Ok(episodes)
    }

    /// Chooses an action for each environment.
    fn act(&mut self, policy: &Policy, step: usize, log_probs: &mut [f32]) -> Result<(), Error> {
        let width = self.batch.observation_width();
        let blocks = self.batch.outcome().observations.chunks(width * BLOCK);
        for (number, (rows, log_probs)) in blocks.zip(log_probs.chunks_mut(BLOCK)).enumerate() {
            let (first, random, scratch) = (number * BLOCK, &mut self.random, &mut self.scratch);
            let acted = policy.act(rows, first, random, scratch, &mut self.actions, log_probs);
            acted.map_err(|environment| not_finite("actor", environment, step))?;
        }
        Ok(())
    }

    /// Computes the values of the present observations.
    fn evaluate_critic(&mut self, critic: &Network, step: usize) -> Result<(), Error> {
        let width = self.batch.observation_width();
        let blocks = self.batch.outcome().observations.chunks(width * BLOCK);
        for (rows, values) in blocks.zip(self.values.chunks_mut(BLOCK)) {
            let column = &critic.forward(rows, &mut self.scratch)[0];
            values.copy_from_slice(&column[..values.len()]);
        }
        match self.values.iter().position(|value| !value.is_finite()) {
            Some(environment) => Err(not_finite("critic", environment, step)),
            None => Ok(()),
        }
    }

    /// Writes the values of the true successors, which differ from the present ones where episodes have ended.
    fn write_next_values(
        &mut self,
        critic: &Network,
        step: usize,
        fragment: &mut Fragment<'_>,
        rows: std::ops::Range<usize>,
    ) -> Result<(), Error> {
        if fragment.next_values.is_empty() {
            return Ok(());
        }
        let next_values = &mut fragment.next_values[rows];
        next_values.copy_from_slice(&self.values);
        let outcome = self.batch.outcome();
        let width = self.batch.observation_width();
        let blocks = outcome.final_observations.chunks(width * BLOCK).zip(outcome.ended.chunks(BLOCK));
        for (block, places) in blocks {
            let column = &critic.forward(block, &mut self.scratch)[0];
            for (environment, value) in places.iter().zip(column) {
                let terminated = outcome.terminated[*environment];
                if !terminated && !value.is_finite() {
                    return Err(not_finite("critic", *environment, step + 1));
                }
                next_values[*environment] = if terminated { 0.0 } else { *value };
            }
        }
        Ok(())
    }

    /// Plays `episodes` whole episodes in environments of their own. Environment `i` plays every `count`-th of them, so
    /// that long episodes are not left out.
    pub fn evaluate(&self, episodes: usize, policy: &Policy, seed: u64) -> Result<Episodes, Error> {
        if !(1..=EPISODES_MAX).contains(&episodes) {
            let hint = "evaluate with several calls";
            return Err(Error::Count {
                what: "the number of episodes",
                count: episodes,
                max: EPISODES_MAX,
                hint,
            });
        }
        let count = episodes.min(self.batch.count());
        let mut rollouts = Self::new(self.batch.another(count, seed)?, seed);
        let mut left: Vec<usize> =
            (0..count).map(|index| episodes / count + usize::from(index < episodes % count)).collect();
        let mut found = vec![Vec::new(); count];
        let mut log_probs = vec![0.0; count];
        let mut missing = episodes;
        let mut step = 0;
        while missing > 0 {
            rollouts.act(policy, step, &mut log_probs)?;
            rollouts.batch.step(rollouts.actions.as_actions())?;
            let outcome = rollouts.batch.outcome();
            for (place, index) in outcome.ended.iter().enumerate() {
                if left[*index] > 0 {
                    left[*index] -= 1;
                    missing -= 1;
                    found[*index].push((outcome.episode_returns[place], outcome.episode_lengths[place]));
                }
            }
            step += 1;
        }
        let (returns, lengths) = found.into_iter().flatten().unzip();
        Ok(Episodes { returns, lengths })
    }

    /// All that the future depends on beside the policy, as bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.random.words().into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(self.batch.save());
        bytes
    }

    /// Goes on where [`save`](Rollouts::save) was called.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some((words, rest)) = bytes.split_first_chunk::<32>() else {
            let hint = "pass what `state` returned";
            return Err(Error::State { problem: format!("{} bytes are too few", bytes.len()), hint });
        };
        self.batch.load(rest)?;
        let mut words = words.chunks_exact(8);
        self.random = Xoshiro::from_words(std::array::from_fn(|_| {
            words.next().and_then(|word| word.first_chunk().copied()).map_or(0, u64::from_le_bytes)
        }));
        Ok(())
    }
}

impl ActionBuffer {
    fn as_actions(&self) -> Actions<'_> {
        match self {
            Self::Discrete(choices) => Actions::Discrete(choices),
            Self::Continuous(numbers) => Actions::Continuous(numbers),
        }
    }
}

/// Copies the rows of a step, unless they are not wanted.
fn copy<T: Copy>(target: &mut [T], rows: &std::ops::Range<usize>, width: usize, source: &[T]) {
    if !target.is_empty() {
        target[rows.start * width..rows.end * width].copy_from_slice(source);
    }
}

fn not_finite(network: &str, environment: usize, step: usize) -> Error {
    let place = format!("the {network}'s output for environment {environment} at step {step}");
    Error::NotFinite { place, value: "not a finite number".to_owned(), hint: OUTPUT_HINT }
}
