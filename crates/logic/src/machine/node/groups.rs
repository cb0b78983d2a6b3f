//! Placement groups: resources set aside together, from the wish to the last one that used them.
//!
//! Removing a group takes a while: its actors and running tasks are ended, and submitters have to fail what they had
//! queued. Until then its resources are not free, and the numbers of its shapes and lanes not used again.
//!
//! Invariants:
//! 1. The resources have those bundles of a group that are on this node and may be used; where there are no other nodes, a
//!    group that is ready has all.
//! 2. What uses a group belongs to one that is ready, or to one that is being removed and is told to end.

use super::granting::{Claim, KeptBack, Served};
use super::leases::Removal;
use super::parts::{Claimed, Part};
use super::resources::Want;
use super::{Node, NodeEffect};
use crate::ledger::{Allocation, Source};
use crate::{Effects, Time};
use aktis_protocol::control::FromNode;
use aktis_protocol::placement::{ToPlacer, rules_text};
use aktis_protocol::{
    DeathCause, Failure, FailureKind, GroupId, GroupPlace, GroupSpec, GroupState, GroupStrategy, NodeId,
    ProcessSlot, ProgramId, Resources, ShapeId, Strategy, limits,
};
use std::collections::{BTreeMap, BTreeSet};

/// How long the tasks that run in a group that is removed may take to end by themselves: a worker that is idle gives
/// its lease back at once, and need not be killed.
pub const GROUP_GRACE_MICROSECONDS: u64 = 50_000;

#[derive(Debug)]
pub(super) enum Stage {
    /// Its resources are not all set aside yet, as those who watch it were told.
    Waiting { told: String },
    /// All its bundles may be used.
    Ready,
    /// Whoever uses it is being ended; those who still run then are killed.
    Removing { kill_at: Option<Time>, why: String },
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) spec: GroupSpec,
    /// The process that made it; none if it was made on another node.
    pub(super) creator: Option<ProcessSlot>,
    /// The job of that process.
    pub(super) job: Option<ProgramId>,
    /// Whether the placer has said how far it is: it keeps the group from then on, and says when that is over.
    pub(super) is_kept: bool,
    pub(super) watchers: BTreeSet<ProcessSlot>,
    pub(super) stage: Stage,
    /// What this node has of it.
    pub(super) part: Part,
    /// The node of each bundle, while it is ready and there are several nodes.
    pub(super) nodes: Vec<NodeId>,
}

impl Group {
    pub(super) fn new(spec: GroupSpec, creator: Option<ProcessSlot>, job: Option<ProgramId>) -> Self {
        let (watchers, stage) = (creator.into_iter().collect(), Stage::Waiting { told: String::new() });
        let (part, nodes) = (Part::default(), Vec::new());
        Self { spec, creator, job, is_kept: false, watchers, stage, part, nodes }
    }

    /// How far it is, as those who watch it are told.
    pub(super) fn state(&self) -> GroupState {
        match &self.stage {
            Stage::Waiting { told } => GroupState::Pending(told.clone()),
            Stage::Ready => GroupState::Ready,
            Stage::Removing { why, .. } => GroupState::Removed(why.clone()),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        matches!(self.stage, Stage::Removing { .. })
    }
}

#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) table: BTreeMap<GroupId, Group>,
    /// Those that are being removed.
    removing: BTreeSet<GroupId>,
    /// Those of which the placer has yet to say that it knows that they are removed.
    pub(super) unsaid: BTreeSet<GroupId>,
}

impl Groups {
    /// Whether bundles of the group wait to be set aside here.
    pub(super) fn is_claiming(&self, group: GroupId) -> bool {
        self.table.get(&group).is_some_and(|known| known.part.claimed.is_some())
    }

