//! Amounts of resources, in fixed-point integers with a precision of 0.0001, and the shapes of tasks.

use crate::groups::GroupPlace;
use crate::ids::ProgramId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An amount of one resource, in ten-thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Amount(pub u64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One whole unit.
    pub const ONE: Self = Self(10_000);

    /// A number of whole units.
    pub const fn units(count: u64) -> Self {
        Self(count * 10_000)
    }

    /// The amount nearest to `value`; `None` if it is negative, not finite, too large, or has more
    /// than four decimals.
    ///
    /// ```
    /// use aktis_protocol::Amount;
    /// assert_eq!(Amount::from_f64(0.5), Some(Amount(5_000)));
    /// assert_eq!(Amount::from_f64(0.00001), None);
    /// assert_eq!(Amount::from_f64(-1.0), None);
    /// ```
    pub fn from_f64(value: f64) -> Option<Self> {
        if !(0.0..1e14).contains(&value) {
            return None;
        }
        let scaled = (value * 10_000.0).round();
        ((scaled / 10_000.0 - value).abs() < 1e-9 * value.max(1.0)).then_some(Self(scaled as u64))
    }

    /// The amount as a floating-point number, for display.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / 10_000.0
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_f64())
    }
}

/// The name of the processor resource.
pub const CPU: &str = "CPU";
/// The name of the accelerator resource; its units are handed out by index.
pub const GPU: &str = "GPU";
/// The name of the memory resource, in bytes.
pub const MEMORY: &str = "memory";

/// Named amounts; names with nothing are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources(BTreeMap<String, Amount>);

impl Resources {
    /// No resources.
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// The same resources with `amount` of `name` (replacing what was there).
    pub fn with(mut self, name: &str, amount: Amount) -> Self {
        self.set(name, amount);
        self
    }

    /// Sets the amount of `name`.
    pub fn set(&mut self, name: &str, amount: Amount) {
        if amount == Amount::ZERO {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), amount);
        }
    }

    /// The amount of `name`.
    pub fn get(&self, name: &str) -> Amount {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Name and amount of each resource, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Amount)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Whether there is nothing here.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `wanted` fits into these.
    pub fn covers(&self, wanted: &Resources) -> bool {
        wanted.iter().all(|(name, amount)| self.get(name) >= amount)
    }

    /// How often `wanted` fits into these; `u64::MAX` if it is nothing.
    pub fn times(&self, wanted: &Resources) -> u64 {
        // A message from elsewhere may hold an amount of nothing.
        let times = |(name, amount): (&str, Amount)| self.get(name).0.checked_div(amount.0);
        wanted.iter().filter_map(times).min().unwrap_or(u64::MAX)
    }

    /// Whether there is something of which both have some.
    pub fn shares_any(&self, other: &Resources) -> bool {
        other.iter().any(|(name, _)| self.0.contains_key(name))
    }

    /// Adds `other` to these.
    pub fn add(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.set(name, Amount(self.get(name).0 + amount.0));
        }
    }

    /// Takes `other` away from these. Panics if it is not covered: the caller asks first.
    pub fn take(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            let left = self.get(name).0.checked_sub(amount.0).expect("resources taken were covered");
            self.set(name, Amount(left));
        }
    }

    /// Takes `other` away from these, `times` over; where there is less, nothing is left.
    pub fn take_up_to(&mut self, other: &Resources, times: u64) {
        for (name, amount) in other.iter() {
            let left = self.get(name).0.saturating_sub(amount.0.saturating_mul(times));
            self.set(name, Amount(left));
        }
    }
}

impl std::fmt::Display for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return write!(f, "nothing");
        }
        for (i, (name, amount)) in self.iter().enumerate() {
            write!(f, "{}{amount} {name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What a task needs in order to run: tasks of one shape share queues and leases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// The resources held while it runs.
    pub resources: Resources,
    /// Whether it wants a worker process that runs nothing else meanwhile.
    pub isolated: bool,
    /// How an isolated worker process has to be set up before it runs anything; empty if that does not matter. Only
    /// the worker understands it.
    pub environment: String,
    /// The placement group whose resources it uses; the node's own if none is named.
    pub group: Option<GroupPlace>,
    /// The program whose workers run it; a process that names none means its own.
    pub program: ProgramId,
    /// Those with a higher one are served first; 0 is the usual one.
    pub priority: i32,
}

impl Default for Shape {
    /// One CPU, in a shared worker process.
    fn default() -> Self {
        let resources = Resources::none().with(CPU, Amount::ONE);
        Self {
            resources,
            isolated: false,
            environment: String::new(),
            group: None,
            program: ProgramId::default(),
            priority: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_add_and_take_agree() {
        let mut all = Resources::none().with(CPU, Amount::units(2)).with("disk", Amount(1));
        let part = Resources::none().with(CPU, Amount(15_000)).with("disk", Amount(1));
        assert!(all.covers(&part));
        all.take(&part);
        assert!(!all.covers(&part));
        assert_eq!(all.to_string(), "0.5 CPU");
        all.add(&part);
        assert!(all.covers(&part));
    }

    #[test]
    fn times_is_how_often_one_can_take() {
        let mut all = Resources::none().with(CPU, Amount::units(8)).with(GPU, Amount::units(2));
        let part = Resources::none().with(CPU, Amount::ONE).with(GPU, Amount(5_000));
        assert_eq!(all.times(&part), 4);
        assert_eq!(all.times(&Resources::none()), u64::MAX);
        all.take_up_to(&part, 3);
        assert_eq!((all.times(&part), all.to_string().as_str()), (1, "5 CPU, 0.5 GPU"));
        all.take_up_to(&part, 9);
        assert!(all.is_empty() && !all.shares_any(&part));
    }
}
