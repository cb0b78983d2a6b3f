//! CartPole: balance a pole on a cart by pushing the cart to the left or right (Barto, Sutton, Anderson 1983).

use crate::environment::{ActionSpace, Environment, ObservationSpace, Step};
use crate::random::Pcg64;
use crate::trigonometry::sin_cos;

const GRAVITY: f64 = 9.8;
const POLE_MASS: f64 = 0.1;
const TOTAL_MASS: f64 = 1.1;
const HALF_LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = 0.05;
const FORCE: f64 = 10.0;
const SECONDS: f64 = 0.02;
const POSITION_MAX: f64 = 2.4;
const ANGLE_MAX: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;

/// `CartPole-v1` of Gymnasium. State: position, velocity, angle, angular velocity.
#[derive(Clone, Copy, Debug, Default)]
pub struct CartPole;

impl Environment for CartPole {
    type State = [f64; 4];
    type Observation = [f32; 4];
    type Action = i64;

    fn id(&self) -> &str {
        "CartPole-v1"
    }

    fn observation_space(&self) -> ObservationSpace {
        let high = [POSITION_MAX as f32 * 2.0, f32::INFINITY, (ANGLE_MAX * 2.0) as f32, f32::INFINITY];
        ObservationSpace { low: high.map(|bound| -bound).to_vec(), high: high.to_vec() }
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Discrete(2)
    }

    #[inline(always)]
    fn steps_max(&self) -> u32 {
        500
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 4] {
        std::array::from_fn(|_| random.uniform(-0.05, 0.05))
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 4], action: i64) -> Step {
        let [position, velocity, angle, angular] = *state;
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sine, cosine) = sin_cos(angle);
        let push = (force + POLE_MASS_LENGTH * (angular * angular) * sine) / TOTAL_MASS;
        let inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) / TOTAL_MASS);
        let angular_acceleration = (GRAVITY * sine - cosine * push) / inertia;
        let acceleration = push - POLE_MASS_LENGTH * angular_acceleration * cosine / TOTAL_MASS;
        let position = position + SECONDS * velocity;
        let angle = angle + SECONDS * angular;
        *state =
            [position, velocity + SECONDS * acceleration, angle, angular + SECONDS * angular_acceleration];
        let terminated = (position.abs() > POSITION_MAX) | (angle.abs() > ANGLE_MAX);
        Step { reward: 1.0, terminated }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 4]) -> [f32; 4] {
        state.map(|number| number as f32)
    }
}
