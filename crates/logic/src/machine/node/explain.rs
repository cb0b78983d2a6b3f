//! Why something waits, in words, from the state that decides it.

use super::{Node, NodeEffect};
use crate::Effects;
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{LaneId, ProcessSlot, Resources, ShapeId};

impl Node {
    pub(super) fn on_shape_question(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        lane: LaneId,
        out: &mut Effects<NodeEffect>,
    ) {
        let text = match self.leases.lanes.get(&lane) {
            Some(lane) => self.shape_text(lane.shape),
            None => format!("there is no queue {lane} on this node"),
        };
        self.send(from, FromNode::ShapeExplained { request, text }, out);
    }

    fn shape_text(&self, shape: ShapeId) -> String {
        let queued = self.leases.queued(shape);
        let isolated = self.leases.shape(shape).isolated;
        let wanted = &self.leases.shape(shape).resources;
        let are_queued = match queued {
            0 => format!("no task is queued for {wanted}"),
            1 => format!("1 task is queued for {wanted}"),
            _ => format!("{queued} tasks are queued for {wanted}"),
        };
        if !self.ledger.is_feasible(wanted) {
            return format!("{are_queued}; {}", self.infeasible_text(wanted));
        }
        if !isolated && self.roster.shared().is_none() {
            return format!("{are_queued}; {}", self.shared_text());
        }
        if self.leases.starting(shape, &self.roster) > 0 {
            return format!("{are_queued}; a worker process is being started");
        }
        if let Some(failures) = self.leases.start_failures.get(&shape) {
            return format!("{are_queued}; {}", start_text(failures.count, &failures.last));
        }
        let leases = self.leases.count(shape);
        if leases > 0 {
            return format!("{are_queued}; at most {leases} may run at a time now");
        }
        if !self.leases.has_room(shape) || self.ledger.fits(wanted) {
            return format!("{are_queued}; they are about to be served");
        }
        format!("{are_queued}; {}", self.lacking_text(wanted))
    }

    /// What the node does not have at all.
    pub(super) fn infeasible_text(&self, wanted: &Resources) -> String {
        let names = self.ledger.infeasible_names(wanted);
        let wants: Vec<_> = names.iter().map(|name| format!("{} {name}", wanted.get(name))).collect();
        let has: Vec<_> =
            names.iter().map(|name| format!("{} {name}", self.ledger.total().get(name))).collect();
        format!("no node has {}; this node has {} in all", wants.join(", "), has.join(", "))
    }

    /// What is not free now, and who has it.
    pub(super) fn lacking_text(&self, wanted: &Resources) -> String {
        let Some(name) = self.ledger.lacking(wanted).into_iter().next() else {
            return "others who wait come first".into();
        };
        let (total, free) = (self.ledger.total().get(&name), self.ledger.available().get(&name));
        let leases = self.leases.leases.values();
        let by_tasks = leases.filter(|lease| lease.allocation.resources().get(&name).0 > 0).count();
        let by_actors = self.actors.users_of(&name);
        let users = match (by_tasks, by_actors) {
            (by_tasks, 0) => tasks(by_tasks),
            (0, 1) => "1 actor".to_owned(),
            (0, by_actors) => format!("{by_actors} actors"),
            (by_tasks, 1) => format!("{} and 1 actor", tasks(by_tasks)),
            (by_tasks, by_actors) => format!("{} and {by_actors} actors", tasks(by_tasks)),
        };
        match free.0 {
            0 => format!("all {total} {name} are in use by {users}"),
            _ => format!("only {free} of {total} {name} are free, the rest is in use by {users}"),
        }
    }

    /// Why there is no shared worker.
    pub(super) fn shared_text(&self) -> String {
        match self.shared_failures.count {
            0 => "a worker process is being started".into(),
            count => start_text(count, &self.shared_failures.last),
        }
    }
}

fn tasks(count: usize) -> String {
    if count == 1 { "1 other task".into() } else { format!("{count} other tasks") }
}

pub(super) fn start_text(count: u32, last: &str) -> String {
    let times = if count == 1 { "once".into() } else { format!("{count} times in a row") };
    format!("starting a worker process has failed {times}, and is tried again; last: {last}")
}
