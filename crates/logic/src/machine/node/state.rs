//! What the node tells those who ask about its state: as many rows as a message holds.

use super::actors::Actor;
use super::copies::CopyState;
use super::process_table::{Process, Role, Stage};
use super::resources::Want;
use super::{Node, NodeEffect};
use crate::Effects;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::state::{
    self, ActorRow, ActorState, DemandRow, DriverRow, GroupRow, ObjectRow, ResourceRow, StateKind, StateRows,
    WorkerRole, WorkerRow, WorkerState,
};
use aktis_protocol::{ActorId, GroupPlace, GroupState, ProcessSlot, Resources, ShapeId};
use std::collections::{BTreeMap, BTreeSet};

impl Node {
    pub(super) fn on_state_wanted(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        what: StateKind,
        out: &mut Effects<NodeEffect>,
    ) {
        let (rows, left_out) = match what {
            StateKind::Workers => with(self.worker_rows(), StateRows::Workers),
            StateKind::Actors => with(self.actor_rows(from), StateRows::Actors),
            StateKind::Objects => with(self.object_rows(), StateRows::Objects),
            StateKind::Resources => with(self.resource_rows(), StateRows::Resources),
            StateKind::Groups => with(self.group_rows(), StateRows::Groups),
            StateKind::Store => (StateRows::Store(self.memory.row()), 0),
            StateKind::Demand => with(self.demand_rows(), StateRows::Demand),
            StateKind::Drivers => with(self.driver_rows(), StateRows::Drivers),
            StateKind::Labels => (StateRows::Labels(self.places.labels().clone()), 0),
        };
        self.send(from, FromNode::StateTold { request, rows, left_out }, out);
    }

    fn worker_rows(&self) -> (Vec<WorkerRow>, u64) {
        let workers = self.process_table.iter().filter_map(|(slot, process)| {
            let role = match process.role {
                Role::Daemon | Role::Driver(_) | Role::Peer(_) => return None,
                Role::Shared(_) => WorkerRole::Shared,
                Role::TaskRunner(_) | Role::Retired => WorkerRole::Tasks,
                Role::ActorHost(actor) => WorkerRole::Actor(actor),
            };
            process.is_not_dead().then_some((slot, process, role))
        });
        state::page(workers, |(slot, process, role)| self.worker_row(slot, process, role))
    }

    fn worker_row(&self, slot: ProcessSlot, process: &Process, role: WorkerRole) -> WorkerRow {
        let mut resources = Resources::none();
        let leases = self.leases.leases.values().filter(|lease| lease.holder == slot);
        leases.for_each(|lease| resources.add(lease.allocation.resources()));
        let actor = role.actor().and_then(|actor| self.actors.table.get(&actor));
        actor.and_then(Actor::allocation).into_iter().for_each(|held| resources.add(held.resources()));
        let idle = match role {
            WorkerRole::Tasks => !self.leases.is_holder(slot),
            WorkerRole::Shared | WorkerRole::Actor(_) => false,
        };
        let state = match process.stage {
            Stage::Starting => WorkerState::Starting,
            Stage::Leaving { .. } | Stage::Dead { .. } => WorkerState::Leaving,
            Stage::Alive if idle => WorkerState::Idle,
            Stage::Alive => WorkerState::Busy,
        };
        WorkerRow { process: slot, pid: process.pid, role, state, resources }
    }

    fn actor_rows(&self, asker: ProcessSlot) -> (Vec<ActorRow>, u64) {
        state::page(self.actors.table.iter(), |(id, known)| {
            let row = self.actor_row(*id, known);
            // By a private name its job's actors can be found.
            let name = row.name.filter(|name| self.may_list(asker, name));
            ActorRow { name, ..row }
        })
    }