    pub(super) fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.table.values().flat_map(|known| known.part.allocations())
    }

    /// When those who still use a removed group are to be killed.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Time> {
        self.removing.iter().filter_map(|group| match self.table.get(group)?.stage {
            Stage::Removing { kill_at, .. } => kill_at,
            _ => None,
        })
    }

    /// A dead process watches nothing. Returns the groups that go with it.
    pub(super) fn forget_process(&mut self, dead: ProcessSlot) -> Vec<GroupId> {
        let mut orphaned = Vec::new();
        for (&group, known) in &mut self.table {
            known.watchers.remove(&dead);
            if known.creator == Some(dead) && !known.spec.detached {
                orphaned.push(group);
            }
        }
        orphaned
    }

    fn is_name_taken(&self, name: &str) -> bool {
        self.table.values().any(|known| !known.is_removed() && known.spec.name.as_deref() == Some(name))
    }
}

impl Node {
    pub(super) fn on_group_wanted(
        &mut self,
        now: Time,
        from: ProcessSlot,
        spec: GroupSpec,
        out: &mut Effects<NodeEffect>,
    ) {
        let group = spec.group;
        if self.groups.table.contains_key(&group) {
            // The task that makes it runs again, and names it again.
            return self.on_group_watched(from, group, out);
        }
        let taken = spec.name.as_ref().filter(|name| self.groups.is_name_taken(name));
        let refusal = match taken {
            Some(name) => Some(format!("the name {name:?} is taken by another placement group")),
            None if spec.bundles.is_empty() => Some("a placement group has at least one bundle".to_owned()),
            None if self.groups.table.len() >= limits::GROUPS_MAX => Some(format!(
                "this session has {} placement groups, which is the limit\nhint: remove those that are not needed",
                limits::GROUPS_MAX
            )),
            None => None,
        };
        if let Some(why) = refusal {
            return self.send(from, FromNode::GroupChanged { group, state: GroupState::Removed(why) }, out);
        }
        let mut known = Group::new(spec, Some(from), self.job_of(from));
        if self.places.is_clustered() {
            out.push(NodeEffect::TellPlacer { message: ToPlacer::GroupWanted { spec: known.spec.clone() } });
            self.groups.table.insert(group, known);
            return;
        }
        // All of it is to be here.
        let bundles = (0..).zip(known.spec.bundles.clone()).collect();
        known.part.claimed = Some(Claimed { attempt: 0, bundles });
        self.groups.table.insert(group, known);
        self.claims.push_back(Claim::Group(group));
        self.serve(now, out);
    }

    pub(super) fn on_group_watched(
        &mut self,
        from: ProcessSlot,
        group: GroupId,
        out: &mut Effects<NodeEffect>,
    ) {
        self.look_for_group(group, out);
        let state = match self.groups.table.get_mut(&group) {
            Some(known) => {
                known.watchers.insert(from);
                known.state()
            }
            None => GroupState::Removed("it was removed".into()),
        };
        self.send(from, FromNode::GroupChanged { group, state }, out);
    }

    pub(super) fn tell_group(&self, group: GroupId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.groups.table.get(&group) else { return };
        for &watcher in &known.watchers {
            self.send(watcher, FromNode::GroupChanged { group, state: known.state() }, out);
        }
    }

    /// Sets aside what this node is to have of the group, if that is free now.
    pub(super) fn serve_group(
        &mut self,
        now: Time,
        group: GroupId,
        kept_back: &KeptBack,
        out: &mut Effects<NodeEffect>,
    ) -> Served {
        let Some(known) = self.groups.table.get(&group) else { return Served::Satisfied };
        let Some(claimed) = known.part.claimed.clone() else { return Served::Satisfied };
        let bundles: Vec<Resources> = claimed.bundles.iter().map(|(_, bundle)| bundle.clone()).collect();
        let want = Want::of_node(sum(&bundles));
        if let Some(text) = self.part_refusal(&known.spec, &bundles, &want) {
            return match self.places.is_clustered() {
                true => self.refuse_part(group, text, out),
                false => self.put_group_off(group, text, out),
            };
        }
        let reserved = match kept_back.forbids(&want) {
            true => None,
            false => self.resources.set_aside(&bundles),
        };
        let Some(reserved) = reserved else {
            let lacking = self.resources.lacking(&want);
            self.ask_back_for(now, Claim::Group(group), &want, &lacking, out);
            self.put_group_off(group, self.lacking_text(&want), out);
            return Served::Lacks(want);
        };
        let reserved = claimed.bundles.iter().map(|(bundle, _)| *bundle).zip(reserved).collect();
        self.on_part_set_aside(group, claimed.attempt, reserved, out);
        Served::Satisfied
    }

