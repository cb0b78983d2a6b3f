//! Placement groups: resources that are set aside together, on one or several nodes.

use crate::error::{Error, Result};
use crate::object_ref::ObjectRef;
use aktis_protocol::{GroupId, GroupPlace, GroupStrategy, Resources};
use aktis_runtime::{Encoded, Runtime};
use std::time::Duration;

/// Resources that are set aside for those tasks and actors that name the group: all of its bundles, or none.
///
/// ```no_run
/// use aktis::prelude::*;
/// use aktis::{Amount, GroupStrategy, PlacementGroup, Resources};
///
/// #[remote]
/// fn work() {}
///
/// # fn main() -> aktis::Result<()> {
/// let _session = aktis::init()?;
/// let bundle = Resources::none().with("CPU", Amount::ONE);
/// let group = PlacementGroup::create(vec![bundle.clone(), bundle], GroupStrategy::Spread)?;
/// group.wait(Duration::from_secs(10))?;
/// work::options().in_group(&group).remote().get()?;
/// work::options().in_group(group.bundle(1)).remote().get()?;
/// group.remove()
/// # }
/// ```
///
/// It ends with [`remove`](Self::remove), or with the process that made it.
#[derive(Clone, Debug)]
pub struct PlacementGroup {
    group: GroupId,
    ready: ObjectRef<()>,
}

impl PlacementGroup {
    /// Asks for a group, and returns at once. What no node can hold waits for one that can.
    pub fn create(bundles: Vec<Resources>, strategy: GroupStrategy) -> Result<Self> {
        let ready = Encoded::of(&()).map_err(Error::Codec)?;
        let runtime = Runtime::current()?;
        let (group, ready) = runtime.create_group(bundles, Vec::new(), strategy, None, false, ready)?;
        Ok(Self { group, ready: ObjectRef::new(ready) })
    }

    /// Has a value once all bundles are set aside, and fails if the group goes before.
    pub fn ready(&self) -> &ObjectRef<()> {
        &self.ready
    }

    /// Waits until all bundles are set aside, no longer than `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.ready.get_timeout(timeout)
    }

    /// One of its bundles, for options.
    pub fn bundle(&self, index: u32) -> GroupPlace {
        GroupPlace { group: self.group, bundle: Some(index) }
    }

    /// Gives the resources back. Its actors end, and its tasks fail.
    pub fn remove(&self) -> Result<()> {
        Ok(Runtime::current()?.remove_group(self.group)?)
    }
}

impl From<&PlacementGroup> for GroupPlace {
    fn from(group: &PlacementGroup) -> Self {
        Self { group: group.group, bundle: None }
    }
}
