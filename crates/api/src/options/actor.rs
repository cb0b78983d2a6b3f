//! The options of one actor.

use super::{ActorSettings, CPU, Chain, GPU, MEMORY, Quantity};
use aktis_protocol::{GroupPlace, NodeId, Strategy};
use aktis_runtime::Function;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

/// A type whose impl has [`#[actor]`](macro@crate::actor). Only the attribute implements this trait.
///
/// A generic type is one with the types that the attribute lists. Code that is generic itself asks for them with
/// this bound: `where Stack<T>: RemoteActor`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an actor: its types are not in the list of the attribute",
    label = "these types are not in the list",
    note = "workers find functions by name and types: add the types, as in `#[actor(T = [u64, f64])]`"
)]
pub trait RemoteActor {
    #[doc(hidden)]
    type Chain: Chain<ActorSettings>;

    #[doc(hidden)]
    fn function(position: usize) -> &'static Function;
}

/// Options of one actor: `Counter::options()` starts the chain with what the attribute of `Counter` says, each
/// method changes one option, and `remote` creates the actor.
///
/// `remote` takes the arguments of `new`, as `Counter::remote` does. It can be called several times.
///
/// ```
/// use aktis::prelude::*;
///
/// struct Counter(u64);
///
/// #[actor(restarts = 1)]
/// impl Counter {
///     fn new(start: u64) -> Self {
///         Counter(start)
///     }
///     fn add(&mut self, n: u64) -> u64 {
///         self.0 += n;
///         self.0
///     }
/// }
///
/// fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     let robust = Counter::options().restarts(5).call_retries(1);
///     let (first, second) = (robust.remote(1), robust.remote(2));
///     assert_eq!((first.add(1).get()?, second.add(1).get()?), (2, 3));
///     Ok(())
/// }
/// ```
///
/// | method | on the attribute | without it |
/// |---|---|---|
/// | [`restarts`](Self::restarts) | `restarts = 3` | 0 |
/// | [`call_retries`](Self::call_retries) | `call_retries = 1` | 0 |
/// | [`checkpoint_calls`](Self::checkpoint_calls), [`checkpoint_every`](Self::checkpoint_every) | `checkpoint = 100`, `checkpoint = "5s"`, `checkpoint` | a restarted actor begins with `new` |
/// | [`checkpoint_directory`](Self::checkpoint_directory) | `checkpoint_directory = "/shared"` | a directory of the node |
/// | [`isolated`](Self::isolated) | `isolated` | a value in the shared worker |
/// | [`name`](Self::name) | `name = "counter"` | only handles lead to it |
/// | [`detached`](Self::detached) | `detached` | it ends with its last handle |
/// | [`cpus`](Self::cpus), [`gpus`](Self::gpus) | `cpus = 0.5`, `gpus = 1` | nothing |
/// | [`memory`](Self::memory) | `memory = 1_000_000` | nothing |
/// | [`resource`](Self::resource) | `resources(licence = 1)` | nothing |
/// | [`priority`](Self::priority) | `priority = 1` | 0 |
/// | [`spread`](Self::spread), [`on_node`](Self::on_node), [`strategy`](Self::strategy), [`in_group`](Self::in_group) | | wherever there is room |
///
/// `max_concurrency` and the [lists of types](macro@crate::actor) of a generic actor are on the attribute only.
/// A deadline is an option of calls: each handle has the method `with_deadline`.
#[must_use = "no actor is created before `remote`"]
pub struct ActorOptions<A: RemoteActor> {
    chain: A::Chain,
}

impl<A: RemoteActor> ActorOptions<A> {
    pub(crate) fn new(settings: ActorSettings) -> Self {
        Self { chain: A::Chain::new(settings) }
    }

    fn with(mut self, change: impl FnOnce(&mut ActorSettings)) -> Self {
        change(self.chain.settings_mut());
        self
    }

