//! The options of one call of a remote function.

use super::{CPU, Chain, GPU, MEMORY, Quantity, TaskSettings};
use aktis_protocol::{GroupPlace, NodeId, Strategy};
use aktis_runtime::Function;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::time::Duration;

/// A function with [`#[remote]`](macro@crate::remote), as a type. Only the attribute implements this trait.
///
/// A generic function is one with the types that its attribute lists. Code that is generic itself asks for them
/// with this bound:
///
/// ```
/// use aktis::RemoteFunction;
/// use aktis::prelude::*;
///
/// #[remote(T = [u64, String])]
/// fn reversed<T>(mut items: Vec<T>) -> Vec<T> {
///     items.reverse();
///     items
/// }
///
/// fn reversed_twice<T>(items: ObjectRef<Vec<T>>) -> ObjectRef<Vec<T>>
/// where
///     reversed<T>: RemoteFunction,
/// {
///     reversed::<T>::remote(reversed::<T>::remote(items))
/// }
///
/// fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     assert_eq!(reversed_twice(aktis::put(vec![1u64, 2])?).get()?, [1, 2]);
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a remote function: its types are not in the list of its attribute",
    label = "these types are not in the list",
    note = "workers find functions by name and types: add the types, as in `#[remote(T = [u64, f64])]`"
)]
pub trait RemoteFunction {
    #[doc(hidden)]
    type Chain: Chain<TaskSettings>;

    #[doc(hidden)]
    fn function() -> &'static Function;
}

/// Options of one call: `fit::options()` starts the chain with what the attribute of `fit` says, each method
/// changes one option, and `remote` submits the task.
///
/// `remote` takes the arguments of the function, as `fit::remote` does. It can be called several times.
///
/// ```
/// use aktis::prelude::*;
///
/// #[remote(cpus = 0.5)]
/// fn fit(epochs: u32) -> u32 {
///     epochs * 2
/// }
///
/// fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     let careful = fit::options().cpus(1).retries(5).name("careful fit");
///     let (short, long) = (careful.remote(3), careful.remote(300));
///     assert_eq!((short.get()?, long.get()?), (6, 600));
///     Ok(())
/// }
/// ```
///
/// | method | on the attribute | without it |
/// |---|---|---|
/// | [`cpus`](Self::cpus), [`gpus`](Self::gpus) | `cpus = 0.5`, `gpus = 1` | 1 CPU, no GPU |
/// | [`memory`](Self::memory) | `memory = 1_000_000` | none |
/// | [`resource`](Self::resource) | `resources(licence = 1)` | none |
/// | [`retries`](Self::retries) | `retries = 5` | 3 |
/// | [`isolated`](Self::isolated) | `isolated` | a thread of the shared worker |
/// | [`priority`](Self::priority) | `priority = 1` | 0 |
/// | [`deadline`](Self::deadline) | `deadline = 1.5` | none |
/// | [`name`](Self::name) | `name = "fit"` | the path of the function |
/// | [`stream_ahead`](Self::stream_ahead) | `stream_ahead = 8` | 64 |
/// | [`spread`](Self::spread), [`on_node`](Self::on_node), [`strategy`](Self::strategy), [`in_group`](Self::in_group) | | where the task is done soonest |
///
/// Three options are on the attribute only, as they change the types: `returns`, `stream`, and the
/// [lists of types](macro@crate::remote) of a generic function.
#[must_use = "nothing runs before `remote`"]
pub struct TaskOptions<F: RemoteFunction> {
    chain: F::Chain,
}

impl<F: RemoteFunction> TaskOptions<F> {
    pub(crate) fn new(settings: TaskSettings) -> Self {
        Self { chain: F::Chain::new(settings) }
    }

    fn with(mut self, change: impl FnOnce(&mut TaskSettings)) -> Self {
        change(self.chain.settings_mut());
        self
    }