    /// Why this node can never have these bundles, if so.
    fn part_refusal(&self, spec: &GroupSpec, bundles: &[Resources], want: &Want) -> Option<String> {
        if !self.places.is_clustered() {
            let count = bundles.len();
            if spec.strategy == GroupStrategy::StrictSpread && count > 1 {
                return Some(format!(
                    "its {count} bundles want {count} nodes (STRICT_SPREAD), and this is the only one"
                ));
            }
            let unsuited = (0..count as u32).find(|bundle| !spec.suits(*bundle, self.places.labels()));
            if let Some(bundle) = unsuited {
                return Some(format!("there is no node with {}", rules_text(spec.rules(bundle))));
            }
        }
        if self.resources.node().are_feasible(bundles) {
            return None;
        }
        Some(match self.resources.is_feasible(want) {
            true => "its bundles cannot be cut from the GPUs of this node".to_owned(),
            false => self.infeasible_text(want, &Strategy::Default),
        })
    }

    /// The group waits; those who watch it learn for what, if that is news and nobody else says it.
    fn put_group_off(&mut self, group: GroupId, text: String, out: &mut Effects<NodeEffect>) -> Served {
        let known = self.groups.table.get_mut(&group).map(|known| &mut known.stage);
        if let Some(Stage::Waiting { told }) = known
            && *told != text
            && !self.places.is_clustered()
        {
            *told = text;
            self.tell_group(group, out);
        }
        Served::Waits
    }

    /// Why nothing new may use this place, if so.
    pub(super) fn group_refusal(&self, place: GroupPlace) -> Option<Failure> {
        let known = self.groups.table.get(&place.group).filter(|known| !known.is_removed());
        let Some(known) = known else { return Some(removed(place.group)) };
        let count = known.spec.bundles.len();
        // Of a group that was made elsewhere, the bundles may not be known yet.
        let bundle = place.bundle.filter(|bundle| count > 0 && *bundle as usize >= count)?;
        let text =
            format!("placement group {} has {count} bundles, and none is number {bundle}", place.group);
        Some(Failure::new(FailureKind::GroupRemoved, text))
    }

    /// Why something of this size cannot be in a group.
    pub(super) fn group_text(&self, place: GroupPlace, wanted: &Resources) -> String {
        let GroupPlace { group, bundle } = place;
        match self.groups.table.get(&group).map(|known| &known.stage) {
            Some(Stage::Waiting { told }) => format!("placement group {group} is not ready: {told}"),
            Some(Stage::Ready) => match bundle {
                Some(bundle) => format!("bundle {bundle} of placement group {group} has not {wanted} in all"),
                None => format!("no bundle of placement group {group} has {wanted} in all"),
            },
            Some(Stage::Removing { .. }) | None => removed(group).message,
        }
    }

    /// The group goes, and all that uses it.
    pub(super) fn remove_group(
        &mut self,
        now: Time,
        group: GroupId,
        why: &str,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(known) = self.groups.table.get_mut(&group).filter(|known| !known.is_removed()) else {
            return;
        };
        let kill_at = Some(Time(now.0 + GROUP_GRACE_MICROSECONDS));
        known.stage = Stage::Removing { kill_at, why: why.to_owned() };
        self.drop_uncommitted(group);
        self.groups.removing.insert(group);
        self.claims.retain(|claim| *claim != Claim::Group(group));
        self.tell_group(group, out);
        for shape in self.leases.shapes_of(group) {
            self.remove_shape(now, shape, group, out);
        }
        for actor in self.actors.of_group(group) {
            let failure = Failure { kind: FailureKind::ActorGroupRemoved, ..removed(group) };
            self.kill_actor(now, actor, false, failure, out);
        }
        self.serve(now, out);
    }