    fn actor_row(&self, actor: ActorId, known: &Actor) -> ActorRow {
        let (state, reason) = match known.place() {
            ActorPlace::Pending(reason) | ActorPlace::Moved(reason) if known.incarnation > 0 => {
                (ActorState::Restarting, reason)
            }
            ActorPlace::Pending(reason) | ActorPlace::Moved(reason) => (ActorState::Pending, reason),
            ActorPlace::Alive { .. } => (ActorState::Alive, String::new()),
            ActorPlace::Dead(failure) => (ActorState::Dead, failure.message),
        };
        let process = known.host();
        let pid = process.and_then(|host| self.process_table.get(host)).map_or(0, |host| host.pid);
        ActorRow {
            actor,
            type_name: known.spec.type_name.clone(),
            name: known.spec.name.clone(),
            state,
            reason,
            process,
            pid,
            restarts: known.incarnation,
            resources: known.spec.resources.clone(),
            detached: known.spec.detached,
        }
    }

    fn object_rows(&self) -> (Vec<ObjectRow>, u64) {
        state::page(self.memory.copies.iter(), |copy| ObjectRow {
            object: copy.object,
            entry: copy.entry,
            bytes: copy.bytes,
            holders: self.directory.holders(copy.object).collect(),
            sealed: !matches!(copy.state, CopyState::Reserving { .. } | CopyState::Writing { .. }),
            // The shell looks, which can.
            pinned: false,
            spilled: matches!(
                copy.state,
                CopyState::Spilled { .. } | CopyState::Mapped { .. } | CopyState::Restoring { .. }
            ),
            elsewhere: matches!(copy.state, CopyState::Elsewhere { .. } | CopyState::Fetching { .. }),
        })
    }

    /// What tasks and actors wait for, those that want the same together.
    fn demand_rows(&self) -> (Vec<DemandRow>, u64) {
        let mut waiting = BTreeMap::<(Resources, bool), (u64, String)>::new();
        let shapes: BTreeSet<ShapeId> = self.leases.lanes.values().map(|lane| lane.shape).collect();
        for shape in shapes {
            let (queued, want) = (self.leases.queued(shape), self.leases.want(shape));
            if queued > 0 {
                let infeasible = !self.resources.is_feasible(&want);
                let row = waiting.entry((want.resources, infeasible)).or_default();
                *row = (row.0 + queued, self.shape_reason(shape));
            }
        }
        for known in self.actors.table.values() {
            if let ActorPlace::Pending(reason) = known.place() {
                let want = Want { resources: known.spec.resources.clone(), group: known.spec.group };
                let infeasible = !self.resources.is_feasible(&want);
                let row = waiting.entry((want.resources, infeasible)).or_default();
                *row = (row.0 + 1, reason);
            }
        }
        state::page(waiting.into_iter(), |((resources, infeasible), (waiting, reason))| DemandRow {
            resources,
            waiting,
            infeasible,
            reason,
        })
    }

    fn driver_rows(&self) -> (Vec<DriverRow>, u64) {
        let drivers = self.process_table.iter().filter_map(|(slot, process)| match process.role {
            Role::Driver(program) if process.is_not_dead() => Some((slot, process.pid, program)),
            _ => None,
        });
        state::page(drivers, |(process, pid, program)| DriverRow { process, pid, program })
    }

    fn resource_rows(&self) -> (Vec<ResourceRow>, u64) {
        let node = self.resources.node();
        state::page(node.total().iter(), |(name, total)| ResourceRow {
            name: name.to_owned(),
            total,
            available: node.available().get(name),
        })
    }

    fn group_rows(&self) -> (Vec<GroupRow>, u64) {
        state::page(self.groups.table.iter(), |(&group, known)| {
            let bundles = self.resources.ledgers(Some(GroupPlace { group, bundle: None }));
            let nodes = match known.state() {
                GroupState::Ready if self.places.is_clustered() => known.nodes.clone(),
                GroupState::Ready => vec![self.places.node(); known.spec.bundles.len()],
                GroupState::Pending(_) | GroupState::Removed(_) => Vec::new(),
            };
            GroupRow {
                group,
                name: known.spec.name.clone(),
                strategy: known.spec.strategy,
                state: known.state(),
                bundles: known.spec.bundles.clone(),
                available: bundles.iter().map(|ledger| ledger.available().clone()).collect(),
                nodes,
            }
        })
    }
}

fn with<Row>(
    (rows, left_out): (Vec<Row>, u64),
    kind: impl FnOnce(Vec<Row>) -> StateRows,
) -> (StateRows, u64) {
    (kind(rows), left_out)
}
