//! Many environments of one kind, stepped together.
//!
//! Invariants:
//! 1. A step changes nothing if it returns an error.
//! 2. What an environment does depends on its own seed and its own actions alone, never on its neighbours: environment
//!    `i` of a batch is what Gymnasium's would be with the seed `seed + i`.

use crate::dispatch::{Kernel, dispatch};
use crate::environment::{Action, ActionSpace, Actions, BLOCK, Environment, ObservationSpace, Row};
use crate::error::Error;
use crate::random::Pcg64;
use crate::saved::{Reader, Writer};

/// The most environments of a batch.
pub const ENVIRONMENTS_MAX: usize = 1 << 20;

/// When an environment begins again after the end of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autoreset {
    /// Within the last step: its observation is the first one of the next episode, and the last one of the episode is
    /// in [`Outcome::final_observations`].
    SameStep,
    /// With the next step, whose action has no effect and whose reward is 0.
    NextStep,
}

/// What the last step of a batch resulted in. Arrays with several numbers per environment have those of the first
/// environment, then those of the second, and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What agents see now.
    pub observations: Vec<f32>,
    /// The rewards.
    pub rewards: Vec<f64>,
    /// Where the episode ended by the environment's rules.
    pub terminated: Vec<bool>,
    /// Where the episode reached its time limit.
    pub truncated: Vec<bool>,
    /// Where episodes have ended: places in the batch, ascending.
    pub ended: Vec<usize>,
    /// The last observations of the episodes that have ended, in that order; only with [`Autoreset::SameStep`].
    pub final_observations: Vec<f32>,
    /// The sums of rewards of the episodes that have ended.
    pub episode_returns: Vec<f64>,
    /// Their numbers of steps.
    pub episode_lengths: Vec<u32>,
}

