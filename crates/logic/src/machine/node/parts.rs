//! What this node has of placement groups. In a cluster their bundles may be on several nodes: the placer has each set
//! its part aside, and says when all have.
//!
//! Invariants:
//! 1. What is set aside and not committed is used by nobody, and goes when the placer does.
//! 2. Each `Return` is answered once, when nothing is left of those bundles.

use super::granting::{Claim, Served};
use super::groups::{Group, Stage};
use super::{Node, NodeEffect};
use crate::ledger::Allocation;
use crate::{Effects, Time};
use aktis_protocol::placement::{FromPlacer, ToPlacer};
use aktis_protocol::{GroupId, GroupSpec, GroupState, NodeId, Resources};

/// Bundles that are to be set aside as soon as they are free.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    /// Which attempt of the placer it is.
    pub(super) attempt: u32,
    /// Index and contents of each.
    pub(super) bundles: Vec<(u32, Resources)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) claimed: Option<Claimed>,
    /// Set aside in this attempt, for nobody to use yet.
    set_aside: Option<(u32, Vec<(u32, Allocation)>)>,
    /// What may be used.
    pub(super) open: Vec<(u32, Allocation)>,
    /// How many answers to `Return` are due when nobody uses it any more.
    pub(super) returns_owed: u32,
}

impl Part {
    pub(super) fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        let set_aside = self.set_aside.iter().flat_map(|(_, bundles)| bundles);
        set_aside.chain(&self.open).map(|(_, allocation)| allocation)
    }

    fn is_empty(&self) -> bool {
        self.claimed.is_none() && self.set_aside.is_none() && self.open.is_empty()
    }
}

impl Node {
    pub(super) fn on_group_told(&mut self, now: Time, message: FromPlacer, out: &mut Effects<NodeEffect>) {
        match message {
            FromPlacer::GroupChanged { group, spec, state, nodes } => {
                self.on_group_changed(now, group, spec, state, nodes, out);
            }
            FromPlacer::Reserve { spec, attempt, bundles, .. } => {
                self.on_part_wanted(now, spec, Claimed { attempt, bundles }, out);
            }
            FromPlacer::Commit { group, attempt } => self.on_part_committed(now, group, attempt, out),
            FromPlacer::Return { group, bundles } => self.on_part_asked_back(now, group, &bundles, out),
            FromPlacer::Placed { .. }
            | FromPlacer::Waiting { .. }
            | FromPlacer::Impossible { .. }
            | FromPlacer::Refused { .. } => {}
        }
    }

    /// Somebody names a group: if it was made on another node, the placer is asked about it.
    pub(super) fn look_for_group(&mut self, group: GroupId, out: &mut Effects<NodeEffect>) {
        if self.places.is_clustered() && !self.groups.table.contains_key(&group) {
            let spec = GroupSpec { group, ..GroupSpec::default() };
            self.groups.table.insert(group, Group::new(spec, None, None));
            out.push(NodeEffect::TellPlacer { message: ToPlacer::GroupWatched { group } });
        }
    }

    /// Whether all bundles of a group are on this node.
    pub(super) fn is_group_whole_here(&self, group: GroupId) -> bool {
        let here = |known: &Group| {
            matches!(known.stage, Stage::Ready) && known.nodes.iter().all(|node| *node == self.places.node())
        };
        self.groups.table.get(&group).is_some_and(here)
    }

    fn on_group_changed(
        &mut self,
        now: Time,
        group: GroupId,
        spec: Option<GroupSpec>,
        state: GroupState,
        nodes: Vec<NodeId>,
        out: &mut Effects<NodeEffect>,
    ) {
        if let GroupState::Removed(why) = state {
            self.groups.unsaid.remove(&group);
            return self.remove_group(now, group, &why, out);
        }
        let Some(spec) = spec else { return };
        let new = || Group::new(spec.clone(), None, None);
        let known = self.groups.table.entry(group).or_insert_with(new);
        if known.is_removed() {
            return;
        }
        (known.spec, known.nodes, known.is_kept) = (spec, nodes, true);
        known.stage = match state {
            GroupState::Pending(told) => Stage::Waiting { told },
            GroupState::Ready | GroupState::Removed(_) => Stage::Ready,
        };
        self.tell_group(group, out);
        self.serve(now, out);
    }

    fn on_part_wanted(
        &mut self,
        now: Time,
        spec: GroupSpec,
        claimed: Claimed,
        out: &mut Effects<NodeEffect>,
    ) {
        let (group, attempt) = (spec.group, claimed.attempt);
        self.drop_uncommitted(group);
        let known = self.groups.table.entry(group).or_insert_with(|| Group::new(spec.clone(), None, None));
        known.spec = spec;
        if known.is_removed() {
            let outcome = Err("what was there of it before is still in use".to_owned());
            out.push(NodeEffect::TellPlacer { message: ToPlacer::Reserved { group, attempt, outcome } });
            return;
        }
        known.part.claimed = Some(claimed);
        self.claims.push_back(Claim::Group(group));
        self.serve(now, out);
    }

