//! Acrobot: swing the free end of two links above a line by a torque at the joint between them (Sutton 1996).

use crate::environment::{ActionSpace, Environment, ObservationSpace, Step};
use crate::random::Pcg64;
use crate::trigonometry::{cos, sin_cos};
use std::f64::consts::{FRAC_PI_2, PI, TAU};

const SECONDS: f64 = 0.2;
const SPEEDS_MAX: [f64; 2] = [4.0 * PI, 9.0 * PI];
const GRAVITY: f64 = 9.8;
/// The links have length 1, mass 1, their centre of mass in the middle, and a moment of inertia of 1.
const CENTRE: f64 = 0.5;

/// `Acrobot-v1` of Gymnasium, with the equations of Sutton and Barto's book. State: two angles and their velocities.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acrobot;

/// The derivatives of the state under a torque.
#[inline(always)]
fn derivatives([first, second, first_speed, second_speed]: [f64; 4], torque: f64) -> [f64; 4] {
    let (sine, cosine) = sin_cos(second);
    let d1 = CENTRE * CENTRE + (1.0 + CENTRE * CENTRE + 2.0 * CENTRE * cosine) + 1.0 + 1.0;
    let d2 = (CENTRE * CENTRE + CENTRE * cosine) + 1.0;
    let phi2 = CENTRE * GRAVITY * cos(first + second - FRAC_PI_2);
    let phi1 = -CENTRE * (second_speed * second_speed) * sine
        - 2.0 * CENTRE * second_speed * first_speed * sine
        + (CENTRE + 1.0) * GRAVITY * cos(first - FRAC_PI_2)
        + phi2;
    let second_acceleration = (torque + d2 / d1 * phi1 - CENTRE * (first_speed * first_speed) * sine - phi2)
        / (CENTRE * CENTRE + 1.0 - d2 * d2 / d1);
    let first_acceleration = -(d2 * second_acceleration + phi1) / d1;
    [first_speed, second_speed, first_acceleration, second_acceleration]
}

#[inline(always)]
fn moved(state: [f64; 4], slope: [f64; 4], seconds: f64) -> [f64; 4] {
    let mut result = state;
    for (number, change) in result.iter_mut().zip(slope) {
        *number += seconds * change;
    }
    result
}

/// The angle within a turn. The bounds of the speeds keep a step below two turns.
#[inline(always)]
fn wrapped(angle: f64) -> f64 {
    let mut angle = angle;
    for _ in 0..2 {
        angle = if angle > PI { angle - TAU } else { angle };
        angle = if angle < -PI { angle + TAU } else { angle };
    }
    angle
}

impl Environment for Acrobot {
    type State = [f64; 4];
    type Observation = [f32; 6];
    type Action = i64;

    fn id(&self) -> &str {
        "Acrobot-v1"
    }

    fn observation_space(&self) -> ObservationSpace {
        let high = vec![1.0, 1.0, 1.0, 1.0, SPEEDS_MAX[0] as f32, SPEEDS_MAX[1] as f32];
        ObservationSpace { low: high.iter().map(|bound| -bound).collect(), high }
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Discrete(3)
    }

    #[inline(always)]
    fn steps_max(&self) -> u32 {
        500
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 4] {
        std::array::from_fn(|_| f64::from(random.uniform(-0.1, 0.1) as f32))
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 4], action: i64) -> Step {
        let torque = f64::from(action as i32 - 1);
        // The classical method of Runge and Kutta.
        let k1 = derivatives(*state, torque);
        let k2 = derivatives(moved(*state, k1, SECONDS / 2.0), torque);
        let k3 = derivatives(moved(*state, k2, SECONDS / 2.0), torque);
        let k4 = derivatives(moved(*state, k3, SECONDS), torque);
        let mut next = [0.0; 4];
        for (index, number) in next.iter_mut().enumerate() {
            let slope = k1[index] + 2.0 * k2[index] + 2.0 * k3[index] + k4[index];
            *number = state[index] + SECONDS / 6.0 * slope;
        }
        let first = wrapped(next[0]);
        let second = wrapped(next[1]);
        let first_speed = next[2].clamp(-SPEEDS_MAX[0], SPEEDS_MAX[0]);
        let second_speed = next[3].clamp(-SPEEDS_MAX[1], SPEEDS_MAX[1]);
        *state = [first, second, first_speed, second_speed];
        let terminated = -cos(first) - cos(second + first) > 1.0;
        Step { reward: if terminated { 0.0 } else { -1.0 }, terminated }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 4]) -> [f32; 6] {
        let (first_sine, first_cosine) = sin_cos(state[0]);
        let (second_sine, second_cosine) = sin_cos(state[1]);
        [
            first_cosine as f32,
            first_sine as f32,
            second_cosine as f32,
            second_sine as f32,
            state[2] as f32,
            state[3] as f32,
        ]
    }
}
