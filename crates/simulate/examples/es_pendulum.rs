//! Swings a pendulum up by evolution strategies: actors play with perturbed policies, and the driver moves the weights
//! towards the noise that did better.
//!
//! Actors send returns only. Every side derives the noise from the seed, the generation and the number of the pair.
//!
//! Run it with `cargo run --release -p aktis-simulate --example es_pendulum`.

use aktis::prelude::*;
use aktis_simulate::{Activation, Distribution, Pcg64, Population};

const SIZES: [usize; 3] = [3, 16, 1];
const ACTORS: u64 = 2;
const PAIRS: u64 = 32;
const SIGMA: f32 = 0.1;
const RATE: f32 = 0.1;
const GENERATIONS: u64 = 125;

fn population(episodes: usize, seed: u64) -> Population<'static> {
    Population {
        id: "Pendulum-v1",
        sizes: &SIZES,
        activation: Activation::Tanh,
        distribution: Distribution::Greedy,
        episodes,
        seed,
    }
}

/// The perturbation of one pair, the same in every process.
fn noise(generation: u64, pair: u64, size: usize) -> Vec<f32> {
    let mut random = Pcg64::seeded(generation * PAIRS + pair);
    // Two uniform numbers make a normal one (Box and Muller).
    let mut normal = || {
        let (first, second) = (random.uniform(f64::MIN_POSITIVE, 1.0), random.uniform(0.0, 1.0));
        ((-2.0_f64 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()) as f32
    };
    (0..size).map(|_| normal()).collect()
}

struct Evaluator;

#[actor]
impl Evaluator {
    fn new() -> Self {
        Self
    }

    /// The return of each perturbed policy from pair `low` to `high`: with the noise, then with its negative.
    fn play(&self, weights: Array<f32>, generation: u64, low: u64, high: u64) -> Vec<f64> {
        let perturbed: Vec<f32> = (low..high)
            .flat_map(|pair| {
                let noise = noise(generation, pair, weights.len());
                [SIGMA, -SIGMA]
                    .into_iter()
                    .flat_map(move |sigma| noise.iter().map(|part| sigma * part).collect::<Vec<f32>>())
            })
            .zip(weights.iter().cycle())
            .map(|(offset, weight)| weight + offset)
            .collect();
        population(4, generation).evaluate(&perturbed).expect("the sizes fit the environment").0
    }
}

/// Ranks from -0.5 to 0.5: how far the best return lies above the others does not matter.
fn centred_ranks(returns: &[f64]) -> Vec<f32> {
    let mut order: Vec<usize> = (0..returns.len()).collect();
    order.sort_by(|left, right| returns[*left].total_cmp(&returns[*right]));
    let mut ranks = vec![0.0; returns.len()];
    for (rank, place) in order.into_iter().enumerate() {
        ranks[place] = rank as f32 / (returns.len() - 1) as f32 - 0.5;
    }
    ranks
}

/// Adam, as in Kingma and Ba, 2015.
struct Adam {
    mean: Vec<f32>,
    square: Vec<f32>,
    steps: i32,
}

impl Adam {
    fn ascend(&mut self, weights: &mut [f32], gradient: &[f32]) {
        self.steps += 1;
        let (first, second) = (1.0 - 0.9_f32.powi(self.steps), 1.0 - 0.999_f32.powi(self.steps));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((weight, slope), (mean, square)) in weights.iter_mut().zip(gradient).zip(moments) {
            *mean = 0.9 * *mean + 0.1 * slope;
            *square = 0.999 * *square + 0.001 * slope * slope;
            *weight += RATE * (*mean / first) / ((*square / second).sqrt() + 1e-8);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _session = aktis::init()?;
    let evaluators: Vec<_> = (0..ACTORS).map(|_| Evaluator::remote()).collect();
    let size = population(1, 0).parameters();
    let mut weights: Vec<f32> = noise(u64::MAX / PAIRS - 1, 0, size).iter().map(|part| 0.1 * part).collect();
    let mut adam = Adam { mean: vec![0.0; size], square: vec![0.0; size], steps: 0 };
    for generation in 0..GENERATIONS {
        let shared = aktis::put(Array::from_slice(&weights))?;
        let played: Vec<_> = (0..ACTORS)
            .zip(&evaluators)
            .map(|(number, evaluator)| {
                let share = PAIRS / ACTORS;
                evaluator.play(&shared, generation, number * share, (number + 1) * share)
            })
            .collect();
        let returns = aktis::get_all(&played)?.concat();
        let ranks = centred_ranks(&returns);
        let mut gradient = vec![0.0; size];
        for (pair, ranks) in (0..PAIRS).zip(ranks.chunks_exact(2)) {
            for (slope, part) in gradient.iter_mut().zip(noise(generation, pair, size)) {
                *slope += (ranks[0] - ranks[1]) * part / (2.0 * PAIRS as f32 * SIGMA);
            }
        }
        adam.ascend(&mut weights, &gradient);
        if generation % 25 == 24 {
            let (found, _) = population(100, 1_000_000).evaluate(&weights)?;
            println!("generation {:3}: a mean return of {:.0} over 100 episodes", generation + 1, found[0]);
        }
    }
    Ok(())
}
