//! Who holds how much of the node's resources, and which GPUs.
//!
//! Invariants:
//! 1. Of every resource: total + debt = available + what is allocated.
//! 2. No resource has both something available and a debt.
//! 3. The free shares of the GPUs add up to the available amount of GPU.

use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{Amount, Resources};

/// A share of one GPU: its index, and how much of it.
pub type GpuShare = (u32, Amount);

/// What one holder has got; given back by [`Ledger::release`].
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "an allocation that is dropped is lost to the ledger"]
pub struct Allocation {
    resources: Resources,
    gpus: Vec<GpuShare>,
}

impl Allocation {
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

/// The resources of one node.
#[derive(Clone, Debug)]
pub struct Ledger {
    total: Resources,
    available: Resources,
    /// What is in use beyond the total, since work that had lent its CPU took it back.
    debt: Resources,
    /// The free share of each GPU, by index.
    gpus: Vec<Amount>,
}

impl Ledger {
    /// A ledger in which everything is free.
    pub fn new(total: Resources) -> Self {
        let gpus = whole_gpus(total.get(GPU));
        Self { available: total.clone(), total, debt: Resources::none(), gpus }
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
        self.total.covers(wanted) && choose_gpus(&whole_gpus(self.total.get(GPU)), wanted.get(GPU)).is_some()
    }

    /// The resources of which there is not enough in all for `wanted`.
    pub fn infeasible_names(&self, wanted: &Resources) -> Vec<String> {
        Self::new(self.total.clone()).lacking(wanted)
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
        let free = |&(index, amount): &GpuShare| self.gpus[index as usize] >= amount;
        if !self.available.covers(wanted) || !shares.iter().all(free) {
            return None;
        }
        self.available.take(wanted);
        for &(index, amount) in shares {
            self.gpus[index as usize].0 -= amount.0;
        }
        Some(Allocation { resources: wanted.clone(), gpus: shares.to_vec() })
    }

    /// Gives everything of `allocation` back.
    pub fn release(&mut self, allocation: Allocation) {
        self.credit(&allocation);
    }

    /// What the ledger would be if these were released.
    pub fn after_release<'a>(&self, allocations: impl IntoIterator<Item = &'a Allocation>) -> Self {
        let mut after = self.clone();
        for allocation in allocations {
            after.credit(allocation);
        }
        after
    }

    /// Gives the CPU of `allocation` back while its holder only waits; returns how much that was.
    pub fn lend_cpu(&mut self, allocation: &mut Allocation) -> Amount {
        let lent = allocation.resources.get(CPU);
        allocation.resources.set(CPU, Amount::ZERO);
        self.put_back(CPU, lent);
        lent
    }

    /// Takes lent CPU again. Its holder is running already, so this cannot be refused: what is not
    /// available becomes debt.
    pub fn reclaim_cpu(&mut self, allocation: &mut Allocation, lent: Amount) {
        let held = allocation.resources.get(CPU);
        allocation.resources.set(CPU, Amount(held.0 + lent.0));
        let available = self.available.get(CPU);
        let taken = lent.min(available);
        self.available.set(CPU, Amount(available.0 - taken.0));
        let debt = self.debt.get(CPU);
        self.debt.set(CPU, Amount(debt.0 + lent.0 - taken.0));
    }

    fn credit(&mut self, allocation: &Allocation) {
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
        assert_eq!(gpus, whole_gpus(self.total.get(GPU)), "ledger invariant 1, by GPU");
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
    fn what_is_lacking_is_named() {
        let ledger = Ledger::new(Resources::none().with(CPU, Amount::ONE));
        let wanted = gpus(1.0).with(CPU, Amount::ONE).with("disk", Amount::ONE);
        assert_eq!(ledger.infeasible_names(&wanted), ["GPU", "disk"]);
    }
}
