//! An environment of one's own, on a page: a lander that has to touch the ground slowly. It is stepped in batches, and a
//! policy acts in it.
//!
//! Run it with `cargo run --release -p aktis-simulate --example own_environment`.

use aktis_simulate::{
    ActionSpace, Activation, Autoreset, Batch, Distribution, Environment, Error, Layer, Network,
    ObservationSpace, Pcg64, Policy, Rollouts, Step,
};

/// Falls from a random height. The action is the thrust, from 0 to 1.
#[derive(Clone)]
struct Lander;

impl Environment for Lander {
    /// Height and speed.
    type State = [f64; 2];
    type Observation = [f32; 2];
    type Action = [f32; 1];

    fn id(&self) -> &str {
        "Lander-v0"
    }

    fn observation_space(&self) -> ObservationSpace {
        ObservationSpace { low: vec![f32::NEG_INFINITY; 2], high: vec![f32::INFINITY; 2] }
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Continuous { low: vec![0.0], high: vec![1.0] }
    }

    fn steps_max(&self) -> u32 {
        200
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 2] {
        [random.uniform(8.0, 12.0), 0.0]
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 2], [thrust]: [f32; 1]) -> Step {
        let [height, speed] = *state;
        let speed = speed + 0.1 * (2.0 * f64::from(thrust.clamp(0.0, 1.0)) - 1.0);
        let height = height + 0.5 * speed;
        *state = [height, speed];
        let terminated = height <= 0.0;
        Step { reward: -0.02 - if terminated { speed.abs() } else { 0.0 }, terminated }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 2]) -> [f32; 2] {
        [(state[0] / 10.0) as f32, state[1] as f32]
    }
}

/// The mean return of a linear policy: thrust = w · (height, speed) + b.
fn mean_return(rollouts: &Rollouts, weight: [f32; 2], bias: f32) -> Result<f64, Error> {
    let layer = Layer { weight: &weight, bias: &[bias], inputs: 2 };
    let network = Network::new("actor", &[layer], Activation::Tanh)?;
    let batch = rollouts.batch();
    let policy = Policy::new(network, Distribution::Greedy, batch.observation_width(), batch.action_space())?;
    let returns = rollouts.evaluate(1000, &policy, 1)?.returns;
    Ok(returns.iter().sum::<f64>() / returns.len() as f64)
}

fn main() -> Result<(), Error> {
    let rollouts = Rollouts::new(Box::new(Batch::new(Lander, 256, 1, Autoreset::SameStep)?), 1);
    println!("falling: a return of {:.2}", mean_return(&rollouts, [0.0, 0.0], 0.0)?);
    println!("braking: a return of {:.2}", mean_return(&rollouts, [-2.0, -1.0], 0.5)?);
    Ok(())
}
