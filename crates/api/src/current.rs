//! The functions that use the current session: the thread's if one was entered, else the process's.

use crate::error::Result;
use crate::nodes::{Node, nodes_of};
use crate::object_ref::{Explain, ObjectRef};
use crate::session::{ReadyAndRest, put_in, wait_in};
use aktis_protocol::{NodeId, Resources};
use aktis_runtime::Runtime;
use aktis_runtime::runtime::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Waits for an object and gives its value.
pub fn get<T: DeserializeOwned>(object: &ObjectRef<T>) -> Result<T> {
    object.get()
}

/// Waits for an object no longer than `timeout`.
pub fn get_timeout<T: DeserializeOwned>(object: &ObjectRef<T>, timeout: Duration) -> Result<T> {
    object.get_timeout(timeout)
}

/// Waits for all objects and gives their values in order, or the first failure.
pub fn get_all<T: DeserializeOwned>(objects: &[ObjectRef<T>]) -> Result<Vec<T>> {
    objects.iter().map(ObjectRef::get).collect()
}

/// Makes an object of a value.
pub fn put<T: Serialize + DeserializeOwned>(value: T) -> Result<ObjectRef<T>> {
    put_in(&Runtime::current()?, value)
}

/// Waits until `count` of the objects have a value or a failure, or the time is over. Gives at most
/// `count` of those that have, and all others, both in the given order. A count above their number means all.
///
/// ```no_run
/// # use aktis::prelude::*;
/// # fn example(refs: Vec<ObjectRef<u64>>) -> aktis::Result<()> {
/// let (ready, rest) = aktis::wait(refs, 10, Duration::from_millis(50))?;
/// # Ok(())
/// # }
/// ```
pub fn wait<T>(
    objects: Vec<ObjectRef<T>>,
    count: usize,
    timeout: impl Into<Option<Duration>>,
) -> Result<ReadyAndRest<T>> {
    wait_in(&Runtime::current()?, objects, count, timeout.into())
}

/// Has the actor with checkpoints that runs this save its state when the current call is over, before it is answered.
pub fn checkpoint() -> Result<()> {
    Ok(Runtime::current()?.checkpoint()?)
}

/// Cancels the task that makes this object: see [`ObjectRef::cancel`].
pub fn cancel<T>(object: &ObjectRef<T>) -> Result<()> {
    object.cancel()
}

/// Says how a task, object or actor is: what it waits for, where it is, or what failed.
pub fn explain(what: &impl Explain) -> String {
    what.explain()
}

/// Where the calling code runs: its task, actor, GPUs and process.
pub fn runtime_context() -> Result<Context> {
    Ok(Runtime::current()?.context())
}

/// The node that the calling code runs on.
pub fn node() -> Result<NodeId> {
    Ok(Runtime::current()?.node_id())
}

/// The nodes of the session: those of its cluster, dead ones included, or the only one.
///
/// ```
/// use aktis::NodeId;
/// use aktis::prelude::*;
///
/// #[remote]
/// fn whereabouts() -> NodeId {
///     aktis::node().expect("a task runs on a node")
/// }
///
/// fn main() -> aktis::Result<()> {
///     let session = Session::builder().cpus(2).start()?;
///     let _entered = session.enter();
///     for node in aktis::nodes()?.into_iter().filter(|node| node.is_alive) {
///         assert_eq!(whereabouts::options().on_node(node.id).remote().get()?, node.id);
///     }
///     Ok(())
/// }
/// ```
pub fn nodes() -> Result<Vec<Node>> {
    nodes_of(&Runtime::current()?)
}

/// Whether the task that is running this was cancelled: long ones ask now and then, and return.
pub fn is_cancelled() -> bool {
    Runtime::current().is_ok_and(|runtime| runtime.is_cancelled())
}

/// What the session's node has in all.
pub fn resources() -> Result<Resources> {
    Ok(Runtime::current()?.resources())
}

/// Ends the actor that is running this, for good, after the current call. An error if no actor is running this: use it
/// as `aktis::exit_actor()?`.
pub fn exit_actor() -> Result<()> {
    Ok(Runtime::current()?.exit_actor()?)
}
