//! A node that is drained: it takes nothing new, and leaves when the others have what they need of it.
//!
//! Tasks that wait go to other nodes; those that run end here. Actors that can live elsewhere end after the calls that they
//! have, and live on there. Nodes that hold an object from here get a copy. What can go nowhere is waited for until the
//! deadline: drivers, actors without restarts, actors of creators here.
//!
//! Invariant: nothing is left for [`DRAIN_QUIET_MICROSECONDS`] before the drain is over, unless the deadline has passed: what
//! other nodes sent before they heard of the drain has come by then.

use super::actors::{Actor, MOVED, Ownership, Then};
use super::leases::Lane;
use super::process_table::Role;
use super::{Node, NodeEffect};
use crate::directory::Value;
use crate::{Effects, Time};
use aktis_protocol::actors::Ending;
use aktis_protocol::control::SharedValue;
use aktis_protocol::{ActorId, FailureKind, ObjectId, ProcessSlot, ShapeId, Strategy, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// How long nothing may be left before the node leaves.
pub const DRAIN_QUIET_MICROSECONDS: u64 = 300_000;
/// The pause between two looks at what is left.
const LOOK_MICROSECONDS: u64 = 50_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Draining {
    deadline: Option<Time>,
    look_at: Time,
    /// Since when nothing is left.
    quiet_since: Option<Time>,
    /// The objects that other nodes have themselves now, by the processes that stand for those nodes.
    handed_over: BTreeMap<ProcessSlot, BTreeSet<ObjectId>>,
}

/// What keeps a drained node from leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainLeft {
    /// Programs that are attached.
    pub drivers: usize,
    /// Tasks that run or wait.
    pub tasks: u64,
    /// Actors that are about to live elsewhere.
    pub moving_actors: usize,
    /// Actors that cannot live elsewhere, or that are owned by this node.
    pub bound_actors: usize,
    /// Values that processes of this node are still to say to other nodes.
    pub promised_objects: usize,
    /// Objects that other nodes hold and have no copy of.
    pub objects: usize,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainProgress {
    /// What is left.
    pub left: DrainLeft,
    /// Whether the node may leave: nothing is left, or the deadline has passed.
    pub is_over: bool,
}

impl DrainLeft {
    /// Whether nothing is left.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for DrainLeft {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, one: &str, many: &str| {
            (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { many }))
        };
        let parts = [
            counted(self.drivers as u64, "attached program", "attached programs"),
            counted(self.tasks, "task", "tasks"),
            counted(self.moving_actors as u64, "actor that moves", "actors that move"),
            counted(self.bound_actors as u64, "actor that cannot move", "actors that cannot move"),
            counted(self.promised_objects as u64, "value to compute", "values to compute"),
            counted(self.objects as u64, "object to copy", "objects to copy"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { f.write_str("nothing is left") } else { f.write_str(&parts.join(", ")) }
    }
}

impl Node {
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    pub(super) fn on_drain(&mut self, now: Time, patience: Option<u64>, out: &mut Effects<NodeEffect>) {
        let deadline = patience.map(|patience| Time(now.0.saturating_add(patience)));
        match &mut self.draining {
            Some(draining) => draining.deadline = deadline,
            None => {
                let (look_at, quiet_since) = (now, None);
                let handed_over = BTreeMap::new();
                self.draining = Some(Draining { deadline, look_at, quiet_since, handed_over });
                self.places.is_draining = true;
            }
        }
        self.on_drain_due(now, out);
    }

    pub(super) fn drain_deadline(&self) -> Option<Time> {
        self.draining.as_ref().map(|draining| draining.look_at)
    }

