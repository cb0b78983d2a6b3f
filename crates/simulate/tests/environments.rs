//! One's own environment, batches, and what goes wrong with them.

use aktis_simulate::{
    ActionSpace, Actions, AnyBatch, Autoreset, BUILTIN_IDS, Batch, Environment, Error, GridWorld,
    ObservationSpace, Pcg64, Step, builtin,
};

/// Counts down from a random number; the action has to be the parity of it.
#[derive(Clone)]
struct Countdown;

impl Environment for Countdown {
    type State = [f64; 1];
    type Observation = [f32; 1];
    type Action = i64;

    fn id(&self) -> &str {
        "Countdown-v0"
    }

    fn observation_space(&self) -> ObservationSpace {
        ObservationSpace { low: vec![0.0], high: vec![9.0] }
    }

    fn action_space(&self) -> ActionSpace {
        ActionSpace::Discrete(2)
    }

    fn steps_max(&self) -> u32 {
        6
    }

    fn reset(&self, random: &mut Pcg64) -> [f64; 1] {
        [1.0 + random.below(9) as f64]
    }

    #[inline(always)]
    fn step(&self, state: &mut [f64; 1], action: i64) -> Step {
        let right = action as f64 == state[0] % 2.0;
        state[0] -= 1.0;
        Step { reward: if right { 1.0 } else { 0.0 }, terminated: state[0] <= 0.0 }
    }

    #[inline(always)]
    fn observe(&self, state: &[f64; 1]) -> [f32; 1] {
        [state[0] as f32]
    }
}

fn play(autoreset: Autoreset, count: usize, steps: usize) -> (Vec<f64>, Vec<u32>) {
    let mut batch = Batch::new(Countdown, count, 3, autoreset).unwrap();
    let (mut returns, mut lengths) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let choices: Vec<i64> = batch.outcome().observations.iter().map(|seen| *seen as i64 % 2).collect();
        batch.step(Actions::Discrete(&choices)).unwrap();
        returns.extend_from_slice(&batch.outcome().episode_returns);
        lengths.extend_from_slice(&batch.outcome().episode_lengths);
    }
    (returns, lengths)
}

#[test]
fn episodes_end_by_their_rules_or_by_the_time_limit() {
    let (returns, lengths) = play(Autoreset::SameStep, 150, 60);
    assert!(lengths.contains(&1) && lengths.contains(&6) && lengths.iter().all(|length| *length <= 6));
    let as_returns: Vec<f64> = lengths.iter().map(|length| f64::from(*length)).collect();
    assert_eq!(returns, as_returns, "every action was right");
}

#[test]
fn the_step_after_an_episode_ignores_its_action_in_mode_next_step() {
    let mut batch = Batch::new(Countdown, 1, 1, Autoreset::NextStep).unwrap();
    batch.set_states(&[1.0]).unwrap();
    batch.step(Actions::Discrete(&[1])).unwrap();
    let outcome = batch.outcome();
    assert_eq!((outcome.rewards[0], outcome.terminated[0], outcome.observations[0]), (1.0, true, 0.0));
    batch.step(Actions::Discrete(&[0])).unwrap();
    let outcome = batch.outcome();
    assert_eq!((outcome.rewards[0], outcome.terminated[0], outcome.truncated[0]), (0.0, false, false));
    assert!(outcome.observations[0] >= 1.0 && outcome.ended.is_empty());
    let (_, lengths) = play(Autoreset::NextStep, 150, 60);
    assert!(lengths.iter().all(|length| (1..=6).contains(length)), "the idle step does not count");
}

#[test]
fn saved_batches_go_on_where_they_were() {
    for id in BUILTIN_IDS {
        for autoreset in [Autoreset::SameStep, Autoreset::NextStep] {
            let mut batch = builtin(id, 70, 1, autoreset).unwrap();
            let mut other = builtin(id, 70, 2, autoreset).unwrap();
            let step = |batch: &mut Box<dyn AnyBatch>, number: usize| match batch.action_space() {
                ActionSpace::Discrete(bound) => {
                    let bound = i64::from(*bound);
                    let choices: Vec<i64> =
                        (0..70).map(|index| (index * 7 + number as i64) % bound).collect();
                    batch.step(Actions::Discrete(&choices)).unwrap();
                }
                ActionSpace::Continuous { .. } => {
                    let numbers: Vec<f32> =
                        (0..70).map(|index| (index + number) as f32 % 3.0 - 1.0).collect();
                    batch.step(Actions::Continuous(&numbers)).unwrap();
                }
            };
            (0..40).for_each(|number| step(&mut batch, number));
            other.load(&batch.save()).unwrap();
            for number in 40..300 {
                step(&mut batch, number);
                step(&mut other, number);
                assert_eq!(batch.outcome(), other.outcome(), "{id}, {autoreset:?}, step {number}");
            }
        }
    }
}

#[test]
fn a_refused_step_changes_nothing() {
    let mut batch = Batch::new(GridWorld::new(4), 3, 1, Autoreset::SameStep).unwrap();
    let before = (batch.states(), batch.save());
    let refused = batch.step(Actions::Discrete(&[0, 0, 4])).unwrap_err();
    assert!(matches!(refused, Error::Action { environment: 2, .. }), "{refused}");
    assert!(batch.step(Actions::Discrete(&[0, 0])).is_err());
    assert!(batch.step(Actions::Continuous(&[0.0; 3])).is_err());
    assert!(batch.set_states(&[1.0; 5]).is_err());
    assert_eq!((batch.states(), batch.save()), before);
}

#[test]
fn counts_are_bounded() {
    for count in [0, aktis_simulate::ENVIRONMENTS_MAX + 1] {
        assert!(matches!(Batch::new(Countdown, count, 1, Autoreset::SameStep), Err(Error::Count { .. })));
    }
    let unknown = builtin("Nothing-v0", 1, 1, Autoreset::SameStep).map(|_| ()).unwrap_err();
    assert!(unknown.to_string().contains("hint: the built-in ones are Acrobot-v1, CartPole-v1"));
}