    /// This node can never have what it was asked for.
    pub(super) fn refuse_part(
        &mut self,
        group: GroupId,
        why: String,
        out: &mut Effects<NodeEffect>,
    ) -> Served {
        let known = self.groups.table.get_mut(&group);
        if let Some(Claimed { attempt, .. }) = known.and_then(|known| known.part.claimed.take()) {
            let outcome = Err(why);
            out.push(NodeEffect::TellPlacer { message: ToPlacer::Reserved { group, attempt, outcome } });
        }
        Served::Satisfied
    }

    /// All that this node is to have of the group is set aside.
    pub(super) fn on_part_set_aside(
        &mut self,
        group: GroupId,
        attempt: u32,
        reserved: Vec<(u32, Allocation)>,
        out: &mut Effects<NodeEffect>,
    ) {
        let known = self.groups.table.get_mut(&group).expect("the group is known");
        known.part.claimed = None;
        known.part.set_aside = Some((attempt, reserved));
        if self.places.is_clustered() {
            let outcome = Ok(());
            out.push(NodeEffect::TellPlacer { message: ToPlacer::Reserved { group, attempt, outcome } });
            return;
        }
        known.stage = Stage::Ready;
        self.open_part(group);
        self.tell_group(group, out);
    }

    fn on_part_committed(&mut self, now: Time, group: GroupId, attempt: u32, out: &mut Effects<NodeEffect>) {
        let known = self.groups.table.get(&group);
        let set_aside = known.and_then(|known| known.part.set_aside.as_ref());
        if set_aside.is_some_and(|(set_aside, _)| *set_aside == attempt) {
            self.open_part(group);
            self.serve(now, out);
        }
    }

    /// What was set aside may be used.
    fn open_part(&mut self, group: GroupId) {
        let known = self.groups.table.get_mut(&group).expect("the group is known");
        for (bundle, allocation) in known.part.set_aside.take().into_iter().flat_map(|(_, bundles)| bundles) {
            self.resources.open_bundle(group, bundle, &allocation);
            known.part.open.push((bundle, allocation));
        }
    }

    /// What is not committed goes, or is not waited for any more.
    pub(super) fn drop_uncommitted(&mut self, group: GroupId) {
        let Some(known) = self.groups.table.get_mut(&group) else { return };
        known.part.claimed = None;
        let set_aside = known.part.set_aside.take().into_iter().flat_map(|(_, bundles)| bundles);
        set_aside.for_each(|(_, allocation)| self.resources.release(allocation));
        self.claims.retain(|claim| *claim != Claim::Group(group));
        self.warm_due = true;
    }

    fn on_part_asked_back(
        &mut self,
        now: Time,
        group: GroupId,
        bundles: &[u32],
        out: &mut Effects<NodeEffect>,
    ) {
        self.drop_uncommitted(group);
        let known = self.groups.table.get_mut(&group);
        let open = known.filter(|known| known.part.open.iter().any(|(bundle, _)| bundles.contains(bundle)));
        match open {
            Some(known) => {
                known.part.returns_owed += 1;
                self.remove_group(now, group, "it was removed", out);
            }
            None => {
                out.push(NodeEffect::TellPlacer { message: ToPlacer::Returned { group } });
                self.forget_group_if_unused(group);
                self.serve(now, out);
            }
        }
    }

    /// A group of which this node has nothing, and nobody here knows, is the business of others.
    fn forget_group_if_unused(&mut self, group: GroupId) {
        let Some(known) = self.groups.table.get(&group) else { return };
        let named = known.spec.name.is_some();
        let watched = known.creator.is_some() || !known.watchers.is_empty() || named || known.is_removed();
        let used = !self.leases.shapes_of(group).is_empty() || !self.actors.of_group(group).is_empty();
        if !watched && !used && known.part.is_empty() {
            self.groups.table.remove(&group);
        }
    }

    /// The group goes, here and wherever else it is.
    pub(super) fn remove_group_everywhere(
        &mut self,
        now: Time,
        group: GroupId,
        why: &str,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.places.is_clustered() {
            out.push(NodeEffect::TellPlacer { message: ToPlacer::GroupRemoved { group } });
            if self.groups.table.get(&group).is_some_and(|known| !known.is_removed()) {
                self.groups.unsaid.insert(group);
            }
        }
        self.remove_group(now, group, why, out);
    }

    /// The placer was away, or this node was: it is told which bundles are here, and which groups it may not know of.
    pub(super) fn on_placer_came(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        for group in self.groups.table.keys().copied().collect::<Vec<_>>() {
            self.drop_uncommitted(group);
        }
        let mut say = |message| out.push(NodeEffect::TellPlacer { message });
        for (&group, known) in self.groups.table.iter().filter(|(_, known)| !known.is_removed()) {
            let bundles: Vec<u32> = known.part.open.iter().map(|(bundle, _)| *bundle).collect();
            if !bundles.is_empty() {
                say(ToPlacer::GroupKept { group, bundles });
            }
            match known.creator.is_some() && !known.is_kept {
                true => say(ToPlacer::GroupWanted { spec: known.spec.clone() }),
                false => say(ToPlacer::GroupWatched { group }),
            }
        }
        for &group in &self.groups.unsaid {
            say(ToPlacer::GroupRemoved { group });
        }
        self.serve(now, out);
    }
}