/// A batch whose environment is not known at compile time.
pub trait AnyBatch: Send {
    /// The environment's name.
    fn id(&self) -> &str;
    /// How many environments there are.
    fn count(&self) -> usize;
    /// The bounds of observations.
    fn observation_space(&self) -> ObservationSpace;
    /// How many numbers an observation is.
    fn observation_width(&self) -> usize;
    /// What actions there are.
    fn action_space(&self) -> &ActionSpace;
    /// Episodes are truncated after this many steps.
    fn steps_max(&self) -> u32;
    /// Begins all episodes again; with a seed, as if the batch were new.
    fn reset(&mut self, seed: Option<u64>);
    /// Steps all environments.
    fn step(&mut self, actions: Actions<'_>) -> Result<(), Error>;
    /// What the last step resulted in.
    fn outcome(&self) -> &Outcome;
    /// How many numbers the state of one environment is.
    fn state_width(&self) -> usize;
    /// The states of all environments, one after another.
    fn states(&self) -> Vec<f64>;
    /// Puts the environments into these states, each at the start of an episode.
    fn set_states(&mut self, states: &[f64]) -> Result<(), Error>;
    /// All that the future depends on, as bytes.
    fn save(&self) -> Vec<u8>;
    /// Goes on where [`save`](AnyBatch::save) was called.
    fn load(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// Another batch of the same environment, with other numbers and seeds.
    fn another(&self, count: usize, seed: u64) -> Result<Box<dyn AnyBatch>, Error>;
}

/// Many environments of one kind.
pub struct Batch<E: Environment> {
    environment: E,
    space: ActionSpace,
    autoreset: Autoreset,
    count: usize,
    blocks: Vec<Block<E>>,
    random: Vec<Pcg64>,
    outcome: Outcome,
}

/// The environments whose loop is one call of a kernel.
struct Block<E: Environment> {
    states: <E::State as Row<f64>>::Block,
    returns: [f64; BLOCK],
    steps: [u32; BLOCK],
    /// Environments that begin again with the next step.
    resting: [bool; BLOCK],
    any_resting: bool,
}

impl<E: Environment> Block<E> {
    fn empty() -> Self {
        Self {
            states: E::State::empty_block(),
            returns: [0.0; BLOCK],
            steps: [0; BLOCK],
            resting: [false; BLOCK],
            any_resting: false,
        }
    }

    fn begin(&mut self, lane: usize, state: E::State) {
        state.scatter(&mut self.states, lane);
        self.returns[lane] = 0.0;
        self.steps[lane] = 0;
        self.resting[lane] = false;
    }
}

impl<E: Environment + Clone> Batch<E> {
    /// `count` environments at the start of their first episodes.
    pub fn new(environment: E, count: usize, seed: u64, autoreset: Autoreset) -> Result<Self, Error> {
        if !(1..=ENVIRONMENTS_MAX).contains(&count) {
            let hint = "spread more environments over several batches";
            return Err(Error::Count {
                what: "the number of environments",
                count,
                max: ENVIRONMENTS_MAX,
                hint,
            });
        }
        let outcome = Outcome {
            observations: vec![0.0; count * E::Observation::LENGTH],
            rewards: vec![0.0; count],
            terminated: vec![false; count],
            truncated: vec![false; count],
            ..Outcome::default()
        };
        let mut batch = Self {
            space: environment.action_space(),
            environment,
            autoreset,
            count,
            blocks: (0..count.div_ceil(BLOCK)).map(|_| Block::empty()).collect(),
            random: vec![Pcg64::from_words([0; 4]); count],
            outcome,
        };
        batch.reset(Some(seed));
        Ok(batch)
    }
}

impl<E: Environment> Batch<E> {
    fn begin(&mut self, index: usize) {
        let state = self.environment.reset(&mut self.random[index]);
        self.blocks[index / BLOCK].begin(index % BLOCK, state);
        self.observe(index, &state);
    }

    fn observe(&mut self, index: usize, state: &E::State) {
        let width = E::Observation::LENGTH;
        let row = &mut self.outcome.observations[index * width..][..width];
        row.copy_from_slice(self.environment.observe(state).as_slice());
    }

    fn clear_outcome(&mut self) {
        let outcome = &mut self.outcome;
        outcome.rewards.fill(0.0);
        outcome.terminated.fill(false);
        outcome.truncated.fill(false);
        outcome.ended.clear();
        outcome.final_observations.clear();
        outcome.episode_returns.clear();
        outcome.episode_lengths.clear();
    }
}

/// Steps the environments of one block.
struct StepBlock<'a, E: Environment> {
    environment: &'a E,
    block: &'a mut Block<E>,
    actions: &'a [<E::Action as Action>::Element],
    /// The place of the block's first environment in the batch.
    first: usize,
    observations: &'a mut [f32],
    rewards: &'a mut [f64],
    terminated: &'a mut [bool],
    truncated: &'a mut [bool],
}

impl<E: Environment> Kernel for StepBlock<'_, E> {
    /// Whether an episode has ended.
    type Output = bool;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> bool {
        let lanes = self.rewards.len().min(BLOCK);
        let limit = self.environment.steps_max();
        // Copies on the stack: the compiler then knows that no two arrays overlap.
        let mut states = self.block.states;
        let mut steps = self.block.steps;
        let mut returns = self.block.returns;
        let mut rewards = [0.0; BLOCK];
        let mut terminated = [false; BLOCK];
        let mut truncated = [false; BLOCK];
        let mut observations = E::Observation::empty_block();
        for lane in 0..lanes {
            let mut state = E::State::gather(&states, lane);
            let action = E::Action::load(self.actions, self.first + lane);
            let step = self.environment.step(&mut state, action);
            self.environment.observe(&state).scatter(&mut observations, lane);
            state.scatter(&mut states, lane);
            rewards[lane] = step.reward;
            terminated[lane] = step.terminated;
            steps[lane] += 1;
            truncated[lane] = steps[lane] >= limit;
            returns[lane] += step.reward;
        }
        self.block.states = states;
        self.block.steps = steps;
        self.block.returns = returns;
        self.rewards.copy_from_slice(&rewards[..lanes]);
        self.terminated.copy_from_slice(&terminated[..lanes]);
        self.truncated.copy_from_slice(&truncated[..lanes]);
        let rows = self.observations.chunks_exact_mut(E::Observation::LENGTH);
        for (lane, row) in rows.enumerate() {
            row.copy_from_slice(E::Observation::gather(&observations, lane).as_slice());
        }
        (0..lanes).fold(false, |any, lane| any | terminated[lane] | truncated[lane])
    }
}

impl<E: Environment + Clone> AnyBatch for Batch<E> {
    fn id(&self) -> &str {
        self.environment.id()
    }

    fn count(&self) -> usize {
        self.count
    }

    fn observation_space(&self) -> ObservationSpace {
        self.environment.observation_space()
    }

    fn observation_width(&self) -> usize {
        E::Observation::LENGTH
    }

    fn action_space(&self) -> &ActionSpace {
        &self.space
    }

    fn steps_max(&self) -> u32 {
        self.environment.steps_max()
    }

    fn reset(&mut self, seed: Option<u64>) {
        if let Some(seed) = seed {
            for (index, random) in self.random.iter_mut().enumerate() {
                *random = Pcg64::seeded(seed.wrapping_add(index as u64));
            }
        }
        self.clear_outcome();
        (0..self.count).for_each(|index| self.begin(index));
        self.blocks.iter_mut().for_each(|block| block.any_resting = false);
    }

