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

/// What most of these run.
pub(crate) fn usual(functions: &[FunctionId]) -> FunctionId {
    let mut counts: BTreeMap<FunctionId, usize> = BTreeMap::new();
    functions.iter().for_each(|function| *counts.entry(*function).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(FunctionId::default(), |(function, _)| function)
}
