//! Who holds how much of some resources, and which GPUs: those of a node, or of a bundle that was set aside of them.
//!
//! Invariants:
//! 1. Of every resource: total + debt = available + what is allocated.
//! 2. No resource has both something available and a debt.
//! 3. The free shares of the GPUs add up to the available amount of GPU.

use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{Amount, GroupId, Resources};

/// A share of one GPU: its index, and how much of it.
pub type GpuShare = (u32, Amount);

/// Whose resources a ledger keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The node's own.
    #[default]
    Node,
    /// Those of a bundle of a placement group.
    Bundle(GroupId, u32),
}

/// What one holder has got; given back by [`Ledger::release`].
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "an allocation that is dropped is lost to the ledger"]
pub struct Allocation {
    source: Source,
    resources: Resources,
    gpus: Vec<GpuShare>,
}

impl Allocation {
    /// The ledger it is from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The amounts.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The GPUs it has a share of.
    pub fn gpus(&self) -> &[GpuShare] {
        &self.gpus
    }

    /// The indices of its GPUs.
    pub fn gpu_indices(&self) -> Vec<u32> {
        self.gpus.iter().map(|&(index, _)| index).collect()
    }
}

/// The resources of one node or bundle.
#[derive(Clone, Debug)]
pub struct Ledger {
    source: Source,
    total: Resources,
    /// The share of each GPU that there is in all, by index.
    gpus_total: Vec<Amount>,
    available: Resources,
    /// What is in use beyond the total, since work that had lent its CPU took it back.
    debt: Resources,
    /// The free share of each GPU, by index.
    gpus: Vec<Amount>,
}

impl Ledger {
    /// The ledger of a node, in which everything is free.
    pub fn new(total: Resources) -> Self {
        let gpus = whole_gpus(total.get(GPU));
        Self::full(Source::Node, total, gpus)
    }

    /// The ledger of a bundle for which this was allocated, in which everything is free.
    pub fn of_bundle(group: GroupId, bundle: u32, reserved: &Allocation) -> Self {
        let places = reserved.gpus.iter().map(|&(index, _)| index as usize + 1).max().unwrap_or(0);
        let mut gpus = vec![Amount::ZERO; places];
        for &(index, amount) in &reserved.gpus {
            gpus[index as usize] = amount;
        }
        Self::full(Source::Bundle(group, bundle), reserved.resources.clone(), gpus)
    }

    fn full(source: Source, total: Resources, gpus: Vec<Amount>) -> Self {
        let (available, gpus_total) = (total.clone(), gpus.clone());
        Self { source, total, gpus_total, available, debt: Resources::none(), gpus }
    }

    /// The same resources, with everything free.
    fn emptied(&self) -> Self {
        Self::full(self.source, self.total.clone(), self.gpus_total.clone())
    }

    /// Whose resources these are.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Everything that the node has.
    pub fn total(&self) -> &Resources {
        &self.total
    }

    /// What is free.
    pub fn available(&self) -> &Resources {
        &self.available
    }

    /// What is in use beyond the total.
    pub fn debt(&self) -> &Resources {
        &self.debt
    }

    /// Whether `wanted` would fit if nothing else were allocated.
    pub fn is_feasible(&self, wanted: &Resources) -> bool {
        self.total.covers(wanted) && choose_gpus(&self.gpus_total, wanted.get(GPU)).is_some()
    }

    /// The resources of which there is not enough in all for `wanted`.
    pub fn infeasible_names(&self, wanted: &Resources) -> Vec<String> {
        self.emptied().lacking(wanted)
    }

    /// Whether all of these would fit together if nothing else were allocated.
    pub fn are_feasible(&self, wanted: &[Resources]) -> bool {
        self.emptied().allocate_all(wanted).is_some()
    }

