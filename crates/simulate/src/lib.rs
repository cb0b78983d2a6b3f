//! Environments for reinforcement learning that are stepped in batches, and rollouts of small policies in them.
//!
//! - [`Environment`] is the trait of environments: its documentation is the template for one's own.
//! - [`Batch`] steps many environments of one kind together; [`builtin`] makes one by id, such as `CartPole-v1`. The
//!   built-in environments are equal to Gymnasium's, down to the episodes that a seed gives.
//! - [`Rollouts`] drives a batch with a [`Policy`], whose [`Network`] is computed here.
//!
//! ```
//! use aktis_simulate::{Activation, Distribution, Layer, Network, Policy, Rollouts};
//!
//! let rollouts = Rollouts::builtin("CartPole-v1", 8, 1)?;
//! // Pushes the cart to where the pole leans.
//! let layer = Layer { weight: &[0.0, 0.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0], bias: &[0.0, 0.0], inputs: 4 };
//! let network = Network::new("actor", &[layer], Activation::Tanh)?;
//! let policy = Policy::new(network, Distribution::Greedy, 4, rollouts.batch().action_space())?;
//! let episodes = rollouts.evaluate(20, &policy, 7)?;
//! assert!(episodes.lengths.iter().all(|length| *length > 100));
//! # Ok::<(), aktis_simulate::Error>(())
//! ```

mod batch;
mod builtin;
mod dispatch;
mod environment;
mod error;
mod functions;
mod network;
mod policy;
mod population;
mod random;
mod rollouts;
mod saved;
mod trigonometry;

pub use batch::{AnyBatch, Autoreset, Batch, ENVIRONMENTS_MAX, Outcome};
pub use builtin::{
    Acrobot, BUILTIN_IDS, CartPole, GridWorld, MountainCar, MountainCarContinuous, Pendulum, builtin,
};
pub use environment::{Action, ActionSpace, Actions, Environment, ObservationSpace, Row, Step};
pub use error::Error;
pub use network::{Activation, LAYERS_MAX, Layer, Network, WIDTH_MAX};
pub use policy::{Distribution, Policy};
pub use population::Population;
pub use random::Pcg64;
pub use rollouts::{EPISODES_MAX, Episodes, Fragment, Rollouts};
pub use trigonometry::{cos, sin_cos};
