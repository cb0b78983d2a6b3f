//! A session: the engine, from its start to its end.

use crate::error::{Error, Result};
use crate::nodes::{Node, nodes_of};
use crate::object_ref::ObjectRef;
use crate::options::{CPU, GPU, MEMORY, Quantity};
use aktis_protocol::{Amount, Resources, limits};
use aktis_runtime::runtime::EnterGuard;
use aktis_runtime::runtime::Statistics;
use aktis_runtime::{Config, Encoded, LOCAL, Runtime, find_local};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;

/// Starts the session of this process: an engine inside it, with worker processes of its own.
///
/// The session ends, and with it every process and all shared memory, when the returned value is dropped.
///
/// If the environment variable `AKTIS_ADDRESS` is set, the process attaches to the node with that
/// [address](SessionBuilder::address) instead, and only leaves it in the end.
pub fn init() -> Result<Session> {
    Session::builder().init()
}

/// A running engine. Ends when dropped.
#[must_use = "the session ends when this is dropped: keep it, as in `let _session = aktis::init()?;`"]
pub struct Session {
    pub(crate) runtime: Runtime,
}

impl Session {
    /// Options of a new session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder { config: Config::default(), address: None, of_node: None, problem: None }
    }

    /// Starts a private session with the default options: it is used through this value, and by the
    /// functions of this crate where it was [entered](Self::enter).
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Attaches to a node that runs already, by its [address](SessionBuilder::address), for a private session with the
    /// default options: see [`Session::start`].
    pub fn connect(address: impl Into<String>) -> Result<Self> {
        Self::builder().address(address).start()
    }

    /// Makes this the session that `remote`, `get` and all other functions use on this thread, as long as
    /// the returned value lives.
    pub fn enter(&self) -> Entered<'_> {
        Entered { _guard: self.runtime.enter(), _session: self }
    }

    /// Ends the session: running tasks are dropped, all processes end. If it was attached to a node that runs elsewhere,
    /// it leaves that: what this process holds goes, and nothing else ends.
    pub fn shutdown(self) {
        drop(self);
    }

    /// Waits for an object and gives its value.
    pub fn get<T: DeserializeOwned>(&self, object: &ObjectRef<T>) -> Result<T> {
        object.get_in(&self.runtime, None)
    }

    /// Waits for an object no longer than `timeout`.
    pub fn get_timeout<T: DeserializeOwned>(&self, object: &ObjectRef<T>, timeout: Duration) -> Result<T> {
        object.get_in(&self.runtime, Some(timeout))
    }

    /// Waits for all objects and gives their values in order, or the first failure.
    pub fn get_all<T: DeserializeOwned>(&self, objects: &[ObjectRef<T>]) -> Result<Vec<T>> {
        objects.iter().map(|object| self.get(object)).collect()
    }

    /// Makes an object of a value.
    pub fn put<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<ObjectRef<T>> {
        put_in(&self.runtime, value)
    }

    /// Waits until `count` of the objects have a value or a failure, or the time is over. Gives at most
    /// `count` of those that have, and all others, both in the given order. A count above their number means all. A reference
    /// that is given twice counts twice.
    pub fn wait<T>(
        &self,
        objects: Vec<ObjectRef<T>>,
        count: usize,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<ReadyAndRest<T>> {
        wait_in(&self.runtime, objects, count, timeout.into())
    }

    /// The nodes of the session: see [`nodes`](crate::nodes()).
    pub fn nodes(&self) -> Result<Vec<Node>> {
        nodes_of(&self.runtime)
    }

    /// What the session's node has in all.
    pub fn resources(&self) -> Resources {
        self.runtime.resources()
    }

    /// Numbers about this process: tasks that are not finished, tasks on record, bytes of lineage.
    ///
    /// Tasks whose references were dropped count as well, until they are done.
    ///
    /// ```no_run
    /// use aktis::prelude::*;
    ///
    /// #[remote]
    /// fn note(_number: u32) {}
    ///
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().cpus(1).start()?;
    /// let _entered = session.enter();
    /// (0..100).for_each(|number| drop(note::remote(number)));
    /// while session.statistics().unfinished_tasks > 0 {
    ///     std::thread::yield_now();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn statistics(&self) -> Statistics {
        self.runtime.statistics()
    }

    /// The process ids of the workers.
    pub fn worker_pids(&self) -> Vec<u32> {
        self.runtime.worker_pids()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.runtime.shutdown();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

/// The references that are ready, and the others; both in the order in which they were given.
pub type ReadyAndRest<T> = (Vec<ObjectRef<T>>, Vec<ObjectRef<T>>);

/// The session is the thread's as long as this lives.
#[must_use = "the session is left when this is dropped"]
pub struct Entered<'a> {
    _guard: EnterGuard,
    _session: &'a Session,
}

