//! Which lanes have tasks waiting: reported to the machine while they do.
//!
//! Invariant: a lane that has tasks is active here, or its submitter will say that it is: it is taken for idle first,
//! and looked at once more afterwards.

use aktis_logic::Time;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::LaneId;
use aktis_store::Control;
use std::collections::BTreeSet;

/// How often active lanes are looked at, in microseconds.
const TICK_MICROSECONDS: u64 = 10_000;

#[derive(Default)]
pub(crate) struct Demand {
    active: BTreeSet<LaneId>,
    next_tick: Option<Time>,
}

impl Demand {
    /// A submitter says that a lane has tasks.
    pub(crate) fn on_lane_active(&mut self, now: Time, lane: LaneId, control: &Control) -> NodeInput {
        self.active.insert(lane);
        self.next_tick.get_or_insert(Time(now.0 + TICK_MICROSECONDS));
        NodeInput::LaneDemand { lane, queued: control.lane_queued(lane) }
    }

    /// The lane is closed.
    pub(crate) fn forget(&mut self, lane: LaneId) {
        self.active.remove(&lane);
    }

    /// When active lanes want to be looked at.
    pub(crate) fn next_tick(&self) -> Option<Time> {
        self.next_tick
    }

    /// What the active lanes want, if it is time to look.
    pub(crate) fn on_tick(&mut self, now: Time, control: &Control) -> Vec<NodeInput> {
        if self.next_tick.is_none_or(|tick| now < tick) {
            return Vec::new();
        }
        let mut reports = Vec::with_capacity(self.active.len());
        self.active.retain(|&lane| {
            let mut queued = control.lane_queued(lane);
            if queued == 0 {
                control.lane_set_idle(lane);
                queued = control.lane_queued(lane);
            }
            reports.push(NodeInput::LaneDemand { lane, queued });
            queued > 0
        });
        self.next_tick = (!self.active.is_empty()).then_some(Time(now.0 + TICK_MICROSECONDS));
        reports
    }
}
