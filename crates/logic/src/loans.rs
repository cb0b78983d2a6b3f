//! Objects that were named to another node: each is kept for it until it has let go of it as often.
//!
//! Namings and releases cross on their way, so that counts are added and subtracted, and never compared.
//!
//! Invariants:
//! 1. What is kept was named more often than it was let go of.
//! 2. Only what is kept can be waited for.

use aktis_protocol::ObjectId;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Loan<K> {
    keeper: K,
    /// How often it was named, less how often it was let go of.
    count: u64,
    /// Whether the other node waits for its value.
    awaited: bool,
}

/// The objects that one other node knows from this one; `K` keeps an object.
#[derive(Debug)]
pub struct Loans<K> {
    lent: BTreeMap<ObjectId, Loan<K>>,
}

impl<K> Default for Loans<K> {
    fn default() -> Self {
        Self { lent: BTreeMap::new() }
    }
}

impl<K> Loans<K> {
    /// What keeps an object that the other node knows.
    pub fn get(&self, object: ObjectId) -> Option<&K> {
        self.lent.get(&object).map(|loan| &loan.keeper)
    }

    /// Whether the other node knows nothing.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// An object is named once more; false if the other node does not know it, and somebody has to keep it first.
    pub fn name_again(&mut self, object: ObjectId) -> bool {
        let loan = self.lent.get_mut(&object);
        loan.map(|loan| loan.count += 1).is_some()
    }

    /// An object is named. Gives a keeper that is not needed, since there was one: to be dropped when no lock is held.
    #[must_use = "a keeper may have something to do when it goes"]
    pub fn name(&mut self, object: ObjectId, keeper: K) -> Option<K> {
        if self.name_again(object) {
            return Some(keeper);
        }
        self.lent.insert(object, Loan { keeper, count: 1, awaited: false });
        None
    }

    /// Another keeper takes the place of the one that there is, which is given.
    #[must_use = "a keeper may have something to do when it goes"]
    pub fn replace(&mut self, object: ObjectId, keeper: K) -> Option<K> {
        match self.lent.get_mut(&object) {
            Some(loan) => Some(std::mem::replace(&mut loan.keeper, keeper)),
            None => Some(keeper),
        }
    }

    /// The other node has let go of an object, of which it has heard so often; it may have been named again since. Gives
    /// what has kept it, if that is not needed any more.
    #[must_use = "a keeper may have something to do when it goes"]
    pub fn on_released(&mut self, object: ObjectId, count: u64) -> Option<K> {
        let loan = self.lent.get_mut(&object)?;
        loan.count = loan.count.saturating_sub(count);
        if loan.count > 0 {
            return None;
        }
        self.lent.remove(&object).map(|loan| loan.keeper)
    }

    /// The other node waits for the value of an object.
    pub fn on_wanted(&mut self, object: ObjectId) {
        if let Some(loan) = self.lent.get_mut(&object) {
            loan.awaited = true;
        }
    }

    /// Whether the other node waits for the value, which is about to be said: then it waits no more.
    pub fn take_wanted(&mut self, object: ObjectId) -> bool {
        self.lent.get_mut(&object).is_some_and(|loan| std::mem::take(&mut loan.awaited))
    }

    /// The other node is gone: gives all that was kept for it.
    #[must_use = "a keeper may have something to do when it goes"]
    pub fn end(&mut self) -> Vec<K> {
        std::mem::take(&mut self.lent).into_values().map(|loan| loan.keeper).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{SessionId, TaskId};

    #[test]
    fn a_release_that_crosses_a_naming_leaves_what_was_named_since() {
        let object = TaskId::root(SessionId(1)).child(1).returns(0);
        let mut loans = Loans::default();
        assert_eq!(loans.name(object, "first"), None);
        assert_eq!(loans.name(object, "second"), Some("second"), "one keeper is enough");
        assert_eq!(loans.on_released(object, 1), None, "the second naming is on its way");
        loans.on_wanted(object);
        assert_eq!(loans.on_released(object, 1), Some("first"));
        assert!(loans.is_empty() && !loans.take_wanted(object));
        assert_eq!(loans.on_released(object, 1), None);
    }
}
