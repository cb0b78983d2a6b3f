//! Objects that were exported to another node: each is held for it until it has released the object as often.
//!
//! Exports and releases cross on their way, so that counts are added and subtracted, and never compared.
//!
//! Invariants:
//! 1. An object that is held was exported more often than it was released.
//! 2. The other node waits only for values of objects that are held.

use aktis_protocol::ObjectId;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Export<K> {
    reference: K,
    /// How often it was exported, less how often it was released.
    count: u64,
    /// Whether the other node waits for its value.
    awaited: bool,
}

/// The objects that one other node knows from this one; `K` holds an object.
#[derive(Debug)]
pub(super) struct Exports<K> {
    objects: BTreeMap<ObjectId, Export<K>>,
}

impl<K> Default for Exports<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<K> Exports<K> {
    /// The reference to an object that the other node knows.
    pub(super) fn get(&self, object: ObjectId) -> Option<&K> {
        self.objects.get(&object).map(|export| &export.reference)
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        for (object, export) in &self.objects {
            assert!(export.count > 0, "remote node invariant 1: {object} is held and was released");
        }
    }

    /// An object is exported once more; false if the other node does not know it, and a reference is needed first.
    pub(super) fn add_again(&mut self, object: ObjectId) -> bool {
        let export = self.objects.get_mut(&object);
        export.map(|export| export.count += 1).is_some()
    }

    /// An object is exported. Gives the reference if it is not needed, since there was one.
    #[must_use = "a dropped reference releases the object"]
    pub(super) fn add(&mut self, object: ObjectId, reference: K) -> Option<K> {
        if self.add_again(object) {
            return Some(reference);
        }
        self.objects.insert(object, Export { reference, count: 1, awaited: false });
        None
    }

    /// A reference takes the place of the one that there is, which is given.
    #[must_use = "a dropped reference releases the object"]
    pub(super) fn replace(&mut self, object: ObjectId, reference: K) -> Option<K> {
        match self.objects.get_mut(&object) {
            Some(export) => Some(std::mem::replace(&mut export.reference, reference)),
            None => Some(reference),
        }
    }

    /// The other node has released an object that was exported to it so often; it may have been exported again since. Gives
    /// the reference if it is not needed any more.
    #[must_use = "a dropped reference releases the object"]
    pub(super) fn on_released(&mut self, object: ObjectId, count: u64) -> Option<K> {
        let export = self.objects.get_mut(&object)?;
        export.count = export.count.saturating_sub(count);
        if export.count > 0 {
            return None;
        }
        self.objects.remove(&object).map(|export| export.reference)
    }

    /// The other node waits for the value of an object.
    pub(super) fn on_wanted(&mut self, object: ObjectId) {
        if let Some(export) = self.objects.get_mut(&object) {
            export.awaited = true;
        }
    }

    /// Whether the other node waits for the value, which is about to be said: then it waits no more.
    pub(super) fn take_wanted(&mut self, object: ObjectId) -> bool {
        self.objects.get_mut(&object).is_some_and(|export| std::mem::take(&mut export.awaited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{SessionId, TaskId};

    #[test]
    fn a_release_that_crosses_an_export_leaves_the_later_export() {
        let object = TaskId::root(SessionId(1)).child(1).returns(0);
        let mut exports = Exports::default();
        assert_eq!(exports.add(object, "first"), None);
        assert_eq!(exports.add(object, "second"), Some("second"), "one reference is enough");
        assert_eq!(exports.on_released(object, 1), None, "the second export is on its way");
        exports.on_wanted(object);
        assert_eq!(exports.on_released(object, 1), Some("first"));
        assert!(exports.len() == 0 && !exports.take_wanted(object));
        assert_eq!(exports.on_released(object, 1), None);
    }
}
