//! Who wants to be told of what.

use aktis_protocol::tables::{Filter, Key, Table};
use aktis_protocol::{ObjectId, limits};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// One subscription, as its caller names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriptionId(pub u64);

/// The subscriptions of a shard.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    filters: BTreeMap<SubscriptionId, Filter>,
    rows: BTreeMap<(Table, Key), BTreeSet<SubscriptionId>>,
    prefixes: BTreeMap<(Table, Key), BTreeSet<SubscriptionId>>,
    objects: BTreeMap<ObjectId, BTreeSet<SubscriptionId>>,
    events: BTreeSet<SubscriptionId>,
}

impl Subscriptions {
    /// Adds one; false if there is no room. An id that is known gets the new filter.
    pub(super) fn add(&mut self, id: SubscriptionId, filter: Filter) -> bool {
        self.remove(id);
        if self.filters.len() >= limits::SUBSCRIPTIONS_MAX {
            return false;
        }
        match filter.clone() {
            Filter::Row { table, key } => self.rows.entry((table, key)).or_default().insert(id),
            Filter::Rows { table, prefix } => self.prefixes.entry((table, prefix)).or_default().insert(id),
            Filter::Object(object) => self.objects.entry(object).or_default().insert(id),
            Filter::Events => self.events.insert(id),
        };
        self.filters.insert(id, filter);
        true
    }

    /// Ends one.
    pub(super) fn remove(&mut self, id: SubscriptionId) {
        match self.filters.remove(&id) {
            Some(Filter::Row { table, key }) => drop_from(&mut self.rows, (table, key), id),
            Some(Filter::Rows { table, prefix }) => drop_from(&mut self.prefixes, (table, prefix), id),
            Some(Filter::Object(object)) => drop_from(&mut self.objects, object, id),
            Some(Filter::Events) => {
                self.events.remove(&id);
            }
            None => {}
        }
    }

    /// Who wants to be told of this row.
    pub(super) fn for_row(&self, table: Table, key: &Key) -> Vec<SubscriptionId> {
        let mut to = Vec::new();
        if !self.rows.is_empty() {
            to.extend(self.rows.get(&(table, key.clone())).into_iter().flatten());
        }
        // Prefixes are few: one for each kind of thing that somebody watches.
        let fits = |(of, prefix): &(Table, Key)| *of == table && key.0.starts_with(&prefix.0);
        to.extend(self.prefixes.iter().filter(|(prefix, _)| fits(prefix)).flat_map(|(_, ids)| ids));
        to
    }

    /// Who wants to be told of this object.
    pub(super) fn for_object(&self, object: ObjectId) -> Vec<SubscriptionId> {
        self.objects.get(&object).into_iter().flatten().copied().collect()
    }

    /// Who wants to be told of events.
    pub(super) fn for_events(&self) -> Vec<SubscriptionId> {
        self.events.iter().copied().collect()
    }

    /// Whether anybody wants to be told of an object.
    #[inline]
    pub(super) fn watch_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    pub(super) fn check(&self) {
        assert!(self.filters.len() <= limits::SUBSCRIPTIONS_MAX, "subscriptions are bounded");
        let sets = self.rows.values().chain(self.prefixes.values()).chain(self.objects.values());
        let listed: usize = sets.chain([&self.events]).map(BTreeSet::len).sum();
        assert_eq!(listed, self.filters.len(), "each subscription is in one list");
    }
}

fn drop_from<K: Ord>(lists: &mut BTreeMap<K, BTreeSet<SubscriptionId>>, key: K, id: SubscriptionId) {
    if let Some(list) = lists.get_mut(&key) {
        list.remove(&id);
        if list.is_empty() {
            lists.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_key_and_by_beginning() {
        let mut subscriptions = Subscriptions::default();
        let row = |key: &str| Filter::Row { table: Table::Keys, key: key.into() };
        let rows = |prefix: &str| Filter::Rows { table: Table::Keys, prefix: prefix.into() };
        for (id, filter) in [(1, row("a/b")), (2, rows("a/")), (3, rows("")), (4, rows("b"))] {
            assert!(subscriptions.add(SubscriptionId(id), filter));
            subscriptions.check();
        }
        let told = |subscriptions: &Subscriptions, table, key: &str| -> Vec<u64> {
            let mut ids: Vec<_> =
                subscriptions.for_row(table, &key.into()).into_iter().map(|id| id.0).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(told(&subscriptions, Table::Keys, "a/b"), [1, 2, 3]);
        assert_eq!(told(&subscriptions, Table::Keys, "b"), [3, 4]);
        assert_eq!(told(&subscriptions, Table::Jobs, "b"), []);
        subscriptions.remove(SubscriptionId(3));
        assert!(subscriptions.add(SubscriptionId(2), rows("b")), "another filter");
        assert_eq!(told(&subscriptions, Table::Keys, "a/b"), [1]);
        subscriptions.check();
    }

    #[test]
    fn there_are_only_so_many() {
        let mut subscriptions = Subscriptions::default();
        for id in 0..limits::SUBSCRIPTIONS_MAX as u64 {
            assert!(subscriptions.add(SubscriptionId(id), Filter::Events));
        }
        assert!(!subscriptions.add(SubscriptionId(u64::MAX), Filter::Events));
        subscriptions.remove(SubscriptionId(0));
        assert!(subscriptions.add(SubscriptionId(u64::MAX), Filter::Events));
        subscriptions.check();
    }
}