    pub(super) fn on_drain_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        if self.drain_deadline().is_none_or(|due| now < due) {
            return;
        }
        self.revoke_drained(now, out);
        self.move_actors(out);
        self.serve(now, out);
        let left = self.drain_left();
        let Some(draining) = &mut self.draining else { return };
        draining.look_at = Time(now.0 + LOOK_MICROSECONDS);
        draining.quiet_since = left.is_nothing().then(|| draining.quiet_since.unwrap_or(now));
        let is_live = |peer: &ProcessSlot| self.process_table.is_live(*peer);
        draining.handed_over.retain(|peer, _| is_live(peer));
    }

    /// How far the drain is, if the node is drained.
    pub fn drain_progress(&self, now: Time) -> Option<DrainProgress> {
        let draining = self.draining.as_ref()?;
        let is_quiet = draining.quiet_since.is_some_and(|since| now.0 >= since.0 + DRAIN_QUIET_MICROSECONDS);
        let is_late = draining.deadline.is_some_and(|deadline| now >= deadline);
        let left = self.drain_left();
        // Something may have come since the last look.
        Some(DrainProgress { left, is_over: is_late || is_quiet && left.is_nothing() })
    }

    /// Workers give back the leases of tasks that may run elsewhere, each after the task that it runs. Other nodes keep theirs
    /// while tasks wait for them.
    fn revoke_drained(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let held = self.leases.leases.values().map(|lease| (lease.holder, lease.shape));
        for (holder, shape) in held.collect::<BTreeSet<_>>() {
            let is_of_use = self.is_peer(holder) && self.leases.queued(shape) > 0;
            if self.process_table.is_live(holder) && !is_of_use && !self.is_bound_here(shape) {
                self.revoke_all(now, holder, shape, out);
            }
        }
    }

    /// Whether tasks of the shape wait that can run nowhere else.
    fn is_bound_here(&self, shape: ShapeId) -> bool {
        let definition = self.leases.shape(shape);
        let here = Strategy::Node { node: self.places.node(), soft: false };
        (definition.group.is_some() || definition.strategy == here) && self.leases.queued(shape) > 0
    }

    /// Actors that can live elsewhere end after the calls that they have.
    fn move_actors(&mut self, out: &mut Effects<NodeEffect>) {
        let needed = self.needed_by_others();
        let can_move = |known: &Actor| known.is_alive() && self.can_move(known, &needed);
        let movable = self.actors.table.iter().filter(|(_, known)| can_move(known));
        for actor in movable.map(|(actor, _)| *actor).collect::<Vec<ActorId>>() {
            self.order_end(actor, Ending::ToMove, Then::Move(MOVED.to_owned()), out);
        }
    }

    /// Whether an actor that lives in a process of this node can live elsewhere. A process that others need stays, since the
    /// values that it is to say would end with it.
    fn can_move(&self, known: &Actor, needed: &BTreeSet<ProcessSlot>) -> bool {
        let is_local = known.host().is_some_and(|host| !self.is_peer(host) && !needed.contains(&host));
        let here = Strategy::Node { node: self.places.node(), soft: false };
        let is_portable = known.spec.log.as_ref().is_none_or(|log| !log.directory.is_empty());
        let may = match known.ownership {
            Ownership::Own => known.restarts_left > 0 && is_portable && known.spec.strategy != here,
            Ownership::ForPeer(_) => known.spec.may_move,
            Ownership::AtPeer(_) | Ownership::Orphaned(_) | Ownership::Lost => false,
        };
        is_local && may && known.spec.group.is_none()
    }

    /// The host of an actor has ended it after the calls that it had.
    pub(super) fn on_moved_out(
        &mut self,
        now: Time,
        from: ProcessSlot,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.actors.table.get(&actor).is_some_and(Actor::is_ending) {
            return;
        }
        if self.process_table.get(from).is_some_and(|process| process.role == Role::ActorHost(actor)) {
            self.end_process(now, from, out);
        }
        self.on_handed_back(now, actor, out);
        self.serve(now, out);
    }

    fn drain_left(&self) -> DrainLeft {
        let is_driver = |role: Role| matches!(role, Role::Driver(_));
        let drivers =
            self.process_table.iter().filter(|(_, process)| process.is_live() && is_driver(process.role));
        let queued = |lane: &Lane| if lane.removal.is_none() { u64::from(lane.queued) } else { 0 };
        let waiting: u64 = self.leases.lanes.values().map(queued).sum();
        let mut left = DrainLeft {
            drivers: drivers.count(),
            tasks: waiting + self.leases.leases.len() as u64,
            objects: self.objects_to_hand_over().len(),
            promised_objects: self.promised_to_others(),
            ..DrainLeft::default()
        };
        let needed = self.needed_by_others();
        for known in self.actors.table.values().filter(|known| !known.is_gone()) {
            let is_local = known.host().is_none_or(|host| !self.is_peer(host));
            match known.ownership {
                // The node that it lives on takes it over.
                Ownership::Own if known.spec.detached && !is_local && known.is_alive() => {}
                Ownership::Own if known.is_ending() || known.host().is_none() && known.spec.detached => {
                    left.moving_actors += 1;
                }
                Ownership::ForPeer(_) if known.is_ending() || self.can_move(known, &needed) => {
                    left.moving_actors += 1
                }
                Ownership::Own | Ownership::ForPeer(_) => left.bound_actors += 1,
                Ownership::AtPeer(_) | Ownership::Orphaned(_) | Ownership::Lost => {}
            }
        }
        left
    }

    fn live_peers(&self) -> impl Iterator<Item = ProcessSlot> {
        self.process_table.live().filter(|process| self.is_peer(*process))
    }

    /// The objects that other nodes hold and that only this node has, with the processes that stand for those nodes: as many
    /// of each as one message names.
    pub fn objects_to_hand_over(&self) -> Vec<(ProcessSlot, ObjectId)> {
        let Some(draining) = &self.draining else { return Vec::new() };
        let held = self.live_peers().flat_map(|peer| {
            let handed_over = draining.handed_over.get(&peer);
            let objects = self.directory.held_by(peer).into_iter();
            let is_left =
                move |object: &ObjectId| handed_over.is_none_or(|objects| !objects.contains(object));
            let left = objects.filter(is_left).filter(|object| self.is_here(*object));
            left.take(limits::HAND_OVER_OBJECTS_MAX).map(move |object| (peer, object))
        });
        held.collect()
    }

    /// Whether this node has the value of an object.
    fn is_here(&self, object: ObjectId) -> bool {
        match self.directory.value(object) {
            Some(Value::Known(SharedValue::Inline { .. })) => true,
            Some(Value::Known(SharedValue::Failed(failure))) => failure.kind != FailureKind::Lost,
            Some(Value::Known(SharedValue::Stored { .. }) | Value::Pending { .. }) => self.memory.has(object),
            None => false,
        }
    }

    /// How many objects other nodes hold whose value a process of this node is to say.
    fn promised_to_others(&self) -> usize {
        let is_owed = |object: &ObjectId| match self.directory.value(*object) {
            Some(Value::Pending { owner: Some(owner) }) => !self.is_peer(*owner) && !self.memory.has(*object),
            _ => false,
        };
        let held: BTreeSet<ObjectId> =
            self.live_peers().flat_map(|peer| self.directory.held_by(peer)).collect();
        held.iter().filter(|object| is_owed(object)).count()
    }

    pub(super) fn on_objects_handed_over(&mut self, peer: ProcessSlot, objects: &[ObjectId]) {
        if let Some(draining) = &mut self.draining
            && self.process_table.is_live(peer)
        {
            draining.handed_over.entry(peer).or_default().extend(objects);
        }
    }
}
