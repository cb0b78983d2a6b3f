//! Pendulum: swing a pendulum up and hold it there with a bounded torque.

use crate::environment::{ActionSpace, Environment, ObservationSpace, Step};
use crate::random::Pcg64;
use crate::trigonometry::{round, sin_cos};
use std::f64::consts::{PI, TAU};

const SPEED_MAX: f64 = 8.0;
const TORQUE_MAX: f32 = 2.0;
const SECONDS: f64 = 0.05;
const GRAVITY: f64 = 10.0;

/// `Pendulum-v1` of Gymnasium. State: angle (0 is upright), angular velocity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pendulum;

impl Environment for Pendulum {
    type State = [f64; 2];
    type Observation = [f32; 3];
    type Action = [f32; 1];

    fn id(&self) -> &str {
        "Pendulum-v1"
    }

    fn observation_space(&self) -> ObservationSpace {
        let high = vec![1.0, 1.0, SPEED_MAX as f32];
        ObservationSpace { low: high.iter().map(|bound| -bound).collect(), high }
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Continuous { low: vec![-TORQUE_MAX], high: vec![TORQUE_MAX] }
    }

    #[inline(always)]
    fn steps_max(&self) -> u32 {
        200
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 2] {
        [random.uniform(-PI, PI), random.uniform(-1.0, 1.0)]
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 2], [torque]: [f32; 1]) -> Step {
        let [angle, speed] = *state;
        // Gymnasium's torque is an f32, and so are these two products of it.
        let torque = torque.clamp(-TORQUE_MAX, TORQUE_MAX);
        let effort = f64::from(0.001 * (torque * torque));
        let torque = f64::from(3.0 * torque);
        let from_top = angle - round(angle / TAU) * TAU;
        let cost = from_top * from_top + 0.1 * (speed * speed) + effort;
        let (sine, _) = sin_cos(angle);
        let speed = speed + (3.0 * GRAVITY / 2.0 * sine + torque) * SECONDS;
        let speed = speed.clamp(-SPEED_MAX, SPEED_MAX);
        *state = [angle + speed * SECONDS, speed];
        Step { reward: -cost, terminated: false }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 2]) -> [f32; 3] {
        let (sine, cosine) = sin_cos(state[0]);
        [cosine as f32, sine as f32, state[1] as f32]
    }
}