    /// Nothing of this shape is started any more.
    fn remove_shape(&mut self, now: Time, shape: ShapeId, group: GroupId, out: &mut Effects<NodeEffect>) {
        self.remove_lanes(now, shape, &removed(group), out);
        for runner in self.process_table.retire(shape) {
            if !self.leases.is_holder(runner) {
                self.end_process(now, runner, out);
            }
        }
    }

    /// Tasks of this shape fail, and none is started until somebody asks for a lane again.
    pub(super) fn remove_lanes(
        &mut self,
        now: Time,
        shape: ShapeId,
        failure: &Failure,
        out: &mut Effects<NodeEffect>,
    ) {
        self.claims.retain(|claim| *claim != Claim::Shape(shape));
        let mut told = Vec::new();
        let in_group = self.leases.shape(shape).group.is_some();
        for (&id, lane) in self.leases.lanes.iter_mut().filter(|(_, lane)| lane.shape == shape) {
            match lane.removal {
                None => {}
                Some(Removal::GivenUp) if in_group => {
                    lane.removal = Some(Removal::Forgotten);
                    continue;
                }
                Some(_) => continue,
            }
            (lane.queued, lane.wanted, lane.removal) = (0, 0, Some(Removal::Told));
            told.push((lane.submitter, id));
        }
        for (submitter, lane) in
            told.into_iter().filter(|(submitter, _)| self.process_table.is_live(*submitter))
        {
            self.send(submitter, FromNode::LaneRemoved { lane, failure: failure.clone() }, out);
        }
        let leases = self.leases.leases.iter().filter(|(_, lease)| lease.shape == shape);
        for (lease, holder) in leases.map(|(&id, lease)| (id, lease.holder)).collect::<Vec<_>>() {
            if !self.process_table.is_starting(holder) {
                self.revoke_all(now, holder, shape, out);
            } else if let Some((held, _)) = self.leases.remove(lease, holder) {
                // It does not know of it yet.
                self.resources.release(held.allocation);
            }
        }
    }

    /// Asks for all leases of a shape, as far as that has not been done.
    pub(super) fn revoke_all(
        &mut self,
        now: Time,
        holder: ProcessSlot,
        shape: ShapeId,
        out: &mut Effects<NodeEffect>,
    ) {
        let leases = self.leases.leases.values();
        let held = leases.filter(|lease| lease.holder == holder && lease.shape == shape).count() as u32;
        for _ in self.leases.asked(holder, shape)..held {
            self.leases.ask_back(now, holder, shape);
            self.send(holder, FromNode::LeaseRevoked { shape }, out);
        }
    }

    /// A group does not outlive the process that made it, unless it is to.
    pub(super) fn remove_orphaned_groups(
        &mut self,
        now: Time,
        orphaned: Vec<GroupId>,
        cause: &DeathCause,
        out: &mut Effects<NodeEffect>,
    ) {
        for group in orphaned {
            let why = format!("the process that made it died: {cause}");
            self.remove_group_everywhere(now, group, &why, out);
        }
    }

