//! What the placer is told about tasks: how long they have run, and what those run that wait.

use aktis_logic::estimate;
use aktis_protocol::placement::RunTimes;
use aktis_protocol::{FunctionId, ProcessSlot, ShapeId, limits};
use aktis_store::{Control, LaneConsumer};
use std::collections::BTreeMap;

/// Tasks that are looked at in one lane.
const LOOKS: u64 = 32;

/// What the processes of the node have measured since the last look.
#[derive(Default)]
pub(crate) struct Measured(BTreeMap<ProcessSlot, u64>);

impl Measured {
    /// How long tasks have run since the last look, by function; of many functions, those that ran most often.
    pub(crate) fn take(
        &mut self,
        control: &Control,
        processes: impl Iterator<Item = ProcessSlot>,
    ) -> Vec<RunTimes> {
        let mut counts: BTreeMap<FunctionId, BTreeMap<u8, u32>> = BTreeMap::new();
        for process in processes {
            let seen = self.0.entry(process).or_default();
            let (samples, now) = control.samples_since(process, *seen);
            *seen = now;
            for sample in samples {
                let buckets = counts.entry(sample.likeness).or_default();
                *buckets.entry(estimate::bucket(sample.microseconds)).or_default() += 1;
            }
        }
        let row = |(function, buckets): (FunctionId, BTreeMap<u8, u32>)| RunTimes {
            function,
            buckets: buckets.into_iter().collect(),
        };
        let mut rows: Vec<RunTimes> = counts.into_iter().map(row).collect();
        let runs = |row: &RunTimes| row.buckets.iter().map(|(_, count)| *count).sum::<u32>();
        rows.sort_by_key(|row| std::cmp::Reverse(runs(row)));
        rows.truncate(limits::REPORT_FUNCTIONS_MAX);
        rows
    }
}

/// What some of the tasks of a shape run that wait in these lanes.
pub(crate) fn waiting(lanes: &[LaneConsumer], shape: ShapeId) -> Vec<FunctionId> {
    lanes.iter().filter(|lane| lane.shape() == shape).flat_map(|lane| lane.look(LOOKS)).collect()
}

/// What most tasks of a shape have run that were handed up last.
#[derive(Default)]
pub(crate) struct Usual(BTreeMap<ShapeId, FunctionId>);

impl Usual {
    /// What most of those run that wait now. If none is left, because they were claimed meanwhile, the next ones are taken
    /// for what the last ones were: a shape has few functions.
    pub(crate) fn note(&mut self, shape: ShapeId, waiting: &[FunctionId]) -> FunctionId {
        let mut counts: BTreeMap<FunctionId, usize> = BTreeMap::new();
        waiting.iter().for_each(|function| *counts.entry(*function).or_default() += 1);
        if let Some((function, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            self.0.insert(shape, function);
        }
        self.0.get(&shape).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_are_gone_already_are_taken_for_what_the_last_ones_were() {
        let (a, b, shape) = (FunctionId(1), FunctionId(2), ShapeId(3));
        let mut usual = Usual::default();
        assert_eq!(usual.note(shape, &[]), FunctionId::default());
        assert_eq!(usual.note(shape, &[a, b, b]), b);
        assert_eq!(usual.note(shape, &[]), b);
        assert_eq!(usual.note(shape, &[a]), a);
        assert_eq!(usual.note(ShapeId(4), &[]), FunctionId::default());
    }
}
