//! Why something waits, in words, from the state that decides it.

use super::stock::Want;
use super::{Node, NodeEffect};
use crate::Effects;
use crate::ledger::{Allocation, Source};
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{LaneId, ProcessSlot, ProgramId, ShapeId};

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
        let (queued, wanted) = (self.leases.queued(shape), &self.leases.shape(shape).resources);
        let are_queued = match queued {
            0 => format!("no task is queued for {wanted}"),
            1 => format!("1 task is queued for {wanted}"),
            _ => format!("{queued} tasks are queued for {wanted}"),
        };
        format!("{are_queued}; {}", self.shape_reason(shape))
    }

    /// What tasks of a shape wait for.
    pub(super) fn shape_reason(&self, shape: ShapeId) -> String {
        let (isolated, program) = (self.leases.shape(shape).isolated, self.leases.shape(shape).program);
        let want = self.leases.want(shape);
        if !self.stock.is_feasible(&want) {
            return self.infeasible_text(&want);
        }
        if !isolated && self.roster.shared(program).is_none() {
            return self.shared_text(program);
        }
        if self.leases.starting(shape, &self.roster) > 0 {
            return "a worker process is being started".to_owned();
        }
        if let Some(failures) = self.leases.start_failures.get(&shape) {
            return start_text(failures.count, &failures.last);
        }
        let leases = self.leases.count(shape);
        if leases > 0 {
            return format!("at most {leases} may run at a time now");
        }
        if !self.leases.has_room(shape) || self.stock.fits(&want) {
            return "they are about to be served".to_owned();
        }
        self.lacking_text(&want)
    }

    /// What the node, or the group, does not have at all.
    pub(super) fn infeasible_text(&self, want: &Want) -> String {
        if let Some(place) = want.group {
            return self.group_text(place, &want.resources);
        }
        let (node, wanted) = (self.stock.node(), &want.resources);
        let names = node.infeasible_names(wanted);
        let wants: Vec<_> = names.iter().map(|name| format!("{} {name}", wanted.get(name))).collect();
        let has: Vec<_> = names.iter().map(|name| format!("{} {name}", node.total().get(name))).collect();
        format!("no node has {}; this node has {} in all", wants.join(", "), has.join(", "))
    }

    /// What is not free now, and who has it.
    pub(super) fn lacking_text(&self, want: &Want) -> String {
        let ledger = self.stock.awaited(want).unwrap_or(self.stock.node());
        let Some(name) = ledger.lacking(&want.resources).into_iter().next() else {
            return "others who wait come first".into();
        };
        let (total, free) = (ledger.total().get(&name), ledger.available().get(&name));
        let uses = |allocation: &&Allocation| {
            allocation.source() == ledger.source() && allocation.resources().get(&name).0 > 0
        };
        let by_tasks = self.leases.leases.values().map(|lease| &lease.allocation).filter(uses).count();
        let by_actors = self.actors.allocations().filter(uses).count();
        let by_groups = self.groups.allocations().filter(uses).count();
        let users = [
            count_of(by_tasks, "other task"),
            count_of(by_actors, "actor"),
            count_of(by_groups, "placement bundle"),
        ];
        let users: Vec<_> = users.into_iter().filter(|text| !text.starts_with("0 ")).collect();
        let users = if users.is_empty() { "nobody".to_owned() } else { users.join(" and ") };
        let place = match ledger.source() {
            Source::Node => "",
            Source::Bundle(..) => " of its bundle",
        };
        match free.0 {
            0 => format!("all {total} {name}{place} are in use by {users}"),
            _ => format!("only {free} of {total} {name}{place} are free, the rest is in use by {users}"),
        }
    }

    /// Why there is no shared worker of a program.
    pub(super) fn shared_text(&self, program: ProgramId) -> String {
        match self.programs.failures(program) {
            None => "a worker process is being started".into(),
            Some((count, last)) => start_text(count, last),
        }
    }
}

fn count_of(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

pub(super) fn start_text(count: u32, last: &str) -> String {
    let times = if count == 1 { "once".into() } else { format!("{count} times in a row") };
    format!("starting a worker process has failed {times}, and is tried again; last: {last}")
}