    /// Kills what still runs in groups that were removed a while ago. Only isolated workers: the shared one runs other
    /// people's work, too, and gives its leases back when its tasks are done.
    pub(super) fn on_groups_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        for group in self.groups.removing.iter().copied().collect::<Vec<_>>() {
            let known = self.groups.table.get_mut(&group).map(|known| &mut known.stage);
            let Some(Stage::Removing { kill_at, .. }) = known else { continue };
            if kill_at.is_none_or(|due| now < due) {
                continue;
            }
            *kill_at = None;
            let shapes = self.leases.shapes_of(group);
            let leases = self.leases.leases.values().filter(|lease| shapes.contains(&lease.shape));
            let isolated = |slot: &ProcessSlot| {
                self.process_table.get(*slot).is_some_and(|process| process.role.is_isolated())
            };
            for process in leases.map(|lease| lease.holder).filter(isolated).collect::<BTreeSet<_>>() {
                out.push(NodeEffect::KillWorker { process });
            }
        }
    }

    /// Frees what removed groups had, as soon as nobody uses it.
    pub(super) fn tidy_groups(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        for group in self.groups.removing.iter().copied().collect::<Vec<_>>() {
            let shapes = self.leases.shapes_of(group);
            let leased = self.leases.leases.values().any(|lease| shapes.contains(&lease.shape));
            let is_here =
                |allocation: &Allocation| matches!(allocation.source(), Source::Bundle(of, _) if of == group);
            if leased || self.actors.allocations().any(is_here) {
                continue;
            }
            self.unreserve(now, group, out);
            let mut lanes = self.leases.lanes.values().filter(|lane| shapes.contains(&lane.shape));
            if lanes.any(|lane| lane.removal != Some(Removal::Forgotten)) {
                continue;
            }
            for shape in shapes {
                for lane in self.leases.close_lanes_of_shape(shape) {
                    out.push(NodeEffect::CloseLane { lane });
                }
                self.free_shape(shape, out);
            }
            self.groups.table.remove(&group);
            self.groups.removing.remove(&group);
        }
    }

    /// The resources of a removed group, which nobody uses, are the node's again.
    fn unreserve(&mut self, now: Time, group: GroupId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.groups.table.get_mut(&group) else { return };
        if let Stage::Removing { kill_at, .. } = &mut known.stage {
            *kill_at = None;
        }
        let owed = std::mem::take(&mut known.part.returns_owed);
        let open = std::mem::take(&mut known.part.open);
        for _ in 0..owed {
            out.push(NodeEffect::TellPlacer { message: ToPlacer::Returned { group } });
        }
        if open.is_empty() {
            return;
        }
        self.resources.unreserve(group, open.into_iter().map(|(_, allocation)| allocation).collect());
        self.warm_due = true;
        self.serve(now, out);
    }

    pub(super) fn check_groups(&self) {
        for (group, known) in &self.groups.table {
            assert_eq!(known.is_removed(), self.groups.removing.contains(group), "{group} is being removed");
            let any = GroupPlace { group: *group, bundle: None };
            let bundles = self.resources.ledgers(Some(any)).len();
            assert_eq!(bundles, known.part.open.len(), "groups invariant 1: {group}");
            let claims = self.claims.contains(&Claim::Group(*group));
            assert_eq!(claims, known.part.claimed.is_some(), "{group} waits and claims nothing");
            if let Stage::Ready = known.stage
                && !self.places.is_clustered()
            {
                assert_eq!(bundles, known.spec.bundles.len(), "groups invariant 1: {group}");
            }
        }
        for lane in self.leases.lanes.values() {
            let Some(place) = self.leases.shape(lane.shape).group else { continue };
            let removed = self.groups.table.get(&place.group).expect("groups invariant 2").is_removed();
            let told = matches!(lane.removal, Some(Removal::Told | Removal::Forgotten));
            assert_eq!(told, removed, "groups invariant 2: {lane:?}");
        }
    }
}

/// The failure of whatever was to use a group that is gone.
fn removed(group: GroupId) -> Failure {
    Failure::new(FailureKind::GroupRemoved, format!("placement group {group} was removed"))
}

fn sum(bundles: &[Resources]) -> Resources {
    let mut sum = Resources::none();
    bundles.iter().for_each(|bundle| sum.add(bundle));
    sum
}
