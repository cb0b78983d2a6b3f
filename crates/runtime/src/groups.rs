//! Placement groups as those see them who make, watch and remove them.

use crate::codec::{Encoded, Value};
use crate::entry::{Entry, Later, Outcome};
use crate::error::Error;
use crate::handle::Handle;
use crate::runtime::{IdMap, Inner, Runtime};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::state::{StateKind, StateRows};
use aktis_protocol::{
    Failure, FailureKind, GroupId, GroupSpec, GroupState, GroupStrategy, LabelRule, Resources,
};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The groups that this process watches.
#[derive(Default)]
pub(crate) struct Groups(Mutex<IdMap<GroupId, Vec<Watcher>>>);

/// An object that gets its value when the group is ready.
struct Watcher {
    entry: Weak<Entry>,
    value: Value,
}

impl Runtime {
    /// Sets resources aside, all bundles or none. The object has the value `ready` once they are.
    pub fn create_group(
        &self,
        bundles: Vec<Resources>,
        labels: Vec<Vec<LabelRule>>,
        strategy: GroupStrategy,
        name: Option<String>,
        detached: bool,
        ready: Encoded,
    ) -> Result<(GroupId, Handle), Error> {
        self.0.check_usable()?;
        let group = GroupId::created_by(self.0.next_task());
        let handle = self.0.watch_group(group, ready);
        let spec = GroupSpec { group, bundles, labels, strategy, name, detached };
        self.0.send_to_node(ToNode::GroupWanted { spec });
        Ok((group, handle))
    }

    /// An object that has the value `ready` once the group's resources are set aside.
    pub fn watch_group(&self, group: GroupId, ready: Encoded) -> Result<Handle, Error> {
        self.0.check_usable()?;
        let handle = self.0.watch_group(group, ready);
        self.0.send_to_node(ToNode::GroupWatched { group });
        Ok(handle)
    }

    /// Gives the resources of a group back, and ends all that uses them.
    pub fn remove_group(&self, group: GroupId) -> Result<(), Error> {
        self.0.check_usable()?;
        self.0.send_to_node(ToNode::GroupRemoved { group });
        Ok(())
    }

    /// How things stand on the node: as many rows as one answer holds, and how many there are besides.
    pub fn state(&self, what: StateKind) -> Result<(StateRows, u64), Error> {
        self.0.check_usable()?;
        match self.0.ask(|request| ToNode::StateWanted { request, what })? {
            FromNode::StateTold { rows, left_out, .. } => Ok((rows, left_out)),
            other => Err(Error::System(format!("the node answered {other:?} to a question about its state"))),
        }
    }
}

impl Inner {
    fn watch_group(self: &Arc<Self>, group: GroupId, ready: Encoded) -> Handle {
        let entry = Arc::new(Entry::new(self.next_task().returns(0), self.clone()));
        let watcher = Watcher { entry: Arc::downgrade(&entry), value: ready.into_value() };
        self.groups.0.lock().entry(group).or_default().push(watcher);
        Handle { entry }
    }

    /// The node says how far a group is.
    pub(crate) fn on_group_changed(self: &Arc<Self>, group: GroupId, state: GroupState) {
        let failure = match state {
            GroupState::Pending(_) => return,
            GroupState::Ready => None,
            GroupState::Removed(reason) => Some(Arc::new(Failure::new(FailureKind::GroupRemoved, reason))),
        };
        let watchers = self.groups.0.lock().remove(&group).unwrap_or_default();
        let mut later = Later::default();
        for Watcher { entry, value } in watchers {
            if let Some(entry) = entry.upgrade() {
                let outcome = match &failure {
                    None => Outcome::Inline(value),
                    Some(failure) => Outcome::Failed(failure.clone()),
                };
                entry.resolve(outcome, &mut later);
                later.entries.push(entry);
            }
        }
        later.run(self);
    }

    /// The objects of groups that are not ready, which will not be any more.
    pub(crate) fn group_watchers(&self) -> Vec<Arc<Entry>> {
        let watched: Vec<_> = self.groups.0.lock().drain().flat_map(|(_, watchers)| watchers).collect();
        watched.iter().filter_map(|watcher| watcher.entry.upgrade()).collect()
    }
}
