//! MountainCar: a car too weak for the hill has to swing back and forth (Moore 1990).

use crate::environment::{ActionSpace, Environment, ObservationSpace, Step};
use crate::random::Pcg64;
use crate::trigonometry::cos;

const POSITION: (f64, f64) = (-1.2, 0.6);
const SPEED_MAX: f64 = 0.07;
const GRAVITY: f64 = 0.0025;

fn observation_space() -> ObservationSpace {
    ObservationSpace {
        low: vec![POSITION.0 as f32, -SPEED_MAX as f32],
        high: vec![POSITION.1 as f32, SPEED_MAX as f32],
    }
}

/// `MountainCar-v0` of Gymnasium. State: position, velocity.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountainCar;

impl Environment for MountainCar {
    type State = [f64; 2];
    type Observation = [f32; 2];
    type Action = i64;

    fn id(&self) -> &str {
        "MountainCar-v0"
    }

    fn observation_space(&self) -> ObservationSpace {
        observation_space()
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Discrete(3)
    }

    #[inline(always)]
    fn steps_max(&self) -> u32 {
        200
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 2] {
        [random.uniform(-0.6, -0.4), 0.0]
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 2], action: i64) -> Step {
        const FORCE: f64 = 0.001;
        const GOAL: f64 = 0.5;
        let [position, velocity] = *state;
        // A conversion of 64-bit integers is not vectorised; of 32-bit ones, it is.
        let pedal = f64::from(action as i32 - 1);
        let velocity = velocity + (pedal * FORCE + cos(3.0 * position) * -GRAVITY);
        let velocity = velocity.clamp(-SPEED_MAX, SPEED_MAX);
        let position = (position + velocity).clamp(POSITION.0, POSITION.1);
        let at_wall = (position == POSITION.0) & (velocity < 0.0);
        let velocity = if at_wall { 0.0 } else { velocity };
        *state = [position, velocity];
        Step { reward: -1.0, terminated: (position >= GOAL) & (velocity >= 0.0) }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 2]) -> [f32; 2] {
        state.map(|number| number as f32)
    }
}

/// `MountainCarContinuous-v0` of Gymnasium. State: position, velocity, and whether the first step is over.
///
/// Gymnasium keeps the first state in `f64` and all later ones in `f32`; so does this, to be equal to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountainCarContinuous;

impl Environment for MountainCarContinuous {
    type State = [f64; 3];
    type Observation = [f32; 2];
    type Action = [f32; 1];

    fn id(&self) -> &str {
        "MountainCarContinuous-v0"
    }

    fn observation_space(&self) -> ObservationSpace {
        observation_space()
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Continuous { low: vec![-1.0], high: vec![1.0] }
    }

    #[inline(always)]
    fn steps_max(&self) -> u32 {
        999
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 3] {
        [random.uniform(-0.6, -0.4), 0.0, 0.0]
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 3], [action]: [f32; 1]) -> Step {
        const POWER: f64 = 0.0015;
        const GOAL: f64 = 0.45;
        let [position, velocity, later] = *state;
        let force = action.clamp(-1.0, 1.0);
        let clipped = force != action;
        // Angles of later states are products of f32, and so are forces that were not clipped.
        let angle = if later > 0.0 { f64::from(3.0 * position as f32) } else { 3.0 * position };
        let slope = GRAVITY * cos(angle);
        let product = force * POWER as f32;
        let change_later =
            if clipped { (f64::from(force) * POWER - slope) as f32 } else { product - slope as f32 };
        let change_first =
            if clipped { f64::from(force) * POWER - slope } else { f64::from(product - slope as f32) };
        let velocity =
            if later > 0.0 { f64::from(velocity as f32 + change_later) } else { velocity + change_first };
        let round_later = |number: f64| if later > 0.0 { f64::from(number as f32) } else { number };
        let velocity = velocity.clamp(round_later(-SPEED_MAX), round_later(SPEED_MAX));
        let moved =
            if later > 0.0 { f64::from(position as f32 + velocity as f32) } else { position + velocity };
        let (lowest, highest) = (round_later(POSITION.0), round_later(POSITION.1));
        let position = moved.clamp(lowest, highest);
        let at_wall = (position == lowest) & (velocity < 0.0);
        let velocity = if at_wall { 0.0 } else { velocity };
        let terminated = (position >= round_later(GOAL)) & (velocity >= 0.0);
        *state = [f64::from(position as f32), f64::from(velocity as f32), 1.0];
        let effort = f64::from(action);
        let bonus = if terminated { 100.0 } else { 0.0 };
        Step { reward: bonus - effort * effort * 0.1, terminated }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 3]) -> [f32; 2] {
        [state[0] as f32, state[1] as f32]
    }
}