    /// How many CPUs the task holds while it runs: 1 by default; fractions down to 0.0001 are possible.
    ///
    /// Tasks with `cpus(0)` run in any number at once.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().cpus(4).start()?;
    /// let _entered = session.enter();
    /// let two_at_once = fit::options().cpus(2);
    /// let four_at_once = fit::options().cpus(1);
    /// assert_eq!(two_at_once.remote(3).get()?, four_at_once.remote(3).get()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cpus(self, amount: impl Quantity) -> Self {
        self.resource(CPU, amount)
    }

    /// How many GPUs the task holds while it runs: none by default. Tasks with fractions share one GPU.
    ///
    /// [`runtime_context`](crate::runtime_context) tells the task the indices of its GPUs.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// #[remote]
    /// fn devices() -> Vec<u32> {
    ///     aktis::runtime_context().expect("a task has a context").gpus
    /// }
    ///
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().gpus(2).start()?;
    /// let _entered = session.enter();
    /// assert_eq!(devices::options().gpus(2).remote().get()?, [0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn gpus(self, amount: impl Quantity) -> Self {
        self.resource(GPU, amount)
    }

    /// How many bytes of memory the task holds while it runs: none by default. They are counted, not enforced.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().memory(1u64 << 30).start()?;
    /// let _entered = session.enter();
    /// // Of these, only two run at once.
    /// let half_of_it = fit::options().memory(512 << 20);
    /// assert_eq!(half_of_it.remote(3).get()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(self, bytes: impl Quantity) -> Self {
        self.resource(MEMORY, bytes)
    }

    /// How much of a resource with a name of your own the task holds while it runs.
    ///
    /// Nodes have what they are started with: [`SessionBuilder::resource`](crate::SessionBuilder::resource),
    /// or `aktis start --resource`. A task that asks for more than any node has stays pending.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().resource("licence", 1).start()?;
    /// let _entered = session.enter();
    /// assert_eq!(fit::options().resource("licence", 1).remote(3).get()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn resource(self, name: &str, amount: impl Quantity) -> Self {
        self.with(|settings| settings.resource(name, amount))
    }

    /// How often the task is run again if its worker process dies: 3 times by default.
    ///
    /// A panic or an error of the task is final, whatever this says.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// #[remote(isolated)]
    /// fn crash() {
    ///     std::process::abort();
    /// }
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let outcome = crash::options().retries(0).remote().get();
    /// assert!(matches!(outcome, Err(aktis::Error::WorkerDied(_))), "{outcome:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn retries(self, retries: u32) -> Self {
        self.with(|settings| settings.options.retries = Some(retries))
    }

    /// The name that [`explain`](crate::ObjectRef::explain), lists and errors show, instead of the path of the function.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let unfit = fit::options().gpus(1000).name("a large fit").remote(3);
    /// assert!(unfit.explain().contains("a large fit"), "{}", unfit.explain());
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(self, name: &str) -> Self {
        self.with(|settings| settings.options.name = Some(name.into()))
    }

    /// On which nodes the task may run, and which of them it prefers: the general form of
    /// [`spread`](Self::spread) and [`on_node`](Self::on_node).
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// use aktis::{LabelRule, LabelTest, Strategy};
    ///
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().label("zone", "b").start()?;
    /// let _entered = session.enter();
    /// let in_zone = LabelRule { name: "zone".into(), test: LabelTest::In(vec!["b".into()]) };
    /// let strategy = Strategy::Labels { hard: vec![in_zone], soft: vec![] };
    /// assert_eq!(fit::options().strategy(strategy).remote(3).get()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn strategy(self, strategy: Strategy) -> Self {
        self.with(|settings| settings.options.shape_mut().strategy = strategy)
    }

    /// Runs tasks on one node after the other, instead of where each is done soonest.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let fits: Vec<_> = (0..8).map(|epochs| fit::options().spread().remote(epochs)).collect();
    /// assert_eq!(aktis::get_all(&fits)?.len(), 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn spread(self) -> Self {
        self.strategy(Strategy::Spread)
    }

    /// Runs the task on this node and no other. [`Strategy::Node`] with `soft: true` only prefers the node.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// #[remote]
    /// fn whereabouts() -> aktis::Result<aktis::NodeId> {
    ///     aktis::node()
    /// }
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let here = aktis::node()?;
    /// assert_eq!(whereabouts::options().on_node(here).remote().get()?, here);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_node(self, node: NodeId) -> Self {
        self.strategy(Strategy::Node { node, soft: false })
    }

    /// Uses the resources of a [placement group](crate::PlacementGroup), or of one bundle of it.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// use aktis::{Amount, GroupStrategy, PlacementGroup, Resources};
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let bundle = Resources::none().with("CPU", Amount::ONE);
    /// let group = PlacementGroup::create(vec![bundle], GroupStrategy::Pack)?;
    /// assert_eq!(fit::options().in_group(&group).remote(3).get()?, 3);
    /// assert_eq!(fit::options().in_group(group.bundle(0)).remote(3).get()?, 3);
    /// # group.remove()
    /// # }
    /// ```
    pub fn in_group(self, place: impl Into<GroupPlace>) -> Self {
        let place = place.into();
        self.with(|settings| settings.options.shape_mut().group = Some(place))
    }

    /// Runs the task in a worker process that runs nothing else meanwhile: neither sees the other crash, and
    /// [`cancel_force`](crate::ObjectRef::cancel_force) can kill the task.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// #[remote]
    /// fn process() -> u32 {
    ///     std::process::id()
    /// }
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let (shared, alone) = (process::remote(), process::options().isolated().remote());
    /// assert_ne!(shared.get()?, alone.get()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn isolated(self) -> Self {
        self.with(|settings| settings.options.shape_mut().isolated = true)
    }

    /// The urgency: of the tasks that wait for a resource, those with the highest priority run first. 0 by default.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote]
    /// # fn fit(epochs: u32) -> u32 { epochs }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let later = fit::options().priority(-1).remote(1);
    /// let urgent = fit::options().priority(10).remote(2);
    /// assert_eq!(later.get()? + urgent.get()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn priority(self, priority: i32) -> Self {
        self.with(|settings| settings.options.shape_mut().priority = priority)
    }

    /// How long after its submission the task is cancelled if it is not done; its reference then fails with
    /// [`Error::DeadlinePassed`](crate::Error::DeadlinePassed).
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// #[remote]
    /// fn search() {
    ///     while !aktis::is_cancelled() {
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    /// }
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let outcome = search::options().deadline(Duration::from_millis(50)).remote().get();
    /// assert!(matches!(outcome, Err(aktis::Error::DeadlinePassed(_))), "{outcome:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(self, allowed: Duration) -> Self {
        self.with(|settings| settings.options.deadline = Some(allowed))
    }

    /// How many items a task with `stream` may be ahead of its consumer: 64 by default, at least 1.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// #[remote(stream)]
    /// fn count(to: u32) -> impl Iterator<Item = u32> {
    ///     0..to
    /// }
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let items = count::options().stream_ahead(2).remote(10);
    /// assert_eq!(items.count(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream_ahead(self, items: u32) -> Self {
        self.with(|settings| settings.options.stream_ahead = Some(items.max(1)))
    }
}

/// Where the method `remote` of a chain is: generated, with the arguments of the function.
impl<F: RemoteFunction> Deref for TaskOptions<F> {
    type Target = F::Chain;

    fn deref(&self) -> &F::Chain {
        &self.chain
    }
}

impl<F: RemoteFunction> Clone for TaskOptions<F> {
    fn clone(&self) -> Self {
        Self::new(self.chain.settings().clone())
    }
}

impl<F: RemoteFunction> Debug for TaskOptions<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TaskOptions").field(self.chain.settings()).finish()
    }
}