    /// Takes all of these, or nothing; `None` if they do not fit together now.
    pub fn allocate_all(&mut self, wanted: &[Resources]) -> Option<Vec<Allocation>> {
        let mut taken = Vec::with_capacity(wanted.len());
        for one in wanted {
            match self.allocate(one) {
                Some(allocation) => taken.push(allocation),
                None => {
                    taken.into_iter().for_each(|allocation| self.release(allocation));
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// The resources of which there is not enough now for `wanted`.
    pub fn lacking(&self, wanted: &Resources) -> Vec<String> {
        let short = |name: &str, amount| {
            self.available.get(name) < amount || (name == GPU && choose_gpus(&self.gpus, amount).is_none())
        };
        wanted.iter().filter(|&(name, amount)| short(name, amount)).map(|(name, _)| name.to_owned()).collect()
    }

    /// Whether `wanted` fits now.
    pub fn fits(&self, wanted: &Resources) -> bool {
        self.lacking(wanted).is_empty()
    }

    /// Takes `wanted`, with GPUs of the ledger's choice; `None` if it does not fit now.
    pub fn allocate(&mut self, wanted: &Resources) -> Option<Allocation> {
        let shares = choose_gpus(&self.gpus, wanted.get(GPU))?;
        self.allocate_on(wanted, &shares)
    }

    /// Takes `wanted` with exactly these shares of GPUs; `None` if they are not free.
    pub fn allocate_on(&mut self, wanted: &Resources, shares: &[GpuShare]) -> Option<Allocation> {
        let free =
            |&(index, amount): &GpuShare| self.gpus.get(index as usize).is_some_and(|free| *free >= amount);
        if !self.available.covers(wanted) || !shares.iter().all(free) {
            return None;
        }
        self.available.take(wanted);
        for &(index, amount) in shares {
            self.gpus[index as usize].0 -= amount.0;
        }
        Some(Allocation { source: self.source, resources: wanted.clone(), gpus: shares.to_vec() })
    }

    /// Gives everything of `allocation` back.
    pub fn release(&mut self, allocation: Allocation) {
        self.credit(&allocation);
    }

    /// Gives the CPU of `allocation` back while its holder only waits; returns how much that was.
    pub fn lend_cpu(&mut self, allocation: &mut Allocation) -> Amount {
        let lent = allocation.resources.get(CPU);
        allocation.resources.set(CPU, Amount::ZERO);
        self.put_back(CPU, lent);
        lent
    }

    /// Takes lent CPU again. Its holder is running already, so this cannot be refused: what is not
    /// available becomes debt. True if there is debt now.
    pub fn reclaim_cpu(&mut self, allocation: &mut Allocation, lent: Amount) -> bool {
        let held = allocation.resources.get(CPU);
        allocation.resources.set(CPU, Amount(held.0 + lent.0));
        let available = self.available.get(CPU);
        let taken = lent.min(available);
        self.available.set(CPU, Amount(available.0 - taken.0));
        let debt = self.debt.get(CPU);
        self.debt.set(CPU, Amount(debt.0 + lent.0 - taken.0));
        self.debt.get(CPU) > Amount::ZERO
    }

    /// Counts what `allocation` holds as free, for those who look ahead.
    pub fn credit(&mut self, allocation: &Allocation) {
        debug_assert_eq!(allocation.source, self.source);
        for (name, amount) in allocation.resources.iter() {
            self.put_back(name, amount);
        }
        for &(index, amount) in &allocation.gpus {
            self.gpus[index as usize].0 += amount.0;
        }
    }

    fn put_back(&mut self, name: &str, amount: Amount) {
        let debt = self.debt.get(name);
        let paid = debt.min(amount);
        self.debt.set(name, Amount(debt.0 - paid.0));
        self.available.set(name, Amount(self.available.get(name).0 + amount.0 - paid.0));
    }

    /// Panics unless these allocations, and nothing else, account for what is not available.
    pub fn check<'a>(&self, allocations: impl IntoIterator<Item = &'a Allocation>) {
        let mut expected = self.available.clone();
        let mut gpus = self.gpus.clone();
        for allocation in allocations {
            expected.add(allocation.resources());
            for &(index, amount) in allocation.gpus() {
                gpus[index as usize].0 += amount.0;
            }
        }
        let mut total = self.total.clone();
        total.add(&self.debt);
        assert_eq!(total, expected, "ledger invariant 1");
        assert_eq!(gpus, self.gpus_total, "ledger invariant 1, by GPU");
        for (name, _) in self.debt.iter() {
            assert_eq!(self.available.get(name), Amount::ZERO, "ledger invariant 2: {name}");
        }
        let free: u64 = self.gpus.iter().map(|share| share.0).sum();
        assert_eq!(free, self.available.get(GPU).0, "ledger invariant 3");
    }
}

/// The GPUs that an amount stands for, all free; a remainder is the last one.
fn whole_gpus(amount: Amount) -> Vec<Amount> {
    let mut gpus = vec![Amount::ONE; (amount.0 / Amount::ONE.0) as usize];
    let rest = amount.0 % Amount::ONE.0;
    if rest > 0 {
        gpus.push(Amount(rest));
    }
    gpus
}

/// Whole GPUs come from free ones; a fraction goes where it leaves the least, so that whole ones stay free.
fn choose_gpus(free: &[Amount], wanted: Amount) -> Option<Vec<GpuShare>> {
    let whole = (wanted.0 / Amount::ONE.0) as usize;
    let rest = Amount(wanted.0 % Amount::ONE.0);
    let mut shares = Vec::new();
    if rest > Amount::ZERO {
        let fullest =
            (0..free.len()).filter(|&index| free[index] >= rest).min_by_key(|&index| (free[index], index))?;
        shares.push((fullest as u32, rest));
    }
    let taken = shares.first().map(|&(index, _)| index);
    let untouched = (0..free.len() as u32)
        .filter(|&index| free[index as usize] == Amount::ONE && Some(index) != taken)
        .take(whole);
    shares.extend(untouched.map(|index| (index, Amount::ONE)));
    let wanted_shares = whole + usize::from(rest > Amount::ZERO);
    shares.sort_unstable();
    (shares.len() == wanted_shares).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(units: f64) -> Resources {
        Resources::none().with(GPU, Amount::from_f64(units).unwrap())
    }

    #[test]
    fn a_fraction_goes_to_the_fullest_gpu_where_it_fits() {
        let mut ledger = Ledger::new(gpus(2.0));
        let half = ledger.allocate(&gpus(0.5)).unwrap();
        let quarter = ledger.allocate(&gpus(0.25)).unwrap();
        let large = ledger.allocate(&gpus(0.4)).unwrap();
        assert_eq!([half.gpus()[0].0, quarter.gpus()[0].0, large.gpus()[0].0], [0, 0, 1]);
        ledger.check([&half, &quarter, &large]);
        assert!(!ledger.fits(&gpus(1.0)), "0.85 are free, but on two GPUs");
        ledger.release(large);
        let whole = ledger.allocate(&gpus(1.0)).unwrap();
        assert_eq!(whole.gpu_indices(), [1]);
        ledger.check([&half, &quarter, &whole]);
    }

    #[test]
    fn whole_and_fraction_together_take_different_gpus() {
        let mut ledger = Ledger::new(gpus(2.0));
        let both = ledger.allocate(&gpus(1.5)).unwrap();
        assert_eq!(both.gpu_indices(), [0, 1]);
        assert!(ledger.fits(&gpus(0.5)));
        assert!(!ledger.is_feasible(&gpus(2.5)));
    }

    #[test]
    fn cpu_taken_back_becomes_a_debt_that_is_paid_first() {
        let one = Resources::none().with(CPU, Amount::ONE);
        let mut ledger = Ledger::new(one.clone());
        let mut first = ledger.allocate(&one).unwrap();
        let lent = ledger.lend_cpu(&mut first);
        let second = ledger.allocate(&one).unwrap();
        ledger.reclaim_cpu(&mut first, lent);
        assert_eq!(ledger.debt(), &one);
        ledger.check([&first, &second]);
        ledger.release(second);
        assert!(ledger.debt().is_empty() && !ledger.fits(&one));
        ledger.release(first);
        ledger.check([]);
        assert!(ledger.fits(&one));
    }

    #[test]
    fn a_bundle_has_the_gpus_that_were_set_aside_for_it() {
        let mut node = Ledger::new(gpus(3.0));
        let other = node.allocate(&gpus(0.5)).unwrap();
        let reserved = node.allocate_all(&[gpus(1.5), gpus(1.5)]);
        assert!(reserved.is_none(), "halves of two GPUs are left for the second, and no whole one");
        node.check([&other]);
        let reserved = node.allocate_all(&[gpus(1.5), gpus(0.5)]).unwrap();
        let mut bundle = Ledger::of_bundle(GroupId::default(), 0, &reserved[0]);
        assert!(bundle.is_feasible(&gpus(1.5)) && !bundle.is_feasible(&gpus(2.0)));
        let inside = bundle.allocate(&gpus(1.0)).unwrap();
        assert_eq!(
            inside.gpus(),
            reserved[0]
                .gpus()
                .iter()
                .filter(|(_, amount)| *amount == Amount::ONE)
                .copied()
                .collect::<Vec<_>>()
        );
        bundle.check([&inside]);
        assert!(!bundle.fits(&gpus(1.0)) && bundle.fits(&gpus(0.5)));
        assert!(bundle.allocate_on(&gpus(1.0), &[(7, Amount::ONE)]).is_none());
        bundle.release(inside);
        bundle.check([]);
        node.check(reserved.iter().chain([&other]));
    }

    #[test]
    fn what_is_lacking_is_named() {
        let ledger = Ledger::new(Resources::none().with(CPU, Amount::ONE));
        let wanted = gpus(1.0).with(CPU, Amount::ONE).with("disk", Amount::ONE);
        assert_eq!(ledger.infeasible_names(&wanted), ["GPU", "disk"]);
    }
}