impl std::fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entered")
    }
}

pub(crate) fn put_in<T: Serialize>(runtime: &Runtime, value: T) -> Result<ObjectRef<T>> {
    let encoded = Encoded::of_owned(value).map_err(Error::Codec)?;
    Ok(ObjectRef::new(runtime.put(encoded)?))
}

pub(crate) fn wait_in<T>(
    runtime: &Runtime,
    objects: Vec<ObjectRef<T>>,
    count: usize,
    timeout: Option<Duration>,
) -> Result<ReadyAndRest<T>> {
    let wants_some = count.min(objects.len()) > 0;
    let positions = if wants_some { runtime.wait(&objects, count, timeout)? } else { Vec::new() };
    Ok(take_positions(objects, &positions))
}

/// Takes the references at these ascending positions out of the others.
pub(crate) fn take_positions<T>(mut objects: Vec<ObjectRef<T>>, positions: &[usize]) -> ReadyAndRest<T> {
    match positions {
        [] => (Vec::new(), objects),
        // Programs take one of a long list again and again: a move of the tail costs much less than a look at each.
        [position] => (vec![objects.remove(*position)], objects),
        _ => {
            let mut wanted = positions.iter().copied().peekable();
            let mut here = 0..;
            objects.into_iter().partition(|_| wanted.next_if_eq(&here.next().expect("no end")).is_some())
        }
    }
}

/// Options of a new session, in a chain.
#[derive(Clone, Debug)]
#[must_use = "nothing starts before `start` or `init`"]
pub struct SessionBuilder {
    config: Config,
    address: Option<String>,
    /// An option that was set and is up to the node.
    of_node: Option<String>,
    problem: Option<String>,
}

/// Names the node that `init` attaches to.
const ADDRESS_VARIABLE: &str = "AKTIS_ADDRESS";
/// Has programs share with all jobs of their node that do not say so themselves.
const SHARE_VARIABLE: &str = "AKTIS_SHARE";

impl SessionBuilder {
    /// The node to attach to, instead of starting one in this process: the directory of a node on this machine, `auto`
    /// for the one that runs there, or `host:port` for one of that cluster; `local` is none.
    ///
    /// An address in the program goes with no option that says how to start a node, such as [`cpus`](Self::cpus) or
    /// [`label`](Self::label). If [`init`](Self::init) takes the address from the environment, it ignores those.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// How many tasks may run at once, each holding one CPU by default; the machine's CPUs by default.
    pub fn cpus(self, amount: impl Quantity) -> Self {
        self.resource(CPU, amount)
    }

    /// How many GPUs there are; none by default.
    pub fn gpus(self, amount: impl Quantity) -> Self {
        self.resource(GPU, amount)
    }

    /// How many bytes of memory tasks may ask for; most of the machine's by default.
    pub fn memory(self, bytes: impl Quantity) -> Self {
        self.resource(MEMORY, bytes)
    }

    /// How much there is of a resource with a name of your own.
    pub fn resource(mut self, name: &str, amount: impl Quantity) -> Self {
        self.of_node.get_or_insert_with(|| name.to_owned());
        match Amount::from_f64(amount.to_f64()) {
            Some(amount) => self.config.resources.set(name, amount),
            None => {
                self.problem.get_or_insert_with(|| {
                    format!("not an amount of {name}\nhint: amounts are not negative and have at most four decimals")
                });
            }
        }
        self
    }

