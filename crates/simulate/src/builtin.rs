//! The environments that come with the crate, by their ids.

mod acrobot;
mod cart_pole;
mod grid_world;
mod mountain_car;
mod pendulum;

pub use acrobot::Acrobot;
pub use cart_pole::CartPole;
pub use grid_world::GridWorld;
pub use mountain_car::{MountainCar, MountainCarContinuous};
pub use pendulum::Pendulum;

use crate::batch::{AnyBatch, Autoreset, Batch};
use crate::environment::Environment;
use crate::error::Error;

/// The ids of the built-in environments, sorted. Those without `aktis/` are equal to Gymnasium's.
pub const BUILTIN_IDS: [&str; 6] = [
    "Acrobot-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "aktis/GridWorld-v0",
];

/// A batch of built-in environments. Environment `i` has the seed `seed + i`.
///
/// ```
/// use aktis_simulate::{Actions, Autoreset, builtin};
///
/// let mut poles = builtin("CartPole-v1", 2, 1, Autoreset::SameStep)?;
/// poles.step(Actions::Discrete(&[0, 1]))?;
/// assert_eq!(poles.outcome().rewards, [1.0, 1.0]);
/// # Ok::<(), aktis_simulate::Error>(())
/// ```
pub fn builtin(id: &str, count: usize, seed: u64, autoreset: Autoreset) -> Result<Box<dyn AnyBatch>, Error> {
    fn boxed<E: Environment + Clone>(
        environment: E,
        (count, seed, autoreset): (usize, u64, Autoreset),
    ) -> Result<Box<dyn AnyBatch>, Error> {
        Ok(Box::new(Batch::new(environment, count, seed, autoreset)?))
    }
    let rest = (count, seed, autoreset);
    match id {
        "Acrobot-v1" => boxed(Acrobot, rest),
        "CartPole-v1" => boxed(CartPole, rest),
        "MountainCar-v0" => boxed(MountainCar, rest),
        "MountainCarContinuous-v0" => boxed(MountainCarContinuous, rest),
        "Pendulum-v1" => boxed(Pendulum, rest),
        "aktis/GridWorld-v0" => boxed(GridWorld::default(), rest),
        _ => Err(Error::UnknownEnvironment {
            id: id.to_owned(),
            builtin: BUILTIN_IDS.map(str::to_owned).to_vec(),
        }),
    }
}
