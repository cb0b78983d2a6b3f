//! Values of finished errands that are gone, and are wanted: the errands are run again, with those that made their inputs.

use super::Trial;
use super::errand::{Fate, Need};
use aktis_logic::machine::submitter::{Input, Repeat, Route};
use aktis_protocol::TaskKey;
use std::collections::BTreeSet;

impl Trial {
    /// Some values are gone, among them one that the program has a reference to, and wants.
    pub(super) fn lose_values(&mut self) {
        let is_done = |(number, _): &&(usize, u32)| self.oracle.errands[*number].fate == Fate::Value;
        let done: Vec<_> = self.caller.held().iter().filter(is_done).copied().collect();
        let Some((wanted, _)) = self.random.pick(&done) else { return };
        let percent = self.random.below(100);
        let gone: BTreeSet<usize> =
            self.oracle.on_record.iter().copied().filter(|_| self.random.chance(percent)).collect();
        let lost_inputs = |key: TaskKey| self.lost_inputs(self.oracle.numbers[&key], &gone);
        let steps = self.machine.steps_to(self.oracle.errands[wanted].key, lost_inputs);
        if self.trace {
            println!("lost {wanted}, and of its inputs {gone:?}: {steps:?}");
        }
        let steps = match steps {
            Ok(steps) => steps,
            Err((key, refusal)) => {
                let number = self.oracle.numbers[&key];
                return assert_eq!(
                    refusal,
                    self.oracle.repeat(number),
                    "why errand {number} is not run again"
                );
            }
        };
        let mut done = BTreeSet::new();
        for key in steps {
            let number = self.oracle.numbers[&key];
            assert_eq!(self.oracle.repeat(number), Repeat::Possible, "errand {number} is run again");
            for producer in self.lost_inputs(number, &gone) {
                let producer = self.oracle.numbers[&producer];
                let is_dealt_with = done.contains(&producer) || self.oracle.errands[producer].is_open();
                assert!(is_dealt_with, "errand {number} is run again before {producer}, which it needs");
            }
            self.run_again(number);
            done.insert(number);
        }
        assert!(self.oracle.errands[wanted].is_open(), "errand {wanted} is not run again");
    }

    /// The errands that have made what this one needs, and what is gone: by chance, or because nobody refers to it.
    fn lost_inputs(&self, number: usize, gone: &BTreeSet<usize>) -> Vec<TaskKey> {
        let is_lost = |need: &Need| match *need {
            Need::Errand(producer, index) => {
                let is_gone = gone.contains(&producer) || !self.caller.is_referenced(producer, index);
                let key = self.oracle.errands[producer].key;
                (is_gone && self.machine.record(key).is_some()).then_some(key)
            }
            Need::Thing(_) => None,
        };
        self.oracle.errands[number].order.needs.iter().filter_map(is_lost).collect()
    }

    fn run_again(&mut self, number: usize) {
        let order = self.oracle.errands[number].order.clone();
        let Route::Lane(lane) = order.route else { panic!("errand {number} is a call") };
        let mut inputs = Vec::new();
        for need in &order.needs {
            match *need {
                Need::Errand(producer, index) => {
                    let key = self.oracle.errands[producer].key;
                    if self.machine.record(key).is_none() {
                        continue;
                    }
                    if self.caller.refer_again(producer, index) {
                        self.oracle.errands[producer].handles += 1;
                        self.machine.on_handle_added(key);
                    }
                    inputs.push(Input::Task(key));
                }
                Need::Thing(object) if self.oracle.fate(*need) == Fate::Open => {
                    inputs.push(Input::Elsewhere(object));
                }
                Need::Thing(_) => {}
            }
        }
        let key = self.oracle.errands[number].key;
        self.oracle.on_value_lost(number);
        self.tell("a loss of values", |machine, effects| machine.on_values_lost(key, lane, &inputs, effects));
    }
}