    /// The size of the object store; a part of the machine's memory by default.
    pub fn store_bytes(mut self, bytes: u64) -> Self {
        self.of_node.get_or_insert_with(|| "the size of the store".to_owned());
        self.config.store_bytes = bytes;
        self
    }

    /// Where objects go that do not fit into the store; the system's temporary directory by default.
    pub fn spill_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.of_node.get_or_insert_with(|| "where objects are spilled".to_owned());
        self.config.spill_directory = directory.into();
        self
    }

    /// How many bytes of objects may be there at most.
    pub fn spill_bytes_max(mut self, bytes: u64) -> Self {
        self.of_node.get_or_insert_with(|| "how much is spilled".to_owned());
        self.config.spill_bytes_max = bytes;
        self
    }

    /// How many tasks may be submitted and not finished before `remote` waits; a million by default.
    pub fn queued_tasks_max(mut self, tasks: usize) -> Self {
        self.config.tuning.queued_tasks_max = tasks;
        self
    }

    /// Whether finished tasks stay on record while their results are referenced; they do by default.
    pub fn lineage(mut self, recorded: bool) -> Self {
        self.config.tuning.lineage_bytes_max = if recorded { limits::LINEAGE_BYTES_MAX } else { 0 };
        self
    }

    /// Whether tasks go where most of what they read lies, if that is on another node; they do by default.
    pub fn locality(mut self, aware: bool) -> Self {
        self.config.tuning.locality = aware;
        self
    }

    /// What is said about the node that this session starts: tasks and actors can ask for it.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.of_node.get_or_insert_with(|| "a label".to_owned());
        self.config.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Whether the workers' output appears in this process's; it does by default.
    pub fn forward_output(mut self, forwarded: bool) -> Self {
        self.config.output.forward = forwarded;
        self
    }

    /// Whether other jobs of the cluster may use the actors and objects of this program if they know their ids; they may
    /// not by default. It counts for all drivers and workers of this executable, which are one job, and only with an
    /// [`address`](Self::address). `AKTIS_SHARE=1` in the environment is the same.
    pub fn share(mut self, shared: bool) -> Self {
        self.config.share = shared;
        self
    }

    /// Starts a private session: see [`Session::start`].
    pub fn start(self) -> Result<Session> {
        if let Some(problem) = self.problem {
            return Err(Error::Invalid(problem));
        }
        let Some(address) = self.address.filter(|address| address != LOCAL) else {
            return Ok(Session { runtime: Runtime::start(self.config)? });
        };
        if let Some(option) = self.of_node {
            let text = format!("{option} cannot be chosen for a node that runs already, at {address}");
            let hint =
                "leave that option out, or the address; `init` with the address in AKTIS_ADDRESS ignores it";
            return Err(Error::Invalid(format!("{text}\nhint: {hint}")));
        }
        let shares = std::env::var(SHARE_VARIABLE).is_ok_and(|value| value == "1");
        let config = Config { share: self.config.share || shares, ..self.config };
        let directory = find_local(&address).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Session { runtime: Runtime::attach(&directory, config)? })
    }

    /// Starts the session of this process: see [`init`].
    ///
    /// If the environment variable `AKTIS_ADDRESS` names a node, and the program does not, the process attaches to that
    /// node, and options that say how to start one (`cpus`, `label`, `store_bytes` and so on) are ignored. So the same
    /// program runs alone and on a cluster.
    pub fn init(mut self) -> Result<Session> {
        if self.address.is_none() {
            self.address = std::env::var(ADDRESS_VARIABLE).ok().filter(|address| !address.is_empty());
            if self.address.as_ref().is_some_and(|address| address != LOCAL) {
                self.of_node = None;
            }
        }
        let session = self.start()?;
        session.runtime.make_current()?;
        Ok(session)
    }
}
