//! Trains, serves and simulates in one program: a policy answers players while it is being trained.
//!
//! An actor serves the newest policy. Players, which are tasks, play CartPole and ask the server for each action. Meanwhile
//! the driver trains by hill climbing: tasks try policies near the best one, and a better one is published at once. So the
//! players get better from game to game.
//!
//! Run it with `cargo run --release -p aktis-simulate --example rl_loop`.

use aktis::prelude::*;
use aktis_simulate::{
    Actions, Activation, Autoreset, Distribution, Layer, Network, Pcg64, Population, builtin,
};
use std::time::Duration;

const ENVIRONMENT: &str = "CartPole-v1";
const OBSERVATION: usize = 4;
const CHOICES: usize = 2;
/// A weight for each pair of observation and choice, then a bias for each choice.
const PARAMETERS: usize = (OBSERVATION + 1) * CHOICES;
const PLAYERS: u64 = 2;
const GENERATIONS: u64 = 40;
const TRIED: u64 = 8;
/// How far a policy that is tried is from the best one, at most, in each parameter.
const STEP: f64 = 0.2;

struct Server {
    network: Network,
    generation: u64,
}

#[actor]
impl Server {
    fn new(parameters: Vec<f32>) -> Self {
        Self { network: network(&parameters), generation: 0 }
    }

    fn publish(&mut self, parameters: Vec<f32>, generation: u64) {
        *self = Self { network: network(&parameters), generation };
    }

    /// The best action for what a player sees.
    fn act(&self, observation: Vec<f32>) -> i64 {
        let outputs = self.network.outputs(&observation);
        i64::from(outputs[1] > outputs[0])
    }

    /// The generation that the policy is of.
    fn generation(&self) -> u64 {
        self.generation
    }
}

fn network(parameters: &[f32]) -> Network {
    let (weight, bias) = parameters.split_at(OBSERVATION * CHOICES);
    let layer = Layer { weight, bias, inputs: OBSERVATION };
    Network::new("policy", &[layer], Activation::Tanh).expect("the parameters make one layer")
}

/// One game: the generation of the policy when it began, and the points.
#[remote]
fn play(server: ServerHandle, seed: u64) -> aktis::Result<(u64, u32)> {
    let generation = server.generation().get()?;
    let mut game = builtin(ENVIRONMENT, 1, seed, Autoreset::NextStep).expect("the environment is built in");
    loop {
        let action = server.act(game.outcome().observations.clone()).get()?;
        game.step(Actions::Discrete(&[action])).expect("the server gives one of the choices");
        if let [points] = game.outcome().episode_lengths[..] {
            return Ok((generation, points));
        }
    }
}

/// Parameters near the given ones, and their mean return over 20 episodes.
#[remote]
fn attempt(parameters: Vec<f32>, seed: u64) -> (Vec<f32>, f64) {
    let mut random = Pcg64::seeded(seed);
    let near: Vec<f32> = parameters.iter().map(|part| part + random.uniform(-STEP, STEP) as f32).collect();
    let population = Population {
        id: ENVIRONMENT,
        sizes: &[OBSERVATION, CHOICES],
        activation: Activation::Tanh,
        distribution: Distribution::Greedy,
        episodes: 20,
        seed,
    };
    let (returns, _) = population.evaluate(&near).expect("the parameters fit the sizes");
    (near, returns[0])
}

fn main() -> aktis::Result<()> {
    let session = aktis::init()?;
    let mut random = Pcg64::seeded(1);
    let start: Vec<f32> = (0..PARAMETERS).map(|_| random.uniform(-1.0, 1.0) as f32).collect();
    let mut best = (start, 0.0);
    let server = Server::remote(best.0.clone());
    let mut playing: Vec<_> = (0..PLAYERS).map(|seed| play::remote(server.clone(), seed)).collect();
    let mut games = Vec::new();
    for generation in 1..=GENERATIONS {
        let tried: Vec<_> =
            (0..TRIED).map(|number| attempt::remote(best.0.clone(), generation * TRIED + number)).collect();
        for found in aktis::get_all(&tried)? {
            if found.1 > best.1 {
                best = found;
                server.publish(best.0.clone(), generation);
            }
        }
        // Takes the games that are over, without waiting for any; each makes room for another one.
        let count = playing.len();
        let (over, others) = session.wait(playing, count, Duration::ZERO)?;
        playing = others;
        for game in over {
            games.push(game.get()?);
            playing.push(play::remote(server.clone(), PLAYERS + games.len() as u64));
        }
    }
    games.extend(aktis::get_all(&playing)?);
    for (generation, points) in games.iter().step_by((games.len() / 8).max(1)) {
        println!("a game with the policy of generation {generation:2}: {points:3} points");
    }
    let last: Vec<_> = (0..4).map(|seed| play::remote(server.clone(), 1000 + seed)).collect();
    let points: u32 = aktis::get_all(&last)?.iter().map(|(_, points)| points).sum();
    println!("served {} games, trained to a mean return of {:.0}", games.len(), best.1);
    println!("games with the final policy: {} points", points / 4);
    Ok(())
}
