//! All resources: the node's own, and those that were set aside of them for placement groups.
//!
//! Invariant: an allocation goes back to the ledger that it is from, which stays until then.

use crate::ledger::{Allocation, GpuShare, Ledger, Source};
use aktis_protocol::{Amount, GroupId, GroupPlace, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// What something needs in order to run, and whose resources it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) resources: Resources,
    pub(super) group: Option<GroupPlace>,
}

/// A resource of which there is not enough: of the node, or in a place of a group.
pub(super) type Lack = (Option<GroupPlace>, String);

impl Want {
    /// So much of the node's own resources.
    pub(super) fn of_node(resources: Resources) -> Self {
        Self { resources, group: None }
    }

    /// Whether it could use something from there.
    pub(super) fn may_use(&self, source: Source) -> bool {
        match (self.group, source) {
            (None, Source::Node) => true,
            (Some(place), Source::Bundle(group, bundle)) => {
                place.group == group && place.bundle.is_none_or(|wanted| wanted == bundle)
            }
            _ => false,
        }
    }

    /// Whether it would take something of which others lack.
    pub(super) fn takes_any(&self, lacking: &BTreeSet<Lack>) -> bool {
        let shared = |place: Option<GroupPlace>| match (self.group, place) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                let bundles = one.bundle.zip(other.bundle);
                one.group == other.group && bundles.is_none_or(|(one, other)| one == other)
            }
            _ => false,
        };
        lacking.iter().any(|(place, name)| self.resources.get(name) > Amount::ZERO && shared(*place))
    }

    /// These names, as resources that it lacks.
    pub(super) fn lacks(&self, names: Vec<String>) -> Vec<Lack> {
        names.into_iter().map(|name| (self.group, name)).collect()
    }
}

/// Ledgers as they might become.
pub(super) struct Prospect(Vec<Ledger>);

impl Prospect {
    /// What if this were given back?
    pub(super) fn credit(&mut self, allocation: &Allocation) {
        if let Some(ledger) = self.0.iter_mut().find(|ledger| ledger.source() == allocation.source()) {
            ledger.credit(allocation);
        }
    }

    pub(super) fn fits(&self, wanted: &Resources) -> bool {
        self.0.iter().any(|ledger| ledger.fits(wanted))
    }
}

#[derive(Debug)]
pub(super) struct NodeResources {
    node: Ledger,
    bundles: BTreeMap<GroupId, Vec<Ledger>>,
}

impl NodeResources {
    pub(super) fn new(total: Resources) -> Self {
        Self { node: Ledger::new(total), bundles: BTreeMap::new() }
    }

    /// The node's own resources.
    pub(super) fn node(&self) -> &Ledger {
        &self.node
    }

    /// The ledgers that may be used; none for a group that is not ready.
    pub(super) fn ledgers(&self, group: Option<GroupPlace>) -> &[Ledger] {
        let Some(place) = group else { return std::slice::from_ref(&self.node) };
        let bundles = self.bundles.get(&place.group).map_or(&[][..], Vec::as_slice);
        match place.bundle {
            None => bundles,
            Some(bundle) => {
                let wanted = Source::Bundle(place.group, bundle);
                bundles.iter().find(|ledger| ledger.source() == wanted).map_or(&[], std::slice::from_ref)
            }
        }
    }

    fn ledger_mut(&mut self, source: Source) -> &mut Ledger {
        match source {
            Source::Node => &mut self.node,
            Source::Bundle(group, _) => {
                let bundles = self.bundles.get_mut(&group).into_iter().flatten();
                let mut found = bundles.filter(|ledger| ledger.source() == source);
                found.next().expect("a bundle stays while it is in use")
            }
        }
    }

    /// Whether it would fit if nothing else were allocated.
    pub(super) fn is_feasible(&self, want: &Want) -> bool {
        self.ledgers(want.group).iter().any(|ledger| ledger.is_feasible(&want.resources))
    }

    /// Whether it fits now.
    pub(super) fn fits(&self, want: &Want) -> bool {
        self.ledgers(want.group).iter().any(|ledger| ledger.fits(&want.resources))
    }

    /// The ledger that it waits for, if it would fit there.
    pub(super) fn awaited(&self, want: &Want) -> Option<&Ledger> {
        self.ledgers(want.group).iter().find(|ledger| ledger.is_feasible(&want.resources))
    }

    /// The resources of which there is not enough now.
    pub(super) fn lacking(&self, want: &Want) -> Vec<String> {
        self.awaited(want).map_or(Vec::new(), |ledger| ledger.lacking(&want.resources))
    }

    pub(super) fn allocate(&mut self, want: &Want) -> Option<Allocation> {
        let source = self.ledgers(want.group).iter().find(|ledger| ledger.fits(&want.resources))?.source();
        self.ledger_mut(source).allocate(&want.resources)
    }

    /// Takes it with exactly these shares of GPUs.
    pub(super) fn allocate_on(&mut self, want: &Want, shares: &[GpuShare]) -> Option<Allocation> {
        let sources: Vec<Source> = self.ledgers(want.group).iter().map(Ledger::source).collect();
        sources.into_iter().find_map(|source| self.ledger_mut(source).allocate_on(&want.resources, shares))
    }

    pub(super) fn release(&mut self, allocation: Allocation) {
        self.ledger_mut(allocation.source()).release(allocation);
    }

    pub(super) fn lend_cpu(&mut self, allocation: &mut Allocation) -> Amount {
        self.ledger_mut(allocation.source()).lend_cpu(allocation)
    }

    pub(super) fn reclaim_cpu(&mut self, allocation: &mut Allocation, lent: Amount) -> bool {
        self.ledger_mut(allocation.source()).reclaim_cpu(allocation, lent)
    }

    /// What could become of the ledgers that it may use.
    pub(super) fn prospect(&self, want: &Want) -> Prospect {
        Prospect(self.ledgers(want.group).to_vec())
    }

    /// Sets resources aside, all or nothing. Nobody uses them yet.
    pub(super) fn set_aside(&mut self, bundles: &[Resources]) -> Option<Vec<Allocation>> {
        self.node.allocate_all(bundles)
    }

    /// What was set aside for a bundle of a group may be used by whoever names it.
    pub(super) fn open_bundle(&mut self, group: GroupId, bundle: u32, reserved: &Allocation) {
        let ledger = Ledger::of_bundle(group, bundle, reserved);
        self.bundles.entry(group).or_default().push(ledger);
    }

    /// Takes back what was set aside for a group. Nothing of it is in use.
    pub(super) fn unreserve(&mut self, group: GroupId, reserved: Vec<Allocation>) {
        for ledger in self.bundles.remove(&group).unwrap_or_default() {
            debug_assert_eq!(ledger.available(), ledger.total(), "a bundle is in use");
        }
        reserved.into_iter().for_each(|allocation| self.node.release(allocation));
    }

    /// Panics unless these allocations, and nothing else, account for what is not available.
    pub(super) fn check<'a>(&self, allocations: impl IntoIterator<Item = &'a Allocation>) {
        let mut by_source: BTreeMap<Source, Vec<&Allocation>> = BTreeMap::new();
        for allocation in allocations {
            by_source.entry(allocation.source()).or_default().push(allocation);
        }
        for ledger in self.bundles.values().flatten().chain([&self.node]) {
            ledger.check(by_source.remove(&ledger.source()).unwrap_or_default());
        }
        assert!(by_source.is_empty(), "allocations from nowhere: {by_source:?}");
    }
}
