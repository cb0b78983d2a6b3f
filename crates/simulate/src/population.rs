//! Many policies of one shape, each of which plays some episodes: what evolution strategies ask for.

use crate::batch::Autoreset;
use crate::builtin::builtin;
use crate::error::Error;
use crate::network::{Activation, Layer, Network};
use crate::policy::{Distribution, Policy};
use crate::rollouts::{Episodes, Rollouts};

/// How a population plays.
#[derive(Clone, Debug)]
pub struct Population<'a> {
    /// The id of a built-in environment.
    pub id: &'a str,
    /// The widths of the networks' layers: inputs, hidden ones, outputs.
    pub sizes: &'a [usize],
    /// What follows every layer but the last.
    pub activation: Activation,
    /// How actions follow from outputs.
    pub distribution: Distribution,
    /// How many episodes each policy plays.
    pub episodes: usize,
    /// All policies play the same episodes, since their differences are what matters.
    pub seed: u64,
}

impl Population<'_> {
    /// How many numbers the parameters of one policy are: of each layer the weight, then the bias.
    pub fn parameters(&self) -> usize {
        self.sizes.windows(2).map(|pair| pair[0] * pair[1] + pair[1]).sum()
    }

    /// Plays with each policy, whose parameters are rows of `parameters`. Returns the mean return of each, and how many
    /// steps all of them took.
    pub fn evaluate(&self, parameters: &[f32]) -> Result<(Vec<f64>, u64), Error> {
        let each = self.parameters();
        if self.sizes.len() < 2 || each == 0 {
            let problem = format!("{:?} are no layers", self.sizes);
            return Err(Error::shape("sizes", problem, "give the inputs, the hidden widths and the outputs"));
        }
        if !parameters.len().is_multiple_of(each) {
            let problem = format!("{} numbers, not a multiple of {each}", parameters.len());
            let hint = "each row has the weight and the bias of each layer, one after another";
            return Err(Error::shape("parameters", problem, hint));
        }
        let rollouts =
            Rollouts::new(builtin(self.id, self.episodes, self.seed, Autoreset::SameStep)?, self.seed);
        let (mut returns, mut steps) = (Vec::with_capacity(parameters.len() / each), 0);
        for (number, row) in parameters.chunks_exact(each).enumerate() {
            let network = Network::new(&format!("policy {number}"), &self.layers(row), self.activation)?;
            let batch = rollouts.batch();
            let policy = Policy::new(
                network,
                self.distribution.clone(),
                batch.observation_width(),
                batch.action_space(),
            )?;
            let Episodes { returns: found, lengths } =
                rollouts.evaluate(self.episodes, &policy, self.seed)?;
            returns.push(found.iter().sum::<f64>() / found.len() as f64);
            steps += lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
        }
        Ok((returns, steps))
    }

    fn layers<'b>(&self, mut row: &'b [f32]) -> Vec<Layer<'b>> {
        let pairs = self.sizes.windows(2);
        let layer = |pair: &[usize]| {
            let (weight, rest) = row.split_at(pair[0] * pair[1]);
            let (bias, rest) = rest.split_at(pair[1]);
            row = rest;
            Layer { weight, bias, inputs: pair[0] }
        };
        pairs.map(layer).collect()
    }
}