    fn step(&mut self, actions: Actions<'_>) -> Result<(), Error> {
        let actions = E::Action::checked(actions, self.count, &self.space)?;
        let width = E::Observation::LENGTH;
        self.outcome.ended.clear();
        self.outcome.final_observations.clear();
        self.outcome.episode_returns.clear();
        self.outcome.episode_lengths.clear();
        for number in 0..self.blocks.len() {
            let first = number * BLOCK;
            let range = first..(first + BLOCK).min(self.count);
            let block = &mut self.blocks[number];
            // Their step computes nonsense, which the reset below replaces.
            let resting = block.any_resting.then_some(block.resting);
            let outcome = &mut self.outcome;
            let any_ended = dispatch(StepBlock {
                environment: &self.environment,
                block,
                actions,
                first,
                observations: &mut outcome.observations[range.start * width..range.end * width],
                rewards: &mut outcome.rewards[range.clone()],
                terminated: &mut outcome.terminated[range.clone()],
                truncated: &mut outcome.truncated[range.clone()],
            });
            if let Some(resting) = resting {
                self.begin_resting(range.clone(), resting);
            }
            if any_ended {
                self.end_episodes(range);
            }
        }
        Ok(())
    }

    fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    fn state_width(&self) -> usize {
        E::State::LENGTH
    }

    fn states(&self) -> Vec<f64> {
        let rows =
            (0..self.count).map(|index| E::State::gather(&self.blocks[index / BLOCK].states, index % BLOCK));
        rows.flat_map(|row| row.as_slice().to_vec()).collect()
    }

    fn set_states(&mut self, states: &[f64]) -> Result<(), Error> {
        let width = E::State::LENGTH;
        if states.len() != self.count * width {
            let problem = format!("{} numbers for {} environments", states.len(), self.count);
            return Err(Error::shape(
                "states",
                problem,
                format!("the state of {} is {width} numbers", self.id()),
            ));
        }
        self.clear_outcome();
        for (index, row) in states.chunks_exact(width).enumerate() {
            let state = E::State::from_slice(row);
            self.blocks[index / BLOCK].begin(index % BLOCK, state);
            self.observe(index, &state);
        }
        self.blocks.iter_mut().for_each(|block| block.any_resting = false);
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.id(), self.count);
        for (index, random) in self.random.iter().enumerate() {
            let (block, lane) = (&self.blocks[index / BLOCK], index % BLOCK);
            random.words().into_iter().for_each(|word| writer.word(word));
            E::State::gather(&block.states, lane)
                .as_slice()
                .iter()
                .for_each(|number| writer.word(number.to_bits()));
            writer.word(block.returns[lane].to_bits());
            writer.word(u64::from(block.steps[lane]) | (u64::from(block.resting[lane]) << 32));
        }
        writer.finish()
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let words_each = 4 + E::State::LENGTH + 2;
        let mut reader = Reader::new(bytes, self.id(), self.count, self.count * words_each)?;
        self.clear_outcome();
        self.blocks.iter_mut().for_each(|block| block.any_resting = false);
        for index in 0..self.count {
            self.random[index] = Pcg64::from_words(std::array::from_fn(|_| reader.word()));
            let numbers: Vec<f64> = (0..E::State::LENGTH).map(|_| f64::from_bits(reader.word())).collect();
            let state = E::State::from_slice(&numbers);
            let (block, lane) = (&mut self.blocks[index / BLOCK], index % BLOCK);
            block.begin(lane, state);
            block.returns[lane] = f64::from_bits(reader.word());
            let word = reader.word();
            block.steps[lane] = word as u32;
            block.resting[lane] = word >> 32 == 1;
            block.any_resting |= block.resting[lane];
            self.observe(index, &state);
        }
        Ok(())
    }

    fn another(&self, count: usize, seed: u64) -> Result<Box<dyn AnyBatch>, Error> {
        Ok(Box::new(Self::new(self.environment.clone(), count, seed, self.autoreset)?))
    }
}

impl<E: Environment> Batch<E> {
    /// Begins the episodes of environments whose last one ended with the step before.
    fn begin_resting(&mut self, range: std::ops::Range<usize>, resting: [bool; BLOCK]) {
        self.blocks[range.start / BLOCK].any_resting = false;
        for index in range.clone().filter(|index| resting[index - range.start]) {
            self.begin(index);
            self.outcome.rewards[index] = 0.0;
            self.outcome.terminated[index] = false;
            self.outcome.truncated[index] = false;
        }
    }

    /// Records the episodes that have just ended, and begins the next ones if it is time.
    fn end_episodes(&mut self, range: std::ops::Range<usize>) {
        let width = E::Observation::LENGTH;
        for index in range {
            let outcome = &mut self.outcome;
            if !(outcome.terminated[index] | outcome.truncated[index]) {
                continue;
            }
            let (block, lane) = (&mut self.blocks[index / BLOCK], index % BLOCK);
            outcome.ended.push(index);
            outcome.episode_returns.push(block.returns[lane]);
            outcome.episode_lengths.push(block.steps[lane]);
            match self.autoreset {
                Autoreset::NextStep => {
                    block.resting[lane] = true;
                    block.any_resting = true;
                }
                Autoreset::SameStep => {
                    let row = &outcome.observations[index * width..][..width];
                    outcome.final_observations.extend_from_slice(row);
                    self.begin(index);
                }
            }
        }
    }
}
