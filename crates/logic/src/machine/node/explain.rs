//! Why something waits, in words, from the state that decides it.

use super::granting::Claim;
use super::resources::Want;
use super::{Node, NodeEffect};
use crate::Effects;
use crate::ledger::{Allocation, Source};
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{LaneId, ProcessSlot, ProgramId, ShapeId, Strategy};

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
        let wanted = match self.leases.shape(shape).priority {
            0 => wanted.to_string(),
            priority => format!("{wanted} with priority {priority}"),
        };
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
        if let Some(text) = self.place_text(shape).filter(|_| !self.may_run_here(shape)) {
            return text;
        }
        if !self.resources.is_feasible(&want) {
            let strategy = &self.leases.shape(shape).strategy;
            return self.place_text(shape).unwrap_or_else(|| self.infeasible_text(&want, strategy));
        }
        if !isolated && self.process_table.shared(program).is_none() {
            return self.shared_text(program);
        }
        if self.leases.starting(shape, &self.process_table) > 0 {
            return "a worker process is being started".to_owned();
        }
        if let Some(failures) = self.leases.start_failures.get(&shape) {
            return start_text(failures.count, &failures.last);
        }
        let ahead = self.ahead_text(Claim::Shape(shape), &want);
        let leases = self.leases.count(shape);
        if leases > 0 {
            return format!("at most {leases} may run at a time now{ahead}");
        }
        if !self.leases.has_room(shape, &self.process_table)
            || (self.resources.fits(&want) && ahead.is_empty())
        {
            return "they are about to be served".to_owned();
        }
        format!("{}{ahead}", self.lacking_text(&want))
    }

    /// The claims of a higher priority for some of the same resources.
    fn claims_ahead(&self, claim: Claim, want: &Want) -> impl Iterator<Item = Claim> {
        let priority = self.priority(claim);
        let wants_same = move |other: &Claim| {
            let wanted = match *other {
                Claim::Shape(shape) => Some(self.leases.want(shape)),
                Claim::Actor(actor) => self.wanted_by_actor(actor),
                Claim::Group(_) => None,
            };
            wanted.is_some_and(|wanted| {
                wanted.group.map(|place| place.group) == want.group.map(|place| place.group)
                    && wanted.resources.shares_any(&want.resources)
            })
        };
        let ahead = self.claims.iter().filter(move |other| self.priority(**other) > priority);
        ahead.filter(move |other| wants_same(other)).copied()
    }

    /// Who has a higher priority, and how many they are; nothing if nobody has.
    fn ahead_text(&self, claim: Claim, want: &Want) -> String {
        let (mut tasks, mut actors) = (0, 0);
        for ahead in self.claims_ahead(claim, want) {
            match ahead {
                Claim::Shape(shape) => tasks += self.leases.queued(shape) as usize,
                Claim::Actor(_) | Claim::Group(_) => actors += 1,
            }
        }
        match enumeration(&[(tasks, "task"), (actors, "actor")]) {
            Some(others) => format!("; ahead, with a higher priority: {others}"),
            None => String::new(),
        }
    }

    /// The same for somebody who is told whenever it changes: without numbers.
    pub(super) fn behind_text(&self, claim: Claim, want: &Want) -> &'static str {
        match self.claims_ahead(claim, want).next() {
            Some(_) => "; what has a higher priority comes first",
            None => "",
        }
    }

    /// What the node, or the group, does not have at all, for something that may run here.
    pub(super) fn infeasible_text(&self, want: &Want, strategy: &Strategy) -> String {
        if let Some(place) = want.group {
            return self.group_text(place, &want.resources);
        }
        let (node, wanted) = (self.resources.node(), &want.resources);
        let names = node.infeasible_names(wanted);
        let wants: Vec<_> = names.iter().map(|name| format!("{} {name}", wanted.get(name))).collect();
        let has: Vec<_> = names.iter().map(|name| format!("{} {name}", node.total().get(name))).collect();
        let (wants, has) = (wants.join(", "), has.join(", "));
        match strategy {
            Strategy::Node { soft: false, .. } => {
                format!("it has to be on this node, which has not {wants}, but {has} in all")
            }
            _ => format!("no node has {wants}; this node has {has} in all"),
        }
    }

    /// What is not free now, and who has it.
    pub(super) fn lacking_text(&self, want: &Want) -> String {
        let ledger = self.resources.awaited(want).unwrap_or(self.resources.node());
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
        let users = [(by_tasks, "other task"), (by_actors, "actor"), (by_groups, "placement bundle")];
        let users = enumeration(&users).unwrap_or_else(|| "nobody".to_owned());
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

/// How many there are of each, if there are any.
fn enumeration(counts: &[(usize, &str)]) -> Option<String> {
    let there = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<_> = there
        .map(|&(count, what)| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") })
        .collect();
    (!texts.is_empty()).then(|| texts.join(" and "))
}

pub(super) fn start_text(count: u32, last: &str) -> String {
    let times = if count == 1 { "once".into() } else { format!("{count} times in a row") };
    format!("starting a worker process has failed {times}, and is tried again; last: {last}")
}
