//! A grid world: walk from a random cell to a random goal.

use crate::environment::{ActionSpace, Environment, ObservationSpace, Step};
use crate::random::Pcg64;

/// `aktis/GridWorld-v0`: a square of cells without walls, 8 × 8 by default. State: column and row of the agent, then of
/// the goal; observations are the same, each divided by the highest coordinate. Actions: 0 right, 1 up, 2 left, 3 down; a
/// step against the border stays. Each step costs 0.01, the goal gives 1, and after 4 × size steps the episode is
/// truncated.
#[derive(Clone, Copy, Debug)]
pub struct GridWorld {
    size: u32,
}

impl GridWorld {
    /// A square with so many cells on each side, at least 2.
    pub fn new(size: u32) -> Self {
        Self { size: size.clamp(2, 1 << 20) }
    }
}

impl Default for GridWorld {
    fn default() -> Self {
        Self::new(8)
    }
}

impl Environment for GridWorld {
    type State = [f64; 4];
    type Observation = [f32; 4];
    type Action = i64;

    fn id(&self) -> &str {
        "aktis/GridWorld-v0"
    }

    fn observation_space(&self) -> ObservationSpace {
        ObservationSpace { low: vec![0.0; 4], high: vec![1.0; 4] }
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Discrete(4)
    }

    #[inline(always)]
    fn steps_max(&self) -> u32 {
        4 * self.size
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 4] {
        let size = u64::from(self.size);
        let cells = size * size;
        let agent = random.below(cells);
        // The goal is any other cell.
        let goal = (agent + 1 + random.below(cells - 1)) % cells;
        [agent % size, agent / size, goal % size, goal / size].map(|number| number as f64)
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 4], action: i64) -> Step {
        let last = f64::from(self.size - 1);
        let [column, row, goal_column, goal_row] = *state;
        let right = if action == 0 { 1.0 } else { 0.0 } - if action == 2 { 1.0 } else { 0.0 };
        let up = if action == 1 { 1.0 } else { 0.0 } - if action == 3 { 1.0 } else { 0.0 };
        let column = (column + right).clamp(0.0, last);
        let row = (row + up).clamp(0.0, last);
        *state = [column, row, goal_column, goal_row];
        let terminated = (column == goal_column) & (row == goal_row);
        Step { reward: if terminated { 1.0 } else { -0.01 }, terminated }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 4]) -> [f32; 4] {
        let last = f64::from(self.size - 1);
        state.map(|number| (number / last) as f32)
    }
}