    /// How many CPUs the actor holds for its whole life: none by default; fractions down to 0.0001 are possible.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().cpus(2).start()?;
    /// let _entered = session.enter();
    /// let counter = Counter::options().cpus(0.5).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cpus(self, amount: impl Quantity) -> Self {
        self.resource(CPU, amount)
    }

    /// How many GPUs the actor holds for its whole life: none by default. Actors with fractions share one GPU.
    ///
    /// [`runtime_context`](crate::runtime_context) tells its methods the indices.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().gpus(1).start()?;
    /// let _entered = session.enter();
    /// let (first, second) = (Counter::options().gpus(0.5).remote(1), Counter::options().gpus(0.5).remote(2));
    /// assert_eq!((first.add(1).get()?, second.add(1).get()?), (2, 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn gpus(self, amount: impl Quantity) -> Self {
        self.resource(GPU, amount)
    }

    /// How many bytes of memory the actor holds for its whole life: none by default. They are counted, not enforced.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().memory(1u64 << 30).start()?;
    /// let _entered = session.enter();
    /// let counter = Counter::options().memory(512 << 20).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(self, bytes: impl Quantity) -> Self {
        self.resource(MEMORY, bytes)
    }

    /// How much of a resource with a name of your own the actor holds for its whole life.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// let session = Session::builder().resource("licence", 1).start()?;
    /// let _entered = session.enter();
    /// let counter = Counter::options().resource("licence", 1).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn resource(self, name: &str, amount: impl Quantity) -> Self {
        self.with(|settings| settings.resource(name, amount))
    }

    /// A name under which `Counter::find` gives a handle of the actor, in any process of the session or cluster.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let counter = Counter::options().name("visitors").remote(1);
    /// let found = Counter::find("visitors")?;
    /// assert_eq!(found.id(), counter.id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(self, name: &str) -> Self {
        self.with(|settings| settings.options.name = Some(name.into()))
    }

    /// The actor lives without handles: until it is killed or the session ends, on a cluster until it is killed.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// drop(Counter::options().name("visitors").detached().remote(1));
    /// let found = Counter::find("visitors")?;
    /// assert_eq!(found.add(1).get()?, 2);
    /// found.kill()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn detached(self) -> Self {
        self.with(|settings| settings.options.detached = true)
    }

    /// How often the actor is constructed again, from its first arguments, after its process died: 0 by default.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Fragile;
    /// # #[actor]
    /// # impl Fragile {
    /// #     fn new() -> Self { Fragile }
    /// #     fn crash(&self) { std::process::abort() }
    /// #     fn works(&self) -> bool { true }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let fragile = Fragile::options().isolated().restarts(1).remote();
    /// assert!(fragile.crash().get().is_err());
    /// assert!(fragile.works().get()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restarts(self, restarts: u32) -> Self {
        self.with(|settings| settings.options.restarts = restarts)
    }

    /// How often a call is tried again if the actor dies under the call: 0 by default. It needs
    /// [`restarts`](Self::restarts), and is for calls through handles of the process that created the actor.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let counter = Counter::options().restarts(3).call_retries(3).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn call_retries(self, retries: u32) -> Self {
        self.with(|settings| settings.options.call_retries = retries)
    }

    /// After how many calls an actor with checkpoints saves its state. The attribute has `checkpoint`, so that the actor can.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Account(u64);
    ///
    /// #[actor(restarts = 3, checkpoint = 100)]
    /// impl Account {
    ///     fn new() -> Self { Account(0) }
    ///     fn pay(&mut self, amount: u64) -> u64 { self.0 += amount; self.0 }
    ///     fn pid(&self) -> u32 { std::process::id() }
    /// }
    ///
    /// fn main() -> aktis::Result<()> {
    ///     let _session = aktis::init()?;
    ///     let account = Account::options().isolated().checkpoint_calls(10).remote();
    ///     assert_eq!(account.pay(7).get()?, 7);
    ///     let pid = account.pid().get()?.to_string();
    ///     std::process::Command::new("kill").args(["-9", &pid]).status().expect("there is a command `kill`");
    ///     assert_eq!(account.pay(1).get()?, 8);
    ///     Ok(())
    /// }
    /// ```
    pub fn checkpoint_calls(self, calls: u32) -> Self {
        self.with(|settings| settings.checkpoint(calls.max(1), 0))
    }

    /// After how much time an actor with checkpoints saves its state: with the first call that ends then. See
    /// [`checkpoint_calls`](Self::checkpoint_calls).
    pub fn checkpoint_every(self, time: Duration) -> Self {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.with(|settings| settings.checkpoint(0, milliseconds.max(1)))
    }

    /// Where checkpoints and logs of the actor are: an absolute path that all its nodes share. Then the actor goes on at another
    /// node when its own is lost, and a call is answered when the disk has its record.
    pub fn checkpoint_directory(self, path: impl AsRef<Path>) -> Self {
        self.with(|settings| settings.checkpoint_directory(path.as_ref()))
    }

    /// On which nodes the actor may live, and which of them it prefers: the general form of
    /// [`spread`](Self::spread) and [`on_node`](Self::on_node).
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let here = aktis::Strategy::Node { node: aktis::node()?, soft: true };
    /// let counter = Counter::options().strategy(here).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn strategy(self, strategy: Strategy) -> Self {
        self.with(|settings| settings.options.strategy = strategy)
    }

    /// Creates actors on one node after the other.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let counters: Vec<_> = (0..4).map(|start| Counter::options().spread().remote(start)).collect();
    /// assert_eq!(counters[3].add(1).get()?, 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn spread(self) -> Self {
        self.strategy(Strategy::Spread)
    }

    /// The actor lives on this node and no other.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let counter = Counter::options().on_node(aktis::node()?).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
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
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// use aktis::{Amount, GroupStrategy, PlacementGroup, Resources};
    ///
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let bundle = Resources::none().with("CPU", Amount::ONE);
    /// let group = PlacementGroup::create(vec![bundle], GroupStrategy::Pack)?;
    /// let counter = Counter::options().cpus(1).in_group(&group).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # group.remove()
    /// # }
    /// ```
    pub fn in_group(self, place: impl Into<GroupPlace>) -> Self {
        let place = place.into();
        self.with(|settings| settings.options.group = Some(place))
    }

    /// The urgency: of the actors that wait for resources, those with the highest priority get a place first. 0 by
    /// default.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Counter(u64);
    /// # #[actor]
    /// # impl Counter {
    /// #     fn new(start: u64) -> Self { Counter(start) }
    /// #     fn add(&mut self, n: u64) -> u64 { self.0 += n; self.0 }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let counter = Counter::options().cpus(1).priority(10).remote(1);
    /// assert_eq!(counter.add(1).get()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn priority(self, priority: i32) -> Self {
        self.with(|settings| settings.options.priority = priority)
    }

    /// The actor lives in a worker process of its own.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # struct Whereabouts;
    /// # #[actor]
    /// # impl Whereabouts {
    /// #     fn new() -> Self { Whereabouts }
    /// #     fn process(&self) -> u32 { std::process::id() }
    /// # }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let (shared, alone) = (Whereabouts::remote(), Whereabouts::options().isolated().remote());
    /// assert_ne!(shared.process().get()?, alone.process().get()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn isolated(self) -> Self {
        self.with(|settings| settings.options.isolated = true)
    }
}

/// Where the method `remote` of a chain is: generated, with the arguments of the constructor.
impl<A: RemoteActor> Deref for ActorOptions<A> {
    type Target = A::Chain;

    fn deref(&self) -> &A::Chain {
        &self.chain
    }
}

impl<A: RemoteActor> Clone for ActorOptions<A> {
    fn clone(&self) -> Self {
        Self::new(self.chain.settings().clone())
    }
}

impl<A: RemoteActor> Debug for ActorOptions<A> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ActorOptions").field(self.chain.settings()).finish()
    }
}
