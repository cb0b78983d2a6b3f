//! Steps per second of the built-in environments with random actions, and of rollouts, on one core.

use aktis_simulate::{
    ActionSpace, Actions, Activation, Autoreset, BUILTIN_IDS, Distribution, Fragment, Layer, Network, Pcg64,
    Policy, Rollouts, builtin,
};
use std::time::{Duration, Instant};

const SECONDS: Duration = Duration::from_millis(700);

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    for id in BUILTIN_IDS {
        println!("{id}: {:.1} M steps/s with random actions", random_actions(id, 1024) / 1e6);
    }
    for count in [1, 8, 64, 256] {
        println!(
            "CartPole-v1, {count} environments, 64x64 tanh actor and critic: {:.2} M steps/s",
            rollouts(count) / 1e6
        );
    }
}

/// Steps per second with random actions, which are drawn within the measured time.
fn random_actions(id: &str, count: usize) -> f64 {
    let mut batch = builtin(id, count, 1, Autoreset::SameStep).expect("it is built in");
    let mut random = Pcg64::seeded(1);
    let space = batch.action_space().clone();
    let mut choices = vec![0i64; count];
    let mut numbers = vec![0f32; count * space.width()];
    let begun = Instant::now();
    let mut steps = 0;
    while begun.elapsed() < SECONDS {
        for _ in 0..20 {
            let actions = match &space {
                ActionSpace::Discrete(bound) => {
                    for four in choices.chunks_mut(4) {
                        let bits = random.bits();
                        for (place, choice) in four.iter_mut().enumerate() {
                            *choice = i64::from((((bits >> (16 * place)) as u16 as u32) * bound) >> 16);
                        }
                    }
                    Actions::Discrete(&choices)
                }
                ActionSpace::Continuous { low, high } => {
                    let (low, range) = (low[0], high[0] - low[0]);
                    for two in numbers.chunks_mut(2) {
                        let bits = random.bits();
                        for (place, number) in two.iter_mut().enumerate() {
                            let unit = ((bits >> (32 * place)) as u32 >> 8) as f32 * (1.0 / (1 << 24) as f32);
                            *number = low + range * unit;
                        }
                    }
                    Actions::Continuous(&numbers)
                }
            };
            batch.step(actions).expect("the actions are in the space");
            steps += count;
        }
    }
    steps as f64 / begun.elapsed().as_secs_f64()
}

/// Steps per second of fragments of 128 steps.
fn rollouts(count: usize) -> f64 {
    const STEPS: usize = 128;
    let mut random = Pcg64::seeded(2);
    let mut numbers = |count: usize| (0..count).map(|_| random.uniform(-0.1, 0.1) as f32).collect::<Vec<_>>();
    let mut network = |outputs: usize| {
        let sizes = [(4, 64), (64, 64), (64, outputs)];
        let parts: Vec<_> = sizes.map(|(a, b)| (numbers(a * b), numbers(b), a)).into_iter().collect();
        let layers: Vec<_> =
            parts.iter().map(|(weight, bias, inputs)| Layer { weight, bias, inputs: *inputs }).collect();
        Network::new("network", &layers, Activation::Tanh).expect("the layers fit")
    };
    let (actor, critic) = (network(2), network(1));
    let mut rollouts = Rollouts::builtin("CartPole-v1", count, 1).expect("it is built in");
    let space = rollouts.batch().action_space().clone();
    let policy = Policy::new(actor, Distribution::Categorical, 4, &space).expect("it fits");
    let rows = STEPS * count;
    let (mut observations, mut choices) = (vec![0.0; rows * 4], vec![0; rows]);
    let mut floats: [Vec<f32>; 4] = std::array::from_fn(|_| vec![0.0; rows]);
    let mut flags: [Vec<bool>; 2] = std::array::from_fn(|_| vec![false; rows]);
    let begun = Instant::now();
    let mut steps = 0;
    while begun.elapsed() < SECONDS {
        let [log_probs, rewards, values, next_values] = &mut floats;
        let [terminations, truncations] = &mut flags;
        let fragment = Fragment {
            observations: &mut observations,
            choices: &mut choices,
            log_probs,
            rewards,
            values,
            next_values,
            terminations,
            truncations,
            ..Fragment::default()
        };
        rollouts.collect(STEPS, &policy, Some(&critic), fragment).expect("the weights are finite");
        steps += rows;
    }
    steps as f64 / begun.elapsed().as_secs_f64()
}
